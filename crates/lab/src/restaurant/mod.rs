// SPDX-License-Identifier: Apache-2.0
//! `tautline-lab restaurant`: two robots, each with its own ROS and its own navigation, serve six
//! tables from one kitchen over one radio, after Park, Delgado and Choi (2020), section V.
//!
//! The arena, the nodes and the web page are under `ros/restaurant`; the nodes know nothing of
//! Tautline.

mod bezier;
mod condition;
mod faults;
mod files;
mod map;
mod orders;
mod page;
mod report;
mod stage;
mod team;
mod truth;

use crate::rig::output::{About, Output, stamp};
use crate::rig::processes::{make_folder, word};
use crate::rig::progress::Progress;
use crate::rig::verdict::{Conclusion, verdict_lines};
use anyhow::Result;
use clap::ValueEnum;
use condition::Condition;
use faults::Fault;
use report::Figures;
use stage::Plan;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use team::{Team, Transport};

/// Name of the case.
const NAME: &str = "restaurant";
/// Expected time of one order with both robots at work, and of the start of all programs.
const ORDER: Duration = Duration::from_secs(9);
const START: Duration = Duration::from_secs(25);
/// Expected time of a drive along the Bezier path, and of a drive with a fault.
const DRIVE: Duration = Duration::from_secs(15);
const FAULT: Duration = Duration::from_secs(35);
const MAP: Duration = Duration::from_secs(60);

/// A part of the restaurant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Orders of guests, served by both robots under camera load.
    Orders,
    /// An order placed in a real browser.
    Page,
    /// A Bezier path, driven by a controller in the kitchen.
    Bezier,
    /// Faults in the middle of a drive.
    Faults,
    /// The mapping run, only if named.
    Map,
}

/// Arguments of the restaurant.
#[derive(clap::Args)]
pub struct Arguments {
    /// Run only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// ROS of Kobuki and Tetra.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "1+2")]
    robots: Vec<Team>,
    /// By what topics travel; without Tautline, one master or one domain spans the radio.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tautline")]
    transports: Vec<Transport>,
    /// Orders of the guests in each run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    orders: u32,
    /// Seed of the simulator, the radio and the guests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Path of the daemon; by default the `tautline` in the folder of this program.
    #[arg(long)]
    tautline: Option<PathBuf>,
    /// Folder in which each invocation creates its own folder, named by date and host.
    #[arg(long, default_value = "target/restaurant-runs")]
    output: PathBuf,
    /// Print the report as JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// Runs the restaurant.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = std::path::absolute(arguments.output.join(stamp()?))?;
    make_folder(&folder)?;
    let output = Output { case: NAME, folder, as_json: arguments.json };
    let figures = arguments.measure(&output.folder)?;
    let verdicts = figures.verdicts();
    let about = About::now();
    let machine = about.machine.line(&about.kernel);
    let (tables, lines) = (figures.text(), verdict_lines(&verdicts));
    let words = format!("\n{machine}\n{tables}\n{lines}{}", output.raw_line());
    let void = figures.is_void();
    let conclusion = output.conclude(figures, verdicts, &words)?;
    Ok(if void { Conclusion::Void } else { conclusion }.exit_code())
}

impl Arguments {
    fn measure(&self, folder: &Path) -> Result<Figures> {
        let beside = std::env::current_exe()?.with_file_name("tautline");
        let tautline = std::path::absolute(self.tautline.clone().unwrap_or(beside))?;
        let progress = Progress::new(self.stages());
        let mut figures = Figures::default();
        for (part, team, transport) in self.runs() {
            let folder = folder.join(name(part, team, transport));
            make_folder(&folder)?;
            let (world, seed) = (&[][..], self.seed);
            let (cameras, navigate) = (true, true);
            let (tautline, folder) = (&*tautline, &*folder);
            let plan = Plan { team, transport, cameras, navigate, world, seed, tautline, folder };
            match part {
                Part::Orders => figures.orders.push(orders::run(&plan, self.orders, &progress)?),
                Part::Bezier => {
                    figures.bezier.extend(bezier::run(
                        &plan,
                        Condition::value_variants(),
                        &progress,
                    )?);
                }
                Part::Page => figures.pages.push(page::run(&plan, &progress)?),
                Part::Map => {
                    let file = map::run(&plan, &progress)?;
                    progress.say(&format!("the map is in {}", file.display()));
                }
                Part::Faults => {
                    figures.faults.extend(faults::run(&plan, Fault::value_variants(), &progress)?);
                }
            }
        }
        progress.finish();
        Ok(figures)
    }

    /// Returns the runs. Plain ROS 1 and plain ROS 2 cannot be mixed, and only orders and
    /// the path are compared.
    fn runs(&self) -> Vec<(Part, Team, Transport)> {
        let mut runs = Vec::new();
        for &part in Part::value_variants() {
            let by_default = self.only.is_empty() && part != Part::Map;
            if !by_default && !self.only.contains(&part) {
                continue;
            }
            for &team in &self.robots {
                for &transport in &self.transports {
                    let compares = matches!(part, Part::Orders | Part::Bezier);
                    let possible = team != Team::Mixed && compares;
                    if transport == Transport::Tautline || possible {
                        runs.push((part, team, transport));
                    }
                }
            }
        }
        runs
    }

    fn stages(&self) -> Vec<(String, Duration)> {
        let of_run = |(part, team, transport)| {
            let name = name(part, team, transport);
            let start = [(format!("{name}: starting both robots"), START)];
            let rest: Vec<(String, Duration)> = match part {
                Part::Orders => {
                    vec![(format!("{name}: {} orders", self.orders), ORDER * self.orders)]
                }
                Part::Bezier => {
                    let conditions = Condition::value_variants().iter();
                    let both = conditions
                        .flat_map(|it| ["at the robot", "in the kitchen"].map(|at| (it, at)));
                    both.map(|(it, at)| (format!("{name}: {}, controller {at}", word(*it)), DRIVE))
                        .collect()
                }
                Part::Page => vec![(format!("{name}: an order by the page"), FAULT)],
                Part::Map => vec![(format!("{name}: driving by keyboard"), MAP)],
                Part::Faults => Fault::value_variants()
                    .iter()
                    .map(|fault| (format!("{name}: {}", word(*fault)), FAULT))
                    .collect(),
            };
            start.into_iter().chain(rest)
        };
        self.runs().into_iter().flat_map(of_run).collect()
    }
}

fn name(part: Part, team: Team, transport: Transport) -> String {
    format!("{}-{}-{}", word(part), word(team), word(transport))
}
