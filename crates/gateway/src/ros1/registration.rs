// SPDX-License-Identifier: Apache-2.0
//! The state of one registration at the master. The actor compares it with the master's list at
//! every poll, so that a master that was absent, died or restarted is no special case.

use super::backoff::{self, Backoff};
use super::master::Role;
use super::xmlrpc::CallError;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Registration {
    /// Distinguishes this registration from an earlier one of the same name.
    pub serial: u64,
    /// Whether the master lists it.
    pub registered: bool,
    pub pending: bool,
    /// Another node serves the name. The master would replace that node by us.
    pub blocked: bool,
    pub backoff: Backoff,
}

#[derive(Debug)]
pub(super) enum NotRegistered {
    /// A local node uses the topic with another type; the text is for a person.
    Conflict(String),
    Master(CallError),
}

impl Registration {
    pub fn new(serial: u64) -> Self {
        let backoff = Backoff::new(Instant::now());
        Self { serial, registered: false, pending: false, blocked: false, backoff }
    }

    fn is_waiting(&self) -> bool {
        !self.registered && !self.pending && !self.blocked
    }

    /// Whether an attempt without an earlier failure waits.
    pub fn is_new(&self) -> bool {
        self.is_waiting() && !self.backoff.has_failed()
    }

    /// Whether the master may list it, now or after the pending call.
    pub fn may_be_listed(&self) -> bool {
        self.registered || self.pending
    }

    /// The pending call has ended.
    pub fn finish<T>(&mut self, outcome: &Result<T, NotRegistered>) {
        self.pending = false;
        match outcome {
            Ok(_) => {
                self.registered = true;
                self.backoff.succeed();
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
