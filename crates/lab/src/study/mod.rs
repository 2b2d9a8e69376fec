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
    Scaling(scaling::Arguments),
    /// What publishing costs by size, QoS and middleware.
    Dds(dds::Arguments),
    /// Whether periods and deadlines are kept, with and without load.
    Realtime(realtime::Arguments),
    /// A measured program of the study of real time; started by it.
    #[command(hide = true)]
    RealtimeProgram(realtime::program::Arguments),
}

/// Runs a study inside the enclosure.
pub fn run(subject: &Subject) -> Result<ExitCode> {
    // A study inside the enclosure starts its own programs.
    if !matches!(subject, Subject::RealtimeProgram(_)) {
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
