// SPDX-License-Identifier: Apache-2.0
//! Peers from which no packet arrives after the start: a notice names the address and the likely
//! causes.

use super::Driver;
use super::peers::FileEntry;
use crate::quota::Cause;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use tautline_proto::{Duration, Event, Instant, Notice, Place};

/// Time without a packet from a peer after which a notice is added.
const PATIENCE: Duration = Duration::from_secs(10);

/// The addresses of a peer, each with its host in the file.
type Addresses = Vec<(SocketAddr, String)>;

/// The peers with an address and without a session since the start, by name.
#[derive(Debug, Default)]
pub(super) struct Silence {
    peers: BTreeMap<String, Silent>,
}

#[derive(Debug)]
struct Silent {
    addresses: Addresses,
    since: Instant,
    /// Whether a packet that has a notice of its own came from one of the addresses.
    heard: bool,
    /// The notice that was added.
    notice: Option<String>,
}

/// A peer's notice.
type PeerNotice = (String, String);

impl Silence {
    /// Notes a handshake from an address of a peer: its notice has the cause.
    pub(super) fn on_event(&mut self, event: &Event) {
        let Event::Notice(
            Notice::UnknownKey { from, .. }
            | Notice::OtherKey { from, .. }
            | Notice::OtherName { from, .. }
            | Notice::Version { from, .. }
            | Notice::Twins { from, .. }
            | Notice::TheyRefuse { from, .. },
        ) = event
        else {
            return;
        };
        if let Place::Udp(from) = from {
            self.heard_from(from.ip());
        }
    }

    fn heard_from(&mut self, from: IpAddr) {
        for silent in self.peers.values_mut() {
            silent.heard |= silent.addresses.iter().any(|(address, _)| address.ip() == from);
        }
    }

    /// Returns the notices that are no longer true, and the new ones. `awaited` has all peers with
    /// an address and without a session; `port` is that of this node.
    fn check(
        &mut self,
        now: Instant,
        mut awaited: BTreeMap<String, Addresses>,
        port: u16,
    ) -> (Vec<PeerNotice>, Vec<PeerNotice>) {
        let (mut untrue, mut new) = (Vec::new(), Vec::new());
        self.peers.retain(|name, silent| {
            let stays = awaited.get(name) == Some(&silent.addresses);
            if !stays || silent.heard {
                untrue.extend(silent.notice.take().map(|text| (name.clone(), text)));
            }
            stays
        });
        for (name, silent) in &mut self.peers {
            awaited.remove(name);
            let is_due = now.since(silent.since) >= PATIENCE;
            if is_due && !silent.heard && silent.notice.is_none() {
                let text = text(name, &silent.addresses, port);
                silent.notice = Some(text.clone());
                new.push((name.clone(), text));
            }
        }
        for (name, addresses) in awaited {
            let silent = Silent { addresses, since: now, heard: false, notice: None };
            self.peers.insert(name, silent);
        }
        (untrue, new)
    }
}

fn text(name: &str, addresses: &Addresses, port: u16) -> String {
    let shown = addresses.iter().map(|(address, host)| match host.parse::<IpAddr>() {
        Ok(_) => address.to_string(),
        Err(_) => format!("{address} ({host})"),
    });
    let shown = shown.collect::<Vec<_>>().join(" or ");
    let theirs = addresses.first().map_or(port, |(address, _)| address.port());
    let ports = match theirs == port {
        true => format!("UDP port {port}"),
        false => format!("UDP port {theirs} there and {port} here"),
    };
    format!(
        "no packet from '{name}' at {shown} in {} s: check this address (peers.{name}), that \
         tautline runs there, and that every firewall accepts {ports}; tautline status there may \
         show another cause",
        PATIENCE.as_secs()
    )
}

impl Driver {
    /// Adds a notice about each peer that was never heard; called once per second.
    pub(super) fn check_silence(&mut self, now: Instant) {
        let endpoint = &self.topics.endpoint;
        let mut awaited: BTreeMap<String, Addresses> = BTreeMap::new();
        for link in &self.links {
            let (Some(FileEntry::To(config)), Some(path)) = (&link.entry, &link.path) else {
                continue;
            };
            let peer = endpoint.peer(endpoint.link(link.id).peer);
            if !peer.up && !peer.met {
                let address = (path.remote, config.host.clone());
                awaited.entry(peer.name.to_owned()).or_default().push(address);
            }
        }
        let (untrue, new) = self.silence.check(now, awaited, self.address.port());
        for (name, text) in untrue {
            self.topics.notices.remove(&Cause::Peer(name), &text);
        }
        for (name, text) in new {
            self.topics.notice(now, Cause::Peer(name), &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    fn awaited(all: &[(&str, &str)]) -> BTreeMap<String, Addresses> {
        let address = |address: &str| vec![(address.parse().unwrap(), "10.0.0.5".into())];
        all.iter().map(|(name, at)| ((*name).into(), address(at))).collect()
    }

    #[test]
    fn a_peer_that_is_never_heard_has_one_notice_until_its_session() {
        let mut silence = Silence::default();
        let robot = awaited(&[("robot1", "10.0.0.5:18470")]);
        let mut added = Vec::new();
        for second in 0..60 {
            let (untrue, new) = silence.check(at(second), robot.clone(), 18470);
            assert!(untrue.is_empty() && (new.is_empty() || second == 10), "{second}: {new:?}");
            added.extend(new);
        }
        let text = "no packet from 'robot1' at 10.0.0.5:18470 in 10 s: check this address \
                    (peers.robot1), that tautline runs there, and that every firewall accepts UDP \
                    port 18470; tautline status there may show another cause";
        assert_eq!(added, [("robot1".to_owned(), text.to_owned())]);
        let (untrue, new) = silence.check(at(60), BTreeMap::new(), 18470);
        assert_eq!((untrue, new), (added, vec![]));
        assert!(silence.peers.is_empty());
    }

    #[test]
    fn another_address_is_tried_for_the_whole_time_again() {
        let mut silence = Silence::default();
        let old = awaited(&[("a", "10.0.0.5:1")]);
        let new = awaited(&[("a", "10.0.0.6:1")]);
        silence.check(at(0), old.clone(), 2);
        assert_eq!(silence.check(at(10), old, 2).1.len(), 1);
        let (untrue, added) = silence.check(at(11), new.clone(), 2);
        assert_eq!((untrue.len(), added.len()), (1, 0));
        assert!(silence.check(at(20), new.clone(), 2).1.is_empty());
        let added = silence.check(at(21), new, 2).1;
        assert!(added[0].1.contains("UDP port 1 there and 2 here"), "{added:?}");
    }

    #[test]
    fn a_handshake_with_a_notice_of_its_own_is_no_silence() {
        let mut silence = Silence::default();
        let both = awaited(&[("a", "10.0.0.5:1"), ("b", "10.0.0.6:1")]);
        silence.check(at(0), both.clone(), 1);
        let from = Place::Udp("10.0.0.5:9".parse().unwrap());
        silence.on_event(&Event::Notice(Notice::Version { from, theirs: 1, ours: 2 }));
        let added = silence.check(at(10), both.clone(), 1).1;
        assert_eq!(added.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["b"]);
        silence.heard_from("10.0.0.6".parse().unwrap());
        assert_eq!(silence.check(at(11), both.clone(), 1), (added, vec![]));
        assert_eq!(silence.check(at(30), both, 1), (vec![], vec![]));
    }
}
