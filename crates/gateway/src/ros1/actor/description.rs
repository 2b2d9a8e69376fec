// SPDX-License-Identifier: Apache-2.0
//! Nodes and parameters at this master, reported to peers; and copies of the parameters of peers.

use super::context::Context;
use crate::Event;
use crate::description::{MAX_PARAMETERS, Nodes, Parameters};
use crate::ros1::master::{Master, NodesByName, Snapshot};
use crate::ros1::mirror::{self, Mirrored, Mirrors};
use crate::ros1::note::Note;
use crate::ros1::stand_ins::is_stand_in;
use crate::ros1::xmlrpc::CallError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Least time between two requests of all parameters, and between two comparisons of the parameters of
/// a peer, whatever the peer sends. Half a megabyte costs the master some 50 ms.
const PARAMETER_PERIOD: Duration = Duration::from_secs(2);
/// Time limit of the calls that remove copies of parameters when the gateway stops. The systemd unit
/// has ten seconds to stop.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The report of this robot's nodes and parameters, and the lists of peers that are shown here.
#[derive(Debug, Default)]
pub(super) struct RobotDescription {
    /// The nodes as last reported.
    nodes: Option<Nodes>,
    /// The parameters as last reported.
    parameters: Option<Parameters>,
    wants_nodes: bool,
    wants_parameters: bool,
    requested: Option<Instant>,
    /// Values of peers that wait until earlier values are set, at most [`MAX_PARAMETERS`].
    to_set: Parameters,
    is_setting: bool,
    pub mirrors: Mirrors,
}

impl RobotDescription {
    /// Sets what is reported from the next poll or a later one on. The delay keeps a peer that wants the
    /// lists again and again from keeping the master busy.
    pub fn set_wanted(&mut self, nodes: bool, parameters: bool) {
        if !(nodes && self.wants_nodes) {
            self.nodes = None;
        }
        if !(parameters && self.wants_parameters) {
            self.parameters = None;
        }
        (self.wants_nodes, self.wants_parameters) = (nodes, parameters);
    }

    /// Reports nodes if they have changed, and requests parameters if it is time.
    pub fn on_snapshot(&mut self, context: &Context, snapshot: &Snapshot) {
        if self.wants_nodes {
            let nodes = nodes_of(snapshot, context.own_name());
            if self.nodes.as_ref() != Some(&nodes) {
                self.nodes = Some(nodes.clone());
                context.emit(Event::Nodes(nodes));
            }
        }
        let is_due = |at: Instant| at.elapsed() >= PARAMETER_PERIOD;
        if self.wants_parameters && self.requested.is_none_or(is_due) {
            self.requested = Some(Instant::now());
            let master = context.prober.master.clone();
            context.spawn(async move {
                let found = master.parameters("/").await;
                Note::Parameters(found.map(|found| mirror::own_parameters(found.as_ref())))
            });
        }
        context.setup.shared.troubles.report("", "copies", self.mirrors.trouble());
        for (peer, job) in self.mirrors.start_due_jobs(Instant::now()) {
            let master = context.prober.master.clone();
            context.spawn(async move { Note::Mirrored { peer, mirrored: job.run(&master).await } });
        }
    }

    /// The parameters of this robot have been requested.
    pub fn on_parameters(&mut self, context: &Context, found: Result<Parameters, CallError>) {
        match found {
            Ok(found) => {
                let is_news = self.parameters.as_ref() != Some(&found);
                if self.wants_parameters && is_news {
                    self.parameters = Some(found.clone());
                    context.emit(Event::Parameters(found));
                }
            }
            Err(error) => tracing::debug!(%error, "the parameters of this robot"),
        }
    }

    /// The copies of a peer's parameters have been compared with its own.
    pub fn on_mirrored(&mut self, context: &Context, peer: u32, mut mirrored: Mirrored) {
        if let Some(error) = &mirrored.error {
            tracing::debug!(%error, "parameters of a peer");
        }
        let parameters = std::mem::take(&mut mirrored.changed);
        self.mirrors.on_job_done(peer, mirrored, PARAMETER_PERIOD, Instant::now());
        if !parameters.is_empty() {
            context.emit(Event::ParametersChanged { peer, parameters });
        }
    }

    /// Sets parameters on behalf of a peer, which gets the new values with the next report.
    pub fn set(&mut self, context: &Context, parameters: Parameters) {
        let waiting = &mut self.to_set;
        for (name, value) in parameters {
            if waiting.len() < MAX_PARAMETERS || waiting.contains_key(&name) {
                waiting.insert(name, value);
            }
        }
        if !self.is_setting {
            self.set_waiting(context);
        }
    }

    /// Sets the waiting parameters, in one job at a time: a peer that sends values without end must not
    /// keep the master from others.
    fn set_waiting(&mut self, context: &Context) {
        let parameters = std::mem::take(&mut self.to_set);
        self.is_setting = !parameters.is_empty();
        if self.is_setting {
            let master = context.prober.master.clone();
            context.spawn(async move {
                Note::ParametersSet(mirror::set_existing(&master, parameters).await)
            });
        }
    }

    /// Parameters have been set on behalf of a peer.
    pub fn on_set(&mut self, context: &Context, done: Result<(), CallError>) {
        if let Err(error) = done {
            tracing::debug!(%error, "parameters on behalf of a peer");
        }
        self.set_waiting(context);
    }

    /// Removes all copies of parameters, within a time limit.
    pub async fn remove_copies(&mut self, context: &Context) {
        let setup = &context.setup;
        // A separate connection: that of the context accepts no further calls.
        let master = Arc::new(Master::new(setup.master.clone(), setup.own.clone()));
        if timeout(REMOVE_TIMEOUT, self.mirrors.remove_all(&master)).await.is_err() {
            let seconds = REMOVE_TIMEOUT.as_secs();
            tracing::warn!(
                "copies of parameters of peers are still at the ROS master: their removal took \
                 more than {seconds} s"
            );
        }
    }
}

/// The nodes that a master lists, except ours and stand-ins of other daemons.
fn nodes_of(snapshot: &Snapshot, own: &str) -> Nodes {
    let mut nodes = Nodes::new();
    let Snapshot { publishers, subscribers, services, .. } = snapshot;
    let names = |all: &NodesByName| -> Vec<(String, String)> {
        let pairs = all.iter().flat_map(|(name, nodes)| nodes.iter().map(move |it| (it, name)));
        pairs.filter(|(node, _)| *node != own).map(|(a, b)| (a.clone(), b.clone())).collect()
    };
    for (node, topic) in names(publishers) {
        nodes.entry(node).or_default().publishes.insert(topic);
    }
    for (node, service) in names(services) {
        nodes.entry(node).or_default().serves.insert(service);
    }
    for (node, _) in names(subscribers) {
        nodes.entry(node).or_default();
    }
    nodes.retain(|name, _| !is_stand_in(snapshot, name));
    nodes
}
