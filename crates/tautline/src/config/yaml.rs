// SPDX-License-Identifier: Apache-2.0
//! A tree of YAML values with their positions.
//!
//! The tree is built from the parser's events instead of a finished document. Depth is therefore
//! limited during reading, and a key given twice is reported with both positions instead of
//! silently taking its last value.

use super::problem::{FILE_START, Position, Problem};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};
use std::collections::HashMap;

/// Maximum bytes of a file. Hundreds of topics take a small part of this.
pub const MAX_FILE_BYTES: usize = 256 * 1024;
/// Maximum nesting; the format itself needs five levels.
pub const MAX_NESTING: usize = 16;
/// Maximum characters of the file that an error quotes.
const MAX_QUOTED_CHARS: usize = 60;

/// One value and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Start of the value.
    pub at: Position,
    /// Value.
    pub yaml: Yaml,
}

/// The forms of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Yaml {
    /// Nothing after the colon, `~` or `null`.
    Nothing,
    /// Any single value, as written.
    Scalar(String),
    /// `[a, b]` or lines that start with `- `.
    List(Vec<Node>),
    /// `key: value` lines, in the file's order; no key twice.
    Map(Vec<(Key, Node)>),
}

/// A key and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Start of the key.
    pub at: Position,
    /// Key as written, without quotes.
    pub name: String,
}

impl Node {
    /// Describes the value for an error message.
    pub fn in_words(&self) -> String {
        match &self.yaml {
            Yaml::Nothing => "nothing".into(),
            Yaml::Scalar(text) => quoted_text(text),
            Yaml::List(_) => "a list".into(),
            Yaml::Map(_) => "a map of keys".into(),
        }
    }
}

/// Returns `text` in quotes on one line, cut to a length that fits in a message.
pub fn quoted_text(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.chars().count() <= MAX_QUOTED_CHARS {
        return format!("'{clean}'");
    }
    let start: String = clean.chars().take(MAX_QUOTED_CHARS).collect();
    format!("'{start}...'")
}

/// Reads one document. Fails if the text is too large, or is not one document of YAML. A key given
/// twice is added to `problems`, and its first value is kept.
pub fn read(text: &str, problems: &mut Vec<Problem>) -> Result<Node, Problem> {
    if text.len() > MAX_FILE_BYTES {
        return Err(too_large());
    }
    let mut reader = Reader { parser: Parser::new_from_str(text), problems };
    let mut root = None;
    while let Some((event, at)) = reader.next_event()? {
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) if root.is_some() => {
                return Err(problem(at, "a second document ('---')".into(), "one document"));
            }
            Event::DocumentStart(_) => {}
            first => root = Some(reader.node(first, at, 1)?),
        }
    }
    Ok(root.unwrap_or(Node { at: FILE_START, yaml: Yaml::Nothing }))
}

/// Returns the problem of a file over [`MAX_FILE_BYTES`].
pub fn too_large() -> Problem {
    problem(FILE_START, "a larger file".into(), &format!("at most {MAX_FILE_BYTES} bytes"))
}

struct Reader<'text, 'out> {
    parser: Parser<'text, StrInput<'text>>,
    problems: &'out mut Vec<Problem>,
}

impl<'text> Reader<'text, '_> {
    fn next_event(&mut self) -> Result<Option<(Event<'text>, Position)>, Problem> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, Span { start, .. }))) => Ok(Some((event, position(&start)))),
            Some(Err(error)) => Err(problem(
                position(error.marker()),
                format!("text that is not YAML ({})", error.info()),
                "YAML 1.2: 'key: value' lines, indented with spaces; text with : # [ ] { } & * in quotes",
            )),
        }
    }

    fn next_inside(
        &mut self,
        what: &str,
        at: Position,
    ) -> Result<(Event<'text>, Position), Problem> {
        self.next_event()?
            .ok_or_else(|| problem(at, format!("{what} that does not end"), "a complete one"))
    }

    fn node(&mut self, event: Event<'text>, at: Position, depth: usize) -> Result<Node, Problem> {
        if depth > MAX_NESTING {
            return Err(problem(
                at,
                format!("more than {MAX_NESTING} levels of nesting"),
                &format!("at most {MAX_NESTING}"),
            ));
        }
        let yaml = match event {
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::SequenceStart(..) => self.list(at, depth)?,
            Event::MappingStart(..) => self.map(at, depth)?,
            Event::Alias(_) => {
                return Err(problem(
                    at,
                    "an alias ('*name')".into(),
                    "the value itself, or the text in quotes",
                ));
            }
            _ => return Err(problem(at, "no value".into(), "a value")),
        };
        Ok(Node { at, yaml })
    }

    fn list(&mut self, start: Position, depth: usize) -> Result<Yaml, Problem> {
        let mut entries = Vec::new();
        loop {
            match self.next_inside("a list", start)? {
                (Event::SequenceEnd, _) => return Ok(Yaml::List(entries)),
                (event, at) => entries.push(self.node(event, at, depth + 1)?),
            }
        }
    }

    fn map(&mut self, start: Position, depth: usize) -> Result<Yaml, Problem> {
        let mut entries = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        loop {
            let key = match self.next_inside("a map", start)? {
                (Event::MappingEnd, _) => return Ok(Yaml::Map(entries)),
                (Event::Scalar(name, ..), at) => Key { at, name: name.into_owned() },
                (_, at) => return Err(problem(at, "a key that is not text".into(), "a name")),
            };
            let (event, at) = self.next_inside("a map", start)?;
            let value = self.node(event, at, depth + 1)?;
            match lines.get(&key.name) {
                None => {
                    lines.insert(key.name.clone(), key.at.line);
                    entries.push((key, value));
                }
                Some(first) => {
                    let found =
                        format!("{} a second time (first on line {first})", quoted_text(&key.name));
                    self.problems.push(problem(key.at, found, "each key once"));
                }
            }
        }
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Yaml {
    match text {
        "" | "~" | "null" | "Null" | "NULL" if style == ScalarStyle::Plain => Yaml::Nothing,
        _ => Yaml::Scalar(text.into()),
    }
}

fn position(mark: &Marker) -> Position {
    Position { line: mark.line().max(1), column: mark.col() + 1 }
}

fn problem(at: Position, found: String, allowed: &str) -> Problem {
    Problem { at, key: String::new(), found, allowed: allowed.into() }
}
