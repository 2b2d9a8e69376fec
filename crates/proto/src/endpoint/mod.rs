// SPDX-License-Identifier: Apache-2.0
//! The state machine of one node. The crate's documentation has the contract.
//!
//! An [`Endpoint`] is the public face of a [`router::Router`], which routes packets and timers to peers
//! ([`peer::Peer`]), gives radios their turns ([`schedule`]), and does what peers ask of it where other peers
//! are concerned ([`context::Request`]).

pub(crate) mod arrival;
mod attempts;
mod backlog_reports;
mod context;
mod discovery;
pub(crate) mod events;
mod forecast;
pub(crate) mod handles;
mod handshake;
pub(crate) mod membership;
pub(crate) mod network;
mod peer;
mod peers;
mod relay;
pub(crate) mod rendezvous;
mod reports;
mod router;
mod schedule;
mod setup;
mod state;
pub(crate) mod teams;
mod timer;
pub(crate) mod views;

pub use state::Endpoint;
