// SPDX-License-Identifier: Apache-2.0
//! The names of an action's topics and services in both kinds of ROS.

use crate::Topic;
use crate::action_names::{action_of, is_action_topic};

/// A service of an action of ROS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServicePart {
    SendGoal,
    CancelGoal,
    GetResult,
}

/// An action by its name (`/navigate`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActionNames {
    pub action: String,
}

/// Last levels of the names of an action's topics in ROS 1.
const ROS1: [&str; 5] = ["goal", "cancel", "status", "feedback", "result"];

impl ActionNames {
    fn new(action: &str) -> Self {
        Self { action: action.into() }
    }

    /// The action that may have this topic of ROS 1, and the end of the topic's name.
    pub fn from_ros1_topic(topic: &str) -> Option<(Self, &str)> {
        let (action, end) = topic.rsplit_once('/')?;
        let is_one = !action.is_empty() && ROS1.contains(&end) && !action.ends_with("/_action");
        is_one.then(|| (Self::new(action), end))
    }

    /// The action that has this service of ROS 2.
    pub fn from_service(service: &str) -> Option<(Self, ServicePart)> {
        let action = action_of(service)?;
        let part = match service.rsplit('/').next()? {
            "send_goal" => ServicePart::SendGoal,
            "cancel_goal" => ServicePart::CancelGoal,
            "get_result" => ServicePart::GetResult,
            _ => return None,
        };
        Some((Self::new(action), part))
    }

    /// The action that has this topic of ROS 2.
    pub fn from_ros2_name(topic: &str) -> Option<Self> {
        let action = action_of(topic)?;
        let names = Self::new(action);
        names.ros2_topics().iter().any(|own| own == topic).then_some(names)
    }

    /// The action of a topic with a type of ROS 2's actions.
    pub fn from_ros2_topic(topic: &Topic) -> Option<Self> {
        Self::from_ros2_name(&topic.name).filter(|_| is_action_topic(&topic.name, &topic.type_name))
    }

    pub fn goal(&self) -> String {
        format!("{}/goal", self.action)
    }

    pub fn cancel(&self) -> String {
        format!("{}/cancel", self.action)
    }

    pub fn status(&self) -> String {
        format!("{}/status", self.action)
    }

    pub fn feedback(&self) -> String {
        format!("{}/feedback", self.action)
    }

    pub fn result(&self) -> String {
        format!("{}/result", self.action)
    }

    pub fn send_goal(&self) -> String {
        format!("{}/_action/send_goal", self.action)
    }

    pub fn cancel_goal(&self) -> String {
        format!("{}/_action/cancel_goal", self.action)
    }

    pub fn get_result(&self) -> String {
        format!("{}/_action/get_result", self.action)
    }

    pub fn services(&self) -> [String; 3] {
        [self.send_goal(), self.cancel_goal(), self.get_result()]
    }

    pub fn ros2_feedback(&self) -> String {
        format!("{}/_action/feedback", self.action)
    }

    pub fn ros2_status(&self) -> String {
        format!("{}/_action/status", self.action)
    }

    pub fn ros2_topics(&self) -> [String; 2] {
        [self.ros2_feedback(), self.ros2_status()]
    }
}
