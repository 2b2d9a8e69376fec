// SPDX-License-Identifier: Apache-2.0
//! How topics are sent: the rules of the file, with the changes on the running node.

use crate::status::TopicChange;
use crate::topics::context::Context;
use crate::treatment::{TopicRule, Treatment, treatment};
use tautline_gateway::logs;
use tautline_gateway::pattern::Pattern;
use tautline_proto::{Duration, PeerId};

/// Maximum number of changes kept on the running node. A change does not count once a later change
/// of the same pattern has replaced it.
pub(crate) const MAX_CHANGES: usize = 1024;
/// Maximum number of logs queued for a peer.
const LOG_KEEP_LAST: u16 = 100;
/// Age past which a log is worthless, as in ROS 2.
const LOG_LIFESPAN: Duration = Duration::from_secs(10);
/// Priority of logs, which are sent after all other messages.
const LOG_PRIORITY: u8 = 0;
/// Rates that a change may set, in hertz; the file has the same limits.
pub(super) const RATE_RANGE_HZ: std::ops::RangeInclusive<f64> = 0.001..=100_000.0;

/// The rules of the file, and the changes made since.
#[derive(Debug)]
pub(super) struct Treatments {
    rules: Vec<TopicRule>,
    /// Changes on the running node, oldest first; a later one overrides an earlier one.
    changes: Vec<(Pattern, TopicChange)>,
}

impl Treatments {
    pub(super) fn new(rules: &[TopicRule]) -> Self {
        Self { rules: rules.to_vec(), changes: Vec::new() }
    }

    /// Replaces the rules of the file; the changes stay.
    pub(super) fn set_rules(&mut self, rules: &[TopicRule]) {
        self.rules = rules.to_vec();
    }

    /// Returns the treatment of a topic: the file's rule with the changes made since.
    pub(super) fn for_topic(&self, cx: &Context<'_>, name: &str) -> Option<Treatment> {
        let ruled = treatment(&self.rules, name).cloned();
        let mut found = ruled.or_else(|| log_treatment(cx, name))?;
        for (_, change) in self.changes.iter().filter(|(p, _)| p.matches(name)) {
            found.priority = change.priority.unwrap_or(found.priority);
            match change.rate_hz {
                Some(0.0) => found.rate_hz = None,
                Some(hz) => found.rate_hz = Some(hz),
                None => {}
            }
        }
        Some(found)
    }

    /// Returns the changes on the running node, which override the file.
    pub(super) fn changes(&self) -> Vec<TopicChange> {
        self.changes.iter().map(|(_, change)| change.clone()).collect()
    }

    /// Adds a change, and removes the parts of earlier changes that it replaces.
    pub(super) fn add_change(
        &mut self,
        pattern: Pattern,
        change: TopicChange,
    ) -> Result<(), String> {
        for (_, before) in self.changes.iter_mut().filter(|(p, _)| *p == pattern) {
            before.priority = before.priority.filter(|_| change.priority.is_none());
            before.rate_hz = before.rate_hz.filter(|_| change.rate_hz.is_none());
        }
        self.changes.retain(|(_, c)| c.priority.is_some() || c.rate_hz.is_some());
        if self.changes.len() >= MAX_CHANGES {
            return Err(format!(
                "{MAX_CHANGES} patterns were changed already, which is the maximum; change one of \
                 them again, or change the file"
            ));
        }
        self.changes.push((pattern, change));
        Ok(())
    }
}

/// Returns the treatment of this robot's logs, which need no rule.
fn log_treatment(cx: &Context<'_>, topic: &str) -> Option<Treatment> {
    let shows = |peer: &PeerId| topic == logs::TOPIC && cx.peers.rights(*peer).show.logs;
    let peers = cx.endpoint.peers().filter(shows);
    let to: Vec<String> = peers.map(|peer| cx.peers.name(peer).to_owned()).collect();
    let (keep_last, lifespan) = (Some(LOG_KEEP_LAST), Some(LOG_LIFESPAN));
    (!to.is_empty()).then_some(Treatment {
        priority: LOG_PRIORITY,
        keep_last,
        lifespan,
        to: Some(to),
        ..Treatment::default()
    })
}
