// SPDX-License-Identifier: Apache-2.0
//! The check of peers' messages before they are published. Without it, a message that does not match its
//! topic's type would end the topic's rospy subscribers, which then lose the messages of other peers as well.
//!
//! Most messages are checked on the data plane. The time of a check is charged to the peer, and is
//! far less than the time to receive the message. Compressed messages are checked by the codec.
//! Translation checks the messages that it reads.

use crate::topics::report_limiter::ReportLimiter;
use crate::topics::unchecked::missing_definition;
use std::sync::Arc;
use tautline_gateway::tf::fields::ArrivalFields;
use tautline_gateway::types::check::{Check, Checker};

/// The check of one topic of a peer.
#[derive(Debug, Clone, Default)]
pub(super) struct TypeCheck {
    pub(super) checker: Option<Arc<Checker>>,
    /// Which definition is missing: without it, a lying peer can evade the check.
    pub(super) reason: Option<&'static str>,
    /// Messages dropped because they are not of their type.
    pub(super) malformed: u64,
    pub(super) report_limiter: ReportLimiter,
    /// The fields in its messages that may change on arrival.
    pub(super) fields: ArrivalFields,
    pub(super) stamp_report_limiter: ReportLimiter,
}

impl TypeCheck {
    pub(super) fn set(&mut self, check: Check<Checker>, fields: ArrivalFields) {
        (self.checker, self.reason) = (check.checker().cloned(), missing_definition(&check));
        self.fields = fields;
    }

    pub(super) fn checker(&self) -> Option<Arc<Checker>> {
        self.checker.clone()
    }
}
