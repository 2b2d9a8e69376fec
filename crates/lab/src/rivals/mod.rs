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
use tautline_proto::rate::Custom;

/// RCom's additive decrease.
pub const AID: &str = "aid";
/// RCom's multiplicative decrease.
pub const AIMD: &str = "aimd";

/// All rivals.
const ALL: [Custom; 7] = [
    Custom { name: "bbr3", make: || Box::new(bbr::Bbr::new()) },
    Custom { name: "copa", make: || Box::new(copa::Copa::new()) },
    Custom { name: "scream2", make: || Box::new(scream::Scream::new()) },
    Custom { name: "gcc", make: || Box::new(gcc::Gcc::new()) },
    Custom { name: "cubic", make: || Box::new(cubic::Cubic::new()) },
    Custom { name: AID, make: || Box::new(rcom::Rcom::aid()) },
    Custom { name: AIMD, make: || Box::new(rcom::Rcom::aimd()) },
];

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

/// The rate control of this name, if it is a rival's.
pub fn named(name: &str) -> Option<Rate> {
    ALL.iter().find(|rival| rival.name == name).map(|rival| Rate::Custom(*rival))
}
