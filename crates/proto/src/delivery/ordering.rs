// SPDX-License-Identifier: Apache-2.0
//! Delivery in the order of publication ([`DeliveryOrder::Sent`]): a complete message waits until all
//! earlier ones of its source are passed, for a bounded time.
//!
//! The numbers of a source have no gaps, so that a gap shows that a message is missing. A number is
//! *passed* when its message was delivered or dropped, when `keep_last` newer ones are complete,
//! and when a later message has waited long enough. A message that arrives after its number is
//! passed is late.

use crate::delivery::inbox::{Inbox, Received};
use crate::delivery::traffic::Traffic;
use crate::limits;
use crate::replay_window::MESSAGE_WINDOW;
use crate::stats::DropReason;
use crate::time::{Duration, Instant};
use crate::wire::control::DeliveryOrder;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Traffic and source.
pub(super) type Stream = (Traffic, u32);

/// A complete message that waits.
#[derive(Debug)]
pub(super) struct CompleteMessage {
    /// The message. Its `age` is that at `since`.
    pub(super) message: Received,
    /// The delay from publication until `since`, for statistics.
    pub(super) delay: Duration,
    /// Time at which the message was complete.
    pub(super) since: Instant,
}

/// The messages of one source.
#[derive(Debug, Default)]
struct ReorderBuffer {
    /// All numbers up to this one are passed.
    passed: u64,
    /// Waiting messages by number, each with the end of its wait.
    waiting: BTreeMap<u64, (Instant, CompleteMessage)>,
}

/// Complete messages from one peer that wait for earlier ones, or for [`Inbox::next_ready`].
#[derive(Debug, Default)]
pub(super) struct ReorderQueue {
    buffers: BTreeMap<Stream, ReorderBuffer>,
    /// The end of each wait.
    wait_deadlines: BTreeSet<(Instant, Stream, u64)>,
    /// Payload bytes of the messages that wait.
    bytes: usize,
    /// Messages that no longer wait.
    ready: VecDeque<(Traffic, CompleteMessage)>,
}

impl ReorderQueue {
    pub(super) fn is_passed(&self, stream: Stream, number: u64) -> bool {
        self.buffers.get(&stream).is_some_and(|buffer| number <= buffer.passed)
    }

    fn insert(&mut self, stream: Stream, number: u64, until: Instant, complete: CompleteMessage) {
        self.bytes += complete.message.payload.len();
        self.wait_deadlines.insert((until, stream, number));
        self.buffers.entry(stream).or_default().waiting.insert(number, (until, complete));
    }

    /// Passes all numbers up to this one. The waiting messages with these numbers become ready.
    fn pass(&mut self, stream: Stream, number: u64) {
        let Some(buffer) = self.buffers.get_mut(&stream) else { return };
        buffer.passed = buffer.passed.max(number);
        let later = buffer.passed.checked_add(1).map(|next| buffer.waiting.split_off(&next));
        for (number, (until, complete)) in
            std::mem::replace(&mut buffer.waiting, later.unwrap_or_default())
        {
            self.wait_deadlines.remove(&(until, stream, number));
            self.bytes -= complete.message.payload.len();
            self.ready.push_back((stream.0, complete));
        }
    }

    /// Begins to track a source whose numbers up to this one are passed.
    fn pass_from_start(&mut self, stream: Stream, passed: u64) {
        self.buffers.insert(stream, ReorderBuffer { passed, waiting: BTreeMap::new() });
    }

    /// Passes the numbers for which nothing has to wait any longer: those up to `late`, and the
    /// numbers after them that are done (complete or dropped).
    fn advance(&mut self, stream: Stream, late: u64, is_done: impl Fn(u64) -> bool) {
        let Some(buffer) = self.buffers.get(&stream) else { return };
        let mut passed = buffer.passed.max(late);
        while let Some(next) = passed.checked_add(1).filter(|next| is_done(*next)) {
            passed = next;
        }
        self.pass(stream, passed);
    }

    /// The sources of a topic.
    fn streams_of(&self, channel: u64) -> Vec<Stream> {
        let topic = Traffic::Topic(channel);
        self.buffers.range((topic, 0)..=(topic, u32::MAX)).map(|(stream, _)| *stream).collect()
    }
}

/// Delivery in the order of publication.
impl Inbox {
    /// Lets a complete message wait for earlier ones, but at most until `until`.
    pub(super) fn wait_for_turn(
        &mut self,
        stream: Stream,
        number: u64,
        until: Instant,
        complete: CompleteMessage,
    ) {
        if let Some(channel) = self.channels.get_mut(&stream.0) {
            channel.stats.waiting += 1;
        }
        self.reorder_queue.insert(stream, number, until, complete);
        self.advance(stream);
        self.limit_waiting(0);
    }

    /// Readies the messages of a source that no longer wait for a missing message.
    pub(super) fn advance(&mut self, stream: Stream) {
        let Some(channel) = self.channels.get(&stream.0) else { return };
        let Some(seen) = channel.sources.get(&stream.1) else { return };
        // The window forgets older numbers: they count as done.
        let late = seen.highest().saturating_sub(channel.topic.late_after().min(MESSAGE_WINDOW));
        self.reorder_queue.advance(stream, late, |number| seen.contains(number));
    }

    /// Ends the wait for the messages before this one.
    fn end_wait(&mut self, stream: Stream, number: u64) {
        self.reorder_queue.pass(stream, number);
        self.drop_partials(DropReason::Late, |key, _| (key.0, key.1) == stream && key.2 <= number);
        self.advance(stream);
    }

    /// Ends the wait of the messages that have waited long enough.
    pub(crate) fn end_waits(&mut self, now: Instant) {
        while let Some(&(_, stream, number)) =
            self.reorder_queue.wait_deadlines.first().filter(|(at, ..)| *at <= now)
        {
            self.end_wait(stream, number);
        }
    }

    /// The time at which the next wait ends.
    pub(crate) fn next_wait_deadline(&self) -> Option<Instant> {
        self.reorder_queue.wait_deadlines.first().map(|(at, ..)| *at)
    }

    /// Ends waits early, in the order of their ends, until the waiting messages are within their limits and
    /// leave space for `bytes` of an incomplete message. No message is dropped.
    pub(super) fn limit_waiting(&mut self, bytes: usize) {
        let space = self.max_bytes.saturating_sub(self.partial_bytes + bytes);
        while self.reorder_queue.wait_deadlines.len() > limits::WAITING_MESSAGES
            || self.reorder_queue.bytes > space
        {
            let Some(&(_, stream, number)) = self.reorder_queue.wait_deadlines.first() else {
                return;
            };
            self.end_wait(stream, number);
        }
    }

    /// Readies all messages of a channel, or of all channels (`None`). Their order no longer
    /// applies.
    pub(crate) fn release_waiting(&mut self, channel: Option<u64>) {
        let all = || self.reorder_queue.buffers.keys().copied().collect();
        for stream in channel.map_or_else(all, |channel| self.reorder_queue.streams_of(channel)) {
            self.reorder_queue.pass(stream, u64::MAX);
            self.reorder_queue.buffers.remove(&stream);
        }
    }

    /// Applies a change of the order of a channel: nothing waits, and complete messages are passed.
    pub(super) fn change_order(&mut self, channel: u64) {
        self.release_waiting(Some(channel));
        let topic = Traffic::Topic(channel);
        let Some(open) = self.channels.get(&topic) else { return };
        if let DeliveryOrder::Sent { .. } = open.topic.order {
            for (source, seen) in &open.sources {
                self.reorder_queue.pass_from_start((topic, *source), seen.highest());
            }
        }
    }

    /// Drops the complete messages of a channel, including those that no longer wait.
    pub(super) fn drop_waiting(&mut self, channel: u64) {
        for stream in self.reorder_queue.streams_of(channel) {
            let last =
                self.reorder_queue.buffers.get(&stream).and_then(|it| it.waiting.last_key_value());
            if let Some((&last, _)) = last {
                self.reorder_queue.pass(stream, last);
            }
        }
        let before = self.reorder_queue.ready.len();
        self.reorder_queue.ready.retain(|(traffic, _)| *traffic != Traffic::Topic(channel));
        let dropped = before - self.reorder_queue.ready.len();
        let Some(channel) = self.channel_mut(channel) else { return };
        channel.stats.waiting -= dropped as u64;
        (0..dropped).for_each(|_| channel.stats.dropped.add(DropReason::Refused));
    }

    /// The next message that no longer waits, and its channel. A message that has expired meanwhile, because
    /// this process paused, is dropped.
    pub(crate) fn next_ready(&mut self, now: Instant) -> Option<(u64, Received)> {
        while let Some((traffic, complete)) = self.reorder_queue.ready.pop_front() {
            let CompleteMessage { mut message, delay, since } = complete;
            let Some(channel) = self.channels.get_mut(&traffic) else { continue };
            channel.stats.waiting -= 1;
            message.age += now.since(since);
            if channel.topic.lifespan.is_some_and(|lifespan| message.age > lifespan) {
                channel.stats.dropped.add(DropReason::Expired);
                continue;
            }
            channel.count_delivered(message.payload.len(), delay + now.since(since));
            return Some((traffic.channel(), message));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::inbox::{FrameEffect, Transit};
    use crate::wire::control::OfferedTopic;
    use crate::wire::frame::{Data, Fragment};
    use proptest::prelude::*;

    const CHANNEL: u64 = 1;
    const WAIT: Duration = Duration::from_millis(200);

    fn at(ms: u64) -> Instant {
        Instant((1000 + ms) * 1_000_000)
    }

    fn topic(order: DeliveryOrder) -> OfferedTopic {
        OfferedTopic { order, keep_last: 1000, ..OfferedTopic::nameless(0) }
    }

    /// A receiver with one channel, and what it delivered.
    struct Receiver {
        inbox: Inbox,
        delivered: Vec<u64>,
        ages: Vec<Duration>,
    }

    impl Receiver {
        fn new(topic: OfferedTopic) -> Self {
            let mut inbox = Inbox::new(10_000, 10_000);
            inbox.set_offer(CHANNEL, topic);
            inbox.channel_mut(CHANNEL).unwrap().wanted = true;
            Self { inbox, delivered: Vec::new(), ages: Vec::new() }
        }

        /// Handles the waits that end before `now`, each at its time.
        fn pass_time(&mut self, now: Instant) {
            while let Some(end) = self.inbox.next_wait_deadline().filter(|end| *end <= now) {
                self.inbox.end_waits(end);
                self.note(end);
            }
        }

        fn note(&mut self, now: Instant) {
            while let Some((channel, message)) = self.inbox.next_ready(now) {
                assert_eq!(channel, CHANNEL);
                self.delivered.push(number_of(&message));
                self.ages.push(message.age);
            }
        }

        /// Takes a message of 100 bytes, or its first half.
        fn take(&mut self, now: Instant, number: u64, is_whole: bool) {
            self.pass_time(now);
            let fragment = (!is_whole).then_some(Fragment { total: 100, offset: 0 });
            let payload = [&number.to_le_bytes()[..], &[0; 92]].concat();
            let age = Duration::from_millis(10);
            let data = Data {
                channel: CHANNEL,
                number,
                source: 3,
                encoded: false,
                age,
                fragment,
                place: None,
            };
            let bytes = if is_whole { &payload[..] } else { &payload[..50] };
            let taken = self.inbox.handle_data(now, Transit::default(), &data, bytes);
            if let FrameEffect::Message(message) = taken {
                self.delivered.push(number_of(&message));
            }
            self.note(now);
        }

        fn dropped(&self, reason: DropReason) -> u64 {
            self.inbox.channel(CHANNEL).unwrap().stats.dropped.get(reason)
        }
    }

    fn number_of(message: &Received) -> u64 {
        u64::from_le_bytes(*message.payload.first_chunk().unwrap())
    }

    #[test]
    fn a_message_waits_for_earlier_ones_and_its_age_includes_the_wait() {
        let mut receiver = Receiver::new(topic(DeliveryOrder::Sent { wait: WAIT }));
        receiver.take(at(0), 2, true);
        receiver.take(at(5), 4, true);
        assert_eq!(receiver.delivered, [0; 0]);
        receiver.take(at(50), 1, true);
        assert_eq!(receiver.delivered, [1, 2]);
        assert_eq!(receiver.ages, [10, 60].map(Duration::from_millis));
        receiver.pass_time(at(204));
        assert_eq!(receiver.delivered, [1, 2]);
        receiver.pass_time(at(205));
        receiver.take(at(206), 3, true);
        receiver.take(at(206), 5, true);
        assert_eq!(receiver.delivered, [1, 2, 4, 5]);
        assert_eq!(receiver.dropped(DropReason::Late), 1);
        let stats = receiver.inbox.channel(CHANNEL).unwrap().stats;
        assert_eq!((stats.delivered, stats.delay.max), (4, Duration::from_millis(210)));
    }

    #[test]
    fn an_overtaking_message_is_delivered_at_once_or_makes_earlier_ones_late() {
        let arrivals = [2, 1, 4, 3];
        for (order, delivered) in
            [(DeliveryOrder::Arrival, vec![2, 1, 4, 3]), (DeliveryOrder::Newest, vec![2, 4])]
        {
            let mut receiver = Receiver::new(topic(order));
            arrivals.iter().for_each(|number| receiver.take(at(0), *number, true));
            assert_eq!(receiver.delivered, delivered);
        }
    }

    #[test]
    fn the_receiver_does_not_wait_for_a_dropped_message() {
        let order = DeliveryOrder::Sent { wait: WAIT };
        let lifespan = Some(Duration::from_millis(100));
        let mut receiver = Receiver::new(OfferedTopic { lifespan, ..topic(order) });
        receiver.take(at(0), 1, false);
        receiver.take(at(80), 2, true);
        // Message 1 expires at 90 ms; message 2 would wait for half of the 90 ms that it has left.
        receiver.inbox.expire(at(91));
        receiver.note(at(91));
        assert_eq!(receiver.delivered, [2]);
        receiver.take(at(100), 4, true);
        receiver.pass_time(at(144));
        assert_eq!(receiver.delivered, [2]);
        receiver.pass_time(at(145));
        assert_eq!(receiver.delivered, [2, 4]);
    }

    #[test]
    fn the_receiver_does_not_wait_for_a_superseded_message() {
        let order = DeliveryOrder::Sent { wait: WAIT };
        let mut receiver = Receiver::new(OfferedTopic { keep_last: 3, ..topic(order) });
        [2, 3].into_iter().for_each(|number| receiver.take(at(0), number, true));
        assert_eq!(receiver.delivered, [0; 0]);
        receiver.take(at(1), 4, true);
        assert_eq!(receiver.delivered, [2, 3, 4]);
        let mut receiver = Receiver::new(OfferedTopic { keep_last: 1, ..topic(order) });
        [5, 4, 9].into_iter().for_each(|number| receiver.take(at(0), number, true));
        assert_eq!(receiver.delivered, [5, 9]);
    }

    #[test]
    fn a_peer_that_leaves_gaps_is_bounded_and_loses_nothing() {
        let gaps = |count: u64| (1..=count).map(|it| 2 * it);
        let mut receiver = Receiver::new(topic(DeliveryOrder::Sent { wait: WAIT }));
        gaps(120).for_each(|number| receiver.take(at(0), number, true));
        assert!(receiver.inbox.reorder_queue.bytes <= 10_000);
        assert_eq!(receiver.delivered, gaps(20).collect::<Vec<_>>());
        // An incomplete message takes space from those that wait.
        receiver.take(at(0), 241, false);
        assert_eq!(receiver.delivered, gaps(21).collect::<Vec<_>>());
        let far = 1 << 60;
        receiver.take(at(0), far, true);
        assert_eq!(receiver.delivered.len(), 120);
        (1..50).for_each(|before| receiver.take(at(0), far - before, true));
        receiver.pass_time(at(200));
        assert_eq!(receiver.delivered[120..], (far - 49..=far).collect::<Vec<_>>());
        let mut receiver = Receiver::new(topic(DeliveryOrder::Sent { wait: WAIT }));
        receiver.inbox.max_bytes = usize::MAX;
        receiver.inbox.channel_mut(CHANNEL).unwrap().topic.keep_last = u32::MAX;
        for source in 0..4 {
            for number in (0..500).map(|it| 2 + 2 * it) {
                let age = Duration::ZERO;
                let (channel, encoded, fragment) = (CHANNEL, false, None);
                let data = Data { channel, number, source, encoded, age, fragment, place: None };
                let _ = receiver.inbox.handle_data(at(0), Transit::default(), &data, &[0; 8]);
            }
        }
        assert_eq!(receiver.inbox.reorder_queue.wait_deadlines.len(), limits::WAITING_MESSAGES);
        assert_eq!(receiver.inbox.reorder_queue.ready.len(), 2000 - limits::WAITING_MESSAGES);
    }

    #[test]
    fn waiting_messages_are_delivered_at_the_end_and_dropped_without_a_subscription() {
        let order = DeliveryOrder::Sent { wait: WAIT };
        for channel in [None, Some(CHANNEL)] {
            let mut receiver = Receiver::new(topic(order));
            [3, 2].into_iter().for_each(|number| receiver.take(at(0), number, true));
            receiver.inbox.release_waiting(channel);
            receiver.note(at(0));
            assert_eq!(receiver.delivered, [2, 3]);
        }
        let mut receiver = Receiver::new(topic(order));
        [3, 2].into_iter().for_each(|number| receiver.take(at(0), number, true));
        receiver.inbox.drop_unwanted(CHANNEL);
        [1, 4].into_iter().for_each(|number| receiver.take(at(0), number, true));
        assert_eq!(receiver.delivered, [4]);
        assert_eq!(receiver.dropped(DropReason::Refused), 2);
        // A complete message that waits for an incomplete one.
        receiver.take(at(0), 5, false);
        receiver.take(at(0), 6, true);
        receiver.inbox.drop_unwanted(CHANNEL);
        receiver.note(at(0));
        assert_eq!(receiver.delivered, [4]);
        assert_eq!(receiver.dropped(DropReason::Refused), 4);
    }

    #[test]
    fn a_changed_order_applies_to_later_messages() {
        let mut receiver = Receiver::new(topic(DeliveryOrder::Sent { wait: WAIT }));
        [1, 3].into_iter().for_each(|number| receiver.take(at(0), number, true));
        receiver.inbox.set_offer(CHANNEL, topic(DeliveryOrder::Sent { wait: WAIT / 2 }));
        receiver.note(at(0));
        assert_eq!(receiver.delivered, [1, 3]);
        [5, 2].into_iter().for_each(|number| receiver.take(at(0), number, true));
        receiver.pass_time(at(100));
        assert_eq!(receiver.delivered, [1, 3, 5]);
        receiver.inbox.set_offer(CHANNEL, topic(DeliveryOrder::Arrival));
        [7, 6].into_iter().for_each(|number| receiver.take(at(100), number, true));
        assert_eq!(receiver.delivered, [1, 3, 5, 7, 6]);
    }

    /// Number, time in milliseconds, and whether the message is whole, in the order of arrival.
    fn arrivals() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
        proptest::collection::vec((1..60u64, 0..60u64, proptest::bool::weighted(0.9)), 0..80)
            .prop_map(|drawn| {
                let mut now = 0;
                let later = |(number, pause, is_whole): (u64, u64, bool)| {
                    now += pause;
                    (number, now, is_whole)
                };
                drawn.into_iter().map(later).collect()
            })
    }

    proptest! {
        #[test]
        fn any_arrivals_are_delivered_in_order_and_within_the_wait(
            arrivals in arrivals(),
            keep_last in prop_oneof![1..5u32, Just(1000u32)],
        ) {
            let order = DeliveryOrder::Sent { wait: WAIT };
            let mut receiver = Receiver::new(OfferedTopic { keep_last, ..topic(order) });
            for &(number, ms, is_whole) in &arrivals {
                receiver.take(at(ms), number, is_whole);
            }
            receiver.pass_time(at(1_000_000));
            let delivered = &receiver.delivered;
            prop_assert!(delivered.is_sorted_by(|a, b| a < b), "{:?}", delivered);
            prop_assert_eq!(receiver.inbox.reorder_queue.bytes, 0);
            prop_assert_eq!(receiver.inbox.channel(CHANNEL).unwrap().stats.waiting, 0);
            prop_assert!(receiver.ages.iter().all(|age| *age <= WAIT + Duration::from_millis(10)));
            let first_whole = |number| {
                arrivals.iter().position(|it| it.0 == number && it.2)
            };
            for number in 1..60 {
                let Some(place) = first_whole(number) else {
                    prop_assert!(!delivered.contains(&number));
                    continue;
                };
                // Nothing newer had waited long enough, and fewer than `keep_last` were complete.
                let newer = arrivals[..place].iter().filter(|it| it.0 > number && it.2);
                let is_in_time = newer.clone().all(|it| it.1 + 200 > arrivals[place].1);
                let highest = newer.map(|it| it.0).max().unwrap_or(0);
                if is_in_time && number + u64::from(keep_last) > highest {
                    prop_assert!(delivered.contains(&number), "{} of {:?}", number, delivered);
                }
            }
        }
    }
}
