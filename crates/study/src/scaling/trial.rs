// SPDX-License-Identifier: Apache-2.0
//! One run: hosts, nodes, a warm-up, the counted time, the wait for the last echoes, and its row.

use super::cgroup::Groups;
use super::experiment::Experiment;
use super::limit::Evidence;
use super::load::Load;
use super::nodes::{COUNTDOWN, Nodes};
use super::queue::{Measured, Meter, Queued};
use super::row::{Counted, Row};
use super::scene::{Dropped, Medium, Scene};
use super::system::{Library, System};
use super::watch::{Used, Watch};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;
use tautline_lab::air::Punctuality;
use tautline_lab::rig::processes::{empty_folder, word};
use tautline_lab::setup::daemon::DaemonSetup;

/// Duration of publishing before the counted time.
pub const WARM_UP: Duration = Duration::from_secs(1);
/// Expected time that a run needs to start and end its programs.
const START: Duration = Duration::from_millis(1400);
/// Expected time to start one more node in C++.
const START_PER_NODE: Duration = Duration::from_millis(15);
/// Expected time to start one more node in Python.
const START_PER_PYTHON_NODE: Duration = Duration::from_millis(110);

/// A run.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Experiment that the run belongs to.
    pub experiment: Experiment,
    /// System that carries the messages.
    pub system: System,
    /// Link between the hosts.
    pub medium: Medium,
    /// Number of hosts.
    pub hosts: usize,
    /// Load.
    pub load: Load,
    /// Processor time that each node may use, percent of one core; `None` without a limit.
    pub cpu_share_percent: Option<u32>,
}

/// The common settings of all runs.
pub struct Common<'a> {
    /// Setup of the daemons.
    pub daemons: &'a DaemonSetup,
    /// Counted time.
    pub time: Duration,
}

/// Measurements during the counted time.
struct Watched {
    used: Used,
    measured: Measured,
    punctuality: Option<Punctuality>,
    dropped: Option<Dropped>,
}

/// The returned echoes.
struct Outcome {
    all: Counted,
    /// The largest of the flows' 95th percentiles, each in periods of its flow; `None` if a flow has no
    /// echoes.
    p95_periods: Option<f64>,
    /// Median round trips of the first and last quarter, for the flow in which they grow most:
    /// otherwise the many commands would hide the few scans.
    rtt_quarters_ms: Option<[f64; 2]>,
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
        let each = match self.system.client_library() {
            Library::Roscpp => START_PER_NODE,
            _ => START_PER_PYTHON_NODE,
        };
        START + WARM_UP + COUNTDOWN + time + each * (2 * self.load.senders as u32)
    }

    /// Runs the trial. Raw samples and logs go to a new folder.
    pub fn run(&self, common: &Common, repetition: usize, folder: &Path) -> Result<Row> {
        empty_folder(folder)?;
        let folder = &std::path::absolute(folder)?;
        let mut row = self.measure(common, repetition, folder);
        if let Ok(row) = &mut row {
            let text = serde_json::to_string_pretty(row)?;
            std::fs::write(folder.join("row.json"), text)?;
        }
        row.with_context(|| format!("{}: {}", word(self.experiment), self.name()))
    }

    fn measure(&self, common: &Common, repetition: usize, folder: &Path) -> Result<Row> {
        let place = (self.system, self.medium, self.hosts);
        let mut scene = Scene::new(place, common.daemons, folder, repetition as u64)?;
        let mut nodes = Nodes::start(&scene, self.system, &self.load, folder)?;
        let groups = self.limit(&nodes)?;
        nodes.begin(&self.load, WARM_UP + common.time)?;
        let mut watched = self.watch(&mut scene, &nodes, common.time)?;
        nodes.finish(WARM_UP + common.time)?;
        watched.dropped = scene.write_statuses(folder)?;
        let outcome = self.count(&nodes, common.time)?;
        drop(nodes);
        drop(groups);
        self.row(&outcome, watched, common.time, repetition)
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
    fn watch(&self, scene: &mut Scene, nodes: &Nodes, time: Duration) -> Result<Watched> {
        let allowed = f64::from(self.cpu_share_percent.unwrap_or(100));
        std::thread::sleep(COUNTDOWN + WARM_UP);
        scene.count_from_now();
        let watched = [nodes.watched(allowed), scene.watched()].concat();
        let meter = Meter::start(scene, &watched, self.medium.rate_bps());
        let watch = Watch::start(watched)?;
        let measured = meter.measure(time);
        let used = watch.stop()?;
        let punctuality = scene.punctuality()?;
        Ok(Watched { used, measured, punctuality, dropped: None })
    }

    /// Returns the number of a sender's first message that counts.
    fn first_counted(&self, sender: usize) -> u64 {
        (WARM_UP.as_secs_f64() * self.load.flow(sender).1).ceil() as u64
    }

    /// Counts the echoes of all senders.
    fn count(&self, nodes: &Nodes, time: Duration) -> Result<Outcome> {
        let mut all = Counted::default();
        let mut flows: Vec<(f64, Counted)> = Vec::new();
        for (sender, echoes) in nodes.samples()?.iter().enumerate() {
            let (first, hz) = (self.first_counted(sender), self.load.flow(sender).1);
            all.add(echoes, first, self.load.echoes(), time);
            let known = flows.iter().position(|(of, _)| *of == hz);
            let known = known.unwrap_or_else(|| {
                flows.push((hz, Counted::default()));
                flows.len() - 1
            });
            flows[known].1.add(echoes, first, self.load.echoes(), time);
        }
        // Without any echo of a flow there is no figure, and the load is not held.
        let periods = flows.iter().map(|(hz, flow)| Some(flow.rtt()?.p95 * hz / 1000.0));
        let periods: Option<Vec<f64>> = periods.collect();
        Ok(Outcome {
            all,
            p95_periods: periods.map(|periods| periods.into_iter().fold(0.0, f64::max)),
            rtt_quarters_ms: most_growth(flows.iter().filter_map(|(_, flow)| flow.quarters())),
        })
    }

    /// Returns the number of messages that all senders must publish in the counted time.
    fn requested_messages(&self, time: Duration) -> f64 {
        let of_one = |sender| {
            let all = ((WARM_UP + time).as_secs_f64() * self.load.flow(sender).1).ceil();
            all - self.first_counted(sender) as f64
        };
        (0..self.load.senders).map(of_one).sum()
    }

    fn row(
        &self,
        outcome: &Outcome,
        watched: Watched,
        time: Duration,
        repetition: usize,
    ) -> Result<Row> {
        let (load, counted, p95_periods) = (&self.load, &outcome.all, outcome.p95_periods);
        let late = watched.punctuality.as_ref().filter(|it| !it.counts);
        let late = late.map(|it| format!("the radio's emulator was late: {it}"));
        let cpu = watched.used.figures(|kind| self.handled(kind, counted));
        let evidence = self.evidence(outcome, watched, time)?;
        let sustained = evidence.is_sustained();
        let is_late = self.must_be_held() && p95_periods.is_none_or(|periods| periods > 1.0);
        let limits = if sustained && !is_late { Vec::new() } else { evidence.limits() };
        let per_second = |count: usize| count as f64 / time.as_secs_f64();
        Ok(Row {
            experiment: self.experiment,
            system: self.system,
            link: self.medium,
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
            published_per_s: per_second(counted.sent),
            echoed_per_s: per_second(counted.echoed()),
            carried_per_s: per_second(counted.carried),
            rtt_ms: counted.rtt(),
            p95_periods,
            cpu,
            sustained,
            limits,
            void: late.or_else(|| evidence.void()),
            evidence,
        })
    }

    /// Whether round trips must end within a period.
    fn must_be_held(&self) -> bool {
        self.experiment == Experiment::Tautline
    }

    fn evidence(&self, outcome: &Outcome, watched: Watched, time: Duration) -> Result<Evidence> {
        let counted = &outcome.all;
        let Watched { used, measured, dropped, .. } = watched;
        let conversations = self.load.senders * self.load.echoes();
        let bytes = (0..self.load.senders).map(|it| self.load.flow(it).0.bytes().unwrap_or(0));
        let mean_bytes = bytes.sum::<usize>() as f64 / self.load.senders as f64;
        Ok(Evidence {
            machine_percent: Some(used.machine_percent),
            busiest: used.busiest,
            channel_percent: measured.channel_percent,
            contended_percent: measured.contended_percent,
            link_percent: measured.link_percent,
            queued: Queued {
                messages: counted.under_way,
                messages_per_conversation: counted.under_way as f64 / conversations as f64,
                bytes: (counted.under_way as f64 * mean_bytes) as u64,
                ..measured.queued
            },
            rtt_quarters_ms: outcome.rtt_quarters_ms,
            dropped,
            ..counted.evidence(self.requested_messages(time))?
        })
    }

    /// Returns the number of messages that one process of a kind handles, each with its echo.
    fn handled(&self, kind: &str, counted: &Counted) -> f64 {
        let per_node = counted.echoed() as f64 / self.load.senders as f64;
        match kind {
            "sender" | "echoer" => per_node,
            "daemon" => counted.echoed() as f64,
            _ => 0.0,
        }
    }
}

/// Returns the pair of median round trips, of the first and last quarter, that grows most.
fn most_growth(quarters: impl Iterator<Item = [f64; 2]>) -> Option<[f64; 2]> {
    let growth = |[first, last]: &[f64; 2]| last / first.max(f64::MIN_POSITIVE);
    quarters.max_by(|one, other| growth(one).total_cmp(&growth(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_growing_flow_decides() {
        let quarters = [[4.0, 5.0], [20.0, 90.0]];
        assert_eq!(most_growth(quarters.into_iter()), Some([20.0, 90.0]));
        assert_eq!(most_growth(std::iter::empty()), None);
    }
}
