// SPDX-License-Identifier: Apache-2.0
//! A snapshot for tests of `top`.

use tautline::status::Status;

/// Returns the state of a busy robot at `uptime_s`, with counters that match that time.
pub fn status(uptime_s: f64) -> Status {
    let mut status: Status =
        serde_json::from_str(include_str!("../../../../tautline/src/status/fixture.json"))
            .expect("fixture.json is a Status");
    let grown = |per_second: u64| (per_second as f64 * uptime_s) as u64;
    status.uptime_s = uptime_s;
    for topic in &mut status.topics {
        for count in [&mut topic.messages, &mut topic.bytes, &mut topic.delivered] {
            *count = grown(*count);
        }
        for (_, count) in topic.delay.iter_mut().flat_map(|delay| &mut delay.buckets) {
            *count = grown(*count);
        }
    }
    for radio in &mut status.radios {
        radio.sent_bytes = grown(radio.sent_bytes);
        radio.sent_packets = grown(radio.sent_packets);
    }
    for link in &mut status.links {
        let sent = [
            &mut link.sent_packets,
            &mut link.acked_packets,
            &mut link.lost_packets,
            &mut link.sent_bytes,
        ];
        let received =
            [&mut link.repair_bytes, &mut link.received_packets, &mut link.received_bytes];
        sent.into_iter().chain(received).for_each(|count| *count = grown(*count));
    }
    status
}
