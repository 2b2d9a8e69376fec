// SPDX-License-Identifier: Apache-2.0
//! Channel access: carrier sense, interframe spaces and backoff, per radio and queue (IEEE
//! 802.11-2016, clauses 10.3 and 10.22.2).

use crate::config::{Access, Phy};
use crate::ids::Nanos;
use fastrand::Rng;
use std::collections::VecDeque;

/// Largest contention window, in slots minus one.
const WINDOW_MAX: u32 = 1023;

/// The parameters of an access category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Category {
    /// Idle time before backoff slots count.
    pub aifs: Nanos,
    /// Smallest contention window, in slots minus one.
    pub window_min: u32,
    /// Largest contention window, in slots minus one.
    pub window_max: u32,
}

impl Category {
    /// Returns the categories of a network, lowest first: one under DCF; background, best effort,
    /// video and voice under EDCA (table 9-137).
    pub fn for_access(phy: Phy, access: Access) -> Vec<Self> {
        let min = phy.window_min();
        let of =
            |slots, window_min, window_max| Self { aifs: phy.aifs(slots), window_min, window_max };
        let (half, quarter) = (min.div_ceil(2) - 1, min.div_ceil(4) - 1);
        match access {
            Access::Dcf => vec![of(2, min, WINDOW_MAX)],
            Access::Edca => vec![
                of(7, min, WINDOW_MAX),
                of(3, min, WINDOW_MAX),
                of(2, half, min),
                of(2, quarter, half),
            ],
        }
    }
}

/// Returns the category of a packet: by RFC 8325 and 8622 for the code points that they name,
/// otherwise by the upper three bits as user priority (IEEE 802.11-2016, table 10-1).
pub fn category_of(dscp: u8) -> usize {
    const USER_PRIORITY: [usize; 8] = [1, 0, 0, 1, 2, 2, 3, 3];
    match dscp {
        1 => 0,
        10 | 12 | 14 | 16 | 18 | 20 | 22 => 1,
        24 | 26 | 28 | 30 => 2,
        44 | 46 => 3,
        _ => USER_PRIORITY[usize::from(dscp >> 3 & 7)],
    }
}

/// One queue of a radio, with its backoff.
#[derive(Debug)]
pub struct Queue<F> {
    category: Category,
    pub frames: VecDeque<F>,
    /// Attempts of the first frame so far.
    pub attempts: u32,
    window: u32,
    /// Slots remaining at the start of the last idle period; `None`: may send after AIFS.
    backoff: Option<u32>,
    /// Arrival of the first frame, if no backoff was drawn for it.
    arrived: Nanos,
}

/// Carrier sense of a radio, and the backoff of its queues.
#[derive(Debug)]
pub struct ChannelAccess<F> {
    pub queues: Vec<Queue<F>>,
    slot: Nanos,
    eifs_extra: Nanos,
    /// Number of signals currently sensed.
    sensed: u32,
    idle_since: Nanos,
    /// End of the time reserved by other stations for their ACK (network allocation vector).
    reserved_until: Nanos,
    /// Whether the last sensed frame could not be read.
    unreadable: bool,
    /// Whether the radio transmits or waits for an ACK.
    pub engaged: bool,
    /// The next transmission, if it can no longer be stopped because the other signal is sensed too
    /// late.
    committed: Option<Start>,
}

/// The start of a transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    pub at: Nanos,
    pub queue: usize,
}

impl<F> Queue<F> {
    fn new(category: Category) -> Self {
        let window = category.window_min;
        let frames = VecDeque::new();
        Self { category, frames, attempts: 0, window, backoff: None, arrived: 0 }
    }

    fn draw(&mut self, random: &mut Rng) {
        self.backoff = Some(random.u32(0..=self.window));
    }

    /// Ends the last attempt of the first frame and removes the frame.
    pub fn finish(&mut self, random: &mut Rng) -> Option<F> {
        self.attempts = 0;
        self.window = self.category.window_min;
        self.draw(random);
        self.frames.pop_front()
    }

    /// Prepares the next attempt after a failed one.
    pub fn retry(&mut self, random: &mut Rng) {
        self.attempts += 1;
        self.widen(random);
    }

    fn widen(&mut self, random: &mut Rng) {
        self.window = (2 * self.window + 1).min(self.category.window_max);
        self.draw(random);
    }
}

impl<F> ChannelAccess<F> {
    pub fn new(phy: Phy, access: Access) -> Self {
        Self {
            queues: Category::for_access(phy, access).into_iter().map(Queue::new).collect(),
            slot: phy.slot(),
            eifs_extra: phy.eifs_extra(),
            sensed: 0,
            idle_since: 0,
            reserved_until: 0,
            unreadable: false,
            engaged: false,
            committed: None,
        }
    }

    /// Returns the start of a queue's backoff slots, if the channel stays idle.
    fn slots_from(&self, queue: &Queue<F>) -> Nanos {
        let extra = if self.unreadable { self.eifs_extra } else { 0 };
        self.idle_since.max(self.reserved_until) + extra + queue.category.aifs
    }

    fn is_idle(&self) -> bool {
        self.sensed == 0 && !self.engaged
    }

    /// Returns the next transmission; if several are due at the same time, that of the highest queue.
    pub fn next(&self) -> Option<Start> {
        if self.committed.is_some() {
            return self.committed;
        }
        if !self.is_idle() {
            return None;
        }
        let ready = self.queues.iter().enumerate().filter(|(_, queue)| !queue.frames.is_empty());
        let times = ready.map(|(number, queue)| {
            let slots = Nanos::from(queue.backoff.unwrap_or(0)) * self.slot;
            let at = self.slots_from(queue) + slots;
            let at = if queue.backoff.is_none() { at.max(queue.arrived) } else { at };
            Start { at, queue: number }
        });
        times.min_by_key(|start| (start.at, usize::MAX - start.queue))
    }

    /// Adds a frame to a queue.
    pub fn enqueue(&mut self, now: Nanos, number: usize, frame: F, random: &mut Rng) {
        self.count_down(now);
        let slots_from = self.slots_from(&self.queues[number]);
        let may_send = self.is_idle() && slots_from <= now;
        let queue = &mut self.queues[number];
        if queue.frames.is_empty() {
            queue.arrived = now;
            if !may_send && queue.backoff.is_none() {
                queue.draw(random);
            }
        }
        queue.frames.push_back(frame);
    }

    /// Counts down the backoff slots of the idle period up to `now`.
    fn count_down(&mut self, now: Nanos) {
        if !self.is_idle() {
            return;
        }
        for number in 0..self.queues.len() {
            let from = self.slots_from(&self.queues[number]);
            let queue = &mut self.queues[number];
            let Some(left) = queue.backoff else { continue };
            let passed = now.saturating_sub(from) / self.slot;
            if queue.frames.is_empty() && passed >= Nanos::from(left) && now >= from {
                queue.backoff = None;
            }
        }
    }

    fn freeze(&mut self, now: Nanos, random: &mut Rng) {
        self.count_down(now);
        for number in 0..self.queues.len() {
            let from = self.slots_from(&self.queues[number]);
            let queue = &mut self.queues[number];
            let Some(left) = queue.backoff else {
                if !queue.frames.is_empty() {
                    // The frame was about to be sent without backoff, but the channel is busy.
                    queue.draw(random);
                }
                continue;
            };
            let passed = now.saturating_sub(from) / self.slot;
            queue.backoff = Some(left - passed.min(Nanos::from(left)) as u32);
        }
    }

    /// Returns the queues that may send by `now`, if the channel stays idle.
    fn ready(&self, now: Nanos) -> Vec<usize> {
        let ready = |queue: &Queue<F>| {
            let slots = Nanos::from(queue.backoff.unwrap_or(0)) * self.slot;
            !queue.frames.is_empty() && self.slots_from(queue) + slots <= now
        };
        (0..self.queues.len()).filter(|number| ready(&self.queues[*number])).collect()
    }

    /// Resolves an internal collision: one ready queue sends, and the others back off.
    fn collide_within(&mut self, ready: &[usize], winner: usize, random: &mut Rng) {
        for number in ready.iter().filter(|number| **number != winner) {
            self.queues[*number].widen(random);
        }
    }

    /// Handles the start of another station's signal, which is sensed `sensing_time` later.
    pub fn on_signal_start(&mut self, now: Nanos, sensing_time: Nanos, random: &mut Rng) {
        if self.is_idle() {
            let sensed_at = now + sensing_time;
            self.committed = self.next().filter(|start| start.at <= sensed_at);
            let ready = self.ready(sensed_at);
            self.freeze(sensed_at, random);
            if let Some(Start { queue: winner, .. }) = self.committed {
                self.collide_within(&ready, winner, random);
            }
            self.unreadable = false;
        }
        self.sensed += 1;
    }

    /// Handles the end of another station's sensed signal.
    pub fn on_signal_end(&mut self, now: Nanos) {
        self.sensed -= 1;
        if self.sensed == 0 {
            self.idle_since = now;
        }
    }

    /// Handles a received frame. An unreadable frame makes the next wait longer (EIFS), until a
    /// readable frame arrives. If the frame was too weak to be sensed, backoff slots have passed
    /// meanwhile.
    pub fn on_frame(&mut self, now: Nanos, readable: bool, random: &mut Rng) {
        if self.is_idle() {
            self.freeze(now, random);
            self.idle_since = now;
        }
        self.unreadable = !readable;
    }

    /// Reserves the channel for another station's exchange until this time.
    pub fn reserve(&mut self, until: Nanos) {
        self.reserved_until = self.reserved_until.max(until);
    }

    /// Starts a transmission of a queue; lower queues that were ready back off.
    pub fn start_data(&mut self, now: Nanos, number: usize, random: &mut Rng) {
        if self.is_idle() {
            let ready = self.ready(now);
            self.freeze(now, random);
            self.collide_within(&ready, number, random);
        }
        self.committed = None;
        self.engaged = true;
    }

    /// Starts an ACK, whatever the radio senses.
    pub fn start_ack(&mut self, now: Nanos, random: &mut Rng) {
        if self.is_idle() {
            self.freeze(now, random);
        }
        self.committed = None;
        self.engaged = true;
    }

    /// Ends the radio's own transmission, including the wait for its ACK.
    pub fn release(&mut self, now: Nanos) {
        self.engaged = false;
        self.unreadable = false;
        if self.sensed == 0 {
            self.idle_since = self.idle_since.max(now);
        }
    }

    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.frames.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_map_to_the_categories_of_access_points() {
        assert_eq!(category_of(0), 1, "default: best effort");
        assert_eq!(category_of(8), 0, "CS1: background");
        assert_eq!(category_of(34), 2, "AF41: video");
        assert_eq!(category_of(46), 3, "EF: voice");
        assert_eq!(category_of(48), 3, "CS6: voice");
    }

    #[test]
    fn an_idle_radio_sends_after_difs_and_a_busy_one_draws_a_backoff() {
        let mut random = Rng::with_seed(1);
        let mut access = ChannelAccess::new(Phy::Ofdm, Access::Dcf);
        access.enqueue(1_000_000, 0, (), &mut random);
        assert_eq!(access.next(), Some(Start { at: 1_000_000, queue: 0 }), "long idle: at once");

        let mut access = ChannelAccess::new(Phy::Ofdm, Access::Dcf);
        access.on_signal_start(0, 4_000, &mut random);
        access.enqueue(10_000, 0, (), &mut random);
        assert_eq!(access.next(), None, "busy");
        access.on_signal_end(100_000);
        let at = access.next().unwrap().at;
        assert!(at >= 134_000 && (at - 134_000) % 9_000 == 0 && at <= 134_000 + 15 * 9_000);
        access.check_frozen_slots(at);
    }

    impl<F> ChannelAccess<F> {
        /// Slots that passed before a signal are not counted again.
        fn check_frozen_slots(&mut self, at: Nanos) {
            let mut random = Rng::with_seed(2);
            let slots = (at - 134_000) / 9_000;
            if slots == 0 {
                return;
            }
            self.on_signal_start(at - 9_000, 4_000, &mut random);
            assert_eq!(self.next(), None);
            self.on_signal_end(1_000_000);
            assert_eq!(self.next(), Some(Start { at: 1_000_000 + 34_000 + 9_000, queue: 0 }));
        }
    }

    #[test]
    fn a_radio_that_was_about_to_send_collides() {
        let mut random = Rng::with_seed(1);
        let mut access = ChannelAccess::new(Phy::Ofdm, Access::Dcf);
        access.enqueue(1_000_000, 0, (), &mut random);
        access.on_signal_start(998_000, 4_000, &mut random);
        assert_eq!(access.next(), Some(Start { at: 1_000_000, queue: 0 }));
    }

    #[test]
    fn an_internal_collision_during_another_start_causes_backoff_too() {
        let mut random = Rng::with_seed(1);
        let mut access = ChannelAccess::new(Phy::Ofdm, Access::Edca);
        for number in [0, 3] {
            access.enqueue(1_000_000, number, (), &mut random);
        }
        access.on_signal_start(998_000, 4_000, &mut random);
        assert_eq!(access.next(), Some(Start { at: 1_000_000, queue: 3 }));
        assert_eq!((access.queues[0].window, access.queues[3].window), (31, 3));
    }
}
