// SPDX-License-Identifier: Apache-2.0
//! Topics without publishers: a topic is withdrawn from its peers once they have its last messages.
//! A publisher that exits immediately after its last message thus loses nothing.

use super::{Exports, LocalTopic};
use crate::codec::job::Job;
use crate::topics::context::Context;
use crate::topics::message::Change;
use tautline_gateway::Command;
use tautline_proto::{ChannelId, PeerId};

/// Why a topic without publishers is not withdrawn yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Departure {
    /// Messages may be in the codec, until the [`Change::Withdrawal`] with this number has passed it.
    Encoding(u64),
    /// Messages may be queued, or sent with unknown outcome.
    Sending,
}

impl Departure {
    /// Notes that all messages before the departure with this number have passed the codec.
    pub(super) fn on_encoded(&mut self, number: u64) {
        if *self == Self::Encoding(number) {
            *self = Self::Sending;
        }
    }
}

impl Exports {
    /// Notes that the last publisher of a topic has left.
    pub(super) fn begin_departure(&mut self, cx: &mut Context<'_>, topic: String) {
        let Some(local) = self.topics.get_mut(&topic) else { return };
        if self.departures.contains_key(&topic) {
            return;
        }
        let was_read = local.is_read();
        // If publishers return, they repeat what they keep.
        local.forget_latched();
        (local.is_own, local.has_other_publishers, local.unwanted_since) = (false, false, None);
        let departure = if local.uses_codec() {
            self.last_departure += 1;
            cx.submit_job(Job::Change(Change::Withdrawal(topic.clone(), self.last_departure)));
            Departure::Encoding(self.last_departure)
        } else {
            Departure::Sending
        };
        self.departures.insert(topic.clone(), departure);
        if was_read {
            cx.send_to_gateway(Command::Unsubscribe { topic });
        }
        self.end_departures(cx);
    }

    /// Withdraws the departed topics whose last messages have arrived or were dropped.
    pub(crate) fn end_departures(&mut self, cx: &mut Context<'_>) {
        let is_sent = |name: &String| {
            let mut channels = self.topics.get(name).into_iter().flat_map(LocalTopic::keys);
            !channels.any(|key| cx.has_pending_messages(key.peer, key.channel))
        };
        let sending = self.departures.iter().filter(|(_, it)| **it == Departure::Sending);
        let ended: Vec<String> =
            sending.map(|(name, _)| name).filter(|it| is_sent(it)).cloned().collect();
        ended.into_iter().for_each(|name| self.on_withdrawn(cx, name));
    }
}

impl Context<'_> {
    /// Whether a channel has messages pending for a peer that is not given up.
    pub(crate) fn has_pending_messages(&self, peer: PeerId, channel: ChannelId) -> bool {
        !self.peers.is_given_up(peer) && self.endpoint.peer(peer).pending(channel).next().is_some()
    }
}
