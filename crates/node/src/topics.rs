// SPDX-License-Identifier: Apache-2.0
//! Which local topic is which channel to which peer, and the reverse: the
//! exchange between gateways and protocol. Without I/O: what it wants done to
//! the gateway it returns as [`Order`]s.

use crate::config::Config;
use crate::status::TopicChange;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tautline_gateway::mapping::{Compression, NameMap, Pattern, Treatment, TopicRule, treatment};
use tautline_gateway::{Command, Event as LocalEvent, Qos, Source, Topic};
use tautline_proto::{
    ChannelConfig, ChannelId, Duration, Endpoint, Event, Instant, Message, OfferedTopic, PeerId,
    Received,
};

/// A channel that a peer had in its last session and has not offered again is given up after so long.
const REOFFER_GRACE: Duration = Duration::from_secs(5);
/// Notices kept for status.
const MAX_NOTICES: usize = 50;

/// Something to be done outside.
#[derive(Debug)]
pub(crate) enum Order {
    /// To the gateway.
    Gateway(Command),
    /// Compress, and bring the result back by [`Topics::send`].
    Compress(Outgoing),
    /// Decompress a payload of at most the configured size, then publish it.
    Decompress { topic: String, source: Source, payload: Bytes },
}

/// A message on its way from the gateway to the protocol.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) source: Source,
    pub(crate) payload: Bytes,
    pub(crate) encoded: bool,
    pub(crate) published: Instant,
}

/// A topic that local nodes publish.
#[derive(Debug)]
pub(crate) struct LocalTopic {
    pub(crate) topic: Topic,
    pub(crate) treatment: Treatment,
    pub(crate) channels: BTreeMap<PeerId, ChannelId>,
    wanted_by: BTreeSet<PeerId>,
    last_taken: Option<Instant>,
    pub(crate) rate_limited: u64,
    /// The last message of each publisher, for peers that come late.
    latched: BTreeMap<Source, Outgoing>,
    /// What peers said against it.
    pub(crate) refusals: BTreeMap<PeerId, String>,
}

/// A topic that a peer offers.
#[derive(Debug)]
struct RemoteTopic {
    local_name: String,
    offered: OfferedTopic,
    definition: Arc<str>,
    /// The peer started a new session and has not offered it again.
    stale_since: Option<Instant>,
}

/// A topic that we publish locally for one or more peers.
#[derive(Debug)]
struct Publication {
    topic: Topic,
    from: BTreeSet<(PeerId, ChannelId)>,
    wanted: bool,
}

/// The exchange.
#[derive(Debug)]
pub(crate) struct Topics {
    rules: Vec<TopicRule>,
    changes: Vec<(Pattern, TopicChange)>,
    peer_names: Vec<String>,
    name_maps: Vec<NameMap>,
    pub(crate) local: BTreeMap<String, LocalTopic>,
    remote: BTreeMap<(PeerId, ChannelId), RemoteTopic>,
    publications: BTreeMap<String, Publication>,
    orders: VecDeque<Order>,
    pub(crate) notices: VecDeque<String>,
}

impl Topics {
    /// Peers are numbered in the order of the file.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            rules: config.topics.clone(),
            changes: Vec::new(),
            peer_names: config.peers.iter().map(|p| p.name.clone()).collect(),
            name_maps: config.peers.iter().map(|p| p.names.clone()).collect(),
            local: BTreeMap::new(),
            remote: BTreeMap::new(),
            publications: BTreeMap::new(),
            orders: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// The next thing to be done outside.
    pub(crate) fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Local name of a peer's topic and whether it is wanted here.
    pub(crate) fn incoming(&self, peer: PeerId, channel: ChannelId) -> Option<(&str, bool)> {
        let remote = self.remote.get(&(peer, channel))?;
        let publication = self.publications.get(&remote.local_name);
        Some((&remote.local_name, publication.is_some_and(|p| p.wanted)))
    }

    fn peer_name(&self, peer: PeerId) -> &str {
        &self.peer_names[peer.0 as usize]
    }

    pub(crate) fn notice(&mut self, text: String) {
        tracing::warn!("{text}");
        if self.notices.back() == Some(&text) {
            return;
        }
        if self.notices.len() == MAX_NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(text);
    }

    fn gateway(&mut self, command: Command) {
        self.orders.push_back(Order::Gateway(command));
    }
}

/// From the gateway.
impl Topics {
    pub(crate) fn on_local(&mut self, now: Instant, endpoint: &mut Endpoint, event: LocalEvent) {
        match event {
            LocalEvent::Offered(topic) => self.local_offered(now, endpoint, topic),
            LocalEvent::Withdrawn { topic } => {
                let Some(gone) = self.local.remove(&topic) else { return };
                for (peer, channel) in gone.channels {
                    endpoint.withdraw(now, peer, channel);
                }
                if !gone.wanted_by.is_empty() {
                    self.gateway(Command::Unsubscribe { topic });
                }
            }
            LocalEvent::SourceGone { topic, source } => {
                if let Some(local) = self.local.get_mut(&topic) {
                    local.latched.remove(&source);
                }
            }
            LocalEvent::Wanted { topic, wanted } => self.local_wanted(now, endpoint, topic, wanted),
            LocalEvent::Refused { topic, reason } => {
                self.local_refused(now, endpoint, &topic, &reason)
            }
            LocalEvent::Message { topic, source, payload, .. } => {
                self.local_message(now, endpoint, topic, source, payload)
            }
        }
    }

    fn local_offered(&mut self, now: Instant, endpoint: &mut Endpoint, topic: Topic) {
        let Some(found) = self.treatment_of(&topic.name) else { return };
        let name = topic.name.clone();
        let before = self.local.remove(&name);
        let mut local = LocalTopic {
            treatment: found,
            channels: BTreeMap::new(),
            wanted_by: BTreeSet::new(),
            last_taken: None,
            rate_limited: 0,
            latched: BTreeMap::new(),
            refusals: BTreeMap::new(),
            topic,
        };
        if let Some(before) = before {
            local.channels = before.channels;
            local.wanted_by = before.wanted_by;
            local.rate_limited = before.rate_limited;
        }
        for peer in endpoint.peers() {
            self.offer(now, endpoint, &mut local, peer);
        }
        self.local.insert(name, local);
    }

    fn offer(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        local: &mut LocalTopic,
        peer: PeerId,
    ) {
        let named = |to: &Vec<String>| to.iter().any(|name| name == self.peer_name(peer));
        if !local.treatment.to.as_ref().is_none_or(named) {
            return;
        }
        let config = channel_config(&local.topic, &local.treatment);
        let done = match local.channels.get(&peer) {
            Some(&channel) => endpoint.change_offer(now, peer, channel, config),
            None => endpoint.offer(now, peer, config).map(|channel| {
                local.channels.insert(peer, channel);
            }),
        };
        if let Err(error) = done {
            let peer = self.peer_name(peer).to_owned();
            self.notice(format!("{}: not offered to '{peer}': {error}", local.topic.name));
        }
    }

    /// What the file says of a topic, with what was changed since.
    fn treatment_of(&self, name: &str) -> Option<Treatment> {
        let mut found = treatment(&self.rules, name)?.clone();
        for (pattern, change) in self.changes.iter().filter(|(p, _)| p.matches(name)) {
            tracing::trace!(pattern = pattern.as_str(), name, "changed since the start");
            found.priority = change.priority.unwrap_or(found.priority);
            match change.rate_hz {
                Some(0.0) => found.rate_hz = None,
                Some(hz) => found.rate_hz = Some(hz),
                None => {}
            }
        }
        Some(found)
    }

    /// Changes the topics named on the running node; returns which they were.
    pub(crate) fn change(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        change: TopicChange,
    ) -> Result<Vec<String>, String> {
        let pattern = Pattern::new(&change.topic).map_err(|e| format!("topic {e}"))?;
        if change.rate_hz.is_some_and(|hz| !(0.0..=1e6).contains(&hz)) {
            return Err("rate: 0 (no limit) to 1000000 Hz is allowed".into());
        }
        let names: Vec<_> = self.local.keys().filter(|n| pattern.matches(n)).cloned().collect();
        if names.is_empty() {
            let known = self.local.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".into() } else { known };
            return Err(format!("no topic sent from here matches '{}'; there are: {known}", change.topic));
        }
        self.changes.retain(|(other, _)| *other != pattern || names.is_empty());
        self.changes.push((pattern, change));
        for name in &names {
            let (Some(found), Some(mut local)) = (self.treatment_of(name), self.local.remove(name))
            else {
                continue;
            };
            local.treatment = found;
            for peer in local.channels.keys().copied().collect::<Vec<_>>() {
                self.offer(now, endpoint, &mut local, peer);
            }
            self.local.insert(name.clone(), local);
        }
        Ok(names)
    }

    fn local_message(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        topic: String,
        source: Source,
        payload: Bytes,
    ) {
        let Some(local) = self.local.get_mut(&topic) else { return };
        if !within_rate(local, now) {
            local.rate_limited += 1;
            return;
        }
        let compress = local.treatment.compression == Compression::Zstd;
        let message = Outgoing { topic, source, payload, encoded: false, published: now };
        if compress {
            self.orders.push_back(Order::Compress(message));
        } else {
            self.send(now, endpoint, message);
        }
    }

    /// Queues a message for every peer that wants it.
    pub(crate) fn send(&mut self, now: Instant, endpoint: &mut Endpoint, message: Outgoing) {
        let Some(local) = self.local.get_mut(&message.topic) else { return };
        if local.topic.qos.transient_local {
            local.latched.insert(message.source, message.clone());
        }
        let mut troubles = Vec::new();
        for &peer in &local.wanted_by {
            let Some(&channel) = local.channels.get(&peer) else { continue };
            if let Err(error) = send_to(now, endpoint, peer, channel, &message) {
                troubles.push(format!("{}: not sent: {error}", message.topic));
            }
        }
        for trouble in troubles {
            self.notice(trouble);
        }
    }

    fn local_wanted(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        topic: String,
        wanted: bool,
    ) {
        let Some(publication) = self.publications.get_mut(&topic) else { return };
        publication.wanted = wanted;
        for &(peer, channel) in &publication.from {
            endpoint.want(now, peer, channel, wanted);
        }
    }

    fn local_refused(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        topic: &str,
        reason: &str,
    ) {
        let here = endpoint.name().to_owned();
        let text = format!("{topic} at '{here}': {reason}");
        if let Some(publication) = self.publications.get(topic) {
            for &(peer, channel) in &publication.from {
                endpoint.refuse(now, peer, channel, text.clone());
            }
        }
        self.notice(text);
    }
}

/// From the protocol.
impl Topics {
    pub(crate) fn on_remote(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Message { peer, channel, message } => {
                self.remote_message(peer, channel, message)
            }
            Event::Offered { peer, channel, topic, definition } => {
                self.remote_offered(now, endpoint, peer, channel, topic, definition);
            }
            Event::Withdrawn { peer, channel } => self.remote_withdrawn((peer, channel)),
            Event::Wanted { peer, channel, wanted } => {
                self.remote_wanted(now, endpoint, peer, channel, wanted)
            }
            Event::Refused { peer, channel, reason } => self.remote_refused(peer, channel, reason),
            Event::PeerUp { peer, new_session } => {
                tracing::info!(peer = self.peer_name(peer), new_session, "peer is up");
                if new_session {
                    self.new_session(now, peer);
                }
            }
            Event::PeerDown { peer } => tracing::info!(peer = self.peer_name(peer), "peer is down"),
            Event::LinkUp { .. } | Event::LinkDown { .. } => {}
            Event::Notice(notice) => self.notice(crate::notices::text(&notice, endpoint.name())),
        }
    }

    fn new_session(&mut self, now: Instant, peer: PeerId) {
        for (_, remote) in self.remote.iter_mut().filter(|((p, _), _)| *p == peer) {
            remote.stale_since = Some(now);
        }
        for local in self.local.values_mut() {
            local.wanted_by.remove(&peer);
            local.refusals.remove(&peer);
        }
        self.unsubscribe_unwanted();
    }

    fn unsubscribe_unwanted(&mut self) {
        // Harmless where we were not subscribed: the command is idempotent.
        let unwanted = self.local.iter().filter(|(_, l)| l.wanted_by.is_empty());
        let names: Vec<_> = unwanted.map(|(name, _)| name.clone()).collect();
        for topic in names {
            self.gateway(Command::Unsubscribe { topic });
        }
    }

    /// Gives up what peers had in their last session and do not offer any more.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let over = |since: Option<Instant>| since.is_some_and(|at| now.since(at) > REOFFER_GRACE);
        let gone: Vec<_> =
            self.remote.iter().filter(|(_, r)| over(r.stale_since)).map(|(k, _)| *k).collect();
        for key in gone {
            self.remote_withdrawn(key);
        }
    }

    fn remote_offered(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        peer: PeerId,
        channel: ChannelId,
        offered: OfferedTopic,
        definition: Arc<str>,
    ) {
        let map = &self.name_maps[peer.0 as usize];
        let Some(local_name) = map.local_name(&offered.name) else { return };
        if tautline_gateway::mapping::check_name(&local_name).is_err() {
            return endpoint.refuse(now, peer, channel, format!("'{local_name}' is no topic name"));
        }
        let topic = Topic {
            name: local_name.clone(),
            type_name: offered.type_name.clone(),
            type_hash: offered.type_hash.clone(),
            definition: definition.clone(),
            qos: Qos { transient_local: offered.transient_local, reliable: offered.reliable },
        };
        let key = (peer, channel);
        // A new session may give another topic this number, or this topic another number.
        let stale = self.remote.iter().filter(|(other, remote)| {
            other.0 == peer
                && ((**other == key && remote.local_name != local_name)
                    || (**other != key && remote.offered.name == offered.name))
        });
        for old in stale.map(|(k, _)| *k).collect::<Vec<_>>() {
            self.replace_remote(old, &local_name);
        }
        self.remote.insert(
            key,
            RemoteTopic { local_name: local_name.clone(), offered, definition, stale_since: None },
        );
        self.publish_for(now, endpoint, key, topic);
    }

    /// Forgets a channel whose topic now has another number, without ending its publication.
    fn replace_remote(&mut self, old: (PeerId, ChannelId), local_name: &str) {
        let Some(gone) = self.remote.remove(&old) else { return };
        let Some(publication) = self.publications.get_mut(&gone.local_name) else { return };
        publication.from.remove(&old);
        if publication.from.is_empty() && gone.local_name != local_name {
            self.publications.remove(&gone.local_name);
            self.gateway(Command::Unadvertise { topic: gone.local_name });
        }
    }

    fn publish_for(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: (PeerId, ChannelId),
        mut topic: Topic,
    ) {
        let (peer, channel) = key;
        let name = topic.name.clone();
        let known = self.publications.get(&name);
        let others = known.and_then(|p| p.from.iter().find(|other| other.0 != peer));
        if let (Some(known), Some(&(other, _))) = (known, others) {
            if (&known.topic.type_name, &known.topic.type_hash)
                != (&topic.type_name, &topic.type_hash)
            {
                let text = format!(
                    "{name} at '{}': '{}' offers {} ({}), but '{}' has {} ({})",
                    endpoint.name(),
                    self.peer_name(peer),
                    topic.type_name,
                    topic.type_hash,
                    self.peer_name(other),
                    known.topic.type_name,
                    known.topic.type_hash,
                );
                endpoint.refuse(now, peer, channel, text.clone());
                return self.notice(text);
            }
            // One latched publisher is enough for late joiners to be served.
            topic.qos.transient_local |= known.topic.qos.transient_local;
        }
        let wanted = known.is_some_and(|p| p.wanted);
        let fresh = known.is_none_or(|p| p.topic != topic);
        let mut from = self.publications.remove(&name).map(|p| p.from).unwrap_or_default();
        from.insert(key);
        self.publications.insert(name, Publication { topic: topic.clone(), from, wanted });
        if fresh {
            self.gateway(Command::Advertise { topic });
        }
        endpoint.want(now, peer, channel, wanted);
    }

    fn remote_withdrawn(&mut self, key: (PeerId, ChannelId)) {
        let Some(gone) = self.remote.remove(&key) else { return };
        tracing::debug!(topic = gone.local_name, definition = gone.definition.len(), "withdrawn");
        let Some(publication) = self.publications.get_mut(&gone.local_name) else { return };
        publication.from.remove(&key);
        if publication.from.is_empty() {
            self.publications.remove(&gone.local_name);
            self.gateway(Command::Unadvertise { topic: gone.local_name });
        }
    }

    fn remote_wanted(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        peer: PeerId,
        channel: ChannelId,
        wanted: bool,
    ) {
        let found = self.local.iter_mut().find(|(_, l)| l.channels.get(&peer) == Some(&channel));
        let Some((name, local)) = found else { return };
        let topic = name.clone();
        let (before, latched) = (local.wanted_by.len(), local.latched.clone());
        if wanted {
            local.wanted_by.insert(peer);
        } else {
            local.wanted_by.remove(&peer);
        }
        if local.wanted_by.is_empty() {
            // Whoever subscribes next gets them anew from their publishers.
            local.latched.clear();
        }
        match (before, local.wanted_by.len()) {
            (0, 1) => self.gateway(Command::Subscribe { topic }),
            (1, 0) => self.gateway(Command::Unsubscribe { topic }),
            _ => {}
        }
        if !wanted {
            return;
        }
        for message in latched.values() {
            // Published long ago, but as new to this peer as if it were now: lifespan is for the stream.
            let message = Outgoing { published: now, ..message.clone() };
            let _ = send_to(now, endpoint, peer, channel, &message);
        }
    }

    fn remote_refused(&mut self, peer: PeerId, channel: ChannelId, reason: String) {
        let name = self.peer_name(peer).to_owned();
        let found = self.local.iter_mut().find(|(_, l)| l.channels.get(&peer) == Some(&channel));
        let Some((_, local)) = found else { return };
        local.refusals.insert(peer, reason.clone());
        self.notice(format!("'{name}' refuses {reason}"));
    }

    fn remote_message(&mut self, peer: PeerId, channel: ChannelId, message: Received) {
        let Some(remote) = self.remote.get(&(peer, channel)) else { return };
        let topic = remote.local_name.clone();
        // Publishers are told apart over all peers.
        let source = Source(peer.0 << 8 | (message.source & 0xff));
        let payload = message.payload;
        if message.encoded {
            self.orders.push_back(Order::Decompress { topic, source, payload });
        } else {
            self.gateway(Command::Publish { topic, source, payload });
        }
    }
}

fn send_to(
    now: Instant,
    endpoint: &mut Endpoint,
    peer: PeerId,
    channel: ChannelId,
    message: &Outgoing,
) -> Result<(), tautline_proto::SendError> {
    let message = Message {
        payload: message.payload.clone(),
        published: message.published,
        source: message.source.0,
        encoded: message.encoded,
    };
    endpoint.send(now, peer, channel, message)
}

/// Whether a message may be taken under the topic's rate limit. A tenth of the
/// period is forgiven, so that a publisher at just the allowed rate is not halved by jitter.
fn within_rate(local: &mut LocalTopic, now: Instant) -> bool {
    let Some(rate_hz) = local.treatment.rate_hz else { return true };
    let period = Duration::from_secs_f64(1.0 / rate_hz);
    let Some(last) = local.last_taken else {
        local.last_taken = Some(now);
        return true;
    };
    if now.since(last) < period.mul_f64(0.9) {
        return false;
    }
    // Counting from the planned time keeps the average at the limit.
    let planned = last + period;
    local.last_taken = Some(if now.since(planned) > period { now } else { planned });
    true
}

fn channel_config(topic: &Topic, treatment: &Treatment) -> ChannelConfig {
    ChannelConfig {
        topic: OfferedTopic {
            name: topic.name.clone(),
            type_name: topic.type_name.clone(),
            type_hash: topic.type_hash.clone(),
            priority: treatment.priority,
            keep_last: u32::from(treatment.keep_last),
            lifespan: treatment.lifespan,
            transient_local: topic.qos.transient_local,
            reliable: topic.qos.reliable,
        },
        definition: topic.definition.clone(),
        repair: treatment.repair,
    }
}
