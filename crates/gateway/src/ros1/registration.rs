// SPDX-License-Identifier: Apache-2.0
//! The state of one registration at the master. The actor compares it with the master's list at
//! every poll, so that a master that was absent, died or restarted is no special case.

use super::backoff::{self, Backoff};
use super::master::Role;
use super::xmlrpc::CallError;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Interval between probes of a node that serves what peers serve as well.
const RIVAL_PERIOD: Duration = Duration::from_millis(900);

#[derive(Debug)]
pub(super) struct Registration {
    /// Distinguishes this registration from an earlier one of the same name.
    pub serial: u64,
    /// Whether the master lists it.
    pub registered: bool,
    pub pending: bool,
    /// Another node that the master lists as the server. The master would replace it by us, which
    /// is right only if its process has ended.
    pub rival: Option<String>,
    /// The name under which it is registered: ours, or that of a stand-in.
    pub caller: Option<String>,
    pub backoff: Backoff,
}

#[derive(Debug)]
pub(super) enum NotRegistered {
    /// A local node uses the topic with another type; the text is for a person.
    Conflict(String),
    /// This node serves the service.
    Served(String),
    Master(CallError),
}

impl Registration {
    pub fn new(serial: u64) -> Self {
        let backoff = Backoff::new(Instant::now());
        Self { serial, registered: false, pending: false, rival: None, caller: None, backoff }
    }

    fn is_waiting(&self) -> bool {
        !self.registered && !self.pending
    }

    /// Whether an attempt without an earlier failure waits.
    pub fn is_new(&self) -> bool {
        self.is_waiting() && !self.backoff.has_failed()
    }

    /// Whether the master may list it, now or after the pending call.
    pub fn may_be_listed(&self) -> bool {
        self.registered || self.pending
    }

    /// Registers it again under another name, with the next poll.
    pub fn register_as(&mut self, caller: &str) {
        if self.caller.as_deref().is_some_and(|it| it != caller) {
            self.registered = false;
            self.backoff = Backoff::new(Instant::now());
        }
    }

    /// The server that the master lists, if it is another node. A change of it is acted on at once.
    pub fn set_rival(&mut self, rival: Option<&String>) {
        if self.rival.as_ref() != rival {
            self.rival = rival.cloned();
            self.backoff = Backoff::new(Instant::now());
        }
    }

    /// The pending call has ended.
    pub fn finish<T>(&mut self, outcome: &Result<T, NotRegistered>) {
        self.pending = false;
        match outcome {
            Ok(_) => {
                self.registered = true;
                self.backoff.succeed();
            }
            // Its end is not reported.
            Err(NotRegistered::Served(_)) => {
                self.backoff.count_failure();
                self.backoff.delay_until(Instant::now() + RIVAL_PERIOD);
            }
            Err(_) => self.backoff.reject(Instant::now()),
        }
    }
}

/// All registrations by role and name.
#[derive(Debug, Default)]
pub(super) struct Registrations([BTreeMap<String, Registration>; Role::ALL.len()]);

impl Registrations {
    pub fn of(&mut self, role: Role) -> &mut BTreeMap<String, Registration> {
        &mut self.0[role as usize]
    }

    pub fn all(&self, role: Role) -> impl Iterator<Item = &Registration> {
        self.0[role as usize].values()
    }

    pub fn get(&self, role: Role, name: &str) -> Option<&Registration> {
        self.0[role as usize].get(name)
    }

    /// The names to register now.
    pub fn due(&self, role: Role) -> Vec<String> {
        let all = &self.0[role as usize];
        let waiting = all.iter().filter(|(_, registration)| registration.is_waiting());
        let waiting = waiting.map(|(name, registration)| (name, registration.backoff));
        let pending = all.values().filter(|registration| registration.pending);
        let pending = pending.map(|registration| registration.backoff);
        backoff::select(waiting, pending, Instant::now())
    }
}
