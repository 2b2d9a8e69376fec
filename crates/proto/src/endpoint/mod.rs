// SPDX-License-Identifier: Apache-2.0
//! The state machine of one node. The crate's documentation has the contract.
//!
//! [`Endpoint`] routes packets and timers to its peers ([`peer`]), gives radios their turns
//! ([`schedule`]), and does what peers ask of it because it concerns others ([`context::Request`]).

mod api;
pub(crate) mod arrival;
mod backlog_reports;
mod context;
mod discovery;
pub(crate) mod events;
mod forecast;
pub(crate) mod handles;
mod handshake;
pub(crate) mod network;
mod peer;
mod peers;
mod relay;
pub(crate) mod rendezvous;
mod reports;
mod schedule;
pub(crate) mod setup;
mod state;
pub(crate) mod teams;
mod timer;
pub(crate) mod views;

pub use state::Endpoint;
