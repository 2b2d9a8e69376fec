// SPDX-License-Identifier: Apache-2.0
//! Definitions of messages as text: a `.msg` file and those that it needs.
//!
//! The form is that of a ROS 1 connection header (`rosmsg show`, `gendeps --cat`), which MCAP
//! uses for ROS 2 as well: the message's own text, then for each type that it needs a line of at
//! least [`SEPARATOR_BYTES`] `=`, a line `MSG: package/Type`, and the type's text.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Maximum bytes of the text of a definition.
pub const MAX_TEXT_BYTES: usize = 1 << 20;
/// Maximum number of lines in the text of a definition.
pub const MAX_LINES: usize = 65_536;
/// Maximum number of types in one definition.
pub const MAX_TYPES: usize = 512;
/// Maximum number of fields and constants of all types in one definition.
pub const MAX_DECLARATIONS: usize = 8192;
/// Longest name of a type, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Deepest nesting of types.
pub const MAX_DEPTH: usize = 32;
/// Fewest `=` in a line that separates two types.
const SEPARATOR_BYTES: usize = 40;
/// The line between a service's request and response.
pub const DIVIDER: &str = "---";
/// The field that ROS 2 adds to an empty message, since IDL has no empty struct.
pub const DUMMY_FIELD: &str = "structure_needs_at_least_one_member";

/// The ROS whose rules a definition follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// ROS 1: `Header`, `time`, `duration`; nothing is bounded.
    Ros1,
    /// ROS 2: bounds, `wstring`, default values.
    Ros2,
}

/// Why a definition cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{type_name}, line {line}: {problem}")]
pub struct DefinitionError {
    /// The type in whose text it was found.
    pub type_name: String,
    /// Line of that text, from 1.
    pub line: usize,
    /// What was found, and what is allowed.
    pub problem: String,
}

/// A type without fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Primitive {
    /// A byte, 0 or 1.
    Bool,
    /// Signed, 8 bits.
    Int8,
    /// Unsigned, 8 bits.
    UInt8,
    /// Signed, 16 bits.
    Int16,
    /// Unsigned, 16 bits.
    UInt16,
    /// Signed, 32 bits.
    Int32,
    /// Unsigned, 32 bits.
    UInt32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 64 bits.
    UInt64,
    /// IEEE 754, single.
    Float32,
    /// IEEE 754, double.
    Float64,
    /// `byte`: signed in ROS 1, an octet in ROS 2.
    Byte,
    /// `char`: unsigned, 8 bits.
    Char,
    /// ROS 1: two 32-bit numbers, seconds and nanoseconds, unsigned.
    Time,
    /// ROS 1: two 32-bit numbers, seconds and nanoseconds, signed.
    Duration,
}

impl Primitive {
    /// Size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::Int8 | Self::UInt8 | Self::Byte | Self::Char => 1,
            Self::Int16 | Self::UInt16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Time | Self::Duration => 8,
        }
    }

    fn from_name(name: &str, dialect: Dialect) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "int8" => Self::Int8,
            "uint8" => Self::UInt8,
            "int16" => Self::Int16,
            "uint16" => Self::UInt16,
            "int32" => Self::Int32,
            "uint32" => Self::UInt32,
            "int64" => Self::Int64,
            "uint64" => Self::UInt64,
            "float32" => Self::Float32,
            "float64" => Self::Float64,
            "byte" => Self::Byte,
            "char" => Self::Char,
            "time" if dialect == Dialect::Ros1 => Self::Time,
            "duration" if dialect == Dialect::Ros1 => Self::Duration,
            _ => return None,
        })
    }
}

/// The type of one value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseType {
    /// A number, a truth value, or ROS 1's time.
    Primitive(Primitive),
    /// UTF-8 text, with a limit in bytes.
    String(Option<u32>),
    /// UTF-16 text, with a limit in units; ROS 2 only.
    WString(Option<u32>),
    /// Another type, by its number in the schema.
    Struct(usize),
}

/// The number of values of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// One value.
    One,
    /// A fixed number.
    Array(u32),
    /// Any number, up to a bound if there is one.
    Sequence(Option<u32>),
}

/// A named part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name as written in the definition.
    pub name: String,
    /// The type of each value.
    pub base: BaseType,
    /// The number of values.
    pub arity: Arity,
    /// The type as written in the definition (`float64[9]`, `Header`).
    pub type_text: String,
}

/// A type with its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Struct {
    /// `package/Type`, whatever the dialect.
    pub name: String,
    /// In the order of the text.
    pub fields: Vec<Field>,
    /// In the form of ROS 1's md5: `uint8 DEBUG=1`.
    pub constants: Vec<String>,
}

/// A message's type and the types that it needs. No type contains itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The rules that it follows.
    pub dialect: Dialect,
    /// The message itself comes first.
    pub structs: Vec<Struct>,
}

/// The ROS of a type: names of ROS 2 have a kind between package and type.
pub fn dialect_of(type_name: &str) -> Dialect {
    if type_name.matches('/').count() > 1 { Dialect::Ros2 } else { Dialect::Ros1 }
}

/// `package/Type` of `package/Type`, `package/msg/Type` and `package::msg::Type`.
pub fn short_name(type_name: &str) -> String {
    let name = type_name.replace("::", "/");
    let mut parts = name.split('/');
    match (parts.next(), parts.next_back()) {
        (Some(package), Some(last)) => format!("{package}/{last}"),
        _ => name,
    }
}

impl Schema {
    /// Reads the definition of `type_name`.
    pub fn parse(type_name: &str, text: &str, dialect: Dialect) -> Result<Self, DefinitionError> {
        let name = short_name(type_name);
        let whole = |problem: String| DefinitionError { type_name: name.clone(), line: 1, problem };
        check_size(text).map_err(whole)?;
        let texts = split_texts(&name, text);
        if texts.len() > MAX_TYPES {
            let found = texts.len();
            return Err(whole(format!("{found} types; allowed: {MAX_TYPES}")));
        }
        texts.iter().try_for_each(|part| check_type_name(&part.name)).map_err(whole)?;
        // The first of two texts for one type counts, as in ROS 1.
        let mut numbers = HashMap::new();
        for (number, part) in texts.iter().enumerate() {
            numbers.entry(part.name.clone()).or_insert(number);
        }
        let parser = Parser { dialect, number: &|name| numbers.get(name).copied() };
        let (mut structs, mut declared) = (Vec::new(), 0);
        for part in &texts {
            let read = parser.read(part)?;
            declared += read.fields.len() + read.constants.len();
            if declared > MAX_DECLARATIONS {
                let problem = "more fields and constants in all its types than allowed:";
                return Err(whole(format!("{problem} {MAX_DECLARATIONS}")));
            }
            structs.push(read);
        }
        let schema = Self { dialect, structs };
        schema.check_depth().map_err(whole)?;
        Ok(schema)
    }

    /// The message itself.
    pub fn root(&self) -> &Struct {
        &self.structs[0]
    }

    /// The definition as text that [`Schema::parse`] reads, without comments, default values and
    /// types that the message does not contain. It is not empty: an empty text stands for a missing
    /// definition.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for number in contained_types(&self.structs) {
            let part = &self.structs[number];
            if number > 0 {
                text.push_str(&format!("{}\nMSG: {}\n", separator(), part.name));
            }
            let start = text.len();
            let fields = part.fields.iter().filter(|field| field.name != DUMMY_FIELD);
            let fields = fields.map(|field| format!("{} {}", field.type_text, field.name));
            for line in part.constants.iter().cloned().chain(fields) {
                text.push_str(&line);
                text.push('\n');
            }
            if text.len() == start {
                // genpy needs a line between the title and the next separator.
                text.push('\n');
            }
        }
        text
    }

    /// Checks that no type contains itself, and that the nesting is limited.
    fn check_depth(&self) -> Result<(), String> {
        // The known depth of each type; `Some(0)`: in progress.
        let mut depths = vec![None; self.structs.len()];
        let depth = self.depth(0, &mut depths)?;
        if depth > MAX_DEPTH {
            return Err(format!("types are nested {depth} deep; allowed: {MAX_DEPTH}"));
        }
        Ok(())
    }

    fn depth(&self, number: usize, depths: &mut [Option<usize>]) -> Result<usize, String> {
        let Struct { name, fields, .. } = &self.structs[number];
        match depths[number] {
            Some(0) => return Err(format!("{name} contains itself")),
            Some(depth) => return Ok(depth),
            None => depths[number] = Some(0),
        }
        let mut deepest = 0;
        for field in fields {
            if let BaseType::Struct(inner) = field.base {
                deepest = deepest.max(self.depth(inner, depths)?);
            }
        }
        depths[number] = Some(deepest + 1);
        Ok(deepest + 1)
    }
}

/// The numbers of the first type and of all types in it, each once, beginning with the first type.
pub(super) fn contained_types(structs: &[Struct]) -> Vec<usize> {
    let (mut found, mut is_found) = (vec![0], vec![false; structs.len()]);
    is_found[0] = true;
    let mut next = 0;
    while let Some(number) = found.get(next) {
        for field in &structs[*number].fields {
            if let BaseType::Struct(part) = field.base
                && !std::mem::replace(&mut is_found[part], true)
            {
                found.push(part);
            }
        }
        next += 1;
    }
    found
}

/// Checks the size of a text. Texts come from peers, so limits bound time and memory.
pub fn check_size(text: &str) -> Result<(), String> {
    let found = text.len();
    if found > MAX_TEXT_BYTES {
        return Err(format!("{found} bytes of text; allowed: {MAX_TEXT_BYTES}"));
    }
    match text.lines().nth(MAX_LINES) {
        Some(_) => Err(format!("more lines of text than allowed: {MAX_LINES}")),
        None => Ok(()),
    }
}

/// Checks a type's name, whose length is limited: the hash contains it once for each field of the type.
fn check_type_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/');
    if name.len() > MAX_NAME_BYTES || !name.bytes().all(plain) {
        let start: String = name.chars().take(60).collect();
        return Err(format!(
            "the type name '{start}' of {} bytes; allowed: letters, digits, '_' and '/', at most \
             {MAX_NAME_BYTES} bytes",
            name.len()
        ));
    }
    Ok(())
}

/// Short names of the types to which one type's own text refers.
pub fn types_referenced_by(
    name: &str,
    text: &str,
    dialect: Dialect,
) -> Result<Vec<String>, String> {
    let names = RefCell::new(Vec::new());
    let note = |name: &str| {
        names.borrow_mut().push(name.to_owned());
        Some(0)
    };
    let parser = Parser { dialect, number: &note };
    let text = Text { name: name.to_owned(), lines: text.lines().collect() };
    parser.read(&text).map_err(|error| error.to_string())?;
    Ok(names.into_inner())
}

/// The line between two types.
pub fn separator() -> String {
    "=".repeat(2 * SEPARATOR_BYTES)
}

/// Whether a line can separate two types; a title must follow.
pub fn is_separator(line: &str) -> bool {
    let bar = line.trim();
    bar.len() >= SEPARATOR_BYTES && bar.bytes().all(|byte| byte == b'=')
}

/// Whether a line separates a service's request and response: it begins with [`DIVIDER`], as in
/// genmsg. (In ROS 2, the whole line is [`DIVIDER`].)
pub fn is_divider(line: &str) -> bool {
    line.starts_with(DIVIDER)
}

/// The definition of one type.
struct Text<'a> {
    name: String,
    lines: Vec<&'a str>,
}

fn split_texts<'a>(name: &str, text: &'a str) -> Vec<Text<'a>> {
    let mut texts = vec![Text { name: name.to_owned(), lines: Vec::new() }];
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let title =
            lines.peek().filter(|_| is_separator(line)).and_then(|next| next.strip_prefix("MSG:"));
        if let Some(title) = title {
            texts.push(Text { name: short_name(title.trim()), lines: Vec::new() });
            lines.next();
        } else if let Some(text) = texts.last_mut() {
            text.lines.push(line);
        }
    }
    texts
}

struct Parser<'a> {
    dialect: Dialect,
    /// The number of a type by its short name.
    number: &'a dyn Fn(&str) -> Option<usize>,
}

/// A field or constant, as one line declares it.
enum Declaration {
    Field(Field),
    Constant(String),
}

impl Parser<'_> {
    fn read(&self, text: &Text<'_>) -> Result<Struct, DefinitionError> {
        let (mut fields, mut constants) = (Vec::<Field>::new(), Vec::new());
        let mut names = HashSet::new();
        for (index, line) in text.lines.iter().enumerate() {
            let error = |problem| DefinitionError {
                type_name: text.name.clone(),
                line: index + 1,
                problem,
            };
            match self.line(&text.name, line).map_err(error)? {
                None => {}
                Some(Declaration::Constant(constant)) => constants.push(constant),
                Some(Declaration::Field(field)) => {
                    if !names.insert(field.name.clone()) {
                        return Err(error(format!("a second field '{}'", field.name)));
                    }
                    fields.push(field);
                }
            }
            if fields.len() + constants.len() > MAX_DECLARATIONS {
                return Err(error(format!("more fields and constants than {MAX_DECLARATIONS}")));
            }
        }
        if fields.is_empty() && self.dialect == Dialect::Ros2 {
            let base = BaseType::Primitive(Primitive::UInt8);
            let (name, type_text) = (DUMMY_FIELD.to_owned(), "uint8".to_owned());
            fields.push(Field { name, base, arity: Arity::One, type_text });
        }
        Ok(Struct { name: text.name.clone(), fields, constants })
    }

    fn line(&self, owner: &str, line: &str) -> Result<Option<Declaration>, String> {
        let bare = line.split('#').next().unwrap_or_default().trim();
        let Some((type_text, rest)) = bare.split_once(char::is_whitespace) else {
            return match bare {
                "" => Ok(None),
                _ => Err(format!("'{bare}' is no 'TYPE NAME'")),
            };
        };
        let rest = rest.trim();
        // `NAME=VALUE` is a constant; `NAME "a = b"` is a field with a default value.
        let name_end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (name, more) = rest.split_at(name_end.unwrap_or(rest.len()));
        if name.is_empty() {
            return Err(format!("'{rest}' is no name; allowed: letters, digits and '_'"));
        }
        if more.trim_start().starts_with('=') {
            let source = if self.dialect == Dialect::Ros1 { line } else { bare };
            return constant(type_text, name, source, bare)
                .map(|it| Some(Declaration::Constant(it)));
        }
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Err(format!("the name '{name}' does not start with a letter"));
        }
        if !more.is_empty() && self.dialect == Dialect::Ros1 {
            return Err(format!("'{more}' follows the name '{name}'; allowed: '=' or a comment"));
        }
        let (base, arity) = self.field_type(owner, type_text)?;
        let (name, type_text) = (name.to_owned(), type_text.to_owned());
        Ok(Some(Declaration::Field(Field { name, base, arity, type_text })))
    }

    fn field_type(&self, owner: &str, type_text: &str) -> Result<(BaseType, Arity), String> {
        let (element, arity) = match type_text.split_once('[') {
            None => (type_text, Arity::One),
            Some((element, size)) => {
                let size =
                    size.strip_suffix(']').ok_or_else(|| format!("'{type_text}' has no ']'"))?;
                (element, self.arity(size)?)
            }
        };
        // Only the plain word is short for `std_msgs/Header`, not `Header[]` (genmsg).
        let is_header = self.dialect == Dialect::Ros1 && type_text == "Header";
        let element = if is_header { "std_msgs/Header" } else { element };
        Ok((self.base(owner, element)?, arity))
    }

    fn arity(&self, size: &str) -> Result<Arity, String> {
        let number = |text: &str| {
            let wrong =
                |_| format!("'{text}' is no number of elements; allowed: 0 to {}", u32::MAX);
            text.parse::<u32>().map_err(wrong)
        };
        match size.strip_prefix("<=") {
            Some(bound) if self.dialect == Dialect::Ros2 => {
                Ok(Arity::Sequence(Some(number(bound)?)))
            }
            Some(_) => Err(format!("'[{size}]': ROS 1 has no bounds")),
            None if size.is_empty() => Ok(Arity::Sequence(None)),
            None => Ok(Arity::Array(number(size)?)),
        }
    }

    fn base(&self, owner: &str, element: &str) -> Result<BaseType, String> {
        if let Some(primitive) = Primitive::from_name(element, self.dialect) {
            return Ok(BaseType::Primitive(primitive));
        }
        let (word, bound) = match element.split_once("<=") {
            Some((word, bound)) if self.dialect == Dialect::Ros2 => {
                let bound = bound.parse::<u32>();
                (word, Some(bound.map_err(|_| format!("'{element}' has no number as bound"))?))
            }
            _ => (element, None),
        };
        match word {
            "string" => return Ok(BaseType::String(bound)),
            "wstring" if self.dialect == Dialect::Ros2 => return Ok(BaseType::WString(bound)),
            _ => {}
        }
        let package = owner.split('/').next().unwrap_or_default();
        let name = match element.contains('/') {
            true => short_name(element),
            false => format!("{package}/{element}"),
        };
        (self.number)(&name).map(BaseType::Struct).ok_or_else(|| {
            format!("'{element}' is no primitive type, and no definition of {name} follows")
        })
    }
}

/// A constant in the form of ROS 1's md5. The value of ROS 1's string is the whole rest of the line, with
/// comments: `line`. `bare` is the line without comments.
fn constant(type_text: &str, name: &str, line: &str, bare: &str) -> Result<String, String> {
    let element = type_text.split("<=").next().unwrap_or_default();
    let is_text = matches!(element, "string" | "wstring");
    // Neither ROS has constants of times; the name of ROS 1's is a type of its own in ROS 2.
    if !is_text && Primitive::from_name(element, Dialect::Ros2).is_none() {
        return Err(format!("'{type_text}' is no type of a constant; allowed: numbers and text"));
    }
    let source = if is_text { line.trim_start() } else { bare };
    // The type itself may contain a '=': `string<=5 NAME="a"`.
    let source = source.strip_prefix(type_text).unwrap_or(source);
    let value = source.split_once('=').map_or("", |(_, value)| value.trim());
    if value.contains(char::REPLACEMENT_CHARACTER) {
        return Err(format!("the value of '{name}' is not UTF-8, so the type's hash is unknown"));
    }
    Ok(format!("{type_text} {name}={value}"))
}
