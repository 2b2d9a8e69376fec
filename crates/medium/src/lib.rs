// SPDX-License-Identifier: Apache-2.0
//! A seeded model of radio: airtime, contention, loss, motion and outage.
//!
//! No I/O: the caller supplies time and frames; outputs report the end of each transmission and
//! each delivery. The same seed and inputs give the same outputs. [`Medium`] is the interface.
#![forbid(unsafe_code)]

mod aqm;
mod config;
mod frame;
mod ids;
mod loss;
mod medium;
mod motion;
mod network;
mod networks;
mod outage;
mod phy;
mod rate;
mod scene;
mod trace;

pub use config::{
    Access, Aqm, Interference, Loss, Motion, PathLoss, Phy, PipeConfig, RateControl, Reordering,
    Trial, WifiConfig,
};
pub use frame::{Frame, Outcome, Output, QueueFull, RadioStats};
pub use ids::{Nanos, NetworkId, RadioId, StationId};
pub use medium::Medium;
pub use network::Facts;
pub use networks::*;
pub use outage::Outage;
pub use phy::Rate;
pub use trace::{OPPORTUNITY_BYTES, Trace};
