// SPDX-License-Identifier: Apache-2.0
//! The second phase: no faults, so messages that can arrive must arrive.

use super::plan::{Chain, MS, TopicPlan};
use super::world::{Path, World};
use anyhow::{Result, anyhow, bail};
use std::time::Duration;
use tautline_medium::{Nanos, NetworkId, StationId};
use tautline_proto::stats::{DropReason, Drops};
use tautline_proto::{DeliveryOrder, Rate};

/// Bits of a full packet.
const PACKET_BITS: u64 = 1500 * 8;
/// Time after which a link that has failed is down: the maximum of its timeout, which follows the
/// RTT, and a margin.
const DOWN_AFTER: Nanos = 6000 * MS;
/// Time limit for all links to come up, in addition to the time in which relays' queues drain. The
/// node sends pings and handshake initiations in turn every 170 ms, to each known address. Through
/// an access point that is blocked most of the time, many of them are lost (seeds 5388 and 9815);
/// between stations hidden from each other that send definitions, most of them are lost (seed 841).
/// `tautline-lab bench recovery` measures how fast links return on an idle network.
const UP_WITHIN: Nanos = 240_000 * MS;
/// Time limit for all subscriptions. A definition of 60 KB takes a second on slow lines, and ten seconds
/// among stations hidden from each other that send many simultaneously (seed 7045).
const AGREE_WITHIN: Nanos = 90_000 * MS;
/// Duration of the long phase, with key renewal and occasional messages.
const LONG: Nanos = 600_000 * MS;
/// Interval between two messages of the long phase.
const LONG_STEP: Nanos = 7000 * MS;
/// Maximum size of these messages, bytes.
const LONG_MESSAGE: usize = 2000;
/// Maximum lifetime of keys (spec/protocol.md).
const KEYS_LAST: Nanos = 180_000 * MS;
/// Time limit for outcomes of all sent messages.
const DRAIN_WITHIN: Nanos = 120_000 * MS;
/// Time in which RTT estimates forget load and faults: 40 heartbeats, each of which replaces an
/// eighth.
const SETTLE: Nanos = 20_000 * MS;
/// Time limit for the outcome of one message: 10 s of futile repair, and the time to notice its end.
const MESSAGE_WITHIN: Nanos = 20_000 * MS;
/// Time in which a block ends without further frames.
const BLOCK_ENDS: Nanos = 260 * MS;
/// Number of message sizes tried on each topic, in equal steps up to the maximum of
/// [`Healing::safe_message_len`].
const ROUNDS: usize = 3;
/// Maximum size of a message that is sent while nothing else is in flight.
const MAX_SAFE_LEN: usize = 50_000;
/// Bytes that may precede a packet at each hop: two full packets and reports.
const AHEAD_BYTES: u64 = 6000;
/// Lowest rate that faults may leave with `Rate::AUTO`, until the next measurement of the path.
const AUTO_BPS: u64 = 200_000;

/// Bits that may be in flight through a relay per round trip.
const RELAY_WINDOW_BITS: u64 = 8000;
/// Queue space needed in addition to a message, for reports and relayed packets.
const RELAYS_ROOM: usize = 4000;

/// Conservative capacity of a path.
#[derive(Debug, Clone, Copy)]
struct PathCapacity {
    bps: u64,
    one_way: Nanos,
    hops: usize,
}

/// The phase after the faults: all messages must arrive.
pub struct Healing<'w> {
    /// The world.
    pub world: &'w mut World,
}

impl Healing<'_> {
    /// Runs the phase after [`Faults::end_faults`](super::faults::Faults::end_faults); an error describes
    /// the violation.
    pub fn healing(&mut self) -> Result<()> {
        self.meet_again()?;
        self.drain_all()?;
        self.world.run(SETTLE)?;
        for round in 1..=ROUNDS {
            for topic in 0..self.world.plan.topics.len() {
                let len = self.safe_message_len(topic) * round / ROUNDS;
                if len > 0 {
                    self.send_alone(topic, len)?;
                }
            }
        }
        Ok(())
    }

    fn meet_again(&mut self) -> Result<()> {
        let healed = self.world.net.now();
        self.world.run(DOWN_AFTER)?;
        while let Err(wrong) = self.check_all_links_up() {
            if self.world.net.now() > healed + UP_WITHIN + self.queues_drain_in() {
                return Err(wrong);
            }
            self.world.run(1000 * MS)?;
        }
        let up = self.world.net.now();
        while let Some(topic) = self.find_missing_subscription() {
            if self.world.net.now() > up + AGREE_WITHIN {
                let TopicPlan { from, to, .. } = self.world.plan.topics[topic];
                let (there, back) = (self.links_of(from, to), self.links_of(to, from));
                bail!(
                    "topic /{topic} has no known subscription after recovery: requested {}, queued {:?}; links from {there}; back {back}",
                    self.world.wished[topic],
                    [(from, to), (to, from)].map(|(a, b)| self
                        .world
                        .view(a)
                        .peer(self.world.peer(a, b))
                        .queued_bytes),
                );
            }
            self.want_all();
            self.world.run(1000 * MS)?;
        }
        Ok(())
    }

    fn want_all(&mut self) {
        for topic in 0..self.world.plan.topics.len() {
            if !self.world.wished[topic] {
                self.world.want(topic, true);
            }
        }
    }

    /// Returns an error that names a link that is down.
    fn check_all_links_up(&self) -> Result<()> {
        for (a, b) in self.world.plan.pairs.clone().into_iter().flat_map(|[a, b]| [(a, b), (b, a)])
        {
            let (view, peer) = (self.world.view(a), self.world.peer(a, b));
            let links = view.links().filter_map(|link| view.link(link));
            let down = links.filter(|link| link.peer == peer && !link.up).count();
            if down > 0 {
                let (here, there) = (self.links_of(a, b), self.links_of(b, a));
                bail!(
                    "{down} links of station {a} to {b} are down without faults; \
                     links from {here}; back from {there}"
                );
            }
        }
        Ok(())
    }

    /// Returns the maximum delay that queues in front of a relay may add.
    fn queues_drain_in(&self) -> Nanos {
        let routes = self.world.plan.pairs.iter().flat_map(|[a, b]| self.world.plan.routes(*a, *b));
        let drains = routes.map(|Chain { stations, hops }| {
            let each = stations.iter().zip(&hops).map(|(station, hop)| {
                let bits = self.world.plan.stations[*station].queue_packets as u64 * PACKET_BITS;
                bits * 1000 * MS / self.hop_bps(*hop).max(1)
            });
            each.sum()
        });
        drains.max().unwrap_or(0)
    }

    /// Describes a station's addresses and its links to a partner.
    fn links_of(&self, station: usize, partner: usize) -> String {
        let (view, peer) = (self.world.view(station), self.world.peer(station, partner));
        let networks = self.world.plan.stations[station].networks.iter();
        let own: Vec<_> = networks
            .filter_map(|network| self.world.net.address(StationId(station), NetworkId(*network)))
            .collect();
        let links =
            view.links().filter_map(|link| view.link(link)).filter(|link| link.peer == peer);
        let links = links.map(|link| {
            let radio = view.radio(link.radio);
            let (in_flight, limit) = (radio.in_flight_bytes, radio.in_flight_limit_bytes);
            let state = if link.up { "up" } else { "down" };
            let remote = link.remote.map_or("unknown".into(), |it| it.to_string());
            format!("{remote} {state}, {in_flight} of {limit} bytes in flight, {:?}", link.rtt)
        });
        format!("{own:?} to {:?}", links.collect::<Vec<_>>())
    }

    fn find_missing_subscription(&self) -> Option<usize> {
        (0..self.world.plan.topics.len()).find(|topic| !self.world.outward(*topic).wanted)
    }

    /// Runs minutes with little load and no faults, if planned: keys are renewed without loss.
    pub fn long_phase(&mut self) -> Result<()> {
        if !self.world.plan.long {
            return Ok(());
        }
        let (calls, downs) = (self.world.net.initiations, self.world.downs);
        for round in 0..LONG / LONG_STEP {
            let topic = round as usize % self.world.plan.topics.len();
            let len = self.safe_message_len(topic).min(LONG_MESSAGE);
            if len > 0 {
                self.send_alone(topic, len)?;
            }
            self.world.run(LONG_STEP)?;
        }
        let (calls, downs) = (self.world.net.initiations - calls, self.world.downs - downs);
        // Relayed packets are encrypted, so handshake initiations among them are not counted.
        let apart = |pair: &&[usize; 2]| {
            self.world.plan.relays && self.world.plan.shared_networks(pair[0], pair[1]).is_empty()
        };
        let seen = self.world.plan.pairs.iter().filter(|pair| !apart(pair)).count();
        let least = LONG / KEYS_LAST * seen as u64;
        if calls < least || downs > 0 {
            bail!(
                "in a quiet time of {LONG} ns {calls} initiations for new keys were sent, at least {least} were due; {downs} links went down"
            );
        }
        Ok(())
    }

    fn drain_all(&mut self) -> Result<()> {
        let limit = self.world.net.now() + DRAIN_WITHIN;
        while let Some(topic) =
            (0..self.world.plan.topics.len()).find(|topic| !self.is_settled(*topic))
        {
            if self.world.net.now() > limit {
                let stats = self.world.outward(topic).stats;
                bail!("messages of /{topic} have no outcome after recovery: {stats:?}");
            }
            self.world.run(100 * MS)?;
        }
        Ok(())
    }

    fn is_settled(&self, topic: usize) -> bool {
        let stats = self.world.outward(topic).stats;
        stats.queued == 0 && stats.sent == 0
    }

    /// Waits until the parity of a message is sent, which must not delay the next message.
    fn send_parity(&mut self, topic: usize) -> Result<()> {
        let TopicPlan { from, to, config, .. } = &self.world.plan.topics[topic];
        let (from, to) = (*from, *to);
        if config.fec.is_none() {
            return Ok(());
        }
        self.world.run(BLOCK_ENDS)?;
        let limit = self.world.net.now() + MESSAGE_WITHIN;
        let peer = self.world.peer(from, to);
        while self.world.view(from).peer(peer).queued_messages > 0 {
            if self.world.net.now() > limit {
                bail!("the parity of /{topic} is still queued");
            }
            self.world.run(10 * MS)?;
        }
        // Wait for the packets that the radio still holds.
        self.world.run(100 * MS)
    }

    /// Sends one message with nothing else in flight.
    fn send_alone(&mut self, topic: usize, len: usize) -> Result<()> {
        let (lost, unkept) = (self.world.frames_lost(), self.count_dropped_messages());
        let missed = self.declared_lost(topic);
        let deliveries = self.world.oracle.deliveries(topic);
        let number = self.world.send(topic, len);
        let number = number.ok_or_else(|| {
            let TopicPlan { from, to, .. } = self.world.plan.topics[topic];
            let (links, outward) = (self.links_of(from, to), self.world.outward(topic));
            anyhow!("{len} bytes of /{topic} were refused after recovery: {outward:?}, links from {links}")
        })?;
        let limit = self.world.net.now() + MESSAGE_WITHIN;
        while !self.is_settled(topic) {
            if self.world.net.now() > limit {
                let stats = self.world.outward(topic).stats;
                bail!("message {number} of /{topic} has no outcome after recovery: {stats:?}");
            }
            self.world.run(10 * MS)?;
        }
        // Earlier messages may be missing.
        if let DeliveryOrder::Sent { wait } = self.world.plan.topics[topic].config.topic.order {
            self.world.run(wait.as_nanos() as Nanos + 10 * MS)?;
        }
        let oracle = &self.world.oracle;
        let arrived = oracle.has_arrived(number).unwrap_or(oracle.deliveries(topic) > deliveries);
        let new_drops = self.count_dropped_messages() != unkept;
        let lossless = self.world.frames_lost() == lost && self.declared_lost(topic) == missed;
        self.send_parity(topic)?;
        if arrived && !new_drops {
            return Ok(());
        }
        if !lossless && self.may_be_lost(topic) {
            return Ok(());
        }
        let TopicPlan { from, to, config, .. } = &self.world.plan.topics[topic];
        let (from, to) = (*from, *to);
        Err(anyhow!(
            "message {number} of {len} bytes of /{topic}, alone and after recovery: arrived {arrived}, {} frames lost, \
             out {:?}, in {:?}, repair {}, {:?}, keep_last {}, easy {:?}, links from {}",
            self.world.frames_lost() - lost,
            self.world.outward(topic).stats,
            self.world.inward(topic).dropped,
            config.repair,
            config.topic.lifespan,
            config.topic.keep_last,
            self.path_capacity(topic),
            self.links_of(from, to),
        ))
    }

    /// Returns the number of packets that the publisher's node declared lost. Some of them did arrive:
    /// among hidden stations, acknowledgements may take long (seed 9633).
    fn declared_lost(&self, topic: usize) -> u64 {
        let view = self.world.view(self.world.plan.topics[topic].from);
        let links = view.links().filter_map(|link| view.link(link));
        links.map(|link| link.stats.lost_packets).sum()
    }

    /// Whether a message may be lost: 802.11 drops frames even without faults, and only repair
    /// without a time limit compensates.
    fn may_be_lost(&self, topic: usize) -> bool {
        let config = &self.world.plan.topics[topic].config;
        !config.repair || config.topic.lifespan.is_some()
    }

    /// Returns the number of messages that senders and receivers dropped, without the incomplete
    /// messages that a receiver drops because of their lifespan or of the next message of the source:
    /// the sender gave these up before.
    fn count_dropped_messages(&self) -> u64 {
        let given_up = |inward: &Drops| {
            [DropReason::Late, DropReason::Incomplete, DropReason::Expired]
                .map(|reason| inward.get(reason))
                .iter()
                .sum::<u64>()
        };
        let drops = self.world.drops();
        drops.iter().map(|(out, inward)| out.total() + inward.total() - given_up(inward)).sum()
    }

    /// Returns the maximum size of a message that surely arrives in time when nothing else is sent.
    fn safe_message_len(&self, topic: usize) -> usize {
        let PathCapacity { bps, one_way, .. } = self.path_capacity(topic);
        let plan = &self.world.plan.topics[topic];
        let lifespan = plan.config.topic.lifespan.unwrap_or(Duration::from_secs(5));
        // The receiver takes half the RTT as the one-way delay.
        let spare = (lifespan.as_nanos() as u64 / 2).saturating_sub(2 * one_way);
        let in_time = (bps / 8 * (spare / MS) / 2000) as usize;
        let [from, to] =
            [plan.from, plan.to].map(|station| &self.world.plan.stations[station].config);
        let taken = from.max_message.min(to.max_message).min(to.reassembly_bytes);
        let others = if self.world.plan.relays { RELAYS_ROOM } else { 0 };
        plan.max_len.min(in_time).min(taken).min(from.queue_bytes - others).min(MAX_SAFE_LEN)
    }

    /// Returns the capacity of the worst of a topic's paths.
    fn path_capacity(&self, topic: usize) -> PathCapacity {
        let (from, to) = (self.world.plan.topics[topic].from, self.world.plan.topics[topic].to);
        let rate = self.world.plan.stations[from].radio.rate;
        let configured = rate.fixed_bps().unwrap_or(u64::MAX);
        // A relay paces relayed packets like its own.
        let paced = if self.world.plan.relays { AHEAD_BYTES * 8000 * MS / configured } else { 0 };
        let bps = if rate == Rate::AUTO { AUTO_BPS } else { configured };
        let mut worst = PathCapacity { bps, one_way: 0, hops: 1 };
        for path in self.world.paths(from, to) {
            let hops = match path {
                Path::Direct(network) => vec![network],
                Path::Forwarded(route) | Path::Relayed(route) => route.hops,
            };
            // All hops on one channel share its capacity.
            let turns = hops.len() as u64;
            let mut bps = hops.iter().map(|hop| self.hop_bps(*hop)).min().unwrap_or(0) / turns;
            let one_way = hops.iter().map(|hop| self.hop_time(*hop) + paced).sum();
            if turns > 1 && self.world.plan.relays {
                bps = bps.min(RELAY_WINDOW_BITS * 1000 * MS / (2 * one_way));
            }
            worst.bps = worst.bps.min(bps);
            worst.one_way = worst.one_way.max(one_way);
            worst.hops = worst.hops.max(hops.len());
        }
        worst
    }

    /// Returns the capacity of a hop in one direction; at the lowest rate if the rate adapts.
    fn hop_bps(&self, network: usize) -> u64 {
        let facts = self.world.plan.networks[network].kind.facts();
        facts.one_way_bps(*facts.bps().start())
    }

    fn hop_time(&self, network: usize) -> Nanos {
        let airtime = AHEAD_BYTES * 8_000_000_000 / self.hop_bps(network).max(1);
        airtime + self.world.plan.networks[network].kind.facts().latency()
    }
}
