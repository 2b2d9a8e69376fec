// SPDX-License-Identifier: Apache-2.0
//! Peers from which no packet has arrived since the start. A notice names the address and the
//! likely causes.

use super::common::Common;
use super::entry::FileEntry;
use super::link::Link;
use crate::quota::Cause;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use tautline_proto::{Duration, Endpoint, Event, Instant, Notice, PeerId, Place};

/// Time without a packet from a peer after which a notice is added.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The addresses and relays by which this node tries to reach a peer.
#[derive(Debug, Clone, Default, PartialEq)]
struct Paths {
    /// The peer's addresses, each with the host in the file from which it was resolved.
    addresses: Vec<(SocketAddr, String)>,
    /// The relays that lead to the peer and from which packets arrive.
    relays: Vec<String>,
}

/// The peers, by name, that this node tries to reach and that have had no session since the start.
#[derive(Debug, Default)]
pub(super) struct Silence {
    peers: BTreeMap<String, SilentPeer>,
}

#[derive(Debug)]
struct SilentPeer {
    paths: Paths,
    since: Instant,
    /// Whether a packet came from one of the addresses and has caused another notice.
    heard: bool,
    /// The notice that was added.
    notice: Option<String>,
}

/// Whether packets arrive from a peer without a relay.
fn has_direct_link(endpoint: &Endpoint, peer: PeerId) -> bool {
    let mut links = endpoint.links().filter_map(|id| endpoint.link(id));
    links.any(|it| it.peer == peer && it.up && matches!(it.remote, Some(Place::Udp(_))))
}

/// The name of a peer, and a notice about the peer.
type PeerNotice = (String, String);

impl Silence {
    /// Adds a notice about each peer that was never heard; called once per second.
    pub(super) fn follow(&mut self, now: Instant, common: &mut Common, links: &[Link]) {
        let awaited = awaited_peers(&common.endpoint, links);
        let (untrue, new) = self.check(now, awaited, common.listen.address.port());
        for (name, text) in untrue {
            common.shared.notices.remove(&Cause::Peer(name), &text);
        }
        for (name, text) in new {
            common.shared.notice(now, Cause::Peer(name), &text);
        }
    }

    /// Notes a failed handshake from an address of a peer. The handshake's own notice states the cause.
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
            self.note_failed_handshake(from.ip());
        }
    }

    /// Notes that the peers with this address have another notice, about a failed handshake.
    fn note_failed_handshake(&mut self, from: IpAddr) {
        for silent in self.peers.values_mut() {
            let addresses = &silent.paths.addresses;
            silent.heard |= addresses.iter().any(|(address, _)| address.ip() == from);
        }
    }

    /// Returns the notices that are no longer true, and the new ones. `awaited` has all peers that
    /// this node tries to reach and that have no session; `port` is the port of this node.
    fn check(
        &mut self,
        now: Instant,
        mut awaited: BTreeMap<String, Paths>,
        port: u16,
    ) -> (Vec<PeerNotice>, Vec<PeerNotice>) {
        let (mut untrue, mut new) = (Vec::new(), Vec::new());
        self.peers.retain(|name, silent| {
            // A change of the relays does not count as another path.
            let addresses = awaited.get(name).map(|it| &it.addresses);
            let stays = addresses == Some(&silent.paths.addresses);
            if !stays || silent.heard {
                untrue.extend(silent.notice.take().map(|text| (name.clone(), text)));
            }
            stays
        });
        for (name, silent) in &mut self.peers {
            awaited.remove(name);
            let is_due = now.since(silent.since) >= SILENCE_TIMEOUT;
            if is_due && !silent.heard && silent.notice.is_none() {
                let text = notice_text(name, &silent.paths, port);
                silent.notice = Some(text.clone());
                new.push((name.clone(), text));
            }
        }
        for (name, paths) in awaited {
            let silent = SilentPeer { paths, since: now, heard: false, notice: None };
            self.peers.insert(name, silent);
        }
        (untrue, new)
    }
}

fn notice_text(name: &str, Paths { addresses, relays }: &Paths, port: u16) -> String {
    let seconds = SILENCE_TIMEOUT.as_secs();
    if addresses.is_empty() {
        return format!(
            "no packet from '{name}' through {} in {seconds} s, although packets arrive from there: check that \
             tautline runs at '{name}' and names the relay under via, and that the file of the relay has \
             both ends as peers with relay: true; tautline status there may show another cause",
            relays.iter().map(|it| format!("'{it}'")).collect::<Vec<_>>().join(" or "),
        );
    }
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
        "no packet from '{name}' at {shown} in {seconds} s: check this address (peers.{name}), that \
         tautline runs there, and that every firewall accepts {ports}; no packet \
         reaches an address behind a router with NAT, unless the router forwards the port: let \
         '{name}' name an address of this node instead, or use a relay (via); tautline status there \
         may show another cause"
    )
}

/// Returns the peers that this node tries to reach and that have no session, with the paths to them.
fn awaited_peers(endpoint: &Endpoint, links: &[Link]) -> BTreeMap<String, Paths> {
    let mut awaited: BTreeMap<String, Paths> = BTreeMap::new();
    for link in links {
        let Some(view) = endpoint.link(link.id) else { continue };
        let peer = endpoint.peer(view.peer);
        // An address from which nothing was ever heard is also reported while a relay leads to the peer.
        let is_silent =
            || view.stats.received_packets == 0 && !has_direct_link(endpoint, view.peer);
        let is_reached = if peer.up { !is_silent() } else { peer.met };
        if is_reached {
            continue;
        }
        let name = peer.name.to_owned();
        match (&link.entry, &link.path) {
            (Some(FileEntry::WithAddress(config)), Some(path)) => {
                let address = (path.remote, config.host.clone());
                awaited.entry(name).or_default().addresses.push(address);
            }
            (Some(FileEntry::ThroughRelay(relay)), _) if endpoint.peer(*relay).up && !peer.met => {
                let relay = endpoint.peer(*relay).name.to_owned();
                awaited.entry(name).or_default().relays.push(relay);
            }
            _ => {}
        }
    }
    awaited
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    fn awaited_peers(all: &[(&str, &str)]) -> BTreeMap<String, Paths> {
        let paths = |address: &str| Paths {
            addresses: vec![(address.parse().unwrap(), "10.0.0.5".into())],
            relays: vec![],
        };
        all.iter().map(|(name, at)| ((*name).into(), paths(at))).collect()
    }

    #[test]
    fn a_silent_peer_has_one_notice_until_its_session() {
        let mut silence = Silence::default();
        let robot = awaited_peers(&[("robot1", "10.0.0.5:18470")]);
        let mut added = Vec::new();
        for second in 0..60 {
            let (untrue, new) = silence.check(at(second), robot.clone(), 18470);
            assert!(untrue.is_empty() && (new.is_empty() || second == 10), "{second}: {new:?}");
            added.extend(new);
        }
        let text = "no packet from 'robot1' at 10.0.0.5:18470 in 10 s: check this address \
                    (peers.robot1), that tautline runs there, and that every firewall accepts UDP \
                    port 18470; no packet reaches an address behind a router with NAT, unless the \
                    router forwards the port: let 'robot1' name an address of this node instead, or \
                    use a relay (via); tautline status there may show another cause";
        assert_eq!(added, [("robot1".to_owned(), text.to_owned())]);
        let (untrue, new) = silence.check(at(60), BTreeMap::new(), 18470);
        assert_eq!((untrue, new), (added, vec![]));
        assert!(silence.peers.is_empty());
    }

    #[test]
    fn a_peer_that_is_silent_through_relays_has_a_separate_notice() {
        let mut silence = Silence::default();
        let paths = Paths { addresses: vec![], relays: vec!["base".into(), "truck".into()] };
        let robot = BTreeMap::from([("robot1".to_owned(), paths)]);
        silence.check(at(0), robot.clone(), 18470);
        let added = silence.check(at(10), robot, 18470).1;
        let start = "no packet from 'robot1' through 'base' or 'truck' in 10 s";
        assert!(added[0].1.starts_with(start), "{added:?}");
    }

    #[test]
    fn another_address_restarts_the_time_limit() {
        let mut silence = Silence::default();
        let old = awaited_peers(&[("a", "10.0.0.5:1")]);
        let new = awaited_peers(&[("a", "10.0.0.6:1")]);
        silence.check(at(0), old.clone(), 2);
        assert_eq!(silence.check(at(10), old, 2).1.len(), 1);
        let (untrue, added) = silence.check(at(11), new.clone(), 2);
        assert_eq!((untrue.len(), added.len()), (1, 0));
        assert!(silence.check(at(20), new.clone(), 2).1.is_empty());
        let added = silence.check(at(21), new, 2).1;
        assert!(added[0].1.contains("UDP port 1 there and 2 here"), "{added:?}");
    }

    #[test]
    fn a_failed_handshake_with_a_notice_is_not_reported_as_silence() {
        let mut silence = Silence::default();
        let both = awaited_peers(&[("a", "10.0.0.5:1"), ("b", "10.0.0.6:1")]);
        silence.check(at(0), both.clone(), 1);
        let from = Place::Udp("10.0.0.5:9".parse().unwrap());
        silence.on_event(&Event::Notice(Notice::Version { from, theirs: 1, ours: 2 }));
        let added = silence.check(at(10), both.clone(), 1).1;
        assert_eq!(added.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["b"]);
        silence.note_failed_handshake("10.0.0.6".parse().unwrap());
        assert_eq!(silence.check(at(11), both.clone(), 1), (added, vec![]));
        assert_eq!(silence.check(at(30), both, 1), (vec![], vec![]));
    }
}
