// SPDX-License-Identifier: Apache-2.0
//! Rules from the names of services to their treatment. Pure.

use std::time::Duration;
use tautline_gateway::action_names::{ActionCall, action_call};
use tautline_gateway::pattern::Pattern;

/// The treatment of services that match `pattern`.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceRule {
    /// The services.
    pub pattern: Pattern,
    /// Treatment of each.
    pub treatment: ServiceTreatment,
}

/// How calls of a service and their responses are sent.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceTreatment {
    /// 0-255, higher first.
    pub priority: u8,
    /// Time limit of a call.
    pub timeout: Duration,
    /// Peers that may call it; `None` is all.
    pub to: Option<Vec<String>>,
}

/// The default time limit of a call.
pub const SERVICE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a call for the result of an action, which lasts from its start to its end, and of a
/// call that cancels a goal.
pub const RESULT_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The treatment of service `name`: that of the first rule that matches. A call for a result lasts as
/// long as its goal. A call that cancels a goal also waits as long, and precedes all else.
pub fn service_treatment(rules: &[ServiceRule], name: &str) -> Option<ServiceTreatment> {
    let rule = rules.iter().find(|rule| rule.pattern.matches(name))?;
    let mut treatment = rule.treatment.clone();
    match action_call(name) {
        Some(ActionCall::GetResult) => treatment.timeout = RESULT_TIMEOUT,
        Some(ActionCall::CancelGoal) => {
            treatment.timeout = RESULT_TIMEOUT;
            treatment.priority = u8::MAX;
        }
        Some(ActionCall::SendGoal) | None => {}
    }
    Some(treatment)
}
