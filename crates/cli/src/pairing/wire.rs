// SPDX-License-Identifier: Apache-2.0
//! Datagrams of the search and frames of the pairing (spec/pairing.md). Pure.

use super::VERSION;
use tautline::config::kind::is_node_name;

/// Bytes of a query, and maximum bytes of an answer: an answer is not longer than its query, so
/// that a forged source address gains nothing.
pub const DATAGRAM_BYTES: usize = 128;
const QUERY: &[u8; 4] = b"TLPQ";
const ANSWER: &[u8; 4] = b"TLPA";

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 16;
/// Bytes of a share of SPAKE2: the side and an element.
pub const SHARE_BYTES: usize = 33;
/// Bytes of a proof that the sender has the key.
pub const PROOF_BYTES: usize = 32;
/// Bytes of the length before each frame.
pub const LENGTH_BYTES: usize = 4;
const HELLO: u8 = 1;
const CONFIRM: u8 = 2;
const REFUSE: u8 = 3;
const SEALED: u8 = 4;

/// Why bytes are no datagram or frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the fields need, or more.
    #[error("a frame of a wrong length")]
    Length,
    /// A field with a value that is not allowed.
    #[error("a frame with an invalid {0}")]
    Value(&'static str),
    /// Another version of the pairing protocol.
    #[error(
        "version {0} of the pairing protocol; this program has version {VERSION}: install the same version of Tautline on both machines"
    )]
    Version(u8),
}

/// The question of a robot: which base waits for a code with this selector?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// The public part of the code.
    pub selector: u8,
    /// Drawn for each search; answers repeat the nonce.
    pub nonce: [u8; NONCE_BYTES],
}

impl Query {
    /// The datagram.
    pub fn emit(&self) -> [u8; DATAGRAM_BYTES] {
        let mut out = [0; DATAGRAM_BYTES];
        out[..4].copy_from_slice(QUERY);
        (out[4], out[5]) = (VERSION, self.selector);
        out[6..6 + NONCE_BYTES].copy_from_slice(&self.nonce);
        out
    }

    /// Reads a datagram.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader(bytes);
        if reader.array()? != *QUERY {
            return Err(WireError::Value("beginning"));
        }
        version(reader.byte()?)?;
        let query = Self { selector: reader.byte()?, nonce: reader.array()? };
        let is_padded = bytes.len() == DATAGRAM_BYTES && reader.0.iter().all(|&byte| byte == 0);
        is_padded.then_some(query).ok_or(WireError::Length)
    }
}

/// The answer of a base that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The nonce of the query.
    pub nonce: [u8; NONCE_BYTES],
    /// Drawn for each pairing: the same base may answer at several addresses.
    pub instance: [u8; 8],
    /// TCP port on which the base waits.
    pub port: u16,
    /// Name of the base, which nothing proves yet.
    pub name: String,
}

impl Answer {
    /// The datagram.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = ANSWER.to_vec();
        out.push(VERSION);
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(&self.instance);
        out.extend_from_slice(&self.port.to_le_bytes());
        put_name(&mut out, &self.name);
        out
    }

    /// Reads a datagram.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader(bytes);
        if reader.array()? != *ANSWER {
            return Err(WireError::Value("beginning"));
        }
        version(reader.byte()?)?;
        let (nonce, instance) = (reader.array()?, reader.array()?);
        let port = u16::from_le_bytes(reader.array()?);
        let name = reader.name()?;
        reader.expect_end()?;
        match port {
            0 => Err(WireError::Value("port")),
            port => Ok(Self { nonce, instance, port, name }),
        }
    }
}

/// The start of a key agreement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Drawn for each connection.
    pub nonce: [u8; NONCE_BYTES],
    /// Message of SPAKE2: the side and an element.
    pub share: [u8; SHARE_BYTES],
    /// Name of the sender's node.
    pub name: String,
}

/// Why a base refuses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The proof does not fit: another code, or an attacker between the two.
    WrongCode {
        /// Number of tries that are left.
        left: u8,
    },
    /// The pairing has ended, with another robot or after too many tries.
    Ended,
    /// The robot has the name of the base.
    SameName,
}

/// A frame, without the length before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Begins a key agreement.
    Hello(Hello),
    /// Proves the key.
    Confirm([u8; PROOF_BYTES]),
    /// Ends the connection.
    Refuse(Refusal),
    /// A sealed message.
    Sealed(&'a [u8]),
}

impl<'a> Frame<'a> {
    /// The frame with its length.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![0; LENGTH_BYTES];
        match self {
            Self::Hello(hello) => {
                out.extend([HELLO, VERSION]);
                out.extend_from_slice(&hello.nonce);
                out.extend_from_slice(&hello.share);
                put_name(&mut out, &hello.name);
            }
            Self::Confirm(proof) => {
                out.push(CONFIRM);
                out.extend_from_slice(proof);
            }
            Self::Refuse(Refusal::WrongCode { left }) => out.extend([REFUSE, 1, *left]),
            Self::Refuse(Refusal::Ended) => out.extend([REFUSE, 2, 0]),
            Self::Refuse(Refusal::SameName) => out.extend([REFUSE, 3, 0]),
            Self::Sealed(sealed) => {
                out.push(SEALED);
                out.extend_from_slice(sealed);
            }
        }
        let length = (out.len() - LENGTH_BYTES) as u32;
        out[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        out
    }

    /// Reads a frame, without the length before it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader(bytes);
        let frame = match reader.byte()? {
            HELLO => {
                version(reader.byte()?)?;
                let (nonce, share) = (reader.array()?, reader.array()?);
                Self::Hello(Hello { nonce, share, name: reader.name()? })
            }
            CONFIRM => Self::Confirm(reader.array()?),
            REFUSE => Self::Refuse(match (reader.byte()?, reader.byte()?) {
                (1, left) => Refusal::WrongCode { left },
                (2, 0) => Refusal::Ended,
                (3, 0) => Refusal::SameName,
                _ => return Err(WireError::Value("reason")),
            }),
            SEALED => Self::Sealed(std::mem::take(&mut reader.0)),
            _ => return Err(WireError::Value("type")),
        };
        reader.expect_end().map(|()| frame)
    }
}

/// Reads the length before a frame.
pub fn frame_length(bytes: [u8; LENGTH_BYTES], limit: usize) -> Result<usize, WireError> {
    let length = u32::from_le_bytes(bytes) as usize;
    if length == 0 || length > limit { Err(WireError::Length) } else { Ok(length) }
}

fn version(found: u8) -> Result<(), WireError> {
    if found == VERSION { Ok(()) } else { Err(WireError::Version(found)) }
}

/// Writes the name of a node and its length. Names of nodes have at most 255 bytes.
fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(WireError::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], WireError> {
        self.take(COUNT)?.try_into().map_err(|_| WireError::Length)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn name(&mut self) -> Result<String, WireError> {
        let length = self.byte()?;
        let name = std::str::from_utf8(self.take(length.into())?);
        let name = name.ok().filter(|name| is_node_name(name));
        name.map(str::to_owned).ok_or(WireError::Value("name"))
    }

    fn expect_end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairing::{MAX_OPEN, MAX_SEALED};
    use proptest::prelude::*;
    use tautline::config::kind::MAX_NODE_NAME;

    fn name() -> impl Strategy<Value = String> {
        "[A-Za-z0-9_-]{1,32}".prop_map(|it| it.chars().take(MAX_NODE_NAME).collect())
    }

    fn frame() -> impl Strategy<Value = Frame<'static>> {
        let share = proptest::collection::vec(any::<u8>(), SHARE_BYTES);
        let hello = (any::<[u8; NONCE_BYTES]>(), share, name()).prop_map(|(nonce, share, name)| {
            Frame::Hello(Hello { nonce, share: share.try_into().unwrap(), name })
        });
        prop_oneof![
            hello,
            any::<[u8; PROOF_BYTES]>().prop_map(Frame::Confirm),
            any::<u8>().prop_map(|left| Frame::Refuse(Refusal::WrongCode { left })),
            Just(Frame::Refuse(Refusal::Ended)),
            Just(Frame::Refuse(Refusal::SameName)),
        ]
    }

    proptest! {
        #[test]
        fn only_complete_frames_are_read(frame in frame()) {
            let bytes = frame.emit();
            let (length, body) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(frame_length(*length, MAX_OPEN), Ok(body.len()));
            prop_assert_eq!(Frame::parse(body), Ok(frame));
            for part in 0..body.len() {
                prop_assert!(Frame::parse(&body[..part]).is_err());
            }
            prop_assert!(Frame::parse(&[body, &[0]].concat()).is_err());
        }

        #[test]
        fn datagrams_are_read_as_written(
            (nonce, selector) in any::<([u8; NONCE_BYTES], u8)>(),
            (instance, port) in (any::<[u8; 8]>(), 1_u16..),
            name in name(),
        ) {
            let query = Query { selector, nonce };
            prop_assert_eq!(Query::parse(&query.emit()), Ok(query));
            prop_assert!(Query::parse(&query.emit()[..DATAGRAM_BYTES - 1]).is_err());
            let answer = Answer { nonce, instance, port, name };
            let bytes = answer.emit();
            prop_assert!(bytes.len() <= DATAGRAM_BYTES);
            prop_assert!(Query::parse(&bytes).is_err());
            prop_assert_eq!(Answer::parse(&bytes), Ok(answer));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (Frame::parse(&bytes), Query::parse(&bytes), Answer::parse(&bytes));
        }
    }

    #[test]
    fn lengths_have_a_limit() {
        for (length, limit, expected) in [
            (0, 9, false),
            (1, 9, true),
            (9, 9, true),
            (10, 9, false),
            (u32::MAX, MAX_SEALED, false),
        ] {
            assert_eq!(frame_length(length.to_le_bytes(), limit).is_ok(), expected, "{length}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let error = Frame::parse(&[HELLO, 9]).unwrap_err();
        assert_eq!(error, WireError::Version(9));
        assert!(error.to_string().contains("same version of Tautline"), "{error}");
    }
}
