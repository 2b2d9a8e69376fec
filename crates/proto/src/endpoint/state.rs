// SPDX-License-Identifier: Apache-2.0
//! The public face of a node: packets, timeouts and events.

use crate::config::Config;
use crate::endpoint::arrival::Arrival;
use crate::endpoint::context::Context;
use crate::endpoint::events::Event;
use crate::endpoint::membership::check_name;
use crate::endpoint::network::Transmit;
use crate::endpoint::router::Router;
use crate::error::SetupError;
use crate::ids::{PeerId, RadioId};
use crate::time::Instant;
use crate::wire::packet::Packet;
use std::net::SocketAddr;

/// The protocol of one node. It owns no socket, clock, thread or randomness.
pub struct Endpoint {
    pub(crate) router: Router,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// A node without peers. `random` is the only source of randomness.
    pub fn new(config: Config, random: Box<dyn FnMut() -> u64 + Send>) -> Result<Self, SetupError> {
        check_name(&config.name)?;
        Ok(Self { router: Router::new(Context::new(config, random)) })
    }
}

/// Received packets.
impl Endpoint {
    /// Handles a datagram that arrives now from `from` by `radio`. Returns the sender if the
    /// datagram could be decrypted with the keys of a session with a peer, whatever its content.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        radio: RadioId,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Option<PeerId> {
        self.handle_received_packet(now, Arrival::default(), radio, from, bytes)
    }

    /// Like [`Self::handle_packet`], for a datagram about whose arrival the caller knows more.
    pub fn handle_received_packet(
        &mut self,
        now: Instant,
        arrival: Arrival,
        radio: RadioId,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Option<PeerId> {
        self.router.receive(now, arrival.origin(now, radio, from), bytes);
        self.router.net.cx.authenticated_peer.take()
    }

    /// Like [`Self::handle_received_packet`]. Decrypts the datagram where it is, without a copy.
    pub fn handle_packet_in_place(
        &mut self,
        now: Instant,
        arrival: Arrival,
        radio: RadioId,
        from: SocketAddr,
        bytes: &mut [u8],
    ) -> Option<PeerId> {
        self.router.receive_in_place(now, arrival.origin(now, radio, from), bytes);
        self.router.net.cx.authenticated_peer.take()
    }

    /// The peer from which a datagram claims to come, by its session number. Anybody who hears the
    /// session can make this claim.
    pub fn claimed_sender(&self, bytes: &[u8]) -> Option<PeerId> {
        match Packet::parse(bytes) {
            Ok(Packet::Session(header, _)) => self.router.net.peers.find_by_session(header.session),
            _ => None,
        }
    }

    /// Whether a datagram has a session number that this node drew. Other datagrams cannot move a
    /// link, so that the radio by which they came does not matter.
    pub fn has_known_session(&self, bytes: &[u8]) -> bool {
        let number = match Packet::parse(bytes) {
            Ok(Packet::Session(header, _)) => header.session,
            Ok(Packet::Response(response)) => response.your_session,
            _ => return false,
        };
        self.router.net.peers.find_by_session(number).is_some()
    }
}

/// Timers and outputs.
impl Endpoint {
    /// When to call [`Self::handle_timeout`], unless another input comes first.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.router.net.cx.timers.next_time()
    }

    /// Handles all timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.router.handle_timeout(now);
    }

    /// The next datagram to send now. Call until it returns `None`, and again after the next input or
    /// timeout.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        self.router.poll_transmit(now)
    }

    /// Takes back the buffer of a datagram that was sent, for reuse by a later datagram.
    pub fn recycle(&mut self, datagram: Vec<u8>) {
        self.router.net.cx.spare_datagrams.put(datagram);
    }

    /// The next event for the application. Events of one peer keep their order; peers are served in
    /// round robin.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.poll_event_of().map(|(_, event)| event)
    }

    /// The next event, with the peer that it concerns or whose packet caused it.
    pub fn poll_event_of(&mut self) -> Option<(Option<PeerId>, Event)> {
        self.router.net.cx.events.pop()
    }
}
