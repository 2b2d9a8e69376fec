// SPDX-License-Identifier: Apache-2.0
//! What stands against publishing or serving here what peers have. Pure.

use std::fmt::{self, Display, Formatter};

/// What local nodes have under the name, instead of the peers' type. The last is the worst.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conflict {
    /// Another type: those are not matched.
    Type(String),
    /// Another version of the type, with its hash: it would be matched, and misread.
    Hash(String, String),
}

impl Conflict {
    /// With an endpoint that has `type_name` and `hash`, where peers have `theirs` as hash of the
    /// same type or of another. A hash that is not known (empty) differs from none.
    pub fn with(type_name: String, hash: &str, is_same_type: bool, theirs: &str) -> Option<Self> {
        match is_same_type {
            false => Some(Self::Type(type_name)),
            true if hash.is_empty() || theirs.is_empty() || hash == theirs => None,
            true => Some(Self::Hash(type_name, hash.to_owned())),
        }
    }

    /// Whether what peers have must not be here at all.
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
