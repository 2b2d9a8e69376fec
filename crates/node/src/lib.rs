// SPDX-License-Identifier: Apache-2.0
//! The Tautline node: the daemon of `tautline run`, and the parts of it that the command line,
//! metrics and other front ends use.

pub mod accounts;
pub mod audit;
mod budgets;
mod codec;
pub mod config;
mod diagnostics;
mod driver;
pub mod keys;
pub mod limits;
mod node;
pub mod notices;
pub mod paths;
pub mod planned;
mod quota;
pub mod rates;
mod recent;
pub mod reload;
mod report;
pub mod status;
pub mod sys;
mod topics;
pub mod treatment;
mod udp;

pub use driver::{GROUP_V4, GROUP_V6, Settings, Watchdog};
pub use node::{Handle, Node, RunError};
pub use topics::exports::channel::link_policy;
pub use udp::RECEIVE_BUFFER_BYTES;
