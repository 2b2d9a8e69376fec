// SPDX-License-Identifier: Apache-2.0
//! One load on the networks of docs/how-to/networks.md, with Tautline and with plain ROS 1, in virtual
//! time.

use super::OnTraces;
use crate::rig::docs_page;
use crate::rig::parallel;
use crate::rig::processes::{make_folder, read_packed};
use crate::rig::progress::Progress;
use crate::rig::stats::{self, Samples};
use crate::rig::table::{markdown_row, markdown_rule};
use crate::scenario::{self, NetworkKind, Scenario};
use crate::sim;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The rows: words, and the name of the scenario.
const NETWORKS: [(&str, &str); 8] = [
    ("wired tether, 100 Mbps", "network-tether"),
    ("Wi-Fi, own access point, 3 to 60 m", "network-wifi-own"),
    ("the same, shared with six stations that send all the time", "network-wifi-shared"),
    ("mesh, three hops of 12 Mbps", "network-mesh"),
    ("the same, with Tautline relays at the hops", "network-mesh-relays"),
    ("LTE, recorded on a drive", LTE),
    ("low orbit, 4 to 15 Mbps, another satellite every 15 s", "network-leo"),
    ("geostationary, 2 Mbps, 600 ms, 1 % loss", "network-geo"),
];
const LTE: &str = "network-lte";
/// The network of [`LTE`] with a recorded capacity.
const MODEM: &str = "modem";
/// The recording that replaces the modem of [`LTE`].
const RECORDING: &str = "ATT-LTE-driving-2016.up.gz";
const FLOWS: [&str; 3] = ["laser", "camera", "command"];
/// Expected duration of a network, for the progress line.
const EXPECTED: Duration = Duration::from_secs(2);

/// Figures of one flow.
#[derive(Debug, Clone, Serialize)]
struct Figures {
    flow: &'static str,
    arrived_percent: f64,
    /// Median delay of the messages that arrived.
    p50_ms: f64,
    p99_ms: f64,
}

/// One network.
#[derive(Debug, Clone, Serialize)]
struct Row {
    network: &'static str,
    scenario: &'static str,
    tautline: Vec<Figures>,
    plain_ros: Vec<Figures>,
}

impl Figures {
    fn from_samples(flow: &'static str, samples: &Samples, duration: u64) -> Self {
        let delays = samples.delays(0..duration);
        let sent = samples.published_count(0..duration).max(1) as f64;
        Self {
            flow,
            arrived_percent: 100.0 * delays.len() as f64 / sent,
            p50_ms: stats::percentile(delays.clone(), 0.5),
            p99_ms: stats::p99(delays),
        }
    }

    /// Returns `p50 / p99`, and what did not arrive.
    fn words(&self) -> String {
        let lost = 100.0 - self.arrived_percent;
        let ms =
            |value: f64| if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
        let lost = match lost {
            none if none < 0.05 => String::new(),
            few if few < 0.95 => format!(" / −{few:.1} %"),
            many => format!(" / −{many:.0} %"),
        };
        format!("{} / {}{lost}", ms(self.p50_ms), ms(self.p99_ms))
    }
}

/// Returns the recorded link; `None` if the folder does not have it.
fn recording(folder: &Path) -> Result<Option<tautline_medium::Trace>> {
    let file = folder.join(RECORDING);
    if !file.is_file() {
        return Ok(None);
    }
    let text = read_packed(&file).with_context(|| format!("cannot read {}", file.display()))?;
    scenario::recording(&text).map(Some)
}

fn load(name: &str, folder: &Path) -> Result<Scenario> {
    let mut scenario = scenario::named(name)?;
    if name == LTE
        && let Some(trace) = recording(folder)?
    {
        for network in scenario.networks.iter_mut().filter(|it| it.name == MODEM) {
            if let NetworkKind::Pipe(pipe) = &mut network.kind {
                pipe.trace = Some(trace.clone());
            }
        }
    }
    Ok(scenario)
}

fn play(scenario: &Scenario) -> Result<Vec<Figures>> {
    let samples = sim::samples(scenario, 1)?;
    let figures = FLOWS.iter().map(|name| {
        let found = samples.iter().find(|(flow, _)| flow == name);
        let (_, samples) = found.with_context(|| format!("no flow {name}"))?;
        Ok(Figures::from_samples(name, samples, scenario.duration))
    });
    figures.collect()
}

fn row(network: &'static str, name: &'static str, folder: &Path) -> Result<Row> {
    let scenario = load(name, folder)?;
    let tautline = play(&scenario)?;
    let plain_ros = play(&scenario.carried_by_plain_ros())?;
    Ok(Row { network, scenario: name, tautline, plain_ros })
}

/// Runs all networks.
pub fn run(OnTraces { traces, written }: &OnTraces) -> Result<ExitCode> {
    if recording(traces)?.is_none() {
        let missing = format!("no {RECORDING} in {} (--traces FOLDER)", traces.display());
        ensure!(written.docs().is_none(), "{missing}, which --docs needs");
        eprintln!("{missing}: the modem of {LTE} has a constant rate");
    }
    let stages = NETWORKS.iter().map(|(_, name)| ((*name).to_owned(), EXPECTED));
    let progress = Progress::new(stages.collect());
    let rows =
        parallel::run(&progress, NETWORKS.to_vec(), |(network, name)| row(network, name, traces))?;
    progress.finish();
    let text = table(&rows);
    if let Some(docs) = written.docs() {
        let page = docs.join("how-to/networks.md");
        let before = std::fs::read_to_string(&page)
            .with_context(|| format!("cannot read {}", page.display()))?;
        std::fs::write(&page, docs_page::replace(&before, "networks", &text)?)?;
        make_folder(&docs.join("measured"))?;
        let command = "tautline-lab validate networks --docs docs";
        let data = serde_json::json!({ "command": command, "networks": rows });
        let json = serde_json::to_string_pretty(&data)? + "\n";
        std::fs::write(docs.join("measured/networks.json"), json)?;
    }
    super::conclude(&rows, written.json, &text, true)
}

fn table(rows: &[Row]) -> String {
    let titles =
        FLOWS.iter().flat_map(|flow| [format!("{flow}, Tautline"), format!("{flow}, plain ROS")]);
    let head = markdown_row(std::iter::once("network".to_owned()).chain(titles));
    head + &markdown_rule(1 + 2 * FLOWS.len()) + &rows.iter().map(line).collect::<String>()
}

fn line(row: &Row) -> String {
    let both = row.tautline.iter().zip(&row.plain_ros);
    let cells = both.flat_map(|(ours, plain)| [ours.words(), plain.words()]);
    markdown_row(std::iter::once(row.network.to_owned()).chain(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats the rows that need no recording: the page must match the code.
    #[test]
    fn the_table_in_docs_is_current() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/networks.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (network, name) in NETWORKS.into_iter().filter(|(_, name)| *name != LTE) {
            let now = line(&row(network, name, Path::new("")).unwrap());
            assert!(
                page.contains(now.trim_end()),
                "{now}: tautline-lab validate networks --docs docs"
            );
        }
    }

    #[test]
    fn priorities_hold_on_every_network_that_carries_the_laser() {
        for (network, name) in NETWORKS {
            let row = row(network, name, Path::new("")).unwrap();
            let [laser, camera, _] = [0, 1, 2].map(|flow: usize| &row.tautline[flow]);
            assert!(laser.p50_ms < camera.p50_ms, "{row:?}");
            assert!(laser.arrived_percent >= camera.arrived_percent, "{row:?}");
        }
    }
}
