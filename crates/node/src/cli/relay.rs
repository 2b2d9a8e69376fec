// SPDX-License-Identifier: Apache-2.0
//! `tautline relay`.

use super::logging::LogFormat;
use super::ros_arguments::RosArguments;
use super::{Failure, run};
use std::path::PathBuf;
use tautline_node::config::FileKind;

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
    /// Log filter for standard error: a level (off, error, warn, info, debug, trace) or directives
    /// [default: info]
    #[arg(long, value_name = "LEVEL", env = "TAUTLINE_LOG")]
    log: Option<String>,
    /// Format of the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

pub fn relay(arguments: &Arguments, ros: RosArguments) -> Result<(), Failure> {
    let log = arguments.log.as_deref();
    run::run_file(&arguments.file, FileKind::Relay, (log, arguments.log_format), ros)
}
