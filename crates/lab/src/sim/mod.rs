// SPDX-License-Identifier: Apache-2.0
//! `tautline-lab sim`: a scenario in virtual time. The same seed gives the same bytes.

mod attacker;
mod build;
mod control_loop;
mod flows;
mod gate;
mod net;
mod plain_ros;
pub mod swarm;
mod tcp;
mod world;

pub use build::WARM_UP;
pub use control_loop::Quality;
pub use net::RepeatedFrame;

use crate::rig::figures::{
    Figures, FlowFigures, LinkFigures, LoopFigures, RunArguments, Usage, of_medium, radios, say,
};
use crate::rig::progress::Progress;
use crate::rig::stats::{Arrival, Samples};
use crate::scenario::{Over, Scenario, Station};
use anyhow::Result;
use flows::{Flow, FlowPlan};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tautline_medium::{Nanos, RadioId, RadioStats, StationId};
use tautline_proto::stats::LinkStats;
use tautline_proto::{Endpoint, LinkView, Place};
use world::World;

/// Time after the last message is sent in which messages may still arrive.
const DRAIN: Nanos = 1_000_000_000;
/// Number of steps of a run, for the progress line.
const STEPS: u64 = 100;
/// Expected speed as a multiple of real time, for the first progress line.
const SPEED: u64 = 200;

/// Arguments of `tautline-lab sim`.
#[derive(Debug, clap::Args)]
pub struct SimArguments {
    #[command(flatten)]
    run: RunArguments,
    /// Carry the flows of Tautline as plain ROS 1 does: a TCP connection for each, by a model, with
    /// `keep_last` as the publisher's queue_size; no relays.
    #[arg(long)]
    plain: bool,
}

/// Runs a scenario file.
pub fn run(SimArguments { run: arguments, plain }: &SimArguments) -> Result<ExitCode> {
    let mut scenario = crate::scenario::load_for_virtual_time(&arguments.scenario)?;
    if *plain {
        scenario = scenario.carried_by_plain_ros();
    }
    let started = std::time::Instant::now();
    let mut world = build::build(&scenario, arguments.seed)?;
    let used = advance(&mut world, &scenario);
    let taken = started.elapsed();
    let figures = figures(&scenario, &mut world, arguments.seed, &used);
    keep(arguments, &world, &figures.json()?)?;
    if arguments.json {
        say(&figures.json()?);
    } else {
        say(&figures.to_text());
    }
    let simulated = Duration::from_nanos(world.net.now());
    eprintln!(
        "simulated {:.0} s in {:.2} s, {:.0} times real time",
        simulated.as_secs_f64(),
        taken.as_secs_f64(),
        simulated.as_secs_f64() / taken.as_secs_f64()
    );
    Ok(ExitCode::SUCCESS)
}

fn keep(arguments: &RunArguments, world: &World, figures: &str) -> Result<()> {
    let flows = world.flows.all.iter().map(|flow| (&*flow.plan.name, samples_of(flow)));
    let flows: Vec<_> = flows.collect();
    let Some(folder) = arguments.keep(figures, &flows)? else { return Ok(()) };
    for (number, control_loop) in world.loops.iter().enumerate() {
        let volts = control_loop.volts().iter().map(|volt| format!("{volt}\n"));
        let file = folder.join(format!("control-loop-{}.csv", number + 1));
        std::fs::write(file, format!("volt\n{}", volts.collect::<String>()))?;
    }
    Ok(())
}

/// Returns the samples of a scenario's flows, by name.
pub fn samples(scenario: &Scenario, seed: u64) -> Result<Vec<(String, Samples)>> {
    watch(scenario, seed, scenario.duration, |_| {})
}

/// The state of a run at one time.
pub struct RunView<'a> {
    /// Time since the scenario's start.
    pub at_ns: Nanos,
    world: &'a World,
}

impl RunView<'_> {
    /// Returns the rate at which a station sends to its first peer, bits per second.
    pub fn rate_bps(&self, station: StationId) -> Option<u64> {
        let endpoint = self.world.net.view(station)?;
        endpoint.link(endpoint.links().next()?)?.rate_bps
    }

    /// Returns counters and smoothed round trips of a station's links, in the order in which they
    /// were added; none without a node.
    pub fn links(&self, station: StationId) -> Vec<(LinkStats, Option<Duration>)> {
        let endpoint = self.world.net.view(station);
        let links = endpoint
            .iter()
            .flat_map(|endpoint| endpoint.links().filter_map(|id| endpoint.link(id)));
        links.map(|link| (*link.stats, link.rtt)).collect()
    }

    /// Returns the counters of a radio.
    pub fn radio(&self, radio: RadioId) -> RadioStats {
        self.world.net.medium.stats(radio)
    }
}

/// Like [`samples`]; calls `see` at the start and after every interval `every`.
pub fn watch(
    scenario: &Scenario,
    seed: u64,
    every: Nanos,
    mut see: impl FnMut(RunView<'_>),
) -> Result<Vec<(String, Samples)>> {
    let mut world = build::build(scenario, seed)?;
    for at_ns in (0..=scenario.duration).step_by(every as usize) {
        world.run(WARM_UP + at_ns);
        see(RunView { at_ns, world: &world });
    }
    world.run(WARM_UP + scenario.duration + DRAIN);
    Ok(samples_by_flow(&world))
}

fn samples_by_flow(world: &World) -> Vec<(String, Samples)> {
    let flows = world.flows.all.iter();
    flows.map(|flow| (flow.plan.name.clone(), samples_of(flow))).collect()
}

/// Results of a run; times are since the scenario's start.
pub struct TracedRun {
    /// Samples by flow.
    pub samples: Vec<(String, Samples)>,
    /// Frames that were transmitted more than once.
    pub repeated: Vec<RepeatedFrame>,
}

/// Like [`samples`], with the frames that were transmitted more than once.
pub fn run_with_trace(scenario: &Scenario, seed: u64) -> Result<TracedRun> {
    let mut world = build::build(scenario, seed)?;
    world.net.repeated = Some(Vec::new());
    world.run(WARM_UP + scenario.duration + DRAIN);
    let samples = samples_by_flow(&world);
    let mut repeated = world.net.repeated.take().unwrap_or_default();
    repeated.iter_mut().for_each(|it| it.at = it.at.saturating_sub(WARM_UP));
    Ok(TracedRun { samples, repeated })
}

/// The size of a run.
pub struct RunSize {
    /// Time simulated.
    pub time: Duration,
    /// Messages published.
    pub messages: u64,
    /// Data frames transmitted.
    pub frames: u64,
}

/// Runs a scenario without collecting results.
pub fn run_for_size(scenario: &Scenario, seed: u64) -> Result<RunSize> {
    let mut world = build::build(scenario, seed)?;
    world.run(WARM_UP + scenario.duration + DRAIN);
    let attempts = |radio| world.net.medium.stats(radio).attempts;
    Ok(RunSize {
        time: Duration::from_nanos(world.net.now()),
        messages: world.flows.all.iter().map(|flow| flow.sent.len() as u64).sum(),
        frames: radios(scenario).map(attempts).sum(),
    })
}

/// Runs the whole scenario; returns the usage at its start and end.
fn advance(world: &mut World, scenario: &Scenario) -> [Usage; 2] {
    let (start, end) = (WARM_UP, WARM_UP + scenario.duration);
    let step = Duration::from_nanos(scenario.duration / STEPS / SPEED);
    let stages = (1..=STEPS).map(|n| (format!("{} {n} %", scenario.name), step));
    let progress = Progress::quietly(stages.collect());
    world.run(start);
    let before = Usage::read(scenario, &world.net.medium, start);
    for step in 1..=STEPS {
        progress.enter_next();
        world.run(start + scenario.duration / STEPS * step);
    }
    world.run(end);
    let after = Usage::read(scenario, &world.net.medium, end);
    world.run(end + DRAIN);
    progress.finish();
    [before, after]
}

/// Returns a flow's samples, with times since the scenario's start.
fn samples_of(flow: &Flow) -> Samples {
    let since = |time: Nanos| time.saturating_sub(WARM_UP);
    let arrivals = flow.arrivals.iter().map(|arrival| Arrival {
        sent_ns: since(arrival.sent_ns),
        received_ns: since(arrival.received_ns),
        ..*arrival
    });
    Samples {
        sent_ns: flow.sent.iter().map(|sent| since(*sent)).collect(),
        arrivals: arrivals.collect(),
    }
}

fn figures(
    scenario: &Scenario,
    world: &mut World,
    seed: u64,
    [before, after]: &[Usage; 2],
) -> Figures {
    let (radios, networks) = of_medium(scenario, &world.net.medium, (before, after));
    let flows = (0..world.flows.all.len()).map(|number| flow_figures(scenario, world, number));
    let loops = scenario.control_loops.iter().zip(&world.loops);
    let station = |number: usize| scenario.stations[number].name.as_str();
    Figures {
        scenario: scenario.name.clone(),
        seed,
        seconds: scenario.duration as f64 / 1e9,
        flows: flows.collect(),
        control_loops: loops
            .map(|(plan, control_loop)| LoopFigures {
                name: format!("{} - {}", station(plan.plant), station(plan.controller)),
                quality: control_loop.quality(),
            })
            .collect(),
        radios,
        networks,
        links: link_figures(scenario, world),
    }
}

fn flow_figures(scenario: &Scenario, world: &World, number: usize) -> FlowFigures {
    let flow = &world.flows.all[number];
    let over = match flow.plan.carriage {
        flows::Carriage::Udp { .. } => Over::Udp,
        flows::Carriage::Tautline(_) => Over::Tautline,
        flows::Carriage::PlainRos { .. } => Over::Tcp,
    };
    let FlowPlan { name, bytes, pace, .. } = &flow.plan;
    let samples = samples_of(flow);
    let figures = FlowFigures::new(name, over, *bytes as u64, *pace, &samples, scenario.duration);
    FlowFigures { refused: flow.refused, dropped: dropped_messages(world, number), ..figures }
}

fn dropped_messages(world: &World, number: usize) -> BTreeMap<String, u64> {
    if let Some(ros) = &world.flows.all[number].plain_ros {
        let dropped = Some(ros.dropped_messages()).filter(|count| *count > 0);
        return dropped.map(|count| ("queue_size".to_owned(), count)).into_iter().collect();
    }
    let channel = world.flows.channel(number);
    let host = world.flows.all[number].plan.from;
    let stats = channel.and_then(|(peer, channel)| {
        world.net.view(host)?.peer(peer).channel_out(channel).map(|(_, _, stats)| stats.dropped)
    });
    let drops = stats.iter().flat_map(|drops| drops.iter());
    drops.filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.as_str().to_owned(), n)).collect()
}

/// Names the network by which a link leaves, or the relay of the link.
fn path_words(
    scenario: &Scenario,
    station: &Station,
    endpoint: &Endpoint,
    link: &LinkView<'_>,
) -> String {
    match link.remote {
        Some(Place::Relay { hop, .. }) => format!("through {}", endpoint.peer(hop).name),
        _ => {
            let network = station.networks[link.radio.0 as usize];
            format!("on {}", scenario.networks[network].name)
        }
    }
}

fn link_figures(scenario: &Scenario, world: &World) -> Vec<LinkFigures> {
    let mut links = Vec::new();
    for (number, station) in scenario.stations.iter().enumerate() {
        let Some(endpoint) = world.net.view(StationId(number)) else { continue };
        for view in endpoint.links().filter_map(|link| endpoint.link(link)) {
            links.push(LinkFigures {
                name: format!(
                    "{} to {} {}",
                    station.name,
                    endpoint.peer(view.peer).name,
                    path_words(scenario, station, endpoint, &view)
                ),
                sent_packets: view.stats.sent_packets,
                sent_bytes: view.stats.sent_bytes,
                lost_packets: view.stats.lost_packets,
                spurious_losses: view.stats.spurious_losses,
                repair_bytes: view.stats.repair_bytes,
                rtt_ms: view.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            });
        }
    }
    links
}
