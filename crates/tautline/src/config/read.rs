// SPDX-License-Identifier: Apache-2.0
//! Reads a file's tree into sections: unknown keys, wrong types and values out of range become
//! problems; absent keys get their defaults.

use super::kind::{ANY_TYPE, Kind};
use super::model::Show;
use super::problem::{self, Position, Problem};
use super::setting::{Form, Preset, Reload, Setting, Shape};
use super::value::{Part, SingleValue};
use super::yaml::{Key, Node, Yaml, quoted_text};
use crate::treatment::peer_names::Accept;
use std::ops::Deref;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::types::compose::{Fields, YamlValue};
use tautline_gateway::types::definition::short_name;

/// One key of a section, in the file or with its default.
#[derive(Debug, Clone)]
pub struct Entry<T> {
    /// Position of the key, or of its section if the key is not in the file.
    pub at: Position,
    /// Whether the key is in the file, even with a wrong value.
    pub is_given: bool,
    /// Name of the key.
    pub key: &'static str,
    /// `None` if the key has no value, or has a wrong value, which has been reported.
    pub value: Option<T>,
}

/// A value at a position.
pub type At<T> = (Position, T);
/// A list of values.
pub type List<T> = Vec<At<T>>;
/// Old names, each with its new name.
pub type Renames = Vec<At<(String, String)>>;
/// Keys and their values as text.
pub type Described = Vec<(&'static str, String)>;

/// A section that always exists; or a switch: a section that `false` disables and `true` sets to
/// its defaults.
#[derive(Debug, Clone)]
pub struct SectionOrSwitch<S, const IS_SWITCH: bool>(S);
/// A section that always exists.
pub type Section<S> = SectionOrSwitch<S, false>;
/// A section that `false` disables and `true` sets to its defaults.
pub type Switch<S> = SectionOrSwitch<S, true>;

impl<S, const IS_SWITCH: bool> Deref for SectionOrSwitch<S, IS_SWITCH> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

/// One section of a map from names to sections.
#[derive(Debug, Clone)]
pub struct Named<N, S> {
    pub at: Position,
    pub name: N,
    /// Name as in the file.
    pub text: String,
    /// Path of the section, `peers.robot2`.
    pub path: String,
    pub keys: S,
}

impl<N, S> Named<N, S> {
    /// Returns the path of one of the section's keys.
    pub fn path_of<T>(&self, entry: &Entry<T>) -> String {
        join(&self.path, entry.key)
    }
}

impl<T: Clone> Entry<T> {
    /// Returns the value.
    pub fn get(&self) -> Option<T> {
        self.value.clone()
    }
}

impl<T> Entry<T> {
    /// Returns the entry of a key that is not in the file and has no default.
    pub fn absent(setting: &Setting, at: Position) -> Self {
        Self { at, is_given: false, key: setting.name, value: None }
    }

    /// Returns the value and the position of the key.
    pub fn with_place(&self) -> Option<At<&T>> {
        Some((self.at, self.value.as_ref()?))
    }
}

impl<T: PartialEq> Entry<T> {
    pub fn is(&self, value: T) -> bool {
        self.value == Some(value)
    }
}

impl<T> Entry<Vec<T>> {
    /// Returns the entries under the key; none if it is absent.
    pub fn entries(&self) -> &[T] {
        self.value.as_deref().unwrap_or_default()
    }
}

impl<T: Clone> Entry<List<T>> {
    /// Returns the listed values without their positions.
    pub fn values(&self) -> Vec<T> {
        self.entries().iter().map(|(_, value)| value.clone()).collect()
    }
}

impl<T: Content> Entry<T> {
    /// Describes the value; `None` unless a reload treats a change of the key as `reload` says.
    pub fn described(&self, setting: &Setting, reload: Reload) -> Option<(&'static str, String)> {
        let words = match &self.value {
            Some(value) => value.shown()? + setting.unit,
            None => setting.unset.to_owned(),
        };
        (setting.reload == reload).then_some((setting.name, words))
    }
}

/// The type of the valid value of a key, as a row of `keys!` states it.
pub trait Row: Sized {
    /// The type as which the value is read.
    type Content: Content;

    /// Returns the valid value; `None` if it is wrong.
    fn value(entry: &Entry<Self::Content>) -> Option<Self>;
}

impl<T: Content + Clone> Row for T {
    type Content = T;

    fn value(entry: &Entry<T>) -> Option<T> {
        entry.value.clone()
    }
}

impl<T: SingleValue> Row for Option<T> {
    type Content = T;

    fn value(entry: &Entry<T>) -> Option<Self> {
        Some(entry.value.clone())
    }
}

/// The keys of a section; implemented by `keys!`.
pub trait Keys: Sized {
    /// All keys, in the order of the reference.
    const TABLE: &'static [Setting];

    /// Reads the keys of a section; wrong values are reported.
    fn read(walk: &mut Walk<'_>, given: &GivenKeys<'_>) -> Self;
    /// Describes the keys whose changes a reload treats in this way.
    fn described(&self, reload: Reload) -> Described;
}

/// The keys of one section that are in the file.
pub struct GivenKeys<'n> {
    pub at: Position,
    path: &'n str,
    keys: &'n [(Key, Node)],
}

/// Reads `node` as a file; wrong values are added to `problems` and omitted.
pub fn file<S: Keys>(node: &Node, problems: &mut Vec<Problem>) -> S {
    Walk { problems }.section(node, "")
}

/// The content of a key.
pub trait Content: Sized {
    const FORM: Form;

    /// Reads the value of a key in the file.
    fn read(walk: &mut Walk<'_>, setting: &Setting, node: &Node, path: &str) -> Option<Self>;

    /// Returns the value of an absent key.
    fn absent(
        _walk: &mut Walk<'_>,
        _setting: &Setting,
        _at: Position,
        _path: &str,
    ) -> Option<Self> {
        None
    }

    /// Formats the value for the differences of a reload; `None` for sections.
    fn shown(&self) -> Option<String> {
        None
    }
}

impl<T: SingleValue> Content for T {
    const FORM: Form = Shape::Single(T::BOUNDS);

    fn read(walk: &mut Walk<'_>, setting: &Setting, node: &Node, path: &str) -> Option<Self> {
        let Shape::Single(kind) = &setting.shape else { return None };
        walk.single(kind, node, path)
    }

    fn absent(walk: &mut Walk<'_>, setting: &Setting, at: Position, path: &str) -> Option<Self> {
        let Shape::Single(kind) = &setting.shape else { return None };
        match setting.preset {
            Preset::Value(text) => kind.parse(text).ok().and_then(T::from_value),
            Preset::Required => {
                let found = "nothing, though it is required".into();
                walk.add_problem(at, path, found, kind.allowed())
            }
            Preset::Absent(_) | Preset::Computed(_) => None,
        }
    }

    fn shown(&self) -> Option<String> {
        Some(SingleValue::shown(self))
    }
}

impl<T: SingleValue> Content for List<T> {
    const FORM: Form = Shape::List(T::BOUNDS);

    fn read(walk: &mut Walk<'_>, setting: &Setting, node: &Node, path: &str) -> Option<Self> {
        let Shape::List(kind) = &setting.shape else { return None };
        walk.list(kind, node, path)
    }

    fn shown(&self) -> Option<String> {
        Some(formatted_list(self.iter().map(|(_, value)| value.shown())))
    }
}

/// Formats a list as in the file.
pub fn formatted_list(all: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = all.into_iter().collect();
    if all.is_empty() { "none".into() } else { format!("[{}]", all.join(", ")) }
}

impl Content for Show {
    const FORM: Form = Shape::List(Part::BOUNDS);

    fn read(walk: &mut Walk<'_>, setting: &Setting, node: &Node, path: &str) -> Option<Self> {
        let parts = List::<Part>::read(walk, setting, node, path)?;
        let has = |part: Part| parts.iter().any(|(_, it)| *it == part);
        let (nodes, parameters, logs) = (has(Part::Nodes), has(Part::Parameters), has(Part::Logs));
        Some(Self { nodes, parameters, logs })
    }

    fn shown(&self) -> Option<String> {
        Some(formatted_list(self.words().into_iter().map(str::to_owned)))
    }
}

impl Content for Vec<Accept> {
    const FORM: Form = Shape::Typed(Pattern::BOUNDS);

    fn read(walk: &mut Walk<'_>, setting: &Setting, node: &Node, path: &str) -> Option<Self> {
        let Shape::Typed(kind) = &setting.shape else { return None };
        let Yaml::Map(pairs) = &node.yaml else {
            let list = walk.list(kind, node, path)?;
            let any = |(_, pattern)| Accept { pattern, types: Vec::new() };
            return Some(list.into_iter().map(any).collect());
        };
        let mut entries = Vec::new();
        for (name, types) in pairs {
            let pattern = walk.name::<Pattern>(kind, name, path);
            let types = walk.list(&Kind::TypeName, types, &join(path, &name.name));
            if let (Some(pattern), Some(types)) = (pattern, types) {
                entries.push(Accept { pattern, types: accepted_types(&types) });
            }
        }
        Some(entries)
    }

    fn shown(&self) -> Option<String> {
        let entry = |Accept { pattern, types }: &Accept| match types.as_slice() {
            [] => pattern.as_str().to_owned(),
            types => format!("{}: {}", pattern.as_str(), formatted_list(types.iter().cloned())),
        };
        Some(formatted_list(self.iter().map(entry)))
    }
}

/// Returns the names of types as `package/Type`; an empty list if any type is accepted.
fn accepted_types(types: &List<String>) -> Vec<String> {
    let accepts_any = types.iter().any(|(_, name)| name == ANY_TYPE);
    let types = types.iter().filter(|_| !accepts_any);
    types.map(|(_, name)| short_name(name).to_string()).collect()
}

impl Content for Renames {
    const FORM: Form = Shape::Renames(String::BOUNDS);

    fn read(walk: &mut Walk<'_>, setting: &Setting, node: &Node, path: &str) -> Option<Self> {
        let (Shape::Renames(kind), Yaml::Map(pairs)) = (&setting.shape, &node.yaml) else {
            return walk.add_unfit(node, path, "a map such as { /scan: /front/scan }");
        };
        let mut renames = Vec::new();
        for (from, to) in pairs {
            let peers_name = walk.name::<String>(&Kind::PeerName, from, path);
            let own_name = walk.single(kind, to, &join(path, &from.name));
            if let (Some(peers_name), Some(own_name)) = (peers_name, own_name) {
                renames.push((from.at, (peers_name, own_name)));
            }
        }
        Some(renames)
    }

    /// Sorts the renames, because their order has no meaning.
    fn shown(&self) -> Option<String> {
        let mut all: Vec<_> = self.iter().map(|(_, renamed)| renamed).collect();
        all.sort();
        Some(formatted_list(all.into_iter().map(|(from, to)| format!("{from}: {to}"))))
    }
}

impl Content for Fields {
    const FORM: Form = Shape::Fields;

    fn read(walk: &mut Walk<'_>, _: &Setting, node: &Node, path: &str) -> Option<Self> {
        match &node.yaml {
            Yaml::Nothing => Some(Vec::new()),
            _ => match walk.read_gateway_value(node, path)? {
                YamlValue::Map(fields) => Some(fields),
                _ => walk.add_unfit(node, path, "a map of fields"),
            },
        }
    }

    fn absent(_: &mut Walk<'_>, _: &Setting, _: Position, _: &str) -> Option<Self> {
        Some(Vec::new())
    }

    fn shown(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl<S: Keys, const IS_SWITCH: bool> Content for SectionOrSwitch<S, IS_SWITCH> {
    const FORM: Form = if IS_SWITCH { Shape::Switch(S::TABLE) } else { Shape::Section(S::TABLE) };

    fn read(walk: &mut Walk<'_>, _: &Setting, node: &Node, path: &str) -> Option<Self> {
        match &node.yaml {
            Yaml::Scalar(text) if IS_SWITCH => match text.as_str() {
                "true" => Some(Self(S::read(walk, &GivenKeys { at: node.at, path, keys: &[] }))),
                "false" => None,
                _ => {
                    let allowed = format!("true, false, or these keys: {}", names(S::TABLE));
                    walk.add_unfit(node, path, allowed)
                }
            },
            _ => Some(Self(walk.section(node, path))),
        }
    }

    fn absent(walk: &mut Walk<'_>, setting: &Setting, at: Position, path: &str) -> Option<Self> {
        let is_off = IS_SWITCH && matches!(setting.preset, Preset::Absent(_));
        (!is_off).then(|| Self(S::read(walk, &GivenKeys { at, path, keys: &[] })))
    }
}

impl<S: Keys> Content for Vec<S> {
    const FORM: Form = Shape::Sections(S::TABLE);

    fn read(walk: &mut Walk<'_>, _: &Setting, node: &Node, path: &str) -> Option<Self> {
        let nodes = match &node.yaml {
            Yaml::List(nodes) if !nodes.is_empty() => nodes,
            _ => {
                let allowed = format!("a list with these keys in each entry: {}", names(S::TABLE));
                return walk.add_unfit(node, path, allowed);
            }
        };
        let each = nodes.iter().enumerate();
        Some(each.map(|(i, node)| walk.section(node, &format!("{path}[{i}]"))).collect())
    }
}

impl<N: SingleValue, S: Keys> Content for Vec<Named<N, S>> {
    const FORM: Form = Shape::Named(N::BOUNDS, S::TABLE);

    fn read(walk: &mut Walk<'_>, setting: &Setting, node: &Node, path: &str) -> Option<Self> {
        let Shape::Named(names, _) = &setting.shape else { return None };
        let mut all = Vec::new();
        match (&node.yaml, setting.list_with) {
            (Yaml::Nothing, _) => {}
            (Yaml::Map(entries), _) => {
                for (name, value) in entries {
                    all.extend(walk.read_named(names, setting.short_for, (name, value), path));
                }
            }
            (Yaml::List(nodes), Some(name_key)) => {
                for (i, node) in nodes.iter().enumerate() {
                    let place = (path, &*format!("{path}[{i}]"));
                    all.extend(walk.read_list_entry(names, name_key, node, place));
                }
            }
            _ => {
                let allowed = format!("a map; each key is {}", names.allowed());
                return walk.add_unfit(node, path, allowed);
            }
        }
        Some(all)
    }
}

/// Reads a tree, and collects its problems.
pub struct Walk<'out> {
    problems: &'out mut Vec<Problem>,
}

impl Walk<'_> {
    fn section<S: Keys>(&mut self, node: &Node, path: &str) -> S {
        let keys = match &node.yaml {
            Yaml::Map(keys) => keys.as_slice(),
            Yaml::Nothing => &[],
            _ => {
                let allowed = format!("these keys: {}", names(S::TABLE));
                self.add_unfit::<()>(node, path, allowed);
                // The keys of a section that is wrong as a whole have no problems of their own.
                let mut silent = Walk { problems: &mut Vec::new() };
                return S::read(&mut silent, &GivenKeys { at: node.at, path, keys: &[] });
            }
        };
        S::read(self, &GivenKeys { at: node.at, path, keys })
    }

    pub fn unknown_keys(&mut self, settings: &[Setting], given: &GivenKeys<'_>) {
        for (key, _) in given.keys {
            if settings.iter().all(|setting| setting.name != key.name) {
                let found = format!("the unknown key {}", quoted_text(&key.name));
                self.add_problem::<()>(
                    key.at,
                    given.path,
                    found,
                    allowed_keys(settings, &key.name),
                );
            }
        }
    }

    /// Reads a key that is in the file; `None` if it is not.
    pub fn given_key<T: Content>(
        &mut self,
        setting: &Setting,
        given: &GivenKeys<'_>,
    ) -> Option<Entry<T>> {
        let (key, node) = given.keys.iter().find(|(key, _)| key.name == setting.name)?;
        let value = T::read(self, setting, node, &join(given.path, setting.name));
        Some(Entry { at: key.at, is_given: true, key: setting.name, value })
    }

    /// Returns the entry of an absent key, with its default.
    pub fn absent_key<T: Content>(&mut self, setting: &Setting, given: &GivenKeys<'_>) -> Entry<T> {
        let value = T::absent(self, setting, given.at, &join(given.path, setting.name));
        Entry { value, ..Entry::absent(setting, given.at) }
    }

    fn single<T: SingleValue>(&mut self, kind: &Kind, node: &Node, path: &str) -> Option<T> {
        let allowed = match &node.yaml {
            Yaml::Scalar(text) => match kind.parse(text) {
                Ok(value) => return T::from_value(value),
                Err(refusal) => refusal.allowed,
            },
            Yaml::List(_) if matches!(kind, Kind::Endpoint | Kind::Listen(_) | Kind::Host) => {
                format!("{}; in YAML, [ starts a list unless it is in quotes", kind.allowed())
            }
            _ => kind.allowed(),
        };
        self.add_unfit(node, path, allowed)
    }

    fn list<T: SingleValue>(&mut self, kind: &Kind, node: &Node, path: &str) -> Option<List<T>> {
        let alone = std::slice::from_ref(node);
        let nodes = match &node.yaml {
            Yaml::List(nodes) if !nodes.is_empty() => nodes,
            Yaml::Scalar(_) => alone,
            _ => {
                let is_empty_list = matches!(node.yaml, Yaml::List(_));
                let found = if is_empty_list { "an empty list".into() } else { node.in_words() };
                let allowed = format!("a list, each entry {}", kind.allowed());
                return self.add_problem(node.at, path, found, allowed);
            }
        };
        let entry =
            |(i, n): (usize, &Node)| Some((n.at, self.single(kind, n, &format!("{path}[{i}]"))?));
        Some(nodes.iter().enumerate().filter_map(entry).collect())
    }

    /// Reads a value whose type is known only to the gateway.
    fn read_gateway_value(&mut self, node: &Node, path: &str) -> Option<YamlValue> {
        Some(match &node.yaml {
            Yaml::Scalar(text) => YamlValue::One(text.clone()),
            Yaml::List(nodes) => {
                let each = nodes.iter().enumerate();
                let each =
                    each.map(|(i, node)| self.read_gateway_value(node, &format!("{path}[{i}]")));
                YamlValue::List(each.collect::<Option<_>>()?)
            }
            Yaml::Map(entries) => {
                let field = |(key, node): &(Key, Node)| {
                    Some((key.name.clone(), self.read_gateway_value(node, &join(path, &key.name))?))
                };
                YamlValue::Map(entries.iter().map(field).collect::<Option<_>>()?)
            }
            Yaml::Nothing => {
                let allowed = "a value, a list or a map of fields; \"\" is empty text";
                return self.add_unfit(node, path, allowed);
            }
        })
    }

    fn read_named<N: SingleValue, S: Keys>(
        &mut self,
        names: &Kind,
        short_for: Option<&str>,
        (key, node): (&Key, &Node),
        group: &str,
    ) -> Option<Named<N, S>> {
        let name = self.name(names, key, group);
        let path = join(group, &key.name);
        let keys = match (&node.yaml, short_for) {
            (Yaml::Scalar(_) | Yaml::List(_), Some(short)) => {
                let meant = (Key { at: node.at, name: short.into() }, node.clone());
                S::read(self, &GivenKeys { at: key.at, path: &path, keys: &[meant] })
            }
            _ => self.section(node, &path),
        };
        Some(Named { at: key.at, name: name?, text: key.name.clone(), path, keys })
    }

    /// Reads an entry of the list form: a name alone, or a section with its name under `name_key`.
    fn read_list_entry<N: SingleValue, S: Keys>(
        &mut self,
        names: &Kind,
        name_key: &str,
        node: &Node,
        (group, place): (&str, &str),
    ) -> Option<Named<N, S>> {
        let (name, keys) = match &node.yaml {
            Yaml::Map(entries) => {
                let (name, keys): (Vec<_>, Vec<_>) =
                    entries.iter().cloned().partition(|(key, _)| key.name == name_key);
                (name.into_iter().next().map(|(_, name)| name), keys)
            }
            _ => (Some(node.clone()), Vec::new()),
        };
        let Some(Node { at, yaml: Yaml::Scalar(text) }) = name else {
            let allowed =
                format!("a name, or a map with '{name_key}', which is {}", names.allowed());
            return self.add_unfit(node, place, allowed);
        };
        let name = self.name(names, &Key { at, name: text.clone() }, place);
        let keys = S::read(self, &GivenKeys { at, path: place, keys: &keys });
        Some(Named { at, name: name?, path: join(group, &text), text, keys })
    }

    fn name<N: SingleValue>(&mut self, kind: &Kind, key: &Key, path: &str) -> Option<N> {
        match kind.parse(&key.name) {
            Ok(name) => N::from_value(name),
            Err(refusal) => {
                let found = format!("the name {}", quoted_text(&key.name));
                self.add_problem(key.at, path, found, refusal.allowed)
            }
        }
    }

    /// Adds the problem that `node` has another form or value than those allowed; returns `None`.
    fn add_unfit<T>(&mut self, node: &Node, path: &str, allowed: impl Into<String>) -> Option<T> {
        self.add_problem(node.at, path, node.in_words(), allowed.into())
    }

    /// Adds a problem; returns `None`.
    fn add_problem<T>(
        &mut self,
        at: Position,
        path: &str,
        found: String,
        allowed: String,
    ) -> Option<T> {
        self.problems.push(Problem { at, key: path.into(), found, allowed });
        None
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}

fn names(settings: &[Setting]) -> String {
    let names: Vec<&str> = settings.iter().map(|s| s.name).collect();
    names.join(", ")
}

fn allowed_keys(settings: &[Setting], found: &str) -> String {
    match problem::nearest_name(settings.iter().map(|s| s.name), found) {
        Some(name) => format!("perhaps '{name}'; all keys here: {}", names(settings)),
        None => names(settings),
    }
}
