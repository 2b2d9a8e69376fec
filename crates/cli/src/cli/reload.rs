// SPDX-License-Identifier: Apache-2.0
//! `tautline reload`.

use super::find::Daemon;
use super::{Failure, output};
use std::io::Write;
use tautline::reload::Changes;

/// Arguments of `tautline reload`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The daemon reads the file that it was started with. Sessions with unchanged peers, their\n\
                        messages and the connection to ROS continue. A peer that was removed or got another key is\n\
                        disconnected immediately.\n\n\
                        An invalid file changes nothing. Changes of these keys need a restart: name, listen, control, key,\n\
                        security, ros1, ros2, realtime, audit, limits.max_message, limits.reassembly_bytes.\n\n\
                        Examples:\n  tautline check robot.yaml && tautline reload --dry-run\n  tautline reload\n  \
                        kill -HUP PID         the same; the outcome is in the log"
)]
pub struct Arguments {
    /// Print the changes without applying them
    #[arg(long)]
    dry_run: bool,
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub fn reload(arguments: &Arguments) -> Result<(), Failure> {
    let changes =
        arguments.daemon.connect()?.reload(arguments.dry_run, || report_wait(arguments.dry_run));
    let changes = changes.map_err(Failure::new)?;
    match arguments.json {
        true => output::print_json(&changes),
        false => output::print(&words(&changes, arguments.dry_run)),
    }
}

fn report_wait(dry_run: bool) {
    let more = if dry_run { "" } else { "; the daemon may apply the changes even after Ctrl-C" };
    // Without standard error the notice has no reader.
    let _ = writeln!(std::io::stderr(), "waiting: the daemon has not answered yet{more}");
}

fn words(changes: &Changes, dry_run: bool) -> String {
    let head = match (changes.is_empty(), dry_run) {
        (true, _) => "no changes: the file matches the running configuration\n",
        (false, true) => "would change:\n",
        (false, false) => "changed:\n",
    };
    let lines = changes.lines().into_iter().map(|line| format!("  {line}\n"));
    let mut text: String = std::iter::once(head.to_owned()).chain(lines).collect();
    if !changes.kept.is_empty() {
        text.push_str(
            "changes by 'tautline set', which override the file until the daemon stops:\n",
        );
        text.extend(changes.kept.iter().map(|change| format!("  {change}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::reload::{Change, Kind};
    use tautline::status::TopicChange;

    #[test]
    fn earlier_settings_are_named_even_if_the_file_is_unchanged() {
        let scan = TopicChange { topic: "/scan".into(), priority: Some(9), rate_hz: None };
        let camera = TopicChange { topic: "/camera/**".into(), priority: None, rate_hz: Some(0.0) };
        let mut changes = Changes { changes: Vec::new(), kept: vec![scan, camera] };
        let kept = "changes by 'tautline set', which override the file until the daemon stops:\n  \
                    /scan: priority=9\n  /camera/**: rate=none\n";
        let head = "no changes: the file matches the running configuration\n";
        assert_eq!(words(&changes, true), format!("{head}{kept}"));
        let (what, name) = ("peer".into(), "thief".into());
        changes.changes = vec![Change { what, name, kind: Kind::Removed, details: Vec::new() }];
        assert_eq!(words(&changes, true), format!("would change:\n  peer thief removed\n{kept}"));
        changes.kept.clear();
        assert_eq!(words(&changes, false), "changed:\n  peer thief removed\n");
    }
}
