// SPDX-License-Identifier: Apache-2.0
//! Rules that map the names of services to their treatment. Pure: no I/O.

use std::time::Duration;
use tautline_gateway::action_names::{ActionCall, action_call};
use tautline_gateway::pattern::Pattern;

/// The treatment of services that match `pattern`.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceRule {
    /// The services.
    pub pattern: Pattern,
    /// The treatment of each service.
    pub treatment: ServiceTreatment,
}

/// How calls of a service and their responses are sent.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceTreatment {
    /// Priority, 0-255, higher first.
    pub priority: u8,
    /// Time limit of a call.
    pub timeout: Duration,
    /// Peers to which the service is advertised; `None` means all.
    pub to: Option<Vec<String>>,
}

/// The default time limit of a call.
pub const SERVICE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of two kinds of calls of an action: the call for the result, which waits from the
/// start of a goal to its end, and the call that cancels a goal.
pub const RESULT_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Returns the treatment of service `name`, from the first rule that matches. A call for the result
/// of a goal, and a call that cancels a goal, have the time limit [`RESULT_TIMEOUT`]. The latter
/// also precedes all other messages.
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
