// SPDX-License-Identifier: Apache-2.0
//! Publishers and subscriptions of a program.

use super::error::{PublishError, SendError};
use super::message::Message;
use super::message_type::MessageType;
use super::participant::Participant;
use super::published::PublisherState;
use super::queue::{Limits, Queue, Receiver};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_gateway::{Qos, Source};

/// Limits of the messages that wait for a program on one subscription. Their bytes also count against the
/// limits of their peer, so a subscription that nobody reads must not use all of these limits.
const WAITING_MESSAGES: Limits = Limits { entries: 1024, bytes: 8 << 20 };

/// A publisher of a topic. When the last publisher of a topic is dropped, the topic is withdrawn as
/// soon as subscribers have the queued messages.
pub struct Publisher {
    participant: Arc<Participant>,
    topic: String,
    source: Source,
}

impl Publisher {
    pub(super) fn new(
        participant: &Arc<Participant>,
        topic: &str,
        message_type: MessageType,
        qos: Qos,
    ) -> Result<Self, PublishError> {
        let source = participant.add_publisher(topic, message_type, PublisherState::new(qos))?;
        Ok(Self { participant: participant.clone(), topic: topic.to_owned(), source })
    }

    /// Returns the topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Sends a message to the peers that have subscribed. Never blocks: the node queues the message
    /// by the priority of its topic, or drops it by the rules of its topic. The publisher may be dropped
    /// immediately: queued messages are still sent.
    pub fn send(&self, message: impl Into<Bytes>) -> Result<(), SendError> {
        self.participant.send(&self.topic, self.source, message.into())
    }

    /// Whether a peer subscribes. This stays true for about ten seconds after the peer
    /// unsubscribed, and for up to half a minute after the peer vanished.
    pub fn is_subscribed(&self) -> bool {
        self.participant.is_subscribed(&self.topic)
    }

    /// Waits until a peer subscribes; `false` if none did in time.
    pub fn wait_for_subscriber(&self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        self.participant.wait_until(deadline, |state| state.is_subscribed(&self.topic))
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.participant.remove_publisher(&self.topic, self.source);
    }
}

pub(super) fn subscribe(participant: &Arc<Participant>, topic: &str) -> Receiver<Message> {
    let queue = Arc::new(Queue::new(WAITING_MESSAGES));
    participant.add_subscription(topic, queue.clone());
    let (participant, topic, own) = (participant.clone(), topic.to_owned(), queue.clone());
    Receiver::new(queue, move || participant.remove_subscription(&topic, &own))
}
