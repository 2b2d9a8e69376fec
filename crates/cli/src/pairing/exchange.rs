// SPDX-License-Identifier: Apache-2.0
//! The key agreement: SPAKE2 under the code, then keys for both proofs and both directions.
//!
//! The keys depend on both HELLO frames as they were sent and received, so that no third party can replace
//! names, nonces or shares. The robot proves first: a stranger who connects to a base learns nothing
//! without a proof of its own, which counts as a try.

use super::code::Code;
use super::wire::{Frame, Hello, LENGTH_BYTES, NONCE_BYTES, PROOF_BYTES, WireError};
use rand_core::{CryptoRng, RngCore};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{digest, hkdf, hmac};
use spake2::{Ed25519Group, Identity, Password, Spake2};

const LABEL: &str = "tautline pairing 1";
/// Identities of SPAKE2. The names of the machines are in the HELLO frames.
const ROBOT: &[u8] = b"tautline pairing 1 robot";
const BASE: &[u8] = b"tautline pairing 1 base";
/// Bytes of a key.
const KEY: usize = 32;

/// The two ends of a pairing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end at which the code is entered. It connects, and proves first.
    Robot,
    /// The end at which the code is shown. It waits.
    Base,
}

/// Why the key agreement has failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// A frame that is no HELLO.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// A share that is no element of the group, or of the wrong side.
    #[error("a share that is not valid")]
    Share,
    /// A sealed frame that was changed, repeated or left out on its way.
    #[error("a frame that was changed on its way")]
    Forged,
}

/// A key agreement that waits for the HELLO of the other end.
pub struct Exchange {
    role: Role,
    spake: Spake2<Ed25519Group>,
    own_hello: Vec<u8>,
}

/// The keys of a pairing. The other end has them only if it knows the code and its proof fits.
pub struct Keys {
    own_proof: [u8; PROOF_BYTES],
    other_proof_key: hmac::Key,
    transcript: digest::Digest,
    /// Seals frames to the other end.
    pub sealer: Sealer,
    /// Opens frames of the other end.
    pub opener: Opener,
}

impl Exchange {
    /// Starts a key agreement; returns it and the own HELLO frame to send.
    pub fn start(
        role: Role,
        code: Code,
        name: &str,
        random: &mut (impl RngCore + CryptoRng),
    ) -> (Self, Vec<u8>) {
        let mut nonce = [0; NONCE_BYTES];
        random.fill_bytes(&mut nonce);
        let (password, ids) = (Password::new(code.password()), [ROBOT, BASE].map(Identity::new));
        let begin = match role {
            Role::Robot => Spake2::start_a_with_rng,
            Role::Base => Spake2::start_b_with_rng,
        };
        let (spake, message) = begin(&password, &ids[0], &ids[1], random);
        let mut share = [0; super::wire::SHARE_BYTES];
        share.copy_from_slice(&message);
        let own_hello = Frame::Hello(Hello { nonce, share, name: name.into() }).emit();
        (Self { role, spake, own_hello: own_hello.clone() }, own_hello)
    }

    /// Completes the agreement. `other` is the HELLO frame of the other end, without the length before it.
    pub fn finish(self, other: &[u8]) -> Result<(Keys, Hello), ExchangeError> {
        let Frame::Hello(hello) = Frame::parse(other)? else {
            return Err(WireError::Value("type").into());
        };
        let secret = self.spake.finish(&hello.share).map_err(|_| ExchangeError::Share)?;
        let own = &self.own_hello[LENGTH_BYTES..];
        let transcript = match self.role {
            Role::Robot => transcript(own, other),
            Role::Base => transcript(other, own),
        };
        let keys = Keys::derive(self.role, &secret, transcript);
        Ok((keys, hello))
    }
}

/// SHA-256 of the label and both HELLO frames, each with its length.
fn transcript(robot: &[u8], base: &[u8]) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [LABEL.as_bytes(), robot, base] {
        context.update(&(part.len() as u32).to_le_bytes());
        context.update(part);
    }
    context.finish()
}

impl Keys {
    fn derive(role: Role, secret: &[u8], transcript: digest::Digest) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, transcript.as_ref());
        let prk = salt.extract(secret);
        let proofs = ["robot proves", "base proves"]
            .map(|label| hmac::Key::new(hmac::HMAC_SHA256, &expand(&prk, label)));
        let [to_base, to_robot] =
            ["robot to base", "base to robot"].map(|label| key(&expand(&prk, label)));
        let ([own_key, other_proof_key], [sends, receives]) = match role {
            Role::Robot => (proofs, [to_base, to_robot]),
            Role::Base => {
                let [robot, base] = proofs;
                ([base, robot], [to_robot, to_base])
            }
        };
        let mut own_proof = [0; PROOF_BYTES];
        own_proof.copy_from_slice(hmac::sign(&own_key, transcript.as_ref()).as_ref());
        Self {
            own_proof,
            other_proof_key,
            transcript,
            sealer: Sealer { key: sends, count: 0 },
            opener: Opener { key: receives, count: 0 },
        }
    }

    /// The CONFIRM frame of this end.
    pub fn proof(&self) -> Vec<u8> {
        Frame::Confirm(self.own_proof).emit()
    }

    /// Whether the proof of the other end fits: the other end knows the code, and nobody is in between.
    pub fn is_proved_by(&self, proof: &[u8; PROOF_BYTES]) -> bool {
        hmac::verify(&self.other_proof_key, self.transcript.as_ref(), proof).is_ok()
    }
}

fn expand(prk: &hkdf::Prk, label: &str) -> [u8; KEY] {
    let mut out = [0; KEY];
    let info = [LABEL.as_bytes(), b" ", label.as_bytes()];
    // The length of the output is that of a hash, which HKDF can always give.
    let okm = prk.expand(&info, hkdf::HKDF_SHA256).expect("HKDF gives the length of a hash");
    okm.fill(&mut out).expect("the length is that of a hash");
    out
}

fn key(bytes: &[u8; KEY]) -> LessSafeKey {
    let unbound = UnboundKey::new(&CHACHA20_POLY1305, bytes);
    // The length is that of the algorithm.
    LessSafeKey::new(unbound.expect("32 bytes are a key of ChaCha20-Poly1305"))
}

fn nonce(count: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[4..].copy_from_slice(&count.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Seals the messages of one direction, numbered from 0.
pub struct Sealer {
    key: LessSafeKey,
    count: u64,
}

impl Sealer {
    /// The SEALED frame of a message.
    pub fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        let mut sealed = message.to_vec();
        let done = self.key.seal_in_place_append_tag(nonce(self.count), Aad::empty(), &mut sealed);
        self.count += 1;
        done.expect("a message is far shorter than the limit of the algorithm");
        Frame::Sealed(&sealed).emit()
    }
}

/// Opens the messages of one direction, in their order.
pub struct Opener {
    key: LessSafeKey,
    count: u64,
}

impl Opener {
    /// The message in a SEALED frame without its length.
    pub fn open(&mut self, frame: &[u8]) -> Result<Vec<u8>, ExchangeError> {
        let Frame::Sealed(sealed) = Frame::parse(frame)? else {
            return Err(ExchangeError::Forged);
        };
        let mut message = sealed.to_vec();
        let opened = self.key.open_in_place(nonce(self.count), Aad::empty(), &mut message);
        let length = opened.map_err(|_| ExchangeError::Forged)?.len();
        self.count += 1;
        message.truncate(length);
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Error, OsRng, impls};
    use serde_json::Value;

    /// Bytes that count up from a first one, for the vectors.
    struct Counting(u8);

    impl RngCore for Counting {
        fn next_u32(&mut self) -> u32 {
            impls::next_u32_via_fill(self)
        }

        fn next_u64(&mut self) -> u64 {
            impls::next_u64_via_fill(self)
        }

        fn fill_bytes(&mut self, out: &mut [u8]) {
            for byte in out {
                *byte = self.0;
                self.0 = self.0.wrapping_add(1);
            }
        }

        fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
            self.fill_bytes(out);
            Ok(())
        }
    }

    impl CryptoRng for Counting {}

    fn code(text: &str) -> Code {
        text.parse().unwrap()
    }

    fn agree(
        codes: [&str; 2],
        change: impl Fn(&mut Vec<u8>),
    ) -> Result<(Keys, Keys), ExchangeError> {
        let (robot, mut to_base) =
            Exchange::start(Role::Robot, code(codes[0]), "robot1", &mut OsRng);
        let (base, to_robot) = Exchange::start(Role::Base, code(codes[1]), "base", &mut OsRng);
        change(&mut to_base);
        let robot = robot.finish(&to_robot[LENGTH_BYTES..])?.0;
        Ok((robot, base.finish(&to_base[LENGTH_BYTES..])?.0))
    }

    fn prove_each_other((robot, base): &(Keys, Keys)) -> [bool; 2] {
        [base.is_proved_by(&robot.own_proof), robot.is_proved_by(&base.own_proof)]
    }

    #[test]
    fn both_ends_with_one_code_have_the_same_keys() {
        let mut keys = agree(["4821-7390"; 2], |_| ()).unwrap();
        assert_eq!(prove_each_other(&keys), [true, true]);
        for text in ["one", "", "three"] {
            let frame = keys.0.sealer.seal(text.as_bytes());
            assert_eq!(keys.1.opener.open(&frame[LENGTH_BYTES..]).unwrap(), text.as_bytes());
            let frame = keys.1.sealer.seal(text.as_bytes());
            assert_eq!(keys.0.opener.open(&frame[LENGTH_BYTES..]).unwrap(), text.as_bytes());
        }
        assert!(
            !keys.0.is_proved_by(&keys.0.own_proof.clone()),
            "a proof sent back proves nothing"
        );
    }

    #[test]
    fn both_ends_detect_another_code_or_a_changed_hello() {
        let keys = agree(["4821-7390", "4821-7391"], |_| ()).unwrap();
        assert_eq!(prove_each_other(&keys), [false, false]);
        // The name, and each byte of the nonce and of the share.
        let (_, hello) = Exchange::start(Role::Robot, code("4821-7390"), "robot1", &mut OsRng);
        for at in LENGTH_BYTES + 2..hello.len() {
            let Ok(keys) = agree(["4821-7390"; 2], |hello| hello[at] ^= 1) else { continue };
            assert_eq!(prove_each_other(&keys), [false, false], "byte {at}");
        }
    }

    #[test]
    fn changed_repeated_and_missing_frames_are_refused() {
        let (mut robot, mut base) = agree(["4821-7390"; 2], |_| ()).unwrap();
        let frames = [b"one", b"two"].map(|text| robot.sealer.seal(text)[LENGTH_BYTES..].to_vec());
        assert!(base.opener.open(&frames[1]).is_err(), "the second one first");
        let mut changed = frames[0].clone();
        changed[3] ^= 1;
        assert!(base.opener.open(&changed).is_err());
        assert_eq!(base.opener.open(&frames[0]).unwrap(), b"one");
        assert!(base.opener.open(&frames[0]).is_err(), "a repetition");
        let own = base.sealer.seal(b"back");
        assert!(base.opener.open(&own[LENGTH_BYTES..]).is_err(), "a frame of the other direction");
    }

    #[test]
    fn a_share_of_the_same_side_is_refused() {
        let (robot, _) = Exchange::start(Role::Robot, code("4821-7390"), "robot1", &mut OsRng);
        let (_, other) = Exchange::start(Role::Robot, code("4821-7390"), "robot2", &mut OsRng);
        assert!(matches!(robot.finish(&other[LENGTH_BYTES..]), Err(ExchangeError::Share)));
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_vectors_of_the_specification() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/pairing-vectors.json");
        let text = code("4821-7390");
        let (robot, robot_hello) = Exchange::start(Role::Robot, text, "robot1", &mut Counting(0));
        let (base, base_hello) = Exchange::start(Role::Base, text, "base", &mut Counting(100));
        let (mut robot, _) = robot.finish(&base_hello[LENGTH_BYTES..]).unwrap();
        let (mut base, _) = base.finish(&robot_hello[LENGTH_BYTES..]).unwrap();
        let query =
            super::super::wire::Query { selector: text.selector(), nonce: [7; NONCE_BYTES] };
        let found = serde_json::json!({
            "code": text.to_string(),
            "random_of_robot": "00 01 02 ... (nonce, then the 64 bytes of the scalar)",
            "random_of_base": "64 65 66 ... (nonce, then the 64 bytes of the scalar)",
            "query": hex(&query.emit()),
            "robot_hello": hex(&robot_hello),
            "base_hello": hex(&base_hello),
            "transcript": hex(robot.transcript.as_ref()),
            "robot_confirm": hex(&robot.proof()),
            "base_confirm": hex(&base.proof()),
            "robot_message_0": "first",
            "robot_sealed_0": hex(&robot.sealer.seal(b"first")),
            "robot_message_1": "second",
            "robot_sealed_1": hex(&robot.sealer.seal(b"second")),
            "base_message_0": "third",
            "base_sealed_0": hex(&base.sealer.seal(b"third")),
        });
        if std::env::var_os("UPDATE").is_some() {
            let text = serde_json::to_string_pretty(&found).unwrap();
            std::fs::write(file, format!("{text}\n")).unwrap();
        }
        let expected: Value =
            serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(found, expected);
    }
}
