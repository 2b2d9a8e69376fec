// SPDX-License-Identifier: Apache-2.0
//! Comparison with what the file plans. Counters of topics, links and radios are read once per second.

use super::common::Common;
use super::radios::Radios;
use crate::config::Config;
use crate::planned::{
    LinkCounts, LinkName, ObservedCounters, PlanComparison, Planner, RadioCounts, TopicCounts,
};
use crate::quota::Cause;
use crate::topics::{LocalTopic, Topics};
use std::collections::{BTreeMap, BTreeSet};
use tautline_proto::{Instant, LinkView, PeerId, Place, RadioId};

/// What the file plans, and the models of its channels.
#[derive(Default)]
pub(super) struct Comparison {
    planned: PlanComparison,
    planner: Option<Planner>,
}

impl Comparison {
    pub(super) fn new(config: &Config, planner: Option<Planner>) -> Self {
        Self { planned: PlanComparison::new(config, planner), planner }
    }

    /// Adds a notice for each assumption of the file that failed, and removes the notices of
    /// assumptions that hold again. Called once per second.
    pub(super) fn compare(
        &mut self,
        now: Instant,
        common: &mut Common,
        topics: &Topics,
        radios: &Radios,
    ) {
        if self.planned.is_empty() {
            return;
        }
        self.planned.find_rules(topics.exported_topics().keys());
        let observed = Observer { planned: &self.planned, common, topics, radios }.observe();
        for change in self.planned.follow(now, &observed) {
            let shared = &mut common.shared;
            if change.failed {
                shared.notice(now, Cause::Plan, &change.notice);
            } else {
                shared.notices.remove(&Cause::Plan, &change.notice);
                if shared.notices.may_log(now, &Cause::Plan) {
                    tracing::info!("no longer true: {}", change.notice);
                }
            }
        }
        common.reporter.set_plan(self.planned.reports(now));
    }

    /// Restarts the comparison if the new file plans something else.
    pub(super) fn apply_config(&mut self, common: &mut Common, old: &Config) {
        let plan = |it: &Config| (it.channels.clone(), it.expected.clone(), it.topics.clone());
        if plan(old) != plan(&common.config) {
            self.planned = PlanComparison::new(&common.config, self.planner);
            common.shared.notices.retain(&Cause::Plan, |_| false);
            common.reporter.set_plan(Vec::new());
        }
    }
}

/// Reads the counters of topics, links and radios.
struct Observer<'a> {
    planned: &'a PlanComparison,
    common: &'a Common,
    topics: &'a Topics,
    radios: &'a Radios,
}

impl Observer<'_> {
    fn observe(&self) -> ObservedCounters {
        let endpoint = &self.common.endpoint;
        let links: Vec<LinkView<'_>> =
            endpoint.links().filter_map(|id| endpoint.link(id)).collect();
        // Links through a relay are left out, because their packets also use the radio of another node.
        let direct = links.iter().filter(|it| !matches!(it.remote, Some(Place::Relay { .. })));
        ObservedCounters {
            topics: self.observed_topics(),
            links: direct.filter_map(|link| self.observed_link(link)).collect(),
            radios: self.observed_radios(&links),
        }
    }

    fn observed_topics(&self) -> BTreeMap<(usize, String), TopicCounts> {
        let endpoint = &self.common.endpoint;
        let mut counted = BTreeMap::<_, TopicCounts>::new();
        for (name, local) in self.topics.exported_topics() {
            let Some(rule) = self.planned.rule_of(name) else { continue };
            for key in local.keys() {
                let Some((_, _, stats)) = endpoint.peer(key.peer).channel_out(key.channel) else {
                    continue;
                };
                let peer = endpoint.peer(key.peer).name.to_owned();
                let counts = counted.entry((rule, peer)).or_default();
                counts.messages += stats.accepted;
                counts.bytes += stats.bytes;
            }
        }
        counted
    }

    fn observed_link(&self, link: &LinkView<'_>) -> Option<(LinkName, LinkCounts)> {
        let radio = self.common.reporter.radio_name(link.radio);
        if !self.planned.has_channel(&radio) {
            return None;
        }
        let name = self.common.shared.peers.link_name(link.peer, link.number).unwrap_or_default();
        let peer = self.common.endpoint.peer(link.peer).name.to_owned();
        let name = LinkName { peer, link: name.to_owned(), radio };
        let round_trip = link.rtt.filter(|_| link.up);
        let counts = LinkCounts {
            acked: link.stats.acked_packets,
            lost: link.stats.lost_packets,
            late: link.stats.spurious_losses,
            round_trip_ms: round_trip.map(|it| it.as_secs_f64() * 1e3),
        };
        Some((name, counts))
    }

    fn observed_radios(&self, links: &[LinkView<'_>]) -> BTreeMap<String, RadioCounts> {
        let planned = self.radios.iter().filter(|(name, _)| self.planned.has_channel(name));
        planned.map(|(name, id)| (name.clone(), self.observed_radio(id, links))).collect()
    }

    fn observed_radio(&self, radio: RadioId, links: &[LinkView<'_>]) -> RadioCounts {
        let endpoint = &self.common.endpoint;
        let own = || links.iter().filter(move |it| it.radio == radio);
        let is_only = |peer: PeerId| links.iter().filter(|it| it.peer == peer).count() == 1;
        // Messages of a peer with several links may wait for another link, so only peers with one link count.
        let works = |it: &&LinkView<'_>| it.up && !it.stalled && !it.silent && is_only(it.peer);
        let peers: BTreeSet<PeerId> = own().filter(works).map(|it| it.peer).collect();
        let has_link = |peer: PeerId| own().any(|it| it.peer == peer);
        let view = endpoint.radio(radio);
        RadioCounts {
            sent_bytes: view.sent_bytes,
            sent_packets: view.sent_packets,
            received_bytes: own().map(|it| it.stats.received_bytes).sum(),
            received_packets: own().map(|it| it.stats.received_packets).sum(),
            unplanned_bytes: self.unplanned_bytes(|peer| has_link(peer) && is_only(peer)),
            too_slow: self.drops_of_slow_radio(&peers),
            is_busy: peers.iter().any(|peer| endpoint.peer(*peer).queued_bytes > 0),
        }
    }

    /// Returns the payload bytes of topics without expectations, sent to the peers that `is_counted` selects.
    fn unplanned_bytes(&self, is_counted: impl Fn(PeerId) -> bool) -> u64 {
        let endpoint = &self.common.endpoint;
        let local = self.topics.exported_topics().iter();
        let unplanned = local.filter(|(name, _)| self.planned.rule_of(name).is_none());
        let keys = unplanned.flat_map(|(_, local)| local.keys()).filter(|key| is_counted(key.peer));
        let sent = keys.filter_map(|key| endpoint.peer(key.peer).channel_out(key.channel));
        sent.map(|(_, _, stats)| stats.bytes).sum()
    }

    /// Returns the number of messages to these peers that were dropped because the radio was too slow.
    fn drops_of_slow_radio(&self, peers: &BTreeSet<PeerId>) -> u64 {
        let endpoint = &self.common.endpoint;
        let keys = self.topics.exported_topics().values().flat_map(LocalTopic::keys);
        let of_peers = keys.filter(|key| peers.contains(&key.peer));
        let dropped = of_peers.filter_map(|key| endpoint.peer(key.peer).channel_out(key.channel));
        let reasons = dropped.flat_map(|(_, _, stats)| Vec::from_iter(stats.dropped.iter()));
        let too_slow = reasons.filter(|(reason, _)| reason.is_prevented_by_capacity());
        too_slow.map(|(_, count)| count).sum()
    }
}
