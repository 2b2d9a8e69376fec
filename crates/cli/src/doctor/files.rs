// SPDX-License-Identifier: Apache-2.0
//! The files of a machine, and the programs that answer what no file says. Files of other programs are read
//! up to a limit.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Maximum bytes that are read of a file, or of the output of a program.
pub(super) const MAX_TEXT: u64 = 8 << 20;
/// Maximum number of listed entries of a folder.
const MAX_ENTRIES: usize = 65_536;
/// Time after which a program is ended.
const PROGRAM_TIME: Duration = Duration::from_secs(8);
/// Folders of system programs, which the PATH of a user may lack.
const MORE_PROGRAMS: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";

/// The result of running a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgramOutput {
    /// The program ended successfully with this standard output.
    Output(String),
    /// The program failed with this error text.
    Failed(String),
    /// The program is not installed.
    Missing,
}

/// Files and programs.
#[derive(Debug, Default)]
pub struct Files {
    /// A folder whose files precede those of the machine, for tests.
    planted: Option<PathBuf>,
}

impl Files {
    /// Returns the files of this machine; those below `planted` precede its own (`planted/proc/...`).
    pub(super) fn new(planted: Option<PathBuf>) -> Self {
        Self { planted }
    }

    /// Returns the path of a file: the planted one, if there is one.
    pub(super) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        let below = path.strip_prefix("/").unwrap_or(path);
        let planted = self.planted.as_ref().map(|root| root.join(below));
        planted.filter(|it| it.symlink_metadata().is_ok()).unwrap_or_else(|| path.into())
    }

    /// Whether a file or folder exists.
    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// Reads a file as text, without white space at its ends.
    pub(super) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(self.path(path)).ok()?;
        file.take(MAX_TEXT).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Reads a file that contains a number.
    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// Returns the target of a symbolic link.
    pub(super) fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(std::fs::read_link(self.path(path)).ok()?.to_string_lossy().into_owned())
    }

    /// Returns the names in a folder, in order.
    pub(super) fn list(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let folder = folder.as_ref();
        let below = folder.strip_prefix("/").unwrap_or(folder);
        let planted = self.planted.as_ref().map(|root| root.join(below));
        let folders = planted.into_iter().chain([folder.into()]);
        let entries = folders.flat_map(std::fs::read_dir).flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.take(MAX_ENTRIES).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether a planted file has this path.
    pub(super) fn is_planted(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        self.planted.is_some() && self.path(path) != path
    }

    /// Runs a program; ends it after [`PROGRAM_TIME`].
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> ProgramOutput {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(arguments).env("LC_ALL", "C").env("PATH", format!("{path}:{MORE_PROGRAMS}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => finish(program, child),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => ProgramOutput::Missing,
            Err(error) => ProgramOutput::Failed(error.to_string()),
        }
    }

    /// The network interfaces except loopback.
    pub(super) fn interfaces(&self) -> Vec<String> {
        let all = self.list("/sys/class/net").into_iter();
        // bonding_masters is a file.
        all.filter(|name| name != "lo" && self.exists(interface_path(name, "flags"))).collect()
    }

    /// The network interfaces with Wi-Fi.
    pub(super) fn wifi_interfaces(&self) -> Vec<String> {
        let all = self.interfaces().into_iter();
        all.filter(|it| {
            ["phy80211", "wireless"].iter().any(|one| self.exists(interface_path(it, one)))
        })
        .collect()
    }

    /// The addresses of each interface, loopback included.
    pub(super) fn addresses(&self) -> Vec<(String, IpAddr)> {
        let all = if_addrs::get_if_addrs().unwrap_or_default().into_iter();
        all.map(|it| (it.name.clone(), it.ip())).collect()
    }

    /// Whether root runs this process.
    pub(super) fn is_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}

/// The path of a property of an interface.
pub(super) fn interface_path(name: &str, property: &str) -> String {
    format!("/sys/class/net/{name}/{property}")
}

fn finish(program: &str, mut child: Child) -> ProgramOutput {
    let (sender, receiver) = mpsc::channel();
    let readers = [
        child.stdout.take().map(|it| Box::new(it) as Box<dyn Read + Send>),
        child.stderr.take().map(|it| Box::new(it) as Box<dyn Read + Send>),
    ];
    for (number, reader) in readers.into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = reader.map(|it| it.take(MAX_TEXT).read_to_end(&mut bytes));
            let _ = sender.send((number, String::from_utf8_lossy(&bytes).into_owned()));
        });
    }
    let mut texts = [String::new(), String::new()];
    for _ in 0..texts.len() {
        match receiver.recv_timeout(PROGRAM_TIME) {
            Ok((number, text)) => texts[number] = text,
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = PROGRAM_TIME.as_secs();
                return ProgramOutput::Failed(format!("{program} did not end within {seconds} s"));
            }
        }
    }
    // A program that still runs has closed its output.
    let [output, errors] = texts;
    match child.wait() {
        Ok(status) if status.success() => ProgramOutput::Output(output),
        Ok(_) => ProgramOutput::Failed(if errors.trim().is_empty() { output } else { errors }),
        Err(error) => ProgramOutput::Failed(error.to_string()),
    }
}
