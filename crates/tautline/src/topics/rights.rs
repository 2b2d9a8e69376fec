// SPDX-License-Identifier: Apache-2.0
//! The rights of a peer: what it may publish, serve and call, what is advertised to it, its rate,
//! and the maximum priority at which its topics are relayed.

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
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::own::{message_hash, service_hash};
use tautline_proto::{Duration, Instant};

/// Time without drops after which the next drop is reported again.
const QUIET_TIME: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Rights {
    pub(super) names: NameMap,
    pub(super) call: Vec<Pattern>,
    offer: Vec<Pattern>,
    pub(super) show: Show,
    pub(super) set_parameters: Vec<Pattern>,
    /// Hashes of the message types that `accept` names and that are installed here.
    message_hashes: BTreeMap<String, String>,
    /// Hashes of the service types that `accept` names and that are installed here.
    service_hashes: BTreeMap<String, String>,
    rate: Rate,
    pub(super) max_priority: u8,
    move_stamps: bool,
    /// The messages dropped above the rate that were not recorded yet.
    burst: Option<Burst>,
}

/// The file's decision about a request of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    Granted,
    /// Not allowed: `accept` names other things.
    NotListed,
    /// Not allowed: no line of the file allows it.
    NotConfigured,
}

/// A type as a peer advertises it, and its local form where that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfferedType<'a> {
    /// The name of the type at the peer.
    pub(super) offered: &'a str,
    /// The name of the type here. It is the same if both robots use the same ROS.
    pub(super) name: &'a str,
    pub(super) hash: &'a str,
    /// Whether `name` and `hash` are still those of the other ROS, because the local form is not known yet.
    pub(super) is_foreign: bool,
}

/// Messages of one channel that were dropped above the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DroppedTraffic {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl DroppedTraffic {
    pub(super) fn add(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

/// The messages of all channels that were dropped above the rate, with pauses shorter than [`QUIET_TIME`].
#[derive(Debug)]
struct Burst {
    last: Instant,
    dropped: DroppedTraffic,
}

/// A token bucket that holds the bits or messages of one second.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    /// Negative after a message larger than the bucket.
    tokens: f64,
    last_refill: Instant,
}

impl Bucket {
    fn new(per_second: u64) -> Self {
        Self { per_second, tokens: per_second as f64, last_refill: Instant(0) }
    }

    fn refill(&mut self, now: Instant) {
        let full = self.per_second as f64;
        let passed = now.since(self.last_refill).as_secs_f64();
        (self.tokens, self.last_refill) = ((self.tokens + passed * full).min(full), now);
    }

    /// Whether there are enough tokens for `amount`. An amount larger than the bucket needs a full
    /// bucket; otherwise it could never pass.
    fn has(&self, amount: f64) -> bool {
        self.tokens >= amount.min(self.per_second as f64)
    }
}

/// The rate at which messages of a peer are accepted.
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

    /// Uses tokens for a message, if both buckets have enough. Returns whether they had.
    fn admit(&mut self, now: Instant, bytes: usize) -> bool {
        let bits = bytes as f64 * 8.0;
        self.bits.refill(now);
        self.messages.refill(now);
        let enough = self.bits.has(bits) && self.messages.has(1.0);
        if enough {
            self.bits.tokens -= bits;
            self.messages.tokens -= 1.0;
        }
        enough
    }
}

impl Rights {
    pub(super) fn new(peer: &PeerConfig, ros: Option<&(Dialect, InstalledTypes)>) -> Self {
        let named = || peer.names.accept.iter().flat_map(|entry| entry.types.iter());
        let hashes = |hash: fn(&str, Dialect, &InstalledTypes) -> Option<String>| {
            let of = |name: &String| {
                let (dialect, installed) = ros?;
                Some((name.clone(), hash(name, *dialect, installed)?))
            };
            named().filter_map(of).collect()
        };
        Self {
            message_hashes: hashes(message_hash),
            service_hashes: hashes(service_hash),
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

    /// Returns the peer's right to publish here a topic that has the name `name` at the peer.
    pub(super) fn right_to_publish(&self, name: &str, found: OfferedType<'_>) -> Right {
        let is_log =
            !found.is_foreign && self.log_prefix(name, found.offered, found.hash).is_some();
        // Topics of an action are read only by clients of the action, under a name that they chose.
        let default = is_observation(found.name, found.hash)
            || is_action_topic(name, found.offered)
            || is_log;
        self.right(name, found, &self.message_hashes, default)
    }

    /// Returns the peer's right to serve here a service that has the name `name` at the peer. A
    /// prefix suffices, because clients then name this peer explicitly.
    pub(super) fn right_to_serve(&self, name: &str, found: OfferedType<'_>) -> Right {
        self.right(name, found, &self.service_hashes, true)
    }

    fn right(
        &self,
        name: &str,
        found: OfferedType<'_>,
        hashes: &BTreeMap<String, String>,
        under_prefix: bool,
    ) -> Right {
        let fits = |allowed: &str| {
            let known = hashes.get(allowed).filter(|_| !found.is_foreign);
            // ROS 2 before Iron has no type hashes, and matches types by name.
            let unknown = found.hash.is_empty() && found.name.matches('/').count() > 1;
            (is_type(allowed, name, found.offered) || is_type(allowed, name, found.name))
                && known.is_none_or(|own| unknown || own == found.hash)
        };
        match self.names.accepted(name, fits) {
            Accepted::Yes => Right::Granted,
            Accepted::OtherType => Right::NotConfigured,
            Accepted::No if under_prefix && !self.names.prefix.is_empty() => Right::Granted,
            Accepted::No if !self.names.accept.is_empty() => Right::NotListed,
            Accepted::No => Right::NotConfigured,
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

    /// Whether `name` is a service for parameters of a ROS 2 node, and the peer may use it.
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

    /// Returns the prefix for the logs of the peer's nodes, if `name` is their topic. The logs are published
    /// on this robot's topic of logs, unless the file gives the peer's topic another name.
    pub(super) fn log_prefix(&self, name: &str, type_name: &str, hash: &str) -> Option<&str> {
        let is_named = self.names.renames(name) || self.names.is_named(name);
        let prefix = self.names.prefix.as_str();
        (logs::is_log(name, type_name, hash) && !is_named && !prefix.is_empty()).then_some(prefix)
    }

    /// Replaces the rights except the rate, which must be the same in both. Tokens that were used
    /// still count.
    pub(super) fn update_keeping_rate(&mut self, new: Self) {
        let before = std::mem::replace(self, new);
        (self.rate, self.burst) = (before.rate, before.burst);
    }

    /// Whether stamps in the peer's messages are moved onto this robot's clock.
    pub(super) fn moves_stamps(&self) -> bool {
        self.move_stamps
    }

    /// Gives up the names of a peer that is removed, including its prefix.
    pub(super) fn forget_names(&mut self) {
        self.names = NameMap::default();
    }

    /// Accepts a message of `bytes` within the rate of the peer; `false` if it exceeds the rate.
    pub(super) fn admit(&mut self, now: Instant, bytes: usize) -> bool {
        self.rate.admit(now, bytes)
    }

    pub(super) fn rate_bps(&self) -> u64 {
        self.rate.bits.per_second
    }

    /// Counts a message above the rate. Returns whether it is the first message of a burst.
    pub(super) fn drop_excess(&mut self, now: Instant, bytes: usize) -> bool {
        let is_first = self.burst.is_none();
        let begun = Burst { last: now, dropped: DroppedTraffic::default() };
        let burst = self.burst.get_or_insert(begun);
        burst.last = now;
        burst.dropped.add(bytes);
        is_first
    }

    /// Ends a burst if nothing of the peer was dropped for [`QUIET_TIME`]. Returns what was dropped in it.
    pub(super) fn end_burst(&mut self, now: Instant) -> Option<DroppedTraffic> {
        let is_over = |burst: &mut Burst| now.since(burst.last) > QUIET_TIME;
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
        assert!(rate.admit(at(5000), 400) && rate.admit(at(5000), 600));
        assert!(!rate.admit(at(5000), 1));
        assert!(!rate.admit(at(5100), 101), "100 bytes have come back");
        assert!(rate.admit(at(5100), 100));
        assert!(rate.admit(at(60_000), 1000) && !rate.admit(at(60_000), 1), "never more");
    }

    #[test]
    fn a_message_larger_than_the_bucket_passes_and_is_charged() {
        let mut rate = Rate::new(8000);
        assert!(rate.admit(at(1000), 3000));
        assert!(!rate.admit(at(2900), 1), "2000 bytes are owed");
        assert!(rate.admit(at(3100), 1));
        assert!(!rate.admit(at(3500), 3000), "it is not full");
        assert!(rate.admit(at(4200), 3000));
    }

    #[test]
    fn small_messages_are_counted_as_well() {
        let mut rate = Rate::new(1_000_000_000);
        let taken = |rate: &mut Rate, now| (0..20_000).filter(|_| rate.admit(now, 1)).count();
        assert_eq!(taken(&mut rate, at(1000)), MESSAGES.per_second as usize);
        assert_eq!(taken(&mut rate, at(1500)), MESSAGES.per_second as usize / 2);
    }
}
