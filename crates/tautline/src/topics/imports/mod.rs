// SPDX-License-Identifier: Apache-2.0
//! Topics of peers that are published on this robot, and their messages.

pub(crate) mod arrival;
mod catalog;
mod checked;
mod examined;
mod held;
mod kept;
mod messages;
mod publications;
mod publishing;
pub(crate) mod safe;
mod topic;
mod watchdogs;

use super::context::Context;
use super::definitions;
use super::key::ChannelKey;
use super::peers::REOFFER_GRACE;
use super::rights::DroppedTraffic;
use super::translation::Translation;
use super::unchecked::Unchecked;
use super::waiting::RequestKind;
use crate::config::{Config, WatchdogConfig};
use crate::limits::{HISTORY_DEPTH, MIN_LEASE};
use crate::notices::plain;
use crate::status::WatchdogReport;
use catalog::Catalog;
use examined::Examinations;
use publications::Publications;
use safe::SafeMessage;
use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::sync::Arc;
use tautline_gateway::types::translate::{LocalForm, Translator};
use tautline_gateway::{Classes, Liveliness, Qos, Topic, tf};
use tautline_proto::{ChannelId, Instant, OfferedTopic, PeerId};
use topic::RemoteTopic;
use watchdogs::Watchdogs;

/// Bit that is set in the number of a topic of a past session if another topic has its former
/// number now. No channel of the protocol has a number with this bit.
const SET_ASIDE_BIT: u64 = 1 << 63;

/// Maximum number of topics of past sessions given up per sweep. All topics of a peer are given up
/// in four seconds.
const WITHDRAWN_PER_SWEEP: usize = 1024;

/// The topics of peers.
#[derive(Debug)]
pub(super) struct Imports {
    pub(super) catalog: Catalog,
    pub(super) publications: Publications,
    pub(super) watchdogs: Watchdogs,
    examinations: Examinations,
    /// Topics of returned peers that are still to be published.
    republish_queues: BTreeMap<PeerId, VecDeque<ChannelKey>>,
    /// The rules for names of frames in messages of peers.
    tf_rules: Arc<tf::Rules>,
    max_message: usize,
}

/// The state of a peer's topic, for reports.
pub(crate) struct IncomingState<'a> {
    pub(crate) name: &'a str,
    /// Whether it has local subscribers.
    pub(crate) wanted: bool,
    /// Messages dropped above the rate.
    pub(crate) over_rate_drops: DroppedTraffic,
    /// Messages dropped because local subscribers are slow.
    pub(crate) slow_subscriber_drops: u64,
    /// Messages dropped because they are not of their type.
    pub(crate) malformed: u64,
}

impl Imports {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            catalog: Catalog::default(),
            publications: Publications::default(),
            watchdogs: Watchdogs::new(&config.watchdogs),
            examinations: Examinations::default(),
            republish_queues: BTreeMap::new(),
            tf_rules: Arc::new(config.tf.clone()),
            max_message: config.limits.max_message,
        }
    }

    pub(super) fn set_tf(&mut self, rules: &tf::Rules) {
        if *self.tf_rules != *rules {
            self.tf_rules = Arc::new(rules.clone());
        }
    }

    /// Returns the time at which [`Self::handle_timeout`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.watchdogs.poll_timeout()
    }

    /// Publishes the safe messages that are due.
    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.watchdogs.run(cx, &self.publications);
    }

    pub(super) fn watchdog_reports(&self) -> impl Iterator<Item = WatchdogReport> {
        self.watchdogs.reports()
    }

    /// Replaces the watchdogs.
    pub(super) fn reconfigure_watchdogs(
        &mut self,
        cx: &mut Context<'_>,
        configs: &[WatchdogConfig],
    ) {
        for name in self.watchdogs.reconfigure(cx, configs, &self.publications) {
            self.unpublish_if_unused(cx, &name);
        }
    }

    /// Takes a composed safe message that was requested.
    pub(super) fn on_composed(
        &mut self,
        cx: &mut Context<'_>,
        topic: &Topic,
        composed: Result<SafeMessage, String>,
    ) {
        self.watchdogs.on_composed(cx, &self.publications, topic, composed);
    }

    /// Returns the total bytes of the definitions of the peer's other topics.
    pub(super) fn definition_bytes(&self, key: ChannelKey) -> usize {
        self.catalog.definition_bytes(key)
    }

    /// Handles the advertisement of a topic. `definition_bytes` is the number of bytes of
    /// definitions that are kept of the peer's services.
    pub(super) fn on_offered(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        offered: OfferedTopic,
        definition: Arc<str>,
        definition_bytes: usize,
    ) {
        let over_rate_drops =
            self.catalog.get(key).map(|it| it.over_rate_drops).unwrap_or_default();
        let type_check = self.catalog.earlier_check(key, &offered);
        let accepted = cx.peers.accepted_name(key.peer, RequestKind::Publish, &offered);
        let local_name = accepted.as_deref().ok();
        let (kept, held, slow_subscriber_drops) =
            self.catalog.take_earlier_counters(key, &offered.name, local_name);
        self.replace_earlier(cx, key, &offered, local_name);
        let name = match accepted {
            Ok(name) => name,
            Err(denied) => {
                return cx.deny(key, RequestKind::Publish, &offered, &denied);
            }
        };
        let (topic_type, topic_hash) = (offered.type_name.clone(), offered.type_hash.clone());
        let bytes = self.catalog.definition_bytes(key) + definition_bytes;
        let definition = definitions::enforce_budget(cx, key, &offered.name, definition, bytes);
        let liveliness = liveliness_of(cx, key.peer, &offered);
        // A new advertisement of the same type with other QoS does not interrupt messages.
        let same = self.catalog.get_mut(key).filter(|known| {
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
            type_check,
            encoded: false,
            is_withdrawn: false,
            over_rate_drops,
            stale_since: None,
            kept,
            held,
            slow_subscriber_drops,
        };
        self.catalog.insert(key, remote);
        self.examinations.request_next(cx, &self.catalog, key.peer);
    }

    /// Removes the earlier topics that an advertised topic replaces. In a new session, its number
    /// may have belonged to another topic: that topic is set aside until it is advertised again. Or
    /// the topic itself may have had another number.
    fn replace_earlier(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        offered: &OfferedTopic,
        local_name: Option<&str>,
    ) {
        let named = self.catalog.offered_as(key.peer, &offered.name).filter(|other| *other != key);
        for old in iter::once(key).chain(named).collect::<Vec<_>>() {
            let name = self.catalog.get(old).map(|r| r.topic.name.clone());
            if name.as_deref() != local_name {
                if old != key || !self.set_aside(cx, old) {
                    self.on_withdrawn(cx, old);
                }
                continue;
            }
            // Messages of a withdrawn topic are still in the codec.
            let is_due = |it: &RemoteTopic| it.is_withdrawn && it.offered_type == offered.type_name;
            if old == key || self.catalog.get(old).is_some_and(is_due) {
                continue;
            }
            // The publication continues, and gets its messages under the new number.
            self.catalog.remove(old);
            if let Some(name) = name {
                self.publications.detach(&name, old);
            }
        }
    }

    /// Gives a topic of the last session a number that no session uses, so that its publication and
    /// local subscribers stay. Returns `false` if the topic is not of the last session.
    fn set_aside(&mut self, cx: &mut Context<'_>, key: ChannelKey) -> bool {
        let is_stale = |it: &RemoteTopic| it.stale_since.is_some() && it.translation.is_known();
        if !self.catalog.get(key).is_some_and(is_stale) {
            return false;
        }
        let aside = ChannelKey { channel: ChannelId(key.channel.0 | SET_ASIDE_BIT), ..key };
        self.on_withdrawn(cx, aside);
        let Some(topic) = self.catalog.remove(key) else { return false };
        if let Some(publication) = self.publications.get_mut(&topic.topic.name)
            && publication.channels.remove(&key)
        {
            publication.channels.insert(aside);
        }
        self.catalog.insert(aside, topic);
        true
    }

    pub(super) fn on_withdrawn(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let Some(gone) = self.catalog.remove(key) else { return };
        let name = gone.topic.name;
        if let Some(publication) = self.publications.get_mut(&name) {
            publication.channels.remove(&key);
            if !self.watchdogs.must_stay_published(&name) {
                self.unpublish_if_unused(cx, &name);
            }
            self.publications.update_liveliness(cx, &self.catalog, &name);
        }
    }

    /// Handles a new session of a peer, in which the peer advertises its topics again.
    pub(super) fn new_session(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let now = cx.now;
        self.catalog.forget_kept(cx, peer);
        for remote in self.catalog.topics_of_peer_mut(peer) {
            remote.stale_since.get_or_insert(now);
            remote.over_rate_drops = DroppedTraffic::default();
        }
        self.republish_queues.remove(&peer);
    }

    /// Takes the local form of a peer's topic, which was requested as `peer_form`. `definition_bytes`
    /// is the number of bytes of definitions that are kept of the peer's services.
    pub(super) fn on_localized(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        peer_form: &Topic,
        found: Result<LocalForm, String>,
        definition_bytes: usize,
    ) {
        let is_it =
            |remote: &&mut RemoteTopic| remote.awaits_local_form && remote.topic == *peer_form;
        // Otherwise the number has another topic by now, which is examined later.
        if let Some(remote) = self.catalog.get_mut(key).filter(is_it) {
            remote.awaits_local_form = false;
            self.use_local_form(cx, key, peer_form, found, definition_bytes);
        }
        self.examinations.remove(key.peer);
        self.examinations.request_next(cx, &self.catalog, key.peer);
    }

    fn use_local_form(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        peer_form: &Topic,
        found: Result<LocalForm, String>,
        definition_bytes: usize,
    ) {
        let now = cx.now;
        let cause = cx.peers.cause(key.peer);
        let Some(remote) = self.catalog.get_mut(key) else { return };
        let LocalForm { mut topic, translator, check, fields, untrusted } = match found {
            Ok(form) => form,
            Err(reason) => {
                remote.translation = Translation::Impossible;
                cx.refuse(key, &peer_form.name, &reason);
                self.publications.detach(&peer_form.name, key);
                return self.unpublish_if_unused(cx, &peer_form.name);
            }
        };
        for field in translator.iter().flat_map(Translator::one_sided) {
            if cx.notices.may_log(now, &cause) {
                let (topic, field) = (plain(&topic.name), plain(field));
                tracing::info!(topic, field, "field left empty or omitted in translation");
            }
        }
        remote.translation = translator.into();
        remote.type_check.set(check, fields);
        if let Some(untrusted) = untrusted {
            let peer = cx.peers.name(key.peer);
            let text = format!("{} of '{peer}': {untrusted}, so it is not used", peer_form.name);
            cx.peer_notice(key.peer, &text);
        }
        let (name, definition) = (&peer_form.name, topic.definition);
        let bytes = self.catalog.definition_bytes(key) + definition_bytes;
        topic.definition = definitions::enforce_budget(cx, key, name, definition, bytes);
        if let Some(remote) = self.catalog.get_mut(key) {
            remote.topic = Topic { name: peer_form.name.clone(), ..topic };
        }
        self.publish_for(cx, key);
    }

    /// Returns the state of a peer's topic.
    pub(super) fn incoming(&self, key: ChannelKey) -> Option<IncomingState<'_>> {
        let remote = self.catalog.get(key)?;
        let name = remote.topic.name.as_str();
        let wanted =
            self.publications.is_fed_by(&self.catalog, key) && self.publications.is_wanted(name);
        let RemoteTopic { over_rate_drops, slow_subscriber_drops, .. } = *remote;
        let malformed = remote.type_check.malformed;
        Some(IncomingState { name, wanted, over_rate_drops, slow_subscriber_drops, malformed })
    }

    /// Returns the topics whose messages no shared definition checks.
    pub(super) fn unchecked(&self) -> impl Iterator<Item = Unchecked<'_>> {
        let topics =
            self.catalog.iter().filter(|(key, _)| self.publications.is_fed_by(&self.catalog, *key));
        topics.filter_map(|(key, remote)| {
            let (peer, topic) = (Some(key.peer), &remote.topic);
            let (name, type_name) = (topic.name.as_str(), topic.type_name.as_str());
            Some(Unchecked { peer, name, type_name, reason: remote.type_check.reason? })
        })
    }

    /// Returns the fields of the peer's topics that only one ROS has.
    pub(super) fn one_sided_fields(&self, peer: PeerId) -> impl Iterator<Item = &String> {
        let topics = self.catalog.topics_of_peer(peer);
        let translators = topics.filter_map(|(_, remote)| remote.translation.translator_ref());
        translators.flat_map(Translator::one_sided)
    }

    /// Publishes a topic of this node itself. Called repeatedly, because others may take or free the name.
    pub(super) fn publish_own_topic(&mut self, cx: &mut Context<'_>, topic: &Topic) {
        self.publications.publish_own_topic(cx, topic);
    }

    /// Whether a topic that this node itself publishes has local subscribers.
    pub(super) fn is_own_topic_wanted(&self, name: &str) -> bool {
        self.publications.is_own_topic_wanted(name)
    }

    /// Stops publishing a topic of this node itself.
    pub(super) fn stop_own_topic(&mut self, cx: &mut Context<'_>, name: &str) {
        if let Some(publication) = self.publications.get_mut(name) {
            publication.is_own = false;
            self.unpublish_if_unused(cx, name);
        }
    }

    /// Removes everything that a peer has published or requested here.
    pub(super) fn remove_peer(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        for key in self.catalog.topics_of_peer(peer).map(|(key, _)| key).collect::<Vec<_>>() {
            self.on_withdrawn(cx, key);
        }
        self.republish_queues.remove(&peer);
        self.examinations.remove(peer);
        self.publications.forget_names_of(peer);
        self.catalog.forget_held(peer);
    }

    /// Gives up topics that peers had in their last session and have not advertised again.
    pub(super) fn sweep_stale(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let over = |since: Option<Instant>| since.is_some_and(|at| now.since(at) > REOFFER_GRACE);
        let stale = self.catalog.iter().filter(|(_, it)| over(it.stale_since));
        let gone = stale.map(|(key, _)| key).take(WITHDRAWN_PER_SWEEP);
        for key in gone.collect::<Vec<_>>() {
            self.on_withdrawn(cx, key);
        }
    }

    /// Repeats requests that may have been lost. Stops publishing topics that were published only
    /// for watchdogs and need not stay.
    pub(super) fn sweep(&mut self, cx: &mut Context<'_>) {
        // The thread that examines topics may have been too busy to take the requests.
        self.examinations.retry_all(cx, &self.catalog);
        for name in self.watchdogs.sweep(cx) {
            self.unpublish_if_unused(cx, &name);
        }
    }
}

/// Returns the liveliness with which a peer's topic is published here.
fn liveliness_of(cx: &mut Context<'_>, peer: PeerId, offered: &OfferedTopic) -> Liveliness {
    let qos = &offered.qos;
    if let Some(lease) = qos.lease.filter(|lease| *lease < MIN_LEASE) {
        let (name, peer_name) = (&offered.name, cx.peers.name(peer));
        let text = format!(
            "{name} of '{peer_name}': its liveliness lease of {lease:?} is published as \
             {MIN_LEASE:?}, the shortest that is allowed; subscribers that request less receive \
             nothing"
        );
        cx.peer_notice(peer, &text);
    }
    Liveliness {
        manual: qos.manual_liveliness,
        lease: qos.lease.map(|lease| lease.max(MIN_LEASE)),
        lost: qos.lease.is_some() && qos.not_alive,
    }
}
