// SPDX-License-Identifier: Apache-2.0
//! A seeded model of radio: airtime, contention, loss, motion and outage.
//!
//! No I/O: the caller supplies time and frames; outputs report the end of each transmission and
//! each delivery. The same seed and inputs give the same outputs. [`Medium`] is the interface.
#![forbid(unsafe_code)]

mod aqm;
mod config;
mod loss;
mod medium;
mod motion;
mod outage;
mod phy;
mod pipe;
mod rate;
mod scene;
mod trace;
mod wifi;

pub use config::{
    Access, Aqm, Interference, Loss, Motion, PathLoss, Phy, PipeConfig, RateControl, Reordering,
    Trial, WifiConfig,
};
pub use medium::{Frame, Medium, Outcome, Output, QueueFull, RadioStats};
pub use outage::Outage;
pub use phy::Rate;
pub use trace::{OPPORTUNITY_BYTES, Trace};
pub use wifi::Category;

/// Nanoseconds since the medium's start.
pub type Nanos = u64;

/// A place with one or more radios: a robot, a base station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StationId(pub usize);

/// One station's interface on one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RadioId(pub usize);

/// Radios that can reach each other: an 802.11 channel, or a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkId(pub usize);
