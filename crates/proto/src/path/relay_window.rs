// SPDX-License-Identifier: Apache-2.0
//! What may be on the way to a node behind a relay.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A packet may follow to a node behind a relay while fewer bytes than this have not been sent
/// on by the last relay: one full packet at a time. With two of them the laser's p99 over three
/// hops was 55 ms in place of 37, and fewer images arrived (`tautline-lab validate relays`).
pub(crate) const WINDOW: usize = 1000;
/// All priorities together may have so many times that on the way.
const MAX_WINDOWS: usize = 8;

/// What is on the way by a link through a relay, as far as can be told: the relay
/// sends the highest priority first.
#[derive(Debug, Default)]
pub(crate) struct RelayWindow(BTreeMap<Reverse<u8>, usize>);

impl RelayWindow {
    pub(crate) fn add(&mut self, priority: u8, bytes: usize) {
        *self.0.entry(Reverse(priority)).or_default() += bytes;
    }

    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let mut gone = self.total().saturating_sub(bytes);
        while let Some(mut highest) = self.0.first_entry().filter(|_| gone > 0) {
            let part = gone.min(*highest.get());
            gone -= part;
            *highest.get_mut() -= part;
            if *highest.get() == 0 {
                highest.remove();
            }
        }
    }

    fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Whether another packet may follow: only what it would have to wait for counts.
    pub(crate) fn admits(&self, priority: u8) -> bool {
        let ahead: usize = self.0.range(..=Reverse(priority)).map(|(_, bytes)| bytes).sum();
        ahead < WINDOW && self.total() < MAX_WINDOWS * WINDOW
    }
}
