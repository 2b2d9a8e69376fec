// SPDX-License-Identifier: Apache-2.0
//! Reading a topic: one reader per publisher, each its own task.

use super::Note;
use super::Shared;
use super::connection::{ConnectError, Description, Identity};
use super::room::{Room, Share};
use super::shown;
use super::turns::Turn;
use crate::rejections::Reason;
use crate::sources::SourceNumbers;
use crate::{Event, Events, Source};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufRead, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Publishers of one topic that are read; further ones are left out.
pub(super) const MAX_PUBLISHERS: usize = 256;
/// Publishers of all topics that are read; further ones are left out.
pub(super) const MAX_READERS: usize = 4096;
/// Longest URI of a publisher; one that is longer is left out.
const MAX_URI_BYTES: usize = 512;
/// What is read ahead of one connection, so that a small message costs one read.
const READ_BUFFER_BYTES: usize = 16 * 1024;
/// Bytes of messages of all local publishers that have not arrived whole, beside a little for
/// each. A publisher beyond that is connected to anew: twenty cameras at once do not reach it.
pub(super) const BEGUN_BYTES: usize = 128 << 20;
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// One topic that is read.
pub(super) struct Subscription {
    pub serial: u64,
    /// What is read; empty until the topic is offered.
    pub type_name: String,
    pub md5: String,
    /// Whether this master has our registration.
    pub registered: bool,
    /// Whether a registration is under way.
    pub registering: bool,
    /// When it is to be tried at the master.
    pub turn: Turn,
    /// What the master last said of the topic's publishers.
    pub listed: BTreeSet<String>,
    /// Publishers that must not be read: other Tautline nodes, other types.
    pub foreign: BTreeSet<String>,
    pub readers: BTreeMap<String, Reader>,
    sources: Arc<Mutex<SourceNumbers>>,
}

/// The reader of one publisher; ends when dropped.
pub(super) struct Reader {
    pub serial: u64,
    pub connected: bool,
    listed: Arc<AtomicBool>,
    task: JoinHandle<()>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    /// A publisher that is not listed any more is read on while its connection lasts.
    pub fn set_listed(&self, listed: bool) {
        self.listed.store(listed, Ordering::Relaxed);
    }
}

/// What a reader tells the gateway.
#[derive(Debug)]
pub(super) enum ReaderNote {
    Connected(Description),
    Lost,
    /// The reader ended by itself, for good if the publisher is foreign.
    Ended {
        foreign: Option<Foreign>,
    },
}

/// Why a publisher must not be read.
#[derive(Debug)]
pub(super) enum Foreign {
    /// It is a Tautline node, too.
    Tautline,
    /// Its type is not the topic's; for a person.
    OtherType(String),
}

/// What all readers of a gateway share.
#[derive(Clone)]
pub(super) struct ReaderContext {
    pub identity: Identity,
    pub max_message: usize,
    pub events: Arc<dyn Events>,
    pub shared: Arc<Shared>,
    pub notes: mpsc::Sender<Note>,
    /// Where all messages that have only begun to arrive have to fit.
    pub begun: Arc<Room>,
}

impl Subscription {
    pub fn new(serial: u64) -> Self {
        Self {
            serial,
            type_name: String::new(),
            md5: String::new(),
            registered: false,
            registering: false,
            turn: Turn::new(Instant::now()),
            listed: BTreeSet::new(),
            foreign: BTreeSet::new(),
            readers: BTreeMap::new(),
            sources: Arc::default(),
        }
    }

    /// Whether it is to be registered when its turn comes.
    pub fn waits(&self) -> bool {
        !self.registered && !self.registering
    }

    /// Takes a list of the topic's publishers, as the master tells it or who says to be the master.
    pub fn list(&mut self, uris: Vec<String>) {
        let short = uris.into_iter().filter(|uri| uri.len() <= MAX_URI_BYTES);
        self.listed = short.take(MAX_PUBLISHERS).collect();
    }

    /// Starts to read the publisher at `uri`.
    pub fn start_reader(
        &mut self,
        topic: &str,
        uri: &str,
        serial: u64,
        (context, place): (ReaderContext, OwnedSemaphorePermit),
    ) {
        let listed = Arc::new(AtomicBool::new(true));
        let run = ReaderRun {
            topic: topic.into(),
            uri: uri.into(),
            type_name: self.type_name.clone(),
            md5: self.md5.clone(),
            serial,
            listed: listed.clone(),
            sources: self.sources.clone(),
            context,
        };
        let task = tokio::spawn(run.run());
        let reader = Reader { serial, connected: false, listed, task, _place: place };
        self.readers.insert(uri.into(), reader);
    }

    /// Ends all readers without telling that their sources left.
    pub fn silence(&mut self) {
        lock(&self.sources).silent = true;
        self.readers.clear();
    }
}

/// Holds a source number; says [`Event::SourceGone`] when the last holder lets go.
struct SourceLease {
    source: Source,
    topic: String,
    sources: Arc<Mutex<SourceNumbers>>,
    events: Arc<dyn Events>,
}

impl Drop for SourceLease {
    fn drop(&mut self) {
        if lock(&self.sources).release(self.source) {
            self.events.emit(Event::SourceGone { topic: self.topic.clone(), source: self.source });
        }
    }
}

fn lock(sources: &Mutex<SourceNumbers>) -> std::sync::MutexGuard<'_, SourceNumbers> {
    sources.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ReaderRun {
    topic: String,
    uri: String,
    type_name: String,
    md5: String,
    serial: u64,
    listed: Arc<AtomicBool>,
    sources: Arc<Mutex<SourceNumbers>>,
    context: ReaderContext,
}

impl ReaderRun {
    /// Connects and reads until the publisher is neither connected nor listed.
    async fn run(self) {
        let mut lease = None;
        let mut pause = FIRST_RETRY;
        let foreign = loop {
            match self.context.identity.open(&self.uri, &self.topic).await {
                Ok((stream, found)) => {
                    let mismatch = self.mismatch(&found);
                    self.tell(ReaderNote::Connected(found)).await;
                    if mismatch.is_some() {
                        break mismatch.map(Foreign::OtherType);
                    }
                    let source = lease.get_or_insert_with(|| self.take_source()).source;
                    let ended = self.read_messages(stream, source).await;
                    tracing::debug!(topic = self.topic, uri = self.uri, %ended, "publisher lost");
                    self.tell(ReaderNote::Lost).await;
                    pause = FIRST_RETRY;
                }
                Err(ConnectError::Tautline(_)) => break Some(Foreign::Tautline),
                Err(error) => {
                    tracing::debug!(topic = self.topic, uri = self.uri, %error, "publisher");
                    lease = None;
                }
            }
            if !self.listed.load(Ordering::Relaxed) {
                break None;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        };
        drop(lease);
        self.tell(ReaderNote::Ended { foreign }).await;
    }

    fn take_source(&self) -> SourceLease {
        SourceLease {
            source: lock(&self.sources).take(),
            topic: self.topic.clone(),
            sources: self.sources.clone(),
            events: self.context.events.clone(),
        }
    }

    fn mismatch(&self, found: &Description) -> Option<String> {
        (!found.same_type(&self.type_name, &self.md5)).then(|| {
            format!(
                "the publisher at {} has type {} (md5 {}), the topic is read as {} (md5 {}); \
                 that publisher is left out",
                shown(&self.uri),
                shown(&found.type_name),
                shown(&found.md5),
                shown(&self.type_name),
                self.md5
            )
        })
    }

    async fn tell(&self, note: ReaderNote) {
        let (topic, uri, serial) = (self.topic.clone(), self.uri.clone(), self.serial);
        // Fails only while the gateway stops.
        let _ = self.context.notes.send(Note::Reader { topic, uri, serial, note }).await;
    }

    /// Reads until the connection breaks; gives the reason.
    async fn read_messages(&self, stream: TcpStream, source: Source) -> io::Error {
        let mut reader = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
        let mut oversize = 0u64;
        loop {
            let share = self.context.begun.share();
            match read_message(&mut reader, self.context.max_message, share).await {
                Ok(Incoming::Message(payload)) => self.context.events.emit(Event::Message {
                    topic: self.topic.clone(),
                    source,
                    payload,
                    received: Instant::now(),
                }),
                Ok(Incoming::Oversize(bytes)) => {
                    oversize += 1;
                    self.context.shared.rejections.add(&self.topic, Reason::TooLarge);
                    self.refuse_oversize(bytes, oversize);
                }
                Err(error) => return error,
            }
        }
    }

    /// Told at the 1st, 2nd, 4th, 8th ... so that a stream of them is no stream of events.
    fn refuse_oversize(&self, bytes: usize, count: u64) {
        if count.is_power_of_two() {
            let reason = format!(
                "a message of {bytes} bytes from {} is larger than the maximum of {} bytes and \
                 was left out ({count} so far)",
                shown(&self.uri),
                self.context.max_message
            );
            self.context.events.emit(Event::Refused { topic: self.topic.clone(), reason });
        }
    }
}

pub(super) enum Incoming {
    Message(Bytes),
    /// Read past; this many bytes.
    Oversize(usize),
}

pub(super) async fn read_message(
    reader: &mut (impl AsyncBufRead + Unpin),
    max_message: usize,
    mut share: Share,
) -> io::Result<Incoming> {
    let length = reader.read_u32_le().await? as usize;
    if length > max_message {
        let mut rest = (&mut *reader).take(length as u64);
        let skipped = tokio::io::copy_buf(&mut rest, &mut tokio::io::sink()).await?;
        if skipped < length as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        return Ok(Incoming::Oversize(length));
    }
    // Its pages cost nothing until bytes arrive in them.
    let mut payload = BytesMut::with_capacity(length);
    let mut rest = reader.take(length as u64);
    while payload.len() < length {
        if rest.read_buf(&mut payload).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !share.grow_to(payload.len()) {
            return Err(io::Error::other("too many messages of local publishers have only begun"));
        }
    }
    Ok(Incoming::Message(payload.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_publishers_is_bounded_in_number_and_length() {
        let mut subscription = Subscription::new(1);
        let long = format!("http://a:1/{}", "x".repeat(200_000));
        let many = (0..1000).map(|number| format!("http://a:{number}/"));
        subscription.list(std::iter::once(long).chain(many).collect());
        assert_eq!(subscription.listed.len(), MAX_PUBLISHERS);
        assert!(subscription.listed.iter().all(|uri| uri.len() <= MAX_URI_BYTES));
    }
}
