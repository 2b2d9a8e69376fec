// SPDX-License-Identifier: Apache-2.0
//! All controllers against one model of a way: a queue of limited length before a server of
//! fixed rate, reports every 15 ms, some of them lost.

mod cubic;

use super::{Ask, Auto, BackPressure, Controller, Fixed, Rcom, Release, Report};
use crate::time::{Duration, Instant, airtime};
use cubic::Cubic;
use std::collections::VecDeque;
use std::ops::Range;

const PACKET: usize = 1500;
const WAY: Duration = Duration::from_millis(2);
const REPORT_EVERY: Duration = Duration::from_millis(15);
const STEP: Duration = Duration::from_micros(100);

struct Way {
    rate_bps: u64,
    queue_bytes: usize,
    /// Every so many reports one is lost; 0 is none.
    report_loss: u64,
    /// How much longer packets take that are sent at a time, whatever waits; none overtakes.
    foreign: fn(Instant) -> Duration,
    /// In these seconds a download takes what it can.
    download: Range<u64>,
}

impl Way {
    fn new(rate_bps: u64) -> Self {
        let foreign = |_| Duration::ZERO;
        Self { rate_bps, queue_bytes: 300_000, report_loss: 0, foreign, download: 0..0 }
    }

    /// When the way is free after a packet that comes at `now`; `None` if it finds no room.
    fn after(&self, now: Instant, free_at: Instant) -> Option<Instant> {
        let waiting = free_at.since(now).as_secs_f64() * self.rate_bps as f64 / 8.0;
        let fits = waiting as usize + PACKET <= self.queue_bytes;
        fits.then(|| free_at.max(now) + airtime(PACKET, self.rate_bps))
    }
}

/// A packet: when it left and arrived, its number, its wait; `None`: dropped at the queue.
type Under = (Instant, Instant, u64, Option<Duration>);

/// What a second came to.
#[derive(Debug, Default, Clone, Copy)]
struct Second {
    delivered: usize,
    worst_wait: Duration,
}

/// Runs `controller` with always something to send, but for pauses; one entry per second.
fn run(controller: &mut dyn Controller, way: &Way, seconds: u64, pause: Range<u64>) -> Vec<Second> {
    let (mut now, mut free_at) = (Instant(1_000_000_000), Instant::default());
    let end = now + Duration::from_secs(seconds);
    let mut out = vec![Second::default(); seconds as usize];
    let mut under_way: VecDeque<Under> = VecDeque::new();
    let (mut sent, mut reports, mut next_report) = (0u64, 0u64, now);
    let mut last = now;
    let mut download = Cubic::default();
    while now < end {
        let second = ((now.0 - 1_000_000_000) / 1_000_000_000) as usize;
        if way.download.contains(&(second as u64)) {
            free_at = download.run(now, free_at, way);
        }
        let ask = Ask { bytes: PACKET, urgent: false };
        let outstanding = under_way.len() * PACKET;
        if !pause.contains(&(second as u64))
            && controller.release(now, ask, outstanding) == Release::Now
        {
            controller.on_sent(now, PACKET, outstanding);
            sent += 1;
            let after = way.after(now, free_at);
            let fits = after.is_some();
            free_at = after.unwrap_or(free_at);
            let arrives = (free_at.max(now) + WAY + (way.foreign)(now)).max(last);
            last = arrives;
            under_way.push_back((now, arrives, sent, fits.then(|| arrives.since(now) - WAY)));
        }
        if now >= next_report {
            next_report = now + REPORT_EVERY;
            reports += 1;
            let lost = way.report_loss > 0 && reports.is_multiple_of(way.report_loss);
            if !lost {
                report(controller, now, &mut under_way, &mut out[second]);
            }
        }
        now = now + STEP;
    }
    out
}

fn report(
    controller: &mut dyn Controller,
    now: Instant,
    under_way: &mut VecDeque<Under>,
    second: &mut Second,
) {
    let mut waits = Vec::new();
    let (mut newest, mut lost) = (None, 0);
    while let Some((left, at, number, wait)) = under_way.front().copied().filter(|it| it.1 <= now) {
        under_way.pop_front();
        match wait {
            Some(wait) => waits.push(wait),
            None => lost += 1,
        }
        newest = Some((left, at, number));
    }
    let Some((left, at, number)) = newest.filter(|_| !waits.is_empty()) else { return };
    second.delivered += waits.len() * PACKET;
    second.worst_wait = second.worst_wait.max(waits.iter().max().copied().unwrap_or_default());
    controller.on_report(
        now,
        &Report {
            arrived: at.wire_micros(),
            sent_bytes: number * PACKET as u64,
            sent_packets: number,
            acked_packets: waits.len() as u64,
            lost_packets: lost,
            waited: waits.iter().sum::<Duration>() / waits.len() as u32,
            least_waited: waits.iter().min().copied().unwrap_or_default(),
            ago: now.since(left),
            rtt: WAY * 2,
            outstanding: under_way.len() * PACKET,
        },
    );
}

fn all() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(Auto::new()),
        Box::new(Fixed::new(6_000_000, BackPressure::new(usize::MAX))),
        Box::new(Rcom::aid()),
        Box::new(Rcom::aimd()),
    ]
}

fn share(second: &Second, way: &Way) -> f64 {
    second.delivered as f64 * 8.0 / way.rate_bps as f64
}

/// Of the way, on average over these seconds.
fn mean(seconds: &[Second], way: &Way) -> f64 {
    seconds.iter().map(|second| share(second, way)).sum::<f64>() / seconds.len() as f64
}

#[test]
fn none_stops_for_good_whatever_is_lost_or_paused() {
    for mut controller in all() {
        let way = Way { report_loss: 5, ..Way::new(6_000_000) };
        let seconds = run(&mut *controller, &way, 20, 5..12);
        let after: usize = seconds[12..].iter().map(|second| second.delivered).sum();
        assert!(after > 0, "{}: {seconds:?}", controller.signal());
        assert!(controller.rate_bps().is_some_and(|rate| rate > 0));
    }
}

#[test]
fn what_is_under_way_is_bounded() {
    let mut controller = Auto::new();
    let (now, ask) = (Instant(1_000_000_000), Ask { bytes: PACKET, urgent: false });
    let mut under_way = 0;
    while controller.release(now + airtime(under_way, 1_000_000), ask, under_way) == Release::Now {
        controller.on_sent(now, PACKET, under_way);
        under_way += PACKET;
        assert!(under_way <= controller.limit_bytes() + PACKET, "{}", controller.signal());
    }
    assert!(under_way > 0);
}

#[test]
fn auto_fills_any_way_and_leaves_its_queue_short() {
    for rate_bps in [1_000_000, 6_000_000, 24_000_000] {
        for queue_bytes in [30_000, 300_000] {
            for report_loss in [0, 5] {
                let way = Way { queue_bytes, report_loss, ..Way::new(rate_bps) };
                let seconds = run(&mut Auto::new(), &way, 10, 0..0);
                let most = airtime(PACKET * 3, rate_bps) + Duration::from_millis(2);
                assert!(mean(&seconds[2..], &way) > 0.95, "{rate_bps} {report_loss}: {seconds:?}");
                for second in &seconds[2..] {
                    assert!(second.worst_wait < most, "{rate_bps} {report_loss}: {seconds:?}");
                }
            }
        }
    }
}

#[test]
fn after_a_pause_auto_is_as_fast_as_before() {
    let way = Way::new(12_000_000);
    let seconds = run(&mut Auto::new(), &way, 70, 5..65);
    let (before, after) = (share(&seconds[4], &way), share(&seconds[65], &way));
    assert!(after > 0.8 * before, "{before} {after}");
}

#[test]
fn auto_does_not_take_a_short_queue_for_a_lossy_way() {
    let way = Way { queue_bytes: 4 * PACKET, ..Way::new(12_000_000) };
    let seconds = run(&mut Auto::new(), &way, 10, 0..0);
    for second in &seconds[3..] {
        assert!(share(second, &way) > 0.9, "{seconds:?}");
    }
}

/// The same for the same time, up to `most`, as if drawn by chance.
fn jitter(now: Instant, most: Duration) -> Duration {
    let draw = (now.0 / 100_000).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    most.mul_f64((draw.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) as f64 / 4_294_967_296.0)
}

#[test]
fn a_wait_that_is_not_ours_costs_auto_no_rate() {
    let ways: [fn(Instant) -> Duration; 2] = [
        |now| jitter(now, Duration::from_millis(15)),
        // A way that becomes longer, and shorter again.
        |now| {
            Duration::from_millis(if (6..12).contains(&(now.0 / 1_000_000_000)) { 30 } else { 0 })
        },
    ];
    for rate_bps in [2_000_000, 8_000_000, 24_000_000] {
        for (number, foreign) in ways.into_iter().enumerate() {
            let way = Way { foreign, ..Way::new(rate_bps) };
            let seconds = run(&mut Auto::new(), &way, 20, 0..0);
            // From when it was found out, and while the way is longer.
            assert!(mean(&seconds[8..], &way) > 0.75, "{rate_bps} {number}: {seconds:?}");
        }
    }
}

#[test]
fn beside_a_download_neither_starves_and_after_it_all_is_as_before() {
    for (rate_bps, from) in [(2_000_000, 5), (6_000_000, 5), (6_000_000, 0), (24_000_000, 5)] {
        let way = Way { download: from..60, ..Way::new(rate_bps) };
        let seconds = run(&mut Auto::new(), &way, 80, 0..0);
        // From when both have found what they can have.
        for ten in seconds[20..60].chunks(10) {
            let part = mean(ten, &way);
            assert!((0.1..0.8).contains(&part), "{rate_bps} {from}: {part}");
        }
        let after = &seconds[70..];
        assert!(mean(after, &way) > 0.95, "{rate_bps} {from}: {seconds:?}");
        // A little of the wait may still be taken for that of others.
        let most = airtime(PACKET * 5, rate_bps) + Duration::from_millis(2);
        for second in after {
            assert!(second.worst_wait < most, "{rate_bps} {from}: {seconds:?}");
        }
    }
}
