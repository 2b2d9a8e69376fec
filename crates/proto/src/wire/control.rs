// SPDX-License-Identifier: Apache-2.0
//! Messages of channel 0: what two nodes agree on once per session. They are
//! carried like any message, above all priorities, repaired until they arrive
//! and handed over in order.

use super::WireError;
use super::cursor::{Reader, put_text, put_varint};
use crate::time::Duration;

/// Longest topic name, type name, hash or reason, in bytes.
pub const MAX_TEXT: usize = 1024;
/// Longest type definition, in bytes.
pub const MAX_DEFINITION: usize = 1 << 20;

/// One message of channel 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The sender has a topic; repeated for a channel, the newer holds.
    Offer(Offer),
    /// The channel is over; its number is not used again in this session.
    Withdraw {
        /// Its number.
        channel: u64,
    },
    /// Whether the sender wants messages on a channel it was offered.
    Want {
        /// Its number.
        channel: u64,
        /// Send, or stop.
        wanted: bool,
    },
    /// Asks for the definition of an offered channel's type.
    GetDefinition {
        /// Its number.
        channel: u64,
    },
    /// Answers [`Control::GetDefinition`].
    Definition {
        /// Its number.
        channel: u64,
        /// The text.
        text: String,
    },
    /// The sender cannot take an offered channel.
    Refuse {
        /// Its number.
        channel: u64,
        /// For a person.
        reason: String,
    },
    /// A kind of a later version.
    Unknown(u8),
}

/// A topic and the number it is known by from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Number of the channel, from 1, drawn by the sender.
    pub channel: u64,
    /// The topic and its treatment.
    pub topic: OfferedTopic,
}

/// What both ends know of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OfferedTopic {
    /// Topic name at the sender.
    pub name: String,
    /// Type name.
    pub type_name: String,
    /// Hash of the type, as the sender's middleware gives it.
    pub type_hash: String,
    /// 0-255, higher first; for the receiver's information.
    pub priority: u8,
    /// How many of the newest messages of each source matter, at least 1.
    pub keep_last: u32,
    /// Age past which a message is worthless.
    pub lifespan: Option<Duration>,
    /// The last messages are kept for late joiners.
    pub transient_local: bool,
    /// The publisher offers reliable delivery.
    pub reliable: bool,
}

const OFFER: u8 = 1;
const WITHDRAW: u8 = 2;
const WANT: u8 = 3;
const GET_DEFINITION: u8 = 4;
const DEFINITION: u8 = 5;
const REFUSE: u8 = 6;

const TRANSIENT_LOCAL: u8 = 1;
const RELIABLE: u8 = 2;

impl Control {
    /// Reads one message.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        if !(OFFER..=REFUSE).contains(&kind) {
            return Ok(Self::Unknown(kind));
        }
        let channel = reader.varint()?;
        if channel == 0 {
            return Err(WireError::Value("channel"));
        }
        Ok(match kind {
            OFFER => Self::Offer(Offer { channel, topic: read_topic(&mut reader)? }),
            WITHDRAW => Self::Withdraw { channel },
            WANT => Self::Want { channel, wanted: reader.u8()? != 0 },
            GET_DEFINITION => Self::GetDefinition { channel },
            DEFINITION => {
                let text = reader.text(MAX_DEFINITION, "definition")?.into();
                Self::Definition { channel, text }
            }
            _ => Self::Refuse { channel, reason: reader.text(MAX_TEXT, "reason")?.into() },
        })
    }

    /// The message's bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Offer(offer) => {
                put_start(&mut out, OFFER, offer.channel);
                put_topic(&mut out, &offer.topic);
            }
            Self::Withdraw { channel } => put_start(&mut out, WITHDRAW, *channel),
            Self::Want { channel, wanted } => {
                put_start(&mut out, WANT, *channel);
                out.push(u8::from(*wanted));
            }
            Self::GetDefinition { channel } => put_start(&mut out, GET_DEFINITION, *channel),
            Self::Definition { channel, text } => {
                put_start(&mut out, DEFINITION, *channel);
                put_text(&mut out, text);
            }
            Self::Refuse { channel, reason } => {
                put_start(&mut out, REFUSE, *channel);
                put_text(&mut out, at_most(reason, MAX_TEXT));
            }
            Self::Unknown(kind) => out.push(*kind),
        }
        out
    }
}

fn put_start(out: &mut Vec<u8>, kind: u8, channel: u64) {
    out.push(kind);
    put_varint(out, channel);
}

fn at_most(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn read_topic(reader: &mut Reader<'_>) -> Result<OfferedTopic, WireError> {
    let priority = reader.u8()?;
    let keep_last = reader.varint_u32("keep_last")?.max(1);
    let lifespan_ms = reader.varint_u32("lifespan")?;
    let flags = reader.u8()?;
    let mut text = |field| reader.text(MAX_TEXT, field).map(str::to_owned);
    Ok(OfferedTopic {
        name: text("name")?,
        type_name: text("type")?,
        type_hash: text("hash")?,
        priority,
        keep_last,
        lifespan: (lifespan_ms != 0).then(|| Duration::from_millis(u64::from(lifespan_ms))),
        transient_local: flags & TRANSIENT_LOCAL != 0,
        reliable: flags & RELIABLE != 0,
    })
}

fn put_topic(out: &mut Vec<u8>, topic: &OfferedTopic) {
    out.push(topic.priority);
    put_varint(out, u64::from(topic.keep_last));
    // A lifespan below a millisecond must not become "none".
    let lifespan_ms = topic.lifespan.map_or(0, |l| l.as_millis().clamp(1, u128::from(u32::MAX)));
    put_varint(out, lifespan_ms as u64);
    let mut flags = 0;
    if topic.transient_local {
        flags |= TRANSIENT_LOCAL;
    }
    if topic.reliable {
        flags |= RELIABLE;
    }
    out.push(flags);
    for text in [&topic.name, &topic.type_name, &topic.type_hash] {
        put_text(out, text);
    }
}
