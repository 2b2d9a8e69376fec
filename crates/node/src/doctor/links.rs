// SPDX-License-Identifier: Apache-2.0
//! Peers and links, as the running daemon reports them.

use super::machine::Machine;
use super::robot::Robot;
use super::{Answer, Found, Harm};
use crate::status::{Direction, LinkReport, PeerReport, Status, TopicReport};
use std::net::SocketAddr;

/// Difference of clocks that matters to tf, in milliseconds.
const MAX_CLOCK_OFFSET_MS: f64 = 50.0;
/// Fraction of lost packets that matters.
const MAX_LOSS: f64 = 0.05;
/// Smallest MTU that every path of IPv6 has (RFC 8200, 5).
const MIN_MTU: u64 = 1280;
/// Fraction of a link's rate that topics may need; the rest is for headers, reports and repairs.
const USABLE: f64 = 0.95;
/// Requests that are listed.
const MAX_LISTED: usize = 20;
/// Parts of notices about keys (`notices.rs`).
const KEY_NOTICES: [&str; 7] = [
    "which belongs to no peer",
    "are for another key",
    "has another: correct the wrong one",
    "has the key of peer",
    "use the same key",
    "use the key of",
    "refuses the handshake of",
];

fn status(robot: &Robot) -> Result<&Status, Answer> {
    robot.status.as_ref().ok_or_else(|| Answer::NotMade(super::no_state(robot)))
}

macro_rules! status {
    ($robot:expr) => {
        match status($robot) {
            Ok(status) => status,
            Err(answer) => return answer,
        }
    };
}

pub(super) fn down(_: &Machine, robot: &Robot) -> Answer {
    let status = status!(robot);
    let down = status.peers.iter().filter(|it| it.state != "up");
    Answer::Made(down.map(|peer| peer_down(status, robot, peer)).collect())
}

fn peer_down(status: &Status, robot: &Robot, peer: &PeerReport) -> Found {
    let PeerReport { name, state, .. } = peer;
    let links = status.links.iter().filter(|it| it.peer == *name);
    let addresses: Vec<&str> =
        links.map(|it| it.remote.as_str()).filter(|it| !it.is_empty()).collect();
    let quoted = format!("'{name}'");
    let notice = status.notices.iter().rev().find(|it| it.contains(&quoted));
    let reported = notice.map(|it| format!("; notice: {it}")).unwrap_or_default();
    let at = match addresses.is_empty() {
        true => "no address of it is known".into(),
        false => format!("its address is {}", addresses.join(", ")),
    };
    let found = Found::new(
        Harm::Stops,
        format!("peer {quoted} is '{state}'; {at}{reported}"),
        "No topics are exchanged with this peer.",
    );
    match addresses.first().and_then(|it| it.parse::<SocketAddr>().ok()) {
        Some(address) => found
            .fix(format!("ping -c 3 {}  # if it does not answer: the network", address.ip()))
            .fix(format!("at {quoted}: tautline doctor  # the daemon there, and UDP {} in its firewall", address.port())),
        None => found
            .fix(format!(
                "in {}: peers: {{ {name}: {{ address: ADDRESS }} }}  # unless it initiates the handshake",
                robot.file_name()
            ))
            .fix(format!("at {quoted}: tautline doctor")),
    }
}

pub(super) fn keys(_: &Machine, robot: &Robot) -> Answer {
    let status = status!(robot);
    let is_of_key = |it: &&String| KEY_NOTICES.iter().any(|part| it.contains(part));
    let found = status.notices.iter().filter(is_of_key).map(|notice| {
        let why = "Handshakes with a wrong key are refused.";
        Found::new(Harm::Stops, notice, why)
            .fix(
                "tautline keygen --show NAME.key  # on each machine; compare with the other's file",
            )
            .fix(format!(
                "then correct peers.NAME.key in {}, and: tautline reload",
                robot.file_name()
            ))
    });
    Answer::Made(found.collect())
}

pub(super) fn clocks(_: &Machine, robot: &Robot) -> Answer {
    let status = status!(robot);
    let found = status.peers.iter().filter_map(|peer| {
        let clock = peer.clock.as_ref()?;
        let offset = clock.offset_ms?;
        // What the error of the measurement explains is no offset.
        (offset.abs() - clock.bound_ms > MAX_CLOCK_OFFSET_MS).then(|| {
            let ahead = if offset > 0.0 { "ahead of" } else { "behind" };
            let found = Found::new(
                Harm::Delays,
                format!(
                    "the clock of '{}' is {:.0} ms {ahead} this one (error at most {:.0} ms)",
                    peer.name,
                    offset.abs(),
                    clock.bound_ms
                ),
                "tf finds no transform for messages whose stamps disagree by more than its tolerance.",
            );
            found.fix("apt install chrony  # on both machines, with one as the server of the other").fix(
                format!("or in {}: peers: {{ {}: {{ move_stamps: true }} }}", robot.file_name(), peer.name),
            )
        })
    });
    Answer::Made(found.collect())
}

fn shown(link: &LinkReport) -> String {
    let name = if link.name.is_empty() { &link.radio } else { &link.name };
    format!("link {name} to '{}'", link.peer)
}

pub(super) fn mtu(_: &Machine, robot: &Robot) -> Answer {
    let status = status!(robot);
    let up = status.links.iter().filter(|it| it.up && it.mtu_known_by != "relay");
    let found = up.filter_map(|link| {
        let is_hole = link.mtu_known_by == "black hole";
        (is_hole || link.mtu < MIN_MTU).then(|| {
            let hole = if is_hole { ", and larger packets vanish without a report (black hole)" } else { "" };
            let found = Found::new(
                Harm::Wastes,
                format!("{} carries packets of {} bytes{hole}", shown(link), link.mtu),
                "Tautline found this size by probes; other programs (ssh, updates) may hang on such a path.",
            );
            found
                .fix("accept ICMP 'fragmentation needed' and ICMPv6 'packet too big' in all firewalls on the path")
                .fix(format!("ip link set {} mtu {}  # helps other programs on this path", link.radio, link.mtu.max(MIN_MTU)))
        })
    });
    Answer::Made(found.collect())
}

pub(super) fn loss(_: &Machine, robot: &Robot) -> Answer {
    let status = status!(robot);
    let lossy = status.links.iter().filter(|it| it.up && it.loss >= MAX_LOSS);
    let found = lossy.map(|link| {
        let found = Found::new(
            Harm::Delays,
            format!("{} loses {:.0} % of its packets", shown(link), link.loss * 100.0),
            "At 5 %, only 9 of 100 messages of 64 KB arrive whole at the first attempt.",
        );
        found
            .fix("improve the radio: antenna, place, channel (see 'wifi-signal')")
            .fix("for topics that must not wait for repairs: topics: { /TOPIC: { fec: 20 } }")
    });
    Answer::Made(found.collect())
}

/// What the links to a peer can send together, in bits per second; none if a link has no known limit.
pub(super) fn can_send(status: &Status, peer: &str) -> Option<u64> {
    let up = status.links.iter().filter(|it| it.peer == peer && it.up);
    let usable = up.filter(|it| it.state != "standby");
    let rates: Option<Vec<u64>> = usable.map(|it| it.available_bps).collect();
    rates.filter(|it| !it.is_empty()).map(|it| it.into_iter().sum())
}

pub(super) fn rates(_: &Machine, robot: &Robot) -> Answer {
    let status = status!(robot);
    let up = status.peers.iter().filter(|it| it.state == "up");
    Answer::Made(up.filter_map(|peer| too_slow(status, robot, peer)).collect())
}

fn too_slow(status: &Status, robot: &Robot, peer: &PeerReport) -> Option<Found> {
    let wanted = peer.wanted_bps?;
    let can_send = can_send(status, &peer.name)? as f64;
    if wanted <= can_send * USABLE {
        return None;
    }
    let mbps = |bps: f64| format!("{:.1} Mbps", bps / 1e6);
    let sent =
        status.topics.iter().filter(|it| it.peer == peer.name && it.direction == Direction::Out);
    let dropping = sent.clone().filter_map(|it| Some((it, it.given_up.as_ref()?.share())));
    let worst = dropping.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(it, _)| it);
    let largest: Option<&TopicReport> = worst.or_else(|| sent.max_by_key(|it| it.bytes));
    let topic = largest.map_or("/TOPIC", |it| &it.topic);
    let dropped = largest.and_then(|it| it.given_up.as_ref());
    let dropped = dropped.map(|it| format!("; {topic}: {}", it.in_words())).unwrap_or_default();
    let found = Found::new(
        Harm::Delays,
        format!(
            "topics for '{}' have {}; its links can send {}{dropped}",
            peer.name,
            mbps(wanted),
            mbps(can_send)
        ),
        "Topics of the lowest priorities are thinned or dropped.",
    );
    Some(
        found
            .fix(format!("in {}: topics: {{ {topic}: {{ rate: 2Hz }} }}", robot.file_name()))
            .fix("or compress at the source, or use a faster link  (page \"Slow links\")"),
    )
}

pub(super) fn waiting(_: &Machine, robot: &Robot) -> Answer {
    let status = status!(robot);
    let found = status.waiting.iter().take(MAX_LISTED).map(|it| {
        let found = Found::new(
            Harm::Note,
            format!("'{}' wants to {} {} ({})", it.peer, it.act, it.name, it.type_name),
            "The robot's file does not allow it, so that its messages do not pass.",
        );
        found.fix(format!(
            "if it is meant, in {}, under peers.{}: {}",
            robot.file_name(),
            it.peer,
            it.line
        ))
    });
    Answer::Made(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notices;
    use std::net::SocketAddr;
    use tautline_proto::{Notice, SecretKey, Verdict};

    #[test]
    fn notices_about_keys_are_recognized() {
        let key = SecretKey::insecure("robot").public();
        let from = "10.0.0.7:1".parse::<SocketAddr>().unwrap().into();
        let name = || "robot".to_owned();
        let of_keys = [
            Notice::UnknownKey { name: name(), key, from, known_name: true },
            Notice::UnknownKey { name: name(), key, from, known_name: false },
            Notice::OtherKey { name: Some(name()), from },
            Notice::OtherName { name: name(), theirs: "other".into(), from },
            Notice::Twins { name: name(), from, other: None },
            Notice::Twins { name: name(), from, other: Some(from) },
            Notice::TheyRefuse { name: name(), from, verdict: Verdict::Name },
        ];
        for notice in of_keys {
            let text = notices::text(&notice, "base");
            assert!(KEY_NOTICES.iter().any(|part| text.contains(part)), "{text}");
        }
        let version = notices::text(&Notice::Version { from, theirs: 7, ours: 0 }, "base");
        assert!(version.contains(super::super::daemon::OTHER_PROTOCOL), "{version}");
        assert!(!KEY_NOTICES.iter().any(|part| version.contains(part)), "{version}");
    }
}
