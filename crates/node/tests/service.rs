// SPDX-License-Identifier: Apache-2.0
//! What systemd hears. The functions read the process's environment, so a
//! child (this program again) calls them and the parent plays systemd.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;
use tautline_node::service;

const CHILD: &str = "TAUTLINE_TEST_IS_CHILD";
const DEADLINE: Duration = Duration::from_secs(30);

#[test]
fn systemd_hears_ready_alive_and_stopping() {
    if std::env::var_os(CHILD).is_some() {
        assert_eq!(service::watchdog_interval(), Some(Duration::from_secs(5)));
        service::ready();
        service::alive();
        service::stopping();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(DEADLINE)).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "systemd_hears_ready_alive_and_stopping"])
        .env(CHILD, "1")
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "10000000")
        .env_remove("WATCHDOG_PID")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    for expected in ["READY=1", "WATCHDOG=1", "STOPPING=1"] {
        let mut message = [0; 256];
        let length = systemd.recv(&mut message).unwrap();
        assert_eq!(String::from_utf8_lossy(&message[..length]).trim_end(), expected);
    }
}
