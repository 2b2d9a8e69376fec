// SPDX-License-Identifier: Apache-2.0
//! Control messages, on channel 0: agreements between two nodes. They precede messages of all
//! priorities, are repaired until they arrive, and are processed in order.

use super::WireError;
use super::cursor::{Reader, put_text, put_varint};
use super::frame::MAX_CHANNEL;
use crate::limits;
use crate::time::Duration;

/// Longest topic name, type name, hash or reason, in bytes.
pub const MAX_TEXT: usize = 1024;
/// Longest type definition, in bytes.
pub const MAX_DEFINITION: usize = limits::DEFINITION_BYTES;

/// One control message. `channel` is the number of the channel that it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The sender offers a topic. A later offer of a channel replaces the earlier one.
    Offer(Offer),
    /// The sender closes the channel. Its number is not used again in this session.
    Withdraw {
        /// The number.
        channel: u64,
    },
    /// The sender subscribes to an offered channel, or ends the subscription.
    Want {
        /// The number.
        channel: u64,
        /// `true` to subscribe.
        wanted: bool,
    },
    /// Asks for the type definition of an offered channel.
    GetDefinition {
        /// The number.
        channel: u64,
    },
    /// The response to [`Control::GetDefinition`].
    Definition {
        /// The number.
        channel: u64,
        /// The text.
        text: String,
    },
    /// The sender does not accept an offered channel.
    Refuse {
        /// The number.
        channel: u64,
        /// Text for the operator.
        reason: String,
    },
    /// A kind of a later version.
    Unknown(u8),
}

/// A topic, and the number of its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Number of the channel, from 1, drawn by the sender of the offer.
    pub channel: u64,
    /// The topic and its treatment.
    pub topic: OfferedTopic,
}

/// The properties of a channel that both nodes know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OfferedTopic {
    /// Topic name at the sender.
    pub name: String,
    /// Type name.
    pub type_name: String,
    /// Hash of the type, as the sender's middleware defines it.
    pub type_hash: String,
    /// 0-255, higher first; for the receiver's information.
    pub priority: u8,
    /// The number of newest messages of each source that matter, at least 1.
    pub keep_last: u32,
    /// Age past which a message is worthless.
    pub lifespan: Option<Duration>,
    /// The quality of service that the publishers offer.
    pub qos: OfferedQos,
    /// The kind of its messages.
    pub role: Role,
    /// The order in which the receiver delivers the messages of a source.
    pub order: DeliveryOrder,
}

impl OfferedTopic {
    /// A channel without a topic, whose messages are never superseded.
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
            order: DeliveryOrder::Arrival,
        }
    }

    /// The number of newer messages after which an older one of the same source is late, at least 1.
    pub(crate) fn late_after(&self) -> u64 {
        match self.order {
            DeliveryOrder::Newest => 1,
            DeliveryOrder::Arrival | DeliveryOrder::Sent { .. } => u64::from(self.keep_last.max(1)),
        }
    }
}

/// The order in which the messages of a source are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeliveryOrder {
    /// Each message as soon as it is complete. A message may overtake earlier ones.
    #[default]
    Arrival,
    /// In the order of publication: a complete message waits for missing earlier ones.
    Sent {
        /// The longest wait, at least a millisecond and at most [`MAX_ORDER_WAIT`].
        wait: Duration,
    },
    /// Each message as soon as it is complete, unless a newer one was delivered before.
    Newest,
}

/// Longest time that a complete message waits for missing earlier ones.
pub const MAX_ORDER_WAIT: Duration = Duration::from_secs(1);
/// The wait if the offer does not state it.
pub const ORDER_WAIT: Duration = Duration::from_millis(200);

/// The kind of a channel's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Role {
    /// Messages of a topic.
    #[default]
    Topic,
    /// Responses of a service that the sender serves.
    Answers,
    /// Calls of a service that the receiver serves and has offered.
    Calls,
}

/// Quality of service in the terms of ROS 2. The receiver applies the quality of service to its own
/// publisher; the link ignores it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OfferedQos {
    /// The last messages are kept for late joiners.
    pub transient_local: bool,
    /// Messages of each publisher that are kept, at least 1.
    pub depth: u32,
    /// The publisher offers reliable delivery.
    pub reliable: bool,
    /// Longest time between two messages.
    pub deadline: Option<Duration>,
    /// Publishers assert liveliness by publishing, not by their existence.
    pub manual_liveliness: bool,
    /// Longest time without an assertion of liveliness.
    pub lease: Option<Duration>,
    /// All publishers have failed to assert their liveliness within the lease.
    pub not_alive: bool,
    /// The classes of the publishers if they differ, as a bit set; 0 if all are as stated above.
    pub classes: u8,
    /// Number of publishers that keep messages for late joiners. If there are any, 0 and 1 both
    /// mean one publisher.
    pub keeping: u8,
}

impl Default for OfferedQos {
    /// Reliable and volatile, without deadline or lease.
    fn default() -> Self {
        Self {
            transient_local: false,
            depth: 1,
            reliable: true,
            deadline: None,
            manual_liveliness: false,
            lease: None,
            not_alive: false,
            classes: 0,
            keeping: 0,
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
const ORDER_SENT: u8 = 32;
const ORDER_NEWEST: u8 = 64;
const CLASSES: u8 = 128;
/// The bit of the field Classes that stands for `not_alive`.
const NOT_ALIVE: u8 = 128;

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
                let text = reader.utf8(MAX_DEFINITION, "definition")?.into();
                Self::Definition { channel, text }
            }
            _ => Self::Refuse { channel, reason: reader.utf8(MAX_TEXT, "reason")?.into() },
        })
    }

    /// The encoded message.
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
                put_text(&mut out, shortened_text(reason, MAX_TEXT));
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

fn shortened_text(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn read_topic(reader: &mut Reader<'_>) -> Result<OfferedTopic, WireError> {
    let priority = reader.u8()?;
    let keep_last = reader.varint_u32("keep_last")?.max(1);
    let lifespan = read_time(reader, "lifespan")?;
    let flags = reader.u8()?;
    let mut text = |field| reader.utf8(MAX_TEXT, field).map(str::to_owned);
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
    let order = match flags & (ORDER_SENT | ORDER_NEWEST) {
        0 => DeliveryOrder::Arrival,
        ORDER_NEWEST => DeliveryOrder::Newest,
        _ => DeliveryOrder::Sent { wait: read_order_wait(reader)? },
    };
    if flags & CLASSES != 0 && !reader.is_empty() {
        let classes = reader.u8()?;
        qos.classes = classes & !NOT_ALIVE;
        qos.not_alive = classes & NOT_ALIVE != 0;
        qos.keeping = reader.u8()?;
    }
    Ok(OfferedTopic { name, type_name, type_hash, priority, keep_last, lifespan, qos, role, order })
}

fn read_order_wait(reader: &mut Reader<'_>) -> Result<Duration, WireError> {
    let wait = if reader.is_empty() { None } else { read_time(reader, "order wait")? };
    Ok(wait.unwrap_or(ORDER_WAIT).min(MAX_ORDER_WAIT))
}

fn put_topic(out: &mut Vec<u8>, topic: &OfferedTopic) {
    let OfferedQos {
        transient_local,
        depth,
        reliable,
        deadline,
        manual_liveliness,
        lease,
        not_alive,
        classes,
        keeping,
    } = &topic.qos;
    let has_classes = *classes != 0 || *keeping != 0 || *not_alive;
    out.push(topic.priority);
    put_varint(out, u64::from(topic.keep_last));
    put_time(out, topic.lifespan);
    let flag = |set: &bool, flag: u8| if *set { flag } else { 0 };
    out.push(
        flag(transient_local, TRANSIENT_LOCAL)
            | flag(reliable, RELIABLE)
            | flag(manual_liveliness, MANUAL_LIVELINESS)
            | flag(&has_classes, CLASSES)
            | match topic.role {
                Role::Topic => 0,
                Role::Answers => RESPONSES,
                Role::Calls => CALLS,
            }
            | match topic.order {
                DeliveryOrder::Arrival => 0,
                DeliveryOrder::Sent { .. } => ORDER_SENT,
                DeliveryOrder::Newest => ORDER_NEWEST,
            },
    );
    for text in [&topic.name, &topic.type_name, &topic.type_hash] {
        put_text(out, text);
    }
    put_varint(out, u64::from(*depth));
    put_time(out, *deadline);
    put_time(out, *lease);
    if let DeliveryOrder::Sent { wait } = topic.order {
        put_time(out, Some(wait.min(MAX_ORDER_WAIT)));
    }
    if has_classes {
        out.extend([*classes & !NOT_ALIVE | flag(not_alive, NOT_ALIVE), *keeping]);
    }
}

/// Reads a time in milliseconds; 0 is none.
fn read_time(reader: &mut Reader<'_>, field: &'static str) -> Result<Option<Duration>, WireError> {
    let ms = reader.varint_u32(field)?;
    Ok((ms != 0).then(|| Duration::from_millis(u64::from(ms))))
}

fn put_time(out: &mut Vec<u8>, time: Option<Duration>) {
    // A time below a millisecond must not be encoded as 0, which means none.
    let ms = time.map_or(0, |it| it.as_millis().clamp(1, u128::from(u32::MAX)));
    put_varint(out, ms as u64);
}
