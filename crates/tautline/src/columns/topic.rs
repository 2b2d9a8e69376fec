// SPDX-License-Identifier: Apache-2.0
//! The columns of topics.

use super::column::Width::{Fixed, Flexible};
use super::column::{Cell, Column, Columns, MIN_WIDTH_FOR_LINKS, ReportWithRates, Tone, Value};
use crate::rates::TopicRates;
use crate::status::{Direction, GivenUpReport, TopicReport};
use Value::{Absent, Bytes, Count, Flag, Milliseconds, Number, Share, Text, Unknown};

type Topic = Column<TopicReport, TopicRates>;
type Row<'r, 's> = &'r ReportWithRates<'s, TopicReport, TopicRates>;

/// The columns of topics.
pub const TOPICS: Columns<TopicReport, TopicRates> = Columns(&[
    Topic::new("Direction of the messages: > is sent by this robot", |topic| {
        Text(topic.now.direction.arrow().into())
    })
    .in_status(10, "")
    .cell(10, Cell::left_aligned("", Fixed(1))),
    Topic::new("Local name", |topic| Text(topic.now.topic.clone()))
        .in_status(20, "TOPIC")
        .cell(20, Cell { keeps_end: true, ..Cell::left_aligned("TOPIC", Flexible(4)) }),
    Topic::new("The other node", |topic| Text(topic.now.peer.clone()))
        .in_status(30, "PEER")
        .cell(30, Cell { wide: Fixed(12), ..Cell::left_aligned("PEER", Fixed(7)) }),
    Topic::new("Type name", |topic| Text(topic.now.type_name.clone())).in_status(40, "TYPE"),
    Topic::new("Priority, 0-255, higher first", |topic| Count(topic.now.priority.into()))
        .in_status(50, "PRIO")
        .cell(40, Cell::right_aligned("PRIO", 4))
        .gauge(90, "tautline_topic_priority"),
    Topic::new("Whether there is a subscriber at the receiving end", |topic| {
        Flag(topic.now.wanted)
    })
    .in_status(60, "WANTED"),
    Topic::new("Messages accepted for sending (out) or passed to the gateway (in)", |topic| {
        Count(topic.now.messages)
    })
    .in_status(70, "MESSAGES")
    .counter(10, "tautline_topic_messages"),
    Topic::new("Messages per second", |topic| topic.change(|it| it.rate_hz, Number))
        .cell(50, Cell::right_aligned("Hz", 5)),
    Topic::new("Uncompressed payload bytes of these messages", |topic| Bytes(topic.now.bytes))
        .in_status(80, "BYTES")
        .counter(20, "tautline_topic_bytes"),
    Topic::new("Payload bits per second", |topic| topic.change(|it| it.bps, Number))
        .cell(60, Cell::right_aligned("bit/s", 5)),
    Topic::new("Messages known to be complete at the peer; out only", |topic| {
        if_out(topic, topic.now.delivered)
    })
    .in_status(90, "DELIVERED"),
    Topic::new("Messages known to be complete at the peer", |topic| Count(topic.now.delivered))
        .counter(30, "tautline_topic_delivered"),
    Topic::new("Messages delivered (out) or passed to the gateway (in)", |topic| {
        Value::if_known(topic.rates.map(|rates| rates.delivered), Count)
    })
    .cell(90, Cell::right_aligned("DELIV", 5)),
    Topic::new("Queued messages; out only", |topic| if_out(topic, topic.now.queued))
        .in_status(100, "QUEUED"),
    Topic::new("Queued messages", |topic| Count(topic.now.queued))
        .cell(100, Cell::right_aligned("QUEUE", 5))
        .gauge(60, "tautline_topic_queued"),
    Topic::new("Messages sent, outcome unknown; out only", |topic| if_out(topic, topic.now.sent))
        .in_status(110, "SENT"),
    Topic::new("Messages sent, outcome unknown", |topic| Count(topic.now.sent))
        .gauge(70, "tautline_topic_unconfirmed"),
    Topic::new("One-way delay since the start", delays).in_status(120, "DELAY ms p50/p99/max"),
    Topic::new("Median delay in the interval", |topic| topic.change(|it| it.p50_ms, Milliseconds))
        .cell(70, Cell::right_aligned("p50", 5)),
    Topic::new("99th percentile of the delay in the interval", |topic| {
        topic.change(|it| it.p99_ms, Milliseconds)
    })
    .cell(80, Cell::right_aligned("p99 ms", 6)),
    Topic::new("Messages dropped since the start, by reason", |topic| {
        Value::Dropped(None, topic.now.drops_by_reason())
    })
    .in_status(130, "DROPPED"),
    Topic::new(
        "Messages dropped lately and since the start, those of the gateway included",
        dropped_messages,
    )
    .cell(110, Cell::left_aligned("DROPPED", Flexible(3)))
    .tone(|topic| match topic.rates.is_some_and(|rates| rates.dropped_now > 0) {
        true => Tone::Notice,
        false => Tone::Normal,
    }),
    Topic::new("The links that carried the topic in the interval", |topic| {
        let links = topic.rates.and_then(|rates| rates.links.as_ref());
        links.map_or(Absent, |links| Text(links.in_words()))
    })
    .cell(120, LINKS_CELL),
    Topic::new("Messages dropped at the source by the rate limit", |topic| {
        Count(topic.now.rate_limited)
    })
    .counter(40, "tautline_topic_rate_limited"),
    Topic::new("Lost packets recovered from parity", |topic| Count(topic.now.recovered_packets))
        .counter(50, "tautline_topic_recovered_packets"),
    Topic::new("Fraction of messages dropped in the last 10 s, 0 to 1", |topic| {
        Share(topic.now.given_up.as_ref().map_or(0.0, GivenUpReport::share))
    })
    .gauge(80, "tautline_topic_given_up_ratio"),
]);

/// The cell of the links of a topic. Shown only on wide terminals, and only if several links lead
/// to the peer.
const LINKS_CELL: Cell = Cell {
    min_terminal_width: MIN_WIDTH_FOR_LINKS,
    hide_if_empty: true,
    ..Cell::left_aligned("LINKS", Flexible(3))
};

fn if_out(topic: Row, count: u64) -> Value {
    if topic.now.direction == Direction::Out { Count(count) } else { Absent }
}

fn delays(topic: Row) -> Value {
    topic.now.delay.as_ref().map_or(Unknown, |delay| {
        Value::Several([delay.p50_ms, delay.p99_ms, delay.max_ms].map(Milliseconds).into())
    })
}

fn dropped_messages(topic: Row) -> Value {
    let dropped = topic.rates.map(|rates| rates.dropped.clone());
    Value::Dropped(topic.now.given_up.clone(), dropped.unwrap_or_default())
}
