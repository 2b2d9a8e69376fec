// SPDX-License-Identifier: Apache-2.0
//! Topics of this robot that are advertised to peers, and their messages.

pub(crate) mod channel;
mod departures;
pub(crate) mod frames;
mod kept;
mod sending;
mod topic;
mod transforms;
mod treatments;

pub(crate) use topic::LocalTopic;
#[cfg(test)]
pub(super) use transforms::STATIC_PERIOD;
#[cfg(test)]
pub(super) use treatments::MAX_CHANGES;

use super::context::Context;
use super::key::ChannelKey;
use super::message::{Change, Outgoing, SourceChange};
use super::peers::UNSUBSCRIBE_DELAY;
use crate::audit::Actor;
use crate::codec::job::Job;
use crate::config::Config;
use crate::quota::Cause;
use crate::status::TopicChange;
use crate::treatment::TopicRule;
use channel::channel_config;
use departures::Departure;
use frames::Renaming;
use sending::send_presence_to;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::{Command, Source, Topic, tf};
use tautline_proto::{Duration, Instant, PeerId};
use transforms::MergedMessage;
use treatments::{RATE_RANGE_HZ, Treatments};

/// The topics of this robot, by name.
#[derive(Debug)]
pub(crate) struct Exports {
    topics: BTreeMap<String, LocalTopic>,
    /// Topics without publishers. They stay until peers have their last messages.
    departures: BTreeMap<String, Departure>,
    last_departure: u64,
    treatments: Treatments,
    /// The frames that are sent on tf topics, and the names of frames there and in other messages.
    tf_rules: Arc<tf::Rules>,
    /// Lower bound of the time at which a message is due that the rate of its topic holds back;
    /// `None` if no message is held back.
    next_held_back: Option<Instant>,
}

impl Exports {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            topics: BTreeMap::new(),
            departures: BTreeMap::new(),
            last_departure: 0,
            treatments: Treatments::new(&config.topics),
            tf_rules: Arc::new(config.tf.clone()),
            next_held_back: None,
        }
    }

    pub(super) fn topics(&self) -> &BTreeMap<String, LocalTopic> {
        &self.topics
    }

    /// Returns the time at which the next message that is held back by a rate is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next_held_back
    }

    /// Returns the changes on the running node, which override the file.
    pub(super) fn changes(&self) -> Vec<TopicChange> {
        self.treatments.changes()
    }

    /// Handles the advertisement of a topic that other nodes on this robot publish.
    pub(super) fn on_offered_by_others(&mut self, cx: &mut Context<'_>, topic: Topic) {
        let name = topic.name.clone();
        self.on_offered(cx, topic);
        if let Some(local) = self.topics.get_mut(&name) {
            local.has_other_publishers = true;
        }
    }

    /// Handles the end of publication by other nodes on this robot. If this node itself also
    /// publishes the topic, the topic stays advertised.
    pub(super) fn on_withdrawn_by_others(&mut self, cx: &mut Context<'_>, topic: String) {
        match self.topics.get_mut(&topic).filter(|local| local.is_own) {
            Some(local) => local.has_other_publishers = false,
            None => self.begin_departure(cx, topic),
        }
    }

    /// Advertises a topic that this node itself publishes. If other nodes publish the topic with
    /// another type, their type stays.
    pub(super) fn publish_own_topic(&mut self, cx: &mut Context<'_>, topic: &Topic) {
        if !self.topics.contains_key(&topic.name) || self.departures.contains_key(&topic.name) {
            self.on_offered(cx, topic.clone());
        }
        if let Some(local) = self.topics.get_mut(&topic.name) {
            local.is_own = local.is_of_type(topic);
        }
    }

    /// Stops publishing a topic of this node itself.
    pub(super) fn stop_own_topic(&mut self, cx: &mut Context<'_>, name: &str) {
        match self.topics.get_mut(name).filter(|local| local.is_own) {
            Some(local) if local.has_other_publishers => local.is_own = false,
            Some(_) => self.begin_departure(cx, name.to_owned()),
            None => {}
        }
    }

    /// Whether a peer is subscribed to a topic that this node itself publishes.
    pub(super) fn is_own_topic_wanted(&self, name: &str) -> bool {
        self.topics.get(name).is_some_and(|it| it.is_own && it.is_wanted())
    }

    pub(super) fn on_offered(&mut self, cx: &mut Context<'_>, topic: Topic) {
        let name = topic.name.clone();
        let Some(treatment) = self.treatments.for_topic(cx, &name) else { return };
        if self.topics.get(&name).is_some_and(|l| !l.is_of_type(&topic)) {
            // Queued messages have the former type and must not be read as the new type.
            self.on_withdrawn(cx, name.clone());
        }
        if let Some(known) = self.topics.get_mut(&name) {
            known.update_definition(cx, &topic);
        }
        let mut local = match self.topics.remove(&name) {
            Some(known) => LocalTopic { topic, treatment, ..known },
            None => LocalTopic::new(topic, treatment),
        };
        for peer in cx.endpoint.peers() {
            local.offer(cx, peer);
        }
        if self.departures.remove(&name).is_some() && local.is_wanted() {
            cx.send_to_gateway(Command::Subscribe { topic: name.clone() });
        }
        self.topics.insert(name, local);
    }

    /// Withdraws a topic immediately: its queued messages are dropped.
    pub(super) fn on_withdrawn(&mut self, cx: &mut Context<'_>, topic: String) {
        let Some(gone) = self.topics.remove(&topic) else { return };
        for (peer, channel) in &gone.channels {
            cx.endpoint.peer_mut(*peer).withdraw(cx.now, *channel);
        }
        if self.departures.remove(&topic).is_none() && gone.is_read() {
            cx.send_to_gateway(Command::Unsubscribe { topic });
        }
    }

    pub(super) fn on_wanted(&mut self, cx: &mut Context<'_>, key: ChannelKey, wanted: bool) {
        let ChannelKey { peer, .. } = key;
        let Some(local) = self.topic_mut(cx, key) else { return };
        if !wanted {
            return local.remove_subscriber(cx.now, peer);
        }
        let was_read = local.is_read();
        if !local.add_subscriber(cx.now, peer) {
            return;
        }
        let topic = local.topic.name.clone();
        // Ages count from the publication, so messages past their lifespan are not sent.
        let latched = local.messages_for_late_joiner();
        // During an outage, publishers may have left or got other numbers.
        if local.topic.qos.transient_local {
            let presence = local.presence();
            send_presence_to(cx, key, &topic, presence);
        }
        for message in latched {
            local.send_to(cx, key, &message);
        }
        if !was_read && !self.departures.contains_key(&topic) {
            cx.send_to_gateway(Command::Subscribe { topic });
        }
    }

    /// Returns the local topic that is advertised to a peer on this channel.
    fn topic_mut(&mut self, cx: &mut Context<'_>, key: ChannelKey) -> Option<&mut LocalTopic> {
        let (offered, ..) = cx.endpoint.peer(key.peer).channel_out(key.channel)?;
        let local = self.topics.get_mut(&offered.topic.name)?;
        (local.channels.get(&key.peer) == Some(&key.channel)).then_some(local)
    }

    pub(super) fn on_refused(&mut self, cx: &mut Context<'_>, key: ChannelKey, reason: &str) {
        // The refusal may have been sent before our withdrawal arrived.
        if self.topic_mut(cx, key).is_some() {
            let text = format!("'{}' refuses {reason}", cx.peers.name(key.peer));
            cx.peer_notice(key.peer, &text);
        }
    }

    /// Removes the peer's interest in all local topics.
    pub(super) fn unsubscribe_peer(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        for local in self.topics.values_mut() {
            local.remove_subscriber(cx.now, peer);
        }
    }

    /// Stops reading topics that no peer has subscribed to for [`UNSUBSCRIBE_DELAY`].
    pub(super) fn unsubscribe_unwanted(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let mut unwanted = Vec::new();
        let departures = &self.departures;
        for (name, local) in self.topics.iter_mut().filter(|it| !departures.contains_key(it.0)) {
            if local.unwanted_since.is_some_and(|at| now.since(at) >= UNSUBSCRIBE_DELAY) {
                local.unwanted_since = None;
                local.forget_latched();
                unwanted.push(name.clone());
            }
        }
        for topic in unwanted {
            cx.send_to_gateway(Command::Unsubscribe { topic });
        }
    }

    pub(super) fn on_message(&mut self, cx: &mut Context<'_>, mut message: Outgoing) {
        let now = cx.now;
        let Some(local) = self.topics.get_mut(&message.topic) else { return };
        local.mark_renamed(cx, &self.tf_rules, &mut message);
        if local.transforms.is_some() {
            return self.on_transforms(cx, message);
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
        // Messages that are held back come first.
        let has_turn = |local: &mut LocalTopic, period| {
            local.held_back.is_empty() && local.take_turn(now, period)
        };
        let Some(period) = period.filter(|it| !has_turn(local, *it)) else {
            if message.origin.kept.is_none() {
                local.skipped_sources.remove(&message.source);
            }
            return local.forward(cx, &self.tf_rules, message);
        };
        let before = local.held_back.iter().position(|it| it.source == message.source);
        local.rate_limited += u64::from(before.is_some() || message.origin.kept.is_none());
        // The last message of each publisher that keeps messages must be sent: it may be the only
        // message of that publisher.
        match before {
            Some(at) => local.held_back[at] = message,
            None if message.origin.kept.is_some() && local.is_read() => {
                local.held_back.push_back(message);
                self.next_held_back = earlier_time(self.next_held_back, local.next_turn(period));
            }
            None if message.origin.kept.is_none() => {
                local.skipped_sources.insert(message.source);
            }
            None => {}
        }
    }

    /// Handles a message of a tf topic.
    pub(super) fn on_transforms(&mut self, cx: &mut Context<'_>, message: Outgoing) {
        let topic = message.topic.clone();
        // If nobody reads the topic any more, its messages must not be kept for the next reader.
        if let Some(local) = self.topics.get_mut(&topic).filter(|local| local.is_read()) {
            match local.filter_or_merge(&self.tf_rules, message) {
                Ok(Some(message)) => return local.forward(cx, &self.tf_rules, message),
                Ok(None) => {}
                Err(reason) => topic_notice(cx, &topic, &reason),
            }
        }
        self.send_merged(cx, &topic);
    }

    /// Removes the static transforms of a publisher that has left.
    pub(super) fn remove_transforms(&mut self, cx: &mut Context<'_>, topic: &str, source: Source) {
        let local = self.topics.get_mut(topic).filter(|local| local.topic.qos.transient_local);
        if let Some(transforms) = local.and_then(|local| local.transforms.as_mut()) {
            transforms.merger.remove(source);
        }
        self.send_merged(cx, topic);
    }

    /// Sends the new transforms of a topic, immediately or as soon as its rate allows.
    fn send_merged(&mut self, cx: &mut Context<'_>, topic: &str) {
        let Some(local) = self.topics.get_mut(topic) else { return };
        match local.next_merged(cx.now) {
            MergedMessage::Nothing => {}
            MergedMessage::Now(message) => local.forward(cx, &self.tf_rules, message),
            MergedMessage::Later(due) => {
                self.next_held_back = earlier_time(self.next_held_back, due)
            }
            MergedMessage::Failed(reason) => topic_notice(cx, topic, &reason),
        }
    }

    /// Sends messages that the rate of their topic held back and that are due now.
    pub(super) fn send_due(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        if self.next_held_back.is_none_or(|at| now < at) {
            return;
        }
        self.next_held_back = None;
        let waits = |local: &LocalTopic| local.transforms.is_some() || !local.held_back.is_empty();
        let topics = self.topics.iter().filter(|(_, local)| waits(local));
        for topic in topics.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.send_merged(cx, &topic);
            self.send_held_back(cx, &topic);
        }
    }

    /// Sends one message of a topic, and schedules the next.
    fn send_held_back(&mut self, cx: &mut Context<'_>, topic: &str) {
        let now = cx.now;
        let Some(local) = self.topics.get_mut(topic).filter(|it| !it.held_back.is_empty()) else {
            return;
        };
        // The limit may have been lifted since.
        let period = local.treatment.period().unwrap_or(Duration::ZERO);
        let message = match local.take_turn(now, period) {
            true => local.held_back.pop_front(),
            false => None,
        };
        let due = local.next_turn(period).filter(|_| !local.held_back.is_empty());
        self.next_held_back = earlier_time(self.next_held_back, due);
        if let Some(message) = message {
            local.forward(cx, &self.tf_rules, message);
        }
    }

    /// Takes a message that returns from the codec.
    pub(super) fn on_encoded(
        &mut self,
        cx: &mut Context<'_>,
        message: Outgoing,
        renaming: Option<Renaming>,
        problem: Option<String>,
    ) {
        let Some(local) = self.topics.get_mut(&message.topic) else { return };
        let rules = |renaming: Option<Renaming>| renaming.map(|it| Arc::as_ptr(&it.rules));
        let is_outdated = rules(renaming) != rules(local.renaming(cx, &self.tf_rules));
        // The message is read again and then gets the new names. This copy with the former names
        // must not replace it.
        if is_outdated && message.origin.kept.is_some() {
            return;
        }
        local.send_renamed(cx, message, problem);
    }

    pub(super) fn on_source_gone(&mut self, cx: &mut Context<'_>, change: SourceChange) {
        let SourceChange { topic, source, .. } = &change;
        let Some(local) = self.topics.get_mut(topic) else { return };
        if local.transforms.is_some() {
            return self.remove_transforms(cx, topic, *source);
        }
        local.held_back.retain(|it| it.source != *source);
        // The publisher's node may reconnect immediately, and then repeats its kept messages.
        local.forget_source(cx, *source);
        self.apply_after_codec(cx, change);
    }

    /// Handles the discovery that a publisher keeps more messages than was known.
    pub(super) fn on_depth_found(&mut self, cx: &mut Context<'_>, change: SourceChange) {
        let Some(local) = self.topics.get_mut(&change.topic) else { return };
        let Some((successor, depth)) = change.successor else { return };
        if let Some(transforms) = &mut local.transforms {
            // Kept messages of a tf topic are merged, and belong to the robot instead of a publisher.
            return transforms.rename(change.source, successor);
        }
        for message in local.held_back.iter_mut().filter(|it| it.source == change.source) {
            message.source = successor;
            message.origin.kept.iter_mut().for_each(|kept| kept.depth = depth);
        }
        self.apply_after_codec(cx, change);
    }

    /// Applies a change once the messages before it have passed the codec.
    fn apply_after_codec(&mut self, cx: &mut Context<'_>, change: SourceChange) {
        match self.topics.get(&change.topic).map(LocalTopic::uses_codec) {
            Some(true) => cx.submit_job(Job::Change(Change::Source(change))),
            Some(false) => self.on_change(cx, Change::Source(change)),
            None => {}
        }
    }

    /// Applies a change that has passed the codec.
    pub(super) fn on_change(&mut self, cx: &mut Context<'_>, change: Change) {
        match change {
            Change::Source(SourceChange { topic, source, successor }) => {
                let Some(local) = self.topics.get_mut(&topic) else { return };
                match successor {
                    Some((successor, depth)) => local.rename_source(cx, [source, successor], depth),
                    None => local.forget_source(cx, source),
                }
            }
            Change::Withdrawal(topic, number) => {
                if let Some(departure) = self.departures.get_mut(&topic) {
                    departure.on_encoded(number);
                }
            }
            Change::PeerWithdrawal(_) | Change::Shutdown => {}
        }
    }

    /// Calls [`Self::apply_treatment_change`] for `by`, and records the outcome.
    pub(super) fn change_treatment(
        &mut self,
        cx: &mut Context<'_>,
        change: TopicChange,
        by: Actor,
    ) -> Result<Vec<String>, String> {
        let words = change.to_string();
        let outcome = self.apply_treatment_change(cx, change);
        match &outcome {
            // The pattern is recorded as well, because it also applies to topics that appear later.
            Ok(topics) => cx.recorder.record_change(by, Ok(&[&[words], &topics[..]].concat())),
            Err(reason) => cx.recorder.record_change(by, Err(&format!("{words}: {reason}"))),
        }
        outcome
    }

    /// Changes the treatment of the matching topics on the running node; returns their names.
    pub(super) fn apply_treatment_change(
        &mut self,
        cx: &mut Context<'_>,
        change: TopicChange,
    ) -> Result<Vec<String>, String> {
        let pattern = Pattern::new(&change.topic).map_err(|e| format!("topic {e}"))?;
        if let Some(hz) = change.rate_hz.filter(|hz| *hz != 0.0)
            && !RATE_RANGE_HZ.contains(&hz)
        {
            let (least, most) = (RATE_RANGE_HZ.start(), RATE_RANGE_HZ.end());
            return Err(format!(
                "rate: found {hz}; allowed: 0 (no limit), or {least} to {most} Hz"
            ));
        }
        let names = self.matching_topics(&pattern)?;
        self.treatments.add_change(pattern, change)?;
        for name in &names {
            self.apply_changes(cx, name);
        }
        Ok(names)
    }

    /// Returns the exported topics that match `pattern`; an error message if there is none.
    fn matching_topics(&self, pattern: &Pattern) -> Result<Vec<String>, String> {
        let known = self.topics.keys();
        let names: Vec<_> = known.filter(|n| pattern.matches(n)).cloned().collect();
        if !names.is_empty() {
            return Ok(names);
        }
        if self.topics.is_empty() {
            return Err("this node sends no topics".into());
        }
        let known: Vec<_> = self.topics.keys().map(String::as_str).collect();
        let (pattern, known) = (pattern.as_str(), known.join(", "));
        Err(format!("no topic sent by this node matches '{pattern}'; its topics are: {known}"))
    }

    fn apply_changes(&mut self, cx: &mut Context<'_>, name: &str) {
        let now = cx.now;
        let Some(found) = self.treatments.for_topic(cx, name) else { return };
        let Some(mut local) = self.topics.remove(name) else { return };
        local.treatment = found;
        // Queued transforms may be due earlier now.
        self.next_held_back = self.next_held_back.map(|_| now);
        for peer in local.channels.keys().copied().collect::<Vec<_>>() {
            local.offer(cx, peer);
        }
        self.topics.insert(name.to_owned(), local);
    }

    /// Applies the new rules to a local topic, for each peer.
    fn apply_rules(&mut self, cx: &mut Context<'_>, name: &str) {
        let now = cx.now;
        let Some(treatment) = self.treatments.for_topic(cx, name) else {
            return self.on_withdrawn(cx, name.to_owned());
        };
        let Some(mut local) = self.topics.remove(name) else { return };
        if local.treatment != treatment {
            local.treatment = treatment;
            // Queued transforms may be due earlier now.
            self.next_held_back = self.next_held_back.map(|_| now);
        }
        for peer in cx.endpoint.peers() {
            if cx.peers.is_topic_offered_to(peer, name, &local.treatment) {
                let links = cx.peers.links_to(peer);
                let config = channel_config(&local.topic, &local.treatment, links);
                let known = local.channels.get(&peer);
                let offered = known.and_then(|it| cx.endpoint.peer(peer).channel_out(*it));
                if offered.is_none_or(|(offered, ..)| *offered != config) {
                    local.offer(cx, peer);
                }
            } else {
                if let Some(channel) = local.channels.remove(&peer) {
                    cx.endpoint.peer_mut(peer).withdraw(now, channel);
                }
                local.remove_subscriber(now, peer);
            }
        }
        self.topics.insert(name.to_owned(), local);
    }

    /// Returns the topics with kept messages whose frames get new names.
    pub(super) fn renamed_latched_topics(&mut self, cx: &mut Context<'_>) -> BTreeSet<String> {
        let kept = self.topics.iter().filter(|(_, local)| local.keeps_messages());
        let mut names: BTreeSet<String> = kept.map(|(name, _)| name.clone()).collect();
        names.retain(|name| {
            let local = self.topics.get_mut(name);
            local.and_then(|local| local.renaming(cx, &self.tf_rules)).is_some()
        });
        names
    }

    /// Reads topics again, because the frames in their kept messages have other names now.
    pub(super) fn resubscribe(
        &mut self,
        cx: &mut Context<'_>,
        topics: impl IntoIterator<Item = String>,
    ) {
        for topic in topics {
            let local = self.topics.get_mut(&topic).filter(|local| local.is_read());
            if let Some(local) = local {
                local.forget_latched();
                cx.send_to_gateway(Command::Unsubscribe { topic: topic.clone() });
                cx.send_to_gateway(Command::Subscribe { topic });
            }
        }
    }

    /// Resumes sending to a peer that was given up. The session is the same, so the peer's
    /// subscriptions are unchanged.
    pub(super) fn resume(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let channels = self.topics.values().filter_map(|it| it.channels.get(&peer).copied());
        for channel in channels.collect::<Vec<_>>() {
            if cx.endpoint.peer(peer).channel_out(channel).is_some_and(|(_, wanted, _)| wanted) {
                self.on_wanted(cx, ChannelKey { peer, channel }, true);
            }
        }
    }

    pub(super) fn remove_peer(&mut self, peer: PeerId) {
        for local in self.topics.values_mut() {
            local.channels.remove(&peer);
        }
    }

    /// Advertises the topics by the new rules.
    pub(super) fn apply_all_rules(&mut self, cx: &mut Context<'_>, rules: &[TopicRule]) {
        self.treatments.set_rules(rules);
        for name in self.topics.keys().cloned().collect::<Vec<_>>() {
            self.apply_rules(cx, &name);
        }
    }

    /// Applies the new rules of tf. `renamed_before` are the topics with kept messages whose frames
    /// had new names under the former rules.
    pub(super) fn apply_tf_rules(
        &mut self,
        cx: &mut Context<'_>,
        [old, new]: [&tf::Rules; 2],
        renamed_before: &BTreeSet<String>,
    ) {
        if old != new {
            self.tf_rules = Arc::new(new.clone());
            let topics = self.topics.iter().filter(|(_, local)| local.transforms.is_some());
            self.resubscribe(cx, topics.map(|(name, _)| name.clone()).collect::<Vec<_>>());
        }
        let renamed_now = self.renamed_latched_topics(cx);
        let changed = match naming_rules(old) == naming_rules(new) {
            true => renamed_before ^ &renamed_now,
            false => renamed_before | &renamed_now,
        };
        self.resubscribe(cx, changed);
    }
}

/// The part of the rules that determines the names of frames.
fn naming_rules(rules: &tf::Rules) -> (&str, &[Pattern]) {
    (&rules.prefix, &rules.shared)
}

fn topic_notice(cx: &mut Context<'_>, topic: &str, problem: &str) {
    let text = format!("{topic} of '{}': {problem}", cx.endpoint.name());
    cx.notice(Cause::Here, &text);
}

/// Returns the earlier of two times; `None` means never.
fn earlier_time(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
