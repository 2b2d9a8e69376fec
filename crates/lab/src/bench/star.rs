// SPDX-License-Identifier: Apache-2.0
//! Five peers behind one interface, from daemon to daemon. Every message of a laser is sent to all
//! of them, in addition to images; then one peer is unplugged.

use super::case::{Bound, Verdict};
use super::report::{About, Conclusion, tell, verdict_lines};
use super::traffic::{DONE, GO, READY};
use super::world::{Computer, LinkLimits, Star};
use crate::node_file::NodeFile;
use crate::processes::Process;
use crate::progress::Progress;
use crate::stats::{Delay, delay};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name on the command line.
pub const NAME: &str = "five-peers";

const PEERS: u8 = 5;
const LIMITS: LinkLimits = LinkLimits { rate_bps: Some(6_000_000), loss: 0.0 };
const LASER: &str = "/scan";
const IMAGE: &str = "/image";
/// Five lasers of 1 KB at 50 Hz take 2.2 of 6 Mbps. An image to each peer every 1.5 s fills the
/// link to two thirds, as one camera at 6.67 Hz does with one peer.
const MADE: [&str; 2] = ["/scan:1024:20000", "/image:61346:1500000"];
const LOAD_TIME: Duration = Duration::from_secs(30);
const START_TIME: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(20);
const LASER_P99_MS: Bound = Bound::AtMost(12.0);
const LASER_RECEIVED: Bound = Bound::AtLeast(100.0);

/// Topic; sequence number, time sent and time received in ns.
pub(super) type Row = (String, [u64; 3]);

/// Figures of one peer in one phase.
#[derive(Debug, Serialize)]
struct Figures {
    phase: &'static str,
    peer: String,
    laser_sent: u64,
    laser_received: u64,
    laser_ms: Option<Delay>,
    image_received: u64,
    image_ms: Option<Delay>,
}

#[derive(Serialize)]
struct StarReport {
    case: &'static str,
    #[serde(flatten)]
    about: About,
    figures: Vec<Figures>,
    verdicts: Vec<Verdict>,
}

struct Scene<'a> {
    star: &'a Star,
    folder: &'a Path,
    sender: Process,
    peers: Vec<Process>,
}

fn samples(folder: &Path, computer: &Computer) -> PathBuf {
    folder.join(format!("{}.csv", computer.name))
}

impl<'a> Scene<'a> {
    fn new(star: &'a Star, folder: &'a Path) -> Result<Self> {
        let topics = format!(
            "  {LASER}: {{ priority: 200 }}\n  {IMAGE}: {{ priority: 20, keep_last: 1 }}\n"
        );
        let mut peers = Vec::new();
        for peer in &star.peers {
            peers.push(start(peer, &[&star.sender], "", &[], folder)?);
        }
        let others: Vec<&Computer> = star.peers.iter().collect();
        let mut sender = start(&star.sender, &others, &topics, &MADE, folder)?;
        sender.await_line(READY, PATIENCE)?;
        Ok(Self { star, folder, sender, peers })
    }

    /// Runs a load; returns the number of messages of each topic made since the start.
    fn load(&mut self) -> Result<(u64, u64)> {
        self.sender.tell(&format!("{GO} {}", LOAD_TIME.as_secs()))?;
        let counts = self.sender.await_line(DONE, LOAD_TIME + PATIENCE)?;
        let mut counts = counts.split_whitespace().map(str::parse::<u64>);
        let mut next = || counts.next().context("too few counts")?.context("no count");
        Ok((next()?, next()?))
    }

    /// Ends all nodes, which write their samples; returns the samples of each peer.
    fn end(mut self) -> Result<BTreeMap<String, Vec<Row>>> {
        self.sender.close()?;
        for peer in &mut self.peers {
            peer.close()?;
        }
        let mut all = BTreeMap::new();
        for peer in &self.star.peers {
            let text = std::fs::read_to_string(samples(self.folder, peer))?;
            let rows = text.lines().map(row).collect::<Result<_>>()?;
            all.insert(peer.name.clone(), rows);
        }
        Ok(all)
    }
}

pub(super) fn row(line: &str) -> Result<Row> {
    let mut fields = line.split(',');
    let topic = fields.next().context("no topic")?.to_owned();
    let mut number = || -> Result<u64> { Ok(fields.next().context("too few fields")?.parse()?) };
    Ok((topic, [number()?, number()?, number()?]))
}

fn start(
    computer: &Computer,
    peers: &[&Computer],
    topics: &str,
    made: &[&str],
    folder: &Path,
) -> Result<Process> {
    let file = NodeFile {
        name: &computer.name,
        peers: peers.iter().map(|peer| peer.entry()).collect(),
        radios: String::new(),
        topics: topics.into(),
        rest: "ros1: false".into(),
    };
    let path = file.write(folder)?;
    let program = std::env::current_exe()?;
    let mut command = computer.command(program.to_str().context("path is not UTF-8")?);
    command.arg("--inside").arg("traffic").arg(path).arg(samples(folder, computer));
    for made in made {
        command.args(["--make", made]);
    }
    Process::start_talking(&computer.name, command, folder)
}

/// Runs the case; the report and the raw samples go to `folder`.
pub fn run(folder: &Path, as_json: bool) -> Result<Conclusion> {
    std::fs::create_dir_all(folder)?;
    let progress = Progress::of(
        NAME,
        &[
            ("starting six nodes", START_TIME),
            ("all five connected", LOAD_TIME),
            ("one of them unplugged", LOAD_TIME),
        ],
    );
    let star = Star::new(PEERS, LIMITS)?;
    let mut scene = Scene::new(&star, folder)?;
    progress.next();
    let connected = scene.load()?;
    progress.next();
    let unplugged = star.peers.last().context("no peers")?;
    star.unplug(unplugged)?;
    let all = scene.load()?;
    let rows = scene.end()?;
    progress.finish();

    let mut figures = Vec::new();
    for (name, rows) in &rows {
        figures.push(measure("connected", name, rows, (0, 0), connected));
        if *name != unplugged.name {
            figures.push(measure("unplugged", name, rows, connected, all));
        }
    }
    figures.sort_by(|a, b| (a.phase, &a.peer).cmp(&(b.phase, &b.peer)));
    report(folder, figures, as_json)
}

fn measure(
    phase: &'static str,
    peer: &str,
    rows: &[Row],
    from: (u64, u64),
    to: (u64, u64),
) -> Figures {
    let of = |wanted: &str, from: u64, to: u64| -> Vec<f64> {
        let of_topic = rows.iter().filter(|(topic, _)| topic == wanted);
        let of_phase = of_topic.filter(|(_, [sequence, ..])| (from..to).contains(sequence));
        of_phase.map(|(_, [_, sent, received])| (received - sent) as f64 / 1e6).collect()
    };
    let (laser, image) = (of(LASER, from.0, to.0), of(IMAGE, from.1, to.1));
    Figures {
        phase,
        peer: peer.into(),
        laser_sent: to.0 - from.0,
        laser_received: laser.len() as u64,
        image_received: image.len() as u64,
        laser_ms: delay(laser),
        image_ms: delay(image),
    }
}

fn report(folder: &Path, figures: Vec<Figures>, as_json: bool) -> Result<Conclusion> {
    let mut verdicts = Vec::new();
    for figure in &figures {
        let what = |text| format!("{} with {}: laser {text}", figure.phase, figure.peer);
        let percent = figure.laser_received as f64 * 100.0 / figure.laser_sent.max(1) as f64;
        verdicts.push(LASER_RECEIVED.judge(what("received"), Some(percent), "%"));
        let p99 = figure.laser_ms.map(|d| d.p99);
        verdicts.push(LASER_P99_MS.judge(what("p99"), p99, "ms"));
    }
    let conclusion = Conclusion::of(&verdicts);
    let text = table(&figures) + &verdict_lines(&verdicts);
    let report = StarReport { case: NAME, about: About::now(), figures, verdicts };
    let words = format!(
        "\n{NAME}: 6 Mbps, TOPIC:BYTES:PERIOD_US {} to each of {PEERS}\n{text}",
        MADE.join(" and ")
    );
    tell(&report, folder, as_json, &words)?;
    Ok(conclusion)
}

fn table(figures: &[Figures]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:10} {:6} {:>6} {:>8} | laser ms {:>6} {:>6} {:>6} | image ms {:>6} {:>6}",
        "phase", "peer", "sent", "received", "p50", "p99", "max", "p99", "n"
    );
    for f in figures {
        let laser = f.laser_ms.map_or([f64::NAN; 4], |d| [d.mean, d.p50, d.p99, d.max]);
        let image = f.image_ms.map_or([f64::NAN; 2], |d| [d.mean, d.p99]);
        let _ = writeln!(
            text,
            "{:10} {:6} {:>6} {:>8} | {:>8.2} {:>6.2} {:>6.2} {:>6.2} | {:>8.0} {:>6.0} {:>6}",
            f.phase,
            f.peer,
            f.laser_sent,
            f.laser_received,
            laser[0],
            laser[1],
            laser[2],
            laser[3],
            image[0],
            image[1],
            f.image_received
        );
    }
    text
}
