// SPDX-License-Identifier: Apache-2.0
//! The output of a case or a study: its folder, its report and its conclusion.

use super::machine::Machine;
use super::verdict::{Conclusion, Verdict};
use crate::rig::processes::run;
use crate::rig::progress::Progress;
use anyhow::Result;
use serde::Serialize;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// See tcp(7).
const TCP_CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Date, machine and source revision of a report.
#[derive(Serialize)]
pub struct About {
    /// Time of the report, UTC.
    pub date: String,
    host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Processor, memory and preemption model.
    pub machine: Machine,
    /// Congestion control of the other transports' TCP; namespaces have the machine's.
    pub tcp_congestion_control: String,
    /// Revision of the source.
    pub revision: String,
}

impl About {
    /// Describes this machine and this source tree now.
    pub fn now() -> Self {
        let tree = env!("CARGO_MANIFEST_DIR");
        Self {
            date: line_of("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
            host: line_of("uname", &["-n"]),
            kernel: line_of("uname", &["-r"]),
            machine: Machine::now(),
            tcp_congestion_control: line_of("cat", &[TCP_CONGESTION_CONTROL]),
            revision: line_of("git", &["-C", tree, "describe", "--always", "--dirty"]),
        }
    }

    /// Describes date, machine and revision in one line for a page.
    pub fn line(&self) -> String {
        let Self { date, host, kernel, machine, tcp_congestion_control, revision } = self;
        let machine = machine.line(kernel);
        format!(
            "Measured {date} on {host} ({machine}), TCP {tcp_congestion_control}, revision {revision}."
        )
    }
}

/// Returns the name of a variant in reports.
pub fn name_in_reports(variant: impl Serialize) -> String {
    let value = serde_json::to_value(variant).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the output of a command, or `unknown`, since a report is useful without it.
fn line_of(program: &str, arguments: &[&str]) -> String {
    run(Command::new(program).args(arguments))
        .map_or("unknown".into(), |said| said.trim().to_owned())
}

/// Returns the name of an invocation's folder: `2026-11-22-143015-HOST`, in UTC.
pub fn stamp() -> Result<String> {
    let date = run(Command::new("date").args(["-u", "+%Y-%m-%d-%H%M%S"]))?;
    let host = run(Command::new("uname").arg("-n"))?;
    Ok(format!("{}-{}", date.trim(), host.trim()))
}

/// Destination of the report of a case or a study.
pub struct Output {
    /// Name of the case on the command line.
    pub case: &'static str,
    /// Folder of the report, the logs and the raw samples.
    pub folder: PathBuf,
    /// Whether the report is printed as JSON.
    pub as_json: bool,
}

#[derive(Serialize)]
struct Report<F> {
    case: &'static str,
    #[serde(flatten)]
    about: About,
    #[serde(flatten)]
    figures: F,
    verdicts: Vec<Verdict>,
}

impl Output {
    /// Announces the stages of the case, and enters the first.
    pub fn progress(&self, stages: &[(&str, Duration)]) -> Progress {
        Progress::for_case(self.case, stages)
    }

    /// Writes `report.json` and prints it, or `words` after the name of the case.
    pub fn conclude(
        &self,
        figures: impl Serialize,
        verdicts: Vec<Verdict>,
        words: &str,
    ) -> Result<Conclusion> {
        let conclusion = Conclusion::new(&verdicts);
        let report = Report { case: self.case, about: About::now(), figures, verdicts };
        let json = serde_json::to_string_pretty(&report)?;
        std::fs::write(self.folder.join("report.json"), format!("{json}\n"))?;
        match self.as_json {
            true => println!("{json}"),
            false => println!("\n{}:{words}", self.case),
        }
        Ok(conclusion)
    }

    /// Returns the line that names the folder.
    pub fn raw_line(&self) -> String {
        format!("report.json and raw samples are in {}", self.folder.display())
    }
}
