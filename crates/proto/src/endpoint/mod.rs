// SPDX-License-Identifier: Apache-2.0
//! The state machine of one node. The crate's documentation has the contract.

pub(crate) mod arrival;
mod assign;
mod control;
pub(crate) mod discovery;
pub(crate) mod events;
mod frames;
mod handshake;
mod headroom;
mod heartbeat;
pub(crate) mod incoming;
mod migration;
mod mtu;
pub(crate) mod peer;
pub(crate) mod relay;
pub(crate) mod removal;
pub(crate) mod rendezvous;
pub(crate) mod teams;
pub(crate) mod timer;
mod transmit;
pub(crate) mod views;

use crate::address::Place;
use crate::arena::Arena;
use crate::class::Class;
use crate::config::{
    ChannelConfig, Config, LinkConfig, MAX_CHANNELS, MAX_LINKS_PER_PEER, MIN_DATAGRAM, RadioConfig,
};
use crate::crypto::cookies::{Admission, CookieChecker};
use crate::crypto::keys::{KEY, PublicKey};
use crate::delivery::definitions::Definitions;
use crate::delivery::outbox::{Flow, Message};
use crate::ecn::Ecn;
use crate::endpoint::arrival::ReturnPath;
use crate::endpoint::discovery::Beacons;
use crate::endpoint::events::{Event, Events};
use crate::endpoint::peer::Peer;
use crate::endpoint::relay::RelayRoute;
use crate::endpoint::removal::Vacant;
use crate::endpoint::teams::{Team, TeamId};
use crate::endpoint::timer::TimerTable;
use crate::endpoint::views::{LinkView, PeerView, RadioView};
use crate::error::{OfferError, SendError, SetupError};
use crate::ids::{ChannelId, LinkId, PeerId, RadioId};
use crate::path::link::Link;
use crate::path::radio::Radio;
use crate::stats::{InStats, OutStats, RefusedPackets};
use crate::time::Instant;
use crate::wire::control::{Control, MAX_DEFINITION, MAX_TEXT, OfferedTopic};
use crate::wire::packet::{Initiation, MAX_NAME};
use crate::wire::relay::ShortName;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Limit of definitions of the application's own topics that are remembered, in bytes.
const MAX_DEFINITIONS_BYTES: usize = 16 << 20;

/// A datagram to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The radio that sends it.
    pub radio: RadioId,
    /// Its link; `None` for a reply to an address to which no link leads.
    pub link: Option<LinkId>,
    /// The address to which it goes.
    pub remote: SocketAddr,
    /// The local address from which it leaves: firewalls on the path pass answers from no other. `None`
    /// leaves the choice to the caller.
    pub local: Option<IpAddr>,
    /// The payload of the datagram.
    pub datagram: Vec<u8>,
    /// Highest priority of its messages; `None` without messages, where the radio's budget does not
    /// apply.
    pub priority: Option<u8>,
    /// Its class; in-flight bytes are reported by class.
    pub class: Class,
    /// DSCP of the IP packet, 0 to 63.
    pub dscp: u8,
    /// ECN field of the IP packet.
    pub ecn: Ecn,
}

impl Transmit {
    /// A datagram to an address to which no link leads. It has the class of unmarked packets.
    pub(crate) fn unlinked(
        radio: RadioId,
        (local, remote): (Option<IpAddr>, SocketAddr),
        datagram: Vec<u8>,
    ) -> Self {
        let (class, ecn) = (Class::BestEffort, Ecn::NotCapable);
        let (link, priority) = (None, None);
        Self { radio, link, remote, local, datagram, priority, class, dscp: 0, ecn }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    Reconnect(LinkId),
    Path(LinkId),
    Held(PeerId),
    Rendezvous(PeerId),
    Rekey(PeerId),
    Ping(LinkId),
    Silent(LinkId),
    Loss(LinkId),
    Probe(LinkId),
    Stall(LinkId),
    Ack(PeerId, u8),
    Expiry(PeerId),
    Partials(PeerId),
    Order(PeerId),
    Pace(RadioId),
    Team(TeamId),
}

/// Buffers of datagrams that were sent, for the next ones.
#[derive(Debug, Default)]
pub(crate) struct SpareDatagrams(Vec<Vec<u8>>);

impl SpareDatagrams {
    /// As many as leave in one system call.
    const MAX: usize = 64;

    /// Returns an empty buffer of at least `capacity` bytes.
    fn take(&mut self, capacity: usize) -> Vec<u8> {
        let spare = self.0.pop().filter(|spare| spare.capacity() >= capacity);
        spare.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    fn put(&mut self, mut datagram: Vec<u8>) {
        if self.0.len() < Self::MAX {
            datagram.clear();
            self.0.push(datagram);
        }
    }
}

/// The protocol of one node. It owns no socket, clock, thread or randomness.
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) random: Box<dyn FnMut() -> u64 + Send>,
    pub(crate) radios: Arena<RadioId, Radio>,
    pub(crate) links: Arena<LinkId, Link>,
    pub(crate) peers: Arena<PeerId, Peer>,
    /// Places and numbers that removed peers and links left.
    pub(crate) vacant: Vacant,
    pub(crate) by_session: HashMap<u32, PeerId>,
    pub(crate) by_key: HashMap<PublicKey, PeerId>,
    pub(crate) teams: Arena<TeamId, Team>,
    /// A short name is unique in its team.
    pub(crate) by_short_name: HashMap<(Option<TeamId>, ShortName), PeerId>,
    pub(crate) routes: BTreeMap<(PeerId, Flow), RelayRoute>,
    /// No notice of initiations for another key before this time.
    pub(crate) next_stranger_notice: Instant,
    /// Our public key, which takes as long to derive as many packets.
    pub(crate) public: PublicKey,
    pub(crate) short_name: ShortName,
    pub(crate) cookie_checker: CookieChecker,
    pub(crate) beacons: Beacons,
    pub(crate) timers: TimerTable<Timer>,
    /// Responses, cookie replies and echoes, with the addresses to which they go.
    pub(crate) replies: VecDeque<(ReturnPath, Vec<u8>)>,
    /// A packet was handed to a relay since the last poll.
    pub(crate) relay_pending: bool,
    /// Number of the states for which [forecasts](crate::path::select::Forecasts) were made.
    pub(crate) forecast_round: u64,
    /// The peer to which the packet being handled belongs.
    pub(crate) authenticated_peer: Option<PeerId>,
    /// Buffer in which packets are decrypted.
    pub(crate) scratch: Vec<u8>,
    pub(crate) spare_datagrams: SpareDatagrams,
    pub(crate) events: Events,
    /// Definitions of the application's own topics.
    pub(crate) definitions: Definitions,
    pub(crate) refused: RefusedPackets,
    /// Our time of day at the origin of `Instant`, in microseconds since 1970.
    wall_origin: Option<i64>,
    /// The latest time that the caller gave.
    pub(crate) clock_now: Instant,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.config.name).finish_non_exhaustive()
    }
}

/// Setup, and methods of the application.
impl Endpoint {
    /// A node without peers. `random` is the only source of randomness.
    pub fn new(config: Config, random: Box<dyn FnMut() -> u64 + Send>) -> Result<Self, SetupError> {
        check_name(&config.name)?;
        let public = config.key.public();
        Ok(Self {
            cookie_checker: CookieChecker::new(&config.key),
            public,
            short_name: public.short_name(),
            teams: Arena::new(),
            by_short_name: HashMap::new(),
            routes: BTreeMap::new(),
            next_stranger_notice: Instant::default(),
            beacons: Beacons::new(),
            config,
            random,
            radios: Arena::new(),
            links: Arena::new(),
            peers: Arena::new(),
            vacant: Vacant::default(),
            by_session: HashMap::new(),
            by_key: HashMap::new(),
            timers: TimerTable::new(),
            replies: VecDeque::new(),
            relay_pending: false,
            forecast_round: 0,
            authenticated_peer: None,
            scratch: Vec::new(),
            spare_datagrams: SpareDatagrams::default(),
            events: Events::default(),
            definitions: Definitions::new(MAX_DEFINITIONS_BYTES),
            refused: RefusedPackets::default(),
            wall_origin: None,
            clock_now: Instant::default(),
        })
    }

    /// Sets the time of day, in microseconds since 1970. Repeat this when the clock may have been set.
    pub fn set_wall(&mut self, now: Instant, wall_us: i64) {
        self.wall_origin = Some(wall_us.saturating_sub((now.0 / 1000) as i64));
    }

    /// Our time of day.
    pub(crate) fn wall(&self, now: Instant) -> Option<i64> {
        Some(self.wall_origin?.saturating_add((now.0 / 1000) as i64))
    }

    /// Adds a radio.
    pub fn add_radio(&mut self, config: RadioConfig) -> RadioId {
        self.radios.push(Radio::new(config))
    }

    /// Changes the configuration of a radio.
    pub fn set_radio(&mut self, radio: RadioId, config: RadioConfig) {
        self.radios[radio].set_config(config);
        let ids: Vec<_> = self.links().filter(|id| self.links[*id].radio == radio).collect();
        for id in ids {
            self.set_controller(id);
        }
    }

    /// Adds a peer without links. Its key identifies it.
    pub fn add_peer(&mut self, name: &str, key: PublicKey) -> Result<PeerId, SetupError> {
        self.add_peer_to(None, name, key)
    }

    pub(crate) fn add_peer_to(
        &mut self,
        team: Option<TeamId>,
        name: &str,
        key: PublicKey,
    ) -> Result<PeerId, SetupError> {
        check_name(name)?;
        if name == self.config.name || self.peers.iter().any(|p| !p.removed && p.name == name) {
            return Err(SetupError::NameTaken(name.into()));
        }
        if key == self.public || self.by_key.contains_key(&key) {
            return Err(SetupError::KeyTaken(name.into()));
        }
        let short_name = (team, key.short_name());
        if short_name.1 == self.short_name || self.by_short_name.contains_key(&short_name) {
            return Err(SetupError::ShortNameTaken(name.into()));
        }
        let epoch = self.draw_token();
        let peer = Peer { team, ..Peer::new(name, (key, self.public), epoch, &self.config) };
        let id = self.place_peer(peer);
        self.by_key.insert(key, id);
        self.by_short_name.insert(short_name, id);
        Ok(id)
    }

    /// Adds a link to a peer, and seeks the peer there if its address is known.
    pub fn add_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<LinkId, SetupError> {
        check_datagram(config.datagram_bytes)?;
        let owner = &self.peers[peer];
        if owner.links.len() == MAX_LINKS_PER_PEER {
            return Err(SetupError::TooManyLinks(owner.name.clone()));
        }
        let id = self.place_link(now, peer, radio, config);
        self.set_controller(id);
        self.timers.set(Timer::Reconnect(id), Some(now));
        Ok(id)
    }

    /// Changes the path of a link, as when a host name was resolved or routes changed.
    pub fn set_link_path(
        &mut self,
        now: Instant,
        id: LinkId,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<(), SetupError> {
        check_datagram(config.datagram_bytes)?;
        self.set_link_radio(id, radio);
        // An unchanged configured address is older than one from which the peer sent.
        if self.links[id].config.remote != config.remote {
            self.links[id].remote = config.remote.map(Place::Udp);
            self.links[id].forget_path();
            self.forget_learned_address(id);
        }
        self.links[id].set_config(config);
        self.announce_move(now, id);
        Ok(())
    }

    /// Handles a possible change of our own address on a link: the peer learns it from a packet.
    pub fn announce_move(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        if link.up {
            link.ping_now = true;
        } else {
            self.timers.set(Timer::Reconnect(id), Some(now));
        }
    }

    /// Changes the radio by which a link reaches an address that it learned from the peer, and the
    /// largest size of its datagrams.
    pub fn set_link_route(
        &mut self,
        id: LinkId,
        radio: RadioId,
        datagram_bytes: usize,
        header_bytes: usize,
    ) -> Result<(), SetupError> {
        check_datagram(datagram_bytes)?;
        self.set_link_radio(id, radio);
        let link = &mut self.links[id];
        link.set_config(LinkConfig { datagram_bytes, header_bytes, ..link.config.clone() });
        Ok(())
    }

    /// Changes the radio of a link, whose path then is another.
    pub(crate) fn set_link_radio(&mut self, id: LinkId, radio: RadioId) {
        let link = &mut self.links[id];
        if std::mem::replace(&mut link.radio, radio) != radio {
            self.links[id].source.forget();
            self.set_controller(id);
            self.links[id].sent_packets.mtu.restart();
        }
    }

    /// Takes the buffer of a datagram that was sent, so that a later one needs no memory of its own.
    pub fn recycle(&mut self, datagram: Vec<u8>) {
        self.spare_datagrams.put(datagram);
    }

    /// Returns the rate at which a link's own controller paces its packets, in bits per second of IP packets;
    /// `None` if it has none.
    pub fn pacing_rate(&self, id: LinkId) -> Option<u64> {
        self.links[id].controller.as_ref()?.rate_bps()
    }

    /// Whether the packets of a link leave at once now, after an idle time, instead of at its pacing rate.
    pub fn is_in_burst(&self, id: LinkId) -> bool {
        self.links[id].controller.as_ref().is_some_and(|it| it.is_in_burst())
    }

    /// Returns the local address at which packets arrive from the address to which a link leads, if they
    /// have shown it.
    pub fn local_address(&self, id: LinkId) -> Option<IpAddr> {
        let link = &self.links[id];
        link.source.address(link.remote)
    }

    /// Sets the controller of a link, as its radio is configured.
    pub(crate) fn set_controller(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        let controller = self.radios[link.radio].link_controller();
        link.controller = controller.filter(|_| link.via.is_none());
    }

    /// Draws an unused session number and assigns it to `peer`.
    pub(crate) fn draw_session(&mut self, peer: PeerId) -> u32 {
        loop {
            let session = (self.random)() as u32;
            if session != 0 && !self.by_session.contains_key(&session) {
                self.by_session.insert(session, peer);
                return session;
            }
        }
    }

    pub(crate) fn draw_token(&mut self) -> u64 {
        (self.random)()
    }

    pub(crate) fn draw_key(&mut self) -> [u8; KEY] {
        draw_key(&mut self.random)
    }

    /// Decides whether an initiation justifies a key agreement.
    pub(crate) fn check_initiation(
        &mut self,
        now: Instant,
        from: Place,
        initiation: &Initiation<'_>,
    ) -> Admission {
        let Self { cookie_checker, random, .. } = self;
        let address = (&from.bytes()[..], &from.owner()[..]);
        cookie_checker.check(now, address, initiation, || draw_key(random))
    }

    /// Offers a topic to a peer, in this session and in later ones.
    pub fn offer(
        &mut self,
        now: Instant,
        peer: PeerId,
        config: ChannelConfig,
    ) -> Result<ChannelId, OfferError> {
        check_texts(&config)?;
        let open = self.peers[peer].outbox.channels().count();
        if open >= MAX_CHANNELS {
            return Err(OfferError::TooMany(open));
        }
        let channel = ChannelId(self.peers[peer].draw_channel());
        self.change_offer(now, peer, channel, config)?;
        Ok(channel)
    }

    /// Changes the offer of a channel: its type, priority, lifespan and so on.
    pub fn change_offer(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: ChannelId,
        config: ChannelConfig,
    ) -> Result<(), OfferError> {
        check_texts(&config)?;
        // A definition without space is requested from peers like any other.
        let _ = self.definitions.insert(&config.topic, &config.definition);
        let peer = &mut self.peers[peer];
        peer.outbox.set_channel(channel.0, config);
        peer.announce(now, channel.0);
        Ok(())
    }

    /// Closes a channel to a peer and drops its queued messages. Returns its last counters.
    pub fn withdraw(&mut self, now: Instant, peer: PeerId, channel: ChannelId) -> Option<OutStats> {
        let peer = &mut self.peers[peer];
        let last = peer.outbox.close_channel(channel.0)?;
        peer.defined.remove(&channel.0);
        peer.send_control(now, &Control::Withdraw { channel: channel.0 });
        Some(last)
    }

    /// Subscribes to a channel that a peer offered, or ends the subscription.
    pub fn want(&mut self, now: Instant, peer: PeerId, channel: ChannelId, wanted: bool) {
        let peer = &mut self.peers[peer];
        let Some(open) = peer.inbox.channel_mut(channel.0) else { return };
        if std::mem::replace(&mut open.wanted, wanted) != wanted {
            if !wanted {
                peer.inbox.drop_unwanted(channel.0);
                peer.inbox.drop_waiting(channel.0);
            }
            peer.send_control(now, &Control::Want { channel: channel.0, wanted });
        }
    }

    /// Refuses a channel that a peer offered. A peer that does not acknowledge earlier control messages
    /// is not told: each of its messages may be a reason to refuse.
    pub fn refuse(&mut self, now: Instant, peer: PeerId, channel: ChannelId, reason: String) {
        let peer = &mut self.peers[peer];
        if peer.outbox.control_backlog() < crate::limits::CONTROL_BACKLOG {
            peer.send_control(now, &Control::Refuse { channel: channel.0, reason });
        }
    }

    /// Queues a message on a channel to which the peer is subscribed.
    pub fn send(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: ChannelId,
        message: Message,
    ) -> Result<(), SendError> {
        let rate_bps = self.fair_share_bps(peer);
        let outbox = &mut self.peers[peer].outbox;
        let done = outbox.accept(now, &self.config, rate_bps, channel.0, message);
        self.arm_expiry(now, peer);
        done
    }

    /// Sends a goodbye to all peers with the next packets.
    pub fn close(&mut self) {
        for peer in self.peers.iter_mut().filter(|p| p.up) {
            peer.goodbye_now = true;
        }
    }
}

fn draw_key(random: &mut dyn FnMut() -> u64) -> [u8; KEY] {
    let mut key = [0; KEY];
    key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random().to_le_bytes()));
    key
}

pub(crate) fn check_name(name: &str) -> Result<(), SetupError> {
    let fits = (1..=MAX_NAME).contains(&name.len());
    if fits { Ok(()) } else { Err(SetupError::Name(name.into())) }
}

fn check_datagram(found: usize) -> Result<(), SetupError> {
    if found < MIN_DATAGRAM { Err(SetupError::Datagram { found }) } else { Ok(()) }
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

/// Outputs and state.
impl Endpoint {
    /// The next event for the application. Events of one peer keep their order; peers are served in
    /// round robin.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.poll_event_of().map(|(_, event)| event)
    }

    /// The next event, with the peer that it concerns or whose packet caused it.
    pub fn poll_event_of(&mut self) -> Option<(Option<PeerId>, Event)> {
        self.events.pop()
    }

    /// Queues an event for the application.
    pub(crate) fn emit(&mut self, event: Event) {
        let peer = match &event {
            Event::PeerUp { peer, .. }
            | Event::PeerDown { peer, .. }
            | Event::PeerLeft { peer }
            | Event::Candidates { peer, .. }
            | Event::Offered { peer, .. }
            | Event::Withdrawn { peer, .. }
            | Event::Wanted { peer, .. }
            | Event::Refused { peer, .. }
            | Event::Message { peer, .. } => Some(*peer),
            Event::LinkUp { link }
            | Event::LinkDown { link }
            | Event::LinkRate { link, .. }
            | Event::LinkMoved { link, .. } => Some(self.links[*link].peer),
            Event::Notice(_) => self.authenticated_peer,
        };
        self.events.push(peer, event);
    }

    /// When to call [`Self::handle_timeout`], unless another input comes first.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// This node's name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// This node's public key.
    pub fn key(&self) -> PublicKey {
        self.public
    }

    /// Packets refused, by reason.
    pub fn refused_packets(&self) -> &RefusedPackets {
        &self.refused
    }

    /// State of a peer.
    pub fn peer(&self, peer: PeerId) -> PeerView<'_> {
        let peer = &self.peers[peer];
        PeerView {
            name: &peer.name,
            team: peer.team,
            up: peer.up,
            clock: peer.clock.view(self.clock_now),
            met: peer.session.was_established(),
            key: peer.session.key,
            queued_messages: peer.outbox.waiting_messages(),
            queued_bytes: peer.outbox.waiting_bytes(),
        }
    }

    /// All peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + use<> {
        let all = self.peers.iter().zip(0..).filter(|(peer, _)| !peer.removed);
        all.map(|(_, index)| PeerId(index)).collect::<Vec<_>>().into_iter()
    }

    /// A channel to a peer: its configuration, whether the peer is subscribed, its counters.
    pub fn channel_out(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> Option<(&ChannelConfig, bool, &OutStats)> {
        let outbox = &self.peers[peer].outbox;
        let config = outbox.config(channel.0)?;
        Some((config, outbox.is_wanted(channel.0), outbox.stats(channel.0)?))
    }

    /// Source and payload of the messages to a peer on a channel that are queued, or sent with unknown
    /// outcome. In a session that an outage interrupts, they arrive after it.
    pub fn pending(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> impl Iterator<Item = (u32, &bytes::Bytes)> {
        self.peers[peer].outbox.pending(channel.0)
    }

    /// A channel from a peer: its topic, whether this node is subscribed, its counters.
    pub fn channel_in(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> Option<(&OfferedTopic, bool, &InStats)> {
        let open = self.peers[peer].inbox.channel(channel.0)?;
        Some((&open.topic, open.wanted, &open.stats))
    }

    /// Channels from a peer.
    pub fn channels_in(&self, peer: PeerId) -> impl Iterator<Item = ChannelId> + '_ {
        self.peers[peer].inbox.topics().map(|(channel, _)| ChannelId(channel))
    }

    /// State of a link.
    pub fn link(&self, id: LinkId) -> LinkView<'_> {
        let (available_bps, signal) = self.available_rate(self.clock_now, id);
        let link = &self.links[id];
        LinkView {
            peer: link.peer,
            number: link.number,
            radio: link.radio,
            remote: link.remote,
            up: link.up,
            silent: link.silent,
            stalled: link.stalled,
            standby: self.is_on_standby(id),
            metered: link.config.metered,
            spent: link.is_spent(),
            mtu: self.datagram_bytes(id) + link.config.header_bytes,
            mtu_state: link.sent_packets.mtu.state(),
            is_translated: link.ends.is_translated(),
            is_peer_translated: link.ends.is_peer_translated(),
            loss: link.loss,
            rtt: link.sent_packets.rtt().smoothed(),
            rate_bps: self.pacing_rate(id),
            available_bps,
            signal,
            ecn: link.sent_packets.ecn.state(),
            stats: &link.stats,
        }
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        let all = self.links.iter().zip(0..).filter(|(link, _)| !link.removed);
        all.map(|(_, index)| LinkId(index)).collect::<Vec<_>>().into_iter()
    }

    /// State of a radio.
    pub fn radio(&self, id: RadioId) -> RadioView {
        let radio = &self.radios[id];
        RadioView {
            signal: radio.pacer.signal(),
            configured_bps: radio.config.rate.fixed_bps(),
            measured_bps: radio.measured_bps(),
            in_flight_bytes: self.in_flight(id).total(),
            in_flight_limit_bytes: radio.pacer.limit_bytes(),
            sent_packets: radio.sent_packets,
            sent_bytes: radio.sent_bytes,
        }
    }

    /// All radios.
    pub fn radios(&self) -> impl Iterator<Item = RadioId> + use<> {
        self.radios.ids()
    }

    /// Whether the queues for all peers that are up are empty.
    pub fn is_drained(&self) -> bool {
        self.peers.iter().all(|p| !p.up || p.outbox.waiting_messages() == 0)
    }
}
