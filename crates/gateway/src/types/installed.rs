// SPDX-License-Identifier: Apache-2.0
//! Definitions from the `.msg`, `.srv` and `.action` files that are installed with either ROS. For ROS 1 also
//! from Python modules, since Debian installs these without their sources.

use super::definition::{
    Dialect, MAX_TEXT_BYTES, MAX_TYPES, is_divider, separator, short_name, types_referenced_by,
};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of types in a [`Cache`].
const MAX_CACHED: usize = 1024;

/// Folder and extension of messages.
const MESSAGE: &str = "msg";
/// Folder and extension of services.
const SERVICE: &str = "srv";
/// Folder and extension of actions.
const ACTION: &str = "action";

/// Where definitions are searched: `ROOT/share/PACKAGE/msg/TYPE.msg`, likewise for `srv` and `action`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstalledTypes {
    roots: Vec<PathBuf>,
    /// Folders that contain packages directly: `FOLDER/PACKAGE/msg/TYPE.msg`.
    folders: Vec<PathBuf>,
}

/// Why a type has no definition.
#[derive(Debug, thiserror::Error)]
pub enum MissingDefinition {
    /// No root has its file.
    #[error("no {file} in {}", list_of_roots(roots))]
    NoFile {
        /// The file, as below a root.
        file: PathBuf,
        /// The roots that were searched.
        roots: Vec<PathBuf>,
    },
    /// A file cannot be read or used.
    #[error("{}: {problem}", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The problem.
        problem: String,
    },
}

fn list_of_roots(roots: &[PathBuf]) -> String {
    let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
    if roots.is_empty() { "(AMENT_PREFIX_PATH is empty)".into() } else { roots.join(", ") }
}

impl InstalledTypes {
    /// Searches these prefixes in order.
    pub fn new(roots: Vec<PathBuf>) -> Self {
        Self { roots, folders: Vec::new() }
    }

    /// Searches ROS 2's prefixes, folders separated by ':' (`AMENT_PREFIX_PATH`).
    pub fn from_prefix_path(path: &str) -> Self {
        Self::new(path.split(':').filter(|root| !root.is_empty()).map(PathBuf::from).collect())
    }

    /// Searches ROS 1's two lists of folders separated by ':', `CMAKE_PREFIX_PATH` and
    /// `ROS_PACKAGE_PATH`, and then Debian's own packages.
    pub fn from_ros1_paths(prefix_path: &str, package_path: &str) -> Self {
        let mut all = Self::from_prefix_path(prefix_path);
        all.roots.push("/usr".into());
        all.folders = Self::from_prefix_path(package_path).roots;
        all
    }

    /// The definition of a message type and of the types that it needs, in the form that
    /// [`Schema::parse`](super::Schema::parse) reads.
    pub fn definition(
        &self,
        type_name: &str,
        dialect: Dialect,
    ) -> Result<String, MissingDefinition> {
        let name = short_name(type_name);
        match (self.whole_text(&name, MESSAGE, dialect), dialect) {
            (Err(missing @ MissingDefinition::NoFile { .. }), Dialect::Ros1) => {
                self.python_module_types(&name).ok_or(missing)
            }
            (found, _) => found,
        }
    }

    /// The definition in a message's Python module (`genpy`, `_full_text`).
    fn python_module_types(&self, name: &str) -> Option<String> {
        let (package, own) = name.split_once('/').filter(|(a, b)| is_plain(a) && is_plain(b))?;
        let module = Path::new("lib/python3/dist-packages").join(package);
        let module = module.join(MESSAGE).join(format!("_{own}.py"));
        let file = self.roots.iter().map(|root| root.join(&module)).find(|file| file.is_file())?;
        let code = text_of(&std::fs::read(file).ok()?);
        let (_, text) = code.split_once("_full_text = \"\"\"")?;
        let (text, _) = text.split_once("\"\"\"")?;
        Some(non_empty(text.to_owned()))
    }

    /// The definition of a service type: request, a line `---`, response, then the types that they
    /// need, as in a message's definition.
    pub fn service(&self, type_name: &str, dialect: Dialect) -> Result<String, MissingDefinition> {
        self.whole_text(&short_name(type_name), SERVICE, dialect)
    }

    /// The definitions of an action's goal, result and feedback, each with the types that it needs.
    pub fn action(
        &self,
        type_name: &str,
        dialect: Dialect,
    ) -> Result<[String; 3], MissingDefinition> {
        let name = short_name(type_name);
        let (text, file) = self.read(&name, ACTION)?;
        let lines: Vec<&str> = text.lines().collect();
        let parts: Vec<_> = lines.split(|line| is_divider(line)).map(|it| it.join("\n")).collect();
        let [goal, result, feedback] = <[String; 3]>::try_from(parts).map_err(|parts| {
            let problem = format!("{} parts between lines '---'; allowed: 3", parts.len());
            MissingDefinition::Unusable { file: file.clone(), problem }
        })?;
        let complete = |part| self.complete(&name, part, &file, HashSet::new(), dialect);
        Ok([complete(goal)?, complete(result)?, complete(feedback)?])
    }

    fn whole_text(
        &self,
        root: &str,
        kind: &str,
        dialect: Dialect,
    ) -> Result<String, MissingDefinition> {
        let (text, file) = self.read(root, kind)?;
        let known = (kind == MESSAGE).then(|| root.to_owned()).into_iter().collect();
        self.complete(root, text, &file, known, dialect)
    }

    /// Appends the types that a text of `file` needs, except the `known` ones.
    fn complete(
        &self,
        root: &str,
        mut text: String,
        file: &Path,
        mut known: HashSet<String>,
        dialect: Dialect,
    ) -> Result<String, MissingDefinition> {
        let mut wanted = referenced_types(root, &text, dialect, file)?;
        while let Some(name) = wanted.pop() {
            if !known.insert(name.clone()) {
                continue;
            }
            let (part, file) = self.read(&name, MESSAGE)?;
            wanted.extend(referenced_types(&name, &part, dialect, &file)?);
            text.push_str(&format!("\n{}\nMSG: {name}\n{part}", separator()));
            if text.len() > MAX_TEXT_BYTES || known.len() > MAX_TYPES {
                let problem = format!(
                    "{root} needs more than {MAX_TYPES} types or {MAX_TEXT_BYTES} bytes of text"
                );
                return Err(MissingDefinition::Unusable { file, problem });
            }
        }
        Ok(non_empty(text))
    }

    fn read(&self, name: &str, kind: &str) -> Result<(String, PathBuf), MissingDefinition> {
        let (package, own) = name.split_once('/').unwrap_or(("", name));
        let of_package = Path::new(package).join(kind).join(format!("{own}.{kind}"));
        let below = Path::new("share").join(&of_package);
        // A name may come from a peer, and must not lead out of the roots.
        let in_roots = self.roots.iter().map(|root| root.join(&below));
        let in_folders = self.folders.iter().map(|folder| folder.join(&of_package));
        let file = in_roots.chain(in_folders).find(|file| file.is_file());
        let Some(file) = file.filter(|_| is_plain(package) && is_plain(own)) else {
            return Err(MissingDefinition::NoFile { file: below, roots: self.roots.clone() });
        };
        match std::fs::read(&file) {
            Ok(bytes) => Ok((text_of(&bytes), file)),
            Err(error) => Err(MissingDefinition::Unusable { file, problem: error.to_string() }),
        }
    }
}

/// Definitions by type name, so that the files of each type are read once.
#[derive(Debug)]
pub(crate) struct Cache {
    installed: InstalledTypes,
    known: HashMap<String, Arc<str>>,
}

impl Cache {
    pub fn new(installed: InstalledTypes) -> Self {
        Self { installed, known: HashMap::new() }
    }

    /// Returns a definition, and calls `read` if it is not cached. A missing definition is empty, and
    /// is reported once.
    pub fn get(
        &mut self,
        type_name: &str,
        read: impl FnOnce(&InstalledTypes) -> Result<String, MissingDefinition>,
        report: impl FnOnce(MissingDefinition),
    ) -> Arc<str> {
        if let Some(known) = self.known.get(type_name) {
            return known.clone();
        }
        let definition = read(&self.installed).unwrap_or_else(|missing| {
            report(missing);
            String::new()
        });
        let definition: Arc<str> = definition.into();
        if self.known.len() < MAX_CACHED {
            self.known.insert(type_name.into(), definition.clone());
        }
        definition
    }
}

/// A file's text as ROS's tools read it: they accept any line end. Bytes that are not UTF-8 occur in
/// comments (Latin-1); [`Schema::parse`](super::Schema::parse) refuses them in constants.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n")
}

/// The definition of an empty type; an empty text would be a missing one.
fn non_empty(text: String) -> String {
    if text.is_empty() { "\n".into() } else { text }
}

fn is_plain(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Short names of the types to which a file's text refers, on either side of a line `---`.
fn referenced_types(
    name: &str,
    text: &str,
    dialect: Dialect,
    file: &Path,
) -> Result<Vec<String>, MissingDefinition> {
    let mut all = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for part in lines.split(|line| is_divider(line)) {
        let needed = types_referenced_by(name, &part.join("\n"), dialect);
        let unusable = |problem| MissingDefinition::Unusable { file: file.into(), problem };
        all.extend(needed.map_err(unusable)?);
    }
    Ok(all)
}
