// SPDX-License-Identifier: Apache-2.0
//! `tautline-lab swarm`: many small runs of the protocol, each drawn from a seed. The first phase
//! has faults and every output must be valid; the second has none and all messages must arrive.

mod faults;
mod healing;
mod hostile;
mod oracle;
mod plan;
#[cfg(test)]
mod tests;
mod world;

use crate::rig::progress::Progress;
use anyhow::{Result, anyhow};
use fastrand::Rng;
use faults::Faults;
use healing::Healing;
use plan::{MS, Plan};
use serde::Serialize;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline_medium::Nanos;
use world::World;

/// Time for handshakes before the faults.
const WARM_UP: Nanos = 1500 * MS;
/// Expected time of one run, for the first progress line.
const EXPECTED: Duration = Duration::from_millis(60);
/// Exit code if a run failed.
const FAILED: u8 = 3;

/// Arguments of `tautline-lab swarm`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Number of runs.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Seed of the first run; each further run has the next number.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    first: u64,
    /// Run only this seed: the same seed gives the same run and the same digest.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

/// Result of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Seed of the run.
    pub seed: u64,
    /// Kind of topology.
    pub shape: String,
    /// First error, at which the run ended.
    pub wrong: Option<String>,
    /// Virtual time, in seconds.
    pub seconds: f64,
    /// Messages accepted for sending.
    pub accepted: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages dropped at either end, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Restarts of nodes.
    pub restarts: u64,
    /// Changes of addresses.
    pub moves: u64,
    /// Outages of networks and of directions.
    pub outages: u64,
    /// Datagrams that the attacker repeated: unchanged, and with one bit changed.
    pub attacks: [u64; 2],
    /// Datagrams of a hostile peer.
    pub lies: u64,
    /// Frames lost in the networks.
    pub frames_lost: u64,
    /// Hash of all deliveries and their times, in hexadecimal.
    pub digest: String,
}

#[derive(Serialize)]
struct Summary<'a> {
    seeds: usize,
    virtual_hours: f64,
    failed: usize,
    runs: &'a [Verdict],
}

/// Runs the seeds of the arguments and prints the results. Returns exit code 3 after an error.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let seeds: Vec<u64> = match arguments.seed {
        Some(seed) => vec![seed],
        None => (0..arguments.seeds).map(|n| arguments.first.wrapping_add(n)).collect(),
    };
    let started = Instant::now();
    let panics = Panics::watch();
    let stages = seeds.iter().map(|seed| (format!("seed {seed}"), EXPECTED)).collect();
    let progress = Progress::quietly(stages);
    let verdicts: Vec<_> = seeds
        .iter()
        .map(|seed| {
            progress.enter_next();
            judge(*seed, &panics)
        })
        .collect();
    progress.finish();
    let failed = verdicts.iter().filter(|verdict| verdict.wrong.is_some()).count();
    let virtual_hours = verdicts.iter().map(|verdict| verdict.seconds).sum::<f64>() / 3600.0;
    if arguments.json {
        let summary = Summary { seeds: seeds.len(), virtual_hours, failed, runs: &verdicts };
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print_text(arguments, &verdicts);
        println!("{} runs, {virtual_hours:.2} virtual hours, {failed} failed", seeds.len());
    }
    eprintln!("took {:.1} s", started.elapsed().as_secs_f64());
    Ok(if failed > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn print_text(arguments: &Arguments, verdicts: &[Verdict]) {
    for verdict in verdicts {
        if arguments.seed.is_some() {
            print_run(verdict);
        }
        if let Some(wrong) = &verdict.wrong {
            let seed = verdict.seed;
            println!("seed {seed} ({}), after {:.3} s: {wrong}", verdict.shape, verdict.seconds);
            println!("  again: tautline-lab swarm --seed {seed}");
        }
    }
}

fn print_run(verdict: &Verdict) {
    println!(
        "seed {} ({}): {:.1} s, {} messages accepted, {} handed over, {} restarts, {} moves, \
         {} outages, {:?} datagrams replayed and changed, {} lies, {} frames lost",
        verdict.seed,
        verdict.shape,
        verdict.seconds,
        verdict.accepted,
        verdict.delivered,
        verdict.restarts,
        verdict.moves,
        verdict.outages,
        verdict.attacks,
        verdict.lies,
        verdict.frames_lost
    );
    for (reason, count) in &verdict.dropped {
        println!("  dropped, {reason}: {count}");
    }
    println!("  digest {}", verdict.digest);
}

/// Text of the last panic: a run that panics has failed.
#[derive(Debug, Clone, Default)]
struct Panics(Arc<Mutex<Option<String>>>);

impl Panics {
    /// Records panics from now on and does not print them.
    fn watch() -> Self {
        let panics = Self::default();
        let noted = panics.clone();
        std::panic::set_hook(Box::new(move |info| noted.note(info.to_string())));
        panics
    }

    fn note(&self, what: String) {
        if let Ok(mut last) = self.0.lock() {
            *last = Some(what);
        }
    }

    fn take(&self) -> String {
        let last = self.0.lock().ok().and_then(|mut last| last.take());
        last.unwrap_or_else(|| "panicked".into())
    }
}

/// Runs one seed.
fn judge(seed: u64, panics: &Panics) -> Verdict {
    let mut random = Rng::with_seed(seed);
    let plan = Plan::draw(&mut random);
    let shape = plan.shape.to_owned();
    let made = catch_unwind(AssertUnwindSafe(|| World::new(plan, seed, random)));
    let mut world = match made.unwrap_or_else(|_| Err(anyhow!(panics.take()))) {
        Ok(world) => world,
        Err(wrong) => {
            return Verdict { seed, shape, wrong: Some(wrong.to_string()), ..Verdict::default() };
        }
    };
    let ended = catch_unwind(AssertUnwindSafe(|| phases(&mut world)));
    let wrong = match ended {
        Ok(outcome) => outcome.err().map(|wrong| wrong.to_string()),
        Err(_) => Some(panics.take()),
    };
    Verdict { wrong, ..Verdict::from_world(seed, shape, &world) }
}

fn phases(world: &mut World) -> Result<()> {
    world.run(WARM_UP)?;
    let mut faults = Faults { world: &mut *world };
    faults.fault_phase()?;
    faults.end_faults()?;
    let mut healing = Healing { world };
    healing.healing()?;
    healing.long_phase()
}

impl Verdict {
    fn from_world(seed: u64, shape: String, world: &World) -> Self {
        let attacker = world.net.attacker.as_ref();
        let dropped = world.drops_by_reason().into_iter().filter(|(_, count)| *count > 0);
        Self {
            seed,
            shape,
            seconds: world.net.now() as f64 / 1e9,
            accepted: world.oracle.total_accepted(),
            delivered: world.oracle.total_delivered(),
            dropped: dropped.map(|(reason, count)| (reason.as_str().to_owned(), count)).collect(),
            restarts: world.restarts,
            moves: world.moves,
            outages: world.outages,
            attacks: attacker.map_or([0; 2], |it| [it.replayed, it.changed]),
            lies: world.hostile.as_ref().map_or(0, |it| it.lies),
            frames_lost: world.frames_lost(),
            digest: format!("{:016x}", world.oracle.digest()),
            wrong: None,
        }
    }
}
