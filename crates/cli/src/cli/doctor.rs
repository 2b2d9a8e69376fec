// SPDX-License-Identifier: Apache-2.0
//! `tautline doctor`.

use super::find::Daemon;
use super::words::uptime;
use super::{Failure, output};
use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tautline::config;
use tautline::status::{Direction, Status};
use tautline_cli::doctor::{
    self, CHECKS, Finding, Findings, Machine, Outcome, PeerTest, Report, Robot,
};
use tautline_cli::unit;

/// Exit code if a finding stops or delays messages.
const EXIT_HARMFUL: u8 = 3;
/// Default file of `--report`.
const DEFAULT_REPORT: &str = "tautline-report.txt";
/// Spaces before the lines of a finding.
const INDENT: &str = "         ";

/// Arguments of `tautline doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sudo tautline doctor\n  tautline doctor robot.yaml\n  \
                  sudo tautline doctor --peer base\n  sudo tautline doctor --report\n\n\
                  It changes nothing. Some checks need root (firewall, processes of other users).\n\n\
                  Exit code: 0 if nothing stops or delays messages, 3 if something does, 1 for an error.")]
pub struct Arguments {
    /// The robot's file [default: /etc/tautline/robot.yaml if it exists, else that of the daemon]
    file: Option<PathBuf>,
    /// Test the path to this peer with the running daemon, and say what its topics get
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Duration of the test of a peer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(5..=600), requires = "peer")]
    seconds: u64,
    /// Write one file to attach to a question, without secrets
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = DEFAULT_REPORT)]
    report: Option<PathBuf>,
    /// List all checks, also those that passed
    #[arg(long)]
    all: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Files below this folder precede those of the machine (for tests)
    #[arg(long, value_name = "FOLDER", hide = true)]
    planted: Option<PathBuf>,
    #[command(flatten)]
    daemon: Daemon,
}

pub fn doctor(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::new(arguments.planted.clone());
    let robot = load_robot(arguments, &machine)?;
    let findings = examine(&machine, &robot);
    let test = match (&arguments.peer, &robot.status) {
        (Some(peer), Some(before)) => Some(test_peer(arguments, &robot, before, peer)?),
        _ => None,
    };
    let mut words = in_words(&machine, &robot, &findings, arguments.all);
    match (&arguments.peer, &test) {
        (Some(_), Some(test)) => words += &test_in_words(test),
        (Some(peer), None) => words += &untested_peer_text(&machine, &robot, peer)?,
        _ => {}
    }
    if let Some(path) = &arguments.report {
        let text = Report { machine: &machine, robot: &robot, findings: &words }.to_text();
        write_report(path, &text)?;
    }
    if arguments.json {
        let mut json = serde_json::to_value(&findings).map_err(Failure::new)?;
        json["peer"] = serde_json::to_value(&test).map_err(Failure::new)?;
        output::print_json(&json)?;
    } else if let Some(path) = &arguments.report {
        output::print(&format!(
            "{}\n{} findings. Read the file before you attach it to a question: it has names and \
             addresses of this robot and its peers, but no secret that doctor knows.\n",
            path.display(),
            findings.findings.len()
        ))?;
    } else {
        output::print(&words)?;
    }
    let is_harmed =
        test.is_some_and(|it| it.state != "up" || it.topics.iter().any(|it| it.is_harmed));
    let is_harmful = findings.is_harmful() || is_harmed;
    if is_harmful { Err(Failure::with_code(EXIT_HARMFUL, "")) } else { Ok(()) }
}

fn load_robot(arguments: &Arguments, machine: &Machine) -> Result<Robot, Failure> {
    // Users outside the daemon's group cannot search the folder: for them, it is unknown whether the file
    // exists.
    let (default, hidden) = match Path::new(unit::FILE).try_exists() {
        Ok(exists) => (exists.then(|| PathBuf::from(unit::FILE)), None),
        Err(_) => (None, Some(PathBuf::from(unit::FILE))),
    };
    let given = arguments.file.clone().or(default);
    let file = given.or_else(|| machine.daemon_file()).or(hidden);
    let loaded = file.as_deref().map(|it| config::load(it).map(tautline_plan::with_warnings));
    if let (Some(given), Some(Err(config::ConfigError::Unreadable { cause, .. }))) =
        (&arguments.file, &loaded)
        && cause.kind() != std::io::ErrorKind::PermissionDenied
    {
        let given = given.display();
        return Err(Failure::new(format!(
            "{given}: cannot be read: {cause}; give the path of the robot's file, or none"
        )));
    }
    let config = loaded.as_ref().and_then(|it| it.as_ref().ok()).map(|it| &it.config);
    let status = arguments.daemon.status_of(config);
    Ok(Robot::new(file, loaded, status))
}

fn examine(machine: &Machine, robot: &Robot) -> Findings {
    let shows = std::io::stderr().is_terminal();
    let mut number = 0;
    let findings = doctor::examine(machine, robot, |name| {
        number += 1;
        if shows {
            eprint!("\r\x1b[K{number}/{} {name}", CHECKS.len());
        }
    });
    if shows {
        eprint!("\r\x1b[K");
    }
    findings
}

fn test_peer(
    arguments: &Arguments,
    robot: &Robot,
    before: &Status,
    peer: &str,
) -> Result<PeerTest, Failure> {
    // Fails before the wait if there is no such peer.
    doctor::test_peer(before, before, peer).map_err(Failure::new)?;
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[Ktesting the path to {peer}: {} s", left.as_secs() + 1);
        }
        std::thread::sleep(left.min(Duration::from_secs(1)));
    }
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    let after = arguments.daemon.status_of(robot.config()).map_err(Failure::new)?;
    if after.uptime_s < before.uptime_s {
        return Err(Failure::new("the daemon was restarted during the test; run it again"));
    }
    doctor::test_peer(before, &after, peer).map_err(Failure::new)
}

fn report_head(machine: &Machine, robot: &Robot) -> String {
    let not_paired = doctor::not_paired(machine, robot);
    let mut text = match (&robot.file, &robot.status) {
        (Some(file), Some(status)) => {
            format!("{}: {}", status.node, file.display())
        }
        (None, Some(status)) => format!("{}: without its file", status.node),
        (Some(file), None) => file.display().to_string(),
        (None, None) => format!("no file of this robot ({}, or give one)", unit::FILE),
    };
    match &robot.status {
        None if not_paired.is_some() => text = format!("{}\n", not_paired.unwrap_or_default()),
        Some(status) => {
            let _ = writeln!(
                text,
                "; the daemon {} runs for {}",
                status.version,
                uptime(status.uptime_s)
            );
        }
        None => {
            let _ = writeln!(
                text,
                "; paths to peers are not checked: {}",
                doctor::missing_status_reason(robot)
            );
        }
    }
    for line in doctor::describe_ros(machine, robot) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn in_words(machine: &Machine, robot: &Robot, findings: &Findings, all: bool) -> String {
    let mut text = report_head(machine, robot);
    findings.findings.iter().for_each(|it| text += &finding_in_words(it));
    let (passed, rest) = (findings.passed.len(), findings.does_not_apply.len());
    let hint = if all { "" } else { " (--all lists them)" };
    let _ = write!(text, "\n{passed} checks passed, {rest} do not apply{hint}\n");
    if all {
        text += &outcomes(&findings.passed);
        text += &format!("\nDo not apply\n{}", outcomes(&findings.does_not_apply));
    }
    if !findings.not_made.is_empty() {
        let _ = write!(text, "\nNot checked\n{}", by_reason(&findings.not_made));
    }
    text
}

fn outcomes(all: &[Outcome]) -> String {
    let width = CHECKS.iter().map(|it| it.name.len()).max().unwrap_or(0);
    let line = |it: &Outcome| format!("  {:width$}  {}\n", it.check, it.text);
    all.iter().map(line).collect()
}

/// Groups checks by their text, one line for each text.
fn by_reason(all: &[Outcome]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for it in all {
        if !reasons.contains(&it.text.as_str()) {
            reasons.push(&it.text);
        }
    }
    let line = |reason: &str| {
        let checks = all.iter().filter(|it| it.text == reason).map(|it| it.check);
        format!("  {}: {reason}\n", checks.collect::<Vec<_>>().join(", "))
    };
    reasons.into_iter().map(line).collect()
}

fn finding_in_words(it: &Finding) -> String {
    let plain = |text: &str| {
        let lines = text.lines().map(|line| tautline_gateway::plain::plain(line, 1000));
        lines.collect::<Vec<_>>().join(&format!("\n{INDENT}"))
    };
    let mut text = format!(
        "\n{:7}  {}: {}\n{INDENT}{}\n",
        it.harm.as_str(),
        it.check,
        plain(&it.found),
        plain(&it.why)
    );
    for line in &it.fix {
        let _ = writeln!(text, "{INDENT}> {}", plain(line));
    }
    text
}

fn test_in_words(test: &PeerTest) -> String {
    let PeerTest { peer, state, seconds, .. } = test;
    let mut text = format!("\nPeer {peer}: {state}; measured over {seconds:.0} s\n");
    test.path.iter().for_each(|line| text += &format!("  {line}\n"));
    let rows = test.topics.iter().map(|it| {
        let arrow = if it.direction == Direction::Out { ">" } else { "<" };
        [arrow.into(), it.topic.clone(), it.words.clone()]
    });
    let _ = write!(text, "Topics\n{}", output::table(["", "TOPIC", "WHAT TO EXPECT"], rows));
    text
}

fn untested_peer_text(machine: &Machine, robot: &Robot, peer: &str) -> Result<String, Failure> {
    let reason = doctor::missing_status_reason(robot);
    let mut text = format!("\nPeer {peer}: its topics are not tested: {reason}\n");
    if !robot.is_file_unreadable() {
        let _ = writeln!(text, "  start it: {}", doctor::how_to_start(machine, robot));
    }
    let lines = doctor::test_addresses(machine, robot, peer).map_err(Failure::new)?;
    lines.iter().for_each(|line| text += &format!("  {line}\n"));
    Ok(text)
}

/// Parses an environment variable as a number.
fn env_number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Writes the report, readable only by its owner; under sudo, the owner is the user who called sudo. An
/// existing file is overwritten, but a symbolic link is not followed: in a world-writable folder, it might
/// point to any file of root.
fn write_report(path: &Path, text: &str) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(format!("--report {}: {error}", path.display()));
    let mut options = std::fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.custom_flags(libc::O_NOFOLLOW).open(path).map_err(failed)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    if let (true, Some(user), Some(group)) =
        (rustix::process::geteuid().is_root(), env_number("SUDO_UID"), env_number("SUDO_GID"))
    {
        std::os::unix::fs::fchown(&file, Some(user), Some(group)).map_err(failed)?;
    }
    file.write_all(text.as_bytes()).map_err(failed)
}
