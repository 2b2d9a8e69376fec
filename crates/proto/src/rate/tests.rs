// SPDX-License-Identifier: Apache-2.0
//! All controllers on one model of a path: a queue of limited length at a bottleneck of fixed rate,
//! and a report every 15 ms, of which some are lost.
//!
//! These tests do not use the paths of `medium`: a controller gets reports and no packets. The delay of the
//! path here may be any function of time, and a download may share its queue.

mod cubic;
mod marking;

use super::{
    Auto, BackPressure, CONTROLS, Controller, Fixed, PendingPacket, Release, Report, Tuning,
};
use crate::time::{Duration, Instant, serialization_time};
use cubic::Cubic;
use marking::{Marker, Marking};
use std::collections::VecDeque;
use std::ops::Range;

const PACKET: usize = 1500;
const PATH_DELAY: Duration = Duration::from_millis(2);
const REPORT_INTERVAL: Duration = Duration::from_millis(15);
const STEP: Duration = Duration::from_micros(100);

struct Path {
    rate_bps: u64,
    queue_bytes: usize,
    /// One report in this many is lost; 0 for none.
    report_loss: u64,
    /// Additional delay of packets sent at a given time. Packets stay in order.
    external: fn(Instant) -> Duration,
    /// Seconds in which a download competes for the path.
    download: Range<u64>,
    marking: Marking,
}

impl Path {
    fn new(rate_bps: u64) -> Self {
        let external = |_| Duration::ZERO;
        let (queue_bytes, marking) = (300_000, Marking::None);
        Self { rate_bps, queue_bytes, report_loss: 0, external, download: 0..0, marking }
    }

    /// When the bottleneck becomes idle after a packet sent at `now`; `None` if the queue is full.
    fn after(&self, now: Instant, free_at: Instant) -> Option<Instant> {
        let queued = free_at.since(now).as_secs_f64() * self.rate_bps as f64 / 8.0;
        let fits = queued as usize + PACKET <= self.queue_bytes;
        fits.then(|| free_at.max(now) + serialization_time(PACKET, self.rate_bps))
    }
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    sent: Instant,
    arrives: Instant,
    number: u64,
    /// Queueing delay of a packet; `None` if the queue dropped it.
    queueing_delay: Option<Duration>,
    is_marked: bool,
}

/// Results of one second.
#[derive(Debug, Default, Clone, Copy)]
struct Second {
    delivered: usize,
    worst_delay: Duration,
}

/// Runs `controller` with a backlog, except in the seconds of `pause`. Returns one entry per
/// second.
fn run(
    controller: &mut dyn Controller,
    path: &Path,
    seconds: u64,
    pause: Range<u64>,
) -> Vec<Second> {
    let (mut now, mut free_at) = (Instant(1_000_000_000), Instant::default());
    let end = now + Duration::from_secs(seconds);
    let mut out = vec![Second::default(); seconds as usize];
    let mut in_flight: VecDeque<InFlight> = VecDeque::new();
    let (mut sent, mut reports, mut next_report) = (0u64, 0u64, now);
    let mut last = now;
    let mut download = Cubic::default();
    let mut marker = Marker::default();
    while now < end {
        let second = ((now.0 - 1_000_000_000) / 1_000_000_000) as usize;
        if path.download.contains(&(second as u64)) {
            free_at = download.run(now, free_at, path, &mut marker);
        }
        let packet = PendingPacket { bytes: PACKET, urgent: false };
        let outstanding = in_flight.len() * PACKET;
        if !pause.contains(&(second as u64))
            && controller.release(now, packet, outstanding) == Release::Now
        {
            controller.on_sent(now, PACKET, outstanding);
            sent += 1;
            let after = path.after(now, free_at);
            let fits = after.is_some();
            let is_marked = fits && marker.marks(now, free_at.since(now), path.marking);
            free_at = after.unwrap_or(free_at);
            let arrives = (free_at.max(now) + PATH_DELAY + (path.external)(now)).max(last);
            last = arrives;
            let queueing_delay = fits.then(|| arrives.since(now) - PATH_DELAY);
            let number = sent;
            in_flight.push_back(InFlight { sent: now, arrives, number, queueing_delay, is_marked });
        }
        if now >= next_report {
            next_report = now + REPORT_INTERVAL;
            reports += 1;
            let lost = path.report_loss > 0 && reports.is_multiple_of(path.report_loss);
            if !lost {
                report(controller, now, &mut in_flight, &mut out[second]);
            }
        }
        now = now + STEP;
    }
    out
}

fn report(
    controller: &mut dyn Controller,
    now: Instant,
    in_flight: &mut VecDeque<InFlight>,
    second: &mut Second,
) {
    let mut delays = Vec::new();
    let (mut newest, mut lost, mut marked) = (None, 0, 0);
    while let Some(packet) = in_flight.pop_front_if(|packet| packet.arrives <= now) {
        match packet.queueing_delay {
            Some(delay) => delays.push(delay),
            None => lost += 1,
        }
        marked += u64::from(packet.is_marked);
        newest = Some(packet);
    }
    let Some(newest) = newest.filter(|_| !delays.is_empty()) else { return };
    second.delivered += delays.len() * PACKET;
    second.worst_delay = second.worst_delay.max(delays.iter().max().copied().unwrap_or_default());
    controller.on_report(
        now,
        &Report {
            arrival_micros: newest.arrives.wire_micros(),
            sent_bytes: newest.number * PACKET as u64,
            sent_packets: newest.number,
            acked_packets: delays.len() as u64,
            lost_packets: lost,
            loss_runs: lost,
            spurious_losses: 0,
            marked_packets: marked,
            queueing_delay: delays.iter().sum::<Duration>() / delays.len() as u32,
            min_queueing_delay: delays.iter().min().copied().unwrap_or_default(),
            since_sent: now.since(newest.sent),
            rtt: newest.arrives.since(newest.sent) + PATH_DELAY,
            outstanding_bytes: in_flight.len() * PACKET,
        },
    );
}

fn controllers() -> Vec<Box<dyn Controller>> {
    let fixed: Box<dyn Controller> = Box::new(Fixed::new(6_000_000, BackPressure::new(usize::MAX)));
    let of_links = CONTROLS.into_iter().filter_map(|control| (control.make)(Tuning::default()));
    of_links.chain([fixed]).collect()
}

fn utilisation(second: &Second, path: &Path) -> f64 {
    second.delivered as f64 * 8.0 / path.rate_bps as f64
}

/// Average utilisation of the path over these seconds.
fn mean(seconds: &[Second], path: &Path) -> f64 {
    seconds.iter().map(|second| utilisation(second, path)).sum::<f64>() / seconds.len() as f64
}

#[test]
fn no_controller_stops_forever_after_losses_or_pauses() {
    for mut controller in controllers() {
        let path = Path { report_loss: 5, ..Path::new(6_000_000) };
        let seconds = run(&mut *controller, &path, 20, 5..12);
        let after: usize = seconds[12..].iter().map(|second| second.delivered).sum();
        assert!(after > 0, "{}: {seconds:?}", controller.signal());
        assert!(controller.rate_bps().is_some_and(|rate| rate > 0));
    }
}

#[test]
fn outstanding_bytes_are_bounded() {
    let mut controller = Auto::default();
    let (now, packet) = (Instant(1_000_000_000), PendingPacket { bytes: PACKET, urgent: false });
    let mut in_flight = 0;
    while controller.release(now + serialization_time(in_flight, 1_000_000), packet, in_flight)
        == Release::Now
    {
        controller.on_sent(now, PACKET, in_flight);
        in_flight += PACKET;
        assert!(in_flight <= controller.limit_bytes() + PACKET, "{}", controller.signal());
    }
    assert!(in_flight > 0);
}

#[test]
fn auto_fills_any_path_and_keeps_its_queue_short() {
    for rate_bps in [1_000_000, 6_000_000, 24_000_000] {
        for queue_bytes in [30_000, 300_000] {
            for report_loss in [0, 5] {
                let path = Path { queue_bytes, report_loss, ..Path::new(rate_bps) };
                let seconds = run(&mut Auto::default(), &path, 10, 0..0);
                let most = serialization_time(PACKET * 3, rate_bps) + Duration::from_millis(2);
                assert!(mean(&seconds[2..], &path) > 0.95, "{rate_bps} {report_loss}: {seconds:?}");
                for second in &seconds[2..] {
                    assert!(second.worst_delay < most, "{rate_bps} {report_loss}: {seconds:?}");
                }
            }
        }
    }
}

#[test]
fn after_a_pause_auto_is_as_fast_as_before() {
    let path = Path::new(12_000_000);
    let seconds = run(&mut Auto::default(), &path, 70, 5..65);
    let (before, after) = (utilisation(&seconds[4], &path), utilisation(&seconds[65], &path));
    assert!(after > 0.8 * before, "{before} {after}");
}

#[test]
fn auto_does_not_mistake_a_short_queue_for_a_lossy_path() {
    let path = Path { queue_bytes: 4 * PACKET, ..Path::new(12_000_000) };
    let seconds = run(&mut Auto::default(), &path, 10, 0..0);
    for second in &seconds[3..] {
        assert!(utilisation(second, &path) > 0.9, "{seconds:?}");
    }
}

/// A pseudo-random delay up to `most`, the same for the same time.
fn jitter(now: Instant, most: Duration) -> Duration {
    let draw = (now.0 / 100_000).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    most.mul_f64((draw.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) as f64 / 4_294_967_296.0)
}

#[test]
fn external_delay_costs_auto_no_rate() {
    let paths: [fn(Instant) -> Duration; 2] = [
        |now| jitter(now, Duration::from_millis(15)),
        // A path that becomes longer for six seconds.
        |now| {
            Duration::from_millis(if (6..12).contains(&(now.0 / 1_000_000_000)) { 30 } else { 0 })
        },
    ];
    for rate_bps in [2_000_000, 8_000_000, 24_000_000] {
        for (number, external) in paths.into_iter().enumerate() {
            let path = Path { external, ..Path::new(rate_bps) };
            let seconds = run(&mut Auto::default(), &path, 20, 0..0);
            // The seconds from the detection of the external delay on, while the path is longer.
            assert!(mean(&seconds[8..], &path) > 0.75, "{rate_bps} {number}: {seconds:?}");
        }
    }
}

/// Models a cell that serves its modems one after another.
#[test]
fn a_pause_of_the_path_costs_auto_little_more_than_itself() {
    const PAUSE: Duration = Duration::from_millis(150);
    const TURN: Duration = Duration::from_millis(1300);
    let external: fn(Instant) -> Duration = |now| {
        let since = Duration::from_nanos(now.0 % TURN.as_nanos() as u64);
        PAUSE.saturating_sub(since) + jitter(now, Duration::from_millis(10))
    };
    let possible = 1.0 - PAUSE.as_secs_f64() / TURN.as_secs_f64();
    for rate_bps in [1_500_000, 4_000_000, 8_000_000] {
        let path = Path { external, ..Path::new(rate_bps) };
        let seconds = run(&mut Auto::default(), &path, 40, 0..0);
        assert!(mean(&seconds[5..], &path) > 0.8 * possible, "{rate_bps}: {seconds:?}");
    }
}

#[test]
fn auto_and_a_download_do_not_starve_each_other() {
    for rate_bps in [2_000_000, 6_000_000, 24_000_000, 54_000_000] {
        for (from, queue_bytes) in [(5, 300_000), (0, 300_000), (5, 1_000_000)] {
            let path = Path { download: from..120, queue_bytes, ..Path::new(rate_bps) };
            let seconds = run(&mut Auto::default(), &path, 150, 0..0);
            let part = mean(&seconds[20..120], &path);
            assert!((0.08..0.8).contains(&part), "{rate_bps} {from} {queue_bytes}: {part}");
            let after = &seconds[140..];
            assert!(mean(after, &path) > 0.95, "{rate_bps} {from} {queue_bytes}: {after:?}");
            // A part of our own queue may still count as external delay.
            let most = serialization_time(PACKET * 5, rate_bps) + Duration::from_millis(2);
            for second in after {
                assert!(second.worst_delay < most, "{rate_bps} {from} {queue_bytes}: {after:?}");
            }
        }
    }
}

proptest::proptest! {
    /// A peer may report anything.
    #[test]
    fn no_report_makes_auto_stop_or_send_without_a_limit(
        reports in proptest::collection::vec(proptest::prelude::any::<[u64; 12]>(), 1..200),
        small in proptest::prelude::any::<bool>(),
    ) {
        let mut controller = Auto::default();
        let mut now = Instant(1_000_000_000);
        for numbers in reports {
            let n = numbers.map(|number| if small { number % 100_000 } else { number });
            let packet = PendingPacket { bytes: PACKET, urgent: n[11] % 2 == 0 };
            if controller.release(now, packet, PACKET) == Release::Now {
                controller.on_sent(now, PACKET, PACKET);
            }
            controller.on_report(now, &Report {
                arrival_micros: n[0] as u32,
                sent_bytes: n[1],
                sent_packets: n[2],
                acked_packets: n[3],
                lost_packets: n[4],
                loss_runs: n[5],
                spurious_losses: n[6],
                marked_packets: n[3] % 7,
                queueing_delay: Duration::from_nanos(n[7]),
                min_queueing_delay: Duration::from_nanos(n[8]),
                since_sent: Duration::from_nanos(n[9]),
                rtt: Duration::from_nanos(n[10]),
                outstanding_bytes: n[11] as usize,
            });
            now = now + Duration::from_micros(n[0] % 20_000);
            let rate = controller.rate_bps().unwrap();
            proptest::prop_assert!((100_000..=12_500_000_000).contains(&rate), "{rate}");
            proptest::prop_assert!(controller.limit_bytes() >= PACKET);
        }
    }
}
