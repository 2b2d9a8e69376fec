// SPDX-License-Identifier: Apache-2.0
//! Events of the gateway: topics that local nodes publish, and their messages.

mod kept;

pub(crate) use kept::SourceChange;

use super::frames::Frames;
use super::origin;
use super::shown::Kind;
use super::transforms::Transforms;
use super::{ChannelKey, Outgoing, Topics};
use crate::codec::{Job, Plain};
use crate::treatment::{LinkChoice, OrderChoice, Treatment, WhenSlow};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tautline_gateway::description::{write_nodes, write_parameters};
use tautline_gateway::{Command, Event, Source, Topic};
use tautline_proto::wire::control::MAX_ORDER_WAIT;
use tautline_proto::{
    ChannelConfig, ChannelId, DeliveryOrder, Duration, Instant, LinkPolicy, LinkSet, LinkUse,
    Message, OfferedQos, OfferedTopic, PeerId, Role, SendError,
};

/// Time for which a topic is still read after the last peer has unsubscribed. A peer that
/// subscribes repeatedly, or returns in a new session, then causes no work for the ROS master.
pub(super) const LINGER: Duration = Duration::from_secs(10);

/// Time in which a publisher repeats all the messages that it keeps.
const REPETITION: Duration = Duration::from_millis(100);

/// A topic that local nodes publish.
#[derive(Debug)]
pub(crate) struct LocalTopic {
    pub(crate) topic: Topic,
    pub(crate) treatment: Treatment,
    /// Whether this node itself publishes on it.
    pub(super) own: bool,
    /// Whether other nodes on this robot publish on it.
    pub(super) others: bool,
    pub(crate) channels: BTreeMap<PeerId, ChannelId>,
    /// The subscribed peers, and since when.
    wanted_by: BTreeMap<PeerId, Instant>,
    /// Time at which the last peer unsubscribed, while the topic is still read.
    unwanted_since: Option<Instant>,
    last_taken: Option<Instant>,
    pub(crate) rate_limited: u64,
    /// The last messages of each publisher that keeps them for late joiners.
    latched: BTreeMap<Source, VecDeque<Outgoing>>,
    /// The newest of these of each publisher, if the rate does not allow it yet, in the order in
    /// which it was the turn of the publishers.
    held_back: VecDeque<Outgoing>,
    /// The publishers whose last message, which was not known to be kept, was left out by the rate.
    left_out: BTreeSet<Source>,
    /// The number of messages that each of these publishers keeps, where it is known to be above 1.
    depths: BTreeMap<Source, u32>,
    /// Presence messages so far.
    revision: u32,
    /// The state of its transforms, if it is a tf topic.
    pub(crate) transforms: Option<Transforms>,
    /// The frames in its messages, if it is not a tf topic.
    pub(super) frames: Frames,
}

impl LocalTopic {
    fn new(topic: Topic, treatment: Treatment) -> Self {
        Self {
            transforms: Transforms::of_type(&topic.type_name),
            topic,
            treatment,
            own: false,
            others: false,
            channels: BTreeMap::new(),
            wanted_by: BTreeMap::new(),
            unwanted_since: None,
            last_taken: None,
            rate_limited: 0,
            latched: BTreeMap::new(),
            held_back: VecDeque::new(),
            left_out: BTreeSet::new(),
            depths: BTreeMap::new(),
            revision: 0,
            frames: Frames::default(),
        }
    }

    pub(super) fn is_of_type(&self, other: &Topic) -> bool {
        (&self.topic.type_name, &self.topic.type_hash) == (&other.type_name, &other.type_hash)
    }

    /// Returns the channels on which the topic is advertised.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ChannelKey> {
        self.channels.iter().map(|(peer, channel)| ChannelKey { peer: *peer, channel: *channel })
    }

    /// Returns the channel on which the topic is advertised to a peer.
    fn channel_of(&self, peer: PeerId) -> Option<ChannelKey> {
        Some(ChannelKey { peer, channel: *self.channels.get(&peer)? })
    }

    /// Returns the channels of the peers that are subscribed.
    fn wanting(&self) -> impl Iterator<Item = ChannelKey> {
        self.wanted_by.keys().filter_map(|peer| self.channel_of(*peer))
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.wanted_by.is_empty()
    }

    /// Whether the gateway reads the topic.
    pub(super) fn is_read(&self) -> bool {
        self.is_wanted() || self.unwanted_since.is_some()
    }

    /// A peer subscribes; `false` if it was subscribed already.
    pub(super) fn wanted_by(&mut self, now: Instant, peer: PeerId) -> bool {
        self.unwanted_since = None;
        let is_new = !self.wanted_by.contains_key(&peer);
        if is_new {
            self.wanted_by.insert(peer, now);
        }
        is_new
    }

    pub(super) fn not_wanted_by(&mut self, now: Instant, peer: PeerId) {
        if self.wanted_by.remove(&peer).is_some() && self.wanted_by.is_empty() {
            self.unwanted_since = Some(now);
        }
    }

    /// A publisher repeats the messages that it keeps, the newest last: only this one has the next
    /// turn at one per `period`. Peers may have had it before.
    fn await_newest(&mut self, now: Instant, period: Duration) {
        let turn_before = (now + REPETITION).before(period);
        self.last_taken = self.last_taken.max(Some(turn_before));
    }

    /// Returns the time of the next message at one per `period`; `None` means now.
    pub(super) fn next_within(&self, period: Duration) -> Option<Instant> {
        Some(self.last_taken? + period)
    }

    /// Whether a message may be taken now at one per `period`; if so, it is counted.
    pub(super) fn within(&mut self, now: Instant, period: Duration) -> bool {
        let Some(last) = self.last_taken else {
            self.last_taken = Some(now);
            return true;
        };
        if now.since(last) < period {
            return false;
        }
        // Counting from the planned time keeps the average at the limit and allows an early message
        // after a late one: jitter does not halve the rate of a publisher exactly at the limit.
        let planned = last + period;
        let resumes = now.since(planned) > period;
        self.last_taken = Some(if resumes { now } else { planned });
        true
    }
}

impl Topics {
    pub(crate) fn on_local(&mut self, now: Instant, event: Event) {
        match event {
            Event::Offered(topic) => {
                let name = topic.name.clone();
                self.local_offered(now, topic);
                if let Some(local) = self.local.get_mut(&name) {
                    local.others = true;
                }
            }
            Event::Withdrawn { topic } => {
                // A topic that this node itself publishes stays advertised.
                match self.local.get_mut(&topic).filter(|local| local.own) {
                    Some(local) => local.others = false,
                    None => self.local_withdrawn(now, topic),
                }
            }
            Event::SourceGone { topic, source } => {
                self.source_gone(now, SourceChange { topic, source, successor: None });
            }
            Event::ServiceOffered(service) => self.service_offered(now, service),
            Event::ServiceWithdrawn { service } => self.service_withdrawn(now, &service),
            Event::Called { service, call, request } => {
                self.called(now, service, call, &request);
            }
            Event::Interrupted { service, call, request } => {
                self.interrupted(now, service, call, &request);
            }
            Event::Answered { call, outcome, .. } => self.answered(now, call, &outcome),
            Event::Wanted { topic, wanted } => self.local_wanted(now, &topic, wanted),
            Event::Changed { peer, parameters } => self.ask_to_set(now, peer, parameters),
            Event::Nodes(nodes) => self.show(now, Kind::Nodes, write_nodes(&nodes).into()),
            Event::Parameters(parameters) => {
                self.show(now, Kind::Parameters, write_parameters(&parameters).into());
            }
            Event::Refused { topic, reason } => self.local_refused(now, &topic, &reason),
            Event::Depth { topic, source, successor, depth } => {
                let successor = Some((successor, depth));
                self.depth_found(now, SourceChange { topic, source, successor });
            }
            Event::Message { topic, source, payload, origin, .. } => {
                let (encoded, published) = (false, now.before(origin.age));
                let message = Outgoing { topic, source, payload, origin, encoded, published };
                self.local_message(now, message);
            }
        }
    }

    pub(super) fn local_offered(&mut self, now: Instant, topic: Topic) {
        let name = topic.name.clone();
        let Some(treatment) = self.treatment_of(&name) else { return };
        if self.local.get(&name).is_some_and(|l| !l.is_of_type(&topic)) {
            // Queued messages have the old type and must not be read as the new one.
            self.local_withdrawn(now, name.clone());
        }
        self.follow_definition(&topic);
        let mut local = match self.local.remove(&name) {
            Some(known) => LocalTopic { topic, treatment, ..known },
            None => LocalTopic::new(topic, treatment),
        };
        for peer in self.endpoint.peers() {
            self.offer(now, &mut local, peer);
        }
        self.local.insert(name, local);
    }

    pub(super) fn offer(&mut self, now: Instant, local: &mut LocalTopic, peer: PeerId) {
        if !self.is_topic_for(peer, &local.topic.name, &local.treatment) {
            return;
        }
        let config = channel_config(&local.topic, &local.treatment, self.links_of(peer));
        let known = local.channels.get(&peer).copied();
        if let Some(channel) = self.offer_channel(now, peer, known, config) {
            local.channels.insert(peer, channel);
        }
    }

    /// Whether a topic is for this peer: as [`Self::is_for`], and over one of the links that its rule
    /// names, if it names any.
    pub(super) fn is_topic_for(&self, peer: PeerId, name: &str, treatment: &Treatment) -> bool {
        let only = &treatment.links.only;
        let mut links = self.links_of(peer).iter();
        self.is_for(peer, name, treatment.to.as_deref())
            && (only.is_empty() || links.any(|(link, _)| only.contains(link)))
    }

    /// Whether `name` is for this peer: by `to` of its rule (`None` is all peers) and by the peer's
    /// rights.
    pub(super) fn is_for(&self, peer: PeerId, name: &str, to: Option<&[String]>) -> bool {
        to.is_none_or(|to| to.iter().any(|it| it == self.peer_name(peer)))
            && self.rights(peer).is_offered(name)
    }

    /// Advertises a channel, or updates the advertisement on the `known` one. Returns the channel
    /// if there is one; adds a notice on failure.
    pub(super) fn offer_channel(
        &mut self,
        now: Instant,
        peer: PeerId,
        known: Option<ChannelId>,
        config: ChannelConfig,
    ) -> Option<ChannelId> {
        let calls = if config.topic.role == Role::Calls { "calls of " } else { "" };
        let what = format!("{calls}{}", config.topic.name);
        let done = match known {
            Some(channel) => {
                self.endpoint.change_offer(now, peer, channel, config).map(|()| channel)
            }
            None => self.endpoint.offer(now, peer, config),
        };
        let failed = |error| {
            let (here, name) = (self.endpoint.name(), self.peer_name(peer));
            let text = format!("{what}: not advertised from '{here}' to '{name}': {error}");
            self.peer_notice(now, peer, &text);
        };
        done.map_err(failed).ok().or(known)
    }

    pub(super) fn local_withdrawn(&mut self, now: Instant, topic: String) {
        let Some(gone) = self.local.remove(&topic) else { return };
        for (peer, channel) in &gone.channels {
            self.endpoint.withdraw(now, *peer, *channel);
        }
        if gone.is_read() {
            self.gateway(Command::Unsubscribe { topic });
        }
    }

    /// Stops reading topics that no peer has subscribed to for [`LINGER`].
    pub(super) fn stop_reading(&mut self, now: Instant) {
        let mut unwanted = Vec::new();
        for (name, local) in &mut self.local {
            if local.unwanted_since.is_some_and(|at| now.since(at) >= LINGER) {
                local.unwanted_since = None;
                local.forget_latched();
                unwanted.push(name.clone());
            }
        }
        for topic in unwanted {
            self.gateway(Command::Unsubscribe { topic });
        }
    }

    pub(super) fn local_message(&mut self, now: Instant, mut message: Outgoing) {
        self.mark_renamed(now, &mut message);
        let Some(local) = self.local.get_mut(&message.topic) else { return };
        if local.transforms.is_some() {
            return self.local_transforms(now, message);
        }
        if local.repeats_kept(&message) {
            return;
        }
        let period = local.treatment.period();
        if let Some(period) = period
            && message.origin.kept.is_some_and(|kept| kept.is_history && kept.depth > 1)
        {
            local.await_newest(now, period);
        }
        // Messages that are held back have the next turn.
        let has_turn = |local: &mut LocalTopic, period| {
            local.held_back.is_empty() && local.within(now, period)
        };
        let Some(period) = period.filter(|it| !has_turn(local, *it)) else {
            if message.origin.kept.is_none() {
                local.left_out.remove(&message.source);
            }
            return self.forward(now, message);
        };
        let before = local.held_back.iter().position(|it| it.source == message.source);
        local.rate_limited += u64::from(before.is_some() || message.origin.kept.is_none());
        // The last message of a publisher that keeps it counts, and it may be its only one.
        match before {
            Some(at) => local.held_back[at] = message,
            None if message.origin.kept.is_some() && local.is_read() => {
                local.held_back.push_back(message);
                let due = local.next_within(period);
                self.hold_back_until(due);
            }
            None if message.origin.kept.is_none() => {
                local.left_out.insert(message.source);
            }
            None => {}
        }
    }

    /// Schedules [`Self::send_due`].
    pub(super) fn hold_back_until(&mut self, due: Option<Instant>) {
        self.next_held_back = [self.next_held_back, due].into_iter().flatten().min();
    }

    /// Sends the messages that are due and that the rate of their topic held back.
    pub(super) fn send_due(&mut self, now: Instant) {
        if self.next_held_back.is_none_or(|at| now < at) {
            return;
        }
        self.next_held_back = None;
        let waits = |local: &LocalTopic| local.transforms.is_some() || !local.held_back.is_empty();
        let topics = self.local.iter().filter(|(_, local)| waits(local));
        for topic in topics.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.send_merged(now, &topic);
            self.send_held_back(now, &topic);
        }
    }

    /// Sends one message of a topic, and schedules the next.
    fn send_held_back(&mut self, now: Instant, topic: &str) {
        let Some(local) = self.local.get_mut(topic).filter(|it| !it.held_back.is_empty()) else {
            return;
        };
        // The limit may have been lifted since.
        let period = local.treatment.period().unwrap_or(Duration::ZERO);
        let message = match local.within(now, period) {
            true => local.held_back.pop_front(),
            false => None,
        };
        let due = local.next_within(period).filter(|_| !local.held_back.is_empty());
        self.hold_back_until(due);
        if let Some(message) = message {
            self.forward(now, message);
        }
    }

    /// Sends a message that passed the rate limit; through the codec, if its topic uses that.
    pub(super) fn forward(&mut self, now: Instant, message: Outgoing) {
        let Some(local) = self.local.get(&message.topic) else { return };
        if !local.is_wanted() && message.origin.kept.is_none() {
            return;
        }
        let compression = local.treatment.compression;
        let renaming = self.renaming(now, &message.topic);
        // Only frames that are renamed matter here.
        let bytes = if renaming.is_some() { message.payload.len() } else { 0 };
        if self.is_for_codec(&message.topic, bytes) {
            return self.codec(Job::Encode(Plain { message, renaming, compression }));
        }
        match renaming {
            Some(renaming) => {
                let (message, problem) = renaming.apply(message);
                self.send_renamed(now, message, problem);
            }
            None => self.send(now, message),
        }
    }

    /// Queues a message for every subscribed peer.
    pub(crate) fn send(&mut self, now: Instant, message: Outgoing) {
        let Some(local) = self.local.get_mut(&message.topic) else { return };
        if !local.is_read() {
            return;
        }
        if let Some(kept) = message.origin.kept {
            let depth = local.allowed_depth(kept.depth);
            local.depths.insert(message.source, depth);
            // DDS sends no history with best effort.
            if !message.origin.best_effort {
                local.keep_latched(message.clone());
            }
        }
        for key in local.wanting().collect::<Vec<_>>() {
            match message.origin.kept {
                Some(kept) if kept.is_for_later_ones => self.send_missed(now, key, &message),
                _ => self.send_to(now, key, &message),
            }
        }
    }

    pub(super) fn send_to(&mut self, now: Instant, key: ChannelKey, message: &Outgoing) {
        if self.is_pending(key, message.source, message.origin.kept) {
            return;
        }
        let Some(local) = self.local.get(&message.topic) else { return };
        let mut origin = message.origin;
        if let Some(kept) = &mut origin.kept {
            kept.depth = local.depth(message.source);
        }
        let is_usual = !(origin.best_effort && local.topic.qos.reliable);
        let (number, revision) = (message.source.number, local.revision);
        let (source, payload) = origin::emit(number, &origin, is_usual, revision, &message.payload);
        let (encoded, published) = (message.encoded, message.published);
        let lifespan = origin.lifespan;
        let sent = Message { payload, published, source, encoded, lifespan };
        self.send_payload(now, key, &message.topic, sent);
    }

    fn send_payload(&mut self, now: Instant, key: ChannelKey, topic: &str, message: Message) {
        match self.endpoint.send(now, key.peer, key.channel, message) {
            // The peer has just unsubscribed; its event follows.
            Ok(()) | Err(SendError::NotWanted) => {}
            Err(error) => {
                let (here, name) = (self.endpoint.name(), self.peer_name(key.peer));
                let text = format!("{topic}: not sent from '{here}' to '{name}': {error}");
                self.peer_notice(now, key.peer, &text);
            }
        }
    }

    fn local_wanted(&mut self, now: Instant, topic: &str, wanted: bool) {
        let Some(publication) = self.publications.get_mut(topic) else { return };
        publication.wanted = wanted;
        let lingers = !wanted && publication.topic.qos.transient_local;
        publication.unwanted_since = lingers.then_some(now);
        if lingers {
            return;
        }
        for key in self.offering(topic) {
            self.endpoint.want(now, key.peer, key.channel, wanted);
        }
    }

    fn local_refused(&mut self, now: Instant, topic: &str, reason: &str) {
        let text = format!("{topic} at '{}': {reason}", self.endpoint.name());
        for key in self.offering(topic) {
            self.endpoint.refuse(now, key.peer, key.channel, text.clone());
        }
        self.topic_notice(now, topic, &text);
    }
}

/// `links`: the names and numbers of the links to the peer.
pub(super) fn channel_config(
    topic: &Topic,
    treatment: &Treatment,
    links: &[(String, u8)],
) -> ChannelConfig {
    let keep_last = u32::from(treatment.keep_last(&topic.type_name));
    // Each message of a latched topic counts, and each tf message describes other frames.
    let all_count = topic.qos.transient_local || Transforms::of_type(&topic.type_name).is_some();
    let thin = treatment.when_slow(&topic.type_name) == Some(WhenSlow::Thin) && !all_count;
    ChannelConfig {
        topic: OfferedTopic {
            name: topic.name.clone(),
            type_name: topic.type_name.clone(),
            type_hash: topic.type_hash.clone(),
            priority: treatment.priority,
            // A message for late joiners must not be replaced in the queue.
            keep_last: match topic.qos.transient_local {
                true => keep_last.max(topic.qos.depth),
                false => keep_last,
            },
            // A message past either lifespan is worthless, and is not sent.
            lifespan: treatment.lifespan.into_iter().chain(topic.qos.lifespan).min(),
            qos: OfferedQos {
                transient_local: topic.qos.transient_local,
                depth: topic.qos.depth,
                reliable: topic.qos.reliable,
                deadline: topic.qos.deadline,
                manual_liveliness: topic.qos.liveliness.manual,
                lease: topic.qos.liveliness.lease,
                not_alive: topic.qos.liveliness.lost,
                classes: topic.qos.classes.bits(),
                keeping: topic.qos.keeping,
            },
            role: Role::Topic,
            order: order(treatment, topic.qos.transient_local, all_count),
        },
        definition: topic.definition.clone(),
        repair: treatment.repair,
        thin,
        fec: treatment.fec,
        links: link_use(treatment, links),
    }
}

fn order(treatment: &Treatment, is_kept: bool, all_count: bool) -> DeliveryOrder {
    match treatment.order {
        OrderChoice::Sent => DeliveryOrder::Sent { wait: treatment.order_wait },
        // Of two goals, the one that arrives last is kept: it has to be the one that was sent last.
        _ if is_kept => DeliveryOrder::Sent { wait: MAX_ORDER_WAIT },
        OrderChoice::Newest if !all_count => DeliveryOrder::Newest,
        OrderChoice::Arrival | OrderChoice::Newest => DeliveryOrder::Arrival,
    }
}

/// Returns how a topic uses several links.
pub fn link_policy(treatment: &Treatment) -> LinkPolicy {
    match treatment.links.choice {
        None => LinkPolicy::of_priority(treatment.priority),
        Some(LinkChoice::Best) => LinkPolicy::Best,
        Some(LinkChoice::Weighted) => LinkPolicy::Weighted,
        Some(LinkChoice::Stripe) => LinkPolicy::Stripe,
        Some(LinkChoice::Duplicate) => LinkPolicy::Duplicate(treatment.links.copies),
    }
}

fn link_use(treatment: &Treatment, links: &[(String, u8)]) -> LinkUse {
    let rule = &treatment.links;
    let set = |names: &[String]| {
        let named = links.iter().filter(|(name, _)| names.contains(name));
        LinkSet::of(named.map(|(_, number)| *number))
    };
    LinkUse {
        policy: link_policy(treatment),
        only: (!rule.only.is_empty()).then(|| set(&rule.only)),
        avoid: set(&rule.avoid),
        over_budget: rule.over_budget,
    }
}
