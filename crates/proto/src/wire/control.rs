// SPDX-License-Identifier: Apache-2.0
//! Messages of channel 0: what two nodes agree on once per session. They are
//! carried like any message, above all priorities, repaired until they arrive
//! and handed over in order.

use super::WireError;
use super::cursor::{Reader, put_text, put_varint};
use super::frame::MAX_CHANNEL;
use crate::limits;
use crate::time::Duration;

/// Longest topic name, type name, hash or reason, in bytes.
pub const MAX_TEXT: usize = 1024;
/// Longest type definition, in bytes.
pub const MAX_DEFINITION: usize = limits::DEFINITION_BYTES;

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
    /// What the topic's publishers promise their subscribers.
    pub qos: OfferedQos,
    /// What its messages are.
    pub role: Role,
}

impl OfferedTopic {
    /// Of a channel that is nobody's topic: nothing of it is ever superseded.
    pub(crate) fn nameless(priority: u8) -> Self {
        Self {
            name: String::new(),
            type_name: String::new(),
            type_hash: String::new(),
            priority,
            keep_last: u32::MAX,
            lifespan: None,
            qos: OfferedQos::default(),
            role: Role::Topic,
        }
    }
}

/// What the messages of a channel are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Role {
    /// A topic's.
    #[default]
    Topic,
    /// Answers of a service that is served at the sender.
    Answers,
    /// Calls of a service that is served at the receiver, which has offered it.
    Calls,
}

/// Quality of service in ROS 2's words: for the receiver to mirror, not for the link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OfferedQos {
    /// The last messages are kept for late joiners.
    pub transient_local: bool,
    /// How many of each publisher, at least 1.
    pub depth: u32,
    /// The publisher offers reliable delivery.
    pub reliable: bool,
    /// Longest time between two messages.
    pub deadline: Option<Duration>,
    /// Publishers show that they live by publishing, else by being there.
    pub manual_liveliness: bool,
    /// Longest time without a sign of life.
    pub lease: Option<Duration>,
}

impl Default for OfferedQos {
    /// Reliable, volatile, no promise on time.
    fn default() -> Self {
        Self {
            transient_local: false,
            depth: 1,
            reliable: true,
            deadline: None,
            manual_liveliness: false,
            lease: None,
        }
    }
}

const OFFER: u8 = 1;
const WITHDRAW: u8 = 2;
const WANT: u8 = 3;
const GET_DEFINITION: u8 = 4;
const DEFINITION: u8 = 5;
const REFUSE: u8 = 6;

const TRANSIENT_LOCAL: u8 = 1;
const RELIABLE: u8 = 2;
const MANUAL_LIVELINESS: u8 = 4;
const RESPONSES: u8 = 8;
const CALLS: u8 = 16;

impl Control {
    /// Reads one message.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        if !(OFFER..=REFUSE).contains(&kind) {
            return Ok(Self::Unknown(kind));
        }
        let channel = reader.varint()?;
        if channel == 0 || channel > MAX_CHANNEL {
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
    let lifespan = read_time(reader, "lifespan")?;
    let flags = reader.u8()?;
    let mut text = |field| reader.text(MAX_TEXT, field).map(str::to_owned);
    let (name, type_name, type_hash) = (text("name")?, text("type")?, text("hash")?);
    let mut qos = OfferedQos {
        transient_local: flags & TRANSIENT_LOCAL != 0,
        reliable: flags & RELIABLE != 0,
        manual_liveliness: flags & MANUAL_LIVELINESS != 0,
        ..OfferedQos::default()
    };
    if !reader.is_empty() {
        qos.depth = reader.varint_u32("depth")?.max(1);
        qos.deadline = read_time(reader, "deadline")?;
        qos.lease = read_time(reader, "lease")?;
    }
    let role = match flags & (RESPONSES | CALLS) {
        0 => Role::Topic,
        CALLS => Role::Calls,
        _ => Role::Answers,
    };
    Ok(OfferedTopic { name, type_name, type_hash, priority, keep_last, lifespan, qos, role })
}

fn put_topic(out: &mut Vec<u8>, topic: &OfferedTopic) {
    let OfferedQos { transient_local, depth, reliable, deadline, manual_liveliness, lease } =
        &topic.qos;
    out.push(topic.priority);
    put_varint(out, u64::from(topic.keep_last));
    put_time(out, topic.lifespan);
    let flag = |set: &bool, flag: u8| if *set { flag } else { 0 };
    out.push(
        flag(transient_local, TRANSIENT_LOCAL)
            | flag(reliable, RELIABLE)
            | flag(manual_liveliness, MANUAL_LIVELINESS)
            | match topic.role {
                Role::Topic => 0,
                Role::Answers => RESPONSES,
                Role::Calls => CALLS,
            },
    );
    for text in [&topic.name, &topic.type_name, &topic.type_hash] {
        put_text(out, text);
    }
    put_varint(out, u64::from(*depth));
    put_time(out, *deadline);
    put_time(out, *lease);
}

/// Milliseconds; 0 is none.
fn read_time(reader: &mut Reader<'_>, field: &'static str) -> Result<Option<Duration>, WireError> {
    let ms = reader.varint_u32(field)?;
    Ok((ms != 0).then(|| Duration::from_millis(u64::from(ms))))
}

fn put_time(out: &mut Vec<u8>, time: Option<Duration>) {
    // A time below a millisecond must not become "none".
    let ms = time.map_or(0, |it| it.as_millis().clamp(1, u128::from(u32::MAX)));
    put_varint(out, ms as u64);
}
