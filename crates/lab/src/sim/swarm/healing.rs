// SPDX-License-Identifier: Apache-2.0
//! The second phase: nothing is wrong any more, and what should arrive must.

use super::plan::MS;
use super::world::{Way, World};
use crate::scenario::NetworkKind;
use std::time::Duration;
use tautline_medium::{Nanos, WifiConfig};
use tautline_proto::stats::{DropReason, Drops};

/// In so long all nodes have met again and want all topics: hellos are a second apart at
/// most, links go down in 2.5 s, and definitions of 60 KB take a second each on slow lines.
const MEET_WITHIN: Nanos = 40_000 * MS;
/// In so long everything under way has an outcome.
const DRAIN_WITHIN: Nanos = 120_000 * MS;
/// Time in which the estimates of round trips forget what load and faults did to them:
/// 40 heartbeats, each of which renews an eighth.
const SETTLE: Nanos = 20_000 * MS;
/// In so long one message has an outcome: 10 s of repair, and what it takes to notice.
const MESSAGE_WITHIN: Nanos = 20_000 * MS;
/// In so long a receiver gives up what stopped coming (10 s, looked at each second), lest the
/// pieces of a message that was lost count against the next.
const GIVE_UP: Nanos = 12_000 * MS;
/// Sizes tried of each topic, in equal steps up to the largest that is easy.
const ROUNDS: usize = 3;
/// A message handed over alone is no longer than this.
const MAX_EASY: usize = 50_000;
/// Bytes that may be on their way before a packet: two full ones and reports, at each hop.
const AHEAD_BYTES: u64 = 6000;

/// What a way carries without haste.
#[derive(Debug, Clone, Copy)]
struct Ease {
    bps: u64,
    one_way: Nanos,
    hops: usize,
}

impl World {
    /// Runs the phase after [`World::end_faults`]; `Err` says what was wrong.
    pub fn healing(&mut self) -> Result<(), String> {
        self.meet_again()?;
        self.drain_all()?;
        self.run(SETTLE)?;
        for round in 1..=ROUNDS {
            for topic in 0..self.plan.topics.len() {
                let len = self.easy_len(topic) * round / ROUNDS;
                if len > 0 {
                    self.send_alone(topic, len)?;
                }
            }
        }
        Ok(())
    }

    fn meet_again(&mut self) -> Result<(), String> {
        let limit = self.net.now() + MEET_WITHIN;
        loop {
            self.run(1000 * MS)?;
            for topic in 0..self.plan.topics.len() {
                if !self.wished[topic] {
                    self.want(topic, true);
                }
            }
            let missing = self.not_agreed();
            match missing {
                None => return Ok(()),
                Some(missing) if self.net.now() > limit => return Err(missing),
                Some(_) => {}
            }
        }
    }

    /// A peer that is not up, or a topic that is not known to be wanted.
    fn not_agreed(&self) -> Option<String> {
        for &[a, b] in &self.plan.pairs {
            for (here, there) in [(a, b), (b, a)] {
                let view = self.view(here);
                let peer = self.peer(here, there);
                let mut links = view.links().filter(|link| view.link(*link).peer == peer);
                if !view.peer(peer).up || !links.all(|link| view.link(link).up) {
                    return Some(format!("station {here} is without a link to {there}, healed"));
                }
            }
        }
        let unwanted = (0..self.plan.topics.len()).find(|topic| !self.outward(*topic).0)?;
        Some(format!("topic /{unwanted} is not known to be wanted, healed"))
    }

    fn drain_all(&mut self) -> Result<(), String> {
        let limit = self.net.now() + DRAIN_WITHIN;
        while let Some(topic) = (0..self.plan.topics.len()).find(|topic| !self.is_settled(*topic)) {
            if self.net.now() > limit {
                let stats = self.outward(topic).1;
                return Err(format!("messages of /{topic} have no outcome, healed: {stats:?}"));
            }
            self.run(100 * MS)?;
        }
        Ok(())
    }

    fn is_settled(&self, topic: usize) -> bool {
        let (_, stats) = self.outward(topic);
        stats.queued == 0 && stats.sent == 0
    }

    /// One message with nothing else under way.
    fn send_alone(&mut self, topic: usize, len: usize) -> Result<(), String> {
        let (lost, drops) = (self.frames_lost(), self.drops());
        let number = self.send(topic, len);
        let number = number.ok_or_else(|| format!("a message of /{topic} was refused, healed"))?;
        let limit = self.net.now() + MESSAGE_WITHIN;
        while !self.is_settled(topic) {
            if self.net.now() > limit {
                let stats = self.outward(topic).1;
                return Err(format!(
                    "message {number} of /{topic} has no outcome, healed: {stats:?}"
                ));
            }
            self.run(10 * MS)?;
        }
        let arrived = self.oracle.has_arrived(number).unwrap_or(true);
        let new_drops = self.drops() != drops;
        let lossless = self.frames_lost() == lost;
        if arrived && !new_drops {
            return Ok(());
        }
        if !lossless && self.may_be_lost(topic) {
            return self.run(GIVE_UP);
        }
        let config = &self.plan.topics[topic].config;
        Err(format!(
            "message {number} of {len} bytes of /{topic}, alone and healed: arrived {arrived}, {} frames lost, \
             out {:?}, in {:?}, repair {}, {:?}, keep_last {}, easy {:?}",
            self.frames_lost() - lost,
            self.outward(topic).1,
            self.inward(topic).dropped,
            config.repair,
            config.topic.lifespan,
            config.topic.keep_last,
            self.ease(topic),
        ))
    }

    /// 802.11 gives frames up even where nothing is wrong; only repair with time makes up for it.
    fn may_be_lost(&self, topic: usize) -> bool {
        let config = &self.plan.topics[topic].config;
        !config.repair || config.topic.lifespan.is_some()
    }

    fn drops(&self) -> Vec<(Drops, Drops)> {
        let topics = 0..self.plan.topics.len();
        topics.map(|topic| (self.outward(topic).1.dropped, self.inward(topic).dropped)).collect()
    }

    /// The largest message that a topic carries in good time when nothing else is sent.
    fn easy_len(&self, topic: usize) -> usize {
        let Ease { bps, one_way, .. } = self.ease(topic);
        let plan = &self.plan.topics[topic];
        let lifespan = plan.config.topic.lifespan.unwrap_or(Duration::from_secs(5));
        // The receiver takes half a round trip for the way here.
        let spare = (lifespan.as_nanos() as u64 / 2).saturating_sub(2 * one_way);
        let in_time = (bps / 8 * (spare / MS) / 2000) as usize;
        let [from, to] = [plan.from, plan.to].map(|station| &self.plan.stations[station].config);
        let taken = from.max_message.min(to.max_message).min(to.reassembly_bytes);
        plan.max_len.min(in_time).min(taken).min(from.queue_bytes).min(MAX_EASY)
    }

    /// The worst of a topic's ways.
    fn ease(&self, topic: usize) -> Ease {
        let (from, to) = (self.plan.topics[topic].from, self.plan.topics[topic].to);
        let configured = self.plan.stations[from].radio.rate_bps.unwrap_or(u64::MAX);
        let mut worst = Ease { bps: configured, one_way: 0, hops: 1 };
        for way in self.ways(from, to) {
            let hops = match way {
                Way::Direct(network) => vec![network],
                Way::Relayed(route) => route.hops,
            };
            // All hops on one channel take turns.
            let turns = hops.len() as u64;
            let bps = hops.iter().map(|hop| self.hop_bps(*hop)).min().unwrap_or(0) / turns;
            let one_way = hops.iter().map(|hop| self.hop_time(*hop)).sum();
            worst.bps = worst.bps.min(bps);
            worst.one_way = worst.one_way.max(one_way);
            worst.hops = worst.hops.max(hops.len());
        }
        worst
    }

    /// What a hop carries: half of an 802.11 rate, less where an access point forwards.
    fn hop_bps(&self, network: usize) -> u64 {
        let bps = self.rate_bps(network);
        match &self.plan.networks[network].kind {
            NetworkKind::Pipe(pipe) if pipe.half_duplex => bps / 2,
            NetworkKind::Pipe(_) => bps,
            NetworkKind::Wifi(WifiConfig { access_point: Some(_), .. }) => bps / 4,
            NetworkKind::Wifi(_) => bps / 2,
        }
    }

    fn hop_time(&self, network: usize) -> Nanos {
        let airtime = AHEAD_BYTES * 8_000_000_000 / self.hop_bps(network).max(1);
        match &self.plan.networks[network].kind {
            NetworkKind::Pipe(pipe) => airtime + pipe.delay + pipe.jitter,
            NetworkKind::Wifi(_) => airtime,
        }
    }

    /// Messages dropped at either end, by reason.
    pub fn drops_by_reason(&self) -> Vec<(DropReason, u64)> {
        let all = self.drops();
        let count =
            |reason| all.iter().map(|(out, inward)| out.get(reason) + inward.get(reason)).sum();
        DropReason::ALL.into_iter().map(|reason| (reason, count(reason))).collect()
    }
}
