// SPDX-License-Identifier: Apache-2.0
//! The program `tautline`. It runs a node of the library `tautline` as a daemon with its ROS, and has what
//! people and other programs see of the node: the control socket, metrics, the audit log, pairing and the
//! doctor.

pub mod audit;
pub mod control;
mod descriptors;
pub mod doctor;
pub mod interfaces;
pub mod metrics;
mod origin;
pub mod pairing;
pub mod reload;
mod run;
pub mod service;
pub mod unit;

pub use origin::Origin;
pub use run::{RunError, run};
