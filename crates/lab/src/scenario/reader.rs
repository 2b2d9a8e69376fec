// SPDX-License-Identifier: Apache-2.0
//! serde over the YAML tree of the robot's file, so that scenarios have the same errors: every
//! position has line, column and key, and each entry of a list or map reports its own problem
//! instead of hiding those after it.
//!
//! Existing YAML crates for serde lose the position of a value inside anything that has two forms
//! (`5%` or `{ enter: .., leave: .. }`).

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use tautline::config::yaml::{Key, Node, Yaml, quoted_text};
use tautline::config::{Position, Problem, nearest_name};

/// Number of names that an error lists; further names are only counted.
const MAX_NAMES_SHOWN: usize = 20;
/// Type name with which [`At`] requests its position.
const AT: &str = "$at";

/// Problems that a [`Reader`] records while it continues.
pub type Notes = RefCell<Vec<Problem>>;

/// Reads `node` as a `T`; the error contains all problems found, at least one.
pub fn read<'n, T: Deserialize<'n>>(node: &'n Node) -> Result<T, Vec<Problem>> {
    let notes = Notes::default();
    let value = T::deserialize(Reader { node, at: node.at, key: String::new(), notes: &notes });
    let mut problems = notes.into_inner();
    match value {
        Ok(value) if problems.is_empty() => Ok(value),
        Ok(_) | Err(Fault::Noted) => Err(problems),
        Err(Fault::Here(wrong)) => {
            problems.push(wrong.at(node.at, String::new(), node.in_words()));
            Err(problems)
        }
    }
}

/// The position of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Line and column.
    pub at: Position,
    /// Path of keys.
    pub key: String,
    /// The value as an error message describes it.
    pub found: String,
}

impl Place {
    /// Returns the problem that the value here is not allowed.
    pub fn problem(&self, allowed: impl Into<String>) -> Problem {
        self.other(self.found.clone(), allowed)
    }

    /// Returns a problem here, with another description of the value.
    pub fn other(&self, found: impl Into<String>, allowed: impl Into<String>) -> Problem {
        let (found, allowed) = (found.into(), allowed.into());
        Problem { at: self.at, key: self.key.clone(), found, allowed }
    }

    /// Returns the position of a missing `key` below this one.
    pub fn below(&self, key: &str) -> Place {
        Place { key: join(&self.key, key), found: "nothing".into(), ..self.clone() }
    }
}

/// A value and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct At<T> {
    /// Position.
    pub place: Place,
    /// Value.
    pub value: T,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Parts<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = At<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<At<T>, A::Error> {
                let missing = || de::Error::custom("a value");
                let line = parts.next_element()?.ok_or_else(missing)?;
                let column = parts.next_element()?.ok_or_else(missing)?;
                let key = parts.next_element()?.ok_or_else(missing)?;
                let found = parts.next_element()?.ok_or_else(missing)?;
                let place = Place { at: Position { line, column }, key, found };
                Ok(At { place, value: parts.next_element()?.ok_or_else(missing)? })
            }
        }
        from.deserialize_newtype_struct(AT, Parts(PhantomData))
    }
}

/// A problem without its position.
#[derive(Debug)]
pub struct Wrong {
    /// Key below the position, if not the position itself.
    below: Option<String>,
    /// Description of the value, if not the value itself.
    found: Option<String>,
    allowed: String,
}

impl Wrong {
    fn at(self, at: Position, key: String, found: String) -> Problem {
        let key = self.below.map_or_else(|| key.clone(), |below| join(&key, &below));
        Problem { at, key, found: self.found.unwrap_or(found), allowed: self.allowed }
    }
}

/// The reason for which reading stopped.
#[derive(Debug)]
pub enum Fault {
    /// A problem already recorded in the notes.
    Noted,
    /// A problem at the value that is being read.
    Here(Wrong),
}

impl Fault {
    fn new(found: Option<String>, allowed: String) -> Self {
        Fault::Here(Wrong { below: None, found, allowed })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Noted => f.write_str("noted"),
            Fault::Here(wrong) => f.write_str(&wrong.allowed),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    /// `message` describes the allowed values.
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault::new(None, message.to_string())
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Fault::new(None, expected.to_string())
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Fault::new(None, expected.to_string())
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Self {
        Fault::new(Some(format!("a list of {length}")), expected.to_string())
    }

    fn unknown_variant(found: &str, names: &'static [&'static str]) -> Self {
        Fault::new(None, one_of(names.iter().copied(), found))
    }

    fn unknown_field(found: &str, names: &'static [&'static str]) -> Self {
        let allowed = one_of(names.iter().copied(), found);
        Fault::new(Some(format!("the unknown key {}", quoted_text(found))), allowed)
    }

    fn missing_field(name: &'static str) -> Self {
        let allowed = "a value, see docs/reference/scenarios.md".into();
        let found = Some("nothing, though it is required".into());
        Fault::Here(Wrong { below: Some(name.into()), found, allowed })
    }
}

/// Lists `names` as allowed instead of `found`, the most similar one first.
pub fn one_of<'n>(names: impl Iterator<Item = &'n str> + Clone, found: &str) -> String {
    let shown: Vec<&str> = names.clone().take(MAX_NAMES_SHOWN).collect();
    let all = match names.clone().count() - shown.len() {
        0 if shown.is_empty() => "nothing".into(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    };
    match nearest_name(names, found) {
        Some(name) => format!("perhaps '{name}'; all: {all}"),
        None => all,
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}

/// A reader of one value of the tree.
#[derive(Clone)]
pub struct Reader<'n, 'o> {
    node: &'n Node,
    at: Position,
    key: String,
    notes: &'o Notes,
}

impl<'n> Reader<'n, '_> {
    /// Records a fault of this value.
    fn note<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| {
            if let Fault::Here(wrong) = fault {
                let found = self.node.in_words();
                self.notes.borrow_mut().push(wrong.at(self.at, self.key.clone(), found));
            }
            Fault::Noted
        })
    }

    fn below(&self, key: &Key, node: &'n Node) -> Self {
        // A map begins at its name, not at its first key.
        let at = if let Yaml::Map(_) | Yaml::Nothing = node.yaml { key.at } else { node.at };
        Reader { node, at, key: join(&self.key, &key.name), notes: self.notes }
    }

    fn entries(
        &self,
        only: Option<&'static [&'static str]>,
    ) -> Result<Vec<&'n (Key, Node)>, Fault> {
        let entries: &[(Key, Node)] = match &self.node.yaml {
            Yaml::Map(entries) => entries,
            Yaml::Nothing => &[],
            _ => {
                let keys = only.map_or_else(String::new, |names| names.join(", "));
                return self.note(Err(Fault::new(None, format!("a map of these keys: {keys}"))));
            }
        };
        let is_known = |(key, _): &&(Key, Node)| match only {
            Some(names) if !names.contains(&key.name.as_str()) => {
                let _: Result<(), Fault> =
                    self.note_key(key, de::Error::unknown_field(&key.name, names));
                false
            }
            _ => true,
        };
        Ok(entries.iter().filter(is_known).collect())
    }

    fn note_key<T>(&self, key: &Key, fault: Fault) -> Result<T, Fault> {
        if let Fault::Here(wrong) = fault {
            let problem =
                wrong.at(key.at, self.key.clone(), format!("the name {}", quoted_text(&key.name)));
            self.notes.borrow_mut().push(problem);
        }
        Err(Fault::Noted)
    }

    fn map<V: Visitor<'n>>(
        self,
        only: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let entries = self.entries(only)?.into_iter();
        let result = visitor.visit_map(MapOf { reader: &self, entries, value: None });
        self.note(result)
    }
}

impl<'n> Deserializer<'n> for Reader<'n, '_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Fault> {
        let result = match &self.node.yaml {
            Yaml::Nothing => visitor.visit_unit(),
            Yaml::Scalar(text) => visitor.visit_borrowed_str(text),
            Yaml::List(nodes) => visitor.visit_seq(ListOf { reader: &self, nodes, next: 0 }),
            Yaml::Map(_) => return self.map(None, visitor),
        };
        self.note(result)
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Fault> {
        let result = match &self.node.yaml {
            Yaml::Nothing => visitor.visit_none(),
            _ => visitor.visit_some(self.clone()),
        };
        self.note(result)
    }

    fn deserialize_map<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.yaml {
            Yaml::Map(_) | Yaml::Nothing => self.map(None, visitor),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.map(Some(fields), visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let reader = self.clone();
        let result = match name {
            AT => visitor.visit_seq(PlaceAndValue { reader, given: 0 }),
            _ => visitor.visit_newtype_struct(reader),
        };
        self.note(result)
    }

    fn deserialize_enum<V: Visitor<'n>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let result = match &self.node.yaml {
            Yaml::Scalar(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            Yaml::Map(entries) => match entries.as_slice() {
                [(key, value)] if names.contains(&key.name.as_str()) => {
                    visitor.visit_enum(OneKey { key, inside: self.below(key, value) })
                }
                [(key, _)] => self.note_key(key, de::Error::unknown_field(&key.name, names)),
                _ => Err(Fault::new(
                    None,
                    format!("exactly one of these keys: {}", names.join(", ")),
                )),
            },
            _ => Err(Fault::new(None, names.join(", "))),
        };
        self.note(result)
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'n>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct identifier ignored_any
    }
}

struct ListOf<'r, 'n, 'o> {
    reader: &'r Reader<'n, 'o>,
    nodes: &'n [Node],
    next: usize,
}

impl<'n> de::SeqAccess<'n> for ListOf<'_, 'n, '_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'n>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some(node) = self.nodes.get(self.next) else { return Ok(None) };
        let key = format!("{}[{}]", self.reader.key, self.next);
        let entry = Reader { node, at: node.at, key, notes: self.reader.notes };
        self.next += 1;
        let result = seed.deserialize(entry.clone());
        entry.note(result).map(Some)
    }
}

struct MapOf<'r, 'n, 'o> {
    reader: &'r Reader<'n, 'o>,
    entries: std::vec::IntoIter<&'n (Key, Node)>,
    value: Option<&'n (Key, Node)>,
}

impl<'n> de::MapAccess<'n> for MapOf<'_, 'n, '_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'n>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        self.value = self.entries.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        seed.deserialize(name(key)).map(Some).or_else(|fault| self.reader.note_key(key, fault))
    }

    fn next_value_seed<V: DeserializeSeed<'n>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some((key, node)) = self.value else { return Err(de::Error::custom("a value")) };
        let entry = self.reader.below(key, node);
        let result = seed.deserialize(entry.clone());
        entry.note(result)
    }
}

fn name(key: &Key) -> StrDeserializer<'_, Fault> {
    key.name.as_str().into_deserializer()
}

/// A map with one key as an enum: the key is the variant.
struct OneKey<'n, 'o> {
    key: &'n Key,
    inside: Reader<'n, 'o>,
}

impl<'n, 'o> de::EnumAccess<'n> for OneKey<'n, 'o> {
    type Error = Fault;
    type Variant = Reader<'n, 'o>;

    fn variant_seed<V: DeserializeSeed<'n>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), Fault> {
        Ok((seed.deserialize(name(self.key))?, self.inside))
    }
}

impl<'n> de::VariantAccess<'n> for Reader<'n, '_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        self.note(Err(de::Error::custom("the name alone")))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'n>>(self, seed: T) -> Result<T::Value, Fault> {
        let result = seed.deserialize(self.clone());
        self.note(result)
    }

    fn tuple_variant<V: Visitor<'n>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'n>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.map(Some(fields), visitor)
    }
}

/// The parts of [`At`]: line, column, key, found, value.
struct PlaceAndValue<'n, 'o> {
    reader: Reader<'n, 'o>,
    given: usize,
}

impl<'n> de::SeqAccess<'n> for PlaceAndValue<'n, '_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'n>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        self.given += 1;
        let reader = &self.reader;
        match self.given {
            1 => seed.deserialize(reader.at.line.into_deserializer()),
            2 => seed.deserialize(reader.at.column.into_deserializer()),
            3 => seed.deserialize(reader.key.as_str().into_deserializer()),
            4 => seed.deserialize(reader.node.in_words().into_deserializer()),
            _ => seed.deserialize(reader.clone()),
        }
        .map(Some)
    }
}
