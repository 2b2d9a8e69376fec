// SPDX-License-Identifier: Apache-2.0
//! The program `tautline`: a node (`tautline`) as a daemon with its ROS, and what people and other
//! programs see of it: the control socket, metrics, the audit log, pairing and the doctor.

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
