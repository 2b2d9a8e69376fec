// SPDX-License-Identifier: Apache-2.0
//! Arguments of `tautline pair`.

use super::ros;
use std::path::PathBuf;
use tautline_cli::pairing::PORT;

/// Arguments of `tautline pair`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sudo tautline pair --name base     at the base: shows a code and waits\n  \
                  sudo tautline pair 4821-7390 --name robot1\n                                     \
                  on the robot: finds the base, which shows its topics as /robot1/scan\n  \
                  sudo tautline pair pi@robot1       at the base: both in one command, over ssh\n  \
                  sudo tautline pair pi@robot1 -- --name robot1 --ros2=7\n  \
                  sudo tautline pair 4821-7390 --at 10.0.0.2 --name robot1\n\n\
                  The base listens on TCP 18470 and UDP 18471 until the pairing ends. Both machines show what \
                  they would write and ask; Ctrl-C before that leaves nothing.\n\
                  /usr/share/doc/tautline/how-to/pair.md has more."
)]
pub struct Arguments {
    /// On the robot: the code that the base shows. At the base: nothing, or the robot for ssh
    #[arg(value_name = "CODE|USER@ROBOT")]
    pub target: Option<String>,
    /// Address or host name of the base, with :PORT if the port is not 18470
    #[arg(long, value_name = "HOST")]
    pub at: Option<String>,
    /// Name of this machine's node [default: the name in the file, else that of the machine]
    #[arg(long)]
    pub name: Option<String>,
    /// The file to write or extend
    #[arg(long, value_name = "PATH", default_value = tautline_cli::unit::FILE)]
    pub file: PathBuf,
    #[command(flatten)]
    pub ros: ros::Flags,
    /// Answer the question with yes
    #[arg(long, short)]
    pub yes: bool,
    /// Write the lines of a peer with the same name again, even if it has another key
    #[arg(long)]
    pub replace: bool,
    /// Pair and show the result, and write nothing at either end
    #[arg(long)]
    pub dry_run: bool,
    /// Do not start the daemon, and do not make it read the file again
    #[arg(long)]
    pub no_start: bool,
    /// Read the code from standard input
    #[arg(long, conflicts_with = "target")]
    pub code_from_stdin: bool,
    /// TCP port of the base
    #[arg(long, value_name = "PORT", default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Seconds for which the base waits
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait: u64,
    /// Print JSON, one event on each line; needs --yes
    #[arg(long, requires = "yes")]
    pub json: bool,
    /// With USER@ROBOT: arguments of 'tautline pair' on the robot, such as --name or --ros2
    #[arg(last = true, value_name = "ARGUMENTS OF THE ROBOT")]
    pub robot_arguments: Vec<String>,
}
