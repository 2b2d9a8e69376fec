// SPDX-License-Identifier: Apache-2.0
//! The keys of the relay's file. This table is the source of reading, defaults, differences of a
//! reload, docs/reference/relay.md, docs/reference/relay.schema.json, `man relay.yaml` and the file
//! that `tautline init --relay` writes.

use crate::config::kind::Kind;
use crate::config::read::{self, Keys, Named, Switch};
use crate::config::setting::Preset::{Absent, Computed, Required, Value};
use crate::config::setting::Reload::Elsewhere;
use crate::config::setting::{Reload, Setting, keys};
use crate::config::table::{AuditKeys, EXAMPLE_KEY};
use std::net::SocketAddr;
use tautline_proto::PublicKey;

/// The whole file.
pub const FILE: &[Setting] = RelayFile::TABLE;

/// The entry of a team.
pub type Team = Named<String, TeamKeys>;
/// The entry of a member.
pub type Member = Named<String, MemberKeys>;

keys! {
    /// The whole file.
    struct RelayFile {
        /// Name of the relay, under which its members have it among their peers.
        name: String as Kind::NodeName, Required, example: "relay", in_starter: true;
        /// Address and port for packets. [::] accepts IPv6 and IPv4, 0.0.0.0 only IPv4.
        listen: SocketAddr as Kind::Listen("::"), Value("[::]:18470"), example: "\"[::]:18470\"";
        /// Unix socket through which `tautline status`, `top` and `reload` reach the relay.
        control: String as Kind::SocketPath, Computed("$XDG_RUNTIME_DIR/tautline/NAME.sock, or /run/tautline-relay/NAME.sock without that variable"), example: "/run/tautline-relay/relay.sock";
        /// Address on which Prometheus can scrape /metrics.
        metrics: SocketAddr as Kind::Listen("127.0.0.1"), Absent("no metrics"), example: "127.0.0.1:9471";
        /// The audit log: a JSON line for each member that comes up or goes down, each refused
        /// handshake and each change with its author; see [audit.md](audit.md). true uses the
        /// defaults below, false disables the log.
        audit: Switch<AuditKeys>, Computed("on if the service manager provides a folder for logs (LOGS_DIRECTORY, as the systemd unit does), otherwise off");
        /// File with the relay's secret key, readable only by its owner. `tautline keygen` creates
        /// it.
        key: String as Kind::File, Computed("NAME.key in the folder of this file"), example: "/etc/tautline/relay.key";
        /// The teams, by name: NAME: with the keys below. Members of a team reach each other and
        /// nobody else.
        teams: Vec<Named<String, TeamKeys>> as Kind::NodeName, Required, example: "rescue", in_starter: true;
    }

    /// One team.
    struct TeamKeys {
        /// Maximum rate of the IP packets with which the relay forwards packets of the team, to all
        /// members together. Packets above it wait at their senders, where urgent ones overtake.
        max_rate: u64 as Kind::BitRate("1kbps", "100Gbps"), Absent("no limit"), example: "20Mbps", unit: " bps";
        /// Maximum bytes of the team's packets that the relay holds, queued or not yet
        /// acknowledged, with 512 bytes of overhead for each. Further packets are refused
        /// (`team_full`). A sender that respects its window has 8 kB on the way to each other
        /// member.
        queue_bytes: u64 as Kind::Bytes("64kB", "1GiB"), Value("8MiB");
        /// The members, by name: NAME: KEY, or NAME: with the keys below. Names are local to the
        /// team.
        members: Vec<Named<String, MemberKeys>> as Kind::NodeName, Absent("no members"), example: "robot1", in_starter: true, short_for: Some(MemberKeys::key.name);
    }

    /// One member.
    struct MemberKeys {
        /// Public key of the member. `tautline keygen --show FILE` prints it there.
        key: PublicKey as Kind::PublicKey, Required, example: EXAMPLE_KEY, in_starter: true, reload: Elsewhere;
        /// Maximum priority of the member's packets within the team. Higher ones are lowered to it.
        max_priority: u8 as Kind::Whole(0, 255), Value("255"), example: "220";
        /// Upper limit of the size of an IP packet to the member in bytes.
        mtu: u16 as Kind::Whole(256, 9000), Absent("the MTU of the interface, at most 9000"), example: "1400";
    }
}

impl RelayFile {
    /// All members, each with its team.
    pub fn members(&self) -> impl Iterator<Item = (&Team, &Member)> {
        let teams = self.teams.entries().iter();
        teams.flat_map(|team| team.keys.members.entries().iter().map(move |member| (team, member)))
    }
}
