// SPDX-License-Identifier: Apache-2.0
//! One call of a service, from either side (<https://wiki.ros.org/ROS/TCPROS>): after the headers
//! a request, and a byte that says whether a response or an error's text follows. Each of the
//! three is behind its length.

use super::connection::{self, ConnectError, indefinite, open_service};
use super::inquiry::Inquirer;
use super::xmlrpc::{CallError, Endpoint};
use crate::Outcome;
use bytes::Bytes;
use std::future::pending;
use std::io;
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
    pub async fn probe_service(&self, service: &str) -> Probed {
        match self.reach(service, "*", true).await {
            Ok((_, type_name, md5)) => Probed::Server { type_name, md5 },
            Err(ConnectError::Tautline(_)) => Probed::Foreign,
            Err(error) => Probed::Failed { reason: error.to_string() },
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
        max_response: usize,
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
        match timeout_at(until, exchange(&mut stream, &request, max_response)).await {
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
) -> io::Result<Outcome> {
    write_block(stream, None, request).await?;
    read_outcome(stream, max_response).await
}

pub(super) async fn read_outcome(
    stream: &mut (impl AsyncRead + Unpin),
    max_response: usize,
) -> io::Result<Outcome> {
    let fine = stream.read_u8().await? != 0;
    let limit = if fine { max_response } else { MAX_ERROR_BYTES };
    Ok(match (fine, read_block(stream, limit).await?) {
        (true, Ok(response)) => Ok(response),
        (true, Err(bytes)) => Err(format!("the response has {bytes} bytes; allowed: {limit}")),
        (false, Ok(text)) => Err(String::from_utf8_lossy(&text).into_owned()),
        (false, Err(bytes)) => {
            Err(format!("the server failed, and says so in {bytes} bytes; allowed: {limit}"))
        }
    })
}

/// What is behind a length; holds only what has arrived. `Err`: it is longer than `limit`.
pub(super) async fn read_block(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<Result<Bytes, usize>> {
    let length = stream.read_u32_le().await? as usize;
    if length > limit {
        return Ok(Err(length));
    }
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    match bytes.len() {
        all if all == length => Ok(Ok(bytes.into())),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
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
pub(super) type Asked = (Bytes, oneshot::Sender<Outcome>);

/// A local client of a service that we serve.
pub(super) struct Client {
    pub stream: TcpStream,
    /// The header that answers the client's.
    pub reply: Vec<u8>,
    /// It calls more than once.
    pub persistent: bool,
    /// Largest request, in bytes.
    pub max_request: usize,
    /// Closed when the service is not served any more.
    pub served: watch::Receiver<()>,
}

impl Client {
    /// Answers a probe.
    pub async fn tell(mut self) {
        // Whether it heard does not matter.
        let _ = timeout(TRANSFER_TIMEOUT, self.stream.write_all(&self.reply)).await;
    }

    /// Passes its requests on and its outcomes back, until either side ends it.
    pub async fn serve(self, requests: mpsc::Sender<Asked>) {
        let Self { mut stream, reply, persistent, max_request, mut served } = self;
        let mut sent = timeout(TRANSFER_TIMEOUT, stream.write_all(&reply)).await;
        while matches!(sent, Ok(Ok(()))) {
            let request = tokio::select! {
                request = next_request(&mut stream, persistent, max_request) => request,
                _ = served.changed() => return,
            };
            let (outcome, more) = match request {
                Err(_) => return,
                Ok(Err(bytes)) => {
                    (Err(format!("the request has {bytes} bytes; allowed: {max_request}")), false)
                }
                Ok(Ok(request)) => match ask(&mut stream, &requests, request, &mut served).await {
                    Some(outcome) => (outcome, persistent),
                    None => return,
                },
            };
            sent = timeout(TRANSFER_TIMEOUT, write_outcome(&mut stream, outcome)).await;
            if !more {
                return;
            }
        }
    }
}

/// One that calls several times may take its time before each; what is begun is to be finished.
async fn next_request(
    stream: &mut TcpStream,
    persistent: bool,
    limit: usize,
) -> io::Result<Result<Bytes, usize>> {
    if persistent && stream.peek(&mut [0]).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match timeout(TRANSFER_TIMEOUT, read_block(stream, limit)).await {
        Ok(read) => read,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// `None` if the client leaves before its outcome comes.
async fn ask(
    stream: &mut TcpStream,
    requests: &mpsc::Sender<Asked>,
    request: Bytes,
    served: &mut watch::Receiver<()>,
) -> Option<Outcome> {
    let (outcome, comes) = oneshot::channel();
    requests.send((request, outcome)).await.ok()?;
    let over = || Err("it is not served here any more".into());
    tokio::select! {
        outcome = comes => Some(outcome.unwrap_or_else(|_| over())),
        _ = served.changed() => Some(over()),
        () = closed(stream) => None,
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

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn outcomes_are_read_as_ros_documents_them() {
        let read = |mut bytes: &[u8]| run(read_outcome(&mut bytes, 4));
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
            let _ = run(read_outcome(&mut bytes.as_slice(), 100));
            let _ = run(read_block(&mut bytes.as_slice(), 100));
        }

        #[test]
        fn what_is_written_is_read(bytes: Vec<u8>, first in 0..2u8) {
            let mut wire = Vec::new();
            run(write_block(&mut wire, Some(first), &bytes)).unwrap();
            let outcome = run(read_outcome(&mut wire.as_slice(), bytes.len())).unwrap();
            prop_assert_eq!(outcome.is_ok(), first == 1);
            if let Ok(response) = outcome {
                prop_assert_eq!(response, bytes);
            }
        }
    }
}
