// SPDX-License-Identifier: Apache-2.0
//! The option table: every key of the robot's file. It is the source of validation, defaults,
//! docs/reference/configuration.md, docs/reference/robot.schema.json and the file that `tautline init` writes.

use super::MAX_DOMAIN;
use super::kind::Kind;
use crate::limits::MAX_RATE;
use tautline_gateway::mapping::WhenSlow;

/// One key.
#[derive(Debug)]
pub struct Setting {
    /// Name in the file.
    pub name: &'static str,
    /// Form of the value.
    pub shape: Shape,
    /// Value of an absent key.
    pub preset: Preset,
    /// One sentence for people.
    pub doc: &'static str,
    /// Example of the value, as YAML on one line; empty for sections.
    pub example: &'static str,
    /// Whether `tautline init` writes the key without a comment sign.
    pub in_starter: bool,
}

/// The value of an absent key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// The key is required.
    Required,
    /// No value; the sentence describes the effect.
    Absent(&'static str),
    /// This value, as in the file.
    Value(&'static str),
    /// A value computed when the file is read, in words.
    Computed(&'static str),
}

/// The form of a key's value.
#[derive(Debug)]
pub enum Shape {
    /// One value.
    Single(Kind),
    /// A list of values; a single value needs no brackets.
    List(Kind),
    /// A list of values, a single value, or a map from values to their types.
    Typed(Kind),
    /// A map from names to names.
    Renames(Kind),
    /// A section with these keys.
    Section(&'static [Setting]),
    /// A section with these keys, or `true` or `false`.
    Switch(&'static [Setting]),
    /// A map from the fields of a message to values. The message type is not known yet.
    Fields,
    /// A list of sections.
    Sections(&'static [Setting]),
    /// A map from names to sections.
    Named(&'static Naming),
}

/// A map from names to sections.
#[derive(Debug)]
pub struct Naming {
    /// Kind of the names.
    pub names: Kind,
    /// Example name for the starter file and the docs.
    pub example: &'static str,
    /// Key that a single value in place of a section sets.
    pub short_for: Option<&'static str>,
    /// Key that holds the name in the list form; `None` allows only the map.
    pub list_with: Option<&'static str>,
    /// Keys of each section.
    pub options: &'static [Setting],
}

const fn single(
    name: &'static str,
    kind: Kind,
    preset: Preset,
    doc: &'static str,
    example: &'static str,
) -> Setting {
    Setting { name, shape: Shape::Single(kind), preset, doc, example, in_starter: false }
}

const fn group(name: &'static str, shape: Shape, preset: Preset, doc: &'static str) -> Setting {
    Setting { name, shape, preset, doc, example: "", in_starter: false }
}

impl Setting {
    const fn shown(mut self) -> Self {
        self.in_starter = true;
        self
    }

    const fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }
}

use Preset::{Absent, Computed, Required, Value};

/// The whole file.
pub const FILE: &[Setting] = &[
    single("name", Kind::NodeName, Required, "This node's name, unique in the team.", "robot1")
        .shown(),
    single(
        "listen",
        Kind::Listen("::"),
        Value("[::]:18470"),
        "Where packets are received; [::] takes IPv4 as well, 0.0.0.0 only IPv4.",
        "\"[::]:18470\"",
    ),
    single(
        "control",
        Kind::SocketPath,
        Computed(
            "$XDG_RUNTIME_DIR/tautline/NAME.sock, or /run/tautline/NAME.sock where that is not set",
        ),
        "Unix socket by which `tautline status`, `top` and `set` reach the daemon.",
        "/run/tautline/robot1.sock",
    ),
    single(
        "metrics",
        Kind::Listen("127.0.0.1"),
        Absent("no metrics"),
        "Where Prometheus may ask for /metrics.",
        "127.0.0.1:9470",
    ),
    group(
        "beacons",
        Shape::List(Kind::Interfaces),
        Absent("peers are not told"),
        "Interfaces on which this node announces its address to peers on the local network, so that their files need no address of it. A beacon is a few bytes by multicast, which only peers can read: once per second while a peer is down, every 10 s otherwise. Beacons of peers are read where this is on, and where a peer has no address.",
    )
    .example("true"),
    single(
        "diagnostics",
        Kind::Flag,
        Value("true"),
        "Whether this node publishes its state (peers, links, radios and drops) on /diagnostics of its ROS, and to peers where a name or pattern under topics covers /diagnostics. The available rate of its links is published on NODE_NAME/link of its ROS only. Nothing is published without subscribers.",
        "false",
    ),
    group(
        "audit",
        Shape::Switch(AUDIT),
        Computed("on where the service manager gives a folder for logs (LOGS_DIRECTORY, as the systemd unit does), else off"),
        "The audit log: JSON lines of who came and went, what was refused, what was changed and by whom, which safe messages were published; see [audit.md](audit.md). true takes the defaults below, false switches it off.",
    ),
    single(
        "security",
        Kind::OneOf(SECURITY),
        Value("keys"),
        "How peers are known: by their keys; or, on closed test networks, by nothing: anybody can then speak for anybody.",
        "none",
    ),
    single(
        "key",
        Kind::File,
        Computed("NAME.key beside this file"),
        "File of this node's own key, which only its owner may read; `tautline keygen` makes one.",
        "/etc/tautline/robot1.key",
    ),
    group(
        "ros1",
        Shape::Switch(ROS1),
        Computed("on, unless ros2 is there"),
        "The robot's own ROS 1; false switches it off.",
    ),
    group(
        "ros2",
        Shape::Switch(ROS2),
        Absent("off"),
        "The robot's own ROS 2, in place of ROS 1; true takes it with the defaults below.",
    ),
    group(
        "peers",
        Shape::Named(&PEERS),
        Absent("nobody to talk to"),
        "The other nodes: NAME: with keys below it; under security: none, NAME: ADDRESS will do.",
    )
    .shown(),
    group(
        "radios",
        Shape::Named(&RADIOS),
        Absent("every interface is a radio with the defaults below"),
        "Interfaces that need settings of their own.",
    ),
    group(
        "dscp",
        Shape::Switch(DSCP),
        Computed("on"),
        "Packets are marked by the highest priority in them, so that Wi-Fi (WMM) sends them before those of others that matter less; other networks may heed it too, or not. On a full channel of 6 Mbps bulk pays with up to a fifth. false leaves them unmarked.",
    ),
    group(
        "topics",
        Shape::Named(&TOPICS),
        Absent("nothing is sent from here"),
        "What is sent from here, and how; the first name or pattern that matches counts.",
    )
    .shown(),
    group(
        "services",
        Shape::Named(&SERVICES),
        Absent("none of this robot's services can be called from elsewhere"),
        "Services of this robot that peers are offered, and how; the first name or pattern that matches counts. A peer calls those that its `call` names.",
    ),
    group(
        "actions",
        Shape::Named(&ACTIONS),
        Absent("none of this robot's actions can be used from elsewhere"),
        "Actions of this robot (ROS 2) that peers are offered: short for their three services and two topics. A peer uses those that its `call` names. An action of ROS 1 is five topics.",
    ),
    group(
        "watchdogs",
        Shape::Named(&WATCHDOGS),
        Absent("silence is silence"),
        "Topics from peers whose silence is answered by a safe message, by their names here: TOPIC: TIME, or TOPIC: with keys below it. Armed by a message from a peer.",
    ),
    group(
        "tf",
        Shape::Section(TF),
        Absent("every transform leaves as it is"),
        "What leaves from here on topics of tf's types, whatever their names.",
    ),
    group("limits", Shape::Section(LIMITS), Absent("the defaults below"), "Bounds and budgets."),
    group(
        "realtime",
        Shape::Section(REALTIME),
        Absent("the normal scheduler"),
        "Real-time options of the thread that sends and receives.",
    ),
];

const AUDIT: &[Setting] = &[
    single(
        "to",
        Kind::OneOf(AUDIT_LOGS),
        Value("file"),
        "Where events go: a `file` that rotates, or `journald`, which has bounds of its own; then the keys below mean nothing.",
        "journald",
    ),
    single(
        "file",
        Kind::File,
        Computed("NAME.audit in LOGS_DIRECTORY, or in /var/log/tautline where that is not set"),
        "The current file; older ones are beside it, as FILE.1, FILE.2 and so on.",
        "/var/log/tautline/robot1.audit",
    ),
    single(
        "size",
        Kind::Bytes("256KiB", "1GiB"),
        Value("8MiB"),
        "Most bytes of one file; then a new one begins.",
        "8MiB",
    ),
    single(
        "files",
        Kind::Whole(1, 100),
        Value("4"),
        "Most files, the current one among them; the oldest is removed.",
        "4",
    ),
];

/// Destinations of the audit log.
const AUDIT_LOGS: &[&str] = &["file", "journald"];

const ROS1: &[Setting] = &[
    single(
        "master",
        Kind::MasterUri,
        Computed("ROS_MASTER_URI, else http://localhost:11311"),
        "The ROS master of this robot.",
        "http://localhost:11311",
    ),
    single(
        "host",
        Kind::Host,
        Computed("ROS_HOSTNAME, else ROS_IP, else the machine's name"),
        "Name or address by which local nodes reach this one. Its ROS sockets listen on the addresses of this machine to which it leads, and on loopback.",
        "10.0.0.1",
    ),
    Setting {
        name: "allow",
        shape: Shape::List(Kind::Network),
        preset: Absent("this machine and the master's alone"),
        doc: "Other computers of this robot, whose ROS nodes may connect to this one. ROS 1 has no authentication: who can connect reads all that arrives from peers. Never the radio's network.",
        example: "[10.0.0.0/24]",
        in_starter: false,
    },
    single("node_name", Kind::RosName, Value("/tautline"), "This node's ROS name.", "/tautline"),
    types(
        Computed("CMAKE_PREFIX_PATH, ROS_PACKAGE_PATH, then /usr"),
        "Where types are installed (FOLDER/share/PACKAGE/msg, srv; messages also as FOLDER/lib/python3/dist-packages/PACKAGE/msg); looked into for services, for peers of ROS 2, and for types of peers before what they say of them.",
        "[/opt/ros/noetic]",
    ),
];

const fn types(preset: Preset, doc: &'static str, example: &'static str) -> Setting {
    let shape = Shape::List(Kind::Folder);
    Setting { name: "definitions", shape, preset, doc, example, in_starter: false }
}

const ROS2: &[Setting] = &[
    single(
        "domain",
        Kind::Whole(0, MAX_DOMAIN as u64),
        Computed("ROS_DOMAIN_ID, else 0"),
        "Its domain on this machine; nothing of it crosses the radio, so robots may share a number.",
        "0",
    ),
    single(
        "range",
        Kind::OneOf(RANGES),
        Computed(
            "ROS_AUTOMATIC_DISCOVERY_RANGE, or localhost if ROS_LOCALHOST_ONLY is 1, else subnet",
        ),
        "Where local nodes look for each other; either way only those of this machine are met.",
        "localhost",
    ),
    single("node_name", Kind::RosName, Value("/tautline"), "This node's ROS name.", "/tautline"),
    types(
        Computed("AMENT_PREFIX_PATH"),
        "Where types are installed (FOLDER/share/PACKAGE/msg, srv); looked into for peers of ROS 1, and for watchdogs.",
        "[/opt/ros/jazzy]",
    ),
];

/// Discovery ranges of ROS 2 nodes that Tautline supports, of the values of
/// ROS_AUTOMATIC_DISCOVERY_RANGE.
pub const RANGES: &[&str] = &["subnet", "localhost"];

/// Modes of `security`.
pub const SECURITY: &[&str] = &["keys", "none"];

/// Nobody has the secret key: the bytes of this public key are text.
const EXAMPLE_KEY: &str = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";

const PEERS: Naming = Naming {
    names: Kind::NodeName,
    example: "base",
    short_for: Some("address"),
    list_with: None,
    options: &[
        single(
            "key",
            Kind::PublicKey,
            Absent("none, which only security: none allows"),
            "Its public key, as `tautline keygen` shows it there.",
            EXAMPLE_KEY,
        )
        .shown(),
        single(
            "address",
            Kind::Endpoint,
            Absent("it calls us"),
            "Host name or address, with :PORT where that is not 18470.",
            "10.0.0.2",
        )
        .shown(),
        single(
            "interface",
            Kind::Interface,
            Absent("the routing table's choice"),
            "Interface to leave by.",
            "wlan0",
        ),
        single(
            "mtu",
            Kind::Whole(256, 9000),
            Absent("the interface's, at most 1500"),
            "Largest IP packet in bytes.",
            "1400",
        ),
        group(
            "links",
            Shape::Sections(LINKS),
            Absent("one link, by address"),
            "Several paths to it, in place of address, interface and mtu.",
        )
        .example(
            "[{ address: 10.0.0.2, interface: wlan0 }, { address: 10.1.0.2, interface: wlan1 }]",
        ),
        single(
            "prefix",
            Kind::RosName,
            Absent("none"),
            "Put before the names of its topics and services here. Under a prefix, what it senses is taken (lasers, cameras, odometry, maps, diagnostics, transforms, by name and hash of the type: docs/reference/rights.md lists them), and its services are served.",
            "/base",
        )
        .shown(),
        group(
            "remap",
            Shape::Renames(Kind::RosName),
            Absent("none"),
            "Names of its topics that become others here, before the prefix is put on.",
        )
        .example("{ /scan: /front/scan }"),
        group(
            "accept",
            Shape::Typed(Kind::Pattern),
            Absent("with `prefix`: what it senses, and its services; without: nothing"),
            "Which of its topics, services and actions are taken, by their names there, beside what it senses under a `prefix`; nothing else is. A list takes any type; in a map the type has to be the one given, and of the version that is installed here.",
        )
        .example("{ /cmd_vel: geometry_msgs/Twist, \"/plan/**\": any }"),
        group(
            "call",
            Shape::List(Kind::Pattern),
            Absent("none"),
            "Services and actions of this robot, of those under services and actions, that it may call.",
        )
        .example("[/set_mode, /navigate]"),
        group(
            "offer",
            Shape::List(Kind::Pattern),
            Absent("all"),
            "Topics, services and actions of this robot, of those under topics, services and actions, that it is offered; nothing else is.",
        )
        .example("[/scan, \"/camera/**\"]"),
        single(
            "max_rate",
            Kind::BitRate("1kbps", "100Gbps"),
            Value(MAX_RATE),
            "Most that is taken of its topics, calls and answers, after decompression; what comes faster for longer than a second is dropped here.",
            "2Mbps",
        ),
        single(
            "max_priority",
            Kind::Whole(0, 255),
            Value("255"),
            "Highest priority that its topics may have where they are passed on.",
            "200",
        ),
        group(
            "via",
            Shape::List(Kind::NodeName),
            Absent("none"),
            "Peers that pass packets on to it, in the order in which they are tried after its own links; each of them needs `relay` for both ends.",
        )
        .example("[robot2]"),
        single(
            "relay",
            Kind::Flag,
            Value("false"),
            "Whether its packets for others are passed on from here.",
            "true",
        ),
    ],
};

const LINKS: &[Setting] = &[
    single(
        "address",
        Kind::Endpoint,
        Required,
        "Host name or address, with :PORT where that is not 18470.",
        "10.0.0.3",
    ),
    single(
        "interface",
        Kind::Interface,
        Absent("the routing table's choice"),
        "Interface to leave by.",
        "wlan0",
    ),
    single(
        "mtu",
        Kind::Whole(256, 9000),
        Absent("the interface's, at most 1500"),
        "Largest IP packet in bytes.",
        "1400",
    ),
];

const RADIOS: Naming = Naming {
    names: Kind::Interface,
    example: "wlan0",
    short_for: None,
    list_with: None,
    options: &[
        single(
            "rate",
            Kind::Pacing("1kbps", "100Gbps"),
            Value("auto"),
            "Rate control. `auto`: by back-pressure of the radio, and at the rate that the reports of each peer show, wherever the bottleneck is. A rate: packets are sent at this rate whatever peers report, so a rate above the bottleneck's fills a queue. `back-pressure`: by back-pressure of the radio alone. `aid`, `aimd`: by losses, as RCom, for comparison.",
            "6Mbps",
        ),
        single(
            "in_flight",
            Kind::Whole(1, 64),
            Value("2"),
            "How many full packets may wait in the kernel at once.",
            "2",
        ),
    ],
};

const DSCP: &[Setting] = &[
    single(
        "voice",
        DSCP_KIND,
        Value("48"),
        "DSCP of the most urgent packets, and of Tautline's own. 48 (CS6) is Wi-Fi's voice category on all kernels; 46 (EF) on those since 6.8.",
        "46",
    ),
    single("voice_from", FROM_KIND, Value("210"), "Lowest priority of these; 256: none.", "250"),
    single(
        "video",
        DSCP_KIND,
        Value("32"),
        "DSCP of the next: 32 (CS4) is Wi-Fi's video category.",
        "34",
    ),
    single("video_from", FROM_KIND, Value("140"), "Lowest priority of these; 256: none.", "120"),
    single("best_effort", DSCP_KIND, Value("0"), "DSCP of the rest, which is most.", "0"),
    single(
        "best_effort_from",
        FROM_KIND,
        Value("10"),
        "Lowest priority of these; what is below it waits for everybody's.",
        "1",
    ),
    single(
        "background",
        DSCP_KIND,
        Value("8"),
        "DSCP of what is below: 8 (CS1) is Wi-Fi's background category.",
        "8",
    ),
];

const DSCP_KIND: Kind = Kind::Whole(0, 63);
/// One more than the highest priority; as a limit it matches no packet.
const FROM_KIND: Kind = Kind::Whole(0, 256);

const SERVICES: Naming = Naming {
    names: Kind::Pattern,
    example: "/switch",
    short_for: None,
    list_with: Some("name"),
    options: CALLS,
};

const ACTIONS: Naming = Naming {
    names: Kind::RosName,
    example: "/navigate",
    short_for: None,
    list_with: Some("name"),
    options: CALLS,
};

const CALLS: &[Setting] = &[
    single(
        "priority",
        Kind::Whole(0, 255),
        Value("150"),
        "Of calls and answers; higher goes first, from the next packet on.",
        "180",
    ),
    single(
        "timeout",
        Kind::Duration("1ms", "10min"),
        Value("5s"),
        "How long a caller waits for an answer; the result of an action is waited for until it ends.",
        "2s",
    ),
    Setting {
        name: "to",
        shape: Shape::List(Kind::NodeName),
        preset: Absent("every peer"),
        doc: "Peers that are offered it; who may call, `peers.NAME.call` says.",
        example: "[base]",
        in_starter: false,
    },
];

const TOPICS: Naming = Naming {
    names: Kind::Pattern,
    example: "/scan",
    short_for: None,
    list_with: Some("name"),
    options: &[
        single(
            "priority",
            Kind::Whole(0, 255),
            Value("100"),
            "Higher goes first, from the next packet on.",
            "200",
        )
        .shown(),
        single(
            "keep_last",
            Kind::Whole(1, 65535),
            Computed("1 for images and point clouds, 10 for all else"),
            "Number of newest messages that matter. At most this number is queued, and a message that was repaired late is still delivered after fewer newer messages than this. With 1 messages never arrive out of order.",
            "1",
        ),
        single(
            "when_slow",
            Kind::OneOf(WhenSlow::WORDS),
            Absent("as keep_last says"),
            "How the topic gives way where a link cannot carry all of it. `latest`: only the newest message waits, each as fresh as can be; another word for keep_last: 1. `thin`: every n-th message is sent, at even distances and without waiting for one before it, the rest is left out; fewer than with latest, for filters and mapping. `queue`: all wait in order, until lifespan or limits end that; for bursts, since on a link that is too slow for long all become as old as may be. `status` tells what was given up.",
            "thin",
        ),
        single(
            "lifespan",
            Kind::Duration("1ms", "24h"),
            Absent("never worthless"),
            "Age past which a message is worthless and dropped.",
            "500ms",
        ),
        single(
            "rate",
            Kind::Frequency("0.001", "100000"),
            Absent("every message"),
            "Most messages per second; the rest is left out at the source. Transforms of tf are merged instead: each message has the latest of every frame that was renewed since the one before.",
            "5Hz",
        ),
        single(
            "compression",
            Kind::OneOf(&["none", "zstd"]),
            Value("none"),
            "Compression of the payload; sent as it is where that is not smaller.",
            "zstd",
        ),
        group("to", Shape::List(Kind::NodeName), Absent("every peer"), "Peers that may have it.")
            .example("[base]"),
        single(
            "repair",
            Kind::Flag,
            Value("true"),
            "Whether lost pieces are sent again while the message is useful.",
            "true",
        ),
    ],
};

const WATCHDOGS: Naming = Naming {
    names: Kind::RosName,
    example: "/cmd_vel",
    short_for: Some("after"),
    list_with: None,
    options: &[
        single(
            "after",
            Kind::Duration("10ms", "1h"),
            Required,
            "Longest time without a message from any peer.",
            "500ms",
        ),
        group(
            "message",
            Shape::Fields,
            Absent("all zero, false and empty"),
            "Fields of the safe message; those left out are zero, false or empty. The topic's type has to be installed on this robot: what a peer says of its layout is believed only where the hash covers all of it (ROS 2; in ROS 1 types without nested ones).",
        )
        .example("{ linear: { x: 0.0 } }"),
        single(
            "repeat",
            Kind::Duration("10ms", "1h"),
            Absent("it is published once"),
            "How often it is published while the topic stays silent.",
            "1s",
        ),
    ],
};

const TF: &[Setting] = &[
    group(
        "frames",
        Shape::List(Kind::Frames),
        Absent("all"),
        "Frames whose transforms leave: a transform is known by its child frame, as named on this robot.",
    )
    .example("[odom, base_link, \"arm/**\"]"),
    single(
        "prefix",
        Kind::FramePrefix,
        Absent("none"),
        "Prefix of the names of all frames, which distinguishes robots. frame_id in other messages does not change.",
        "robot1/",
    ),
    group(
        "shared",
        Shape::List(Kind::Frames),
        Absent("none"),
        "Frames common to all robots, which get no prefix.",
    )
    .example("[map, earth]"),
];

const LIMITS: &[Setting] = &[
    single(
        "max_message",
        Kind::Bytes("1kB", "1GiB"),
        Value("8MB"),
        "Largest message carried.",
        "8MB",
    ),
    single(
        "queue_bytes",
        Kind::Bytes("1kB", "4GiB"),
        Value("16MB"),
        "Bytes held for one peer, waiting or not yet acknowledged; at least max_message.",
        "16MB",
    ),
    single(
        "queue_time",
        Kind::Duration("10ms", "1h"),
        Value("2s"),
        "Time the queue of one peer may take to drain.",
        "2s",
    ),
    single(
        "reassembly_bytes",
        Kind::Bytes("1kB", "4GiB"),
        Value("16MB"),
        "Bytes of incomplete messages from one peer; at least max_message.",
        "16MB",
    ),
    single(
        "repair_budget",
        Kind::Share,
        Value("30%"),
        "Share of the bytes sent that repairs may add.",
        "30%",
    ),
];

const REALTIME: &[Setting] = &[
    single(
        "priority",
        Kind::Whole(1, 99),
        Absent("the normal scheduler"),
        "SCHED_FIFO priority; needs CAP_SYS_NICE.",
        "50",
    ),
    single("cpu", Kind::Whole(0, 1023), Absent("any"), "CPU to stay on.", "1"),
    single(
        "lock_memory",
        Kind::Flag,
        Value("false"),
        "Lock all memory, so that paging never delays a packet; needs CAP_IPC_LOCK.",
        "true",
    ),
];
