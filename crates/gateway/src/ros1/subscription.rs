// SPDX-License-Identifier: Apache-2.0
//! Subscriptions: one reader per publisher, each in its own task.

use super::byte_budget::{ByteBudget, Reservation};
use super::connection::{ConnectError, Description, Identity, OpenConnection, TypeVersion};
use super::latched::PublisherHistory;
use super::note::{Exclusion, Note, ReaderNote};
use super::shared_connection::{NodePublishers, SharedConnection, SlotId};
use super::shown::for_logs;
use crate::lock::lock;
use crate::rejections::Reason;
use crate::shared::Shared;
use crate::sources::SourceNumbers;
use crate::{Event, Events, Origin, Source};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Maximum number of publishers of one topic that are read; further publishers are ignored.
pub(super) const MAX_PUBLISHERS: usize = 256;
/// Maximum number of publishers of all topics that are read; further publishers are ignored.
pub(super) const MAX_READERS: usize = 4096;
/// Longest URI of a publisher; longer ones are ignored.
const MAX_URI_BYTES: usize = 512;
/// Read buffer of one connection, so that a small message costs one read.
const READ_BUFFER_BYTES: usize = 16 * 1024;
/// Maximum total bytes of incomplete messages from local publishers, beyond a small free allowance per
/// publisher. A connection that would exceed this is reopened. Twenty cameras together need less.
pub(super) const INCOMPLETE_BYTES: usize = 128 << 20;
const FIRST_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(10);

pub(super) struct Subscription {
    /// The type that is read; empty until the topic is offered.
    pub version: TypeVersion,
    /// The topic's publishers, as the master last listed them.
    pub listed: BTreeSet<String>,
    /// Publishers that must not be read: Tautline nodes, and those with another type.
    pub excluded: BTreeSet<String>,
    pub readers: BTreeMap<String, Reader>,
    sources: Arc<Mutex<SourceNumbers>>,
}

/// The reader of one publisher; ends when dropped.
pub(super) struct Reader {
    pub serial: u64,
    pub connected: bool,
    listed: Arc<AtomicBool>,
    task: JoinHandle<()>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    /// Sets whether the publisher is listed. An unlisted publisher is read only while its connection
    /// lasts.
    pub fn set_listed(&self, listed: bool) {
        self.listed.store(listed, Ordering::Relaxed);
    }
}

#[derive(Clone)]
pub(super) struct ReaderContext {
    pub identity: Identity,
    pub max_message: usize,
    pub events: Arc<dyn Events>,
    pub shared: Arc<Shared>,
    pub notes: mpsc::Sender<Note>,
    /// The budget of all incomplete messages.
    pub incomplete: Arc<ByteBudget>,
}

impl Subscription {
    pub fn new() -> Self {
        Self {
            version: TypeVersion::default(),
            listed: BTreeSet::new(),
            excluded: BTreeSet::new(),
            readers: BTreeMap::new(),
            sources: Arc::default(),
        }
    }

    /// Sets the topic's publishers, from the master or a program that claims to be the master.
    pub fn set_listed(&mut self, uris: Vec<String>) {
        let short = uris.into_iter().filter(|uri| uri.len() <= MAX_URI_BYTES);
        self.listed = short.take(MAX_PUBLISHERS).collect();
    }

    pub fn start_reader(
        &mut self,
        topic: &str,
        uri: &str,
        serial: u64,
        permit: OwnedSemaphorePermit,
        context: ReaderContext,
    ) {
        let listed = Arc::new(AtomicBool::new(true));
        let task = ReaderTask {
            topic: topic.into(),
            uri: uri.into(),
            version: self.version.clone(),
            serial,
            listed: listed.clone(),
            sources: self.sources.clone(),
            context,
        };
        let task = tokio::spawn(task.run());
        let reader = Reader { serial, connected: false, listed, task, _permit: permit };
        self.readers.insert(uri.into(), reader);
    }

    /// Ends all readers without events about their sources.
    pub fn end_silently(&mut self) {
        lock(&self.sources).silent = true;
        self.readers.clear();
    }
}

/// Holds a source number; emits [`Event::SourceGone`] when its last holder is dropped.
struct SourceLease {
    source: Source,
    topic: String,
    sources: Arc<Mutex<SourceNumbers>>,
    events: Arc<dyn Events>,
}

impl SourceLease {
    /// Reports that nothing is kept of the source any more.
    fn forget(&self) {
        self.events.emit(Event::SourceGone { topic: self.topic.clone(), source: self.source });
    }
}

impl Drop for SourceLease {
    fn drop(&mut self) {
        if lock(&self.sources).release(self.source) {
            self.forget();
        }
    }
}

struct ReaderTask {
    topic: String,
    uri: String,
    version: TypeVersion,
    serial: u64,
    listed: Arc<AtomicBool>,
    sources: Arc<Mutex<SourceNumbers>>,
    context: ReaderContext,
}

impl ReaderTask {
    /// Connects and reads until the publisher is neither connected nor listed.
    async fn run(self) {
        let mut node: Option<NodePublishers<SourceLease>> = None;
        let mut pause = FIRST_RETRY;
        let exclusion = loop {
            match self.context.identity.open(&self.uri, &self.topic).await {
                Ok(opened) => {
                    let mismatch = self.type_mismatch(&opened.found.version);
                    self.report(ReaderNote::Connected(opened.found.clone())).await;
                    if mismatch.is_some() {
                        break mismatch.map(Exclusion::OtherType);
                    }
                    let (latching, is_roscpp) = (opened.found.latching, opened.is_roscpp);
                    let forget = SourceLease::forget;
                    if let Some(known) = &mut node {
                        known.on_reconnected(latching, is_roscpp, forget);
                    }
                    let new = || NodePublishers::new(self.take_source(), latching, Instant::now());
                    let error = self.read_messages(opened, node.get_or_insert_with(new)).await;
                    tracing::debug!(topic = self.topic, uri = self.uri, %error, "publisher lost");
                    self.report(ReaderNote::Lost).await;
                    pause = FIRST_RETRY;
                }
                Err(ConnectError::Tautline(_)) => break Some(Exclusion::Tautline),
                Err(error) => {
                    tracing::debug!(topic = self.topic, uri = self.uri, %error, "publisher");
                    node = None;
                }
            }
            if !self.listed.load(Ordering::Relaxed) {
                break None;
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_RETRY);
        };
        drop(node);
        self.report(ReaderNote::Ended(exclusion)).await;
    }

    fn take_source(&self) -> SourceLease {
        SourceLease {
            source: lock(&self.sources).take(),
            topic: self.topic.clone(),
            sources: self.sources.clone(),
            events: self.context.events.clone(),
        }
    }

    fn type_mismatch(&self, found: &TypeVersion) -> Option<String> {
        (*found != self.version).then(|| {
            format!(
                "the publisher at {} has type {} (md5 {}), the topic is read as {} (md5 {}); \
                 that publisher is left out",
                for_logs(&self.uri),
                for_logs(&found.name),
                for_logs(&found.md5),
                for_logs(&self.version.name),
                self.version.md5
            )
        })
    }

    async fn report(&self, note: ReaderNote) {
        let (topic, uri, serial) = (self.topic.clone(), self.uri.clone(), self.serial);
        // Fails only while the gateway stops.
        let _ = self.context.notes.send(Note::Reader { topic, uri, serial, note }).await;
    }

    /// Reads until the connection breaks; returns the reason.
    async fn read_messages(
        &self,
        opened: OpenConnection,
        node: &mut NodePublishers<SourceLease>,
    ) -> io::Error {
        let OpenConnection { stream, mut found, to, is_roscpp } = opened;
        let mut reader = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
        let publisher = PublisherHistory::new(&self.uri, &found);
        let (context, topic) = (&self.context, self.topic.as_str());
        let shared = SharedConnection { context, topic, to, publisher: &publisher, is_roscpp };
        let mut last_received = Instant::now();
        let mut oversized = 0u64;
        loop {
            let take = || self.take_source();
            if let Some(pause) = node.check_pause(Instant::now())
                && timeout(pause, reader.fill_buf()).await.is_err()
            {
                let missed = shared.check(node, &mut reader, (take, SourceLease::forget)).await;
                self.report_latching(node, &mut found).await;
                for (slot, payload) in missed {
                    let origin = publisher.origin_of_missed(&payload, last_received.elapsed());
                    self.emit(node.lease(slot), payload, origin, Instant::now());
                }
                continue;
            }
            let reservation = self.context.incomplete.reservation();
            match read_message(&mut reader, self.context.max_message, reservation).await {
                Ok(Incoming::Message(payload)) => {
                    last_received = Instant::now();
                    let slot = shared.identify_publisher(node, &payload, &mut reader, take).await;
                    self.report_latching(node, &mut found).await;
                    let mut origin = Origin::default();
                    if slot != SlotId::Volatile {
                        origin = publisher.origin(&payload, last_received, SystemTime::now());
                    }
                    if let Some(kept) = origin.kept {
                        node.keep(slot, kept.identity);
                    }
                    self.emit(node.lease(slot), payload, origin, last_received);
                }
                Ok(Incoming::Oversized(bytes)) => {
                    oversized += 1;
                    self.context.shared.rejections.add(&self.topic, Reason::TooLarge);
                    self.refuse_oversized(bytes, oversized);
                }
                Err(error) => return error,
            }
        }
    }

    /// Reports a publisher that latches, once, although its header did not say so.
    async fn report_latching(
        &self,
        node: &NodePublishers<SourceLease>,
        reported: &mut Description,
    ) {
        if node.latches() && !std::mem::replace(&mut reported.latching, true) {
            self.report(ReaderNote::Connected(reported.clone())).await;
        }
    }

    fn emit(&self, lease: &SourceLease, payload: Bytes, origin: Origin, received: Instant) {
        let (topic, source) = (self.topic.clone(), lease.source);
        self.context.events.emit(Event::Message { topic, source, payload, origin, received });
    }

    /// Emits an event for the 1st, 2nd, 4th, 8th ... message, so that a stream of large messages causes
    /// few events.
    fn refuse_oversized(&self, bytes: usize, count: u64) {
        if count.is_power_of_two() {
            let reason = format!(
                "a message of {bytes} bytes from {} is larger than the maximum of {} bytes and \
                 was left out ({count} so far); set limits.max_message here and at the peers",
                for_logs(&self.uri),
                self.context.max_message
            );
            self.context.events.emit(Event::Refused { topic: self.topic.clone(), reason });
        }
    }
}

pub(super) enum Incoming {
    Message(Bytes),
    /// A message of this many bytes was skipped.
    Oversized(usize),
}

pub(super) async fn read_message(
    reader: &mut (impl AsyncBufRead + Unpin),
    max_message: usize,
    mut reservation: Reservation,
) -> io::Result<Incoming> {
    let length = reader.read_u32_le().await? as usize;
    if length > max_message {
        let mut rest = (&mut *reader).take(length as u64);
        let skipped = tokio::io::copy_buf(&mut rest, &mut tokio::io::sink()).await?;
        if skipped < length as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        return Ok(Incoming::Oversized(length));
    }
    // The memory costs nothing until bytes arrive in it.
    let mut payload = BytesMut::with_capacity(length);
    let mut rest = reader.take(length as u64);
    while payload.len() < length {
        if rest.read_buf(&mut payload).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !reservation.grow_to(payload.len()) {
            return Err(io::Error::other("too many incomplete messages of local publishers"));
        }
    }
    Ok(Incoming::Message(payload.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_publishers_is_bounded_in_number_and_length() {
        let mut subscription = Subscription::new();
        let long = format!("http://a:1/{}", "x".repeat(200_000));
        let many = (0..1000).map(|number| format!("http://a:{number}/"));
        subscription.set_listed(std::iter::once(long).chain(many).collect());
        assert_eq!(subscription.listed.len(), MAX_PUBLISHERS);
        assert!(subscription.listed.iter().all(|uri| uri.len() <= MAX_URI_BYTES));
    }
}
