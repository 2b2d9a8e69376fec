// SPDX-License-Identifier: Apache-2.0
// Begun: fits the formulas of the study and runs experiment 9 in virtual time; not yet part of the build.
//! TODO.
#![allow(dead_code)]
mod data;
mod fit;
mod formula;
mod horizontal;
mod judge;
mod single;

pub fn trial() {
    let quick = std::env::args().any(|it| it == "--quick");
    let sweep = horizontal::Sweep::new(quick, 900);
    let t = std::time::Instant::now();
    for o in sweep.run(1).unwrap() {
        println!("{:?} {:?} pairs {} off {:.0} pub {:.0} ech {:.0} {:.1}% air {:.1} cpu {:.1} {:?} {:?}", o.load.system, o.load, o.pairs, o.offered_per_s, o.published_per_s, o.echoed_per_s, o.echoed_percent, o.airtime_percent, o.processor_percent, o.limit, o.rtt_ms);
    }
    println!("{:?}", t.elapsed());
}
