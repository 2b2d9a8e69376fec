// SPDX-License-Identifier: Apache-2.0
//! `tautline-lab parity`: seeded situations of publishers, subscribers, services and actions, played
//! within one ROS graph and across Tautline at the same time, and compared.
//!
//! `generate` draws a situation from a seed, `player` plays it with the computers of `world` and the
//! nodes of `agents`, and `judge` compares both runs. `docs/reference/parity.md` describes the rules.

mod agents;
mod generate;
mod judge;
mod player;
mod record;
mod situation;
mod world;

use crate::rig::enclosure;
use crate::rig::processes::{empty_folder, make_folder};
use crate::setup::daemon::DaemonPath;
use anyhow::{Context, Result};
use judge::Fault;
use record::Record;
use serde::Serialize;
use situation::Team;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use world::World;

/// Exit code if a situation had a fault.
const FAILED: u8 = 3;

/// Teams on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    /// ROS 1 to ROS 1.
    #[value(name = "1")]
    One,
    /// ROS 2 to ROS 2.
    #[value(name = "2")]
    Two,
    /// ROS 1 to ROS 2.
    #[value(name = "1-2")]
    OneToTwo,
    /// ROS 2 to ROS 1.
    #[value(name = "2-1")]
    TwoToOne,
    /// The seeds in turns by all of these.
    All,
}

impl Choice {
    fn teams(self) -> Vec<Team> {
        match self {
            Self::One => vec![Team::ALL[0]],
            Self::Two => vec![Team::ALL[1]],
            Self::OneToTwo => vec![Team::ALL[2]],
            Self::TwoToOne => vec![Team::ALL[3]],
            Self::All => Team::ALL.to_vec(),
        }
    }
}

/// Arguments of `tautline-lab parity`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Number of situations.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Seed of the first; each further one has the next number.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    first: u64,
    /// Play only this seed.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// ROS of the publishers' and of the subscribers' computer. A seed belongs to one of the chosen
    /// teams.
    #[arg(long, value_enum, default_value_t = Choice::All)]
    ros: Choice,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
    /// Folder of logs and of the events of each seed.
    #[arg(long, default_value = "target/parity")]
    output: PathBuf,
    #[command(flatten)]
    tautline: DaemonPath,
}

/// Result of a situation.
#[derive(Debug, Serialize)]
struct Verdict {
    seed: u64,
    ros: Team,
    seconds: f64,
    /// Messages that subscribers got within one ROS graph, and across Tautline.
    messages: [usize; 2],
    faults: Vec<Fault>,
    /// Why the situation could not be played.
    error: Option<String>,
}

/// Plays the seeds of the arguments; exit code 3 if one had a fault.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    enclosure::settle()?;
    let started = Instant::now();
    let program = arguments.tautline.absolute()?;
    empty_folder(&arguments.output)?;
    let teams = arguments.ros.teams();
    let seeds: Vec<u64> = match arguments.seed {
        Some(seed) => vec![seed],
        None => (0..arguments.seeds).map(|n| arguments.first.wrapping_add(n)).collect(),
    };
    // The team of a seed does not depend on the other seeds.
    let mut by_team: BTreeMap<Team, Vec<u64>> = BTreeMap::new();
    for seed in seeds {
        by_team.entry(teams[(seed % teams.len() as u64) as usize]).or_default().push(seed);
    }
    // The teams take turns in waiting: their computers are apart.
    let verdicts: Vec<Verdict> = std::thread::scope(|scope| {
        let play = |(team, seeds): (Team, Vec<u64>)| {
            let (program, output) = (&program, &arguments.output);
            scope.spawn(move || play_all(team, &seeds, program, output))
        };
        let threads: Vec<_> = by_team.into_iter().map(play).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Result<Vec<_>>>().map(|all| all.into_iter().flatten().collect())
    })?;
    let verdicts = play_again(verdicts, &program, &arguments.output)?;
    print(arguments, &verdicts, started)
}

/// Plays the situations with a fault once more, each alone and with new programs. On a busy machine a
/// quiet period may have ended too early; a fault of the daemons occurs again.
fn play_again(verdicts: Vec<Verdict>, program: &Path, output: &Path) -> Result<Vec<Verdict>> {
    let mut settled = Vec::new();
    for first in verdicts {
        if first.faults.is_empty() && first.error.is_none() {
            settled.push(first);
            continue;
        }
        eprintln!("seed {} again, alone", first.seed);
        let alone = output.join("alone").join(first.seed.to_string());
        settled.extend(play_all(first.ros, &[first.seed], program, &alone)?);
    }
    Ok(settled)
}

fn print(arguments: &Arguments, verdicts: &[Verdict], started: Instant) -> Result<ExitCode> {
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(verdicts)?);
    } else {
        for verdict in verdicts {
            for fault in &verdict.faults {
                println!(
                    "{:>5}  {:3}  {:16} {}",
                    verdict.seed,
                    verdict.ros.name(),
                    fault.kind,
                    fault.detail
                );
            }
            if let Some(error) = &verdict.error {
                println!("{:>5}  {:3}  could not run: {error}", verdict.seed, verdict.ros.name());
            }
        }
    }
    let failed = verdicts.iter().filter(|it| !it.faults.is_empty()).count();
    let unplayed = verdicts.iter().filter(|it| it.error.is_some()).count();
    eprintln!(
        "parity: {} situations in {:.0} s, {failed} with differences, {unplayed} could not run",
        verdicts.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(match (failed, unplayed) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::FAILURE,
        _ => ExitCode::from(FAILED),
    })
}

/// Plays the seeds of a team one after the other, in the same world as long as that world works.
fn play_all(team: Team, seeds: &[u64], program: &Path, output: &Path) -> Result<Vec<Verdict>> {
    let mut world = None;
    let mut verdicts = Vec::new();
    for (index, seed) in seeds.iter().enumerate() {
        let started = Instant::now();
        let fresh = |world: &mut Option<World>| -> Result<()> {
            if world.is_none() {
                let folder = output.join(format!("world-{}-{index}", team.name()));
                *world = Some(World::start(team, program, &folder)?);
            }
            Ok(())
        };
        let record = fresh(&mut world).and_then(|()| {
            let world = world.as_mut().context("no world")?;
            player::play(world, generate::situation(*seed, team))
        });
        let (faults, messages, error) = match &record {
            Ok(record) => {
                keep(record, output)?;
                (judge::faults(record), counts(record), None)
            }
            Err(error) => {
                // Remaining programs could disturb the next situation.
                world = None;
                (Vec::new(), [0, 0], Some(format!("{error:#}")))
            }
        };
        let seconds = started.elapsed().as_secs_f64();
        let verdict = Verdict { seed: *seed, ros: team, seconds, messages, faults, error };
        eprintln!("{}", line(&verdict));
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

fn line(verdict: &Verdict) -> String {
    let Verdict { seed, ros, seconds, messages: [plain, across], faults, error } = verdict;
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in faults {
        *kinds.entry(fault.kind).or_default() += 1;
    }
    let outcome = match error {
        Some(error) => format!("could not run: {error}"),
        None if kinds.is_empty() => "same".into(),
        None => kinds
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let ros = ros.name();
    format!("seed {seed} (ROS {ros}) {seconds:.1} s, {plain} and {across} messages: {outcome}")
}

fn counts(record: &Record) -> [usize; 2] {
    [&record.plain, &record.tautline].map(|run| {
        let is_message =
            |(_, event): &&(usize, record::Event)| matches!(event, record::Event::Got { .. });
        run.events.iter().filter(is_message).count()
    })
}

/// Writes the events of a seed to its folder.
fn keep(record: &Record, output: &Path) -> Result<()> {
    let folder = output.join(record.situation.seed.to_string());
    make_folder(&folder)?;
    let file = folder.join(format!("{}.json", record.situation.team.name()));
    std::fs::write(&file, serde_json::to_string_pretty(record)?)
        .with_context(|| format!("cannot write {}", file.display()))
}
