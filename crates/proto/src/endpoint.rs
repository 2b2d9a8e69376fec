// SPDX-License-Identifier: Apache-2.0
//! The state machine of one node. See the crate's documentation for the contract.

use crate::config::{
    ChannelConfig, Config, LinkConfig, MAX_CHANNELS, MAX_LINKS_PER_PEER, MIN_DATAGRAM,
    RadioConfig,
};
use crate::error::{OfferError, SendError, SetupError};
use crate::link::Link;
use crate::peer::{Greeting, Peer, SessionIds};
use crate::radio::Radio;
use crate::receive::{PARTIAL_TIMEOUT, Received, Taken};
use crate::reliable::{Arrivals, Outcome};
use crate::schedule::Message;
use crate::stats::{InStats, LinkStats, OutStats, RefusedPacket, RefusedPackets};
use crate::time::{Duration, Instant};
use crate::timer::TimerTable;
use crate::wire::control::{Control, MAX_DEFINITION, MAX_TEXT, OfferedTopic};
use crate::wire::cursor::Reader;
use crate::wire::frame::{Ack, Frame};
use crate::wire::packet::{
    Hello, MAX_NAME, Packet, Refusal, RefusalReason, SessionHeader, full_number,
};
use crate::wire::{VERSION, WireError};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// Definitions kept so that they need not be asked for again, in bytes.
const MAX_DEFINITIONS_BYTES: usize = 16 << 20;
/// Answers to strangers that may wait to be sent.
const MAX_REPLIES: usize = 64;
/// The session's own messages that may wait for a peer while it still gets answers:
/// an offer, a question, a definition and a wish for each channel, twice over.
const MAX_CONTROL_BACKLOG: u64 = 8 * MAX_CHANNELS as u64;
/// How often messages that only wait for repair budget are looked at.
const REPAIR_POLL: Duration = Duration::from_millis(20);

/// A peer of this endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);
/// A link of this endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);
/// A radio of this endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RadioId(pub u32);
/// A channel to or from one peer, numbered by its sender, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u64);

/// Something the application should know. Drain with [`Endpoint::poll_event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The first link to the peer came up.
    PeerUp {
        /// Which.
        peer: PeerId,
        /// The session is new: its earlier channels to us are gone until offered again.
        new_session: bool,
    },
    /// The last link to the peer went down, or it said goodbye.
    PeerDown {
        /// Which.
        peer: PeerId,
    },
    /// A link came up.
    LinkUp {
        /// Which.
        link: LinkId,
    },
    /// A link went down.
    LinkDown {
        /// Which.
        link: LinkId,
    },
    /// The peer has a topic, or changed it.
    Offered {
        /// Who.
        peer: PeerId,
        /// Number to want it by.
        channel: ChannelId,
        /// What it is.
        topic: OfferedTopic,
        /// Definition of its type.
        definition: Arc<str>,
    },
    /// The peer has the topic no more.
    Withdrawn {
        /// Who.
        peer: PeerId,
        /// Its number.
        channel: ChannelId,
    },
    /// Whether the peer wants a channel offered to it.
    Wanted {
        /// Who.
        peer: PeerId,
        /// Its number.
        channel: ChannelId,
        /// Send, or stop.
        wanted: bool,
    },
    /// The peer cannot take a channel offered to it.
    Refused {
        /// Who.
        peer: PeerId,
        /// Its number.
        channel: ChannelId,
        /// For a person.
        reason: String,
    },
    /// A message arrived whole.
    Message {
        /// From whom.
        peer: PeerId,
        /// On which channel.
        channel: ChannelId,
        /// The message.
        message: Received,
    },
    /// Something a person should look at.
    Notice(Notice),
}

/// Something a person should look at: a fault in how the nodes are set up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A node that is not among the peers calls.
    UnknownPeer {
        /// Its name.
        name: String,
        /// Where it calls from.
        from: SocketAddr,
    },
    /// A node speaks another version of the format.
    Version {
        /// Its name.
        name: String,
        /// Where it calls from.
        from: SocketAddr,
        /// Its version.
        theirs: u8,
        /// Ours.
        ours: u8,
    },
    /// A second node of a peer's name, or of our own, calls.
    NameTaken {
        /// The name.
        name: String,
        /// Where the second calls from.
        from: SocketAddr,
        /// Where the first is; `None` if it is this node.
        first: Option<SocketAddr>,
    },
    /// A peer calls from an address that is not configured for it.
    UnknownAddress {
        /// Its name.
        name: String,
        /// Where it calls from.
        from: SocketAddr,
        /// What is configured.
        configured: Vec<SocketAddr>,
    },
    /// A peer does not take our calls.
    TheyRefuse {
        /// Its name.
        name: String,
        /// Where it answers from.
        from: SocketAddr,
        /// Its reason.
        reason: RefusalReason,
    },
    /// A message was larger than allowed here.
    TooLarge {
        /// Who sent it.
        peer: String,
        /// On which topic.
        topic: String,
        /// Its size.
        found: usize,
        /// The most.
        allowed: usize,
    },
}

/// A datagram to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// By which radio.
    pub radio: RadioId,
    /// On which link; `None` for an answer to a stranger.
    pub link: Option<LinkId>,
    /// Where to.
    pub remote: SocketAddr,
    /// The payload of the datagram.
    pub datagram: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    Hello(LinkId),
    Ping(LinkId),
    Silent(LinkId),
    Loss(LinkId),
    Stall(LinkId),
    Ack(PeerId, u8),
    Expiry(PeerId),
    Partials(PeerId),
    Pace(RadioId),
}

/// One node's protocol. Owns no socket, clock, thread or randomness.
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) epoch: u64,
    random: Box<dyn FnMut() -> u64 + Send>,
    pub(crate) radios: Vec<Radio>,
    pub(crate) links: Vec<Link>,
    pub(crate) peers: Vec<Peer>,
    by_session: HashMap<u32, PeerId>,
    pub(crate) timers: TimerTable<Timer>,
    pub(crate) replies: VecDeque<Transmit>,
    /// Sessions that a hello is to be answered with, by link.
    pub(crate) hello_answers: VecDeque<(LinkId, SessionIds)>,
    events: VecDeque<Event>,
    definitions: HashMap<(String, String), Arc<str>>,
    definitions_bytes: usize,
    refused: RefusedPackets,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.config.name).finish_non_exhaustive()
    }
}

/// Setting up, and what the application asks for.
impl Endpoint {
    /// A node that knows nobody yet. `random` is the only source of randomness.
    pub fn new(
        config: Config,
        mut random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Self, SetupError> {
        check_name(&config.name)?;
        Ok(Self {
            config,
            epoch: random(),
            random,
            radios: Vec::new(),
            links: Vec::new(),
            peers: Vec::new(),
            by_session: HashMap::new(),
            timers: TimerTable::new(),
            replies: VecDeque::new(),
            hello_answers: VecDeque::new(),
            events: VecDeque::new(),
            definitions: HashMap::new(),
            definitions_bytes: 0,
            refused: RefusedPackets::default(),
        })
    }

    /// Adds a radio.
    pub fn add_radio(&mut self, config: RadioConfig) -> RadioId {
        self.radios.push(Radio::new(config));
        RadioId(self.radios.len() as u32 - 1)
    }

    /// Changes a radio.
    pub fn set_radio(&mut self, radio: RadioId, config: RadioConfig) {
        self.radios[radio.0 as usize].set_config(config);
    }

    /// Adds a peer; it has no link yet.
    pub fn add_peer(&mut self, name: &str) -> Result<PeerId, SetupError> {
        check_name(name)?;
        if name == self.config.name || self.peers.iter().any(|p| p.name == name) {
            return Err(SetupError::NameTaken(name.into()));
        }
        let id = PeerId(self.peers.len() as u32);
        let session = self.draw_session();
        self.by_session.insert(session, id);
        self.peers.push(Peer::new(name, session, &self.config));
        Ok(id)
    }

    /// Adds a link to a peer, which starts to call it at once if its address is known.
    pub fn add_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<LinkId, SetupError> {
        if config.datagram_bytes < MIN_DATAGRAM {
            return Err(SetupError::Datagram { found: config.datagram_bytes });
        }
        let owner = &mut self.peers[peer.0 as usize];
        if owner.links.len() == MAX_LINKS_PER_PEER {
            return Err(SetupError::TooManyLinks(owner.name.clone()));
        }
        let id = LinkId(self.links.len() as u32);
        let number = owner.links.len() as u8;
        owner.links.push(id);
        self.links.push(Link::new(peer, radio, number, config));
        self.timers.set(Timer::Hello(id), Some(now));
        Ok(id)
    }

    /// Tells where a link leads now: its host name was resolved, or routes changed.
    pub fn set_link_path(
        &mut self,
        now: Instant,
        id: LinkId,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<(), SetupError> {
        if config.datagram_bytes < MIN_DATAGRAM {
            return Err(SetupError::Datagram { found: config.datagram_bytes });
        }
        let link = &mut self.links[id.0 as usize];
        let moved = link.remote != config.remote || link.radio != radio;
        link.radio = radio;
        link.remote = config.remote;
        link.config = config;
        if moved && !link.up {
            self.timers.set(Timer::Hello(id), Some(now));
        }
        Ok(())
    }

    fn draw_session(&mut self) -> u32 {
        loop {
            let session = (self.random)() as u32;
            if session != 0 && !self.by_session.contains_key(&session) {
                return session;
            }
        }
    }

    /// Offers a topic to a peer, now and whenever a session with it starts.
    pub fn offer(
        &mut self,
        now: Instant,
        peer: PeerId,
        config: ChannelConfig,
    ) -> Result<ChannelId, OfferError> {
        check_texts(&config)?;
        let open = self.peers[peer.0 as usize].outbox.channels().count();
        if open >= MAX_CHANNELS {
            return Err(OfferError::TooMany(open));
        }
        let channel = ChannelId(self.peers[peer.0 as usize].draw_channel());
        self.change_offer(now, peer, channel, config)?;
        Ok(channel)
    }

    /// Changes what is offered under a channel: type, priority, lifespan, anything.
    pub fn change_offer(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: ChannelId,
        config: ChannelConfig,
    ) -> Result<(), OfferError> {
        check_texts(&config)?;
        self.remember_definition(&config.topic, &config.definition);
        let peer = &mut self.peers[peer.0 as usize];
        peer.outbox.set_channel(channel.0, config);
        peer.announce(now, channel.0);
        Ok(())
    }

    /// Ends a channel to a peer; what waits for it is dropped. Returns its last counters.
    pub fn withdraw(&mut self, now: Instant, peer: PeerId, channel: ChannelId) -> Option<OutStats> {
        let peer = &mut self.peers[peer.0 as usize];
        let last = peer.outbox.close_channel(channel.0)?;
        peer.defined.remove(&channel.0);
        peer.tell(now, &Control::Withdraw { channel: channel.0 });
        Some(last)
    }

    /// Asks a peer for the messages of a channel it offered, or to stop.
    pub fn want(&mut self, now: Instant, peer: PeerId, channel: ChannelId, wanted: bool) {
        let peer = &mut self.peers[peer.0 as usize];
        let Some(open) = peer.inbox.channels.get_mut(&channel.0) else { return };
        if std::mem::replace(&mut open.wanted, wanted) != wanted {
            peer.tell(now, &Control::Want { channel: channel.0, wanted });
        }
    }

    /// Tells a peer that a channel it offered cannot be taken.
    pub fn refuse(&mut self, now: Instant, peer: PeerId, channel: ChannelId, reason: String) {
        self.peers[peer.0 as usize].tell(now, &Control::Refuse { channel: channel.0, reason });
    }

    /// Queues a message on a channel that the peer wants.
    pub fn send(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: ChannelId,
        message: Message,
    ) -> Result<(), SendError> {
        let rate_bps = self.share_bps(peer);
        let id = peer;
        let peer = &mut self.peers[peer.0 as usize];
        let done = peer.outbox.accept(now, &self.config, rate_bps, channel.0, message);
        self.arm_expiry(now, id);
        done
    }

    /// The measured rate of the peer's radio, shared among the peers that wait for it.
    fn share_bps(&self, peer: PeerId) -> Option<u64> {
        let links = &self.peers[peer.0 as usize].links;
        let link = links.iter().find(|l| self.links[l.0 as usize].carries_data())?;
        let radio = self.links[link.0 as usize].radio;
        let busy = self.peers.iter().filter(|p| p.outbox.waiting_bytes() > 0);
        let sharing = busy
            .filter(|p| p.links.iter().any(|l| self.links[l.0 as usize].radio == radio))
            .count();
        Some(self.radios[radio.0 as usize].measured_bps()? / sharing.max(1) as u64)
    }

    /// Says goodbye to all peers with the next packets.
    pub fn close(&mut self) {
        for peer in self.peers.iter_mut().filter(|p| p.up) {
            peer.goodbye_now = true;
        }
    }
}

fn check_name(name: &str) -> Result<(), SetupError> {
    let fits = (1..=MAX_NAME).contains(&name.len());
    if fits { Ok(()) } else { Err(SetupError::Name(name.into())) }
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

/// Inputs.
impl Endpoint {
    /// Takes a datagram that came from `from` by `radio`.
    pub fn handle_packet(&mut self, now: Instant, radio: RadioId, from: SocketAddr, bytes: &[u8]) {
        let result = match Packet::parse(bytes) {
            Ok(Packet::Session(header, frames)) => {
                self.handle_session(now, radio, from, &header, frames, bytes.len())
            }
            Ok(Packet::Hello(hello)) => self.handle_hello(now, radio, from, &hello),
            Ok(Packet::Refusal(refusal)) => self.handle_refusal(from, &refusal),
            Ok(Packet::OtherVersion { version, name, is_refusal }) => {
                let name = name.to_owned();
                self.notice(Notice::Version { name, from, theirs: version, ours: VERSION });
                if !is_refusal {
                    self.reply_refusal(radio, from, RefusalReason::Version);
                }
                Err(RefusedPacket::Version)
            }
            Err(WireError::Value("version")) => Err(RefusedPacket::Version),
            Err(_) => Err(RefusedPacket::Malformed),
        };
        if let Err(reason) = result {
            self.refused.add(reason);
        }
    }

    /// Tells how many bytes of IP packets of `link` are in the kernel.
    pub fn handle_in_flight(&mut self, now: Instant, link: LinkId, bytes: usize) {
        let state = &mut self.links[link.0 as usize];
        let drained = state.in_flight.saturating_sub(bytes);
        state.on_in_flight(now, bytes);
        if drained > 0 && state.up {
            self.radios[state.radio.0 as usize].pacer.on_drained(now, drained);
        }
        self.arm_link(link);
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Hello(link) => self.on_hello_timer(now, link),
                Timer::Ping(link) => self.links[link.0 as usize].ping_now = true,
                Timer::Silent(link) => self.take_down(now, link),
                Timer::Loss(link) => {
                    let outcome = self.links[link.0 as usize].ledger.on_timer(now);
                    self.apply_outcome(now, link, outcome);
                }
                Timer::Stall(link) => self.links[link.0 as usize].stalled = true,
                Timer::Expiry(peer) => {
                    self.peers[peer.0 as usize].outbox.expire(now);
                    self.arm_expiry(now, peer);
                }
                Timer::Partials(peer) => {
                    self.peers[peer.0 as usize].inbox.expire(now);
                    self.arm_partials(now, peer);
                }
                // What is due is found when packets are polled.
                Timer::Ack(..) | Timer::Pace(_) => {}
            }
        }
    }

    fn on_hello_timer(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id.0 as usize];
        if link.up {
            return;
        }
        link.hello_now = link.remote.is_some();
        let wait = link.next_hello_wait();
        self.timers.set(Timer::Hello(id), Some(now + wait));
    }

    fn handle_hello(
        &mut self,
        now: Instant,
        radio: RadioId,
        from: SocketAddr,
        hello: &Hello<'_>,
    ) -> Result<(), RefusedPacket> {
        if hello.name == self.config.name {
            if hello.epoch != self.epoch {
                let notice = Notice::NameTaken { name: hello.name.into(), from, first: None };
                self.notice(notice);
                self.reply_refusal(radio, from, RefusalReason::NameTaken);
            }
            return Err(RefusedPacket::NameTaken);
        }
        let Some(peer) = self.peers.iter().position(|p| p.name == hello.name) else {
            self.notice(Notice::UnknownPeer { name: hello.name.into(), from });
            self.reply_refusal(radio, from, RefusalReason::UnknownPeer);
            return Err(RefusedPacket::UnknownPeer);
        };
        let peer = PeerId(peer as u32);
        let link = self.link_of_caller(now, peer, radio, from)?;
        let fresh = self.draw_session();
        match self.peers[peer.0 as usize].greet(hello, fresh) {
            Greeting::Known { answer } => {
                if answer {
                    self.answer_hello(link, self.peers[peer.0 as usize].session);
                } else {
                    self.mark_received(now, link, 0);
                }
            }
            Greeting::Challenge(ids) => self.answer_hello(link, ids),
            Greeting::Stale => return Err(RefusedPacket::UnknownSession),
            Greeting::Established(ids) => {
                self.start_session(now, peer, ids);
                self.answer_hello(link, ids);
                self.mark_received(now, link, 0);
            }
        }
        Ok(())
    }

    /// The link by which a peer of that name may call from there.
    fn link_of_caller(
        &mut self,
        now: Instant,
        peer: PeerId,
        radio: RadioId,
        from: SocketAddr,
    ) -> Result<LinkId, RefusedPacket> {
        let ids = self.peers[peer.0 as usize].links.clone();
        if let Some(known) = self.link_from(&ids, radio, from) {
            return Ok(known);
        }
        let name = self.peers[peer.0 as usize].name.clone();
        let open = ids.iter().copied().find(|id| {
            let link = &self.links[id.0 as usize];
            link.config.remote.is_none()
        });
        let Some(open) = open else {
            let configured =
                ids.iter().filter_map(|id| self.links[id.0 as usize].config.remote).collect();
            self.notice(Notice::UnknownAddress { name, from, configured });
            self.reply_refusal(radio, from, RefusalReason::Address);
            return Err(RefusedPacket::UnknownAddress);
        };
        let timeout = self.config.link_timeout;
        let link = &mut self.links[open.0 as usize];
        let alive = link.last_received.is_some_and(|at| now.since(at) < timeout);
        if link.up && alive {
            let first = link.remote;
            self.notice(Notice::NameTaken { name, from, first });
            self.reply_refusal(radio, from, RefusalReason::NameTaken);
            return Err(RefusedPacket::NameTaken);
        }
        link.remote = Some(from);
        link.radio = radio;
        Ok(open)
    }

    fn link_from(&self, ids: &[LinkId], radio: RadioId, from: SocketAddr) -> Option<LinkId> {
        ids.iter().copied().find(|id| {
            let link = &self.links[id.0 as usize];
            link.radio == radio && link.remote == Some(from)
        })
    }

    fn answer_hello(&mut self, link: LinkId, ids: SessionIds) {
        self.hello_answers.retain(|(other, _)| *other != link);
        self.hello_answers.push_back((link, ids));
    }

    fn start_session(&mut self, now: Instant, peer: PeerId, ids: SessionIds) {
        let state = &mut self.peers[peer.0 as usize];
        self.by_session.remove(&state.session.local);
        self.by_session.insert(ids.local, peer);
        state.start_session(now, ids, &self.config);
        state.up = false;
        for link in state.links.clone() {
            self.links[link.0 as usize].reset();
            self.timers.set(Timer::Loss(link), None);
        }
        self.events.push_back(Event::PeerUp { peer, new_session: true });
        self.peers[peer.0 as usize].up = true;
    }

    fn handle_refusal(
        &mut self,
        from: SocketAddr,
        refusal: &Refusal<'_>,
    ) -> Result<(), RefusedPacket> {
        if !self.links.iter().any(|link| link.remote == Some(from) && !link.up) {
            return Err(RefusedPacket::UnknownAddress);
        }
        let name = refusal.name.to_owned();
        self.notice(Notice::TheyRefuse { name, from, reason: refusal.reason });
        Ok(())
    }

    fn reply_refusal(&mut self, radio: RadioId, remote: SocketAddr, reason: RefusalReason) {
        if self.replies.len() < MAX_REPLIES {
            let datagram = Refusal { name: &self.config.name, reason }.emit();
            self.replies.push_back(Transmit { radio, link: None, remote, datagram });
        }
    }

    fn handle_session(
        &mut self,
        now: Instant,
        radio: RadioId,
        from: SocketAddr,
        header: &SessionHeader,
        frames: &[u8],
        datagram_len: usize,
    ) -> Result<(), RefusedPacket> {
        let peer = *self.by_session.get(&header.session).ok_or(RefusedPacket::UnknownSession)?;
        let state = &self.peers[peer.0 as usize];
        if state.session.remote == 0 {
            return Err(RefusedPacket::UnknownSession);
        }
        let link = self
            .link_from(&state.links, radio, from)
            .ok_or(RefusedPacket::UnknownAddress)?;
        if usize::from(header.link) >= MAX_LINKS_PER_PEER {
            return Err(RefusedPacket::Malformed);
        }
        let frames = parse_frames(frames).map_err(|_| RefusedPacket::Malformed)?;
        let data = frames.iter().filter_map(|frame| match frame {
            Frame::Data(data, bytes) => Some((data, bytes.len())),
            _ => None,
        });
        if !state.inbox.admits(data) {
            return Err(RefusedPacket::Bound);
        }
        let arrivals = self.peers[peer.0 as usize]
            .arrivals
            .entry(header.link)
            .or_insert_with(Arrivals::new);
        let expected = arrivals.expected();
        let number = full_number(header.number, expected);
        if !arrivals.is_new(number) {
            self.links[link.0 as usize].stats.duplicate_packets += 1;
            return Err(RefusedPacket::Duplicate);
        }
        arrivals.insert(now, number);
        if frames.iter().any(|f| matches!(f, Frame::Data(..) | Frame::Ping)) {
            arrivals.plan_ack(now, header.ack_soon, number != expected);
            let due = arrivals.ack_due();
            self.timers.set(Timer::Ack(peer, header.link), due);
        }
        self.mark_received(now, link, datagram_len);
        for frame in &frames {
            self.handle_frame(now, peer, link, frame);
        }
        Ok(())
    }

    /// Something of the session came by `link`: it is up.
    fn mark_received(&mut self, now: Instant, id: LinkId, datagram_len: usize) {
        let link = &mut self.links[id.0 as usize];
        link.last_received = Some(now);
        if datagram_len > 0 {
            link.stats.received_packets += 1;
            link.stats.received_bytes += (datagram_len + link.config.header_bytes) as u64;
        }
        self.timers.set(Timer::Silent(id), Some(now + self.config.link_timeout));
        if link.up {
            return;
        }
        link.up = true;
        link.last_eliciting = now;
        let peer = link.peer;
        self.arm_link(id);
        self.events.push_back(Event::LinkUp { link: id });
        let peer_state = &mut self.peers[peer.0 as usize];
        if !std::mem::replace(&mut peer_state.up, true) {
            self.events.push_back(Event::PeerUp { peer, new_session: false });
        }
    }

    fn take_down(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id.0 as usize];
        if !std::mem::replace(&mut link.up, false) {
            return;
        }
        let outcome = link.ledger.lose_all();
        self.apply_outcome(now, id, outcome);
        self.timers.set(Timer::Ping(id), None);
        self.timers.set(Timer::Silent(id), None);
        self.timers.set(Timer::Hello(id), Some(now));
        self.events.push_back(Event::LinkDown { link: id });
        let peer = self.links[id.0 as usize].peer;
        let state = &mut self.peers[peer.0 as usize];
        if state.up && !state.links.iter().any(|l| self.links[l.0 as usize].up) {
            state.up = false;
            self.events.push_back(Event::PeerDown { peer });
        }
    }

    fn handle_frame(&mut self, now: Instant, peer: PeerId, link: LinkId, frame: &Frame<'_>) {
        match frame {
            Frame::Data(data, bytes) => {
                let rtt = self.links[link.0 as usize].ledger.rtt().smoothed();
                let transit = rtt.unwrap_or_default() / 2;
                let inbox = &mut self.peers[peer.0 as usize].inbox;
                let taken = inbox.take(now, transit, data, bytes);
                self.handle_taken(now, peer, ChannelId(data.channel), taken);
                self.arm_partials(now, peer);
            }
            Frame::Ack(ack) => self.handle_ack(now, peer, ack),
            Frame::Goodbye => {
                for id in self.peers[peer.0 as usize].links.clone() {
                    self.take_down(now, id);
                }
            }
            Frame::Ping | Frame::Unknown(_) => {}
        }
    }

    fn handle_taken(&mut self, now: Instant, peer: PeerId, channel: ChannelId, taken: Taken) {
        match taken {
            Taken::Nothing => {}
            Taken::Message(message) => {
                self.events.push_back(Event::Message { peer, channel, message });
            }
            Taken::Control(messages) => {
                for bytes in messages {
                    match Control::parse(&bytes) {
                        Ok(control) => self.handle_control(now, peer, control),
                        Err(_) => self.refused.add(RefusedPacket::Malformed),
                    }
                }
            }
            Taken::UnknownChannel => self.refused.add(RefusedPacket::UnknownChannel),
            Taken::Bound => self.refused.add(RefusedPacket::Bound),
            Taken::TooLarge(found) => {
                let state = &self.peers[peer.0 as usize];
                let topic = state.inbox.channels.get(&channel.0).map(|c| c.topic.name.clone());
                let notice = Notice::TooLarge {
                    peer: state.name.clone(),
                    topic: topic.unwrap_or_default(),
                    found,
                    allowed: self.config.max_message,
                };
                self.notice(notice);
            }
        }
    }

    fn handle_ack(&mut self, now: Instant, peer: PeerId, ack: &Ack) {
        let links = &self.peers[peer.0 as usize].links;
        let Some(&id) = links.get(usize::from(ack.link)) else {
            return self.refused.add(RefusedPacket::Malformed);
        };
        match self.links[id.0 as usize].ledger.acknowledge(now, ack) {
            Ok(outcome) => self.apply_outcome(now, id, outcome),
            Err(()) => self.refused.add(RefusedPacket::Malformed),
        }
    }

    pub(crate) fn apply_outcome(&mut self, now: Instant, id: LinkId, outcome: Outcome) {
        let link = &mut self.links[id.0 as usize];
        link.stats.acked_packets += outcome.acked_packets;
        link.stats.lost_packets += outcome.lost_packets;
        link.stats.spurious_losses += outcome.spurious_losses;
        let peer = link.peer;
        let outbox = &mut self.peers[peer.0 as usize].outbox;
        for piece in &outcome.acked {
            outbox.acked(piece);
        }
        for piece in &outcome.lost {
            outbox.lost(now, piece);
        }
        self.arm_link(id);
        self.arm_expiry(now, peer);
    }

    fn handle_control(&mut self, now: Instant, peer: PeerId, control: Control) {
        let id = peer;
        let state = &mut self.peers[peer.0 as usize];
        let wants_answer = matches!(control, Control::Offer(_) | Control::GetDefinition { .. });
        if wants_answer && state.outbox.control_backlog() >= MAX_CONTROL_BACKLOG {
            return self.refused.add(RefusedPacket::Bound);
        }
        match control {
            Control::Offer(offer) => {
                let known = state.inbox.channels.contains_key(&offer.channel);
                if !known && state.inbox.channels.len() >= MAX_CHANNELS {
                    return self.refused.add(RefusedPacket::Bound);
                }
                if state.inbox.offered(offer.channel, offer.topic.clone()) {
                    self.resolve_definition(now, id, offer.channel, offer.topic);
                }
            }
            Control::Withdraw { channel } => {
                state.awaiting_definition.remove(&channel);
                if state.inbox.withdrawn(channel) {
                    let channel = ChannelId(channel);
                    self.events.push_back(Event::Withdrawn { peer, channel });
                }
            }
            Control::Want { channel, wanted } => {
                if state.outbox.set_wanted(channel, wanted) {
                    let channel = ChannelId(channel);
                    self.events.push_back(Event::Wanted { peer, channel, wanted });
                }
            }
            Control::GetDefinition { channel } => {
                if let Some(config) = state.outbox.config(channel) {
                    if !state.defined.insert(channel) {
                        return self.refused.add(RefusedPacket::Bound);
                    }
                    let text = config.definition.to_string();
                    state.tell(now, &Control::Definition { channel, text });
                }
            }
            Control::Definition { channel, text } => self.handle_definition(peer, channel, text),
            Control::Refuse { channel, reason } => {
                let channel = ChannelId(channel);
                self.events.push_back(Event::Refused { peer, channel, reason });
            }
            Control::Unknown(_) => {}
        }
    }

    fn resolve_definition(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: u64,
        topic: OfferedTopic,
    ) {
        let key = (topic.type_name.clone(), topic.type_hash.clone());
        if let Some(definition) = self.definitions.get(&key).cloned() {
            let channel = ChannelId(channel);
            self.events.push_back(Event::Offered { peer, channel, topic, definition });
            return;
        }
        let state = &mut self.peers[peer.0 as usize];
        if state.awaiting_definition.insert(channel) {
            state.tell(now, &Control::GetDefinition { channel });
        }
    }

    fn handle_definition(&mut self, peer: PeerId, channel: u64, text: String) {
        let state = &mut self.peers[peer.0 as usize];
        if !state.awaiting_definition.remove(&channel) {
            return;
        }
        let Some(open) = state.inbox.channels.get(&channel) else { return };
        let topic = open.topic.clone();
        let definition: Arc<str> = text.into();
        self.remember_definition(&topic, &definition);
        let channel = ChannelId(channel);
        self.events.push_back(Event::Offered { peer, channel, topic, definition });
    }

    fn remember_definition(&mut self, topic: &OfferedTopic, definition: &Arc<str>) {
        if self.definitions_bytes + definition.len() > MAX_DEFINITIONS_BYTES {
            return;
        }
        let key = (topic.type_name.clone(), topic.type_hash.clone());
        if self.definitions.insert(key, definition.clone()).is_none() {
            self.definitions_bytes += definition.len();
        }
    }

    fn notice(&mut self, notice: Notice) {
        self.events.push_back(Event::Notice(notice));
    }
}

fn parse_frames(bytes: &[u8]) -> Result<Vec<Frame<'_>>, WireError> {
    let mut reader = Reader::new(bytes);
    let mut frames = Vec::with_capacity(4);
    while !reader.is_empty() {
        frames.push(Frame::parse(&mut reader)?);
    }
    Ok(frames)
}

/// Timers.
impl Endpoint {
    pub(crate) fn arm_link(&mut self, id: LinkId) {
        let link = &self.links[id.0 as usize];
        self.timers.set(Timer::Loss(id), link.ledger.timer());
        self.timers.set(Timer::Stall(id), link.stall_at());
        let ping_at = link.up.then(|| link.last_eliciting + self.config.heartbeat);
        self.timers.set(Timer::Ping(id), ping_at.filter(|_| !link.ping_now));
    }

    pub(crate) fn arm_expiry(&mut self, now: Instant, peer: PeerId) {
        let outbox = &mut self.peers[peer.0 as usize].outbox;
        let mut at = outbox.next_expiry();
        if outbox.waiting_messages() > 0 && outbox.next_turn(now).is_none() {
            at = Some(at.map_or(now + REPAIR_POLL, |at| at.min(now + REPAIR_POLL)));
        }
        self.timers.set(Timer::Expiry(peer), at);
    }

    fn arm_partials(&mut self, now: Instant, peer: PeerId) {
        let inbox = &self.peers[peer.0 as usize].inbox;
        // Incomplete messages are few and their end is not urgent: a tenth of their time is exact enough.
        let at = inbox.has_partials().then(|| now + PARTIAL_TIMEOUT / 10);
        self.timers.set(Timer::Partials(peer), at);
    }
}

/// Outputs and state.
impl Endpoint {
    /// The next thing the application should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] has to be called next, if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// This node's name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Packets refused, by reason.
    pub fn refused_packets(&self) -> &RefusedPackets {
        &self.refused
    }

    /// State of a peer.
    pub fn peer(&self, peer: PeerId) -> PeerView<'_> {
        let peer = &self.peers[peer.0 as usize];
        PeerView {
            name: &peer.name,
            up: peer.up,
            met: peer.session.remote != 0,
            queued_messages: peer.outbox.waiting_messages(),
            queued_bytes: peer.outbox.waiting_bytes(),
        }
    }

    /// All peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + use<> {
        (0..self.peers.len() as u32).map(PeerId)
    }

    /// A channel to a peer: its settings, whether it is wanted, its counters.
    pub fn channel_out(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> Option<(&ChannelConfig, bool, &OutStats)> {
        let outbox = &self.peers[peer.0 as usize].outbox;
        let config = outbox.config(channel.0)?;
        Some((config, outbox.is_wanted(channel.0), outbox.stats(channel.0)?))
    }

    /// A channel from a peer: its topic, whether it is wanted, its counters.
    pub fn channel_in(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> Option<(&OfferedTopic, bool, &InStats)> {
        let open = self.peers[peer.0 as usize].inbox.channels.get(&channel.0)?;
        Some((&open.topic, open.wanted, &open.stats))
    }

    /// Channels from a peer.
    pub fn channels_in(&self, peer: PeerId) -> impl Iterator<Item = ChannelId> + '_ {
        self.peers[peer.0 as usize].inbox.channels.keys().map(|c| ChannelId(*c))
    }

    /// State of a link.
    pub fn link(&self, link: LinkId) -> LinkView<'_> {
        let link = &self.links[link.0 as usize];
        LinkView {
            peer: link.peer,
            radio: link.radio,
            remote: link.remote,
            up: link.up,
            stalled: link.stalled,
            datagram_bytes: link.config.datagram_bytes,
            rtt: link.ledger.rtt().smoothed(),
            stats: &link.stats,
        }
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links.len() as u32).map(LinkId)
    }

    /// State of a radio.
    pub fn radio(&self, id: RadioId) -> RadioView {
        let radio = &self.radios[id.0 as usize];
        RadioView {
            signal: radio.pacer.signal(),
            configured_bps: radio.config.rate_bps,
            measured_bps: radio.measured_bps(),
            in_flight_bytes: self.in_flight(id),
            in_flight_limit_bytes: radio.pacer.limit_bytes(),
            sent_packets: radio.sent_packets,
            sent_bytes: radio.sent_bytes,
        }
    }

    /// All radios.
    pub fn radios(&self) -> impl Iterator<Item = RadioId> + use<> {
        (0..self.radios.len() as u32).map(RadioId)
    }

    /// Whether nothing waits for a peer that is up.
    pub fn is_drained(&self) -> bool {
        self.peers.iter().all(|p| !p.up || p.outbox.waiting_messages() == 0)
    }
}

/// State of a peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether a link to it is up.
    pub up: bool,
    /// Whether there ever was a session with it.
    pub met: bool,
    /// Messages waiting for it.
    pub queued_messages: usize,
    /// Bytes waiting for it.
    pub queued_bytes: u64,
}

/// State of a link.
#[derive(Debug, Clone, Copy)]
pub struct LinkView<'a> {
    /// Whom it leads to.
    pub peer: PeerId,
    /// By which radio.
    pub radio: RadioId,
    /// Where the peer is, if known.
    pub remote: Option<SocketAddr>,
    /// Whether packets come in.
    pub up: bool,
    /// Whether the driver has not taken our packets for too long.
    pub stalled: bool,
    /// Largest datagram payload.
    pub datagram_bytes: usize,
    /// Smoothed round trip time.
    pub rtt: Option<Duration>,
    /// Counters.
    pub stats: &'a LinkStats,
}

/// State of a radio.
#[derive(Debug, Clone, Copy)]
pub struct RadioView {
    /// The signal that governs.
    pub signal: &'static str,
    /// Configured rate in bits per second.
    pub configured_bps: Option<u64>,
    /// Rate of IP bytes while there was always something to send, in bits per second.
    pub measured_bps: Option<u64>,
    /// Bytes of IP packets in the kernel.
    pub in_flight_bytes: usize,
    /// Bytes that may be.
    pub in_flight_limit_bytes: usize,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of IP packets sent.
    pub sent_bytes: u64,
}
