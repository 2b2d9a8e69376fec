// SPDX-License-Identifier: Apache-2.0
//! Limits of incomplete messages.

use super::*;
use crate::wire::frame::Fragment;

const MAP: u64 = 1;
const IMAGE: u64 = 2;
const MAX_BYTES: usize = 100_000;

fn at(ms: u64) -> Instant {
    Instant((1000 + ms) * 1_000_000)
}

fn inbox() -> Inbox {
    let mut inbox = Inbox::new(MAX_BYTES, MAX_BYTES);
    for channel in [MAP, IMAGE] {
        let topic = OfferedTopic { keep_last: 1000, ..OfferedTopic::nameless(0) };
        inbox.set_offer(channel, topic);
        inbox.channel_mut(channel).unwrap().wanted = true;
    }
    inbox
}

/// Takes a fragment of 100 bytes; returns whether it completes its message.
fn take(inbox: &mut Inbox, now: Instant, (channel, number): (u64, u64), place: Fragment) -> bool {
    let data = Data {
        channel,
        number,
        source: 0,
        encoded: false,
        age: Duration::ZERO,
        fragment: Some(place),
        place: None,
    };
    matches!(inbox.handle_data(now, Transit::default(), &data, &[7; 100]), FrameEffect::Message(_))
}

fn start(inbox: &mut Inbox, now: Instant, message: (u64, u64), total: u32) {
    assert!(!take(inbox, now, message, Fragment { total, offset: 0 }));
}

fn dropped_count(inbox: &Inbox, channel: u64) -> u64 {
    inbox.channel(channel).unwrap().stats.dropped.get(DropReason::Incomplete)
}

#[test]
fn a_delayed_message_outlives_a_stream_without_repair() {
    for (total, count) in [(10_000, 100), (200, 1000)] {
        let mut inbox = inbox();
        start(&mut inbox, at(0), (MAP, 1), 200);
        for number in 1..=count {
            start(&mut inbox, at(number), (IMAGE, number), total);
            assert!(inbox.partial_bytes <= MAX_BYTES);
            assert!(inbox.partials.len() <= limits::PARTIAL_MESSAGES);
        }
        assert_eq!(dropped_count(&inbox, MAP), 0);
        assert!(dropped_count(&inbox, IMAGE) > count / 2);
        let place = Fragment { total: 200, offset: 100 };
        assert!(take(&mut inbox, at(600_000), (MAP, 1), place), "it is completed");
    }
}

#[test]
fn a_message_is_dropped_only_if_newer_ones_of_its_source_arrive() {
    let mut inbox = inbox();
    let second = |n: u64| at(1000 * n);
    start(&mut inbox, second(0), (IMAGE, 1), 200);
    start(&mut inbox, second(0), (IMAGE, 2), 40_000);
    // Both messages are held up, as in an outage.
    (0..100).for_each(|n| inbox.expire(second(n)));
    assert_eq!(dropped_count(&inbox, IMAGE), 0);
    for n in 100..110 {
        let place = Fragment { total: 40_000, offset: 100 * (n as u32 - 99) };
        assert!(!take(&mut inbox, second(n), (IMAGE, 2), place));
        assert_eq!(dropped_count(&inbox, IMAGE), 0);
        inbox.expire(at(1000 * n + 500));
    }
    assert_eq!((dropped_count(&inbox, IMAGE), inbox.partials.len()), (1, 1));
}

#[test]
fn without_a_subscription_incomplete_messages_are_dropped() {
    let mut inbox = inbox();
    start(&mut inbox, at(0), (MAP, 1), 200);
    start(&mut inbox, at(0), (IMAGE, 1), 200);
    inbox.drop_unwanted(MAP);
    assert_eq!((inbox.partials.len(), inbox.partial_bytes), (1, 200));
    assert_eq!(inbox.channel(MAP).unwrap().stats.dropped.get(DropReason::Refused), 1);
}
