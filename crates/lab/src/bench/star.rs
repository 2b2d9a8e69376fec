// SPDX-License-Identifier: Apache-2.0
//! Five peers behind one interface, from daemon to daemon. Every message of a laser is sent to all
//! of them, in addition to images; then one peer is unplugged.

use crate::rig::node_file::NodeFile;
use crate::rig::output::Output;
use crate::rig::stats::{Delay, delay};
use crate::rig::table::{self, bar, figure, left, right};
use crate::rig::verdict::{Bound, Conclusion, Verdict, verdict_lines};
use crate::setup::node::{Node, Received};
use crate::setup::world::{Computer, LinkLimits, Star};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
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
struct AllFigures<'a> {
    figures: &'a [Figures],
}

struct Scene {
    sender: Node,
    peers: Vec<Node>,
}

impl Scene {
    fn new(star: &Star, folder: &Path) -> Result<Self> {
        let topics = format!(
            "  {LASER}: {{ priority: 200 }}\n  {IMAGE}: {{ priority: 20, keep_last: 1 }}\n"
        );
        let peer = |peer| start(peer, &[&star.sender], "", &[], folder);
        let peers = star.peers.iter().map(peer).collect::<Result<_>>()?;
        let others: Vec<&Computer> = star.peers.iter().collect();
        let made = MADE.map(|made| format!("--make={made}"));
        let mut sender = start(&star.sender, &others, &topics, &made, folder)?;
        sender.await_ready(PATIENCE)?;
        Ok(Self { sender, peers })
    }

    /// Runs a load; returns the number of messages of each topic made since the start.
    fn load(&mut self) -> Result<Vec<u64>> {
        self.sender.go(LOAD_TIME.as_secs_f64())?;
        self.sender.await_done(LOAD_TIME + PATIENCE)
    }

    /// Ends all nodes; returns the messages that each peer received.
    fn end(mut self) -> Result<Vec<Vec<Received>>> {
        self.sender.close()?;
        self.peers.iter_mut().try_for_each(Node::close)?;
        self.peers.iter().map(Node::received).collect()
    }
}

fn start(
    computer: &Computer,
    peers: &[&Computer],
    topics: &str,
    options: &[String],
    folder: &Path,
) -> Result<Node> {
    let file = NodeFile {
        name: &computer.name,
        peers: peers.iter().map(|peer| peer.entry()).collect(),
        radios: String::new(),
        topics: topics.into(),
        rest: "ros1: false".into(),
    };
    let lab = computer.command(std::env::current_exe()?);
    Node::start(&computer.name, lab, &file.write(folder)?, options, folder)
}

/// Runs the case.
pub fn run(output: &Output) -> Result<Conclusion> {
    let progress = output.progress(&[
        ("starting six nodes", START_TIME),
        ("all five connected", LOAD_TIME),
        ("one of them unplugged", LOAD_TIME),
    ]);
    let star = Star::new(PEERS, LIMITS)?;
    let mut scene = Scene::new(&star, &output.folder)?;
    progress.enter_next();
    let connected = scene.load()?;
    progress.enter_next();
    star.unplug(star.peers.last().context("no peers")?)?;
    let all = scene.load()?;
    let received = scene.end()?;
    progress.finish();

    let none = vec![0; connected.len()];
    let both = || star.peers.iter().map(|peer| peer.name.as_str()).zip(&received);
    let measured = both().map(|(peer, it)| measure("connected", peer, it, &none, &connected));
    let plugged = both().take(star.peers.len() - 1);
    let later = plugged.map(|(peer, it)| measure("unplugged", peer, it, &connected, &all));
    let figures: Vec<Figures> = measured.chain(later).collect();
    let verdicts: Vec<Verdict> = figures.iter().flat_map(judge).collect();
    let words = format!(
        " 6 Mbps, TOPIC:BYTES:PERIOD_US {} to each of {PEERS}\n{}{}",
        MADE.join(" and "),
        table(&figures),
        verdict_lines(&verdicts)
    );
    output.conclude(AllFigures { figures: &figures }, verdicts, &words)
}

/// Measures a peer. In each topic, messages with numbers in `from..to` count.
fn measure(
    phase: &'static str,
    peer: &str,
    received: &[Received],
    from: &[u64],
    to: &[u64],
) -> Figures {
    let of = |wanted: &str, numbers: std::ops::Range<u64>| -> Vec<f64> {
        let counts = |it: &&Received| it.topic == wanted && numbers.contains(&it.arrival.sequence);
        received.iter().filter(counts).map(|it| it.arrival.delay_ms()).collect()
    };
    let (laser, image) = (of(LASER, from[0]..to[0]), of(IMAGE, from[1]..to[1]));
    Figures {
        phase,
        peer: peer.into(),
        laser_sent: to[0] - from[0],
        laser_received: laser.len() as u64,
        image_received: image.len() as u64,
        laser_ms: delay(laser),
        image_ms: delay(image),
    }
}

fn judge(figures: &Figures) -> [Verdict; 2] {
    let what = |text| format!("{} with {}: laser {text}", figures.phase, figures.peer);
    let percent = figures.laser_received as f64 * 100.0 / figures.laser_sent.max(1) as f64;
    [
        LASER_RECEIVED.judge(what("received"), Some(percent), "%"),
        LASER_P99_MS.judge(what("p99"), figures.laser_ms.map(|delay| delay.p99), "ms"),
    ]
}

fn table(figures: &[Figures]) -> String {
    table::format_rows(
        figures,
        &[
            left("phase", 10, |it| it.phase.into()),
            left("peer", 6, |it| it.peer.clone()),
            right("sent", 6, |it| it.laser_sent.to_string()),
            right("received", 8, |it| it.laser_received.to_string()),
            bar(),
            right("laser ms", 8, |it| figure(it.laser_ms, |delay| delay.mean, 2)),
            right("p50", 6, |it| figure(it.laser_ms, |delay| delay.p50, 2)),
            right("p99", 6, |it| figure(it.laser_ms, |delay| delay.p99, 2)),
            right("max", 6, |it| figure(it.laser_ms, |delay| delay.max, 2)),
            bar(),
            right("image ms", 8, |it| figure(it.image_ms, |delay| delay.mean, 0)),
            right("p99", 6, |it| figure(it.image_ms, |delay| delay.p99, 0)),
            right("n", 6, |it| it.image_received.to_string()),
        ],
    )
}
