// SPDX-License-Identifier: Apache-2.0
//! The user's programs in stations.

use super::screen::Screen;
use super::station::Air;
use crate::rig::processes::{run, wait_for};
use crate::scenario::Scenario;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt::Write;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between SIGTERM and SIGKILL, and longest wait for a program's last lines.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum number of bytes of a program's line that are printed as one line.
const MAX_LINE_BYTES: u64 = 4096;

/// A command and its station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StationCommand {
    station: usize,
    text: String,
}

impl StationCommand {
    /// Parses `STATION: COMMAND`.
    pub fn parse(argument: &str, scenario: &Scenario) -> Result<Self> {
        let (name, text) = argument.split_once(':').unwrap_or((argument, ""));
        let names: Vec<&str> = scenario.stations.iter().map(|s| s.name.as_str()).collect();
        let station = names.iter().position(|station| *station == name.trim());
        match station {
            Some(station) if !text.trim().is_empty() => {
                Ok(Self { station, text: text.trim().into() })
            }
            None if !text.trim().is_empty() && !name.contains(char::is_whitespace) => {
                bail!("'{}' is no station; stations are {}", name.trim(), names.join(", "))
            }
            _ => bail!(
                "'{argument}' is not 'STATION: COMMAND' in quotes, such as '{}: ping -c 3 {}'; stations are {}",
                names[0],
                names.last().unwrap_or(&names[0]),
                names.join(", ")
            ),
        }
    }
}

/// A program that runs in a station. Dropping it kills its process group.
pub struct Running {
    child: Child,
    text: String,
    relays: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a command with `sh`; its lines appear on the screen under the station's name.
    pub fn start(
        command: &StationCommand,
        air: &Air,
        scenario: &Scenario,
        screen: &Arc<Screen>,
    ) -> Result<Self> {
        let mut child = air
            .command(command.station, "sh")
            .args(["-c", &command.text])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start '{}'", command.text))?;
        let name = &scenario.stations[command.station].name;
        let out = relay(child.stdout.take(), name, screen);
        let errors = relay(child.stderr.take(), name, screen);
        let relays = out.into_iter().chain(errors).collect();
        Ok(Self { child, text: command.text.clone(), relays })
    }

    /// Returns the exit status if the program has ended.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("'{}' is lost", self.text))
    }

    /// Ends the program's process group; reports an earlier failure of the program.
    pub fn end(mut self, screen: &Screen) -> Result<()> {
        if let Some(status) = self.exit_status()?.filter(|status| !status.success()) {
            screen.print(&format!("'{}' had ended with {status}", self.text));
        }
        self.signal(Signal::TERM);
        wait_for(PATIENCE, || self.exit_status())?;
        self.signal(Signal::KILL);
        // The output closes after the last lines, unless a process outside the group (such as
        // roscore's children) keeps it open; that process ends with the enclosure.
        wait_for(PATIENCE, || Ok(self.relays.iter().all(JoinHandle::is_finished).then_some(())))?;
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The program may have ended by itself.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Prints a program's output line by line; splits longer lines.
fn relay(
    from: Option<impl Read + Send + 'static>,
    name: &str,
    screen: &Arc<Screen>,
) -> Option<JoinHandle<()>> {
    let (mut from, name, screen) = (BufReader::new(from?), name.to_owned(), screen.clone());
    Some(std::thread::spawn(move || {
        let mut line = Vec::new();
        while let Ok(1..) = from.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line);
            screen.print(&format!("{name} | {}", text.trim_end_matches(['\n', '\r'])));
            line.clear();
        }
    }))
}

/// Writes a hosts file, so that programs in stations reach each other by name.
pub fn name_stations(scenario: &Scenario, scratch: &Path) -> Result<()> {
    let mut hosts = String::from("127.0.0.1 localhost\n");
    for (number, station) in scenario.stations.iter().enumerate() {
        for (index, &network) in station.networks.iter().enumerate() {
            let address = crate::rig::staging::address(network, number);
            let alias = if index == 0 { station.name.as_str() } else { "" };
            let network = &scenario.networks[network].name;
            let _ = writeln!(hosts, "{address} {alias} {}.{network}", station.name);
        }
    }
    let file = scratch.join("hosts");
    std::fs::write(&file, hosts)?;
    // The enclosure has its own mounts: the machine's file remains unchanged.
    run(Command::new("mount").arg("--bind").arg(file).arg("/etc/hosts"))?;
    Ok(())
}
