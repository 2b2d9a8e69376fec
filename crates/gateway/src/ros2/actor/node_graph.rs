// SPDX-License-Identifier: Apache-2.0
//! Nodes of this domain for peers, and our nodes in the graph.

use super::context::Setup;
use crate::description::Nodes;
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::ros2::endpoints::Endpoints;
use crate::ros2::graph::{self, GidBytes, Node, ObservedGidBytes, Pacer};
use crate::ros2::names;
use crate::ros2::nodes::{AnnouncedNodes, OwnEndpoints, Reports, StandIns};
use crate::ros2::order::Order;
use crate::ros2::served::EndpointGuids;
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tautline_dds::{DdsError, Guid, Qos as Dds, RawReader, RawWriter, SampleInfo, Specification};

/// Our node in the graph, those of peers that we show there, and the nodes of other participants.
pub struct NodeGraph {
    writer: RawWriter,
    _reader: RawReader,
    gid_bytes: GidBytes,
    observed_gid_bytes: Arc<ObservedGidBytes>,
    /// The last message of our node.
    sent: Bytes,
    pace: Pacer,
    /// The nodes of other participants.
    announced: Arc<Mutex<AnnouncedNodes>>,
    reports: Reports,
    pub stand_ins: StandIns,
}

impl NodeGraph {
    /// Joins the graph. The discovery thread keeps the nodes that are `announced`.
    pub fn join(setup: &Setup, announced: Arc<Mutex<AnnouncedNodes>>) -> Result<Self, DdsError> {
        let participant = &setup.endpoints.participant;
        let dds = Dds {
            durability: 1,
            depth: 1,
            ignore_own: true,
            user_data: names::endpoint_user_data("", &setup.options.tautline_name).into_bytes(),
            max_blocking_time: 0,
            ..Dds::default()
        };
        let specification =
            Specification { topic: graph::TOPIC, type_name: graph::TYPE, qos: &dds };
        let orders = setup.orders.clone();
        let observed_gid_bytes = Arc::<ObservedGidBytes>::default();
        let observer = observed_gid_bytes.clone();
        let announcements = announced.clone();
        let observe = move |bytes: Bytes, info: &SampleInfo| {
            let Some((participant, writer)) = graph::read(&bytes).zip(info.writer) else { return };
            if observer.on_message(participant.gid_bytes) {
                let _ = orders.send(Order::GidSizeChanged);
            }
            if lock(&announcements).on_message(&writer, participant.nodes) {
                let _ = orders.send(Order::NodesChanged);
            }
        };
        let reader = RawReader::new(participant, specification, observe, |_, _| ())?;
        Ok(Self {
            writer: RawWriter::new(participant, specification, |_, _| ())?,
            _reader: reader,
            gid_bytes: GidBytes::Sixteen,
            observed_gid_bytes,
            sent: Bytes::new(),
            pace: Pacer::default(),
            announced,
            reports: Reports::default(),
            stand_ins: StandIns::default(),
        })
    }

    /// The time of the next report or message.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        self.pace.next_message_time(now).into_iter().chain(self.reports.next_due()).min()
    }

    /// Sets whether a peer wants to know the nodes of this domain.
    pub fn want_reports(&mut self, wanted: bool, setup: &Setup) {
        self.reports.set_wanted(wanted, setup.endpoints.started);
    }

    /// Records that endpoints of the domain have appeared or left.
    pub fn on_discovered(&mut self) {
        self.reports.on_change();
    }

    /// Nodes of the domain have changed.
    pub fn on_nodes_changed(&mut self) {
        lock(&self.announced).on_notified();
        self.reports.on_change();
        // A node may have taken the name of a stand-in, or have left it.
        self.pace.changed |= !self.stand_ins.is_empty();
    }

    /// Records that our endpoints have changed.
    pub fn on_own_change(&mut self) {
        self.pace.changed = true;
    }

    /// The nodes of this domain, if a report is due.
    pub fn take_report(&mut self, topics: &Endpoints, services: &Endpoints) -> Option<Nodes> {
        let announced = lock(&self.announced);
        self.reports.take(&announced, topics, services)
    }

    /// Adopts the size of GUIDs that other participants use. It depends on their version of ROS.
    pub fn update_gid_bytes(&mut self) {
        let gid_bytes = self.observed_gid_bytes.get();
        self.pace.changed |= self.gid_bytes != gid_bytes;
        self.gid_bytes = gid_bytes;
    }

    /// Whether to announce our endpoints now; if so, that counts as done.
    pub fn take_due(&mut self, now: Instant) -> bool {
        self.pace.take(now)
    }

    /// Publishes the endpoints of our nodes: readers of topics, writers and servers by name, and `clients`.
    pub fn announce(
        &mut self,
        setup: &Setup,
        mut readers: Vec<Guid>,
        mut own: OwnEndpoints,
        clients: impl Iterator<Item = EndpointGuids>,
    ) {
        let (namespace, name) = names::split_node_name(&setup.options.node_name);
        let stand_ins = self.stand_ins.announce(&mut own, &lock(&self.announced));
        let mut writers: Vec<Guid> = own.writers.into_values().flatten().collect();
        for guids in own.servers.into_values().chain(clients) {
            readers.push(guids.reader);
            writers.push(guids.writer);
        }
        writers.sort_unstable();
        let mut nodes = vec![Node { namespace, name, readers, writers }];
        nodes.extend(stand_ins);
        let guid = &setup.endpoints.participant.guid;
        let message = match graph::write(guid, &nodes, self.gid_bytes) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) => return tracing::error!(%error, "the graph's message"),
        };
        if message == self.sent {
            return;
        }
        match self.writer.write(message.clone(), None) {
            Ok(_) => self.sent = message,
            Err(error) => {
                // Retried after the interval.
                self.pace.changed = true;
                log_limited!(warn, {%error,}, "our node is not shown in the graph");
            }
        }
    }
}
