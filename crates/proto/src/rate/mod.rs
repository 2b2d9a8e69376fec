// SPDX-License-Identifier: Apache-2.0
//! Rate control: decides when the next packet may be sent, so that queues outside this crate stay
//! short.
//!
//! Each radio has a controller for its queue in the kernel: [`BackPressure`], or [`Fixed`], which
//! adds a gap after each packet. Each link has a controller for a bottleneck further along its
//! path, or none ([`CONTROLS`]). A packet is sent when both agree. Controllers do no I/O: the caller
//! reports events to them and asks for decisions.

mod auto;
pub(crate) mod controller;
mod fixed;
mod local;
#[cfg(test)]
mod tests;

pub use auto::{Auto, Constant, Tuning};
pub(crate) use controller::FULL_PACKET;
pub use controller::{Controller, PendingPacket, Release, Report};
pub use fixed::Fixed;
pub use local::BackPressure;
pub(crate) use local::{PAUSE, Window};

/// How the rate of each link is controlled, in addition to its radio's back-pressure.
#[derive(Clone, Copy)]
pub struct LinkControl {
    /// The name in configuration files. Two controls with the same name are equal.
    pub name: &'static str,
    /// The signals that govern the rate, for people.
    pub signals: &'static str,
    /// Makes the controller of a link; `None` if the links have none.
    pub make: fn(Tuning) -> Option<Box<dyn Controller>>,
}

impl std::fmt::Debug for LinkControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for LinkControl {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for LinkControl {}

/// The product's controllers, the default first. Configuration files, schema, tests and the
/// laboratory all follow this table.
pub const CONTROLS: [LinkControl; 2] = [
    LinkControl {
        name: "auto",
        signals: "back-pressure and reports",
        make: |tuning| Some(Box::new(Auto::new(tuning))),
    },
    LinkControl { name: "back-pressure", signals: "back-pressure", make: |_| None },
];
