// SPDX-License-Identifier: Apache-2.0
//! The snapshot of a running node, assembled from its parts.

use crate::clock::Clock;
use crate::config::{Config, Security};
use crate::notices;
use crate::reasons::{DroppedMessage, RefusedInput};
use crate::recent::{Recent, RecentCounters, Stream};
use crate::status::{
    BudgetReport, ClockReport, DelayReport, Direction, FieldReport, GatewayReport, LinesReport,
    LinkReport, LinkUseReport, PeerReport, PlanReport, RadioReport, RejectedReport, Status,
    SteadyReport, TopicReport, UncheckedReport, WaitingReport,
};
use crate::topics::{ChannelKey, Exchange, IncomingState, LocalTopic, PendingRequest, Unchecked};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tautline_gateway::rejections::Rejected;
use tautline_gateway::{Gateway, GatewayStatus};
use tautline_proto::stats::{DELAY_BUCKETS, Delays, Drops};
use tautline_proto::{
    ClockView, Endpoint, Instant, LinkId, LinkUse, LinkView, MtuState, PeerId, Place, RadioId,
};

/// Kind of the gateway of a node without middleware.
pub(crate) const NO_GATEWAY: &str = "none";

/// The budgets of links, by the id of the link.
pub(crate) type BudgetReports = BTreeMap<LinkId, BudgetReport>;

/// The part of the status that does not come from the protocol.
#[derive(Debug)]
pub(crate) struct Reporter {
    node: String,
    is_secure: bool,
    listen: String,
    radio_names: BTreeMap<RadioId, String>,
    /// Links whose packets the file limits to a smaller size than the interface does.
    limited_mtus: BTreeSet<LinkId>,
    budgets: BudgetReports,
    plan: Vec<PlanReport>,
}

/// Number of inputs that parts of the data plane refused since the start, by reason.
pub(crate) type Refused = [(RefusedInput, u64); 3];

/// Whether a link leads through a relay.
fn is_relayed(view: &LinkView<'_>) -> bool {
    matches!(view.remote, Some(Place::Relay { .. }))
}

/// Returns the state of a link in one word.
fn state(view: &LinkView<'_>) -> &'static str {
    match () {
        () if view.stalled => "stalled",
        () if !view.up => "down",
        () if view.silent => "silent",
        () if view.standby => "standby",
        () => "up",
    }
}

/// Returns what lies between the ends of a link, in words.
fn path(view: &LinkView<'_>) -> &'static str {
    if is_relayed(view) {
        return "relay";
    }
    match (view.is_translated, view.is_peer_translated) {
        (Some(true), Some(true)) => "NAT both",
        (Some(true), _) => "NAT here",
        (_, Some(true)) => "NAT there",
        (Some(false), Some(false)) => "direct",
        _ => "",
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Reporter {
    pub(crate) fn new(config: &Config, listen: SocketAddr) -> Self {
        Self {
            node: config.name.clone(),
            is_secure: config.security != Security::None,
            listen: listen.to_string(),
            radio_names: BTreeMap::new(),
            limited_mtus: BTreeSet::new(),
            budgets: BudgetReports::new(),
            plan: Vec::new(),
        }
    }

    /// Sets the state of the links' budgets.
    pub(crate) fn set_budgets(&mut self, budgets: BudgetReports) {
        self.budgets = budgets;
    }

    /// Sets whether the file limits the size of a link's packets more than the interface does.
    pub(crate) fn limit_mtu(&mut self, link: LinkId, by_file: bool) {
        if by_file {
            self.limited_mtus.insert(link);
        } else {
            self.limited_mtus.remove(&link);
        }
    }

    /// Sets the comparison with what the file plans.
    pub(crate) fn set_plan(&mut self, plan: Vec<PlanReport>) {
        self.plan = plan;
    }

    pub(crate) fn name_radio(&mut self, radio: RadioId, interface: &str) {
        self.radio_names.insert(radio, interface.to_owned());
    }

    pub(crate) fn radio_name(&self, radio: RadioId) -> String {
        self.radio_names.get(&radio).cloned().unwrap_or_default()
    }

    /// Returns the snapshot.
    pub(crate) fn status(
        &self,
        now: Instant,
        exchange: Exchange<'_>,
        recent: &Recent,
        gateway: &dyn Gateway,
        refused: &Refused,
    ) -> Status {
        let Exchange { endpoint, topics, shared } = exchange;
        let state = gateway.status();
        let recent_counters = recent.counters_until(now, exchange);
        Status {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: Clock::uptime(now).as_secs_f64(),
            security: if self.is_secure { "keys" } else { "none" }.into(),
            key: self.is_secure.then(|| endpoint.key().to_string()),
            listen: self.listen.clone(),
            gateways: gateway_reports(&state),
            peers: endpoint.peers().map(|p| self.peer(&recent_counters, p)).collect(),
            teams: Vec::new(),
            topics: topic_reports(&recent_counters, &state.slow_subscriber_drops),
            radios: self.radios(endpoint),
            links: self.links(now, exchange),
            watchdogs: topics.watchdog_reports().collect(),
            plan: self.plan.clone(),
            waiting: shared
                .pending_requests()
                .map(|(peer, it)| waiting(endpoint, peer, it))
                .collect(),
            to_allow_all: lines_to_allow_all(exchange),
            unchecked: topics.unchecked().map(|it| unchecked(endpoint, it)).collect(),
            one_sided: endpoint.peers().flat_map(|peer| one_sided(exchange, peer)).collect(),
            packets_refused: packets_refused(exchange, refused),
            notices: unresolved_notices(shared.notices.texts(now), endpoint),
        }
    }

    fn peer(&self, recent_counters: &RecentCounters<'_>, id: PeerId) -> PeerReport {
        let endpoint = recent_counters.exchange.endpoint;
        let view = endpoint.peer(id);
        let rates = recent_counters.rates(id);
        let state = match (view.up, view.met) {
            (true, _) => "up",
            (false, true) => "down",
            (false, false) => "connecting",
        };
        PeerReport {
            key: self.is_secure.then(|| view.key.to_string()),
            name: view.name.into(),
            state: state.into(),
            queued_bytes: view.queued_bytes,
            queued_messages: view.queued_messages as u64,
            wanted_bps: rates.map(|rates| rates.wanted_bps),
            sent_bps: rates.map(|rates| rates.sent_bps),
            clock: view.clock.map(clock_report),
            relayed_packets: endpoint.peer(id).forwarded().packets,
            relayed_dropped: drops(&endpoint.peer(id).forwarded().dropped),
        }
    }

    fn radios(&self, endpoint: &Endpoint) -> Vec<RadioReport> {
        let links = || endpoint.links().filter_map(|link| endpoint.link(link));
        let used = |id: &RadioId| links().any(|link| link.radio == *id);
        endpoint
            .radios()
            .filter(used)
            .map(|id| {
                let view = endpoint.radio(id);
                RadioReport {
                    radio: self.radio_name(id),
                    paced_by: view.signal.into(),
                    configured_bps: view.configured_bps,
                    measured_bps: view.measured_bps,
                    in_flight_bytes: view.in_flight_bytes as u64,
                    in_flight_limit_bytes: view.in_flight_limit_bytes as u64,
                    sent_bytes: view.sent_bytes,
                    sent_packets: view.sent_packets,
                }
            })
            .collect()
    }

    /// Returns all links, in the protocol's order.
    pub(crate) fn links(&self, now: Instant, exchange: Exchange<'_>) -> Vec<LinkReport> {
        let endpoint = exchange.endpoint;
        let views = || endpoint.links().filter_map(|id| Some((id, endpoint.link(id)?)));
        let relayed = views().filter(|(_, view)| is_relayed(view));
        let relayed: BTreeSet<PeerId> = relayed.map(|(_, view)| view.peer).collect();
        // A direct path that was not found yet is not shown as a link.
        let shown = views().filter(|(_, it)| it.remote.is_some() || !relayed.contains(&it.peer));
        shown.map(|(id, view)| self.link(now, exchange, (id, view))).collect()
    }

    fn link(
        &self,
        now: Instant,
        exchange: Exchange<'_>,
        (id, view): (LinkId, LinkView<'_>),
    ) -> LinkReport {
        let Exchange { endpoint, shared, .. } = exchange;
        let stats = view.stats;
        LinkReport {
            peer: endpoint.peer(view.peer).name.into(),
            name: shared.peers.link_name(view.peer, view.number).unwrap_or_default().to_owned(),
            loss: view.loss,
            stalled: view.stalled,
            silent: view.silent,
            radio: self.radio_name(view.radio),
            remote: match view.remote {
                Some(Place::Relay { hop, .. }) => format!("via {}", endpoint.peer(hop).name),
                Some(Place::Udp(remote)) => remote.to_string(),
                None => String::new(),
            },
            path: path(&view).into(),
            state: state(&view).into(),
            up: view.up,
            available_bps: view.available_bps.filter(|_| view.up),
            paced_by: view.signal.into(),
            mtu: view.mtu as u64,
            mtu_known_by: match view.mtu_state {
                _ if is_relayed(&view) => "relay",
                MtuState::Searching => "searching",
                MtuState::Full if self.limited_mtus.contains(&id) => "configured",
                MtuState::Full => "interface",
                MtuState::Probed => "probed",
                MtuState::BlackHole => "black hole",
            }
            .into(),
            rtt_ms: view.rtt.map(millis),
            sent_packets: stats.sent_packets,
            acked_packets: stats.acked_packets,
            lost_packets: stats.lost_packets,
            late_packets: stats.spurious_losses,
            ecn: view.ecn.as_str().into(),
            marked_packets: stats.marked_packets,
            sent_bytes: stats.sent_bytes,
            repair_bytes: stats.repair_bytes,
            redundant_bytes: stats.redundant_bytes,
            received_packets: stats.received_packets,
            received_bytes: stats.received_bytes,
            duplicate_packets: stats.duplicate_packets,
            steady: steady_report(now, &view),
            budget: self.budgets.get(&id).cloned(),
        }
    }
}

/// Returns one report for each middleware; an empty list for a node without middleware.
fn gateway_reports(state: &GatewayStatus) -> Vec<GatewayReport> {
    if state.kind == NO_GATEWAY {
        return Vec::new();
    }
    vec![GatewayReport {
        kind: state.kind.into(),
        location: state.location.clone(),
        connected: state.connected,
        trouble: state.trouble.clone(),
        rejected: state.rejected.iter().map(rejected_report).collect(),
    }]
}

fn rejected_report(rejected: &Rejected) -> RejectedReport {
    RejectedReport {
        topic: rejected.topic.clone(),
        direction: if rejected.reason.is_incoming() { Direction::In } else { Direction::Out },
        reason: rejected.reason.as_str().into(),
        count: rejected.count,
    }
}

fn topic_reports(
    recent_counters: &RecentCounters<'_>,
    slow_subscribers: &[(String, u64)],
) -> Vec<TopicReport> {
    let endpoint = recent_counters.exchange.endpoint;
    let mut reports = Vec::new();
    for (name, local) in recent_counters.exchange.topics.exported_topics() {
        reports.extend(local.keys().filter_map(|key| outgoing(recent_counters, name, local, key)));
    }
    for peer in endpoint.peers() {
        let keys = endpoint.peer(peer).channels_in().map(|channel| ChannelKey { peer, channel });
        reports.extend(keys.filter_map(|key| incoming(recent_counters, slow_subscribers, key)));
    }
    reports
}

fn outgoing(
    recent_counters: &RecentCounters<'_>,
    name: &str,
    local: &LocalTopic,
    key: ChannelKey,
) -> Option<TopicReport> {
    let endpoint = recent_counters.exchange.endpoint;
    let (config, wanted, stats) = endpoint.peer(key.peer).channel_out(key.channel)?;
    let mut dropped = drops(&stats.dropped);
    let of_transforms = local.transforms.iter().flat_map(|transforms| &transforms.dropped);
    dropped.extend(nonzero_counts(of_transforms.map(|(reason, count)| (reason.as_str(), *count))));
    Some(TopicReport {
        topic: name.into(),
        direction: Direction::Out,
        peer: endpoint.peer(key.peer).name.into(),
        type_name: local.topic.type_name.clone(),
        priority: config.topic.priority,
        rate_hz: local.treatment.rate_hz,
        wanted,
        messages: stats.accepted,
        bytes: stats.bytes,
        delivered: stats.delivered,
        queued: stats.queued,
        sent: stats.sent,
        rate_limited: local.rate_limited,
        recovered_packets: 0,
        dropped,
        given_up: recent_counters.given_up(Stream::Out(key)),
        links: link_use(recent_counters.exchange, key, &config.links, &stats.link_bytes),
        delay: None,
        delay_bound_ms: None,
    })
}

/// Returns how a topic uses the links to a peer; `None` unless there are several links.
fn link_use(
    exchange: Exchange<'_>,
    key: ChannelKey,
    rule: &LinkUse,
    bytes: &[u64],
) -> Option<LinkUseReport> {
    let Exchange { endpoint, shared, .. } = exchange;
    let links = shared.peers.links_to(key.peer);
    if links.len() < 2 {
        return None;
    }
    let sent = |number: u8| bytes.get(usize::from(number)).copied().unwrap_or_default();
    let limit = |(name, number): &(String, u8)| {
        let views = endpoint.links().filter_map(|id| endpoint.link(id));
        let view = views.filter(|it| it.peer == key.peer).find(|it| it.number == *number)?;
        Some((name.clone(), link_restriction(rule, &view)?.to_owned()))
    };
    Some(LinkUseReport {
        policy: rule.policy.as_str().into(),
        bytes: links.iter().map(|(name, number)| (name.clone(), sent(*number))).collect(),
        limits: links.iter().filter_map(limit).collect(),
    })
}

/// Returns why a link carries a topic only while no other link can, or not at all; `None` without
/// such a limit.
fn link_restriction(rule: &LinkUse, link: &LinkView<'_>) -> Option<&'static str> {
    if rule.only.is_some_and(|only| !only.contains(link.number)) {
        Some("only_links")
    } else if link.spent && !rule.over_budget {
        Some("budget used up")
    } else if rule.avoid.contains(link.number) {
        Some("avoid_links")
    } else {
        (link.metered && rule.only.is_none()).then_some("metered")
    }
}

fn incoming(
    recent_counters: &RecentCounters<'_>,
    slow_subscribers: &[(String, u64)],
    key: ChannelKey,
) -> Option<TopicReport> {
    let Exchange { endpoint, topics, .. } = recent_counters.exchange;
    let peer = endpoint.peer(key.peer);
    let (topic, _, stats) = endpoint.peer(key.peer).channel_in(key.channel)?;
    let IncomingState { name, wanted, over_rate_drops, slow_subscriber_drops, malformed } =
        topics.incoming(key)?;
    let in_gateway = slow_subscribers.iter().find(|(topic, _)| topic == name);
    let outside_protocol = [
        (DroppedMessage::OverRate, over_rate_drops.messages),
        (DroppedMessage::Malformed, malformed),
        (
            DroppedMessage::SlowSubscriber,
            in_gateway.map_or(0, |(_, count)| *count) + slow_subscriber_drops,
        ),
    ];
    let mut dropped = drops(&stats.dropped);
    dropped
        .extend(nonzero_counts(outside_protocol.map(|(reason, count)| (reason.as_str(), count))));
    Some(TopicReport {
        topic: name.into(),
        direction: Direction::In,
        peer: peer.name.into(),
        type_name: topic.type_name.clone(),
        priority: topic.priority,
        rate_hz: None,
        wanted,
        messages: stats.delivered.saturating_sub(over_rate_drops.messages + malformed),
        bytes: stats.bytes.saturating_sub(over_rate_drops.bytes),
        delivered: stats.delivered,
        queued: 0,
        sent: 0,
        rate_limited: 0,
        recovered_packets: stats.recovered_pieces,
        dropped,
        given_up: recent_counters.given_up(Stream::In(key)),
        links: None,
        delay: delay_report(&stats.delay),
        delay_bound_ms: peer.clock.map(|clock| millis(clock.bound)),
    })
}

fn waiting(endpoint: &Endpoint, peer: PeerId, it: &PendingRequest) -> WaitingReport {
    WaitingReport {
        peer: endpoint.peer(peer).name.into(),
        act: it.kind.as_str().into(),
        name: it.name.clone(),
        type_name: it.type_name.clone(),
        line: it.line.clone(),
    }
}

fn unchecked(endpoint: &Endpoint, it: Unchecked<'_>) -> UncheckedReport {
    UncheckedReport {
        peer: it.peer.map(|peer| endpoint.peer(peer).name.to_owned()),
        name: it.name.into(),
        type_name: it.type_name.into(),
        why: it.reason.into(),
    }
}

fn one_sided(exchange: Exchange<'_>, peer: PeerId) -> Vec<FieldReport> {
    let name = exchange.endpoint.peer(peer).name;
    let fields = exchange.topics.one_sided_fields(peer).into_iter();
    fields.map(|field| FieldReport { peer: name.into(), field: notices::plain(field) }).collect()
}

fn lines_to_allow_all(exchange: Exchange<'_>) -> Vec<LinesReport> {
    let name = |peer| exchange.endpoint.peer(peer).name.to_owned();
    let all = exchange.shared.lines_to_allow_all();
    all.map(|(peer, lines)| LinesReport { peer: name(peer), lines }).collect()
}

fn clock_report(clock: ClockView) -> ClockReport {
    ClockReport {
        offset_ms: clock.offset_us.map(|us| us as f64 / 1e3),
        bound_ms: millis(clock.bound),
        drift_ppm: clock.drift_ppm,
    }
}

pub(crate) fn drops(dropped: &Drops) -> BTreeMap<String, u64> {
    nonzero_counts(dropped.iter().map(|(reason, count)| (reason.as_str(), count))).collect()
}

/// Returns the counters that are not zero, by the names of their reasons.
fn nonzero_counts(
    counts: impl IntoIterator<Item = (&'static str, u64)>,
) -> impl Iterator<Item = (String, u64)> {
    let occurred = counts.into_iter().filter(|(_, count)| *count > 0);
    occurred.map(|(reason, count)| (reason.into(), count))
}

fn packets_refused(exchange: Exchange<'_>, refused: &Refused) -> BTreeMap<String, u64> {
    let Exchange { endpoint, topics, .. } = exchange;
    let by_protocol = endpoint.refused_packets().iter();
    let by_protocol = by_protocol.map(|(reason, count)| (reason.as_str(), count));
    let calls = [
        (RefusedInput::CallsOverRate, topics.calls_over_rate()),
        (RefusedInput::CallsMalformed, topics.calls_malformed()),
    ];
    let by_node = refused.iter().chain(&calls).map(|(reason, count)| (reason.as_str(), *count));
    nonzero_counts(by_protocol.chain(by_node)).collect()
}

fn delay_report(delays: &Delays) -> Option<DelayReport> {
    let count = u32::try_from(delays.count).unwrap_or(u32::MAX);
    if count == 0 {
        return None;
    }
    let filled = (0..DELAY_BUCKETS).filter(|b| delays.counts[*b] > 0);
    Some(DelayReport {
        mean_ms: millis(delays.sum / count),
        p50_ms: millis(delays.quantile(0.5)),
        p99_ms: millis(delays.quantile(0.99)),
        max_ms: millis(delays.max),
        buckets: filled.map(|b| (millis(Delays::bound(b)), delays.counts[b])).collect(),
    })
}

/// Counts the packets since the last interruption.
fn steady_report(now: Instant, view: &LinkView<'_>) -> Option<SteadyReport> {
    let before = view.stats.resumed.filter(|_| view.up)?;
    Some(SteadyReport {
        seconds: now.since(before.at).as_secs_f64(),
        acked_packets: view.stats.acked_packets.saturating_sub(before.acked_packets),
        lost_packets: view.stats.lost().saturating_sub(before.lost),
    })
}

/// Removes notices about an unknown key that now belongs to a peer.
fn unresolved_notices(mut notices: Vec<String>, endpoint: &Endpoint) -> Vec<String> {
    for peer in endpoint.peers().map(|id| endpoint.peer(id)) {
        notices::drop_unknown_key_notices(&mut notices, peer.name, &peer.key, endpoint.name());
    }
    notices
}
