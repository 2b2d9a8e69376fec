// SPDX-License-Identifier: Apache-2.0
//! Who a node is, and what protects its packets. The primitives are those of
//! `snow` and `ring`; what is decided here is how they are put together, which
//! follows WireGuard (Donenfeld, NDSS 2017) where it can.
//!
//! `keys` has the identities, `noise` the handshake (Noise_IK_25519_ChaChaPoly_SHA256),
//! `seal` the encryption of session packets, `gate` what a call has to show before any key
//! agreement is done for it, `tag` how peers know each other's beacons.

pub mod cookies;
pub mod keys;
pub mod noise;
pub mod seal;
pub mod tag;
