// SPDX-License-Identifier: Apache-2.0
//! The state of one registration at the master. The actor compares it with the master's list at every
//! poll, so that a master that was absent, died or restarted is no special case.

use super::backoff::{self, Backoff};
use super::master::Role;
use super::xmlrpc::CallError;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Interval between probes of a local node that serves a service which peers serve as well.
const RIVAL_PERIOD: Duration = Duration::from_millis(900);

#[derive(Debug)]
pub(super) struct Registration {
    /// Distinguishes this registration from an earlier one of the same name.
    pub serial: u64,
    /// Whether the master lists the registration.
    pub registered: bool,
    pub pending: bool,
    /// Another node that the master lists as the server. The master would replace it by us, which
    /// is right only if its process has ended.
    pub rival: Option<String>,
    /// The name under which it is registered: ours, or that of a stand-in.
    pub caller: Option<String>,
    /// The name under which to register it.
    pub next_caller: Option<String>,
    /// Whether it waits for the mark of its stand-in.
    pub awaits_mark: bool,
    pub backoff: Backoff,
}

/// A call that registers a topic or service.
pub(super) struct Attempt {
    pub role: Role,
    pub name: String,
    /// The name under which it registers.
    pub caller: String,
    pub serial: u64,
}

/// Why a call has not registered a topic or service.
#[derive(Debug)]
pub(super) enum RegistrationError {
    /// A local node uses the topic with another type; the text is for a person.
    Conflict(String),
    /// The local node that serves the service itself.
    ServedLocally(String),
    /// A local node has the name of the stand-in.
    NameTaken,
    Master(CallError),
}

impl Registration {
    pub fn new(serial: u64) -> Self {
        let backoff = Backoff::new(Instant::now());
        let (registered, pending, awaits_mark) = (false, false, false);
        let (rival, caller, next_caller) = (None, None, None);
        Self { serial, registered, pending, rival, caller, next_caller, awaits_mark, backoff }
    }

    fn is_waiting(&self) -> bool {
        !self.registered && !self.pending && !self.awaits_mark
    }

    /// Whether it is not registered, and no attempt has failed.
    pub fn is_undecided(&self) -> bool {
        !self.registered && !self.backoff.has_failed()
    }

    /// Whether an attempt without an earlier failure waits.
    pub fn is_new(&self) -> bool {
        self.is_waiting() && !self.backoff.has_failed()
    }

    /// Whether the master may list it, now or after the pending call.
    pub fn may_be_listed(&self) -> bool {
        self.registered || self.pending
    }

    /// Chooses the name under which it is registered. A change starts new attempts.
    pub fn register_as(&mut self, caller: &str) {
        if self.next_caller.as_deref() != Some(caller) {
            self.next_caller = Some(caller.to_owned());
            self.backoff = Backoff::new(Instant::now());
        }
        self.registered &= self.caller.as_deref() == Some(caller);
    }

    /// Records the server that the master lists, if that is another node. A change takes effect immediately.
    pub fn set_rival(&mut self, rival: Option<&String>) {
        if self.rival.as_ref() != rival {
            self.rival = rival.cloned();
            self.backoff = Backoff::new(Instant::now());
        }
    }

    /// Records the outcome of the pending call.
    pub fn on_outcome<T>(&mut self, outcome: &Result<T, RegistrationError>) {
        self.pending = false;
        match outcome {
            Ok(_) => {
                self.registered = true;
                self.backoff.succeed();
            }
            // The master does not report the end of the other server.
            Err(RegistrationError::ServedLocally(_)) => {
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
    /// The registrations in a role, by name.
    pub fn in_role(&mut self, role: Role) -> &mut BTreeMap<String, Registration> {
        &mut self.0[role as usize]
    }

    /// Whether the condition holds for any registration, whatever its role.
    pub fn any(&self, condition: impl Fn(&Registration) -> bool) -> bool {
        self.0.iter().flat_map(BTreeMap::values).any(condition)
    }

    pub fn get(&self, role: Role, name: &str) -> Option<&Registration> {
        self.0[role as usize].get(name)
    }

    /// The names of all registrations in a role.
    pub fn names(&self, role: Role) -> Vec<String> {
        self.0[role as usize].keys().cloned().collect()
    }

    /// The names to register now.
    pub fn names_to_register(&self, role: Role) -> Vec<String> {
        let all = &self.0[role as usize];
        let waiting = all.iter().filter(|(_, registration)| registration.is_waiting());
        let waiting = waiting.map(|(name, registration)| (name, registration.backoff));
        let pending = all.values().filter(|registration| registration.pending);
        let pending = pending.map(|registration| registration.backoff);
        backoff::select(waiting, pending, Instant::now())
    }
}
