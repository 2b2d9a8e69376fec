// SPDX-License-Identifier: Apache-2.0
//! Tests of the daemon and the command line, one module for each subject.

mod actions;
mod addresses;
mod audit;
mod beacons;
mod budgets;
mod cli;
mod config;
mod control;
mod daemon;
mod decoder;
mod diagnostics;
mod doctor;
mod ecn;
mod fake;
mod fast_links;
mod firewall;
mod generated;
mod hostile_peer;
mod internet;
mod large;
mod launch;
mod lifespan;
mod links;
mod liveliness;
mod local_users;
mod malformed;
mod metrics;
mod mtu;
mod nat;
mod pair;
mod pair_hostile;
mod pair_questions;
mod pair_ssh;
mod pairing;
mod plan;
mod planned;
mod ports;
mod program;
mod reference;
mod relay;
mod relay_file;
mod reload;
mod remote_robots;
mod rights;
mod service;
mod several_links;
mod strangers;
mod team;
mod tf;
mod translation;
mod translators;
mod watchdog;
mod wording;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_tautline");
