// SPDX-License-Identifier: Apache-2.0
//! Composes a message of a type known at run time from values in YAML.

use super::definition::{Arity, BaseType, DUMMY_FIELD, Dialect, Field, Primitive, Schema};
use super::transcode::cursor::{Layout, Writer};
use super::transcode::{TranscodeError, cdr_writer, for_each_element};

/// Maximum number of characters of a value that an error quotes.
const MAX_QUOTED_CHARS: usize = 60;

/// Fields with their values; all others are zero, false or empty.
pub type Fields = Vec<(String, YamlValue)>;

/// A value of YAML, whose meaning depends on its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum YamlValue {
    /// A number, a boolean or text.
    One(String),
    /// The elements of an array or sequence.
    List(Vec<YamlValue>),
    /// The fields of a message type.
    Map(Fields),
}

/// The message, of at most `limit` bytes, in the serialization of its ROS (CDR with its
/// encapsulation). The error names the field, the value found and the values allowed.
pub fn compose(
    schema: &Schema,
    fields: &[(String, YamlValue)],
    limit: usize,
) -> Result<Vec<u8>, TranscodeError> {
    let mut to = match schema.dialect {
        Dialect::Ros1 => Writer::new(&[], Layout::ROS1, limit),
        Dialect::Ros2 => cdr_writer(limit),
    };
    Composer { schema }.part(0, fields, &mut to)?;
    Ok(to.finish())
}

struct Composer<'a> {
    schema: &'a Schema,
}

impl Composer<'_> {
    fn part(
        &self,
        number: usize,
        fields: &[(String, YamlValue)],
        to: &mut Writer,
    ) -> Result<(), TranscodeError> {
        let part = &self.schema.structs[number];
        to.spend(part.fields.len())?;
        let known = |name: &String| part.fields.iter().any(|field| field.name == *name);
        if let Some((name, _)) = fields.iter().find(|(name, _)| !known(name)) {
            let real = part.fields.iter().map(|field| &*field.name);
            let all: Vec<&str> = real.filter(|name| *name != DUMMY_FIELD).collect();
            return Err(wrong_value(&format!("the field {}", quoted(name)), &all.join(", ")));
        }
        for field in &part.fields {
            let value = fields.iter().find(|(name, _)| *name == field.name);
            let done = match value {
                Some((_, value)) => self.field(field, value, to),
                None => self.zero(field, to),
            };
            done.map_err(|error| error.with_outer_field(&field.name))?;
        }
        Ok(())
    }

    fn field(
        &self,
        field: &Field,
        value: &YamlValue,
        to: &mut Writer,
    ) -> Result<(), TranscodeError> {
        let elements = match (field.arity, value) {
            (Arity::One, _) => return self.value(field.base, value, to),
            (_, YamlValue::List(elements)) => elements,
            _ => return Err(wrong_value(&describe_value(value), "a list")),
        };
        let count = elements.len();
        let found = || format!("{count} elements");
        match field.arity {
            Arity::Array(size) if count != size as usize => {
                return Err(wrong_value(&found(), &size.to_string()));
            }
            Arity::Sequence(Some(bound)) if count > bound as usize => {
                return Err(wrong_value(&found(), &format!("at most {bound}")));
            }
            Arity::Sequence(_) => to.length(count)?,
            _ => {}
        }
        for_each_element(count, |index| self.value(field.base, &elements[index], to))
    }

    fn value(
        &self,
        base: BaseType,
        value: &YamlValue,
        to: &mut Writer,
    ) -> Result<(), TranscodeError> {
        match (base, value) {
            (BaseType::Struct(number), YamlValue::Map(fields)) => self.part(number, fields, to),
            (BaseType::Struct(_), _) => {
                Err(wrong_value(&describe_value(value), "a map of its fields"))
            }
            (BaseType::String(bound), YamlValue::One(text)) => {
                check_bound(text.len(), "bytes", bound)?;
                // Text in CDR ends at the first NUL.
                if self.schema.dialect == Dialect::Ros2 && text.contains('\0') {
                    return Err(wrong_value("text with NUL", "text without"));
                }
                to.string(text.as_bytes())
            }
            (BaseType::WString(bound), YamlValue::One(text)) => {
                let units: Vec<u16> = text.encode_utf16().collect();
                check_bound(units.len(), "units of UTF-16", bound)?;
                let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
                to.wide_text(&bytes)
            }
            (BaseType::String(_) | BaseType::WString(_), _) => {
                Err(wrong_value(&describe_value(value), "text"))
            }
            (BaseType::Primitive(Primitive::Time | Primitive::Duration), YamlValue::Map(parts)) => {
                self.time(base, parts, to)
            }
            (BaseType::Primitive(primitive), _) => {
                let kind = Number::for_primitive(primitive, self.schema.dialect);
                let read = match value {
                    YamlValue::One(text) => kind.read(text),
                    _ => None,
                };
                let bytes =
                    read.ok_or_else(|| wrong_value(&describe_value(value), &kind.allowed()))?;
                let size = primitive.bytes();
                to.numbers(size as u8, &bytes[..size])
            }
        }
    }

    /// ROS 1's time or duration, of `secs` and `nsecs`.
    fn time(
        &self,
        base: BaseType,
        parts: &[(String, YamlValue)],
        to: &mut Writer,
    ) -> Result<(), TranscodeError> {
        let word = match base {
            BaseType::Primitive(Primitive::Duration) => Primitive::Int32,
            _ => Primitive::UInt32,
        };
        if let Some((name, _)) = parts.iter().find(|(name, _)| !TIME_PARTS.contains(&&**name)) {
            return Err(wrong_value(
                &format!("the field {}", quoted(name)),
                &TIME_PARTS.join(", "),
            ));
        }
        for part in TIME_PARTS {
            match parts.iter().find(|(name, _)| name == part) {
                Some((_, value)) => self.value(BaseType::Primitive(word), value, to),
                None => to.zeros(4, 1),
            }
            .map_err(|error| error.with_outer_field(part))?;
        }
        Ok(())
    }

    fn zero(&self, field: &Field, to: &mut Writer) -> Result<(), TranscodeError> {
        let count = match field.arity {
            Arity::One => 1,
            Arity::Array(count) => count as usize,
            Arity::Sequence(_) => return to.length(0),
        };
        match field.base {
            BaseType::Primitive(Primitive::Time | Primitive::Duration) => {
                to.zeros(4, count.saturating_mul(TIME_PARTS.len()))
            }
            BaseType::Primitive(primitive) => to.zeros(primitive.bytes() as u8, count),
            BaseType::String(_) => for_each_element(count, |_| to.string(&[])),
            BaseType::WString(_) => for_each_element(count, |_| to.wide_text(&[])),
            BaseType::Struct(number) => for_each_element(count, |_| self.part(number, &[], to)),
        }
    }
}

/// The parts of ROS 1's time, as its tools name them.
const TIME_PARTS: [&str; 2] = ["secs", "nsecs"];

/// The values of a primitive type.
enum Number {
    Bool,
    /// From the least to the greatest.
    Whole(i128, i128),
    Single,
    Double,
    /// ROS 1's time: a map.
    Time,
}

impl Number {
    fn for_primitive(primitive: Primitive, dialect: Dialect) -> Self {
        use Primitive::*;
        let bits = 8 * primitive.bytes();
        match primitive {
            Bool => Self::Bool,
            Float32 => Self::Single,
            Float64 => Self::Double,
            Time | Duration => Self::Time,
            Byte if dialect == Dialect::Ros1 => Self::signed(bits),
            Int8 | Int16 | Int32 | Int64 => Self::signed(bits),
            UInt8 | UInt16 | UInt32 | UInt64 | Byte | Char => Self::Whole(0, (1 << bits) - 1),
        }
    }

    fn signed(bits: usize) -> Self {
        Self::Whole(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    }

    /// The value in little-endian order; a smaller type has only the first bytes.
    fn read(&self, text: &str) -> Option<[u8; 8]> {
        let number = match self {
            Self::Bool => u64::from(text.parse::<bool>().ok()?),
            Self::Whole(least, most) => {
                let number: i128 = text.parse().ok()?;
                // Two's complement: the low bytes are those of the smaller type.
                (*least..=*most).contains(&number).then_some(number as u64)?
            }
            Self::Single => {
                let number = parse_float(text)?;
                let single = number as f32;
                let fits = single.is_finite() || !number.is_finite();
                fits.then_some(single.to_bits().into())?
            }
            Self::Double => parse_float(text)?.to_bits(),
            Self::Time => return None,
        };
        Some(number.to_le_bytes())
    }

    fn allowed(&self) -> String {
        match self {
            Self::Bool => "true or false".into(),
            Self::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Self::Single => "a number that 32 bits hold".into(),
            Self::Double => "a number".into(),
            Self::Time => format!("a map of {}", TIME_PARTS.join(" and ")),
        }
    }
}

/// Parses a number, YAML's `.inf` and `.nan` included.
fn parse_float(text: &str) -> Option<f64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let number = match rest.to_ascii_lowercase().as_str() {
        ".inf" => f64::INFINITY,
        ".nan" => f64::NAN,
        _ => rest.parse().ok().filter(|number: &f64| number.is_sign_positive())?,
    };
    Some(sign * number)
}

fn check_bound(found: usize, what: &str, bound: Option<u32>) -> Result<(), TranscodeError> {
    match bound.filter(|bound| found > *bound as usize) {
        Some(bound) => Err(wrong_value(&format!("{found} {what}"), &format!("at most {bound}"))),
        None => Ok(()),
    }
}

fn describe_value(value: &YamlValue) -> String {
    match value {
        YamlValue::One(text) => quoted(text),
        YamlValue::List(_) => "a list".into(),
        YamlValue::Map(_) => "a map".into(),
    }
}

fn quoted(text: &str) -> String {
    let start: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    let more = if start.len() < text.len() { "..." } else { "" };
    format!("'{start}{more}'")
}

fn wrong_value(found: &str, allowed: &str) -> TranscodeError {
    TranscodeError::new(format!("found {found}; allowed: {allowed}"))
}
