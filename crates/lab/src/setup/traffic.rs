// SPDX-License-Identifier: Apache-2.0
//! A real node whose gateway makes and records messages instead of using ROS. It measures Tautline
//! from daemon to daemon.

use super::node::Received;
use crate::rig::clock::monotonic_ns;
use crate::rig::stamp::{STAMP_BYTES, Stamp};
use crate::rig::stats::{Arrival, write_rows};
use crate::rig::worker::join;
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline::{DataPlane, Handle, Settings, config};
use tautline_cli::Origin;
use tautline_cli::control::ControlServer;
use tautline_cli::reload::Reloader;
use tautline_gateway::{
    Command as Order, Event, Events, Gateway, GatewayStatus, Qos, Source, Topic,
};

/// Printed when the peers subscribe to all awaited channels.
pub const READY: &str = "ready";
/// Printed when a load is over, with the number of messages of each topic so far.
pub const DONE: &str = "done";
/// `go SECONDS` on standard input starts a load; the end of standard input ends the node.
pub const GO: &str = "go";

/// Longest wait for outcomes: while a peer is unplugged, its messages have no outcome.
const SETTLE_PATIENCE: Duration = Duration::from_secs(2);
const POLL_PERIOD: Duration = Duration::from_millis(50);

/// A topic made here, written as `TOPIC:BYTES:PERIOD[:START[:COUNT]]`, times in microseconds.
#[derive(Debug, Clone)]
pub struct MadeTopic {
    /// Name of the topic.
    pub topic: String,
    /// Bytes of each message.
    pub bytes: usize,
    /// Time between messages.
    pub period: Duration,
    /// Time from the start of the load to the first message.
    pub start: Duration,
    /// Messages in a load; `None` for as many as its time allows.
    pub count: Option<u64>,
}

impl std::fmt::Display for MadeTopic {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { topic, bytes, period, start, count } = self;
        write!(out, "{topic}:{bytes}:{}:{}", period.as_micros(), start.as_micros())?;
        count.map_or(Ok(()), |count| write!(out, ":{count}"))
    }
}

impl std::str::FromStr for MadeTopic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = || format!("'{text}'; allowed: TOPIC:BYTES:PERIOD_US[:START_US[:COUNT]]");
        let (topic, numbers) = text.split_once(':').ok_or_else(allowed)?;
        let numbers: Vec<u64> = numbers
            .split(':')
            .map(|number| number.parse().map_err(|_| allowed()))
            .collect::<Result<_, _>>()?;
        let [bytes, period, ref rest @ ..] = numbers[..] else { return Err(allowed()) };
        if rest.len() > 2 || period == 0 {
            return Err(allowed());
        }
        Ok(Self {
            topic: topic.into(),
            bytes: usize::try_from(bytes).map_err(|_| allowed())?.max(STAMP_BYTES),
            period: Duration::from_micros(period),
            start: Duration::from_micros(rest.first().copied().unwrap_or(0)),
            count: rest.get(1).copied(),
        })
    }
}

/// Arguments of the hidden command.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The node's file.
    file: PathBuf,
    /// File for received messages: topic, sequence, sent ns, received ns. Sent messages go to the
    /// same name with the ending .sent: topic, sequence, sent ns.
    samples: PathBuf,
    /// Number of channels that need a subscriber before a load; by default each topic at each peer.
    #[arg(long)]
    channels: Option<usize>,
    /// A topic to publish: TOPIC:BYTES:PERIOD_US[:START_US[:COUNT]].
    #[arg(long = "make")]
    made: Vec<MadeTopic>,
}

/// Times at which the messages of each topic were sent, ns.
type Sent = BTreeMap<String, Vec<u64>>;

struct Recorder {
    events: Arc<dyn Events>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Gateway for Recorder {
    fn handle(&self, order: Order) {
        match order {
            Order::Advertise { topic } => {
                self.events.emit(Event::Wanted { topic: topic.name, wanted: true });
            }
            Order::Publish { topic, payload, .. } => {
                let received_ns = monotonic_ns();
                let Some(Stamp { sequence, sent_ns }) = Stamp::read(&payload) else { return };
                let arrival = Arrival { sequence, sent_ns, received_ns };
                let mut all = self.received.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(Received { topic, arrival });
            }
            _ => {}
        }
    }

    fn status(&self) -> GatewayStatus {
        GatewayStatus { kind: "traffic", connected: true, ..GatewayStatus::default() }
    }

    fn shutdown(self: Box<Self>) {}
}

/// Runs the node until its standard input ends.
pub fn run(arguments: &Arguments) -> Result<()> {
    let checked = config::load(&arguments.file)?;
    let peers = checked.config.peers.len();
    let control = checked.config.control.clone();
    let node = DataPlane::new(checked.config.clone())?;
    let launch = config::Launch::default();
    let origin = Origin { file: arguments.file.clone(), sha256: checked.sha256, launch };
    let reloader = Reloader::start(origin, checked.config, Arc::new(node.handle()))?;
    let _control = ControlServer::start(&control, Arc::new(reloader))?;
    let received = Arc::new(Mutex::new(Vec::new()));
    let events = node.events();
    let recorder = Recorder { events: events.clone(), received: received.clone() };
    for made in &arguments.made {
        events.emit(Event::Offered(description(&made.topic)));
    }
    let (handle, made) = (node.handle(), arguments.made.clone());
    let channels = arguments.channels.unwrap_or(made.len() * peers);
    let sent_file = arguments.samples.with_extension("sent");
    let talk = std::thread::spawn(move || {
        let result = carry_out_orders(&handle, &*events, &made, channels)
            .and_then(|sent| write_sent(&sent_file, &sent));
        handle.shutdown();
        result
    });
    node.run(Box::new(recorder), &Settings::default())?;
    let received = std::mem::take(&mut *received.lock().unwrap_or_else(PoisonError::into_inner));
    let row = |Received { topic, arrival }: Received| {
        let Arrival { sequence, sent_ns, received_ns } = arrival;
        format!("{topic},{sequence},{sent_ns},{received_ns}")
    };
    write_rows(&arguments.samples, received.into_iter().map(row))?;
    join(talk)
}

fn description(topic: &str) -> Topic {
    Topic {
        name: topic.into(),
        type_name: "std_msgs/UInt8MultiArray".into(),
        type_hash: "82373f1612381bb6ee473b5cd6f5d89c".into(),
        definition: "MultiArrayLayout layout\nuint8[] data".into(),
        qos: Qos::default(),
    }
}

fn write_sent(file: &Path, sent: &Sent) -> Result<()> {
    let rows = sent.iter().flat_map(|(topic, times)| {
        let times = times.iter().enumerate();
        times.map(move |(sequence, time)| format!("{topic},{sequence},{time}"))
    });
    write_rows(file, rows)
}

fn carry_out_orders(
    handle: &Handle,
    events: &dyn Events,
    made: &[MadeTopic],
    channels: usize,
) -> Result<Sent> {
    await_wanted(handle, channels)?;
    println!("{READY}");
    let mut sent: Sent = made.iter().map(|made| (made.topic.clone(), Vec::new())).collect();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Some(seconds) = line.strip_prefix(GO) else { break };
        make(events, made, Duration::from_secs_f64(seconds.trim().parse()?), &mut sent);
        await_settled(handle)?;
        let counts: Vec<String> = made.iter().map(|m| sent[&m.topic].len().to_string()).collect();
        println!("{DONE} {}", counts.join(" "));
    }
    Ok(sent)
}

fn await_wanted(handle: &Handle, channels: usize) -> Result<()> {
    loop {
        let status = handle.status().map_err(anyhow::Error::msg)?;
        if status.topics.iter().filter(|t| t.wanted).count() >= channels {
            return Ok(());
        }
        std::thread::sleep(POLL_PERIOD);
    }
}

/// Waits until the outcome of every message is known, so that later events cannot affect it.
fn await_settled(handle: &Handle) -> Result<()> {
    let deadline = Instant::now() + SETTLE_PATIENCE;
    while Instant::now() < deadline {
        let status = handle.status().map_err(anyhow::Error::msg)?;
        if status.topics.iter().all(|t| t.queued + t.sent == 0) {
            return Ok(());
        }
        std::thread::sleep(POLL_PERIOD);
    }
    Ok(())
}

/// Publishes all topics on schedule, on this thread, for `time`.
fn make(events: &dyn Events, made: &[MadeTopic], time: Duration, sent: &mut Sent) {
    let start = Instant::now();
    let left = |made: &MadeTopic| made.count.unwrap_or(u64::MAX);
    let mut due: Vec<(Instant, u64, &MadeTopic)> =
        made.iter().map(|made| (start + made.start, left(made), made)).collect();
    // The payload is incompressible and differs in each message.
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        let more = due.iter_mut().filter(|(_, left, _)| *left > 0);
        let Some((at, left, next)) = more.min_by_key(|(at, ..)| *at) else { break };
        if at.duration_since(start) >= time {
            break;
        }
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let times = sent.entry(next.topic.clone()).or_default();
        let mut payload = Vec::with_capacity(next.bytes);
        payload.resize(STAMP_BYTES, 0);
        while payload.len() < next.bytes {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            payload.push(noise as u8);
        }
        let now = monotonic_ns();
        Stamp { sequence: times.len() as u64, sent_ns: now }.write(&mut payload);
        times.push(now);
        *at += next.period;
        *left -= 1;
        events.emit(Event::Message {
            topic: next.topic.clone(),
            source: Source::local(0),
            payload: payload.into(),
            origin: tautline_gateway::Origin::default(),
            received: Instant::now(),
        });
    }
    // The load lasts its full time, as with a program that keeps running.
    std::thread::sleep(time.saturating_sub(start.elapsed()));
}
