// SPDX-License-Identifier: Apache-2.0
//! Requests and responses about goals of an action, as CDR of ROS 2. Pure.

use crate::action_names::{ActionCall, action_call};
use bytes::Bytes;

/// Bytes of a request's encapsulation.
const ENCAPSULATION_BYTES: usize = 4;
/// Bytes of the goal's id (unique_identifier_msgs/UUID), which follows the encapsulation.
const GOAL_ID_BYTES: usize = 16;
/// Largest request that may be sent again, in bytes. ROS 2 asks for a result with 20 bytes, and cancels
/// with 28.
const MAX_REPEATABLE_BYTES: usize = 64;

/// What a call does to the goals of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalRequest {
    /// The call starts this goal: the encapsulation and the id.
    NewGoal(Bytes),
    /// The call asks for the result of one goal, or cancels the goal. The request is kept to be sent again.
    Goal(Bytes),
    /// The call cancels several goals.
    Goals,
}

/// What a request to a service does to goals. `None`: the service belongs to no action, or the request
/// is malformed.
pub fn goal_request(service: &str, request: &Bytes) -> Option<GoalRequest> {
    let call = action_call(service)?;
    let goal = request.get(ENCAPSULATION_BYTES..ENCAPSULATION_BYTES + GOAL_ID_BYTES)?;
    match call {
        // A copy, so that the whole goal does not stay in memory.
        ActionCall::SendGoal => Some(GoalRequest::NewGoal(Bytes::copy_from_slice(
            &request[..ENCAPSULATION_BYTES + GOAL_ID_BYTES],
        ))),
        _ if request.len() > MAX_REPEATABLE_BYTES => None,
        // A cancellation of several goals is not sent again: it would end later goals as well.
        ActionCall::CancelGoal if goal.iter().all(|byte| *byte == 0) => Some(GoalRequest::Goals),
        ActionCall::CancelGoal | ActionCall::GetResult => Some(GoalRequest::Goal(request.clone())),
    }
}

/// The part of a request about goals that is kept over a restart; `None` for other requests.
pub fn kept_request(service: &str, request: &Bytes) -> Option<Bytes> {
    match goal_request(service, request)? {
        GoalRequest::NewGoal(goal) => Some(goal),
        GoalRequest::Goal(_) | GoalRequest::Goals => Some(request.clone()),
    }
}

const CANCEL_TYPE: &str = "action_msgs/srv/CancelGoal";
/// `SendGoal.Response` of any action as CDR: not accepted, at time 0.
const NOT_ACCEPTED: [u8; 16] = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// `CancelGoal.Response` as CDR: `ERROR_REJECTED`, and no goals.
const NOT_CANCELLED: [u8; 12] = [0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// The response of a failed call, if its type can express a refusal.
pub fn refusal(service: &str, type_name: &str) -> Option<Bytes> {
    match action_call(service)? {
        ActionCall::SendGoal if type_name.ends_with("_SendGoal") => {
            Some(Bytes::from_static(&NOT_ACCEPTED))
        }
        ActionCall::CancelGoal if type_name == CANCEL_TYPE => {
            Some(Bytes::from_static(&NOT_CANCELLED))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_services_with_a_refusing_response_are_refused() {
        let goal = refusal("/a/_action/send_goal", "b/action/C_SendGoal");
        assert_eq!(goal.unwrap(), NOT_ACCEPTED[..]);
        assert_eq!(refusal("/a/_action/cancel_goal", CANCEL_TYPE).unwrap(), NOT_CANCELLED[..]);
        for (service, type_name) in [
            ("/a/_action/get_result", "b/action/C_GetResult"),
            ("/a/_action/send_goal", "std_srvs/srv/SetBool"),
            ("/a/_action/cancel_goal", "std_srvs/srv/SetBool"),
            ("/a/send_goal", "b/action/C_SendGoal"),
        ] {
            assert_eq!(refusal(service, type_name), None, "{service} {type_name}");
        }
    }
}
