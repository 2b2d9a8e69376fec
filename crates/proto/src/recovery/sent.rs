// SPDX-License-Identifier: Apache-2.0
//! The sent-packet table of a link: packets whose outcome is unknown.
//!
//! Loss detection follows RACK-TLP (RFC 8985). A packet is lost when a packet sent later was
//! acknowledged and the link is not known to reorder by that much ([`ReorderWindow`]). The last
//! packets before a pause, whose loss no later packet can reveal, are declared lost when their
//! acknowledgement is overdue.
//! Round trips are smoothed as in RFC 9002, section 5.

use crate::class::{CLASSES, Class};
use crate::delivery::Piece;
use crate::ecn::Ecn;
use crate::path::mtu::PathMtu;
use crate::rate::PAUSE;
use crate::recovery::MAX_SENT_PACKETS;
use crate::recovery::ecn::EcnPath;
use crate::recovery::reorder::ReorderWindow;
use crate::recovery::rtt::{Rtt, update_ack_delay};
use crate::time::{Duration, Instant};
use crate::wire::frame::Ack;
use std::collections::VecDeque;

/// The longest delay of an acknowledgement by a receiver, unless the peer was seen to take longer.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(10);
/// The longest delay of an acknowledgement of a packet with Ack Soon: about the time of one packet
/// at 6 Mbps.
pub(crate) const ACK_SOON_DELAY: Duration = Duration::from_millis(2);
/// A lost packet stays in the table for this time, to recognise a late acknowledgement.
const LOST_MEMORY: Duration = Duration::from_secs(1);
/// Least allowance for the jitter of timers and schedulers at both ends.
const GRANULARITY: Duration = Duration::from_millis(2);
/// Least allowance for jitter through relays, where a packet may wait for more urgent packets.
const RELAY_GRANULARITY: Duration = Duration::from_millis(250);
/// The overdue time doubles at most this many times while nothing is acknowledged.
const MAX_BACKOFF: u32 = 6;
/// A link is silent after this many overdue times in a row: about 100 ms at 6 Mbps.
const SILENT_AFTER: u32 = 3;
/// A packet counts as sent after this time if the driver does not report it.
const MAX_KERNEL_TIME: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Outstanding,
    /// Acknowledged, or not ack-eliciting.
    Acked,
    /// `confirmed`: a later packet showed the loss. If instead nothing was acknowledged, the link or
    /// the path back may be interrupted.
    Lost {
        confirmed: bool,
    },
}

#[derive(Debug)]
struct SentPacket {
    built: Instant,
    class: Class,
    /// When the driver sent the packet. The overdue time counts from then.
    driver_sent: Instant,
    ip_bytes: usize,
    /// IP bytes sent on the link up to and including this packet.
    sent_bytes: u64,
    fate: Fate,
    ack_soon: bool,
    ecn: Ecn,
    pieces: Vec<Piece>,
}

/// What a packet asks of its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckRequest {
    /// The packet is not ack-eliciting.
    None,
    /// An acknowledgement.
    Delayed,
    /// An early acknowledgement (Ack Soon).
    Soon,
}

/// Packets whose state an acknowledgement or a timer changed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) acked: Vec<Piece>,
    pub(crate) lost: Vec<Piece>,
    /// The lost packets are overdue: no later packet was acknowledged.
    pub(crate) overdue: bool,
    pub(crate) acked_packets: u64,
    pub(crate) lost_packets: u64,
    /// Number of runs of consecutive packets among the lost packets.
    pub(crate) loss_runs: u64,
    /// Packets that arrived although they had been declared lost.
    pub(crate) spurious_losses: u64,
    /// Spurious losses that a later packet had shown.
    pub(crate) reverted_losses: u64,
    /// Packets that the path marked, by the counts of the acknowledgement (ECN).
    pub(crate) marked_packets: u64,
    /// The packet with the largest number, if it is newly acknowledged.
    pub(crate) newest: Option<NewestAcked>,
    /// Sum of the times for which our kernel held the newly acknowledged packets.
    pub(crate) kernel_time: Duration,
    /// Time since our kernel sent the oldest newly acknowledged packet.
    oldest_age: Duration,
}

/// The newest packet that was acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewestAcked {
    pub(crate) number: u64,
    pub(crate) sent_bytes: u64,
    /// Time since our kernel sent it.
    pub(crate) since_sent: Duration,
    /// Our kernel held the packet until the end of a pause, so that the delay says nothing about the path.
    pub(crate) paused: bool,
    ack_soon: bool,
}

/// Packets of a class in our kernel: the number of the first packet, and the bytes of all.
#[derive(Debug, Clone, Copy)]
struct KernelQueue {
    first: u64,
    bytes: usize,
}

/// The acknowledgement that is being applied.
struct AckContext {
    now: Instant,
    /// The highest acknowledged packet number, and the time from its arrival to the acknowledgement.
    largest: u64,
    delay: Duration,
    /// The largest acknowledged packets before this acknowledgement.
    before: [LargestAcked; CLASSES],
}

/// The acknowledged packet with the highest number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct LargestAcked {
    number: u64,
    built: Instant,
}

/// The sent-packet table of one link.
#[derive(Debug)]
pub(crate) struct SentPackets {
    /// Number of `packets[0]`.
    first: u64,
    packets: VecDeque<SentPacket>,
    /// Outstanding packets by class.
    outstanding: [usize; CLASSES],
    /// No outstanding packet of the class has a lower number.
    settled_before: [u64; CLASSES],
    outstanding_bytes: usize,
    sent_bytes: u64,
    in_kernel: [KernelQueue; CLASSES],
    rtt: Rtt,
    /// For each class the largest acknowledged packet of this class and lower ones. Packets of
    /// higher classes overtake, so that they reveal no loss.
    largest_acked: [LargestAcked; CLASSES],
    reorder: ReorderWindow,
    backoff: u32,
    /// The longest recent acknowledgement delay of the peer for packets without Ack Soon.
    ack_delay: Duration,
    /// The longest recent acknowledgement delay of the peer for packets with Ack Soon.
    ack_soon_delay: Duration,
    /// Through a relay, packets overtake each other by priority, and each hop repairs its own
    /// losses: only an overdue acknowledgement shows a loss.
    relayed: bool,
    pub(crate) ecn: EcnPath,
    pub(crate) mtu: PathMtu,
    /// When the last probe of the MTU was built.
    probe_built: Instant,
}

impl SentPackets {
    pub(crate) fn new() -> Self {
        Self {
            first: 1,
            packets: VecDeque::new(),
            outstanding: [0; CLASSES],
            settled_before: [1; CLASSES],
            outstanding_bytes: 0,
            sent_bytes: 0,
            in_kernel: [KernelQueue { first: 1, bytes: 0 }; CLASSES],
            rtt: Rtt::default(),
            largest_acked: [LargestAcked::default(); CLASSES],
            reorder: ReorderWindow::default(),
            backoff: 0,
            ack_delay: ACK_DELAY,
            ack_soon_delay: ACK_SOON_DELAY,
            relayed: false,
            ecn: EcnPath::default(),
            mtu: PathMtu::default(),
            probe_built: Instant::default(),
        }
    }

    /// The table of a link through a relay.
    pub(crate) fn relayed() -> Self {
        Self { relayed: true, ..Self::new() }
    }

    /// Returns the table of a link that takes over the number of this link and continues its packet
    /// numbers.
    pub(crate) fn successor(&self, relayed: bool) -> Self {
        let first = self.next_number();
        let in_kernel = [KernelQueue { first, bytes: 0 }; CLASSES];
        let mut ecn = self.ecn;
        ecn.test(first);
        Self { first, settled_before: [first; CLASSES], in_kernel, relayed, ecn, ..Self::new() }
    }

    /// IP bytes of the packets whose outcome is unknown.
    pub(crate) fn outstanding_bytes(&self) -> usize {
        self.outstanding_bytes
    }

    /// The longest time by which the peer recently delayed acknowledgements.
    pub(crate) fn ack_delay(&self) -> Duration {
        self.ack_delay
    }

    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// How often acknowledgements were overdue since the last acknowledgement arrived.
    pub(crate) fn consecutive_overdue(&self) -> u32 {
        self.backoff
    }

    /// Whether packets are sent and nothing is acknowledged.
    pub(crate) fn is_silent(&self) -> bool {
        self.backoff >= SILENT_AFTER
    }

    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// The ECN field of the packet that is recorded next. Only a packet with an IP header of its own has such
    /// a field.
    pub(crate) fn next_ecn(&mut self, request: AckRequest) -> Ecn {
        if self.relayed {
            return Ecn::NotCapable;
        }
        self.ecn.on_sent(self.next_number(), request != AckRequest::None)
    }

    /// Tests again whether the path carries ECN, because the path may have changed.
    pub(crate) fn test_ecn(&mut self) {
        self.ecn.test(self.next_number());
    }

    /// Records the packet with [`Self::next_number`]. Returns the pieces of the oldest packet if it
    /// is evicted from a full table while its outcome is unknown.
    pub(crate) fn record(
        &mut self,
        now: Instant,
        class: Class,
        pieces: Vec<Piece>,
        request: AckRequest,
        ip_bytes: usize,
        ecn: Ecn,
    ) -> Vec<Piece> {
        let eliciting = request != AckRequest::None;
        let ack_soon = request == AckRequest::Soon;
        let fate = if eliciting { Fate::Outstanding } else { Fate::Acked };
        if eliciting {
            self.outstanding[class as usize] += 1;
            self.outstanding_bytes += ip_bytes;
        }
        self.in_kernel[class as usize].bytes += ip_bytes;
        self.sent_bytes += ip_bytes as u64;
        self.packets.push_back(SentPacket {
            built: now,
            class,
            driver_sent: now + MAX_KERNEL_TIME,
            ip_bytes,
            sent_bytes: self.sent_bytes,
            fate,
            ack_soon,
            ecn,
            pieces,
        });
        if self.packets.len() <= MAX_SENT_PACKETS {
            return Vec::new();
        }
        match self.pop_oldest() {
            Some(oldest) if oldest.fate == Fate::Outstanding => {
                self.outstanding[oldest.class as usize] -= 1;
                self.outstanding_bytes -= oldest.ip_bytes;
                oldest.pieces
            }
            _ => Vec::new(),
        }
    }

    /// Whether another packet would evict a packet whose outcome is unknown. The repair of the evicted packet
    /// would evict the next, without end.
    pub(crate) fn is_full(&self) -> bool {
        let oldest = self.packets.front();
        self.packets.len() >= MAX_SENT_PACKETS
            && oldest.is_some_and(|p| p.fate == Fate::Outstanding)
    }

    fn pop_oldest(&mut self) -> Option<SentPacket> {
        let oldest = self.packets.pop_front()?;
        for (in_kernel, class) in self.in_kernel.iter_mut().zip(Class::ALL) {
            if in_kernel.first == self.first {
                in_kernel.first += 1;
                in_kernel.bytes -= if oldest.class == class { oldest.ip_bytes } else { 0 };
            }
        }
        self.first += 1;
        Some(oldest)
    }

    /// Notes that the kernel holds `bytes` of the link's packets of a class. They are the packets
    /// that were handed to the kernel last.
    pub(crate) fn on_in_flight(&mut self, now: Instant, class: Class, bytes: usize) {
        let in_kernel = &mut self.in_kernel[class as usize];
        for packet in self.packets.range_mut((in_kernel.first - self.first) as usize..) {
            if packet.class == class {
                if in_kernel.bytes - packet.ip_bytes < bytes {
                    return;
                }
                packet.driver_sent = packet.driver_sent.min(now);
                in_kernel.bytes -= packet.ip_bytes;
            }
            in_kernel.first += 1;
        }
    }

    /// Applies an acknowledgement; `Err` if it names packets that were never sent.
    pub(crate) fn acknowledge(&mut self, now: Instant, ack: &Ack) -> Result<Outcome, ()> {
        let largest = ack.ranges.first().map_or(0, |(_, last)| *last);
        if largest >= self.next_number() {
            return Err(());
        }
        let mut outcome = Outcome::default();
        let context = AckContext { now, largest, delay: ack.delay, before: self.largest_acked };
        for &(first, last) in &ack.ranges {
            for number in first.max(self.first)..=last {
                self.ack_one(number, &context, &mut outcome);
            }
        }
        if outcome.acked_packets > 0 {
            self.backoff = 0;
        }
        if let Some(newest) = outcome.newest {
            let peer_delay = outcome.oldest_age.saturating_sub(newest.since_sent) + ack.delay;
            update_ack_delay(&mut self.ack_delay, peer_delay, ACK_DELAY);
            if newest.ack_soon {
                update_ack_delay(&mut self.ack_soon_delay, ack.delay, ACK_SOON_DELAY);
            }
        }
        outcome.marked_packets = self.ecn.on_counts(now, largest, ack.ecn);
        self.find_losses(now, &mut outcome);
        self.check_probe(now, ack);
        self.forget_settled(now);
        Ok(outcome)
    }

    /// Records a probe of the path's MTU. Its outcome concerns only [`PathMtu`]. Returns the time at which
    /// its acknowledgement is overdue.
    pub(crate) fn record_probe(&mut self, now: Instant, class: Class, ip_bytes: usize) -> Instant {
        self.probe_built = now;
        self.mtu.on_probe_sent(self.next_number(), ip_bytes);
        self.record(now, class, Vec::new(), AckRequest::None, ip_bytes, Ecn::NotCapable);
        now + self.overdue_after(true)
    }

    /// Decides whether the probe arrived or was lost. Only the arrival of a later packet shows a
    /// loss: in an outage, nothing arrives.
    fn check_probe(&mut self, now: Instant, ack: &Ack) {
        let Some(number) = self.mtu.probe() else { return };
        let newest = self.largest_acked[Class::Voice as usize];
        let window = self.reorder.get();
        let is_overtaken = newest.number > number
            && (newest.built >= self.probe_built + window
                || now >= self.probe_built + self.rtt.smoothed_or_initial() + window);
        if ack.ranges.iter().any(|(first, last)| (*first..=*last).contains(&number)) {
            self.mtu.on_probe_acked(now);
        } else if is_overtaken {
            self.mtu.on_probe_lost(now);
        }
    }

    fn ack_one(&mut self, number: u64, ack: &AckContext, outcome: &mut Outcome) {
        let now = ack.now;
        let packet = &mut self.packets[(number - self.first) as usize];
        let before = std::mem::replace(&mut packet.fate, Fate::Acked);
        let rtt = self.rtt.smoothed_or_initial();
        let newest = ack.before[packet.class as usize];
        let overtaken = number < newest.number && !self.relayed;
        match before {
            Fate::Acked => return,
            Fate::Outstanding => {
                self.outstanding[packet.class as usize] -= 1;
                self.outstanding_bytes -= packet.ip_bytes;
            }
            Fate::Lost { confirmed } => {
                outcome.spurious_losses += 1;
                outcome.reverted_losses += u64::from(confirmed);
                if !overtaken {
                    self.reorder.on_late_ack(rtt);
                }
            }
        }
        if overtaken {
            let built = packet.built;
            let lateness = now.since(built + rtt).max(newest.built.since(built));
            self.reorder.on_late(lateness, rtt);
        }
        self.ecn.on_acked(number, packet.ecn);
        self.mtu.on_acked(number, packet.ip_bytes);
        outcome.acked_packets += 1;
        let sent = packet.driver_sent.min(now);
        let since_sent = now.since(sent);
        let kernel_time = sent.since(packet.built);
        outcome.kernel_time += kernel_time;
        if before == Fate::Outstanding {
            outcome.oldest_age = outcome.oldest_age.max(since_sent);
        }
        outcome.acked.append(&mut packet.pieces);
        for largest in &mut self.largest_acked[packet.class as usize..] {
            *largest = (*largest).max(LargestAcked { number, built: packet.built });
        }
        if number == ack.largest {
            let SentPacket { sent_bytes, ack_soon, .. } = *packet;
            let paused = kernel_time > PAUSE && !self.relayed;
            outcome.newest = Some(NewestAcked { number, sent_bytes, since_sent, paused, ack_soon });
            if !paused || self.rtt.smoothed().is_none() {
                self.rtt.update(now.since(packet.built).saturating_sub(ack.delay));
            }
        }
    }

    /// Declares lost all packets that are overdue now.
    pub(crate) fn on_timer(&mut self, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        self.find_losses(now, &mut outcome);
        if outcome.lost_packets == 0 {
            for index in 0..self.packets.len() {
                if self.overdue_at(&self.packets[index]).is_some_and(|at| at <= now) {
                    self.suspect_black_hole(index);
                    self.mark_lost(index, false, &mut outcome);
                }
            }
            if outcome.lost_packets > 0 {
                self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
                outcome.overdue = true;
            }
        }
        self.forget_settled(now);
        outcome
    }

    /// Declares all outstanding packets lost, as when the link went down.
    pub(crate) fn mark_all_lost(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        self.mtu.on_interruption();
        for index in 0..self.packets.len() {
            if self.packets[index].fate == Fate::Outstanding {
                self.mark_lost(index, false, &mut outcome);
            }
        }
        outcome
    }

    /// Records that the kernel did not send a packet because it is too large. Returns the pieces of the
    /// packet, which have to be repaired.
    pub(crate) fn on_refused(&mut self, now: Instant, number: u64, ip_bytes: usize) -> Vec<Piece> {
        // If there is no smaller size, repairs would immediately build the same packet again. The
        // packet counts as lost later instead.
        if !self.mtu.on_refused(now, ip_bytes) {
            return Vec::new();
        }
        let index = number.checked_sub(self.first).map(|index| index as usize);
        let Some(packet) = index.and_then(|index| self.packets.get_mut(index)) else {
            return Vec::new();
        };
        if packet.fate == Fate::Outstanding {
            packet.fate = Fate::Acked;
            self.outstanding[packet.class as usize] -= 1;
            self.outstanding_bytes -= packet.ip_bytes;
        }
        std::mem::take(&mut packet.pieces)
    }

    /// When to call [`Self::on_timer`].
    pub(crate) fn timer(&mut self) -> Option<Instant> {
        Class::ALL.into_iter().filter_map(|class| self.class_timer(class)).min()
    }

    /// The index of the oldest packet of a class whose outcome is unknown. The search continues where the
    /// last one ended: no packet becomes outstanding again.
    fn oldest_outstanding(&mut self, class: Class) -> Option<usize> {
        if self.outstanding[class as usize] == 0 {
            return None;
        }
        let is_due = |p: &SentPacket| p.class == class && p.fate == Fate::Outstanding;
        let settled_before = &mut self.settled_before[class as usize];
        let begin = settled_before.saturating_sub(self.first) as usize;
        let index = begin + self.packets.range(begin..).position(is_due)?;
        *settled_before = self.first + index as u64;
        Some(index)
    }

    fn class_timer(&mut self, class: Class) -> Option<Instant> {
        let oldest = self.oldest_outstanding(class)?;
        let packet = &self.packets[oldest];
        let is_overtaken = !self.relayed
            && self.first + (oldest as u64) < self.largest_acked[class as usize].number;
        let overdue = self.overdue_at(packet)?;
        Some(if is_overtaken { overdue.min(self.reorder_end(packet)) } else { overdue })
    }

    fn reorder_end(&self, packet: &SentPacket) -> Instant {
        packet.built + self.rtt.smoothed_or_initial() + self.reorder.get()
    }

    fn overdue_at(&self, packet: &SentPacket) -> Option<Instant> {
        if packet.fate != Fate::Outstanding {
            return None;
        }
        Some(packet.driver_sent + self.overdue_after(packet.ack_soon) * (1 << self.backoff))
    }

    /// Time from the sending of a packet until its acknowledgement is overdue.
    fn overdue_after(&self, ack_soon: bool) -> Duration {
        let ack_delay = if ack_soon { self.ack_soon_delay } else { self.ack_delay };
        let least = if self.relayed { RELAY_GRANULARITY } else { GRANULARITY };
        let allowance = (self.rtt.variation() * 4).max(least) + self.reorder.get();
        self.rtt.smoothed_or_initial() + allowance + ack_delay
    }

    fn find_losses(&mut self, now: Instant, outcome: &mut Outcome) {
        if self.relayed {
            return;
        }
        // The entry of the highest class covers all classes.
        let newest = self.largest_acked[Class::Voice as usize].number;
        let before_newest = newest.saturating_sub(self.first) as usize;
        let outstanding = Class::ALL.into_iter().filter_map(|it| self.oldest_outstanding(it));
        let oldest = outstanding.min().unwrap_or(before_newest);
        for index in oldest..before_newest.min(self.packets.len()) {
            let packet = &self.packets[index];
            let largest = self.largest_acked[packet.class as usize];
            if packet.fate != Fate::Outstanding || self.first + index as u64 >= largest.number {
                continue;
            }
            let overtaken = largest.built >= packet.built + self.reorder.get();
            if overtaken || now >= self.reorder_end(packet) {
                self.suspect_black_hole(index);
                self.mark_lost(index, true, outcome);
            }
        }
    }

    /// Reports to [`PathMtu`] a lost packet that the path may have dropped for its size, and not because of
    /// an interruption.
    fn suspect_black_hole(&mut self, index: usize) {
        let number = self.first + index as u64;
        self.mtu.on_lost(number, self.next_number(), self.packets[index].ip_bytes);
    }

    /// Declares a packet lost. `confirmed`: see [`Fate::Lost`].
    fn mark_lost(&mut self, index: usize, confirmed: bool, outcome: &mut Outcome) {
        let is_lost = |packet: &SentPacket| matches!(packet.fate, Fate::Lost { .. });
        let continues = index > 0 && is_lost(&self.packets[index - 1]);
        outcome.loss_runs += u64::from(!continues);
        let next_number = self.next_number();
        let packet = &mut self.packets[index];
        self.ecn.on_lost(self.first + index as u64, packet.ecn, next_number);
        packet.fate = Fate::Lost { confirmed };
        self.outstanding[packet.class as usize] -= 1;
        self.outstanding_bytes -= packet.ip_bytes;
        outcome.lost_packets += 1;
        outcome.lost.extend_from_slice(&packet.pieces);
        self.reorder.on_loss();
    }

    fn forget_settled(&mut self, now: Instant) {
        while let Some(front) = self.packets.front() {
            let settled = match front.fate {
                Fate::Acked => true,
                Fate::Lost { .. } => now.since(front.built) > LOST_MEMORY,
                Fate::Outstanding => false,
            };
            // The newest packet stays, so that `next_number` never repeats.
            if !settled || self.packets.len() == 1 {
                return;
            }
            self.pop_oldest();
        }
    }
}

#[cfg(test)]
mod tests;
