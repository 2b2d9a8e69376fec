// SPDX-License-Identifier: Apache-2.0
//! The base: it shows a code and waits. Strangers may connect at any rate: each connection has little
//! time and memory, and none delays another.

use super::channel::{self, Channel};
use super::console::Console;
use crate::cli::Failure;
use rand_core::OsRng;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel as queue};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline_cli::pairing::exchange::{Exchange, Keys, Role};
use tautline_cli::pairing::wire::{Frame, Refusal};
use tautline_cli::pairing::{Code, MAX_STRANGERS, PAUSE, STRANGER_TIME, TRIES};

/// Maximum number of queued events (tries, and reports about strangers) while the terminal is slow.
const MAX_EVENTS: usize = 32;
/// Maximum number of unreadable HELLO frames that are reported: a stranger may send any number of them.
const MAX_REPORTED_ERRORS: u32 = 8;
/// Interval of the progress line.
const TICK: Duration = Duration::from_millis(500);
/// Pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A robot that has proved the code.
pub struct ProvedRobot {
    pub channel: Channel,
    pub name: String,
    pub address: SocketAddr,
}

/// What the threads report.
enum Event {
    Proved(Box<ProvedRobot>),
    Wrong {
        from: IpAddr,
        left: u8,
    },
    OtherVersion {
        from: IpAddr,
        error: String,
    },
    /// A robot proved the code and vanished: the code is used up.
    Lost {
        from: IpAddr,
        error: String,
    },
}

/// What the connections to a waiting base share.
struct SharedState {
    name: String,
    code: Code,
    tries: Mutex<RemainingTries>,
    strangers: Mutex<Strangers>,
    events: SyncSender<Event>,
}

/// The number of tries left, and the earliest time of the next one.
struct RemainingTries {
    left: u8,
    next: Instant,
    is_over: bool,
}

#[derive(Default)]
struct Strangers {
    next: u64,
    reported_errors: u32,
    connections: BTreeMap<u64, (IpAddr, TcpStream)>,
}

impl Strangers {
    fn may_report_error(&mut self) -> bool {
        self.reported_errors = self.reported_errors.saturating_add(1);
        self.reported_errors <= MAX_REPORTED_ERRORS
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits at `port` for one robot.
pub struct PairingListener {
    events: Receiver<Event>,
    pub code: Code,
}

impl PairingListener {
    /// Listens on `port`; `name` is the name of the base.
    pub fn start(port: u16, code: Code, name: &str) -> Result<Self, Failure> {
        let listener = listen(port).map_err(|error| {
            Failure::new(format!(
                "TCP port {port}: {error}. Does another 'tautline pair' wait on this machine? \
                 --port NUMBER takes another port"
            ))
        })?;
        let (sender, events) = queue(MAX_EVENTS);
        let tries = RemainingTries { left: TRIES, next: Instant::now(), is_over: false };
        let shared = Arc::new(SharedState {
            name: name.into(),
            code,
            tries: Mutex::new(tries),
            strangers: Mutex::default(),
            events: sender,
        });
        let work = move || accept(&listener, &shared);
        std::thread::Builder::new().name("accept".into()).spawn(work).map_err(Failure::new)?;
        Ok(Self { events, code })
    }

    /// Waits for the robot; `check` may end the wait.
    pub fn wait(
        &self,
        timeout: Duration,
        console: Console,
        mut check: impl FnMut() -> Result<(), Failure>,
    ) -> Result<ProvedRobot, Failure> {
        let start = Instant::now();
        loop {
            check()?;
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Failure::new(format!(
                    "nobody entered the code within {} min. Nothing was written",
                    timeout.as_secs().div_ceil(60)
                )));
            }
            let (minutes, seconds) = (left.as_secs() / 60, left.as_secs() % 60);
            console.progress(&format!("waiting for the robot, {minutes}:{seconds:02} left ..."));
            match self.events.recv_timeout(TICK.min(left)) {
                Ok(Event::Proved(proved)) => return Ok(*proved),
                Ok(Event::OtherVersion { from, error }) => {
                    console.say(&format!("{from} sent {error}"))?;
                }
                Ok(Event::Lost { from, error }) => {
                    return Err(Failure::new(format!(
                        "{from} proved the code, and then the connection ended: {error}. Nothing was \
                         written. Run 'tautline pair' again for a new code"
                    )));
                }
                Ok(Event::Wrong { from, left: 0 }) => {
                    console.event(
                        &serde_json::json!({ "event": "wrong_code", "from": from, "left": 0 }),
                    )?;
                    return Err(Failure::new(format!(
                        "{TRIES} wrong codes were entered, the last one at {from}. The pairing has \
                         ended, and nothing was written. If that was not you, somebody on this \
                         network tries to take part. Run 'tautline pair' again for a new code, and \
                         prefer a cable or a network of your own"
                    )));
                }
                Ok(Event::Wrong { from, left }) => {
                    console.event(
                        &serde_json::json!({ "event": "wrong_code", "from": from, "left": left }),
                    )?;
                    let more = match left {
                        1 => "one more ends".to_owned(),
                        left => format!("{left} more end"),
                    };
                    console.say(&format!(
                        "warning: {from} entered a wrong code; {more} the pairing"
                    ))?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new("the listening socket has ended"));
                }
            }
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        bound => bound,
    }
}

fn accept(listener: &TcpListener, shared: &Arc<SharedState>) {
    loop {
        if lock(&shared.tries).is_over {
            return;
        }
        let Ok((stream, from)) = listener.accept() else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(id) = admit(shared, &stream, from.ip().to_canonical()) else { continue };
        let here = shared.clone();
        let work = move || {
            // An error from a stranger ends only that stranger's connection.
            let _ = handle_connection(&here, stream, from);
            lock(&here.strangers).connections.remove(&id);
        };
        if std::thread::Builder::new().name("stranger".into()).spawn(work).is_err() {
            lock(&shared.strangers).connections.remove(&id);
        }
    }
}

/// Admits a connection; returns its number. If there are too many, closes the oldest connection from the
/// address with the most connections.
fn admit(shared: &SharedState, stream: &TcpStream, from: IpAddr) -> Option<u64> {
    let kept = stream.try_clone().ok()?;
    let mut strangers = lock(&shared.strangers);
    if strangers.connections.len() >= MAX_STRANGERS {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        strangers
            .connections
            .values()
            .for_each(|(address, _)| *counts.entry(*address).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count)?.0;
        let oldest = *strangers.connections.iter().find(|(_, (address, _))| *address == most)?.0;
        if let Some((_, stream)) = strangers.connections.remove(&oldest) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
    let id = strangers.next;
    strangers.next += 1;
    strangers.connections.insert(id, (from, kept));
    Some(id)
}

/// Carries out the key agreement on one connection.
fn handle_connection(
    shared: &SharedState,
    stream: TcpStream,
    from: SocketAddr,
) -> Result<(), channel::ChannelError> {
    channel::configure_stream(&stream)?;
    let deadline = Instant::now() + STRANGER_TIME;
    let hello = channel::read_exchange_frame(&stream, deadline)?;
    let (exchange, own) = Exchange::start(Role::Base, shared.code, &shared.name, &mut OsRng);
    let address = from.ip().to_canonical();
    let (keys, other) = match exchange.finish(&hello) {
        Ok(done) => done,
        Err(error) => {
            let error = error.to_string();
            if lock(&shared.strangers).may_report_error() {
                let _ = shared.events.try_send(Event::OtherVersion { from: address, error });
            }
            return Ok(());
        }
    };
    if other.name == shared.name {
        return Ok(channel::write_frame(&stream, &Frame::Refuse(Refusal::SameName).emit())?);
    }
    channel::write_frame(&stream, &own)?;
    let proof = channel::read_exchange_frame(&stream, deadline)?;
    let Ok(Frame::Confirm(proof)) = Frame::parse(&proof) else { return Ok(()) };
    match shared.check_proof(&keys, &proof) {
        Some(refusal) => {
            let sent = channel::write_frame(&stream, &Frame::Refuse(refusal).emit());
            // The refusal is sent before this event, because the last wrong code ends this program.
            if let Refusal::WrongCode { left } = refusal {
                let _ = shared.events.send(Event::Wrong { from: address, left });
            }
            sent?;
        }
        None => {
            if let Err(error) = channel::write_frame(&stream, &keys.proof()) {
                let _ = shared.events.send(Event::Lost { from: address, error: error.to_string() });
                return Err(error.into());
            }
            let channel = Channel::new(stream, keys);
            let proved =
                ProvedRobot { channel, name: other.name, address: canonical_address(from) };
            let _ = shared.events.send(Event::Proved(Box::new(proved)));
        }
    }
    Ok(())
}

fn canonical_address(from: SocketAddr) -> SocketAddr {
    match from.ip().to_canonical() {
        IpAddr::V4(v4) => (v4, from.port()).into(),
        IpAddr::V6(_) => from,
    }
}

impl SharedState {
    /// Checks one proof at a time, with a pause after a wrong one. `None`: the proof is right.
    fn check_proof(&self, keys: &Keys, proof: &[u8; 32]) -> Option<Refusal> {
        let mut tries = lock(&self.tries);
        if tries.is_over {
            return Some(Refusal::Ended);
        }
        std::thread::sleep(tries.next.saturating_duration_since(Instant::now()));
        if keys.is_proved_by(proof) {
            tries.is_over = true;
            return None;
        }
        tries.left -= 1;
        tries.next = Instant::now() + PAUSE;
        tries.is_over = tries.left == 0;
        Some(Refusal::WrongCode { left: tries.left })
    }
}
