// SPDX-License-Identifier: Apache-2.0
//! Somebody who hears every datagram and sends some of them again: later, from
//! elsewhere, to others, or with a bit changed.

use super::net::{Body, Packet};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use tautline_medium::StationId;

/// Datagrams to each host that are remembered; a new one takes the place of any, so that
/// some of earlier lives stay.
const MAX_HEARD: usize = 128;
/// Where no host is.
const ELSEWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 7), 18470);
/// Bytes that end a call and count only under flood.
const SECOND_CODE: usize = 16;

/// A datagram of the attacker's.
#[derive(Debug)]
pub struct Attack {
    /// To whom it is sent.
    pub host: StationId,
    /// What was heard once, from where the attacker says.
    pub packet: Packet,
    /// A bit of it was changed.
    pub changed: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Attacker {
    random: Rng,
    /// What was sent to each host; the last is the newest.
    heard: BTreeMap<StationId, Vec<Rc<Packet>>>,
    /// Datagrams sent again as they were.
    pub replayed: u64,
    /// Datagrams sent again with a bit changed.
    pub changed: u64,
}

impl Attacker {
    /// One who has heard nothing yet.
    pub fn new(seed: u64) -> Self {
        let heard = BTreeMap::new();
        Self { random: Rng::with_seed(seed), heard, replayed: 0, changed: 0 }
    }

    /// A datagram to `host` was sent, whether it arrives or not.
    pub fn hear(&mut self, host: StationId, packet: &Rc<Packet>) {
        if !matches!(packet.body, Body::Tautline(_)) {
            return;
        }
        let heard = self.heard.entry(host).or_default();
        if heard.len() == MAX_HEARD {
            heard.swap_remove(self.random.usize(..MAX_HEARD));
        }
        heard.push(packet.clone());
    }

    /// What is sent next, if anything was heard.
    pub fn draw(&mut self) -> Option<Attack> {
        let hosts: Vec<_> = self.heard.keys().copied().collect();
        let host = *self.random.choice(&hosts)?;
        let heard = self.heard.get(&host)?;
        // The newest may come before itself.
        let newest = self.random.bool();
        let packet = if newest { heard.last()? } else { self.random.choice(heard)? };
        let mut packet = Packet::clone(packet);
        let host = match self.random.u32(..10) {
            0 => *self.random.choice(&hosts)?,
            1 => packet.sender,
            _ => host,
        };
        packet.from = match self.random.u32(..4) {
            0 => ELSEWHERE,
            1 => self.random.choice(heard)?.from,
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

/// Of a datagram, the bytes of which every bit counts.
fn checked_bytes(datagram: &[u8]) -> usize {
    let is_call = datagram.starts_with(&super::net::CALL);
    datagram.len() - if is_call { SECOND_CODE } else { 0 }
}
