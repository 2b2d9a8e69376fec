// SPDX-License-Identifier: Apache-2.0
//! Names of the topics and services of a ROS 2 action. Pure.

/// Last levels of the names of a ROS 2 action's services (`ACTION/_action/send_goal`).
pub const ACTION_SERVICES: [&str; 3] = [SEND, CANCEL, RESULT];
/// Last levels of the names of a ROS 2 action's topics (`ACTION/_action/feedback`).
pub const ACTION_TOPICS: [&str; 2] = ["feedback", "status"];
const SEND: &str = "send_goal";
const CANCEL: &str = "cancel_goal";
const RESULT: &str = "get_result";

/// What a service of an action of ROS 2 does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionCall {
    /// Starts a goal.
    SendGoal,
    /// Cancels goals.
    CancelGoal,
    /// Returns the result of a goal when it ends.
    GetResult,
}

/// What a service does for its action; `None` if the service belongs to no action.
pub fn action_call(service: &str) -> Option<ActionCall> {
    match &service[action_of(service)?.len() + "/_action/".len()..] {
        SEND => Some(ActionCall::SendGoal),
        CANCEL => Some(ActionCall::CancelGoal),
        RESULT => Some(ActionCall::GetResult),
        _ => None,
    }
}

/// The name of the service that cancels goals of an action.
pub fn cancel_service(action: &str) -> String {
    format!("{action}/_action/{CANCEL}")
}

/// The action of ROS 2 that a topic or service is a part of.
pub fn action_of(name: &str) -> Option<&str> {
    let (action, part) = name.rsplit_once("/_action/")?;
    (ACTION_SERVICES.contains(&part) || ACTION_TOPICS.contains(&part)).then_some(action)
}

/// Whether a topic is the status topic of a ROS 2 action. Such a topic is transient local with depth 1.
pub fn is_action_status(topic: &str) -> bool {
    topic.ends_with("/_action/status")
}

/// Whether a topic is the feedback or status of an action of ROS 2, by its name and type.
pub fn is_action_topic(name: &str, type_name: &str) -> bool {
    let fits =
        type_name == "action_msgs/msg/GoalStatusArray" || type_name.ends_with("_FeedbackMessage");
    fits && action_of(name).is_some_and(|action| {
        ACTION_TOPICS.iter().any(|part| name[action.len()..].ends_with(&format!("/{part}")))
    })
}
