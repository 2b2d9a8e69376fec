// SPDX-License-Identifier: Apache-2.0
//! Encryption of session packets: ChaCha20-Poly1305 (RFC 8439) with the header as associated data.
//! The nonce is the link number and the packet number. This pair never repeats during the life of
//! the keys.

use super::keys::KEY;
use super::noise::Split;
use crate::wire::packet::{SESSION_HEADER, SessionHeader, TAG};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::sync::Arc;

/// The keys of both directions.
#[derive(Debug)]
pub struct Sealer {
    seal: LessSafeKey,
    open: LessSafeKey,
}

impl Sealer {
    /// The cipher of a handshake's keys.
    pub fn new(split: &Split) -> Option<Self> {
        Some(Self { seal: key(&split.seal)?, open: key(&split.open)? })
    }

    /// Encrypts the part of `datagram` after the header, and appends the tag. `None` if the header
    /// is incomplete or the part exceeds 256 GB; the datagram is then unchanged.
    #[must_use]
    pub fn seal(&self, link: u8, number: u64, datagram: &mut Vec<u8>) -> Option<()> {
        let (header, body) = datagram.split_at_mut_checked(SESSION_HEADER)?;
        let (nonce, header) = (nonce(link, number), Aad::from(&*header));
        let tag = self.seal.seal_in_place_separate_tag(nonce, header, body).ok()?;
        datagram.extend_from_slice(tag.as_ref());
        Some(())
    }

    /// Decrypts the part of `datagram` after the header in place; `None` if authentication fails.
    pub fn open<'a>(&self, link: u8, number: u64, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let (header, body) = datagram.split_at_mut_checked(SESSION_HEADER)?;
        let nonce = nonce(link, number);
        self.open.open_in_place(nonce, Aad::from(&*header), body).ok().map(|plain| &*plain)
    }
}

/// A session packet under construction. The builder has the keys, and gives out only the sealed
/// bytes.
pub(crate) struct PacketBuilder {
    sealer: Arc<Sealer>,
    link: u8,
    number: u64,
    datagram: Vec<u8>,
}

impl PacketBuilder {
    /// Starts the packet with this number on a link, in an empty buffer.
    pub(crate) fn new(
        sealer: Arc<Sealer>,
        header: &SessionHeader,
        number: u64,
        mut datagram: Vec<u8>,
    ) -> Self {
        header.emit_into(&mut datagram);
        Self { sealer, link: header.link, number, datagram }
    }

    /// Header and frames so far; frames are appended here.
    pub(crate) fn plaintext(&mut self) -> &mut Vec<u8> {
        &mut self.datagram
    }

    /// Bytes of the packet so far, tag included.
    pub(crate) fn sealed_len(&self) -> usize {
        self.datagram.len() + TAG
    }

    /// The sealed packet.
    pub(crate) fn seal(mut self) -> Option<Vec<u8>> {
        self.sealer.seal(self.link, self.number, &mut self.datagram)?;
        Some(self.datagram)
    }
}

fn key(bytes: &[u8; KEY]) -> Option<LessSafeKey> {
    UnboundKey::new(&CHACHA20_POLY1305, bytes).ok().map(LessSafeKey::new)
}

fn nonce(link: u8, number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[0] = link;
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Encrypts a short text under a key that is used only for this text.
pub(crate) fn seal_once(
    key_bytes: &[u8; KEY],
    nonce: [u8; NONCE_LEN],
    text: &[u8],
) -> Option<Vec<u8>> {
    let mut out = text.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    key(key_bytes)?.seal_in_place_append_tag(nonce, Aad::empty(), &mut out).ok()?;
    Some(out)
}

/// Decrypts the result of [`seal_once`].
pub(crate) fn open_once(
    key_bytes: &[u8; KEY],
    nonce: [u8; NONCE_LEN],
    sealed: &[u8],
) -> Option<Vec<u8>> {
    let mut out = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    let len = key(key_bytes)?.open_in_place(nonce, Aad::empty(), &mut out).ok()?.len();
    out.truncate(len);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::packet::TAG;

    fn pair() -> (Sealer, Sealer) {
        let (one, other) = ([1; KEY], [2; KEY]);
        let here = Sealer::new(&Split { seal: one, open: other });
        let there = Sealer::new(&Split { seal: other, open: one });
        (here.unwrap(), there.unwrap())
    }

    #[test]
    fn any_changed_bit_and_any_other_number_or_link_is_refused() {
        let (here, there) = pair();
        let mut sealed = b"123456789and what follows".to_vec();
        here.seal(3, 70_000, &mut sealed).unwrap();
        assert_eq!(sealed.len(), 25 + TAG);
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(there.open(3, 70_000, &mut forged), None, "bit {bit}");
        }
        for (link, number) in [(2, 70_000), (3, 70_001), (3, 70_000 + (1 << 32))] {
            assert_eq!(there.open(link, number, &mut sealed.clone()), None);
        }
        assert_eq!(here.open(3, 70_000, &mut sealed.clone()), None, "reflected");
        assert_eq!(there.open(3, 70_000, &mut sealed), Some(&b"and what follows"[..]));
    }

    #[test]
    fn short_datagrams_are_refused() {
        for len in 0..SESSION_HEADER + TAG {
            assert_eq!(pair().0.open(0, 1, &mut vec![0; len]), None);
        }
    }
}
