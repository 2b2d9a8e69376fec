// SPDX-License-Identifier: Apache-2.0
//! A scenario's Tautline flows, carried by real nodes in the stations: `tautline-lab traffic`,
//! whose gateway generates and records messages.

use super::kernel::interface;
use super::station::Air;
use crate::rig::node_file::NodeFile;
use crate::rig::staging::{Link, links};
use crate::rig::stats::{Arrival, Samples};
use crate::scenario::{Flow, Over, Pace, Scenario};
use crate::setup::node::Node;
use crate::setup::traffic::MadeTopic;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use tautline_medium::Nanos;
use tautline_proto::{DeliveryOrder, LinkPolicy, Rate};

/// Time for the handshakes of all nodes, before the scenario starts.
pub const MEETING: Nanos = 8_000_000_000;
/// Time that nodes wait for the outcome of their last messages.
const SETTLE: Duration = Duration::from_secs(10);

/// The nodes of a run.
pub struct Nodes {
    nodes: BTreeMap<usize, Node>,
    /// Stations whose nodes make messages.
    makers: BTreeSet<usize>,
}

/// Returns the topic of a flow: ROS allows no '-' in a name.
fn topic(flow: &Flow) -> String {
    format!("/{}", flow.name.replace('-', "_"))
}

fn by_nodes(scenario: &Scenario) -> impl Iterator<Item = &Flow> + Clone {
    scenario.flows.iter().filter(|flow| flow.over == Over::Tautline)
}

/// Returns an error if real time does not support a flow.
pub fn check(scenario: &Scenario) -> Result<()> {
    for flow in by_nodes(scenario) {
        if flow.echo {
            bail!("flow '{}': in real time echo is for 'over: udp' (sim has both)", flow.name);
        }
    }
    Ok(())
}

impl Nodes {
    /// Starts a node in each station that has a Tautline flow.
    pub fn start(air: &Air, scenario: &Scenario, folder: &Path) -> Result<Self> {
        let ends = by_nodes(scenario).flat_map(|flow| [flow.from, flow.to]);
        let stations: BTreeSet<usize> = ends.collect();
        let start = |station: usize| Ok((station, start(air, scenario, station, folder)?));
        let nodes = stations.into_iter().map(start).collect::<Result<_>>()?;
        Ok(Self { nodes, makers: by_nodes(scenario).map(|flow| flow.from).collect() })
    }

    /// Calls `task` on each node that makes messages.
    fn each_maker(&mut self, task: impl Fn(&mut Node) -> Result<()>) -> Result<()> {
        let makers = self.nodes.iter_mut().filter(|(station, _)| self.makers.contains(station));
        makers.map(|(_, node)| node).try_for_each(task)
    }

    /// Waits until all sessions are established.
    pub fn meet(&mut self) -> Result<()> {
        self.each_maker(|node| node.await_ready(Duration::from_nanos(MEETING)))
    }

    /// Starts the load.
    pub fn go(&mut self, seconds: f64) -> Result<()> {
        self.each_maker(|node| node.go(seconds))
    }

    /// Waits until the load ends (at most a little longer than `remaining`), and then ends the nodes.
    /// Returns the samples of each flow, in the emulator's time.
    pub fn finish(
        mut self,
        scenario: &Scenario,
        origin: u64,
        remaining: Duration,
    ) -> Result<BTreeMap<usize, Samples>> {
        self.each_maker(|node| node.await_done(remaining + SETTLE).map(drop))?;
        self.nodes.values_mut().try_for_each(Node::close)?;
        let flows = scenario.flows.iter().enumerate();
        let ours = flows.filter(|(_, flow)| flow.over == Over::Tautline);
        ours.map(|(number, flow)| Ok((number, self.samples(flow, origin)?))).collect()
    }

    fn samples(&self, flow: &Flow, origin: u64) -> Result<Samples> {
        let topic = topic(flow);
        let node = |station: usize| self.nodes.get(&station).context("no node");
        let clock = |time: u64| time.saturating_sub(origin);
        let received = node(flow.to)?.received()?.into_iter().filter(|it| it.topic == topic);
        let arrivals = received.map(|it| Arrival {
            sent_ns: clock(it.arrival.sent_ns),
            received_ns: clock(it.arrival.received_ns),
            ..it.arrival
        });
        let sent = node(flow.from)?.sent_times(&topic)?;
        Ok(Samples { sent_ns: sent.into_iter().map(clock).collect(), arrivals: arrivals.collect() })
    }
}

fn start(air: &Air, scenario: &Scenario, station: usize, folder: &Path) -> Result<Node> {
    let name = &scenario.stations[station].name;
    let file = node_file(scenario, station).write(folder)?;
    let made: Vec<&Flow> = by_nodes(scenario).filter(|flow| flow.from == station).collect();
    let mut options = vec![format!("--channels={}", made.len())];
    for flow in made {
        let Pace::Every(period) = flow.pace else { continue };
        let made = MadeTopic {
            topic: topic(flow),
            bytes: flow.bytes as usize,
            period: Duration::from_nanos(period),
            start: Duration::from_nanos(flow.start),
            count: flow.count,
        };
        options.push(format!("--make={made}"));
    }
    let lab = air.command(station, std::env::current_exe()?);
    Node::start(name, lab, &file, &options, folder)
}

fn node_file(scenario: &Scenario, station: usize) -> NodeFile<'_> {
    let name = |station: usize| scenario.stations[station].name.as_str();
    let flows = by_nodes(scenario);
    let peers: BTreeSet<usize> = flows
        .clone()
        .filter_map(|flow| match (flow.from == station, flow.to == station) {
            (true, _) => Some(flow.to),
            (_, true) => Some(flow.from),
            _ => None,
        })
        .collect();
    let entry = |&peer: &usize| {
        let links = links(scenario, station, peer);
        let links: Vec<String> = links.iter().map(|link| link_text(scenario, link)).collect();
        (name(peer), format!("links: [{}]", links.join(", ")))
    };
    let rate = match scenario.tautline.rate {
        Rate::PerLink(control) => format!(", rate: {}", control.name),
        Rate::Fixed(bps) => format!(", rate: {bps}bps"),
    };
    let in_flight = scenario.tautline.in_flight;
    let radio = |index| format!("  {}: {{ in_flight: {in_flight}{rate} }}\n", interface(index));
    let radios = (0..scenario.stations[station].networks.len()).map(radio).collect();
    let made = flows.filter(|flow| flow.from == station);
    let topics = made.map(|flow| rule(scenario, flow)).collect();
    let peers = peers.iter().map(entry).collect();
    let dscp = scenario.tautline.dscp;
    let rest = format!("ros1: false\ndscp: {dscp}");
    NodeFile { name: name(station), peers, radios, topics, rest }
}

/// Formats the line of a flow's topic for the node's configuration file.
fn rule(scenario: &Scenario, flow: &Flow) -> String {
    let keep_last = flow.keep_last.map(|count| format!(", keep_last: {count}"));
    let lifespan = flow.lifespan.map(|ns| format!(", lifespan: {}us", ns / 1000));
    format!(
        "  {}: {{ priority: {}, to: [{}]{}{}{}{} }}\n",
        topic(flow),
        flow.priority,
        scenario.stations[flow.to].name,
        keep_last.unwrap_or_default(),
        lifespan.unwrap_or_default(),
        link_use_text(scenario, flow),
        order(flow.order)
    )
}

/// Formats the order in which a flow's messages are delivered, with the default wait for missing
/// messages.
fn order(order: DeliveryOrder) -> &'static str {
    match order {
        DeliveryOrder::Arrival => "",
        DeliveryOrder::Sent { .. } => ", order: sent",
        DeliveryOrder::Newest => ", order: newest",
    }
}

/// Formats how a flow uses the links, which have the names of their networks.
fn link_use_text(scenario: &Scenario, flow: &Flow) -> String {
    let mut text = format!(", links: {}", flow.links.as_str());
    if let LinkPolicy::Duplicate(copies) = flow.links {
        let _ = write!(text, ", copies: {copies}");
    }
    if !flow.repair {
        text.push_str(", repair: false");
    }
    if let Some(percent) = flow.fec {
        let _ = write!(text, ", fec: {percent}");
    }
    for (key, networks) in [("only_links", &flow.only_links), ("avoid_links", &flow.avoid_links)] {
        let names: Vec<&str> =
            networks.iter().map(|it| scenario.networks[*it].name.as_str()).collect();
        if !names.is_empty() {
            let _ = write!(text, ", {key}: [{}]", names.join(", "));
        }
    }
    text
}

/// Formats a link for the node's configuration file.
fn link_text(scenario: &Scenario, link: &Link) -> String {
    let [_, there] = link.ends;
    let name = link.network.map(|it| format!("name: {}, ", scenario.networks[it].name));
    let by = link.by.map(|index| format!(", interface: {}", interface(index)));
    format!("{{ {}address: {there}{} }}", name.unwrap_or_default(), by.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::treatment::{LinkChoice, LinkRule};

    #[test]
    fn the_daemon_accepts_the_links_of_flows() {
        let scenario = crate::scenario::named("two-radios").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = node_file(&scenario, 0).write(folder.path()).unwrap();
        let config = tautline::config::load(&file).unwrap().config;
        let names: Vec<_> = config.peers[0].links.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["wifi", "lte"]);
        let rules = config.topics.iter().map(|rule| &rule.treatment.links);
        let rule = |choice| LinkRule { choice: Some(choice), ..LinkRule::default() };
        let only_wifi = LinkRule { only: vec!["wifi".into()], ..rule(LinkChoice::Stripe) };
        let expected = [&rule(LinkChoice::Best), &rule(LinkChoice::Stripe), &only_wifi];
        assert_eq!(rules.collect::<Vec<_>>(), expected);
    }
}
