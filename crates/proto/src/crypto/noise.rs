// SPDX-License-Identifier: Apache-2.0
//! The handshake: Noise IK (Perrin, The Noise Protocol Framework, revision 34). The initiator knows
//! the static key of the responder, and reveals its own key only to the responder.

use super::keys::{KEY, PublicKey, SecretKey};
use curve25519_dalek::MontgomeryPoint;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use std::sync::{Arc, Mutex};

/// The prologue: protocol and version.
const PROLOGUE: [u8; 9] = *b"tautline\0";
const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_SHA256";
/// Longest Noise message.
const MAX_MESSAGE: usize = 256;

/// The error for a handshake message that is forged, or meant for another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the handshake does not hold")]
pub struct NoiseError;

impl From<snow::Error> for NoiseError {
    fn from(_: snow::Error) -> Self {
        Self
    }
}

/// The two keys of a handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Key for packets of this node.
    pub seal: [u8; KEY],
    /// Key for packets to this node.
    pub open: [u8; KEY],
}

/// The initiator, while it waits for a response.
pub struct Initiator(Box<HandshakeState>);

/// The responder, after it has read an initiation.
pub struct ReceivedInitiation {
    state: Box<HandshakeState>,
    /// Static key of the initiator. The message proves that its author has the key, but the message
    /// may be a replay.
    pub initiator: PublicKey,
    /// The decrypted payload.
    pub payload: Vec<u8>,
}

impl Initiator {
    /// Makes the first message to the owner of `remote`. `drawn` is fresh randomness.
    pub fn initiate(
        secret: &SecretKey,
        remote: &PublicKey,
        drawn: [u8; KEY],
        payload: &[u8],
    ) -> Result<(Self, Vec<u8>), NoiseError> {
        let mut state = builder(drawn)?
            .prologue(&prologue())?
            .local_private_key(secret.bytes())?
            .remote_public_key(&remote.0)?
            .build_initiator()?;
        let message = write(&mut state, payload)?;
        Ok((Self(Box::new(state)), message))
    }

    /// Reads the response and returns its payload. An invalid response changes nothing.
    pub fn finish(&mut self, message: &[u8]) -> Result<(Split, Vec<u8>), NoiseError> {
        let payload = read(&mut self.0, message)?;
        let (seal, open) = self.0.dangerously_get_raw_split();
        Ok((Split { seal, open }, payload))
    }
}

impl ReceivedInitiation {
    /// Reads the first message.
    pub fn read(secret: &SecretKey, drawn: [u8; KEY], message: &[u8]) -> Result<Self, NoiseError> {
        let mut state = builder(drawn)?
            .prologue(&prologue())?
            .local_private_key(secret.bytes())?
            .build_responder()?;
        let payload = read(&mut state, message)?;
        let initiator = state.get_remote_static().and_then(|key| key.try_into().ok());
        let initiator = PublicKey(initiator.ok_or(NoiseError)?);
        Ok(Self { state: Box::new(state), initiator, payload })
    }

    /// Makes the response, and the keys that follow from it.
    pub fn respond(mut self, payload: &[u8]) -> Result<(Split, Vec<u8>), NoiseError> {
        let message = write(&mut self.state, payload)?;
        let (open, seal) = self.state.dangerously_get_raw_split();
        Ok((Split { seal, open }, message))
    }
}

fn prologue() -> [u8; 9] {
    let mut prologue = PROLOGUE;
    prologue[8] = crate::wire::VERSION;
    prologue
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, NoiseError> {
    let mut message = vec![0; MAX_MESSAGE];
    let len = state.write_message(payload, &mut message)?;
    message.truncate(len);
    Ok(message)
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, NoiseError> {
    let mut payload = vec![0; message.len()];
    let len = state.read_message(message, &mut payload)?;
    payload.truncate(len);
    Ok(payload)
}

fn builder<'a>(drawn: [u8; KEY]) -> Result<Builder<'a>, NoiseError> {
    let params: NoiseParams = PATTERN.parse()?;
    let resolver = Primitives(Arc::new(Mutex::new(Some(drawn))));
    Ok(Builder::with_resolver(params, Box::new(resolver)))
}

/// Randomness from the caller, and hash and cipher of `ring`. X25519 is not from `ring`, which
/// lacks static keys.
struct Primitives(Arc<Mutex<Option<[u8; KEY]>>>);

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(EphemeralRandomness(self.0.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(Curve::default()) as _)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        RingResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// X25519.
#[derive(Default)]
struct Curve {
    secret: [u8; KEY],
    public: [u8; KEY],
}

impl Dh for Curve {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY
    }

    fn priv_len(&self) -> usize {
        KEY
    }

    fn set(&mut self, secret: &[u8]) {
        if let Some(secret) = secret.first_chunk::<KEY>() {
            self.secret = *secret;
            self.public = SecretKey::new(*secret).public().0;
        }
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), snow::Error> {
        let mut secret = [0; KEY];
        random.try_fill_bytes(&mut secret)?;
        self.set(&secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &self.secret
    }

    fn dh(&self, remote: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let remote = remote.first_chunk::<KEY>().ok_or(snow::Error::Dh)?;
        let out = out.first_chunk_mut::<KEY>().ok_or(snow::Error::Dh)?;
        *out = MontgomeryPoint(*remote).mul_clamped(self.secret).to_bytes();
        // A point of small order would make the shared secret known (RFC 7748, section 6.1).
        if *out == [0; KEY] { Err(snow::Error::Dh) } else { Ok(()) }
    }
}

/// Randomness for one ephemeral key; a second request is an error.
struct EphemeralRandomness(Arc<Mutex<Option<[u8; KEY]>>>);

impl Random for EphemeralRandomness {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        let drawn = self.0.lock().ok().and_then(|mut drawn| drawn.take());
        match drawn {
            Some(bytes) if dest.len() == KEY => {
                dest.copy_from_slice(&bytes);
                Ok(())
            }
            _ => Err(snow::Error::Rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> (SecretKey, SecretKey) {
        (SecretKey::insecure("robot"), SecretKey::insecure("base"))
    }

    #[test]
    fn both_nodes_get_the_same_keys_and_each_others_identity() {
        let (robot, base) = keys();
        let (mut initiator, first) =
            Initiator::initiate(&robot, &base.public(), [1; 32], b"payload").unwrap();
        let received = ReceivedInitiation::read(&base, [2; 32], &first).unwrap();
        assert_eq!((received.initiator, &received.payload[..]), (robot.public(), &b"payload"[..]));
        let (theirs, second) = received.respond(b"back").unwrap();
        let (ours, payload) = initiator.finish(&second).unwrap();
        assert_eq!((ours.seal, ours.open), (theirs.open, theirs.seal));
        assert_eq!(payload, b"back");
        assert_ne!(ours.seal, ours.open);
    }

    #[test]
    fn an_initiation_to_another_node_cannot_be_read() {
        let (robot, base) = keys();
        let other = SecretKey::insecure("other");
        let (_, first) = Initiator::initiate(&robot, &base.public(), [1; 32], b"").unwrap();
        assert!(ReceivedInitiation::read(&other, [2; 32], &first).is_err());
    }

    #[test]
    fn a_forged_response_leaves_the_initiation_pending() {
        let (robot, base) = keys();
        let (mut initiator, first) =
            Initiator::initiate(&robot, &base.public(), [1; 32], b"").unwrap();
        let (_, second) =
            ReceivedInitiation::read(&base, [2; 32], &first).unwrap().respond(b"").unwrap();
        for at in 0..second.len() {
            let mut forged = second.clone();
            forged[at] ^= 1;
            assert!(initiator.finish(&forged).is_err(), "byte {at}");
        }
        assert!(initiator.finish(&second).is_ok());
    }
}
