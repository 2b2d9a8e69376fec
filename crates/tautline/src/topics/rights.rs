// SPDX-License-Identifier: Apache-2.0
//! The rights of a peer: what it may publish, serve, call and be offered, at which rate, and at
//! which priority its topics are relayed.

use super::parameters::may_use_parameters;
use crate::config::{PeerConfig, Show};
use crate::limits::MESSAGES;
use crate::treatment::peer_names::{Accepted, NameMap, is_type};
use std::collections::BTreeMap;
use tautline_gateway::action_names::is_action_topic;
use tautline_gateway::logs;
use tautline_gateway::observations::is_observation;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::types::Dialect;
use tautline_gateway::types::installed::Installed;
use tautline_gateway::types::own::{message_hash, service_hash};
use tautline_proto::{Duration, Instant};

/// Time without a drop after which another drop is reported again.
const CALM: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Rights {
    pub(super) names: NameMap,
    pub(super) call: Vec<Pattern>,
    offer: Vec<Pattern>,
    pub(super) show: Show,
    pub(super) set_parameters: Vec<Pattern>,
    /// Hashes of the types that `accept` names and that are installed here: as messages, and as
    /// services.
    messages: BTreeMap<String, String>,
    services: BTreeMap<String, String>,
    rate: Rate,
    pub(super) max_priority: u8,
    move_stamps: bool,
    /// Messages dropped above the rate since this was recorded.
    burst: Option<Burst>,
}

/// The file's decision on a request of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    Given,
    /// `accept` names only other things.
    LeftOut,
    /// No line allows it.
    Waits,
}

/// A type as a peer advertises it, and its local form where that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct TypeOf<'a> {
    /// At the peer.
    pub(super) offered: &'a str,
    /// The local form; the same where both robots use the same ROS.
    pub(super) name: &'a str,
    pub(super) hash: &'a str,
    /// Whether `name` and `hash` are of the other ROS, because the local form is not known yet.
    pub(super) is_foreign: bool,
}

/// Messages of one channel that were dropped above the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OverRate {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl OverRate {
    pub(super) fn add(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

/// Messages of all channels that were dropped above the rate, with pauses below [`CALM`].
#[derive(Debug)]
struct Burst {
    last: Instant,
    dropped: OverRate,
}

/// A token bucket that holds one second's worth of bits or messages.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    /// Negative after a message larger than the bucket.
    left: f64,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: u64) -> Self {
        Self { per_second, left: per_second as f64, filled: Instant(0) }
    }

    fn fill(&mut self, now: Instant) {
        let full = self.per_second as f64;
        let passed = now.since(self.filled).as_secs_f64();
        (self.left, self.filled) = ((self.left + passed * full).min(full), now);
    }

    /// Whether there are tokens for `amount`. An amount larger than the bucket needs a full one;
    /// otherwise it could never pass.
    fn has(&self, amount: f64) -> bool {
        self.left >= amount.min(self.per_second as f64)
    }
}

/// The rate at which messages of a peer are taken.
#[derive(Debug)]
struct Rate {
    bits: Bucket,
    messages: Bucket,
}

impl Rate {
    fn new(rate_bps: u64) -> Self {
        let messages = Bucket::new(MESSAGES.per_second.into());
        Self { bits: Bucket::new(rate_bps), messages }
    }

    /// Takes a message if both buckets have tokens for it.
    fn take(&mut self, now: Instant, bytes: usize) -> bool {
        let bits = bytes as f64 * 8.0;
        self.bits.fill(now);
        self.messages.fill(now);
        let enough = self.bits.has(bits) && self.messages.has(1.0);
        if enough {
            self.bits.left -= bits;
            self.messages.left -= 1.0;
        }
        enough
    }
}

impl Rights {
    pub(super) fn new(peer: &PeerConfig, ros: Option<&(Dialect, Installed)>) -> Self {
        let named = || peer.names.accept.iter().flat_map(|entry| entry.types.iter());
        let hashes = |hash: fn(&str, Dialect, &Installed) -> Option<String>| {
            let of = |name: &String| {
                let (dialect, installed) = ros?;
                Some((name.clone(), hash(name, *dialect, installed)?))
            };
            named().filter_map(of).collect()
        };
        Self {
            messages: hashes(message_hash),
            services: hashes(service_hash),
            names: peer.names.clone(),
            call: peer.call.clone(),
            offer: peer.offer.clone(),
            show: peer.show,
            set_parameters: peer.set_parameters.clone(),
            rate: Rate::new(peer.max_rate_bps),
            max_priority: peer.max_priority,
            move_stamps: peer.move_stamps,
            burst: None,
        }
    }

    /// Returns the right to publish here a topic that the peer has under `name`.
    pub(super) fn publish(&self, name: &str, found: TypeOf<'_>) -> Right {
        let is_log =
            !found.is_foreign && self.log_prefix(name, found.offered, found.hash).is_some();
        // Only clients of an action read its topics, under a name that they chose.
        let default = is_observation(found.name, found.hash)
            || is_action_topic(name, found.offered)
            || is_log;
        self.right(name, found, &self.messages, default)
    }

    /// Returns the right to serve here a service that the peer has under `name`. A prefix suffices:
    /// clients then name this peer explicitly.
    pub(super) fn serve(&self, name: &str, found: TypeOf<'_>) -> Right {
        self.right(name, found, &self.services, true)
    }

    fn right(
        &self,
        name: &str,
        found: TypeOf<'_>,
        hashes: &BTreeMap<String, String>,
        under_prefix: bool,
    ) -> Right {
        let fits = |allowed: &str| {
            let known = hashes.get(allowed).filter(|_| !found.is_foreign);
            // ROS 2 before Iron has no hashes and matches types by name.
            let unknown = found.hash.is_empty() && found.name.matches('/').count() > 1;
            (is_type(allowed, name, found.offered) || is_type(allowed, name, found.name))
                && known.is_none_or(|own| unknown || own == found.hash)
        };
        match self.names.accepted(name, fits) {
            Accepted::Yes => Right::Given,
            Accepted::OtherType => Right::Waits,
            Accepted::No if under_prefix && !self.names.prefix.is_empty() => Right::Given,
            Accepted::No if !self.names.accept.is_empty() => Right::LeftOut,
            Accepted::No => Right::Waits,
        }
    }

    /// Whether the peer may call a service of this robot.
    pub(super) fn may_call(&self, name: &str) -> bool {
        self.call.iter().any(|pattern| pattern.matches_or_action(name))
            || self.may_use_parameters(name)
    }

    /// Whether the peer may set a parameter of ROS 1.
    pub(super) fn may_set(&self, parameter: &str) -> bool {
        self.set_parameters.iter().any(|pattern| pattern.matches(parameter))
    }

    /// Whether `name` is a service for parameters of a node of ROS 2 that the peer may use.
    pub(super) fn may_use_parameters(&self, name: &str) -> bool {
        may_use_parameters(self.show, &self.set_parameters, name)
    }

    /// Whether a topic or service of this robot is advertised to the peer.
    pub(super) fn is_offered(&self, name: &str) -> bool {
        self.offer.is_empty()
            || self.offer.iter().any(|it| it.matches_or_action(name))
            || self.may_use_parameters(name)
            || (self.show.logs && name == logs::TOPIC)
    }

    /// The prefix for the logs of the peer's nodes, if this is their topic. They are published on the
    /// topic of this robot, unless the file gives the topic another name.
    pub(super) fn log_prefix(&self, name: &str, type_name: &str, hash: &str) -> Option<&str> {
        let is_named = self.names.renames(name) || self.names.is_named(name);
        let prefix = self.names.prefix.as_str();
        (logs::is_log(name, type_name, hash) && !is_named && !prefix.is_empty()).then_some(prefix)
    }

    /// Replaces the rights but keeps the rate, which must be the same: tokens already taken still
    /// count.
    pub(super) fn follow(&mut self, new: Self) {
        let before = std::mem::replace(self, new);
        (self.rate, self.burst) = (before.rate, before.burst);
    }

    /// Whether stamps in the peer's messages are moved onto this robot's clock.
    pub(super) fn moves_stamps(&self) -> bool {
        self.move_stamps
    }

    /// Gives up the prefix of a peer that is removed.
    pub(super) fn forget_names(&mut self) {
        self.names = NameMap::default();
    }

    /// Takes a message of `bytes` within the rate of the peer; `false` if it is above the rate.
    pub(super) fn take(&mut self, now: Instant, bytes: usize) -> bool {
        self.rate.take(now, bytes)
    }

    pub(super) fn rate_bps(&self) -> u64 {
        self.rate.bits.per_second
    }

    /// Counts a message above the rate; returns whether it is the first one of a burst.
    pub(super) fn drop_excess(&mut self, now: Instant, bytes: usize) -> bool {
        let is_first = self.burst.is_none();
        let begun = Burst { last: now, dropped: OverRate::default() };
        let burst = self.burst.get_or_insert(begun);
        burst.last = now;
        burst.dropped.add(bytes);
        is_first
    }

    /// Ends a burst: nothing of the peer was dropped for [`CALM`]. Returns what was dropped in it.
    pub(super) fn end_burst(&mut self, now: Instant) -> Option<OverRate> {
        let is_over = |burst: &mut Burst| now.since(burst.last) > CALM;
        self.burst.take_if(is_over).map(|burst| burst.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant(0) + Duration::from_millis(millis)
    }

    #[test]
    fn a_bucket_allows_a_burst_of_one_second() {
        let mut rate = Rate::new(8000);
        assert!(rate.take(at(5000), 400) && rate.take(at(5000), 600));
        assert!(!rate.take(at(5000), 1));
        assert!(!rate.take(at(5100), 101), "100 bytes have come back");
        assert!(rate.take(at(5100), 100));
        assert!(rate.take(at(60_000), 1000) && !rate.take(at(60_000), 1), "never more");
    }

    #[test]
    fn a_message_larger_than_the_bucket_passes_and_is_charged() {
        let mut rate = Rate::new(8000);
        assert!(rate.take(at(1000), 3000));
        assert!(!rate.take(at(2900), 1), "2000 bytes are owed");
        assert!(rate.take(at(3100), 1));
        assert!(!rate.take(at(3500), 3000), "it is not full");
        assert!(rate.take(at(4200), 3000));
    }

    #[test]
    fn small_messages_are_counted_as_well() {
        let mut rate = Rate::new(1_000_000_000);
        let taken = |rate: &mut Rate, now| (0..20_000).filter(|_| rate.take(now, 1)).count();
        assert_eq!(taken(&mut rate, at(1000)), MESSAGES.per_second as usize);
        assert_eq!(taken(&mut rate, at(1500)), MESSAGES.per_second as usize / 2);
    }
}
