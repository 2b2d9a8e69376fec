// SPDX-License-Identifier: Apache-2.0
//! `tautline-lab air`: real programs on a modelled medium, in real time.

mod commands;
mod crew;
mod emulator;
mod flows;
mod kernel;
mod nodes;
mod screen;
mod station;
mod tcp;
mod udp;

pub use emulator::Punctuality;
pub use kernel::{MTU, Plumbing, interface};
pub use station::{Air, sleep_until};

use crate::rig::enclosure::SCRATCH;
use crate::rig::figures::{Figures, FlowFigures, RunArguments, say};
use crate::rig::stats::Samples;
use crate::rivals;
use crate::scenario::{Over, Scenario};
use anyhow::{Result, ensure};
use commands::{Running, StationCommand, name_stations};
use flows::Flows;
use screen::{Screen, view};
use station::Snapshot;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tautline_medium::Nanos;

/// Time before the scenario's start, in which programs start.
const WARM_UP: Nanos = 2_000_000_000;
/// Time after the last message is sent in which messages may still arrive.
const DRAIN: Nanos = 1_000_000_000;
/// Exit code of a run that does not count.
const LATE: u8 = 4;
/// Interval at which commands and the view are checked.
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Arguments of `tautline-lab air`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    run: RunArguments,
    /// Do not run the scenario's own flows.
    #[arg(long)]
    no_flows: bool,
    /// Programs, each as 'STATION: COMMAND' in quotes. The run ends when the last one in this
    /// list ends, and returns its exit code; the others are then stopped. Without programs, the
    /// run is as long as the scenario. Stations know each other by name.
    #[arg(last = true, value_name = "'STATION: COMMAND'")]
    commands: Vec<String>,
}

/// Figures of a run, as `--json` prints them.
#[derive(serde::Serialize)]
struct AirFigures {
    #[serde(flatten)]
    figures: Figures,
    emulator: Punctuality,
}

/// Runs a scenario with real programs, inside an enclosure. Returns the exit code of the last
/// command, or 4 if the emulator was too late for the run to count.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let RunArguments { scenario, seed, json, .. } = &arguments.run;
    let mut scenario = crate::scenario::load(scenario)?;
    if arguments.no_flows {
        scenario.flows.clear();
        scenario.control_loops.clear();
    }
    check_supported(&scenario)?;
    let parse = |text: &String| StationCommand::parse(text, &scenario);
    let commands = arguments.commands.iter().map(parse).collect::<Result<Vec<_>>>()?;
    let screen = Arc::new(Screen::new(*json));
    let Measured { flows, last, code } = measure(&scenario, *seed, &commands, &screen)?;
    let (own, samples): (Vec<FlowFigures>, Vec<Samples>) = flows.into_iter().unzip();
    let names: Vec<String> = own.iter().map(|flow| flow.name.clone()).collect();
    let figures = figures(&scenario, *seed, own, last);
    let text = serde_json::to_string_pretty(&figures)? + "\n";
    let named: Vec<_> = names.iter().map(String::as_str).zip(samples).collect();
    arguments.run.keep(&text, &named)?;
    if *json {
        say(&text);
    } else {
        say(&format!("{}emulator: {}\n", figures.figures.to_text(), figures.emulator));
    }
    let late = ExitCode::from(LATE);
    Ok(code
        .filter(|code| *code != ExitCode::SUCCESS || figures.emulator.counts)
        .unwrap_or(if figures.emulator.counts { ExitCode::SUCCESS } else { late }))
}

/// Results of a run.
struct Measured {
    flows: Vec<(FlowFigures, Samples)>,
    last: Snapshot,
    code: Option<ExitCode>,
}

fn measure(
    scenario: &Scenario,
    seed: u64,
    commands: &[StationCommand],
    screen: &Arc<Screen>,
) -> Result<Measured> {
    name_stations(scenario, Path::new(SCRATCH))?;
    let air = Air::start(scenario, seed, warm_up(scenario))?;
    if let Some(warning) = air.warning() {
        screen.print(&format!("warning: {warning}"));
    }
    let outcome = run_on(&air, scenario, commands, screen);
    screen.clear();
    let last = air.stop()?;
    let (flows, code) = outcome?;
    Ok(Measured { flows, last, code })
}

/// Returns the samples of a scenario's flows, by name, and the emulator's scheduling delay. Shows
/// no view.
pub fn samples(scenario: &Scenario, seed: u64) -> Result<(Vec<(String, Samples)>, Punctuality)> {
    check_supported(scenario)?;
    let Measured { flows, last, .. } = measure(scenario, seed, &[], &Arc::new(Screen::hidden()))?;
    let flows = flows.into_iter().map(|(figures, samples)| (figures.name, samples));
    Ok((flows.collect(), last.punctuality))
}

fn check_supported(scenario: &Scenario) -> Result<()> {
    ensure!(
        scenario.control_loops.is_empty(),
        "control loops run in virtual time only (tautline-lab sim); --no-flows omits them"
    );
    ensure!(
        scenario.tautline.rate.name().and_then(rivals::named).is_none(),
        "rivals of auto run in virtual time only (tautline-lab sim): a daemon does not have them"
    );
    let by_nodes = scenario.flows.iter().any(|flow| flow.over == Over::Tautline);
    ensure!(
        !(scenario.tautline.relay && by_nodes),
        "relays run in virtual time only (tautline-lab sim); --no-flows omits the flows, and relay: false forwards by IP"
    );
    nodes::check(scenario)
}

/// Returns the start of the scenario. Before it, programs start and nodes do their handshakes.
fn warm_up(scenario: &Scenario) -> Nanos {
    let nodes = scenario.flows.iter().any(|flow| flow.over == Over::Tautline);
    if nodes { WARM_UP.max(nodes::MEETING) } else { WARM_UP }
}

/// Flows with their samples (the figures hold the refused count), and the last command's exit code.
type Outcome = (Vec<(FlowFigures, Samples)>, Option<ExitCode>);

fn run_on(
    air: &Air,
    scenario: &Scenario,
    commands: &[StationCommand],
    screen: &Arc<Screen>,
) -> Result<Outcome> {
    let (offset, origin) = (warm_up(scenario), air.origin());
    let flows = Flows::start(air, scenario, offset)?;
    let mut running = commands
        .iter()
        .map(|command| Running::start(command, air, scenario, screen))
        .collect::<Result<Vec<_>>>()?;
    let flows = flows.go(origin + offset, scenario)?;
    air.count_from_now();
    let end = offset + scenario.duration + DRAIN;
    let code = watch(air, running.last_mut(), end, screen);
    for program in running {
        program.end(screen)?;
    }
    let code = code?;
    let finished = flows.finish(scenario, origin, end)?;
    Ok((finished, code))
}

/// Draws the view until the last command ends or, without commands, until `end`.
fn watch(
    air: &Air,
    mut last: Option<&mut Running>,
    end: Nanos,
    screen: &Screen,
) -> Result<Option<ExitCode>> {
    let mut before: Option<Snapshot> = None;
    loop {
        std::thread::sleep(LOOK_PERIOD);
        ensure!(air.runs(), "the emulator has ended");
        let now = air.look();
        if let Some(before) = &before {
            screen.draw(view(before, &now));
        }
        let over = now.now >= end;
        before = Some(now);
        match &mut last {
            None if over => return Ok(None),
            None => {}
            Some(program) => {
                if let Some(status) = program.exit_status()? {
                    let code = status.code().and_then(|code| u8::try_from(code).ok());
                    return Ok(Some(code.map_or(ExitCode::FAILURE, ExitCode::from)));
                }
            }
        }
    }
}

fn figures(scenario: &Scenario, seed: u64, flows: Vec<FlowFigures>, last: Snapshot) -> AirFigures {
    let figures = Figures {
        scenario: scenario.name.clone(),
        seed,
        seconds: if flows.is_empty() { last.now } else { scenario.duration } as f64 / 1e9,
        flows,
        control_loops: Vec::new(),
        radios: last.radios,
        networks: last.networks,
        links: Vec::new(),
    };
    AirFigures { figures, emulator: last.punctuality }
}
