// SPDX-License-Identifier: Apache-2.0
//! The option table of the relay's file: the source of validation, defaults, docs/reference/relay.md,
//! docs/reference/relay.schema.json and the file that `tautline init --relay` writes.

use crate::config::kind::Kind;
use crate::config::table::Preset::{Absent, Computed, Required, Value};
use crate::config::table::{AUDIT, EXAMPLE_KEY, Naming, Setting, Shape, key, shaped};

/// The whole file.
pub const FILE: &[Setting] = &[
    key("name", Kind::NodeName, Required)
        .example("relay")
        .shown()
        .doc("Name of the relay, under which its members have it among their peers."),
    key("listen", Kind::Listen("::"), Value("[::]:18470"))
        .example("\"[::]:18470\"")
        .doc("Address and port for packets. [::] accepts IPv6 and IPv4, 0.0.0.0 only IPv4."),
    key("control", Kind::SocketPath, Computed("$XDG_RUNTIME_DIR/tautline/NAME.sock, or /run/tautline-relay/NAME.sock without that variable"))
        .example("/run/tautline-relay/relay.sock")
        .doc("Unix socket through which `tautline status`, `top` and `reload` reach the relay."),
    key("metrics", Kind::Listen("127.0.0.1"), Absent("no metrics"))
        .example("127.0.0.1:9471")
        .doc("Address on which Prometheus can scrape /metrics."),
    shaped("audit", Shape::Switch(AUDIT), Computed("on if the service manager provides a folder for logs (LOGS_DIRECTORY, as the systemd unit does), otherwise off"))
        .doc("The audit log: a JSON line for each member that comes up or goes down, each refused handshake and each change with its author; see [audit.md](audit.md). true uses the defaults below, false disables the log."),
    key("key", Kind::File, Computed("NAME.key in the folder of this file"))
        .example("/etc/tautline/relay.key")
        .doc("File with the relay's secret key, readable only by its owner. `tautline keygen` creates it."),
    shaped("teams", Shape::Named(&TEAMS), Required)
        .shown()
        .doc("The teams, by name: NAME: with the keys below. Members of a team reach each other and nobody else."),
];

const TEAMS: Naming = Naming {
    names: Kind::NodeName,
    example: "rescue",
    short_for: None,
    list_with: None,
    options: &[
        key("max_rate", Kind::BitRate("1kbps", "100Gbps"), Absent("no limit"))
            .example("20Mbps")
            .doc("Maximum rate of the IP packets with which the relay forwards packets of the team, to all members together. Packets above it wait at their senders, where urgent ones overtake."),
        key("queue_bytes", Kind::Bytes("64kB", "1GiB"), Value("8MiB"))
            .doc("Maximum bytes of the team's packets that the relay holds, queued or not yet acknowledged, with 512 bytes of overhead for each. Further packets are refused (`team_full`). A sender that respects its window has 8 kB on the way to each other member."),
        shaped("members", Shape::Named(&MEMBERS), Absent("no members"))
            .shown()
            .doc("The members, by name: NAME: KEY, or NAME: with the keys below. Names are local to the team."),
    ],
};

const MEMBERS: Naming = Naming {
    names: Kind::NodeName,
    example: "robot1",
    short_for: Some("key"),
    list_with: None,
    options: &[
        key("key", Kind::PublicKey, Required)
            .example(EXAMPLE_KEY)
            .shown()
            .doc("Public key of the member. `tautline keygen --show FILE` prints it there."),
        key("max_priority", Kind::Whole(0, 255), Value("255"))
            .example("220")
            .doc("Maximum priority of the member's packets within the team. Higher ones are lowered to it."),
        key("mtu", Kind::Whole(256, 9000), Absent("the MTU of the interface, at most 9000"))
            .example("1400")
            .doc("Upper limit of the size of an IP packet to the member in bytes."),
    ],
};
