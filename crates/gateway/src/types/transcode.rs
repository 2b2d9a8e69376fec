// SPDX-License-Identifier: Apache-2.0
//! Converts ROS 1's serialization to ROS 2's CDR and back, field by field, without generated code.
//!
//! ROS 1 (wiki.ros.org/msg): little-endian, nothing aligned, lengths of 32 bits. CDR (OMG
//! DDSI-RTPS 2.5, 10.2; XCDR version 1): four bytes that name the encoding, then numbers
//! aligned to their size, text with a final NUL. [`Transcoder::new`] pairs the fields of two
//! definitions once; then each message is one pass over its bytes.
//!
//! What differs between the two: ROS 1's `Header.seq` has no counterpart (0 on the way back),
//! `time` and `duration` are structs of another range, an empty struct has one byte, names of a few fields
//! differ in case, and newer definitions have fields that older ones lack.

pub(crate) mod cursor;
mod error;
mod plan;
mod time;

use super::definition::{Arity, Schema};
use cursor::{Layout, Reader, Writer};
use plan::{Kind, Plan, Step};
use time::{Side, TIME_BYTES};

pub use error::TranscodeError;
pub use plan::Mismatch;

/// Limit of a converted message: this multiple of its size, plus [`MIN_GROWTH_BYTES`]. Alignment and
/// final NULs at most double the size; fields that only one side has add some more.
const MAX_GROWTH: usize = 8;
/// Bytes by which a message of any size may grow.
const MIN_GROWTH_BYTES: usize = 1 << 16;
/// The encoding in CDR's encapsulation: big-endian.
pub(crate) const CDR_BE: [u8; 2] = [0, 0];
/// The encoding in CDR's encapsulation: little-endian.
pub(crate) const CDR_LE: [u8; 2] = [0, 1];
/// Bytes of the encapsulation and its options.
pub(crate) const ENCAPSULATION_BYTES: usize = 4;
/// Most bytes of padding behind a payload, whose size may be padded to a multiple of four.
pub(crate) const MAX_PADDING: usize = 3;

/// Converts messages of one type both ways.
#[derive(Debug)]
pub struct Transcoder {
    plan: Plan,
}

impl Transcoder {
    /// For a type as ROS 1 and as ROS 2 define it.
    pub fn new(ros1: &Schema, ros2: &Schema) -> Result<Self, Mismatch> {
        Ok(Self { plan: Plan::new(ros1, ros2)? })
    }

    /// Fields that only one of the two has, each with its type
    /// (`visualization_msgs/Marker.texture, ROS 2 only`). They are zero or empty in one direction,
    /// and lost in the other.
    pub fn one_sided(&self) -> &[String] {
        self.plan.one_sided()
    }

    /// A ROS 1 message as CDR (little-endian, encapsulation included).
    pub fn to_ros2(&self, message: &[u8]) -> Result<Vec<u8>, TranscodeError> {
        let mut from = Reader::new(message, Layout::ROS1);
        let mut to = cdr_writer(limit(message));
        self.walk(Side::Ros1, 0, &mut from, &mut to)?;
        expect_end(&from, 0)?;
        Ok(to.finish())
    }

    /// A CDR message (encapsulation included) in ROS 1's serialization.
    pub fn to_ros1(&self, message: &[u8]) -> Result<Vec<u8>, TranscodeError> {
        let mut from = cdr_reader(message)?;
        let mut to = Writer::new(&[], Layout::ROS1, limit(message));
        self.walk(Side::Ros2, 0, &mut from, &mut to)?;
        expect_end(&from, MAX_PADDING)?;
        Ok(to.finish())
    }

    /// Converts one struct; `side` is the ROS of the input.
    fn walk(
        &self,
        side: Side,
        number: usize,
        from: &mut Reader<'_>,
        to: &mut Writer,
    ) -> Result<(), TranscodeError> {
        to.spend(self.plan.steps(number).len())?;
        for step in self.plan.steps(number) {
            let outcome = match step.only {
                None => self.field(side, step, from, to),
                Some(only) if only == side => {
                    let mark = to.len();
                    let read = self.field(side, step, from, to);
                    to.truncate(mark);
                    read
                }
                Some(_) => self.default(step, to),
            };
            outcome.map_err(|error| error.with_outer_field(&step.name))?;
        }
        Ok(())
    }

    fn field(
        &self,
        side: Side,
        step: &Step,
        from: &mut Reader<'_>,
        to: &mut Writer,
    ) -> Result<(), TranscodeError> {
        let count = match step.arity {
            Arity::One => {
                return self.values(side, step.kind, 1, from, to);
            }
            Arity::Array(count) => count as usize,
            Arity::Sequence(bound) => {
                let count = from.length()?;
                if let Some(bound) = bound.filter(|bound| count > *bound as usize) {
                    let problem = format!("{count} elements; allowed: at most {bound}");
                    return Err(TranscodeError::new(problem));
                }
                to.length(count)?;
                count
            }
        };
        self.values(side, step.kind, count, from, to)
    }

    fn values(
        &self,
        side: Side,
        kind: Kind,
        count: usize,
        from: &mut Reader<'_>,
        to: &mut Writer,
    ) -> Result<(), TranscodeError> {
        match kind {
            Kind::Number(size) => from.numbers(size, count).and_then(|it| to.numbers(size, &it)),
            Kind::Bool => {
                let mut values = from.numbers(1, count)?.into_owned();
                // Readers of CDR refuse other numbers.
                values.iter_mut().for_each(|value| *value = u8::from(*value != 0));
                to.numbers(1, &values)
            }
            Kind::Text(bound) => for_each_element(count, |_| {
                let text = from.string()?;
                if let Some(bound) = bound.filter(|bound| text.len() > *bound as usize) {
                    let found = text.len();
                    let problem = format!("{found} bytes of text; allowed: at most {bound}");
                    return Err(TranscodeError::new(problem));
                }
                to.string(text)
            }),
            Kind::WideText => {
                for_each_element(count, |_| from.wide_text().and_then(|it| to.wide_text(&it)))
            }
            Kind::Time(kind) => for_each_element(count, |_| {
                let read = from.numbers(4, 2)?;
                // Two numbers of four bytes.
                let found = <[u8; TIME_BYTES]>::try_from(&*read).unwrap_or_default();
                to.numbers(4, &kind.convert(side, found)?)
            }),
            Kind::Struct(number) => for_each_element(count, |_| self.walk(side, number, from, to)),
        }
    }

    /// Writes zeros and empty values for a field that the input lacks.
    fn default(&self, step: &Step, to: &mut Writer) -> Result<(), TranscodeError> {
        let count = match step.arity {
            Arity::One => 1,
            Arity::Array(count) => count as usize,
            Arity::Sequence(_) => return to.length(0),
        };
        match step.kind {
            Kind::Number(size) => to.zeros(size, count),
            Kind::Bool => to.zeros(1, count),
            Kind::Text(_) => for_each_element(count, |_| to.string(&[])),
            Kind::WideText => for_each_element(count, |_| to.wide_text(&[])),
            Kind::Time(_) => to.zeros(4, count.saturating_mul(2)),
            Kind::Struct(number) => for_each_element(count, |_| {
                let steps = self.plan.steps(number);
                to.spend(steps.len())?;
                steps.iter().try_for_each(|inner| self.default(inner, to))
            }),
        }
    }
}

/// A reader of a CDR message, behind its encapsulation.
pub(crate) fn cdr_reader(message: &[u8]) -> Result<Reader<'_>, TranscodeError> {
    let (head, body) = message.split_at_checked(ENCAPSULATION_BYTES).ok_or_else(|| {
        let found = message.len();
        TranscodeError::new(format!("{found} bytes; allowed: at least {ENCAPSULATION_BYTES}"))
    })?;
    match [head[0], head[1]] {
        CDR_LE => Ok(Reader::new(body, Layout::CDR)),
        CDR_BE => Ok(Reader::new(body, Layout::CDR).with_swapped_bytes()),
        [high, low] => {
            let found = format!("encapsulation 0x{high:02x}{low:02x}");
            Err(TranscodeError::new(format!("{found}; allowed: 0x0000, 0x0001 (CDR)")))
        }
    }
}

/// A writer of a CDR message (little-endian) of at most `limit` bytes, behind its encapsulation.
pub(crate) fn cdr_writer(limit: usize) -> Writer {
    Writer::new(&[CDR_LE[0], CDR_LE[1], 0, 0], Layout::CDR, limit)
}

/// Checks that at most `padding` bytes are left.
pub(crate) fn expect_end(from: &Reader<'_>, padding: usize) -> Result<(), TranscodeError> {
    match from.remaining_bytes() {
        left if left > padding => {
            Err(TranscodeError::new(format!("{left} bytes are left over at the end")))
        }
        _ => Ok(()),
    }
}

/// Runs `task` for each element, and adds the element's number to an error.
pub(crate) fn for_each_element(
    count: usize,
    mut task: impl FnMut(usize) -> Result<(), TranscodeError>,
) -> Result<(), TranscodeError> {
    (0..count).try_for_each(|index| {
        let path = |error: TranscodeError| match count {
            1 => error,
            _ => error.with_outer_field(&format!("[{index}]")),
        };
        task(index).map_err(path)
    })
}

fn limit(message: &[u8]) -> usize {
    message.len().saturating_mul(MAX_GROWTH).saturating_add(MIN_GROWTH_BYTES)
}
