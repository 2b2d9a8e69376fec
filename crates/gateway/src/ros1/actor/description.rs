// SPDX-License-Identifier: Apache-2.0
//! What peers are told of the nodes and parameters at this master, and what of theirs is shown here.

use super::Actor;
use crate::Event;
use crate::description::{MAX_PARAMETERS, Nodes, Parameters};
use crate::ros1::master::{NodesByName, Snapshot};
use crate::ros1::mirror::{self, Mirrored};
use crate::ros1::note::Note;
use crate::ros1::stand_ins::is_stand_in;
use crate::ros1::xmlrpc::CallError;
use std::time::{Duration, Instant};

/// Least time between two requests of all parameters, and between two comparisons of those of a peer,
/// whatever the peer sends. Half a megabyte costs the master some 50 ms.
const PARAMETER_PERIOD: Duration = Duration::from_secs(2);

/// What is reported of this robot, as last reported.
#[derive(Debug, Default)]
pub(super) struct Described {
    nodes: Option<Nodes>,
    parameters: Option<Parameters>,
    wants_nodes: bool,
    wants_parameters: bool,
    requested: Option<Instant>,
    /// Values of peers that wait until those before them are set, at most [`MAX_PARAMETERS`].
    to_set: Parameters,
    is_setting: bool,
}

impl Actor {
    /// From the next poll on, or a later one: a peer that wants the lists again and again must not keep
    /// the master busy.
    pub(super) fn set_described(&mut self, nodes: bool, parameters: bool) {
        let described = &mut self.described;
        if !(nodes && described.wants_nodes) {
            described.nodes = None;
        }
        if !(parameters && described.wants_parameters) {
            described.parameters = None;
        }
        (described.wants_nodes, described.wants_parameters) = (nodes, parameters);
    }

    /// Reports nodes if they have changed, and requests parameters if it is time.
    pub(super) fn describe(&mut self, snapshot: &Snapshot) {
        if self.described.wants_nodes {
            let nodes = nodes_of(snapshot, &self.setup.own.name);
            if self.described.nodes.as_ref() != Some(&nodes) {
                self.described.nodes = Some(nodes.clone());
                self.emit(Event::Nodes(nodes));
            }
        }
        let is_due = |at: Instant| at.elapsed() >= PARAMETER_PERIOD;
        if self.described.wants_parameters && self.described.requested.is_none_or(is_due) {
            self.described.requested = Some(Instant::now());
            let master = self.prober.master.clone();
            self.spawn(async move {
                let found = master.parameters("/").await;
                Note::Parameters(found.map(|found| mirror::own_parameters(found.as_ref())))
            });
        }
        self.setup.shared.troubles.report("", "copies", self.mirrors.trouble());
        for (peer, job) in self.mirrors.due(Instant::now()) {
            let master = self.prober.master.clone();
            self.spawn(async move { Note::Mirrored { peer, mirrored: job.run(&master).await } });
        }
    }

    pub(super) fn parameters_found(&mut self, found: Result<Parameters, CallError>) {
        match found {
            Ok(found) => {
                let is_news = self.described.parameters.as_ref() != Some(&found);
                if self.described.wants_parameters && is_news {
                    self.described.parameters = Some(found.clone());
                    self.emit(Event::Parameters(found));
                }
            }
            Err(error) => tracing::debug!(%error, "the parameters of this robot"),
        }
    }

    /// Shows the nodes of a peer at this master, from the next poll.
    pub(super) fn stand_in(&mut self, peer: u32, nodes: Nodes) {
        self.stand_ins.set(peer, nodes);
    }

    pub(super) fn mirrored(&mut self, peer: u32, mut mirrored: Mirrored) {
        if let Some(error) = &mirrored.error {
            tracing::debug!(%error, "parameters of a peer");
        }
        let parameters = std::mem::take(&mut mirrored.changed);
        self.mirrors.finish(peer, mirrored, PARAMETER_PERIOD, Instant::now());
        if !parameters.is_empty() {
            self.emit(Event::Changed { peer, parameters });
        }
    }

    /// Sets parameters on behalf of a peer, which gets the new values with the next report.
    pub(super) fn set_parameters(&mut self, parameters: Parameters) {
        let waiting = &mut self.described.to_set;
        for (name, value) in parameters {
            if waiting.len() < MAX_PARAMETERS || waiting.contains_key(&name) {
                waiting.insert(name, value);
            }
        }
        if !self.described.is_setting {
            self.set_waiting();
        }
    }

    /// One job at a time: a peer that sends values without end must not keep the master from others.
    fn set_waiting(&mut self) {
        let parameters = std::mem::take(&mut self.described.to_set);
        self.described.is_setting = !parameters.is_empty();
        if self.described.is_setting {
            let master = self.prober.master.clone();
            self.spawn(async move {
                Note::ParametersSet(mirror::set_existing(&master, parameters).await)
            });
        }
    }

    pub(super) fn parameters_set(&mut self, done: Result<(), CallError>) {
        if let Err(error) = done {
            tracing::debug!(%error, "parameters on behalf of a peer");
        }
        self.set_waiting();
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
