// SPDX-License-Identifier: Apache-2.0
//! The keys of the robot's file. This table is the source of reading, defaults, differences of a
//! reload, docs/reference/configuration.md, docs/reference/robot.schema.json, `man robot.yaml` and
//! the file that `tautline init` writes.

use super::budget::Budget;
use super::channel::Channel;
use super::kind::Kind;
use super::model::{MAX_DOMAIN, Show};
use super::read::{self, Entry, Keys, List, Named, Renames, Section, Switch};
use super::setting::Preset::{Absent, Computed, Required, Value};
use super::setting::Reload::{Elsewhere, Refused};
use super::setting::{Reload, Setting, keys};
use super::value::{
    Address, AuditDestination, Authentication, Compressor, Interfaces, Part, Range,
};
use crate::limits::MAX_RATE;
use crate::treatment::peer_names::Accept;
use crate::treatment::{LinkChoice, OrderChoice, WhenSlow};
use std::net::SocketAddr;
use std::time::Duration;
use tautline_gateway::networks::Network;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::types::compose::Fields;
use tautline_proto::{PublicKey, Rate};

/// The whole file.
pub const FILE: &[Setting] = RobotFile::TABLE;

/// The entry of a peer.
pub type Peer = Named<String, PeerKeys>;
/// The entry of a radio.
pub type Radio = Named<String, RadioKeys>;
/// A rule for topics.
pub type Topic = Named<Pattern, TopicKeys>;

/// ROS name of a node that neither its file nor a launching program names.
pub const DEFAULT_NODE_NAME: &str = "/tautline";
/// An example of a public key. Nobody has its secret key, because its bytes are text.
pub(super) const EXAMPLE_KEY: &str = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";
const DSCP_KIND: Kind = Kind::Whole(0, 63);
/// A minimum priority. 256 is one more than the highest priority, so it matches no packet.
const FROM_KIND: Kind = Kind::Whole(0, 256);

keys! {
    /// The whole file.
    struct RobotFile {
        /// Name of this node, unique in the team.
        name: String as Kind::NodeName, Required, example: "robot1", in_starter: true;
        /// Address and port for packets. [::] accepts IPv6 and IPv4, 0.0.0.0 only IPv4.
        listen: SocketAddr as Kind::Listen("::"), Value("[::]:18470"), example: "\"[::]:18470\"";
        /// Unix socket through which `tautline status`, `top`, `set` and `reload` reach the daemon.
        control: String as Kind::SocketPath, Computed("$XDG_RUNTIME_DIR/tautline/NAME.sock, or /run/tautline/NAME.sock without that variable"), example: "/run/tautline/robot1.sock";
        /// Address on which Prometheus can scrape /metrics.
        metrics: SocketAddr as Kind::Listen("127.0.0.1"), Absent("no metrics"), example: "127.0.0.1:9470";
        /// Interfaces on which this node announces its address to peers on the local network, so
        /// that their files need no address for this node. A beacon is a multicast packet of a few
        /// bytes that only peers can read. The node sends one per second while a peer is down,
        /// otherwise one every 10 s. It reads beacons of peers if this key is set or if a peer has
        /// no address.
        beacons: List<Interfaces> as Kind::Interfaces, Absent("no beacons"), example: "true";
        /// Whether this node publishes its state (peers, links, radios and drops) on /diagnostics
        /// of its ROS, and to peers if a rule under topics covers /diagnostics. The available rate
        /// of its links appears only locally, on NODE_NAME/link. Without subscribers, nothing is
        /// published.
        diagnostics: bool as Kind::Flag, Value("true"), example: "false";
        /// The audit log: a JSON line for each peer that comes up or goes down, each refusal, each
        /// change with its author, and each safe message; see [audit.md](audit.md). true uses the
        /// defaults below, false disables the log.
        audit: Switch<AuditKeys>, Computed("on if the service manager provides a folder for logs (LOGS_DIRECTORY, as the systemd unit does), otherwise off");
        /// Folder of the files that survive a restart: NAME.latched, which subscriber has which
        /// latched or transient local message, so that none gets it twice; NAME.goals, pending
        /// calls about goals of actions; NAME.budgets, the data used of each `budget`.
        state: String as Kind::Folder, Computed("STATE_DIRECTORY, which the systemd unit sets, or /var/lib/tautline without that variable"), example: "/var/lib/tautline";
        /// How peers prove their identity: `keys`, or `none` on closed test networks. With `none`,
        /// anybody on the network can act as any node.
        security: Authentication as Kind::OneOf(Authentication::WORDS), Value("keys"), example: "none";
        /// File with this node's secret key, readable only by its owner. `tautline keygen` creates
        /// it.
        key: String as Kind::File, Computed("NAME.key in the folder of this file"), example: "/etc/tautline/robot1.key";
        /// Connection to ROS 1 on this robot; false disables it.
        ros1: Switch<Ros1Keys>, Computed("on, unless ros2 is set");
        /// Connection to ROS 2 on this robot, instead of ROS 1; true uses the defaults below.
        ros2: Switch<Ros2Keys>, Absent("off");
        /// The other nodes, by name: NAME: with the keys below. Under `security: none`, NAME:
        /// ADDRESS is enough.
        peers: Vec<Named<String, PeerKeys>> as Kind::NodeName, Absent("no peers"), example: "base", in_starter: true, short_for: Some(PeerKeys::address.name);
        /// Interfaces with their own settings.
        radios: Vec<Named<String, RadioKeys>> as Kind::Interface, Absent("every interface is a radio with the defaults below"), example: "wlan0";
        /// Marks each packet by the highest priority in it. Wi-Fi (WMM) then sends the packet
        /// before less important packets of other senders; other networks may use or ignore the
        /// mark. On a saturated 6 Mbps channel, bulk data loses up to a fifth of its rate. false
        /// leaves packets unmarked.
        dscp: Switch<DscpKeys>, Computed("on");
        /// Topics that this node sends, and how. The first name or pattern that matches a topic
        /// applies.
        topics: Vec<Named<Pattern, TopicKeys>> as Kind::Pattern, Absent("no topic is sent"), example: "/scan", in_starter: true, list_with: Some("name");
        /// Services of this robot that are advertised to peers, and how. The first name or pattern
        /// that matches a service applies. A peer may call only the services that its `call` names.
        services: Vec<Named<Pattern, CallKeys>> as Kind::Pattern, Absent("peers can call no service of this robot"), example: "/switch", list_with: Some("name");
        /// Actions of this robot that are advertised to peers, of actionlib (ROS 1) or ROS 2. Peers
        /// of either ROS can use them. A peer may use only the actions that its `call` names.
        actions: Vec<Named<String, CallKeys>> as Kind::RosName, Absent("peers can use no action of this robot"), example: "/navigate", list_with: Some("name");
        /// Topics from peers, by their local names, for which this node publishes a safe message
        /// when messages stop: TOPIC: TIME, or TOPIC: with the keys below. The first message from a
        /// peer arms the watchdog.
        watchdogs: Vec<Named<String, WatchdogKeys>> as Kind::RosName, Absent("no safe messages"), example: "/cmd_vel", short_for: Some(WatchdogKeys::after.name);
        /// Rules for the frames of tf in what this node sends. `frames` applies to every topic of a
        /// tf type, whatever its name; `prefix` and `shared` apply to all topics.
        tf: Section<TfKeys>, Absent("every transform is sent unchanged");
        /// Limits and budgets.
        limits: Section<LimitKeys>, Absent("the defaults below");
        /// Real-time options of the thread that sends and receives packets.
        realtime: Section<RealtimeKeys>, Absent("the normal scheduler");
    }

    /// The audit log.
    struct AuditKeys {
        /// Destination: `file`, which rotates, or `journald`, which has limits of its own and
        /// ignores the keys below.
        to: AuditDestination as Kind::OneOf(AuditDestination::WORDS), Value("file"), example: "journald";
        /// Path of the current file. Older files are in the same folder as FILE.1, FILE.2 and so
        /// on.
        file: String as Kind::File, Computed("NAME.audit in LOGS_DIRECTORY, or in /var/log/tautline without that variable"), example: "/var/log/tautline/robot1.audit";
        /// Maximum size of one file; then a new file begins.
        size: u64 as Kind::Bytes("256KiB", "1GiB"), Value("8MiB");
        /// Maximum number of files, including the current one. The oldest is removed.
        files: u32 as Kind::Whole(1, 100), Value("4");
    }

    /// The connection to ROS 1.
    struct Ros1Keys {
        /// URI of this robot's ROS master.
        master: String as Kind::MasterUri, Computed("ROS_MASTER_URI, else http://localhost:11311"), example: "http://localhost:11311";
        /// Name or address by which local nodes reach this node. Its ROS sockets listen on loopback
        /// and on those addresses of this machine to which the name resolves.
        host: String as Kind::Host, Computed("ROS_HOSTNAME, else ROS_IP, else the name of the machine"), example: "10.0.0.1";
        /// Other computers of this robot whose ROS nodes may connect to this node. ROS 1 has no
        /// authentication: a computer listed here can read everything that arrives from peers.
        /// Never list the radio's network.
        allow: List<Network> as Kind::Network, Absent("only this machine and the machine of the master"), example: "[10.0.0.0/24]";
        /// ROS name of this node. Without this key, roslaunch and ros2 launch may give another
        /// name.
        node_name: String as Kind::RosName, Value(DEFAULT_NODE_NAME);
        /// Folders of installed types (FOLDER/share/PACKAGE/msg, srv and action; messages also
        /// FOLDER/lib/python3/dist-packages/PACKAGE/msg). Services and peers with ROS 2 need them.
        /// They take precedence over definitions from peers.
        definitions: List<String> as Kind::Folder, Computed("CMAKE_PREFIX_PATH, ROS_PACKAGE_PATH, then /usr"), example: "[/opt/ros/noetic]";
    }

    /// The connection to ROS 2.
    struct Ros2Keys {
        /// Domain on this machine. No DDS packet crosses the radio, so several robots may use the
        /// same number.
        domain: u32 as Kind::Whole(0, MAX_DOMAIN as u64), Computed("ROS_DOMAIN_ID, else 0"), example: "0";
        /// Discovery range of local nodes. With either value, this node connects only to nodes on
        /// this machine.
        range: Range as Kind::OneOf(Range::WORDS), Computed("ROS_AUTOMATIC_DISCOVERY_RANGE, or localhost if ROS_LOCALHOST_ONLY is 1, else subnet"), example: "localhost";
        /// ROS name of this node. Without this key, roslaunch and ros2 launch may give another
        /// name.
        node_name: String as Kind::RosName, Value(DEFAULT_NODE_NAME);
        /// Folders of installed types (FOLDER/share/PACKAGE/msg and srv). Peers with ROS 1 and
        /// watchdogs need them.
        definitions: List<String> as Kind::Folder, Computed("AMENT_PREFIX_PATH"), example: "[/opt/ros/jazzy]";
    }

    /// One peer.
    struct PeerKeys {
        /// Public key of the peer. `tautline keygen` shows it on that robot.
        key: PublicKey as Kind::PublicKey, Absent("none, which only security: none allows"), example: EXAMPLE_KEY, in_starter: true, reload: Elsewhere;
        /// Host name or address, with :PORT if the port is not 18470.
        address: Address as Kind::Endpoint, Absent("the peer initiates the handshake"), example: "10.0.0.2", in_starter: true, reload: Elsewhere;
        /// Interface that sends the packets.
        interface: String as Kind::Interface, Absent("by the routing table"), example: "wlan0", reload: Elsewhere;
        /// Upper limit of the size of an IP packet in bytes. The daemon finds out what the path
        /// carries below this limit; see [links](../how-to/links.md#packet-size).
        mtu: u16 as Kind::Whole(256, 9000), Absent("the MTU of the interface, at most 9000"), example: "1400", reload: Elsewhere;
        /// Several paths to the peer, instead of address, interface and mtu.
        links: Vec<LinkKeys>, Absent("one link, to address"), example: "[{ address: 10.0.0.2, interface: wlan0 }, { address: 10.1.0.2, interface: wlan1 }]", reload: Elsewhere;
        /// Prefix of the local names of the peer's topics and services. With a prefix, this node
        /// accepts the peer's observations (lasers, cameras, odometry, maps, diagnostics and
        /// transforms, identified by name and hash of the type; [rights.md](rights.md#observations)
        /// lists them) and serves its services.
        prefix: String as Kind::RosName, Absent("none"), example: "/base", in_starter: true;
        /// Topics, services and actions of the peer that get other names here. The prefix is added
        /// afterwards. A name with '-' or with a level that starts with a digit
        /// (`/camera-1/image`), as nodes of ROS 1 may have, needs another name at a robot with ROS
        /// 2.
        remap: Renames as Kind::RosName, Absent("none"), example: "{ /scan: /front/scan }";
        /// Topics, services and actions of the peer that this node accepts in addition to those
        /// under `prefix`, by their names at the peer. A list accepts any type. A map accepts only
        /// the given type, in the version that is installed on this robot.
        accept: Vec<Accept> as Kind::Pattern, Absent("with `prefix`: observations and services of the peer; without: nothing"), example: "{ /cmd_vel: geometry_msgs/Twist, \"/plan/**\": any }";
        /// Services and actions of this robot that the peer may call, from those under services and
        /// actions.
        call: List<Pattern> as Kind::Pattern, Absent("none"), example: "[/set_mode, /navigate]";
        /// Topics, services and actions of this robot that are advertised to the peer, from those
        /// under topics, services and actions.
        offer: List<Pattern> as Kind::Pattern, Absent("all"), example: "[/scan, \"/camera/**\"]";
        /// What of this robot's ROS the peer sees under its `prefix` for this robot: the nodes,
        /// with the topics and services that the peer gets; the parameters (ROS 1: all of the
        /// server; ROS 2: the services of each node that read them); the logs (`/rosout`). See
        /// [remote robots](../how-to/remote-robots.md).
        show: Show as Kind::OneOf(Part::WORDS), Absent("nothing"), example: "[nodes, parameters, logs]";
        /// Parameters of this robot that the peer may set: ROS 1 by the name of the parameter, ROS
        /// 2 by the name of its node.
        set_parameters: List<Pattern> as Kind::Pattern, Absent("none"), example: "[/camera, \"/arm/**\"]";
        /// Maximum rate of the peer's topics, calls and responses after decompression. If they
        /// exceed it for longer than a second, the excess is dropped.
        max_rate: u64 as Kind::BitRate("1kbps", "100Gbps"), Value(MAX_RATE), example: "2Mbps", unit: " bps";
        /// Maximum priority of the peer's packets that this node forwards.
        max_priority: u8 as Kind::Whole(0, 255), Value("255"), example: "200";
        /// Whether time stamps of headers in the peer's messages on topics are moved onto this
        /// robot's clock, by the measured offset of the two clocks; see
        /// [transforms](../how-to/transforms.md#clocks-that-differ).
        move_stamps: bool as Kind::Flag, Value("false"), example: "true";
        /// Peers that forward packets to this peer, tried in this order after its own links. Each
        /// of them needs `relay: true` for both ends.
        via: List<String> as Kind::NodeName, Absent("none"), example: "[robot2]";
        /// Whether to seek a direct path to a peer with `via` and without an address, which both
        /// ends then use instead of the relay; see [the
        /// Internet](../how-to/internet.md#direct-paths). By default only if an address translator
        /// (NAT) is on the path of either end to the relay.
        direct: bool as Kind::Flag, Absent("if an address translator shows"), example: "false";
        /// Whether this node forwards the peer's packets for other nodes.
        relay: bool as Kind::Flag, Value("false"), example: "true";
    }

    /// One path to a peer.
    struct LinkKeys {
        /// Host name or address, with :PORT if the port is not 18470.
        address: Address as Kind::Endpoint, Required, example: "10.0.0.3";
        /// Name of the link in `only_links`, `avoid_links` and `status`.
        name: String as Kind::NodeName, Computed("the interface, else link1, link2 and so on"), example: "lte";
        /// Interface that sends the packets.
        interface: String as Kind::Interface, Absent("by the routing table"), example: "wlan0";
        /// Upper limit of the size of an IP packet in bytes. The daemon finds out what the path
        /// carries below this limit; see [links](../how-to/links.md#packet-size).
        mtu: u16 as Kind::Whole(256, 9000), Absent("the MTU of the interface, at most 9000"), example: "1400";
        /// Whether the link costs money. It carries messages only while no other link can, and
        /// those of topics whose `only_links` names it.
        metered: bool as Kind::Flag, Value("false"), example: "true";
        /// Data that the link may carry in each period, in both directions, with the headers of IP
        /// and UDP. The link is then metered. When the budget is used up, only topics with
        /// `over_budget: true` use the link until the next period; see
        /// [links](../how-to/links.md#limit-the-data-of-a-metered-link).
        budget: Budget as Kind::Budget, Absent("no limit"), example: "5GB/30d";
    }

    /// One radio.
    struct RadioKeys {
        /// Rate control. `auto` follows back-pressure of the radio and the reports of each peer,
        /// wherever the bottleneck is. A rate such as `6Mbps` is fixed: packets are sent at it whatever
        /// peers report, so a rate above that of the bottleneck fills a queue. `back-pressure`
        /// follows only back-pressure of the radio.
        rate: Rate as Kind::Pacing("1kbps", "100Gbps"), Value("auto"), example: "6Mbps";
        /// Maximum number of full packets in the kernel at once.
        in_flight: u32 as Kind::Whole(1, 64), Value("2");
        /// What `plan` assumes of the radio; see [`tautline plan`](command-line.md#tautline-plan).
        /// `check` and `run` warn if what the topics `expect` does not fit. The daemon compares
        /// losses, and the bit rate while the radio is full, with it; see
        /// [monitoring](../how-to/monitoring.md#compare-with-the-plan).
        channel: Channel as Kind::Channel, Absent("unknown"), example: "\"wifi:6Mbps\"", reload: Elsewhere;
    }

    /// Marks of packets.
    struct DscpKeys {
        /// DSCP of the most urgent packets and of Tautline's own packets. 48 (CS6) selects Wi-Fi's
        /// voice category on all kernels, 46 (EF) only since 6.8.
        voice: u8 as DSCP_KIND, Value("48"), example: "46";
        /// Minimum priority of this class; 256 disables it.
        voice_from: u16 as FROM_KIND, Value("210"), example: "250";
        /// DSCP of the next class. 32 (CS4) selects Wi-Fi's video category.
        video: u8 as DSCP_KIND, Value("32"), example: "34";
        /// Minimum priority of this class; 256 disables it.
        video_from: u16 as FROM_KIND, Value("140"), example: "120";
        /// DSCP of the next class, to which most packets belong.
        best_effort: u8 as DSCP_KIND, Value("0");
        /// Minimum priority of this class. Lower priorities wait for the packets of all senders.
        best_effort_from: u16 as FROM_KIND, Value("10"), example: "1";
        /// DSCP of all lower priorities. 8 (CS1) selects Wi-Fi's background category.
        background: u8 as DSCP_KIND, Value("8");
    }

    /// One service or action.
    struct CallKeys {
        /// Priority of calls and responses. A higher priority is sent first, from the next packet
        /// on.
        priority: u8 as Kind::Whole(0, 255), Value("150"), example: "180";
        /// Maximum time that a caller waits for a response. For the result of an action and for the
        /// cancellation of a goal, the caller waits up to a day.
        timeout: Duration as Kind::Duration("1ms", "10min"), Value("5s"), example: "2s";
        /// Peers to which the service or action is advertised. `peers.NAME.call` determines which
        /// of them may call it.
        to: List<String> as Kind::NodeName, Absent("every peer"), example: "[base]", unset: "all";
    }

    /// One rule for topics.
    struct TopicKeys {
        /// A higher priority is sent first, from the next packet on.
        priority: u8 as Kind::Whole(0, 255), Value("100"), example: "200", in_starter: true;
        /// Number of newest messages that matter. At most this number is queued. A message that was
        /// repaired late is delivered if fewer newer messages than this have arrived. With 1,
        /// messages never arrive out of order.
        keep_last: u16 as Kind::Whole(1, 65535), Computed("1 for images and point clouds, 10 for other types"), example: "1";
        /// Behaviour on a link that cannot carry the whole topic. `latest` queues only the newest
        /// message; it is another name for keep_last: 1. `thin` sends every n-th message, at even
        /// intervals and without queueing delay, and drops the others. It sends fewer messages than
        /// `latest`; it suits filters and mapping. `queue` keeps all messages in order until
        /// lifespan or limits drop them. It suits bursts: on a link that stays too slow, all
        /// messages become old. `status` shows the drops.
        when_slow: WhenSlow as Kind::OneOf(WhenSlow::WORDS), Absent("by keep_last"), example: "thin";
        /// Age at which a message becomes worthless and is dropped. It counts from the publication.
        /// Of a latched ROS 1 message without a `Header`, published before the first subscriber at
        /// a peer, it counts from the moment at which this node reads the message for that
        /// subscriber.
        lifespan: Duration as Kind::Duration("1ms", "24h"), Absent("no limit"), example: "500ms";
        /// Maximum messages per second; the rest is dropped at the source. Transforms are merged
        /// instead: each message contains the latest transform of every frame that changed since
        /// the previous message.
        rate: f64 as Kind::Frequency("0.001", "100000"), Absent("every message"), example: "5Hz", unit: " Hz";
        /// Compression of the payload. A payload that does not become smaller is sent uncompressed.
        compression: Compressor as Kind::OneOf(Compressor::WORDS), Value("none"), example: "zstd";
        /// Whether `frame_id` and `child_frame_id` in its messages get the `prefix` of `tf`; see
        /// [transforms](../how-to/transforms.md#distinguish-robots). Transforms always get it.
        tf_prefix: bool as Kind::Flag, Value("true"), example: "false";
        /// Peers that receive the topic.
        to: List<String> as Kind::NodeName, Absent("every peer"), example: "[base]", unset: "all";
        /// Whether lost fragments are sent again while the message is useful.
        repair: bool as Kind::Flag, Value("true");
        /// Parity (forward error correction), in percent of the packets of the topic. The receiver
        /// recovers lost packets from it, up to this part of them, where a repair would come too
        /// late; see [links](../how-to/links.md#links-with-a-long-delay). With `repair: true`, what
        /// the parity cannot recover is repaired. A message of which several links carry copies has
        /// none.
        fec: u8 as Kind::Whole(1, 200), Absent("no parity"), example: "60", unit: " %";
        /// Links that carry a message if several links to the peer are up. `best`: the link on
        /// which the message is expected to arrive first. `stripe`: all links, each with a part, so
        /// that all parts arrive at the same time. `duplicate`: the fastest links, each with a
        /// copy; the first copy that arrives is delivered. `weighted`: one link at random, with a
        /// probability proportional to its goodput, as in RCom.
        links: LinkChoice as Kind::OneOf(LinkChoice::WORDS), Absent("by priority: duplicate from 210, best from 140, else stripe"), example: "stripe", unset: "by priority";
        /// Number of links that carry a copy with links: duplicate.
        copies: u8 as Kind::Whole(2, 16), Value("2"), example: "3";
        /// Names of the links that carry the topic. Its messages wait while none of them is up.
        only_links: List<String> as Kind::NodeName, Absent("all links"), example: "[wlan0]";
        /// Names of links that carry the topic only while no other link can.
        avoid_links: List<String> as Kind::NodeName, Absent("none"), example: "[wlan0]";
        /// Whether a link whose `budget` is used up still carries the topic.
        over_budget: bool as Kind::Flag, Value("false"), example: "true";
        /// Order in which the peers deliver the messages of a publisher, which may overtake each
        /// other on several links or after a repair. `arrival`: each when it is complete, within
        /// `keep_last`. `sent`: in the order of publication; a message waits for missing earlier
        /// ones, of which the last `keep_last` matter. `newest`: each when it is complete, but none
        /// that is older than one already delivered. With keep_last: 1, `arrival` and `sent` do the
        /// same as `newest`. Latched topics have `sent`, with a wait of 1 s unless they set it,
        /// since the last message is kept. `newest` does not apply to transforms, where each
        /// message counts.
        order: OrderChoice as Kind::OneOf(OrderChoice::WORDS), Value("arrival"), example: "sent";
        /// Maximum time that a complete message waits for missing earlier ones with order: sent,
        /// and at most half of the lifespan that it has left. What arrives later is dropped.
        order_wait: Duration as Kind::Duration("1ms", "1s"), Value("200ms"), example: "100ms";
        /// What `tautline plan` assumes of the topic. It changes nothing about how the topic is
        /// sent. The daemon compares it with what it sends; see
        /// [monitoring](../how-to/monitoring.md#compare-with-the-plan).
        expect: Section<ExpectKeys>, Absent("unknown");
    }

    /// What the planner assumes of the topics of a rule.
    struct ExpectKeys {
        /// Messages per second of all topics that the rule matches together.
        rate: f64 as Kind::Frequency("0.001", "100000"), Absent("`plan` asks for it"), example: "10Hz", unit: "Hz";
        /// Bytes of a message, serialized and after compression.
        size: u64 as Kind::Bytes("0", "1GiB"), Absent("`plan` asks for it"), example: "4kB";
    }

    /// One watchdog.
    struct WatchdogKeys => WatchdogConfig(topic) {
        /// Maximum time without a message from any peer.
        after: Duration as Kind::Duration("10ms", "1h"), Required, example: "500ms";
        /// Fields of the safe message; omitted fields are zero, false or empty. The topic's type
        /// must be installed on this robot, unless its hash covers the whole definition (in ROS 2;
        /// in ROS 1 for types without nested types).
        message: Fields, Absent("all zero, false and empty"), example: "{ linear: { x: 0.0 } }";
        /// Interval at which the safe message is published again while no messages arrive.
        repeat: Option<Duration> as Kind::Duration("10ms", "1h"), Absent("once"), example: "1s";
    }

    /// The frames of tf.
    struct TfKeys {
        /// Frames whose transforms are sent. The child frame identifies a transform, by its name on
        /// this robot.
        frames: List<Pattern> as Kind::Frames, Absent("all"), example: "[odom, base_link, \"arm/**\"]";
        /// Prefix of the names of all frames, which distinguishes robots: in transforms, and in
        /// `frame_id` of headers and `child_frame_id` of all other messages, unless their topic has
        /// `tf_prefix: false`.
        prefix: String as Kind::FramePrefix, Absent("none"), example: "robot1/";
        /// Frames common to all robots, which get no prefix.
        shared: List<Pattern> as Kind::Frames, Absent("none"), example: "[map, earth]";
    }

    /// Limits and budgets.
    struct LimitKeys => Limits {
        /// Maximum size of a message.
        max_message: usize as Kind::Bytes("1kB", "1GiB"), Value("32MiB"), reload: Refused;
        /// Maximum bytes of the messages for one peer, queued or not yet acknowledged; at least
        /// max_message.
        queue_bytes: usize as Kind::Bytes("1kB", "4GiB"), Value("64MiB");
        /// Maximum time to send what is queued for one peer at a priority and above it. Beyond it,
        /// messages of this priority and below are dropped, except the newest one of each
        /// publisher.
        queue_time: Duration as Kind::Duration("10ms", "1h"), Value("2s");
        /// Maximum bytes of incomplete messages from one peer; at least max_message.
        reassembly_bytes: usize as Kind::Bytes("1kB", "4GiB"), Value("64MiB"), reload: Refused;
        /// Fraction of the sent bytes that repairs may add, and of the rate of a link on which
        /// there are only repairs to send.
        repair_budget: f64 as Kind::Share, Value("30%");
    }

    /// The thread that sends and receives packets.
    struct RealtimeKeys => Realtime {
        /// SCHED_FIFO priority; needs CAP_SYS_NICE.
        priority: Option<u8> as Kind::Whole(1, 99), Absent("the normal scheduler"), example: "50";
        /// CPU to which the thread is bound.
        cpu: Option<u32> as Kind::Whole(0, 1023), Absent("any"), example: "1";
        /// Whether all memory is locked, so that paging never delays a packet; needs CAP_IPC_LOCK.
        lock_memory: bool as Kind::Flag, Value("false"), example: "true";
    }
}

impl PeerKeys {
    /// Returns the link that the entry of a peer itself describes.
    pub fn own_link(&self) -> LinkKeys {
        LinkKeys {
            at: self.at,
            address: self.address.clone(),
            name: Entry::absent(&LinkKeys::name, self.at),
            interface: self.interface.clone(),
            mtu: self.mtu.clone(),
            metered: Entry::absent(&LinkKeys::metered, self.at),
            budget: Entry::absent(&LinkKeys::budget, self.at),
        }
    }
}

impl LinkKeys {
    /// Returns the name of the link at this place among the links of its peer.
    pub fn link_name(&self, index: usize) -> String {
        let named = self.name.get().or_else(|| self.interface.get());
        named.unwrap_or_else(|| format!("link{}", index + 1))
    }
}
