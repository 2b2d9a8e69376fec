// SPDX-License-Identifier: Apache-2.0
//! One service call, as client and as server (<https://wiki.ros.org/ROS/TCPROS>). After the headers,
//! the client sends a request. The server sends a byte that announces success or failure, then the
//! response or the text of an error. A length precedes the request, the response and the text.

use super::byte_budget::{ByteBudget, FREE_BYTES, Reservation};
use super::connection::{
    ConnectError, HostPort, TypeVersion, open_service, type_version, unknown_type_error,
};
use super::probed::ProbeResult;
use super::probes::Prober;
use super::slots::Slot;
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

/// Longest text of an error that is read or sent, in bytes.
const MAX_ERROR_BYTES: usize = 16 * 1024;
/// Time limit of a client to read our header or a response, or to finish a request.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a server is looked up again.
const RETRY: Duration = Duration::from_millis(200);

pub(super) struct ServiceCall<'a> {
    pub service: &'a str,
    pub md5: &'a str,
    pub request: Bytes,
    pub max_response: usize,
    pub time_limit: Duration,
}

impl Prober {
    pub async fn probe_service(&self, service: &str, is_retry: bool) -> ProbeResult<TypeVersion> {
        let probe = async {
            let (to, _, version) = self.connect_to_server(service, "*", true).await?;
            version.ok_or_else(|| unknown_type_error(&to))
        };
        ProbeResult::run(is_retry, probe).await
    }

    /// Whether nothing listens where the master lists a service: the master does not notice that a
    /// server was killed.
    pub async fn has_server_ended(&self, service: &str) -> bool {
        matches!(self.probe_service(service, false).await, ProbeResult::Ended(_))
    }

    /// Looks up the server and exchanges headers with it.
    async fn connect_to_server(
        &self,
        service: &str,
        md5: &str,
        is_probe: bool,
    ) -> Result<(HostPort, TcpStream, Option<TypeVersion>), ConnectError> {
        let uri = self.master.lookup_service(service).await?;
        let invalid = || CallError::Uri(uri.clone());
        let address = uri.strip_prefix("rosrpc://").ok_or_else(invalid)?;
        let Endpoint { host, port, .. } =
            Endpoint::parse(&format!("http://{address}")).map_err(|_| invalid())?;
        let to = HostPort { host, port };
        let ours = self.identity.service_request(service, md5, is_probe);
        let (stream, theirs) = open_service(&to, &ours).await?;
        Ok((to, stream, type_version(&theirs)))
    }

    /// Calls once. An absent server is looked up again until the request is sent; after that a
    /// broken connection is an error.
    pub async fn call_service(&self, call: ServiceCall<'_>, budget: &mut Reservation) -> Outcome {
        let ServiceCall { service, md5, request, max_response, time_limit } = call;
        let (deadline, seconds) = (Instant::now() + time_limit, time_limit.as_secs_f64());
        let mut trouble = String::new();
        let mut stream = loop {
            match timeout_at(deadline, self.connect_to_server(service, md5, false)).await {
                Ok(Ok((_, stream, _))) => break stream,
                Ok(Err(error @ (ConnectError::Refused(..) | ConnectError::Tautline(_)))) => {
                    return Err(error.to_string());
                }
                Ok(Err(error)) => trouble = format!(": {error}"),
                Err(_) => {
                    return Err(format!("no server of {service} within {seconds} s{trouble}"));
                }
            }
            let _ = timeout_at(deadline, sleep(RETRY)).await;
        };
        let exchange = async {
            write_block(&mut stream, None, &request).await?;
            read_outcome(&mut stream, max_response, budget).await
        };
        match timeout_at(deadline, exchange).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                Err(format!("the server of {service} left before it answered ({error})"))
            }
            Err(_) => Err(format!("no answer from {service} within {seconds} s")),
        }
    }
}

pub(super) async fn read_outcome(
    stream: &mut (impl AsyncRead + Unpin),
    max_response: usize,
    budget: &mut Reservation,
) -> io::Result<Outcome> {
    let is_response = stream.read_u8().await? != 0;
    let limit = if is_response { max_response } else { MAX_ERROR_BYTES };
    Ok(match (is_response, read_block(stream, limit, budget).await?) {
        (true, Ok(response)) => Ok(response),
        (true, Err(rejected)) => Err(format!("the response {rejected} (limits.max_message)")),
        (false, Ok(text)) => Err(String::from_utf8_lossy(&text).into_owned()),
        (false, Err(rejected)) => Err(format!("the server failed; its error text {rejected}")),
    })
}

/// Why a block is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RejectedBlock {
    #[error("has {bytes} bytes; allowed: {limit}")]
    TooLong { bytes: usize, limit: usize },
    #[error("exceeds the limit of all connections together; {read} of its {bytes} bytes were read")]
    OverBudget { bytes: usize, read: usize },
}

/// Reads a length and that many bytes; buffers only received bytes.
pub(super) async fn read_block(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
    budget: &mut Reservation,
) -> io::Result<Result<Bytes, RejectedBlock>> {
    let length = stream.read_u32_le().await? as usize;
    if length > limit {
        return Ok(Err(RejectedBlock::TooLong { bytes: length, limit }));
    }
    let (mut bytes, mut stream) = (Vec::new(), stream.take(length as u64));
    while bytes.len() < length {
        if bytes.len() == bytes.capacity() {
            let capacity = length.min(FREE_BYTES.max(2 * bytes.len()));
            if !budget.grow_to(capacity) {
                return Ok(Err(RejectedBlock::OverBudget { bytes: length, read: bytes.len() }));
            }
            bytes.reserve_exact(capacity - bytes.len());
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Ok(bytes.into()))
}

/// Writes `first`, the length of `bytes`, and `bytes`.
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

pub(super) struct ClientRequest {
    pub request: Bytes,
    pub outcome: oneshot::Sender<Outcome>,
    /// Held until the request has been forwarded and answered.
    pub reservation: Arc<Reservation>,
}

/// A local client of a service that we serve.
pub(super) struct Client {
    pub stream: TcpStream,
    /// Our reply to the client's header.
    pub reply: Vec<u8>,
    /// Whether the client may call more than once.
    pub persistent: bool,
    /// Largest request, in bytes.
    pub max_request: usize,
    /// The budget for the requests of all clients.
    pub budget: Arc<ByteBudget>,
    /// The slots of the connection and of the service; another client can evict an idle one.
    pub slots: [Slot; 2],
    /// Closed when the service is no longer served.
    pub served: watch::Receiver<()>,
}

impl Client {
    pub async fn answer_probe(mut self) {
        self.pin_slots();
        // A failure to read the reply has no consequence.
        let _ = timeout(TRANSFER_TIMEOUT, self.stream.write_all(&self.reply)).await;
    }

    fn pin_slots(&self) {
        self.slots.iter().for_each(Slot::pin);
    }

    /// Forwards requests and writes their outcomes until either side ends the connection.
    pub async fn serve(mut self, requests: mpsc::Sender<ClientRequest>) {
        let mut sent = timeout(TRANSFER_TIMEOUT, self.stream.write_all(&self.reply)).await;
        while matches!(sent, Ok(Ok(()))) {
            let mut reservation = self.budget.reservation();
            let Some(request) = self.request(&mut reservation).await else { return };
            let (outcome, has_more) = match request {
                Err(rejected) => {
                    (Err(format!("the request {rejected} (limits.max_message)")), false)
                }
                Ok(request) => match self.forward(&requests, request, reservation).await {
                    Some(outcome) => (outcome, self.persistent),
                    None => return,
                },
            };
            sent = timeout(TRANSFER_TIMEOUT, write_outcome(&mut self.stream, outcome)).await;
            self.slots.iter().for_each(Slot::touch);
            if !has_more {
                return;
            }
        }
    }

    /// The next request; `None`: the connection ends.
    async fn request(&mut self, budget: &mut Reservation) -> Option<Result<Bytes, RejectedBlock>> {
        let [connection, service] = &self.slots;
        let request = tokio::select! {
            read = next_request(&mut self.stream, self.persistent, self.max_request, budget) => {
                read.ok()?
            }
            _ = self.served.changed() => return None,
            () = connection.wait_for_eviction() => return None,
            () = service.wait_for_eviction() => return None,
        };
        self.pin_slots();
        Some(request)
    }

    /// The outcome of a request; `None` if the client leaves first.
    async fn forward(
        &mut self,
        requests: &mpsc::Sender<ClientRequest>,
        request: Bytes,
        reservation: Reservation,
    ) -> Option<Outcome> {
        let (outcome, receiver) = oneshot::channel();
        let reservation = Arc::new(reservation);
        let request = ClientRequest { request, outcome, reservation: reservation.clone() };
        requests.send(request).await.ok()?;
        let ended = || Err("it is not served here any more".into());
        let outcome = tokio::select! {
            outcome = receiver => Some(outcome.unwrap_or_else(|_| ended())),
            _ = self.served.changed() => Some(ended()),
            () = wait_for_close(&self.stream) => None,
        };
        drop(reservation);
        outcome
    }
}

/// A persistent client may pause before each request, but has to finish a request in time.
async fn next_request(
    stream: &mut TcpStream,
    persistent: bool,
    limit: usize,
    budget: &mut Reservation,
) -> io::Result<Result<Bytes, RejectedBlock>> {
    if persistent && stream.peek(&mut [0]).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match timeout(TRANSFER_TIMEOUT, read_block(stream, limit, budget)).await {
        Ok(read) => read,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn wait_for_close(stream: &TcpStream) {
    if let Ok(1..) = stream.peek(&mut [0]).await {
        // The next request waits for the current one.
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

    fn reservation() -> Reservation {
        ByteBudget::new(1 << 20, 0).reservation()
    }

    #[test]
    fn a_reservation_above_the_limit_is_refused_without_effect() {
        let budget = ByteBudget::new(100_000, 0);
        let mut wire = Vec::new();
        run(write_block(&mut wire, None, &[7; 80_000])).unwrap();
        let read = |reservation: &mut Reservation| {
            run(read_block(&mut wire.as_slice(), 80_000, reservation)).unwrap()
        };
        let (mut one, mut two) = (budget.reservation(), budget.reservation());
        assert_eq!(read(&mut one).unwrap().len(), 80_000);
        let rejected = read(&mut two).unwrap_err();
        assert!(
            matches!(rejected, RejectedBlock::OverBudget { bytes: 80_000, read: 1.. }),
            "{rejected}"
        );
        drop((one, two));
        assert!(read(&mut budget.reservation()).is_ok());
        let small = [&FREE_BYTES.to_le_bytes()[..4], &[1; FREE_BYTES]].concat();
        let mut full = budget.reservation();
        assert!(full.grow_to(100_000 + FREE_BYTES));
        assert!(
            run(read_block(&mut small.as_slice(), 80_000, &mut budget.reservation()))
                .unwrap()
                .is_ok()
        );
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn outcomes_are_read_as_ros_documents_them() {
        let read = |mut bytes: &[u8]| run(read_outcome(&mut bytes, 4, &mut reservation()));
        assert_eq!(read(&[1, 2, 0, 0, 0, 7, 8]).unwrap(), Ok(Bytes::from_static(&[7, 8])));
        assert_eq!(read(&[0, 2, 0, 0, 0, b'n', b'o']).unwrap(), Err("no".into()));
        let long = read(&[1, 5, 0, 0, 0]).unwrap().unwrap_err();
        assert!(long.contains("5 bytes; allowed: 4 (limits.max_message)"), "{long}");
        let long = read(&[0, 0, 0, 1, 0]).unwrap().unwrap_err();
        assert!(long.contains("65536 bytes"), "{long}");
        for cut in [&[][..], &[1], &[1, 2, 0, 0, 0, 7], &[0, 1, 0]] {
            assert_eq!(read(cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_rejected(bytes: Vec<u8>) {
            let _ = run(read_outcome(&mut bytes.as_slice(), 100, &mut reservation()));
            let _ = run(read_block(&mut bytes.as_slice(), 100, &mut reservation()));
        }

        #[test]
        fn written_outcomes_are_read_back(bytes: Vec<u8>, first in 0..2u8) {
            let mut wire = Vec::new();
            run(write_block(&mut wire, Some(first), &bytes)).unwrap();
            let outcome = run(read_outcome(&mut wire.as_slice(), bytes.len(), &mut reservation())).unwrap();
            prop_assert_eq!(outcome.is_ok(), first == 1);
            if let Ok(response) = outcome {
                prop_assert_eq!(response, bytes);
            }
        }
    }
}
