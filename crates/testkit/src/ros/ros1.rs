// SPDX-License-Identifier: Apache-2.0
//! Real masters and real rospy nodes.

use super::{Agent, MAX_MESSAGE, Watched, bytes_of, free_port, wait_for};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use tautline_gateway::ros1::{Ros1, Ros1Options};
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::{Qos, ResourceName, Topic};

const PACKAGES: &str = "python3-roslaunch python3-rostopic python3-rospy python3-rosbag \
    python3-std-msgs python3-sensor-msgs python3-geometry-msgs python3-nav-msgs python3-tf2-msgs \
    python3-actionlib python3-actionlib-msgs";

/// Returns a ROS 1 program at a master, with a folder for its files.
pub fn ros(program: &str, master: &str, scratch: &Path) -> Process {
    let mut process = Process::new(program);
    process
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("ROS_MASTER_URI", master)
        .env("ROS_IP", "127.0.0.1")
        .env("ROS_HOME", scratch)
        .env("ROS_LOG_DIR", scratch)
        .env("PYTHONUNBUFFERED", "1")
        .stdin(Stdio::piped());
    process
}

/// Fails the test if ROS 1 is not installed.
fn require_ros() {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let imports =
            "import rospy, rosgraph, std_msgs.msg, sensor_msgs.msg, geometry_msgs.msg, nav_msgs.msg";
        let python = Process::new("/usr/bin/python3").args(["-c", imports]).output();
        Path::new("/usr/bin/roscore").exists() && python.is_ok_and(|out| out.status.success())
    });
    assert!(
        *found,
        "these tests need Debian's ROS 1: apt-get install -y --no-install-recommends {PACKAGES}"
    );
}

/// A running master; it ends when dropped, and with the test process.
pub struct Master {
    pub uri: String,
    port: u16,
    child: Child,
    _scratch: tempfile::TempDir,
}

impl Master {
    /// Returns a whole `roscore`, shared by the running tests.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Master>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start("roscore -p", free_port()));
        *shared = Arc::downgrade(&started);
        started
    }

    /// Starts only the master, as roscore runs it, for tests that end it.
    pub fn start_alone(port: u16) -> Self {
        Self::start("rosmaster --core -p", port)
    }

    fn start(command: &str, port: u16) -> Self {
        require_ros();
        let scratch = tempfile::tempdir().unwrap();
        let uri = format!("http://127.0.0.1:{port}");
        // The script ends its child when the script's input ends, at the latest when this process ends.
        let script =
            format!("{command} {port} >/dev/null 2>&1 & read wait; kill $!; wait $! 2>/dev/null");
        let child = ros("/bin/sh", &uri, scratch.path()).args(["-c", &script]).spawn().unwrap();
        let master = Self { uri, port, child, _scratch: scratch };
        wait_for("answer of the master", || TcpStream::connect(("127.0.0.1", port)).ok());
        master
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Starts a rospy node that the test controls.
pub fn start(master_uri: &str, name: &str) -> Agent {
    require_ros();
    let scratch = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/ros/ros1/agent.py");
    let mut program = ros("/usr/bin/python3", master_uri, scratch.path());
    let (namespace, own_name) = name.rsplit_once('/').unwrap_or(("", name));
    program.env("ROS_NAMESPACE", if namespace.is_empty() { "/" } else { namespace });
    program.args([script, own_name]);
    Agent::start(program, scratch)
}

/// Starts a roscpp node that the test controls: `publishers.cpp` with its topic.
pub fn start_cpp(master_uri: &str, name: &str, topic: &str) -> Agent {
    require_ros();
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/ros/ros1/publishers.cpp");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp");
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("ros1-publishers");
        let made = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
        if made(&program).is_some_and(|it| Some(it) >= made(Path::new(source))) {
            return program;
        }
        let fresh = program.with_extension(std::process::id().to_string());
        let script = "g++ -O0 -std=c++17 -o \"$1\" \"$2\" $(pkg-config --cflags --libs roscpp)";
        let compiler =
            Process::new("sh").args(["-c", script, "sh"]).arg(&fresh).arg(source).status();
        assert!(
            compiler.is_ok_and(|it| it.success()),
            "this test needs roscpp: apt-get install -y g++ libroscpp-dev libstd-msgs-dev"
        );
        std::fs::rename(fresh, &program).unwrap();
        program
    });
    let scratch = tempfile::tempdir().unwrap();
    let mut program = ros(compiled.to_str().unwrap(), master_uri, scratch.path());
    program.args([name, topic]);
    Agent::start(program, scratch)
}

/// Orders for a rospy node.
impl Agent {
    pub fn advertise(&mut self, topic: &str, type_name: &str, latch: bool) -> Value {
        self.order(json!({"do": "advertise", "topic": topic, "type": type_name, "latch": latch}))
    }

    /// Publishes a message with these fields; returns its bytes.
    pub fn send(&mut self, topic: &str, fields: Value) -> Vec<u8> {
        bytes_of(&self.order(json!({"do": "send", "topic": topic, "fields": fields})))
    }

    pub fn subscribe(&mut self, topic: &str, type_name: &str) {
        self.order(json!({"do": "subscribe", "topic": topic, "type": type_name}));
    }

    pub fn connections(&mut self, topic: &str) -> u64 {
        self.order(json!({"do": "connections", "topic": topic}))["count"].as_u64().unwrap()
    }
}

/// Starts a gateway of node `/NAME` that may send topics below `/NAME/`.
pub fn watch(master_uri: &str, name: &str) -> Watched {
    let prefix = format!("/{name}/");
    watch_selecting(master_uri, name, move |topic| topic.starts_with(&prefix))
}

/// Starts a gateway that may send the topics that `selector` allows.
pub fn watch_selecting(
    master_uri: &str,
    name: &str,
    selector: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Watched {
    start_gateway(master_uri, name, None, selector)
}

/// Starts a gateway that records in `deliveries`, across restarts, which subscribers have which messages.
pub fn watch_keeping(master_uri: &str, name: &str, deliveries: &Path) -> Watched {
    start_gateway(master_uri, name, Some(deliveries.into()), |_| false)
}

fn start_gateway(
    master_uri: &str,
    name: &str,
    deliveries: Option<PathBuf>,
    selector: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Watched {
    let options = Ros1Options {
        master_uri: master_uri.into(),
        allow: vec![],
        host: "127.0.0.1".into(),
        node_name: format!("/tautline_{name}"),
        tautline_name: name.into(),
        max_message: MAX_MESSAGE,
        installed: InstalledTypes::from_ros1_paths("", ""),
        deliveries,
    };
    let selector = move |named: ResourceName<'_>| match named {
        ResourceName::Topic(name) | ResourceName::Service(name) => selector(name),
    };
    Watched::start(|events| Ros1::start(options, Arc::new(selector), events).unwrap())
}

/// Returns a topic of `std_msgs/String`.
pub fn string_topic(name: &str, latched: bool) -> Topic {
    Topic {
        name: name.into(),
        type_name: "std_msgs/String".into(),
        type_hash: "992ce8a1687cec8c8bd883ec73ca41d1".into(),
        definition: "string data\n".into(),
        qos: Qos { transient_local: latched, ..Qos::default() },
    }
}

/// Returns a serialized `std_msgs/String`.
pub fn string_message(text: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}
