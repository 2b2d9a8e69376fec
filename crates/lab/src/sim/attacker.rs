// SPDX-License-Identifier: Apache-2.0
//! An attacker that overhears every datagram and repeats some of them: later, from another address, to
//! another host, or with one bit changed.

use super::net::{Body, Packet};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use tautline_medium::StationId;

/// Maximum number of remembered datagrams to each host. A new one replaces a random one, so that
/// some from before a restart remain.
const MAX_RECORDED: usize = 128;
/// An address of no host.
const ELSEWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 7), 18470);
/// Bytes of the second MAC at the end of a handshake initiation, which is checked only under flood.
const SECOND_CODE: usize = 16;

/// A datagram of the attacker.
#[derive(Debug)]
pub struct Attack {
    /// Host to which it is sent.
    pub host: StationId,
    /// A datagram heard before, with the source address that the attacker chose.
    pub packet: Packet,
    /// Whether one bit was changed.
    pub changed: bool,
}

/// The attacker, see the module.
#[derive(Debug)]
pub struct Attacker {
    random: Rng,
    /// Datagrams sent to each host; the last is the newest.
    recorded: BTreeMap<StationId, Vec<Rc<Packet>>>,
    /// Datagrams repeated unchanged.
    pub replayed: u64,
    /// Datagrams repeated with one bit changed.
    pub changed: u64,
}

impl Attacker {
    /// Creates an attacker that has heard nothing yet.
    pub fn new(seed: u64) -> Self {
        let recorded = BTreeMap::new();
        Self { random: Rng::with_seed(seed), recorded, replayed: 0, changed: 0 }
    }

    /// Records a datagram sent to `host`, whether it arrives or not.
    pub fn record(&mut self, host: StationId, packet: &Rc<Packet>) {
        if !matches!(packet.body, Body::Tautline(_)) {
            return;
        }
        let recorded = self.recorded.entry(host).or_default();
        if recorded.len() == MAX_RECORDED {
            recorded.swap_remove(self.random.usize(..MAX_RECORDED));
        }
        recorded.push(packet.clone());
    }

    /// Draws the next datagram to send, if anything was recorded.
    pub fn draw(&mut self) -> Option<Attack> {
        let hosts: Vec<_> = self.recorded.keys().copied().collect();
        let host = *self.random.choice(&hosts)?;
        let recorded = self.recorded.get(&host)?;
        // A copy of the newest datagram may arrive before the original.
        let newest = self.random.bool();
        let packet = if newest { recorded.last()? } else { self.random.choice(recorded)? };
        let mut packet = Packet::clone(packet);
        let host = match self.random.u32(..10) {
            0 => *self.random.choice(&hosts)?,
            1 => packet.sender,
            _ => host,
        };
        packet.from = match self.random.u32(..4) {
            0 => ELSEWHERE,
            1 => self.random.choice(recorded)?.from,
            _ => packet.from,
        };
        let changed = self.random.bool();
        if let (true, Body::Tautline(datagram)) = (changed, &mut packet.body) {
            let bit = self.random.usize(..checked_bytes(datagram) * 8);
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        *(if changed { &mut self.changed } else { &mut self.replayed }) += 1;
        Some(Attack { host, packet, changed })
    }
}

/// Returns the number of leading bytes of a datagram that are always authenticated.
fn checked_bytes(datagram: &[u8]) -> usize {
    let is_initiation = datagram.starts_with(&super::net::INITIATION);
    datagram.len() - if is_initiation { SECOND_CODE } else { 0 }
}
