// SPDX-License-Identifier: Apache-2.0
//! What [`Medium`](crate::Medium) needs of each network, and what each configuration states.

use crate::config::{Interference, Loss};
use crate::frame::{Frame, Output, RadioStats};
use crate::ids::{Nanos, RadioId, StationId};
use crate::scene::Scene;
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// A network of radios in virtual time.
pub trait Network<P> {
    /// Adds a radio; returns its number, which counts from 0. `queue_packets` limits its queue, if
    /// the model limits queues in packets.
    fn add(&mut self, id: RadioId, station: StationId, queue_packets: usize) -> usize;
    /// Adds interference, if the model has any.
    fn interfere(&mut self, _now: Nanos, _what: Interference) {}
    /// Changes the artificial loss.
    fn set_loss(&mut self, loss: Loss);
    /// Changes the rate.
    fn set_rate(&mut self, now: Nanos, rate_bps: u64);
    /// Returns a radio's counters.
    fn stats(&self, radio: usize) -> RadioStats;
    /// Returns the time for which the network has been in use, over all radios.
    fn busy(&self, now: Nanos) -> Nanos;
    /// Returns the time at which [`Network::step`] is due.
    fn next(&self) -> Option<Nanos>;
    /// Adds a frame to a radio's queue.
    ///
    /// # Errors
    /// Returns the frame if the queue is full.
    fn send(&mut self, now: Nanos, radio: usize, frame: Frame<P>) -> Result<(), Frame<P>>;
    /// Processes everything that is due at `now`, which is [`Network::next`].
    fn step(&mut self, now: Nanos, scene: &Scene, outputs: &mut VecDeque<Output<P>>);
}

/// What a configuration says about its network.
pub trait Facts {
    /// Returns the lowest and the highest rate at which frames are sent, in bits per second.
    fn bps(&self) -> RangeInclusive<u64>;
    /// Returns the bits per second that one direction can carry while frames are sent at `bps`.
    fn one_way_bps(&self, bps: u64) -> u64;
    /// Returns the time from the end of a frame's transmission to its arrival.
    fn latency(&self) -> Nanos {
        0
    }
}
