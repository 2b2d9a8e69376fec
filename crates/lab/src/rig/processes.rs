// SPDX-License-Identifier: Apache-2.0
//! Programs in namespaces: communication by lines, measurement, and a certain end.

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Lines of a program's output that are buffered before they are read; further lines stay in its
/// pipe.
const MAX_UNREAD_LINES: usize = 64;
/// Lines of a log quoted in an error.
const QUOTED_LINES: usize = 12;
/// Interval at which a condition without a notification is checked.
pub const POLL_PERIOD: Duration = Duration::from_millis(20);
/// Unit of times in /proc on Linux.
const TICK: Duration = Duration::from_millis(10);

/// A running program. Dropping it kills the whole process group.
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Option<Receiver<String>>,
    log: PathBuf,
}

/// Resources that a process has used so far.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Resident memory.
    pub resident_bytes: u64,
}

impl Usage {
    /// Returns the CPU time since `earlier`, percent of one core.
    pub fn cpu_percent_since(&self, earlier: &Self, elapsed: Duration) -> f64 {
        100.0 * self.cpu.saturating_sub(earlier.cpu).div_duration_f64(elapsed)
    }
}

impl Process {
    /// Starts a program whose output goes to `FOLDER/NAME.log`.
    pub fn start(name: &str, command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        Self::spawn(name, command, output.into(), log)
    }

    /// Starts a program that communicates in lines; only its stderr goes to the log.
    pub fn start_talking(name: &str, command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let mut process = Self::spawn(name, command, Stdio::piped(), log)?;
        let stdout = process.child.stdout.take().context("no standard output")?;
        let (sender, lines) = sync_channel(MAX_UNREAD_LINES);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        process.lines = Some(lines);
        Ok(process)
    }

    fn spawn(name: &str, mut command: Command, stdout: Stdio, log: PathBuf) -> Result<Self> {
        let errors = File::options().create(true).append(true).open(&log)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name} ({command:?})"))?;
        let stdin = child.stdin.take();
        Ok(Self { name: name.into(), child, stdin, lines: None, log })
    }

    /// Sends one line to the program's standard input.
    pub fn send_line(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("no standard input")?;
        writeln!(stdin, "{line}").with_context(|| format!("{} no longer listens", self.name))
    }

    /// Waits for a line that starts with `word`; returns the rest of the line.
    pub fn await_line(&mut self, word: &str, patience: Duration) -> Result<String> {
        let deadline = Instant::now() + patience;
        let lines = self.lines.as_ref().context("not a talking process")?;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.trouble(&format!("did not say '{word}' in {patience:?}")));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.trouble(&format!("ended before it said '{word}'")));
                }
            }
        }
    }

    /// Returns the next line, `None` if there is none within `patience`.
    pub fn next_line(&mut self, patience: Duration) -> Result<Option<String>> {
        let lines = self.lines.as_ref().context("not a talking process")?;
        match lines.recv_timeout(patience) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.trouble("ended")),
        }
    }

    /// Returns an error if the process has ended.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => Err(self.trouble(&format!("ended ({status})"))),
            None => Ok(()),
        }
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(&mut self, patience: Duration) -> Result<ExitStatus> {
        kill_process(self.pid()?, Signal::TERM)?;
        let ended = wait_for(patience, || Ok(self.child.try_wait()?))?;
        ended.ok_or_else(|| self.trouble(&format!("still runs {patience:?} after SIGTERM")))
    }

    /// Closes the program's standard input, so that the program ends by itself.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Closes the program's standard input and waits until the program ends by itself.
    pub fn close(&mut self) -> Result<()> {
        self.stdin = None;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(self.trouble(&format!("ended with {status}"))) }
    }

    /// Reads the resources that the process has used so far.
    pub fn usage(&self) -> Result<Usage> {
        let folder = PathBuf::from(format!("/proc/{}", self.child.id()));
        let stat = std::fs::read_to_string(folder.join("stat"))?;
        let status = std::fs::read_to_string(folder.join("status"))?;
        parse_usage(&stat, &status)
            .with_context(|| format!("{} in {}", self.name, folder.display()))
    }

    /// Returns the name under which the process was started.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives all threads of the process this SCHED_FIFO priority.
    pub fn prioritize(&self, priority: u8) -> Result<()> {
        let mut chrt = Command::new("chrt");
        let (priority, process) = (priority.to_string(), self.child.id().to_string());
        chrt.args(["--all-tasks", "--fifo", "--pid", &priority, &process]);
        run(&mut chrt).context("SCHED_FIFO (CAP_SYS_NICE, as root)")?;
        Ok(())
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Result<Pid> {
        Pid::from_raw(self.child.id().try_into()?).context("no process id")
    }

    fn trouble(&self, what: &str) -> anyhow::Error {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n  ");
        anyhow!("{} {what}; end of {}:\n  {tail}", self.name, self.log.display())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failure here has no remedy; the process namespace ends with the enclosure anyway.
        if let Ok(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Parses the contents of `stat` and `status`, see proc(5).
fn parse_usage(stat: &str, status: &str) -> Result<Usage> {
    // Field 2 is a name in brackets that may hold spaces; utime and stime are 14 and 15.
    let after_name = stat.rsplit_once(')').context("no name in stat")?.1;
    let mut times = after_name.split_whitespace().skip(11).map(str::parse::<u32>);
    let (Some(Ok(user)), Some(Ok(system))) = (times.next(), times.next()) else {
        bail!("no times in stat '{stat}'");
    };
    let resident_bytes = status_bytes(status, "VmRSS:").context("no VmRSS")?;
    Ok(Usage { cpu: TICK * (user + system), resident_bytes })
}

/// Parses an amount of memory in proc_pid_status(5).
pub fn status_bytes(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Checks a condition every [`POLL_PERIOD`] until it returns a value; `None` after `patience`.
pub fn wait_for<T>(
    patience: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(POLL_PERIOD);
    }
}

/// Creates an empty folder; removes an existing folder of that name.
pub fn empty_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    make_folder(folder)
}

/// Creates a folder, unless it exists.
pub fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Returns the name of a value on the command line.
pub fn word(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
}

/// Runs a command to its end; an error contains the command and its stderr.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed ({}): {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the text of a file, which may be compressed (.gz).
pub fn read_packed(file: &Path) -> Result<String> {
    let program = if file.extension().is_some_and(|it| it == "gz") { "zcat" } else { "cat" };
    run(Command::new(program).arg(file))
}

/// Writes a text to a file, compressed if the name says so (.gz); the same text gives the same file.
pub fn write_packed(file: &Path, text: &str) -> Result<()> {
    let context = || format!("cannot write {}", file.display());
    if file.extension().is_none_or(|it| it != "gz") {
        return std::fs::write(file, text).with_context(context);
    }
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "--no-name"]).stdin(Stdio::piped());
    gzip.stdout(File::create(file).with_context(context)?);
    let mut gzip = gzip.spawn().context("cannot start gzip")?;
    let mut input = gzip.stdin.take().context("gzip has no input")?;
    input.write_all(text.as_bytes()).with_context(context)?;
    drop(input);
    ensure!(gzip.wait()?.success(), "gzip failed: {}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_past_a_name_with_spaces_and_brackets() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 90 0 0 0 150 50 0 0 20 0 3 0 100 1000 200";
        let usage = parse_usage(stat, "Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t3\n").unwrap();
        assert_eq!(usage.cpu, Duration::from_secs(2));
        assert_eq!(usage.resident_bytes, 2 << 20);
    }

    #[test]
    fn packing_is_reproducible_and_keeps_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one.json.gz", "other.json.gz"].map(|name| folder.path().join(name));
        [&one, &other].into_iter().for_each(|file| write_packed(file, "[1]\n").unwrap());
        assert_eq!(read_packed(&one).unwrap(), "[1]\n");
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
        assert_ne!(std::fs::read(&one).unwrap(), b"[1]\n");
    }

    #[test]
    fn a_failed_command_is_reported_with_its_output() {
        let error = run(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
    }
}
