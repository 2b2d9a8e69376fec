// SPDX-License-Identifier: Apache-2.0
//! Single values of a file, and the Rust types that hold them.

use super::budget::Budget;
use super::channel::{self, Channel};
use crate::treatment::{LinkChoice, OrderChoice, WhenSlow};
use std::net::SocketAddr;
use std::time::Duration;
use tautline_gateway::networks::Network;
use tautline_gateway::pattern::Pattern;
use tautline_proto::{PublicKey, Rate};

/// Which values a type holds: their form, and the largest whole number.
#[derive(Debug, Clone, Copy)]
pub struct ValueBounds(pub Variant, pub u64);

/// Implements [`SingleValue`] for types, each with its variant, its conversion and its format.
macro_rules! held {
    ($($type:ty: $variant:ident($held:pat => $from:expr), $shown:expr;)*) => {$(
        impl SingleValue for $type {
            const BOUNDS: ValueBounds = ValueBounds(Variant::$variant, u64::MAX);

            fn from_value(value: Value) -> Option<Self> {
                if let $held = value { $from } else { None }
            }

            fn shown(&self) -> String {
                let shown: fn(&Self) -> String = $shown;
                shown(self)
            }
        }
    )*};
}

/// Defines [`Value`] and its variants. Each row gives the type that the variant holds, and how
/// differences show it.
macro_rules! values {
    ($($(#[$doc:meta])* $variant:ident($type:ty), $shown:expr;)*) => {
        /// A parsed value within its range.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Value {
            $($(#[$doc])* $variant($type),)*
        }

        /// The form of a parsed value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Variant {
            $($(#[$doc])* $variant,)*
            /// One of several words, which is a [`Value::Text`].
            Word,
        }

        held! { $($type: $variant(Value::$variant(held) => Some(held)), $shown;)* }
    };
}

values! {
    /// Name, path, URI or word.
    Text(String), Self::clone;
    /// Local address and port.
    Listen(SocketAddr), ToString::to_string;
    /// Remote host and port.
    Endpoint(Address), |address| format!("{address:?}");
    /// Network interface, or all or none of them.
    Interfaces(Interfaces), |interfaces| format!("{interfaces:?}");
    /// Name or pattern.
    Pattern(Pattern), |pattern| pattern.as_str().to_owned();
    /// Public key that identifies a peer.
    Key(PublicKey), ToString::to_string;
    /// Network of addresses.
    Network(Network), |network| format!("{network:?}");
    /// Boolean.
    Flag(bool), ToString::to_string;
    /// Count, bytes or bits per second.
    Whole(u64), ToString::to_string;
    /// Rate control of a radio.
    Pacing(Rate), rate_in_words;
    /// Hertz or fraction of one.
    Real(f64), ToString::to_string;
    /// Time.
    Duration(Duration), |time| format!("{time:?}");
    /// Bytes per period.
    Budget(Budget), ToString::to_string;
    /// What the planner assumes about a radio.
    Channel(Channel), channel::words;
}

/// A type that holds single values.
pub trait SingleValue: Clone + Sized {
    /// The values that this type holds. A key whose kind does not match does not compile.
    const BOUNDS: ValueBounds;

    /// Converts a value; `None` if this type cannot hold it.
    fn from_value(value: Value) -> Option<Self>;
    /// Formats the value for the differences of a reload.
    fn shown(&self) -> String;
}

fn rate_in_words(rate: &Rate) -> String {
    match rate {
        Rate::Fixed(bps) => format!("{bps} bps"),
        Rate::PerLink(control) => control.name.into(),
    }
}

/// Host and port of another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Host name or address.
    pub host: String,
    /// UDP port, if the file has one.
    pub port: Option<u16>,
}

/// Network interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interfaces {
    /// All interfaces (`true`), or none (`false`).
    All(bool),
    /// The interface of this name.
    Named(String),
}

macro_rules! whole_numbers {
    ($($type:ty)*) => {$(
        impl SingleValue for $type {
            const BOUNDS: ValueBounds = ValueBounds(Variant::Whole, <$type>::MAX as u64);

            fn from_value(value: Value) -> Option<Self> {
                u64::from_value(value)?.try_into().ok()
            }

            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole_numbers! { u8 u16 u32 usize }

/// Defines an enum whose variants stand for words in a file.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`.")] $variant,)*
        }

        impl $name {
            /// The words of the file.
            pub const WORDS: &[&str] = &[$($word),*];

            fn from_word(word: &str) -> Option<Self> {
                [$(Self::$variant),*].into_iter().find(|it| it.word() == word)
            }

            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
    )*};
}

words! {
    /// How peers prove their identity.
    Authentication { Keys = "keys", None = "none" }
    /// Destinations of the audit log.
    AuditDestination { File = "file", Journald = "journald" }
    /// Discovery ranges of ROS 2 nodes: those values of ROS_AUTOMATIC_DISCOVERY_RANGE that Tautline
    /// supports.
    Range { Subnet = "subnet", Localhost = "localhost" }
    /// The parts of this robot's ROS that a peer may see.
    Part { Nodes = "nodes", Parameters = "parameters", Logs = "logs" }
    /// Compression of payloads.
    Compressor { None = "none", Zstd = "zstd" }
}

macro_rules! held_words {
    ($($type:ty)*) => {
        held! {$(
            $type: Word(Value::Text(word) => Self::from_word(&word)), |it| it.word().to_owned();
        )*}
    };
}

held_words! {
    WhenSlow LinkChoice OrderChoice Authentication AuditDestination Range Part Compressor
}
