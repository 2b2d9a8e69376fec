// SPDX-License-Identifier: Apache-2.0
//! Peers and links, as the running daemon reports them.

use super::finding::{CheckFinding, CheckResult, Harm};
use super::machine::Machine;
use super::robot::Robot;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use tautline::status::{
    ClockReport, Direction, LinkReport, PeerReport, Status, SteadyReport, TopicReport,
    WaitingReport,
};

/// Difference of clocks above which tf is affected, in milliseconds.
const MAX_CLOCK_OFFSET_MS: f64 = 50.0;
/// Fraction of lost packets above which a link is reported.
const MAX_LOSS: f64 = 0.05;
/// Minimum number of packets with a known outcome for judging the loss, as many as its smoothing covers.
const MIN_OUTCOMES: u64 = 64;
/// MTU that every path of IPv6 supports (RFC 8200, 5).
const MIN_MTU: u64 = 1280;
/// Fraction of a link's rate that topics may need; the rest is for headers, reports and repairs.
const USABLE_RATE_FRACTION: f64 = 0.95;
/// Maximum number of listed requests.
const MAX_LISTED: usize = 20;
/// Part of a notice about another version of the protocol.
pub(super) const OTHER_PROTOCOL: &str = "has protocol version";
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

fn status(robot: &Robot) -> Result<&Status, CheckResult> {
    robot
        .status
        .as_ref()
        .ok_or_else(|| CheckResult::Skipped(super::robot::missing_status_reason(robot)))
}

macro_rules! status {
    ($robot:expr) => {
        match status($robot) {
            Ok(status) => status,
            Err(answer) => return answer,
        }
    };
}

pub(super) fn check_peers_up(_: &Machine, robot: &Robot) -> CheckResult {
    let status = status!(robot);
    let down = status.peers.iter().filter(|it| it.state != "up");
    CheckResult::Completed(down.map(|peer| peer_down(status, robot, peer)).collect())
}

fn peer_down(status: &Status, robot: &Robot, peer: &PeerReport) -> CheckFinding {
    let PeerReport { name, state, .. } = peer;
    let links = status.links.iter().filter(|it| it.peer == *name);
    let addresses: Vec<&str> =
        links.map(|it| it.remote.as_str()).filter(|it| !it.is_empty()).collect();
    let quoted = format!("'{name}'");
    let fault = failed_handshake(status, name);
    let notice = status.notices.iter().rev().find(|it| it.contains(&quoted));
    let reported = match (fault, notice) {
        (Some(check), _) => format!("; its handshakes fail: see '{check}'"),
        (None, Some(notice)) => format!("; notice: {notice}"),
        (None, None) => String::new(),
    };
    let at = match addresses.is_empty() {
        true => "no address of it is known".into(),
        false => format!("its address is {}", addresses.join(", ")),
    };
    let found = CheckFinding::new(
        Harm::Stops,
        format!("peer {quoted} is '{state}'; {at}{reported}"),
        "No topics are exchanged with this peer.",
    );
    if let Some(check) = fault {
        return found.fix(format!("do what '{check}' says; the network carries packets"));
    }
    match addresses.first().and_then(|it| it.parse::<SocketAddr>().ok()) {
        Some(address) => found
            .fix(format!("ping -c 3 {}  # if it does not answer: the network", address.ip()))
            .fix(format!(
                "at {quoted}: sudo tautline doctor  # the daemon there, and UDP {} in its firewall",
                address.port()
            )),
        None => found
            .fix(robot.how_to_set(
                &format!("peers.{name}.address"),
                "ADDRESS  # unless it initiates the handshake",
            ))
            .fix(format!("at {quoted}: sudo tautline doctor")),
    }
}

/// Returns the name of the check that explains why handshakes with a peer fail, if the daemon has a notice
/// about it. A notice without a name belongs to the peer if no other peer is down.
fn failed_handshake(status: &Status, peer: &str) -> Option<&'static str> {
    let down = status.peers.iter().filter(|it| it.state != "up").count();
    let is_of_peer = |notice: &str| {
        let names = |name: &str| {
            notice.contains(&format!("'{name}'")) || notice.contains(&format!("peers.{name} "))
        };
        let names_another = status.peers.iter().any(|it| it.name != peer && names(&it.name));
        names(peer) || down == 1 && !names_another
    };
    let mut own = status.notices.iter().rev().filter(|it| is_of_peer(it));
    own.find_map(|it| match it {
        it if is_of_key(it) => Some("peer-key"),
        it if it.contains(OTHER_PROTOCOL) => Some("versions"),
        _ => None,
    })
}

fn is_of_key(notice: &str) -> bool {
    KEY_NOTICES.iter().any(|part| notice.contains(part))
}

pub(super) fn check_peer_keys(_: &Machine, robot: &Robot) -> CheckResult {
    let status = status!(robot);
    let found = status.notices.iter().filter(|it| is_of_key(it)).map(|notice| {
        let why = "Handshakes with a wrong key are refused.";
        CheckFinding::new(Harm::Stops, notice, why)
            .fix("sudo tautline status  # on each machine: its key is in the second line")
            .fix(format!(
                "compare it with the key of this machine in the other's file; correct \
                 peers.NAME.key in {}, or there, and on that machine: sudo tautline reload",
                robot.file_name()
            ))
    });
    CheckResult::Completed(found.collect())
}

/// The measured offset of a peer's clock, if it is known.
fn known_offset(peer: &PeerReport) -> Option<(&ClockReport, f64)> {
    let clock = peer.clock.as_ref()?;
    Some((clock, clock.offset_ms?))
}

/// Whether clocks differ by more than the error of the measurement explains.
fn clocks_differ(clock: &ClockReport, offset_ms: f64) -> bool {
    offset_ms.abs() - clock.bound_ms > MAX_CLOCK_OFFSET_MS
}

/// Whether the clocks of peers are known, and none differs from this machine's.
pub(super) fn clocks_agree(robot: &Robot) -> bool {
    let peers = robot.status.iter().flat_map(|it| &it.peers);
    let known = peers.filter(|it| it.state == "up").filter_map(known_offset);
    let differ: Vec<bool> = known.map(|(clock, offset)| clocks_differ(clock, offset)).collect();
    !differ.is_empty() && !differ.contains(&true)
}

pub(super) fn clocks(_: &Machine, robot: &Robot) -> CheckResult {
    let status = status!(robot);
    let found = status.peers.iter().filter_map(|peer| {
        let (clock, offset) = known_offset(peer)?;
        clocks_differ(clock, offset).then(|| {
            let ahead = if offset > 0.0 { "ahead of" } else { "behind" };
            let found = CheckFinding::new(
                Harm::Delays,
                format!(
                    "the clock of '{}' is {:.0} ms {ahead} this one (error at most {:.0} ms)",
                    peer.name,
                    offset.abs(),
                    clock.bound_ms
                ),
                "tf finds no transform for messages whose stamps disagree by more than its tolerance.",
            );
            found
                .fix("sudo apt install chrony  # on both machines, with one as the server of the other")
                .fix(format!("or {}", robot.how_to_set(&format!("peers.{}.move_stamps", peer.name), true)))
        })
    });
    CheckResult::Completed(found.collect())
}

fn link_text(link: &LinkReport) -> String {
    let name = if link.name.is_empty() { &link.radio } else { &link.name };
    format!("link {name} to '{}'", link.peer)
}

pub(super) fn mtu(_: &Machine, robot: &Robot) -> CheckResult {
    let status = status!(robot);
    let up = status.links.iter().filter(|it| it.up && it.mtu_known_by != "relay");
    let found = up.filter_map(|link| {
        let is_hole = link.mtu_known_by == "black hole";
        (is_hole || link.mtu < MIN_MTU).then(|| {
            let hole = if is_hole { ", and larger packets vanish without a report (black hole)" } else { "" };
            let found = CheckFinding::new(
                Harm::Wastes,
                format!("{} carries packets of {} bytes{hole}", link_text(link), link.mtu),
                "Tautline found this size by probes; other programs (ssh, updates) may hang on such a path.",
            );
            found
                .fix("accept ICMP 'fragmentation needed' and ICMPv6 'packet too big' in all firewalls on the path")
                .fix(format!("sudo ip link set {} mtu {}  # helps other programs on this path", link.radio, link.mtu.max(MIN_MTU)))
        })
    });
    CheckResult::Completed(found.collect())
}

/// Whether a link loses packets now. Packets lost in an interruption say nothing about a link that has
/// worked since.
fn is_lossy(link: &LinkReport) -> bool {
    let since = |it: &SteadyReport| {
        it.outcomes() >= MIN_OUTCOMES && it.loss().is_some_and(|loss| loss >= MAX_LOSS)
    };
    link.up && link.loss >= MAX_LOSS && link.steady.as_ref().is_none_or(since)
}

pub(super) fn loss(_: &Machine, robot: &Robot) -> CheckResult {
    let status = status!(robot);
    let lossy = status.links.iter().filter(|it| is_lossy(it));
    let found = lossy.map(|link| {
        let since = link.steady.as_ref().map(|it| {
            let share = it.loss().unwrap_or(0.0) * 100.0;
            format!(" ({share:.1} % since the link is up, for {:.0} s)", it.seconds)
        });
        let found = CheckFinding::new(
            Harm::Delays,
            format!(
                "{} loses {:.0} % of its packets{}",
                link_text(link),
                link.loss * 100.0,
                since.unwrap_or_default()
            ),
            "At 5 %, only 9 of 100 messages of 64 KB arrive whole at the first attempt.",
        );
        found.fix("improve the radio: antenna, place, channel (see 'wifi-signal')").fix(format!(
            "for topics that must not wait for repairs, {}",
            robot.how_to_set("topics./TOPIC.fec", 20)
        ))
    });
    CheckResult::Completed(found.collect())
}

/// Returns the bits per second that the links to a peer can send together; `None` if a rate is not known or
/// no link is up.
pub(super) fn sendable_bps(status: &Status, peer: &str) -> Option<u64> {
    let up = status.links.iter().filter(|it| it.peer == peer && it.up);
    let usable = up.filter(|it| it.state != "standby");
    let rates: Option<Vec<u64>> = usable.map(|it| it.available_bps).collect();
    rates.filter(|it| !it.is_empty()).map(|it| it.into_iter().sum())
}

pub(super) fn check_link_rates(_: &Machine, robot: &Robot) -> CheckResult {
    let status = status!(robot);
    let up = status.peers.iter().filter(|it| it.state == "up");
    CheckResult::Completed(up.filter_map(|peer| overload_finding(status, robot, peer)).collect())
}

fn overload_finding(status: &Status, robot: &Robot, peer: &PeerReport) -> Option<CheckFinding> {
    let wanted = peer.wanted_bps?;
    let sendable_bps = sendable_bps(status, &peer.name)? as f64;
    if wanted <= sendable_bps * USABLE_RATE_FRACTION {
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
    let found = CheckFinding::new(
        Harm::Delays,
        format!(
            "topics for '{}' have {}; its links can send {}{dropped}",
            peer.name,
            mbps(wanted),
            mbps(sendable_bps)
        ),
        "Topics of the lowest priorities are thinned or dropped.",
    );
    Some(
        found
            .fix(robot.how_to_set(&format!("topics.{topic}.rate"), "2Hz"))
            .fix("or compress at the source, or use a faster link  (page \"Slow links\")"),
    )
}

pub(super) fn check_refused_topics(_: &Machine, robot: &Robot) -> CheckResult {
    let status = status!(robot);
    let up = status.peers.iter().filter(|it| it.state == "up");
    let of_peers = up.flat_map(|peer| {
        let begin = format!("'{}' refuses ", peer.name);
        let refused = status.notices.iter().filter(move |it| it.starts_with(&begin));
        refused.map(move |notice| (&peer.name, notice))
    });
    let all = of_peers.filter(|(peer, notice)| is_published(status, peer, notice));
    let found = all.take(MAX_LISTED).map(|(peer, notice)| {
        let why = "The file there does not allow it, so that its messages do not pass.";
        let found = CheckFinding::new(Harm::Note, notice, why);
        found.fix(format!(
            "if it is meant, at '{peer}': sudo tautline doctor  # has the line to add"
        ))
    });
    CheckResult::Completed(found.collect())
}

/// Whether a topic that a peer refuses is still published here; `true` if the notice is about something
/// else.
fn is_published(status: &Status, peer: &str, notice: &str) -> bool {
    let Some(rest) = notice.strip_prefix(&format!("'{peer}' refuses /")) else { return true };
    let name = rest.split([' ', ':', ',']).next().unwrap_or_default();
    let mut sent = status.topics.iter().filter(|it| it.direction == Direction::Out);
    sent.any(|it| it.peer == peer && it.topic.strip_prefix('/') == Some(name))
}

pub(super) fn check_waiting_requests(_: &Machine, robot: &Robot) -> CheckResult {
    let status = status!(robot);
    let peers: BTreeSet<&str> = status.waiting.iter().map(|it| it.peer.as_str()).collect();
    let found = peers.into_iter().map(|peer| {
        let of_peer: Vec<&WaitingReport> =
            status.waiting.iter().filter(|it| it.peer == peer).collect();
        let wish = |it: &&WaitingReport| format!("{} {} ({})", it.act, it.name, it.type_name);
        let mut wishes: Vec<String> = of_peer.iter().take(MAX_LISTED).map(wish).collect();
        if of_peer.len() > MAX_LISTED {
            wishes.push(format!("{} more ('tautline status')", of_peer.len() - MAX_LISTED));
        }
        let found = CheckFinding::new(
            Harm::Note,
            format!("'{peer}' wants to {}", wishes.join(", ")),
            "The robot's file does not allow it, so that its messages do not pass.",
        );
        found.fix(lines_to_add(status, robot, peer, &of_peer))
    });
    CheckResult::Completed(found.collect())
}

/// Returns the lines that allow what a peer waits for. They include the present entries of their keys,
/// because a file may not have a key twice.
fn lines_to_add(status: &Status, robot: &Robot, peer: &str, waiting: &[&WaitingReport]) -> String {
    let file = robot.file_name();
    match status.to_allow_all.iter().find(|it| it.peer == peer) {
        Some(all) => format!(
            "if it is meant, in {file}, replace these keys under peers.{peer}, or add them; omit \
             unwanted lines:\n{}",
            all.lines.trim_end()
        ),
        None => {
            let lines: Vec<&str> = waiting.iter().map(|it| it.line.as_str()).collect();
            format!("if it is meant, in {file}, under peers.{peer}: {}", lines.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tautline::notices;
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
            let text = notices::sentence(&notice, "base");
            assert!(KEY_NOTICES.iter().any(|part| text.contains(part)), "{text}");
        }
        let version = notices::sentence(&Notice::Version { from, theirs: 7, ours: 0 }, "base");
        assert!(version.contains(OTHER_PROTOCOL), "{version}");
        assert!(!KEY_NOTICES.iter().any(|part| version.contains(part)), "{version}");
    }
}
