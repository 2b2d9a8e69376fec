// SPDX-License-Identifier: Apache-2.0
//! Answers to calls of the slave API.

use super::Actor;
use crate::ros1::publication::Phase;
use crate::ros1::shown;
use crate::ros1::slave::{ApiCall, failure, success};
use crate::ros1::subscription::Subscription;
use crate::ros1::xmlrpc::text;
use crate::sparing::Sparing;
use dxr::Value;

impl Actor {
    pub(super) fn api(&mut self, call: ApiCall) -> Value {
        match call {
            ApiCall::RequestTopic { caller, topic, protocols } => {
                tracing::debug!(caller, topic, "requestTopic");
                self.request_topic(&topic, &protocols)
            }
            ApiCall::PublisherUpdate { topic, publishers } => {
                if let Some(subscription) = self.subscriptions.get_mut(&topic) {
                    subscription.list(publishers);
                    self.refresh(&topic);
                    self.poll();
                }
                success("publisher update", Value::Integer(0))
            }
            ApiCall::BusStats => {
                let none = || Value::Array(vec![]);
                success("bus stats", Value::Array(vec![none(), none(), none()]))
            }
            ApiCall::BusInfo => success("bus info", self.bus_info()),
            ApiCall::MasterUri => success("master URI", text(&self.setup.options.master_uri)),
            ApiCall::Subscriptions => {
                let pair = |(topic, found): (&String, &Subscription)| {
                    let known = !found.type_name.is_empty();
                    pair(topic, if known { &found.type_name } else { "*" })
                };
                success(
                    "subscriptions",
                    Value::Array(self.subscriptions.iter().map(pair).collect()),
                )
            }
            ApiCall::Publications => {
                let registered =
                    self.publications.values().filter(|found| found.phase == Phase::Registered);
                let pairs = registered.map(|found| pair(&found.topic.name, &found.topic.type_name));
                success("publications", Value::Array(pairs.collect()))
            }
            ApiCall::Shutdown { caller, reason } => {
                static LINES: Sparing = Sparing::new();
                if let Some(left_out) = LINES.next() {
                    let (caller, reason) = (shown(&caller), shown(&reason));
                    tracing::warn!(
                        ?caller,
                        ?reason,
                        left_out,
                        "asked to shut down over ROS; ignored"
                    );
                }
                // So a master tells the older of two nodes of one name.
                self.name_taken = true;
                self.poll();
                failure("a Tautline gateway stops with its node only")
            }
        }
    }

    fn request_topic(&self, topic: &str, protocols: &[String]) -> Value {
        let published = self
            .publications
            .get(topic)
            .is_some_and(|found| !matches!(found.phase, Phase::Conflict(_)));
        if !published {
            let node = &self.setup.options.node_name;
            return failure(&format!("{node} does not publish {}", shown(topic)));
        }
        if !protocols.iter().any(|protocol| protocol == "TCPROS") {
            return failure("only TCPROS is supported");
        }
        let host = text(&self.setup.options.host);
        let port = Value::Integer(i32::from(self.setup.tcpros_port));
        success("ready", Value::Array(vec![text("TCPROS"), host, port]))
    }

    fn bus_info(&self) -> Value {
        let line = |id: u64, other: &str, direction: &str, topic: &str| {
            let id = Value::Integer(i32::try_from(id).unwrap_or(i32::MAX));
            let connected = Value::Boolean(true);
            let [other, direction, topic] = [other, direction, topic].map(text);
            Value::Array(vec![id, other, direction, text("TCPROS"), topic, connected])
        };
        let mut lines = Vec::new();
        for (topic, subscription) in &self.subscriptions {
            let connected = subscription.readers.iter().filter(|(_, reader)| reader.connected);
            lines.extend(connected.map(|(uri, reader)| line(reader.serial, uri, "i", topic)));
        }
        for (topic, publication) in &self.publications {
            let all = publication.subscribers.iter();
            lines.extend(all.map(|(id, found)| line(*id, &found.caller, "o", topic)));
        }
        Value::Array(lines)
    }
}

fn pair(topic: &str, type_name: &str) -> Value {
    Value::Array(vec![text(topic), text(type_name)])
}
