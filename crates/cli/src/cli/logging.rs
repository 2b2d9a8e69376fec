// SPDX-License-Identifier: Apache-2.0
//! Logs of the daemon, on standard error.

use super::Failure;
use clap::ValueEnum;
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer as _, Registry};

/// Prefix of the names of this project's crates.
const OWN_CRATES: &str = "tautline";

/// Arguments of commands that run a daemon.
#[derive(Debug, clap::Args)]
pub struct LogArguments {
    /// Log filter for standard error: a level (off, error, warn, info, debug, trace) or directives
    /// [default: info]
    #[arg(long, value_name = "LEVEL", env = "TAUTLINE_LOG")]
    pub log: Option<String>,
    /// Format of the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// How each event is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object per line
    Json,
}

/// Starts logging; `filter` is a level, or directives such as `tautline_gateway=debug`.
pub fn start(filter: &str, format: LogFormat) -> Result<(), Failure> {
    let targets = parse_filter(filter)?;
    let is_for_people = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let to_stderr =
        Layer::<Registry>::default().with_writer(std::io::stderr).with_ansi(is_for_people);
    // The journal adds a time to each line itself.
    let in_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let layer = match (format, in_journal) {
        (LogFormat::Json, _) => to_stderr.json().boxed(),
        (LogFormat::Text, true) => to_stderr.without_time().boxed(),
        (LogFormat::Text, false) => to_stderr.boxed(),
    };
    let started = tracing_subscriber::registry().with(layer.with_filter(targets)).try_init();
    started.map_err(Failure::new)
}

fn parse_filter(filter: &str) -> Result<Targets, Failure> {
    if let Ok(level) = filter.parse::<LevelFilter>() {
        return Ok(Targets::new()
            .with_default(level.min(LevelFilter::WARN))
            .with_target(OWN_CRATES, level));
    }
    let directives = filter.parse::<Targets>();
    let allowed = "allowed: off, error, warn, info, debug, trace, or directives such as warn,tautline_gateway=debug";
    directives.map_err(|_| Failure::new(format!("--log: found '{filter}'; {allowed}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_log_level_applies_only_to_our_crates() {
        let filter = parse_filter("debug").unwrap();
        assert!(filter.would_enable("tautline_gateway::ros1", &Level::DEBUG));
        assert!(!filter.would_enable("hyper", &Level::INFO));
        assert!(!parse_filter("error").unwrap().would_enable("hyper", &Level::WARN));
    }

    #[test]
    fn directives_choose_one_crate() {
        let filter = parse_filter("warn,tautline_gateway=trace").unwrap();
        assert!(filter.would_enable("tautline_gateway::ros1", &Level::TRACE));
        assert!(!filter.would_enable("tautline::topics", &Level::INFO));
        assert!(parse_filter("tautline=loud").unwrap_err().text.contains("'tautline=loud'"));
    }
}
