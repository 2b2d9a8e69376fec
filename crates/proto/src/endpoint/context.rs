// SPDX-License-Identifier: Apache-2.0
//! What a peer needs from outside: configuration, randomness, timers, and queues for its requests and events.

use crate::config::Config;
use crate::crypto::keys::{KEY, PublicKey};
use crate::delivery::definitions::Definitions;
use crate::delivery::inbox::Received;
use crate::endpoint::arrival::ReturnPath;
use crate::endpoint::events::{Event, Events, Notice};
use crate::endpoint::timer::{Timer, TimerTable};
use crate::ids::{LinkId, PeerId, RadioId};
use crate::stats::RefusedPackets;
use crate::time::Instant;
use crate::wire::address::Candidates;
use crate::wire::relay::{Held, ShortName};
use std::collections::VecDeque;

/// Maximum bytes of remembered definitions of the application's own topics.
const MAX_DEFINITIONS_BYTES: usize = 16 << 20;
/// Maximum number of queued responses, cookie replies and ECHO packets.
const MAX_REPLIES: usize = 64;

/// Buffers of datagrams that were sent, for reuse by later datagrams.
#[derive(Debug, Default)]
pub(crate) struct SpareDatagrams(Vec<Vec<u8>>);

impl SpareDatagrams {
    /// Maximum number of buffers kept: the number of packets that leave in one system call.
    const MAX: usize = 64;

    /// Returns an empty buffer of at least `capacity` bytes.
    pub(crate) fn take(&mut self, capacity: usize) -> Vec<u8> {
        let spare = self.0.pop().filter(|spare| spare.capacity() >= capacity);
        spare.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    pub(crate) fn put(&mut self, mut datagram: Vec<u8>) {
        if self.0.len() < Self::MAX {
            datagram.clear();
            self.0.push(datagram);
        }
    }
}

/// What a peer asks of the endpoint, because it concerns other peers or radios.
#[derive(Debug)]
pub(crate) enum Request {
    /// Forward or receive a relayed packet of this priority that arrived by this radio.
    Relay { hop: PeerId, radio: RadioId, priority: u8, packet: Received },
    /// Apply a backlog report of a neighbour.
    Backlog { hop: PeerId, held: Held },
    /// No link leads directly to the peer any more.
    ForgetRoutes(PeerId),
    /// Messages wait for repair budget: set the rate of the peer's links that is left for repairs.
    IdleRate(PeerId),
    /// Report the available rate of a link, if it has changed enough.
    AvailableRate(LinkId),
    /// The peer names addresses at which it may be reached.
    Candidates { peer: PeerId, candidates: Candidates },
    /// The peer has reported the address at which it sees this node: direct paths to peers behind the peer
    /// may be sought.
    SeekDirectPaths(PeerId),
    /// A goodbye was sent or received.
    EndSession { peer: PeerId, said_goodbye: bool },
}

/// The state of this node that all its peers share.
pub(crate) struct Context {
    pub(crate) config: Config,
    random: Box<dyn FnMut() -> u64 + Send>,
    /// Our public key. It is stored because deriving it takes as long as handling many packets.
    pub(crate) public: PublicKey,
    pub(crate) short_name: ShortName,
    pub(crate) timers: TimerTable<Timer>,
    pub(crate) events: Events,
    /// Responses, cookie replies and echoes, with the addresses to which they go.
    pub(crate) replies: VecDeque<(ReturnPath, Vec<u8>)>,
    pub(crate) requests: VecDeque<Request>,
    /// Definitions of the application's own topics.
    pub(crate) definitions: Definitions,
    pub(crate) refused: RefusedPackets,
    /// The peer to which the packet being handled belongs.
    pub(crate) authenticated_peer: Option<PeerId>,
    pub(crate) spare_datagrams: SpareDatagrams,
    /// Our time of day at the origin of `Instant`, in microseconds since 1970.
    wall_origin: Option<i64>,
    /// The latest time that the caller has given.
    pub(crate) clock_now: Instant,
}

impl Context {
    pub(crate) fn new(config: Config, random: Box<dyn FnMut() -> u64 + Send>) -> Self {
        let public = config.key.public();
        Self {
            config,
            random,
            public,
            short_name: public.short_name(),
            timers: TimerTable::new(),
            events: Events::default(),
            replies: VecDeque::new(),
            requests: VecDeque::new(),
            definitions: Definitions::new(MAX_DEFINITIONS_BYTES),
            refused: RefusedPackets::default(),
            authenticated_peer: None,
            spare_datagrams: SpareDatagrams::default(),
            wall_origin: None,
            clock_now: Instant::default(),
        }
    }

    /// Sets the time of day, in microseconds since 1970.
    pub(crate) fn set_wall(&mut self, now: Instant, wall_us: i64) {
        self.wall_origin = Some(wall_us.saturating_sub((now.0 / 1000) as i64));
    }

    /// Our time of day.
    pub(crate) fn wall_clock_us(&self, now: Instant) -> Option<i64> {
        Some(self.wall_origin?.saturating_add((now.0 / 1000) as i64))
    }

    pub(crate) fn draw_token(&mut self) -> u64 {
        (self.random)()
    }

    pub(crate) fn draw_key(&mut self) -> [u8; KEY] {
        let mut key = [0; KEY];
        key.chunks_exact_mut(8)
            .for_each(|part| part.copy_from_slice(&(self.random)().to_le_bytes()));
        key
    }

    /// Queues an event of a peer for the application.
    pub(crate) fn emit(&mut self, peer: PeerId, event: Event) {
        self.events.push(Some(peer), event);
    }

    /// Emits a notice, unless the event queue is full.
    pub(crate) fn emit_notice(&mut self, notice: Notice) {
        if self.events.has_room(self.authenticated_peer) {
            self.events.push(self.authenticated_peer, Event::Notice(notice));
        }
    }

    /// Queues a reply to the sender of a packet, at the address from which the packet came.
    pub(crate) fn reply(&mut self, to: ReturnPath, datagram: Option<Vec<u8>>) {
        if let Some(datagram) = datagram.filter(|_| self.replies.len() < MAX_REPLIES) {
            // A reply replaces an older one to the same address: the older reply's state is
            // outdated.
            let address = |it: &ReturnPath| (it.radio, it.remote);
            self.replies.retain(|(other, _)| address(other) != address(&to));
            self.replies.push_back((to, datagram));
        }
    }

    /// Asks the endpoint for something that concerns other peers or radios.
    pub(crate) fn push_request(&mut self, request: Request) {
        self.requests.push_back(request);
    }
}
