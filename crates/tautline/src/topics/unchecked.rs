// SPDX-License-Identifier: Apache-2.0
//! Topics and services whose messages no shared definition checks.

use tautline_gateway::types::check::Check;
use tautline_proto::PeerId;

/// A topic or service whose messages are not checked against a shared definition.
#[derive(Debug)]
pub(crate) struct Unchecked<'a> {
    /// The peer that sends the messages; `None` means any peer.
    pub(crate) peer: Option<PeerId>,
    pub(crate) name: &'a str,
    pub(crate) type_name: &'a str,
    pub(crate) reason: &'static str,
}

/// Returns which definition is missing for a check.
pub(super) fn missing_definition<T>(check: &Check<T>) -> Option<&'static str> {
    match check {
        Check::SharedDefinition(_) | Check::InTranslation => None,
        Check::PeerDefinition(_) => {
            Some("checked against the peer's own definition only: not installed here")
        }
        Check::Impossible => {
            Some("passed as they are: not installed here, and no definition was sent")
        }
    }
}
