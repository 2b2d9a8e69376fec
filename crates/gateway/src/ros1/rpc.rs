// SPDX-License-Identifier: Apache-2.0
//! One call of a service, from either side (<https://wiki.ros.org/ROS/TCPROS>): after the headers
//! a request, and a byte that says whether a response or an error's text follows. Each of the
//! three is behind its length.

use super::connection::{self, ConnectError, indefinite, open_service};
use super::inquiry::{Inquirer, NOT_AT_ONCE, patiently};
use super::room::{FREE_BYTES, Room, Share};
use super::seats::Seat;
use super::xmlrpc::{CallError, Endpoint};
use crate::Outcome;
use bytes::Bytes;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Longest text of an error that is taken or sent, in bytes.
const MAX_ERROR_BYTES: usize = 16 * 1024;
/// How long a client may take for its header's answer, a request that it has begun, or a response.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a server is looked up again.
const RETRY: Duration = Duration::from_millis(200);

/// What a probe found.
#[derive(Debug)]
pub(super) enum Probed {
    Server {
        type_name: String,
        md5: String,
    },
    /// Another Tautline node, or ourselves.
    Foreign,
    Failed {
        reason: String,
    },
}

impl Inquirer {
    /// Who serves `service` as which type.
    pub async fn probe_service(&self, service: &str, again: bool) -> Probed {
        match patiently(again, self.reach(service, "*", true)).await {
            Some(Ok((_, type_name, md5))) => Probed::Server { type_name, md5 },
            Some(Err(ConnectError::Tautline(_))) => Probed::Foreign,
            Some(Err(error)) => Probed::Failed { reason: error.to_string() },
            None => Probed::Failed { reason: NOT_AT_ONCE.into() },
        }
    }

    /// Looks the server up and exchanges headers with it; gives its type and md5 if it is probed.
    async fn reach(
        &self,
        service: &str,
        md5: &str,
        probe: bool,
    ) -> Result<(TcpStream, String, String), ConnectError> {
        let uri = self.master.lookup_service(service).await?;
        let wrong = || CallError::Uri(uri.clone());
        let address = uri.strip_prefix("rosrpc://").ok_or_else(wrong)?;
        let Endpoint { host, port, .. } =
            Endpoint::parse(&format!("http://{address}")).map_err(|_| wrong())?;
        let ours = self.identity.service_request(service, md5, probe);
        let (stream, theirs) = open_service(&host, port, &ours).await?;
        match connection::service_type(&theirs) {
            Some((type_name, md5)) => Ok((stream, type_name, md5)),
            None if probe => Err(indefinite(&host, port)),
            None => Ok((stream, String::new(), String::new())),
        }
    }

    /// Calls once. Until the request is sent a server that is not there is looked for again; from
    /// then on a connection that breaks is an error.
    pub async fn call_service(
        &self,
        service: &str,
        md5: &str,
        request: Bytes,
        (max_response, share): (usize, &mut Share),
        patience: Duration,
    ) -> Outcome {
        let (until, seconds) = (Instant::now() + patience, patience.as_secs_f64());
        let mut trouble = String::new();
        let mut stream = loop {
            match timeout_at(until, self.reach(service, md5, false)).await {
                Ok(Ok((stream, ..))) => break stream,
                Ok(Err(error @ (ConnectError::Refused { .. } | ConnectError::Tautline(_)))) => {
                    return Err(error.to_string());
                }
                Ok(Err(error)) => trouble = format!(": {error}"),
                Err(_) => {
                    return Err(format!("no server of {service} within {seconds} s{trouble}"));
                }
            }
            let _ = timeout_at(until, sleep(RETRY)).await;
        };
        match timeout_at(until, exchange(&mut stream, &request, max_response, share)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                Err(format!("the server of {service} left before it answered ({error})"))
            }
            Err(_) => Err(format!("no answer from {service} within {seconds} s")),
        }
    }
}

async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
    max_response: usize,
    share: &mut Share,
) -> io::Result<Outcome> {
    write_block(stream, None, request).await?;
    read_outcome(stream, max_response, share).await
}

pub(super) async fn read_outcome(
    stream: &mut (impl AsyncRead + Unpin),
    max_response: usize,
    share: &mut Share,
) -> io::Result<Outcome> {
    let fine = stream.read_u8().await? != 0;
    let limit = if fine { max_response } else { MAX_ERROR_BYTES };
    Ok(match (fine, read_block(stream, limit, share).await?) {
        (true, Ok(response)) => Ok(response),
        (true, Err(refused)) => Err(format!("the response {refused}")),
        (false, Ok(text)) => Err(String::from_utf8_lossy(&text).into_owned()),
        (false, Err(refused)) => Err(format!("the server failed, and the text of it {refused}")),
    })
}

/// Why what is behind a length is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("has {bytes} bytes; allowed: {limit}")]
    TooLong { bytes: usize, limit: usize },
    #[error(
        "finds no room beside those of other connections; {read} of its {bytes} bytes were read"
    )]
    NoRoom { bytes: usize, read: usize },
}

/// What is behind a length; holds only what has arrived.
pub(super) async fn read_block(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
    share: &mut Share,
) -> io::Result<Result<Bytes, Refused>> {
    let length = stream.read_u32_le().await? as usize;
    if length > limit {
        return Ok(Err(Refused::TooLong { bytes: length, limit }));
    }
    let (mut bytes, mut stream) = (Vec::new(), stream.take(length as u64));
    while bytes.len() < length {
        if bytes.len() == bytes.capacity() {
            let room = length.min(FREE_BYTES.max(2 * bytes.len()));
            if !share.grow_to(room) {
                return Ok(Err(Refused::NoRoom { bytes: length, read: bytes.len() }));
            }
            bytes.reserve_exact(room - bytes.len());
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Ok(bytes.into()))
}

/// `first`, the length of `bytes`, and `bytes`.
async fn write_block(
    stream: &mut (impl AsyncWrite + Unpin),
    first: Option<u8>,
    bytes: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut all = Vec::with_capacity(5 + bytes.len());
    all.extend(first);
    all.extend_from_slice(&length.to_le_bytes());
    all.extend_from_slice(bytes);
    stream.write_all(&all).await
}

/// A request of a local client, and where its outcome goes.
pub(super) struct Asked {
    pub request: Bytes,
    pub outcome: oneshot::Sender<Outcome>,
    /// Held until the request has been handed on and answered.
    pub share: Arc<Share>,
}

/// A local client of a service that we serve.
pub(super) struct Client {
    pub stream: TcpStream,
    /// The header that answers the client's.
    pub reply: Vec<u8>,
    /// It calls more than once.
    pub persistent: bool,
    /// Largest request, in bytes.
    pub max_request: usize,
    /// Where the requests of all clients have to fit.
    pub room: Arc<Room>,
    /// At the door and at the service; between its calls they may go to another client.
    pub seats: [Seat; 2],
    /// Closed when the service is not served any more.
    pub served: watch::Receiver<()>,
}

impl Client {
    /// Answers a probe.
    pub async fn tell(mut self) {
        self.keep_seats();
        // Whether it heard does not matter.
        let _ = timeout(TRANSFER_TIMEOUT, self.stream.write_all(&self.reply)).await;
    }

    fn keep_seats(&self) {
        self.seats.iter().for_each(Seat::keep);
    }

    /// Passes its requests on and its outcomes back, until either side ends it.
    pub async fn serve(mut self, requests: mpsc::Sender<Asked>) {
        let mut sent = timeout(TRANSFER_TIMEOUT, self.stream.write_all(&self.reply)).await;
        while matches!(sent, Ok(Ok(()))) {
            let mut share = self.room.share();
            let Some(request) = self.request(&mut share).await else { return };
            let (outcome, more) = match request {
                Err(refused) => (Err(format!("the request {refused}")), false),
                Ok(request) => match self.ask(&requests, request, share).await {
                    Some(outcome) => (outcome, self.persistent),
                    None => return,
                },
            };
            sent = timeout(TRANSFER_TIMEOUT, write_outcome(&mut self.stream, outcome)).await;
            self.seats.iter().for_each(Seat::heard);
            if !more {
                return;
            }
        }
    }

    /// `None` if there is none any more.
    async fn request(&mut self, share: &mut Share) -> Option<Result<Bytes, Refused>> {
        let [door, service] = &self.seats;
        let request = tokio::select! {
            read = next_request(&mut self.stream, self.persistent, self.max_request, share) => {
                read.ok()?
            }
            _ = self.served.changed() => return None,
            () = door.lost() => return None,
            () = service.lost() => return None,
        };
        self.keep_seats();
        Some(request)
    }

    /// `None` if the client leaves before its outcome comes.
    async fn ask(
        &mut self,
        requests: &mpsc::Sender<Asked>,
        request: Bytes,
        share: Share,
    ) -> Option<Outcome> {
        let (outcome, comes) = oneshot::channel();
        let share = Arc::new(share);
        requests.send(Asked { request, outcome, share: share.clone() }).await.ok()?;
        let over = || Err("it is not served here any more".into());
        let outcome = tokio::select! {
            outcome = comes => Some(outcome.unwrap_or_else(|_| over())),
            _ = self.served.changed() => Some(over()),
            () = closed(&self.stream) => None,
        };
        drop(share);
        outcome
    }
}

/// One that calls several times may take its time before each; what is begun is to be finished.
async fn next_request(
    stream: &mut TcpStream,
    persistent: bool,
    limit: usize,
    share: &mut Share,
) -> io::Result<Result<Bytes, Refused>> {
    if persistent && stream.peek(&mut [0]).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match timeout(TRANSFER_TIMEOUT, read_block(stream, limit, share)).await {
        Ok(read) => read,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn closed(stream: &TcpStream) {
    if let Ok(1..) = stream.peek(&mut [0]).await {
        // The next request: it waits until this one is answered.
        pending::<()>().await;
    }
}

async fn write_outcome(stream: &mut TcpStream, outcome: Outcome) -> io::Result<()> {
    match outcome {
        Ok(response) => write_block(stream, Some(1), &response).await,
        Err(text) => {
            let text = &text.as_bytes()[..text.len().min(MAX_ERROR_BYTES)];
            write_block(stream, Some(0), text).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn share() -> Share {
        Room::new(1 << 20, 0).share()
    }

    #[test]
    fn what_finds_no_room_beside_others_is_refused_and_takes_none() {
        let room = Room::new(100_000, 0);
        let mut wire = Vec::new();
        run(write_block(&mut wire, None, &[7; 80_000])).unwrap();
        let read =
            |share: &mut Share| run(read_block(&mut wire.as_slice(), 80_000, share)).unwrap();
        let (mut one, mut two) = (room.share(), room.share());
        assert_eq!(read(&mut one).unwrap().len(), 80_000);
        let refused = read(&mut two).unwrap_err();
        assert!(matches!(refused, Refused::NoRoom { bytes: 80_000, read: 1.. }), "{refused}");
        drop((one, two));
        assert!(read(&mut room.share()).is_ok());
        let small = [&FREE_BYTES.to_le_bytes()[..4], &[1; FREE_BYTES]].concat();
        let mut full = room.share();
        assert!(full.grow_to(100_000 + FREE_BYTES));
        assert!(run(read_block(&mut small.as_slice(), 80_000, &mut room.share())).unwrap().is_ok());
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn outcomes_are_read_as_ros_documents_them() {
        let read = |mut bytes: &[u8]| run(read_outcome(&mut bytes, 4, &mut share()));
        assert_eq!(read(&[1, 2, 0, 0, 0, 7, 8]).unwrap(), Ok(Bytes::from_static(&[7, 8])));
        assert_eq!(read(&[0, 2, 0, 0, 0, b'n', b'o']).unwrap(), Err("no".into()));
        let long = read(&[1, 5, 0, 0, 0]).unwrap().unwrap_err();
        assert!(long.contains("5 bytes; allowed: 4"), "{long}");
        let long = read(&[0, 0, 0, 1, 0]).unwrap().unwrap_err();
        assert!(long.contains("65536 bytes"), "{long}");
        for cut in [&[][..], &[1], &[1, 2, 0, 0, 0, 7], &[0, 1, 0]] {
            assert_eq!(read(cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = run(read_outcome(&mut bytes.as_slice(), 100, &mut share()));
            let _ = run(read_block(&mut bytes.as_slice(), 100, &mut share()));
        }

        #[test]
        fn what_is_written_is_read(bytes: Vec<u8>, first in 0..2u8) {
            let mut wire = Vec::new();
            run(write_block(&mut wire, Some(first), &bytes)).unwrap();
            let outcome = run(read_outcome(&mut wire.as_slice(), bytes.len(), &mut share())).unwrap();
            prop_assert_eq!(outcome.is_ok(), first == 1);
            if let Ok(response) = outcome {
                prop_assert_eq!(response, bytes);
            }
        }
    }
}
