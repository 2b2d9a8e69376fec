// SPDX-License-Identifier: Apache-2.0
//! Definitions from the `.msg` and `.srv` files that are installed with either ROS; for ROS 1 also
//! from Python modules, since Debian installs those without the files they were made from.

use super::definition::{
    Dialect, MAX_TEXT_BYTES, MAX_TYPES, is_between, needed_by, separator, short_name,
};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A kind of file, by its folder and its ending.
const MESSAGE: &str = "msg";
const SERVICE: &str = "srv";

/// Where such files are: `ROOT/share/PACKAGE/msg/TYPE.msg`, `ROOT/share/PACKAGE/srv/TYPE.srv`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed {
    roots: Vec<PathBuf>,
    /// Folders that hold packages themselves: `FOLDER/PACKAGE/msg/TYPE.msg`.
    folders: Vec<PathBuf>,
}

/// Why there is no definition of a type.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// No root has its file.
    #[error("no {file} in {}", listed(roots))]
    NoFile {
        /// The file, as below a root.
        file: PathBuf,
        /// Where it was looked for.
        roots: Vec<PathBuf>,
    },
    /// A file cannot be read, or not be used.
    #[error("{}: {problem}", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

fn listed(roots: &[PathBuf]) -> String {
    let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
    if roots.is_empty() { "(AMENT_PREFIX_PATH is empty)".into() } else { roots.join(", ") }
}

impl Installed {
    /// Of these prefixes, the first that has a file counts.
    pub fn new(roots: Vec<PathBuf>) -> Self {
        Self { roots, folders: Vec::new() }
    }

    /// Of ROS 2's prefixes, a list of folders with ':' between them (`AMENT_PREFIX_PATH`).
    pub fn of_prefix_path(path: &str) -> Self {
        Self::new(path.split(':').filter(|root| !root.is_empty()).map(PathBuf::from).collect())
    }

    /// Of ROS 1's two lists of folders with ':' between them, `CMAKE_PREFIX_PATH` and then
    /// `ROS_PACKAGE_PATH`, and of Debian's own packages after them.
    pub fn of_ros1(prefix_path: &str, package_path: &str) -> Self {
        let mut all = Self::of_prefix_path(prefix_path);
        all.roots.push("/usr".into());
        all.folders = Self::of_prefix_path(package_path).roots;
        all
    }

    /// The definition of a message type with all that it needs, in the form that
    /// [`Schema::parse`](super::Schema::parse) reads.
    pub fn definition(&self, type_name: &str, dialect: Dialect) -> Result<String, Missing> {
        let name = short_name(type_name);
        match (self.whole(&name, MESSAGE, dialect), dialect) {
            (Err(missing @ Missing::NoFile { .. }), Dialect::Ros1) => {
                self.of_python(&name).ok_or(missing)
            }
            (found, _) => found,
        }
    }

    /// The definition that a message's module has in it (`genpy`, `_full_text`).
    fn of_python(&self, name: &str) -> Option<String> {
        let (package, own) = name.split_once('/').filter(|(a, b)| is_plain(a) && is_plain(b))?;
        let module = Path::new("lib/python3/dist-packages").join(package);
        let module = module.join(MESSAGE).join(format!("_{own}.py"));
        let file = self.roots.iter().map(|root| root.join(&module)).find(|file| file.is_file())?;
        let code = std::fs::read_to_string(file).ok()?;
        let (_, text) = code.split_once("_full_text = \"\"\"")?;
        let (text, _) = text.split_once("\"\"\"")?;
        Some(text.to_owned())
    }

    /// The definition of a service type: request, a line `---`, response, then all that either
    /// needs as in a message's.
    pub fn service(&self, type_name: &str, dialect: Dialect) -> Result<String, Missing> {
        self.whole(&short_name(type_name), SERVICE, dialect)
    }

    fn whole(&self, root: &str, kind: &str, dialect: Dialect) -> Result<String, Missing> {
        let (mut text, file) = self.read(root, kind)?;
        let mut wanted = needs(root, &text, dialect, &file)?;
        let mut known = HashSet::new();
        if kind == MESSAGE {
            known.insert(root.to_owned());
        }
        while let Some(name) = wanted.pop() {
            if !known.insert(name.clone()) {
                continue;
            }
            let (part, file) = self.read(&name, MESSAGE)?;
            wanted.extend(needs(&name, &part, dialect, &file)?);
            text.push_str(&format!("\n{}\nMSG: {name}\n{part}", separator()));
            if text.len() > MAX_TEXT_BYTES || known.len() > MAX_TYPES {
                let problem = format!(
                    "{root} needs more than {MAX_TYPES} types or {MAX_TEXT_BYTES} bytes of text"
                );
                return Err(Missing::Unusable { file, problem });
            }
        }
        Ok(text)
    }

    fn read(&self, name: &str, kind: &str) -> Result<(String, PathBuf), Missing> {
        let (package, own) = name.split_once('/').unwrap_or(("", name));
        let of_package = Path::new(package).join(kind).join(format!("{own}.{kind}"));
        let below = Path::new("share").join(&of_package);
        // A name comes from elsewhere and must not lead out of the roots.
        let in_roots = self.roots.iter().map(|root| root.join(&below));
        let in_folders = self.folders.iter().map(|folder| folder.join(&of_package));
        let file = in_roots.chain(in_folders).find(|file| file.is_file());
        let Some(file) = file.filter(|_| is_plain(package) && is_plain(own)) else {
            return Err(Missing::NoFile { file: below, roots: self.roots.clone() });
        };
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok((text, file)),
            Err(error) => Err(Missing::Unusable { file, problem: error.to_string() }),
        }
    }
}

fn is_plain(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Short names of the types that a file's text refers to, on either side of a line `---`.
fn needs(name: &str, text: &str, dialect: Dialect, file: &Path) -> Result<Vec<String>, Missing> {
    let mut all = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for part in lines.split(|line| is_between(line)) {
        let needed = needed_by(name, &part.join("\n"), dialect);
        let unusable = |problem| Missing::Unusable { file: file.into(), problem };
        all.extend(needed.map_err(unusable)?);
    }
    Ok(all)
}
