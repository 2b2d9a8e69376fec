// SPDX-License-Identifier: Apache-2.0
//! Responses that refuse a goal or its cancellation. Pure.

use crate::mapping::{ActionCall, action_call};
use bytes::Bytes;

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
    fn only_services_of_an_action_that_can_express_it_are_refused() {
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
