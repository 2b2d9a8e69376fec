// SPDX-License-Identifier: Apache-2.0
//! The files that nodes are started with: every one that the bench writes comes from here.

use crate::enclosure::SCRATCH;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tautline_node::keys::{self, KeyFileError};
use tautline_proto::PublicKey;

/// What a node's file says, as a user would write it.
pub struct NodeFile<'a> {
    /// The node's.
    pub name: &'a str,
    /// Its name, and the keys between its braces: `address: 10.0.0.2`; none if it calls us.
    pub peers: Vec<(&'a str, String)>,
    /// Lines of `radios:`; may be none.
    pub radios: String,
    /// Lines of `topics:`; may be none.
    pub topics: String,
    /// The lines that say which ROS it has, and whatever else differs.
    pub rest: String,
}

impl NodeFile<'_> {
    /// Writes it to `FOLDER/NAME.yaml`, and returns that. Each node has its key beside it: those
    /// that are there are used, so that all nodes of a folder know each other.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        let keys = self.peers.iter().map(|(peer, _)| public_key(folder, peer));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        public_key(folder, self.name)?;
        let path = folder.join(format!("{}.yaml", self.name));
        std::fs::write(&path, self.text(&keys))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn text(&self, keys: &[PublicKey]) -> String {
        let mut text =
            format!("name: {}\ncontrol: {}\n{}\n", self.name, control(self.name), self.rest);
        let peer = |((name, more), key): (&(&str, String), &PublicKey)| {
            let more = if more.is_empty() { String::new() } else { format!(", {more}") };
            // What could act is taken only where the file says so.
            format!("  {name}: {{ key: {key}, accept: \"/**\", call: \"/**\"{more} }}\n")
        };
        let peers: String = self.peers.iter().zip(keys).map(peer).collect();
        for (key, lines) in [("peers", &peers), ("radios", &self.radios), ("topics", &self.topics)]
        {
            let _ = match lines.as_str() {
                "" => writeln!(text, "{key}: {{}}"),
                lines => write!(text, "{key}:\n{lines}"),
            };
        }
        text
    }
}

/// The key of a node whose files are in `folder`, made if it has none.
fn public_key(folder: &Path, name: &str) -> Result<PublicKey> {
    let file = folder.join(format!("{name}.key"));
    match keys::load(&file) {
        Err(KeyFileError::Missing(_)) => Ok(keys::generate(&file)?),
        key => Ok(key?.public()),
    }
}

/// The control socket of a node.
pub fn control(name: &str) -> String {
    format!("{SCRATCH}/{name}.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_takes_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = NodeFile {
            name: "robot",
            peers: vec![("base", "address: 10.0.0.2".into()), ("other", String::new())],
            radios: String::new(),
            topics: "  /scan: { priority: 200 }\n".into(),
            rest: "ros1: false".into(),
        };
        let read = |file: &NodeFile| {
            tautline_node::config::load(&file.write(folder.path()).unwrap()).unwrap().config
        };
        let config = read(&file);
        assert_eq!(
            (config.name.as_str(), config.peers.len(), config.topics.len()),
            ("robot", 2, 1)
        );
        file.topics.clear();
        assert_eq!(read(&file).topics.len(), 0);
    }
}
