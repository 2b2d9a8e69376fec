// SPDX-License-Identifier: Apache-2.0
//! One other node: the session with it and what waits in either direction.

use crate::config::Config;
use crate::endpoint::LinkId;
use crate::receive::Inbox;
use crate::reliable::Arrivals;
use crate::schedule::Outbox;
use crate::time::Instant;
use crate::wire::control::Control;
use crate::wire::packet::Hello;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of a session that both ends agreed on, or are about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionIds {
    /// On packets to us.
    pub(crate) local: u32,
    /// On packets to the peer; 0 while unknown.
    pub(crate) remote: u32,
    /// Drawn by the peer when it started.
    pub(crate) remote_epoch: u64,
}

/// What a hello means for the session with its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// The session it names goes on; answer it if the sender does not know our number.
    Known { answer: bool },
    /// Both ends now know both numbers of a new session.
    Established(SessionIds),
    /// The sender has to show that it receives our answer before anything changes.
    Challenge(SessionIds),
    /// It answers what this node never asked.
    Stale,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) links: Vec<LinkId>,
    pub(crate) session: SessionIds,
    /// Our number in the session after the established one, once a peer has asked for one.
    next_local: Option<u32>,
    pub(crate) up: bool,
    pub(crate) goodbye_now: bool,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
    /// By the peer's number of the link.
    pub(crate) arrivals: BTreeMap<u8, Arrivals>,
    next_channel: u64,
    /// Channels whose definition was asked for.
    pub(crate) awaiting_definition: BTreeSet<u64>,
    /// Our channels whose definition the peer was given since they were announced.
    pub(crate) defined: BTreeSet<u64>,
}

impl Peer {
    pub(crate) fn new(name: &str, local_session: u32, config: &Config) -> Self {
        Self {
            name: name.to_owned(),
            links: Vec::new(),
            session: SessionIds { local: local_session, remote: 0, remote_epoch: 0 },
            next_local: None,
            up: false,
            goodbye_now: false,
            outbox: Outbox::new(config.repair_percent),
            inbox: Inbox::new(config.max_message, config.reassembly_bytes),
            arrivals: BTreeMap::new(),
            next_channel: 1,
            awaiting_definition: BTreeSet::new(),
            defined: BTreeSet::new(),
        }
    }

    pub(crate) fn draw_channel(&mut self) -> u64 {
        self.next_channel += 1;
        self.next_channel - 1
    }

    /// Judges a hello; `fresh` is a session number not in use.
    pub(crate) fn greet(&mut self, hello: &Hello<'_>, fresh: u32) -> Greeting {
        let local = self.session.local;
        let theirs = |local| SessionIds { local, remote: hello.session, remote_epoch: hello.epoch };
        if self.session == theirs(local) {
            return Greeting::Known { answer: hello.your_session != local };
        }
        if self.session.remote == 0 {
            let echoed = hello.your_session == local;
            let ids = theirs(local);
            return if echoed { Greeting::Established(ids) } else { Greeting::Challenge(ids) };
        }
        // The established session stands until the sender has echoed our next
        // number: a delayed hello of an earlier life must not end it. The number
        // stays until it is used, lest two nodes chase each other's newest.
        let next = *self.next_local.get_or_insert(fresh);
        if hello.your_session == next {
            return Greeting::Established(theirs(next));
        }
        // While the session is alive, only a new life of the peer needs another; what
        // echoes a number that is not ours answers such a delayed hello.
        let new_life = hello.epoch != self.session.remote_epoch;
        let plausible = new_life && [0, local].contains(&hello.your_session);
        if plausible || !self.up { Greeting::Challenge(theirs(next)) } else { Greeting::Stale }
    }

    /// Starts a new session: everything agreed or under way in the old one is over.
    pub(crate) fn start_session(&mut self, now: Instant, ids: SessionIds, config: &Config) {
        self.session = ids;
        self.next_local = None;
        self.arrivals.clear();
        self.awaiting_definition.clear();
        self.defined.clear();
        self.inbox = Inbox::new(config.max_message, config.reassembly_bytes);
        self.outbox.restart(config.repair_percent);
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
        if self.session.remote != 0 {
            self.outbox.accept_control(now, control.emit());
        }
    }
}
