// SPDX-License-Identifier: Apache-2.0
//! Studies of the papers that a team repeats on its own robots: how ROS scales, what a DDS costs, and
//! how well periods and deadlines are kept.
//!
//! Each subject is a module with its `Arguments` and a function `run`, which measures and concludes
//! by [`crate::rig::output::Output::conclude`].

mod dds;
mod realtime;
mod scaling;

use crate::rig::enclosure;
use anyhow::Result;
use std::process::ExitCode;

/// A study.
#[derive(clap::Subcommand)]
pub enum Subject {
    /// How many nodes, messages and bytes ROS carries, and what limits it.
    Scaling(Box<scaling::Arguments>),
    /// What publishing costs by size, QoS and middleware.
    Dds(dds::Arguments),
    /// Whether periods and deadlines are kept, with and without load.
    Realtime(realtime::Arguments),
    /// A measured program of the study of real time; started by it.
    #[command(hide = true)]
    RealtimeProgram(realtime::program::Arguments),
}

impl Subject {
    /// Whether the study measures other machines, which the enclosure's network does not reach.
    pub fn needs_network(&self) -> bool {
        matches!(self, Self::Scaling(arguments) if arguments.needs_network())
    }
}

/// Runs a study, inside the enclosure unless it needs the machine's network.
pub fn run(subject: &Subject) -> Result<ExitCode> {
    // A study inside the enclosure starts its own programs.
    let is_inside = matches!(subject, Subject::RealtimeProgram(_));
    if !is_inside && !subject.needs_network() {
        enclosure::settle()?;
    }
    match subject {
        Subject::Scaling(arguments) => scaling::run(arguments),
        Subject::Dds(arguments) => dds::run(arguments),
        Subject::Realtime(arguments) => realtime::run(arguments),
        Subject::RealtimeProgram(arguments) => {
            realtime::program::run(arguments).map(|()| ExitCode::SUCCESS)
        }
    }
}
