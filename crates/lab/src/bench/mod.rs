// SPDX-License-Identifier: Apache-2.0
//! Cases that run real programs on real kernels: `demo`, `bench` and `smoke`.
//!
//! `comparison` has the cases of two computers, which differ in their link and their targets. Each
//! other case is a module with its `NAME` and a function `run`, which measures
//! and concludes by [`Output::conclude`]. Both use the computers, daemons and ROS programs of
//! `crate::setup`.

mod alone;
mod attack;
mod bottleneck;
mod comparison;
mod crypto;
mod flood;
mod gateway;
mod links;
mod recovery;
mod reload;
mod smoke;
mod star;

use crate::rig::enclosure;
use crate::rig::output::{Output, stamp};
use crate::rig::processes::make_folder;
use crate::rig::verdict::Conclusion;
use crate::setup::daemon::{DaemonPath, DaemonSetup};
use crate::setup::ros::Ros;
use crate::setup::{ends, traffic};
use anyhow::{Context, Result, ensure};
use comparison::case::Case;
use comparison::report::Report;
use comparison::runs::{Runs, Setup};
use comparison::trial::Transport;
use recovery::Interruption;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A bench command.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Compare Tautline with plain ROS: laser, camera and commands over a 6 Mbps link.
    Demo(Demo),
    /// Run one case, or all cases, and keep the raw samples.
    Bench(Bench),
    /// Check correctness: topics in both directions, and latched topics for late joiners. Two
    /// masters, no slow link.
    Smoke {
        /// Folder for logs.
        #[arg(long, default_value = "target/smoke")]
        output: PathBuf,
        #[command(flatten)]
        choice: Choice,
    },
    /// A node that makes and records messages; started by five-peers.
    #[command(hide = true)]
    Traffic(traffic::Arguments),
    /// A publisher or subscriber of ROS 2, with or without the gateway; started by ros2-gateway.
    #[command(hide = true)]
    DdsEnd(ends::Arguments),
}

/// Arguments of the demo.
#[derive(clap::Args)]
pub struct Demo {
    /// ROS version of the robots; 2 is rclpy over Fast DDS, which crates/lab/ros2.sh installs.
    #[arg(long, value_enum, default_value_t = Ros::One)]
    ros: Ros,
    /// Link between robot and base.
    #[arg(long, value_enum, default_value_t = DemoLink::TokenBucket)]
    link: DemoLink,
    /// Folder for the report, the picture and the raw samples; by default target/demo, with the
    /// suffixes -ros2 and -radio where they apply.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Counted seconds per transport.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    choice: Choice,
}

/// Arguments of a bench.
#[derive(clap::Args)]
pub struct Bench {
    /// Case: 6mbps, 6mbps-rate, 3mbps, 3mbps-rate, 6mbps-loss, 6mbps-radio, or all; with ROS 1
    /// only: idle, header, five-peers, recovery, reload, crypto, flood, attack, links, bottleneck; with
    /// ROS 2 only: ros2-gateway.
    case: String,
    /// ROS version of the robots; 2 is rclpy over Fast DDS, which crates/lab/ros2.sh installs.
    #[arg(long, value_enum, default_value_t = Ros::One)]
    ros: Ros,
    /// Number of runs of each case, by default 1 (recovery: 10 of each interruption). The median
    /// run is quoted (attack: the median of each phase). Over a radio, a run during which the
    /// emulator was late is repeated.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: Option<u64>,
    /// Print the report as JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Folder in which each invocation creates its own folder, named by date and host.
    #[arg(long, default_value = "target/bench")]
    output: PathBuf,
    /// Counted seconds per transport, by default 60 (bottleneck: 20).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// For recovery: run only these interruptions.
    #[arg(long, value_delimiter = ',')]
    interruption: Vec<Interruption>,
    /// For recovery: duration of an outage in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    outage: u64,
    /// For attack: run only these kinds.
    #[arg(long, value_delimiter = ',')]
    kind: Vec<attack::Kind>,
    /// For bottleneck: run the policers whose names begin so, such as 20Mbps or 20Mbps-8KB-2, or all;
    /// by default eight of them (under ten minutes).
    #[arg(long, value_delimiter = ',')]
    cell: Vec<String>,
    /// For bottleneck: run these recorded capacities in mahimahi's format, also compressed (.gz).
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    trace: Vec<PathBuf>,
    /// For bottleneck: also write what was measured into explanation/measurements.md and
    /// measured/bottleneck.json below this folder; other cells stay as they are.
    #[arg(long, value_name = "FOLDER")]
    docs: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
}

/// The link between the demo's two computers.
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

    fn folder(self, ros: Ros) -> &'static str {
        match (ros, self) {
            (Ros::One, Self::TokenBucket) => "target/demo",
            (Ros::One, Self::Radio) => "target/demo-radio",
            (Ros::Two, Self::TokenBucket) => "target/demo-ros2",
            (Ros::Two, Self::Radio) => "target/demo-ros2-radio",
        }
    }
}

/// The daemon and the transports that take part.
#[derive(clap::Args)]
pub struct Choice {
    #[command(flatten)]
    tautline: DaemonPath,
    /// Measure only these transports (targets of the others count as not reached).
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<Transport>>,
}

/// Runs a command inside the enclosure.
pub fn run(command: &Command) -> Result<ExitCode> {
    // A case inside the enclosure starts these two commands.
    if !matches!(command, Command::Traffic(_) | Command::DdsEnd(_)) {
        enclosure::settle()?;
    }
    match command {
        Command::Traffic(arguments) => traffic::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::DdsEnd(arguments) => ends::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Demo(demo) => demo.run(),
        Command::Bench(bench) => bench.run(),
        Command::Smoke { output, choice } => smoke::run(output, &choice.daemons(Ros::One, None)?),
    }
}

impl Demo {
    fn run(&self) -> Result<ExitCode> {
        let name = self.link.case();
        let case = Case::named(name, self.ros).with_context(|| format!("no case {name}"))?;
        let output = self.output.as_deref().unwrap_or(Path::new(self.link.folder(self.ros)));
        let (raw, time) = (output.join("raw"), Duration::from_secs(self.seconds));
        let runs = self.choice.measure(case, time, std::slice::from_ref(&raw))?;
        let report = Report::new(case, time, &runs)?;
        report.write(&output.join("report.json"))?;
        print!("{}", report.to_text());
        if report.quoted_run() > 0 {
            report.draw(&raw, &output.join("delays.png"))?;
            println!("report.json, delays.png and raw/ are in {}", output.display());
        }
        Ok(report.result().exit_code())
    }
}

/// Cases with ROS 1 or without ROS, other than those of `comparison`.
const OF_ROS_1: &[&str] = &[
    alone::IDLE,
    alone::HEADER,
    star::NAME,
    recovery::NAME,
    reload::NAME,
    crypto::NAME,
    flood::NAME,
    attack::NAME,
    links::NAME,
    bottleneck::NAME,
];
/// Counted seconds of a transport in [`Case`], unless the user states them.
const SECONDS: u64 = 60;
/// Cases with ROS 2, other than those of `comparison`.
const OF_ROS_2: &[&str] = &[gateway::NAME];

impl Bench {
    /// Returns the ROS of the robots; one case exists for ROS 2 only.
    fn ros(&self) -> Ros {
        if self.case == gateway::NAME { Ros::Two } else { self.ros }
    }

    fn run(&self) -> Result<ExitCode> {
        let (ros, folder) = (self.ros(), self.output.join(stamp()?));
        let of_two = Case::for_ros(ros).map(|case| case.name);
        let others = if ros == Ros::One { OF_ROS_1 } else { OF_ROS_2 };
        let names: Vec<&str> = of_two.chain(others.iter().copied()).collect();
        let chosen = |case: &&str| self.case == *case || self.case == "all";
        let chosen: Vec<&str> = names.iter().copied().filter(chosen).collect();
        ensure!(
            !chosen.is_empty(),
            "no case '{}' with ROS {}; there are {}, all",
            self.case,
            ros.number(),
            names.join(", ")
        );
        let mut worst = Conclusion::Reached;
        for case in chosen {
            worst = worst.max(self.run_one(case, folder.join(case))?);
        }
        Ok(worst.exit_code())
    }

    fn run_one(&self, case: &'static str, folder: PathBuf) -> Result<Conclusion> {
        if let Some(case) = Case::named(case, self.ros()) {
            return self.run_case(case, &folder);
        }
        make_folder(&folder)?;
        let output = Output { case, folder, as_json: self.json };
        let daemons = self.choice.daemons(self.ros(), None)?;
        let runs = self.runs.unwrap_or(1);
        match case {
            star::NAME => star::run(&output),
            reload::NAME => reload::run(&output),
            recovery::NAME => {
                let plan = recovery::Plan {
                    setup: &daemons,
                    only: &self.interruption,
                    outage: Duration::from_secs(self.outage),
                    runs: self.runs.unwrap_or(recovery::RUNS) as usize,
                };
                recovery::run(&plan, &output)
            }
            crypto::NAME => crypto::run(&daemons, &output),
            flood::NAME => flood::run(&daemons, runs, &output),
            attack::NAME => attack::run(&daemons, &self.kind, runs, &output),
            links::NAME => links::run(&daemons, &output),
            bottleneck::NAME => {
                self.choice.check(Ros::One)?;
                let plan = bottleneck::Plan {
                    setup: &daemons,
                    only: self.choice.only.as_deref(),
                    cells: &self.cell,
                    traces: &self.trace,
                    runs,
                    time: self.time(bottleneck::SECONDS),
                    docs: self.docs.as_deref(),
                };
                bottleneck::run(&plan, &output)
            }
            gateway::NAME => gateway::run(&daemons, &output),
            _ => alone::run(&daemons, &output),
        }
    }

    fn time(&self, by_default: u64) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(by_default))
    }

    fn run_case(&self, case: &'static Case, folder: &Path) -> Result<Conclusion> {
        let folders: Vec<PathBuf> =
            (1..=self.runs.unwrap_or(1)).map(|run| folder.join(format!("run-{run}"))).collect();
        let time = self.time(SECONDS);
        let runs = self.choice.measure(case, time, &folders)?;
        let report = Report::new(case, time, &runs)?;
        report.write(&folder.join("report.json"))?;
        if report.quoted_run() > 0 {
            let quoted = folder.join(format!("run-{}", report.quoted_run()));
            report.draw(&quoted, &folder.join("delays.png"))?;
        }
        if self.json {
            println!("{}", report.json()?);
        } else {
            print!("{}", report.to_text());
            println!("report.json, delays.png and raw samples are in {}", folder.display());
        }
        Ok(report.result())
    }
}

impl Choice {
    /// Runs all transports of a case once per folder.
    fn measure(&self, case: &'static Case, time: Duration, folders: &[PathBuf]) -> Result<Runs> {
        self.check(case.ros)?;
        let rate_bps = case.link.rate_bps().filter(|_| case.rate_configured);
        let daemons = self.daemons(case.ros, rate_bps)?;
        Setup { case, time, only: self.only.as_deref(), daemons: &daemons }.measure(folders)
    }

    /// Fails if `--only` names a transport that robots with `ros` do not have.
    fn check(&self, ros: Ros) -> Result<()> {
        for transport in self.only.iter().flatten() {
            let name = transport.name();
            let with = ros.number();
            let fits = transport.ros().is_none_or(|own| own == ros);
            ensure!(fits, "--only {name}: no transport of ROS {with}; --ros says which is run");
        }
        Ok(())
    }

    fn daemons(&self, ros: Ros, rate_bps: Option<u64>) -> Result<DaemonSetup> {
        Ok(DaemonSetup { program: self.tautline.absolute()?, ros, rate_bps })
    }
}
