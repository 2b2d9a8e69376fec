// SPDX-License-Identifier: Apache-2.0
//! Attacks of other users of a robot's machine on its daemon.

use crate::PROGRAM;
use std::os::unix::process::CommandExt;
use std::process::Command;
use tautline_testkit::running::{Place, free_port};
use tautline_testkit::skip::report_skip;

const NOBODY: u32 = 65534;

/// A program that tries to bind a port in use.
const THIEF: &str = "
import socket, sys
thief = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
    thief.setsockopt(socket.SOL_SOCKET, option, 1)
thief.bind((sys.argv[1], int(sys.argv[2])))
";

#[test]
fn another_user_has_no_socket_at_the_daemons_port() {
    if !rustix::process::geteuid().is_root() {
        report_skip("becoming another user needs root");
        return;
    }
    for listen in ["[::]", "127.0.0.1"] {
        let (place, port, other) = (Place::new(PROGRAM), free_port(), free_port());
        let link = format!("{{ address: \"127.0.0.1:{other}\" }}");
        let _robot = place
            .start("robot", &format!("listen: \"{listen}:{port}\"\npeers: {{ base: {link} }}"));
        for address in ["0.0.0.0", "127.0.0.1"] {
            let mut thief = Command::new("/usr/bin/python3");
            thief.args(["-c", THIEF, address, &port.to_string()]).uid(NOBODY).gid(NOBODY);
            let output = thief.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("Address already in use"), "{listen}, {address}: {said}");
        }
    }
}
