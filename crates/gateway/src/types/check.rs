// SPDX-License-Identifier: Apache-2.0
//! Checks whether bytes can be a message of a type, before local nodes read them.
//!
//! rospy ends a subscriber at a message that it cannot read, and roscpp reserves the length that a
//! message claims. A [`Checker`] therefore follows a message by its type and compares each length with
//! the bytes that are left. It reads only lengths and the ends of texts:
//!
//! - Parts whose sizes the type determines are one step. Arrays and sequences of them too, however
//!   many elements they have.
//! - Every other element takes at least the four bytes of a length. The time of a check is thus
//!   bounded by the size of the message, whatever lengths it claims.
//!
//! Values that ROS accepts pass: any byte as `bool`, and text that is not UTF-8.

pub(crate) mod spans;

use super::action::{action_of_type, installed_part};
use super::definition::{Arity, BaseType, Dialect, Schema, dialect_of};
use super::hash::{service_type_hash, type_hash};
use super::installed::InstalledTypes;
use super::service_parts::request_and_response;
use super::transcode::cursor::{Layout, Reader};
use super::transcode::{MAX_PADDING, TranscodeError, cdr_reader, expect_end, for_each_element};
use super::trust::has_ambiguous_layout;
use crate::{Service, Topic};
use spans::Span;
use std::sync::Arc;

/// Possible sizes of a unit of wide text, in bytes: Fast DDS 2 and Cyclone DDS write `wchar_t` (4),
/// others UTF-16 (2). The length may also count bytes (1).
pub(crate) const UNIT_BYTES: [usize; 3] = [4, 2, 1];

/// Checks messages of one type.
#[derive(Debug)]
pub struct Checker {
    dialect: Dialect,
    root: Shape,
    /// Types whose size depends on the message.
    varied: Vec<VariableSize>,
    has_wide_text: bool,
}

/// The bytes of a type.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// The type determines the size.
    Fixed(Span),
    /// The number in [`Checker::varied`].
    VariableSize(usize),
}

#[derive(Debug, Default)]
struct VariableSize {
    steps: Vec<Step>,
    /// Fields of fixed size behind the last step.
    after: Span,
}

/// A field whose size depends on the message.
#[derive(Debug)]
struct Step {
    /// Fields of fixed size in front of it.
    before: Span,
    name: String,
    arity: Arity,
    element: Element,
}

#[derive(Debug, Clone, Copy)]
enum Element {
    Fixed(Span),
    Text(Option<u32>),
    WideText(Option<u32>),
    Struct(usize),
}

impl Checker {
    /// For the type that a definition describes.
    pub fn new(schema: &Schema) -> Self {
        let mut compiler =
            Compiler { schema, shapes: vec![None; schema.structs.len()], varied: Vec::new() };
        let root = compiler.shape(0);
        let wide = |step: &Step| matches!(step.element, Element::WideText(_));
        let has_wide_text = compiler.varied.iter().flat_map(|it| &it.steps).any(wide);
        Self { dialect: schema.dialect, root, varied: compiler.varied, has_wide_text }
    }

    /// Checks one message: ROS 1's serialization, or CDR with its encapsulation.
    pub fn check(&self, message: &[u8]) -> Result<(), TranscodeError> {
        let widths = if self.has_wide_text { &UNIT_BYTES[..] } else { &UNIT_BYTES[..1] };
        let (first, others) = widths.split_first().unwrap_or((&1, &[]));
        let found = self.check_with(message, *first);
        if others.iter().any(|width| found.is_err() && self.check_with(message, *width).is_ok()) {
            return Ok(());
        }
        found
    }

    fn check_with(&self, message: &[u8], unit_bytes: usize) -> Result<(), TranscodeError> {
        let (from, padding) = match self.dialect {
            Dialect::Ros1 => (Reader::new(message, Layout::ROS1), 0),
            Dialect::Ros2 => (cdr_reader(message)?, MAX_PADDING),
        };
        let mut walk = Walk { varied: &self.varied, from, unit_bytes };
        match self.root {
            Shape::Fixed(span) => walk.skip(span)?,
            Shape::VariableSize(number) => walk.check_struct(number)?,
        }
        expect_end(&walk.from, padding)
    }
}

/// One message on its way through a [`Checker`].
struct Walk<'a> {
    varied: &'a [VariableSize],
    from: Reader<'a>,
    unit_bytes: usize,
}

impl Walk<'_> {
    fn skip(&mut self, span: Span) -> Result<(), TranscodeError> {
        self.from.skip(span.bytes_at(self.from.position()))
    }

    fn check_struct(&mut self, number: usize) -> Result<(), TranscodeError> {
        let varied = self.varied;
        for step in &varied[number].steps {
            self.skip(step.before)?;
            self.field(step).map_err(|error| error.with_outer_field(&step.name))?;
        }
        self.skip(varied[number].after)
    }

    fn field(&mut self, step: &Step) -> Result<(), TranscodeError> {
        let count = match step.arity {
            Arity::One => 1,
            Arity::Array(count) => count as usize,
            Arity::Sequence(bound) => {
                let count = self.from.length()?;
                check_bound(bound, count, "elements")?;
                count
            }
        };
        match step.element {
            Element::Fixed(span) => {
                let bytes = span.repeated_at(self.from.position(), count as u64);
                self.from.skip(bytes)
            }
            Element::Text(bound) => for_each_element(count, |_| {
                check_bound(bound, self.from.string()?.len(), "bytes of text")
            }),
            Element::WideText(bound) => for_each_element(count, |_| {
                let length = self.from.length()?;
                if self.unit_bytes > 1 {
                    check_bound(bound, length, "units of text")?;
                }
                self.from.skip(length.saturating_mul(self.unit_bytes) as u64)
            }),
            Element::Struct(number) => for_each_element(count, |_| self.check_struct(number)),
        }
    }
}

fn check_bound(bound: Option<u32>, found: usize, what: &str) -> Result<(), TranscodeError> {
    match bound.filter(|bound| found > *bound as usize) {
        Some(bound) => {
            Err(TranscodeError::new(format!("{found} {what}; allowed: at most {bound}")))
        }
        None => Ok(()),
    }
}

struct Compiler<'a> {
    schema: &'a Schema,
    shapes: Vec<Option<Shape>>,
    varied: Vec<VariableSize>,
}

impl Compiler<'_> {
    /// The shape of a type, each determined once: definitions may nest exponentially.
    fn shape(&mut self, number: usize) -> Shape {
        if let Some(shape) = self.shapes[number] {
            return shape;
        }
        let mut varied = VariableSize::default();
        let schema = self.schema;
        for field in &schema.structs[number].fields {
            let element = self.element(field.base);
            match (element, field.arity) {
                (_, Arity::Array(0)) => {}
                (Element::Fixed(span), Arity::One) => varied.after = varied.after.followed_by(span),
                (Element::Fixed(span), Arity::Array(count)) => {
                    varied.after = varied.after.followed_by(span.repeated(count.into()));
                }
                (element, arity) => {
                    let before = std::mem::take(&mut varied.after);
                    let name = field.name.clone();
                    varied.steps.push(Step { before, name, arity, element });
                }
            }
        }
        let shape = match &varied.steps[..] {
            [] => Shape::Fixed(varied.after),
            // A chain of types around one value is one step.
            [Step { before, arity: Arity::One, element: Element::Struct(inner), .. }]
                if before.is_empty() && varied.after.is_empty() =>
            {
                Shape::VariableSize(*inner)
            }
            _ => {
                self.varied.push(varied);
                Shape::VariableSize(self.varied.len() - 1)
            }
        };
        self.shapes[number] = Some(shape);
        shape
    }

    fn element(&mut self, base: BaseType) -> Element {
        match base {
            BaseType::Primitive(primitive) => {
                let size = primitive.bytes();
                Element::Fixed(match self.schema.dialect {
                    Dialect::Ros1 => Span::unaligned(size),
                    Dialect::Ros2 => Span::aligned(size),
                })
            }
            BaseType::String(bound) => Element::Text(bound),
            BaseType::WString(bound) => Element::WideText(bound),
            BaseType::Struct(number) => match self.shape(number) {
                Shape::Fixed(span) => Element::Fixed(span),
                Shape::VariableSize(number) => Element::Struct(number),
            },
        }
    }
}

/// Checks the calls of one service.
#[derive(Debug)]
pub struct ServiceChecker {
    /// For requests.
    pub request: Checker,
    /// For responses.
    pub response: Checker,
}

impl ServiceChecker {
    fn new([request, response]: &[Schema; 2]) -> Self {
        Self { request: Checker::new(request), response: Checker::new(response) }
    }

    /// For a service of this robot, by its definition; `None` if that is unknown or invalid.
    pub fn for_own_service(service: &Service) -> Option<Self> {
        let (name, text) = (&service.type_name, &service.definition);
        request_and_response(name, text, dialect_of(name)).ok().map(|parts| Self::new(&parts))
    }
}

/// How messages of a peer's topic, or calls of its service, are checked.
#[derive(Debug, Clone)]
pub enum Check<T> {
    /// By a definition that local nodes share: the installed one, or one whose hash determines the
    /// layout.
    SharedDefinition(Arc<T>),
    /// By the peer's own definition. Local nodes may read by another one of the same hash, or of the
    /// same name.
    PeerDefinition(Arc<T>),
    /// Neither check nor translation: no definition of this version is known.
    Impossible,
    /// Messages are translated, which checks them.
    InTranslation,
}

impl<T> Check<T> {
    fn new(checker: T, is_certain: bool) -> Self {
        let checker = Arc::new(checker);
        if is_certain { Self::SharedDefinition(checker) } else { Self::PeerDefinition(checker) }
    }

    /// The checker, if there is one.
    pub fn checker(&self) -> Option<&Arc<T>> {
        match self {
            Self::SharedDefinition(checker) | Self::PeerDefinition(checker) => Some(checker),
            Self::Impossible | Self::InTranslation => None,
        }
    }
}

/// The definition of a type of ROS 2 around the goal, result or feedback of an installed action.
fn part_of_action(type_name: &str, installed: &InstalledTypes) -> Option<String> {
    action_of_type(type_name)?;
    installed_part(type_name, installed).ok()
}

/// How to check messages of a topic that is published here. Its definition must be trusted.
///
/// Local nodes read by the installed version if the topic has the same hash, or no hash. Nodes of
/// another version refuse the connection in ROS 1; in ROS 2 they do not.
pub fn check_of_topic(topic: &Topic, installed: &InstalledTypes) -> Check<Checker> {
    let name = &topic.type_name;
    let dialect = dialect_of(name);
    let parse = |text: &str| Schema::parse(name, text, dialect).ok();
    let message = || installed.definition(name, dialect).ok();
    let own = part_of_action(name, installed).or_else(message).and_then(|text| parse(&text));
    let is_offered = |own: &Schema| matches_hash(&topic.type_hash, || type_hash(own));
    if let Some(own) = own.as_ref().filter(|own| is_offered(own)) {
        return Check::new(Checker::new(own), true);
    }
    match parse(&topic.definition).filter(|_| !topic.definition.is_empty()) {
        Some(theirs) => {
            let is_read_by_others = dialect == Dialect::Ros2 && own.is_some();
            let is_certain = !is_read_by_others && !has_ambiguous_layout(&theirs);
            Check::new(Checker::new(&theirs), is_certain)
        }
        None => Check::Impossible,
    }
}

/// Like [`check_of_topic`], for a peer's service that is served here. In ROS 2 no hash covers the
/// response.
pub fn check_of_service(service: &Service, installed: &InstalledTypes) -> Check<ServiceChecker> {
    let name = &service.type_name;
    let dialect = dialect_of(name);
    let parse = |text: &str| request_and_response(name, text, dialect).ok();
    let plain = || installed.service(name, dialect).ok();
    let own = part_of_action(name, installed).or_else(plain).and_then(|text| parse(&text));
    let is_offered = |[request, response]: &[Schema; 2]| {
        matches_hash(&service.type_hash, || service_type_hash(request, response))
    };
    if let Some(own) = own.filter(is_offered) {
        return Check::new(ServiceChecker::new(&own), true);
    }
    match parse(&service.definition) {
        Some(theirs) => {
            let is_certain = dialect == Dialect::Ros1 && !theirs.iter().any(has_ambiguous_layout);
            Check::new(ServiceChecker::new(&theirs), is_certain)
        }
        None => Check::Impossible,
    }
}

fn matches_hash(offered: &str, own: impl FnOnce() -> String) -> bool {
    offered.is_empty() || offered == own()
}
