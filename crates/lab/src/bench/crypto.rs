// SPDX-License-Identifier: Apache-2.0
//! The cost of encryption: processor time of packets, handshakes and forged handshake initiations
//! on one processor, and the bytes added to a message.

use super::alone;
use crate::rig::output::Output;
use crate::rig::punctual::{Confined, processors};
use crate::rig::stats::upper_median;
use crate::rig::table::{self, left, right};
use crate::rig::verdict::{Bound, Conclusion, Verdict, verdict_lines};
use crate::setup::daemon::DaemonSetup;
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant as Clock};
use tautline_proto::crypto::cookies::{Admission, CookieChecker, MacKey};
use tautline_proto::crypto::noise::Split;
use tautline_proto::crypto::seal::Sealer;
use tautline_proto::wire::packet::{
    MAC, Packet, SESSION_HEADER, SessionHeader, TAG, TIME_BYTES, start_initiation,
};
use tautline_proto::{Config, Endpoint, Event, Instant, LinkConfig, RadioConfig, SecretKey};

/// Name on the command line.
pub const NAME: &str = "crypto";

/// Processor time of a packet of [`FULL`] bytes, per side.
const PACKET_US: Bound = Bound::AtMost(1.5);
/// Processor time of a handshake, per side.
const HANDSHAKE_US: Bound = Bound::AtMost(1000.0);

/// UDP payload of a full packet, in bytes.
const FULL: usize = 1400;
/// UDP payload of a small packet, in bytes.
const SMALL: usize = 100;
/// Number of batches. Most are too short to be interrupted; their median is reported.
const BATCHES: usize = 2000;
const PACKETS_PER_BATCH: usize = 50;
const INITIATIONS_PER_BATCH: usize = 30;
const HANDSHAKES: usize = 1000;
const CPU_TIME: Duration = Duration::from_secs(2);
const MESSAGES_TIME: Duration = Duration::from_secs(17);

/// Initiations that a gate admits without a cookie before it asks for one.
const MAX_FREE: usize = 1000;
/// Cookie replies that a gate sends before it stops replying.
const MAX_COOKIES: usize = 10_000;
/// Bytes of an initiation's Noise message, with a name of 9 bytes.
const NOISE_BYTES: usize = 114;

/// Time of one operation, µs.
#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    /// Minimum of the batches.
    min_us: f64,
    /// Median of the batches.
    median_us: f64,
    batches: usize,
    per_batch: usize,
    #[serde(skip)]
    bound: Option<Bound>,
}

#[derive(Serialize)]
struct Figures<'a> {
    processor: &'a str,
    rows: &'a [Row],
}

/// Runs the case.
pub fn run(setup: &DaemonSetup, output: &Output) -> Result<Conclusion> {
    let progress = output.progress(&[
        ("packets, handshakes and forged initiations", CPU_TIME),
        ("the laser over two daemons", MESSAGES_TIME),
    ]);
    // Use a separate thread, so that processes started later are not confined to that processor.
    let rows = std::thread::scope(|scope| scope.spawn(rows).join());
    let rows = rows.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    progress.enter_next();
    let mut verdicts: Vec<Verdict> = rows.iter().filter_map(Row::verdict).collect();
    verdicts.extend(alone::header_alone(setup, &output.folder)?);
    progress.finish();
    let processor = processor();
    let words = format!(
        " microseconds of one processor ({processor})\n{}\n{}",
        table(&rows),
        verdict_lines(&verdicts)
    );
    output.conclude(Figures { processor: &processor, rows: &rows }, verdicts, &words)
}

fn rows() -> Result<Vec<Row>> {
    let last = processors()?.last().copied().context("no processor")?;
    let _confined = Confined::to(last)?;
    let mut rows = Vec::new();
    for (bytes, sealing, opening, bound) in [
        (FULL, "sealing a packet of 1400 bytes", "opening it", Some(PACKET_US)),
        (SMALL, "sealing a packet of 100 bytes", "opening it", None),
    ] {
        let (sealed, opened) = packets(bytes)?;
        rows.push(Row::new(sealing, PACKETS_PER_BATCH, sealed, bound));
        rows.push(Row::new(opening, PACKETS_PER_BATCH, opened, bound));
    }
    let [caller, called] = handshakes()?;
    rows.push(Row::new("a handshake, at the initiator", 1, caller, Some(HANDSHAKE_US)));
    rows.push(Row::new("a handshake, at the responder", 1, called, Some(HANDSHAKE_US)));
    for (forged, what) in [
        (Forged::Stranger, "a forged initiation, MAC1 wrong"),
        (Forged::Asked, "a forged initiation, MAC1 right: a cookie reply"),
        (Forged::Silent, "the same, no more cookie replies"),
    ] {
        rows.push(Row::new(what, INITIATIONS_PER_BATCH, initiations(forged)?, None));
    }
    Ok(rows)
}

/// Duration of each batch, ns.
type Batches = Vec<u128>;

fn packets(bytes: usize) -> Result<(Batches, Batches)> {
    let (one, other) = ([1; 32], [2; 32]);
    let here = Sealer::new(&Split { seal: one, open: other }).context("no keys")?;
    let there = Sealer::new(&Split { seal: other, open: one }).context("no keys")?;
    let header = SessionHeader { ack_soon: false, relayed: false, link: 0, session: 7, number: 1 };
    let mut plain = header.emit(bytes);
    plain.resize(bytes - TAG, 0x55);
    ensure!(plain.len() > SESSION_HEADER + TIME_BYTES, "{bytes} bytes hold no packet");
    let (mut datagram, mut scratch) = (plain.clone(), Vec::with_capacity(bytes));
    let (mut sealed, mut opened) = (Batches::new(), Batches::new());
    for _ in 0..BATCHES {
        let start = Clock::now();
        for _ in 0..PACKETS_PER_BATCH {
            datagram.clear();
            datagram.extend_from_slice(&plain);
            here.seal(0, 1, &mut datagram).context("not sealed")?;
        }
        sealed.push(start.elapsed().as_nanos());
        let start = Clock::now();
        for _ in 0..PACKETS_PER_BATCH {
            scratch.clear();
            scratch.extend_from_slice(&datagram);
            let opened = there.open(0, 1, &mut scratch).is_some();
            ensure!(opened, "a packet of {bytes} bytes does not open");
        }
        opened.push(start.elapsed().as_nanos());
    }
    Ok((sealed, opened))
}

/// Measures the time that each side spends on a handshake, including the making of its datagram.
fn handshakes() -> Result<[Batches; 2]> {
    let (mut caller, mut called) = (Batches::new(), Batches::new());
    for seed in 0..HANDSHAKES as u64 {
        let (mut robot, mut base) = (node("robot", "base", seed)?, node("base", "robot", !seed)?);
        let now = Instant(1);
        let (robot_at, base_at) = (address(1), address(2));
        let radio = tautline_proto::RadioId(0);
        let start = Clock::now();
        robot.handle_timeout(now);
        let call = robot.poll_transmit(now).context("no call")?;
        let calling = start.elapsed();
        let start = Clock::now();
        base.handle_packet(now, radio, robot_at, &call.datagram);
        let answer = base.poll_transmit(now).context("no answer")?;
        called.push(start.elapsed().as_nanos());
        let start = Clock::now();
        robot.handle_packet(now, radio, base_at, &answer.datagram);
        caller.push((calling + start.elapsed()).as_nanos());
        let met = std::iter::from_fn(|| robot.poll_event());
        ensure!(
            met.into_iter().any(|event| matches!(event, Event::PeerUp { .. })),
            "a handshake failed"
        );
    }
    Ok([caller, called])
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 71, 0, number], 18470))
}

fn node(name: &str, peer: &str, seed: u64) -> Result<Endpoint> {
    let config = Config::new(name, SecretKey::insecure(name));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut node = Endpoint::new(config, Box::new(move || random.u64(..)))?;
    let radio = node.add_radio(RadioConfig::default());
    let peer = node.add_peer(peer, SecretKey::insecure(peer).public())?;
    // Only the robot initiates a handshake.
    let remote = (name == "robot").then(|| address(2));
    let link = LinkConfig { remote, datagram_bytes: 1472, header_bytes: 28, metered: false };
    node.peer_mut(peer).add_link(Instant(0), radio, link)?;
    Ok(node)
}

/// The gate's treatment of a forged initiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forged {
    /// The first MAC is wrong.
    Stranger,
    /// The attacker knows our public key, and is asked for a cookie.
    Asked,
    /// Like `Asked`, after the gate has sent its limit of cookie replies.
    Silent,
}

impl Forged {
    fn matches(self, admission: &Admission) -> bool {
        match self {
            Self::Stranger => *admission == Admission::BadMac,
            Self::Asked => matches!(admission, Admission::NeedsCookie(_)),
            Self::Silent => *admission == Admission::Flood,
        }
    }
}

/// Measures the admission of initiations under flood, from parsing to the decision.
fn initiations(forged: Forged) -> Result<Batches> {
    let secret = SecretKey::insecure("base");
    let mut packet = start_initiation(7, &[1; NOISE_BYTES]);
    let mac1 = MacKey::for_receiver(&secret.public()).mac(&packet);
    let good = [&packet[..], &mac1, &[0; MAC]].concat();
    let bad = if forged == Forged::Stranger { [0; MAC] } else { mac1 };
    packet.extend_from_slice(&bad);
    packet.extend_from_slice(&[0; MAC]);
    let mut batches = Batches::new();
    for _ in 0..BATCHES {
        let mut gate = CookieChecker::new(&secret);
        let enough = |admission: &Admission| match forged {
            Forged::Silent => *admission == Admission::Flood,
            _ => *admission != Admission::Admit,
        };
        let mut fill = 0..MAX_FREE + MAX_COOKIES;
        while !enough(&judge(&mut gate, &good)?) {
            fill.next().context("the gate admits every initiation")?;
        }
        let start = Clock::now();
        for _ in 0..INITIATIONS_PER_BATCH {
            let admission = judge(&mut gate, &packet)?;
            ensure!(forged.matches(&admission), "{forged:?} came to {admission:?}");
        }
        batches.push(start.elapsed().as_nanos());
    }
    Ok(batches)
}

fn judge(gate: &mut CookieChecker, packet: &[u8]) -> Result<Admission> {
    let Ok(Packet::Initiation(call)) = Packet::parse(packet) else { bail!("not a call") };
    Ok(gate.check(Instant(1), (&[10, 0, 0, 1, 1, 0], &[10, 0, 0, 1]), &call, || [3; 32]))
}

impl Row {
    fn new(
        what: &'static str,
        per_batch: usize,
        mut batches: Batches,
        bound: Option<Bound>,
    ) -> Self {
        batches.sort_unstable();
        let us = |ns: Option<u128>| ns.map_or(f64::NAN, |ns| ns as f64 / 1000.0 / per_batch as f64);
        let (min_us, median_us) = (us(batches.first().copied()), us(upper_median(&batches)));
        Self { what, min_us, median_us, batches: batches.len(), per_batch, bound }
    }

    fn verdict(&self) -> Option<Verdict> {
        let what = format!("{}, median", self.what);
        Some(self.bound?.judge(what, Some(self.median_us), "us"))
    }
}

fn table(rows: &[Row]) -> String {
    table::format_rows(
        rows,
        &[
            left("", 45, |row| row.what.into()),
            right("min", 8, |row| format!("{:.2}", row.min_us)),
            right("median", 8, |row| format!("{:.2}", row.median_us)),
        ],
    )
}

/// Returns the kernel's name of the processor.
fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = all.lines().find_map(|line| line.strip_prefix("model name"));
    name.map_or("unknown".into(), |name| name.trim_start_matches([' ', '\t', ':']).into())
}
