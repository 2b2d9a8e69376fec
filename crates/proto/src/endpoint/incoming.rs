// SPDX-License-Identifier: Apache-2.0
//! What arrives at an endpoint: datagrams, and times that have come.

use crate::address::Place;
use crate::class::Class;
use crate::config::MAX_CHANNELS;
use crate::delivery::inbox::{PARTIAL_TIMEOUT, Taken, Transit};
use crate::delivery::outbox::Scope;
use crate::endpoint::events::{Event, Notice};
use crate::endpoint::removal::Numbered;
use crate::endpoint::{Endpoint, Timer};
use crate::ids::{ChannelId, LinkId, PeerId, RadioId};
use crate::limits;
use crate::recovery::received::{AckTrigger, ReceivedPackets};
use crate::recovery::sent::Outcome;
use crate::session::KeyStatus;
use crate::stats::RefusedPacket;
use crate::time::{Duration, Instant};
use crate::wire::control::{Control, OfferedTopic};
use crate::wire::cursor::Reader;
use crate::wire::frame::{Ack, Frame};
use crate::wire::packet::{Packet, SessionHeader, full_number};
use crate::wire::{VERSION, WireError};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

/// How often a link that has gone silent is asked whether it is back.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// How often messages that only wait for repair budget are looked at.
const REPAIR_POLL: Duration = Duration::from_millis(20);

impl Endpoint {
    /// Takes a datagram that came from `from` by `radio`. Returns the peer that it is surely from,
    /// if it is: one that holds under the keys of a session, whatever it says.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        radio: RadioId,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Option<PeerId> {
        self.receive(now, radio, from.into(), None, bytes);
        self.sender.take()
    }

    /// Takes a packet; `transit`: its age, where relays have told it.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        radio: RadioId,
        from: Place,
        transit: Option<Duration>,
        bytes: &[u8],
    ) {
        self.clock_now = now;
        let result = match Packet::parse(bytes) {
            Ok(Packet::Session(header, _)) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.clear();
                scratch.extend_from_slice(bytes);
                let result =
                    self.handle_session(now, (radio, from, transit), &header, &mut scratch);
                self.scratch = scratch;
                result
            }
            Ok(Packet::Initiation(call)) => self.handle_initiation(now, radio, from, &call),
            Ok(Packet::Response(answer)) => self.handle_response(now, radio, from, &answer),
            Ok(Packet::CookieReply(cookie)) => self.handle_cookie_reply(now, from, &cookie),
            Ok(Packet::Beacon(beacon)) => self.handle_beacon(now, radio, from, &beacon),
            Ok(Packet::OtherVersion(theirs)) => {
                self.notice(Notice::Version { from, theirs, ours: VERSION });
                Err(RefusedPacket::Version)
            }
            Err(_) => Err(RefusedPacket::Malformed),
        };
        if let Err(reason) = result {
            self.refused.add(reason);
        }
    }

    /// The peer that a datagram claims to be from: it has the number of a session with it. Anybody
    /// who hears the session can claim that.
    pub fn claimed_sender(&self, bytes: &[u8]) -> Option<PeerId> {
        match Packet::parse(bytes) {
            Ok(Packet::Session(header, _)) => self.by_session.get(&header.session).copied(),
            _ => None,
        }
    }

    /// Whether a datagram has a number that this node gave out. Of any other it does not
    /// matter by which radio it came: it cannot move a link.
    pub fn bears_our_number(&self, bytes: &[u8]) -> bool {
        let number = match Packet::parse(bytes) {
            Ok(Packet::Session(header, _)) => header.session,
            Ok(Packet::Response(answer)) => answer.your_session,
            _ => return false,
        };
        self.by_session.contains_key(&number)
    }

    /// Tells how many bytes of IP packets of `link` and `class` are in the kernel.
    pub fn handle_in_flight(&mut self, now: Instant, link: LinkId, class: Class, bytes: usize) {
        let state = &mut self.links[link];
        let drained = state.in_flight.of(class).saturating_sub(bytes);
        state.on_in_flight(now, class, bytes);
        if drained > 0 && state.up {
            self.radios[state.radio].pacer.on_drained(now, drained);
        }
        self.arm_link(link);
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.clock_now = now;
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Reconnect(link) => self.on_reconnect_timer(now, link),
                Timer::Path(link) => self.on_path_timer(link),
                Timer::Rekey(peer) => self.on_rekey_timer(now, peer),
                Timer::Ping(link) => self.links[link].ping_now = true,
                Timer::Silent(link) => self.mark_down(now, link),
                Timer::Loss(link) => {
                    let outcome = self.links[link].sent_packets.on_timer(now);
                    self.apply_outcome(now, link, outcome);
                }
                Timer::Stall(link) => self.links[link].stalled = true,
                Timer::Expiry(peer) => {
                    self.peers[peer].outbox.expire(now);
                    self.arm_expiry(now, peer);
                }
                Timer::Partials(peer) => {
                    let state = &mut self.peers[peer];
                    state.inbox.expire(now, state.up);
                    self.arm_partials(now, peer);
                }
                // What is due is found when packets are polled.
                Timer::Ack(..) | Timer::Pace(_) | Timer::Held(_) => {}
            }
        }
    }

    fn handle_session(
        &mut self,
        now: Instant,
        (radio, from, told): (RadioId, Place, Option<Duration>),
        header: &SessionHeader,
        datagram: &mut [u8],
    ) -> Result<(), RefusedPacket> {
        let peer = *self.by_session.get(&header.session).ok_or(RefusedPacket::UnknownSession)?;
        let state = &self.peers[peer];
        let (keys, known) =
            state.session.find(now, header.session).ok_or(RefusedPacket::UnknownSession)?;
        let arrivals = state.received_packets.get(&header.link);
        let arrivals = arrivals.filter(|_| known || state.session.continues(keys));
        let expected = arrivals.map_or(1, ReceivedPackets::expected);
        let number = full_number(header.number, expected);
        if arrivals.is_some_and(|arrivals| !arrivals.is_new(number)) {
            self.note_duplicate(peer, header.link);
            return Err(RefusedPacket::Duplicate);
        }
        let len = datagram.len();
        let opened = keys.sealer.open(header.link, number, datagram);
        let body = opened.ok_or(RefusedPacket::Unauthentic)?;
        // From here on it is the peer's, whatever it says; of a relayed packet, the relay's.
        self.sender.get_or_insert(peer);
        let epoch = keys.epoch;
        if !known && !self.peers[peer].session.may_begin(now, epoch) {
            return Err(RefusedPacket::Flood);
        }
        if let KeyStatus::Fresh { new_epoch, to } = self.peers[peer].session.confirm(header.session)
        {
            self.start_keys(now, peer, new_epoch);
            // Who has our answer receives where it went.
            let link = self.link_towards(peer, radio, from).filter(|_| from == to);
            if let Some(link) = link {
                self.move_link(now, link, radio, from);
            }
        }
        let (time, body) = match header.relayed {
            true => (None, body),
            false => body.split_first_chunk().map_or((None, body), |(it, rest)| (Some(*it), rest)),
        };
        let frames = parse_frames(body).map_err(|_| RefusedPacket::Malformed)?;
        if matches!(from, Place::Relay { .. }) && frames.iter().any(is_for_neighbours) {
            return Err(RefusedPacket::Malformed);
        }
        self.admit(now, peer, &frames)?;
        let link = self.attribute(now, peer, radio, from, (header.link, number, expected))?;
        let time = time.map(u32::from_le_bytes);
        self.enter(now, peer, link, header, (number, len, time), &frames);
        if self.links[link].remote == Some(from) {
            self.mark_received(now, link, len);
        }
        let clock = &mut self.peers[peer].clock;
        let measured = time.and_then(|time| clock.transit(now, time));
        let range = time.and_then(|time| clock.transit_range(now, time));
        let rtt = self.links[link].sent_packets.rtt().smoothed().unwrap_or_default();
        // A packet that waited in a distant queue is older than half a round trip. After a time of
        // load half the smoothed round trip is longer than the path, and fresh messages would end
        // as expired.
        let (least, most) = range.unwrap_or((Duration::ZERO, Duration::MAX));
        let assumed = told.unwrap_or((rtt / 2).min(most)).max(least);
        let transit = Transit { assumed, measured: told.or(measured) };
        let mut acked_links = BTreeSet::new();
        let mut refuses_relay = false;
        for frame in &frames {
            match frame {
                Frame::Goodbye => {
                    self.peers[peer].said_goodbye = true;
                    self.end_session(now, peer);
                    self.peers[peer].said_goodbye = false;
                    return Ok(());
                }
                Frame::Challenge(token) => self.echo(now, link, radio, from, *token),
                Frame::Echo(token) => self.handle_echo(now, peer, radio, from, *token),
                Frame::Clock(report) => {
                    let (wall, Some(time)) = (self.wall(now), time) else { continue };
                    self.peers[peer].clock.on_report(now, time, report, wall);
                }
                Frame::Held(held) => self.handle_backlog_report(now, peer, held),
                // Each costs a look through all packets under way; one tells all of a link.
                Frame::Ack(ack) if !acked_links.insert(ack.link) => {
                    self.refused.add(RefusedPacket::Malformed);
                }
                Frame::Ack(ack) => self.handle_ack(now, peer, time, ack),
                Frame::Relay(..) if !self.may_relay(peer) => refuses_relay = true,
                frame => self.handle_frame(now, (peer, radio), transit, frame),
            }
        }
        // Once for all of them: people are told of each, which takes longer than the rest.
        if refuses_relay {
            self.notice(Notice::NotRelayed { name: self.peers[peer].name.clone() });
            return Err(RefusedPacket::NotRelayed);
        }
        Ok(())
    }

    fn note_duplicate(&mut self, peer: PeerId, number: u8) {
        let arrivals = self.peers[peer].received_packets.get(&number);
        if let Some(via) = arrivals.and_then(|arrivals| arrivals.via) {
            self.links[via].stats.duplicate_packets += 1;
        }
    }

    /// Whether there is room for what the frames hold.
    fn admit(&self, now: Instant, peer: PeerId, frames: &[Frame<'_>]) -> Result<(), RefusedPacket> {
        let state = &self.peers[peer];
        let data = frames.iter().filter_map(|frame| match frame {
            Frame::Data(data, bytes) => Some((data, bytes.len())),
            _ => None,
        });
        let mut data = data.peekable();
        let has_room = data.peek().is_none() || self.events.has_room(Some(peer));
        let admits = has_room && state.inbox.admits(data, state.control.has_one(now));
        if admits { Ok(()) } else { Err(RefusedPacket::Bound) }
    }

    /// The link that a packet came by; one from elsewhere than the newest before it shows
    /// that the peer may have moved.
    fn attribute(
        &mut self,
        now: Instant,
        peer: PeerId,
        radio: RadioId,
        from: Place,
        (their_link, number, expected): (u8, u64, u64),
    ) -> Result<LinkId, RefusedPacket> {
        if let Some(link) = self.link_from(peer, radio, from) {
            return Ok(link);
        }
        // Which relays lead to a peer is for the file to say.
        if matches!(from, Place::Relay { .. }) {
            return Err(RefusedPacket::UnknownSession);
        }
        let arrivals = &self.peers[peer].received_packets;
        let before = arrivals.get(&their_link).and_then(|arrivals| arrivals.via);
        // Two links of the peer do not lead to one of ours, but while one of them is mistaken.
        let mut others = arrivals.iter().filter(|(number, _)| **number != their_link);
        let before = before.filter(|_| others.all(|(_, other)| other.via != before));
        let link = before.or_else(|| self.link_towards(peer, radio, from));
        let link = link.ok_or(RefusedPacket::UnknownSession)?;
        if number >= expected {
            self.challenge(now, link, radio, from);
        }
        Ok(link)
    }

    /// Notes that a packet arrived, and plans its acknowledgement.
    fn enter(
        &mut self,
        now: Instant,
        peer: PeerId,
        link: LinkId,
        header: &SessionHeader,
        (number, len, time): (u64, usize, Option<u32>),
        frames: &[Frame<'_>],
    ) {
        let state = &mut self.peers[peer];
        let arrivals =
            state.received_packets.entry(header.link).or_insert_with(ReceivedPackets::new);
        let trigger = AckTrigger { ack_soon: header.ack_soon, gap: number != arrivals.expected() };
        arrivals.insert(now, number);
        if let Some(time) = time {
            state.clock.on_packet(now, time);
            arrivals.on_queueing_delay(state.clock.waited(now, time).unwrap_or_default());
        }
        arrivals.via = Some(link);
        if frames.iter().any(|f| matches!(f, Frame::Data(..) | Frame::Relay(..) | Frame::Ping)) {
            if header.relayed {
                arrivals.plan_relayed_ack(now);
            } else if frames.iter().any(|f| matches!(f, Frame::Relay(..))) {
                arrivals.plan_hop_ack(now, trigger);
            } else {
                let ip_bytes = len + self.links[link].config.header_bytes;
                arrivals.plan_ack(now, ip_bytes, trigger);
            }
            let due = arrivals.ack_due();
            self.timers.set(Timer::Ack(peer, header.link), due);
        }
    }

    /// Something of the session came by `link`: it is up.
    pub(crate) fn mark_received(&mut self, now: Instant, id: LinkId, datagram_len: usize) {
        let link = &mut self.links[id];
        link.last_received = Some(now);
        if datagram_len > 0 {
            link.stats.received_packets += 1;
            link.stats.received_bytes += (datagram_len + link.config.header_bytes) as u64;
        }
        let timeout = self.config.link_timeout.unwrap_or_else(|| link.timeout());
        self.timers.set(Timer::Silent(id), Some(now + timeout));
        if link.up {
            return;
        }
        link.up = true;
        link.confirm_address();
        link.last_eliciting = now;
        let peer = link.peer;
        self.arm_link(id);
        self.emit(Event::LinkUp { link: id });
        let peer_state = &mut self.peers[peer];
        if !std::mem::replace(&mut peer_state.up, true) {
            peer_state.inbox.resume(now);
            self.emit(Event::PeerUp { peer, new_session: false });
        }
    }

    pub(crate) fn mark_down(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        if !std::mem::replace(&mut link.up, false) {
            return;
        }
        link.silent = false;
        link.headroom.forget();
        self.mark_all_lost(now, id);
        self.timers.set(Timer::Ping(id), None);
        self.timers.set(Timer::Silent(id), None);
        self.timers.set(Timer::Reconnect(id), Some(now));
        self.emit(Event::LinkDown { link: id });
        let peer = self.links[id].peer;
        let state = &mut self.peers[peer];
        if state.up && !state.links.iter().any(|l| self.links[*l].up) {
            state.up = false;
            let said_goodbye = state.said_goodbye;
            self.emit(Event::PeerDown { peer, said_goodbye });
        }
        if !self.direct_links(peer).any(|link| link.up) {
            self.forget_routes(now, peer);
        }
    }

    fn handle_frame(
        &mut self,
        now: Instant,
        (peer, radio): (PeerId, RadioId),
        transit: Transit,
        frame: &Frame<'_>,
    ) {
        match frame {
            Frame::Data(data, bytes) => {
                let inbox = &mut self.peers[peer].inbox;
                let taken = inbox.take(now, transit, data, bytes);
                self.handle_taken(now, peer, ChannelId(data.channel), taken);
                self.arm_partials(now, peer);
            }
            Frame::Relay(data, bytes) => {
                let inbox = &mut self.peers[peer].inbox;
                let taken = inbox.take_relayed(now, transit, data, bytes);
                if let Taken::Message(message) = &taken {
                    let priority = data.channel as u8;
                    if let Err(reason) = self.handle_relay(now, radio, peer, priority, message) {
                        self.refused.add(reason);
                    }
                } else {
                    self.handle_taken(now, peer, ChannelId(data.channel), taken);
                }
                self.arm_partials(now, peer);
            }
            Frame::Ping
            | Frame::Goodbye
            | Frame::Ack(_)
            | Frame::Challenge(_)
            | Frame::Echo(_)
            | Frame::Clock(_)
            | Frame::Held(_)
            | Frame::Unknown(_) => {}
        }
    }

    fn handle_taken(&mut self, now: Instant, peer: PeerId, channel: ChannelId, taken: Taken) {
        match taken {
            Taken::Nothing => {}
            Taken::Message(message) => {
                self.emit(Event::Message { peer, channel, message });
            }
            Taken::Control(messages) => {
                for bytes in messages {
                    // What was held for one that is missing, or came in one packet, may be more
                    // than there are tokens.
                    self.peers[peer].control.charge(now);
                    match Control::parse(&bytes) {
                        Ok(control) => self.handle_control(now, peer, control),
                        Err(_) => self.refused.add(RefusedPacket::Malformed),
                    }
                }
            }
            Taken::UnknownChannel => self.refused.add(RefusedPacket::UnknownChannel),
            Taken::Bound => self.refused.add(RefusedPacket::Bound),
            Taken::TooLarge(found) => {
                let state = &self.peers[peer];
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

    /// `time`: the peer's clock when it sent the acknowledgement, if it was told.
    fn handle_ack(&mut self, now: Instant, peer: PeerId, time: Option<u32>, ack: &Ack) {
        let id = match self.numbered(peer, ack.link) {
            Numbered::Open(id) => id,
            // Of packets that were under way when the link was removed.
            Numbered::Retired => return,
            Numbered::Unknown => return self.refused.add(RefusedPacket::Malformed),
        };
        let link = &mut self.links[id];
        match link.sent_packets.acknowledge(now, ack) {
            Ok(outcome) => {
                link.report(now, time, ack, &outcome);
                self.apply_outcome(now, id, outcome);
                self.report_headroom(now, id);
            }
            Err(()) => self.refused.add(RefusedPacket::Malformed),
        }
    }

    pub(crate) fn apply_outcome(&mut self, now: Instant, id: LinkId, outcome: Outcome) {
        let link = &mut self.links[id];
        link.stats.acked_packets += outcome.acked_packets;
        link.stats.lost_packets += outcome.lost_packets;
        link.stats.spurious_losses += outcome.spurious_losses;
        let silent = link.sent_packets.is_silent();
        let fell_silent = silent && !link.silent;
        link.silent = silent;
        // The next ping need not wait for a heartbeat: whether the peer is there is the question.
        link.ping_now |= link.up && (fell_silent || outcome.overdue && outcome.lost_packets > 0);
        let peer = link.peer;
        let outbox = &mut self.peers[peer].outbox;
        for piece in &outcome.acked {
            outbox.acked(piece);
        }
        for piece in &outcome.lost {
            let _ = outbox.lost(now, piece, !outcome.overdue);
        }
        if fell_silent {
            self.mark_all_lost(now, id);
            // The peer may have started again, and not know our keys.
            self.timers.set(Timer::Reconnect(id), Some(now));
        }
        self.arm_link(id);
        self.arm_expiry(now, peer);
    }

    /// What is under way on a link that has gone silent will not arrive; to send
    /// it again later costs no budget, since it is no answer to congestion.
    pub(crate) fn mark_all_lost(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        let outcome = link.sent_packets.mark_all_lost();
        link.stats.lost_packets += outcome.lost_packets;
        let peer = link.peer;
        let outbox = &mut self.peers[peer].outbox;
        for piece in &outcome.lost {
            if outbox.lost(now, piece, true) {
                outbox.refund(piece);
            }
        }
        self.arm_link(id);
        self.arm_expiry(now, peer);
    }

    fn handle_control(&mut self, now: Instant, peer: PeerId, control: Control) {
        let state = &mut self.peers[peer];
        let wants_answer = matches!(control, Control::Offer(_) | Control::GetDefinition { .. });
        if wants_answer && state.outbox.control_backlog() >= limits::CONTROL_BACKLOG {
            return self.refused.add(RefusedPacket::Bound);
        }
        match control {
            Control::Offer(offer) => {
                let known = state.inbox.channels.contains_key(&offer.channel);
                if !known && state.inbox.channels.len() >= MAX_CHANNELS {
                    return self.refused.add(RefusedPacket::Bound);
                }
                if state.inbox.offered(offer.channel, offer.topic.clone()) {
                    if known {
                        state.definitions.topic_removed();
                    }
                    self.resolve_definition(now, peer, offer.channel, offer.topic);
                }
            }
            Control::Withdraw { channel } => {
                state.awaiting_definition.remove(&channel);
                if state.inbox.withdrawn(channel) {
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
                    state.tell(now, &Control::Definition { channel, text });
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
            state.tell(now, &Control::GetDefinition { channel });
        }
    }

    fn handle_definition(&mut self, peer: PeerId, channel: u64, text: String) {
        let state = &mut self.peers[peer];
        if !state.awaiting_definition.remove(&channel) {
            return;
        }
        let Some(open) = state.inbox.channels.get(&channel) else { return };
        let topic = open.topic.clone();
        let mut definition: Arc<str> = text.into();
        if !state.definitions.insert(&topic, &definition) {
            let offered = state.inbox.channels.values().map(|channel| &channel.topic);
            state.definitions.retain_used(offered);
            if !state.definitions.insert(&topic, &definition) {
                self.refused.add(RefusedPacket::Bound);
                definition = "".into();
            }
        }
        let channel = ChannelId(channel);
        self.emit(Event::Offered { peer, channel, topic, definition });
    }

    /// Tells people, unless so much waits already that they will be told enough.
    pub(crate) fn notice(&mut self, notice: Notice) {
        if self.events.has_room(self.sender) {
            self.emit(Event::Notice(notice));
        }
    }
}

/// What neighbours send each other alone. A packet that relays carry holds none of it: packets
/// could be nested without end.
fn is_for_neighbours(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::Relay(..) | Frame::Held(_))
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
        let link = &self.links[id];
        self.timers.set(Timer::Loss(id), link.sent_packets.timer());
        self.timers.set(Timer::Stall(id), link.stall_at());
        let pause = if link.silent { PROBE_EVERY } else { self.config.heartbeat };
        let ping_at = link.up.then(|| link.last_eliciting + pause);
        self.timers.set(Timer::Ping(id), ping_at.filter(|_| !link.ping_now));
    }

    pub(crate) fn arm_expiry(&mut self, now: Instant, peer: PeerId) {
        let outbox = &self.peers[peer].outbox;
        let mut at = outbox.next_expiry();
        if outbox.waiting_messages() > 0 && outbox.next_in_order(Scope::All).is_none() {
            at = Some(at.map_or(now + REPAIR_POLL, |at| at.min(now + REPAIR_POLL)));
        }
        self.timers.set(Timer::Expiry(peer), at);
    }

    fn arm_partials(&mut self, now: Instant, peer: PeerId) {
        let inbox = &self.peers[peer].inbox;
        // Incomplete messages are few and their end is not urgent: a tenth of their time is exact enough.
        if inbox.has_partials() && !self.timers.is_set(&Timer::Partials(peer)) {
            self.timers.set(Timer::Partials(peer), Some(now + PARTIAL_TIMEOUT / 10));
        }
    }
}
