// SPDX-License-Identifier: Apache-2.0
//! Received control messages: offers, subscriptions and definitions.

use crate::config::MAX_CHANNELS;
use crate::endpoint::Endpoint;
use crate::endpoint::events::{Event, Notice};
use crate::ids::{ChannelId, PeerId};
use crate::limits;
use crate::stats::{DropReason, RefusedPacket};
use crate::time::Instant;
use crate::wire::control::{Control, OfferedTopic};
use std::sync::Arc;

impl Endpoint {
    pub(super) fn handle_control(&mut self, now: Instant, peer: PeerId, control: Control) {
        let state = &mut self.peers[peer];
        if state.team.is_some() {
            // A relay has no topics for its members, and keeps nothing of theirs.
            return;
        }
        let needs_reply = matches!(control, Control::Offer(_) | Control::GetDefinition { .. });
        if needs_reply && state.outbox.control_backlog() >= limits::CONTROL_BACKLOG {
            return self.refused.add(RefusedPacket::Bound);
        }
        match control {
            Control::Offer(offer) => {
                let known = state.inbox.channel(offer.channel).is_some();
                if !known && state.inbox.open_channels() >= MAX_CHANNELS {
                    return self.refused.add(RefusedPacket::Bound);
                }
                if state.inbox.set_offer(offer.channel, offer.topic.clone()) {
                    if known {
                        state.definitions.topic_removed();
                        self.deliver_ready(now, peer);
                    }
                    self.resolve_definition(now, peer, offer.channel, offer.topic);
                }
            }
            Control::Withdraw { channel } => {
                state.awaiting_definition.remove(&channel);
                state.inbox.end_order(Some(channel));
                self.deliver_ready(now, peer);
                let state = &mut self.peers[peer];
                if state.inbox.withdraw(channel) {
                    state.definitions.topic_removed();
                    let channel = ChannelId(channel);
                    self.emit(Event::Withdrawn { peer, channel });
                }
            }
            Control::Want { channel, wanted } => {
                if state.outbox.set_wanted(channel, wanted) {
                    let channel = ChannelId(channel);
                    self.emit(Event::Wanted { peer, channel, wanted });
                }
            }
            Control::GetDefinition { channel } => {
                if let Some(config) = state.outbox.config(channel) {
                    if !state.defined.insert(channel) {
                        return self.refused.add(RefusedPacket::Bound);
                    }
                    let text = config.definition.to_string();
                    state.send_control(now, &Control::Definition { channel, text });
                }
            }
            Control::Definition { channel, text } => self.handle_definition(peer, channel, text),
            Control::Refuse { channel, reason } => {
                let channel = ChannelId(channel);
                self.emit(Event::Refused { peer, channel, reason });
            }
            Control::Unknown(_) => {}
        }
    }

    /// Reports a message that is larger than this node allows, here and to its sender: that node
    /// is told of the 1st, 2nd, 4th, 8th ... of each channel.
    pub(super) fn report_too_large(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: ChannelId,
        found: usize,
    ) {
        let (state, allowed) = (&self.peers[peer], self.config.max_message);
        let Some(open) = state.inbox.channel(channel.0) else { return };
        let (topic, count) =
            (open.topic.name.clone(), open.stats.dropped.get(DropReason::TooLarge));
        let sender = state.name.clone();
        if count.is_power_of_two() {
            let here = self.name();
            let reason = format!(
                "{topic}: a message of {found} bytes is larger than the {allowed} bytes that \
                 '{here}' allows (limits.max_message)"
            );
            self.refuse(now, peer, channel, reason);
        }
        self.notice(Notice::TooLarge { peer: sender, topic, found, allowed });
    }

    pub(crate) fn resolve_definition(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: u64,
        topic: OfferedTopic,
    ) {
        let state = &mut self.peers[peer];
        let known = self.definitions.get(&topic).or_else(|| state.definitions.get(&topic));
        if let Some(definition) = known {
            let channel = ChannelId(channel);
            self.emit(Event::Offered { peer, channel, topic, definition });
            return;
        }
        if state.awaiting_definition.insert(channel) {
            state.send_control(now, &Control::GetDefinition { channel });
        }
    }

    fn handle_definition(&mut self, peer: PeerId, channel: u64, text: String) {
        let state = &mut self.peers[peer];
        if !state.awaiting_definition.remove(&channel) {
            return;
        }
        let Some(open) = state.inbox.channel(channel) else { return };
        let topic = open.topic.clone();
        let mut definition: Arc<str> = text.into();
        if !state.definitions.insert(&topic, &definition) {
            let offered = state.inbox.topics().map(|(_, channel)| &channel.topic);
            state.definitions.retain_used(offered);
            if !state.definitions.insert(&topic, &definition) {
                self.refused.add(RefusedPacket::Bound);
                definition = "".into();
            }
        }
        let channel = ChannelId(channel);
        self.emit(Event::Offered { peer, channel, topic, definition });
    }
}
