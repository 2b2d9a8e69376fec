// SPDX-License-Identifier: Apache-2.0
//! Rivals on a simple pipe in virtual time, against what is published about them: a queue of limited
//! length at a bottleneck of fixed rate, and an acknowledgement of two packets or after 10 ms.

use super::bbr::Bbr;
use super::copa::Copa;
use super::cubic::Cubic;
use super::gcc::Gcc;
use super::scream::Scream;
use super::{ALL, NAMES, named};
use fastrand::Rng;
use std::collections::VecDeque;
use tautline_proto::rate::Tuning;
use tautline_proto::rate::{Controller, PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

const PACKET: usize = 1500;
const STEP: Duration = Duration::from_micros(50);
const ACK_DELAY: Duration = Duration::from_millis(10);
const START: Instant = Instant(1_000_000_000);

struct Pipe {
    bps: f64,
    /// One-way delay.
    delay: Duration,
    queue_bytes: f64,
    loss: f64,
}

impl Pipe {
    fn new(mbps: f64, rtt_ms: u64) -> Self {
        let delay = Duration::from_millis(rtt_ms) / 2;
        Self { bps: mbps * 1e6, delay, queue_bytes: 1e6, loss: 0.0 }
    }

    fn bdp(&self) -> f64 {
        self.bps / 8.0 * self.delay.as_secs_f64() * 2.0
    }

    fn packet_time(&self) -> Duration {
        Duration::from_secs_f64(PACKET as f64 * 8.0 / self.bps)
    }
}

#[derive(Clone, Copy)]
struct Packet {
    number: u64,
    sent: Instant,
    /// Time of arrival; for a lost packet, the time at which it would have arrived.
    arrives: Instant,
    lost: bool,
}

/// One sender, with the figures of each span of 100 ms.
struct Flow {
    controller: Box<dyn Controller>,
    in_flight: VecDeque<Packet>,
    /// Packets whose report is on its way, with the time at which it arrives.
    reports: VecDeque<(Instant, Vec<Packet>)>,
    unreported: Vec<Packet>,
    outstanding: usize,
    sent: u64,
    lost: u64,
    spans: Vec<Span>,
}

#[derive(Default, Clone, Copy)]
struct Span {
    delivered: f64,
    /// Bytes in the queue, summed over steps.
    queue: f64,
    /// Outstanding bytes, summed over steps.
    outstanding: f64,
    steps: f64,
    least_outstanding: f64,
    rate_bps: f64,
}

impl Flow {
    fn new(controller: impl Controller + 'static) -> Self {
        Self {
            controller: Box::new(controller),
            in_flight: VecDeque::new(),
            reports: VecDeque::new(),
            unreported: Vec::new(),
            outstanding: 0,
            sent: 0,
            lost: 0,
            spans: Vec::new(),
        }
    }

    fn send(&mut self, now: Instant, pipe: &Pipe, free_at: &mut Instant, random: &mut Rng) {
        let packet = PendingPacket { bytes: PACKET, urgent: false };
        while self.outstanding < 6000 * PACKET
            && self.controller.release(now, packet, self.outstanding) == Release::Now
        {
            self.outstanding += PACKET;
            self.controller.on_sent(now, PACKET, self.outstanding);
            self.sent += 1;
            let queued = free_at.since(now).as_secs_f64() * pipe.bps / 8.0;
            let fits = queued + PACKET as f64 <= pipe.queue_bytes;
            if fits {
                *free_at = (*free_at).max(now) + pipe.packet_time();
            }
            let lost = !fits || random.f64() < pipe.loss;
            let arrives = (*free_at).max(now) + pipe.delay;
            self.in_flight.push_back(Packet { number: self.sent, sent: now, arrives, lost });
        }
    }

    fn receive(&mut self, now: Instant, pipe: &Pipe) {
        while let Some(packet) = self.in_flight.pop_front_if(|packet| packet.arrives <= now) {
            self.unreported.push(packet);
        }
        let arrived = self.unreported.iter().filter(|packet| !packet.lost);
        let oldest = arrived.clone().next().map(|packet| packet.arrives);
        let due = arrived.count() >= 2 || oldest.is_some_and(|at| now.since(at) >= ACK_DELAY);
        if due {
            let packets = std::mem::take(&mut self.unreported);
            self.reports.push_back((now + pipe.delay, packets));
        }
        while let Some((_, packets)) = self.reports.pop_front_if(|(at, _)| *at <= now) {
            self.report(now, pipe, &packets);
        }
        // Without a later packet, a timer finds losses.
        let is_overdue =
            |it: &Packet| it.lost && now.since(it.arrives) > Duration::from_millis(300);
        while self.unreported.first().is_some_and(is_overdue) {
            self.unreported.remove(0);
            self.outstanding -= PACKET;
        }
    }

    fn report(&mut self, now: Instant, pipe: &Pipe, packets: &[Packet]) {
        self.outstanding -= packets.len() * PACKET;
        let base = pipe.delay + pipe.packet_time();
        let waited = |packet: &Packet| packet.arrives.since(packet.sent).saturating_sub(base);
        let arrived: Vec<Packet> = packets.iter().copied().filter(|it| !it.lost).collect();
        let Some(newest) = arrived.last() else { return };
        let acked = arrived.len() as u64;
        let lost = packets.len() as u64 - acked;
        self.lost += lost;
        let rtt = newest.arrives.since(newest.sent) + pipe.delay;
        let span = self.spans.last_mut().unwrap();
        span.delivered += (arrived.len() * PACKET) as f64;
        self.controller.on_report(
            now,
            &Report {
                arrival_micros: (newest.arrives.0 / 1000) as u32,
                sent_bytes: newest.number * PACKET as u64,
                sent_packets: newest.number,
                acked_packets: acked,
                lost_packets: lost,
                loss_runs: packets.windows(2).filter(|it| it[0].lost && !it[1].lost).count() as u64,
                spurious_losses: 0,
                marked_packets: 0,
                queueing_delay: arrived.iter().map(waited).sum::<Duration>() / acked as u32,
                min_queueing_delay: arrived.iter().map(waited).min().unwrap(),
                since_sent: now.since(newest.sent),
                rtt,
                outstanding_bytes: self.outstanding,
            },
        );
    }
}

/// Runs flows; each flow starts at its second.
fn run(flows: &mut [(u64, Flow)], pipe: &Pipe, seconds: u64) {
    let (mut now, mut free_at, mut random) = (START, START, Rng::with_seed(7));
    let end = now + Duration::from_secs(seconds);
    let mut spans = 0;
    while now < end {
        if now.since(START).as_millis() / 100 >= spans {
            spans += 1;
            for (_, flow) in flows.iter_mut() {
                let rate_bps = flow.controller.rate_bps().unwrap() as f64;
                let least_outstanding = f64::INFINITY;
                flow.spans.push(Span { rate_bps, least_outstanding, ..Span::default() });
            }
        }
        let queue = free_at.since(now).as_secs_f64() * pipe.bps / 8.0;
        for (from, flow) in flows.iter_mut() {
            flow.receive(now, pipe);
            if now.since(START).as_secs() >= *from {
                flow.send(now, pipe, &mut free_at, &mut random);
            }
            let outstanding = flow.outstanding as f64;
            let span = flow.spans.last_mut().unwrap();
            span.queue += queue;
            span.outstanding += outstanding;
            span.steps += 1.0;
            span.least_outstanding = span.least_outstanding.min(outstanding);
        }
        now = now + STEP;
    }
}

fn single_flow(controller: impl Controller + 'static, pipe: &Pipe, seconds: u64) -> Flow {
    let mut flows = [(0, Flow::new(controller))];
    run(&mut flows, pipe, seconds);
    let [(_, flow)] = flows;
    flow
}

/// Figures of the spans from a given second on.
impl Flow {
    fn from(&self, second: usize) -> &[Span] {
        &self.spans[second * 10..]
    }

    fn utilisation(&self, second: usize, pipe: &Pipe) -> f64 {
        let spans = self.from(second);
        spans.iter().map(|it| it.delivered).sum::<f64>() * 80.0 / pipe.bps / spans.len() as f64
    }

    fn mean(&self, second: usize, of: fn(&Span) -> f64) -> f64 {
        let spans = self.from(second);
        spans.iter().map(of).sum::<f64>() / spans.iter().map(|it| it.steps).sum::<f64>()
    }

    fn queue_packets(&self, second: usize) -> f64 {
        self.mean(second, |it| it.queue) / PACKET as f64
    }
}

/// Returns the largest growth of the rate within 100 ms, as a factor, before a given second.
fn growth(flow: &Flow, second: usize) -> f64 {
    let rates: Vec<f64> = flow.spans[..second * 10].iter().map(|it| it.rate_bps).collect();
    rates.windows(2).map(|it| it[1] / it[0]).fold(0.0, f64::max)
}

#[test]
fn every_rival_is_found_by_its_name_and_survives_a_path_without_reports() {
    for (name, rival) in NAMES.into_iter().zip(&ALL) {
        assert_eq!(named(name), Some(tautline_proto::Rate::PerLink(rival)));
        let pipe = Pipe { loss: 0.7, queue_bytes: 20_000.0, ..Pipe::new(6.0, 20) };
        let mut flows = [(
            0,
            Flow {
                controller: (rival.make)(Tuning::default()).unwrap(),
                ..Flow::new(Cubic::new())
            },
        )];
        run(&mut flows, &pipe, 10);
        assert!(flows[0].1.from(5).iter().any(|it| it.delivered > 0.0), "{name} stopped");
    }
    assert_eq!(named("auto"), None);
}

#[test]
fn bbr_fills_a_pipe_with_one_to_one_and_a_half_bandwidth_delay_products_in_flight() {
    for (mbps, rtt_ms) in [(12.0, 40), (50.0, 40), (100.0, 20), (4.0, 100)] {
        let pipe = Pipe::new(mbps, rtt_ms);
        let flow = single_flow(Bbr::new(), &pipe, 30);
        let used = flow.utilisation(10, &pipe);
        assert!(used > 0.93, "{mbps} Mbps, {rtt_ms} ms: {used}");
        let in_flight = flow.mean(10, |it| it.outstanding) / pipe.bdp();
        assert!((0.95..1.5).contains(&in_flight), "{mbps} Mbps, {rtt_ms} ms: {in_flight}");
    }
}

/// The draft, section 5.3.1: in Startup the rate doubles in each round, by a gain of 2.77, and the
/// queue is at most a bandwidth-delay product.
#[test]
fn bbr_starts_by_doubling_and_drains_its_queue() {
    let pipe = Pipe::new(50.0, 40);
    let flow = single_flow(Bbr::new(), &pipe, 5);
    let rate = |span: usize| flow.spans[span].rate_bps;
    let first = STARTUP_GAIN * 10.0 * PACKET as f64 * 8.0 / 0.04;
    assert!(rate(1) > first * 0.9, "{} of {first}", rate(1));
    let peak = flow.spans[..10].iter().map(|it| it.rate_bps).fold(0.0, f64::max);
    assert!(peak > STARTUP_GAIN * 0.9 * pipe.bps, "{peak}");
    let queue = |span: &Span| span.queue / span.steps / pipe.bdp();
    let most = flow.spans.iter().map(queue).fold(0.0, f64::max);
    assert!((0.3..1.3).contains(&most), "{most}");
    let drained = flow.spans[10..20].iter().map(queue).fold(f64::INFINITY, f64::min);
    assert!(drained < 0.1, "{drained}");
}

const STARTUP_GAIN: f64 = 2.77;

/// The draft, section 5.3.4: every five seconds, half a bandwidth-delay product for 200 ms, while
/// the round trip does not fall below its minimum by itself.
#[test]
fn bbr_measures_the_round_trip_every_five_seconds() {
    let pipe = Pipe::new(50.0, 40);
    let flow = single_flow(Bbr::new(), &pipe, 30);
    let is_low: Vec<bool> =
        flow.spans.iter().map(|it| it.least_outstanding < 0.6 * pipe.bdp()).collect();
    let starts: Vec<usize> =
        (20..is_low.len()).filter(|span| is_low[*span] && !is_low[span - 1]).collect();
    assert!((3..=6).contains(&starts.len()), "{starts:?}");
    for pair in starts.windows(2) {
        assert!((45..=65).contains(&(pair[1] - pair[0])), "{starts:?}");
    }
}

/// The threshold is 2 % in a round. Below it, the rate falls by what is lost in each of at most 63
/// rounds of Cruise, and the next probe restores it (section 5.3.3): on average three quarters remain.
#[test]
fn bbr_keeps_its_rate_at_one_percent_loss_but_not_at_twenty() {
    let pipe = |loss| Pipe { loss, ..Pipe::new(100.0, 40) };
    let used = |loss| single_flow(Bbr::new(), &pipe(loss), 20).utilisation(5, &pipe(loss));
    assert!(used(0.01) > 0.7, "{}", used(0.01));
    assert!(used(0.2) < 0.3, "{}", used(0.2));
}

/// The paper, section 2: with δ = 0.5, the queue swings between none and about 2.5/δ packets.
#[test]
fn copa_keeps_a_queue_of_about_two_packets() {
    for (mbps, rtt_ms) in [(12.0, 40), (24.0, 20), (6.0, 80)] {
        let pipe = Pipe::new(mbps, rtt_ms);
        let flow = single_flow(Copa::new(), &pipe, 30);
        let (used, queue) = (flow.utilisation(10, &pipe), flow.queue_packets(10));
        assert!(used > 0.95, "{mbps} Mbps, {rtt_ms} ms: {used}");
        assert!((1.0..6.0).contains(&queue), "{mbps} Mbps, {rtt_ms} ms: {queue}");
    }
}

#[test]
fn two_flows_of_copa_share_equally_and_losses_do_not_matter() {
    let pipe = Pipe { loss: 0.01, ..Pipe::new(12.0, 40) };
    let mut flows = [(0, Flow::new(Copa::new())), (5, Flow::new(Copa::new()))];
    run(&mut flows, &pipe, 40);
    let [one, other] = [0, 1].map(|it| flows[it].1.utilisation(15, &pipe));
    assert!(one + other > 0.93, "{one} {other}");
    assert!((0.6..1.67).contains(&(one / other)), "{one} {other}");
}

/// The paper, section 2.2: against a flow that fills the queue, Copa competes.
#[test]
fn copa_competes_with_cubic() {
    let pipe = Pipe { queue_bytes: 60_000.0, ..Pipe::new(12.0, 40) };
    let mut flows = [(0, Flow::new(Copa::new())), (5, Flow::new(Cubic::new()))];
    run(&mut flows, &pipe, 60);
    let share = flows[0].1.utilisation(20, &pipe);
    assert!((0.15..0.85).contains(&share), "{share}");
}

/// The target is 60 ms, and backoff begins at half of it.
#[test]
fn scream_keeps_the_queue_between_half_the_target_and_the_target() {
    for (mbps, rtt_ms) in [(12.0, 40), (3.0, 40), (24.0, 20)] {
        let pipe = Pipe::new(mbps, rtt_ms);
        let flow = single_flow(Scream::new(), &pipe, 40);
        let used = flow.utilisation(20, &pipe);
        let queue_ms = flow.mean(20, |it| it.queue) * 8e3 / pipe.bps;
        assert!(used > 0.95, "{mbps} Mbps, {rtt_ms} ms: {used}");
        assert!((15.0..60.0).contains(&queue_ms), "{mbps} Mbps, {rtt_ms} ms: {queue_ms}");
    }
}

/// After an overuse the rate is 0.85 of the received one. Far from convergence it grows by at most
/// 8 % per second, and near it by about half a packet per response time.
#[test]
fn gcc_decreases_to_85_percent_and_grows_by_8_percent_per_second() {
    let pipe = Pipe::new(12.0, 40);
    let flow = single_flow(Gcc::new(), &pipe, 40);
    let rates: Vec<f64> = flow.spans.iter().map(|it| it.rate_bps).collect();
    let cut = rates.windows(2).map(|it| it[1] / it[0]).fold(f64::INFINITY, f64::min);
    assert!((0.4..0.9).contains(&cut), "{cut}");
    let least = rates[100..].iter().copied().fold(f64::INFINITY, f64::min) / pipe.bps;
    assert!((0.7..0.9).contains(&least), "{least}");
    for span in (200..390).step_by(10) {
        let growth = rates[span + 10] / rates[span];
        assert!(growth < 1.085, "{growth} at {span}");
    }
    assert!(rates[300] > rates[200], "it does not grow");
    assert!(flow.queue_packets(10) < 10.0);
}

/// Above 10 % of losses, the rate falls; below 2 % it does not matter.
#[test]
fn gcc_reduces_its_rate_only_above_ten_percent_loss() {
    let pipe = |loss| Pipe { loss, ..Pipe::new(12.0, 40) };
    let used = |loss| single_flow(Gcc::new(), &pipe(loss), 20).utilisation(10, &pipe(loss));
    assert!(used(0.01) > 0.7 && used(0.2) < 0.1, "{} {}", used(0.01), used(0.2));
}

/// RFC 9438: the window falls to 0.7, so a queue of half a bandwidth-delay product keeps the path busy;
/// and single losses cost most of the rate.
#[test]
fn cubic_fills_a_queue_and_reduces_its_rate_at_losses() {
    let pipe = Pipe { queue_bytes: 60_000.0, ..Pipe::new(12.0, 40) };
    let flow = single_flow(Cubic::new(), &pipe, 40);
    assert!(flow.utilisation(10, &pipe) > 0.97);
    assert!(flow.queue_packets(10) > 10.0, "{}", flow.queue_packets(10));
    assert!(flow.lost > 0);
    let lossy = Pipe { loss: 0.01, ..Pipe::new(12.0, 40) };
    let used = single_flow(Cubic::new(), &lossy, 40).utilisation(10, &lossy);
    assert!((0.2..0.6).contains(&used), "{used}");
    assert!(growth(&flow, 2) > 1.3, "no slow start");
}
