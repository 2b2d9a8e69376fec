// SPDX-License-Identifier: Apache-2.0
//! A robot and its base in namespaces, with a real ROS master, on which faults are planted one after the
//! other. What this machine cannot have (Wi-Fi, the frequency of a processor) is a file below `planted`, or
//! a recorded output of a program.

use crate::PROGRAM;
use crate::fake;
use serde_json::{Value as Json, json};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tautline::audit::Actor;
use tautline::keys;
use tautline::status::{Status, TopicChange};
use tautline_cli::control::{ControlServer, NodeControl};
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::{Place, wait_for};

/// Address of the base on the cable `wlan0`.
pub const BASE: &str = "10.77.0.2";
const MASTER: &str = "http://127.0.0.1:11311";

/// A process that ends with the row that started it.
pub struct Program(pub Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon with one state when it is asked first, and another one later.
struct Daemon {
    first: Status,
    later: Option<Status>,
    was_asked: AtomicBool,
}

impl NodeControl for Daemon {
    fn status(&self) -> Result<Status, String> {
        let later = self.later.as_ref().filter(|_| self.was_asked.load(Ordering::Relaxed));
        self.was_asked.store(true, Ordering::Relaxed);
        Ok(later.unwrap_or(&self.first).clone())
    }

    fn change_topic(&self, _: TopicChange, _: Actor) -> Result<Vec<String>, String> {
        Err("this daemon has no topics".into())
    }
}

pub struct Scene {
    pub place: Place,
    pub robot: Enclosure,
    /// The other end of the cable; it has no ROS.
    pub base: Enclosure,
    /// Files that precede those of the machine.
    pub planted: PathBuf,
    programs: PathBuf,
    /// The robot's file.
    pub file: String,
    /// The state of the daemon, if one runs.
    pub status: Option<Status>,
    /// The state when it is asked again, if that differs.
    pub later: Option<Status>,
    /// Whether doctor runs at the base.
    pub at_base: bool,
    /// Commands at the robot that undo a fault.
    pub undo: Vec<String>,
    /// Processes of a row.
    pub processes: Vec<Program>,
    /// Public keys of the robot and its base.
    pub keys: [String; 2],
    _master: Program,
}

impl Scene {
    pub fn new() -> Self {
        let place = Place::new(PROGRAM);
        let [robot, base] = place.two_hosts();
        robot.join_by(&base, "wlan0", 77);
        for machine in [&robot, &base] {
            // With this mount, /sys shows the interfaces of this network.
            machine.run("mount -t sysfs sysfs /sys");
        }
        let keys = ["robot1", "base"].map(|name| {
            let path = place.path(&format!("{name}.key"));
            keys::generate(&path).unwrap().to_string()
        });
        let master = master(&robot, &place);
        let (planted, programs) = (place.path("planted"), place.path("programs"));
        let mut scene = Self {
            place,
            robot,
            base,
            planted,
            programs,
            file: String::new(),
            status: None,
            later: None,
            at_base: false,
            undo: Vec::new(),
            processes: Vec::new(),
            keys,
            _master: master,
        };
        scene.reset();
        scene
    }

    /// Removes the faults of a row.
    pub fn reset(&mut self) {
        for command in std::mem::take(&mut self.undo) {
            self.robot.run(&command);
        }
        self.processes.clear();
        self.later = None;
        self.at_base = false;
        for folder in [&self.planted, &self.programs] {
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir_all(folder).unwrap();
        }
        self.plant("/sys/class/net/wlan0/phy80211/name", "phy0");
        self.plant("/sys/class/net/wlan0/operstate", "up");
        self.plant("/proc/sys/net/core/rmem_max", "4194304");
        self.plant("/proc/sys/net/ipv4/neigh/wlan0/retrans_time_ms", "50");
        self.program("timedatectl", "yes");
        self.program("arping", "Sent 2 probes (2 broadcast(s))\nReceived 0 response(s)");
        self.iw("off", -55, "65.0", "yes", "DE");
        let key = self.key_file();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&key, Some(0), None).unwrap();
        self.file = self.usual_file(BASE);
        self.status = Some(self.usual_status());
    }

    /// The key of the robot.
    pub fn key_file(&self) -> PathBuf {
        self.place.path("robot1.key")
    }

    fn control(&self) -> PathBuf {
        self.place.path("doctor.sock")
    }

    /// A robot with ROS 1 whose base has this address.
    pub fn usual_file(&self, address: &str) -> String {
        let key = &self.keys[1];
        format!(
            "name: robot1\ncontrol: {}\nros1: {{ master: {MASTER}, host: 127.0.0.1 }}\n\
             peers: {{ base: {{ key: {key}, address: {address}, prefix: /base }} }}\ntopics: {{ /scan: {{}} }}\n",
            self.control().display()
        )
    }

    /// The same robot with ROS 2.
    pub fn ros2_file(&self) -> String {
        let ros1 = format!("ros1: {{ master: {MASTER}, host: 127.0.0.1 }}");
        self.usual_file(BASE).replace(&ros1, "ros1: false\nros2: { domain: 0, range: subnet }")
    }

    /// The state of a daemon without troubles.
    pub fn usual_status(&self) -> Status {
        let mut status = fake::status();
        status.gateways.truncate(1);
        status.peers.retain(|it| it.name == "base");
        status.topics.retain(|it| it.peer == "base");
        status.links.retain(|it| it.peer == "base");
        status.links.truncate(1);
        for gateway in &mut status.gateways {
            gateway.location = MASTER.into();
            gateway.trouble.clear();
        }
        for peer in &mut status.peers {
            peer.state = "up".into();
            peer.wanted_bps = Some(400_000.0);
            peer.clock = None;
        }
        for link in &mut status.links {
            (link.up, link.loss, link.mtu) = (true, 0.0, 1500);
            link.state = "up".into();
            link.mtu_known_by = "interface".into();
            link.available_bps = Some(4_000_000);
        }
        for topic in &mut status.topics {
            topic.given_up = None;
        }
        status.version = env!("CARGO_PKG_VERSION").into();
        status.notices.clear();
        status.waiting.clear();
        status.to_allow_all.clear();
        assert_eq!((status.peers.len(), status.links.len()), (1, 1), "{status:?}");
        status
    }

    /// Changes the state of the daemon.
    pub fn change_status(&mut self, change: impl FnOnce(&mut Status)) {
        change(self.status.as_mut().unwrap());
    }

    /// Adds lines to the robot's file.
    pub fn lines(&mut self, lines: &str) {
        self.file += lines;
        self.file.push('\n');
    }

    /// Writes a file that precedes that of the machine.
    pub fn plant(&self, path: &str, text: &str) {
        let path = self.planted.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Installs a program that prints this.
    pub fn program(&self, name: &str, output: &str) {
        self.script(name, &format!("cat <<'END'\n{output}\nEND\n"));
    }

    fn script(&self, name: &str, script: &str) {
        let path = self.programs.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Installs an `iw` with recorded outputs (iw 5.19, a notebook at an access point).
    pub fn iw(&self, power_save: &str, signal: i32, bitrate: &str, wmm: &str, country: &str) {
        let link = format!(
            "Connected to 9c:c9:eb:11:22:33 (on wlan0)\n\tSSID: robots\n\tfreq: 5180\n\
             \tRX: 1245833 bytes (9012 packets)\n\tTX: 201877 bytes (1801 packets)\n\
             \tsignal: {signal} dBm\n\trx bitrate: 866.7 MBit/s VHT-MCS 9 80MHz short GI VHT-NSS 2\n\
             \ttx bitrate: {bitrate} MBit/s MCS 7\n\n\tbss flags:\tshort-slot-time\n\
             \tdtim period:\t1\n\tbeacon int:\t100"
        );
        let station = format!(
            "Station 9c:c9:eb:11:22:33 (on wlan0)\n\tinactive time:\t12 ms\n\tsignal:  \t{signal} dBm\n\
             \tauthorized:\tyes\n\tassociated:\tyes\n\tWMM/WME:\t{wmm}\n\tMFP:\t\tno\n\tDTIM period:\t1"
        );
        let region = format!(
            "global\ncountry {country}: DFS-ETSI\n\t(2400 - 2483 @ 40), (N/A, 20), (N/A)\n\
             phy#1 (self-managed)\ncountry US: DFS-UNSET"
        );
        self.script(
            "iw",
            &format!(
                "case \"$*\" in\n'dev wlan0 get power_save') echo 'Power save: {power_save}';;\n\
                 'dev wlan0 link') cat <<'END'\n{link}\nEND\n;;\n\
                 'dev wlan0 station dump') cat <<'END'\n{station}\nEND\n;;\n\
                 'reg get') cat <<'END'\n{region}\nEND\n;;\n*) echo \"iw: $*\" >&2; exit 1;;\nesac\n"
            ),
        );
    }

    /// Starts a program of ROS 2 with these variables at the robot, which makes a node if asked to.
    pub fn rclpy(&mut self, variables: &[(&str, &str)], makes_node: bool) {
        let program = rclpy(&self.robot, variables, makes_node);
        self.processes.push(program);
    }

    /// Runs a script of Python at the robot until the row ends; waits for its first line.
    pub fn python(&mut self, script: &str) {
        let mut command = self.robot.command("/usr/bin/python3");
        command.args(["-c", script]);
        self.processes.push(start_program(command));
    }

    /// Runs doctor.
    pub fn doctor(&self, arguments: &[&str]) -> Output {
        let file = self.place.path("robot1.yaml");
        std::fs::write(&file, &self.file).unwrap();
        let control = self.control();
        let _ = std::fs::remove_file(&control);
        let _server = self.status.clone().map(|it| {
            let (later, was_asked) = (self.later.clone(), AtomicBool::new(false));
            let daemon: Arc<dyn NodeControl> = Arc::new(Daemon { first: it, later, was_asked });
            ControlServer::start(&control, daemon).unwrap()
        });
        let mut command = self.command();
        command.arg(&file).args(arguments).output().unwrap()
    }

    /// The command of doctor, with what is planted.
    pub fn command(&self) -> Command {
        let machine = if self.at_base { &self.base } else { &self.robot };
        let mut command = machine.command(PROGRAM);
        let path = std::env::var("PATH").unwrap();
        command.arg("doctor").arg("--planted").arg(&self.planted);
        command.env("PATH", format!("{}:{path}", self.programs.display()));
        for variable in ["ROS_MASTER_URI", "ROS_DOMAIN_ID", "ROS_HOSTNAME", "ROS_IP"] {
            command.env_remove(variable);
        }
        command.env("XDG_RUNTIME_DIR", self.place.path("runtime"));
        command
    }

    /// Runs doctor; returns its findings.
    pub fn findings(&self) -> Json {
        let output = self.doctor(&["--json"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        let found: Json = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {errors}\n{output:?}"));
        let is_harmful = |it: &Json| ["stops", "delays"].contains(&it["harm"].as_str().unwrap());
        let harmful = found["findings"].as_array().unwrap().iter().any(is_harmful);
        assert_eq!(output.status.code(), Some(if harmful { 3 } else { 0 }), "{found:#}");
        found
    }
}

/// A real master, without roslaunch.
fn master(robot: &Enclosure, place: &Place) -> Program {
    let mut command = robot.command("/usr/bin/rosmaster");
    command.args(["--core", "-p", "11311"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.env("ROS_MASTER_URI", MASTER).env("ROS_IP", "127.0.0.1");
    command.env("ROS_HOME", place.path("ros")).env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    let needed = "this test needs ROS 1 of Debian: make setup";
    assert!(Path::new("/usr/bin/rosmaster").exists(), "{needed}");
    let program = Program(command.spawn().expect(needed));
    wait_for("the master", || {
        robot.call(|| {
            let address = "127.0.0.1:11311".to_socket_addrs().unwrap().next().unwrap();
            TcpStream::connect(address).ok().map(drop)
        })
    });
    program
}

/// Starts a program of ROS 2 in a network.
pub fn rclpy(machine: &Enclosure, variables: &[(&str, &str)], makes_node: bool) -> Program {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ros2/jazzy");
    let python = folder.join("bin/python");
    assert!(python.exists(), "{} is missing: run make ros2", folder.display());
    let node = if makes_node { "rclpy.init(); node = rclpy.create_node('planted')" } else { "" };
    let script =
        format!("import rclpy, time\n{node}\nprint('ready', flush=True)\ntime.sleep(1000)");
    let mut command = machine.command(python.to_str().unwrap());
    command.args(["-c", &script]).env_remove("LD_LIBRARY_PATH");
    for name in [
        "_ROS_WHEELS_BOOTSTRAP_COMPLETE",
        "ROS_DOMAIN_ID",
        "ROS_AUTOMATIC_DISCOVERY_RANGE",
        "FASTDDS_BUILTIN_TRANSPORTS",
    ] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    start_program(command)
}

/// Starts a program, and waits for its first line.
fn start_program(mut command: Command) -> Program {
    use std::io::{BufRead, BufReader};
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "{command:?} ended: {:?}", child.wait());
    Program(child)
}

/// The texts of one check's findings: what was found, and the fixes.
pub fn texts_of(findings: &Json, check: &str) -> Vec<String> {
    let all = findings["findings"].as_array().unwrap().iter();
    let of_check = all.filter(|it| it["check"] == json!(check));
    of_check.map(|it| format!("{} {}", it["found"], it["fix"])).collect()
}
