// SPDX-License-Identifier: Apache-2.0
//! `tautline relay`.

use super::logging::LogArguments;
use super::ros_arguments::RosArguments;
use super::{Failure, run};
use std::path::PathBuf;
use tautline::config::FileKind;

/// Arguments of `tautline relay`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tautline init --relay\n  tautline keygen relay.key\n  tautline check relay.yaml\n  \
                        tautline relay relay.yaml\n\n\
                        The relay needs no ROS. Members of a team reach each other through it, and nobody else. It cannot \
                        read what it forwards.\n\
                        Exit code: 78 if the file or the key is wrong, 1 after other failures."
)]
pub struct Arguments {
    /// The relay's file
    file: PathBuf,
    #[command(flatten)]
    log: LogArguments,
}

pub fn relay(arguments: &Arguments, ros: RosArguments) -> Result<(), Failure> {
    run::run_file(&arguments.file, FileKind::Relay, &arguments.log, ros)
}
