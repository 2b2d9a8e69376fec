// SPDX-License-Identifier: Apache-2.0
//! Packets held in the kernel until a verdict (linux/netfilter/nfnetlink_queue.h).

use super::netlink::{FLAG_ACKNOWLEDGE, Head, Incoming, Outgoing, Socket};
use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::{AsFd, BorrowedFd};

/// Number of the queue that holds the frames.
pub const QUEUE_NUMBER: u16 = 0;
/// Maximum number of held frames, of all stations. It exceeds the scenario's own limits, which
/// should govern. A frame beyond it is lost; only the kernel counts it.
const MAX_HELD_FRAMES: u32 = 1 << 16;
/// Buffer for frames that the kernel has reported and we have not read. Without root the kernel
/// grants less (net.core.rmem_max).
const REPORT_BUFFER_BYTES: usize = 16 << 20;
/// Longest copy that the kernel makes of a packet: the whole packet.
const WHOLE_PACKET: u32 = 0xffff;
/// Size of the read buffer: a report is one packet of at most 64 KiB and a few attributes.
pub const REPORT_BYTES: usize = 1 << 17;

const SUBSYSTEM: u16 = 3;
const PACKET: u16 = SUBSYSTEM << 8;
const VERDICT: u16 = SUBSYSTEM << 8 | 1;
const CONFIGURE: u16 = SUBSYSTEM << 8 | 2;
const CONFIGURE_COMMAND: u16 = 1;
const CONFIGURE_COPY: u16 = 2;
const CONFIGURE_LENGTH: u16 = 3;
const COMMAND_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
/// `NF_DROP`.
const VERDICT_DROP: u32 = 0;
const PAYLOAD: u16 = 10;

const ASKED: [(u32, &str); 3] = [
    (1, "a queue for packets (CONFIG_NETFILTER_NETLINK_QUEUE)"),
    (2, "whole packets from a queue"),
    (3, "a longer queue"),
];

/// A held packet as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report<'a> {
    /// Number for the verdict; counts up.
    pub packet_id: u32,
    /// The packet from its IP header on.
    pub packet: &'a [u8],
}

/// Counts of the queue's failures so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Troubles {
    /// Frames lost because we did not read the kernel's reports in time. Gaps in the numbers of
    /// reported frames show them.
    pub unreported_frames: u64,
    /// Verdicts on frames that no longer exist, for example after their interface was removed.
    pub refused_verdicts: u64,
}

/// The queue of one network namespace, for all packets in [`QUEUE_NUMBER`].
pub struct PacketQueue {
    socket: Socket,
    verdict: Outgoing,
    last_packet_id: u32,
    troubles: Troubles,
}

impl AsFd for PacketQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl PacketQueue {
    /// Opens the queue of the calling thread's network namespace.
    pub fn open() -> Result<Self> {
        let socket = Socket::open()?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, REPORT_BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, REPORT_BUFFER_BYTES)
                .context("cannot enlarge a netlink socket's buffer")?;
        }
        socket.request(&configuration(), &ASKED)?;
        let (verdict, troubles) = (Outgoing::default(), Troubles::default());
        Ok(Self { socket, verdict, last_packet_id: 0, troubles })
    }

    /// Passes each packet held now to `take`; never blocks. `buffer` has [`REPORT_BYTES`].
    pub fn receive(&mut self, buffer: &mut [u8], mut take: impl FnMut(Report<'_>)) -> Result<()> {
        loop {
            match self.socket.receive(buffer) {
                Ok(None) => return Ok(()),
                Ok(Some(bytes)) => {
                    Incoming::messages(bytes).filter_map(|it| self.note(&it)).for_each(&mut take);
                }
                // The gap in the numbers of the next reports shows how many frames were lost.
                Err(Errno::NOBUFS) => {}
                Err(error) => return Err(error).context("cannot read held frames"),
            }
        }
    }

    /// Makes the kernel free a packet; its socket is no longer charged.
    pub fn discard(&mut self, packet_id: u32) -> Result<()> {
        self.verdict.clear();
        let head = Head { kind: VERDICT, flags: 0, sequence: 0, resource: QUEUE_NUMBER };
        self.verdict.message(head, |message| {
            let mut value = [0; 8];
            value[..4].copy_from_slice(&VERDICT_DROP.to_be_bytes());
            value[4..].copy_from_slice(&packet_id.to_be_bytes());
            message.attribute(VERDICT_HEADER, &value);
        });
        self.socket.send(&self.verdict).context("cannot discard a held frame")
    }

    /// Returns the failure counts since the queue was opened.
    pub fn troubles(&self) -> Troubles {
        self.troubles
    }

    /// Returns the report in a message, if the message is a report.
    fn note<'a>(&mut self, message: &Incoming<'a>) -> Option<Report<'a>> {
        if matches!(message.outcome(), Some(Some(_))) {
            self.troubles.refused_verdicts += 1;
        }
        let report = Report::read(message)?;
        // The kernel numbers a frame before it tries to report it.
        let missing = report.packet_id.wrapping_sub(self.last_packet_id).saturating_sub(1);
        self.troubles.unreported_frames += u64::from(missing);
        self.last_packet_id = report.packet_id;
        Some(report)
    }
}

impl<'a> Report<'a> {
    fn read(message: &Incoming<'a>) -> Option<Self> {
        if message.kind != PACKET {
            return None;
        }
        let (mut packet_id, mut packet) = (None, None);
        for (kind, value) in message.attributes() {
            match kind {
                PACKET_HEADER => packet_id = number(value),
                PAYLOAD => packet = Some(value),
                _ => {}
            }
        }
        Some(Self { packet_id: packet_id?, packet: packet? })
    }
}

fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_be_bytes)
}

fn configuration() -> Outgoing {
    let mut messages = Outgoing::default();
    let head = |sequence| Head {
        kind: CONFIGURE,
        flags: FLAG_ACKNOWLEDGE,
        sequence,
        resource: QUEUE_NUMBER,
    };
    let [a, b, c, d] = WHOLE_PACKET.to_be_bytes();
    messages.message(head(1), |bind| {
        bind.attribute(CONFIGURE_COMMAND, &[COMMAND_BIND, 0, 0, 0]);
    });
    messages.message(head(2), |copy| {
        copy.attribute(CONFIGURE_COPY, &[a, b, c, d, COPY_PACKET]);
    });
    messages.message(head(3), |length| {
        length.attribute(CONFIGURE_LENGTH, &MAX_HELD_FRAMES.to_be_bytes());
    });
    messages
}
