// SPDX-License-Identifier: Apache-2.0
//! Received packets: sockets are read in turn, and no peer takes more than its share of the time.

use super::common::Common;
use super::link::ClassSocket;
use super::links::Links;
use super::usage::{Admission, Usage};
use crate::limits::TIME_SHARE;
use crate::udp::{Datagram, Inbox};
use std::io::ErrorKind;
use std::mem::take;
use std::net::SocketAddr;
use std::time::Duration;
use tautline_proto::{Instant, PeerId, RadioId};

/// Time after which the next socket is read, even if few datagrams were read: the effects of one
/// packet may take hundreds of microseconds.
const READ_TIME: Duration = Duration::from_micros(200);

pub(super) struct PacketReader {
    inbox: Inbox,
    pub(super) usage: Usage,
    /// Whether the socket of the node may hold more datagrams than were read.
    pub(super) is_listen_readable: bool,
}

impl PacketReader {
    pub(super) fn new() -> Self {
        Self { inbox: Inbox::new(), usage: Usage::default(), is_listen_readable: true }
    }

    pub(super) fn read_sockets(&mut self, common: &mut Common, links: &mut Links) {
        for index in 0..links.table.len() {
            for place in 0..links.table[index].sockets.len() {
                if links.table[index].sockets.get(place).is_some_and(|it| it.readable) {
                    self.read_link(common, links, (index, place));
                }
            }
        }
        if self.is_listen_readable {
            self.read_listen(common, links);
        }
    }

    fn read_link(
        &mut self,
        common: &mut Common,
        links: &mut Links,
        (index, place): (usize, usize),
    ) {
        // The path of the socket, not of the link. If the link was moved to another radio by
        // mistake, the packets that its own socket receives move it back.
        let path = &links.table[index].sockets[place].socket.path;
        let (from, interface) = (path.remote, path.interface.clone());
        let radio = links.radios.get_or_add(common, &interface);
        let was_heard = links.table[index].is_heard(&common.endpoint);
        let mut is_answered = false;
        let begun = common.now();
        let mut inbox = take(&mut self.inbox);
        let mut now = begun;
        while links.table[index].sockets[place].readable && now.since(begun) <= READ_TIME {
            let before = now;
            let ClassSocket { socket, readable, .. } = &mut links.table[index].sockets[place];
            match socket.receive(&mut inbox) {
                Ok(()) => *readable = !inbox.is_socket_empty,
                Err(error) if error.kind() == ErrorKind::WouldBlock => *readable = false,
                // An ICMP error that an earlier packet caused. Reading it cleared it.
                Err(_) => {}
            }
            let local = Some(socket.local);
            let received = common.now();
            now = received;
            while let Some(mut datagram) = inbox.take(now.since(received)) {
                datagram.arrival.local = local;
                is_answered |= self.handle(common, &mut now, (radio, from), &mut inbox, &datagram);
            }
            inbox.adapt(now.since(before), READ_TIME);
        }
        self.inbox = inbox;
        let link = &links.table[index];
        let is_answered = is_answered || link.is_heard(&common.endpoint);
        if link.sockets[place].is_trial && !was_heard && is_answered {
            links.adopt_trial(common, index);
        }
    }

    fn read_listen(&mut self, common: &mut Common, links: &mut Links) {
        let mut inbox = take(&mut self.inbox);
        let received = inbox.receive(common.listen.reporting());
        let is_empty = match received {
            Ok(()) => inbox.is_socket_empty,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        self.is_listen_readable = !is_empty;
        let received = common.now();
        let mut now = received;
        while let Some(datagram) = inbox.take(now.since(received)) {
            let bytes = inbox.bytes(&datagram);
            let radio = links.radios.radio_towards(common, &links.table, datagram.from, bytes);
            now = common.now();
            self.handle(common, &mut now, (radio, datagram.from), &mut inbox, &datagram);
        }
        self.inbox = inbox;
    }

    /// Handles a datagram unless its sender has used up its share of the loop's time. Returns whether the
    /// datagram is a packet of a session. Advances `now` to the time at which the handling ended.
    fn handle(
        &mut self,
        common: &mut Common,
        now: &mut Instant,
        (radio, from): (RadioId, SocketAddr),
        inbox: &mut Inbox,
        datagram: &Datagram,
    ) -> bool {
        let (begun, arrival) = (*now, datagram.arrival);
        let bytes = inbox.bytes_mut(datagram);
        let endpoint = &mut common.endpoint;
        let claimed = endpoint.claimed_sender(bytes);
        match claimed.map_or(Admission::Granted, |peer| self.usage.admit(begun, peer)) {
            Admission::Granted => {
                let sender = endpoint.handle_packet_in_place(begun, arrival, radio, from, bytes);
                *now = common.clock.now();
                if let Some(peer) = sender {
                    self.usage.charge(begun, *now, peer);
                }
                return sender.is_some();
            }
            Admission::Denied { is_first: false } => {}
            Admission::Denied { is_first: true } => {
                let Some(peer) = claimed else { return false };
                report_excess(common, begun, peer);
            }
        }
        false
    }
}

fn report_excess(common: &mut Common, now: Instant, peer: PeerId) {
    let text = format!(
        "packets of '{}' take more than {:.0} % of the data plane's time at '{}'; the excess is \
         dropped",
        common.endpoint.peer(peer).name,
        TIME_SHARE * 100.0,
        common.endpoint.name(),
    );
    common.shared.peer_notice(now, peer, &text);
}
