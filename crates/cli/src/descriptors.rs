// SPDX-License-Identifier: Apache-2.0
//! Open files: their identity, and the limit of their number.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The identity of a file, which a rename keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn from_metadata(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// Raises the soft limit of open files to the hard limit. Each link has up to five sockets, and each
/// connection of ROS 1 has one. The usual soft limit, 1024, is for programs that use select(2); this
/// program does not.
pub(crate) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let shown = |limit: Option<u64>| limit.map_or("no limit".into(), |most| most.to_string());
    let (before, most) = (shown(current), shown(maximum));
    if current == maximum {
        return tracing::debug!(most, "open files: as many as the system allows");
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::debug!(before, most, "open files: raised to what the system allows"),
        Err(error) => tracing::debug!(before, most, %error, "open files: the limit stays"),
    }
}
