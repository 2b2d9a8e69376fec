// SPDX-License-Identifier: Apache-2.0
//! A machine on the radio's network without a key, next to a robot with a real master, a real rospy
//! node and the daemon: which of the ROS 1 sockets it reaches.

use crate::PROGRAM;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::{Daemon, Place, wait_for};

/// Addresses of the robot and the stranger on the wire between them.
const ROBOT: &str = "10.77.0.1";
const STRANGER: &str = "10.77.0.2";
const MASTER: &str = "http://127.0.0.1:11311";

/// A child process, killed when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct World {
    daemon: Daemon,
    robot: Enclosure,
    stranger: Enclosure,
    _master: Program,
    place: Place,
}

/// Returns a command with Debian's Python and ROS 1, independent of other installations.
fn ros(enclosure: &Enclosure, place: &Place, program: &str) -> Command {
    let mut command = enclosure.command("env");
    command.args(["PATH=/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONUNBUFFERED=1"]);
    command.arg(format!("ROS_MASTER_URI={MASTER}")).arg("ROS_IP=127.0.0.1");
    command.arg(format!("ROS_HOME={}", place.path("ros").display()));
    command.arg(format!("ROS_LOG_DIR={}", place.path("ros").display()));
    command.arg(program);
    command
}

impl World {
    /// Starts a robot whose file has this ROS 1 section.
    fn new(ros1: &str) -> Self {
        let place = Place::new(PROGRAM);
        let [robot, stranger] = place.two_hosts();
        robot.join(&stranger);
        let mut command = ros(&robot, &place, "rosmaster");
        command.args(["--core", "-p", "11311"]).stdout(Stdio::null());
        let master = Program(command.spawn().unwrap());
        let lines = format!(
            "listen: \"127.0.0.1:18470\"\n\
             ros1: {{ master: \"{MASTER}\", {ros1} }}\n\
             peers: {{ base: {STRANGER} }}\ntopics: {{ /scan: {{}} }}"
        );
        let daemon = place.start_as("robot", "robot", &lines, Some(&robot));
        Self { daemon, robot, stranger, _master: master, place }
    }

    /// Runs `script` on one of the two machines; returns its output as JSON.
    fn python(&self, on: &Enclosure, script: &str, arguments: &[&str]) -> Value {
        let mut command = ros(on, &self.place, "python3");
        let output = command.args(["-c", script]).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{errors}"))
    }

    /// Returns the ports of the slave API and of TCPROS, as the robot's own nodes find them.
    fn ports(&self) -> [String; 2] {
        let ports = wait_for("the daemon at the master", || {
            let found = self.python(&self.robot, PORTS, &[MASTER]);
            found.is_array().then_some(found)
        });
        [&ports[0], &ports[1]].map(|port| port.as_u64().unwrap().to_string())
    }

    /// Returns the result of access to the robot's sockets at `host` from one of the machines.
    fn attempt(&self, from: &Enclosure, host: &str) -> Value {
        let [api, tcpros] = self.ports();
        self.python(from, ATTEMPT, &[host, &api, &tcpros])
    }
}

const PORTS: &str = r#"
import json, sys, xmlrpc.client
from urllib.parse import urlparse
try:
    master = xmlrpc.client.ServerProxy(sys.argv[1])
    code, _, uri = master.lookupNode('/test', '/tautline')
    node = urlparse(uri)
    # As programs of the robot reach it, whichever address it tells.
    api = xmlrpc.client.ServerProxy('http://127.0.0.1:%d/' % node.port)
    _, _, protocol = api.requestTopic('/test', '/diagnostics', [['TCPROS']])
    print(json.dumps([node.port, protocol[2]]))
except Exception as error:
    print(json.dumps(str(error)))
"#;

/// Calls two methods of the slave API and requests a topic by TCPROS.
const ATTEMPT: &str = r#"
import json, socket, struct, sys, xmlrpc.client
host, api, tcpros = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
socket.setdefaulttimeout(20)
def got(attempt):
    try:
        return attempt()
    except Exception as error:
        return 'nothing: %s' % type(error).__name__
def update():
    node = xmlrpc.client.ServerProxy('http://%s:%d/' % (host, api))
    return node.publisherUpdate('/test', '/scan', ['http://%s:1/' % host])[1]
def request():
    node = xmlrpc.client.ServerProxy('http://%s:%d/' % (host, api))
    return node.requestTopic('/test', '/diagnostics', [['TCPROS']])[1]
def read():
    connection = socket.create_connection((host, tcpros))
    fields = [b'callerid=/test', b'topic=/diagnostics', b'md5sum=*', b'type=*']
    body = b''.join(struct.pack('<I', len(field)) + field for field in fields)
    connection.sendall(struct.pack('<I', len(body)) + body)
    return 'header' if b'md5sum=' in connection.recv(4096) else 'nothing: closed'
print(json.dumps({'update': got(update), 'request': got(request), 'read': got(read)}))
"#;

/// A rospy node that waits for a message.
const LISTEN: &str = r#"
import json, rospy
rospy.init_node('listener', disable_signals=True)
message = rospy.wait_for_message('/diagnostics', rospy.AnyMsg, timeout=60)
print(json.dumps(len(message._buff)))
"#;

fn assert_served(attempt: &Value) {
    assert_eq!(attempt["update"], "publisher update", "{attempt}");
    assert_eq!(attempt["request"], "ready", "{attempt}");
    assert_eq!(attempt["read"], "header", "{attempt}");
}

fn assert_gets_nothing(attempt: &Value) {
    for what in ["update", "request", "read"] {
        assert!(attempt[what].as_str().unwrap().starts_with("nothing"), "{attempt}");
    }
}

#[test]
fn a_stranger_gets_no_connection_at_the_radio_address() {
    let world = World::new(&format!("host: {ROBOT}"));
    assert_gets_nothing(&world.attempt(&world.stranger, ROBOT));
    assert_served(&world.attempt(&world.robot, ROBOT));
    assert_served(&world.attempt(&world.robot, "127.0.0.1"));
    let bytes = world.python(&world.robot, LISTEN, &[]);
    assert!(bytes.as_u64().unwrap() > 16, "a rospy node reads: {bytes}");
    // Two calls and a connection were refused; the log has one line for them.
    let log = world.daemon.log();
    let refusals = log.lines().filter(|line| line.contains(STRANGER) && line.contains("refused"));
    assert_eq!(refusals.count(), 1, "{log}");
}

#[test]
fn configured_services_are_served() {
    let world = World::new(&format!("host: {ROBOT}, allow: 10.77.0.0/24"));
    assert_served(&world.attempt(&world.stranger, ROBOT));
}

#[test]
fn ros_sockets_listen_on_the_radio_only_if_configured() {
    let world = World::new("host: localhost");
    assert_gets_nothing(&world.attempt(&world.stranger, ROBOT));
    // The port is closed for the robot itself as well.
    let closed = world.attempt(&world.robot, ROBOT);
    assert_eq!(closed["read"], "nothing: ConnectionRefusedError", "{closed}");
    assert_served(&world.attempt(&world.robot, "127.0.0.1"));
    assert!(world.daemon.status().gateways[0].trouble.is_empty());
}

#[test]
fn a_host_of_another_machine_is_reported_until_its_address_appears() {
    let world = World::new("host: 10.78.0.1");
    let trouble = || world.daemon.status().gateways[0].trouble.clone();
    wait_for("the trouble", || trouble().contains("10.78.0.1").then_some(()));
    assert!(trouble().contains("no address of this machine"), "{}", trouble());
    world.robot.ip("addr add 10.78.0.1/24 dev wire");
    wait_for("the sockets on the new address", || trouble().is_empty().then_some(()));
    assert_served(&world.attempt(&world.robot, "10.78.0.1"));
    world.robot.ip("addr del 10.78.0.1/24 dev wire");
    wait_for("the trouble again", || trouble().contains("10.78.0.1").then_some(()));
}
