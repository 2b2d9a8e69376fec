// SPDX-License-Identifier: Apache-2.0
//! One other node: the session with it and what waits in either direction.

use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::config::Config;
use crate::crypto::keys::PublicKey;
use crate::delivery::definitions::Definitions;
use crate::delivery::inbox::Inbox;
use crate::delivery::outbox::{Flow, Outbox};
use crate::endpoint::relay::{BacklogReport, Rights};
use crate::ids::LinkId;
use crate::limits;
use crate::recovery::received::ReceivedPackets;
use crate::session::Session;
use crate::time::Instant;
use crate::wire::control::Control;
use crate::wire::relay::ShortName;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// In the order in which they are preferred.
    pub(crate) links: Vec<LinkId>,
    /// Links that were removed. Their numbers go on with the next links: a packet number is
    /// never used twice under one key.
    pub(crate) retired: Vec<LinkId>,
    /// The peer was removed; the next one added may have its place.
    pub(crate) gone: bool,
    pub(crate) short_name: ShortName,
    pub(crate) session: Session,
    pub(crate) up: bool,
    pub(crate) clock: Clock,
    pub(crate) rights: Rights,
    /// What it is told of its packets for others that wait here.
    pub(crate) backlog_reports: BTreeMap<Flow, BacklogReport>,
    pub(crate) goodbye_now: bool,
    /// Its goodbye is what takes its links down now.
    pub(crate) said_goodbye: bool,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
    /// By the peer's number of the link.
    pub(crate) received_packets: BTreeMap<u8, ReceivedPackets>,
    pub(crate) next_channel: u64,
    /// Channels whose definition was asked for.
    pub(crate) awaiting_definition: BTreeSet<u64>,
    /// Our channels whose definition the peer was given since they were announced.
    pub(crate) defined: BTreeSet<u64>,
    /// Definitions that it supplied.
    pub(crate) definitions: Definitions,
    /// What it may still have handled of control messages; lasts over sessions.
    pub(crate) control: Bucket,
    /// Packets of control messages to it that may still go before what others are sent.
    pub(crate) control_first: Bucket,
    /// Challenges of it that may still be echoed.
    pub(crate) echoes: Bucket,
}

impl Peer {
    pub(crate) fn new(
        name: &str,
        (key, own): (PublicKey, PublicKey),
        epoch: u64,
        config: &Config,
    ) -> Self {
        Self {
            name: name.to_owned(),
            links: Vec::new(),
            retired: Vec::new(),
            gone: false,
            short_name: key.short_name(),
            session: Session::new(own, key, epoch),
            up: false,
            clock: Clock::default(),
            rights: Rights::default(),
            backlog_reports: BTreeMap::new(),
            goodbye_now: false,
            said_goodbye: false,
            outbox: Outbox::new(config.repair_percent),
            inbox: Inbox::new(config.max_message, config.reassembly_bytes),
            received_packets: BTreeMap::new(),
            next_channel: 1,
            awaiting_definition: BTreeSet::new(),
            defined: BTreeSet::new(),
            definitions: Definitions::new(limits::DEFINITIONS_BYTES),
            control: Bucket::new(limits::CONTROL_MESSAGES),
            control_first: Bucket::new(limits::CONTROL_FIRST),
            echoes: Bucket::new(limits::ECHOES),
        }
    }

    pub(crate) fn draw_channel(&mut self) -> u64 {
        self.next_channel += 1;
        self.next_channel - 1
    }

    /// Everything agreed or under way in a session is over.
    pub(crate) fn end_session(&mut self, config: &Config) {
        self.received_packets.clear();
        self.clock = Clock::default();
        self.backlog_reports.clear();
        self.awaiting_definition.clear();
        self.defined.clear();
        self.inbox = Inbox::new(config.max_message, config.reassembly_bytes);
        self.definitions = Definitions::new(limits::DEFINITIONS_BYTES);
        self.outbox.restart(config.repair_percent);
    }

    /// Offers all channels in a new session.
    pub(crate) fn announce_all(&mut self, now: Instant) {
        let channels: Vec<_> = self.outbox.channels().collect();
        for channel in channels {
            self.announce(now, channel);
        }
    }

    /// Queues the offer of a channel, if there is a session.
    pub(crate) fn announce(&mut self, now: Instant, channel: u64) {
        let Some(config) = self.outbox.config(channel) else { return };
        let topic = config.topic.clone();
        self.defined.remove(&channel);
        self.tell(now, &Control::Offer(crate::wire::control::Offer { channel, topic }));
    }

    /// Queues one of the session's own messages, if there is a session.
    pub(crate) fn tell(&mut self, now: Instant, control: &Control) {
        if self.session.is_established() {
            self.outbox.accept_control(now, control.emit());
        }
    }
}
