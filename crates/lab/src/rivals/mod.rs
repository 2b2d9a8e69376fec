// SPDX-License-Identifier: Apache-2.0
//! Published rate controllers as rivals of `auto`: they take the same reports, in virtual time. A
//! scenario names them in `tautline: { rate: ... }`; a robot's file cannot.

mod bbr;
mod copa;
mod cubic;
mod flight;
mod gcc;
mod rcom;
mod scream;
#[cfg(test)]
mod tests;

use tautline_proto::Rate;
use tautline_proto::rate::{CONTROLS, Controller, LinkControl, Tuning};

/// RCom's additive decrease.
pub const AID: &str = "aid";
/// RCom's multiplicative decrease.
pub const AIMD: &str = "aimd";

/// All rivals.
const ALL: [LinkControl; 7] = [
    rival("bbr3", |_| Some(Box::new(bbr::Bbr::new()))),
    rival("copa", |_| Some(Box::new(copa::Copa::new()))),
    rival("scream2", |_| Some(Box::new(scream::Scream::new()))),
    rival("gcc", |_| Some(Box::new(gcc::Gcc::new()))),
    rival("cubic", |_| Some(Box::new(cubic::Cubic::new()))),
    rival(AID, |_| Some(Box::new(rcom::Rcom::aid()))),
    rival(AIMD, |_| Some(Box::new(rcom::Rcom::aimd()))),
];

const fn rival(name: &'static str, make: fn(Tuning) -> Option<Box<dyn Controller>>) -> LinkControl {
    LinkControl { name, signals: "reports", make }
}

/// Returns the names of Tautline's own rate controls; `fixed` is a configured rate, that of the link.
pub fn product_names() -> impl Iterator<Item = &'static str> {
    CONTROLS.into_iter().map(|control| control.name).chain(["fixed"])
}

/// The names of all rivals, in the order of tables.
pub const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut index = 0;
    while index < ALL.len() {
        names[index] = ALL[index].name;
        index += 1;
    }
    names
};

/// Returns the rate control of this name; `None` if no rival has this name.
pub fn named(name: &str) -> Option<Rate> {
    ALL.iter().find(|rival| rival.name == name).map(Rate::PerLink)
}
