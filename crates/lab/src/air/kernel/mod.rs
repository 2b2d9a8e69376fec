// SPDX-License-Identifier: Apache-2.0
//! Stations as network namespaces. The kernel holds every frame between them.
//!
//! A frame that a station sends on a radio is queued in the kernel, still charged to its socket, as
//! in a driver that has not sent it yet. It stays there until it is discarded. Receivers get
//! injected copies.
//!
//! ```text
//! station: IP stack, ARP ─▶ radio wlan0, a VXLAN device
//!                             │ UDP
//! air:                        ▼
//!      iptables' rule ─▶ queue (held)
//!                          injected frames ─▶ loopback ─▶ the other radio, in its station
//! ```

mod encapsulation;
mod inject;
mod layout;
mod netlink;
mod queue;

pub use encapsulation::RadioNumber;
pub use layout::{MTU, interface, mac};
pub use queue::Troubles;

use crate::rig::namespace::{self, Namespaces, batch, enter};
use crate::rig::processes::run;
use crate::scenario::Scenario;
use anyhow::{Context, Result};
use inject::Injector;
use queue::{PacketQueue, QUEUE_NUMBER, REPORT_BYTES, Report};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of destination, source and type.
pub const ETHERNET_HEADER_BYTES: usize = 14;

/// A frame that the kernel holds until it is discarded.
#[derive(Debug)]
pub struct HeldFrame {
    /// The radio that sends it.
    pub radio: RadioNumber,
    /// The kernel's number of the frame.
    pub packet_id: u32,
    /// Destination, source, type and payload; checksums are complete.
    pub ethernet: Vec<u8>,
}

impl HeldFrame {
    /// Returns the bytes of the payload: an IP packet, or ARP's 28.
    pub fn payload_bytes(&self) -> usize {
        self.ethernet.len().saturating_sub(ETHERNET_HEADER_BYTES)
    }

    /// Whether the destination is a group (broadcast or multicast, which includes an ARP request).
    pub fn is_for_a_group(&self) -> bool {
        self.ethernet.first().is_some_and(|byte| byte & 1 == 1)
    }
}

/// The stations, their radios and all held frames. Dropping this value removes them.
pub struct Plumbing {
    queue: PacketQueue,
    injector: Injector,
    buffer: Vec<u8>,
    uninjected: u64,
    // This is the last field, so that the interfaces outlive their users.
    _namespaces: Namespaces,
}

impl AsFd for Plumbing {
    /// Returns the descriptor to poll: readable when a new frame is held.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl Plumbing {
    /// Creates and connects all stations. Call it inside an enclosure, where no namespace has the name
    /// of a station yet.
    pub fn new(scenario: &Scenario) -> Result<Self> {
        layout::check_names(scenario)?;
        let stations = scenario.stations.iter().map(|station| station.name.clone());
        let namespaces = Namespaces::new(stations.chain([layout::AIR.to_owned()]).collect())?;
        let queue = enter(layout::AIR, PacketQueue::open)?;
        // The rule precedes the links, so that no frame bypasses it.
        hold_frames()?;
        batch(&["-n", layout::AIR], &layout::air_links(scenario))
            .context("cannot make radios (CONFIG_VXLAN)")?;
        for (number, station) in scenario.stations.iter().enumerate() {
            batch(&["-n", &station.name], &layout::station_links(scenario, number))?;
        }
        Ok(Self {
            queue,
            injector: Injector::new(layout::AIR)?,
            buffer: vec![0; REPORT_BYTES],
            uninjected: 0,
            _namespaces: namespaces,
        })
    }

    /// Appends the newly held frames, in the order in which they were sent; never blocks.
    pub fn receive(&mut self, frames: &mut Vec<HeldFrame>) -> Result<()> {
        let take = |Report { packet_id, packet }: Report<'_>| {
            if let Some((radio, ethernet)) = encapsulation::unwrap(packet) {
                frames.push(HeldFrame { radio, packet_id, ethernet: ethernet.to_vec() });
            }
        };
        self.queue.receive(&mut self.buffer, take)
    }

    /// Makes the kernel free a frame.
    pub fn discard(&mut self, frame: &HeldFrame) -> Result<()> {
        self.queue.discard(frame.packet_id)
    }

    /// Delivers a whole frame to a radio.
    pub fn inject(&mut self, radio: RadioNumber, ethernet: &[u8]) -> Result<()> {
        self.uninjected += u64::from(!self.injector.inject(radio, ethernet)?);
        Ok(())
    }

    /// Returns the counts of the queue's failures so far.
    pub fn troubles(&self) -> Troubles {
        self.queue.troubles()
    }

    /// Returns the number of injected frames for which the kernel had no buffer space.
    pub fn uninjected_frames(&self) -> u64 {
        self.uninjected
    }
}

/// Directs the frames of radios to the queue.
fn hold_frames() -> Result<()> {
    let number = QUEUE_NUMBER.to_string();
    let mut rule = namespace::command(layout::AIR, "iptables");
    rule.args(["-w", "-t", "mangle", "-A", "OUTPUT", "-s", encapsulation::RADIOS]);
    rule.args(["-j", "NFQUEUE", "--queue-num", &number]);
    run(&mut rule)
        .context("cannot hold frames (CONFIG_NETFILTER_XT_TARGET_NFQUEUE, package iptables)")?;
    Ok(())
}
