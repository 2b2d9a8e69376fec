// SPDX-License-Identifier: Apache-2.0
//! Events of peers: topics that they advertise or subscribe to, and their messages.

mod absent;
mod catalog;
mod examined;
mod held;
mod kept;

use super::rights::{OverRate, Right, TypeOf};
use super::waiting::Act;
use super::{Topics, Translation};
use crate::codec::{Incoming, Job, decompressed_size};
use crate::limits::{HELD_BYTES, HISTORY_DEPTH, LATCHED_BYTES, PUBLISHED_NAMES};
use crate::notices;
use bytes::Bytes;
pub(super) use catalog::Catalog;
pub(super) use held::Held;
use kept::Kept;
use std::collections::BTreeSet;
use std::iter;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tautline_gateway::types::translate::{Translator, dialect_of};
use tautline_gateway::{Command, Liveliness, Qos, Source, Topic};
use tautline_proto::{ChannelId, Duration, Event, Instant, OfferedTopic, PeerId, Received, Role};

/// Time after which a channel of a peer's last session is given up if it is not advertised again.
pub(super) const REOFFER_GRACE: Duration = Duration::from_secs(5);

/// Maximum topics of past sessions given up per sweep: all of a peer's in four seconds.
const WITHDRAWN_PER_SWEEP: usize = 1024;

/// Outage of a peer after which nothing is read for it. In a shorter outage, published messages are
/// queued within lifespan and queue limits.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Bits of a publisher's number at a peer. They limit the publishers that a peer can name.
const SOURCE_BITS: u32 = 0xff;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChannelKey {
    pub(crate) peer: PeerId,
    pub(crate) channel: ChannelId,
}

impl ChannelKey {
    /// Returns the range of all channels of a peer.
    pub(super) fn all_of(peer: PeerId) -> RangeInclusive<Self> {
        let key = |channel| Self { peer, channel: ChannelId(channel) };
        key(0)..=key(u64::MAX)
    }
}

/// The state of a peer that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    Since(Instant),
    /// Nothing is read for it any more.
    GivenUp,
}

/// A topic that a peer advertises.
#[derive(Debug)]
pub(super) struct RemoteTopic {
    pub(super) offered_name: String,
    offered_type: String,
    /// The topic as published here; as the peer has it until its local form is known.
    pub(super) topic: Topic,
    translation: Translation<Translator>,
    /// Whether its local form is still unknown. Messages continue as before, if there were any.
    awaits_local_form: bool,
    /// Whether a message came compressed: then all pass through the codec, to stay in order.
    encoded: bool,
    /// Messages dropped above the rate, in this session of the peer.
    pub(super) over_rate: OverRate,
    /// Time since which the peer has a new session without advertising the topic again. Its number
    /// may now belong to another topic.
    stale_since: Option<Instant>,
    /// Messages that this robot's ROS keeps for late joiners.
    kept: Kept,
    /// Bytes that this robot's ROS holds.
    held: Held,
    /// Messages dropped because this robot's ROS held too many bytes.
    not_held: u64,
}

/// A topic that is published locally, for peers or for this node.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) topic: Topic,
    pub(super) from: BTreeSet<ChannelKey>,
    /// Whether this node itself publishes on it.
    pub(super) own: bool,
    pub(super) wanted: bool,
}

/// The state of a peer's topic, for reports.
pub(crate) struct IncomingState<'a> {
    pub(crate) name: &'a str,
    /// Whether it has local subscribers.
    pub(crate) wanted: bool,
    /// Messages dropped above the rate.
    pub(crate) over_rate: OverRate,
    /// Messages dropped because local subscribers are slow.
    pub(crate) not_held: u64,
}

impl Topics {
    pub(crate) fn on_remote(&mut self, now: Instant, event: Event) {
        match event {
            Event::Message { peer, channel, message } => {
                let key = ChannelKey { peer, channel };
                if !self.service_message(now, key, &message.payload) {
                    self.remote_message(now, key, message);
                }
            }
            Event::Offered { peer, channel, topic, definition } => {
                self.check_priority(now, peer, &topic);
                let key = ChannelKey { peer, channel };
                self.waiting.remove(&key);
                match topic.role {
                    Role::Topic => {
                        // A new session may give a service's number to a topic.
                        self.service_channel_withdrawn(now, key);
                        self.remote_offered(now, key, topic, definition);
                    }
                    _ => self.service_channel_offered(now, key, topic, definition),
                }
            }
            Event::Withdrawn { peer, channel } => {
                let key = ChannelKey { peer, channel };
                self.waiting.remove(&key);
                if !self.service_channel_withdrawn(now, key) {
                    self.remote_withdrawn(now, key);
                }
            }
            Event::Wanted { peer, channel, wanted } => {
                let key = ChannelKey { peer, channel };
                if !self.calls_wanted(now, key, wanted) {
                    self.remote_wanted(now, key, wanted);
                }
            }
            Event::Refused { peer, channel, reason } => {
                let key = ChannelKey { peer, channel };
                if !self.calls_refused(now, key, &reason) {
                    self.remote_refused(now, key, &reason);
                }
            }
            Event::PeerUp { peer, new_session } => {
                self.record_arrival(now, peer, new_session);
                let was_given_up = self.absent.remove(&peer) == Some(Absence::GivenUp);
                if new_session {
                    self.new_session(now, peer);
                } else if was_given_up {
                    self.resume(now, peer);
                }
            }
            Event::PeerDown { peer, said_goodbye } => {
                self.record_departure(now, peer, said_goodbye);
                self.absent.insert(peer, Absence::Since(now));
            }
            Event::PeerLeft { peer } => self.new_session(now, peer),
            Event::LinkUp { .. } | Event::LinkDown { .. } | Event::LinkRate { .. } => {}
            Event::LinkMoved { link, to } => {
                self.record_move(now, self.endpoint.link(link).peer, to);
            }
            Event::Notice(notice) => {
                self.record_notice(&notice);
                let text = notices::text(&notice, self.endpoint.name());
                self.notices.add(now, notices::cause(&notice), &text);
            }
        }
    }

    /// Returns the state of a peer's topic.
    pub(crate) fn incoming(&self, key: ChannelKey) -> Option<IncomingState<'_>> {
        let remote = self.remote.get(key)?;
        let name = remote.topic.name.as_str();
        let wanted = self.is_published(key) && self.publications[name].wanted;
        Some(IncomingState { name, wanted, over_rate: remote.over_rate, not_held: remote.not_held })
    }

    /// Returns the channels that currently feed a local publication.
    pub(super) fn offering(&self, topic: &str) -> Vec<ChannelKey> {
        let from = self.publications.get(topic).map(|p| p.from.iter());
        let from = from.into_iter().flatten().copied();
        from.filter(|key| self.is_published(*key)).collect()
    }

    fn is_published(&self, key: ChannelKey) -> bool {
        let usable = |r: &&RemoteTopic| r.stale_since.is_none() && r.translation.is_known();
        let remote = self.remote.get(key).filter(usable);
        let publication = remote.and_then(|r| self.publications.get(&r.topic.name));
        publication.is_some_and(|p| p.from.contains(&key))
    }

    fn new_session(&mut self, now: Instant, peer: PeerId) {
        for remote in self.remote.of_peer_mut(peer) {
            remote.stale_since.get_or_insert(now);
            remote.over_rate = OverRate::default();
        }
        self.waiting.retain(|key, _| key.peer != peer);
        self.clear_interests(now, peer);
        self.returning.remove(&peer);
        self.new_session_of_services(now, peer);
    }

    /// Removes the peer's interest in all local topics.
    pub(super) fn clear_interests(&mut self, now: Instant, peer: PeerId) {
        for local in self.local.values_mut() {
            local.not_wanted_by(now, peer);
        }
    }

    /// Gives up topics that peers had in their last session and do not advertise any more, and does
    /// the other periodic work.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let over = |since: Option<Instant>| since.is_some_and(|at| now.since(at) > REOFFER_GRACE);
        let remote = self.remote.iter();
        let gone = remote.filter(|(_, r)| over(r.stale_since)).map(|(key, _)| key);
        for key in gone.take(WITHDRAWN_PER_SWEEP).collect::<Vec<_>>() {
            self.remote_withdrawn(now, key);
        }
        self.sweep_services(now);
        // The thread that examines them may have been too busy to take the requests.
        for peer in std::mem::take(&mut self.examined).into_keys() {
            self.examine_next(peer);
        }
        self.sweep_watchdogs(now);
        self.drop_absent_peers(now);
        self.publish_all_returning(now);
        self.stop_reading(now);
        self.sweep_rights(now);
        self.notices.sweep(now);
        self.recorder.sweep(now);
    }

    fn remote_offered(
        &mut self,
        now: Instant,
        key: ChannelKey,
        offered: OfferedTopic,
        definition: Arc<str>,
    ) {
        let foreign = self.dialect.is_some_and(|own| dialect_of(&offered.type_name) != own);
        let over_rate = self.remote.get(key).map(|it| it.over_rate).unwrap_or_default();
        let accepted = self.accepted_name(key.peer, Act::Publish, &offered);
        let local_name = accepted.as_deref().ok();
        let (kept, held, not_held) = self.counters_of_earlier(key, &offered.name, local_name);
        self.replace_earlier(now, key, &offered.name, local_name);
        let name = match accepted {
            Ok(name) => name,
            Err(denied) => {
                return self.deny(now, key, Act::Publish, &offered, &denied);
            }
        };
        let topic_type = offered.type_name.clone();
        let definition = self.within_budget(now, key, &offered.name, definition);
        // A new advertisement of the same type with another QoS does not interrupt messages.
        let continues = self.remote.get(key).is_some_and(|known| {
            !foreign
                && known.translation.is_known()
                && known.topic.type_name == offered.type_name
                && known.topic.type_hash == offered.type_hash
        });
        let remote = RemoteTopic {
            translation: if continues { Translation::None } else { Translation::Requested },
            awaits_local_form: true,
            topic: Topic {
                name,
                type_name: offered.type_name,
                type_hash: offered.type_hash,
                definition,
                qos: Qos {
                    transient_local: offered.qos.transient_local,
                    depth: offered.qos.depth.min(HISTORY_DEPTH),
                    reliable: offered.qos.reliable,
                    deadline: offered.qos.deadline,
                    lifespan: offered.lifespan,
                    liveliness: Liveliness {
                        manual: offered.qos.manual_liveliness,
                        lease: offered.qos.lease,
                    },
                },
            },
            offered_type: topic_type,
            offered_name: offered.name,
            encoded: false,
            over_rate,
            stale_since: None,
            kept,
            held,
            not_held,
        };
        self.remote.insert(key, remote);
        self.examine_next(key.peer);
    }

    /// Reports at both ends why a peer's topic or service cannot be used here.
    pub(super) fn refuse(&mut self, now: Instant, key: ChannelKey, name: &str, reason: &str) {
        let (peer, here) = (self.peer_name(key.peer), self.endpoint.name());
        let text = format!("{name} of '{peer}' at '{here}': {reason}");
        self.report_refusal(now, key, text);
    }

    /// Returns the counters of a topic that is advertised again, under this number or another. Its
    /// publication continues, and ROS here still keeps and holds its messages.
    fn counters_of_earlier(
        &mut self,
        key: ChannelKey,
        offered_name: &str,
        local_name: Option<&str>,
    ) -> (Kept, Held, u64) {
        let earlier = iter::once(key).chain(self.remote.offered_as(key.peer, offered_name));
        let is_same = |it: &RemoteTopic| Some(&*it.topic.name) == local_name;
        let earlier = earlier.filter(|other| self.remote.get(*other).is_some_and(is_same)).min();
        match earlier.and_then(|other| self.remote.get_mut(other)) {
            Some(it) => (std::mem::take(&mut it.kept), it.held.clone(), it.not_held),
            None => (Kept::default(), self.held.entry(key.peer).or_default().beside(), 0),
        }
    }

    /// Removes the earlier topics in place of an advertised one. A new session may give this number
    /// to another topic, or this topic another number.
    fn replace_earlier(
        &mut self,
        now: Instant,
        key: ChannelKey,
        offered_name: &str,
        local_name: Option<&str>,
    ) {
        let named = self.remote.offered_as(key.peer, offered_name).filter(|other| *other != key);
        for old in iter::once(key).chain(named).collect::<Vec<_>>() {
            let name = self.remote.get(old).map(|r| r.topic.name.clone());
            if name.as_deref() != local_name {
                self.remote_withdrawn(now, old);
                continue;
            }
            if old == key {
                continue;
            }
            // The publication continues, fed from the new number.
            self.remote.remove(old);
            if let Some(publication) = name.and_then(|n| self.publications.get_mut(&n)) {
                publication.from.remove(&old);
            }
        }
    }

    /// Publishes a peer's topic here, or refuses it if its name is published with another type.
    fn publish_for(&mut self, now: Instant, key: ChannelKey) {
        let Some(mut topic) = self.remote.get(key).map(|r| r.topic.clone()) else { return };
        if !self.may_publish(key) {
            return self.withdraw_without_right(now, key);
        }
        if !self.may_have_name(key.peer, &topic.name) {
            let reason = format!("{PUBLISHED_NAMES} names of this peer were published already");
            return self.refuse(now, key, &topic.name, &reason);
        }
        let known = self.publications.get(&topic.name);
        // A guarded topic keeps its type, so that its readers get the watchdog's safe message.
        let guarded = self.watchdogs.holds(&topic.name);
        let shared =
            |p: &&Publication| guarded || p.own || p.from.iter().any(|other| *other != key);
        if let Some(known) = known.filter(shared) {
            if !is_same_type(&known.topic, &topic) {
                return self.refuse_type(now, key);
            }
            // One latched publisher suffices to serve late joiners.
            topic.qos = topic.qos.united(known.topic.qos);
            // A known hash or definition stays, whatever another peer advertises.
            if !known.topic.type_hash.is_empty() {
                topic.type_hash = known.topic.type_hash.clone();
                if !known.topic.definition.is_empty() {
                    topic.definition = known.topic.definition.clone();
                }
            }
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
        self.endpoint.want(now, key.peer, key.channel, wanted);
    }

    /// Whether a topic may be published here. Its local type is certain only after translation.
    fn may_publish(&self, key: ChannelKey) -> bool {
        self.remote.get(key).is_some_and(|remote| {
            let Topic { type_name: name, type_hash: hash, .. } = &remote.topic;
            let found = TypeOf { offered: &remote.offered_type, name, hash, is_foreign: false };
            self.rights(key.peer).publish(&remote.offered_name, found) == Right::Given
        })
    }

    /// Gives up a topic that this robot publishes only with a line in its file.
    fn withdraw_without_right(&mut self, now: Instant, key: ChannelKey) {
        let Some(found) = self.remote.get(key) else { return };
        let name = found.offered_name.clone();
        let waiting = self.waiting_to(Act::Publish, key.peer, &name, &found.offered_type);
        self.remote_withdrawn(now, key);
        self.wait_for_line(now, key, waiting);
    }

    /// Whether a topic of this name is published here, or may be. Names are limited, because a ROS
    /// master keeps each name and its type as long as it runs.
    fn may_have_name(&mut self, peer: PeerId, name: &str) -> bool {
        let names = self.names.entry(peer).or_default();
        if names.len() < PUBLISHED_NAMES {
            names.insert(name.to_owned());
        }
        names.contains(name)
    }

    fn refuse_type(&mut self, now: Instant, key: ChannelKey) {
        let Some(found) = self.remote.get(key) else { return };
        let Some(first) = self.publications.get(&found.topic.name) else { return };
        let other = first.from.iter().find(|other| **other != key);
        let text = format!(
            "{} at '{}': '{}' advertises {} ({}), but '{}' has {} ({})",
            found.topic.name,
            self.endpoint.name(),
            self.peer_name(key.peer),
            found.topic.type_name,
            found.topic.type_hash,
            other.map_or(self.endpoint.name(), |other| self.peer_name(other.peer)),
            first.topic.type_name,
            first.topic.type_hash,
        );
        if let Some(publication) = self.publications.get_mut(&found.topic.name) {
            publication.from.remove(&key);
        }
        self.endpoint.want(now, key.peer, key.channel, false);
        self.report_refusal(now, key, text);
    }

    pub(super) fn remote_withdrawn(&mut self, now: Instant, key: ChannelKey) {
        let Some(gone) = self.remote.remove(key) else { return };
        let name = gone.topic.name;
        if let Some(publication) = self.publications.get_mut(&name) {
            publication.from.remove(&key);
            if !self.watchdogs.holds(&name) {
                self.unpublish_if_unused(now, &name);
            }
        }
    }

    /// Stops publishing a topic that has no publisher any more.
    pub(super) fn unpublish_if_unused(&mut self, now: Instant, name: &str) {
        let over = |it: &Publication| it.from.is_empty() && !it.own;
        if !self.publications.get(name).is_some_and(over) {
            return;
        }
        self.publications.remove(name);
        self.gateway(Command::Unadvertise { topic: name.to_owned() });
        // Topics refused because of its type may take the name now.
        let refused = self.remote.named(name).filter(|(_, r)| r.stale_since.is_none());
        let refused: Vec<_> = refused
            .filter(|(key, r)| {
                r.translation.is_known() && !r.awaits_local_form && !self.is_given_up(key.peer)
            })
            .map(|(key, _)| key)
            .collect();
        for key in refused {
            self.publish_for(now, key);
        }
    }

    fn remote_wanted(&mut self, now: Instant, key: ChannelKey, wanted: bool) {
        let ChannelKey { peer, .. } = key;
        let Some(local) = self.local_of(key) else { return };
        if !wanted {
            return local.not_wanted_by(now, peer);
        }
        let was_read = local.is_read();
        if !local.wanted_by(peer) {
            return;
        }
        if !was_read {
            let topic = local.topic.name.clone();
            return self.gateway(Command::Subscribe { topic });
        }
        let latched: Vec<_> = local.latched.values().flatten().cloned().collect();
        for mut message in latched {
            // To this peer, the message is as new as one published now: lifespan is for the stream.
            message.published = now;
            self.send_to(now, key, &message);
        }
    }

    /// Returns the local topic that is advertised to a peer under this number.
    fn local_of(&mut self, key: ChannelKey) -> Option<&mut super::LocalTopic> {
        let (offered, ..) = self.endpoint.channel_out(key.peer, key.channel)?;
        let local = self.local.get_mut(&offered.topic.name)?;
        (local.channels.get(&key.peer) == Some(&key.channel)).then_some(local)
    }

    fn remote_refused(&mut self, now: Instant, key: ChannelKey, reason: &str) {
        // A refusal may cross our withdrawal.
        if self.local_of(key).is_some() {
            let text = format!("'{}' refuses {reason}", self.peer_name(key.peer));
            self.peer_notice(now, key.peer, &text);
        }
    }

    fn remote_message(&mut self, now: Instant, key: ChannelKey, message: Received) {
        if !self.is_published(key) {
            return;
        }
        let bytes = match message.encoded {
            true => decompressed_size(&message.payload, self.max_message),
            false => message.payload.len(),
        };
        let source = Source::at_peer(key.peer.0, message.source & SOURCE_BITS);
        if !self.within_rate(now, key, bytes) || !self.may_keep(now, key, source, bytes) {
            return;
        }
        let Some(remote) = self.remote.get_mut(key) else { return };
        remote.encoded |= message.encoded;
        let translator = remote.translation.translator();
        if remote.encoded || translator.is_some() {
            let topic = remote.topic.name.clone();
            let lifespan = remote.topic.qos.lifespan;
            let expires = lifespan.map(|it| now + it.saturating_sub(message.age));
            let (payload, encoded) = (message.payload, message.encoded);
            let message = Incoming { key, topic, source, payload, encoded, translator, expires };
            self.codec(Job::Decode(message));
        } else {
            self.publish_message(now, key, source, message.payload);
        }
    }

    /// Publishes a decompressed or translated message, unless it has expired or its topic is no
    /// longer published.
    pub(crate) fn decoded(&mut self, now: Instant, message: Incoming) {
        let Incoming { key, topic, source, payload, expires, .. } = message;
        let is_same = self.remote.get(key).is_some_and(|it| it.topic.name == topic);
        if is_same && self.is_published(key) && expires.is_none_or(|at| now <= at) {
            self.publish_message(now, key, source, payload);
        }
    }

    fn publish_message(&mut self, now: Instant, key: ChannelKey, source: Source, payload: Bytes) {
        let Some(remote) = self.remote.get_mut(key) else { return };
        let topic = remote.topic.name.clone();
        let Some(payload) = remote.held.hold(payload) else {
            remote.not_held += 1;
            let peer = self.peer_name(key.peer);
            let text = format!(
                "{topic}, and perhaps others: messages of '{peer}' are dropped, because more than \
                 {HELD_BYTES} bytes of its messages are queued for slow local subscribers"
            );
            return self.peer_notice(now, key.peer, &text);
        };
        self.rearm(now, &topic);
        self.gateway(Command::Publish { topic, source, payload });
    }

    /// Whether a message of a latched topic fits into the bytes kept for its peer; if not, a notice
    /// is added.
    fn may_keep(&mut self, now: Instant, key: ChannelKey, source: Source, bytes: usize) -> bool {
        let Some(remote) = self.remote.get(key) else { return false };
        // Several topics may share the publication; its QoS applies.
        let Some(publication) = self.publications.get(&remote.topic.name) else { return false };
        let qos = publication.topic.qos;
        if !qos.transient_local {
            return true;
        }
        let own = remote.kept.bytes();
        let of_peer = self.remote.of_peer(key.peer);
        let others = of_peer.map(|(_, it)| it.kept.bytes()).sum::<usize>() - own;
        let fits = others + remote.kept.bytes_with(source, bytes, qos.depth) <= LATCHED_BYTES;
        if fits {
            if let Some(remote) = self.remote.get_mut(key) {
                remote.kept.add(source, bytes, qos.depth);
            }
            return true;
        }
        let (name, peer) = (&remote.topic.name, self.peer_name(key.peer));
        let text = format!(
            "{name}: a message of '{peer}' is dropped; allowed: {LATCHED_BYTES} bytes of all latched \
             topics of a peer, kept for late joiners"
        );
        self.peer_notice(now, key.peer, &text);
        false
    }
}

/// Whether two topics have the same type. An unknown hash matches any hash.
pub(super) fn is_same_type(one: &Topic, other: &Topic) -> bool {
    let unknown = one.type_hash.is_empty() || other.type_hash.is_empty();
    one.type_name == other.type_name && (unknown || one.type_hash == other.type_hash)
}
