// SPDX-License-Identifier: Apache-2.0
//! Notices for people: faults between nodes in words (what was found, where, and what to do),
//! logged once and kept for `status`; and lines that are only logged. Everything that a peer or a
//! stranger can cause to be logged passes through this module, because neither the log nor memory
//! may grow with their input.

use crate::quota::{Allowance, Cause, MAX_BUDGETS, Quota};
use std::collections::{BTreeMap, VecDeque};
use tautline_proto::{Duration, Instant, NoPath, Notice, Place, PublicKey, Verdict};

/// Time after which a repeated notice is logged again.
const PERIOD: Duration = Duration::from_secs(30);
/// Maximum number of notices, and of other lines, logged per cause and period. Further notices and
/// lines are only counted.
const LOG_ALLOWANCE: Allowance =
    Allowance { period: PERIOD, here: 20, user: 20, peer: 20, key: 5, stranger: 5, safety: 5 };
/// Maximum number of notices kept for `status` per cause. The oldest notices are dropped.
const KEEP_ALLOWANCE: Allowance = Allowance { peer: 10, safety: 3, ..LOG_ALLOWANCE };
/// Maximum bytes of a notice.
const MAX_TEXT: usize = 600;
/// Time after which a notice about handshakes counts as no longer true. Nodes that are not paired
/// repeat their handshakes within a second.
const HANDSHAKE_NOTICE_LIFETIME: Duration = Duration::from_secs(300);

/// A notice that is kept.
#[derive(Debug)]
struct KeptNotice {
    logged: Instant,
    /// The last time at which the fault occurred.
    seen: Instant,
    text: String,
}

#[derive(Debug)]
pub(crate) struct Notices {
    /// The notices of each cause, in the order in which they were last logged.
    kept: BTreeMap<Cause, VecDeque<KeptNotice>>,
    notices: Quota,
    lines: Quota,
}

impl Default for Notices {
    fn default() -> Self {
        let quota = || Quota::new(LOG_ALLOWANCE);
        Self { kept: BTreeMap::new(), notices: quota(), lines: quota() }
    }
}

impl Notices {
    /// Logs and keeps a notice, unless the same notice or too many others were logged recently.
    pub(crate) fn add(&mut self, now: Instant, cause: Cause, text: &str) {
        self.sweep(now);
        let text = plain(text);
        let mut kept = self.kept.get_mut(&cause);
        let known = kept.as_ref().and_then(|kept| kept.iter().position(|it| it.text == text));
        let known_notice = known.zip(kept.as_mut()).map(|(known, kept)| &mut kept[known]);
        let logged = known_notice.map(|it| {
            it.seen = now;
            it.logged
        });
        if logged.is_some_and(|at| now.since(at) < PERIOD) || !self.notices.take(&cause) {
            return;
        }
        tracing::warn!("{text}");
        self.keep(now, cause, known, text);
    }

    fn keep(&mut self, now: Instant, cause: Cause, known: Option<usize>, text: String) {
        if self.kept.len() >= MAX_BUDGETS && !self.kept.contains_key(&cause) {
            let newest = |kept: &VecDeque<KeptNotice>| kept.back().map(|it| it.logged);
            let oldest = self.kept.iter().min_by_key(|(_, kept)| newest(kept));
            let oldest = oldest.map(|(cause, _)| cause.clone());
            oldest.map(|cause| self.kept.remove(&cause));
        }
        let most = KEEP_ALLOWANCE.for_cause(&cause) as usize;
        let kept = self.kept.entry(cause).or_default();
        if let Some(known) = known {
            kept.remove(known);
        } else if kept.len() >= most {
            kept.pop_front();
        }
        kept.push_back(KeptNotice { logged: now, seen: now, text });
    }

    /// Removes a notice that is no longer true.
    pub(crate) fn remove(&mut self, cause: &Cause, text: &str) {
        let text = plain(text);
        self.retain(cause, |it| it != text);
    }

    /// Removes the notices of this cause that are no longer true.
    pub(crate) fn retain(&mut self, cause: &Cause, is_true: impl Fn(&str) -> bool) {
        if let Some(kept) = self.kept.get_mut(cause) {
            kept.retain(|it| is_true(&it.text));
        }
    }

    /// Returns the notices that peers caused, without those that strangers caused.
    pub(crate) fn peer_notices(&self) -> impl Iterator<Item = &str> {
        let peer_notices = self.kept.iter().filter(|(cause, _)| matches!(cause, Cause::Peer(_)));
        peer_notices.flat_map(|(_, kept)| kept).map(|it| it.text.as_str())
    }

    /// Removes the notices of peers that are no longer true.
    pub(crate) fn retain_peer_notices(&mut self, is_true: impl Fn(&str) -> bool) {
        for (cause, kept) in &mut self.kept {
            if matches!(cause, Cause::Peer(_)) {
                kept.retain(|it| is_true(&it.text));
            }
        }
    }

    /// Whether a line that is not a notice may be logged. If not, it is counted.
    pub(crate) fn may_log(&mut self, now: Instant, cause: &Cause) -> bool {
        self.sweep(now);
        self.lines.take(cause)
    }

    /// Logs the number of lines left out; to be called periodically.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let seconds = PERIOD.as_secs();
        for (cause, count) in self.notices.next_period(now).into_iter().flatten() {
            tracing::warn!("{count} more notices about {cause} in {seconds} s were left out");
        }
        for (cause, count) in self.lines.next_period(now).into_iter().flatten() {
            tracing::info!("{count} more lines about {cause} in {seconds} s were left out");
        }
    }

    /// Returns the kept notices, newest last. Notices about strangers, and about keys that two
    /// nodes use, are left out once the handshakes have ended.
    pub(crate) fn texts(&self, now: Instant) -> Vec<String> {
        let ends = |cause: &Cause| matches!(cause, Cause::Stranger(_) | Cause::Key(_));
        let is_true = |cause: &Cause, it: &KeptNotice| {
            !ends(cause) || now.since(it.seen) < HANDSHAKE_NOTICE_LIFETIME
        };
        let of_cause = |(cause, kept)| -> Vec<&KeptNotice> {
            let kept: &VecDeque<KeptNotice> = kept;
            kept.iter().filter(|it| is_true(cause, it)).collect()
        };
        let mut all: Vec<&KeptNotice> = self.kept.iter().flat_map(of_cause).collect();
        all.sort_by_key(|it| it.logged);
        all.into_iter().map(|it| it.text.clone()).collect()
    }
}

/// Returns a peer's text on one line.
pub(crate) fn plain(text: &str) -> String {
    tautline_gateway::plain::plain(text, MAX_TEXT)
}

/// Returns the cause of a notice. A cause has the name of a peer only if the file has it: a name in
/// a stranger's handshake gets no budget of its own.
pub(crate) fn cause(notice: &Notice) -> Cause {
    match notice {
        Notice::UnknownKey { from, .. }
        | Notice::OtherKey { from, .. }
        | Notice::Version { from, .. } => Cause::stranger(*from),
        Notice::Twins { other: None, .. } => Cause::Key(None),
        Notice::Twins { name, other: Some(_), .. } => Cause::Key(Some(name.clone())),
        Notice::OtherName { name, .. }
        | Notice::TheyRefuse { name, .. }
        | Notice::NotRelayed { name }
        | Notice::UnknownEnd { name }
        | Notice::RelayLoop { name }
        | Notice::BlackHole { name, .. }
        | Notice::NoDirectPath { name, .. }
        | Notice::TooLarge { peer: name, .. } => Cause::Peer(name.clone()),
    }
}

/// Describes a notice for people at the node `here`.
pub fn sentence(notice: &Notice, here: &str) -> String {
    match notice {
        Notice::UnknownKey { name, key, from, known_name: true } => {
            format!("the node '{name}' at {}{}", host(*from), other_key_of(name, key))
        }
        Notice::UnknownKey { name, key, from, known_name: false } => {
            let from = host(*from);
            format!("a node '{name}' initiates handshakes from {from}{}", no_peers(key, here))
        }
        Notice::OtherKey { name, from } => {
            let from = host(*from);
            let (expected, there) = match name {
                Some(name) => (format!(", the address of '{name}',"), format!("'{name}'")),
                None => (String::new(), format!("the node at {from}")),
            };
            format!(
                "handshakes from {from}{expected} are for another key than that of '{here}': the \
                 key of '{here}' in the file of {there} is wrong, or only one of the two has \
                 'security: none'"
            )
        }
        Notice::UnknownEnd { name } => format!(
            "'{name}' sends packets for a node that is no peer of '{here}': add it under peers, \
             with its key and a path to it (address: or via:)"
        ),
        Notice::OtherName { name, theirs, from } => format!(
            "the node at {from} has the key of peer '{name}', but the name '{theirs}'; correct \
             the key under peers.{name}, or its name"
        ),
        Notice::Version { from, theirs, ours } => version_mismatch(*from, [*theirs, *ours], here),
        Notice::Twins { name, from, other: None } => format!(
            "two nodes use the same key: this node, and '{name}' at {from}; create a key for \
             each (tautline keygen FILE)"
        ),
        Notice::Twins { name, from, other: Some(other) } => format!(
            "two nodes use the key of '{name}': one at {other} and one at {from}; '{here}' keeps \
             the one that started last; create a key for each (tautline keygen FILE)"
        ),
        Notice::TheyRefuse { name, from, verdict } => {
            let reason = match verdict {
                Verdict::Welcome => "it accepts the handshake after all",
                Verdict::Name => "it knows this node's key under another name",
                Verdict::Twin => "another node with the same key has started since",
            };
            format!("'{name}' at {from} refuses the handshake of '{here}': {reason}")
        }
        Notice::NotRelayed { name } => format!(
            "'{name}' sends packets of or for other nodes: if '{name}' is the relay to a peer of '{here}', \
             name it under via of that peer; if '{here}' is to forward its packets, set \
             peers.{name}.relay to true"
        ),
        Notice::RelayLoop { name } => format!(
            "packets for other nodes return through '{name}' repeatedly: the relays in the files \
             (via:) form a loop"
        ),
        Notice::BlackHole { name, to, lost, passes } => format!(
            "IP packets of {lost} bytes to '{name}' at {to} do not arrive, and packets of {passes} \
             bytes do: a router, tunnel or firewall on the path drops larger ones without a report; \
             '{here}' sends packets of at most {passes} bytes there and tries larger ones every ten \
             minutes"
        ),
        Notice::NoDirectPath { name, cause } => no_direct_path(name, *cause),
        Notice::TooLarge { peer, topic, found, allowed } => format!(
            "{topic}: a message of {found} bytes from '{peer}' is larger than the {allowed} \
             bytes that '{here}' allows (limits.max_message)"
        ),
    }
}

/// Returns an address without its port. A node that hears nothing tries several ports, and each
/// would cause a notice of its own.
fn host(from: Place) -> String {
    match from {
        Place::Udp(address) => address.ip().to_string(),
        Place::Relay { .. } => from.to_string(),
    }
}

fn version_mismatch(from: Place, [theirs, ours]: [u8; 2], here: &str) -> String {
    let from = host(from);
    format!(
        "a node at {from} has protocol version {theirs}, '{here}' has {ours}; run the same release \
         on both"
    )
}

/// Returns the notice that only relays lead to a peer.
fn no_direct_path(name: &str, cause: NoPath) -> String {
    let stop = format!("set peers.{name}.direct to false to stop the search");
    match cause {
        NoPath::Closed => format!(
            "no direct path to '{name}' was found, and its packets continue through the relay: a \
             firewall drops packets, or an address translator (NAT) gives each destination another \
             port; forward UDP port 18470 at one end and name its address at the other, or {stop}"
        ),
        NoPath::SameAddress => format!(
            "no direct path to '{name}' was found, and its packets continue through the relay: both ends \
             are behind the same outside address, and the network there passes no packets between \
             them (client isolation, or a provider's NAT); allow this there, or {stop}"
        ),
        NoPath::Ended => format!(
            "the direct path to '{name}' ended, and its packets continue through the relay: a firewall \
             or a router between the two drops them since then; it is sought again, or {stop}"
        ),
    }
}

/// Removes the notices about the direct path to a peer, which was found or is no longer sought.
pub(crate) fn drop_direct_path_notices(notices: &mut Notices, peer: &str) {
    for cause in [NoPath::Closed, NoPath::SameAddress, NoPath::Ended] {
        notices.remove(&Cause::Peer(peer.into()), &no_direct_path(peer, cause));
    }
}

/// Removes the notices about handshakes of a peer that is now up, at this address.
pub(crate) fn drop_handshake_notices(notices: &mut Notices, peer: &str, remote: Option<Place>) {
    let (refuses, other_name) =
        (format!("'{peer}' at "), format!(" has the key of peer '{peer}', but the name "));
    notices.retain(&Cause::Peer(peer.into()), |text| {
        let is_refusal = text.starts_with(&refuses) && text.contains("refuses the handshake of");
        !is_refusal && !text.contains(&other_name)
    });
    let Some(remote) = remote else { return };
    let host = host(remote);
    let places = [format!(" from {host} "), format!(" from {host},"), format!(" at {host} ")];
    notices.retain(&Cause::stranger(remote), |text| !places.iter().any(|it| text.contains(it)));
}

fn other_key_of(name: &str, key: &PublicKey) -> String {
    format!(
        " has the key {key}, but peers.{name} has another: correct the wrong one (sudo \
         tautline status, on '{name}', shows it in its second line)"
    )
}

fn no_peers(key: &PublicKey, here: &str) -> String {
    format!(
        " with the key {key}, which belongs to no peer of '{here}': add it under peers, or \
         ignore this if the peer was removed on purpose"
    )
}

/// Removes notices that the key of this peer is unknown: the file now has the key. The notices are
/// identified by their end, because a stranger can choose the name in them.
pub(crate) fn drop_unknown_key_notices(
    notices: &mut Vec<String>,
    peer: &str,
    key: &PublicKey,
    here: &str,
) {
    let untrue = [other_key_of(peer, key), no_peers(key, here)];
    notices.retain(|text| !untrue.iter().any(|end| text.ends_with(end)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tautline_proto::SecretKey;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    fn peer(name: &str) -> Cause {
        Cause::Peer(name.into())
    }

    fn quota_of_cause(cause: &Cause) -> u64 {
        u64::from(LOG_ALLOWANCE.for_cause(cause))
    }

    #[test]
    fn a_flood_of_different_notices_is_bounded_in_memory_and_log() {
        let mut notices = Notices::default();
        notices.add(at(1), Cause::Here, "ours");
        let stranger = Cause::Stranger(3);
        for caller in 0..100_000 {
            notices.add(at(2), stranger.clone(), &format!("'stranger{caller}' calls"));
        }
        let left_out = 100_000 - quota_of_cause(&stranger);
        assert_eq!(notices.notices.end_period(), [(stranger.clone(), left_out)]);
        assert_eq!(notices.texts(at(2)).len() as u64, 1 + quota_of_cause(&stranger));
        assert_eq!(notices.texts(at(2))[0], "ours");
        for period in 1..100 {
            for caller in 0..100 {
                let text = format!("'stranger{period}-{caller}' calls");
                notices.add(at(period * 60), stranger.clone(), &text);
            }
        }
        let kept = &notices.kept[&stranger];
        assert_eq!(kept.len() as u32, KEEP_ALLOWANCE.for_cause(&stranger));
        assert!(kept.capacity() < 4 * kept.len(), "capacity for {} notices", kept.capacity());
        notices.add(at(6000), Cause::Here, "ours again");
        assert_eq!(notices.texts(at(6000)).last().unwrap(), "ours again");
    }

    #[test]
    fn notices_of_one_peer_hide_neither_another_peer_nor_safety() {
        let mut notices = Notices::default();
        let safety = Cause::Safety("/cmd_vel".into());
        for topic in 0..5000 {
            notices.add(at(1), peer("worst"), &format!("/t{topic} of 'worst' is refused"));
            let _ = notices.may_log(at(1), &peer("worst"));
        }
        let others = [peer("good"), Cause::Key(Some("worst".into())), safety, Cause::Here];
        for cause in others {
            notices.add(at(2), cause.clone(), &format!("seen: {cause}"));
            assert!(notices.texts(at(2)).contains(&format!("seen: {cause}")));
            assert!(notices.may_log(at(2), &cause));
        }
        assert!(!notices.may_log(at(2), &peer("worst")));
        let worst = notices.texts(at(2)).iter().filter(|text| text.contains("is refused")).count();
        assert_eq!(worst as u32, KEEP_ALLOWANCE.for_cause(&peer("worst")));
        assert_eq!(
            notices.lines.end_period(),
            [(peer("worst"), 5001 - quota_of_cause(&peer("worst")))]
        );
    }

    #[test]
    fn at_the_limit_a_quota_of_notices_is_replaced() {
        let mut notices = Notices::default();
        for second in 0..MAX_BUDGETS as u64 + 10 {
            let cause = Cause::Safety(format!("/{second}"));
            notices.add(at(second), cause, &format!("notice {second}"));
        }
        assert_eq!(notices.kept.len(), MAX_BUDGETS);
        assert_eq!(notices.texts(at(6000))[0], "notice 10");
    }

    #[test]
    fn the_notice_of_an_unknown_key_ends_when_it_is_configured() {
        let key = |name: &str| SecretKey::insecure(name).public();
        let unknown = |name: String, of: &str, known_name| {
            let from = "10.0.0.7:1".parse::<SocketAddr>().unwrap().into();
            sentence(&Notice::UnknownKey { name, key: key(of), from, known_name }, "base")
        };
        let stranger = unknown(no_peers(&key("robot"), "base"), "thief", false);
        let mut notices = vec![
            unknown("robot".into(), "robot", true),
            stranger.clone(),
            unknown("other".into(), "robot", false),
        ];
        drop_unknown_key_notices(&mut notices, "robot", &key("robot"), "base");
        assert_eq!(notices, [stranger]);
    }

    #[test]
    fn names_of_strangers_cannot_add_lines() {
        let mut notices = Notices::default();
        notices.add(at(1), Cause::Stranger(0), "'x\n2026 ERROR robot lost\u{1b}[2J' calls");
        assert_eq!(notices.texts(at(1)), ["'x\\n2026 ERROR robot lost\\u{1b}[2J' calls"]);
        notices.add(at(1), Cause::Stranger(0), &"x".repeat(100_000));
        assert_eq!(notices.texts(at(1))[1].len(), MAX_TEXT);
    }

    #[test]
    fn notices_about_handshakes_end_with_them() {
        let place = |text: &str| Place::Udp(text.parse().unwrap());
        let robot = place("10.77.0.2:18470");
        let key = SecretKey::insecure("robot").public();
        let name = || "robot".to_owned();
        let of_robot = [
            Notice::OtherKey { name: None, from: place("10.77.0.2:4000") },
            Notice::OtherKey { name: Some(name()), from: robot },
            Notice::Version { from: robot, theirs: 7, ours: 0 },
            Notice::UnknownKey { name: name(), key, from: robot, known_name: true },
            Notice::UnknownKey { name: name(), key, from: robot, known_name: false },
            Notice::TheyRefuse { name: name(), from: robot, verdict: Verdict::Name },
            Notice::OtherName { name: name(), theirs: "other".into(), from: robot },
        ];
        // Takes only hosts with another budget: hosts that share a budget displace each other's notices.
        let of_other_budget = |place: &Place| Cause::stranger(*place) != Cause::stranger(robot);
        let mut hosts = (22..=254).map(|host| place(&format!("10.77.0.{host}:18470")));
        let elsewhere = hosts.find(of_other_budget).unwrap();
        let of_others = [
            Notice::OtherKey { name: None, from: elsewhere },
            Notice::Twins { name: name(), from: elsewhere, other: Some(robot) },
            Notice::TooLarge { peer: name(), topic: "/t".into(), found: 2, allowed: 1 },
        ];
        let mut notices = Notices::default();
        for notice in of_robot.iter().chain(&of_others) {
            notices.add(at(1), cause(notice), &sentence(notice, "base"));
        }
        assert_eq!(notices.texts(at(1)).len(), of_robot.len() + of_others.len());
        drop_handshake_notices(&mut notices, "robot", Some(robot));
        let expected: Vec<String> = of_others.iter().map(|it| sentence(it, "base")).collect();
        let mut left = notices.texts(at(1));
        left.sort_by_key(|it| expected.iter().position(|other| other == it));
        assert_eq!(left, expected);
        // The thief repeats its handshakes, too often for each to be logged; the twin has ended.
        for second in 2..=600 {
            notices.add(at(second), Cause::stranger(elsewhere), &expected[0]);
        }
        assert_eq!(notices.texts(at(600)), [expected[2].clone(), expected[0].clone()]);
        assert_eq!(notices.texts(at(901)), [expected[2].clone()]);
    }

    #[test]
    fn alternating_notices_are_logged_once_per_period() {
        let mut notices = Notices::default();
        for second in 0..PERIOD.as_secs() {
            notices.add(at(second), peer("a"), "one");
            notices.add(at(second), peer("a"), "two");
        }
        assert!(notices.notices.end_period().is_empty());
        assert_eq!(notices.texts(at(6000)), ["one", "two"]);
        notices.add(at(100), peer("a"), "one");
        assert_eq!(notices.texts(at(6000)), ["two", "one"], "the newest is last");
        notices.remove(&peer("b"), "one");
        notices.remove(&peer("a"), "two");
        assert_eq!(notices.texts(at(6000)), ["one"]);
    }
}
