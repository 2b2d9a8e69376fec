// SPDX-License-Identifier: Apache-2.0
//! Static keys: a pair of X25519 keys (RFC 7748) for each node.

use crate::wire::relay::ShortName;
use curve25519_dalek::MontgomeryPoint;
use ring::digest::{Context, SHA256};
use std::fmt;

/// Bytes of a key.
pub const KEY: usize = 32;

/// The public key of a node. The key identifies the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; KEY]);

/// The secret key of a node. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; KEY]);

impl SecretKey {
    /// A key from 32 random bytes, clamped (RFC 7748, section 5).
    pub fn new(mut bytes: [u8; KEY]) -> Self {
        bytes[0] &= 248;
        bytes[31] = bytes[31] & 127 | 64;
        Self(bytes)
    }

    /// The key of a node under `security: none`. Anybody can compute it from the name.
    pub fn insecure(name: &str) -> Self {
        Self::new(hash(&[b"tautline insecure key", name.as_bytes()]))
    }

    /// The public key of this secret key.
    pub fn public(&self) -> PublicKey {
        PublicKey(MontgomeryPoint::mul_base_clamped(self.0).to_bytes())
    }

    /// The bytes, to be stored in a file.
    pub fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }

    /// A secret that only this node and the owner of `other` can compute. The shared secret never
    /// changes. It serves purposes that need no handshake.
    pub fn shared_with(&self, other: &PublicKey) -> [u8; KEY] {
        let point = MontgomeryPoint(other.0).mul_clamped(self.0);
        hash(&[b"tautline shared secret", point.as_bytes()])
    }
}

impl PublicKey {
    /// The short name by which relays know the node.
    pub fn short_name(&self) -> ShortName {
        let [a, b, c, ..] = hash(&[b"tautline short name", &self.0]);
        ShortName([a, b, c])
    }

    /// Whether a handshake with this key can succeed. A point of small order makes the shared
    /// secret known to everybody.
    pub fn is_usable(&self) -> bool {
        let probe = MontgomeryPoint(self.0).mul_clamped([9; KEY]);
        probe.to_bytes() != [0; KEY]
    }
}

pub(crate) fn hash(parts: &[&[u8]]) -> [u8; KEY] {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut out = [0; KEY];
    out.copy_from_slice(context.finish().as_ref());
    out
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {:?})", self.public())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// In base64 (RFC 4648, section 4), 44 characters.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(&self.0))
    }
}

/// The error for text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not base64 of 32 bytes.
    #[error("it is not the base64 of 32 bytes (44 characters, the last '=')")]
    Text,
    /// A point of small order.
    #[error("no secret key has this public key")]
    Unusable,
}

impl std::str::FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let key = Self(decode(text)?);
        if key.is_usable() { Ok(key) } else { Err(KeyError::Unusable) }
    }
}

impl std::str::FromStr for SecretKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self::new)
    }
}

/// Base64 of 32 bytes.
pub fn encode(bytes: &[u8; KEY]) -> String {
    data_encoding::BASE64.encode(bytes)
}

fn decode(text: &str) -> Result<[u8; KEY], KeyError> {
    let bytes = data_encoding::BASE64.decode(text.as_bytes()).map_err(|_| KeyError::Text)?;
    bytes.try_into().map_err(|_| KeyError::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_keys_match_rfc_7748() {
        let bytes = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap();
        // The test vector of section 6.1.
        let bob = bytes("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let bob = SecretKey::new(bob.try_into().unwrap());
        let public = bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        assert_eq!(bob.public().0.to_vec(), public);
    }

    #[test]
    fn two_nodes_share_a_secret_and_a_third_does_not() {
        let [a, b, c] = ["a", "b", "c"].map(SecretKey::insecure);
        assert_eq!(a.shared_with(&b.public()), b.shared_with(&a.public()));
        assert_ne!(a.shared_with(&b.public()), c.shared_with(&b.public()));
    }

    #[test]
    fn keys_survive_text_and_invalid_ones_are_refused() {
        let key = SecretKey::insecure("robot").public();
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(key.to_string().len(), 44);
        assert_eq!("short".parse::<PublicKey>(), Err(KeyError::Text));
        assert_eq!(encode(&[0; 32]).parse::<PublicKey>(), Err(KeyError::Unusable));
    }

    #[test]
    fn debug_output_hides_secrets() {
        let secret = SecretKey::insecure("robot");
        let text = format!("{secret:?}");
        assert!(!text.contains(&encode(secret.bytes())));
    }
}
