// SPDX-License-Identifier: Apache-2.0
//! The queue of one local subscriber, and the task that writes its messages.

use super::handshake::HANDSHAKE_TIMEOUT;
use crate::lock::lock;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Maximum number of messages queued for one subscriber; a newer message replaces the oldest.
const SUBSCRIBER_QUEUE_MESSAGES: usize = 256;
/// Maximum bytes queued for one subscriber; the newest message is queued whatever its size.
const SUBSCRIBER_QUEUE_BYTES: usize = 8 * 1024 * 1024;

/// Messages for one subscriber, bounded in number and bytes.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    filled: Notify,
}

#[derive(Default)]
struct QueueState {
    messages: VecDeque<Bytes>,
    bytes: usize,
    /// The last progress of the subscriber; `None` if nothing is queued.
    unread_since: Option<Instant>,
}

impl Queue {
    /// Adds a message; returns the number of older ones dropped.
    pub fn push(&self, payload: Bytes) -> u64 {
        let mut state = lock(&self.state);
        state.unread_since.get_or_insert_with(Instant::now);
        state.bytes += payload.len();
        state.messages.push_back(payload);
        let mut dropped = 0;
        while state.messages.len() > 1
            && (state.messages.len() > SUBSCRIBER_QUEUE_MESSAGES
                || state.bytes > SUBSCRIBER_QUEUE_BYTES)
        {
            state.pop();
            dropped += 1;
        }
        drop(state);
        self.filled.notify_one();
        dropped
    }

    pub fn pop(&self) -> Option<Bytes> {
        lock(&self.state).pop()
    }

    /// Records that the subscriber has read bytes, and maybe the whole current message.
    fn on_progress(&self, is_complete: bool) {
        let mut state = lock(&self.state);
        let has_more = !is_complete || !state.messages.is_empty();
        state.unread_since = has_more.then(Instant::now);
    }

    pub fn unread_since(&self) -> Option<Instant> {
        lock(&self.state).unread_since
    }
}

impl QueueState {
    fn pop(&mut self) -> Option<Bytes> {
        let payload = self.messages.pop_front()?;
        self.bytes -= payload.len();
        Some(payload)
    }
}

/// Writes header and messages until the subscriber leaves.
pub(super) async fn serve_subscriber(mut stream: TcpStream, reply: Vec<u8>, queue: &Queue) {
    let Ok(Ok(())) = timeout(HANDSHAKE_TIMEOUT, stream.write_all(&reply)).await else { return };
    let (mut reader, mut writer) = stream.split();
    tokio::select! {
        _ = write_messages(&mut writer, queue) => {}
        _ = wait_for_close(&mut reader) => {}
    }
}

async fn write_messages(
    writer: &mut (impl AsyncWriteExt + Unpin),
    queue: &Queue,
) -> io::Result<()> {
    loop {
        let Some(payload) = queue.pop() else {
            queue.filled.notified().await;
            continue;
        };
        // One writev for both parts; queued messages are far below 4 GiB.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut rest = Buf::chain(&length[..], payload);
        while rest.has_remaining() {
            if writer.write_buf(&mut rest).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            queue.on_progress(!rest.has_remaining());
        }
    }
}

/// Skips bytes until the subscriber closes: it has nothing to send after its header.
async fn wait_for_close(reader: &mut (impl AsyncReadExt + Unpin)) {
    let mut ignored = [0; 256];
    while let Ok(1..) = reader.read(&mut ignored).await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_the_oldest_messages_and_counts_them() {
        let queue = Queue::default();
        for number in 0..SUBSCRIBER_QUEUE_MESSAGES as u32 {
            assert_eq!(queue.push(Bytes::copy_from_slice(&number.to_le_bytes())), 0);
        }
        assert_eq!(queue.push(Bytes::from_static(b"last")), 1);
        assert_eq!(queue.pop().unwrap(), 1u32.to_le_bytes()[..]);
    }

    #[test]
    fn a_queue_is_bounded_in_bytes_but_accepts_one_message_of_any_size() {
        let queue = Queue::default();
        assert_eq!(queue.push(vec![0; 2 * SUBSCRIBER_QUEUE_BYTES].into()), 0);
        assert_eq!(queue.push(vec![1].into()), 1);
        assert_eq!(queue.push(vec![2; SUBSCRIBER_QUEUE_BYTES - 1].into()), 0);
        assert_eq!(queue.push(vec![3].into()), 1, "one byte too many");
        assert_eq!(queue.pop().unwrap().len(), SUBSCRIBER_QUEUE_BYTES - 1);
    }
}
