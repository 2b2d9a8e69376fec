// SPDX-License-Identifier: Apache-2.0
//! Nodes of this domain for peers, and our nodes in the graph.

use super::Actor;
use crate::Event;
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::ros2::graph::{self, Node};
use crate::ros2::names;
use crate::ros2::nodes::OwnEndpoints;
use bytes::Bytes;
use std::time::Instant;
use tautline_dds::Guid;

impl Actor {
    pub(super) fn want_nodes(&mut self, wanted: bool) {
        self.node_reports.want(wanted, self.setup.context.started);
    }

    /// Reports the nodes of this domain, if that is due.
    pub(super) fn report_nodes(&mut self) {
        let announced = lock(&self.announced);
        let (topics, services) = (&self.topic_endpoints, &self.service_endpoints);
        let nodes = self.node_reports.take(&announced, topics, services);
        drop(announced);
        if let Some(nodes) = nodes {
            self.emit(Event::Nodes(nodes));
        }
    }

    /// The size of GUIDs depends on the version of ROS.
    pub(super) fn update_gid_bytes(&mut self) {
        let gid_bytes = self.observed_gid_bytes.get();
        self.graph_pace.changed |= self.gid_bytes != gid_bytes;
        self.gid_bytes = gid_bytes;
    }

    /// Publishes the endpoints of our node, if that is due.
    pub(super) fn update_graph(&mut self) {
        if !self.graph_pace.take(Instant::now()) {
            return;
        }
        let (namespace, name) = names::split_node_name(&self.setup.options.node_name);
        let subscriptions = self.subscribed.values().flatten();
        let mut readers: Vec<Guid> = subscriptions.flat_map(|it| it.guids()).collect();
        let publications = lock(&self.setup.publications);
        let all = publications.iter();
        let mut own = OwnEndpoints {
            writers: all.map(|(name, it)| (name.clone(), it.guids())).collect(),
            servers: self.services.servers().collect(),
        };
        drop(publications);
        let stand_ins = self.stand_ins.announce(&mut own, &lock(&self.announced));
        let mut writers: Vec<Guid> = own.writers.into_values().flatten().collect();
        for guids in own.servers.into_values().chain(self.services.clients()) {
            readers.push(guids.reader);
            writers.push(guids.writer);
        }
        writers.sort_unstable();
        let mut nodes = vec![Node { namespace, name, readers, writers }];
        nodes.extend(stand_ins);
        let guid = &self.setup.context.participant.guid;
        let message = match graph::write(guid, &nodes, self.gid_bytes) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) => return tracing::error!(%error, "the graph's message"),
        };
        if message == self.graph_sent {
            return;
        }
        match self.graph.write(message.clone(), None) {
            Ok(_) => self.graph_sent = message,
            Err(error) => {
                // Retried after the interval.
                self.graph_pace.changed = true;
                log_limited!(warn, {%error,}, "our node is not shown in the graph");
            }
        }
    }
}
