// SPDX-License-Identifier: Apache-2.0
//! The topics and messages in both directions between this node and one peer.

use crate::bucket::Bucket;
use crate::config::{ChannelConfig, Config, MAX_CHANNELS};
use crate::delivery::definitions::Definitions;
use crate::delivery::fec::receiver::RecoveredFrame;
use crate::delivery::inbox::{FrameEffect, Inbox, PARTIAL_CHECK, Received, Transit};
use crate::delivery::outbox::{Message, Outbox};
use crate::endpoint::context::{Context, Request};
use crate::endpoint::events::{Event, Notice};
use crate::endpoint::timer::Timer;
use crate::error::{OfferError, SendError};
use crate::ids::{ChannelId, PeerId};
use crate::limits;
use crate::stats::{DropReason, OutStats, RefusedPacket};
use crate::time::{Duration, Instant};
use crate::too_large;
use crate::wire::control::{Control, MAX_DEFINITION, MAX_TEXT, Offer, OfferedTopic};
use crate::wire::frame::Data;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Interval at which messages that wait for repair budget are examined.
const REPAIR_POLL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Channels {
    peer: PeerId,
    /// Whether the peer is a member of a team. The relay has no topics for members of its teams.
    is_member: bool,
    /// Whether there is a session; a link need not be up.
    is_open: bool,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
    pub(crate) next_channel: u64,
    /// Channels whose definition this node has requested.
    awaiting_definition: BTreeSet<u64>,
    /// Channels to the peer whose definition was sent after their last offer.
    sent_definitions: BTreeSet<u64>,
    /// Definitions from the peer.
    definitions: Definitions,
    /// Limit of control messages from the peer, across sessions.
    pub(crate) control_limit: Bucket,
}

impl Channels {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            peer: PeerId(u32::MAX),
            is_member: false,
            is_open: false,
            outbox: Outbox::new(config.repair_percent),
            inbox: Inbox::new(config.max_message, config.reassembly_bytes),
            next_channel: 1,
            awaiting_definition: BTreeSet::new(),
            sent_definitions: BTreeSet::new(),
            definitions: Definitions::new(limits::DEFINITIONS_BYTES),
            control_limit: Bucket::new(limits::CONTROL_MESSAGES),
        }
    }

    pub(crate) fn assign_id(&mut self, peer: PeerId, is_member: bool) {
        (self.peer, self.is_member) = (peer, is_member);
    }

    /// Begins a session: offers all channels.
    pub(crate) fn open(&mut self, now: Instant) {
        self.is_open = true;
        let channels: Vec<_> = self.outbox.queues.channels().collect();
        for channel in channels {
            self.announce(now, channel);
        }
    }

    /// Ends the session.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// Discards all state of a session. Complete messages of the session are not lost.
    pub(crate) fn reset(&mut self, cx: &mut Context, now: Instant) {
        self.inbox.release_waiting(None);
        self.deliver_ready(cx, now);
        self.awaiting_definition.clear();
        self.sent_definitions.clear();
        self.inbox = Inbox::new(cx.config.max_message, cx.config.reassembly_bytes);
        self.definitions = Definitions::new(limits::DEFINITIONS_BYTES);
        self.outbox.restart(cx.config.repair_percent);
    }
}

/// Methods of the application.
impl Channels {
    /// Offers a topic, in this session and in later ones.
    pub(crate) fn offer(
        &mut self,
        cx: &mut Context,
        now: Instant,
        config: ChannelConfig,
    ) -> Result<ChannelId, OfferError> {
        check_texts(&config)?;
        let open = self.outbox.queues.channels().count();
        if open >= MAX_CHANNELS {
            return Err(OfferError::TooMany(open));
        }
        let channel = ChannelId(self.next_channel);
        self.next_channel += 1;
        self.change_offer(cx, now, channel, config)?;
        Ok(channel)
    }

    /// Changes the offer of a channel: its type, priority, lifespan and so on.
    pub(crate) fn change_offer(
        &mut self,
        cx: &mut Context,
        now: Instant,
        channel: ChannelId,
        config: ChannelConfig,
    ) -> Result<(), OfferError> {
        check_texts(&config)?;
        // If there is no space, the definition is requested from peers like any other.
        let _ = cx.definitions.insert(&config.topic, &config.definition);
        self.outbox.queues.set_channel(channel.0, config);
        self.announce(now, channel.0);
        Ok(())
    }

    /// Closes a channel to the peer and drops its queued messages. Returns its last counters.
    pub(crate) fn withdraw(&mut self, now: Instant, channel: ChannelId) -> Option<OutStats> {
        let last = self.outbox.close_channel(channel.0)?;
        self.sent_definitions.remove(&channel.0);
        self.send_control(now, &Control::Withdraw { channel: channel.0 });
        Some(last)
    }

    /// Subscribes to a channel that the peer offered, or ends the subscription.
    pub(crate) fn want(&mut self, now: Instant, channel: ChannelId, wanted: bool) {
        let Some(open) = self.inbox.channel_mut(channel.0) else { return };
        if std::mem::replace(&mut open.wanted, wanted) != wanted {
            if !wanted {
                self.inbox.drop_unwanted(channel.0);
            }
            self.send_control(now, &Control::Want { channel: channel.0, wanted });
        }
    }

    /// Refuses a channel that the peer offered. A peer that does not acknowledge earlier control messages is
    /// not notified: otherwise each of its messages might queue another refusal.
    pub(crate) fn refuse(&mut self, now: Instant, channel: ChannelId, reason: String) {
        if self.outbox.queues.control_backlog() < limits::CONTROL_BACKLOG {
            self.send_control(now, &Control::Refuse { channel: channel.0, reason });
        }
    }

    /// Queues a message on a channel to which the peer is subscribed. `rate_bps`: the rate of its links.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context,
        now: Instant,
        rate_bps: Option<u64>,
        channel: ChannelId,
        message: Message,
    ) -> Result<(), SendError> {
        let done = self.outbox.accept(now, &cx.config, rate_bps, channel.0, message);
        self.arm_expiry(cx, now);
        done
    }

    /// Emits the offer of a channel again, as if it had just arrived.
    pub(crate) fn repeat_offer(&mut self, cx: &mut Context, now: Instant, channel: ChannelId) {
        let known = self.inbox.channel(channel.0).map(|open| open.topic.clone());
        if let Some(topic) = known {
            self.resolve_definition(cx, now, channel.0, topic);
        }
    }
}

/// Control messages to the peer.
impl Channels {
    /// Queues the offer of a channel, if there is a session.
    fn announce(&mut self, now: Instant, channel: u64) {
        let Some(config) = self.outbox.queues.config(channel) else { return };
        let topic = config.topic.clone();
        self.sent_definitions.remove(&channel);
        self.send_control(now, &Control::Offer(Offer { channel, topic }));
    }

    /// Queues a control message, if there is a session.
    fn send_control(&mut self, now: Instant, control: &Control) {
        if self.is_open {
            self.outbox.queues.accept_control(now, control.emit());
        }
    }
}

/// Frames with messages.
impl Channels {
    pub(crate) fn handle_data(
        &mut self,
        cx: &mut Context,
        name: &str,
        (now, transit): (Instant, Transit),
        data: &Data,
        bytes: &[u8],
    ) {
        let taken = self.inbox.handle_data(now, transit, data, bytes);
        self.apply_frame_effect(cx, name, now, ChannelId(data.channel), taken);
        let recovered = self.inbox.add_to_fec_block(now, transit, data, bytes);
        self.handle_recovered(cx, name, now, data.channel, &recovered);
        self.after_fragment(cx, now);
    }

    pub(crate) fn handle_parity(
        &mut self,
        cx: &mut Context,
        name: &str,
        (now, transit): (Instant, Transit),
        data: &Data,
        bytes: &[u8],
    ) {
        match self.inbox.handle_parity(now, transit, data, bytes) {
            Ok(recovered) => self.handle_recovered(cx, name, now, data.channel, &recovered),
            Err(reason) => cx.refused.add(reason),
        }
        self.after_fragment(cx, now);
    }

    /// Takes a fragment of a relayed packet. Returns the packet if it is complete. The endpoint then handles
    /// it and calls [`Self::after_fragment`].
    pub(crate) fn handle_relayed(
        &mut self,
        cx: &mut Context,
        name: &str,
        (now, transit): (Instant, Transit),
        data: &Data,
        bytes: &[u8],
    ) -> Option<Received> {
        let taken = self.inbox.handle_relayed(now, transit, data, bytes);
        if let FrameEffect::Message(packet) = taken {
            return Some(packet);
        }
        self.apply_frame_effect(cx, name, now, ChannelId(data.channel), taken);
        self.after_fragment(cx, now);
        None
    }

    /// Finishes the handling of a fragment, after a message that it completes was handled.
    pub(crate) fn after_fragment(&mut self, cx: &mut Context, now: Instant) {
        self.arm_partials(cx, now);
        self.deliver_ready(cx, now);
    }

    fn handle_recovered(
        &mut self,
        cx: &mut Context,
        name: &str,
        now: Instant,
        channel: u64,
        recovered: &[RecoveredFrame],
    ) {
        for frame in recovered {
            match self.inbox.handle_recovered(now, channel, frame) {
                Ok(taken) => self.apply_frame_effect(cx, name, now, ChannelId(channel), taken),
                Err(reason) => cx.refused.add(reason),
            }
        }
    }

    fn apply_frame_effect(
        &mut self,
        cx: &mut Context,
        name: &str,
        now: Instant,
        channel: ChannelId,
        taken: FrameEffect,
    ) {
        match taken {
            FrameEffect::Nothing => {}
            FrameEffect::Message(message) => {
                cx.emit(self.peer, Event::Message { peer: self.peer, channel, message });
            }
            FrameEffect::Control(messages) => {
                for bytes in messages {
                    // Messages that were held for a missing one, or that share a packet, may need
                    // more tokens than there are.
                    self.control_limit.charge(now);
                    match Control::parse(&bytes) {
                        Ok(control) => self.handle_control(cx, now, control),
                        Err(_) => cx.refused.add(RefusedPacket::Malformed),
                    }
                }
            }
            FrameEffect::UnknownChannel => cx.refused.add(RefusedPacket::UnknownChannel),
            FrameEffect::Bound => cx.refused.add(RefusedPacket::Bound),
            FrameEffect::TooLarge(found) => self.report_too_large(cx, name, now, channel, found),
        }
    }

    /// Delivers the messages that wait for no earlier one any more.
    fn deliver_ready(&mut self, cx: &mut Context, now: Instant) {
        let peer = self.peer;
        while let Some((channel, message)) = self.inbox.next_ready(now) {
            cx.emit(peer, Event::Message { peer, channel: ChannelId(channel), message });
        }
        cx.timers.set(Timer::Order(peer), self.inbox.next_wait_deadline());
    }

    /// Reports a message that is larger than this node allows, both locally and to its sender. The
    /// sender receives a report for the 1st, 2nd, 4th, 8th ... such message of each channel.
    fn report_too_large(
        &mut self,
        cx: &mut Context,
        name: &str,
        now: Instant,
        channel: ChannelId,
        found: usize,
    ) {
        let allowed = cx.config.max_message;
        let Some(open) = self.inbox.channel(channel.0) else { return };
        let (topic, count) =
            (open.topic.name.clone(), open.stats.dropped.get(DropReason::TooLarge));
        if count.is_power_of_two() {
            let here = &cx.config.name;
            self.refuse(now, channel, too_large::reason(&topic, found, allowed, here));
        }
        cx.emit_notice(Notice::TooLarge { peer: name.to_owned(), topic, found, allowed });
    }
}

/// Control messages of the peer.
impl Channels {
    fn handle_control(&mut self, cx: &mut Context, now: Instant, control: Control) {
        let peer = self.peer;
        if self.is_member {
            // A relay has no topics for its members, and stores no topics of theirs.
            return;
        }
        let needs_reply = matches!(control, Control::Offer(_) | Control::GetDefinition { .. });
        if needs_reply && self.outbox.queues.control_backlog() >= limits::CONTROL_BACKLOG {
            return cx.refused.add(RefusedPacket::Bound);
        }
        match control {
            Control::Offer(offer) => self.handle_offer(cx, now, offer),
            Control::Withdraw { channel } => {
                self.awaiting_definition.remove(&channel);
                self.inbox.release_waiting(Some(channel));
                self.deliver_ready(cx, now);
                if self.inbox.withdraw(channel) {
                    self.definitions.topic_removed();
                    cx.emit(peer, Event::Withdrawn { peer, channel: ChannelId(channel) });
                }
            }
            Control::Want { channel, wanted } => {
                if self.outbox.set_wanted(channel, wanted) {
                    cx.emit(peer, Event::Wanted { peer, channel: ChannelId(channel), wanted });
                }
            }
            Control::GetDefinition { channel } => {
                if let Some(config) = self.outbox.queues.config(channel) {
                    if !self.sent_definitions.insert(channel) {
                        return cx.refused.add(RefusedPacket::Bound);
                    }
                    let text = config.definition.to_string();
                    self.send_control(now, &Control::Definition { channel, text });
                }
            }
            Control::Definition { channel, text } => self.handle_definition(cx, channel, text),
            Control::Refuse { channel, reason } => {
                cx.emit(peer, Event::Refused { peer, channel: ChannelId(channel), reason });
            }
            Control::Unknown(_) => {}
        }
    }

    fn handle_offer(&mut self, cx: &mut Context, now: Instant, offer: Offer) {
        let known = self.inbox.channel(offer.channel).is_some();
        if !known && self.inbox.open_channels() >= MAX_CHANNELS {
            return cx.refused.add(RefusedPacket::Bound);
        }
        if self.inbox.set_offer(offer.channel, offer.topic.clone()) {
            if known {
                self.definitions.topic_removed();
                self.deliver_ready(cx, now);
            }
            self.resolve_definition(cx, now, offer.channel, offer.topic);
        }
    }

    fn resolve_definition(
        &mut self,
        cx: &mut Context,
        now: Instant,
        channel: u64,
        topic: OfferedTopic,
    ) {
        let peer = self.peer;
        let known = cx.definitions.get(&topic).or_else(|| self.definitions.get(&topic));
        if let Some(definition) = known {
            let channel = ChannelId(channel);
            return cx.emit(peer, Event::Offered { peer, channel, topic, definition });
        }
        if self.awaiting_definition.insert(channel) {
            self.send_control(now, &Control::GetDefinition { channel });
        }
    }

    fn handle_definition(&mut self, cx: &mut Context, channel: u64, text: String) {
        if !self.awaiting_definition.remove(&channel) {
            return;
        }
        let Some(open) = self.inbox.channel(channel) else { return };
        let topic = open.topic.clone();
        let mut definition: Arc<str> = text.into();
        if !self.definitions.insert(&topic, &definition) {
            let offered = self.inbox.topics().map(|(_, channel)| &channel.topic);
            self.definitions.retain_used(offered);
            if !self.definitions.insert(&topic, &definition) {
                cx.refused.add(RefusedPacket::Bound);
                definition = "".into();
            }
        }
        let (peer, channel) = (self.peer, ChannelId(channel));
        cx.emit(peer, Event::Offered { peer, channel, topic, definition });
    }
}

/// Timers.
impl Channels {
    pub(crate) fn arm_expiry(&mut self, cx: &mut Context, now: Instant) {
        let mut at = self.outbox.next_expiry();
        if self.outbox.waits_for_budget() {
            at = Some(at.map_or(now + REPAIR_POLL, |at| at.min(now + REPAIR_POLL)));
            cx.push_request(Request::IdleRate(self.peer));
        } else {
            self.outbox.repairs.set_idle(now, None);
        }
        cx.timers.set(Timer::Expiry(self.peer), at);
    }

    fn arm_partials(&mut self, cx: &mut Context, now: Instant) {
        let timer = Timer::Reassembly(self.peer);
        if self.inbox.has_partials() && !cx.timers.is_set(&timer) {
            cx.timers.set(timer, Some(now + PARTIAL_CHECK));
        }
    }

    pub(crate) fn on_expiry_timer(&mut self, cx: &mut Context, now: Instant) {
        self.outbox.expire(now);
        self.arm_expiry(cx, now);
    }

    pub(crate) fn on_partials_timer(&mut self, cx: &mut Context, now: Instant) {
        self.inbox.expire(now);
        self.after_fragment(cx, now);
    }

    pub(crate) fn on_order_timer(&mut self, cx: &mut Context, now: Instant) {
        self.inbox.end_waits(now);
        self.deliver_ready(cx, now);
    }
}

fn check_texts(config: &ChannelConfig) -> Result<(), OfferError> {
    let topic = &config.topic;
    let texts = [
        ("the topic's name", topic.name.len(), MAX_TEXT),
        ("the type's name", topic.type_name.len(), MAX_TEXT),
        ("the type's hash", topic.type_hash.len(), MAX_TEXT),
        ("the type's definition", config.definition.len(), MAX_DEFINITION),
    ];
    match texts.into_iter().find(|(_, found, allowed)| found > allowed) {
        Some((what, found, allowed)) => Err(OfferError::TooLong { what, found, allowed }),
        None => Ok(()),
    }
}
