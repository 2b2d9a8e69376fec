// SPDX-License-Identifier: Apache-2.0
//! The Unix socket between the command line and the daemon. Requests and answers are JSON texts,
//! one per line:
//!
//! | request | answer |
//! | --- | --- |
//! | `{"get": "status"}` | `{"ok": STATUS}` |
//! | `{"set": {"topic": "/scan", "priority": 200}}` | `{"ok": ["/scan"]}`, the topics changed |
//! | `{"reload": {"dry_run": false}}` | `{"ok": CHANGES}`, taken from the daemon's own file |
//! | anything that fails | `{"error": "why"}` |
//!
//! Everybody who may open the socket may change priorities, so its mode is 0660. A reload takes no
//! text from the client: only those who may write the file decide on its contents.

mod clients;

pub use clients::{EVICTION_IDLE_TIME, MAX_CLIENTS, MAX_CLIENTS_PER_USER};

use crate::descriptors::FileId;
use clients::{Clients, Slot};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline::Handle;
use tautline::audit::{Actor, Text};
use tautline::reload::Changes;
use tautline::status::{Status, TopicChange};
use tautline::sys::Credentials;
use tautline_gateway::threads::{self, End};

/// Maximum bytes of a request; longer ones are refused and the client is disconnected.
pub const MAX_REQUEST_BYTES: u64 = 64 * 1024;
/// Maximum bytes of an answer that a client reads.
pub const MAX_ANSWER_BYTES: u64 = 64 * 1024 * 1024;
/// Time without a whole request after which a client is disconnected.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which a client that does not take its answer is disconnected.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a client waits for an answer. For the answer to a reload, the client waits without a limit
/// until the daemon ends, and reports each such period.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Mode of the socket: its owner and group.
pub const SOCKET_MODE: u32 = 0o660;
/// Pause after a failed `accept` (no free descriptors), to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Access to the running node for the control socket and the metrics server.
pub trait NodeControl: Send + Sync + 'static {
    /// Returns a snapshot; blocks for no longer than about a second.
    fn status(&self) -> Result<Status, String>;
    /// Changes topics for `by` and returns the changed local topics. The error explains the cause
    /// and names the known topics.
    fn change_topic(&self, change: TopicChange, by: Actor) -> Result<Vec<String>, String>;
    /// Reads the daemon's file again and applies the differences for `by`, or with `dry_run` only
    /// returns them. The error explains the cause; then nothing is changed.
    fn reload(&self, dry_run: bool, by: Actor) -> Result<Changes, String> {
        let _ = (dry_run, by);
        Err("this node was not started from a file".into())
    }
    /// Reports that a thread that serves requests has ended.
    fn thread_ended(&self, _thread: &str, _how: End) {}
}

impl NodeControl for Handle {
    fn status(&self) -> Result<Status, String> {
        Ok(Self::status(self)?)
    }

    fn change_topic(&self, change: TopicChange, by: Actor) -> Result<Vec<String>, String> {
        Ok(Self::change_topic(self, change, by)?)
    }

    fn thread_ended(&self, thread: &str, how: End) {
        Self::thread_ended(self, thread, how);
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// `{"get": "status"}`.
    Get(Subject),
    /// `{"set": {...}}`.
    Set(TopicChange),
    /// `{"reload": {"dry_run": true}}`.
    Reload {
        /// Whether to return the changes without applying them.
        dry_run: bool,
    },
}

/// The subject of a `get` request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// The whole [`Status`].
    Status,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer<T> {
    Ok(T),
    Error(String),
}

/// The reason why the control socket cannot be served or used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No daemon listens there.
    #[error("no daemon answers at {}; {}", .0.display(), how_to_start(.0))]
    NoDaemon(PathBuf),
    /// Another daemon listens there.
    #[error("another daemon already answers at {}; stop it, or set another 'control:' (or name) for this daemon", .0.display())]
    AnotherDaemon(PathBuf),
    /// The path exists and is no socket.
    #[error("{} exists and is not a socket; remove it, or set another 'control:'", .0.display())]
    NotASocket(PathBuf),
    /// The system returned an error.
    #[error("control socket {}: {operation}: {source}{}", path.display(), advice(operation, source))]
    System {
        /// The socket.
        path: PathBuf,
        /// The operation that was tried.
        operation: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The answer does not follow this protocol.
    #[error("the daemon's answer cannot be parsed ({0}); do both have the same version?")]
    Answer(String),
    /// The daemon refused the request.
    #[error("{0}")]
    Refused(String),
}

const BINDING: &str = "binding";
const CREATING_FOLDER: &str = "creating its folder";
const CONNECTING: &str = "connecting";

/// Returns how to start the daemon of this socket.
fn how_to_start(path: &Path) -> &'static str {
    match path.parent() == Some(Path::new(crate::unit::CONTROL_FOLDER)) {
        true => crate::unit::how_to_start(),
        false => "start it with: tautline run FILE",
    }
}

/// Returns what to do about an error of the system.
fn advice(operation: &str, source: &io::Error) -> &'static str {
    match (operation, source.kind()) {
        (CONNECTING, ErrorKind::PermissionDenied) => {
            "; run this command as the user of the daemon or as a member of its group, or with sudo"
        }
        (BINDING | CREATING_FOLDER, ErrorKind::InvalidInput | ErrorKind::InvalidFilename) => {
            "; set 'control:' in the file to a shorter path"
        }
        (BINDING | CREATING_FOLDER, _) => {
            "; set 'control:' in the file to a path where this user may write, or run the daemon \
             as a user who may write there"
        }
        _ => "",
    }
}

/// A server that answers requests until dropped.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    identity: Option<FileId>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Binds `path` (creating its folder) and answers with `node` on threads of its own.
    pub fn start(path: &Path, node: Arc<dyn NodeControl>) -> Result<Self, ControlError> {
        let listener = bind(path)?;
        let stop = Arc::new(AtomicBool::new(false));
        let reporter = node.clone();
        let ended = move |name: &str, how| reporter.thread_ended(name, how);
        let accept = {
            let stop = stop.clone();
            move || accept_clients(&listener, &node, &stop)
        };
        let thread = threads::spawn("control", ended, accept);
        let thread = thread.map_err(system_error(path, "starting a thread"))?;
        Ok(Self { path: path.into(), identity: identity(path), stop, thread: Some(thread) })
    }

    /// Returns the path on which the server listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A connection from this process wakes `accept`.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
        // The file may belong to another daemon by now.
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<FileId> {
    fs::symlink_metadata(path).ok().map(|file| FileId::from_metadata(&file))
}

fn system_error(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> ControlError {
    let path = path.to_owned();
    move |source| ControlError::System { path, operation, source }
}

fn bind(path: &Path) -> Result<UnixListener, ControlError> {
    if let Some(folder) = path.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.map_err(system_error(path, CREATING_FOLDER))?;
    }
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(system_error(path, BINDING))?;
    let permissions = fs::Permissions::from_mode(SOCKET_MODE);
    fs::set_permissions(path, permissions).map_err(system_error(path, "setting its mode"))?;
    Ok(listener)
}

/// Removes the socket of a daemon that has died, on which no process listens.
fn remove_stale(path: &Path) -> Result<(), ControlError> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(ControlError::NotASocket(path.into()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ControlError::AnotherDaemon(path.into())),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(system_error(path, "removing a stale socket"))
        }
        Err(e) => Err(system_error(path, "checking whether a daemon answers")(e)),
    }
}

fn accept_clients(listener: &UnixListener, node: &Arc<dyn NodeControl>, stop: &Arc<AtomicBool>) {
    let clients = Clients::new(rustix::process::geteuid().as_raw());
    for client in listener.incoming() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(client) = client else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let client = Arc::new(client);
        let _ = client.set_write_timeout(Some(WRITE_TIMEOUT));
        let (slot, credentials) = match admit(&clients, &client) {
            Ok(admitted) => admitted,
            Err(reason) => {
                // Nothing was sent to the client before, so the answer fits into the socket's buffer.
                refuse(&client, reason);
                continue;
            }
        };
        let (node, stop) = (node.clone(), stop.clone());
        let serve = move || serve_client(&slot, &actor(credentials), node.as_ref(), &stop);
        // Without a thread the client is disconnected, which is the only possible reply.
        let _ = std::thread::Builder::new().name("control-client".into()).spawn(serve);
    }
}

/// Returns a slot for a client, or the reason why there is none.
fn admit(clients: &Arc<Clients>, client: &Arc<UnixStream>) -> Result<(Slot, Credentials), String> {
    // Each change is recorded with its user, so an unknown user is refused.
    let credentials = tautline::sys::peer_credentials(client.as_fd()).map_err(|error| {
        format!("the kernel does not report the user of this connection (SO_PEERCRED): {error}")
    })?;
    let slot = clients.admit(Instant::now(), credentials.uid, client.clone())?;
    Ok((slot, credentials))
}

fn actor(Credentials { uid, gid, pid }: Credentials) -> Actor {
    Actor::User { uid, gid, pid, user: user_name(uid).map(Text::from) }
}

/// Returns a user's name from /etc/passwd. Users of other directories have only a number.
fn user_name(uid: u32) -> Option<String> {
    tautline::accounts::find_user(|_, found| found == uid).map(|user| user.name)
}

/// A client that is read until a deadline, however slowly it sends.
struct DeadlineReader<'a> {
    client: &'a UnixStream,
    deadline: Instant,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.client.set_read_timeout(Some(left))?;
        (&mut &*self.client).read(buffer)
    }
}

fn serve_client(slot: &Slot, actor: &Actor, node: &dyn NodeControl, stop: &AtomicBool) {
    let client = slot.stream();
    let mut reader = BufReader::new(DeadlineReader { client, deadline: Instant::now() });
    while !stop.load(Ordering::Relaxed) {
        reader.get_mut().deadline = Instant::now() + IDLE_TIMEOUT;
        let mut line = Vec::new();
        match (&mut reader).take(MAX_REQUEST_BYTES + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(length) if length as u64 > MAX_REQUEST_BYTES => {
                return refuse(
                    client,
                    format!("a request may have at most {MAX_REQUEST_BYTES} bytes"),
                );
            }
            Ok(_) => {}
        }
        if !slot.mark_busy() || answer(client, actor, node, &line).is_err() {
            return;
        }
        slot.mark_idle(Instant::now());
    }
}

fn answer(client: &UnixStream, by: &Actor, node: &dyn NodeControl, line: &[u8]) -> io::Result<()> {
    match serde_json::from_slice(line) {
        Ok(Request::Get(Subject::Status)) => reply(client, node.status()),
        Ok(Request::Set(change)) => reply(client, node.change_topic(change, by.clone())),
        Ok(Request::Reload { dry_run }) => reply(client, node.reload(dry_run, by.clone())),
        Err(e) => reply::<()>(
            client,
            Err(format!(
                r#"not a request ({e}); allowed: {{"get": "status"}}, {{"set": {{"topic": ...}}}} or {{"reload": {{"dry_run": false}}}}"#
            )),
        ),
    }
}

/// Reports an error to a client that is disconnected afterwards.
fn refuse(client: &UnixStream, reason: String) {
    let _ = reply::<()>(client, Err(reason));
}

fn reply<T: Serialize>(mut client: &UnixStream, result: Result<T, String>) -> io::Result<()> {
    let mut line = serde_json::to_vec(&result.map_or_else(Answer::Error, Answer::Ok))?;
    line.push(b'\n');
    client.write_all(&line)
}

/// A connection to a running daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon at `path`.
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let stream = UnixStream::connect(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                ControlError::NoDaemon(path.into())
            }
            _ => system_error(path, CONNECTING)(e),
        })?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(system_error(path, CONNECTING))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(system_error(path, CONNECTING))?;
        Ok(Self { path: path.into(), reader: BufReader::new(stream) })
    }

    /// Returns the current state of the node.
    pub fn status(&mut self) -> Result<Status, ControlError> {
        self.ask(&Request::Get(Subject::Status), None)
    }

    /// Changes topics; returns the changed ones.
    pub fn change_topic(&mut self, change: TopicChange) -> Result<Vec<String>, ControlError> {
        self.ask(&Request::Set(change), None)
    }

    /// Makes the daemon read its file again; returns the changes, with `dry_run` without applying
    /// them. A reload cannot be undone, so this waits until it is done, and calls `waiting` after
    /// each [`ANSWER_TIMEOUT`].
    pub fn reload(
        &mut self,
        dry_run: bool,
        mut waiting: impl FnMut(),
    ) -> Result<Changes, ControlError> {
        self.ask(&Request::Reload { dry_run }, Some(&mut waiting))
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        mut waiting: Option<&mut dyn FnMut()>,
    ) -> Result<T, ControlError> {
        let mut line =
            serde_json::to_vec(request).map_err(|e| ControlError::Answer(e.to_string()))?;
        line.push(b'\n');
        // A daemon that refuses sends the reason before it closes, so the answer is read even after
        // a failed write.
        let written = self.reader.get_mut().write_all(&line);
        let mut answer = Vec::new();
        let read = loop {
            let left = MAX_ANSWER_BYTES.saturating_sub(answer.len() as u64);
            match ((&mut self.reader).take(left).read_until(b'\n', &mut answer), &mut waiting) {
                (Err(error), Some(waiting)) if error.kind() == ErrorKind::WouldBlock => {
                    (**waiting)()
                }
                (read, _) => break read,
            }
        };
        let received = match read {
            Ok(_) if answer.is_empty() => written.and(Err(ErrorKind::UnexpectedEof.into())),
            read => read,
        };
        received.map_err(system_error(&self.path, "waiting for an answer"))?;
        match serde_json::from_slice(&answer) {
            Ok(Answer::Ok(value)) => Ok(value),
            Ok(Answer::Error(reason)) => Err(ControlError::Refused(reason)),
            Err(e) => Err(ControlError::Answer(e.to_string())),
        }
    }
}
