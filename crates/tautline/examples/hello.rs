// SPDX-License-Identifier: Apache-2.0
//! Two processes of one machine: `robot` greets `base` over loopback, encrypted.
//!
//! ```console
//! $ cargo run -p tautline --example hello
//! base received: hello from process 4711
//! ```

use std::error::Error;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tautline::{Config, Node, keys};

const PATIENCE: Duration = Duration::from_secs(30);

/// Opens a node with the key of `end` and with one peer.
fn open(name: &str, end: &End) -> Result<Node, Box<dyn Error>> {
    let End { folder, port, peers_key, peers_port } = end;
    let peer = if name == "robot" { "base" } else { "robot" };
    let config = Config::parse(&format!(
        "name: {name}\nlisten: 127.0.0.1:{port}\nkey: \"{folder}/{name}.key\"\nbeacons: false\n\
         topics: {{ /greeting: {{}} }}\n\
         peers: {{ {peer}: {{ key: {peers_key}, address: 127.0.0.1:{peers_port}, accept: [/greeting] }} }}"
    ))?;
    Ok(Node::open(config)?)
}

/// Sends a greeting to the base once it subscribes.
pub fn robot(end: &End, patience: Duration) -> Result<(), Box<dyn Error>> {
    let node = open("robot", end)?;
    let greetings = node.publish("/greeting", "example/Text")?;
    if !greetings.wait_for_subscriber(patience) {
        return Err("nobody subscribes to /greeting".into());
    }
    greetings.send(format!("hello from process {}", std::process::id()))?;
    Ok(node.close()?)
}

/// Waits for the first greeting of the robot and returns it.
pub fn base(end: &End) -> Result<String, Box<dyn Error>> {
    let node = open("base", end)?;
    let greetings = node.subscribe("/greeting")?;
    let message = greetings.recv_timeout(PATIENCE)?;
    node.close()?;
    Ok(String::from_utf8(message.payload.to_vec())?)
}

/// What one end needs to know: where its key is, the ports of both ends, and the public key of its peer.
pub struct End {
    /// Folder with the key of this end.
    pub folder: String,
    /// UDP port on which this end listens.
    pub port: String,
    /// Public key of the peer.
    pub peers_key: String,
    /// UDP port of the peer.
    pub peers_port: String,
}

impl End {
    /// Reads an end from the arguments of the robot's process.
    pub fn of_arguments(arguments: &[String]) -> Option<Self> {
        let [folder, port, peers_key, peers_port] = arguments else { return None };
        let [folder, port, peers_key, peers_port] =
            [folder, port, peers_key, peers_port].map(String::clone);
        Some(Self { folder, port, peers_key, peers_port })
    }

    /// Returns the arguments for the robot's process.
    pub fn arguments(&self) -> [&str; 4] {
        [&self.folder, &self.port, &self.peers_key, &self.peers_port]
    }

    /// Makes the keys of both ends in a new folder, as `tautline keygen` does, and chooses free ports.
    /// Returns the ends of robot and base.
    pub fn pair(folder: &Path) -> Result<[Self; 2], Box<dyn Error>> {
        let robots_key = keys::generate(&folder.join("robot.key"))?.to_string();
        let bases_key = keys::generate(&folder.join("base.key"))?.to_string();
        let sockets = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
        let [robots_port, bases_port] =
            [sockets[0].local_addr()?, sockets[1].local_addr()?].map(|it| it.port().to_string());
        let folder = folder.display().to_string();
        let robot = Self {
            folder: folder.clone(),
            port: robots_port.clone(),
            peers_key: bases_key,
            peers_port: bases_port.clone(),
        };
        let base =
            Self { folder, port: bases_port, peers_key: robots_key, peers_port: robots_port };
        Ok([robot, base])
    }
}

#[allow(dead_code, reason = "a test has this file as a module")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(end) = End::of_arguments(&arguments) {
        return robot(&end, PATIENCE);
    }
    let folder = std::env::temp_dir().join(format!("tautline-hello-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let [robots_end, bases_end] = End::pair(&folder)?;
    let mut robot = Command::new(std::env::current_exe()?).args(robots_end.arguments()).spawn()?;
    println!("base received: {}", base(&bases_end)?);
    robot.wait()?;
    Ok(std::fs::remove_dir_all(folder)?)
}
