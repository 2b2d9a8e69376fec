// SPDX-License-Identifier: Apache-2.0
//! Keys, handshakes and packet protection. `snow` and `ring` provide the primitives; this module
//! composes them as WireGuard does (Donenfeld, NDSS 2017) where it can.
//!
//! [`keys`] has the static keys, [`noise`] the handshake (Noise_IK_25519_ChaChaPoly_SHA256),
//! [`seal`] the encryption of session packets, [`cookies`] the defence against floods of
//! initiations, and [`tag`] the tags of beacons.

pub mod cookies;
pub mod keys;
pub mod noise;
pub mod seal;
pub mod tag;
