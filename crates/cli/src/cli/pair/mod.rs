// SPDX-License-Identifier: Apache-2.0
//! `tautline pair`: two machines exchange names, keys and topics under a short code
//! ([the protocol](../../../../../spec/pairing.md)).
//!
//! | module | contents |
//! |---|---|
//! | `local`, `ros` | this machine: file, key, addresses; its ROS |
//! | `base`, `robot`, `search`, `channel` | how the two meet and prove the code |
//! | `agree`, `show` | what they agree on, in two phases; what a person sees |
//! | `write`, `store`, `folder` | the change of the file; files on the disk; their locked folder |
//! | `after` | the daemon, and the peer that comes up |
//! | `ssh` | the robot's side, started from the base |

mod after;
mod agree;
mod arguments;
mod base;
mod channel;
mod console;
mod folder;
mod local;
mod robot;
mod ros;
mod search;
mod show;
mod ssh;
mod store;
mod write;

use super::Failure;
use agree::{OtherEnd, Participant};
pub use arguments::Arguments;
use console::Console;
use local::LocalMachine;
use rand_core::{OsRng, RngCore};
use serde_json::json;
use std::time::Duration;
use tautline_cli::pairing::exchange::Role;
use tautline_cli::pairing::plan::prefix;
use tautline_cli::pairing::{Code, PORT, SEARCH_PORT, code};

/// The task that the argument `target` selects.
enum Task {
    Base,
    BaseWithSsh(String),
    Robot(Code),
}

pub fn pair(arguments: &Arguments) -> Result<(), Failure> {
    let console = Console { json: arguments.json, yes: arguments.yes };
    let task = task(arguments)?;
    store::end_on_signals().map_err(Failure::new)?;
    console.progress("looking at this machine's ROS ...");
    let local = LocalMachine::read_settings(arguments)?;
    console.say(&format!(
        "this machine: {}, {} {}\nROS: {}",
        local.name,
        if local.old.is_some() { "extends" } else { "will write" },
        local.file.display(),
        local.ros.words
    ))?;
    let (role, other, remote) = match task {
        Task::Robot(code) => (Role::Robot, find_base(code, &local, arguments, console)?, None),
        Task::Base => {
            let (other, remote) = wait_for_robot(None, &local, arguments, console)?;
            (Role::Base, other, remote)
        }
        Task::BaseWithSsh(target) => {
            let (other, remote) = wait_for_robot(Some(&target), &local, arguments, console)?;
            (Role::Base, other, remote)
        }
    };
    let part = Participant { role, local: &local, console, replace: arguments.replace };
    let agreed = part.agree(other)?;
    let done = after::finish_pairing(&local, &agreed, console, !arguments.no_start);
    // This shows the last lines of the robot's side before this program ends.
    drop(remote);
    done
}

fn task(arguments: &Arguments) -> Result<Task, Failure> {
    let is_ssh = arguments.target.as_deref().is_some_and(ssh::is_target);
    if !arguments.robot_arguments.is_empty() && !is_ssh {
        return Err(Failure::new(
            "arguments after -- are for the robot: tautline pair USER@ROBOT -- ARGUMENTS",
        ));
    }
    if arguments.code_from_stdin {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map_err(Failure::new)?;
        return Ok(Task::Robot(line.parse().map_err(Failure::new)?));
    }
    match &arguments.target {
        None if arguments.at.is_some() => Err(Failure::new(
            "--at is for the robot, which enters the code: tautline pair CODE --at HOST",
        )),
        None => Ok(Task::Base),
        Some(text) => match text.parse() {
            Ok(code) => Ok(Task::Robot(code)),
            Err(error) if code::looks_like_code(text) => Err(Failure::new(error)),
            Err(_) if ssh::is_target(text) => Ok(Task::BaseWithSsh(text.clone())),
            Err(error) => Err(Failure::new(format!("{error}, or at the base USER@ROBOT for ssh"))),
        },
    }
}

fn find_base(
    code: Code,
    local: &LocalMachine,
    arguments: &Arguments,
    console: Console,
) -> Result<OtherEnd, Failure> {
    let met = robot::connect_to_base(
        code,
        &local.name,
        arguments.at.as_deref(),
        arguments.port,
        console,
    )?;
    Ok(OtherEnd { channel: met.channel, name: met.name, host: met.host, address: met.address })
}

fn wait_for_robot(
    target: Option<&str>,
    local: &LocalMachine,
    arguments: &Arguments,
    console: Console,
) -> Result<(OtherEnd, Option<ssh::Remote>), Failure> {
    let waiting =
        base::PairingListener::start(arguments.port, Code::draw(&mut OsRng), &local.name)?;
    let code = waiting.code;
    let mut instance = [0; 8];
    OsRng.fill_bytes(&mut instance);
    let (selector, port) = (code.selector(), arguments.port);
    let responder = search::Responder { selector, instance, port, name: local.name.clone() };
    if let Err(error) = responder.start() {
        console.say(&format!(
            "warning: UDP port {SEARCH_PORT}: {error}. The robot needs --at with this machine's address"
        ))?;
    }
    let mut remote = match target {
        Some(target) => Some(ssh::Remote::start(target, code, arguments, console)?),
        None => {
            show_code(code, local, arguments, console)?;
            None
        }
    };
    let timeout = Duration::from_secs(arguments.wait);
    let met = waiting.wait(timeout, console, || match &mut remote {
        Some(remote) => remote.check(),
        None => Ok(()),
    })?;
    if let Some(remote) = &mut remote {
        remote.note_code_proved();
    }
    let other = OtherEnd { channel: met.channel, name: met.name, host: None, address: met.address };
    Ok((other, remote))
}

fn show_code(
    code: Code,
    local: &LocalMachine,
    arguments: &Arguments,
    console: Console,
) -> Result<(), Failure> {
    let addresses = local::outside_addresses();
    let port =
        if arguments.port == PORT { String::new() } else { format!(" --port {}", arguments.port) };
    let name = local.free_name();
    let command = format!("sudo tautline pair {code} --name {name}");
    console.event(&json!({
        "event": "waiting", "code": code.to_string(), "command": command,
        "addresses": addresses, "port": arguments.port,
    }))?;
    let at = addresses.first().map_or(String::new(), |address| {
        format!("If the robot does not find this machine, add: --at {address}{port}\n")
    });
    let prefix = prefix(&name);
    console.say(&format!(
        "\n  code: {code}\n\nOn the robot:\n  {command}\n\
         Then both machines show what they would write, and ask.\n\n\
         --name: the robot's topics appear here under this name, as {prefix}/scan. Choose it freely; \
         leave it out on a robot that was paired before.\n{at}"
    ))
}
