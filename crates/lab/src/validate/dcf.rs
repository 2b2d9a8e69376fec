// SPDX-License-Identifier: Apache-2.0
//! The medium's 802.11 model against an independent simulation.

use super::Written;
use crate::rig::plot;
use crate::rig::progress::Progress;
use crate::rig::table::{self, column};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tautline_medium::{Frame, Medium, Motion, Output, RadioId, RateControl, WifiConfig};

/// Reference figures; the first lines of the file describe their origin.
const REFERENCE: &str = include_str!("../../reference/dcf.csv");
/// Simulated time per point. All of it counts, because backoff settles within a second.
const SECONDS: u64 = 120;
const SEED: u64 = 1;
const IP_BYTES: u32 = 1500;
/// Expected duration of a point on an ordinary computer.
const STAGE: Duration = Duration::from_millis(400);
/// Largest relative deviation of a point's throughput from the reference.
const THROUGHPUT_TOLERANCE: f64 = 0.03;
/// Largest deviation of a point's collision probability from the reference.
const COLLISION_TOLERANCE: f64 = 0.02;

/// Stations that always have a frame to send, at one rate.
#[derive(Debug, Serialize)]
struct Point {
    phy_mbps: u64,
    stations: usize,
    /// Rate of acknowledged IP bytes.
    throughput_mbps: f64,
    /// Fraction of attempts that were not acknowledged.
    collision_probability: f64,
    reference_mbps: f64,
    reference_collision_probability: f64,
}

impl Point {
    /// Returns the relative deviation of throughput from the reference, 0 where they agree.
    fn deviation(&self) -> f64 {
        self.throughput_mbps / self.reference_mbps - 1.0
    }

    fn agrees(&self) -> bool {
        let collisions = self.collision_probability - self.reference_collision_probability;
        self.deviation().abs() <= THROUGHPUT_TOLERANCE && collisions.abs() <= COLLISION_TOLERANCE
    }
}

/// Runs the validation; exit code 3 if it does not hold.
pub fn run(written: &Written) -> Result<ExitCode> {
    let points = measure(&references()?);
    if let Some(folder) = written.docs() {
        write_docs(&points, folder)?;
    }
    super::conclude(&points, written.json, &table(&points), points.iter().all(Point::agrees))
}

fn measure(references: &[Reference]) -> Vec<Point> {
    let stage = |r: &Reference| (format!("{} Mbps, {} stations", r.phy_mbps, r.stations), STAGE);
    let progress = Progress::new(references.iter().map(stage).collect());
    let points = references.iter().map(|reference| {
        progress.enter_next();
        reference.measure()
    });
    let points = points.collect();
    progress.finish();
    points
}

struct Reference {
    phy_mbps: u64,
    stations: usize,
    mbps: f64,
    collisions: f64,
}

fn references() -> Result<Vec<Reference>> {
    let rows = REFERENCE.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let [phy, stations, mbps, collisions] = fields[..] else {
            anyhow::bail!("reference/dcf.csv: '{line}' is not four numbers")
        };
        let context = || format!("reference/dcf.csv: '{line}'");
        Ok(Reference {
            phy_mbps: phy.parse().with_context(context)?,
            stations: stations.parse().with_context(context)?,
            mbps: mbps.parse().with_context(context)?,
            collisions: collisions.parse().with_context(context)?,
        })
    })
    .collect()
}

impl Reference {
    /// Measures stations that all send to one more station.
    fn measure(&self) -> Point {
        let mut medium = Medium::new(SEED);
        let rate = RateControl::Fixed(self.phy_mbps * 1_000_000);
        let wifi = medium.add_network(WifiConfig { rate, ..WifiConfig::default() });
        let mut radio = || {
            let station = medium.add_station(Motion::at([0.0; 3]));
            medium.add_radio(station, wifi, 2)
        };
        let sink = radio();
        let senders: Vec<RadioId> = (0..self.stations).map(|_| radio()).collect();
        let frame =
            || Frame { to: Some(sink), bytes: IP_BYTES, dscp: 0, ecn_capable: false, payload: () };
        for sender in senders.iter().chain(&senders) {
            // Two frames each: one on the air and one queued.
            let _ = medium.send(0, *sender, frame());
        }
        while let Some(now) = medium.poll_timeout().filter(|now| *now < SECONDS * 1_000_000_000) {
            medium.handle_timeout(now);
            while let Some(output) = medium.poll_output() {
                if let Output::Sent { radio, .. } = output {
                    let _ = medium.send(now, radio, frame());
                }
            }
        }
        let (mut acknowledged, mut failed, mut attempts) = (0, 0, 0);
        for stats in senders.iter().map(|sender| medium.stats(*sender)) {
            acknowledged += stats.acknowledged;
            failed += stats.failed_attempts;
            attempts += stats.attempts;
        }
        let bits = (acknowledged * u64::from(IP_BYTES) * 8) as f64;
        Point {
            phy_mbps: self.phy_mbps,
            stations: self.stations,
            throughput_mbps: bits / SECONDS as f64 / 1e6,
            collision_probability: failed as f64 / attempts.max(1) as f64,
            reference_mbps: self.mbps,
            reference_collision_probability: self.collisions,
        }
    }
}

fn table(points: &[Point]) -> String {
    table::markdown(
        points,
        &[
            column("PHY Mbps", |point: &Point| point.phy_mbps.to_string()),
            column("stations", |point| point.stations.to_string()),
            column("Mbps", |point| format!("{:.3}", point.throughput_mbps)),
            column("reference", |point| format!("{:.3}", point.reference_mbps)),
            column("difference", |point| format!("{:+.2} %", 100.0 * point.deviation())),
            column("collisions", |point| format!("{:.3}", point.collision_probability)),
            column("reference", |point| format!("{:.3}", point.reference_collision_probability)),
            column("", |point| if point.agrees() { "agrees" } else { "differs" }.into()),
        ],
    )
}

fn write_docs(points: &[Point], folder: &Path) -> Result<()> {
    let folder = &folder.join("explanation");
    ensure!(folder.is_dir(), "{} is not a folder", folder.display());
    let page = format!(
        "# 802.11 contention: the model against a reference\n\n\
         Made by `tautline-lab validate dcf --docs docs`; the same seed gives the same table.\n\n\
         All stations are in one collision domain (DCF, 7 retries), and each always has a 1500-byte IP \
         packet to send. A point takes {SECONDS} simulated seconds. Throughput counts acknowledged IP \
         bytes; collisions are attempts without an ACK. The reference is an independent simulation of \
         the standard (`crates/lab/reference/dcf.csv`). A point agrees if throughput differs by at most \
         {:.0} % and collision probability by at most {COLLISION_TOLERANCE}.\n\n{}\n![Throughput and collisions](dcf.png)\n",
        100.0 * THROUGHPUT_TOLERANCE,
        table(points)
    );
    let file = folder.join("dcf.md");
    std::fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))?;
    let picture = folder.join("dcf.png");
    plot::draw("dcf.py", &[serde_json::to_string(points)?.as_ref(), picture.as_os_str()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_docs_is_current() {
        let points: Vec<Point> = references().unwrap().iter().map(Reference::measure).collect();
        assert!(points.iter().all(Point::agrees), "{}", table(&points));
        let page = include_str!("../../../../docs/explanation/dcf.md");
        assert!(
            page.contains(&table(&points)),
            "docs/explanation/dcf.md is stale (tautline-lab validate dcf --docs docs):\n{}",
            table(&points)
        );
    }
}
