// SPDX-License-Identifier: Apache-2.0
//! How a reply finds the request that it answers. Pure.
//!
//! There are two ways, and a program of one does not understand the other's:
//! - by the sample's identity (DDS-RPC 1.0, 7.8.2), beside the payload: Fast DDS, and all others;
//! - by 16 bytes at the head of the payload, after the encapsulation: rmw_cyclonedds. The client
//!   draws eight of them for itself and counts requests in the rest; the server gives them back.
//!
//! Nothing that a service's endpoints announce tells which it is, but the first two bytes of a
//! GUID name who made the DDS (RTPS 2.5, 9.3.1.1). A service of ours serves both kinds of client.
//! All of them hear all replies, though: one of the other kind passes a reply over, or logs that it
//! cannot read it.

use crate::Outcome;
use crate::types::transcode::{CDR_BE, CDR_LE, ENCAPSULATION_BYTES};
use bytes::Bytes;
use std::hash::Hasher;
use tautline_dds::{Guid, SampleId, SampleInfo};

/// Eclipse Cyclone DDS's number.
const CYCLONE_DDS: [u8; 2] = [0x01, 0x10];
/// Of the head that rmw_cyclonedds puts before requests and replies.
const HEAD_BYTES: usize = 16;
/// Of a GUID, those that tell the participant (RTPS 2.5, 9.3.1.1).
const PARTICIPANT_BYTES: usize = 12;
/// In a request's related identity Fast DDS gives its reader, and no number.
const NO_NUMBER: i64 = -1 << 32;

/// How a program pairs replies with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Identity,
    Head,
}

impl Way {
    fn of(guid: &Guid) -> Self {
        if guid.starts_with(&CYCLONE_DDS) { Self::Head } else { Self::Identity }
    }
}

/// Whether a payload is a message as ROS 2 writes it.
pub fn is_cdr(payload: &[u8]) -> bool {
    payload.len() >= ENCAPSULATION_BYTES
        && [CDR_BE, CDR_LE].iter().any(|known| payload.starts_with(known))
}

/// What all endpoints of a participant have in common.
pub fn participant(guid: &Guid) -> &[u8] {
    &guid[..PARTICIPANT_BYTES]
}

/// A local client that waits for a reply.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// By which the request came.
    pub writer: Guid,
    request: Request,
}

/// What a reply has to name.
#[derive(Debug, Clone, Copy)]
enum Request {
    Identity(SampleId),
    Head { head: [u8; HEAD_BYTES], encapsulation: [u8; 2] },
}

impl Caller {
    /// Who sent a request, and the request itself; `None` if it is not whole.
    pub fn of(payload: &Bytes, writer: Guid, info: &SampleInfo) -> Option<(Self, Bytes)> {
        if !is_cdr(payload) {
            return None;
        }
        if Way::of(&writer) == Way::Head {
            let encapsulation = [payload[0], payload[1]];
            let (head, request) = behead(payload)?;
            return Some((
                Self { writer, request: Request::Head { head, encapsulation } },
                request,
            ));
        }
        let to = info.related.map_or(writer, |related| related.writer);
        let request = Request::Identity(SampleId { writer: to, seq: info.seq });
        Some((Self { writer, request }, payload.clone()))
    }

    /// A response (CDR) as it is written, and the request that it answers, where that is told
    /// beside it.
    pub fn reply(&self, response: Bytes) -> (Bytes, Option<SampleId>) {
        match self.request {
            Request::Identity(id) => (response, Some(id)),
            Request::Head { head, encapsulation } => {
                let same = response.starts_with(&encapsulation);
                (with_head(if same { head } else { swapped(head) }, &response), None)
            }
        }
    }
}

/// Our side of a service that others serve.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Of the reader of replies.
    pub reader: Guid,
    /// Of the writer of requests.
    pub writer: Guid,
}

impl Client {
    /// Request (CDR) number `seq` as a server takes it, and what is told beside it.
    ///
    /// A server on Fast DDS that is told the reader waits, if need be, until it has met it.
    pub fn request(&self, server: &Guid, seq: i64, request: Bytes) -> (Bytes, Option<SampleId>) {
        match Way::of(server) {
            Way::Identity => (request, Some(SampleId { writer: self.reader, seq: NO_NUMBER })),
            Way::Head => {
                let mut head = [0; HEAD_BYTES];
                head[..8].copy_from_slice(&self.own_bytes());
                head[8..].copy_from_slice(&seq.to_le_bytes());
                let little = request.starts_with(&CDR_LE);
                (with_head(if little { head } else { swapped(head) }, &request), None)
            }
        }
    }

    /// Which of our requests a server's reply answers, and the response; `Err` says what is
    /// wrong with it. `None`: it is another client's.
    pub fn answered(
        &self,
        payload: &Bytes,
        server: &Guid,
        related: Option<SampleId>,
    ) -> Option<(i64, Outcome)> {
        if Way::of(server) == Way::Head {
            let (head, response) = behead(payload)?;
            let little = payload.starts_with(&CDR_LE);
            let head = if little { head } else { swapped(head) };
            let (own, seq) = head.split_first_chunk::<8>()?;
            let seq = i64::from_le_bytes(*seq.first_chunk()?);
            return (*own == self.own_bytes()).then(|| (seq, sound(response)));
        }
        let related = related.filter(|it| it.writer == self.reader || it.writer == self.writer)?;
        Some((related.seq, sound(payload.clone())))
    }

    /// By which servers of rmw_cyclonedds tell us apart.
    fn own_bytes(&self) -> [u8; 8] {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(&self.writer);
        hasher.finish().to_le_bytes()
    }
}

fn sound(response: Bytes) -> Outcome {
    match is_cdr(&response) {
        true => Ok(response),
        false => Err("the response is in an encoding other than CDR".into()),
    }
}

/// The head, and the payload without it. The rest keeps its alignment: the head has twice the
/// largest there is.
fn behead(payload: &Bytes) -> Option<([u8; HEAD_BYTES], Bytes)> {
    let (encapsulation, rest) = payload.split_at_checked(ENCAPSULATION_BYTES)?;
    let (head, body) = rest.split_first_chunk()?;
    Some((*head, [encapsulation, body].concat().into()))
}

fn with_head(head: [u8; HEAD_BYTES], payload: &Bytes) -> Bytes {
    let (encapsulation, body) = payload.split_at(ENCAPSULATION_BYTES.min(payload.len()));
    [encapsulation, &head, body].concat().into()
}

/// Both of its numbers in the other order of bytes.
fn swapped(mut head: [u8; HEAD_BYTES]) -> [u8; HEAD_BYTES] {
    head[..8].reverse();
    head[8..].reverse();
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Guid = [0x01, 0x0f, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 3];
    const CYCLONE: Guid = [0x01, 0x10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 3];
    const US: Client = Client { reader: [7; 16], writer: [8; 16] };

    fn info(seq: i64, related: Option<SampleId>) -> SampleInfo {
        SampleInfo { source_timestamp: 0, writer: None, seq, related }
    }

    #[test]
    fn fast_dds_is_answered_beside_the_payload_by_reader_where_it_is_told() {
        let payload = Bytes::from_static(&[0, 1, 0, 0, 5]);
        for (related, expected) in
            [(None, FAST), (Some(SampleId { writer: [9; 16], seq: NO_NUMBER }), [9; 16])]
        {
            let (caller, request) = Caller::of(&payload, FAST, &info(3, related)).unwrap();
            assert_eq!(request, payload);
            let (reply, id) = caller.reply(payload.clone());
            assert_eq!((reply, id), (payload.clone(), Some(SampleId { writer: expected, seq: 3 })));
        }
        let (request, beside) = US.request(&FAST, 4, payload.clone());
        assert_eq!((&request, beside.unwrap().writer), (&payload, US.reader));
        for (writer, expected) in [(US.reader, Some(4)), (US.writer, Some(4)), ([1; 16], None)] {
            let answered = US.answered(&payload, &FAST, Some(SampleId { writer, seq: 4 }));
            assert_eq!(answered.map(|(seq, _)| seq), expected);
        }
        assert_eq!(US.answered(&payload, &FAST, None), None);
    }

    #[test]
    fn rmw_cyclonedds_is_answered_by_its_head_in_either_order_of_bytes() {
        for (client, server) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let plain = |order: u8| Bytes::from(vec![0, order, 0, 0, 5, 6]);
            let (request, beside) = US.request(&CYCLONE, 1 << 33, plain(client));
            assert!(beside.is_none() && request.len() == 22);
            let (caller, bare) = Caller::of(&request, CYCLONE, &info(0, None)).unwrap();
            assert_eq!(bare, plain(client));
            let (reply, beside) = caller.reply(plain(server));
            assert!(beside.is_none());
            let (seq, outcome) = US.answered(&reply, &CYCLONE, None).unwrap();
            assert_eq!((seq, outcome.unwrap()), (1 << 33, plain(server)));
            let other = Client { writer: [1; 16], ..US };
            assert_eq!(other.answered(&reply, &CYCLONE, None), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_taken_or_not(bytes: Vec<u8>, seq: i64) {
            let bytes = Bytes::from(bytes);
            for program in [FAST, CYCLONE] {
                if let Some((caller, request)) = Caller::of(&bytes, program, &info(seq, None)) {
                    caller.reply(request);
                }
                US.request(&program, seq, bytes.clone());
                US.answered(&bytes, &program, Some(SampleId { writer: US.reader, seq }));
            }
        }
    }

    #[test]
    fn what_is_cut_or_no_cdr_is_no_request_and_no_response() {
        let payload =
            Bytes::from(vec![0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        for length in 0..payload.len() {
            let cut = payload.slice(..length);
            assert!(Caller::of(&cut, CYCLONE, &info(1, None)).is_none(), "{length}");
            assert_eq!(US.answered(&cut, &CYCLONE, None), None, "{length}");
        }
        let parameters = Bytes::from_static(&[0, 3, 0, 0]);
        assert!(Caller::of(&parameters, FAST, &info(1, None)).is_none());
        let ours = Some(SampleId { writer: US.reader, seq: 1 });
        for payload in [Bytes::new(), parameters] {
            US.answered(&payload, &FAST, ours).unwrap().1.unwrap_err();
        }
    }
}
