// SPDX-License-Identifier: Apache-2.0
//! The settings of ROS that apply on this machine: those of the shell that called the command, or else
//! those with which its ROS programs run.
//!
//! sudo clears the environment, but the process of sudo still has the variables of the shell. A command
//! that ssh runs has no settings at all, because its shell does not read the `.bashrc` in which robots have
//! them. Running programs of ROS have the settings.

use super::files::Files;
use super::processes::{self, Process, VisibleProcesses};
use std::collections::{BTreeMap, BTreeSet};

/// The default address of the master.
pub const DEFAULT_MASTER: &str = "http://localhost:11311";
/// Variables that the setup file of ROS sets: a shell that has one of them has all settings.
const SETUP_VARIABLES: [&str; 2] = ["ROS_DISTRO", "ROS_VERSION"];
const MASTER: &str = "ROS_MASTER_URI";
const DOMAIN: &str = "ROS_DOMAIN_ID";
/// Maximum number of processes between this one and sudo.
const MAX_ANCESTORS: usize = 4;

type Variables = BTreeMap<&'static str, String>;

/// Settings of ROS, by the names of their variables.
#[derive(Debug, Clone, Default)]
pub struct RosSettings {
    values: Variables,
    /// Whether some settings come from running programs.
    pub is_of_programs: bool,
    /// In words, the settings that differ among the running programs, and were not taken.
    pub unclear: Vec<String>,
}

impl RosSettings {
    /// Returns settings with these values.
    pub fn new(values: &[(&'static str, &str)]) -> Self {
        let values = values.iter().map(|(name, value)| (*name, (*value).to_owned()));
        Self { values: values.collect(), ..Self::default() }
    }

    /// Finds the settings.
    pub(super) fn find_settings(
        files: &Files,
        processes: &[Process],
        visible: &VisibleProcesses,
    ) -> Self {
        let own = std::env::vars_os();
        let own =
            own.filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()));
        let mut values = processes::settings(own);
        if std::env::var_os("SUDO_UID").is_some() {
            let inherited = sudo_settings(files).unwrap_or_default();
            inherited.into_iter().for_each(|(name, value)| {
                values.entry(name).or_insert(value);
            });
        }
        let mut found = Self { values, ..Self::default() };
        if !SETUP_VARIABLES.iter().any(|name| found.values.contains_key(name)) {
            found.fill_from(
                &ros1_program_settings(files, processes),
                &ros2_program_settings(visible),
            );
        }
        found
    }

    /// Adds the settings in which the running programs of ROS 1 and ROS 2 agree.
    fn fill_from(&mut self, ros1: &[Variables], ros2: &[Variables]) {
        for name in processes::SETTINGS {
            if self.values.contains_key(name) {
                continue;
            }
            let named = |it: &Variables| it.get(name).cloned();
            let values: BTreeSet<String> = match *name {
                // Without the variable, a program of ROS 2 is in domain 0.
                DOMAIN => ros2.iter().map(|it| named(it).unwrap_or_else(|| "0".into())).collect(),
                _ => ros1.iter().chain(ros2).filter_map(named).collect(),
            };
            let value = match values.len() {
                1 => values.first(),
                // The longest list is used: a shorter list was set before further workspaces were built.
                _ if name.ends_with("_PATH") => {
                    values.iter().max_by_key(|it| it.split(':').count())
                }
                _ => None,
            };
            if let Some(value) = value {
                self.values.insert(name, value.clone());
                self.is_of_programs = true;
            } else if !values.is_empty() && [MASTER, DOMAIN].contains(name) {
                let values = Vec::from_iter(values).join(", ");
                self.unclear.push(format!("{name} differs among the programs here: {values}"));
            }
        }
    }

    /// A setting, if there is one and it has no unusual characters.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.values.get(name).map(String::as_str);
        value.filter(|it| it.bytes().all(|byte| (b' '..=b'~').contains(&byte)))
    }

    /// The URI of the master.
    pub fn master(&self) -> &str {
        self.get(MASTER).unwrap_or(DEFAULT_MASTER)
    }
}

/// The settings that a shell gave to sudo, if sudo runs this process.
fn sudo_settings(files: &Files) -> Option<Variables> {
    let mut process = rustix::process::getppid()?.as_raw_nonzero().get();
    for _ in 0..MAX_ANCESTORS {
        let status = files.read(format!("/proc/{process}/status"))?;
        let field = |name: &str| Some(status.lines().find_map(|it| it.strip_prefix(name))?.trim());
        if field("Name:")? == "sudo" {
            return Some(processes::settings_of(files, process.unsigned_abs()));
        }
        process = field("PPid:")?.parse().ok()?;
    }
    None
}

/// The settings of programs of ROS 1 in this network. Such programs have the URI of their master.
fn ros1_program_settings(files: &Files, processes: &[Process]) -> Vec<Variables> {
    let is_meant = |it: &&Process| !it.is_tautline() && it.shares_network != Some(false);
    let all = processes.iter().filter(is_meant);
    let all = all.map(|it| processes::settings_of(files, it.id));
    all.filter(|it| it.contains_key(MASTER)).collect()
}

fn ros2_program_settings(visible: &VisibleProcesses) -> Vec<Variables> {
    visible.in_this_network.iter().map(|it| it.settings.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(values: &[(&'static str, &str)]) -> Variables {
        RosSettings::new(values).values
    }

    #[test]
    fn settings_on_which_all_programs_agree_are_used() {
        let ros2 = [
            program(&[("ROS_DOMAIN_ID", "7"), ("AMENT_PREFIX_PATH", "/opt/ros/jazzy")]),
            program(&[("ROS_DOMAIN_ID", "7"), ("AMENT_PREFIX_PATH", "/ws:/opt/ros/jazzy")]),
        ];
        let mut found = RosSettings::new(&[("ROS_IP", "10.0.0.1")]);
        found.fill_from(&[program(&[("ROS_MASTER_URI", "http://a:1"), ("ROS_IP", "x")])], &ros2);
        assert_eq!(found.get("ROS_DOMAIN_ID"), Some("7"));
        assert_eq!(found.get("AMENT_PREFIX_PATH"), Some("/ws:/opt/ros/jazzy"));
        assert_eq!((found.get("ROS_IP"), found.master()), (Some("10.0.0.1"), "http://a:1"));
        assert!(found.is_of_programs && found.unclear.is_empty());
    }

    #[test]
    fn a_domain_on_which_programs_differ_is_reported_and_not_used() {
        let mut found = RosSettings::default();
        found.fill_from(&[], &[program(&[("ROS_DOMAIN_ID", "7")]), program(&[])]);
        assert_eq!(found.get("ROS_DOMAIN_ID"), None);
        assert_eq!(found.unclear, ["ROS_DOMAIN_ID differs among the programs here: 0, 7"]);
    }
}
