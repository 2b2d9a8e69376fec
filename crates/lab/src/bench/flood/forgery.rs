// SPDX-License-Identifier: Apache-2.0
//! Datagrams that an attacker sends to a node's port.

use crate::rig::namespace;
use crate::rig::output::name_in_reports;
use crate::setup::world::Computer;
use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with};
use serde::Serialize;
use std::os::fd::OwnedFd;
use tautline_proto::PublicKey;
use tautline_proto::crypto::cookies::MacKey;
use tautline_proto::wire::packet::{MAC, Packet, start_initiation};

/// Number of different packets of one kind, which are sent in a loop.
const DIFFERENT: usize = 4096;
/// Bytes of an initiation's Noise message, with a name of four bytes.
const NOISE_BYTES: usize = 109;
const UDP_HEADER: usize = 8;
const MAX_DATAGRAM: usize = 2048;

/// One kind of forged handshake initiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Forgery {
    /// Alternately initiations of random bytes with wrong MACs, and only random bytes.
    Garbage,
    /// The first MAC is right, since the attacker knows the public key; the rest is random.
    Calls,
    /// A recorded initiation of a peer, unchanged.
    Replays,
}

impl Forgery {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Garbage, Self::Calls, Self::Replays];

    /// Returns the name in tables.
    pub fn name(self) -> String {
        name_in_reports(self)
    }

    /// Returns datagrams for the owner of `key`, to which a peer sent the initiation `recorded`.
    pub fn datagrams(self, key: &PublicKey, recorded: &[u8]) -> Vec<Vec<u8>> {
        if self == Self::Replays {
            return vec![recorded.to_vec()];
        }
        let proof = MacKey::for_receiver(key);
        let mut random = fastrand::Rng::with_seed(1);
        let mut noise = |len| -> Vec<u8> { (0..len).map(|_| random.u8(..)).collect() };
        let mut datagram = |number: u32| {
            let mut call = start_initiation(number, &noise(NOISE_BYTES));
            match self {
                Self::Calls => {
                    call.extend_from_slice(&proof.mac(&call));
                    call.extend_from_slice(&[0; MAC]);
                }
                _ if number.is_multiple_of(2) => call = noise(call.len() + 2 * MAC),
                _ => call.extend_from_slice(&noise(2 * MAC)),
            }
            call
        };
        (1..=DIFFERENT as u32).map(&mut datagram).collect()
    }
}

/// A socket that receives all datagrams that reach a computer.
pub struct Tap(OwnedFd);

impl Tap {
    /// Opens a tap that receives from now on.
    pub fn open(computer: &Computer) -> Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let open = || {
            let socket =
                socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::UDP));
            socket.context("cannot listen to datagrams (a raw socket needs CAP_NET_RAW)")
        };
        namespace::enter(&computer.name, open).map(Self)
    }

    /// Returns the first initiation among the datagrams not examined yet, if there is one.
    pub fn initiation(&self) -> Result<Option<Vec<u8>>> {
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            let len = match recv(&self.0, &mut buffer[..], RecvFlags::TRUNC) {
                Ok((len, _)) => len,
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error).context("cannot hear datagrams"),
            };
            let packet = &buffer[..len];
            let header = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
            let datagram = packet.get(header + UDP_HEADER..).unwrap_or_default();
            if let Ok(Packet::Initiation(_)) = Packet::parse(datagram) {
                return Ok(Some(datagram.to_vec()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_proto::Instant;
    use tautline_proto::SecretKey;
    use tautline_proto::crypto::cookies::{Admission, CookieChecker};

    fn admissions(forgery: Forgery) -> Vec<Option<Admission>> {
        let secret = SecretKey::insecure("base");
        let mut gate = CookieChecker::new(&secret);
        let judge = |datagram: &Vec<u8>| match Packet::parse(datagram) {
            Ok(Packet::Initiation(call)) => Some(gate.check(
                Instant(0),
                (&[192, 0, 2, 1, 1, 0], &[192, 0, 2, 1]),
                &call,
                || [1; 32],
            )),
            _ => None,
        };
        forgery.datagrams(&secret.public(), b"recorded").iter().map(judge).collect()
    }

    #[test]
    fn invalid_packets_are_refused_by_their_code() {
        let garbage = admissions(Forgery::Garbage);
        assert!(garbage.contains(&Some(Admission::BadMac)));
        assert!(garbage.iter().flatten().all(|it| *it == Admission::BadMac));
        let calls = admissions(Forgery::Calls);
        assert!(calls.iter().all(|it| it.as_ref().is_some_and(|it| *it != Admission::BadMac)));
    }
}
