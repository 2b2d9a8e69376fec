// SPDX-License-Identifier: Apache-2.0
//! The steps after both ends have proved the code: they exchange facts about themselves, show what they
//! would write, ask the person, and write in two phases. Nothing is in place until both agree and have their
//! complete files on the disk.

use super::channel::{Channel, ChannelError, MAX_TEXT, REPLY_TIMEOUT};
use super::console::Console;
use super::local::{LocalMachine, surroundings};
use super::show::ShownResult;
use super::store::{PlacedFiles, PreparedFiles};
use super::write::{self, Change};
use crate::cli::Failure;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tautline::config::{ConfigError, DEFAULT_PORT, parse};
use tautline_cli::pairing::exchange::Role;
use tautline_cli::pairing::facts::{Facts, Message, Ros};
use tautline_cli::pairing::file::FileInput;
use tautline_cli::pairing::plan::{Plan, plan};
use tautline_gateway::plain::plain;

/// Time limit for the answer of a person at the other end.
const PERSON_TIMEOUT: Duration = Duration::from_secs(600);

/// The other end.
pub struct OtherEnd {
    pub channel: Channel,
    pub name: String,
    /// The host as it was given on the command line.
    pub host: Option<String>,
    pub address: SocketAddr,
}

/// What was agreed.
pub struct Agreed {
    pub facts: Facts,
    /// `None` after a trial (`--dry-run` at either end).
    pub placed: Option<PlacedFiles>,
    /// Whether a topic crosses as soon as the peer is up.
    pub has_topics: bool,
    /// The command that shows the first topic at the base.
    pub next: Option<NextCommand>,
    /// Whether a person has to merge the new lines into the file.
    pub needs_merge: bool,
    pub warnings: Vec<String>,
}

/// The command at the base with which a person sees that the pairing works.
pub struct NextCommand {
    pub command: String,
    /// Whether this machine is the base.
    pub is_here: bool,
    /// The topic, by its name here.
    pub topic: String,
}

/// This end of the pairing, and its options.
#[derive(Clone, Copy)]
pub struct Participant<'a> {
    pub role: Role,
    pub local: &'a LocalMachine,
    pub console: Console,
    pub replace: bool,
}

impl Participant<'_> {
    /// Agrees with the other end, and writes.
    pub fn agree(self, mut other: OtherEnd) -> Result<Agreed, Failure> {
        let name = other.name.clone();
        let exchanged =
            self.exchange(&mut other).map_err(|error| nothing_written_failure(&name, &error));
        let (own, facts) = exchanged?;
        let done = self.agree_on(&own, &facts, &mut other);
        if let Err(failure) = &done {
            let reason = plain(&failure.text, MAX_TEXT);
            let _ = other.channel.send(&Message::Cancel { reason });
        }
        done
    }

    /// Exchanges facts; returns those of this end and those of the other end.
    fn exchange(self, other: &mut OtherEnd) -> Result<(Facts, Facts), ChannelError> {
        let tell = |channel: &mut Channel, own: &Facts| {
            channel.send(&Message::Facts(Box::new(own.clone())))
        };
        match self.role {
            Role::Robot => {
                let own = self.local.facts(None);
                tell(&mut other.channel, &own)?;
                Ok((own, receive_facts(other)?))
            }
            Role::Base => {
                let facts = receive_facts(other)?;
                let own = self.local.facts(Some(&facts));
                tell(&mut other.channel, &own)?;
                Ok((own, facts))
            }
        }
    }

    fn agree_on(self, own: &Facts, facts: &Facts, other: &mut OtherEnd) -> Result<Agreed, Failure> {
        let (robot, base) = match self.role {
            Role::Robot => (own, facts),
            Role::Base => (facts, own),
        };
        let plan = plan(robot, base);
        let found = peer_host(self.role, other.host.as_deref(), other.address, facts);
        let owner = found.as_ref().and_then(|host| self.local.other_peer_with_host(host, facts));
        let address = found.filter(|_| owner.is_none()).map(|host| with_port(host, facts.port));
        let end = FileInput {
            role: self.role,
            own,
            other: facts,
            address: address.as_deref(),
            plan: &plan,
            ros: &self.local.ros.lines,
        };
        let mut change = write::change(self.local, &end, self.replace)?;
        change.notes.extend(owner.map(|owner| {
            format!(
                "the address of {} is that of peers.{owner} in the file, so {} gets none and begins \
                 the connection itself",
                facts.name, facts.name
            )
        }));
        if change.replaces.is_some() && self.console.yes && !self.replace {
            return Err(Failure::new(format!(
                "{}; --replace replaces it, or --name at the other machine gives that one another \
                 name. Nothing was written",
                change.replaces.unwrap_or_default()
            )));
        }
        check(self.local, &change)?;
        let (address, file) = (other.address.ip(), &write::target_file(self.local, &change));
        let is_trial = own.dry_run || facts.dry_run;
        ShownResult {
            other: facts,
            address,
            robot,
            base,
            plan: &plan,
            change: &change,
            file,
            is_trial,
        }
        .show_to(self.console)?;
        if is_trial {
            self.finish_trial(other, facts)?;
            return Ok(agreed_result(facts, &plan, None, change, None));
        }
        self.ask(other, &change)?;
        let prepared = write::prepare(self.local, &change)?;
        let placed = self.commit(other, prepared)?;
        let next = next_command(self.role, &plan, base);
        Ok(agreed_result(facts, &plan, Some(placed), change, next))
    }

    /// Ends a trial: both ends have shown the plan, and neither writes.
    fn finish_trial(self, other: &mut OtherEnd, facts: &Facts) -> Result<(), Failure> {
        let who = if self.local.dry_run { "this machine" } else { facts.name.as_str() };
        // This may fail: the other end may have left already, and nothing depends on it.
        let _ = other.channel.send(&Message::Ready);
        let _ = other.channel.receive(REPLY_TIMEOUT);
        self.console.say(&format!("--dry-run at {who}: nothing was written."))
    }

    /// Asks the person here, and fails as soon as the other end has ended the pairing.
    fn ask(self, other: &mut OtherEnd, change: &Change) -> Result<(), Failure> {
        let (OtherEnd { name, channel, .. }, file) = (other, self.local.file.display());
        let (question, default) = match &change.replaces {
            Some(text) => (format!("{text}. Replace it, and pair with {name}?"), false),
            None if change.is_same => (format!("Pair with {name}? {file} stays as it is."), true),
            None => (format!("Pair with {name}, and write {file}?"), true),
        };
        let watch = || channel.watch().map_err(|error| nothing_written_failure(name, &error));
        match self.console.ask(&question, default, watch)? {
            true => Ok(()),
            false => Err(Failure::new("Not paired: the answer was no. Nothing was written")),
        }
    }

    /// Commits in two phases: both ends are ready; then the robot writes, and after it the base.
    fn commit(self, other: &mut OtherEnd, prepared: PreparedFiles) -> Result<PlacedFiles, Failure> {
        let name = other.name.clone();
        let failed = |error: ChannelError| nothing_written_failure(&name, &error);
        other.channel.send(&Message::Ready).map_err(failed)?;
        self.console.progress(&format!("waiting for the answer at {name} ..."));
        match self.role {
            Role::Base => {
                expect(&mut other.channel, PERSON_TIMEOUT, &Message::Ready).map_err(failed)?;
                other.channel.send(&Message::Commit).map_err(failed)?;
                let written = expect(&mut other.channel, REPLY_TIMEOUT, &Message::Written);
                if let Err(error) = written {
                    return Err(self.unconfirmed_failure(&name, &error, prepared));
                }
                let placed = prepared.put_in_place()?;
                // If this message is lost, the robot reports that it does not know whether we have written.
                let _ = other.channel.send(&Message::Written);
                Ok(placed)
            }
            Role::Robot => {
                expect(&mut other.channel, PERSON_TIMEOUT, &Message::Ready).map_err(failed)?;
                expect(&mut other.channel, REPLY_TIMEOUT, &Message::Commit).map_err(failed)?;
                let placed = prepared.put_in_place()?;
                let told = other.channel.send(&Message::Written);
                match told.and_then(|()| other.channel.receive(REPLY_TIMEOUT)) {
                    Ok(Message::Written) => {}
                    Err(ChannelError::Refused(reason)) => {
                        placed.undo();
                        return Err(Failure::new(format!(
                            "{name} could not write its files: {reason}. The files here are as before"
                        )));
                    }
                    _ => self.console.say(&format!(
                        "warning: the files here are written, but {name} vanished before it \
                         confirmed its own. If it does not come up, run 'tautline pair' at both \
                         again; nothing is lost"
                    ))?,
                }
                Ok(placed)
            }
        }
    }

    /// Returns the failure at a base that does not know whether the robot has written. If so, the robot's
    /// file has the new key of this base. The base therefore keeps this key, so that the next pairing fits.
    fn unconfirmed_failure(
        self,
        name: &str,
        error: &ChannelError,
        prepared: PreparedFiles,
    ) -> Failure {
        if matches!(error, ChannelError::Refused(_)) || !self.local.key_is_new {
            return nothing_written_failure(name, error);
        }
        let key = self.local.key_file.display();
        let place = self.local.place_of(&self.local.key_file);
        match place.and_then(|place| prepared.put_in_place_only(place)) {
            Ok(_) => Failure::new(format!(
                "the pairing with {name} ended: {error}. {name} may have written its files. Here, only \
                 {key} was written, so that the next pairing fits: run 'tautline pair' at both again"
            )),
            Err(failure) => failure,
        }
    }
}

fn next_command(role: Role, plan: &Plan, base: &Facts) -> Option<NextCommand> {
    let watched = plan.first_to_watch()?;
    let command = match base.ros.as_ref()? {
        Ros::Ros1 { .. } => format!("rostopic echo {}", watched.at_base),
        Ros::Ros2 { .. } => format!("ros2 topic echo {}", watched.at_base),
    };
    let is_here = role == Role::Base;
    let topic = if is_here { &watched.at_base } else { &watched.at_robot };
    Some(NextCommand { command, is_here, topic: topic.clone() })
}

fn agreed_result(
    facts: &Facts,
    plan: &Plan,
    placed: Option<PlacedFiles>,
    change: Change,
    next: Option<NextCommand>,
) -> Agreed {
    let has_topics = !plan.shown.is_empty() || plan.commands.iter().any(|it| it.published);
    let (facts, needs_merge) = (facts.clone(), change.needs_merge);
    Agreed { facts, placed, has_topics, next, needs_merge, warnings: change.notes }
}

/// Receives the facts of the other end, and checks them.
fn receive_facts(other: &mut OtherEnd) -> Result<Facts, ChannelError> {
    match other.channel.receive(REPLY_TIMEOUT)? {
        Message::Facts(facts) => {
            facts.check().map_err(|error| ChannelError::Wrong(error.to_string()))?;
            match facts.name == other.name {
                true => Ok(*facts),
                false => Err(ChannelError::Wrong("two names".into())),
            }
        }
        _ => Err(ChannelError::Wrong("something else than facts".into())),
    }
}

fn nothing_written_failure(name: &str, error: &ChannelError) -> Failure {
    Failure::new(format!("the pairing with {name} ended: {error}. Nothing was written here"))
}

fn expect(
    channel: &mut Channel,
    timeout: Duration,
    expected: &Message,
) -> Result<(), ChannelError> {
    match channel.receive(timeout)? {
        found if found == *expected => Ok(()),
        _ => Err(ChannelError::Wrong("a message that does not fit".into())),
    }
}

/// Checks that the new file is valid for the daemon that will read it.
fn check(local: &LocalMachine, change: &Change) -> Result<(), Failure> {
    if change.needs_merge {
        return Ok(());
    }
    let checked = parse(&change.text, &surroundings(&local.file));
    checked.map(drop).map_err(|problems| {
        let file = local.file.clone();
        let error = ConfigError::Invalid { file, problems };
        Failure::new(format!("the new file would not be valid. Nothing was written.\n{error}"))
    })
}

/// Returns the host of the other end to write into this machine's file. A robot uses the address at which
/// it reached the base. A base uses a robot's address only if the robot itself has it: otherwise it is
/// that of a NAT.
fn peer_host(
    role: Role,
    given: Option<&str>,
    address: SocketAddr,
    facts: &Facts,
) -> Option<String> {
    let ip = address.ip();
    let is_own =
        |ip: IpAddr| facts.addresses.contains(&ip) || ip.is_loopback() || is_link_local(ip);
    if role == Role::Base && !is_own(ip) {
        return None;
    }
    let host = match (given, address) {
        (Some(host), _) => host.to_owned(),
        (None, SocketAddr::V6(v6)) if is_link_local(ip) => {
            let all = if_addrs::get_if_addrs().unwrap_or_default();
            let interface = all.into_iter().find(|it| it.index == Some(v6.scope_id()))?;
            format!("{ip}%{}", interface.name)
        }
        (None, _) => ip.to_string(),
    };
    Some(host)
}

fn with_port(host: String, port: u16) -> String {
    match port {
        DEFAULT_PORT => host,
        port if host.contains(':') => format!("[{host}]:{port}"),
        port => format!("{host}:{port}"),
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(addresses: &[&str]) -> Facts {
        Facts {
            name: "other".into(),
            key: String::new(),
            port: DEFAULT_PORT,
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            version: String::new(),
            wire: 0,
            ros: Some(Ros::Ros2 { domain: 0 }),
            topics: Vec::new(),
            services: 0,
            left_out: 0,
            taken: Vec::new(),
            dry_run: false,
        }
    }

    #[test]
    fn a_base_writes_no_address_of_a_robot_behind_a_translator() {
        let own = facts(&["192.168.1.5", "10.0.0.5"]);
        let at = |text: &str| format!("{text}:4711").parse().unwrap();
        let seen = |role, given, text| peer_host(role, given, at(text), &own);
        assert_eq!(seen(Role::Base, None, "10.0.0.5").as_deref(), Some("10.0.0.5"));
        assert_eq!(seen(Role::Base, None, "203.0.113.7"), None);
        assert_eq!(seen(Role::Robot, None, "203.0.113.7").as_deref(), Some("203.0.113.7"));
        let named = seen(Role::Robot, Some("base.local"), "10.0.0.5");
        assert_eq!(named.as_deref(), Some("base.local"));
        assert_eq!(with_port("10.0.0.5".into(), 18470), "10.0.0.5");
        assert_eq!(with_port("10.0.0.5".into(), 7), "10.0.0.5:7");
        assert_eq!(with_port("fe80::1%wlan0".into(), 7), "[fe80::1%wlan0]:7");
    }
}
