// SPDX-License-Identifier: Apache-2.0
//! Namespaces that isolate this program from the machine's own network.
//!
//! The program starts a copy of itself in its own network, mount and process namespaces (and,
//! without root, its own user namespace). Namespaces, links, ROS masters and daemons created there
//! disappear with the copy, however it ends: the inner copy is process 1 of its process namespace,
//! and it ends when the outer one does.

use anyhow::{Context, Result, bail};
use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};

const AS_ROOT: &[&str] = &["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
const AS_USER: &[&str] = &["--user", "--map-root-user"];

/// Exit code of an interrupted program, as a shell reports it.
const INTERRUPTED: i32 = 130;

/// Runs this program with the same arguments inside the namespaces; returns its exit code.
pub fn run_this_inside() -> Result<ExitCode> {
    Inner::start(&[])?.end()
}

/// The copy inside the namespaces.
pub struct Inner(Child);

impl Inner {
    /// Starts this program with the same arguments, and these variables in its environment.
    pub fn start(environment: &[(&str, &str)]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        // This option comes first: the arguments may end with a command of the user after "--".
        command.arg("--inside").args(std::env::args_os().skip(1));
        Self::start_command(&command, environment)
    }

    /// Starts a program, which calls [`settle`], with these variables in its environment.
    pub fn start_command(command: &Command, environment: &[(&str, &str)]) -> Result<Self> {
        let inner = Command::new("unshare")
            .args(usable_flags()?)
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args())
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start unshare")?;
        Ok(Self(inner))
    }

    /// Returns the id of a process in the network and mount namespaces.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end; returns its exit code.
    pub fn end(mut self) -> Result<ExitCode> {
        // Standard input stays open as long as this process lives; the inner copy watches it.
        let lifeline = self.0.stdin.take();
        let status = self.0.wait()?;
        drop(lifeline);
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
    }
}

fn usable_flags() -> Result<Vec<&'static str>> {
    let with_user = [AS_USER, AS_ROOT].concat();
    let mut refusals = Vec::new();
    for flags in [AS_ROOT.to_vec(), with_user] {
        let trial = Command::new("unshare").args(&flags).args(["--", "true"]).output();
        match trial {
            Ok(output) if output.status.success() => return Ok(flags),
            Ok(output) => refusals.push(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => refusals.push(format!("unshare (package util-linux): {error}")),
        }
    }
    bail!(
        "this program needs its own network namespaces and got none: as this user '{}', in a user namespace '{}'.\n\
         Run it as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 on Debian, \
         kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, --privileged in a container",
        refusals[0],
        refusals[1]
    )
}

/// Prepares the inner copy: it ends when the outer one does, and /run becomes private.
pub fn settle() -> Result<()> {
    std::thread::spawn(|| {
        let mut nothing = [0; 1];
        while matches!(std::io::stdin().read(&mut nothing), Ok(1..)) {}
        std::process::exit(INTERRUPTED);
    });
    // `ip netns` keeps its names under /run; the daemons' control sockets are there too.
    crate::rig::processes::run(Command::new("mount").args([
        "-t",
        "tmpfs",
        "tautline-lab",
        "/run",
    ]))?;
    for folder in ["/run/netns", SCRATCH] {
        std::fs::create_dir(folder).with_context(|| format!("cannot make {folder}"))?;
    }
    Ok(())
}

/// Folder of control sockets and of homes of ROS programs, removed with the namespaces. The name is
/// short because a socket's path has at most 107 bytes.
pub const SCRATCH: &str = "/run/tautline-lab";
