// SPDX-License-Identifier: Apache-2.0
//! Checks a file's tree against the option table: unknown keys, wrong types and values out of range
//! become problems; absent keys get their defaults.

use super::kind::{Kind, Value};
use super::problem::{self, Position, Problem};
use super::table::{Naming, Preset, Setting, Shape};
use super::yaml::{Key, Node, Yaml, quoted};
use std::collections::BTreeMap;
use tautline_gateway::types::compose::{Fields, Written};

/// The valid keys of one section, including defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Start of the section.
    pub at: Position,
    entries: BTreeMap<&'static str, Entry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    at: Position,
    /// Whether the key is in the file, not a default.
    given: bool,
    /// `None` if the value is wrong, which has been reported.
    content: Option<Content>,
}

pub type At<T> = (Position, T);
/// A name at the peer and its new name.
pub type Rename = At<(String, String)>;
/// A value with its types; no types means any type.
pub type Typed = At<(Value, Vec<Value>)>;

#[derive(Debug, Clone, PartialEq)]
enum Content {
    Single(Value),
    List(Vec<At<Value>>),
    Typed(Vec<Typed>),
    Renames(Vec<Rename>),
    Fields(Fields),
    Section(Section),
    Off,
    Sections(Vec<Section>),
    Named(Vec<Named>),
}

/// One section of a map from names to sections.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    pub at: Position,
    pub name: Value,
    /// Name as in the file.
    pub text: String,
    pub section: Section,
}

macro_rules! lists {
    ($($name:ident: $variant:ident of $entry:ty, $doc:literal;)*) => {
        impl Section {$(
            #[doc = $doc]
            pub fn $name(&self, key: &str) -> &[$entry] {
                match self.content(key) {
                    Some(Content::$variant(entries)) => entries,
                    _ => &[],
                }
            }
        )*}
    };
}

lists! {
    list: List of At<Value>, "Returns the list under `key`; empty if there is none.";
    typed: Typed of Typed, "Returns the values under `key` with their types; no types means any type.";
    renames: Renames of Rename, "Returns the renames under `key`.";
    fields: Fields of (String, Written), "Returns a message's fields under `key`.";
    sections: Sections of Section, "Returns the sections listed under `key`.";
    named: Named of Named, "Returns the named sections under `key`.";
}

impl Section {
    /// Returns the value under `key` and its position.
    pub fn single(&self, key: &str) -> Option<At<&Value>> {
        match self.entries.get(key)? {
            Entry { at, content: Some(Content::Single(value)), .. } => Some((*at, value)),
            _ => None,
        }
    }

    /// Returns the value under `key`, if it has the type `T`.
    pub fn get<T: for<'v> TryFrom<&'v Value>>(&self, key: &str) -> Option<T> {
        self.single(key)?.1.held()
    }

    /// Returns the whole number under `key`, if `T` can hold it.
    pub fn number<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        self.get::<u64>(key)?.try_into().ok()
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.single(key)? {
            (_, Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the listed values under `key` that have the type `T`.
    pub fn all<T: for<'v> TryFrom<&'v Value>>(&self, key: &str) -> Vec<T> {
        self.list(key).iter().filter_map(|(_, value)| value.held()).collect()
    }

    /// Returns the section under `key`; `None` if it is disabled or wrong.
    pub fn section(&self, key: &str) -> Option<&Section> {
        match self.content(key)? {
            Content::Section(section) => Some(section),
            _ => None,
        }
    }

    /// Whether `key` is in the file, with a valid value or a wrong one.
    pub fn is_given(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.given)
    }

    /// Returns the position of `key`; the section's start if it is not in the file.
    pub fn place(&self, key: &str) -> Position {
        self.entries.get(key).map_or(self.at, |entry| entry.at)
    }

    fn content(&self, key: &str) -> Option<&Content> {
        self.entries.get(key)?.content.as_ref()
    }
}

/// Reads `node` as a section with `settings`; wrong values are added to `problems` and omitted.
pub fn section(settings: &'static [Setting], node: &Node, problems: &mut Vec<Problem>) -> Section {
    Walk { problems }.section(settings, node, "")
}

struct Walk<'out> {
    problems: &'out mut Vec<Problem>,
}

impl Walk<'_> {
    fn section(&mut self, settings: &'static [Setting], node: &Node, path: &str) -> Section {
        let keys = match &node.yaml {
            Yaml::Map(keys) => keys.as_slice(),
            Yaml::Nothing => &[],
            _ => {
                let allowed = format!("these keys: {}", names(settings));
                self.unfit::<()>(node, path, allowed);
                return Section { at: node.at, entries: BTreeMap::new() };
            }
        };
        self.keys(settings, keys.iter(), node.at, path)
    }

    fn keys<'n>(
        &mut self,
        settings: &'static [Setting],
        keys: impl Iterator<Item = &'n (Key, Node)>,
        at: Position,
        path: &str,
    ) -> Section {
        let mut entries = BTreeMap::new();
        for (key, value) in keys {
            let Some(setting) = settings.iter().find(|s| s.name == key.name) else {
                let found = format!("the unknown key {}", quoted(&key.name));
                self.wrong::<()>(key.at, path, found, allowed_keys(settings, &key.name));
                continue;
            };
            let content = self.shape(&setting.shape, value, &join(path, setting.name));
            entries.insert(setting.name, Entry { at: key.at, given: true, content });
        }
        for setting in settings {
            let preset = || Entry { at, given: false, content: self.preset(setting, at, path) };
            entries.entry(setting.name).or_insert_with(preset);
        }
        Section { at, entries }
    }

    fn preset(&mut self, setting: &'static Setting, at: Position, path: &str) -> Option<Content> {
        match (&setting.shape, setting.preset) {
            (Shape::Switch(_), Preset::Absent(_)) => None,
            (Shape::Section(settings) | Shape::Switch(settings), _) => {
                let path = join(path, setting.name);
                Some(Content::Section(self.keys(settings, [].iter(), at, &path)))
            }
            (Shape::Single(kind), Preset::Value(text)) => {
                kind.parse(text).ok().map(Content::Single)
            }
            (Shape::Single(kind), Preset::Required) => self.wrong(
                at,
                &join(path, setting.name),
                "nothing, though it is required".into(),
                kind.allowed(),
            ),
            _ => None,
        }
    }

    fn shape(&mut self, shape: &'static Shape, node: &Node, path: &str) -> Option<Content> {
        match (shape, &node.yaml) {
            (Shape::Single(kind), _) => self.single(kind, node, path).map(Content::Single),
            (Shape::List(kind), _) => self.list(kind, node, path).map(Content::List),
            (Shape::Typed(kind), _) => self.typed(kind, node, path).map(Content::Typed),
            (Shape::Renames(kind), _) => self.renames(kind, node, path).map(Content::Renames),
            (Shape::Fields, Yaml::Nothing) => Some(Content::Fields(Vec::new())),
            (Shape::Fields, _) => match self.written(node, path)? {
                Written::Map(fields) => Some(Content::Fields(fields)),
                _ => self.unfit(node, path, "a map of fields"),
            },
            (Shape::Switch(settings), Yaml::Scalar(text)) => match text.as_str() {
                "true" => Some(Content::Section(self.keys(settings, [].iter(), node.at, path))),
                "false" => Some(Content::Off),
                _ => {
                    let allowed = format!("true, false, or these keys: {}", names(settings));
                    self.unfit(node, path, allowed)
                }
            },
            (Shape::Section(settings) | Shape::Switch(settings), _) => {
                Some(Content::Section(self.section(settings, node, path)))
            }
            (Shape::Sections(settings), _) => {
                self.sections(settings, node, path).map(Content::Sections)
            }
            (Shape::Named(naming), _) => self.named(naming, node, path).map(Content::Named),
        }
    }

    fn single(&mut self, kind: &Kind, node: &Node, path: &str) -> Option<Value> {
        let allowed = match &node.yaml {
            Yaml::Scalar(text) => match kind.parse(text) {
                Ok(value) => return Some(value),
                Err(allowed) => allowed,
            },
            Yaml::List(_) if matches!(kind, Kind::Endpoint | Kind::Listen(_) | Kind::Host) => {
                format!("{}; in YAML, [ starts a list unless it is in quotes", kind.allowed())
            }
            _ => kind.allowed(),
        };
        self.unfit(node, path, allowed)
    }

    fn list(&mut self, kind: &Kind, node: &Node, path: &str) -> Option<Vec<At<Value>>> {
        let alone = std::slice::from_ref(node);
        let nodes = match &node.yaml {
            Yaml::List(nodes) if !nodes.is_empty() => nodes,
            Yaml::Scalar(_) => alone,
            _ => {
                let is_empty_list = matches!(node.yaml, Yaml::List(_));
                let found = if is_empty_list { "an empty list".into() } else { node.in_words() };
                let allowed = format!("a list, each entry {}", kind.allowed());
                return self.wrong(node.at, path, found, allowed);
            }
        };
        let entry =
            |(i, n): (usize, &Node)| Some((n.at, self.single(kind, n, &format!("{path}[{i}]"))?));
        Some(nodes.iter().enumerate().filter_map(entry).collect())
    }

    fn typed(&mut self, kind: &Kind, node: &Node, path: &str) -> Option<Vec<Typed>> {
        let Yaml::Map(pairs) = &node.yaml else {
            let list = self.list(kind, node, path)?;
            return Some(list.into_iter().map(|(at, value)| (at, (value, Vec::new()))).collect());
        };
        let mut entries = Vec::new();
        for (name, types) in pairs {
            let place = join(path, &name.name);
            if let (Some(value), Some(types)) =
                (self.name(kind, name, path), self.list(&Kind::TypeName, types, &place))
            {
                entries.push((name.at, (value, types.into_iter().map(|(_, it)| it).collect())));
            }
        }
        Some(entries)
    }

    fn renames(&mut self, kind: &Kind, node: &Node, path: &str) -> Option<Vec<Rename>> {
        let Yaml::Map(pairs) = &node.yaml else {
            return self.unfit(node, path, "a map such as { /scan: /front/scan }");
        };
        let mut renames = Vec::new();
        for (from, to) in pairs {
            let place = join(path, &from.name);
            let from_is_right = self.name(&Kind::PeerName, from, path);
            if let (Some(_), Some(Value::Text(to))) = (from_is_right, self.single(kind, to, &place))
            {
                renames.push((from.at, (from.name.clone(), to)));
            }
        }
        Some(renames)
    }

    /// Reads a value whose type is known only to the gateway.
    fn written(&mut self, node: &Node, path: &str) -> Option<Written> {
        Some(match &node.yaml {
            Yaml::Scalar(text) => Written::One(text.clone()),
            Yaml::List(nodes) => {
                let each = nodes.iter().enumerate();
                let each = each.map(|(i, node)| self.written(node, &format!("{path}[{i}]")));
                Written::List(each.collect::<Option<_>>()?)
            }
            Yaml::Map(entries) => {
                let field = |(key, node): &(Key, Node)| {
                    Some((key.name.clone(), self.written(node, &join(path, &key.name))?))
                };
                Written::Map(entries.iter().map(field).collect::<Option<_>>()?)
            }
            Yaml::Nothing => {
                let allowed = "a value, a list or a map of fields; \"\" is empty text";
                return self.unfit(node, path, allowed);
            }
        })
    }

    fn sections(
        &mut self,
        settings: &'static [Setting],
        node: &Node,
        path: &str,
    ) -> Option<Vec<Section>> {
        let nodes = match &node.yaml {
            Yaml::List(nodes) if !nodes.is_empty() => nodes,
            _ => {
                let allowed = format!("a list with these keys in each entry: {}", names(settings));
                return self.unfit(node, path, allowed);
            }
        };
        let each = nodes.iter().enumerate();
        Some(each.map(|(i, node)| self.section(settings, node, &format!("{path}[{i}]"))).collect())
    }

    fn named(&mut self, naming: &'static Naming, node: &Node, path: &str) -> Option<Vec<Named>> {
        let mut all = Vec::new();
        match (&node.yaml, naming.list_with) {
            (Yaml::Nothing, _) => {}
            (Yaml::Map(entries), _) => {
                for (name, value) in entries {
                    all.extend(self.one_named(naming, name, value, path));
                }
            }
            (Yaml::List(nodes), Some(name_key)) => {
                for (i, node) in nodes.iter().enumerate() {
                    all.extend(self.listed(naming, name_key, node, &format!("{path}[{i}]")));
                }
            }
            _ => {
                let allowed = format!("a map; each key is {}", naming.names.allowed());
                return self.unfit(node, path, allowed);
            }
        }
        Some(all)
    }

    fn one_named(
        &mut self,
        naming: &'static Naming,
        key: &Key,
        node: &Node,
        path: &str,
    ) -> Option<Named> {
        let name = self.name(&naming.names, key, path);
        let place = join(path, &key.name);
        let section = match (&node.yaml, naming.short_for) {
            (Yaml::Scalar(_) | Yaml::List(_), Some(short)) => {
                let meant = (Key { at: node.at, name: short.into() }, node.clone());
                self.keys(naming.options, [meant].iter(), key.at, &place)
            }
            _ => self.section(naming.options, node, &place),
        };
        let section = Section { at: key.at, ..section };
        Some(Named { at: key.at, name: name?, text: key.name.clone(), section })
    }

    /// Reads an entry of the list form: a name alone, or a section with its name under `name_key`.
    fn listed(
        &mut self,
        naming: &'static Naming,
        name_key: &str,
        node: &Node,
        path: &str,
    ) -> Option<Named> {
        let (name, rest) = match &node.yaml {
            Yaml::Map(entries) => {
                let name = entries.iter().find(|(key, _)| key.name == name_key);
                let rest = entries.iter().filter(|(key, _)| key.name != name_key);
                (name.map(|(_, name)| name), rest.cloned().collect())
            }
            _ => (Some(node), Vec::new()),
        };
        let Some(Node { at, yaml: Yaml::Scalar(text) }) = name else {
            let allowed =
                format!("a name, or a map with '{name_key}', which is {}", naming.names.allowed());
            return self.unfit(node, path, allowed);
        };
        let key = Key { at: *at, name: text.clone() };
        let name = self.name(&naming.names, &key, path);
        let section = self.keys(naming.options, rest.iter(), key.at, path);
        Some(Named { at: key.at, name: name?, text: key.name, section })
    }

    fn name(&mut self, kind: &Kind, key: &Key, path: &str) -> Option<Value> {
        match kind.parse(&key.name) {
            Ok(name) => Some(name),
            Err(allowed) => {
                self.wrong(key.at, path, format!("the name {}", quoted(&key.name)), allowed)
            }
        }
    }

    /// Adds the problem that `node` has another form or value; returns `None` in place of its value.
    fn unfit<T>(&mut self, node: &Node, path: &str, allowed: impl Into<String>) -> Option<T> {
        self.wrong(node.at, path, node.in_words(), allowed.into())
    }

    /// Adds a problem; returns `None` in place of the value.
    fn wrong<T>(&mut self, at: Position, path: &str, found: String, allowed: String) -> Option<T> {
        self.problems.push(Problem { at, key: path.into(), found, allowed });
        None
    }
}

pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}

fn names(settings: &[Setting]) -> String {
    let names: Vec<&str> = settings.iter().map(|s| s.name).collect();
    names.join(", ")
}

fn allowed_keys(settings: &[Setting], found: &str) -> String {
    match problem::nearest(settings.iter().map(|s| s.name), found) {
        Some(name) => format!("perhaps '{name}'; all keys here: {}", names(settings)),
        None => names(settings),
    }
}
