// SPDX-License-Identifier: Apache-2.0
//! The state of one peer: its session, and the messages in both directions.

use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::config::Config;
use crate::crypto::keys::PublicKey;
use crate::delivery::definitions::Definitions;
use crate::delivery::inbox::{Inbox, Transit};
use crate::delivery::outbox::{Flow, Outbox};
use crate::endpoint::relay::{BacklogReport, Rights};
use crate::endpoint::rendezvous::Rendezvous;
use crate::endpoint::teams::TeamId;
use crate::ids::LinkId;
use crate::limits;
use crate::path::select::Forecasts;
use crate::recovery::received::ReceivedPackets;
use crate::session::Session;
use crate::time::{Duration, Instant};
use crate::wire::control::Control;
use crate::wire::relay::ShortName;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// Links in order of preference.
    pub(crate) links: Vec<LinkId>,
    /// Removed links. The next links continue their packet numbers, so that no number is used twice
    /// under one key.
    pub(crate) retired: Vec<LinkId>,
    /// The peer was removed; the next one may take its place.
    pub(crate) removed: bool,
    pub(crate) short_name: ShortName,
    /// The team of a relay that it belongs to.
    pub(crate) team: Option<TeamId>,
    pub(crate) session: Session,
    pub(crate) up: bool,
    pub(crate) clock: Clock,
    pub(crate) rights: Rights,
    /// Relay backlog reports to this peer.
    pub(crate) backlog_reports: BTreeMap<Flow, BacklogReport>,
    /// When idle relay routes from this peer were last removed.
    pub(crate) routes_swept_at: Option<Instant>,
    pub(crate) goodbye_now: bool,
    /// A goodbye of this peer is being handled.
    pub(crate) said_goodbye: bool,
    pub(crate) outbox: Outbox,
    pub(crate) forecasts: Forecasts,
    pub(crate) inbox: Inbox,
    /// By the peer's link number.
    pub(crate) received_packets: BTreeMap<u8, ReceivedPackets>,
    pub(crate) next_channel: u64,
    /// Channels for whose definition this node has asked.
    pub(crate) awaiting_definition: BTreeSet<u64>,
    /// Channels to the peer whose definition was sent since their last offer.
    pub(crate) defined: BTreeSet<u64>,
    /// Definitions from this peer.
    pub(crate) definitions: Definitions,
    /// Limit of control messages from the peer, across sessions.
    pub(crate) control: Bucket,
    /// Limit of packets of control messages to the peer that precede what other peers are sent.
    pub(crate) control_first: Bucket,
    /// Limit of challenges of the peer that are echoed.
    pub(crate) echoes: Bucket,
    /// Limit of probes of path MTUs to the peer.
    pub(crate) mtu_probes: Bucket,
    pub(crate) rendezvous: Rendezvous,
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
            removed: false,
            short_name: key.short_name(),
            team: None,
            session: Session::new(own, key, epoch),
            up: false,
            clock: Clock::default(),
            rights: Rights::default(),
            backlog_reports: BTreeMap::new(),
            routes_swept_at: None,
            goodbye_now: false,
            said_goodbye: false,
            outbox: Outbox::new(config.repair_percent),
            forecasts: Forecasts::default(),
            inbox: Inbox::new(config.max_message, config.reassembly_bytes),
            received_packets: BTreeMap::new(),
            next_channel: 1,
            awaiting_definition: BTreeSet::new(),
            defined: BTreeSet::new(),
            definitions: Definitions::new(limits::DEFINITIONS_BYTES),
            control: Bucket::new(limits::CONTROL_MESSAGES),
            control_first: Bucket::new(limits::CONTROL_FIRST),
            echoes: Bucket::new(limits::ECHOES),
            mtu_probes: Bucket::new(limits::MTU_PROBES),
            rendezvous: Rendezvous::new(),
        }
    }

    pub(crate) fn draw_channel(&mut self) -> u64 {
        self.next_channel += 1;
        self.next_channel - 1
    }

    /// Discards all state of a session.
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

    /// The time that a packet was on the path. A packet that was queued far away is older than half a
    /// round trip. After a time of load, half the smoothed round trip exceeds the delay of the path, and
    /// fresh messages would expire. The clocks bound the assumption on both sides.
    pub(crate) fn transit(
        &mut self,
        now: Instant,
        clock: Option<u32>,
        rtt: Duration,
        relayed_age: Option<Duration>,
    ) -> Transit {
        let measured = clock.and_then(|clock| self.clock.transit(now, clock));
        let range = clock.and_then(|clock| self.clock.transit_range(now, clock));
        let (least, most) = range.unwrap_or((Duration::ZERO, Duration::MAX));
        let assumed = relayed_age.unwrap_or((rtt / 2).min(most)).max(least);
        Transit { assumed, measured: relayed_age.or(measured) }
    }

    /// Queues the offer of a channel, if there is a session.
    pub(crate) fn announce(&mut self, now: Instant, channel: u64) {
        let Some(config) = self.outbox.config(channel) else { return };
        let topic = config.topic.clone();
        self.defined.remove(&channel);
        self.send_control(now, &Control::Offer(crate::wire::control::Offer { channel, topic }));
    }

    /// Queues a control message, if there is a session.
    pub(crate) fn send_control(&mut self, now: Instant, control: &Control) {
        if self.session.is_established() {
            self.outbox.accept_control(now, control.emit());
        }
    }
}
