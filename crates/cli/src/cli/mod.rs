// SPDX-License-Identifier: Apache-2.0
//! The command line: arguments and the modules of the commands.

mod audit;
mod check;
mod doctor;
mod fields;
mod find;
mod init;
mod keygen;
mod logging;
mod output;
#[cfg(test)]
mod pages;
mod pair;
mod plan;
mod relay;
mod reload;
mod rights;
mod ros_arguments;
mod run;
mod set;
mod status;
mod top;
mod words;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Exit code of `run` for a wrong file (EX_CONFIG of sysexits.h). systemd does not restart the
/// daemon on this code.
pub const EXIT_CONFIG: u8 = 78;

/// Exit code for unknown arguments, the same as that of clap.
const EXIT_USAGE: u8 = 2;

#[derive(Debug, Parser)]
#[command(
    name = "tautline",
    version,
    about = "Carries ROS topics between robots over bad radio links, the important ones on time",
    after_help = "Start here:\n  tautline pair            connect two machines\n\nOr by hand:\n  \
                  tautline init            write a commented robot.yaml\n  tautline keygen robot1.key\n  \
                  tautline check robot.yaml\n  tautline run robot.yaml\n  tautline top",
    max_term_width = 100
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon until SIGTERM or Ctrl-C
    Run(run::Arguments),
    /// Connect two machines: exchange names, keys and topics under a short code
    Pair(pair::Arguments),
    /// Check the file of a robot or relay and explain it
    Check(check::Arguments),
    /// Run a relay: forward packets between the members of teams, without ROS
    Relay(relay::Arguments),
    /// Say whether the topics of several robots fit on their radio
    Plan(plan::Arguments),
    /// Write a commented robot.yaml or relay.yaml to start from
    Init(init::Arguments),
    /// Create this node's key, which identifies it to its peers
    Keygen(keygen::Arguments),
    /// Look at this robot and say what to change, the worst first
    Doctor(doctor::Arguments),
    /// Show the state of a running daemon
    Status(status::Arguments),
    /// Watch a running daemon live
    Top(top::Arguments),
    /// Change topics on a running daemon
    Set(set::Arguments),
    /// Show the audit log: peers up and down, refusals, changes
    Audit(audit::Arguments),
    /// Apply the changed file to a running daemon
    Reload(reload::Arguments),
}

#[derive(Debug)]
pub struct Failure {
    exit_code: u8,
    text: String,
}

impl Failure {
    pub fn new(text: impl ToString) -> Self {
        Self { exit_code: 1, text: text.to_string() }
    }

    pub fn with_code(exit_code: u8, text: impl ToString) -> Self {
        Self { exit_code, text: text.to_string() }
    }
}

pub fn main() -> ExitCode {
    let (own, ros) = match ros_arguments::split_arguments(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let result = match Arguments::parse_from(own).command {
        Command::Run(arguments) => run::run(&arguments, ros),
        Command::Pair(arguments) => pair::pair(&arguments),
        Command::Relay(arguments) => relay::relay(&arguments, ros),
        Command::Check(arguments) => check::check(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Init(arguments) => init::init(&arguments),
        Command::Keygen(arguments) => keygen::keygen(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Status(arguments) => status::status(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Set(arguments) => set::set(&arguments),
        Command::Audit(arguments) => audit::audit(&arguments),
        Command::Reload(arguments) => reload::reload(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { exit_code, text }) => {
            if !text.is_empty() {
                eprintln!("{text}");
            }
            ExitCode::from(exit_code)
        }
    }
}
