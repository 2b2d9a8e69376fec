// SPDX-License-Identifier: Apache-2.0
//! Single values and collections of a scenario file: parsing and JSON Schema. Quantities are those
//! of the robot's file.

use super::reader::At;
use crate::rivals;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use tautline::config::kind::{Kind, Value};
use tautline_medium::Nanos;

/// Maximum of every duration, as in the file.
pub const LONGEST: &str = "24h";

/// A single value that is parsed from text.
pub trait FromText: Sized {
    /// Parses a value; the error describes the allowed values.
    fn from_text(text: &str) -> Result<Self, String>;
    /// Returns a description of the allowed values.
    fn allowed() -> String;
    /// Returns the JSON Schema of the value as YAML delivers it.
    fn schema() -> serde_json::Value;
}

/// Returns `value`, or parses `default`, which is one of this program's constants.
pub fn value_or<T: FromText>(value: Option<T>, default: &str) -> T {
    value.unwrap_or_else(|| T::from_text(default).expect("defaults are right"))
}

/// Visitor that parses a [`FromText`] from any scalar.
struct Text<T>(PhantomData<T>);

impl<T: FromText> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::allowed())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }
}

/// Implements the schema of a type, which appears in place of a reference.
macro_rules! inline_schema {
    ([$($generics:tt)*] $type:ty, $name:expr, $schema:expr) => {
        impl<$($generics)*> JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let schema: fn(&mut SchemaGenerator) -> Schema = $schema;
                schema(generator)
            }
        }
    };
}
pub(super) use inline_schema;

/// Implements serde and schemars traits for a [`FromText`]; its description becomes the schema's
/// title.
macro_rules! as_text {
    ([$($generics:tt)*] $name:ty) => {
        impl<'de, $($generics)*> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(Text(PhantomData))
            }
        }

        inline_schema! {
            [$($generics)*] $name, stringify!($name),
            |_| with_title(<Self as FromText>::schema(), <Self as FromText>::allowed())
        }
    };
}

fn with_title(mut schema: serde_json::Value, title: String) -> Schema {
    schema["title"] = title.into();
    schema.try_into().unwrap_or_default()
}

/// Defines a quantity within a range, of a kind that the robot's file has.
macro_rules! quantity {
    (
        $(#[$doc:meta])*
        $name:ident $(<$(const $limit:ident),*>)?: $inner:ty = $kind:expr, $value:pat => $read:expr
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name $(<$(const $limit: u64),*>)?(pub $inner);

        impl $(<$(const $limit: u64),*>)? FromText for $name $(<$($limit),*>)? {
            fn from_text(text: &str) -> Result<Self, String> {
                match $kind.parse(text).map_err(|refusal| refusal.allowed)? {
                    $value => Ok(Self($read)),
                    _ => Err(Self::allowed()),
                }
            }

            fn allowed() -> String {
                $kind.allowed()
            }

            fn schema() -> serde_json::Value {
                $kind.schema()
            }
        }

        as_text!([$($(const $limit: u64),*)?] $name $(<$($limit),*>)?);
    };
}

quantity! {
    /// A point in time or a duration, which may be 0.
    Time: Nanos = Kind::Duration("0s", LONGEST), Value::Duration(time) => time.as_nanos() as Nanos
}
quantity! {
    /// A duration greater than 0.
    Span: Nanos = Kind::Duration("1us", LONGEST), Value::Duration(time) => time.as_nanos() as Nanos
}
quantity! {
    /// Bits per second.
    Rate: u64 = Kind::BitRate("100bps", "100Gbps"), Value::Whole(bps) => bps
}
quantity! {
    /// Size of a message, bytes.
    MessageSize: u64 = Kind::Bytes("1B", "64MB"), Value::Whole(bytes) => bytes
}
quantity! {
    /// Size of a queue, bytes.
    QueueSize: u64 = Kind::Bytes("1B", "1GB"), Value::Whole(bytes) => bytes
}
quantity! {
    /// Burst of a token bucket, bytes.
    Burst: u64 = Kind::Bytes("0", "1GB"), Value::Whole(bytes) => bytes
}
quantity! {
    /// Overhead per packet, bytes.
    Overhead: u32 = Kind::Bytes("0", "1000"), Value::Whole(bytes) => bytes as u32
}
quantity! {
    /// A probability.
    Share: f64 = Kind::Share, Value::Real(share) => share
}
quantity! {
    /// The name of a station, network or flow; also the name of its namespace or node.
    Name: String = Kind::NodeName, Value::Text(name) => name
}

quantity! {
    /// A whole number.
    Whole<const MIN, const MAX>: u64 = Kind::Whole(MIN, MAX), Value::Whole(number) => number
}

/// Rate control of a radio: as in the robot's file, or a rival of `auto`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pacing(pub tautline_proto::Rate);

/// What the robot's file allows.
const PACING: Kind = Kind::Pacing("1kbps", "100Gbps");

impl FromText for Pacing {
    fn from_text(text: &str) -> Result<Self, String> {
        if let Some(rival) = rivals::named(text) {
            return Ok(Self(rival));
        }
        match PACING.parse(text) {
            Ok(Value::Pacing(rate)) => Ok(Self(rate)),
            _ => Err(Self::allowed()),
        }
    }

    fn allowed() -> String {
        format!("{}, {}", rivals::NAMES.join(", "), PACING.allowed())
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "anyOf": [{ "enum": rivals::NAMES }, PACING.schema()] })
    }
}

as_text!([] Pacing);

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Real<const MIN: i64, const MAX: i64>(pub f64);

impl<const MIN: i64, const MAX: i64> FromText for Real<MIN, MAX> {
    fn from_text(text: &str) -> Result<Self, String> {
        // No `inf`, no `1e5`: like quantities, only digits and a point.
        let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b'-');
        let number = text.parse::<f64>().ok().filter(|_| is_plain).ok_or_else(Self::allowed)?;
        let is_inside = number >= MIN as f64 && number <= MAX as f64;
        is_inside.then_some(Self(number)).ok_or_else(Self::allowed)
    }

    fn allowed() -> String {
        format!("a number from {MIN} to {MAX}")
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "number", "minimum": MIN, "maximum": MAX })
    }
}

as_text!([const MIN: i64, const MAX: i64] Real<MIN, MAX>);

/// A text on one line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line(pub String);

/// Maximum length of a [`Line`], in characters.
const MAX_LINE: usize = 300;

impl FromText for Line {
    fn from_text(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let fits =
            (1..=MAX_LINE).contains(&text.chars().count()) && !text.contains(char::is_control);
        fits.then(|| Self(text.into())).ok_or_else(Self::allowed)
    }

    fn allowed() -> String {
        format!("one line of 1 to {MAX_LINE} characters")
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "string", "minLength": 1, "maxLength": MAX_LINE })
    }
}

as_text!([] Line);

/// A name that refers to something; whether it exists is checked later.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference(pub String);

impl FromText for Reference {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(text.into()))
    }

    fn allowed() -> String {
        "a name".into()
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "string", "minLength": 1 })
    }
}

as_text!([] Reference);

/// `true` or `false`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flag(pub bool);

impl FromText for Flag {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| Self::allowed())
    }

    fn allowed() -> String {
        Kind::Flag.allowed()
    }

    fn schema() -> serde_json::Value {
        Kind::Flag.schema()
    }
}

as_text!([] Flag);

/// A word or a quantity.
#[derive(Debug, Clone, PartialEq)]
pub enum Or<W, T> {
    /// The word.
    Word(W),
    /// The quantity.
    Value(T),
}

/// A word with its own type.
pub trait Word: Default {
    /// The word.
    const WORD: &'static str;
}

impl<W: Word, T: FromText> FromText for Or<W, T> {
    fn from_text(text: &str) -> Result<Self, String> {
        if text == W::WORD {
            return Ok(Or::Word(W::default()));
        }
        T::from_text(text).map(Or::Value).map_err(|_| Self::allowed())
    }

    fn allowed() -> String {
        format!("'{}', or {}", W::WORD, T::allowed())
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "anyOf": [{ "const": W::WORD }, T::schema()] })
    }
}

as_text!([W: Word, T: FromText] Or<W, T>);

/// A position in metres, `[x, y]` or `[x, y, z]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point(pub [f64; 3]);

/// Metres; a hundred kilometres exceed the range of every radio here.
type Metres = Real<-100_000, 100_000>;

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Coordinates;
        impl<'de> Visitor<'de> for Coordinates {
            type Value = Point;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a position in metres, [x, y] or [x, y, z]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Point, A::Error> {
                let mut point = [0.0; 3];
                let mut count = 0;
                while let Some(metres) = list.next_element::<Metres>()? {
                    if let Some(place) = point.get_mut(count) {
                        *place = metres.0;
                    }
                    count += 1;
                }
                match count {
                    2 | 3 => Ok(Point(point)),
                    _ => Err(de::Error::invalid_length(count, &self)),
                }
            }
        }
        from.deserialize_seq(Coordinates)
    }
}

inline_schema! {
    [] Point, "Point",
    |_| json_schema!({
        "title": "a position in metres, [x, y] or [x, y, z]",
        "type": "array", "items": Metres::schema(), "minItems": 2, "maxItems": 3,
    })
}

/// A list. An invalid entry is reported and omitted.
#[derive(Debug, Clone, PartialEq)]
pub struct List<T>(pub Vec<At<T>>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List<T>, A::Error> {
                let mut entries = Vec::new();
                loop {
                    match list.next_element() {
                        Ok(Some(entry)) => entries.push(entry),
                        Ok(None) => return Ok(List(entries)),
                        Err(_) => {} // The reader recorded it and rejects the file at the end.
                    }
                }
            }
        }
        from.deserialize_seq(Entries(PhantomData))
    }
}

inline_schema! {
    [T: JsonSchema] List<T>, format!("List_of_{}", T::schema_name()),
    |generator| json_schema!({ "type": "array", "items": generator.subschema_for::<T>() })
}

/// A map from names to values in the file's order. An invalid entry is reported and omitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Named<T>(pub Vec<(Name, At<T>)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from names to their keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut entries = Vec::new();
                loop {
                    // The reader has recorded problems of entries too.
                    let name = match map.next_key() {
                        Ok(None) => return Ok(Named(entries)),
                        name => name.ok().flatten(),
                    };
                    if let (Some(name), Ok(value)) = (name, map.next_value()) {
                        entries.push((name, value));
                    }
                }
            }
        }
        from.deserialize_map(Entries(PhantomData))
    }
}

inline_schema! {
    [T: JsonSchema] Named<T>, format!("Map_of_{}", T::schema_name()),
    |generator| json_schema!({
        "type": "object",
        "propertyNames": Name::schema(),
        "additionalProperties": generator.subschema_for::<T>(),
    })
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
