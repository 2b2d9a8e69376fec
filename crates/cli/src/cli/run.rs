// SPDX-License-Identifier: Apache-2.0
//! `tautline run`.

use super::logging::{self, LogArguments};
use super::ros_arguments::RosArguments;
use super::{EXIT_CONFIG, Failure};
use std::path::{Path, PathBuf};
use tautline::OpenError;
use tautline::config::{self, FileKind};
use tautline_cli::{Origin, RunError};
use tautline_plan::with_warnings;

/// Arguments of `tautline run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tautline run robot.yaml\n  tautline run robot.yaml --log debug\n  \
                        tautline run robot.yaml --log warn,tautline_gateway=trace --log-format json\n\n\
                        Arguments of roslaunch (__name:=x) and of ros2 launch (--ros-args) are accepted.\n\
                                                Exit code: 78 if the file or the key is wrong, 1 after other failures."
)]
pub struct Arguments {
    /// The robot's file
    file: PathBuf,
    #[command(flatten)]
    log: LogArguments,
}

pub fn run(arguments: &Arguments, ros: RosArguments) -> Result<(), Failure> {
    run_file(&arguments.file, FileKind::Robot, &arguments.log, ros)
}

/// Runs the daemon with a file of this kind, until SIGTERM or Ctrl-C.
pub fn run_file(
    file: &Path,
    kind: FileKind,
    arguments: &LogArguments,
    ros: RosArguments,
) -> Result<(), Failure> {
    let RosArguments { launch, log_level, ignored } = ros;
    let loaded = config::load_as(file, &launch, Some(kind));
    let checked = with_warnings(loaded.map_err(|e| Failure::with_code(EXIT_CONFIG, e))?);
    let log = arguments.log.as_deref().or(log_level.as_deref()).unwrap_or("info");
    logging::start(log, arguments.log_format)?;
    if !ignored.is_empty() {
        let all = ignored.join("', '");
        tracing::warn!(
            "arguments of ROS without effect: '{all}'; the file names topics and their changes"
        );
    }
    for warning in &checked.warnings {
        tracing::warn!("{}:{warning}", file.display());
    }
    let origin = Origin { file: file.to_owned(), sha256: checked.sha256, launch };
    tautline_cli::run(checked.config, &origin).map_err(|error| match error {
        RunError::Open(OpenError::Key(_) | OpenError::Setup(_)) => {
            Failure::with_code(EXIT_CONFIG, error)
        }
        _ => Failure::new(error),
    })
}
