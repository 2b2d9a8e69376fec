// SPDX-License-Identifier: Apache-2.0
//! The state machine of one node. See the crate's documentation for the contract.

pub(crate) mod discovery;
pub(crate) mod events;
mod handshake;
mod headroom;
mod incoming;
mod migration;
pub(crate) mod peer;
pub(crate) mod relay;
pub(crate) mod removal;
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
use crate::delivery::outbox::{Flow, Message, RELAY};
use crate::endpoint::discovery::Beacons;
use crate::endpoint::events::{Event, Events};
use crate::endpoint::peer::Peer;
use crate::endpoint::relay::RelayRoute;
use crate::endpoint::removal::Vacant;
use crate::endpoint::timer::TimerTable;
use crate::endpoint::views::{LinkView, PeerView, RadioView};
use crate::error::{OfferError, SendError, SetupError};
use crate::ids::{ChannelId, LinkId, PeerId, RadioId};
use crate::path::link::Link;
use crate::path::radio::Radio;
use crate::rate::of_link;
use crate::stats::{InStats, OutStats, RefusedPackets};
use crate::time::Instant;
use crate::wire::control::{Control, MAX_DEFINITION, MAX_TEXT, OfferedTopic};
use crate::wire::packet::{Initiation, MAX_NAME};
use crate::wire::relay::ShortName;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;

/// Definitions of the application's own topics that are remembered, in bytes.
const MAX_DEFINITIONS_BYTES: usize = 16 << 20;

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
    /// Highest priority of the messages in it; `None` for what is not bound by the radio's budget.
    pub priority: Option<u8>,
    /// What it is to the radio; what waits in the kernel is told by class.
    pub class: Class,
    /// What IP's header shall say, 0 to 63.
    pub dscp: u8,
}

impl Transmit {
    /// To whoever is not at the end of a link: strangers get no precedence.
    pub(crate) fn aside(radio: RadioId, remote: SocketAddr, datagram: Vec<u8>) -> Self {
        let (link, priority, class, dscp) = (None, None, Class::BestEffort, 0);
        Self { radio, link, remote, datagram, priority, class, dscp }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    Reconnect(LinkId),
    Path(LinkId),
    Held(PeerId),
    Rekey(PeerId),
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
    pub(crate) random: Box<dyn FnMut() -> u64 + Send>,
    pub(crate) radios: Arena<RadioId, Radio>,
    pub(crate) links: Arena<LinkId, Link>,
    pub(crate) peers: Arena<PeerId, Peer>,
    /// What removed peers and links leave to the next ones.
    pub(crate) vacant: Vacant,
    pub(crate) by_session: HashMap<u32, PeerId>,
    pub(crate) by_key: HashMap<PublicKey, PeerId>,
    pub(crate) by_short_name: HashMap<ShortName, PeerId>,
    pub(crate) routes: BTreeMap<(PeerId, Flow), RelayRoute>,
    /// From when on a person may be told of strangers' calls.
    pub(crate) next_stranger_notice: Instant,
    /// Made of the secret one, which takes as long as many packets.
    pub(crate) public: PublicKey,
    pub(crate) short_name: ShortName,
    pub(crate) gate: CookieChecker,
    pub(crate) beacons: Beacons,
    pub(crate) timers: TimerTable<Timer>,
    /// Answers and echoes, to wherever what they answer came from.
    pub(crate) replies: VecDeque<(RadioId, Place, Vec<u8>)>,
    /// A packet was handed to a relay since this was last looked at.
    pub(crate) handed: bool,
    /// Whose the packet being handled surely is.
    pub(crate) sender: Option<PeerId>,
    /// Where packets are decrypted.
    pub(crate) scratch: Vec<u8>,
    pub(crate) events: Events,
    /// Of what the application offers.
    pub(crate) definitions: Definitions,
    pub(crate) refused: RefusedPackets,
    /// Our time of day at the origin of `Instant`, in microseconds since 1970.
    wall_origin: Option<i64>,
    /// The latest time told.
    pub(crate) clock_now: Instant,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.config.name).finish_non_exhaustive()
    }
}

/// Setting up, and what the application asks for.
impl Endpoint {
    /// A node that knows nobody yet. `random` is the only source of randomness.
    pub fn new(config: Config, random: Box<dyn FnMut() -> u64 + Send>) -> Result<Self, SetupError> {
        check_name(&config.name)?;
        let public = config.key.public();
        Ok(Self {
            gate: CookieChecker::new(&config.key),
            public,
            short_name: public.short_name(),
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
            handed: false,
            sender: None,
            scratch: Vec::new(),
            events: Events::default(),
            definitions: Definitions::new(MAX_DEFINITIONS_BYTES),
            refused: RefusedPackets::default(),
            wall_origin: None,
            clock_now: Instant::default(),
        })
    }

    /// Tells the time of day, in microseconds since 1970: again whenever it may have been set.
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

    /// Changes a radio.
    pub fn set_radio(&mut self, radio: RadioId, config: RadioConfig) {
        self.radios[radio].set_config(config);
        let ids: Vec<_> = self.links().filter(|id| self.links[*id].radio == radio).collect();
        for id in ids {
            self.set_controller(id);
        }
    }

    /// Adds a peer, which is known by its key; it has no link yet.
    pub fn add_peer(&mut self, name: &str, key: PublicKey) -> Result<PeerId, SetupError> {
        check_name(name)?;
        if name == self.config.name || self.peers.iter().any(|p| !p.gone && p.name == name) {
            return Err(SetupError::NameTaken(name.into()));
        }
        if key == self.public || self.by_key.contains_key(&key) {
            return Err(SetupError::KeyTaken(name.into()));
        }
        let short_name = key.short_name();
        if short_name == self.short_name || self.by_short_name.contains_key(&short_name) {
            return Err(SetupError::ShortNameTaken(name.into()));
        }
        let epoch = self.draw_token();
        let id = self.place_peer(Peer::new(name, (key, self.public), epoch, &self.config));
        self.by_key.insert(key, id);
        self.by_short_name.insert(short_name, id);
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

    /// Tells where a link leads now: its host name was resolved, or routes changed.
    pub fn set_link_path(
        &mut self,
        now: Instant,
        id: LinkId,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<(), SetupError> {
        check_datagram(config.datagram_bytes)?;
        self.set_link_radio(id, radio);
        let link = &mut self.links[id];
        // An address that the peer called from is newer than one that has long been in the file.
        if link.config.remote != config.remote {
            link.remote = config.remote.map(Place::Udp);
        }
        link.config = config;
        self.announce_move(now, id);
        Ok(())
    }

    /// Our own address on a link may be another: the peer learns it from the next packet.
    pub fn announce_move(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        if link.up {
            link.ping_now = true;
        } else {
            self.timers.set(Timer::Reconnect(id), Some(now));
        }
    }

    /// Tells by which radio a link leads to an address that the peer told of, and what fits a
    /// datagram there.
    pub fn set_link_way(
        &mut self,
        id: LinkId,
        radio: RadioId,
        datagram_bytes: usize,
        header_bytes: usize,
    ) -> Result<(), SetupError> {
        check_datagram(datagram_bytes)?;
        self.set_link_radio(id, radio);
        let link = &mut self.links[id];
        (link.config.datagram_bytes, link.config.header_bytes) = (datagram_bytes, header_bytes);
        Ok(())
    }

    /// A link leaves by another radio, and by another way.
    pub(crate) fn set_link_radio(&mut self, id: LinkId, radio: RadioId) {
        let link = &mut self.links[id];
        if std::mem::replace(&mut link.radio, radio) != radio {
            self.set_controller(id);
        }
    }

    /// What lets packets go on a link, beside its radio: as that is configured.
    pub(crate) fn set_controller(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        let config = &self.radios[link.radio].config;
        link.controller = of_link(config).filter(|_| link.via.is_none());
    }

    /// A session number that is not in use, from now on `peer`'s.
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

    /// Whether a call may cost a key agreement.
    pub(crate) fn check_initiation(
        &mut self,
        now: Instant,
        from: Place,
        call: &Initiation<'_>,
    ) -> Admission {
        let Self { gate, random, .. } = self;
        gate.judge(now, (&from.bytes(), &from.owner()), call, || draw_key(random))
    }

    /// Offers a topic to a peer, now and whenever a session with it starts.
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

    /// Changes what is offered under a channel: type, priority, lifespan, anything.
    pub fn change_offer(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: ChannelId,
        config: ChannelConfig,
    ) -> Result<(), OfferError> {
        check_texts(&config)?;
        // One that finds no room is asked for by peers' offers as any other.
        let _ = self.definitions.insert(&config.topic, &config.definition);
        let peer = &mut self.peers[peer];
        peer.outbox.set_channel(channel.0, config);
        peer.announce(now, channel.0);
        Ok(())
    }

    /// Ends a channel to a peer; what waits for it is dropped. Returns its last counters.
    pub fn withdraw(&mut self, now: Instant, peer: PeerId, channel: ChannelId) -> Option<OutStats> {
        let peer = &mut self.peers[peer];
        let last = peer.outbox.close_channel(channel.0)?;
        peer.defined.remove(&channel.0);
        peer.tell(now, &Control::Withdraw { channel: channel.0 });
        Some(last)
    }

    /// Asks a peer for the messages of a channel it offered, or to stop.
    pub fn want(&mut self, now: Instant, peer: PeerId, channel: ChannelId, wanted: bool) {
        let peer = &mut self.peers[peer];
        let Some(open) = peer.inbox.channels.get_mut(&channel.0) else { return };
        if std::mem::replace(&mut open.wanted, wanted) != wanted {
            peer.tell(now, &Control::Want { channel: channel.0, wanted });
        }
    }

    /// Tells a peer that a channel it offered cannot be taken.
    pub fn refuse(&mut self, now: Instant, peer: PeerId, channel: ChannelId, reason: String) {
        self.peers[peer].tell(now, &Control::Refuse { channel: channel.0, reason });
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
        let outbox = &mut self.peers[peer].outbox;
        let done = outbox.accept(now, &self.config, rate_bps, channel.0, message);
        self.arm_expiry(now, peer);
        done
    }

    /// The measured rate of the peer's radio, shared among the peers that wait for it.
    fn share_bps(&self, peer: PeerId) -> Option<u64> {
        let links = &self.peers[peer].links;
        let link = links.iter().find(|l| self.links[**l].carries_data())?;
        let radio = self.links[*link].radio;
        let busy = self.peers.iter().filter(|p| p.outbox.waiting_bytes() > 0);
        let sharing =
            busy.filter(|p| p.links.iter().any(|l| self.links[*l].radio == radio)).count();
        Some(self.radios[radio].measured_bps()? / sharing.max(1) as u64)
    }

    /// Says goodbye to all peers with the next packets.
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
    /// The next thing the application should know. Those of one peer keep their order; peers take
    /// turns.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.poll_event_of().map(|(_, event)| event)
    }

    /// The same with the peer that the event is about, or whose packet brought it about.
    pub fn poll_event_of(&mut self) -> Option<(Option<PeerId>, Event)> {
        self.events.pop()
    }

    /// Tells the application.
    pub(crate) fn emit(&mut self, event: Event) {
        let peer = match &event {
            Event::PeerUp { peer, .. }
            | Event::PeerDown { peer, .. }
            | Event::PeerLeft { peer }
            | Event::Offered { peer, .. }
            | Event::Withdrawn { peer, .. }
            | Event::Wanted { peer, .. }
            | Event::Refused { peer, .. }
            | Event::Message { peer, .. } => Some(*peer),
            Event::LinkUp { link }
            | Event::LinkDown { link }
            | Event::LinkRate { link, .. }
            | Event::LinkMoved { link, .. } => Some(self.links[*link].peer),
            Event::Notice(_) => self.sender,
        };
        self.events.push(peer, event);
    }

    /// When [`Self::handle_timeout`] has to be called next, if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// This node's name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// What peers know this node by.
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
        let all = self.peers.iter().zip(0..).filter(|(peer, _)| !peer.gone);
        all.map(|(_, index)| PeerId(index)).collect::<Vec<_>>().into_iter()
    }

    /// A channel to a peer: its settings, whether it is wanted, its counters.
    pub fn channel_out(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> Option<(&ChannelConfig, bool, &OutStats)> {
        let outbox = &self.peers[peer].outbox;
        let config = outbox.config(channel.0)?;
        Some((config, outbox.is_wanted(channel.0), outbox.stats(channel.0)?))
    }

    /// A channel from a peer: its topic, whether it is wanted, its counters.
    pub fn channel_in(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> Option<(&OfferedTopic, bool, &InStats)> {
        let open = self.peers[peer].inbox.channels.get(&channel.0)?;
        Some((&open.topic, open.wanted, &open.stats))
    }

    /// Channels from a peer.
    pub fn channels_in(&self, peer: PeerId) -> impl Iterator<Item = ChannelId> + '_ {
        let channels = self.peers[peer].inbox.channels.keys();
        channels.filter(|c| **c < RELAY).map(|c| ChannelId(*c))
    }

    /// State of a link.
    pub fn link(&self, link: LinkId) -> LinkView<'_> {
        let (available_bps, signal) = self.room(self.clock_now, link);
        let link = &self.links[link];
        LinkView {
            peer: link.peer,
            radio: link.radio,
            remote: link.remote,
            up: link.up,
            stalled: link.stalled,
            datagram_bytes: link.config.datagram_bytes,
            rtt: link.sent_packets.rtt().smoothed(),
            rate_bps: link.controller.as_ref().and_then(|it| it.rate_bps()),
            available_bps,
            signal,
            stats: &link.stats,
        }
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        let all = self.links.iter().zip(0..).filter(|(link, _)| !link.gone);
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

    /// Whether nothing waits for a peer that is up.
    pub fn is_drained(&self) -> bool {
        self.peers.iter().all(|p| !p.up || p.outbox.waiting_messages() == 0)
    }
}
