// SPDX-License-Identifier: Apache-2.0
//! Changes fields of messages of any type, wherever they are in it: the names of frames
//! (`frame_id` of each `std_msgs/Header`, and each text field `child_frame_id`), and the time stamps
//! of headers.
//!
//! ```text
//! Schema ─┬▶ FrameFields (once for a type) ─▶ renamed: bytes to bytes
//!         └▶ StampFields                   ─▶ moved
//! ```
//! In CDR, a longer text moves the fields behind it, and their padding changes. A message is
//! therefore written again field by field, up to a place where it can be copied as it is: behind the
//! last such field, or in a part of fixed size, as soon as the distance that the bytes have moved is a
//! multiple of the alignment of what follows. In ROS 1, nothing is aligned.

use super::{MAX_FRAME_NAME, Rules};
use crate::Topic;
use crate::types::check::UNIT_BYTES;
use crate::types::check::spans::Span;
use crate::types::definition::{Arity, BaseType, Dialect, Field, Primitive, Schema, Struct};
use crate::types::hash::type_hash;
use crate::types::transcode::cursor::{Layout, Reader, Writer};
use crate::types::transcode::{MAX_PADDING, TranscodeError, cdr_reader, cdr_writer, expect_end};
use crate::types::trust::peers_schema;
use std::sync::Arc;

/// The fields that name a frame: a type (`None`: any) and a field of it.
const FIELDS: [(Option<&str>, &str); 2] =
    [(Some("std_msgs/Header"), "frame_id"), (None, "child_frame_id")];
/// The field that is a stamp, and its type in ROS 2.
const STAMP: (&str, &str) = ("std_msgs/Header", "stamp");
const TIME: &str = "builtin_interfaces/Time";
/// Limit of a changed message: this multiple of its size, plus [`MIN_GROWTH_BYTES`]. A header of at least
/// 16 bytes grows by at most [`super::MAX_PREFIX`], and by padding.
const MAX_GROWTH: usize = 8;
/// Bytes by which a message of any size may grow.
const MIN_GROWTH_BYTES: usize = 1 << 12;
/// Bytes of the number in front of a text or sequence.
const LENGTH_BYTES: usize = 4;

/// The places of frames in messages of one type.
#[derive(Debug)]
pub struct FrameFields(Fields);

/// The places of the stamps of headers in messages of one type.
#[derive(Debug)]
pub struct StampFields(Fields);

/// The kind of fields to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SoughtFields {
    Frames,
    Stamps,
}

/// The change to the sought fields.
#[derive(Debug, Clone, Copy)]
enum Change<'a> {
    /// Change frames to their names for peers.
    Rename(&'a Rules),
    /// Change frames back to their names on this robot.
    Restore(&'a Rules),
    /// Add these nanoseconds to each stamp.
    Move(i64),
}

#[derive(Debug)]
struct Fields {
    dialect: Dialect,
    /// By the numbers of the types in the schema; the message itself comes first.
    parts: Vec<Part>,
    has_wide_text: bool,
}

/// One type.
#[derive(Debug, Default)]
struct Part {
    steps: Vec<Step>,
    /// The number of steps up to the last one with a sought field; 0 if there is none.
    sought_end: usize,
    extent: Extent,
}

/// The size and the alignment of a value.
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    /// `None`: the size depends on the message.
    span: Option<Span>,
    /// The largest alignment in it.
    alignment: usize,
    is_sought: bool,
}

/// One field.
#[derive(Debug)]
struct Step {
    name: String,
    kind: Kind,
    arity: Arity,
    /// The largest alignment in this field and those behind it in its type.
    alignment: usize,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A number of this size in bytes.
    Number(u8),
    Text,
    WideText,
    /// The name of a frame, with its limit in bytes.
    Frame(Option<u32>),
    /// The stamp of a header: seconds and nanoseconds, 32 bits each.
    Stamp,
    /// The number in [`Fields::parts`].
    Part(usize),
}

impl FrameFields {
    /// Returns `None` for a type whose messages name no frames.
    pub fn new(schema: &Schema) -> Option<Self> {
        Fields::new(schema, SoughtFields::Frames).map(Self)
    }

    /// Finds the frames of a topic of this robot by its definition. The error says why the definition
    /// cannot be used, for a person.
    pub fn for_topic(topic: &Topic) -> Result<Option<Self>, String> {
        let name = &topic.type_name;
        let Some(schema) = peers_schema(topic)? else {
            return Err(format!("no definition of {name} is known here; install its package"));
        };
        let found = type_hash(&schema);
        if !topic.type_hash.is_empty() && topic.type_hash != found {
            let offered = &topic.type_hash;
            return Err(format!(
                "the definition of {name} that is known here has the hash {found}, its publisher's \
                 {offered}; install the same version"
            ));
        }
        Ok(Self::new(&schema))
    }

    /// The message with the new names of its frames; `None` if they are the same. Names that are no
    /// UTF-8, or longer than [`MAX_FRAME_NAME`], name no frame of tf and stay.
    ///
    /// What follows the last frame is not read if it can be copied.
    pub fn with_renamed_frames(
        &self,
        message: &[u8],
        rules: &Rules,
    ) -> Result<Option<Vec<u8>>, TranscodeError> {
        self.0.rewrite(message, Change::Rename(rules))
    }

    /// The message with the names that its frames have on the robot with these rules; `None` if they
    /// are the same.
    pub fn with_restored_frames(
        &self,
        message: &[u8],
        rules: &Rules,
    ) -> Result<Option<Vec<u8>>, TranscodeError> {
        self.0.rewrite(message, Change::Restore(rules))
    }
}

impl StampFields {
    /// Returns `None` for a type whose messages have no headers.
    pub fn new(schema: &Schema) -> Option<Self> {
        Fields::new(schema, SoughtFields::Stamps).map(Self)
    }

    /// The message with stamps that are later by this number of nanoseconds; `None` if it has none.
    /// A stamp of 0 is none, and one that would be out of range stays.
    pub fn with_moved_stamps(
        &self,
        message: &[u8],
        by_ns: i64,
    ) -> Result<Option<Vec<u8>>, TranscodeError> {
        self.0.rewrite(message, Change::Move(by_ns))
    }
}

/// Fields of one kind in a topic's messages.
#[derive(Debug, Default)]
pub enum FieldPresence<T> {
    /// No definition of the type is known.
    #[default]
    Unknown,
    /// The type has none.
    Absent,
    /// At these places.
    Present(Arc<T>),
}

impl<T> Clone for FieldPresence<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Absent => Self::Absent,
            Self::Present(fields) => Self::Present(fields.clone()),
        }
    }
}

impl<T> From<Option<T>> for FieldPresence<T> {
    fn from(fields: Option<T>) -> Self {
        fields.map_or(Self::Absent, |fields| Self::Present(Arc::new(fields)))
    }
}

/// The fields of a peer's topic that may change when its messages arrive.
#[derive(Debug, Clone, Default)]
pub struct ArrivalFields {
    /// The names of frames.
    pub frames: FieldPresence<FrameFields>,
    /// The time stamps.
    pub stamps: FieldPresence<StampFields>,
}

impl ArrivalFields {
    /// For a topic with a trusted definition.
    pub fn new(topic: &Topic) -> Self {
        match peers_schema(topic) {
            Ok(Some(schema)) => Self {
                frames: FrameFields::new(&schema).into(),
                stamps: StampFields::new(&schema).into(),
            },
            Ok(None) | Err(_) => Self::default(),
        }
    }
}

impl Fields {
    fn new(schema: &Schema, sought: SoughtFields) -> Option<Self> {
        let parts = schema.structs.iter().map(|_| None).collect();
        let mut compiler = Compiler { schema, sought, parts };
        if !compiler.part(0).is_sought {
            return None;
        }
        let parts: Vec<Part> = compiler.parts.into_iter().map(Option::unwrap_or_default).collect();
        let wide = |step: &Step| matches!(step.kind, Kind::WideText);
        let has_wide_text = parts.iter().flat_map(|part| &part.steps).any(wide);
        Some(Self { dialect: schema.dialect, parts, has_wide_text })
    }

    fn rewrite(
        &self,
        message: &[u8],
        change: Change<'_>,
    ) -> Result<Option<Vec<u8>>, TranscodeError> {
        let widths = if self.has_wide_text { &UNIT_BYTES[..] } else { &UNIT_BYTES[..1] };
        let mut outcome = Ok(None);
        for width in widths {
            outcome = self.rewrite_with_unit_bytes(message, change, *width);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn rewrite_with_unit_bytes(
        &self,
        message: &[u8],
        change: Change<'_>,
        unit_bytes: usize,
    ) -> Result<Option<Vec<u8>>, TranscodeError> {
        let limit = message.len().saturating_mul(MAX_GROWTH).saturating_add(MIN_GROWTH_BYTES);
        let (from, to, padding) = match self.dialect {
            Dialect::Ros1 => {
                let to = Writer::new(&[], Layout::ROS1, limit);
                (Reader::new(message, Layout::ROS1), to, 0)
            }
            Dialect::Ros2 => (cdr_reader(message)?, cdr_writer(limit), MAX_PADDING),
        };
        // The width of wide text is certain only if the message ends where it should. Numbers in
        // big-endian order are written in little-endian order.
        let may_copy = !self.has_wide_text && !from.is_swapped();
        let parts = &self.parts;
        let latest_second = match self.dialect {
            Dialect::Ros1 => u32::MAX,
            Dialect::Ros2 => i32::MAX as u32,
        };
        let (is_changed, last) = (false, None);
        let mut walk =
            Walk { parts, change, from, to, unit_bytes, may_copy, is_changed, latest_second, last };
        walk.message()?;
        expect_end(&walk.from, padding)?;
        Ok(walk.is_changed.then(|| walk.to.finish()))
    }
}

/// A message that is being changed.
struct Walk<'a> {
    parts: &'a [Part],
    change: Change<'a>,
    from: Reader<'a>,
    to: Writer,
    unit_bytes: usize,
    may_copy: bool,
    is_changed: bool,
    /// The greatest number of seconds in a stamp.
    latest_second: u32,
    /// The last frame's name and its new name.
    last: Option<(&'a [u8], Vec<u8>)>,
}

impl Walk<'_> {
    fn message(&mut self) -> Result<(), TranscodeError> {
        let parts = self.parts;
        for (index, step) in parts[0].steps.iter().enumerate() {
            if index >= parts[0].sought_end && self.can_copy(step.alignment) {
                let rest = self.from.remaining_bytes();
                return self.copy(rest as u64);
            }
            self.field(step)?;
        }
        Ok(())
    }

    fn field(&mut self, step: &Step) -> Result<(), TranscodeError> {
        self.values(step).map_err(|error| error.with_outer_field(&step.name))
    }

    /// Whether bytes with this alignment at most have the same padding in both messages.
    fn can_copy(&self, alignment: usize) -> bool {
        let moved = self.to.position().abs_diff(self.from.position());
        self.may_copy && moved.is_multiple_of(alignment.max(1))
    }

    fn copy(&mut self, bytes: u64) -> Result<(), TranscodeError> {
        let bytes = self.from.take(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        // An unchanged message is not needed, however large it is.
        if self.from.remaining_bytes() == 0 && !self.is_changed {
            Ok(())
        } else {
            self.to.put(bytes)
        }
    }

    fn values(&mut self, step: &Step) -> Result<(), TranscodeError> {
        let count = match step.arity {
            Arity::One => 1,
            Arity::Array(count) => count as usize,
            Arity::Sequence(_) => {
                let count = self.from.length()?;
                self.to.length(count)?;
                count
            }
        };
        match step.kind {
            Kind::Number(size) => {
                let numbers = self.from.numbers(size, count)?;
                self.to.numbers(size, &numbers)
            }
            Kind::Part(number) => self.elements(number, count),
            Kind::Text => (0..count).try_for_each(|_| {
                let found = self.from.string()?;
                self.to.string(found)
            }),
            Kind::WideText => (0..count).try_for_each(|_| self.wide_text()),
            Kind::Frame(bound) => self.frame(bound),
            Kind::Stamp => self.stamp(),
        }
    }

    fn elements(&mut self, number: usize, count: usize) -> Result<(), TranscodeError> {
        let Part { steps, extent, .. } = &self.parts[number];
        if extent.span.is_some_and(|span| span.is_empty()) {
            return Ok(());
        }
        for index in 0..count {
            if let Some(span) = extent.span.filter(|_| self.can_copy(extent.alignment)) {
                let left = (count - index) as u64;
                return self.copy(span.repeated_at(self.from.position(), left));
            }
            let done = steps.iter().try_for_each(|step| self.field(step));
            done.map_err(|error| match count {
                1 => error,
                _ => error.with_outer_field(&format!("[{index}]")),
            })?;
        }
        Ok(())
    }

    fn wide_text(&mut self) -> Result<(), TranscodeError> {
        let length = self.from.length()?;
        self.to.length(length)?;
        let bytes = self.from.take(length.saturating_mul(self.unit_bytes))?;
        if self.from.is_swapped() && self.unit_bytes > 1 {
            let swapped = bytes.chunks(self.unit_bytes).flat_map(|unit| unit.iter().rev().copied());
            return self.to.put(&swapped.collect::<Vec<u8>>());
        }
        self.to.put(bytes)
    }

    fn stamp(&mut self) -> Result<(), TranscodeError> {
        let numbers = self.from.numbers(4, 2)?;
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        let (seconds, nanoseconds) = numbers.split_at(4);
        let moved = match self.change {
            Change::Move(by_ns) => {
                moved_time(number(seconds), number(nanoseconds), by_ns, self.latest_second)
            }
            Change::Rename(_) | Change::Restore(_) => None,
        };
        let Some((seconds, nanoseconds)) = moved else { return self.to.numbers(4, &numbers) };
        self.is_changed = true;
        self.to.numbers(4, &[seconds.to_le_bytes(), nanoseconds.to_le_bytes()].concat())
    }

    fn frame(&mut self, bound: Option<u32>) -> Result<(), TranscodeError> {
        let found = self.from.string()?;
        // Many messages name the same frame again and again.
        let renamed = match self.last.take_if(|(name, _)| *name == found) {
            Some((_, renamed)) => renamed,
            None => match self.change {
                Change::Rename(rules) => with_name(found, |name| rules.new_name(name)),
                Change::Restore(rules) => with_name(found, |name| rules.own_name(name).to_owned()),
                Change::Move(_) => found.to_vec(),
            },
        };
        if let Some(bound) = bound.filter(|bound| renamed.len() > *bound as usize) {
            let name = String::from_utf8_lossy(&renamed);
            let problem = format!("'{name}' is too long; allowed: at most {bound} bytes");
            return Err(TranscodeError::new(problem));
        }
        self.is_changed |= renamed != found;
        self.to.string(&renamed)?;
        self.last = Some((found, renamed));
        Ok(())
    }
}

/// Seconds and nanoseconds later by `by_ns`; `None` if there is no such stamp. Seconds beyond `latest`
/// are negative in ROS 2: no clock shows a time before 1970.
fn moved_time(seconds: u32, nanoseconds: u32, by_ns: i64, latest: u32) -> Option<(u32, u32)> {
    const SECOND: i64 = 1_000_000_000;
    if (seconds, nanoseconds) == (0, 0) || seconds > latest {
        return None;
    }
    let since_1970 = i64::from(seconds) * SECOND + i64::from(nanoseconds);
    let moved = since_1970.checked_add(by_ns).filter(|moved| *moved > 0)?;
    let seconds = u32::try_from(moved / SECOND).ok().filter(|seconds| *seconds <= latest)?;
    Some((seconds, (moved % SECOND) as u32))
}

/// The new name of a frame; text that names no frame stays.
fn with_name(found: &[u8], new_name: impl FnOnce(&str) -> String) -> Vec<u8> {
    let name = std::str::from_utf8(found).ok().filter(|name| name.len() <= MAX_FRAME_NAME);
    match name.filter(|name| !name.trim_start_matches('/').is_empty()) {
        Some(name) => new_name(name).into_bytes(),
        None => found.to_vec(),
    }
}

struct Compiler<'a> {
    schema: &'a Schema,
    sought: SoughtFields,
    parts: Vec<Option<Part>>,
}

impl Compiler<'_> {
    /// Compiles a type, each once: definitions may nest exponentially.
    fn part(&mut self, number: usize) -> Extent {
        if let Some(part) = &self.parts[number] {
            return part.extent;
        }
        let schema = self.schema;
        let owner = &schema.structs[number];
        let mut part = Part::default();
        let (mut span, mut alignment) = (Some(Span::default()), 1);
        for field in owner.fields.iter().filter(|field| field.arity != Arity::Array(0)) {
            let (kind, element) = self.element(owner, field);
            span = span.zip(repeated(element.span, field.arity)).map(|(a, b)| a.followed_by(b));
            let length = match field.arity {
                Arity::Sequence(_) => self.alignment(LENGTH_BYTES),
                Arity::One | Arity::Array(_) => 1,
            };
            let (name, arity) = (field.name.clone(), field.arity);
            part.steps.push(Step { name, kind, arity, alignment: element.alignment.max(length) });
            if element.is_sought {
                part.sought_end = part.steps.len();
            }
        }
        for step in part.steps.iter_mut().rev() {
            alignment = alignment.max(step.alignment);
            step.alignment = alignment;
        }
        part.extent = Extent { span, alignment, is_sought: part.sought_end > 0 };
        let extent = part.extent;
        self.parts[number] = Some(part);
        extent
    }

    /// The kind and the extent of one element of a field.
    fn element(&mut self, owner: &Struct, field: &Field) -> (Kind, Extent) {
        let alignment = self.alignment(LENGTH_BYTES);
        let text = Extent { span: None, alignment, is_sought: false };
        if self.sought == SoughtFields::Stamps && self.is_stamp(owner, field) {
            return (Kind::Stamp, Extent { is_sought: true, ..text });
        }
        match field.base {
            BaseType::Primitive(primitive) => {
                let size = primitive.bytes();
                let span = match self.schema.dialect {
                    Dialect::Ros1 => Span::unaligned(size),
                    Dialect::Ros2 => Span::aligned(size),
                };
                let alignment = self.alignment(size);
                let number = Extent { span: Some(span), alignment, is_sought: false };
                (Kind::Number(size as u8), number)
            }
            BaseType::String(bound)
                if self.sought == SoughtFields::Frames && names_frame(owner, field) =>
            {
                (Kind::Frame(bound), Extent { is_sought: true, ..text })
            }
            BaseType::String(_) => (Kind::Text, text),
            BaseType::WString(_) => (Kind::WideText, text),
            BaseType::Struct(number) => (Kind::Part(number), self.part(number)),
        }
    }

    /// Whether a field is the stamp of a header.
    fn is_stamp(&self, owner: &Struct, field: &Field) -> bool {
        let is_time = match field.base {
            BaseType::Primitive(primitive) => primitive == Primitive::Time,
            BaseType::Struct(number) => self.schema.structs[number].name == TIME,
            BaseType::String(_) | BaseType::WString(_) => false,
        };
        let is_named = (owner.name.as_str(), field.name.as_str()) == STAMP;
        is_named && is_time && field.arity == Arity::One
    }

    fn alignment(&self, size: usize) -> usize {
        match self.schema.dialect {
            Dialect::Ros1 => 1,
            Dialect::Ros2 => size,
        }
    }
}

fn names_frame(owner: &Struct, field: &Field) -> bool {
    let is_named = |(type_name, name): (Option<&str>, &str)| {
        type_name.is_none_or(|it| it == owner.name) && name == field.name
    };
    field.arity == Arity::One && FIELDS.into_iter().any(is_named)
}

/// The bytes of a field, if the type determines their number.
fn repeated(element: Option<Span>, arity: Arity) -> Option<Span> {
    match arity {
        Arity::One => element,
        Arity::Array(count) => element.map(|span| span.repeated(count.into())),
        Arity::Sequence(_) => None,
    }
}
