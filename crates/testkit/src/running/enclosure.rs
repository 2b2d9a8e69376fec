// SPDX-License-Identifier: Apache-2.0
//! A separate network, held by a sleeping process and removed with it.

use super::wait_for;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

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

const NEEDS_NAMESPACES: &str = "this test needs namespaces of its own: run it as root, or where users may make \
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

    /// Creates another enclosure whose network can be joined to the network of this enclosure.
    pub fn neighbour(&self, hosts: &Path) -> Self {
        let mut unshare = self.command("unshare");
        unshare.args(["--net", "--mount"]);
        Self::hold(unshare, hosts, self.is_root)
    }

    fn hold(mut unshare: Command, hosts: &Path, is_root: bool) -> Self {
        // A reused number would report the namespaces before they exist.
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let ready = hosts.with_extension(format!("ready{number}"));
        let script = "mount --bind \"$1\" /etc/hosts && ip link set lo up && touch \"$2\" \
                      && exec sleep infinity";
        unshare.args(["sh", "-c", script, "hold"]).arg(hosts).arg(&ready);
        let mut enclosure = Self { holder: unshare.spawn().expect(NEEDS_NAMESPACES), is_root };
        wait_for("the namespaces are ready", || {
            assert!(enclosure.holder.try_wait().unwrap().is_none(), "{NEEDS_NAMESPACES}");
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

    /// Runs a command inside, with words separated by single spaces; returns its output.
    pub fn run(&self, command: &str) -> String {
        let mut words = command.split(' ');
        self.run_words(words.next().unwrap(), words)
    }

    /// Runs `ip` inside.
    pub fn ip(&self, arguments: &str) {
        self.run(&format!("ip {arguments}"));
    }

    /// Runs the lines of an nft file inside; returns the output.
    pub fn nft(&self, lines: &str) -> String {
        self.run_words("nft", std::iter::once(lines))
    }

    fn run_words<'a>(&self, program: &str, words: impl Iterator<Item = &'a str>) -> String {
        let words: Vec<&str> = words.collect();
        let done = self.command(program).args(&words).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{program} {}: {said}", words.join(" "));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Calls a function inside the network, for example to create a socket; requires root.
    pub fn call<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        let network = self.network();
        let inside = || {
            enter(&network);
            function()
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// Returns the network of the enclosure.
    pub fn network(&self) -> File {
        File::open(format!("/proc/{}/ns/net", self.holder.id())).unwrap()
    }

    /// Joins two enclosures by a cable: `wire` has 10.77.0.1 and fe80::77:1 here, 10.77.0.2 and
    /// fe80::77:2 there.
    pub fn join(&self, other: &Self) {
        self.join_by(other, "wire", 77);
    }

    /// Joins two enclosures by a cable and network of other names.
    pub fn join_by(&self, other: &Self, cable: &str, network: u8) {
        self.add_veth_pair(cable, other, cable);
        for (enclosure, host) in [(self, 1), (other, 2)] {
            enclosure.ip(&format!("addr add 10.{network}.0.{host}/24 dev {cable}"));
            enclosure.ip(&format!("addr add fe80::{network}:{host}/64 dev {cable} nodad"));
        }
    }

    /// Joins two enclosures by a cable without addresses, which has a name at each end.
    pub fn add_veth_pair(&self, here: &str, other: &Self, there: &str) {
        let holder = other.holder.id();
        self.ip(&format!("link add {here} type veth peer name {there} netns {holder}"));
        for (enclosure, cable) in [(self, here), (other, there)] {
            // The kernel must not add its own link-local address.
            enclosure.ip(&format!("link set {cable} addrgenmode none"));
            enclosure.ip(&format!("link set {cable} up"));
        }
    }
}

/// Moves this thread into a network.
pub fn enter(network: &File) {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::fd::AsFd;
    let moved = move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network));
    moved.expect("this test moves into namespaces: run it as root");
}
