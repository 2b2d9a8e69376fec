// SPDX-License-Identifier: Apache-2.0
//! Rate control: decides when the next packet may be sent, so that queues outside this crate stay
//! short.
//!
//! Each radio has a controller for its queue in the kernel: [`BackPressure`], or [`Fixed`], which
//! adds a gap after each packet. Each link has a controller for a bottleneck further along its
//! path: [`Auto`], a [`Custom`] one or none. A packet is sent when both agree. Controllers do no I/O:
//! the caller reports events to them and asks for decisions.

mod auto;
pub(crate) mod controller;
mod fixed;
mod local;
#[cfg(test)]
mod tests;

pub use auto::{Auto, Constant, Tuning};
pub(crate) use controller::FULL_PACKET;
pub use controller::{Controller, Custom, PendingPacket, Release, Report};
pub use fixed::Fixed;
pub use local::BackPressure;
pub(crate) use local::{PAUSE, Window};
