// SPDX-License-Identifier: Apache-2.0
//! The built program running as a daemon, without ROS unless its file configures it.

pub mod enclosure;
pub mod hostile;
pub mod node;

pub use crate::wait::wait_for;

pub use enclosure::Enclosure;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use tautline::AskError;
use tautline::status::Status;
use tautline_cli::control::{Client, ControlError};

/// Host names of the documentation, with the addresses that the test module `translators` gives them.
const HOSTS_LINES: &str = "203.0.113.2 relay.example.org\n192.0.2.2 base.example.org\n";

/// Returns an unused UDP port, each port only once.
pub fn free_port() -> u16 {
    static USED_PORTS: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        if USED_PORTS.lock().unwrap().insert(port) {
            return port;
        }
    }
}

/// A folder for the files of a test's daemons.
pub struct Place {
    folder: tempfile::TempDir,
    program: &'static str,
}

impl Place {
    /// Creates an empty folder for daemons that run `program`.
    pub fn new(program: &'static str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), program }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Writes the file that replaces /etc/hosts in an enclosure; returns its path.
    pub fn hosts(&self) -> PathBuf {
        let hosts = self.path("hosts");
        std::fs::write(&hosts, format!("127.0.0.1 localhost\n{HOSTS_LINES}")).unwrap();
        hosts
    }

    /// Creates two enclosures whose networks can be joined.
    pub fn two_hosts(&self) -> [Enclosure; 2] {
        let hosts = self.hosts();
        let first = Enclosure::new(&hosts);
        let second = first.neighbour(&hosts);
        [first, second]
    }

    /// Starts node `name`; `lines` are the further lines of its file.
    pub fn start(&self, name: &str, lines: &str) -> Daemon {
        self.start_as(name, name, lines, None)
    }

    /// Starts node `name` with files named `files`, in an enclosure if one is given.
    pub fn start_as(
        &self,
        files: &str,
        name: &str,
        lines: &str,
        inside: Option<&Enclosure>,
    ) -> Daemon {
        self.start_by(self.program(inside), files, name, lines)
    }

    /// Starts node `name` with a clock that is ahead of this machine's by `seconds`.
    pub fn start_with_clock_ahead(&self, seconds: u32, name: &str, lines: &str) -> Daemon {
        let library =
            format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
        assert!(std::path::Path::new(&library).exists(), "this test needs faketime: make setup");
        let mut program = Command::new(self.program);
        // Change only the time of day. The program faketime would start the daemon as its child.
        program.env("LD_PRELOAD", library).env("FAKETIME", format!("+{seconds}s"));
        program.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        self.start_by(program, name, name, lines)
    }

    fn start_by(&self, program: Command, files: &str, name: &str, lines: &str) -> Daemon {
        let file = self.write(files, name, lines);
        self.run(program, "run", &file, files)
    }

    /// Starts relay `name`; `lines` are the further lines of its file, with its teams.
    pub fn start_relay(&self, name: &str, lines: &str, inside: Option<&Enclosure>) -> Daemon {
        let file = self.write_relay(name, lines);
        self.run(self.program(inside), "relay", &file, name)
    }

    /// Writes the file of relay `name`, for its start or as a replacement.
    pub fn write_relay(&self, name: &str, lines: &str) -> PathBuf {
        let file = self.path(&format!("{name}.yaml"));
        let control = self.path(&format!("{name}.sock"));
        let text = format!("name: {name}\ncontrol: {}\n{lines}\n", control.display());
        std::fs::write(&file, text).unwrap();
        file
    }

    fn run(
        &self,
        mut program: Command,
        subcommand: &str,
        file: &std::path::Path,
        files: &str,
    ) -> Daemon {
        program.arg(subcommand);
        let mut daemon = Daemon {
            child: self.spawn(program, file, files),
            log: self.path(&format!("{files}.log")),
            control: self.path(&format!("{files}.sock")),
        };
        wait_for(format!("{files} runs"), || {
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none(), "{files} ended: {ended:?}\n{}", daemon.log());
            // Before the daemon logs this, a signal would kill it, and its other files may be missing.
            daemon.log().contains(" running name=").then_some(())
        });
        daemon
    }

    /// Writes the file of node `name`, for its start or as a replacement.
    pub fn write(&self, files: &str, name: &str, lines: &str) -> PathBuf {
        let control = self.path(&format!("{files}.sock"));
        let file = self.path(&format!("{files}.yaml"));
        let ros1 = if lines.contains("ros1:") { "" } else { "ros1: false\n" };
        let security = if lines.contains("key:") { "" } else { "security: none\n" };
        let control_line = control.display();
        let text = format!("name: {name}\ncontrol: {control_line}\n{security}{ros1}{lines}\n");
        std::fs::write(&file, text).unwrap();
        file
    }

    fn program(&self, inside: Option<&Enclosure>) -> Command {
        match inside {
            Some(enclosure) => enclosure.command(self.program),
            None => Command::new(self.program),
        }
    }

    fn spawn(&self, mut command: Command, file: &std::path::Path, files: &str) -> Child {
        let log = std::fs::File::create(self.path(&format!("{files}.log"))).unwrap();
        command.arg(file).args(["--log", "info"]).stderr(log).stdin(Stdio::null());
        command.env_remove("TAUTLINE_LOG").env_remove("NOTIFY_SOCKET");
        command.spawn().unwrap()
    }
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    log: PathBuf,
    pub control: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Returns the daemon's report. On a busy machine the daemon may need several requests.
    pub fn status(&self) -> Status {
        wait_for("the daemon's report", || {
            let answer = Client::connect(&self.control).and_then(|mut client| client.status());
            match answer {
                Err(ControlError::Refused(why)) if why == AskError::Busy.to_string() => None,
                answer => Some(answer.unwrap_or_else(|error| panic!("{error}\n{}", self.log()))),
            }
        })
    }

    pub fn peer_state(&self, peer: &str) -> String {
        let status = self.status();
        let found = status.peers.into_iter().find(|p| p.name == peer);
        found.unwrap_or_else(|| panic!("no peer {peer}")).state
    }

    pub fn wait_for_state(&self, peer: &str, state: &str) {
        wait_for(format!("'{peer}' is {state} at {}", self.control.display()), || {
            (self.peer_state(peer) == state).then_some(())
        });
    }

    /// Waits for a notice that contains all of `words`, in status and in the log.
    pub fn wait_for_notice(&self, words: &[&str]) {
        let has_all = |text: &str| words.iter().all(|word| text.contains(word));
        wait_for(format!("{words:?} at {}", self.control.display()), || {
            let told = self.status().notices.iter().any(|notice| has_all(notice));
            (told && self.log().lines().any(has_all)).then_some(())
        });
    }

    /// Returns the records so far of the audit log at `path`.
    pub fn audit_records(&self, path: &std::path::Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        // The last line may be incomplete.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for a record of `event`, about `peer` if given.
    pub fn wait_for_record(
        &self,
        path: &std::path::Path,
        event: &str,
        peer: Option<&str>,
    ) -> serde_json::Value {
        wait_for(format!("a record of '{event}' about {peer:?}"), || {
            let mut records = self.audit_records(path).into_iter();
            records.find(|it| {
                it["event"] == event && it.get("peer").and_then(|it| it.as_str()) == peer
            })
        })
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    pub fn wait_for_end(&mut self) -> ExitStatus {
        wait_for("the daemon ends", || self.child.try_wait().unwrap())
    }

    /// Kills the daemon without warning.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns the memory in use, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }
}
