// SPDX-License-Identifier: Apache-2.0
//! Where a configuration comes from.

use std::path::PathBuf;
use tautline::config::Launch;

/// The origin of a [`Config`](tautline::config::Config).
#[derive(Debug, Clone)]
pub struct Origin {
    /// The robot's file.
    pub file: PathBuf,
    /// SHA-256 of the file's text ([`Checked::sha256`](tautline::config::Checked::sha256)).
    pub sha256: String,
    /// What the program that launched this one says about its node.
    pub launch: Launch,
}
