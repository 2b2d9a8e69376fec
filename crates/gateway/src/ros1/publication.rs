// SPDX-License-Identifier: Apache-2.0
//! Publications: one queue and one task per local subscriber, so that none delays another.

use super::admission::{Admitted, ScopedAddress};
use super::connection::Identity;
use super::handshake::{Use, refusal};
use super::header::Header;
use super::note::Note;
use super::shown::{for_logs, name_with_type};
use super::subscriber_queue::{Queue, serve_subscriber};
use crate::deliveries::{self, Deliveries};
use crate::log_limit::log_limited;
use crate::{MAX_SOURCES, Origin, Source, Topic};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Maximum number of subscribers of one topic; a further subscriber replaces a stalled one or is
/// refused.
const MAX_SUBSCRIBERS: usize = 256;
/// Maximum number of subscribers of one topic from one node, that is, from one address and name. Most
/// nodes have one subscriber; some have another left over from a crash.
const MAX_SUBSCRIBERS_OF_NODE: usize = 16;
/// A subscriber that has read nothing of its queue for this time can be replaced by a new one.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A topic of peers that is published here.
pub(super) struct Publication {
    pub topic: Topic,
    pub conflict: Option<String>,
    /// Whether the topic was once free of conflicts. Then later conflicts do not matter.
    pub conflict_cleared: bool,
    drops: Arc<AtomicU64>,
    pub subscribers: BTreeMap<u64, Subscriber>,
    /// Reported refusals of subscribers.
    reported_refusals: BTreeSet<String>,
    /// The last messages of each source that keeps them, least recently updated first.
    latched: Vec<(Source, VecDeque<Latched>)>,
    /// Which subscribers have which messages.
    deliveries: Deliveries,
}

/// A message for late joiners.
struct Latched {
    identity: u64,
    payload: Bytes,
    /// The end of its lifespan.
    expires: Option<Instant>,
}

/// One local subscriber; its connection closes when dropped.
pub(super) struct Subscriber {
    pub caller: String,
    address: IpAddr,
    /// Identifies its process; `None` until the master has told its address. Latched messages wait
    /// for that.
    identity: Option<deliveries::Subscriber>,
    queue: Arc<Queue>,
    task: JoinHandle<()>,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Publication {
    pub fn new(topic: Topic, drops: Arc<AtomicU64>, deliveries: Deliveries) -> Self {
        Self {
            topic,
            conflict: None,
            conflict_cleared: false,
            drops,
            subscribers: BTreeMap::new(),
            reported_refusals: BTreeSet::new(),
            latched: Vec::new(),
            deliveries,
        }
    }

    /// Queues `payload` for every subscriber and, if its publisher keeps it, for later ones.
    pub fn publish(&mut self, source: Source, payload: Bytes, origin: &Origin) {
        let Some(kept) = origin.kept else {
            for subscriber in self.subscribers.values() {
                self.send(subscriber, &payload);
            }
            return;
        };
        let (topic, identity) = (&self.topic.name, kept.identity);
        let mut new = Vec::new();
        for subscriber in self.subscribers.values() {
            let Some(id) = subscriber.identity else { continue };
            if kept.is_repeatable && self.deliveries.was_delivered(topic, identity, id) {
                continue;
            }
            if !kept.is_for_late_joiners {
                self.send(subscriber, &payload);
            }
            new.push(id);
        }
        self.deliveries.add(topic, identity, new);
        // DDS sends no history with best effort.
        if origin.best_effort {
            return;
        }
        let lifespan = origin.lifespan_within(self.topic.qos.lifespan);
        let left = lifespan.map(|it| it.saturating_sub(origin.age));
        let expires = left.and_then(|it| Instant::now().checked_add(it));
        self.latch(source, Latched { identity, payload, expires }, kept.depth);
    }

    fn send(&self, subscriber: &Subscriber, payload: &Bytes) {
        let dropped = subscriber.queue.push(payload.clone());
        self.drops.fetch_add(dropped, Ordering::Relaxed);
    }

    /// A subscriber's process is known: it gets the latched messages that it does not have.
    pub fn on_identified(&mut self, id: u64, identity: deliveries::Subscriber) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        if subscriber.identity.replace(identity).is_some() {
            return;
        }
        let subscriber = &self.subscribers[&id];
        for message in self.latched(Instant::now()) {
            if !self.deliveries.was_delivered(&self.topic.name, message.identity, identity) {
                self.send(subscriber, &message.payload);
                self.deliveries.add(&self.topic.name, message.identity, [identity]);
            }
        }
    }

    fn latch(&mut self, source: Source, message: Latched, depth: u32) {
        let known = self.latched.iter().position(|(kept, _)| *kept == source);
        let mut messages = known.map(|at| self.latched.remove(at).1).unwrap_or_default();
        messages.push_back(message);
        while messages.len() > depth.max(1) as usize {
            messages.pop_front();
        }
        if self.latched.len() >= MAX_SOURCES as usize {
            self.latched.remove(0);
        }
        self.latched.push((source, messages));
    }

    /// Forgets the messages kept of a source, or of all sources.
    pub fn forget(&mut self, source: Option<Source>) {
        self.latched.retain(|(kept, _)| source.is_some_and(|source| *kept != source));
    }

    /// Forgets which messages a subscriber that has left has received. If it returns, it gets them
    /// again.
    pub fn forget_deliveries(&self, subscriber: &Subscriber) {
        if let Some(identity) = subscriber.identity {
            self.deliveries.forget(&self.topic.name, identity);
        }
    }

    /// The messages for a late joiner.
    fn latched(&self, now: Instant) -> impl Iterator<Item = &Latched> {
        let messages = self.latched.iter().flat_map(|(_, messages)| messages);
        messages.filter(move |it| it.expires.is_none_or(|at| now <= at))
    }

    /// Whether the other topic has the type of this one.
    pub fn has_type_of(&self, other: &Topic) -> bool {
        let Topic { type_name, type_hash, .. } = &self.topic;
        (type_name, type_hash) == (&other.type_name, &other.type_hash)
    }

    /// Replaces the description by a newer one of the same type.
    pub fn update(&mut self, topic: Topic) {
        self.topic = topic;
    }

    /// Whether to report a refusal. Refused nodes retry, so each refusal is reported once, up to a limit.
    pub fn should_report(&mut self, refusal: &str) -> bool {
        self.reported_refusals.len() < MAX_SUBSCRIBERS
            && self.reported_refusals.insert(refusal.into())
    }

    /// Checks the limits for one more subscriber, which may replace a stalled one.
    pub fn admit_subscriber(
        &mut self,
        peer: SocketAddr,
        caller: &str,
        now: Instant,
    ) -> Result<(), String> {
        let (address, caller) = (ScopedAddress::of_peer(peer).address, for_logs(caller));
        let is_same = |other: &Subscriber| other.address == address && other.caller == caller;
        let same = self.subscribers.values().filter(|other| is_same(other)).count();
        let name = for_logs(&self.topic.name);
        if same >= MAX_SUBSCRIBERS_OF_NODE && !self.close_stalled(now, is_same) {
            return Err(format!(
                "{name} has its maximum of {MAX_SUBSCRIBERS_OF_NODE} subscribers from '{caller}' \
                 at {address}"
            ));
        }
        if self.subscribers.len() >= MAX_SUBSCRIBERS && !self.close_stalled(now, |_| true) {
            return Err(format!("{name} has its maximum of {MAX_SUBSCRIBERS} subscribers"));
        }
        Ok(())
    }

    /// Closes the longest stalled of the `eligible` subscribers, if there is one.
    fn close_stalled(&mut self, now: Instant, eligible: impl Fn(&Subscriber) -> bool) -> bool {
        let stalled = |(id, subscriber): (&u64, &Subscriber)| {
            let since = subscriber.queue.unread_since().filter(|_| eligible(subscriber))?;
            (now.saturating_duration_since(since) >= STALL_TIMEOUT).then_some((since, *id))
        };
        let Some((_, id)) = self.subscribers.iter().filter_map(stalled).min() else {
            return false;
        };
        if let Some(closed) = self.subscribers.remove(&id) {
            log_limited!(
                warn,
                {topic = for_logs(&self.topic.name),},
                "subscriber {} read nothing for {} s and is replaced by a new one",
                closed.caller,
                STALL_TIMEOUT.as_secs()
            );
        }
        true
    }

    pub fn add_subscriber(
        &mut self,
        id: u64,
        connection: Admitted,
        caller: &str,
        identity: &Identity,
        notes: mpsc::Sender<Note>,
    ) {
        let queue = Arc::new(Queue::default());
        let reply = self.header(identity).encode();
        let (reader, topic) = (queue.clone(), self.topic.name.clone());
        let address = ScopedAddress::of_peer(connection.peer).address;
        // Subscribers send nothing more.
        connection.slot.pin();
        let task = tokio::spawn(async move {
            serve_subscriber(connection.stream, reply, &reader).await;
            drop(connection.slot);
            // Fails only while the gateway stops.
            let _ = notes.send(Note::SubscriberLeft { topic, id }).await;
        });
        let (caller, identity) = (for_logs(caller), None);
        self.subscribers.insert(id, Subscriber { caller, address, identity, queue, task });
    }

    fn header(&self, identity: &Identity) -> Header {
        let latching = if self.topic.qos.transient_local { "1" } else { "0" };
        identity
            .header()
            .with("topic", &self.topic.name)
            .with("type", &self.topic.type_name)
            .with("md5sum", &self.topic.type_hash)
            .with("message_definition", &self.topic.definition)
            .with("latching", latching)
    }

    /// Why a subscriber that sent `header` is refused.
    pub fn refusal(&self, header: &Header) -> Option<String> {
        let Topic { name, type_name, type_hash, .. } = &self.topic;
        let matches = |md5: &str| md5 == "*" || md5 == type_hash;
        refusal(header, &name_with_type(name, type_name, type_hash), Use::Subscribe, matches)
    }
}

#[cfg(test)]
mod tests {
    use super::super::definitions::Definitions;
    use super::super::header::TAUTLINE_FIELD;
    use super::super::slots::SlotPool;
    use super::*;
    use crate::types::installed::InstalledTypes;
    use crate::{Kept, Qos};
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    /// Adds a subscriber with small buffers. Returns its end of the connection, from which nothing is read.
    async fn add_silent_subscriber(
        publication: &mut Publication,
        pool: &Arc<SlotPool>,
        id: u64,
    ) -> TcpStream {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let far = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        socket2::SockRef::from(&stream).set_send_buffer_size(4096).unwrap();
        let slot = pool.take(peer.ip(), true).unwrap();
        let identity = Identity {
            node_name: "/t".into(),
            tautline_name: "t".into(),
            definitions: Definitions::new(InstalledTypes::new(vec![])),
        };
        let connection = Admitted { stream, peer, slot };
        let notes = mpsc::channel(1).0;
        publication.add_subscriber(id, connection, &format!("/n{id}"), &identity, notes);
        far
    }

    #[test]
    fn stalled_subscribers_do_not_exclude_new_ones() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let work = async {
            let (most, peer) = (MAX_SUBSCRIBERS as u64, "127.0.0.1:9".parse().unwrap());
            let mut publication = new_publication(topic());
            let pool = SlotPool::new(2 * MAX_SUBSCRIBERS, 1);
            let mut far = Vec::new();
            for id in 0..most {
                far.push(add_silent_subscriber(&mut publication, &pool, id).await);
            }
            let later = || Instant::now() + STALL_TIMEOUT;
            assert!(
                publication.admit_subscriber(peer, "/new", later()).is_err(),
                "no message waits"
            );
            let source = Source::at_peer(0, 0);
            publication.publish(source, vec![0; 1 << 20].into(), &Origin::default());
            assert!(
                publication.admit_subscriber(peer, "/new", Instant::now()).is_err(),
                "not for long"
            );
            // The first subscriber reads again until no message waits for it.
            far[0].read_exact(&mut vec![0; 1 << 20]).await.unwrap();
            let mut rest = [0; 4096];
            while publication.subscribers[&0].queue.unread_since().is_some() {
                let _ = timeout(Duration::from_millis(1), far[0].read(&mut rest)).await;
            }
            for id in most..most + 8 {
                publication.admit_subscriber(peer, "/new", later()).unwrap();
                far.push(add_silent_subscriber(&mut publication, &pool, id).await);
                assert_eq!(publication.subscribers.len(), MAX_SUBSCRIBERS);
            }
            assert!(publication.subscribers.contains_key(&0), "it read all messages");
        };
        runtime.block_on(async { timeout(Duration::from_secs(300), work).await.expect("an end") });
    }

    fn new_publication(topic: Topic) -> Publication {
        Publication::new(topic, Arc::default(), Deliveries::default())
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

    fn refusal_of(topic: Topic, header: &Header) -> Option<String> {
        new_publication(topic).refusal(header)
    }

    #[test]
    fn the_last_messages_of_each_source_are_latched_up_to_a_limit() {
        let mut publication = new_publication(topic());
        let mut publish = |number, text: &'static str, depth| {
            let kept = Some(Kept { identity: 0, depth, ..Kept::default() });
            let payload = Bytes::from_static(text.as_bytes());
            let origin = Origin { kept, ..Origin::default() };
            publication.publish(Source::at_peer(0, number), payload, &origin);
        };
        publish(0, "old", 1);
        for number in 0..=MAX_SOURCES {
            publish(number, "new", 1);
        }
        publish(1, "newer", 1);
        publish(MAX_SOURCES, "newer", 2);
        let latched = || -> Vec<_> {
            publication.latched(Instant::now()).map(|it| it.payload.clone()).collect()
        };
        assert_eq!(latched().len(), MAX_SOURCES as usize + 1);
        let at_end = latched().len() - 3;
        assert_eq!(latched()[at_end..], ["newer", "new", "newer"], "the last updated ones last");
        publication.forget(Some(Source::at_peer(0, 1)));
        let left = publication.latched(Instant::now()).count();
        assert_eq!(left, MAX_SOURCES as usize);
        publication.forget(None);
        assert_eq!(publication.latched(Instant::now()).count(), 0);
    }

    #[test]
    fn each_publisher_is_latched_by_its_own_policy_and_until_its_lifespan_ends() {
        let lifespan = Some(Duration::from_secs(1000));
        let topic = Topic { qos: Qos { lifespan, ..topic().qos }, ..topic() };
        let mut publication = new_publication(topic);
        let kept = Some(Kept { identity: 0, depth: 1, ..Kept::default() });
        let old = Origin { kept, age: Duration::from_secs(990), ..Origin::default() };
        publication.publish(Source::at_peer(0, 0), Bytes::from_static(b"kept"), &old);
        let volatile = Origin::default();
        publication.publish(Source::at_peer(0, 1), Bytes::from_static(b"not kept"), &volatile);
        let now = Instant::now();
        assert!(publication.latched(now).map(|it| &it.payload[..]).eq([b"kept"]));
        assert_eq!(publication.latched(now + Duration::from_secs(11)).count(), 0);
    }

    #[test]
    fn subscribers_of_another_type_or_another_tautline_are_refused() {
        let asked = |md5| Header::default().with("callerid", "/a").with("md5sum", md5);
        let refusal = |header: &Header| refusal_of(topic(), header);
        assert_eq!(refusal(&asked("*")), None);
        assert_eq!(refusal(&asked("11")), None);
        let reason = refusal(&asked("22").with("type", "b/Scan")).unwrap();
        for named in ["/a", "/scan", "b/Scan", "22", "a/Scan", "11"] {
            assert!(reason.contains(named), "{reason}");
        }
        let reason = refusal(&asked("*").with(TAUTLINE_FIELD, "r2")).unwrap();
        assert!(reason.contains("'r2'"), "{reason}");
        assert!(refusal(&Header::default()).unwrap().contains("md5sum"));
    }

    #[test]
    fn a_refusal_quotes_a_bounded_part_of_the_header() {
        let long = "x".repeat(500_000);
        let header = Header::default().with("callerid", &long).with("type", &long);
        let reason = refusal_of(topic(), &header.with("md5sum", &long)).unwrap();
        assert!(reason.len() < 1000, "{} bytes", reason.len());
    }

    #[test]
    fn a_refusal_writes_no_lines_of_its_own() {
        let topic = Topic { type_name: "a/Scan\nWARN forged".into(), ..topic() };
        let header = Header::default().with("callerid", "/a\nWARN\u{1b}[2J").with("md5sum", "22");
        let reason = refusal_of(topic, &header).unwrap();
        assert!(!reason.contains(char::is_control), "{reason}");
    }
}
