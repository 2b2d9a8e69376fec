// SPDX-License-Identifier: Apache-2.0
//! Text of other programs in the gateway's logs and status.

use crate::plain::plain;

/// Maximum bytes kept of a text of another program.
const MAX_SHOWN: usize = 240;

/// `text` in a form for logs and status: bounded, without control characters.
pub(super) fn for_logs(text: &str) -> String {
    plain(text, MAX_SHOWN)
}

/// A topic or service with its type, for a person. The names may come from a peer.
pub(super) fn name_with_type(name: &str, type_name: &str, md5: &str) -> String {
    format!("{} of type {} (md5 {})", for_logs(name), for_logs(type_name), for_logs(md5))
}
