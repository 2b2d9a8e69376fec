// SPDX-License-Identifier: Apache-2.0
//! Definitions from the `.msg` files that are installed with either ROS.

use super::definition::{Dialect, MAX_TEXT_BYTES, MAX_TYPES, needed_by, separator, short_name};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Where `.msg` files are: `ROOT/share/PACKAGE/msg/TYPE.msg`.
#[derive(Debug, Clone, Default)]
pub struct Installed {
    roots: Vec<PathBuf>,
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
        Self { roots }
    }

    /// Of ROS 2's prefixes, a list of folders with ':' between them (`AMENT_PREFIX_PATH`).
    pub fn of_prefix_path(path: &str) -> Self {
        Self::new(path.split(':').filter(|root| !root.is_empty()).map(PathBuf::from).collect())
    }

    /// The definition of a type with all that it needs, in the form that
    /// [`Schema::parse`](super::Schema::parse) reads.
    pub fn definition(&self, type_name: &str, dialect: Dialect) -> Result<String, Missing> {
        let root = short_name(type_name);
        let (mut text, mut known, mut wanted) = (String::new(), HashSet::new(), vec![root.clone()]);
        while let Some(name) = wanted.pop() {
            if !known.insert(name.clone()) {
                continue;
            }
            let (part, file) = self.read(&name)?;
            let unusable = |problem: String| Missing::Unusable { file: file.clone(), problem };
            wanted.extend(needed_by(&name, &part, dialect).map_err(unusable)?);
            if name != root {
                text.push_str(&format!("\n{}\nMSG: {name}\n", separator()));
            }
            text.push_str(&part);
            if text.len() > MAX_TEXT_BYTES || known.len() > MAX_TYPES {
                return Err(unusable(format!(
                    "{root} needs more than {MAX_TYPES} types or {MAX_TEXT_BYTES} bytes of text"
                )));
            }
        }
        Ok(text)
    }

    fn read(&self, name: &str) -> Result<(String, PathBuf), Missing> {
        let (package, own) = name.split_once('/').unwrap_or(("", name));
        let below = Path::new("share").join(package).join("msg").join(format!("{own}.msg"));
        // A name comes from elsewhere and must not lead out of the roots.
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let file = self.roots.iter().map(|root| root.join(&below)).find(|file| file.is_file());
        let Some(file) = file.filter(|_| plain(package) && plain(own)) else {
            return Err(Missing::NoFile { file: below, roots: self.roots.clone() });
        };
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok((text, file)),
            Err(error) => Err(Missing::Unusable { file, problem: error.to_string() }),
        }
    }
}
