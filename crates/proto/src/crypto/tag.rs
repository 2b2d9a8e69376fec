// SPDX-License-Identifier: Apache-2.0
//! Tags of beacons. Peers recognise each other by their tags, and nobody else learns their
//! identity.

use super::keys::{PublicKey, SecretKey};
use crate::wire::beacon::TAG;
use ring::hmac;

/// The key of the beacon tags of two nodes. Its derivation costs a key agreement.
#[derive(Debug, Clone)]
pub struct SharedTagKey(hmac::Key);

impl SharedTagKey {
    /// The key of the owner of `own` and `peer`; the peer derives the same.
    pub fn new(own: &SecretKey, peer: &PublicKey) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &own.shared_with(peer)))
    }

    /// The tag in a beacon of `sender`, one of the two nodes. It covers the sender, so that a node
    /// does not accept its own reflected beacon as its peer's.
    pub fn tag(&self, salt: u64, sender: &PublicKey) -> [u8; TAG] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(b"tautline beacon");
        context.update(&salt.to_le_bytes());
        context.update(&sender.0);
        context.sign().as_ref().first_chunk().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_compute_the_same_unique_tag() {
        let [robot, base, other] = ["robot", "base", "other"].map(SecretKey::insecure);
        let (ours, theirs) = (robot.public(), base.public());
        let shared = SharedTagKey::new(&robot, &theirs);
        let tag = shared.tag(7, &ours);
        assert_eq!(SharedTagKey::new(&base, &ours).tag(7, &ours), tag);
        assert_ne!(shared.tag(8, &ours), tag, "another salt");
        assert_ne!(shared.tag(7, &theirs), tag, "the other sender");
        assert_ne!(SharedTagKey::new(&other, &ours).tag(7, &ours), tag, "another pair");
    }
}
