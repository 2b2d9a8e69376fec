// SPDX-License-Identifier: Apache-2.0
//! Sent packets: the packets that the protocol builds leave in trains, each train by the socket of its
//! link and class.

use super::common::Common;
use super::link::{header_bytes, send};
use super::links::Links;
use super::train::Train;
use crate::udp::{self, LinkSocket, PartialSendError};
use tautline_proto::{LinkId, Transmit};

/// Maximum number of packets sent before inputs are checked again, if the kernel takes all of them
/// immediately: two full trains of full packets.
const TRANSMIT_BATCH: usize = 88;

#[derive(Default)]
pub(super) struct PacketSender {
    /// Packets that leave next.
    train: Train,
    /// Whether more packets may leave than were sent.
    pub(super) is_unfinished: bool,
}

impl PacketSender {
    /// Sends the packets that may leave now. Notes whether there may be more.
    pub(super) fn transmit(&mut self, common: &mut Common, links: &mut Links) {
        for _ in 0..TRANSMIT_BATCH {
            let now = common.now();
            let Some(transmit) = common.endpoint.poll_transmit(now) else {
                // Sending may allow the protocol to build more packets.
                if self.send_train(common, links, None) {
                    continue;
                }
                self.is_unfinished = false;
                return;
            };
            let rate_bps = transmit.link.and_then(|id| common.endpoint.pacing_rate(id));
            if !self.train.can_append(&transmit, rate_bps) {
                self.send_train(common, links, Some(&transmit));
            }
            self.train.push(transmit);
        }
        self.send_train(common, links, None);
        self.is_unfinished = true;
    }

    /// Sends the packets that were built; returns whether more may leave now. `next` was built after
    /// them.
    fn send_train(
        &mut self,
        common: &mut Common,
        links: &mut Links,
        next: Option<&Transmit>,
    ) -> bool {
        let packets = self.train.take_packets();
        let Some(first) = packets.first() else { return false };
        match first.link {
            Some(id) => {
                // The protocol counts the next packet as in flight already.
                let next = next.filter(|it| it.link == first.link && it.class == first.class);
                let next_bytes = next.map_or(0, |it| it.datagram.len() + header_bytes(it.remote));
                send_on(common, links, id, &packets, next_bytes);
            }
            None => packets.iter().for_each(|it| common.listen.send(it)),
        }
        packets.into_iter().for_each(|it| common.endpoint.recycle(it.datagram));
        true
    }
}

/// Sends packets by the socket of their link.
fn send_on(
    common: &mut Common,
    links: &mut Links,
    id: LinkId,
    packets: &[Transmit],
    next_bytes: usize,
) {
    let (index, Some(first)) = (id.0 as usize, packets.first()) else { return };
    if index >= links.table.len() {
        return;
    }
    links.follow_addresses(common, index, first.remote);
    let link = &mut links.table[index];
    let class = first.class;
    // Such a packet replies to one that came in at another local address. Its receiver need not be the peer.
    let is_elsewhere = first.local.is_some() && first.local != link.source;
    let in_flight = match link.socket_of(class) {
        Some(socket) if is_elsewhere && first.local != Some(socket.local) => {
            let in_flight = socket.in_flight();
            packets.iter().for_each(|it| common.listen.send(it));
            in_flight
        }
        Some(socket) => match send(socket, packets) {
            Ok(in_flight) => in_flight,
            Err(not_sent) => {
                tracing::debug!(error = %not_sent.error, remote = %first.remote, "a packet was not sent");
                report_refused(common, id, socket, packets, &not_sent);
                socket.in_flight()
            }
        },
        None => 0,
    };
    let in_flight = in_flight + next_bytes;
    if link.port.is_searching() && !link.is_heard(&common.endpoint) {
        link.copy_to_trial(common.clock.now(), packets);
    }
    common.endpoint.link_mut(id).handle_in_flight(common.clock.now(), class, in_flight);
}

/// Reports to the protocol the packets that the interface refuses for their size. An error may also come from
/// an ICMP message, which anybody can forge; so the size is compared with the interface's own MTU.
fn report_refused(
    common: &mut Common,
    id: LinkId,
    socket: &LinkSocket,
    packets: &[Transmit],
    PartialSendError { sent, error }: &PartialSendError,
) {
    if udp::is_too_large(error)
        && let Ok(mtu) = socket.interface_mtu()
    {
        let now = common.clock.now();
        for it in &packets[*sent..] {
            if it.datagram.len() > mtu.saturating_sub(header_bytes(it.remote)) {
                common.endpoint.link_mut(id).handle_refused(now, &it.datagram);
            }
        }
    }
}
