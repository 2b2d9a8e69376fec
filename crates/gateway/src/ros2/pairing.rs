// SPDX-License-Identifier: Apache-2.0
//! How a reply finds the request that it answers. Pure.
//!
//! There are two incompatible schemes:
//! - the sample's identity (DDS-RPC 1.0, 7.8.2), outside the payload: Fast DDS and all others;
//! - a header of 16 bytes in the payload, after the encapsulation: rmw_cyclonedds. The client
//!   identifies itself in eight of them and counts requests in the rest; the server returns them.
//!
//! The endpoints of a service do not announce the scheme, but the first two bytes of a GUID are the
//! vendor of the DDS implementation (RTPS 2.5, 9.3.1.1). A service of ours serves both kinds of
//! client. All clients receive all replies, though: a client of the other kind ignores a reply, or
//! logs that it cannot read it.

use super::callers::{decode_hex, encode_hex};
use crate::Outcome;
use crate::types::transcode::{CDR_BE, CDR_LE, ENCAPSULATION_BYTES};
use bytes::Bytes;
use std::hash::Hasher;
use tautline_dds::{Guid, SampleId, SampleInfo};

/// Eclipse Cyclone DDS's vendor ID.
const CYCLONE_DDS: [u8; 2] = [0x01, 0x10];
/// Size of rmw_cyclonedds's header of requests and replies.
const HEADER_BYTES: usize = 16;
/// The part of a GUID that identifies the participant (RTPS 2.5, 9.3.1.1).
const GUID_PREFIX_BYTES: usize = 12;
/// The number in the related identity of a Fast DDS request. That identity names the client's reader.
const UNKNOWN_SEQ: i64 = -1 << 32;

/// Whether the program with this endpoint uses the header of rmw_cyclonedds.
fn uses_header(guid: &Guid) -> bool {
    guid.starts_with(&CYCLONE_DDS)
}

/// A sample to write.
#[derive(Debug, PartialEq, Eq)]
pub struct Sample {
    pub payload: Bytes,
    /// The related identity outside the payload.
    pub related_sample: Option<SampleId>,
}

/// Whether a payload is CDR with an encapsulation that ROS 2 uses.
pub fn is_cdr(payload: &[u8]) -> bool {
    payload.len() >= ENCAPSULATION_BYTES
        && [CDR_BE, CDR_LE].iter().any(|known| payload.starts_with(known))
}

/// The part of a GUID that all endpoints of a participant share.
pub fn guid_prefix(guid: &Guid) -> &[u8] {
    &guid[..GUID_PREFIX_BYTES]
}

/// A local client that waits for a reply.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// The writer of the request.
    pub writer: Guid,
    request: Correlation,
}

/// How a reply refers to its request.
#[derive(Debug, Clone, Copy)]
enum Correlation {
    Identity(SampleId),
    Header { header: [u8; HEADER_BYTES], encapsulation: [u8; 2] },
}

impl Caller {
    /// The caller and the request in a sample; `None` if the sample is incomplete.
    pub fn from_request(payload: &Bytes, writer: Guid, info: &SampleInfo) -> Option<(Self, Bytes)> {
        if !is_cdr(payload) {
            return None;
        }
        if uses_header(&writer) {
            let encapsulation = [payload[0], payload[1]];
            let (header, body) = split_header(payload)?;
            return Some((
                Self { writer, request: Correlation::Header { header, encapsulation } },
                body,
            ));
        }
        let to = info.related_sample.map_or(writer, |related_sample| related_sample.writer);
        let request = Correlation::Identity(SampleId { writer: to, seq: info.seq });
        Some((Self { writer, request }, payload.clone()))
    }

    /// Writes the caller as one word of a file.
    pub fn file_text(&self) -> String {
        let writer = encode_hex(&self.writer);
        match self.request {
            Correlation::Identity(id) => format!("{writer}-{}-{}", encode_hex(&id.writer), id.seq),
            Correlation::Header { header, encapsulation } => {
                format!("{writer}:{}:{}", encode_hex(&header), encode_hex(&encapsulation))
            }
        }
    }

    /// Reads the word that [`Self::file_text`] wrote.
    pub fn read(text: &str) -> Option<Self> {
        let array = |text: &str| decode_hex(text)?.try_into().ok();
        if let Some((writer, rest)) = text.split_once(':') {
            let (header, encapsulation) = rest.split_once(':')?;
            let header = decode_hex(header)?.try_into().ok()?;
            let encapsulation = decode_hex(encapsulation)?.try_into().ok()?;
            let request = Correlation::Header { header, encapsulation };
            return Some(Self { writer: array(writer)?, request });
        }
        let (writer, rest) = text.split_once('-')?;
        let (to, seq) = rest.split_once('-')?;
        let request =
            Correlation::Identity(SampleId { writer: array(to)?, seq: seq.parse().ok()? });
        Some(Self { writer: array(writer)?, request })
    }

    /// The reply with a response (CDR).
    pub fn reply(&self, response: Bytes) -> Sample {
        match self.request {
            Correlation::Identity(id) => Sample { payload: response, related_sample: Some(id) },
            Correlation::Header { header, encapsulation } => {
                let is_same_order = response.starts_with(&encapsulation);
                with_header(header, is_same_order, &response)
            }
        }
    }
}

/// Our side of a service of local servers.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Reader of replies.
    pub reader: Guid,
    /// Writer of requests.
    pub writer: Guid,
}

impl Client {
    /// Request (CDR) number `seq` in the scheme of a server.
    ///
    /// A server on Fast DDS waits until it has matched the reader that the request names.
    pub fn request(&self, server: &Guid, seq: i64, request: Bytes) -> Sample {
        if !uses_header(server) {
            let related_sample = Some(SampleId { writer: self.reader, seq: UNKNOWN_SEQ });
            return Sample { payload: request, related_sample };
        }
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&self.own_identifier());
        header[8..].copy_from_slice(&seq.to_le_bytes());
        with_header(header, request.starts_with(&CDR_LE), &request)
    }

    /// The number of our request and the outcome in a server's reply. `None`: the reply is for
    /// another client.
    pub fn match_reply(
        &self,
        payload: &Bytes,
        server: &Guid,
        related_sample: Option<SampleId>,
    ) -> Option<(i64, Outcome)> {
        if uses_header(server) {
            let (header, response) = split_header(payload)?;
            let header = in_byte_order(header, payload.starts_with(&CDR_LE));
            let (own, seq) = header.split_first_chunk::<8>()?;
            let seq = i64::from_le_bytes(*seq.first_chunk()?);
            return (*own == self.own_identifier()).then(|| (seq, checked_response(response)));
        }
        let related_sample =
            related_sample.filter(|id| id.writer == self.reader || id.writer == self.writer)?;
        Some((related_sample.seq, checked_response(payload.clone())))
    }

    /// The eight bytes by which servers with rmw_cyclonedds identify us.
    fn own_identifier(&self) -> [u8; 8] {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(&self.writer);
        hasher.finish().to_le_bytes()
    }
}

fn checked_response(response: Bytes) -> Outcome {
    match is_cdr(&response) {
        true => Ok(response),
        false => Err("the response is in an encoding other than CDR".into()),
    }
}

/// The header, and the payload without it. The body keeps its alignment: the header has twice the
/// largest size of a number.
fn split_header(payload: &Bytes) -> Option<([u8; HEADER_BYTES], Bytes)> {
    let (encapsulation, rest) = payload.split_at_checked(ENCAPSULATION_BYTES)?;
    let (header, body) = rest.split_first_chunk()?;
    Some((*header, [encapsulation, body].concat().into()))
}

fn with_header(header: [u8; HEADER_BYTES], is_same_order: bool, payload: &Bytes) -> Sample {
    let (encapsulation, body) = payload.split_at(ENCAPSULATION_BYTES.min(payload.len()));
    let payload = [encapsulation, &in_byte_order(header, is_same_order), body].concat().into();
    Sample { payload, related_sample: None }
}

/// Swaps the bytes of the header's two numbers unless the byte order is the same.
fn in_byte_order(mut header: [u8; HEADER_BYTES], is_same_order: bool) -> [u8; HEADER_BYTES] {
    if !is_same_order {
        header[..8].reverse();
        header[8..].reverse();
    }
    header
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const FAST: Guid = [0x01, 0x0f, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 3];
    const CYCLONE: Guid = [0x01, 0x10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 3];
    const US: Client = Client { reader: [7; 16], writer: [8; 16] };

    /// A client of Fast DDS, and one of rmw_cyclonedds.
    pub fn callers_of_both_kinds() -> [Caller; 2] {
        let payload = Bytes::from((0..24).map(|it| u8::from(it == 1)).collect::<Vec<_>>());
        [FAST, CYCLONE]
            .map(|writer| Caller::from_request(&payload, writer, &info(7, None)).unwrap().0)
    }

    fn info(seq: i64, related_sample: Option<SampleId>) -> SampleInfo {
        SampleInfo { source_timestamp: 0, writer: None, seq, related_sample }
    }

    #[test]
    fn fast_dds_is_answered_outside_the_payload_to_the_reader_that_it_names() {
        let payload = Bytes::from_static(&[0, 1, 0, 0, 5]);
        for (related_sample, expected) in
            [(None, FAST), (Some(SampleId { writer: [9; 16], seq: UNKNOWN_SEQ }), [9; 16])]
        {
            let (caller, request) =
                Caller::from_request(&payload, FAST, &info(3, related_sample)).unwrap();
            assert_eq!(request, payload);
            let related_sample = Some(SampleId { writer: expected, seq: 3 });
            let payload = payload.clone();
            assert_eq!(caller.reply(payload.clone()), Sample { payload, related_sample });
        }
        let request = US.request(&FAST, 4, payload.clone());
        assert_eq!(
            (&request.payload, request.related_sample.unwrap().writer),
            (&payload, US.reader)
        );
        for (writer, expected) in [(US.reader, Some(4)), (US.writer, Some(4)), ([1; 16], None)] {
            let answered = US.match_reply(&payload, &FAST, Some(SampleId { writer, seq: 4 }));
            assert_eq!(answered.map(|(seq, _)| seq), expected);
        }
        assert_eq!(US.match_reply(&payload, &FAST, None), None);
    }

    #[test]
    fn rmw_cyclonedds_is_answered_by_its_header_in_either_byte_order() {
        for (client, server) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let plain = |order: u8| Bytes::from(vec![0, order, 0, 0, 5, 6]);
            let request = US.request(&CYCLONE, 1 << 33, plain(client));
            assert!(request.related_sample.is_none() && request.payload.len() == 22);
            let (caller, bare) =
                Caller::from_request(&request.payload, CYCLONE, &info(0, None)).unwrap();
            assert_eq!(bare, plain(client));
            let Sample { payload: reply, related_sample } = caller.reply(plain(server));
            assert!(related_sample.is_none());
            let (seq, outcome) = US.match_reply(&reply, &CYCLONE, None).unwrap();
            assert_eq!((seq, outcome.unwrap()), (1 << 33, plain(server)));
            let other = Client { writer: [1; 16], ..US };
            assert_eq!(other.match_reply(&reply, &CYCLONE, None), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_accepted_or_refused_without_a_panic(bytes: Vec<u8>, seq: i64) {
            let bytes = Bytes::from(bytes);
            for program in [FAST, CYCLONE] {
                if let Some((caller, request)) = Caller::from_request(&bytes, program, &info(seq, None)) {
                    caller.reply(request);
                }
                US.request(&program, seq, bytes.clone());
                US.match_reply(&bytes, &program, Some(SampleId { writer: US.reader, seq }));
            }
        }
    }

    #[test]
    fn truncated_payloads_and_other_encodings_are_no_requests_or_responses() {
        let payload =
            Bytes::from(vec![0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        for length in 0..payload.len() {
            let cut = payload.slice(..length);
            assert!(Caller::from_request(&cut, CYCLONE, &info(1, None)).is_none(), "{length}");
            assert_eq!(US.match_reply(&cut, &CYCLONE, None), None, "{length}");
        }
        let parameters = Bytes::from_static(&[0, 3, 0, 0]);
        assert!(Caller::from_request(&parameters, FAST, &info(1, None)).is_none());
        let ours = Some(SampleId { writer: US.reader, seq: 1 });
        for payload in [Bytes::new(), parameters] {
            US.match_reply(&payload, &FAST, ours).unwrap().1.unwrap_err();
        }
    }
}
