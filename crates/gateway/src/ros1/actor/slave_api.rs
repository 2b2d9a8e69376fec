// SPDX-License-Identifier: Apache-2.0
//! Responses to calls of the slave API.

use super::context::Context;
use super::polling::Polling;
use super::publications::Publications;
use super::registrar::Registrar;
use super::subscriptions::Subscriptions;
use crate::log_limit::log_limited;
use crate::ros1::master::Role;
use crate::ros1::note::ApiCall;
use crate::ros1::polls::TOPIC_OF_ALL_NODES;
use crate::ros1::shown::for_logs;
use crate::ros1::slave::{failure, success};
use crate::ros1::subscription::Subscription;
use crate::ros1::xmlrpc::string_value;
use dxr::Value;

/// The parts that calls of the slave API concern.
pub(super) struct SlaveApi<'a> {
    pub context: &'a mut Context,
    pub polling: &'a mut Polling,
    pub registrar: &'a mut Registrar,
    pub subscriptions: &'a mut Subscriptions,
    pub publications: &'a Publications,
}

impl SlaveApi<'_> {
    pub fn respond(&mut self, call: ApiCall) -> Value {
        match call {
            ApiCall::RequestTopic { caller, topic, protocols } => {
                tracing::debug!(caller, topic, "requestTopic");
                self.request_topic(&topic, &protocols)
            }
            ApiCall::PublisherUpdate { topic, publishers } => {
                if topic == TOPIC_OF_ALL_NODES {
                    self.polling.on_nodes_changed();
                }
                if self.subscriptions.set_publishers(self.context, &topic, publishers) {
                    self.context.request_poll();
                }
                success("publisher update", Value::Integer(0))
            }
            ApiCall::BusStats => {
                let none = || Value::Array(vec![]);
                success("bus stats", Value::Array(vec![none(), none(), none()]))
            }
            ApiCall::BusInfo => success("bus info", self.bus_info()),
            ApiCall::MasterUri => {
                success("master URI", string_value(&self.context.setup.options.master_uri))
            }
            ApiCall::Subscriptions => {
                let pair = |(topic, found): (&String, &Subscription)| {
                    let name = &found.version.name;
                    pair(topic, if name.is_empty() { "*" } else { name })
                };
                let pairs = self.subscriptions.iter().map(pair).collect();
                success("subscriptions", Value::Array(pairs))
            }
            ApiCall::Publications => {
                let all = self.publications.iter().map(|(_, found)| found);
                let registered = all.filter(|found| {
                    self.registrar.is_registered(Role::Publisher, &found.topic.name)
                });
                let pairs = registered.map(|found| pair(&found.topic.name, &found.topic.type_name));
                success("publications", Value::Array(pairs.collect()))
            }
            ApiCall::Shutdown { caller, reason } => {
                log_limited!(
                    warn,
                    {caller = ?for_logs(&caller), reason = ?for_logs(&reason),},
                    "ignored a call to shut down over ROS"
                );
                // The master makes this call to the older of two nodes with one name.
                self.registrar.suspect_namesake(self.context);
                failure("a Tautline gateway stops with its node only")
            }
        }
    }

    fn request_topic(&mut self, topic: &str, protocols: &[String]) -> Value {
        if self.publications.publication(topic).is_none() {
            let node = &self.context.setup.options.node_name;
            return failure(&format!("{node} does not publish {}", for_logs(topic)));
        }
        if !protocols.iter().any(|protocol| protocol == "TCPROS") {
            return failure("only TCPROS is supported");
        }
        let host = string_value(&self.context.setup.options.host);
        let port = Value::Integer(i32::from(self.context.setup.tcpros_port));
        success("ready", Value::Array(vec![string_value("TCPROS"), host, port]))
    }

    fn bus_info(&self) -> Value {
        let line = |id: u64, other: &str, direction: &str, topic: &str| {
            let id = Value::Integer(i32::try_from(id).unwrap_or(i32::MAX));
            let connected = Value::Boolean(true);
            let [other, direction, topic] = [other, direction, topic].map(string_value);
            Value::Array(vec![id, other, direction, string_value("TCPROS"), topic, connected])
        };
        let mut lines = Vec::new();
        for (topic, subscription) in self.subscriptions.iter() {
            let connected = subscription.readers.iter().filter(|(_, reader)| reader.connected);
            lines.extend(connected.map(|(uri, reader)| line(reader.serial, uri, "i", topic)));
        }
        for (topic, publication) in self.publications.iter() {
            let all = publication.subscribers.iter();
            lines.extend(all.map(|(id, found)| line(*id, &found.caller, "o", topic)));
        }
        Value::Array(lines)
    }
}

fn pair(topic: &str, type_name: &str) -> Value {
    Value::Array(vec![string_value(topic), string_value(type_name)])
}
