// SPDX-License-Identifier: Apache-2.0
//! Hosts for a trial of `--hosts` on this machine: network namespaces with a real sshd each, and
//! keys that are thrown away.

use super::ssh::Client;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tautline_lab::rig::enclosure::SCRATCH;
use tautline_lab::rig::processes::{Process, make_folder, run, wait_for};
use tautline_lab::setup::world::{Bridge, Computer};

const SSHD: &str = "/usr/sbin/sshd";
/// Longest wait for an sshd to accept connections.
const PATIENCE: Duration = Duration::from_secs(10);

/// Hosts with an sshd each, and the computer that reaches them. Fields are dropped in this order.
pub struct Hosts {
    _servers: Vec<Process>,
    hosts: Vec<Computer>,
    operator: Computer,
    _bridge: Bridge,
    key: PathBuf,
}

impl Hosts {
    /// Creates the hosts and starts their servers.
    pub fn new(count: usize, logs: &Path) -> Result<Self> {
        ensure!(
            Path::new(SSHD).is_file(),
            "--hosts-here needs {SSHD} (Debian: crates/lab/setup.sh openssh-server)"
        );
        let folder = Path::new(SCRATCH).join("sshd");
        // sshd wants an empty folder for its unprivileged part; /run is private here.
        make_folder(&folder)?;
        make_folder(Path::new("/run/sshd"))?;
        let key = folder.join("user");
        for file in [&key, &folder.join("host")] {
            run(Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(file))?;
        }
        std::fs::copy(folder.join("user.pub"), folder.join("authorized"))?;
        let bridge = Bridge::new()?;
        let plugged = |name: String, number: usize| {
            let computer = Computer::new(&name, u8::try_from(number)?)?;
            bridge.plug_in(&computer)?;
            computer.await_running()?;
            Ok(computer)
        };
        let operator = plugged("operator".into(), count + 1)?;
        let hosts = (1..=count).map(|number| plugged(format!("host{number}"), number));
        let hosts = hosts.collect::<Result<Vec<_>>>()?;
        let start = |host: &Computer| serve(host, &folder, logs);
        let servers = hosts.iter().map(start).collect::<Result<Vec<_>>>()?;
        Ok(Self { _servers: servers, hosts, operator, _bridge: bridge, key })
    }

    /// Returns the ssh that reaches them.
    pub fn client(&self) -> Client {
        let key = self.key.display().to_string();
        let options = ["-i", &key, "-o", "StrictHostKeyChecking=no"];
        let files = ["-F", "none", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"];
        Client {
            options: [&options[..], &files[..]].concat().into_iter().map(String::from).collect(),
            namespace: Some(self.operator.name.clone()),
        }
    }

    /// Returns the hosts as `--hosts` takes them.
    pub fn targets(&self) -> Vec<String> {
        self.hosts.iter().map(|host| format!("root@{}", host.address)).collect()
    }
}

fn serve(host: &Computer, folder: &Path, logs: &Path) -> Result<Process> {
    let mut command = host.command(SSHD);
    command.args(["-D", "-e", "-f", "/dev/null", "-h"]).arg(folder.join("host"));
    let authorized = format!("AuthorizedKeysFile={}", folder.join("authorized").display());
    let pid = format!("PidFile={}", folder.join(format!("{}.pid", host.name)).display());
    for option in [&authorized, &pid, "UsePAM=no", "PermitRootLogin=prohibit-password"] {
        command.args(["-o", option]);
    }
    // Every user may write to the enclosure's /run, but nobody else sees it.
    command.args(["-o", "StrictModes=no"]);
    // Many nodes connect at the same time.
    command.args(["-o", "MaxStartups=300", "-o", "MaxSessions=300"]);
    let mut server = Process::start(&format!("sshd-{}", host.name), command, logs)?;
    let listens = || {
        server.check_running()?;
        let sockets = run(host.command("cat").arg("/proc/net/tcp"))?;
        // Port 22 (0x16) in state LISTEN (0A).
        Ok(sockets.lines().any(|line| line.contains(":0016 00000000:0000 0A")).then_some(()))
    };
    let listening = wait_for(PATIENCE, listens)?;
    listening.with_context(|| format!("sshd on {} does not listen", host.name))?;
    Ok(server)
}
