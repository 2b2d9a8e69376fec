// SPDX-License-Identifier: Apache-2.0
//! `tautline set`.

use super::find::Daemon;
use super::{Failure, output};
use tautline::config::units;
use tautline::status::TopicChange;
use tautline_gateway::pattern::Pattern;

/// Maximum rate in hertz, as in the file.
const MAX_RATE_HZ: f64 = 100_000.0;

/// Arguments of `tautline set`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tautline set /scan priority=200\n  tautline set '/camera/**' priority=20 rate=5Hz\n  \
                        tautline set /camera/image rate=none\n\n\
                        Changes last until the daemon stops. Write permanent changes to its file."
)]
pub struct Arguments {
    /// A topic of this robot, or a pattern ('/camera/**')
    topic: String,
    /// priority=0..255, rate=5Hz, rate=none
    #[arg(required = true, value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Print the changed topics as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub fn set(arguments: &Arguments) -> Result<(), Failure> {
    let change = change(&arguments.topic, &arguments.changes).map_err(Failure::new)?;
    let changed = arguments.daemon.connect()?.change_topic(change).map_err(Failure::new)?;
    if arguments.json {
        return output::print_json(&serde_json::json!({ "changed": changed }));
    }
    let lines: String = changed.iter().map(|topic| format!("changed {topic}\n")).collect();
    output::print(&lines)
}

fn change(topic: &str, changes: &[String]) -> Result<TopicChange, String> {
    Pattern::new(topic).map_err(|e| format!("topic: {e}"))?;
    let mut change = TopicChange { topic: topic.into(), ..TopicChange::default() };
    for text in changes {
        let wrong = |allowed: &str| format!("found '{text}'; allowed: {allowed}");
        match text.split_once('=') {
            Some(("priority", value)) => {
                change.priority = Some(
                    value.parse().map_err(|_| wrong("priority=N, a whole number from 0 to 255"))?,
                );
            }
            Some(("rate", "none")) => change.rate_hz = Some(0.0),
            Some(("rate", value)) => {
                let rate = units::frequency(value).filter(|rate| *rate <= MAX_RATE_HZ);
                change.rate_hz =
                    Some(rate.ok_or_else(|| wrong("rate=5Hz, at most 100000Hz, or rate=none"))?);
            }
            _ => return Err(wrong("priority=0..255, rate=5Hz or rate=none")),
        }
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_changes(changes: &[&str]) -> Result<TopicChange, String> {
        change("/scan", &changes.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn changes_are_read_as_in_the_file() {
        let both = parse_changes(&["priority=200", "rate=5Hz"]).unwrap();
        assert_eq!((both.priority, both.rate_hz), (Some(200), Some(5.0)));
        assert_eq!(parse_changes(&["rate=none"]).unwrap().rate_hz, Some(0.0));
    }

    #[test]
    fn a_wrong_change_is_refused_with_the_allowed_values() {
        for bad in ["priority=300", "prio=1", "rate=fast", "rate=-1", "200"] {
            let error = parse_changes(&[bad]).unwrap_err();
            assert!(error.contains(bad) && error.contains("allowed"), "{error}");
        }
        assert!(change("scan", &[]).unwrap_err().contains("'scan'"));
    }
}
