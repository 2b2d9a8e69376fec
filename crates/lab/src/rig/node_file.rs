// SPDX-License-Identifier: Apache-2.0
//! Configuration files of nodes. The bench writes all of them here.

use crate::rig::enclosure::SCRATCH;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tautline::keys::{self, KeyFileError};
use tautline_proto::PublicKey;

/// Keys of a peer with all rights.
const ALL_RIGHTS: &str = ", accept: \"/**\", call: \"/**\"";

/// Contents of a node's configuration file.
pub struct NodeFile<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Name of each peer, and the keys between its braces: `address: 10.0.0.2`; empty if the peer
    /// initiates the handshake. A peer without `accept` may publish and call everything.
    pub peers: Vec<(&'a str, String)>,
    /// Lines of `radios:`; may be empty.
    pub radios: String,
    /// Lines of `topics:`; may be empty.
    pub topics: String,
    /// Lines that select the ROS version, and all other lines that differ between nodes.
    pub rest: String,
}

impl NodeFile<'_> {
    /// Writes the file to `FOLDER/NAME.yaml` and returns its path. Each node's key file is in the
    /// same folder. Existing keys are reused, so that all nodes of a folder know each other.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        let keys = self.peers.iter().map(|(peer, _)| public_key(folder, peer));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        public_key(folder, self.name)?;
        let path = folder.join(format!("{}.yaml", self.name));
        std::fs::write(&path, self.content(&keys))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn content(&self, keys: &[PublicKey]) -> String {
        let mut text =
            format!("name: {}\ncontrol: {}\n{}\n", self.name, control(self.name), self.rest);
        let peer = |((name, more), key): (&(&str, String), &PublicKey)| {
            // Topics and services that could act need explicit rights in the file.
            let rights = if more.contains("accept:") { "" } else { ALL_RIGHTS };
            let more = if more.is_empty() { String::new() } else { format!(", {more}") };
            format!("  {name}: {{ key: {key}{rights}{more} }}\n")
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

/// Returns the public key of a node whose files are in `folder`; generates a missing key.
fn public_key(folder: &Path, name: &str) -> Result<PublicKey> {
    let file = folder.join(format!("{name}.key"));
    match keys::load(&file) {
        Err(KeyFileError::Missing(_)) => Ok(keys::generate(&file)?),
        key => Ok(key?.public()),
    }
}

/// Returns the path of a node's control socket.
pub fn control(name: &str) -> String {
    format!("{SCRATCH}/{name}.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_accepts_written_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = NodeFile {
            name: "robot",
            peers: vec![("base", "address: 10.0.0.2".into()), ("other", String::new())],
            radios: String::new(),
            topics: "  /scan: { priority: 200 }\n".into(),
            rest: "ros1: false".into(),
        };
        let read = |file: &NodeFile| {
            tautline::config::load(&file.write(folder.path()).unwrap()).unwrap().config
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
