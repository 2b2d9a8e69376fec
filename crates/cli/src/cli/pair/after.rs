// SPDX-License-Identifier: Apache-2.0
//! After the files are in place: the daemon is started or reads its file again, and the peer comes up.

use super::agree::{Agreed, NextCommand};
use super::console::Console;
use super::local::{LocalMachine, is_unit_file, surroundings};
use super::write::merge_file;
use crate::cli::Failure;
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tautline::config::{self, Config};
use tautline::status::Status;
use tautline_cli::control::Client;

/// Maximum time until the peer is up.
const PEER_UP_TIMEOUT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(250);
const UNIT: &str = "tautline.service";

/// Reports what was written, and brings the peer up.
pub fn finish_pairing(
    local: &LocalMachine,
    agreed: &Agreed,
    console: Console,
    may_start: bool,
) -> Result<(), Failure> {
    let Some(placed) = &agreed.placed else {
        return console
            .event(&json!({ "event": "paired", "peer": agreed.facts.name, "written": [] }));
    };
    let written: Vec<String> = placed.paths().map(|it| it.display().to_string()).collect();
    console.event(&json!({ "event": "paired", "peer": agreed.facts.name, "written": written, "notes": agreed.warnings }))?;
    let mut text = format!("\npaired with {}\n", agreed.facts.name);
    written.iter().for_each(|path| text.push_str(&format!("  wrote {path}\n")));
    placed
        .backup_paths()
        .for_each(|it| text.push_str(&format!("  the file of before is {}\n", it.display())));
    console.say(&text)?;
    if agreed.needs_merge {
        let (new, file) = (merge_file(local), local.file.display());
        return console
            .say(&format!("Merge {} into {file}, then run: tautline check {file}", new.display()));
    }
    let config = check(local, console)?;
    if may_start && start(local, &config, console)? {
        return wait_for_peer(local, &config, agreed, console);
    }
    console.say(&format!("Start it: tautline run {}", local.file.display()))?;
    match next_command_words(local, agreed) {
        Some(text) => console.say(&format!("Then, {text}")),
        None => Ok(()),
    }
}

/// The command that a person should run next, as a part of a sentence.
fn next_command_words(local: &LocalMachine, agreed: &Agreed) -> Option<String> {
    let NextCommand { command, is_here, .. } = agreed.next.as_ref()?;
    Some(match (is_here, local.ros.is_silent) {
        (true, true) => format!("see the first topic (start roscore before): {command}"),
        (true, false) => format!("see the first topic: {command}"),
        (false, _) => format!("see the first topic at {}: {command}", agreed.facts.name),
    })
}

/// Checks the file as `tautline check` does.
fn check(local: &LocalMachine, console: Console) -> Result<Config, Failure> {
    let text = config::read(&local.file).map_err(Failure::new)?;
    let parsed = config::parse(&text, &surroundings(&local.file));
    let checked = parsed.map(tautline_plan::with_warnings).map_err(|problems| {
        Failure::new(config::ConfigError::Invalid { file: local.file.clone(), problems })
    })?;
    let file = local.file.display();
    for warning in &checked.warnings {
        console.say(&format!("warning: {file}:{warning}"))?;
    }
    console.say(&format!("{file} is valid; 'sudo tautline check {file}' explains it"))?;
    Ok(checked.config)
}

/// Makes the daemon use the file. Returns `false` if a person must start the daemon.
fn start(local: &LocalMachine, config: &Config, console: Console) -> Result<bool, Failure> {
    if let Ok(mut client) = Client::connect(&config.control) {
        let done = client.reload(false, || console.progress("waiting for the daemon ..."));
        match done {
            Ok(_) => {
                return console.say("the running daemon has read the file again").map(|()| true);
            }
            // Some changes need a restart.
            Err(error) => {
                console.say(&format!("the running daemon did not take the file: {error}"))?
            }
        }
    }
    let has_systemd = Path::new("/run/systemd/system").exists();
    if !is_unit_file(&local.file) || !has_systemd || !systemctl(&["cat", UNIT]) {
        return Ok(false);
    }
    console.progress("starting tautline.service ...");
    // Without `enable`, the daemon would not start at boot.
    let started = systemctl(&["enable", UNIT]) && systemctl(&["restart", UNIT]);
    let text = match started {
        true => "tautline.service runs, also after a restart of the machine",
        false => "tautline.service did not start: systemctl status tautline",
    };
    console.say(text).map(|()| started)
}

fn systemctl(arguments: &[&str]) -> bool {
    let mut command = Command::new("systemctl");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Waits until the peer is up and has a topic.
fn wait_for_peer(
    local: &LocalMachine,
    config: &Config,
    agreed: &Agreed,
    console: Console,
) -> Result<(), Failure> {
    let (start, name) = (Instant::now(), &agreed.facts.name);
    let status = || Client::connect(&config.control).and_then(|mut it| it.status()).ok();
    let mut last = None;
    while start.elapsed() < PEER_UP_TIMEOUT {
        console.progress(&format!("waiting for {name} ..."));
        last = status().or(last);
        if let Some(status) = last.as_ref().filter(|it| is_up(it, name)) {
            let topic = topic_to_watch(status, name, agreed);
            if topic.is_some() || !agreed.has_topics {
                break;
            }
        }
        std::thread::sleep(TICK);
    }
    match last {
        Some(status) if is_up(&status, name) => {
            let topic = topic_to_watch(&status, name, agreed);
            let next = agreed.next.as_ref().map(|it| &it.command);
            console.event(&json!({ "event": "up", "peer": name, "topic": topic, "next": next }))?;
            console.say(&format!("{name} is up; 'sudo tautline top' watches it"))?;
            match next_command_words(local, agreed) {
                Some(text) => console.say(&format!("Now, {text}")),
                None => console.say("Topics appear as soon as nodes publish them"),
            }
        }
        Some(status) => {
            console
                .event(&json!({ "event": "not_up", "peer": name, "notices": status.notices }))?;
            let notices = status.notices.join("\n  ");
            console.say(&format!(
                "{name} is not up yet. Does its daemon run? 'sudo tautline doctor' says what to \
                 change:\n  {notices}"
            ))
        }
        None => console.say("the daemon does not answer yet: sudo tautline doctor"),
    }
}

fn is_up(status: &Status, peer: &str) -> bool {
    status.peers.iter().any(|it| it.name == peer && it.state == "up")
}

/// Returns the topic that the person is advised to watch, or else any topic of the peer.
fn topic_to_watch(status: &Status, peer: &str, agreed: &Agreed) -> Option<String> {
    let wanted = agreed.next.as_ref().map(|it| &it.topic);
    let all = || status.topics.iter().filter(|it| it.peer == peer).map(|it| &it.topic);
    all().find(|it| Some(*it) == wanted).or_else(|| all().next()).cloned()
}
