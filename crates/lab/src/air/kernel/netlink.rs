// SPDX-License-Identifier: Apache-2.0
//! Messages of the kernel's netfilter subsystem (netlink(7), linux/netfilter/nfnetlink.h).
//!
//! Lengths and types are in the machine's byte order, values in network order.

use anyhow::{Context, Result, anyhow};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const MESSAGE_HEADER_BYTES: usize = 16;
/// `struct nfgenmsg`: address family, version, resource.
const SUBSYSTEM_HEADER_BYTES: usize = 4;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
const ALIGNMENT: usize = 4;
/// `NLMSG_ERROR`, also an acknowledgement (error 0).
const KIND_ERROR: u16 = 2;
/// `NLM_F_REQUEST`, in every message to the kernel.
const FLAG_REQUEST: u16 = 1;
/// `NLM_F_ACK`: requests an acknowledgement of success too.
pub const FLAG_ACKNOWLEDGE: u16 = 4;
/// `NLA_TYPE_MASK`: without the flags for nesting and byte order.
const ATTRIBUTE_KIND_MASK: u16 = 0x3fff;
/// Maximum size of a reply to a request.
const REPLY_BYTES: usize = 8192;

/// Header of a message.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// Subsystem in the high byte, message in the low one.
    pub kind: u16,
    /// `NLM_F_*` without `NLM_F_REQUEST`, which every message gets.
    pub flags: u16,
    /// Number that the reply repeats.
    pub sequence: u32,
    /// Number of the queue.
    pub resource: u16,
}

/// A buffer of consecutive messages, sent with one system call.
#[derive(Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
}

impl Outgoing {
    /// Removes all messages and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends one message with the attributes that `body` writes.
    pub fn message(&mut self, head: Head, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&head.kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(head.flags | FLAG_REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&head.sequence.to_ne_bytes());
        // Port id 0: the kernel knows the sender's port id.
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&head.resource.to_be_bytes());
        body(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Appends an attribute to the message being written.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = (ATTRIBUTE_HEADER_BYTES + value.len()) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

/// One message from the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Incoming<'a> {
    /// Subsystem in the high byte, message in the low one.
    pub kind: u16,
    sequence: u32,
    body: &'a [u8],
}

impl<'a> Incoming<'a> {
    /// Returns the messages in received bytes; ends at the first truncated one.
    pub fn messages(mut bytes: &'a [u8]) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || {
            let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
            let message = bytes.get(..length)?;
            let body = message.get(MESSAGE_HEADER_BYTES..)?;
            bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
            let kind = u16::from_ne_bytes([message[4], message[5]]);
            let sequence = u32::from_ne_bytes(*message[8..].first_chunk()?);
            Some(Self { kind, sequence, body })
        })
    }

    /// Returns the error that the message reports: `Some(None)` if it reports success.
    pub fn outcome(&self) -> Option<Option<Errno>> {
        if self.kind != KIND_ERROR {
            return None;
        }
        let code = i32::from_ne_bytes(*self.body.first_chunk()?);
        Some((code != 0).then(|| Errno::from_raw_os_error(code.saturating_neg())))
    }

    /// Returns kinds and values of the message's attributes.
    pub fn attributes(&self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut bytes = self.body.get(SUBSYSTEM_HEADER_BYTES..).unwrap_or_default();
        std::iter::from_fn(move || {
            let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
            let attribute = bytes.get(..length)?;
            let value = attribute.get(ATTRIBUTE_HEADER_BYTES..)?;
            bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
            let kind = u16::from_ne_bytes([attribute[2], attribute[3]]) & ATTRIBUTE_KIND_MASK;
            Some((kind, value))
        })
    }
}

/// A connection to netfilter in the network namespace in which it was opened.
pub struct Socket {
    descriptor: OwnedFd,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Socket {
    /// Opens a connection in the calling thread's network namespace.
    pub fn open() -> Result<Self> {
        let descriptor = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::NETFILTER),
        )
        .context("the kernel has no netfilter netlink socket (CONFIG_NETFILTER_NETLINK)")?;
        Ok(Self { descriptor })
    }

    /// Sends messages without waiting for a reply.
    pub fn send(&self, messages: &Outgoing) -> rustix::io::Result<()> {
        rustix::net::send(&self.descriptor, &messages.bytes, SendFlags::empty()).map(|_| ())
    }

    /// Returns messages that the kernel has sent, if there are any; never blocks.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> rustix::io::Result<Option<&'a [u8]>> {
        match rustix::net::recv(&self.descriptor, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((length, _)) => Ok(Some(&buffer[..length])),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends messages and waits until all of `asked` are acknowledged. Each is given by its
    /// sequence number and the name of the feature that it requests.
    pub fn request(&self, messages: &Outgoing, asked: &[(u32, &str)]) -> Result<()> {
        self.send(messages).context("cannot send to netfilter")?;
        let mut buffer = vec![0; REPLY_BYTES];
        let mut granted = 0;
        while granted < asked.len() {
            let (length, _) =
                rustix::net::recv(&self.descriptor, &mut *buffer, RecvFlags::empty())?;
            for message in Incoming::messages(&buffer[..length]) {
                match message.outcome() {
                    Some(None) => granted += 1,
                    Some(Some(error)) => return Err(refusal(message.sequence, error, asked)),
                    None => {}
                }
            }
        }
        Ok(())
    }
}

fn refusal(sequence: u32, error: Errno, asked: &[(u32, &str)]) -> anyhow::Error {
    let found = asked.iter().find(|(number, _)| *number == sequence);
    anyhow!("the kernel refuses {}: {error}", found.map_or("a netfilter message", |found| found.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head { kind: 0x0301, flags: 0, sequence: 9, resource: 0x0102 };

    #[test]
    fn written_messages_can_be_read() {
        let mut outgoing = Outgoing::default();
        outgoing.message(HEAD, |message| {
            message.attribute(2, &[1, 2, 3, 4, 5]);
            message.attribute(3, b"abcd");
        });
        outgoing.message(Head { sequence: 10, ..HEAD }, |_| {});
        let messages: Vec<_> = Incoming::messages(&outgoing.bytes).collect();
        let sequences: Vec<u32> = messages.iter().map(|message| message.sequence).collect();
        assert_eq!(sequences, [9, 10]);
        let attributes: Vec<_> = messages[0].attributes().collect();
        assert_eq!(attributes[0], (2, &[1, 2, 3, 4, 5][..]));
        assert_eq!(attributes[1], (3, &b"abcd"[..]));
    }

    #[test]
    fn an_attribute_has_the_layout_of_the_kernel() {
        let mut outgoing = Outgoing::default();
        outgoing.message(HEAD, |message| message.attribute(2, &[7]));
        let expected =
            [28, 0, 0, 0, 1, 3, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 5, 0, 2, 0, 7, 0, 0, 0];
        assert_eq!(outgoing.bytes, expected);
    }

    #[test]
    fn truncated_messages_end_the_reading() {
        let mut outgoing = Outgoing::default();
        outgoing.message(HEAD, |message| message.attribute(2, &[1, 2, 3, 4, 5]));
        for length in 0..outgoing.bytes.len() - 1 {
            let cut = &outgoing.bytes[..length];
            assert_eq!(Incoming::messages(cut).count(), 0, "{length}");
        }
        let zeros = [0; 64];
        assert_eq!(Incoming::messages(&zeros).count(), 0);
    }

    #[test]
    fn an_error_differs_from_an_acknowledgement() {
        let error = |code: i32| Incoming {
            kind: KIND_ERROR,
            sequence: 1,
            body: Box::leak(Box::new(code.to_ne_bytes())),
        };
        assert_eq!(error(0).outcome(), Some(None));
        assert_eq!(error(-2).outcome(), Some(Some(Errno::NOENT)));
        assert_eq!(Incoming { kind: 0x0300, ..error(0) }.outcome(), None);
    }
}
