// SPDX-License-Identifier: Apache-2.0
//! Publishing a topic: one queue and one task per local subscriber, so that
//! none waits for another.

use super::Note;
use super::actor::Visitor;
use super::connection::Identity;
use super::door::{Door, Place, local, locked};
use super::header::{Header, TAUTLINE_FIELD};
use super::shown;
use super::slave::ACCEPT_PAUSE;
use super::turns::Turn;
use super::xmlrpc::tune;
use crate::sparing::Sparing;
use crate::{MAX_SOURCES, Source, Topic};
use bytes::{Buf, Bytes};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Messages that wait for one slow subscriber; the oldest give way.
pub(super) const SUBSCRIBER_QUEUE_MESSAGES: usize = 256;
/// Bytes that wait for one slow subscriber; the newest message waits whatever its size.
pub(super) const SUBSCRIBER_QUEUE_BYTES: usize = 8 * 1024 * 1024;
/// Subscribers of one topic; further ones are refused, unless one is stalled.
const MAX_SUBSCRIBERS: usize = 256;
/// Of these, from one node: one address and name. Most have one, and some the last of a crash.
const MAX_SUBSCRIBERS_OF_NODE: usize = 16;
/// A subscriber that took nothing for so long of what waits for it gives way where places run out.
const STALLED: Duration = Duration::from_secs(30);
/// How long a subscriber may take to send its header, or to take ours.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How far a publication is with the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// To be checked against what else is local, then registered.
    Pending,
    /// This master has our registration.
    Registered,
    /// Not published, for this reason.
    Conflict(String),
}

/// One topic that is published.
pub(super) struct Publication {
    pub topic: Topic,
    pub serial: u64,
    pub phase: Phase,
    /// Whether a check or a registration is under way.
    pub busy: bool,
    /// When it is to be tried at the master.
    pub turn: Turn,
    /// Once clear of conflicts, a publication stays: who came first holds.
    pub cleared: bool,
    drops: Arc<AtomicU64>,
    pub subscribers: BTreeMap<u64, Subscriber>,
    /// Refusals of subscribers that were told.
    told: BTreeSet<String>,
    /// Last message of each source, least recently updated first.
    latched: Vec<(Source, Bytes)>,
}

/// One local subscriber; its connection closes when dropped.
pub(super) struct Subscriber {
    pub caller: String,
    address: IpAddr,
    queue: Arc<Queue>,
    task: JoinHandle<()>,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Publication {
    pub fn new(topic: Topic, serial: u64, drops: Arc<AtomicU64>) -> Self {
        Self {
            topic,
            serial,
            phase: Phase::Pending,
            busy: false,
            turn: Turn::new(Instant::now()),
            cleared: false,
            drops,
            subscribers: BTreeMap::new(),
            told: BTreeSet::new(),
            latched: Vec::new(),
        }
    }

    /// Whether it is to be registered when its turn comes.
    pub fn waits(&self) -> bool {
        self.phase != Phase::Registered && !self.busy
    }

    /// Queues `payload` for every subscriber and, if latched, for those to come.
    pub fn publish(&mut self, source: Source, payload: Bytes) {
        for subscriber in self.subscribers.values() {
            let dropped = subscriber.queue.push(payload.clone());
            self.drops.fetch_add(dropped, Ordering::Relaxed);
        }
        if self.topic.qos.transient_local {
            self.latch(source, payload);
        }
    }

    fn latch(&mut self, source: Source, payload: Bytes) {
        self.latched.retain(|(kept, _)| *kept != source);
        if self.latched.len() >= MAX_SOURCES as usize {
            self.latched.remove(0);
        }
        self.latched.push((source, payload));
    }

    /// Takes a newer description of the same type; latched messages go if it is latched no more.
    pub fn update(&mut self, topic: Topic) {
        if !topic.qos.transient_local {
            self.latched.clear();
        }
        self.topic = topic;
    }

    /// Whether a refusal is to be told: once each, since refused nodes come again, and not
    /// endlessly many.
    pub fn tells(&mut self, refusal: &str) -> bool {
        self.told.len() < MAX_SUBSCRIBERS && self.told.insert(refusal.into())
    }

    /// Makes room for a subscriber, maybe in place of a stalled one; fails with the reason.
    pub fn make_room(
        &mut self,
        peer: SocketAddr,
        caller: &str,
        now: Instant,
    ) -> Result<(), String> {
        let (address, caller) = (local(peer).0, shown(caller));
        let same = |it: &Subscriber| it.address == address && it.caller == caller;
        let own = self.subscribers.values().filter(|it| same(it)).count();
        let full = |most: usize| format!("its maximum of {most} subscribers");
        let name = shown(&self.topic.name);
        if own >= MAX_SUBSCRIBERS_OF_NODE && !self.close_stalled(now, same) {
            let full = full(MAX_SUBSCRIBERS_OF_NODE);
            return Err(format!("{name} has {full} from '{caller}' at {address}"));
        }
        if self.subscribers.len() >= MAX_SUBSCRIBERS && !self.close_stalled(now, |_| true) {
            return Err(format!("{name} has {}", full(MAX_SUBSCRIBERS)));
        }
        Ok(())
    }

    /// Closes the subscriber among `these` that is stalled for longest, if one is.
    fn close_stalled(&mut self, now: Instant, these: impl Fn(&Subscriber) -> bool) -> bool {
        let stalled = |(id, it): (&u64, &Subscriber)| {
            let since = it.queue.untaken_since().filter(|_| these(it))?;
            (now.saturating_duration_since(since) >= STALLED).then_some((since, *id))
        };
        let Some((_, id)) = self.subscribers.iter().filter_map(stalled).min() else {
            return false;
        };
        static SPARING: Sparing = Sparing::new();
        if let (Some(closed), Some(left_out)) = (self.subscribers.remove(&id), SPARING.next()) {
            tracing::warn!(
                topic = shown(&self.topic.name),
                left_out,
                "subscriber {} took nothing for {} s and gives way to a new one",
                closed.caller,
                STALLED.as_secs()
            );
        }
        true
    }

    /// Serves a subscriber that was found fit.
    pub fn add_subscriber(
        &mut self,
        id: u64,
        visitor: Visitor,
        caller: &str,
        identity: &Identity,
        notes: mpsc::Sender<Note>,
    ) {
        let queue = Arc::new(Queue::default());
        for (_, payload) in &self.latched {
            let dropped = queue.push(payload.clone());
            self.drops.fetch_add(dropped, Ordering::Relaxed);
        }
        let reply = self.reply(identity).encode();
        let (waiting, topic) = (queue.clone(), self.topic.name.clone());
        let address = local(visitor.peer).0;
        // Subscribers say nothing more.
        visitor.seat.keep();
        let task = tokio::spawn(async move {
            serve_subscriber(visitor.stream, reply, &waiting).await;
            drop(visitor.seat);
            // Fails only while the gateway stops.
            let _ = notes.send(Note::SubscriberLeft { topic, id }).await;
        });
        self.subscribers.insert(id, Subscriber { caller: shown(caller), address, queue, task });
    }

    fn reply(&self, identity: &Identity) -> Header {
        let latching = if self.topic.qos.transient_local { "1" } else { "0" };
        Header::default()
            .with("callerid", &identity.node_name)
            .with("topic", &self.topic.name)
            .with("type", &self.topic.type_name)
            .with("md5sum", &self.topic.type_hash)
            .with("message_definition", &self.topic.definition)
            .with("latching", latching)
            .with(TAUTLINE_FIELD, &identity.tautline_name)
    }
}

/// A topic or service and its type in a line for a person: a peer may have named it.
pub(super) fn typed(name: &str, type_name: &str, md5: &str) -> String {
    format!("{} of type {} (md5 {})", shown(name), shown(type_name), shown(md5))
}

/// Why a subscriber that sent `header` is not served, if so.
pub(super) fn refusal(header: &Header, topic: &Topic) -> Option<String> {
    if let Some(name) = header.get(TAUTLINE_FIELD) {
        let name = shown(name);
        return Some(format!("Tautline node '{name}' must not read what Tautline publishes"));
    }
    let Some(md5) = header.get("md5sum") else {
        return Some("the connection header lacks 'md5sum'".into());
    };
    if md5 == "*" || md5 == topic.type_hash {
        return None;
    }
    let caller = shown(header.get("callerid").unwrap_or("an unnamed node"));
    let type_name = shown(header.get("type").unwrap_or("an unnamed type"));
    let md5 = shown(md5);
    let ours = typed(&topic.name, &topic.type_name, &topic.type_hash);
    Some(format!("{caller} wants {ours} as {type_name} (md5 {md5})"))
}

/// Messages that wait for one subscriber.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Bytes>,
    bytes: usize,
    /// Since when the subscriber took nothing of what waits; `None` if nothing does.
    untaken: Option<Instant>,
}

impl Queue {
    /// Adds a message; gives the number of older ones that had to go.
    fn push(&self, payload: Bytes) -> u64 {
        let mut waiting = locked(&self.waiting);
        waiting.untaken.get_or_insert_with(Instant::now);
        waiting.bytes += payload.len();
        waiting.messages.push_back(payload);
        let mut dropped = 0;
        while waiting.messages.len() > 1
            && (waiting.messages.len() > SUBSCRIBER_QUEUE_MESSAGES
                || waiting.bytes > SUBSCRIBER_QUEUE_BYTES)
        {
            waiting.pop();
            dropped += 1;
        }
        drop(waiting);
        self.filled.notify_one();
        dropped
    }

    fn pop(&self) -> Option<Bytes> {
        locked(&self.waiting).pop()
    }

    /// The subscriber took something, maybe `all` of the message that was begun.
    fn taken(&self, all: bool) {
        let mut waiting = locked(&self.waiting);
        let more = !all || !waiting.messages.is_empty();
        waiting.untaken = more.then(Instant::now);
    }

    fn untaken_since(&self) -> Option<Instant> {
        locked(&self.waiting).untaken
    }
}

impl Waiting {
    fn pop(&mut self) -> Option<Bytes> {
        let payload = self.messages.pop_front()?;
        self.bytes -= payload.len();
        Some(payload)
    }
}

/// Writes header and messages until the subscriber leaves.
async fn serve_subscriber(mut stream: TcpStream, reply: Vec<u8>, queue: &Queue) {
    match timeout(HANDSHAKE_TIMEOUT, stream.write_all(&reply)).await {
        Ok(Ok(())) => {}
        _ => return,
    }
    let (mut reader, mut writer) = stream.split();
    tokio::select! {
        _ = write_messages(&mut writer, queue) => {}
        _ = wait_for_close(&mut reader) => {}
    }
}

async fn write_messages(
    writer: &mut (impl AsyncWriteExt + Unpin),
    queue: &Queue,
) -> std::io::Result<()> {
    loop {
        let Some(payload) = queue.pop() else {
            queue.filled.notified().await;
            continue;
        };
        // Both parts go in one writev; what a queue holds is far below 4 GiB.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut left = Buf::chain(&length[..], payload);
        while left.has_remaining() {
            if writer.write_buf(&mut left).await? == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            queue.taken(!left.has_remaining());
        }
    }
}

/// Subscribers send nothing after their header; what they do send is read past.
async fn wait_for_close(reader: &mut (impl AsyncReadExt + Unpin)) {
    let mut ignored = [0; 256];
    while let Ok(1..) = reader.read(&mut ignored).await {}
}

/// Accepts connections of subscribers and of services' clients forever and reads their headers.
pub(super) async fn accept(listener: TcpListener, notes: mpsc::Sender<Note>, door: Arc<Door>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(waiting) = door.enter(Place::Handshake, peer) else { continue };
        let (notes, door) = (notes.clone(), door.clone());
        tokio::spawn(async move {
            let introduced = tokio::select! {
                introduced = introduced(stream, peer, &door) => introduced,
                () = waiting.lost() => {
                    tracing::debug!(%peer, "a silent connection gives way");
                    None
                }
            };
            if let Some(note) = introduced {
                let _ = notes.send(note).await;
            }
        });
    }
}

/// A connection whose header has arrived.
async fn introduced(mut stream: TcpStream, peer: SocketAddr, door: &Door) -> Option<Note> {
    let tuned = tune(&stream);
    match timeout(HANDSHAKE_TIMEOUT, Header::read(&mut stream)).await {
        Ok(Ok(header)) if tuned.is_ok() => {
            let seat = door.enter(Place::Connection, peer)?;
            return Some(Note::Subscriber(Visitor { stream, peer, seat }, header));
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "neither a subscriber nor a client"),
        _ => tracing::debug!(%peer, "no connection header in time"),
    }
    None
}

/// Tells a subscriber why it is not served, and closes.
pub(super) async fn refuse(visitor: Visitor, reason: String, identity: Identity) {
    let Visitor { mut stream, peer, seat } = visitor;
    seat.keep();
    let header = Header::default()
        .with("error", &reason)
        .with("callerid", &identity.node_name)
        .with(TAUTLINE_FIELD, &identity.tautline_name);
    let told = timeout(HANDSHAKE_TIMEOUT, stream.write_all(&header.encode())).await;
    tracing::debug!(%peer, reason, told = told.is_ok(), "subscriber refused");
    drop(seat);
}

#[cfg(test)]
mod tests {
    use super::super::definitions::Definitions;
    use super::super::seats::Seats;
    use super::*;
    use crate::Qos;
    use crate::types::installed::Installed;

    /// One end in `publication`; of the other nothing is read. Buffers are small.
    async fn silent(publication: &mut Publication, seats: &Arc<Seats>, id: u64) -> TcpStream {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let far = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        socket2::SockRef::from(&stream).set_send_buffer_size(4096).unwrap();
        let seat = seats.take(peer.ip(), true).unwrap();
        let identity = Identity {
            node_name: "/t".into(),
            tautline_name: "t".into(),
            definitions: Definitions::new(Installed::new(vec![])),
        };
        let visitor = Visitor { stream, peer, seat };
        let notes = mpsc::channel(1).0;
        publication.add_subscriber(id, visitor, &format!("/n{id}"), &identity, notes);
        far
    }

    #[test]
    fn subscribers_that_take_nothing_keep_no_new_one_out() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let work = async {
            let (most, peer) = (MAX_SUBSCRIBERS as u64, "127.0.0.1:9".parse().unwrap());
            let mut publication = Publication::new(topic(), 0, Arc::default());
            let seats = Seats::new(2 * MAX_SUBSCRIBERS, 1);
            let mut far = Vec::new();
            for id in 0..most {
                far.push(silent(&mut publication, &seats, id).await);
            }
            let later = || Instant::now() + STALLED;
            assert!(publication.make_room(peer, "/new", later()).is_err(), "nothing waits");
            publication.publish(Source(0), vec![0; 1 << 20].into());
            assert!(publication.make_room(peer, "/new", Instant::now()).is_err(), "not for long");
            // The first that reads again has it all, so that nothing waits for it.
            far[0].read_exact(&mut vec![0; 1 << 20]).await.unwrap();
            let mut rest = [0; 4096];
            while publication.subscribers[&0].queue.untaken_since().is_some() {
                let _ = timeout(Duration::from_millis(1), far[0].read(&mut rest)).await;
            }
            for id in most..most + 8 {
                publication.make_room(peer, "/new", later()).unwrap();
                far.push(silent(&mut publication, &seats, id).await);
                assert_eq!(publication.subscribers.len(), MAX_SUBSCRIBERS);
            }
            assert!(publication.subscribers.contains_key(&0), "it took what there was");
        };
        runtime.block_on(async { timeout(Duration::from_secs(300), work).await.expect("an end") });
    }

    fn topic() -> Topic {
        Topic {
            name: "/scan".into(),
            type_name: "a/Scan".into(),
            type_hash: "11".into(),
            definition: "".into(),
            qos: Qos { transient_local: true, ..Qos::default() },
        }
    }

    #[test]
    fn a_full_queue_drops_the_oldest_and_counts_them() {
        let queue = Queue::default();
        for number in 0..SUBSCRIBER_QUEUE_MESSAGES as u32 {
            assert_eq!(queue.push(Bytes::copy_from_slice(&number.to_le_bytes())), 0);
        }
        assert_eq!(queue.push(Bytes::from_static(b"last")), 1);
        assert_eq!(queue.pop().unwrap(), 1u32.to_le_bytes()[..]);
    }

    #[test]
    fn a_queue_is_bounded_in_bytes_but_takes_one_message_of_any_size() {
        let queue = Queue::default();
        assert_eq!(queue.push(vec![0; 2 * SUBSCRIBER_QUEUE_BYTES].into()), 0);
        assert_eq!(queue.push(vec![1].into()), 1);
        assert_eq!(queue.push(vec![2; SUBSCRIBER_QUEUE_BYTES - 1].into()), 0);
        assert_eq!(queue.push(vec![3].into()), 1, "one byte too many");
        assert_eq!(queue.pop().unwrap().len(), SUBSCRIBER_QUEUE_BYTES - 1);
    }

    #[test]
    fn the_last_message_of_each_source_is_latched_up_to_a_limit() {
        let mut publication = Publication::new(topic(), 0, Arc::default());
        publication.publish(Source(0), Bytes::from_static(b"old"));
        for number in 0..=MAX_SOURCES {
            publication.publish(Source(number), Bytes::from_static(b"new"));
        }
        assert_eq!(publication.latched.len(), MAX_SOURCES as usize);
        assert_eq!(publication.latched[0], (Source(1), Bytes::from_static(b"new")));
    }

    #[test]
    fn subscribers_of_another_type_or_another_tautline_are_refused() {
        let asked = |md5| Header::default().with("callerid", "/a").with("md5sum", md5);
        assert_eq!(refusal(&asked("*"), &topic()), None);
        assert_eq!(refusal(&asked("11"), &topic()), None);
        let reason = refusal(&asked("22").with("type", "b/Scan"), &topic()).unwrap();
        for named in ["/a", "/scan", "b/Scan", "22", "a/Scan", "11"] {
            assert!(reason.contains(named), "{reason}");
        }
        let reason = refusal(&asked("*").with(TAUTLINE_FIELD, "r2"), &topic()).unwrap();
        assert!(reason.contains("'r2'"), "{reason}");
        assert!(refusal(&Header::default(), &topic()).unwrap().contains("md5sum"));
    }

    #[test]
    fn a_refusal_keeps_little_of_what_the_subscriber_sent() {
        let long = "x".repeat(500_000);
        let topic = topic();
        let header = Header::default().with("callerid", &long).with("type", &long);
        let reason = refusal(&header.with("md5sum", &long), &topic).unwrap();
        assert!(reason.len() < 1000, "{} bytes", reason.len());
    }

    #[test]
    fn a_refusal_writes_no_lines_of_its_own() {
        let topic = Topic { type_name: "a/Scan\nWARN forged".into(), ..topic() };
        let header = Header::default().with("callerid", "/a\nWARN\u{1b}[2J").with("md5sum", "22");
        let reason = refusal(&header, &topic).unwrap();
        assert!(!reason.contains(char::is_control), "{reason}");
    }
}
