// SPDX-License-Identifier: Apache-2.0
//! The actor: takes each command and each discovery to the parts that it concerns. Each part has its own
//! state; an effect on another part is a returned value, or an argument.
//!
//! | part | state |
//! |---|---|
//! | [`Subscriptions`] | local topics: which are offered, and the readers of those that peers want |
//! | [`Publications`] | topics of peers: their types, and whether local nodes want them |
//! | [`Services`] | local services and calls of them; services of peers and replies to local clients |
//! | [`NodeGraph`] | our nodes in the graph, and reports of the nodes of others |

mod context;
mod node_graph;
mod publications;
mod services;
mod subscriptions;

use super::calls::Call;
use super::endpoints::Endpoints;
use super::nodes::{AnnouncedNodes, OwnEndpoints};
use super::order::Order;
use crate::lock::lock;
use crate::{Command, Event};
use context::Context;
pub use context::Setup;
use node_graph::NodeGraph;
use publications::Publications;
use services::Services;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use subscriptions::Subscriptions;
use tautline_dds::{DdsError, DiscoveryEvent};

/// Maximum number of orders that are processed before the actor updates the topics and services that
/// they have changed.
const BATCH: usize = 1024;

pub struct Actor {
    context: Context,
    topic_endpoints: Endpoints,
    service_endpoints: Endpoints,
    subscriptions: Subscriptions,
    publications: Publications,
    services: Services,
    graph: NodeGraph,
}

/// Topics and services to update.
#[derive(Default)]
struct Changed {
    topics: BTreeSet<String>,
    services: BTreeSet<String>,
}

impl Actor {
    /// Joins the graph and starts discovery.
    pub fn new(setup: Setup) -> Result<Self, DdsError> {
        let announced = Arc::<Mutex<AnnouncedNodes>>::default();
        discover(&setup, announced.clone())?;
        Ok(Self {
            graph: NodeGraph::join(&setup, announced)?,
            topic_endpoints: Endpoints::for_topics(),
            service_endpoints: Endpoints::for_services(),
            subscriptions: Subscriptions::new(&setup),
            publications: Publications::new(&setup),
            services: Services::new(&setup),
            context: Context::new(setup),
        })
    }

    /// Runs until stopped, or until all senders of orders are dropped.
    pub fn run(mut self, orders: &Receiver<Order>) {
        self.update_graph();
        while let Ok(first) = self.next_order(orders) {
            let topics = self.subscriptions.count(&self.context, &self.topic_endpoints);
            let mut changed = Changed { topics, ..Changed::default() };
            changed.topics.extend(self.context.liveliness.take_losses(Instant::now()));
            let more = std::iter::from_fn(|| orders.try_recv().ok()).take(BATCH);
            for order in first.into_iter().chain(more) {
                match order {
                    Order::Execute(command) => self.command(command, &mut changed),
                    Order::Discovered(event) => {
                        self.graph.on_discovered();
                        self.on_discovery(&event, &mut changed);
                    }
                    Order::GidSizeChanged => self.graph.update_gid_bytes(),
                    Order::NodesChanged => self.graph.on_nodes_changed(),
                    Order::WritersChanged => self.graph.on_own_change(),
                    Order::Count(topic, due) => self.subscriptions.count_at(&topic, due),
                    Order::LivelinessChanged(topic) => drop(changed.topics.insert(topic)),
                    Order::Emit(event) => self.context.emit(event),
                    Order::Stop => return lock(&self.context.setup.publications).clear(),
                }
            }
            self.update(&changed);
        }
    }

    /// The next order; `None` if a timer expires first.
    fn next_order(&self, orders: &Receiver<Order>) -> Result<Option<Order>, RecvTimeoutError> {
        let now = Instant::now();
        let timers = [
            self.subscriptions.next_due(),
            self.services.next_wake(now),
            self.graph.next_due(now),
            self.context.liveliness.next_due(),
            self.publications.next_due(),
        ];
        let Some(wake) = timers.into_iter().flatten().min() else {
            return orders.recv().map(Some).map_err(|_| RecvTimeoutError::Disconnected);
        };
        match orders.recv_timeout(wake.saturating_duration_since(now)) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            other => other.map(Some),
        }
    }

    fn command(&mut self, command: Command, changed: &mut Changed) {
        let context = &mut self.context;
        match command {
            Command::Subscribe { topic } => {
                self.subscriptions.add(&topic);
                changed.topics.insert(topic);
            }
            Command::Unsubscribe { topic } => self.subscriptions.remove(context, &topic),
            Command::Advertise { topic } => {
                changed.topics.insert(topic.name.clone());
                self.publications.add(topic);
            }
            Command::Unadvertise { topic } => {
                self.publications.remove(context, &self.topic_endpoints, &topic);
            }
            // These commands do not reach the actor.
            Command::Publish { .. } | Command::Forget { .. } => {}
            Command::Serve { service } => {
                self.services.serve(context, &self.service_endpoints, service);
            }
            Command::Unserve { service } => self.services.unserve(context, &service),
            Command::Answer { service, call, outcome } => {
                self.services.answer(context, service, call, outcome);
            }
            Command::Call { service, call, request, time_limit, .. } => {
                let deadline = Instant::now() + time_limit;
                self.services.call(context, Call { service, call, request, time_limit, deadline });
            }
            Command::Describe { nodes, .. } => self.graph.want_reports(nodes, &context.setup),
            Command::ShowNodes { peer, nodes } => {
                self.graph.stand_ins.set(peer, nodes);
                self.graph.on_own_change();
            }
            // Parameters of ROS 1; those of ROS 2 are services of each node.
            Command::ShowParameters { .. } | Command::SetParameters { .. } => {}
            Command::SetMaxMessage { .. } => {}
            Command::Reselect => {
                self.subscriptions.reselect(context, &self.topic_endpoints);
                changed.topics.extend(self.topic_endpoints.names().map(str::to_owned));
                changed.services.extend(self.service_endpoints.names().map(str::to_owned));
            }
        }
    }

    fn on_discovery(&mut self, event: &DiscoveryEvent, changed: &mut Changed) {
        let context = &self.context;
        changed.services.extend(self.service_endpoints.on_event(event));
        if let DiscoveryEvent::WriterGone { guid } = event {
            context.setup.endpoints.callers.with(|it| it.forget(*guid));
        }
        if let Some(topic) = self.topic_endpoints.on_event(event) {
            self.subscriptions.on_discovered(context, &topic, event);
            self.publications.on_discovered(context, &topic, event);
            changed.topics.insert(topic);
        }
        let text = match self.topic_endpoints.left_out + self.service_endpoints.left_out {
            0 => String::new(),
            count => format!("the domain has too many endpoints: {count} are left out"),
        };
        context.set_trouble("", "discovery", text);
    }

    /// Updates what has changed, and does what is due.
    fn update(&mut self, changed: &Changed) {
        let context = &mut self.context;
        for topic in &changed.topics {
            self.subscriptions.update(context, &self.topic_endpoints, topic);
            self.publications.update(context, &self.topic_endpoints, topic);
            self.publications.report_keys(context, &self.topic_endpoints, topic);
        }
        for service in &changed.services {
            self.services.update(context, &self.service_endpoints, service);
        }
        self.services.advance(context, &self.service_endpoints, Instant::now());
        self.publications.assert_liveliness(context, Instant::now());
        self.publications.end_rediscovery(context, Instant::now());
        let report = self.graph.take_report(&self.topic_endpoints, &self.service_endpoints);
        if let Some(nodes) = report {
            context.emit(Event::Nodes(nodes));
        }
        self.update_graph();
    }

    /// Publishes the endpoints of our nodes, if that is due.
    fn update_graph(&mut self) {
        if std::mem::take(&mut self.context.endpoints_changed) {
            self.graph.on_own_change();
        }
        if !self.graph.take_due(Instant::now()) {
            return;
        }
        let own = OwnEndpoints {
            writers: self.publications.guids(&self.context),
            servers: self.services.servers().collect(),
        };
        let readers = self.subscriptions.guids().collect();
        self.graph.announce(&self.context.setup, readers, own, self.services.clients());
    }
}

/// Starts discovery: its thread keeps the known writers, readers and nodes, and sends orders.
fn discover(setup: &Setup, announced: Arc<Mutex<AnnouncedNodes>>) -> Result<(), DdsError> {
    let endpoints = &setup.endpoints;
    let (writers, readers) = (endpoints.writers.clone(), endpoints.readers.clone());
    let orders = setup.orders.clone();
    endpoints.participant.discover(move |event| {
        writers.on_event(&event);
        readers.on_event(&event);
        if lock(&announced).on_event(&event) {
            let _ = orders.send(Order::NodesChanged);
        }
        // Fails only while the gateway stops.
        let _ = orders.send(Order::Discovered(event));
    })
}
