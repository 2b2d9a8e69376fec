// SPDX-License-Identifier: Apache-2.0
//! Bytes of a peer's messages that this robot's ROS holds: in transit to it, queued for slow
//! subscribers, or kept for late joiners. A message counts until its last copy is dropped.

use crate::limits::{HELD_BYTES, HELD_BYTES_OF_EACH_TOPIC, MAX_HELD_BYTES};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes held of one topic, and of all topics of its peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldBytes {
    topic: Arc<AtomicUsize>,
    peer: Arc<AtomicUsize>,
}

impl HeldBytes {
    /// Returns counters for another topic of the same peer.
    pub(super) fn sibling(&self) -> Self {
        Self { topic: Arc::default(), peer: self.peer.clone() }
    }

    /// Returns the message to be published, counted as held; `None` if too many bytes are held
    /// already. Beyond [`HELD_BYTES`] of the peer, and up to [`MAX_HELD_BYTES`], each topic may hold
    /// one message and the next, so that a topic whose subscribers keep up continues while others
    /// are slow.
    pub(super) fn hold(&self, payload: Bytes) -> Option<Bytes> {
        let bytes = payload.len();
        let fits = |held: &AtomicUsize, most| held.load(Ordering::Relaxed) + bytes <= most;
        let keeps_up = fits(&self.topic, 2 * bytes) && fits(&self.peer, MAX_HELD_BYTES);
        if !fits(&self.peer, HELD_BYTES)
            && !keeps_up
            && !fits(&self.topic, HELD_BYTES_OF_EACH_TOPIC)
        {
            return None;
        }
        for held in [&self.topic, &self.peer] {
            held.fetch_add(bytes, Ordering::Relaxed);
        }
        Some(Bytes::from_owner(HeldPayload { payload, counters: self.clone() }))
    }
}

/// A message that counts as held while it exists.
struct HeldPayload {
    payload: Bytes,
    counters: HeldBytes,
}

impl AsRef<[u8]> for HeldPayload {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

impl Drop for HeldPayload {
    fn drop(&mut self) {
        for held in [&self.counters.topic, &self.counters.peer] {
            held.fetch_sub(self.payload.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_of_a_slow_subscriber_is_bounded_and_other_topics_continue() {
        let camera = HeldBytes::default();
        let command = camera.sibling();
        let image = || Bytes::from(vec![0; HELD_BYTES / 4]);
        let waiting: Vec<_> = (0..4).map(|_| camera.hold(image()).unwrap()).collect();
        assert_eq!(waiting[0].len(), HELD_BYTES / 4);
        let second_subscriber = waiting.clone();
        assert!(camera.hold(image()).is_none());
        // The subscribers of another camera keep up, so it continues.
        let (other, third) = (camera.sibling(), camera.sibling());
        let newest = (other.hold(image()).unwrap(), other.hold(image()).unwrap());
        assert!(other.hold(image()).is_none());
        let images: Vec<_> = (0..3).map_while(|_| third.hold(image())).collect();
        assert_eq!(images.len(), 2, "all that is held is bounded, too");
        let small = || Bytes::from(vec![0; HELD_BYTES_OF_EACH_TOPIC]);
        let one = command.hold(small()).unwrap();
        assert!(command.hold(small()).is_none(), "its own subscriber is slow as well");
        drop((one, waiting, newest, images));
        assert!(camera.hold(image()).is_none(), "the other subscriber has them still");
        drop(second_subscriber);
        assert!(camera.hold(image()).is_some());
    }
}
