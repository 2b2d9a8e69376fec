// SPDX-License-Identifier: Apache-2.0
//! Hosts over ssh: programs are copied there, run there, and their samples are fetched.

use super::load::{Contents, Recording};
use super::roscpp;
use super::system::{Library, System};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tautline_lab::rig::clock::{monotonic_ns, real_less_monotonic_ns};
use tautline_lab::rig::processes::{Process, run};
use tautline_lab::setup::ros::script_folder;

/// Longest wait for a host to answer, seconds.
const CONNECT_S: u32 = 5;
/// Readings of a host's clock; the fastest one counts.
const CLOCK_READINGS: usize = 5;
/// Offsets of a host's clock that are worth a warning, and an error, milliseconds. A round trip uses
/// one clock, but logs of several hosts are hard to compare.
const WARNING_MS: f64 = 1.0;
const ERROR_MS: f64 = 1000.0;
/// Programs of the nodes under `ros/`.
const SCRIPTS: [&str; 4] = ["echo.py", "echo_ends.py", "echo_messages.py", "recorded.py"];
const MASTER_PORT: u16 = 11311;

/// How ssh is started.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// Options of ssh(1).
    pub options: Vec<String>,
    /// Network namespace from which ssh is started, when the hosts are namespaces of this machine.
    pub namespace: Option<String>,
}

/// A host that ssh reaches.
pub struct Remote {
    client: Client,
    /// `user@host`, as given.
    target: String,
    /// Address by which the other hosts reach it: the one that ssh reached.
    pub address: String,
    /// Folder of the programs and samples on the host, removed at the end.
    folder: String,
}

impl Client {
    fn command(&self, target: &str, script: &str) -> Command {
        let mut command = match &self.namespace {
            Some(name) => tautline_lab::rig::namespace::command(name, "ssh"),
            None => Command::new("ssh"),
        };
        let timeout = format!("ConnectTimeout={CONNECT_S}");
        command.args(["-T", "-o", "BatchMode=yes", "-o", &timeout]).args(&self.options);
        command.args(["--", target, script]);
        command
    }

    fn ask(&self, target: &str, script: &str) -> Result<String> {
        run(&mut self.command(target, script)).with_context(|| format!("host {target}"))
    }
}

impl Remote {
    /// Connects to a host, checks its clock and copies the programs.
    pub fn connect(client: &Client, target: &str) -> Result<Self> {
        let is_name = |text: &str| !text.is_empty() && !text.starts_with('-');
        ensure!(
            is_name(target) && !target.contains(char::is_whitespace),
            "--hosts: '{target}' is no host; give each as host or user@host, with commas between"
        );
        let said = client.ask(target, "echo \"$SSH_CONNECTION\"").with_context(|| {
            format!(
                "--hosts: {target} does not answer (ssh -o BatchMode=yes {target} has to work without a password)"
            )
        })?;
        let address = said.split_whitespace().nth(2);
        let address =
            address.with_context(|| format!("{target}: no address in '{said}'"))?.to_owned();
        check_clock(target, clock_offset_ms(client, target)?)?;
        let folder = client.ask(target, "mktemp -d /tmp/tautline-lab-XXXXXXXX")?.trim().to_owned();
        let remote = Self { client: client.clone(), target: target.into(), address, folder };
        remote.copy(&crate::folder("ros"), &SCRIPTS)?;
        remote.copy(&script_folder(), &["ros1.py"])?;
        Ok(remote)
    }

    /// Fails if the host lacks a program of the system; names the package that brings it.
    pub fn check(&self, system: System) -> Result<()> {
        let needed: &[(&str, &str)] = match system.library() {
            Library::Rospy => &[
                ("/usr/bin/python3 -c 'import rospy'", "python3-rospy"),
                (
                    "/usr/bin/python3 -c 'import std_msgs.msg, sensor_msgs.msg'",
                    "python3-std-msgs and python3-sensor-msgs",
                ),
                ("command -v rosmaster", "python3-rosmaster"),
            ],
            Library::Roscpp => &[
                ("ls /usr/lib/*/libroscpp.so.*", "libroscpp4d"),
                ("command -v rosmaster", "python3-rosmaster"),
            ],
            Library::Rclpy => &[(
                "python3 -c 'import rclpy, sensor_msgs.msg'",
                "ROS 2, whose setup.bash a shell without a terminal has to source",
            )],
            Library::Zenoh => &[("python3 -c 'import zenoh'", "eclipse-zenoh of PyPI")],
        };
        for (test, package) in needed {
            self.ask(&format!("{test} >/dev/null")).with_context(|| {
                format!("{} has no program for {}: install {package}", self.target, system.name())
            })?;
        }
        if system.library() == Library::Roscpp {
            let program = roscpp::echo()?;
            self.copy(program.parent().context("no folder")?, &["echo"])?;
        }
        Ok(())
    }

    /// Copies a recording, which the nodes then find in their folder.
    pub fn bring(&self, recording: &Path) -> Result<()> {
        let folder = recording.parent().context("a recording without a folder")?;
        self.copy(folder, &[&name_of(recording)?])
    }

    /// Starts a ROS master, which ends with its standard input.
    pub fn master(&self, logs: &Path) -> Result<Process> {
        let script = format!(
            "export ROS_LOG_DIR={0} ROS_HOME={0} ROS_IP={1}; rosmaster --core -p {MASTER_PORT} >{0}/master.log 2>&1 & \
             master=$!; cat >/dev/null; kill $master",
            self.folder, self.address
        );
        let name = format!("ssh-master-{}", self.address);
        Process::start(&name, self.client.command(&self.target, &script), logs)
    }

    /// Starts a node; `arguments` are those after the folder of its samples.
    pub fn node(
        &self,
        (system, master): (System, &str),
        (name, role, own, others): (&str, &str, &str, &str),
        contents: &Contents,
        logs: &Path,
    ) -> Result<Process> {
        let library = system.library();
        let mut words: Vec<String> = match library {
            Library::Roscpp => vec!["./echo".into(), role.into()],
            Library::Rospy => vec!["/usr/bin/python3".into(), "echo.py".into(), role.into()],
            _ => vec!["python3".into(), "echo.py".into(), role.into()],
        };
        if library != Library::Roscpp {
            words.push(library.name().into());
        }
        words.extend([own, others, &self.folder].map(String::from));
        if library == Library::Roscpp {
            let bytes = contents.bytes().unwrap_or(0).to_string();
            words.extend([contents.kind().into(), bytes]);
            words.extend(system.has_nodelay().then(|| "nodelay".into()));
        } else {
            words.extend(as_there(contents)?.options()?);
            words.extend(system.has_nodelay().then(|| "--nodelay".into()));
        }
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let script = format!(
            "cd {0} && export ROS_LOG_DIR={0} ROS_HOME={0} ROS_IP={1} ROS_MASTER_URI=http://{master}:{MASTER_PORT} && exec {2}",
            self.folder,
            self.address,
            words.join(" ")
        );
        Process::start_talking(name, self.client.command(&self.target, &script), logs)
    }

    /// Fetches a file of the host's folder into a folder of this machine.
    pub fn fetch(&self, file: &str, to: &Path) -> Result<PathBuf> {
        let text = self.ask(&format!("cat {}/{}", self.folder, quoted(file)))?;
        let path = to.join(file);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn ask(&self, script: &str) -> Result<String> {
        self.client.ask(&self.target, script)
    }

    /// Copies files of a folder.
    fn copy(&self, from: &Path, files: &[&str]) -> Result<()> {
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(from).args(["-cf", "-"]).args(files).stdout(Stdio::piped());
        let mut tar = tar.spawn().context("cannot start tar")?;
        let packed = tar.stdout.take().context("no output of tar")?;
        let script = format!("tar -C {} -xf -", self.folder);
        let unpacked = self.client.command(&self.target, &script).stdin(packed).output()?;
        ensure!(tar.wait()?.success(), "cannot pack {files:?} of {}", from.display());
        if !unpacked.status.success() {
            bail!("{}: {}", self.target, String::from_utf8_lossy(&unpacked.stderr).trim());
        }
        Ok(())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The folder is small, and a host that no longer answers cannot be helped.
        let _ = self.ask(&format!("rm -rf {}", self.folder));
    }
}

fn name_of(file: &Path) -> Result<String> {
    let name = file.file_name().and_then(|name| name.to_str());
    Ok(name.with_context(|| format!("{} has no name in UTF-8", file.display()))?.to_owned())
}

/// Returns the contents with the path of the recording on the host, relative to the nodes' folder.
fn as_there(contents: &Contents) -> Result<Contents> {
    let Contents::Recorded(recording) = contents else { return Ok(contents.clone()) };
    let bag = name_of(&recording.bag)?.into();
    Ok(Contents::Recorded(Recording { bag, ..recording.clone() }))
}

/// Returns a word as a shell takes it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns the host's clock minus this machine's, and by how much this may be wrong, milliseconds.
/// Half of the fastest exchange is taken as the way there.
fn clock_offset_ms(client: &Client, target: &str) -> Result<[f64; 2]> {
    let to_real = real_less_monotonic_ns();
    // One connection for all readings, since a handshake takes longer than a clock may be off.
    let command = client.command(target, "while read -r line; do date +%s%N; done");
    let mut process = Process::start_talking("ssh-clock", command, &std::env::temp_dir())?;
    let mut best = [f64::INFINITY; 2];
    for _ in 0..CLOCK_READINGS {
        let before = monotonic_ns();
        process.send_line("now")?;
        let said = process.await_line("", Duration::from_secs(u64::from(CONNECT_S)))?;
        let half = (monotonic_ns() - before) / 2;
        let there: u64 =
            said.parse().with_context(|| format!("{target}: date says '{said}', not a time"))?;
        let offset_ms = (there as f64 - (to_real + before + half) as f64) / 1e6;
        let error_ms = half as f64 / 1e6;
        if error_ms < best[1] {
            best = [offset_ms, error_ms];
        }
    }
    Ok(best)
}

/// Warns about a clock that is off, or fails.
fn check_clock(target: &str, [offset_ms, error_ms]: [f64; 2]) -> Result<()> {
    let advice = "synchronise it, for example with chrony";
    let surely_ms = offset_ms.abs() - error_ms;
    ensure!(
        surely_ms <= ERROR_MS,
        "--hosts: the clock of {target} is off by {:.3} s; at most {} s is allowed: {advice}",
        offset_ms / 1000.0,
        ERROR_MS / 1000.0
    );
    if surely_ms > WARNING_MS {
        eprintln!("warning: the clock of {target} is off by {offset_ms:.1} ms: {advice}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_other_shell_as_they_are() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
    }

    #[test]
    fn a_clock_that_is_off_by_more_than_a_second_is_an_error() {
        assert!(check_clock("a", [400.0, 1.0]).is_ok() && check_clock("a", [-0.2, 0.1]).is_ok());
        let error = check_clock("rob@a", [-2500.0, 2.0]).unwrap_err().to_string();
        assert!(error.contains("rob@a is off by -2.500 s"), "{error}");
    }

    #[test]
    fn a_host_that_is_an_option_is_refused() {
        let error = Remote::connect(&Client::default(), "-oProxyCommand=x").err().unwrap();
        assert!(error.to_string().contains("is no host"), "{error}");
    }
}
