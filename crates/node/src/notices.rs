// SPDX-License-Identifier: Apache-2.0
//! Faults between nodes, in words: what was found, where, and what to do.

use std::net::SocketAddr;
use tautline_proto::{Notice, RefusalReason};

/// The notice for a person at the node `here`.
pub(crate) fn text(notice: &Notice, here: &str) -> String {
    match notice {
        Notice::UnknownPeer { name, from } => format!(
            "'{name}' calls from {from}, but is not among the peers of '{here}'; add it under peers:"
        ),
        Notice::Version { name, from, theirs, ours } => format!(
            "'{name}' at {from} speaks protocol version {theirs}, '{here}' speaks {ours}; \
             run the same release on both"
        ),
        Notice::NameTaken { name, from, first: None } => format!(
            "two nodes are named '{name}': this one and one at {from}; give each a name of its own"
        ),
        Notice::NameTaken { name, from, first: Some(first) } => format!(
            "two nodes are named '{name}': one at {first} and one at {from}; \
             '{here}' keeps the first"
        ),
        Notice::UnknownAddress { name, from, configured } => {
            let configured: Vec<_> = configured.iter().map(SocketAddr::to_string).collect();
            format!(
                "'{name}' calls from {from}, but '{here}' has {} as its address; correct it, \
                 leave it out, or look for a second node of that name",
                configured.join(", ")
            )
        }
        Notice::TheyRefuse { name, from, reason } => {
            let why = match reason {
                RefusalReason::UnknownPeer => format!("'{here}' is not among its peers"),
                RefusalReason::Version => "it speaks another protocol version".into(),
                RefusalReason::NameTaken => {
                    format!("it knows another node named '{here}', or is named so itself")
                }
                RefusalReason::Address => {
                    format!("it has another address configured for '{here}'")
                }
            };
            format!("'{name}' at {from} refuses the call of '{here}': {why}")
        }
        Notice::TooLarge { peer, topic, found, allowed } => format!(
            "{topic}: a message of {found} bytes from '{peer}' is larger than the {allowed} \
             that '{here}' allows (limits.max_message)"
        ),
    }
}
