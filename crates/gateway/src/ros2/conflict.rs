// SPDX-License-Identifier: Apache-2.0
//! Conflicts between local nodes and what peers publish or serve. Pure.

use std::fmt::{self, Display, Formatter};

/// What local nodes have under the name in place of the peers' type; the worst conflict comes last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conflict {
    /// Another type: DDS does not match it.
    Type(String),
    /// Another version of the type, with its hash: DDS would match it, and messages be misread.
    Hash(String, String),
}

impl Conflict {
    /// The conflict with an endpoint of `type_name` and `hash`, where the peers' type has the hash
    /// `peer_hash`. An unknown hash (empty) is equal to every hash.
    pub fn detect(
        type_name: String,
        hash: &str,
        is_same_type: bool,
        peer_hash: &str,
    ) -> Option<Self> {
        match is_same_type {
            false => Some(Self::Type(type_name)),
            true if hash.is_empty() || peer_hash.is_empty() || hash == peer_hash => None,
            true => Some(Self::Hash(type_name, hash.to_owned())),
        }
    }

    /// Whether messages of the peers' type would be misread here.
    pub fn is_misread(&self) -> bool {
        matches!(self, Self::Hash(..))
    }
}

impl Display for Conflict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(type_name) => f.write_str(type_name),
            Self::Hash(type_name, hash) => write!(f, "{type_name} ({hash})"),
        }
    }
}
