// SPDX-License-Identifier: Apache-2.0
//! `tautline-restaurant`: two robots, each with its own ROS and its own navigation, serve six
//! tables from one kitchen over one radio, after Park, Delgado and Choi (2020), section V.
//!
//! The arena, the nodes and the web page are under `ros`; the nodes contain nothing about Tautline.
#![forbid(unsafe_code)]

mod bezier;
mod condition;
mod docs;
mod faults;
mod files;
mod live;
mod map;
mod orders;
mod page;
mod paper;
mod periods;
mod regulation;
mod report;
mod stage;
mod team;
mod truth;

use anyhow::{Result, bail, ensure};
use clap::{Parser, ValueEnum};
use condition::Condition;
use faults::Fault;
use report::{Figures, Section};
use stage::Plan;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tautline_lab::rig::output::{About, Output, stamp};
use tautline_lab::rig::processes::{make_folder, word};
use tautline_lab::rig::progress::Progress;
use tautline_lab::rig::verdict::{Conclusion, Verdict, verdict_lines};
use tautline_lab::rig::{docs_page, enclosure};
use tautline_lab::setup::daemon::DaemonPath;
use team::{Team, Transport};

/// Name of this program's reports.
const NAME: &str = "restaurant";
/// Expected time of one order while both robots work.
const ORDER: Duration = Duration::from_secs(15);
/// Expected time to start all programs.
const START: Duration = Duration::from_secs(25);
/// Expected time of a drive along the Bezier path.
const DRIVE: Duration = Duration::from_secs(15);
/// Expected time of a drive with a fault, and of an order by the page.
const FAULT: Duration = Duration::from_secs(35);
/// Expected time of the mapping run.
const MAP: Duration = Duration::from_secs(60);
/// Expected time from the start of plant and controller to the first step.
const LOOP_START: Duration = Duration::from_secs(8);

/// A part of the restaurant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Orders of guests, served by both robots under camera load.
    Orders,
    /// An order placed in a real browser.
    Page,
    /// A Bezier path, driven by a controller in the kitchen.
    Bezier,
    /// A plant on a robot, regulated by a controller in the kitchen.
    Regulation,
    /// Whether the controllers keep their period.
    Periods,
    /// Faults in the middle of a drive.
    Faults,
    /// The mapping run, only if named.
    Map,
}

/// Two robots, each with its own ROS, serve tables from one kitchen over one radio. Exit codes: 0 all
/// targets reached, 1 could not run, 3 a target was not reached, 4 void (the machine was too busy).
#[derive(Parser)]
#[command(name = "tautline-restaurant", version)]
struct Arguments {
    /// Set on the copy of this program that runs in its own namespaces.
    #[arg(long, hide = true)]
    inside: bool,
    /// Run only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// ROS of Kobuki and Tetra.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "1+2")]
    robots: Vec<Team>,
    /// Transports of the topics; without Tautline, one master or one domain spans the radio.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tautline")]
    transports: Vec<Transport>,
    /// Orders of the guests in each run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    orders: u32,
    /// Drives along the Bezier path in each condition; tables have the medians of their errors, and
    /// percentiles of all their commands.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    drives: u32,
    /// Conditions of the drives; by default all but `display`.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = bezier::CONDITIONS)]
    conditions: Vec<Condition>,
    /// Faults to cause, each in a drive of its own.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = faults::ALL)]
    faults: Vec<Fault>,
    /// Keep the restaurant open, with its page for your browser, until Ctrl+C.
    #[arg(long, conflicts_with_all = ["only", "orders", "drives", "conditions", "faults", "docs", "json"])]
    live: bool,
    /// Port of the page, on 127.0.0.1.
    #[arg(long, default_value_t = 9090, requires = "live")]
    port: u16,
    /// Seed of the simulator, the radio and the guests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    tautline: DaemonPath,
    /// Folder in which each invocation creates its own folder, named by date and host.
    #[arg(long, default_value = "target/restaurant-runs")]
    output: PathBuf,
    /// Also write the tables, pictures and data of the documentation into this folder.
    #[arg(long, value_name = "FOLDER")]
    docs: Option<PathBuf>,
    /// Print the report as JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// A part, with the robots' ROS and the transport.
type Run = (Part, Team, Transport);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.inside {
        true => enclosure::settle().and_then(|()| run(&arguments)),
        false => arguments.start_inside(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("tautline-restaurant: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs the restaurant, inside an enclosure.
fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = std::path::absolute(arguments.output.join(stamp()?))?;
    make_folder(&folder)?;
    if arguments.live {
        arguments.open(&folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(docs) = &arguments.docs {
        docs_page::check(docs, docs::PAGE)?;
    }
    let output = Output { case: NAME, folder, as_json: arguments.json };
    let (figures, about) = (arguments.measure(&output.folder)?, About::now());
    let (verdicts, sections) = (figures.verdicts(), figures.sections());
    let words = sheet(&figures.skipped, &sections, &verdicts, &about) + &output.raw_line();
    let conclusion = output.conclude(&figures, verdicts, &words)?;
    docs::draw(&output.folder, &arguments.runs_in(&output.folder), &figures)?;
    if sections.iter().any(|section| section.is_void) {
        return Ok(Conclusion::Void.exit_code());
    }
    if let Some(docs) = &arguments.docs {
        docs::write(docs, &output.folder, &figures, &about)?;
    }
    Ok(conclusion.exit_code())
}

/// Formats the report for the terminal.
fn sheet(notes: &[String], sections: &[Section], verdicts: &[Verdict], about: &About) -> String {
    let machine = about.machine.line(&about.kernel);
    let tables = sections.iter().map(|it| format!("\n{}\n\n{}", it.name, it.table));
    let notes = notes.iter().map(|note| format!("{note}\n"));
    let void = sections.iter().filter(|it| it.is_void).map(|it| {
        format!("VOID: {}: the radio's emulator was late; --docs is not written\n", it.name)
    });
    let parts: String = tables.chain(notes).chain(void).collect();
    format!("\n{machine}\n{parts}\n{}", verdict_lines(verdicts))
}

impl Arguments {
    /// Runs this program inside an enclosure; with `--live`, the page is outside.
    fn start_inside(&self) -> Result<ExitCode> {
        if self.live { live::start_inside(self.port) } else { enclosure::run_this_inside() }
    }

    fn open(&self, folder: &Path) -> Result<()> {
        let (&[team], &[transport]) = (&*self.robots, &*self.transports) else {
            bail!("--live takes one value each for --robots and --transports");
        };
        let tautline = self.tautline.absolute()?;
        let progress = Progress::new(vec![("starting both robots".into(), START)]);
        live::run(&self.plan(team, transport, &tautline, folder), self.port, &progress)
    }

    fn plan<'a>(
        &self,
        team: Team,
        transport: Transport,
        tautline: &'a Path,
        folder: &'a Path,
    ) -> Plan<'a> {
        let (cameras, navigate, world, seed) = (true, true, &[][..], self.seed);
        Plan { team, transport, cameras, navigate, world, seed, tautline, folder }
    }

    fn measure(&self, folder: &Path) -> Result<Figures> {
        let runs = self.runs_in(folder);
        ensure!(
            !runs.is_empty(),
            "nothing to run: plain ROS 1 and plain ROS 2 form no team, and only orders, bezier and regulation have --transports plain"
        );
        let tautline = self.tautline.absolute()?;
        let progress = Progress::new(self.stages());
        let mut figures = Figures { skipped: self.skipped(), ..Figures::default() };
        for ((part, team, transport), of_run) in runs {
            make_folder(&of_run)?;
            let plan = self.plan(team, transport, &tautline, &of_run);
            self.measure_part(part, &plan, &mut figures, &progress)?;
            // Save the figures, because a later part may fail.
            let so_far = serde_json::to_string(&figures)?;
            std::fs::write(folder.join("figures.json"), so_far)?;
        }
        progress.finish();
        Ok(figures)
    }

    fn measure_part(
        &self,
        part: Part,
        plan: &Plan<'_>,
        figures: &mut Figures,
        progress: &Progress,
    ) -> Result<()> {
        match part {
            Part::Orders => {
                let limit = figures.limit(plan);
                figures.orders.push(orders::run(plan, self.orders, limit, progress)?);
            }
            Part::Page => figures.pages.push(page::run(plan, progress)?),
            Part::Bezier => {
                figures.bezier.extend(bezier::run(plan, &self.conditions, self.drives, progress)?)
            }
            Part::Regulation => figures.regulation.extend(regulation::run(plan, progress)?),
            Part::Periods => {
                figures.periods.extend(periods::run(plan, &mut figures.skipped, progress)?);
            }
            Part::Faults => figures.faults.extend(faults::run(plan, &self.faults, progress)?),
            Part::Map => {
                let file = map::run(plan, progress)?;
                progress.say(&format!("the map is in {}", file.display()));
            }
        }
        Ok(())
    }

    /// Describes the requested runs that are not possible.
    fn skipped(&self) -> Vec<String> {
        let mut skipped = Vec::new();
        if self.robots.contains(&Team::Mixed) && self.transports.contains(&Transport::Plain) {
            skipped.push("skipped: plain for 1+2, since ROS 1 and ROS 2 need a bridge".into());
        }
        let has_faults = self.has(Part::Faults) && self.faults.contains(&Fault::Master);
        if has_faults && self.robots.contains(&Team::Ros2) {
            skipped.push("skipped: fault master for 2+2, since ROS 2 has no master".into());
        }
        skipped
    }

    fn has(&self, part: Part) -> bool {
        let by_default = self.only.is_empty() && part != Part::Map;
        by_default || self.only.contains(&part)
    }

    /// Returns the runs, each with its own folder below `folder`.
    fn runs_in(&self, folder: &Path) -> Vec<(Run, PathBuf)> {
        self.runs().into_iter().map(|run| (run, folder.join(name(run)))).collect()
    }

    /// Returns the runs. Plain ROS 1 and plain ROS 2 cannot be mixed, and only orders, path and control
    /// loop are compared with plain ROS.
    fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        for &part in Part::value_variants().iter().filter(|part| self.has(**part)) {
            for &team in &self.robots {
                for &transport in &self.transports {
                    let compares = matches!(part, Part::Orders | Part::Bezier | Part::Regulation);
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
        let of_run = |run: Run| {
            let name = name(run);
            let start = (format!("{name}: starting both robots"), START);
            let rest = self.stages_of(run.0).into_iter();
            [start]
                .into_iter()
                .chain(rest.map(move |(stage, time)| (format!("{name}: {stage}"), time)))
        };
        self.runs().into_iter().flat_map(of_run).collect()
    }

    fn stages_of(&self, part: Part) -> Vec<(String, Duration)> {
        match part {
            Part::Orders => vec![(format!("{} orders", self.orders), ORDER * self.orders)],
            Part::Page => vec![("an order by the page".into(), FAULT)],
            Part::Bezier => {
                self.conditions.iter().map(|it| (word(*it), DRIVE * (2 * self.drives))).collect()
            }
            Part::Regulation => regulation::condition_cases()
                .map(|(condition, controller)| {
                    format!("{}, {}", word(condition), controller.name())
                })
                .map(|case| (case, LOOP_START + regulation::STEP * regulation::STEPS))
                .collect(),
            Part::Periods => ["SCHED_OTHER", "SCHED_FIFO"]
                .map(|it| (it.into(), 2 * (periods::WINDOW + periods::WARM_UP)))
                .into(),
            Part::Map => vec![("driving by keyboard".into(), MAP)],
            Part::Faults => self.faults.iter().map(|it| (word(*it), FAULT)).collect(),
        }
    }
}

fn name((part, team, transport): Run) -> String {
    format!("{}-{}-{}", word(part), word(team), word(transport))
}
