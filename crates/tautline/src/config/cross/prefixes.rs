// SPDX-License-Identifier: Apache-2.0
//! Checks of prefixes under which two peers could get the same local name.

use super::Findings;
use crate::config::table::{Peer, RobotFile};
use tautline_gateway::names::is_below;

impl Findings {
    pub(super) fn check_prefix_overlaps(&mut self, file: &RobotFile) {
        let mut earlier: Vec<(&Peer, String)> = Vec::new();
        for peer in file.peers.entries() {
            let prefix = &peer.keys.prefix;
            let Some(own) = prefix.get().filter(|it| !it.is_empty()) else { continue };
            let meets = |it: &&(&Peer, String)| is_below(&it.1, &own) || is_below(&own, &it.1);
            if let Some((other, theirs)) = earlier.iter().find(meets) {
                let text = overlap_text((&peer.text, &own), (&other.text, theirs), other.at.line);
                self.warn_of_key(peer, prefix, text);
            }
            earlier.push((peer, own));
        }
    }
}

/// Describes what happens to names under two prefixes, each given with its peer.
fn overlap_text(own: (&str, &str), other: (&str, &str), line: usize) -> String {
    if own.1 == other.1 {
        return format!(
            "'{}' on line {line} has the same prefix: topics of one name are published together, \
             and a service of one name is served by one of them. That is right for two daemons of \
             one robot; otherwise give '{}' a prefix of its own",
            other.0, own.0
        );
    }
    let (outer, inner) = if is_below(own.1, other.1) { (other, own) } else { (own, other) };
    format!(
        "{} of '{}' lies under {} of '{}' (see line {line}): names of '{}' that would be published \
         under {} are refused, unless a line of 'accept' names them without a star",
        inner.1, inner.0, outer.1, outer.0, outer.0, inner.1
    )
}
