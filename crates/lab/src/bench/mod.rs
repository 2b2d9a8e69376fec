// SPDX-License-Identifier: Apache-2.0
//! Cases that run real programs on real kernels: `demo`, `bench` and `smoke`.

mod alone;
mod attack;
mod case;
mod crypto;
mod daemon;
mod flood;
mod flows;
mod gateway;
mod plot;
mod recovery;
mod reload;
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
use case::Case;
use daemon::DaemonSetup;
use recovery::Interruption;
use report::{Conclusion, Report};
use ros::Ros;
use runs::{Runs, Setup};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use trial::Transport;

/// What to do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Laser, camera and commands over a 6 Mbps link: Tautline beside plain ROS.
    Demo {
        /// Which ROS the robots run; 2 is rclpy over Fast DDS, which crates/lab/ros2.sh installs.
        #[arg(long, value_enum, default_value_t = Ros::One)]
        ros: Ros,
        /// What joins robot and base.
        #[arg(long, value_enum, default_value_t = DemoLink::TokenBucket)]
        link: DemoLink,
        /// Where the report, the picture and the raw samples go; by default target/demo, with
        /// -ros2 and -radio for what is not ROS 1 and a token bucket.
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
        /// 6mbps, 6mbps-rate, 3mbps, 3mbps-rate, 6mbps-loss, 6mbps-radio, or all; with ROS 1 only:
        /// idle, header, five-peers, recovery, reload, crypto, flood, attack; with ROS 2 only:
        /// ros2-gateway.
        case: String,
        /// Which ROS the robots run; 2 is rclpy over Fast DDS, which crates/lab/ros2.sh installs.
        #[arg(long, value_enum, default_value_t = Ros::One)]
        ros: Ros,
        /// How often each case is run; the median run is quoted, of attack the median of each
        /// phase. Over a radio a run during which the emulator was late is repeated. By default 1;
        /// of recovery 10 of each interruption.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
        runs: Option<u64>,
        /// Print the report as JSON instead of a table.
        #[arg(long)]
        json: bool,
        /// Folder under which each invocation makes its own, named by date and host.
        #[arg(long, default_value = "target/bench")]
        output: PathBuf,
        /// Counted seconds per transport.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        /// Of recovery: only these.
        #[arg(long, value_delimiter = ',')]
        interruption: Vec<Interruption>,
        /// Of recovery: how many seconds the link carries nothing.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
        outage: u64,
        /// Of attack: only these kinds.
        #[arg(long, value_delimiter = ',')]
        kind: Vec<attack::Kind>,
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
    /// A publisher or subscriber of ROS 2, with or without the gateway; started by ros2-gateway.
    #[command(hide = true)]
    DdsEnd(gateway::ends::Arguments),
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

    fn folder(self, ros: Ros) -> &'static str {
        match (ros, self) {
            (Ros::One, Self::TokenBucket) => "target/demo",
            (Ros::One, Self::Radio) => "target/demo-radio",
            (Ros::Two, Self::TokenBucket) => "target/demo-ros2",
            (Ros::Two, Self::Radio) => "target/demo-ros2-radio",
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

/// Runs a command inside the enclosure.
pub fn run(command: &Command) -> Result<ExitCode> {
    // A case inside the enclosure starts these two commands.
    if !matches!(command, Command::Traffic(_) | Command::DdsEnd(_)) {
        enclosure::settle()?;
    }
    match command {
        Command::Traffic(arguments) => traffic::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::DdsEnd(arguments) => gateway::ends::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Demo { ros, link, output, seconds, choice } => {
            let name = link.case();
            let case = Case::named(name, *ros).with_context(|| format!("no case {name}"))?;
            let output = output.as_deref().unwrap_or(Path::new(link.folder(*ros)));
            demo(case, output, Duration::from_secs(*seconds), choice)
        }
        Command::Bench {
            case,
            ros,
            runs,
            json,
            output,
            seconds,
            interruption,
            outage,
            kind,
            choice,
        } => {
            // This case exists for ROS 2 only.
            let ros = if case == gateway::NAME { Ros::Two } else { *ros };
            let bench = Bench {
                ros,
                folder: output.join(stamp()?),
                runs: *runs,
                json: *json,
                time: Duration::from_secs(*seconds),
                interruptions: interruption,
                outage: Duration::from_secs(*outage),
                kinds: kind,
                choice,
            };
            bench.run(case)
        }
        Command::Smoke { output, choice } => smoke::run(output, &choice.daemons(Ros::One, None)?),
    }
}

fn demo(case: &'static Case, output: &Path, time: Duration, choice: &Choice) -> Result<ExitCode> {
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

/// Cases other than two computers with the load of [`flows::Flow`]: with ROS 1 or no ROS here,
/// with ROS 2 below.
const OF_ROS_1: &[&str] = &[
    alone::IDLE,
    alone::HEADER,
    star::NAME,
    recovery::NAME,
    reload::NAME,
    crypto::NAME,
    flood::NAME,
    attack::NAME,
];
const OF_ROS_2: &[&str] = &[gateway::NAME];

struct Bench<'a> {
    ros: Ros,
    folder: PathBuf,
    runs: Option<u64>,
    json: bool,
    time: Duration,
    interruptions: &'a [Interruption],
    outage: Duration,
    kinds: &'a [attack::Kind],
    choice: &'a Choice,
}

impl Bench<'_> {
    fn run(&self, name: &str) -> Result<ExitCode> {
        let of_two = Case::all(self.ros).map(|case| case.name);
        let others = if self.ros == Ros::One { OF_ROS_1 } else { OF_ROS_2 };
        let names: Vec<&str> = of_two.chain(others.iter().copied()).collect();
        let chosen: Vec<&str> =
            names.iter().copied().filter(|&case| name == case || name == "all").collect();
        ensure!(
            !chosen.is_empty(),
            "no case '{name}' with ROS {}; there are {}, all",
            self.ros.number(),
            names.join(", ")
        );
        let mut worst = Conclusion::Reached;
        for name in chosen {
            worst = worst.max(self.run_one(name)?);
        }
        Ok(exit_code(worst))
    }

    fn run_one(&self, name: &'static str) -> Result<Conclusion> {
        match Case::named(name, self.ros) {
            Some(case) => self.run_case(case),
            None if name == star::NAME => star::run(&self.folder.join(name), self.json),
            None if name == reload::NAME => reload::run(&self.folder.join(name), self.json),
            None if name == recovery::NAME => self.run_recovery(),
            None => {
                let daemons = self.choice.daemons(self.ros, None)?;
                let (folder, runs) = (self.folder.join(name), self.runs.unwrap_or(1));
                match name {
                    crypto::NAME => crypto::run(&daemons, &folder, self.json),
                    flood::NAME => flood::run(&daemons, runs, &folder, self.json),
                    attack::NAME => attack::run(&daemons, self.kinds, runs, &folder, self.json),
                    gateway::NAME => gateway::run(name, &daemons, &folder, self.json),
                    _ => alone::run(name, &daemons, &folder, self.json),
                }
            }
        }
    }

    fn run_recovery(&self) -> Result<Conclusion> {
        let plan = recovery::Plan {
            setup: &self.choice.daemons(self.ros, None)?,
            only: self.interruptions,
            outage: self.outage,
            runs: self.runs.unwrap_or(recovery::RUNS) as usize,
        };
        recovery::run(&plan, &self.folder.join(recovery::NAME), self.json)
    }

    fn run_case(&self, case: &'static Case) -> Result<Conclusion> {
        let folder = self.folder.join(case.name);
        let folders: Vec<PathBuf> =
            (1..=self.runs.unwrap_or(1)).map(|run| folder.join(format!("run-{run}"))).collect();
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
        let beside = std::env::current_exe()?.with_file_name("tautline");
        let program = self.tautline.clone().unwrap_or(beside);
        let program = std::path::absolute(program)?;
        Ok(DaemonSetup { program, ros, rate_bps })
    }
}

fn exit_code(conclusion: Conclusion) -> ExitCode {
    ExitCode::from(match conclusion {
        Conclusion::Reached => 0,
        Conclusion::NotReached => 3,
        Conclusion::Void => 4,
    })
}

/// Returns the name of an invocation's folder: `2026-11-22-143015-HOST`, in UTC.
fn stamp() -> Result<String> {
    let date = processes::run(std::process::Command::new("date").args(["-u", "+%Y-%m-%d-%H%M%S"]))?;
    let host = processes::run(std::process::Command::new("uname").arg("-n"))?;
    Ok(format!("{}-{}", date.trim(), host.trim()))
}
