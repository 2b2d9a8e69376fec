// SPDX-License-Identifier: Apache-2.0
//! Publishers that share a connection. A node has one connection for each topic and subscriber,
//! which carries the messages of all its publishers of the topic. A message does not name its
//! publisher. In roscpp, the header says only whether the first publisher latches. In rospy, all
//! latch once one of them does, and the header says whether one did when the connection was opened.
//! What the node sends to a new connection shows what it keeps now: the last message of each latched
//! publisher of roscpp, and the last message of rospy.

use super::connection::{ConnectError, HostPort, Identity};
use super::latched::PublisherHistory;
use super::subscription::{Incoming, ReaderContext, read_message};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Maximum number of latched publishers of a node; further publishers share the last number.
const MAX_LATCHED: u32 = 16;
/// Maximum bytes of a node's newest messages that wait for a check of whether the node keeps them.
const MAX_UNCERTAIN_BYTES: usize = 256 << 10;
/// Maximum number of concurrent probes for which messages wait, and of those for which none waits.
/// Without a free probe, a message is attributed to the publisher of the previous message.
const MAX_PROBES: usize = 8;
/// Time limit of a probe. Messages of the node wait for the end of the probe.
const PROBE_TIME: Duration = Duration::from_millis(200);
/// Shortest pause that ends a node's latched messages, which it sends to a new connection at once.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause that ends a node's latched messages.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Within these bounds, the pause is this multiple of the time that it took to connect.
const CONNECT_TIME_FACTOR: u32 = 4;
/// The pause of a probe for which no message waits.
const IDLE_PAUSE: Duration = Duration::from_secs(1);
/// Time within which a message that arrives on the probe also arrives on the connection.
const ARRIVAL_TOLERANCE: Duration = Duration::from_millis(2);
/// Time between checks of a node with several publishers that sends nothing.
const IDLE_PERIOD: Duration = Duration::from_secs(5);
/// Pause of a node after which its messages with an uncertain publisher are checked.
const QUIET: Duration = Duration::from_millis(200);
/// Time without another message after a check. A message sent meanwhile would seem to be a kept one.
const SETTLE_PERIOD: Duration = Duration::from_millis(50);
/// Limit of probes if a node is known to latch: their number in succession, and the time until one more.
const PROBES: (u32, Duration) = (8, Duration::from_secs(1));
/// The same limit for other nodes. It is low, since messages wait for a probe.
const UNLATCHED_PROBES: (u32, Duration) = (2, Duration::from_secs(60));
/// The same limit for the checks of a node that is known to latch.
const CHECKS: (u32, Duration) = (8, Duration::from_secs(10));
/// The same limit for the checks of a node that is not known to latch.
const UNLATCHED_CHECKS: (u32, Duration) = (4, Duration::from_secs(60));
/// An interrupted check makes the next pause this many times longer, since checks may cause messages.
const INTERRUPTION_FACTOR: u32 = 8;
/// After this number of interrupted checks in a row, a node that is not known to latch is not checked.
const MAX_INTERRUPTIONS: u32 = 3;

/// The publisher of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotId {
    /// A latched publisher, by number.
    Kept(u32),
    /// A publisher that does not latch.
    Volatile,
}

/// The publishers of one topic in one node. `L` is the lease of a source number.
pub(super) struct NodePublishers<L> {
    /// The publishers by number; 0 always exists.
    slots: BTreeMap<u32, LatchedPublisher<L>>,
    last: SlotId,
    has_volatile: bool,
    /// Whether the node may keep other messages than those known, so that a check is needed.
    is_uncertain: bool,
    /// Messages since the last check that were attributed without certainty, the newest last.
    uncertain_messages: VecDeque<Bytes>,
    /// Checks in a row that a message interrupted.
    interruptions: u32,
    probes: ProbeLimiter,
    checks: ProbeLimiter,
}

struct LatchedPublisher<L> {
    lease: L,
    /// Identifies the message that the publisher keeps.
    content: Option<u64>,
}

impl<L> NodePublishers<L> {
    pub fn new(lease: L, latching: bool, now: Instant) -> Self {
        let last = if latching { SlotId::Kept(0) } else { SlotId::Volatile };
        Self {
            slots: [(0, LatchedPublisher { lease, content: None })].into(),
            last,
            has_volatile: false,
            is_uncertain: false,
            uncertain_messages: VecDeque::new(),
            interruptions: 0,
            probes: ProbeLimiter { used: 0, since: now },
            checks: ProbeLimiter { used: 0, since: now },
        }
    }

    /// We have connected to the node again. The messages that it keeps may have changed.
    pub fn on_reconnected(&mut self, latching: bool, is_roscpp: bool, forget: impl FnMut(&L)) {
        self.is_uncertain = true;
        self.interruptions = 0;
        if !is_roscpp {
            self.last = if latching { SlotId::Kept(0) } else { SlotId::Volatile };
        }
        if !is_roscpp && !latching {
            self.retain(&BTreeSet::new(), forget);
        }
    }

    /// Whether a publisher of the node is known to latch.
    pub fn latches(&self) -> bool {
        self.keeps_messages() || self.last != SlotId::Volatile
    }

    /// The pause of the node after which to check what it keeps; `None` if it is not to be checked.
    pub fn check_pause(&mut self, now: Instant) -> Option<Duration> {
        if self.interruptions >= MAX_INTERRUPTIONS && !self.latches() {
            return None;
        }
        let longer = INTERRUPTION_FACTOR.pow(self.interruptions.min(MAX_INTERRUPTIONS));
        if self.is_uncertain {
            let limit = if self.latches() { CHECKS } else { UNLATCHED_CHECKS };
            return Some(self.checks.wait_time(limit, now).max(QUIET * longer));
        }
        self.has_several_publishers().then_some(IDLE_PERIOD.max(QUIET * longer))
    }

    /// The lease of a publisher.
    pub fn lease(&self, slot: SlotId) -> &L {
        let number = if let SlotId::Kept(number) = slot { number } else { 0 };
        // Number 0 always exists.
        &self.slots.get(&number).unwrap_or(&self.slots[&0]).lease
    }

    /// Whether the node is known to keep a message.
    fn keeps_messages(&self) -> bool {
        self.kept_messages().next().is_some()
    }

    /// Whether the node has several publishers, one of which may leave unnoticed.
    fn has_several_publishers(&self) -> bool {
        self.kept_messages().nth(usize::from(!self.has_volatile)).is_some()
    }

    fn kept_messages(&self) -> impl Iterator<Item = u64> {
        self.slots.values().filter_map(|it| it.content)
    }

    /// The publisher that keeps this message.
    fn publisher_keeping(&self, identity: u64) -> Option<SlotId> {
        let known = self.slots.iter().find(|(_, it)| it.content == Some(identity));
        known.map(|(number, _)| SlotId::Kept(*number))
    }

    /// The publisher of a message without a probe: the publisher of the previous message.
    fn publisher_without_probe(&mut self, payload: &Bytes) -> SlotId {
        self.note_uncertain(payload);
        self.last
    }

    /// Notes a message that its publisher may keep, for the next check.
    fn note_uncertain(&mut self, payload: &Bytes) {
        self.is_uncertain = true;
        self.uncertain_messages.push_back(payload.clone());
        let mut bytes: usize = self.uncertain_messages.iter().map(Bytes::len).sum();
        while self.uncertain_messages.len() > MAX_LATCHED as usize || bytes > MAX_UNCERTAIN_BYTES {
            bytes -= self.uncertain_messages.pop_front().map_or(bytes, |it| it.len());
        }
    }

    /// Notes that a publisher keeps this message.
    pub fn keep(&mut self, slot: SlotId, identity: u64) {
        if let SlotId::Kept(number) = slot
            && let Some(kept) = self.slots.get_mut(&number)
        {
            kept.content = Some(identity);
        }
    }

    /// Finds the publisher of a new message by what a late joiner got after it. The joiner may not have
    /// got all messages yet; a check waits longer, and forgets the messages that it lacks.
    fn assign(&mut self, id: u64, joiner: &BTreeSet<u64>, take: impl FnOnce() -> L) -> SlotId {
        let is_gone = |it: &LatchedPublisher<L>| it.content.is_some_and(|it| !joiner.contains(&it));
        let gone: Vec<u32> =
            self.slots.iter().filter(|(_, it)| is_gone(it)).map(|(number, _)| *number).collect();
        let has_others = joiner.iter().any(|it| *it != id && self.publisher_keeping(*it).is_none());
        let slot = if joiner.contains(&id) {
            SlotId::Kept(gone.first().copied().unwrap_or_else(|| self.add(take)))
        } else if !gone.is_empty() && has_others {
            // A newer message has already replaced this one, and is judged next.
            self.last
        } else {
            self.has_volatile = true;
            SlotId::Volatile
        };
        self.last = slot;
        slot
    }

    /// Returns the number of another latched publisher.
    fn add(&mut self, take: impl FnOnce() -> L) -> u32 {
        if self.slots[&0].content.is_none() {
            return 0;
        }
        let free = (1..MAX_LATCHED).find(|number| !self.slots.contains_key(number));
        let Some(number) = free else { return MAX_LATCHED - 1 };
        self.slots.insert(number, LatchedPublisher { lease: take(), content: None });
        number
    }

    /// Forgets the messages that the node does not keep any more.
    fn retain(&mut self, joiner: &BTreeSet<u64>, mut forget: impl FnMut(&L)) {
        let is_gone = |it: &LatchedPublisher<L>| it.content.is_some_and(|it| !joiner.contains(&it));
        self.slots.retain(|number, it| *number == 0 || !is_gone(it));
        let (first, last) = (self.slots.get_mut(&0), self.last);
        if let Some(first) = first.filter(|it| is_gone(it)) {
            first.content = None;
            forget(&first.lease);
        }
        if let SlotId::Kept(number) = last
            && !self.slots.contains_key(&number)
        {
            self.last = SlotId::Kept(0);
        }
    }
}

/// Limits the probes of one node, so that a stream costs little.
struct ProbeLimiter {
    used: u32,
    since: Instant,
}

impl ProbeLimiter {
    /// The time until one more probe is allowed.
    fn wait_time(&mut self, (most, period): (u32, Duration), now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.since);
        if self.used == 0 || elapsed >= period {
            let more = elapsed.as_millis() / period.as_millis();
            self.used = self.used.saturating_sub(u32::try_from(more).unwrap_or(u32::MAX));
            self.since = now;
        }
        match self.used < most {
            true => Duration::ZERO,
            false => period - now.saturating_duration_since(self.since),
        }
    }
}

/// A connection of a node.
pub(super) struct SharedConnection<'a> {
    pub context: &'a ReaderContext,
    pub topic: &'a str,
    pub to: HostPort,
    pub publisher: &'a PublisherHistory,
    pub is_roscpp: bool,
}

/// What a node sends to a late joiner.
struct ProbeReply {
    /// Identifies its messages.
    found: BTreeSet<u64>,
    /// Whether the header says that the node latches.
    latching: bool,
}

impl SharedConnection<'_> {
    /// Returns the publisher of a message that has just been read from `reader`.
    pub async fn identify_publisher<L>(
        &self,
        node: &mut NodePublishers<L>,
        payload: &Bytes,
        reader: &mut BufReader<TcpStream>,
        take: impl FnOnce() -> L,
    ) -> SlotId {
        if !self.is_roscpp {
            // A rospy node that latches does so until we connect to it again.
            if node.last == SlotId::Volatile {
                node.note_uncertain(payload);
            }
            return node.last;
        }
        let latches = node.latches();
        let limit = if latches { PROBES } else { UNLATCHED_PROBES };
        let may_probe = node.probes.wait_time(limit, Instant::now()).is_zero();
        if !latches && !may_probe {
            return node.publisher_without_probe(payload);
        }
        let identity = self.publisher.identity(payload);
        if let Some(known) = node.publisher_keeping(identity) {
            return known;
        }
        if !may_probe {
            return node.publisher_without_probe(payload);
        }
        node.probes.used += 1;
        let wanted: BTreeSet<u64> = node.kept_messages().chain([identity]).collect();
        let is_enough = |found: &BTreeSet<u64>| wanted.is_subset(found);
        let Some(joiner) = self.probe(is_enough, None).await else {
            return node.publisher_without_probe(payload);
        };
        // The message may be one of a stream of equal ones, which the probe has seen as well.
        let is_in_stream = joiner.found.contains(&identity)
            && timeout(ARRIVAL_TOLERANCE, reader.fill_buf()).await.is_ok();
        if is_in_stream {
            return node.publisher_without_probe(payload);
        }
        // roscpp sends a message before it keeps it, and a busy node sends more after the pause.
        if !is_enough(&joiner.found) {
            node.note_uncertain(payload);
        }
        node.assign(identity, &joiner.found, take)
    }

    /// Checks what the node keeps while it sends nothing. Forgets the messages of publishers that
    /// have left. Returns messages that it keeps and that were taken for volatile. (A message that the
    /// node sends only to each new subscriber is not kept.)
    pub async fn check<L>(
        &self,
        node: &mut NodePublishers<L>,
        reader: &mut BufReader<TcpStream>,
        (mut take, forget): (impl FnMut() -> L, impl FnMut(&L)),
    ) -> Vec<(SlotId, Bytes)> {
        if node.is_uncertain {
            node.checks.used += 1;
        }
        let wanted: BTreeSet<u64> = node.kept_messages().collect();
        let is_uncertain = node.is_uncertain;
        let is_enough = |found: &BTreeSet<u64>| match is_uncertain {
            // rospy keeps one message.
            true => !self.is_roscpp && !found.is_empty(),
            false => wanted.is_subset(found),
        };
        let asked = async {
            let joiner = self.probe(is_enough, Some(IDLE_PAUSE)).await;
            sleep(SETTLE_PERIOD).await;
            joiner
        };
        let joiner = tokio::select! {
            biased;
            // The new message is judged first.
            _ = reader.fill_buf() => {
                node.interruptions += 1;
                return Vec::new();
            }
            joiner = asked => joiner,
        };
        node.interruptions = 0;
        let Some(joiner) = joiner else { return Vec::new() };
        node.is_uncertain = false;
        if !self.is_roscpp && joiner.latching {
            node.last = SlotId::Kept(0);
        }
        let uncertain_messages = std::mem::take(&mut node.uncertain_messages);
        let mut missed = Vec::new();
        for payload in uncertain_messages {
            let identity = self.publisher.identity(&payload);
            if !joiner.found.contains(&identity) || node.publisher_keeping(identity).is_some() {
                continue;
            }
            let slot = match self.is_roscpp {
                true => node.assign(identity, &joiner.found, &mut take),
                false => SlotId::Kept(0),
            };
            node.keep(slot, identity);
            missed.push((slot, payload));
        }
        node.retain(&joiner.found, forget);
        missed
    }

    /// Returns what the node sends to a late joiner; ends early once it `is_enough`. `None` if that
    /// is not known.
    async fn probe(
        &self,
        is_enough: impl Fn(&BTreeSet<u64>) -> bool,
        pause: Option<Duration>,
    ) -> Option<ProbeReply> {
        static SLOTS: [Semaphore; 2] = [const { Semaphore::const_new(MAX_PROBES) }; 2];
        let _permit = SLOTS[usize::from(pause.is_some())].try_acquire().ok()?;
        let limit = PROBE_TIME + pause.unwrap_or_default();
        timeout(limit, self.join(is_enough, pause)).await.ok()?.ok()
    }

    async fn join(
        &self,
        is_enough: impl Fn(&BTreeSet<u64>) -> bool,
        pause: Option<Duration>,
    ) -> Result<ProbeReply, ConnectError> {
        let start = Instant::now();
        let identity: &Identity = &self.context.identity;
        let (stream, latching) = identity.join(&self.to, self.topic).await?;
        let mut reader = BufReader::new(stream);
        let scaled = (start.elapsed() * CONNECT_TIME_FACTOR).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let pause = pause.unwrap_or(scaled);
        let failed = |error| ConnectError::Connect(self.to.clone(), error);
        let mut joiner = ProbeReply { found: BTreeSet::new(), latching };
        let keeps_nothing = !self.is_roscpp && !latching;
        while !keeps_nothing
            && !is_enough(&joiner.found)
            && joiner.found.len() <= 2 * MAX_LATCHED as usize
        {
            if timeout(pause, reader.fill_buf()).await.is_err() {
                break;
            }
            let reservation = self.context.incomplete.reservation();
            let message = read_message(&mut reader, self.context.max_message, reservation).await;
            if let Incoming::Message(payload) = message.map_err(failed)? {
                joiner.found.insert(self.publisher.identity(&payload));
            }
        }
        Ok(joiner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Publishers with leases 10, 11 ...
    struct Node {
        publishers: NodePublishers<u32>,
        taken: u32,
        forgotten: Vec<u32>,
    }

    impl Node {
        fn new(latching: bool) -> Self {
            let publishers = NodePublishers::new(10, latching, Instant::now());
            Self { publishers, taken: 10, forgotten: Vec::new() }
        }

        /// Receives a message, after which a late joiner gets these; returns its lease if kept.
        fn receive(&mut self, identity: u64, joiner: &[u64]) -> Option<u32> {
            let (joiner, taken) = (joiner.iter().copied().collect(), &mut self.taken);
            let take = || {
                *taken += 1;
                *taken
            };
            let slot = self.publishers.assign(identity, &joiner, take);
            self.publishers.keep(slot, identity);
            (slot != SlotId::Volatile).then(|| *self.publishers.lease(slot))
        }

        /// Checks the node when a late joiner gets these.
        fn check(&mut self, joiner: &[u64]) {
            let joiner = joiner.iter().copied().collect();
            self.publishers.retain(&joiner, |lease| self.forgotten.push(*lease));
        }

        fn kept(&self) -> Vec<u64> {
            self.publishers.kept_messages().collect()
        }
    }

    #[test]
    fn a_single_publisher_keeps_its_number() {
        let mut node = Node::new(true);
        for message in 1..9 {
            assert_eq!(node.receive(message, &[message]), Some(10));
            assert_eq!(node.kept(), [message]);
        }
        assert!(!node.publishers.has_several_publishers() && node.forgotten.is_empty());
    }

    #[test]
    fn latched_publishers_of_a_node_have_their_own_numbers() {
        let mut node = Node::new(true);
        assert_eq!(node.receive(1, &[1]), Some(10));
        assert_eq!(node.receive(2, &[1, 2]), Some(11));
        assert!(node.publishers.has_several_publishers());
        assert_eq!(node.receive(3, &[3, 2]), Some(10), "it replaces the first");
        assert_eq!(node.receive(4, &[3, 4]), Some(11));
        assert_eq!(node.receive(5, &[4, 5]), Some(10));
        assert_eq!(node.kept(), [5, 4]);
        node.check(&[4]);
        assert_eq!(node.forgotten, [10], "its publisher has left");
        assert_eq!(node.receive(6, &[4, 6]), Some(10));
    }

    #[test]
    fn a_message_that_late_joiners_do_not_get_is_not_kept() {
        let mut node = Node::new(true);
        assert_eq!(node.receive(1, &[1]), Some(10));
        assert_eq!(node.receive(2, &[1]), None);
        assert!(
            node.publishers.publisher_without_probe(&Bytes::from_static(b"it")) == SlotId::Volatile
                && node.publishers.has_several_publishers()
        );
        assert_eq!(node.receive(3, &[3]), Some(10), "the latched one again");
        assert_eq!(node.receive(4, &[]), None);
        assert_eq!((node.kept(), node.forgotten.len()), (vec![3], 0), "it may still come");
        node.check(&[]);
        assert_eq!((node.kept(), node.forgotten), (vec![], vec![10]), "the latched one has left");
        let mut other = Node::new(false);
        assert_eq!(other.receive(1, &[]), None);
        assert_eq!(other.receive(2, &[2]), Some(10), "the header speaks of the first only");
    }

    #[test]
    fn a_replaced_message_gets_the_publisher_of_the_previous_one() {
        let mut node = Node::new(true);
        assert_eq!(node.receive(1, &[1]), Some(10));
        assert_eq!(node.receive(2, &[3]), Some(10));
        assert_eq!(node.receive(3, &[3]), Some(10));
        assert_eq!((node.kept(), node.forgotten), (vec![3], vec![]));
    }

    #[test]
    fn a_node_is_checked_after_messages_with_an_uncertain_publisher() {
        let (mut node, now) = (Node::new(false), Instant::now());
        assert_eq!(node.publishers.check_pause(now), None);
        assert_eq!(
            node.publishers.publisher_without_probe(&Bytes::from_static(b"it")),
            SlotId::Volatile
        );
        assert_eq!(node.publishers.check_pause(now), Some(QUIET));
        let (most, period) = UNLATCHED_CHECKS;
        node.publishers.checks.used = most;
        assert_eq!(node.publishers.check_pause(now), Some(period));
        assert_eq!(node.publishers.check_pause(now + period), Some(QUIET));
        node.publishers.keep(SlotId::Kept(0), 1);
        node.publishers.checks.used = CHECKS.0;
        assert_eq!(node.publishers.check_pause(now), Some(CHECKS.1));
    }

    #[test]
    fn a_node_that_publishes_at_each_check_is_rarely_checked() {
        for (latching, last) in [(false, None), (true, Some(512 * QUIET))] {
            let mut node = Node::new(latching);
            let pauses = (0..=MAX_INTERRUPTIONS).map(|interruptions| {
                node.publishers.is_uncertain = true;
                node.publishers.interruptions = interruptions;
                node.publishers.check_pause(Instant::now())
            });
            let expected = [Some(QUIET), Some(8 * QUIET), Some(64 * QUIET), last];
            assert_eq!(pauses.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn messages_that_wait_for_a_check_are_bounded() {
        let mut node = Node::new(false);
        for bytes in [10].into_iter().chain([MAX_UNCERTAIN_BYTES / 2; 3]) {
            node.publishers.note_uncertain(&vec![0; bytes].into());
        }
        assert_eq!(node.publishers.uncertain_messages.len(), 2);
        node.publishers.note_uncertain(&vec![0; MAX_UNCERTAIN_BYTES + 1].into());
        assert!(node.publishers.uncertain_messages.is_empty());
        (0..100).for_each(|_| node.publishers.note_uncertain(&Bytes::from_static(b"it")));
        assert_eq!(node.publishers.uncertain_messages.len(), MAX_LATCHED as usize);
    }

    #[test]
    fn a_new_connection_to_rospy_uses_its_header() {
        for (is_roscpp, latching) in [(false, false), (false, true), (true, false)] {
            let mut node = Node::new(true);
            assert_eq!(node.receive(1, &[1]), Some(10));
            let forget = |lease: &u32| node.forgotten.push(*lease);
            node.publishers.on_reconnected(latching, is_roscpp, forget);
            assert_eq!(node.publishers.latches(), is_roscpp || latching);
            assert_eq!(node.forgotten.is_empty(), is_roscpp || latching);
            assert_eq!(node.publishers.check_pause(Instant::now()), Some(QUIET));
        }
    }

    #[test]
    fn publishers_beyond_the_limit_share_the_last_number() {
        let mut node = Node::new(true);
        for message in 0..40 {
            let kept: Vec<u64> = (0..=message).collect();
            let lease = node.receive(message, &kept);
            assert_eq!(lease, Some(10 + u32::try_from(message).unwrap().min(MAX_LATCHED - 1)));
        }
        assert_eq!(node.publishers.kept_messages().count(), MAX_LATCHED as usize);
    }

    #[test]
    fn a_stream_is_probed_at_a_low_rate() {
        for (limit, most) in [(PROBES, 8 + 60), (UNLATCHED_PROBES, 2 + 1), (CHECKS, 8 + 6)] {
            let start = Instant::now();
            let mut allowance = ProbeLimiter { used: 0, since: start };
            let mut probes = 0;
            for step in 0..=6000 {
                if allowance.wait_time(limit, start + Duration::from_millis(10 * step)).is_zero() {
                    allowance.used += 1;
                    probes += 1;
                }
            }
            assert!(probes <= most && probes + 2 >= most, "{limit:?}: {probes}");
        }
    }
}
