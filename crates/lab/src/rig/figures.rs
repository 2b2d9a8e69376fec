// SPDX-License-Identifier: Apache-2.0
//! Results of a scenario run: a table for people, JSON and samples for programs. Virtual time and
//! real programs produce the same format.

use crate::rig::processes::make_folder;
use crate::rig::stats::{Delay, Samples, Summary, write_rows};
use crate::rig::table::{self, bar, left, or_dash, right};
use crate::scenario::{Over, Pace, Scenario};
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_medium::{Medium, Nanos, NetworkId, RadioId};

/// The scenario of a run, and the output.
#[derive(Debug, clap::Args)]
pub struct RunArguments {
    /// Path of the scenario, such as scenarios/pound-1hop.yaml.
    pub scenario: PathBuf,
    /// Seed of the random generator; in virtual time, the same seed gives the same output.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the figures as JSON instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Folder for figures.json and samples.csv.
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
}

impl RunArguments {
    /// Writes figures and samples to the user's folder; returns the folder, if one was given.
    pub fn keep(&self, figures: &str, flows: &[(&str, Samples)]) -> Result<Option<&Path>> {
        let Some(folder) = self.output.as_deref() else { return Ok(None) };
        make_folder(folder)?;
        std::fs::write(folder.join("figures.json"), figures)?;
        write_samples(&folder.join("samples.csv"), flows)?;
        Ok(Some(folder))
    }
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The scenario's name.
    pub scenario: String,
    /// Seed of the medium and, in virtual time, of everything random.
    pub seed: u64,
    /// Duration of the counted interval.
    pub seconds: f64,
    /// Flows in the scenario's order, those of control loops last.
    pub flows: Vec<FlowFigures>,
    /// Control performance of each control loop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub control_loops: Vec<LoopFigures>,
    /// Radios in the scenario's order of stations.
    pub radios: Vec<RadioFigures>,
    /// Networks in the scenario's order.
    pub networks: Vec<NetworkFigures>,
    /// Links of Tautline nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkFigures>,
}

/// Figures of one flow.
#[derive(Debug, Clone, Serialize)]
pub struct FlowFigures {
    /// Name of the flow.
    pub name: String,
    /// Transport: `tautline`, `udp` or `tcp`.
    pub over: Over,
    /// Counts and delays; for an echo, delays of round trips.
    #[serde(flatten)]
    pub summary: Summary,
    /// Payload that arrived, per second of the counted interval.
    pub goodput_kbps: f64,
    /// Messages that were due but not accepted: no subscriber, or a blocked writer.
    pub refused: u64,
    /// Messages that Tautline dropped, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, u64>,
}

/// Figures of one control loop.
#[derive(Debug, Serialize)]
pub struct LoopFigures {
    /// Names of plant and controller.
    pub name: String,
    /// Quality of the control, see [`Quality`](crate::sim::Quality).
    #[serde(flatten)]
    pub quality: crate::sim::Quality,
}

/// Figures of one station's radio.
#[derive(Debug, Clone, Serialize)]
pub struct RadioFigures {
    /// Name of the station.
    pub station: String,
    /// Name of the network.
    pub network: String,
    /// Share of the scenario's time that the radio transmitted, percent.
    pub airtime_percent: f64,
    /// Transmission attempts, see [`RadioStats`](tautline_medium::RadioStats).
    pub attempts: u64,
    /// Attempts that repeated an earlier attempt.
    pub retries: u64,
    /// Attempts that were not acknowledged; on a pipe, lost frames.
    pub failed_attempts: u64,
    /// Frames abandoned after all attempts.
    pub given_up: u64,
    /// Frames dropped because the queue was full.
    pub queue_drops: u64,
    /// Frames received.
    pub received: u64,
}

/// Figures of one network.
#[derive(Debug, Clone, Serialize)]
pub struct NetworkFigures {
    /// Name of the network.
    pub name: String,
    /// Share of the scenario's time that the medium was busy, percent (sum of all directions of a
    /// pipe).
    pub busy_percent: f64,
}

/// Figures of one link of a Tautline node to a peer.
#[derive(Debug, Serialize)]
pub struct LinkFigures {
    /// Names of the node, the peer and the network of the local end.
    pub name: String,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of these packets, IP headers included.
    pub sent_bytes: u64,
    /// Packets lost.
    pub lost_packets: u64,
    /// Packets that were declared lost but arrived.
    pub spurious_losses: u64,
    /// Bytes retransmitted.
    pub repair_bytes: u64,
    /// Smoothed RTT at the end of the run, milliseconds.
    pub rtt_ms: Option<f64>,
}

impl FlowFigures {
    /// Computes the figures from samples whose time starts with the counted interval; `bytes` is
    /// the size of a message.
    pub fn new(
        name: &str,
        over: Over,
        bytes: u64,
        pace: Option<Pace>,
        samples: &Samples,
        counted: Nanos,
    ) -> Self {
        let period = match pace {
            Some(Pace::Every(period)) => Some(Duration::from_nanos(period)),
            Some(Pace::Saturate) | None => None,
        };
        let bits = samples.arrived_count(0..counted) as f64 * bytes as f64 * 8.0;
        Self {
            name: name.to_owned(),
            over,
            summary: samples.summary(period),
            goodput_kbps: bits / (counted as f64 / 1e9) / 1e3,
            refused: 0,
            dropped: BTreeMap::new(),
        }
    }
}

/// Prints to standard output; a reader that closes the pipe causes no error.
pub fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Returns a scenario's radios, in the order of stations, then of networks at each station.
pub fn radios(scenario: &Scenario) -> impl Iterator<Item = RadioId> {
    let count = scenario.stations.iter().map(|station| station.networks.len()).sum();
    (0..count).map(RadioId)
}

/// Cumulative airtime of radios and busy time of networks, at one time.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    at: Nanos,
    radios: Vec<Nanos>,
    networks: Vec<Nanos>,
}

impl Usage {
    /// Reads the usage up to `now`.
    pub fn read<P: Clone>(scenario: &Scenario, medium: &Medium<P>, now: Nanos) -> Self {
        let networks = 0..scenario.networks.len();
        Self {
            at: now,
            radios: radios(scenario).map(|radio| medium.stats(radio).airtime).collect(),
            networks: networks.map(|number| medium.busy(NetworkId(number), now)).collect(),
        }
    }
}

/// Returns the figures of a scenario's radios and networks: shares of the time between two
/// readings, counts since the beginning.
pub fn of_medium<P: Clone>(
    scenario: &Scenario,
    medium: &Medium<P>,
    (from, to): (&Usage, &Usage),
) -> (Vec<RadioFigures>, Vec<NetworkFigures>) {
    let elapsed = to.at.saturating_sub(from.at).max(1) as f64;
    let share = |number: usize, from: &[Nanos], to: &[Nanos]| {
        let until = |usage: &[Nanos]| usage.get(number).copied().unwrap_or(0);
        100.0 * until(to).saturating_sub(until(from)) as f64 / elapsed
    };
    let mut radios = Vec::new();
    for station in &scenario.stations {
        for &network in &station.networks {
            let stats = medium.stats(RadioId(radios.len()));
            radios.push(RadioFigures {
                station: station.name.clone(),
                network: scenario.networks[network].name.clone(),
                airtime_percent: share(radios.len(), &from.radios, &to.radios),
                attempts: stats.attempts,
                retries: stats.retries,
                failed_attempts: stats.failed_attempts,
                given_up: stats.given_up,
                queue_drops: stats.queue_drops,
                received: stats.received,
            });
        }
    }
    let networks = scenario.networks.iter().enumerate().map(|(number, network)| NetworkFigures {
        name: network.name.clone(),
        busy_percent: share(number, &from.networks, &to.networks),
    });
    (radios, networks.collect())
}

impl Figures {
    /// Formats the figures as JSON with a final newline.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Formats the figures as tables.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{}: {:.1} s, seed {}\n\n{}",
            self.scenario,
            self.seconds,
            self.seed,
            self.flow_table()
        );
        for control_loop in &self.control_loops {
            let q = &control_loop.quality;
            let settled =
                q.settled_s.map_or("never settled".into(), |s| format!("settled after {s:.2} s"));
            let _ = writeln!(
                text,
                "\ncontrol loop {}: {:.1} % overshoot, {settled}, {:.4} V rms from the same loop without a network",
                control_loop.name, q.overshoot_percent, q.deviation_v
            );
        }
        text.push_str(&self.radio_table());
        if !self.links.is_empty() {
            text.push_str(&self.link_table());
        }
        text
    }

    fn flow_table(&self) -> String {
        if self.flows.is_empty() {
            return String::new();
        }
        let width = table::width("flow", self.flows.iter().map(|flow| flow.name.as_str()));
        table::format_rows(
            &self.flows,
            &[
                left("flow", width, |flow| flow.name.clone()),
                left("over", 8, |flow| flow.over.name().into()),
                right("sent", 7, |flow| flow.summary.sent.to_string()),
                right("arrived", 7, |flow| flow.summary.received.to_string()),
                right("%", 6, |flow| format!("{:.1}", flow.summary.mdr_percent)),
                right("kbps", 9, |flow| format!("{:.0}", flow.goodput_kbps)),
                bar(),
                right("ms     mean", 11, |flow| flow.delay(|delay| delay.mean)),
                right("p50", 8, |flow| flow.delay(|delay| delay.p50)),
                right("p99", 8, |flow| flow.delay(|delay| delay.p99)),
                right("max", 9, |flow| flow.delay(|delay| delay.max)),
                right("gap std", 8, |flow| {
                    let gap = or_dash(flow.summary.gap_ms.map(|gap| gap.std), 2);
                    format!("{gap:>8}{}", flow.remarks())
                }),
            ],
        )
    }

    fn radio_table(&self) -> String {
        let names: Vec<String> = self.radios.iter().map(RadioFigures::name).collect();
        let width = table::width("radio", names.iter().map(String::as_str));
        let mut text = String::from(if self.flows.is_empty() { "" } else { "\n" });
        text += &table::format_rows(
            &self.radios,
            &[
                left("radio", width, RadioFigures::name),
                right("airtime %", 9, |radio| format!("{:.1}", radio.airtime_percent)),
                right("attempts", 9, |radio| radio.attempts.to_string()),
                right("retries", 8, |radio| radio.retries.to_string()),
                right("failed", 8, |radio| radio.failed_attempts.to_string()),
                right("given up", 8, |radio| radio.given_up.to_string()),
                right("queue drops", 11, |radio| radio.queue_drops.to_string()),
                right("received", 9, |radio| radio.received.to_string()),
            ],
        );
        for network in &self.networks {
            let _ = writeln!(text, "network {}: {:.1} % busy", network.name, network.busy_percent);
        }
        text
    }

    fn link_table(&self) -> String {
        let width = table::width("link", self.links.iter().map(|link| link.name.as_str()));
        let links = table::format_rows(
            &self.links,
            &[
                left("link", width, |link| link.name.clone()),
                right("packets", 9, |link| link.sent_packets.to_string()),
                right("lost", 7, |link| link.lost_packets.to_string()),
                right("not lost", 9, |link| link.spurious_losses.to_string()),
                right("repair bytes", 12, |link| link.repair_bytes.to_string()),
                right("rtt ms", 7, |link| or_dash(link.rtt_ms, 1)),
            ],
        );
        format!("\n{links}")
    }
}

impl RadioFigures {
    /// Names the station and the network.
    pub fn name(&self) -> String {
        format!("{} on {}", self.station, self.network)
    }
}

impl FlowFigures {
    fn delay(&self, figure: fn(Delay) -> f64) -> String {
        or_dash(self.summary.delay_ms.map(figure), 2)
    }

    fn remarks(&self) -> String {
        let refused = (self.refused > 0).then(|| format!("{} not taken", self.refused));
        let dropped = self.dropped.iter().map(|(reason, count)| format!("{count} {reason}"));
        let all: Vec<String> = refused.into_iter().chain(dropped).collect();
        if all.is_empty() { String::new() } else { format!("  ({})", all.join(", ")) }
    }
}

/// Writes samples of flows as rows of `flow,sequence,sent_ns,received_ns`; the last field is empty
/// if the message did not arrive.
fn write_samples(file: &Path, flows: &[(&str, Samples)]) -> Result<()> {
    let mut rows = vec!["flow,sequence,sent_ns,received_ns".to_owned()];
    for (name, samples) in flows {
        let mut received = vec![None; samples.sent_ns.len()];
        for arrival in &samples.arrivals {
            if let Some(first) = received.get_mut(arrival.sequence as usize) {
                first.get_or_insert(arrival.received_ns);
            }
        }
        for (sequence, (sent, received)) in samples.sent_ns.iter().zip(received).enumerate() {
            let received = received.map_or(String::new(), |ns: u64| ns.to_string());
            rows.push(format!("{name},{sequence},{sent},{received}"));
        }
    }
    write_rows(file, rows)
}
