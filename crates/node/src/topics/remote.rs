// SPDX-License-Identifier: Apache-2.0
//! What comes from peers: topics that they offer or want, and their messages.

use super::rights::OverRate;
use super::{Order, Topics, Translation};
use crate::codec::Incoming;
use crate::notices::{self, Cause};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use tautline_gateway::mapping::check_name;
use tautline_gateway::types::translate::{Translator, dialect_of};
use tautline_gateway::{Command, Liveliness, Qos, Source, Topic};
use tautline_proto::{
    ChannelId, Duration, Endpoint, Event, Instant, Notice, OfferedTopic, PeerId, Received, Role,
};

/// A channel that a peer had in its last session and has not offered again is given up after so long.
pub(super) const REOFFER_GRACE: Duration = Duration::from_secs(5);

/// For a peer that has been down for so long nothing is read any more; through shorter
/// outages what is published waits, as far as lifespan and queue allow.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A channel of one peer.
pub(crate) type Key = (PeerId, ChannelId);

/// A peer that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    Since(Instant),
    /// Nothing is read for it any more.
    GivenUp,
}

/// A topic that a peer offers.
#[derive(Debug)]
pub(super) struct RemoteTopic {
    /// Its name at the peer.
    pub(super) offered_name: String,
    /// As it is published here; as the peer has it until it is known what it is here.
    pub(super) topic: Topic,
    translation: Translation<Translator>,
    /// Some of its messages came compressed: all take the same way, to stay in order.
    encoded: bool,
    /// In this session of the peer.
    pub(super) over_rate: OverRate,
    /// The peer started a new session and has not offered it again: its number may be another topic's now.
    stale_since: Option<Instant>,
}

/// A topic that we publish locally, for one or more peers or for ourselves.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) topic: Topic,
    pub(super) from: BTreeSet<Key>,
    /// This node publishes on it, too.
    pub(super) own: bool,
    pub(super) wanted: bool,
}

impl Topics {
    pub(crate) fn on_remote(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Message { peer, channel, message } => {
                let key = (peer, channel);
                if !self.service_message(now, endpoint, key, &message.payload) {
                    self.remote_message(now, endpoint, key, message);
                }
            }
            Event::Offered { peer, channel, topic, definition } => {
                self.check_priority(now, endpoint, peer, &topic);
                let key = (peer, channel);
                match topic.role {
                    Role::Topic => {
                        // In a new session the number of a service may be a topic's.
                        self.service_channel_withdrawn(now, endpoint, key);
                        self.remote_offered(now, endpoint, key, topic, definition);
                    }
                    _ => self.service_channel_offered(now, endpoint, key, topic, definition),
                }
            }
            Event::Withdrawn { peer, channel } => {
                if !self.service_channel_withdrawn(now, endpoint, (peer, channel)) {
                    self.remote_withdrawn(now, endpoint, (peer, channel));
                }
            }
            Event::Wanted { peer, channel, wanted } => {
                if !self.calls_wanted(now, endpoint, (peer, channel), wanted) {
                    self.remote_wanted(now, endpoint, (peer, channel), wanted);
                }
            }
            Event::Refused { peer, channel, reason } => {
                self.remote_refused(now, (peer, channel), &reason)
            }
            Event::PeerUp { peer, new_session } => {
                tracing::info!(peer = self.peer_name(peer), new_session, "peer is up");
                let was_given_up = self.absent.remove(&peer) == Some(Absence::GivenUp);
                if new_session {
                    self.new_session(now, peer);
                } else if was_given_up {
                    self.resume(now, endpoint, peer);
                }
            }
            Event::PeerDown { peer } => {
                tracing::info!(peer = self.peer_name(peer), "peer is down");
                self.absent.insert(peer, Absence::Since(now));
            }
            Event::LinkUp { .. } | Event::LinkDown { .. } | Event::LinkRate { .. } => {}
            Event::LinkMoved { link, to } => {
                let peer = self.peer_name(endpoint.link(link).peer);
                tracing::info!(peer, %to, "peer has moved");
            }
            Event::Notice(notice) => {
                let cause = match notice {
                    Notice::TooLarge { .. } => Cause::Here,
                    _ => Cause::Caller,
                };
                let text = notices::text(&notice, endpoint.name());
                self.notices.add(now, cause, text);
            }
        }
    }

    /// Local name of a peer's topic and whether it is wanted here.
    pub(crate) fn incoming(&self, peer: PeerId, channel: ChannelId) -> Option<(&str, bool)> {
        let remote = self.remote.get(&(peer, channel))?;
        let name = remote.topic.name.as_str();
        Some((name, self.is_published((peer, channel)) && self.publications[name].wanted))
    }

    /// What of a peer's topic came too fast to be taken.
    pub(crate) fn over_rate(&self, peer: PeerId, channel: ChannelId) -> OverRate {
        self.remote.get(&(peer, channel)).map(|remote| remote.over_rate).unwrap_or_default()
    }

    /// Channels that a local publication is fed from now.
    pub(super) fn offering(&self, topic: &str) -> Vec<Key> {
        let from = self.publications.get(topic).map(|p| p.from.iter());
        let from = from.into_iter().flatten().copied();
        from.filter(|key| self.is_published(*key)).collect()
    }

    /// Whether messages of this channel are published here.
    fn is_published(&self, key: Key) -> bool {
        let remote = self.remote.get(&key).filter(|r| r.stale_since.is_none());
        let publication = remote.and_then(|r| self.publications.get(&r.topic.name));
        publication.is_some_and(|p| p.from.contains(&key))
    }

    fn new_session(&mut self, now: Instant, peer: PeerId) {
        for (_, remote) in self.remote.iter_mut().filter(|((p, _), _)| *p == peer) {
            remote.stale_since.get_or_insert(now);
            remote.over_rate = OverRate::default();
        }
        self.want_nothing(peer);
        self.new_session_of_services(now, peer);
    }

    /// Stops reading what only this peer wanted.
    fn want_nothing(&mut self, peer: PeerId) {
        let mut unwanted = Vec::new();
        for (name, local) in &mut self.local {
            if local.wanted_by.remove(&peer) && local.wanted_by.is_empty() {
                local.forget_latched();
                unwanted.push(name.clone());
            }
        }
        for topic in unwanted {
            self.gateway(Command::Unsubscribe { topic });
        }
    }

    /// A peer that was given up is back in the same session: it wants what it wanted.
    fn resume(&mut self, now: Instant, endpoint: &mut Endpoint, peer: PeerId) {
        let channels = self.local.values().filter_map(|l| l.channels.get(&peer).copied());
        for channel in channels.collect::<Vec<_>>() {
            if endpoint.channel_out(peer, channel).is_some_and(|(_, wanted, _)| wanted) {
                self.remote_wanted(now, endpoint, (peer, channel), true);
            }
        }
    }

    /// Stops reading for peers that have been away for long.
    fn give_up_absent(&mut self, now: Instant) {
        let mut gone = Vec::new();
        for (peer, absence) in &mut self.absent {
            if matches!(absence, Absence::Since(at) if now.since(*at) > PATIENCE) {
                *absence = Absence::GivenUp;
                gone.push(*peer);
            }
        }
        for peer in gone {
            self.want_nothing(peer);
        }
    }

    /// Gives up what peers had in their last session and do not offer any more.
    pub(crate) fn sweep(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let over = |since: Option<Instant>| since.is_some_and(|at| now.since(at) > REOFFER_GRACE);
        let remote = self.remote.iter();
        let gone: Vec<_> =
            remote.filter(|(_, r)| over(r.stale_since)).map(|(key, _)| *key).collect();
        for key in gone {
            self.remote_withdrawn(now, endpoint, key);
        }
        self.sweep_services(now, endpoint);
        // Whoever looks into it may have been too busy to take the question.
        let asked = self.remote.iter().filter(|(_, r)| matches!(r.translation, Translation::Asked));
        let again = asked.map(|(key, r)| Order::Translate { key: *key, topic: r.topic.clone() });
        self.orders.extend(again);
        self.sweep_watchdogs(now, endpoint);
        self.give_up_absent(now);
        self.notices.sweep(now);
    }

    fn remote_offered(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        offered: OfferedTopic,
        definition: Arc<str>,
    ) {
        let local_name = self.name_maps[key.0.0 as usize].local_name(&offered.name);
        let over_rate = self.over_rate(key.0, key.1);
        self.replace_earlier(now, endpoint, key, &offered.name, local_name.as_deref());
        let Some(name) = local_name else { return };
        if let Err(error) = check_name(&name) {
            return self.refuse(now, endpoint, key, &offered.name, &error);
        }
        let foreign = self.dialect.is_some_and(|own| dialect_of(&offered.type_name) != own);
        let remote = RemoteTopic {
            translation: if foreign { Translation::Asked } else { Translation::None },
            topic: Topic {
                name,
                type_name: offered.type_name,
                type_hash: offered.type_hash,
                definition,
                qos: Qos {
                    transient_local: offered.qos.transient_local,
                    depth: offered.qos.depth,
                    reliable: offered.qos.reliable,
                    deadline: offered.qos.deadline,
                    lifespan: offered.lifespan,
                    liveliness: Liveliness {
                        manual: offered.qos.manual_liveliness,
                        lease: offered.qos.lease,
                    },
                },
            },
            offered_name: offered.name,
            encoded: false,
            over_rate,
            stale_since: None,
        };
        let topic = remote.topic.clone();
        self.remote.insert(key, remote);
        match foreign {
            true => self.orders.push_back(Order::Translate { key, topic }),
            false => self.publish_for(now, endpoint, key),
        }
    }

    /// Tells both ends why something that a peer offers cannot be had here.
    pub(super) fn refuse(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        name: &str,
        reason: &dyn Display,
    ) {
        let (peer, here) = (self.peer_name(key.0), endpoint.name());
        let text = format!("{name} of '{peer}' at '{here}': {reason}");
        self.tell_both(now, endpoint, key, text);
    }

    /// What a peer's topic is here: `foreign` was asked about.
    pub(crate) fn translated(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        foreign: &Topic,
        found: Result<(Topic, Translator), String>,
    ) {
        let Some(remote) = self.remote.get_mut(&key).filter(|remote| remote.topic == *foreign)
        else {
            // Another topic has the number by now, and was asked about in its turn.
            return;
        };
        match found {
            Ok((topic, translator)) => {
                for field in translator.one_sided() {
                    tracing::info!(topic = topic.name, field, "empty or left out on the way");
                }
                remote.topic = topic;
                remote.translation = Translation::By(Arc::new(translator));
                self.publish_for(now, endpoint, key);
            }
            Err(reason) => {
                remote.translation = Translation::Impossible;
                self.refuse(now, endpoint, key, &foreign.name, &reason);
            }
        }
    }

    /// A new session may give this number to another topic, or this topic another number.
    fn replace_earlier(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        offered_name: &str,
        local_name: Option<&str>,
    ) {
        let earlier = self.remote.iter().filter(|(other, remote)| {
            let same_name = Some(remote.topic.name.as_str()) == local_name;
            if **other == key {
                !same_name
            } else {
                other.0 == key.0 && remote.offered_name == offered_name
            }
        });
        for old in earlier.map(|(key, _)| *key).collect::<Vec<_>>() {
            let name = self.remote.get(&old).map(|r| r.topic.name.clone());
            if name.as_deref() != local_name {
                self.remote_withdrawn(now, endpoint, old);
                continue;
            }
            // The publication goes on, fed from the new number.
            self.remote.remove(&old);
            if let Some(publication) = name.and_then(|n| self.publications.get_mut(&n)) {
                publication.from.remove(&old);
            }
        }
    }

    /// Publishes a peer's topic here, or refuses it where another of its name has another type.
    fn publish_for(&mut self, now: Instant, endpoint: &mut Endpoint, key: Key) {
        let Some(mut topic) = self.remote.get(&key).map(|r| r.topic.clone()) else {
            return;
        };
        if !self.may_publish(key) {
            return self.refuse_command(now, endpoint, key);
        }
        let known = self.publications.get(&topic.name);
        let shared = |p: &&Publication| p.own || p.from.iter().any(|other| *other != key);
        if let Some(known) = known.filter(shared) {
            if !is_same_type(&known.topic, &topic) {
                return self.refuse_type(now, endpoint, key);
            }
            // One latched publisher is enough for late joiners to be served.
            topic.qos = topic.qos.united(known.topic.qos);
        }
        let own = known.is_some_and(|p| p.own);
        let wanted = known.is_some_and(|p| p.wanted);
        let fresh = known.is_none_or(|p| p.topic != topic);
        let known = self.publications.remove(&topic.name);
        let mut from = known.map(|p| p.from).unwrap_or_default();
        from.insert(key);
        let publication = Publication { topic: topic.clone(), from, own, wanted };
        self.publications.insert(topic.name.clone(), publication);
        if fresh {
            self.watch(&topic);
            self.gateway(Command::Advertise { topic });
        }
        endpoint.want(now, key.0, key.1, wanted);
    }

    fn refuse_type(&mut self, now: Instant, endpoint: &mut Endpoint, key: Key) {
        let Some(found) = self.remote.get(&key) else { return };
        let Some(first) = self.publications.get(&found.topic.name) else { return };
        let other = first.from.iter().find(|other| **other != key);
        let text = format!(
            "{} at '{}': '{}' offers {} ({}), but '{}' has {} ({})",
            found.topic.name,
            endpoint.name(),
            self.peer_name(key.0),
            found.topic.type_name,
            found.topic.type_hash,
            other.map_or(endpoint.name(), |other| self.peer_name(other.0)),
            first.topic.type_name,
            first.topic.type_hash,
        );
        if let Some(publication) = self.publications.get_mut(&found.topic.name) {
            publication.from.remove(&key);
        }
        endpoint.want(now, key.0, key.1, false);
        endpoint.refuse(now, key.0, key.1, text.clone());
        self.notice(now, text);
    }

    pub(super) fn remote_withdrawn(&mut self, now: Instant, endpoint: &mut Endpoint, key: Key) {
        let Some(gone) = self.remote.remove(&key) else {
            return;
        };
        let name = gone.topic.name;
        if let Some(publication) = self.publications.get_mut(&name) {
            publication.from.remove(&key);
            if !self.watchdogs.holds(&name) {
                self.release(now, endpoint, &name);
            }
        }
    }

    /// Stops publishing a topic that comes from nobody any more.
    pub(super) fn release(&mut self, now: Instant, endpoint: &mut Endpoint, name: &str) {
        let over = |it: &Publication| it.from.is_empty() && !it.own;
        if !self.publications.get(name).is_some_and(over) {
            return;
        }
        self.publications.remove(name);
        self.gateway(Command::Unadvertise { topic: name.to_owned() });
        // Those refused because of its type may have the name now.
        let refused = self.remote.iter();
        let refused: Vec<_> = refused
            .filter(|(_, r)| r.topic.name == name && r.stale_since.is_none())
            .filter(|(_, r)| r.translation.is_known())
            .map(|(key, _)| *key)
            .collect();
        for key in refused {
            self.publish_for(now, endpoint, key);
        }
    }

    fn remote_wanted(&mut self, now: Instant, endpoint: &mut Endpoint, key: Key, wanted: bool) {
        let (peer, channel) = key;
        let Some((name, local)) = self.local_of(key) else {
            return;
        };
        let topic = name.to_owned();
        let changed =
            if wanted { local.wanted_by.insert(peer) } else { local.wanted_by.remove(&peer) };
        if !changed {
            return;
        }
        match (wanted, local.wanted_by.len()) {
            (true, 1) => self.gateway(Command::Subscribe { topic }),
            (true, _) => {
                let latched: Vec<_> = local.latched.values().flatten().cloned().collect();
                for mut message in latched {
                    // Published long ago, but as new to this peer as if it were now: lifespan is for the stream.
                    message.published = now;
                    self.send_to(now, endpoint, peer, channel, &message);
                }
            }
            (false, 0) => {
                local.forget_latched();
                self.gateway(Command::Unsubscribe { topic });
            }
            (false, _) => {}
        }
    }

    /// The local topic that is offered to a peer under this number.
    fn local_of(&mut self, key: Key) -> Option<(&str, &mut super::LocalTopic)> {
        let mut local = self.local.iter_mut();
        let found = local.find(|(_, l)| l.channels.get(&key.0) == Some(&key.1));
        found.map(|(name, local)| (name.as_str(), local))
    }

    fn remote_refused(&mut self, now: Instant, key: Key, reason: &str) {
        // A refusal may cross our withdrawal.
        if self.local_of(key).is_some() {
            let text = format!("'{}' refuses {reason}", self.peer_name(key.0));
            self.notice(now, text);
        }
    }

    fn remote_message(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        message: Received,
    ) {
        if !self.is_published(key) || !self.within_rate(now, endpoint, key, message.payload.len()) {
            return;
        }
        let Some(remote) = self.remote.get_mut(&key) else {
            return;
        };
        remote.encoded |= message.encoded;
        let translator = match &remote.translation {
            Translation::By(translator) => Some(translator.clone()),
            _ => None,
        };
        let in_turn = remote.encoded || translator.is_some();
        let topic = remote.topic.name.clone();
        // Publishers are told apart over all peers.
        let source = Source(key.0.0 << 8 | (message.source & 0xff));
        let (payload, encoded) = (message.payload, message.encoded);
        if in_turn {
            let message = Incoming { topic, source, payload, encoded, translator };
            self.orders.push_back(Order::Decode(message));
        } else {
            self.handed_over(now, &topic);
            self.gateway(Command::Publish { topic, source, payload });
        }
    }
}

/// A hash that is not known differs from none.
pub(super) fn is_same_type(one: &Topic, other: &Topic) -> bool {
    let unknown = one.type_hash.is_empty() || other.type_hash.is_empty();
    one.type_name == other.type_name && (unknown || one.type_hash == other.type_hash)
}
