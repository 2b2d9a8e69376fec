// SPDX-License-Identifier: Apache-2.0
//! A separate network, held by a sleeping process and removed with it.

use super::wait_for;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};

/// Namespaces for network and mounts, and a user namespace if this process is not root.
pub struct Enclosure {
    holder: Child,
    is_root: bool,
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

const NEEDED: &str = "this test needs namespaces of its own: run it as root, or where users may make \
                      them (sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=1000)";

impl Enclosure {
    /// Creates an enclosure in which `hosts` replaces /etc/hosts.
    pub fn new(hosts: &Path) -> Self {
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut unshare = Command::new("unshare");
        if !is_root {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--net", "--mount"]);
        Self::hold(unshare, hosts, is_root)
    }

    /// Creates another enclosure whose network can be joined to this one's.
    pub fn neighbour(&self, hosts: &Path) -> Self {
        let mut unshare = self.command("unshare");
        unshare.args(["--net", "--mount"]);
        Self::hold(unshare, hosts, self.is_root)
    }

    fn hold(mut unshare: Command, hosts: &Path, is_root: bool) -> Self {
        let ready = hosts.with_extension(format!("ready{}", super::free_port()));
        let script = "mount --bind \"$1\" /etc/hosts && ip link set lo up && touch \"$2\" \
                      && exec sleep infinity";
        unshare.args(["sh", "-c", script, "hold"]).arg(hosts).arg(&ready);
        let mut enclosure = Self { holder: unshare.spawn().expect(NEEDED), is_root };
        wait_for("the namespaces are ready", || {
            assert!(enclosure.holder.try_wait().unwrap().is_none(), "{NEEDED}");
            ready.exists().then_some(())
        });
        enclosure
    }

    /// Returns a command that runs `program` inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--net", "--mount"]);
        if !self.is_root {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg(program);
        command
    }

    /// Runs `ip` inside.
    pub fn ip(&self, arguments: &str) {
        let done = self.command("ip").args(arguments.split(' ')).output().unwrap();
        assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// The network inside.
    pub fn network(&self) -> File {
        File::open(format!("/proc/{}/ns/net", self.holder.id())).unwrap()
    }

    /// Joins two enclosures by a cable: `wire` has 10.77.0.1 and fe80::77:1 here, 10.77.0.2 and
    /// fe80::77:2 there.
    pub fn join(&self, other: &Self) {
        self.join_by(other, "wire", 77);
    }

    /// The same by a cable and a network of other names.
    pub fn join_by(&self, other: &Self, cable: &str, network: u8) {
        let there = other.holder.id();
        self.ip(&format!("link add {cable} type veth peer name {cable} netns {there}"));
        for (enclosure, host) in [(self, 1), (other, 2)] {
            // No second link-local address that the kernel selects.
            enclosure.ip(&format!("link set {cable} addrgenmode none"));
            enclosure.ip(&format!("addr add 10.{network}.0.{host}/24 dev {cable}"));
            enclosure.ip(&format!("addr add fe80::{network}:{host}/64 dev {cable} nodad"));
            enclosure.ip(&format!("link set {cable} up"));
        }
    }
}
