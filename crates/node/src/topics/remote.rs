// SPDX-License-Identifier: Apache-2.0
//! Events of peers: topics that they advertise or subscribe to, and their messages.

mod absent;
mod arrival;
mod catalog;
mod checked;
mod examined;
mod held;
mod kept;
mod liveliness;
mod messages;
mod publications;

use super::peers::REOFFER_GRACE;
use super::rights::OverRate;
use super::translation::Translation;
use super::waiting::Act;
use super::{ChannelKey, Context, Topics, definitions, record};
use crate::limits::HISTORY_DEPTH;
use crate::notices;
pub(crate) use arrival::ArrivalChange;
pub(super) use catalog::Catalog;
use checked::Checked;
pub(super) use held::Held;
use kept::KeptMessages;
pub(super) use publications::{Publication, is_same_type};
use std::iter;
use std::sync::Arc;
use tautline_gateway::types::translate::Translator;
use tautline_gateway::{Classes, Qos, Topic};
use tautline_proto::{
    ChannelId, Event, Instant, LinkId, LinkView, Notice, OfferedTopic, PeerId, Role,
};

/// Set in the numbers of topics of a past session whose own number has another topic now. No channel
/// of the protocol has such a number.
const ASIDE: u64 = 1 << 63;

/// Maximum topics of past sessions given up per sweep: all of a peer's in four seconds.
const WITHDRAWN_PER_SWEEP: usize = 1024;

/// A topic that a peer advertises.
#[derive(Debug)]
pub(super) struct RemoteTopic {
    pub(super) offered_name: String,
    offered_type: String,
    /// The hash of that type, as the peer has it.
    offered_hash: String,
    /// The topic as published here; as the peer has it until its local form is known.
    pub(super) topic: Topic,
    translation: Translation<Translator>,
    /// Whether its local form is still unknown. Messages continue as before, if there were any.
    awaits_local_form: bool,
    checked: Checked,
    /// Whether a message came compressed: then all pass through the codec, to stay in order.
    encoded: bool,
    /// Messages dropped above the rate, in this session of the peer.
    pub(super) over_rate: OverRate,
    /// Time since which the peer has a new session without advertising the topic again. Its number
    /// may now belong to another topic.
    stale_since: Option<Instant>,
    /// Messages that this robot's ROS keeps for late joiners.
    kept: KeptMessages,
    /// Bytes that this robot's ROS holds.
    held: Held,
    /// Messages dropped because this robot's ROS held too many bytes.
    not_held: u64,
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
    /// Messages dropped because they are not of their type.
    pub(crate) malformed: u64,
}

impl Topics {
    pub(crate) fn on_remote(&mut self, cx: &mut Context<'_>, event: Event) {
        let now = cx.now;
        match event {
            Event::Message { peer, channel, message } => {
                let key = ChannelKey { peer, channel };
                if !self.services.message(cx, key, &message.payload)
                    && !self.shown.message(cx, key, &message.payload)
                {
                    self.remote_message(cx, key, message);
                }
            }
            Event::Offered { peer, channel, topic, definition } => {
                cx.check_priority(peer, &topic);
                let key = ChannelKey { peer, channel };
                cx.waiting.remove(&key);
                match topic.role {
                    Role::Topic => {
                        // A new session may give a service's number to a topic.
                        self.services.withdrawn(cx, key);
                        if !self.shown.offered(cx, key, &topic) {
                            self.remote_offered(cx, key, topic, definition);
                        }
                    }
                    _ => {
                        let bytes = self.definition_bytes(key);
                        self.services.offered(cx, key, topic, definition, bytes);
                    }
                }
            }
            Event::Withdrawn { peer, channel } => {
                let key = ChannelKey { peer, channel };
                cx.waiting.remove(&key);
                if !self.services.withdrawn(cx, key) && !self.shown.withdrawn(cx, key) {
                    self.remote_withdrawn(cx, key);
                }
            }
            Event::Wanted { peer, channel, wanted } => {
                let key = ChannelKey { peer, channel };
                if wanted {
                    cx.drop_refusal(key);
                }
                if !self.services.on_wanted(cx, key, wanted)
                    && !self.shown.on_wanted(cx, key, wanted)
                {
                    self.exports.on_wanted(cx, key, wanted);
                }
            }
            Event::Refused { peer, channel, reason } => {
                let key = ChannelKey { peer, channel };
                if !self.services.on_refused(cx, key, &reason)
                    && !self.shown.on_refused(cx, key, &reason)
                {
                    self.exports.on_refused(cx, key, &reason);
                }
            }
            Event::PeerUp { peer, new_session } => {
                record::arrival(cx, peer, new_session);
                let was_given_up = cx.peers.came(peer);
                self.update_liveliness_of(cx, peer);
                if new_session {
                    self.new_session(cx, peer);
                } else if was_given_up {
                    self.exports.resume(cx, peer);
                    self.resume(cx, peer);
                }
            }
            Event::PeerDown { peer, said_goodbye } => {
                record::departure(cx, peer, said_goodbye);
                cx.peers.went(now, peer);
                self.update_liveliness_of(cx, peer);
            }
            Event::PeerLeft { peer } => self.new_session(cx, peer),
            Event::LinkUp { link } => self.link_changed(cx, link, true),
            Event::LinkDown { link } => self.link_changed(cx, link, false),
            Event::LinkRate { .. } | Event::Candidates { .. } => {}
            Event::LinkMoved { link, to } => {
                record::relocation(cx, cx.endpoint.link(link).peer, to);
            }
            Event::Notice(notice) => self.remote_notice(cx, &notice),
        }
    }

    /// Removes notices about handshakes of a peer whose link is up. Logs the begin and the end of a
    /// direct path beside a relay.
    fn link_changed(&mut self, cx: &mut Context<'_>, link: LinkId, is_up: bool) {
        let now = cx.now;
        let LinkView { peer, remote, .. } = cx.endpoint.link(link);
        if is_up {
            let name = cx.endpoint.peer(peer).name;
            notices::drop_handshakes(&mut cx.notices, name, remote);
        }
        let Some(remote) = remote.filter(|_| cx.endpoint.is_direct_path(link)) else { return };
        let cause = cx.peers.cause(peer);
        let is_logged = cx.notices.may_log(now, &cause);
        let peer = cx.peers.name(peer).to_owned();
        if is_up {
            notices::drop_direct_path(&mut cx.notices, &peer);
        }
        match is_up {
            _ if !is_logged => {}
            true => tracing::info!(peer, %remote, "direct path found"),
            false => {
                tracing::info!(peer, %remote, "direct path ended; the relay carries its packets")
            }
        }
    }

    fn remote_notice(&mut self, cx: &mut Context<'_>, notice: &Notice) {
        let now = cx.now;
        record::failed_handshake(cx, notice);
        let text = notices::text(notice, cx.endpoint.name());
        if let Notice::TooLarge { peer, topic, .. } = notice {
            let mut peers = cx.endpoint.peers();
            if let Some(peer) = peers.find(|it| cx.peers.name(*it) == peer) {
                self.services.response_too_large(cx.now, peer, topic, &text);
            }
        }
        cx.notices.add(now, notices::cause(notice), &text);
    }

    /// Returns the state of a peer's topic.
    pub(crate) fn incoming(&self, key: ChannelKey) -> Option<IncomingState<'_>> {
        let remote = self.remote.get(key)?;
        let name = remote.topic.name.as_str();
        let wanted = self.is_published(key) && self.publications[name].wanted;
        let RemoteTopic { over_rate, not_held, .. } = *remote;
        let malformed = remote.checked.malformed;
        Some(IncomingState { name, wanted, over_rate, not_held, malformed })
    }

    fn new_session(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let now = cx.now;
        self.forget_kept(cx, peer);
        for remote in self.remote.of_peer_mut(peer) {
            remote.stale_since.get_or_insert(now);
            remote.over_rate = OverRate::default();
        }
        cx.waiting.retain(|key, _| key.peer != peer);
        self.shown.new_session(cx, peer);
        self.exports.clear_interests(cx, peer);
        self.returning.remove(&peer);
        self.services.new_session(cx, peer);
    }

    /// Gives up topics that peers had in their last session and do not advertise any more, and does
    /// the other periodic work.
    pub(crate) fn sweep(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        cx.drop_notices_of_given_rights();
        let over = |since: Option<Instant>| since.is_some_and(|at| now.since(at) > REOFFER_GRACE);
        let remote = self.remote.iter();
        let gone = remote.filter(|(_, r)| over(r.stale_since)).map(|(key, _)| key);
        for key in gone.take(WITHDRAWN_PER_SWEEP).collect::<Vec<_>>() {
            self.remote_withdrawn(cx, key);
        }
        self.services.sweep(cx);
        self.shown.sweep(cx);
        // The thread that examines them may have been too busy to take the requests.
        for peer in std::mem::take(&mut self.examined).into_keys() {
            self.examine_next(cx, peer);
        }
        self.sweep_watchdogs(cx);
        for peer in cx.peers.give_up_absent(now) {
            self.give_up(cx, peer);
        }
        self.publish_all_returning(cx);
        self.exports.stop_reading(cx);
        self.forget_unwanted(cx);
        cx.sweep_rates();
        cx.notices.sweep(now);
        cx.recorder.sweep(now);
    }

    fn remote_offered(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        offered: OfferedTopic,
        definition: Arc<str>,
    ) {
        let over_rate = self.remote.get(key).map(|it| it.over_rate).unwrap_or_default();
        let checked = self.checked_before(key, &offered);
        let accepted = cx.peers.accepted_name(key.peer, Act::Publish, &offered);
        let local_name = accepted.as_deref().ok();
        let (kept, held, not_held) = self.counters_of_earlier(key, &offered.name, local_name);
        self.replace_earlier(cx, key, &offered.name, local_name);
        let name = match accepted {
            Ok(name) => name,
            Err(denied) => {
                return cx.deny(key, Act::Publish, &offered, &denied);
            }
        };
        let (topic_type, topic_hash) = (offered.type_name.clone(), offered.type_hash.clone());
        let bytes = self.definition_bytes(key) + self.services.definition_bytes(key);
        let definition = definitions::within_budget(cx, key, &offered.name, definition, bytes);
        let liveliness = self.liveliness_of(cx, key.peer, &offered);
        // A new advertisement of the same type with another QoS does not interrupt messages.
        let same = self.remote.get_mut(key).filter(|known| {
            known.translation.is_known()
                && known.offered_type == offered.type_name
                && known.offered_hash == offered.type_hash
        });
        let translation = match same {
            Some(known) => std::mem::replace(&mut known.translation, Translation::Requested),
            None => Translation::Requested,
        };
        let remote = RemoteTopic {
            translation,
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
                    liveliness,
                    classes: Classes::from_bits(offered.qos.classes),
                    keeping: offered.qos.keeping,
                },
            },
            offered_type: topic_type,
            offered_hash: topic_hash,
            offered_name: offered.name,
            checked,
            encoded: false,
            over_rate,
            stale_since: None,
            kept,
            held,
            not_held,
        };
        self.remote.insert(key, remote);
        self.examine_next(cx, key.peer);
    }

    /// Returns the counters of a topic that is advertised again, under this number or another. Its
    /// publication continues, and ROS here still keeps and holds its messages.
    fn counters_of_earlier(
        &mut self,
        key: ChannelKey,
        offered_name: &str,
        local_name: Option<&str>,
    ) -> (KeptMessages, Held, u64) {
        let earlier = iter::once(key).chain(self.remote.offered_as(key.peer, offered_name));
        let is_same = |it: &RemoteTopic| Some(&*it.topic.name) == local_name;
        let earlier = earlier.filter(|other| self.remote.get(*other).is_some_and(is_same)).min();
        match earlier.and_then(|other| self.remote.get_mut(other)) {
            Some(it) => (std::mem::take(&mut it.kept), it.held.clone(), it.not_held),
            None => (KeptMessages::default(), self.held.entry(key.peer).or_default().beside(), 0),
        }
    }

    /// Removes the earlier topics in place of an advertised one. A new session may give this number
    /// to another topic, which is set aside until it is advertised again, or this topic another
    /// number.
    fn replace_earlier(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        offered_name: &str,
        local_name: Option<&str>,
    ) {
        let named = self.remote.offered_as(key.peer, offered_name).filter(|other| *other != key);
        for old in iter::once(key).chain(named).collect::<Vec<_>>() {
            let name = self.remote.get(old).map(|r| r.topic.name.clone());
            if name.as_deref() != local_name {
                if old != key || !self.set_aside(cx, old) {
                    self.remote_withdrawn(cx, old);
                }
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

    /// Gives a topic of the last session a number that no session has, so that its publication and
    /// local subscribers stay. Returns whether it is one.
    fn set_aside(&mut self, cx: &mut Context<'_>, key: ChannelKey) -> bool {
        let is_stale = |it: &RemoteTopic| it.stale_since.is_some() && it.translation.is_known();
        if !self.remote.get(key).is_some_and(is_stale) {
            return false;
        }
        let aside = ChannelKey { channel: ChannelId(key.channel.0 | ASIDE), ..key };
        self.remote_withdrawn(cx, aside);
        let Some(topic) = self.remote.remove(key) else { return false };
        if let Some(publication) = self.publications.get_mut(&topic.topic.name)
            && publication.from.remove(&key)
        {
            publication.from.insert(aside);
        }
        self.remote.insert(aside, topic);
        true
    }
}
