// SPDX-License-Identifier: Apache-2.0
//! The option table: every key of the robot's file. It is the source of validation, defaults,
//! docs/reference/configuration.md, docs/reference/robot.schema.json and the file that `tautline init` writes.

use super::MAX_DOMAIN;
use super::kind::Kind;
use crate::limits::MAX_RATE;
use crate::treatment::{LinkChoice, OrderChoice, WhenSlow};

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
    /// Example of the value, as YAML on one line; the default, if none is given. Empty for
    /// sections.
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

pub(super) const fn key(name: &'static str, kind: Kind, preset: Preset) -> Setting {
    shaped(name, Shape::Single(kind), preset)
}

const fn list(name: &'static str, kind: Kind, preset: Preset) -> Setting {
    shaped(name, Shape::List(kind), preset)
}

pub(super) const fn shaped(name: &'static str, shape: Shape, preset: Preset) -> Setting {
    let example = if let Preset::Value(value) = preset { value } else { "" };
    Setting { name, shape, preset, doc: "", example, in_starter: false }
}

impl Setting {
    pub(super) const fn doc(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self
    }

    pub(super) const fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    pub(super) const fn shown(mut self) -> Self {
        self.in_starter = true;
        self
    }
}

use Preset::{Absent, Computed, Required, Value};

/// The whole file.
pub const FILE: &[Setting] = &[
    key("name", Kind::NodeName, Required)
        .example("robot1")
        .shown()
        .doc("Name of this node, unique in the team."),
    key("listen", Kind::Listen("::"), Value("[::]:18470"))
        .example("\"[::]:18470\"")
        .doc("Address and port for packets. [::] accepts IPv6 and IPv4, 0.0.0.0 only IPv4."),
    key("control", Kind::SocketPath, Computed("$XDG_RUNTIME_DIR/tautline/NAME.sock, or /run/tautline/NAME.sock without that variable"))
        .example("/run/tautline/robot1.sock")
        .doc("Unix socket through which `tautline status`, `top`, `set` and `reload` reach the daemon."),
    key("metrics", Kind::Listen("127.0.0.1"), Absent("no metrics"))
        .example("127.0.0.1:9470")
        .doc("Address on which Prometheus can scrape /metrics."),
    list("beacons", Kind::Interfaces, Absent("no beacons"))
        .example("true")
        .doc("Interfaces on which this node announces its address to peers on the local network, so that their files need no address for this node. A beacon is a multicast packet of a few bytes that only peers can read. The node sends one per second while a peer is down, otherwise one every 10 s. It reads beacons of peers if this key is set or if a peer has no address."),
    key("diagnostics", Kind::Flag, Value("true"))
        .example("false")
        .doc("Whether this node publishes its state (peers, links, radios and drops) on /diagnostics of its ROS, and to peers if a rule under topics covers /diagnostics. The available rate of its links appears only locally, on NODE_NAME/link. Without subscribers, nothing is published."),
    shaped("audit", Shape::Switch(AUDIT), Computed("on if the service manager provides a folder for logs (LOGS_DIRECTORY, as the systemd unit does), otherwise off"))
        .doc("The audit log: a JSON line for each peer that comes up or goes down, each refusal, each change with its author, and each safe message; see [audit.md](audit.md). true uses the defaults below, false disables the log."),
    key("state", Kind::Folder, Computed("STATE_DIRECTORY, which the systemd unit sets, or /var/lib/tautline without that variable"))
        .example("/var/lib/tautline")
        .doc("Folder of the files that survive a restart: NAME.latched, which subscriber has which latched or transient local message, so that none gets it twice; NAME.goals, pending calls about goals of actions; NAME.budgets, the data used of each `budget`."),
    key("security", Kind::OneOf(SECURITY), Value("keys"))
        .example("none")
        .doc("How peers prove their identity: `keys`, or `none` on closed test networks. With `none`, anybody on the network can act as any node."),
    key("key", Kind::File, Computed("NAME.key in the folder of this file"))
        .example("/etc/tautline/robot1.key")
        .doc("File with this node's secret key, readable only by its owner. `tautline keygen` creates it."),
    shaped("ros1", Shape::Switch(ROS1), Computed("on, unless ros2 is set"))
        .doc("Connection to ROS 1 on this robot; false disables it."),
    shaped("ros2", Shape::Switch(ROS2), Absent("off"))
        .doc("Connection to ROS 2 on this robot, instead of ROS 1; true uses the defaults below."),
    shaped("peers", Shape::Named(&PEERS), Absent("no peers"))
        .shown()
        .doc("The other nodes, by name: NAME: with the keys below. Under `security: none`, NAME: ADDRESS is enough."),
    shaped("radios", Shape::Named(&RADIOS), Absent("every interface is a radio with the defaults below"))
        .doc("Interfaces with their own settings."),
    shaped("dscp", Shape::Switch(DSCP), Computed("on"))
        .doc("Marks each packet by the highest priority in it. Wi-Fi (WMM) then sends the packet before less important packets of other senders; other networks may use or ignore the mark. On a saturated 6 Mbps channel, bulk data loses up to a fifth of its rate. false leaves packets unmarked."),
    shaped("topics", Shape::Named(&TOPICS), Absent("no topic is sent"))
        .shown()
        .doc("Topics that this node sends, and how. The first name or pattern that matches a topic applies."),
    shaped("services", Shape::Named(&SERVICES), Absent("peers can call no service of this robot"))
        .doc("Services of this robot that are advertised to peers, and how. The first name or pattern that matches a service applies. A peer may call only the services that its `call` names."),
    shaped("actions", Shape::Named(&ACTIONS), Absent("peers can use no action of this robot"))
        .doc("Actions of this robot that are advertised to peers, of actionlib (ROS 1) or ROS 2. Peers of either ROS can use them. A peer may use only the actions that its `call` names."),
    shaped("watchdogs", Shape::Named(&WATCHDOGS), Absent("no safe messages"))
        .doc("Topics from peers, by their local names, for which this node publishes a safe message when messages stop: TOPIC: TIME, or TOPIC: with the keys below. The first message from a peer arms the watchdog."),
    shaped("tf", Shape::Section(TF), Absent("every transform is sent unchanged"))
        .doc("Rules for the frames of tf in what this node sends. `frames` applies to every topic of a tf type, whatever its name; `prefix` and `shared` apply to all topics."),
    shaped("limits", Shape::Section(LIMITS), Absent("the defaults below")).doc("Limits and budgets."),
    shaped("realtime", Shape::Section(REALTIME), Absent("the normal scheduler"))
        .doc("Real-time options of the thread that sends and receives packets."),
];

pub(super) const AUDIT: &[Setting] = &[
    key("to", Kind::OneOf(AUDIT_LOGS), Value("file"))
        .example("journald")
        .doc("Destination: `file`, which rotates, or `journald`, which has limits of its own and ignores the keys below."),
    key("file", Kind::File, Computed("NAME.audit in LOGS_DIRECTORY, or in /var/log/tautline without that variable"))
        .example("/var/log/tautline/robot1.audit")
        .doc("Path of the current file. Older files are in the same folder as FILE.1, FILE.2 and so on."),
    key("size", Kind::Bytes("256KiB", "1GiB"), Value("8MiB"))
        .doc("Maximum size of one file; then a new file begins."),
    key("files", Kind::Whole(1, 100), Value("4"))
        .doc("Maximum number of files, including the current one. The oldest is removed."),
];

const AUDIT_LOGS: &[&str] = &["file", "journald"];

const ROS1: &[Setting] = &[
    key("master", Kind::MasterUri, Computed("ROS_MASTER_URI, else http://localhost:11311"))
        .example("http://localhost:11311")
        .doc("URI of this robot's ROS master."),
    key("host", Kind::Host, Computed("ROS_HOSTNAME, else ROS_IP, else the name of the machine"))
        .example("10.0.0.1")
        .doc("Name or address by which local nodes reach this node. Its ROS sockets listen on loopback and on those addresses of this machine to which the name resolves."),
    list("allow", Kind::Network, Absent("only this machine and the machine of the master"))
        .example("[10.0.0.0/24]")
        .doc("Other computers of this robot whose ROS nodes may connect to this node. ROS 1 has no authentication: a computer listed here can read everything that arrives from peers. Never list the radio's network."),
    NODE_NAME,
    list("definitions", Kind::Folder, Computed("CMAKE_PREFIX_PATH, ROS_PACKAGE_PATH, then /usr"))
        .example("[/opt/ros/noetic]")
        .doc("Folders of installed types (FOLDER/share/PACKAGE/msg, srv and action; messages also FOLDER/lib/python3/dist-packages/PACKAGE/msg). Services and peers with ROS 2 need them. They take precedence over definitions from peers."),
];

const NODE_NAME: Setting = key("node_name", Kind::RosName, Value(DEFAULT_NODE_NAME)).doc(
    "ROS name of this node. Without this key, roslaunch and ros2 launch may give another name.",
);

/// ROS name of a node that neither its file nor a launching program names.
pub const DEFAULT_NODE_NAME: &str = "/tautline";

const ROS2: &[Setting] = &[
    key("domain", Kind::Whole(0, MAX_DOMAIN as u64), Computed("ROS_DOMAIN_ID, else 0"))
        .example("0")
        .doc("Domain on this machine. No DDS packet crosses the radio, so several robots may use the same number."),
    key("range", Kind::OneOf(RANGES), Computed("ROS_AUTOMATIC_DISCOVERY_RANGE, or localhost if ROS_LOCALHOST_ONLY is 1, else subnet"))
        .example("localhost")
        .doc("Discovery range of local nodes. With either value, this node connects only to nodes on this machine."),
    NODE_NAME,
    list("definitions", Kind::Folder, Computed("AMENT_PREFIX_PATH"))
        .example("[/opt/ros/jazzy]")
        .doc("Folders of installed types (FOLDER/share/PACKAGE/msg and srv). Peers with ROS 1 and watchdogs need them."),
];

/// Discovery ranges of ROS 2 nodes that Tautline supports, of the values of
/// ROS_AUTOMATIC_DISCOVERY_RANGE.
pub const RANGES: &[&str] = &["subnet", "localhost"];

/// What `show` of a peer may name.
pub const SHOWN: &[&str] = &["nodes", "parameters", "logs"];

/// Modes of `security`.
pub const SECURITY: &[&str] = &["keys", "none"];

/// Nobody has the secret key: the bytes of this public key are text.
pub(super) const EXAMPLE_KEY: &str = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";

const PEERS: Naming = Naming {
    names: Kind::NodeName,
    example: "base",
    short_for: Some("address"),
    list_with: None,
    options: &[
        key("key", Kind::PublicKey, Absent("none, which only security: none allows"))
            .example(EXAMPLE_KEY)
            .shown()
            .doc("Public key of the peer. `tautline keygen` shows it on that robot."),
        key("address", Kind::Endpoint, Absent("the peer initiates the handshake"))
            .example("10.0.0.2")
            .shown()
            .doc(ADDRESS),
        INTERFACE,
        MTU,
        shaped("links", Shape::Sections(LINKS), Absent("one link, to address"))
            .example("[{ address: 10.0.0.2, interface: wlan0 }, { address: 10.1.0.2, interface: wlan1 }]")
            .doc("Several paths to the peer, instead of address, interface and mtu."),
        key("prefix", Kind::RosName, Absent("none"))
            .example("/base")
            .shown()
            .doc("Prefix of the local names of the peer's topics and services. With a prefix, this node accepts the peer's observations (lasers, cameras, odometry, maps, diagnostics and transforms, identified by name and hash of the type; [rights.md](rights.md#observations) lists them) and serves its services."),
        shaped("remap", Shape::Renames(Kind::RosName), Absent("none"))
            .example("{ /scan: /front/scan }")
            .doc("Topics, services and actions of the peer that get other names here. The prefix is added afterwards. A name with '-' or with a level that starts with a digit (`/camera-1/image`), as nodes of ROS 1 may have, needs another name at a robot with ROS 2."),
        shaped("accept", Shape::Typed(Kind::Pattern), Absent("with `prefix`: observations and services of the peer; without: nothing"))
            .example("{ /cmd_vel: geometry_msgs/Twist, \"/plan/**\": any }")
            .doc("Topics, services and actions of the peer that this node accepts in addition to those under `prefix`, by their names at the peer. A list accepts any type. A map accepts only the given type, in the version that is installed on this robot."),
        list("call", Kind::Pattern, Absent("none"))
            .example("[/set_mode, /navigate]")
            .doc("Services and actions of this robot that the peer may call, from those under services and actions."),
        list("offer", Kind::Pattern, Absent("all"))
            .example("[/scan, \"/camera/**\"]")
            .doc("Topics, services and actions of this robot that are advertised to the peer, from those under topics, services and actions."),
        list("show", Kind::OneOf(SHOWN), Absent("nothing"))
            .example("[nodes, parameters, logs]")
            .doc("What of this robot's ROS the peer sees under its `prefix` for this robot: the nodes, with the topics and services that the peer gets; the parameters (ROS 1: all of the server; ROS 2: the services of each node that read them); the logs (`/rosout`). See [remote robots](../how-to/remote-robots.md)."),
        list("set_parameters", Kind::Pattern, Absent("none"))
            .example("[/camera, \"/arm/**\"]")
            .doc("Parameters of this robot that the peer may set: ROS 1 by the name of the parameter, ROS 2 by the name of its node."),
        key("max_rate", Kind::BitRate("1kbps", "100Gbps"), Value(MAX_RATE))
            .example("2Mbps")
            .doc("Maximum rate of the peer's topics, calls and responses after decompression. If they exceed it for longer than a second, the excess is dropped."),
        key("max_priority", Kind::Whole(0, 255), Value("255"))
            .example("200")
            .doc("Maximum priority of the peer's packets that this node forwards."),
        key("move_stamps", Kind::Flag, Value("false"))
            .example("true")
            .doc("Whether time stamps of headers in the peer's messages on topics are moved onto this robot's clock, by the measured offset of the two clocks; see [transforms](../how-to/transforms.md#clocks-that-differ)."),
        list("via", Kind::NodeName, Absent("none"))
            .example("[robot2]")
            .doc("Peers that forward packets to this peer, tried in this order after its own links. Each of them needs `relay: true` for both ends."),
        key("direct", Kind::Flag, Absent("if an address translator shows"))
            .example("false")
            .doc("Whether to seek a direct path to a peer with `via` and without an address, which both ends then use instead of the relay; see [the Internet](../how-to/internet.md#direct-paths). By default only if an address translator (NAT) is on the path of either end to the relay."),
        key("relay", Kind::Flag, Value("false"))
            .example("true")
            .doc("Whether this node forwards the peer's packets for other nodes."),
    ],
};

const ADDRESS: &str = "Host name or address, with :PORT if the port is not 18470.";

const INTERFACE: Setting = key("interface", Kind::Interface, Absent("by the routing table"))
    .example("wlan0")
    .doc("Interface that sends the packets.");

const MTU: Setting =
    key("mtu", Kind::Whole(256, 9000), Absent("the MTU of the interface, at most 9000"))
        .example("1400")
        .doc("Upper limit of the size of an IP packet in bytes. The daemon finds out what the path carries below this limit; see [links](../how-to/links.md#packet-size).");

const LINKS: &[Setting] = &[
    key("address", Kind::Endpoint, Required).example("10.0.0.3").doc(ADDRESS),
    key("name", Kind::NodeName, Computed("the interface, else link1, link2 and so on"))
        .example("lte")
        .doc("Name of the link in `only_links`, `avoid_links` and `status`."),
    INTERFACE,
    MTU,
    key("metered", Kind::Flag, Value("false"))
        .example("true")
        .doc("Whether the link costs money. It carries messages only while no other link can, and those of topics whose `only_links` names it."),
    key("budget", Kind::Budget, Absent("no limit"))
        .example("5GB/30d")
        .doc("Data that the link may carry in each period, in both directions, with the headers of IP and UDP. The link is then metered. When the budget is used up, only topics with `over_budget: true` use the link until the next period; see [links](../how-to/links.md#limit-the-data-of-a-metered-link)."),
];

const RADIOS: Naming = Naming {
    names: Kind::Interface,
    example: "wlan0",
    short_for: None,
    list_with: None,
    options: &[
        key("rate", Kind::Pacing("1kbps", "100Gbps"), Value("auto"))
            .example("6Mbps")
            .doc("Rate control. `auto` follows back-pressure of the radio and the reports of each peer, wherever the bottleneck is. A rate is fixed: packets are sent at this rate whatever peers report, so a rate above that of the bottleneck fills a queue. `back-pressure` follows only back-pressure of the radio."),
        key("in_flight", Kind::Whole(1, 64), Value("2"))
            .doc("Maximum number of full packets in the kernel at once."),
        key("channel", Kind::Channel, Absent("unknown"))
            .example("\"wifi:6Mbps\"")
            .doc("What `plan` assumes of the radio; see [`tautline plan`](command-line.md#tautline-plan). `check` and `run` warn if what the topics `expect` does not fit. The daemon compares losses, and the bit rate while the radio is full, with it; see [monitoring](../how-to/monitoring.md#compare-with-the-plan)."),
    ],
};

const DSCP: &[Setting] = &[
    key("voice", DSCP_KIND, Value("48"))
        .example("46")
        .doc("DSCP of the most urgent packets and of Tautline's own packets. 48 (CS6) selects Wi-Fi's voice category on all kernels, 46 (EF) only since 6.8."),
    key("voice_from", FROM_KIND, Value("210")).example("250").doc(FROM),
    key("video", DSCP_KIND, Value("32"))
        .example("34")
        .doc("DSCP of the next class. 32 (CS4) selects Wi-Fi's video category."),
    key("video_from", FROM_KIND, Value("140")).example("120").doc(FROM),
    key("best_effort", DSCP_KIND, Value("0"))
        .doc("DSCP of the next class, to which most packets belong."),
    key("best_effort_from", FROM_KIND, Value("10"))
        .example("1")
        .doc("Minimum priority of this class. Lower priorities wait for the packets of all senders."),
    key("background", DSCP_KIND, Value("8"))
        .doc("DSCP of all lower priorities. 8 (CS1) selects Wi-Fi's background category."),
];

const DSCP_KIND: Kind = Kind::Whole(0, 63);
/// One more than the highest priority; as a limit it matches no packet.
const FROM_KIND: Kind = Kind::Whole(0, 256);
const FROM: &str = "Minimum priority of this class; 256 disables it.";

const SERVICES: Naming = Naming { names: Kind::Pattern, example: "/switch", ..ACTIONS };

const ACTIONS: Naming = Naming {
    names: Kind::RosName,
    example: "/navigate",
    short_for: None,
    list_with: Some("name"),
    options: CALLS,
};

const CALLS: &[Setting] = &[
    key("priority", Kind::Whole(0, 255), Value("150"))
        .example("180")
        .doc("Priority of calls and responses. A higher priority is sent first, from the next packet on."),
    key("timeout", Kind::Duration("1ms", "10min"), Value("5s"))
        .example("2s")
        .doc("Maximum time that a caller waits for a response. For the result of an action and for the cancellation of a goal, the caller waits up to a day."),
    list("to", Kind::NodeName, Absent("every peer"))
        .example("[base]")
        .doc("Peers to which the service or action is advertised. `peers.NAME.call` determines which of them may call it."),
];

const TOPICS: Naming = Naming {
    names: Kind::Pattern,
    example: "/scan",
    short_for: None,
    list_with: Some("name"),
    options: &[
        key("priority", Kind::Whole(0, 255), Value("100"))
            .example("200")
            .shown()
            .doc("A higher priority is sent first, from the next packet on."),
        key("keep_last", Kind::Whole(1, 65535), Computed("1 for images and point clouds, 10 for other types"))
            .example("1")
            .doc("Number of newest messages that matter. At most this number is queued. A message that was repaired late is delivered if fewer newer messages than this have arrived. With 1, messages never arrive out of order."),
        key("when_slow", Kind::OneOf(WhenSlow::WORDS), Absent("by keep_last"))
            .example("thin")
            .doc("Behaviour on a link that cannot carry the whole topic. `latest` queues only the newest message; it is another name for keep_last: 1. `thin` sends every n-th message, at even intervals and without queueing delay, and drops the others. It sends fewer messages than `latest`; it suits filters and mapping. `queue` keeps all messages in order until lifespan or limits drop them. It suits bursts: on a link that stays too slow, all messages become old. `status` shows the drops."),
        key("lifespan", Kind::Duration("1ms", "24h"), Absent("no limit"))
            .example("500ms")
            .doc("Age at which a message becomes worthless and is dropped. It counts from the publication. Of a latched ROS 1 message without a `Header`, published before the first subscriber at a peer, it counts from the moment at which this node reads the message for that subscriber."),
        key("rate", Kind::Frequency("0.001", "100000"), Absent("every message"))
            .example("5Hz")
            .doc("Maximum messages per second; the rest is dropped at the source. Transforms are merged instead: each message contains the latest transform of every frame that changed since the previous message."),
        key("compression", Kind::OneOf(&["none", "zstd"]), Value("none"))
            .example("zstd")
            .doc("Compression of the payload. A payload that does not become smaller is sent uncompressed."),
        key("tf_prefix", Kind::Flag, Value("true"))
            .example("false")
            .doc("Whether `frame_id` and `child_frame_id` in its messages get the `prefix` of `tf`; see [transforms](../how-to/transforms.md#distinguish-robots). Transforms always get it."),
        list("to", Kind::NodeName, Absent("every peer"))
            .example("[base]")
            .doc("Peers that receive the topic."),
        key("repair", Kind::Flag, Value("true"))
            .doc("Whether lost fragments are sent again while the message is useful."),
        key("fec", Kind::Whole(1, 200), Absent("no parity"))
            .example("60")
            .doc("Parity (forward error correction), in percent of the packets of the topic. The receiver recovers lost packets from it, up to this part of them, where a repair would come too late; see [links](../how-to/links.md#links-with-a-long-delay). With `repair: true`, what the parity cannot recover is repaired. A message of which several links carry copies has none."),
        key("links", Kind::OneOf(LinkChoice::WORDS), Absent("by priority: duplicate from 210, best from 140, else stripe"))
            .example("stripe")
            .doc("Links that carry a message if several links to the peer are up. `best`: the link on which the message is expected to arrive first. `stripe`: all links, each with a part, so that all parts arrive at the same time. `duplicate`: the fastest links, each with a copy; the first copy that arrives is delivered. `weighted`: one link at random, with a probability proportional to its goodput, as in RCom."),
        key("copies", Kind::Whole(2, 16), Value("2"))
            .example("3")
            .doc("Number of links that carry a copy with links: duplicate."),
        list("only_links", Kind::NodeName, Absent("all links"))
            .example("[wlan0]")
            .doc("Names of the links that carry the topic. Its messages wait while none of them is up."),
        list("avoid_links", Kind::NodeName, Absent("none"))
            .example("[wlan0]")
            .doc("Names of links that carry the topic only while no other link can."),
        key("over_budget", Kind::Flag, Value("false"))
            .example("true")
            .doc("Whether a link whose `budget` is used up still carries the topic."),
        key("order", Kind::OneOf(OrderChoice::WORDS), Value("arrival"))
            .example("sent")
            .doc("Order in which the peers deliver the messages of a publisher, which may overtake each other on several links or after a repair. `arrival`: each when it is complete, within `keep_last`. `sent`: in the order of publication; a message waits for missing earlier ones, of which the last `keep_last` matter. `newest`: each when it is complete, but none that is older than one already delivered. With keep_last: 1, `arrival` and `sent` do the same as `newest`. Latched topics have `sent`, with a wait of 1 s unless they set it, since the last message is kept. `newest` does not apply to transforms, where each message counts."),
        key("order_wait", Kind::Duration("1ms", "1s"), Value("200ms"))
            .example("100ms")
            .doc("Maximum time that a complete message waits for missing earlier ones with order: sent, and at most half of the lifespan that it has left. What arrives later is dropped."),
        shaped("expect", Shape::Section(EXPECT), Absent("unknown"))
            .doc("What `tautline plan` assumes of the topic. It changes nothing about how the topic is sent. The daemon compares it with what it sends; see [monitoring](../how-to/monitoring.md#compare-with-the-plan)."),
    ],
};

const EXPECT: &[Setting] = &[
    key("rate", Kind::Frequency("0.001", "100000"), Absent("`plan` asks for it"))
        .example("10Hz")
        .doc("Messages per second of all topics that the rule matches together."),
    key("size", Kind::Bytes("0", "1GiB"), Absent("`plan` asks for it"))
        .example("4kB")
        .doc("Bytes of a message, serialized and after compression."),
];

const WATCHDOGS: Naming = Naming {
    names: Kind::RosName,
    example: "/cmd_vel",
    short_for: Some("after"),
    list_with: None,
    options: &[
        key("after", Kind::Duration("10ms", "1h"), Required)
            .example("500ms")
            .doc("Maximum time without a message from any peer."),
        shaped("message", Shape::Fields, Absent("all zero, false and empty"))
            .example("{ linear: { x: 0.0 } }")
            .doc("Fields of the safe message; omitted fields are zero, false or empty. The topic's type must be installed on this robot, unless its hash covers the whole definition (in ROS 2; in ROS 1 for types without nested types)."),
        key("repeat", Kind::Duration("10ms", "1h"), Absent("once"))
            .example("1s")
            .doc("Interval at which the safe message is published again while no messages arrive."),
    ],
};

const TF: &[Setting] = &[
    list("frames", Kind::Frames, Absent("all"))
        .example("[odom, base_link, \"arm/**\"]")
        .doc("Frames whose transforms are sent. The child frame identifies a transform, by its name on this robot."),
    key("prefix", Kind::FramePrefix, Absent("none"))
        .example("robot1/")
        .doc("Prefix of the names of all frames, which distinguishes robots: in transforms, and in `frame_id` of headers and `child_frame_id` of all other messages, unless their topic has `tf_prefix: false`."),
    list("shared", Kind::Frames, Absent("none"))
        .example("[map, earth]")
        .doc("Frames common to all robots, which get no prefix."),
];

const LIMITS: &[Setting] = &[
    key("max_message", Kind::Bytes("1kB", "1GiB"), Value("32MiB"))
        .doc("Maximum size of a message."),
    key("queue_bytes", Kind::Bytes("1kB", "4GiB"), Value("64MiB"))
        .doc("Maximum bytes of the messages for one peer, queued or not yet acknowledged; at least max_message."),
    key("queue_time", Kind::Duration("10ms", "1h"), Value("2s"))
        .doc("Maximum time to send what is queued for one peer at a priority and above it. Beyond it, messages of this priority and below are dropped, except the newest one of each publisher."),
    key("reassembly_bytes", Kind::Bytes("1kB", "4GiB"), Value("64MiB"))
        .doc("Maximum bytes of incomplete messages from one peer; at least max_message."),
    key("repair_budget", Kind::Share, Value("30%"))
        .doc("Fraction of the sent bytes that repairs may add, and of the rate of a link on which there are only repairs to send."),
];

const REALTIME: &[Setting] = &[
    key("priority", Kind::Whole(1, 99), Absent("the normal scheduler"))
        .example("50")
        .doc("SCHED_FIFO priority; needs CAP_SYS_NICE."),
    key("cpu", Kind::Whole(0, 1023), Absent("any"))
        .example("1")
        .doc("CPU to which the thread is bound."),
    key("lock_memory", Kind::Flag, Value("false")).example("true").doc(
        "Whether all memory is locked, so that paging never delays a packet; needs CAP_IPC_LOCK.",
    ),
];
