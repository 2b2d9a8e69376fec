// SPDX-License-Identifier: Apache-2.0
//! Reload of a changed file into the running node.
//!
//! The new configuration is compared with the running one ([`difference`]). All steps that may fail
//! are tried before the first change. Then the data plane applies all changes between two iterations
//! of its loop ([`Handle::reconfigure`](crate::Handle::reconfigure)).

mod changes;
mod diff;
#[cfg(test)]
mod tests;

pub use changes::{Change, Changes, Detail, Kind};
pub use diff::{NeedsRestart, difference};
