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
use tautline_proto::rate::{Controller, PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

const PACKET: usize = 1500;
const STEP: Duration = Duration::from_micros(50);
const ACK_DELAY: Duration = Duration::from_millis(10);
const START: Instant = Instant(1_000_000_000);

struct Pipe {
    bps: f64,
    /// One way.
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
    /// Of a lost one, when it would have arrived.
    arrives: Instant,
    lost: bool,
}

/// One sender, with what was measured in each 100 ms.
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
    /// The queue in bytes, and the outstanding bytes: sums over steps.
    queue: f64,
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
                loss_rows: packets.windows(2).filter(|it| it[0].lost && !it[1].lost).count() as u64,
                spurious_losses: 0,
                queueing_delay: arrived.iter().map(waited).sum::<Duration>() / acked as u32,
                min_queueing_delay: arrived.iter().map(waited).min().unwrap(),
                since_sent: now.since(newest.sent),
                rtt,
                outstanding_bytes: self.outstanding,
            },
        );
    }
}

/// Runs flows, each from its second on.
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

fn alone(controller: impl Controller + 'static, pipe: &Pipe, seconds: u64) -> Flow {
    let mut flows = [(0, Flow::new(controller))];
    run(&mut flows, pipe, seconds);
    let [(_, flow)] = flows;
    flow
}

/// Of the spans from a second on.
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

#[test]
fn show() {
    let pipe = Pipe::new(12.0, 40);
    for rival in ALL {
        if std::env::var("ONLY").is_ok_and(|it| it != rival.name) {
            continue;
        }
        for loss in [0.0, 0.01, 0.2] {
            let pipe = Pipe { loss, ..Pipe::new(12.0, 40) };
            let mut flows = [(0, Flow::new_boxed((rival.make)()))];
            run(&mut flows, &pipe, 30);
            let flow = &flows[0].1;
            println!(
                "{} loss {loss}: first {:.2}, used {:.3}, queue {:.1} packets, in flight {:.2} BDP, lost {:.3}, rate {:.1}",
                rival.name,
                flow.utilisation(0, &pipe),
                flow.utilisation(10, &pipe),
                flow.queue_packets(10),
                flow.mean(10, |it| it.outstanding) / pipe.bdp(),
                flow.lost as f64 / flow.sent as f64,
                flow.spans.last().unwrap().rate_bps / 1e6,
            );
        }
    }
    let _ = (pipe, NAMES, named("x"));
    let _ = (Bbr::new(), Copa::new(), Cubic::new(), Gcc::new(), Scream::new());
}

impl Flow {
    fn new_boxed(controller: Box<dyn Controller>) -> Self {
        Self { controller, ..Self::new(Cubic::new()) }
    }
}
