// SPDX-License-Identifier: Apache-2.0
//! `tautline-lab validate`: radio model, virtual time and rate controllers against references.

mod agreement;
mod constants;
mod cost;
mod dcf;
mod far;
mod links;
mod losses;
mod networks;
mod plans;
mod rates;
mod relays;
mod speed;
mod tcp;
mod traces;
mod unknown;

use anyhow::Result;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// A validation. Exit code 3 if it fails, 4 if the machine was too busy for a result.
#[derive(Debug, clap::Subcommand)]
pub enum Subject {
    /// Compare saturation throughput and collisions of 1 to 32 stations at 6 and 54 Mbps with a reference.
    Dcf {
        /// Print a list of points as JSON instead of the table.
        #[arg(long)]
        json: bool,
        /// Also write explanation/dcf.md and explanation/dcf.png below this folder.
        #[arg(long, value_name = "FOLDER")]
        docs: Option<PathBuf>,
    },
    /// Measure the processor time of a packet over one link and over two; needs a release build. Exit
    /// code 3 if the second link costs too much.
    Cost {
        /// Print JSON instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Compare virtual time with real programs on the same scenario.
    Air {
        /// A scenario with flows over udp.
        #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/plain-udp.yaml"))]
        scenario: PathBuf,
        /// Number of real-time runs that must count; their samples are combined.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=100))]
        runs: u64,
        /// Print JSON instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Compare the policies over several links with RCom and with one link; exit code 3 if a target is
    /// missed.
    Links {
        /// Print JSON instead of the tables.
        #[arg(long)]
        json: bool,
        /// Also write explanation/links.png and measured/links-series.json.gz below this folder.
        #[arg(long, value_name = "FOLDER")]
        docs: Option<PathBuf>,
    },
    /// Measure urgent and large messages on lossy links; exit code 3 if a target is missed.
    Losses {
        /// Print JSON instead of the tables.
        #[arg(long)]
        json: bool,
    },
    /// Compare the planner with random fleets in virtual time; exit code 3 if a target is missed.
    Plans {
        /// Number of fleets.
        #[arg(long, default_value_t = plans::FLEETS, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        fleets: u64,
        /// Seed of the first fleet, and of its run; the next ones follow. Seeds below 1000 are those
        /// with which the planner was tuned.
        #[arg(long, default_value_t = plans::FIRST_SEED)]
        first_seed: u64,
        /// Print JSON instead of the tables.
        #[arg(long)]
        json: bool,
        /// Compare the results with this summary; exit code 3 if they differ.
        #[arg(long, value_name = "FILE")]
        expect: Option<PathBuf>,
        /// Also write measured/plans.json below this folder.
        #[arg(long, value_name = "FOLDER")]
        docs: Option<PathBuf>,
    },
    /// Compare Tautline with plain ROS 1 on a tether, Wi-Fi, a mesh, LTE and satellites, with one load.
    Networks {
        /// Folder of recorded links in the format of mahimahi, which may be compressed (.gz).
        #[arg(long, value_name = "FOLDER", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"))]
        traces: PathBuf,
        /// Print JSON instead of the table.
        #[arg(long)]
        json: bool,
        /// Also write the table into how-to/networks.md, and measured/networks.json, below this folder.
        #[arg(long, value_name = "FOLDER")]
        docs: Option<PathBuf>,
    },
    /// Compare chains of relays with plain IP forwarding; exit code 3 if they are not better.
    Relays {
        /// Number of seeds, from 1 on; their samples are combined.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
        seeds: u64,
        /// Print JSON instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Measure the rate controllers behind a far bottleneck; exit code 3 if `auto` misses a target.
    Rates {
        /// Print JSON instead of the table.
        #[arg(long)]
        json: bool,
        /// Also write rates.md and steps.png (under explanation), rates.json.gz and steps.csv.gz (under measured)
        /// below this folder.
        #[arg(long, value_name = "FOLDER")]
        docs: Option<PathBuf>,
    },
    /// Halve and double each constant of `auto`, on links that are drawn from seeds.
    Constants {
        /// Print JSON instead of the table.
        #[arg(long)]
        json: bool,
        /// Also write the table into explanation/rate-control.md and measured/constants.json below this
        /// folder.
        #[arg(long, value_name = "FOLDER")]
        docs: Option<PathBuf>,
    },
    /// Measure Tautline and the kernel's TCP behind a far bottleneck, alone and together, in real time.
    Tcp {
        /// Number of runs of each case; the medians are reported.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
        runs: u64,
        /// Print JSON instead of the tables.
        #[arg(long)]
        json: bool,
        /// Also write explanation/tcp.md and measured/tcp.json below this folder.
        #[arg(long, value_name = "FOLDER")]
        docs: Option<PathBuf>,
    },
    /// Compare the rate controllers on recorded and generated cellular links with a sender that knows
    /// the capacity in advance; exit code 3 if `auto` misses a target.
    Traces {
        /// Folder of recorded links in the format of mahimahi, which may be compressed (.gz).
        #[arg(long, value_name = "FOLDER", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"))]
        traces: PathBuf,
        /// Number of generated links.
        #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(0..=1000))]
        generated: u64,
        /// Seed of the first generated link; the next ones follow. Seeds below 10000 are for tuning,
        /// others judge once.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1_000_000_000))]
        first: u64,
        /// Print JSON instead of the table.
        #[arg(long)]
        json: bool,
        /// Also write the table into explanation/unknown-links.md, and explanation/traces.png,
        /// measured/traces.json and measured/traces.csv below this folder.
        #[arg(long, value_name = "FOLDER")]
        docs: Option<PathBuf>,
    },
    /// Compare the rate controllers on links that are drawn from seeds; exit code 3 if `auto` carries
    /// less than half of what another one does.
    Unknown {
        /// Number of links.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        seeds: u64,
        /// Seed of the first link; the next ones follow. Seeds below 10000 are those with which `auto`
        /// was tuned.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1_000_000_000))]
        first: u64,
        /// Run only this controller.
        #[arg(long, value_parser = ["auto"])]
        only: Option<String>,
        /// Which links are drawn.
        #[arg(long, value_enum, default_value_t)]
        family: unknown::Family,
        /// Print JSON instead of the tables.
        #[arg(long)]
        json: bool,
        /// Also write the summary into explanation/unknown-links.md, and explanation/unknown-links.png
        /// and measured/unknown.json.gz below this folder.
        #[arg(long, value_name = "FOLDER", conflicts_with_all = ["only", "family"])]
        docs: Option<PathBuf>,
    },
    /// Measure the speed of virtual time; needs a release build.
    Speed {
        /// Print JSON instead of the table.
        #[arg(long)]
        json: bool,
    },
}

impl Subject {
    /// Whether the validation needs no namespaces.
    pub fn is_pure(&self) -> bool {
        matches!(
            self,
            Self::Cost { .. }
                | Self::Constants { .. }
                | Self::Dcf { .. }
                | Self::Links { .. }
                | Self::Losses { .. }
                | Self::Networks { .. }
                | Self::Plans { .. }
                | Self::Rates { .. }
                | Self::Relays { .. }
                | Self::Speed { .. }
                | Self::Traces { .. }
                | Self::Unknown { .. }
        )
    }
}

/// Runs a validation.
pub fn run(subject: &Subject) -> Result<ExitCode> {
    match subject {
        Subject::Dcf { json, docs } => dcf::run(*json, docs.as_deref()),
        Subject::Rates { json, docs } => rates::run(*json, docs.as_deref()),
        Subject::Links { json, docs } => links::run(*json, docs.as_deref()),
        Subject::Losses { json } => losses::run(*json),
        Subject::Networks { traces, json, docs } => {
            networks::run(&networks::Options { folder: traces, json: *json, docs: docs.as_deref() })
        }
        Subject::Plans { fleets, first_seed, json, expect, docs } => plans::run(&plans::Options {
            first_seed: *first_seed,
            fleets: *fleets,
            json: *json,
            expect: expect.as_deref(),
            docs: docs.as_deref(),
        }),
        Subject::Relays { seeds, json } => relays::run(*seeds, *json),
        Subject::Constants { json, docs } => constants::run(*json, docs.as_deref()),
        Subject::Cost { json } => cost::run(*json),
        Subject::Unknown { seeds, first, only, family, json, docs } => {
            unknown::run(&unknown::Options {
                seeds: *seeds,
                first: *first,
                json: *json,
                only: only.clone(),
                family: *family,
                docs: docs.clone(),
            })
        }
        Subject::Traces { traces, generated, first, json, docs } => traces::run(&traces::Options {
            folder: traces,
            seeds: *first..*first + *generated,
            json: *json,
            docs: docs.as_deref(),
        }),
        Subject::Speed { json } => speed::run(*json),
        Subject::Tcp { runs, json, docs } => tcp::run(*runs, *json, docs.as_deref()),
        Subject::Air { scenario, runs, json } => agreement::run(scenario, *runs, *json),
    }
}

/// Prints figures as JSON or as text; exit code 3 if the validation does not hold.
fn conclude(figures: &impl Serialize, as_json: bool, text: &str, holds: bool) -> Result<ExitCode> {
    match as_json {
        true => println!("{}", serde_json::to_string_pretty(figures)?),
        false => print!("{text}"),
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(3) })
}
