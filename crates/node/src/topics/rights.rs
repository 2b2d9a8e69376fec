// SPDX-License-Identifier: Apache-2.0
//! What a peer may do here: move this robot, send so much, have its topics passed on so high.

use super::{Key, Topics};
use crate::config::PeerConfig;
use tautline_gateway::mapping::is_command;
use tautline_proto::{Duration, Endpoint, Instant, OfferedTopic, PeerId};

/// After so long without a drop another one is told again.
const CALM: Duration = Duration::from_secs(10);

/// Rights of one peer beyond its names (`accept`).
#[derive(Debug)]
pub(super) struct Rights {
    rate: Option<Bucket>,
    max_priority: u8,
    /// The last message that came too fast.
    dropped: Option<Instant>,
}

/// Messages of one channel that came faster than they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OverRate {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// One second's worth of bits, which come back as time passes.
#[derive(Debug)]
struct Bucket {
    rate_bps: u64,
    /// Below zero after a message larger than the bucket.
    bits: f64,
    filled: Instant,
}

impl Bucket {
    fn new(rate_bps: u64) -> Self {
        Self { rate_bps, bits: rate_bps as f64, filled: Instant(0) }
    }

    /// Takes a message if there is enough for it. One larger than the bucket needs a full one:
    /// it could never pass else.
    fn take(&mut self, now: Instant, bytes: usize) -> bool {
        let (rate, bits) = (self.rate_bps as f64, bytes as f64 * 8.0);
        let passed = now.since(self.filled).as_secs_f64();
        (self.bits, self.filled) = ((self.bits + passed * rate).min(rate), now);
        let enough = self.bits >= bits.min(rate);
        if enough {
            self.bits -= bits;
        }
        enough
    }
}

impl Rights {
    pub(super) fn new(peer: &PeerConfig) -> Self {
        let rate = peer.max_rate_bps.map(Bucket::new);
        Self { rate, max_priority: peer.max_priority, dropped: None }
    }
}

impl Topics {
    /// Whether a topic that a peer offers may be published here: one that makes a robot move
    /// only if the file names it among those taken of the peer.
    pub(super) fn may_publish(&self, key: Key) -> bool {
        let names = &self.name_maps[key.0.0 as usize];
        self.remote.get(&key).is_some_and(|remote| {
            let topic = &remote.topic;
            !is_command(&topic.type_name, &topic.type_hash) || names.accepts(&remote.offered_name)
        })
    }

    /// Forgets a topic that would make this robot move and that nobody here asked for.
    pub(super) fn refuse_command(&mut self, now: Instant, endpoint: &mut Endpoint, key: Key) {
        let Some(found) = self.remote.get(&key) else { return };
        let (name, type_name) = (&found.offered_name, &found.topic.type_name);
        let (here, peer) = (endpoint.name(), self.peer_name(key.0));
        let text = format!(
            "{name} ({type_name}): it makes a robot move, and '{here}' takes it from '{peer}' \
             only where peers.{peer}.accept names it"
        );
        // It may have had another type before, and been read.
        self.remote_withdrawn(now, endpoint, key);
        endpoint.want(now, key.0, key.1, false);
        self.tell_both(now, endpoint, key, text);
    }

    /// Tells people at both ends why something of a peer is not taken.
    pub(super) fn tell_both(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        text: String,
    ) {
        endpoint.refuse(now, key.0, key.1, text.clone());
        self.notice(now, text);
    }

    /// Tells of an offer above the peer's highest priority.
    pub(super) fn check_priority(
        &mut self,
        now: Instant,
        endpoint: &Endpoint,
        peer: PeerId,
        offered: &OfferedTopic,
    ) {
        let allowed = self.rights[peer.0 as usize].max_priority;
        if offered.priority <= allowed {
            return;
        }
        let (name, found) = (&offered.name, offered.priority);
        let (here, peer) = (endpoint.name(), self.peer_name(peer));
        let text = format!(
            "{name} of '{peer}' has priority {found}; '{here}' allows it {allowed} \
             (peers.{peer}.max_priority)"
        );
        self.notice(now, text);
    }

    /// Whether a message of `bytes` is within what is taken of its peer; else it is counted, and
    /// the first of many told to both ends.
    pub(super) fn within_rate(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        bytes: usize,
    ) -> bool {
        let rights = &mut self.rights[key.0.0 as usize];
        let Some(bucket) = rights.rate.as_mut() else { return true };
        if bucket.take(now, bytes) {
            return true;
        }
        let rate_bps = bucket.rate_bps;
        let is_news = rights.dropped.replace(now).is_none_or(|last| now.since(last) > CALM);
        let Some(remote) = self.remote.get_mut(&key) else { return false };
        remote.over_rate.messages += 1;
        remote.over_rate.bytes += bytes as u64;
        if is_news {
            let name = remote.offered_name.clone();
            let (here, peer) = (endpoint.name(), self.peer_name(key.0));
            let text = format!(
                "{name}, perhaps others too: topics of '{peer}' come faster than the {} kbps that \
                 '{here}' takes (peers.{peer}.max_rate); the rest is dropped",
                rate_bps as f64 / 1e3
            );
            self.tell_both(now, endpoint, key, text);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant(0) + Duration::from_millis(millis)
    }

    #[test]
    fn a_second_of_bits_is_taken_at_once_and_then_as_many_as_come_back() {
        let mut bucket = Bucket::new(8000);
        assert!(bucket.take(at(5000), 400) && bucket.take(at(5000), 600));
        assert!(!bucket.take(at(5000), 1));
        assert!(!bucket.take(at(5100), 101), "100 bytes have come back");
        assert!(bucket.take(at(5100), 100));
        assert!(bucket.take(at(60_000), 1000) && !bucket.take(at(60_000), 1), "never more");
    }

    #[test]
    fn a_message_larger_than_the_bucket_passes_and_is_paid_for() {
        let mut bucket = Bucket::new(8000);
        assert!(bucket.take(at(1000), 3000));
        assert!(!bucket.take(at(2900), 1), "2000 bytes are owed");
        assert!(bucket.take(at(3100), 1));
        assert!(!bucket.take(at(3500), 3000), "it is not full");
        assert!(bucket.take(at(4200), 3000));
    }
}
