// SPDX-License-Identifier: Apache-2.0
//! The Tautline node: the daemon of `tautline run`, and the parts of it that the command line,
//! metrics and other front ends use.

pub mod audit;
mod budgets;
mod codec;
pub mod config;
pub mod control;
mod descriptors;
mod diagnostics;
pub mod doctor;
mod driver;
pub mod interfaces;
pub mod keys;
pub mod limits;
pub mod metrics;
mod node;
mod notices;
pub mod pairing;
mod paths;
pub mod plan;
mod planned;
mod quota;
pub mod rates;
mod recent;
pub mod reload;
mod report;
mod run;
pub mod service;
pub mod status;
mod sys;
mod topics;
pub mod treatment;
mod udp;
pub mod unit;

pub use driver::{GROUP_V4, GROUP_V6, Settings};
pub use node::{Handle, Node, RunError};
pub use run::{Origin, run};
