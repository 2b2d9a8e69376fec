// SPDX-License-Identifier: Apache-2.0
//! One run: hosts, nodes, a warm-up, the counted time, the wait for the last echoes, and its row.

use super::cgroup::Groups;
use super::load::Load;
use super::nodes::{COUNTDOWN, Nodes};
use super::row::{Counted, Row};
use super::scene::{Medium, Scene};
use super::ssh::Remote;
use super::system::System;
use super::watch::{Used, Watch};
use crate::air::Punctuality;
use crate::rig::processes::empty_folder;
use crate::setup::daemon::DaemonSetup;
use anyhow::{Context, Result};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Time for which a run publishes before the counted time.
const WARM_UP: Duration = Duration::from_secs(2);
/// Expected time of a run in addition to what it publishes: start and end of programs.
const START: Duration = Duration::from_secs(4);
/// Start of one node more.
const START_PER_NODE: Duration = Duration::from_millis(60);

/// A run.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Experiment that it belongs to.
    pub experiment: &'static str,
    /// System that carries the messages.
    pub system: System,
    /// Link between the hosts.
    pub medium: Medium,
    /// Number of hosts.
    pub hosts: usize,
    /// Load.
    pub load: Load,
    /// Processor time of each node, percent of one core.
    pub cpu_share_percent: Option<u32>,
}

/// What all runs have in common.
pub struct Common<'a> {
    /// Setup of the daemons.
    pub daemons: &'a DaemonSetup,
    /// Counted time.
    pub time: Duration,
    /// Senders, or echoers, that share a process.
    pub per_process: usize,
    /// Other machines that are the hosts; `None` for namespaces of this machine.
    pub there: Option<Rc<Vec<Remote>>>,
}

/// What was watched during the counted time.
struct Watched {
    used: Used,
    channel_percent: Option<f64>,
    punctuality: Option<Punctuality>,
}

impl Trial {
    /// Returns the run in one word, for folders.
    pub fn name(&self) -> String {
        let mut name =
            format!("{}-{}-{}", self.system.name(), self.medium.name(), self.load.name());
        if self.hosts != 2 {
            name += &format!("-{}hosts", self.hosts);
        }
        if let Some(percent) = self.cpu_share_percent {
            name += &format!("-{percent}percent");
        }
        name
    }

    /// Returns the approximate duration.
    pub fn duration(&self, time: Duration) -> Duration {
        START + WARM_UP + COUNTDOWN + time + START_PER_NODE * (2 * self.load.senders as u32)
    }

    /// Runs it. Raw samples and logs go to a folder that is created empty.
    pub fn run(&self, common: &Common, repetition: usize, folder: &Path) -> Result<Row> {
        empty_folder(folder)?;
        let folder = &std::path::absolute(folder)?;
        let mut row = self.measure(common, repetition, folder);
        if let Ok(row) = &mut row {
            let text = serde_json::to_string_pretty(row)?;
            std::fs::write(folder.join("row.json"), text)?;
        }
        row.with_context(|| format!("{}: {}", self.experiment, self.name()))
    }

    fn measure(&self, common: &Common, repetition: usize, folder: &Path) -> Result<Row> {
        let place = (self.system, self.medium, self.hosts);
        let there = common.there.as_ref();
        let mut scene = Scene::new(place, common.daemons, there, folder, repetition as u64)?;
        let mut nodes = Nodes::start(&scene, self.system, &self.load, common.per_process, folder)?;
        let groups = self.limit(&nodes)?;
        nodes.begin(&self.load, WARM_UP + common.time)?;
        let watched = self.watch(&mut scene, &nodes, common.time, there.is_some())?;
        nodes.finish(WARM_UP + common.time)?;
        scene.write_statuses(folder)?;
        let (counted, p95_periods) = self.count(&nodes, &scene)?;
        drop(nodes);
        drop(groups);
        let row = self.row(&counted, &watched, common.time, repetition)?;
        Ok(Row { p95_periods, ..row })
    }

    /// Gives each node its share of a core.
    fn limit(&self, nodes: &Nodes) -> Result<Option<Groups>> {
        let Some(percent) = self.cpu_share_percent else { return Ok(None) };
        let mut groups = Groups::new()?;
        for node in nodes.watched(f64::from(percent)) {
            groups.limit(&node.name, node.id, percent)?;
        }
        Ok(Some(groups))
    }

    /// Watches processes and the channel during the counted time.
    fn watch(
        &self,
        scene: &mut Scene,
        nodes: &Nodes,
        time: Duration,
        is_there: bool,
    ) -> Result<Watched> {
        let allowed = f64::from(self.cpu_share_percent.unwrap_or(100));
        std::thread::sleep(COUNTDOWN + WARM_UP);
        scene.count_from_now();
        let before = scene.channel();
        // What runs on other machines is not seen from here.
        let nodes = if is_there { Vec::new() } else { nodes.watched(allowed) };
        let watched = [nodes, scene.watched()].concat();
        let watch = Watch::start(watched)?;
        std::thread::sleep(time);
        let used = watch.stop()?;
        let channel = before.zip(scene.channel());
        let channel_percent = channel.map(|(before, after)| {
            100.0 * (after[0] - before[0]) as f64 / (after[1] - before[1]).max(1) as f64
        });
        Ok(Watched { used, channel_percent, punctuality: scene.punctuality()? })
    }

    /// Returns the number of a sender's first message that counts.
    fn first_counted(&self, sender: usize) -> u64 {
        (WARM_UP.as_secs_f64() * self.load.flow(sender).1).ceil() as u64
    }

    /// Returns the echoes of all senders, and the largest 95th percentile of a flow in its periods.
    fn count(&self, nodes: &Nodes, scene: &Scene) -> Result<(Counted, Option<f64>)> {
        let mut all = Counted::default();
        let mut flows: Vec<(f64, Counted)> = Vec::new();
        for (sender, echoes) in nodes.samples(scene)?.iter().enumerate() {
            let (first, hz) = (self.first_counted(sender), self.load.flow(sender).1);
            all.add(echoes, first, self.load.echoes());
            let known = flows.iter().position(|(of, _)| *of == hz);
            let known = known.unwrap_or_else(|| {
                flows.push((hz, Counted::default()));
                flows.len() - 1
            });
            flows[known].1.add(echoes, first, self.load.echoes());
        }
        // Without a single echo of a flow there is no figure, and the load is not held.
        let periods = flows.iter().map(|(hz, flow)| Some(flow.rtt()?.p95 * hz / 1000.0));
        let periods: Option<Vec<f64>> = periods.collect();
        Ok((all, periods.map(|periods| periods.into_iter().fold(0.0, f64::max))))
    }

    /// Returns the messages that all senders have to publish in the counted time.
    fn asked(&self, time: Duration) -> f64 {
        let of_one = |sender| {
            let all = ((WARM_UP + time).as_secs_f64() * self.load.flow(sender).1).ceil();
            all - self.first_counted(sender) as f64
        };
        (0..self.load.senders).map(of_one).sum()
    }

    fn row(
        &self,
        counted: &Counted,
        watched: &Watched,
        time: Duration,
        repetition: usize,
    ) -> Result<Row> {
        let (load, used) = (&self.load, &watched.used);
        let mut evidence = counted.evidence(self.asked(time))?;
        evidence.machine_percent = used.machine_percent;
        evidence.busiest = used.busiest.clone();
        evidence.channel_percent = watched.channel_percent;
        let late = watched.punctuality.as_ref().filter(|it| !it.counts);
        let late = late.map(|it| format!("the radio's emulator was late: {it}"));
        let per_second = |count: f64| count / time.as_secs_f64();
        Ok(Row {
            experiment: self.experiment,
            system: self.system,
            link: self.medium.name(),
            repetition,
            senders: load.senders,
            pairing: load.pairing,
            hosts: self.hosts,
            frequency_hz: load.hz,
            message_bytes: load.contents.bytes().unwrap_or(0),
            contents: load.kind(),
            cpu_share_percent: self.cpu_share_percent,
            sent: counted.sent,
            echoed: counted.echoed(),
            lost: counted.expected() - counted.echoed(),
            offered_per_s: load.offered_per_s(),
            published_per_s: per_second(counted.sent as f64),
            echoed_per_s: counted.echoed_per_s(),
            rtt_ms: counted.rtt(),
            p95_periods: None,
            rtt_quarters_ms: evidence.quarters_ms,
            machine_percent: used.machine_percent,
            channel_percent: watched.channel_percent,
            cpu: used.figures(|kind| self.handled(kind, counted)),
            limits: evidence.limits(),
            void: late.or_else(|| evidence.void()),
        })
    }

    /// Returns the messages and their echoes that one process of a kind handles.
    fn handled(&self, kind: &str, counted: &Counted) -> f64 {
        let per_node = counted.echoed() as f64 / self.load.senders as f64;
        match kind {
            "sender" | "echoer" => per_node,
            "daemon" => counted.echoed() as f64,
            _ => 0.0,
        }
    }
}
