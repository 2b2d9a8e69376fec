// SPDX-License-Identifier: Apache-2.0
//! The robot's side over ssh: the code goes through standard input, never on a command line.

use super::arguments::Arguments;
use super::console::Console;
use crate::cli::Failure;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline::accounts;
use tautline_cli::pairing::Code;
use tautline_gateway::plain::plain;

/// Maximum bytes of a line of the robot that is shown.
const MAX_LINE: usize = 1000;

/// Time to wait for the last output lines after the robot's side has ended.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(10);

/// What runs on the robot. The address of the base is that from which ssh comes.
const SCRIPT: &str = "at=%AT%; [ -n \"$at\" ] || at=${SSH_CONNECTION%% *}; \
    set -- tautline pair --code-from-stdin --yes --at \"$at\" --port %PORT% %MORE%; \
    if [ \"$(id -u)\" = 0 ]; then exec \"$@\"; else LC_ALL=C exec sudo -n \"$@\"; fi";
/// Parts of sudo's error messages for a refusal, in the C locale.
const REFUSALS: [&str; 3] =
    ["sudo: a password is required", "is not in the sudoers file", "is not allowed to execute"];
/// Characters that an argument for the robot may not have: some shell there could interpret them in double
/// quotes within single quotes.
const NOT_QUOTABLE: [char; 6] = ['\'', '"', '\\', '$', '`', '!'];

/// The robot's side of a pairing, which runs on the robot.
pub struct Remote {
    child: Child,
    /// Threads that show its output.
    readers: Vec<JoinHandle<()>>,
    target: String,
    /// Set when sudo on the robot has refused.
    is_refused: Arc<AtomicBool>,
    /// Whether the code was proved. From then on, the end of ssh is not a failure.
    is_code_proved: bool,
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.is_code_proved {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        self.wait_for_last_lines();
    }
}

/// Whether a text may be the target of ssh, and cannot be taken for an option.
pub fn is_target(text: &str) -> bool {
    let is_part = |part: &str| {
        let valid = |c: char| c.is_ascii_alphanumeric() || "._-:%[]".contains(c);
        !part.is_empty() && !part.starts_with('-') && part.chars().all(valid)
    };
    text.split_once('@').is_some_and(|(user, host)| is_part(user) && is_part(host))
}

/// The arguments of the robot's side, quoted within a script in single quotes.
fn quoted_arguments(arguments: &[String]) -> Result<String, Failure> {
    let is_quotable = |c: char| !c.is_control() && !NOT_QUOTABLE.contains(&c);
    if let Some(wrong) = arguments.iter().find(|it| !it.chars().all(is_quotable)) {
        let (found, not) = (plain(wrong, 80), NOT_QUOTABLE.map(String::from).join(" "));
        return Err(Failure::new(format!(
            "after --: found '{found}'; allowed: arguments without control characters and {not}"
        )));
    }
    Ok(arguments.iter().map(|it| format!(" \"{it}\"")).collect())
}

impl Remote {
    /// Starts the robot's side. Under sudo, ssh runs as the user who has the keys.
    pub fn start(
        target: &str,
        code: Code,
        arguments: &Arguments,
        console: Console,
    ) -> Result<Self, Failure> {
        let at = arguments.at.as_deref().unwrap_or_default();
        if !at.chars().all(|c| c.is_ascii_alphanumeric() || ".:-%[]".contains(c)) {
            let at = plain(at, 80);
            return Err(Failure::new(format!(
                "--at: found '{at}'; allowed: an address or a host name"
            )));
        }
        let trial = if arguments.dry_run { "--dry-run" } else { "" };
        let script =
            SCRIPT.replace("%AT%", at).replace("%PORT%", &arguments.port.to_string()).replace(
                "%MORE%",
                &format!("{trial}{}", quoted_arguments(&arguments.robot_arguments)?),
            );
        // The login shell of the user there may be any shell.
        let remote = format!("sh -c '{script}'");
        let mut command = Command::new("ssh");
        command.args(["-T", "--", target, &remote]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let user = number("SUDO_UID").filter(|it| *it != 0 && rustix::process::geteuid().is_root());
        if let Some(user) = user.and_then(|uid| accounts::find_user(|_, it| it == uid)) {
            let (uid, gid) = user.owner;
            command.uid(uid).gid(gid).env("HOME", &user.home).env("USER", &user.name);
        }
        let mut child = command.spawn().map_err(|error| Failure::new(format!("ssh: {error}")))?;
        if let Some(mut input) = child.stdin.take() {
            // If ssh has already ended, `check` reports it.
            let _ = writeln!(input, "{code}");
        }
        let is_refused = Arc::new(AtomicBool::new(false));
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|it| Box::new(it) as _),
            child.stderr.take().map(|it| Box::new(it) as _),
        ];
        let mut readers = Vec::new();
        for stream in streams.into_iter().flatten() {
            let is_refused = is_refused.clone();
            let work = move || show(stream, console, &is_refused);
            let reader = std::thread::Builder::new().name("ssh".into()).spawn(work);
            readers.push(reader.map_err(Failure::new)?);
        }
        Ok(Self { child, readers, target: target.into(), is_refused, is_code_proved: false })
    }

    /// Fails if the robot's side has ended before it proved the code.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                self.wait_for_last_lines();
                Err(Failure::new(self.end_reason(status)))
            }
            Err(error) => Err(Failure::new(format!("ssh: {error}"))),
        }
    }

    /// Waits until the last lines are shown, unless another process of ssh holds the streams: one that
    /// keeps the connection for later calls (ControlPersist).
    fn wait_for_last_lines(&self) {
        let until = Instant::now() + OUTPUT_DRAIN_TIMEOUT;
        while !self.readers.iter().all(JoinHandle::is_finished) && Instant::now() < until {
            std::thread::sleep(TICK);
        }
    }

    fn end_reason(&self, status: ExitStatus) -> String {
        let target = &self.target;
        let cause = match status.code() {
            Some(255) => format!("ssh could not connect; try: ssh {target} true"),
            Some(127) => "tautline or sudo is not installed there".into(),
            _ if self.is_refused.load(Ordering::Relaxed) => {
                let (user, host) = target.split_once('@').unwrap_or_default();
                format!(
                    "{user} may not use sudo there without a password, and nobody can enter one in this \
                     way. Either log in as root (tautline pair root@{host}); or run 'sudo tautline \
                     pair' here, and on the robot the command that it shows; or allow it on the robot: \
                     echo '{user} ALL=(root) NOPASSWD: /usr/bin/tautline' | sudo tee \
                     /etc/sudoers.d/tautline"
                )
            }
            _ => "its lines above name the cause".into(),
        };
        format!("the robot's side at {target} ended ({status}): {cause}. Nothing was written here")
    }

    /// Records that the code was proved.
    pub fn note_code_proved(&mut self) {
        self.is_code_proved = true;
    }
}

fn show(stream: Box<dyn Read + Send>, console: Console, is_refused: &AtomicBool) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE as u64).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        let text = plain(text.trim_end(), MAX_LINE);
        if REFUSALS.iter().any(|it| text.contains(it)) {
            is_refused.store(true, Ordering::Relaxed);
        }
        if console.say(&format!("robot: {text}")).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_for_the_robot_are_quoted_or_refused() {
        let all = |words: &[&str]| {
            quoted_arguments(&words.iter().map(|it| it.to_string()).collect::<Vec<_>>())
        };
        let good = all(&["--ros1=http://localhost:11311", "--file", "/a b;c|d&(e)/größe.yaml"]);
        let expected = r#" "--ros1=http://localhost:11311" "--file" "/a b;c|d&(e)/größe.yaml""#;
        assert_eq!(good.ok().as_deref(), Some(expected));
        for bad in ["'; reboot", "\"", "$(reboot)", "`reboot`", "a\nb", "\\", "!1"] {
            let error = all(&["--name", bad]).unwrap_err().text;
            assert!(error.contains("after --: found") && error.contains("allowed"), "{error}");
        }
    }

    #[test]
    fn a_target_cannot_be_an_option_or_a_command() {
        for good in ["pi@robot1", "root@10.0.0.1", "a@fe80::1%eth0"] {
            assert!(is_target(good), "{good}");
        }
        for bad in ["robot1", "-oProxyCommand=x@y", "a@-x", "a@b c", "a@b;c", "@", "a@"] {
            assert!(!is_target(bad), "{bad}");
        }
    }
}
