// SPDX-License-Identifier: Apache-2.0
//! Two machines with the real program: namespaces that a cable joins, and a folder for each.

use crate::PROGRAM;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use tautline::status::Status;
use tautline_cli::control::Client;
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::{Place, wait_for};

/// A base and a robot, joined by a cable: 10.77.0.1 and 10.77.0.2.
pub struct World {
    pub place: Place,
    pub base: Machine,
    pub robot: Machine,
}

/// A machine: its network, and a folder with its file.
pub struct Machine {
    pub inside: Enclosure,
    pub folder: PathBuf,
    pub name: &'static str,
}

impl World {
    pub fn new() -> Self {
        let place = Place::new(PROGRAM);
        let [inside, neighbour] = place.two_hosts();
        inside.join(&neighbour);
        let machine = |inside, name: &'static str| {
            let folder = place.path(name);
            std::fs::create_dir(&folder).unwrap();
            Machine { inside, folder, name }
        };
        let (base, robot) = (machine(inside, "base"), machine(neighbour, "robot1"));
        Self { base, robot, place }
    }

    /// Pairs both; `more` are further arguments of the base and of the robot.
    pub fn pair(&self, more: [&[&str]; 2]) -> [Run; 2] {
        let base = self.base.pair(more[0]);
        let code = base.code();
        let robot = self.robot.pair(&[&[&*code], more[1]].concat());
        [base, robot]
    }

    /// Pairs both without ROS; both succeed.
    pub fn pair_well(&self, more: [&[&str]; 2]) -> [Run; 2] {
        let mut runs = self.pair(more);
        // The robot ends first: after its failure, the base would wait for another robot.
        for run in runs.iter_mut().rev() {
            let status = run.end();
            assert!(status.success(), "{}: {}", run.name, run.output());
        }
        runs
    }
}

impl Machine {
    pub fn file(&self) -> PathBuf {
        self.folder.join("robot.yaml")
    }

    pub fn robot_yaml(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    /// The names of the files in its folder.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|it| it.file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "tautline");
        names.sort();
        names
    }

    /// The program with an environment of its own.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.inside.command(PROGRAM);
        for variable in ["ROS_MASTER_URI", "ROS_DOMAIN_ID", "ROS_VERSION", "SUDO_UID"] {
            command.env_remove(variable);
        }
        command.env("XDG_RUNTIME_DIR", &self.folder).args(arguments);
        command
    }

    /// Runs `tautline pair` with JSON, without questions, for the file of this machine.
    pub fn pair(&self, arguments: &[&str]) -> Run {
        let fixed = ["--json", "--yes", "--name", self.name];
        let command = self.pair_command(&[&fixed[..], arguments].concat());
        Run::start(self.name, command)
    }

    pub fn pair_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&["pair"]);
        command.arg("--file").arg(self.file()).args(arguments);
        command
    }

    /// Runs the daemon from the file that was written.
    pub fn run(&self) -> Running<'_> {
        let log = std::fs::File::create(self.folder.with_extension("log")).unwrap();
        let mut command = self.command(&["run"]);
        command.arg(self.file()).args(["--log", "info"]);
        let child = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let running = Running { machine: self, child };
        wait_for(format!("the daemon of {}", self.name), || running.status());
        running
    }
}

/// A daemon; killed when dropped.
pub struct Running<'a> {
    machine: &'a Machine,
    child: Child,
}

impl Running<'_> {
    pub fn status(&self) -> Option<Status> {
        let socket = self.machine.folder.join(format!("tautline/{}.sock", self.machine.name));
        Client::connect(&socket).and_then(|mut client| client.status()).ok()
    }

    pub fn wait_until_up(&self, peer: &str) {
        wait_for(format!("{peer} is up"), || {
            let peers = self.status()?.peers;
            peers.iter().any(|it| it.name == peer && it.state == "up").then_some(())
        });
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.machine.folder.with_extension("log"));
            eprintln!("{}:\n{}", self.machine.name, log.unwrap_or_default());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run of `tautline pair`; killed when dropped.
pub struct Run {
    pub name: &'static str,
    child: Child,
    pub input: Option<ChildStdin>,
    out: Arc<Mutex<String>>,
    errors: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gather(
    mut stream: impl Read + Send + 'static,
) -> (Arc<Mutex<String>>, std::thread::JoinHandle<()>) {
    let text: Arc<Mutex<String>> = Arc::default();
    let kept = text.clone();
    // A question ends without a new line.
    let work = move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            kept.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    (text, std::thread::spawn(work))
}

impl Run {
    pub fn start(name: &'static str, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (out, reader) = gather(child.stdout.take().unwrap());
        let (errors, other) = gather(child.stderr.take().unwrap());
        let input = child.stdin.take();
        Self { name, child, input, out, errors, readers: vec![reader, other] }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn output(&self) -> String {
        format!("{}{}", self.out.lock().unwrap(), self.errors.lock().unwrap())
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for text in its output.
    pub fn wait_for(&mut self, text: &str) {
        wait_for(format!("'{text}' of {}", self.name), || {
            let found = self.output().contains(text);
            assert!(
                found || !self.has_ended() || self.output().contains(text),
                "{}",
                self.output()
            );
            found.then_some(())
        });
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Value> {
        let out = self.out.lock().unwrap();
        out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for an event.
    pub fn event(&self, name: &str) -> Value {
        wait_for(format!("{name} of {}: {}", self.name, self.output()), || {
            self.events().into_iter().find(|it| it["event"] == name)
        })
    }

    pub fn code(&self) -> String {
        self.event("waiting")["code"].as_str().unwrap().to_owned()
    }

    pub fn answer(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        let status =
            wait_for(format!("the end of {}", self.name), || self.child.try_wait().unwrap());
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        status
    }

    /// Waits for its end with a failure; returns its output.
    pub fn failure(&mut self) -> String {
        let status = self.end();
        assert!(!status.success(), "{} succeeded: {}", self.name, self.output());
        self.output()
    }

    pub fn kill(&mut self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

/// A connection that a test carries frame by frame between a robot and a base.
pub struct Proxy {
    port: u16,
    listener: std::net::TcpListener,
    network: std::fs::File,
}

/// What happens to a frame.
pub enum FrameFate {
    Pass,
    /// The frame arrives with these bytes.
    Change(Vec<u8>),
    /// The frame is lost, and both connections end.
    Cut,
}

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    Robot,
    Base,
}

impl Proxy {
    /// Listens on loopback in the network of the robot.
    pub fn new(robot: &Machine) -> Self {
        let listener = robot.inside.call(|| std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        Self { port, listener, network: robot.inside.network() }
    }

    /// The address for `--at` at the robot.
    pub fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Carries one connection until it ends. `judge` gets each frame with its length, and its number
    /// among those of its sender, from 1. Returns all bytes of the robot and of the base.
    pub fn carry(&self, judge: impl Fn(Sender, usize, &[u8]) -> FrameFate + Sync) -> [Vec<u8>; 2] {
        let (robot, _) = self.listener.accept().unwrap();
        let connect = || {
            tautline_testkit::running::enclosure::enter(&self.network);
            std::net::TcpStream::connect(("10.77.0.1", 18470)).unwrap()
        };
        let base = std::thread::scope(|scope| scope.spawn(connect).join().unwrap());
        std::thread::scope(|scope| {
            let one = scope.spawn(|| forward(Sender::Robot, &robot, &base, &judge));
            let other = scope.spawn(|| forward(Sender::Base, &base, &robot, &judge));
            [one.join().unwrap(), other.join().unwrap()]
        })
    }
}

fn forward(
    from: Sender,
    mut source: &std::net::TcpStream,
    mut sink: &std::net::TcpStream,
    judge: &(impl Fn(Sender, usize, &[u8]) -> FrameFate + Sync),
) -> Vec<u8> {
    let mut all = Vec::new();
    for number in 1.. {
        let mut frame = vec![0; 4];
        if source.read_exact(&mut frame).is_err() {
            break;
        }
        let length = u32::from_le_bytes(frame[..].try_into().unwrap()) as usize;
        frame.resize(4 + length, 0);
        if source.read_exact(&mut frame[4..]).is_err() {
            break;
        }
        all.extend_from_slice(&frame);
        let sent = match judge(from, number, &frame) {
            FrameFate::Pass => sink.write_all(&frame),
            FrameFate::Change(frame) => sink.write_all(&frame),
            FrameFate::Cut => break,
        };
        if sent.is_err() {
            break;
        }
    }
    for stream in [source, sink] {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    all
}
