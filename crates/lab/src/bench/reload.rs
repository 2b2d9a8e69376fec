// SPDX-License-Identifier: Apache-2.0
//! Fifty topics flow between two daemons while their files are changed and reloaded. Topics that
//! no change names must lose no message and have no late message. The same load without reloads runs first.
//!
//! Both nodes have real-time priority, and their data planes a higher one, as a robot's daemon may
//! have (`realtime: priority`). A late message is then due to the nodes, not to other programs.

use crate::rig::node_file::{NodeFile, control};
use crate::rig::output::Output;
use crate::rig::stats::{Delay, delay, worst};
use crate::rig::table::{self, bar, figure, left, number, right};
use crate::rig::verdict::{Bound, Conclusion, verdict_lines};
use crate::setup::node::{Node, Received};
use crate::setup::world::{Computer, Link, Pair};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use tautline_cli::control::Client;

/// Name on the command line.
pub const NAME: &str = "reload";

/// Ample capacity: 52 topics of 200 bytes at 20 Hz take about 3 Mbps.
const LINK: Link = Link::wire(20_000_000);
const TOPICS: u64 = 50;
const BYTES: u64 = 200;
const PERIOD_US: u64 = 50_000;
const LOAD_TIME: Duration = Duration::from_secs(30);
const START_TIME: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of reloads. One reload makes a change, and the next one reverts it.
const RELOADS: usize = 24;
const BETWEEN: Duration = Duration::from_secs(1);
/// SCHED_FIFO priority of all threads except the data plane.
const PRIORITY: &str = "10";
/// SCHED_FIFO priority of the data plane.
const DATA_PLANE: u8 = 50;
/// Messages of the steady topics that may be lost.
const LOST: Bound = Bound::AtMost(0.0);
/// Largest delay of the steady topics.
const LATEST_MS: Bound = Bound::AtMost(20.0);

/// A change to one node's file.
struct Step {
    at_robot: bool,
    what: &'static str,
    peers: &'static str,
    more: &'static str,
    rules: &'static str,
    rest: &'static str,
    radios: &'static str,
}

const PLAIN: Step =
    Step { at_robot: true, what: "", peers: "", more: "", rules: "", rest: "", radios: "" };

/// The changes, made in round robin.
const STEPS: [Step; 6] = [
    Step {
        what: "a topic's priority and rate",
        rules: "  /changing/a: { priority: 20, rate: 5Hz }\n",
        ..PLAIN
    },
    Step {
        at_robot: false,
        what: "a watchdog",
        rest: "watchdogs: { /changing/b: 500ms }\n",
        ..PLAIN
    },
    Step { what: "a peer", peers: "third", ..PLAIN },
    Step {
        at_robot: false,
        what: "a peer's rights",
        more: ", max_rate: 100Mbps, max_priority: 250",
        ..PLAIN
    },
    Step {
        what: "a topic withdrawn, a peer, limits and beacons",
        peers: "fourth",
        rules: "  /changing/b: { to: [fourth] }\n",
        rest: "limits: { queue_time: 1s }\nbeacons: true\n",
        ..PLAIN
    },
    Step {
        at_robot: false,
        what: "a radio and the marks",
        rest: "dscp: { voice_from: 220 }\n",
        radios: "  veth0: { in_flight: 3 }\n",
        ..PLAIN
    },
];

/// One reload.
#[derive(Debug, Serialize)]
struct Reload {
    /// Time since the start of the phase.
    at_s: f64,
    /// Time from the request to its response.
    took_ms: f64,
    what: &'static str,
    changes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Figures {
    phase: &'static str,
    sent: u64,
    received: u64,
    lost: u64,
    ms: Option<Delay>,
    /// Largest delay of all messages, ms.
    latest_ms: Option<f64>,
}

#[derive(Serialize)]
struct AllFigures<'a> {
    figures: &'a [Figures],
    reloads: &'a [Reload],
}

struct Scene<'a> {
    pair: &'a Pair,
    folder: &'a Path,
}

fn made_topics() -> Vec<String> {
    let steady =
        (0..TOPICS).map(|n| format!("--make=/steady/t{n}:{BYTES}:{PERIOD_US}:{}", n * 1000));
    let changing = ["a", "b"].map(|name| format!("--make=/changing/{name}:{BYTES}:{PERIOD_US}"));
    steady.chain(changing).collect()
}

impl Scene<'_> {
    /// Writes a node's file with one change, or without changes.
    fn write(&self, at_robot: bool, step: Option<&Step>) -> Result<()> {
        let (own, other) = match at_robot {
            true => (&self.pair.robot, &self.pair.base),
            false => (&self.pair.base, &self.pair.robot),
        };
        let step = step.unwrap_or(&PLAIN);
        let (name, address) = other.entry();
        let mut peers = vec![(name, format!("{address}{}", step.more))];
        if !step.peers.is_empty() {
            peers.push((step.peers, String::new()));
        }
        let topics = format!(
            "{}  /steady/**: {{ priority: 200 }}\n  /changing/**: {{ priority: 10 }}\n",
            step.rules
        );
        let file = NodeFile {
            name: &own.name,
            peers,
            radios: step.radios.into(),
            topics,
            rest: format!("ros1: false\nrealtime: {{ priority: {DATA_PLANE} }}\n{}", step.rest),
        };
        file.write(self.folder).map(drop)
    }

    fn start(&self, computer: &Computer, options: &[String]) -> Result<Node> {
        let mut lab = computer.command("chrt");
        lab.args(["--fifo", PRIORITY]).arg(std::env::current_exe()?);
        let file = self.folder.join(format!("{}.yaml", computer.name));
        Node::start(&computer.name, lab, &file, options, self.folder)
    }

    /// Makes one change, or reverts it.
    fn reload(&self, since: Instant, step: &Step, back: bool) -> Result<Reload> {
        self.write(step.at_robot, (!back).then_some(step))?;
        let name = if step.at_robot { &self.pair.robot.name } else { &self.pair.base.name };
        let start = Instant::now();
        let changes = Client::connect(Path::new(&control(name)))?.reload(false, || {})?;
        let took_ms = start.elapsed().as_secs_f64() * 1e3;
        ensure!(!changes.is_empty(), "{}: nothing was changed", step.what);
        let at_s = (start - since).as_secs_f64();
        Ok(Reload { at_s, took_ms, what: step.what, changes: changes.lines() })
    }
}

/// Runs the case.
pub fn run(output: &Output) -> Result<Conclusion> {
    let progress = output.progress(&[
        ("starting two nodes", START_TIME),
        ("nothing changes", LOAD_TIME),
        ("files change", LOAD_TIME),
    ]);
    let pair = Pair::new(LINK, 1)?;
    let scene = Scene { pair: &pair, folder: &output.folder };
    scene.write(true, None)?;
    scene.write(false, None)?;
    let mut base = scene.start(&pair.base, &[])?;
    let mut robot = scene.start(&pair.robot, &made_topics())?;
    robot.await_ready(PATIENCE)?;
    progress.enter_next();
    robot.go(LOAD_TIME.as_secs_f64())?;
    let quiet = robot.await_done(LOAD_TIME + PATIENCE)?;
    progress.enter_next();
    robot.go(LOAD_TIME.as_secs_f64())?;
    let since = Instant::now();
    let mut reloads = Vec::new();
    for number in 0..RELOADS {
        std::thread::sleep(BETWEEN);
        // Each step is made by one reload and reverted by the next.
        let step = &STEPS[number / 2 % STEPS.len()];
        reloads.push(scene.reload(since, step, number % 2 == 1)?);
    }
    let all = robot.await_done(LOAD_TIME + PATIENCE)?;
    robot.close()?;
    base.close()?;
    progress.finish();
    let received = base.received()?;
    let none = vec![0; quiet.len()];
    let figures =
        [measure("quiet", &received, &none, &quiet), measure("reloads", &received, &quiet, &all)];
    report(output, &figures, &reloads)
}

/// Measures the steady topics. In each, messages with numbers in `from..to` count.
fn measure(phase: &'static str, received: &[Received], from: &[u64], to: &[u64]) -> Figures {
    let mut delays = Vec::new();
    let mut sent = 0;
    for (topic, (from, to)) in (0..TOPICS).zip(from.iter().zip(to)) {
        let name = format!("/steady/t{topic}");
        sent += to - from;
        let counts =
            |it: &&Received| it.topic == name && (*from..*to).contains(&it.arrival.sequence);
        delays.extend(received.iter().filter(counts).map(|it| it.arrival.delay_ms()));
    }
    let received = delays.len() as u64;
    let latest_ms = delays.iter().copied().reduce(f64::max);
    let lost = sent.saturating_sub(received);
    Figures { phase, sent, received, lost, ms: delay(delays), latest_ms }
}

fn report(output: &Output, figures: &[Figures], reloads: &[Reload]) -> Result<Conclusion> {
    let last = figures.last().context("no figures")?;
    let verdicts = vec![
        LOST.judge("unchanged topics: messages lost", Some(last.lost as f64), "messages"),
        LATEST_MS.judge("unchanged topics: latest message", last.latest_ms, "ms"),
    ];
    let times: Vec<f64> = reloads.iter().map(|reload| reload.took_ms).collect();
    let words = format!(
        " {TOPICS} topics of {BYTES} bytes at {} Hz, 20 Mbps\n{}\
         {} reloads, each answered within {:.1} ms\n{}",
        1_000_000 / PERIOD_US,
        table(figures),
        reloads.len(),
        worst(&times),
        verdict_lines(&verdicts)
    );
    output.conclude(AllFigures { figures, reloads }, verdicts, &words)
}

fn table(figures: &[Figures]) -> String {
    table::format_rows(
        figures,
        &[
            left("phase", 8, |it| it.phase.into()),
            right("sent", 7, |it| it.sent.to_string()),
            right("received", 9, |it| it.received.to_string()),
            right("lost", 5, |it| it.lost.to_string()),
            bar(),
            right("ms   mean", 9, |it| figure(it.ms, |delay| delay.mean, 2)),
            right("p99", 6, |it| figure(it.ms, |delay| delay.p99, 2)),
            right("latest", 6, |it| number(it.latest_ms, 2)),
        ],
    )
}
