// SPDX-License-Identifier: Apache-2.0
//! Tests of the protocol through its public items, one module for each behaviour.

mod available;
mod beacons;
mod below_rate;
mod budgets;
mod ecn;
mod fec;
mod floods;
mod hostile;
mod hostile_peer;
mod hostile_team;
mod large;
mod links;
mod loss;
mod mtu;
mod parting;
mod relay;
mod rendezvous;
mod schedule;
mod session;
mod teams;
mod vectors;
