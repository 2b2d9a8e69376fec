// SPDX-License-Identifier: Apache-2.0
//! Cases measured with real programs on real kernels: `demo`, `bench`, `smoke`.

mod alone;
mod case;
mod daemon;
mod flows;
mod plot;
mod report;
mod ros;
mod runs;
mod smoke;
mod star;
pub mod traffic;
mod trial;
mod usage;
mod world;

use crate::enclosure;
use crate::processes;
use anyhow::{Context, Result, ensure};
use case::{CASES, Case};
use daemon::DaemonSetup;
use report::{Conclusion, Report};
use runs::{Runs, Setup};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use trial::Transport;

/// What to do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Laser, camera and commands over a 6 Mbps link: Tautline beside plain ROS 1.
    Demo {
        /// What joins robot and base.
        #[arg(long, value_enum, default_value_t = DemoLink::TokenBucket)]
        link: DemoLink,
        /// Where the report, the picture and the raw samples go; by default target/demo, or
        /// target/demo-radio.
        #[arg(long)]
        output: Option<PathBuf>,
        /// Counted seconds per transport.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        #[command(flatten)]
        choice: Choice,
    },
    /// One case, or all of them, with raw samples kept.
    Bench {
        /// 6mbps, 6mbps-rate, 3mbps, 3mbps-rate, 6mbps-loss, 6mbps-radio, idle, header, five-peers or all.
        case: String,
        /// How often each case is run; the median run is quoted. Over a radio a run during
        /// which the emulator was late is repeated.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
        runs: u64,
        /// Print the report as JSON instead of a table.
        #[arg(long)]
        json: bool,
        /// Folder under which each invocation makes its own, named by date and host.
        #[arg(long, default_value = "target/bench")]
        output: PathBuf,
        /// Counted seconds per transport.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        #[command(flatten)]
        choice: Choice,
    },
    /// Do topics arrive at all, both ways, latched ones late? Two masters, no slow link.
    Smoke {
        /// Where logs go.
        #[arg(long, default_value = "target/smoke")]
        output: PathBuf,
        #[command(flatten)]
        choice: Choice,
    },
    /// A node that makes and records messages; started by five-peers.
    #[command(hide = true)]
    Traffic(traffic::Arguments),
}

/// What joins the demo's two computers.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum DemoLink {
    /// The kernel's token bucket, 6 Mbps in each direction.
    TokenBucket,
    /// A modelled 802.11 channel of 6 Mbps, half duplex, in real time.
    Radio,
}

impl DemoLink {
    fn case(self) -> &'static str {
        match self {
            Self::TokenBucket => "6mbps",
            Self::Radio => "6mbps-radio",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::TokenBucket => "target/demo",
            Self::Radio => "target/demo-radio",
        }
    }
}

/// What takes part.
#[derive(clap::Args)]
pub struct Choice {
    /// The daemon; by default the `tautline` beside this program.
    #[arg(long)]
    tautline: Option<PathBuf>,
    /// Only these transports (targets of the others count as not reached).
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<Transport>>,
}

/// Carries out a command, inside the enclosure.
pub fn run(command: &Command) -> Result<ExitCode> {
    // Started by a case that is inside already.
    if !matches!(command, Command::Traffic(_)) {
        enclosure::settle()?;
    }
    match command {
        Command::Traffic(arguments) => traffic::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Demo { link, output, seconds, choice } => {
            let output = output.as_deref().unwrap_or(Path::new(link.folder()));
            demo(*link, output, Duration::from_secs(*seconds), choice)
        }
        Command::Bench { case, runs, json, output, seconds, choice } => {
            let bench = Bench {
                folder: output.join(stamp()?),
                runs: *runs,
                json: *json,
                time: Duration::from_secs(*seconds),
                choice,
            };
            bench.run(case)
        }
        Command::Smoke { output, choice } => smoke::run(output, &choice.daemons(None)?),
    }
}

fn demo(link: DemoLink, output: &Path, time: Duration, choice: &Choice) -> Result<ExitCode> {
    let name = link.case();
    let case = Case::named(name).with_context(|| format!("no case {name}"))?;
    let raw = output.join("raw");
    let runs = choice.measure(case, time, std::slice::from_ref(&raw))?;
    let report = Report::new(case, time, &runs)?;
    report.write(&output.join("report.json"))?;
    print!("{}", report.text());
    if report.quoted_run() > 0 {
        report.draw(&raw, &output.join("delays.png"))?;
        println!("report.json, delays.png and raw/ are in {}", output.display());
    }
    Ok(exit_code(report.result()))
}

struct Bench<'a> {
    folder: PathBuf,
    runs: u64,
    json: bool,
    time: Duration,
    choice: &'a Choice,
}

impl Bench<'_> {
    fn run(&self, name: &str) -> Result<ExitCode> {
        Self::check_name(name)?;
        let chosen = |case: &str| case == name || name == "all";
        let mut worst = Conclusion::Reached;
        for case in CASES.iter().filter(|case| chosen(case.name)) {
            worst = worst.max(self.run_case(case)?);
        }
        for case in [alone::IDLE, alone::HEADER].into_iter().filter(|case| chosen(case)) {
            let daemons = self.choice.daemons(None)?;
            worst = worst.max(alone::run(case, &daemons, &self.folder.join(case), self.json)?);
        }
        if chosen(star::NAME) {
            worst = worst.max(star::run(&self.folder.join(star::NAME), self.json)?);
        }
        Ok(exit_code(worst))
    }

    /// Fails unless `name` is a case or `all`.
    fn check_name(name: &str) -> Result<()> {
        let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        names.extend([alone::IDLE, alone::HEADER, star::NAME, "all"]);
        ensure!(names.contains(&name), "no case '{name}'; there are {}", names.join(", "));
        Ok(())
    }

    fn run_case(&self, case: &'static Case) -> Result<Conclusion> {
        let folder = self.folder.join(case.name);
        let folders: Vec<PathBuf> =
            (1..=self.runs).map(|run| folder.join(format!("run-{run}"))).collect();
        let runs = self.choice.measure(case, self.time, &folders)?;
        let report = Report::new(case, self.time, &runs)?;
        report.write(&folder.join("report.json"))?;
        if report.quoted_run() > 0 {
            let quoted = folder.join(format!("run-{}", report.quoted_run()));
            report.draw(&quoted, &folder.join("delays.png"))?;
        }
        if self.json {
            println!("{}", report.json()?);
        } else {
            print!("{}", report.text());
            println!("report.json, delays.png and raw samples are in {}", folder.display());
        }
        Ok(report.result())
    }
}

impl Choice {
    /// Runs all transports of a case once per folder.
    fn measure(&self, case: &'static Case, time: Duration, folders: &[PathBuf]) -> Result<Runs> {
        let rate_bps = case.link.rate_bps().filter(|_| case.rate_configured);
        let daemons = self.daemons(rate_bps)?;
        Setup { case, time, only: self.only.as_deref(), daemons: &daemons }.measure(folders)
    }

    fn daemons(&self, rate_bps: Option<u64>) -> Result<DaemonSetup> {
        let beside = std::env::current_exe()?.with_file_name("tautline");
        let program = self.tautline.clone().unwrap_or(beside);
        let program = std::path::absolute(program)?;
        Ok(DaemonSetup { program, rate_bps })
    }
}

fn exit_code(conclusion: Conclusion) -> ExitCode {
    ExitCode::from(match conclusion {
        Conclusion::Reached => 0,
        Conclusion::NotReached => 3,
        Conclusion::Void => 4,
    })
}

/// `2026-11-22-143015-HOST`.
fn stamp() -> Result<String> {
    let date = processes::run(std::process::Command::new("date").args(["-u", "+%Y-%m-%d-%H%M%S"]))?;
    let host = processes::run(std::process::Command::new("uname").arg("-n"))?;
    Ok(format!("{}-{}", date.trim(), host.trim()))
}
