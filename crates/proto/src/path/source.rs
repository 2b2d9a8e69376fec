// SPDX-License-Identifier: Apache-2.0
//! The local address from which a link sends: the one at which the peer's packets arrive. Firewalls
//! and address translators on the path pass answers only from that address.

use crate::address::Place;
use crate::time::{Duration, Instant};
use std::net::IpAddr;

/// Time without a packet at the current local address after which a packet at another one changes it.
/// A peer that uses two of our addresses in turn would change it with each packet.
const HOLD_TIME: Duration = Duration::from_secs(1);

/// The local address of a link.
#[derive(Debug, Default)]
pub(crate) struct LocalAddress {
    /// The peer's address, and our address at which packets from there arrive.
    found: Option<(Place, IpAddr)>,
    last_heard: Instant,
}

impl LocalAddress {
    /// The address from which packets to `remote` leave; `None` if no packet has shown it.
    pub(crate) fn address(&self, remote: Option<Place>) -> Option<IpAddr> {
        self.found.filter(|(theirs, _)| Some(*theirs) == remote).map(|(_, ours)| ours)
    }

    /// Handles a packet that arrived from `remote` at `local`. Call this only if the number of the packet is
    /// higher than all earlier ones: a replayed or late packet shows nothing.
    pub(crate) fn on_packet(&mut self, now: Instant, remote: Place, local: Option<IpAddr>) {
        let Some(local) = local else { return };
        let known = self.address(Some(remote));
        let is_held = known.is_some() && now.since(self.last_heard) < HOLD_TIME;
        if !is_held || known == Some(local) {
            (self.found, self.last_heard) = (Some((remote, local)), now);
        }
    }

    /// Forgets the local address, because our packets leave by another interface or nothing arrives
    /// any more.
    pub(crate) fn forget(&mut self) {
        self.found = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::default() + Duration::from_millis(millis)
    }

    fn ours(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    fn theirs(last: u8) -> Place {
        Place::Udp(([10, 0, 1, last], 18470).into())
    }

    #[test]
    fn the_address_at_which_packets_arrive_is_used() {
        let mut source = LocalAddress::default();
        source.on_packet(at(0), theirs(1), None);
        assert_eq!(source.address(Some(theirs(1))), None);
        source.on_packet(at(1), theirs(1), ours(2));
        assert_eq!(source.address(Some(theirs(1))), ours(2));
        source.on_packet(at(1001), theirs(1), ours(3));
        assert_eq!(source.address(Some(theirs(1))), ours(3));
        assert_eq!([source.address(Some(theirs(2))), source.address(None)], [None; 2]);
        source.on_packet(at(1002), theirs(2), ours(2));
        assert_eq!(source.address(Some(theirs(2))), ours(2), "the peer has moved");
    }

    #[test]
    fn packets_at_two_addresses_in_turn_do_not_change_it() {
        let mut source = LocalAddress::default();
        for n in 0..100 {
            source.on_packet(at(n * 500), theirs(1), ours(2));
            source.on_packet(at(n * 500 + 250), theirs(1), ours(3));
            assert_eq!(source.address(Some(theirs(1))), ours(2));
        }
    }
}
