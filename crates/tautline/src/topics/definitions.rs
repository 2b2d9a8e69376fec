// SPDX-License-Identifier: Apache-2.0
//! Limits the memory that definitions of a peer's types may take.

use super::context::Context;
use super::key::ChannelKey;
use crate::limits::DEFINITIONS_IN_USE_BYTES;
use std::sync::Arc;

/// Returns the definition; or an empty one if this peer's definitions would take too much memory.
/// `kept` is the number of bytes of definitions of the peer's other topics and services.
pub(super) fn enforce_budget(
    cx: &mut Context<'_>,
    key: ChannelKey,
    name: &str,
    definition: Arc<str>,
    kept: usize,
) -> Arc<str> {
    if definition.is_empty() || kept + definition.len() <= DEFINITIONS_IN_USE_BYTES {
        return definition;
    }
    let (peer, bytes) = (cx.peers.name(key.peer), definition.len());
    let text = format!(
        "{name} of '{peer}': its definition of {bytes} bytes is ignored; allowed: \
         {DEFINITIONS_IN_USE_BYTES} bytes of all definitions of a peer"
    );
    cx.peer_notice(key.peer, &text);
    "".into()
}
