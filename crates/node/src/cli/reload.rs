// SPDX-License-Identifier: Apache-2.0
//! `tautline reload`.

use super::find::Daemon;
use super::{Failure, output};
use tautline_node::reload::Changes;

/// Arguments of `tautline reload`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The daemon reads the file that it was started with. Sessions with peers that stay, their\n\
                        messages and the connection to ROS go on. A peer whose entry is gone, or has another\n\
                        key, is shut out at once.\n\n\
                        A file with a mistake changes nothing. These need a restart: name, listen, control, key,\n\
                        security, ros1, ros2, realtime, limits.max_message, limits.reassembly_bytes.\n\n\
                        Examples:\n  tautline check robot.yaml && tautline reload --dry-run\n  tautline reload\n  \
                        kill -HUP PID         the same; the outcome is in the log"
)]
pub struct Arguments {
    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Has the running daemon read its file again.
pub fn reload(arguments: &Arguments) -> Result<(), Failure> {
    let changes = arguments.daemon.connect()?.reload(arguments.dry_run).map_err(Failure::new)?;
    match arguments.json {
        true => output::print_json(&changes),
        false => output::print(&text(&changes, arguments.dry_run)),
    }
}

fn text(changes: &Changes, dry_run: bool) -> String {
    if changes.is_empty() {
        return "nothing to change: the file means what runs already\n".into();
    }
    let head = if dry_run { "would change:\n" } else { "changed:\n" };
    let lines = changes.lines().into_iter().map(|line| format!("  {line}\n"));
    std::iter::once(head.to_owned()).chain(lines).collect()
}
