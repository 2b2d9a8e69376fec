// SPDX-License-Identifier: Apache-2.0
//! The ends of a stream as separate programs: a publisher and a subscriber, each written
//! either on the DDS library or on a gateway. They use the same commands as `ros/publish.py` and
//! `ros/subscribe.py`, which can replace either.

use crate::rig::clock::monotonic_ns;
use crate::rig::stamp::{STAMP_BYTES, Stamp};
use crate::rig::stats::{Arrival, write_rows};
use crate::setup::ros::{DOMAIN, LOOPBACK};
use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline_dds::{DiscoveryRange, Participant, Qos as Dds, RawReader, RawWriter, Specification};
use tautline_gateway::ros1::{Ros1, Ros1Options};
use tautline_gateway::ros2::{Ros2, Ros2Options};
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::{Command, Event, Events, Gateway, Qos, Source, Topic};

/// Topic of all streams, as in `ros/flows.py`.
pub const TOPIC: &str = "/stream";
const TYPE: &str = "std_msgs/msg/UInt8MultiArray";
const DDS_TOPIC: &str = "rt/stream";
const DDS_TYPE: &str = "std_msgs::msg::dds_::UInt8MultiArray_";
/// Bytes of the encapsulation in ROS 2.
const ENCAPSULATION: usize = 4;
/// Bytes of an empty layout (no dimensions, offset 0), and of the length of the data.
const LAYOUT: usize = 12;
/// Name and md5 of [`TYPE`] in ROS 1.
const ROS1_TYPE: [&str; 2] = ["std_msgs/UInt8MultiArray", "82373f1612381bb6ee473b5cd6f5d89c"];
/// Sequence number of messages that only show that the path works, as in `ros/flows.py`.
const WARM_UP: u64 = 999_999_999_999;
const WARM_UP_PERIOD: Duration = Duration::from_millis(50);
/// Longest wait for a subscriber that lags behind; other programs may starve it.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);
/// Size limit in bytes, larger than any message here.
const MAX_MESSAGE: usize = 16_000_000;

/// The library that an end uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// The DDS library alone.
    Bare,
    /// The gateway: to ROS 2, or to ROS 1 with `--master`.
    Gateway,
}

/// The end of a stream, and the lines that it exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// `ready`; `start T0_NS COUNT` publishes; `done`; `write`; `written`.
    Publish,
    /// `ready`; `first` with the first uncounted message; `expect COUNT WAIT_S`; `done`; `written`.
    Subscribe,
}

/// Arguments of the hidden command.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// End of the stream.
    role: Role,
    /// Library that it uses.
    by: By,
    /// File for the samples, as CSV.
    output: PathBuf,
    /// Bytes of a message as passed to DDS.
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// Time between the starts of bursts, in microseconds; 0 is as fast as possible.
    #[arg(long, default_value_t = 0)]
    period_us: u64,
    /// Messages published one after the other.
    #[arg(long, default_value_t = 1)]
    burst: u64,
    /// Messages that the publisher keeps for subscribers that lag behind; 0 is all (on DDS alone).
    #[arg(long, default_value_t = 10)]
    depth: u32,
    /// URI of the ROS 1 master of the gateway.
    #[arg(long)]
    master: Option<String>,
}

impl Arguments {
    /// Returns the bytes before the data of a message.
    fn head_bytes(&self) -> usize {
        if self.master.is_some() { LAYOUT } else { ENCAPSULATION + LAYOUT }
    }
}

/// Runs one end until it is done or its standard input ends.
pub fn run(arguments: &Arguments) -> Result<()> {
    match arguments.role {
        Role::Publish => publish(arguments),
        Role::Subscribe => subscribe(arguments),
    }
}

/// A function that writes one message.
type Write1 = Box<dyn Fn(Bytes) -> Result<()>>;

fn publish(arguments: &Arguments) -> Result<()> {
    let least = arguments.head_bytes() + STAMP_BYTES;
    ensure!(arguments.bytes >= least, "a message has at least {least} bytes");
    let write = match arguments.by {
        By::Bare => bare_writer(arguments.depth)?,
        By::Gateway => gateway_writer(arguments)?,
    };
    let orders = orders();
    println!("ready");
    let start = warm_up(&*write, arguments, &orders)?;
    let words: Vec<&str> = start.split_whitespace().collect();
    let &["start", first_ns, count] = words.as_slice() else {
        bail!("'{start}'; allowed: start T0_NS COUNT");
    };
    let sent = publish_counted(&*write, arguments, first_ns.parse()?, count.parse()?)?;
    println!("done");
    // The writer is kept until then, because samples may have to be retransmitted.
    if orders.recv().is_err() {
        return Ok(());
    }
    let rows = sent.iter().enumerate().map(|(sequence, sent)| format!("{sequence},{sent}"));
    write_rows(&arguments.output, std::iter::once("sequence,sent_ns".into()).chain(rows))?;
    println!("written");
    Ok(())
}

/// Publishes uncounted messages until a command arrives; returns the command.
fn warm_up(
    write: &dyn Fn(Bytes) -> Result<()>,
    arguments: &Arguments,
    orders: &Receiver<String>,
) -> Result<String> {
    loop {
        write(message(arguments.bytes, arguments.head_bytes(), WARM_UP))?;
        match orders.recv_timeout(WARM_UP_PERIOD) {
            Ok(order) => return Ok(order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("no order to start"),
        }
    }
}

/// Publishes `count` messages on schedule; returns the time at which each was sent, ns.
fn publish_counted(
    write: &dyn Fn(Bytes) -> Result<()>,
    arguments: &Arguments,
    first_ns: u64,
    count: u64,
) -> Result<Vec<u64>> {
    let mut sent = Vec::with_capacity(usize::try_from(count)?);
    for sequence in 0..count {
        if sequence % arguments.burst == 0 {
            let due = first_ns + sequence / arguments.burst * arguments.period_us * 1000;
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(monotonic_ns())));
        }
        let message = message(arguments.bytes, arguments.head_bytes(), sequence);
        sent.push(
            stamp_of(&message, arguments.head_bytes())
                .context("a message without a stamp")?
                .sent_ns,
        );
        write(message)?;
    }
    Ok(sent)
}

/// Returns a message as CDR, or as ROS 1 serializes it, stamped with the current time.
fn message(bytes: usize, head: usize, sequence: u64) -> Bytes {
    let mut message = BytesMut::zeroed(bytes);
    if head > LAYOUT {
        message[1] = 1;
    }
    message[head - 4..head].copy_from_slice(&((bytes - head) as u32).to_le_bytes());
    Stamp { sequence, sent_ns: monotonic_ns() }.write(&mut message[head..]);
    message.freeze()
}

fn stamp_of(message: &[u8], head: usize) -> Option<Stamp> {
    Stamp::read(message.get(head..)?)
}

fn specification(qos: &Dds) -> Specification<'_> {
    Specification { topic: DDS_TOPIC, type_name: DDS_TYPE, qos }
}

fn participant() -> Result<Arc<Participant>> {
    Ok(Participant::new(DOMAIN.into(), DiscoveryRange::Loopback, b"enclave=/;")?)
}

fn bare_writer(depth: u32) -> Result<Write1> {
    let qos = Dds { keep_all: depth == 0, depth: depth.max(1) as i32, ..Dds::default() };
    let writer = RawWriter::new(&participant()?, specification(&qos), |_, _| ())?;
    Ok(Box::new(move |message| {
        let until = Instant::now() + ROOM_PATIENCE;
        loop {
            match writer.write(message.clone(), None) {
                // A keep-all writer rejects a message while its subscriber has no capacity for it.
                Err(_) if depth == 0 && Instant::now() < until => {}
                written => return Ok(written.map(drop)?),
            }
        }
    }))
}

fn gateway_writer(arguments: &Arguments) -> Result<Write1> {
    let depth = arguments.depth;
    ensure!(depth > 0, "the gateway keeps a number of messages");
    let gateway = gateway(arguments, Arc::new(Ignored))?;
    // Without a hash, ROS 2 compares none.
    let [type_name, type_hash] = if arguments.master.is_some() { ROS1_TYPE } else { [TYPE, ""] };
    let topic = Topic {
        name: TOPIC.into(),
        type_name: type_name.into(),
        type_hash: type_hash.into(),
        definition: "".into(),
        qos: Qos { depth, ..Qos::default() },
    };
    gateway.handle(Command::Advertise { topic });
    Ok(Box::new(move |payload| {
        let (topic, source) = (TOPIC.into(), Source::at_peer(0, 0));
        let origin = tautline_gateway::Origin::default();
        gateway.handle(Command::Publish { topic, source, payload, origin });
        Ok(())
    }))
}

fn gateway(arguments: &Arguments, events: Arc<dyn Events>) -> Result<Box<dyn Gateway>> {
    match &arguments.master {
        Some(master) => Ok(Box::new(gateway_to_ros1(master, events)?)),
        None => Ok(Box::new(gateway_to_ros2(events)?)),
    }
}

fn gateway_to_ros1(master: &str, events: Arc<dyn Events>) -> Result<Ros1> {
    let options = Ros1Options {
        master_uri: master.into(),
        host: LOOPBACK.into(),
        allow: Vec::new(),
        node_name: "/tautline_end".into(),
        tautline_name: "end".into(),
        max_message: MAX_MESSAGE,
        installed: InstalledTypes::new(Vec::new()),
        deliveries: None,
    };
    Ok(Ros1::start(options, Arc::new(|_| true), events)?)
}

fn gateway_to_ros2(events: Arc<dyn Events>) -> Result<Ros2> {
    let options = Ros2Options {
        domain: DOMAIN.into(),
        range: DiscoveryRange::Loopback,
        node_name: "/tautline_end".into(),
        tautline_name: "end".into(),
        max_message: MAX_MESSAGE,
        installed: InstalledTypes::new(Vec::new()),
        deliveries: None,
        goals: None,
    };
    Ok(Ros2::start(options, Arc::new(|_| true), events)?)
}

struct Ignored;

impl Events for Ignored {
    fn emit(&self, _: Event) {}
}

/// Messages that a subscriber has received.
struct Received {
    /// Bytes before the data of a message.
    head: usize,
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    warm: bool,
    rows: Vec<Arrival>,
    expected: Option<usize>,
}

impl Received {
    fn new(head: usize) -> Self {
        Self { head, state: Mutex::default(), more: Condvar::new() }
    }

    fn take(&self, message: &[u8]) {
        let received_ns = monotonic_ns();
        let Some(Stamp { sequence, sent_ns }) = stamp_of(message, self.head) else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if sequence == WARM_UP {
            if !std::mem::replace(&mut state.warm, true) {
                println!("first");
            }
            return;
        }
        state.rows.push(Arrival { sequence, sent_ns, received_ns });
        if state.expected.is_some_and(|count| state.rows.len() >= count) {
            self.more.notify_all();
        }
    }

    /// Waits up to `patience` for `count` messages; returns the messages received.
    fn await_count(&self, count: usize, patience: Duration) -> Vec<Arrival> {
        let until = Instant::now() + patience;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.expected = Some(count);
        while state.rows.len() < count && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let waited = self.more.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut state.rows)
    }
}

impl Events for Received {
    fn emit(&self, event: Event) {
        if let Event::Message { payload, .. } = event {
            self.take(&payload);
        }
    }
}

fn subscribe(arguments: &Arguments) -> Result<()> {
    let received = Arc::new(Received::new(arguments.head_bytes()));
    let _reader: Box<dyn std::any::Any> = match arguments.by {
        By::Bare => Box::new(bare_reader(received.clone())?),
        By::Gateway => {
            let gateway = gateway(arguments, received.clone())?;
            gateway.handle(Command::Subscribe { topic: TOPIC.into() });
            Box::new(gateway)
        }
    };
    println!("ready");
    let Ok(order) = orders().recv() else { return Ok(()) };
    let words: Vec<&str> = order.split_whitespace().collect();
    let &["expect", count, wait_s] = words.as_slice() else {
        bail!("'{order}'; allowed: expect COUNT WAIT_S");
    };
    let patience = Duration::from_secs_f64(wait_s.parse()?);
    let rows = received.await_count(count.parse()?, patience);
    println!("done");
    let line = |it: &Arrival| format!("{},{},{}", it.sequence, it.sent_ns, it.received_ns);
    let head = std::iter::once("sequence,sent_ns,received_ns".into());
    write_rows(&arguments.output, head.chain(rows.iter().map(line)))?;
    println!("written");
    Ok(())
}

/// Subscribes with the gateway's QoS.
fn bare_reader(received: Arc<Received>) -> Result<RawReader> {
    let qos = Dds { keep_all: true, ..Dds::default() };
    let take = move |message: Bytes, _: &_| received.take(&message);
    Ok(RawReader::new(&participant()?, specification(&qos), take, |_, _| ())?)
}

/// Returns the lines of standard input.
fn orders() -> Receiver<String> {
    let (sender, orders) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_an_array_of_bytes_in_cdr_with_its_stamp() {
        let head = ENCAPSULATION + LAYOUT;
        let message = message(1024, head, 7);
        assert_eq!(message.len(), 1024);
        assert_eq!(message[..head], [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 3, 0, 0]);
        assert_eq!(stamp_of(&message, head).unwrap().sequence, 7);
        assert_eq!(stamp_of(&message[..head + STAMP_BYTES - 1], head), None);
    }

    #[test]
    fn ros_1_has_no_encapsulation() {
        let message = message(1020, LAYOUT, 7);
        assert_eq!(message[..LAYOUT], [0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 3, 0, 0]);
        assert_eq!(stamp_of(&message, LAYOUT).unwrap().sequence, 7);
    }
}
