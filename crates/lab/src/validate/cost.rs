// SPDX-License-Identifier: Apache-2.0
//! Processor time of the protocol per packet, over one link and over two: two endpoints and the
//! wires between them, in virtual time.

use crate::rig::clock::cpu_of_this_thread;
use crate::rig::progress::Progress;
use crate::rig::staging::DATAGRAM_BYTES;
use crate::rig::stats::middle;
use crate::rig::table::{self, column};
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tautline_proto::{
    ChannelConfig, ChannelId, Class, Config, DeliveryOrder, Endpoint, Event, Instant, LinkConfig,
    LinkId, LinkPolicy, LinkUse, Message, OfferedQos, OfferedTopic, PeerId, RadioConfig, RadioId,
    Role, SecretKey, Transmit,
};

/// Largest cost of a packet over two links, relative to its cost over one link.
const MOST: f64 = 1.15;
/// Number of rounds, each with a run of each case; the median is reported.
const ROUNDS: usize = 9;
const IMAGES: u64 = 1000;
const IMAGE_BYTES: usize = 61_000;
/// Time between two images, which fill three fifths of one wire.
const IMAGE_INTERVAL: Duration = Duration::from_millis(40);
const WIRE_BPS: u64 = 20_000_000;
const WIRE_DELAY: Duration = Duration::from_millis(1);
/// Bytes of the IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
/// Time by which handshakes and offers are over.
const WARM_UP: Duration = Duration::from_secs(2);
/// Expected duration of a run, for the progress line.
const EXPECTED: Duration = Duration::from_secs(1);
const CLASSES: usize = Class::ALL.len();
/// Each end has one peer, the other end.
const PEER: PeerId = PeerId(0);

/// Wires, and the policy of the images.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    wires: u32,
    policy: LinkPolicy,
}

/// The cases. The others are compared with the first one.
const CASES: [Case; 3] = [
    Case { name: "one link", wires: 1, policy: LinkPolicy::Stripe },
    Case { name: "two links, best", wires: 2, policy: LinkPolicy::Best },
    Case { name: "two links, stripe", wires: 2, policy: LinkPolicy::Stripe },
];

/// Cost of a packet, at both ends together.
#[derive(Debug, Serialize)]
struct Cost {
    case: &'static str,
    packets: u64,
    /// Processor time of the thread.
    us_per_packet: f64,
    /// Cost relative to one link, median of the rounds.
    relative: f64,
}

struct End {
    endpoint: Endpoint,
    /// Time until which each wire is busy.
    busy_until: Vec<Instant>,
    /// Bytes on the wire or before it, by link and class.
    in_flight: Vec<[usize; CLASSES]>,
}

enum Happening {
    Left { end: usize, link: LinkId, class: Class, bytes: usize },
    Arrived { end: usize, wire: RadioId, datagram: Vec<u8> },
}

struct Pair {
    now: Instant,
    ends: [End; 2],
    planned: BTreeMap<(Instant, u64), Happening>,
    order: u64,
}

fn address(end: usize, wire: RadioId) -> SocketAddr {
    SocketAddr::from(([10, 0, wire.0 as u8, end as u8 + 1], 18470))
}

fn new_end(number: usize, wires: u32) -> Result<End> {
    let names = ["robot", "base"];
    let (name, other) = (names[number], names[1 - number]);
    let mut random = fastrand::Rng::with_seed(number as u64);
    let config = Config::new(name, SecretKey::insecure(name));
    let mut endpoint = Endpoint::new(config, Box::new(move || random.u64(..)))?;
    endpoint.add_peer(other, SecretKey::insecure(other).public())?;
    for wire in (0..wires).map(RadioId) {
        endpoint.add_radio(RadioConfig::default());
        let link = LinkConfig {
            remote: Some(address(1 - number, wire)),
            datagram_bytes: DATAGRAM_BYTES,
            header_bytes: HEADER_BYTES,
            metered: false,
        };
        endpoint.peer_mut(PEER).add_link(Instant::default(), wire, link)?;
    }
    let wires = wires as usize;
    let (busy_until, in_flight) = (vec![Instant::default(); wires], vec![[0; CLASSES]; wires]);
    Ok(End { endpoint, busy_until, in_flight })
}

fn images(policy: LinkPolicy) -> ChannelConfig {
    let topic = OfferedTopic {
        name: "images".into(),
        type_name: "made/Up".into(),
        type_hash: String::new(),
        priority: 20,
        keep_last: 2,
        lifespan: None,
        qos: OfferedQos::default(),
        role: Role::Topic,
        order: DeliveryOrder::default(),
    };
    let links = LinkUse { policy, ..LinkUse::default() };
    ChannelConfig { topic, definition: "".into(), repair: true, thin: false, links, fec: None }
}

impl Pair {
    fn new(wires: u32) -> Result<Self> {
        let ends = [new_end(0, wires)?, new_end(1, wires)?];
        Ok(Self { now: Instant::default(), ends, planned: BTreeMap::new(), order: 0 })
    }

    fn run_until(&mut self, until: Instant) {
        loop {
            let timers = self.ends.iter().filter_map(|end| end.endpoint.poll_timeout());
            let planned = self.planned.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = timers.chain(planned).min().filter(|at| *at <= until) else { break };
            self.now = self.now.max(next);
            while let Some(first) = self.planned.first_entry()
                && first.key().0 <= self.now
            {
                let happening = first.remove();
                self.happen(happening);
            }
            for number in 0..2 {
                let due = self.ends[number].endpoint.poll_timeout();
                if due.is_some_and(|at| at <= self.now) {
                    self.ends[number].endpoint.handle_timeout(self.now);
                    self.drain(number);
                }
            }
        }
        self.now = until;
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Left { end, link, class, bytes } => {
                self.change_in_flight(end, link, class, |before| before - bytes);
                self.drain(end);
            }
            Happening::Arrived { end, wire, datagram } => {
                let from = address(1 - end, wire);
                self.ends[end].endpoint.handle_packet(self.now, wire, from, &datagram);
                self.drain(end);
            }
        }
    }

    fn change_in_flight(
        &mut self,
        end: usize,
        link: LinkId,
        class: Class,
        change: impl FnOnce(usize) -> usize,
    ) {
        let End { endpoint, in_flight, .. } = &mut self.ends[end];
        let bytes = &mut in_flight[link.0 as usize][class as usize];
        *bytes = change(*bytes);
        endpoint.link_mut(link).handle_in_flight(self.now, class, *bytes);
    }

    fn drain(&mut self, end: usize) {
        loop {
            while let Some(transmit) = self.ends[end].endpoint.poll_transmit(self.now) {
                self.transmit(end, transmit);
            }
            let endpoint = &mut self.ends[end].endpoint;
            let Some(event) = endpoint.poll_event() else { return };
            if let Event::Offered { peer, channel, .. } = event {
                endpoint.peer_mut(peer).want(self.now, channel, true);
            }
        }
    }

    fn transmit(&mut self, end: usize, transmit: Transmit) {
        let Transmit { link, radio: wire, datagram, class, .. } = transmit;
        let ip_bytes = datagram.len() + HEADER_BYTES;
        let busy_until = &mut self.ends[end].busy_until[wire.0 as usize];
        let time = Duration::from_nanos(ip_bytes as u64 * 8_000_000_000 / WIRE_BPS);
        let leaves = (*busy_until).max(self.now) + time;
        *busy_until = leaves;
        if let Some(link) = link {
            self.change_in_flight(end, link, class, |before| before + ip_bytes);
            self.plan(leaves, Happening::Left { end, link, class, bytes: ip_bytes });
        }
        self.plan(leaves + WIRE_DELAY, Happening::Arrived { end: 1 - end, wire, datagram });
    }

    fn plan(&mut self, at: Instant, happening: Happening) {
        self.order += 1;
        self.planned.insert((at, self.order), happening);
    }

    fn publish(&mut self, channel: ChannelId, payload: bytes::Bytes) -> Result<()> {
        let message =
            Message { payload, published: self.now, source: 0, encoded: false, lifespan: None };
        self.ends[0].endpoint.peer_mut(PEER).send(self.now, channel, message)?;
        self.drain(0);
        Ok(())
    }

    fn sent_packets(&self) -> u64 {
        let of_end = |end: &End| -> u64 {
            let endpoint = &end.endpoint;
            endpoint
                .links()
                .filter_map(|link| endpoint.link(link))
                .map(|link| link.stats.sent_packets)
                .sum()
        };
        self.ends.iter().map(of_end).sum()
    }
}

/// Returns the packets of one run, and the processor time of each in microseconds.
fn measure(case: &Case) -> Result<(u64, f64)> {
    let mut pair = Pair::new(case.wires)?;
    let channel = pair.ends[0].endpoint.peer_mut(PEER).offer(pair.now, images(case.policy))?;
    pair.run_until(pair.now + WARM_UP);
    let payload = bytes::Bytes::from(vec![0; IMAGE_BYTES]);
    let (before, started) = (pair.sent_packets(), cpu_of_this_thread());
    for _ in 0..IMAGES {
        pair.publish(channel, payload.clone())?;
        pair.run_until(pair.now + IMAGE_INTERVAL);
    }
    let taken = cpu_of_this_thread() - started;
    let packets = pair.sent_packets() - before;
    Ok((packets, taken.as_secs_f64() * 1e6 / packets.max(1) as f64))
}

/// Measures the cost; exit code 3 if a second link costs too much.
pub fn run(as_json: bool) -> Result<ExitCode> {
    let stages = (1..=ROUNDS).map(|round| (format!("round {round}"), EXPECTED * 3));
    let progress = Progress::new(stages.collect());
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        progress.enter_next();
        rounds.push(CASES.iter().map(measure).collect::<Result<Vec<_>>>()?);
    }
    progress.finish();
    let costs = CASES.iter().enumerate().map(|(number, case)| {
        let figures = |of: fn(&[(u64, f64)], usize) -> f64| -> Vec<f64> {
            rounds.iter().map(|round| of(round, number)).collect()
        };
        Cost {
            case: case.name,
            packets: rounds[0][number].0,
            us_per_packet: middle(&figures(|round, number| round[number].1)),
            relative: middle(&figures(|round, number| round[number].1 / round[0].1)),
        }
    });
    let costs: Vec<Cost> = costs.collect();
    let holds = costs.iter().all(|cost| cost.relative <= MOST);
    super::conclude(&costs, as_json, &report_text(&costs), holds)
}

fn report_text(costs: &[Cost]) -> String {
    let rows = table::markdown(
        costs,
        &[
            column("case", |cost: &Cost| cost.case.into()),
            column("packets", |cost| cost.packets.to_string()),
            column("us per packet", |cost| format!("{:.2}", cost.us_per_packet)),
            column("relative", |cost| format!("{:.3}", cost.relative)),
        ],
    );
    format!("{rows}\nwanted: at most {MOST} times the cost over one link\n")
}
