// SPDX-License-Identifier: Apache-2.0
//! Messages lost from the robot to its base, by size and rate.

use super::session::{Cell, System};
use super::{Load, Over, Plan, Row, exceptions, load_words};
use crate::realtime::{Context, paper};
use anyhow::Result;
use std::time::Duration;
use tautline_lab::rig::table::{self, column, or_dash};

const SIZES: [u32; 5] = [10, 100, 1000, 10_000, 100_000];
const RATES_HZ: [u32; 4] = [10, 20, 100, 200];

fn plan(context: &Context<'_>) -> Plan {
    let quick = context.quick;
    let loads = context.stress_settings().map(|stressed| Load { stressed, traffic: false });
    let sizes = SIZES.into_iter().filter(|bytes| !quick || *bytes >= 10_000);
    let cell = |bytes| RATES_HZ.map(|rate_hz| Cell { bytes, rate_hz });
    Plan {
        part: "loss",
        links: if quick { vec![Over::Radio] } else { vec![Over::Radio, Over::Wire] },
        loads: loads.filter(|load| !quick || !load.stressed).collect(),
        cells: sizes
            .flat_map(cell)
            .filter(|cell| !quick || [20, 100].contains(&cell.rate_hz))
            .collect(),
        reply: false,
        systems: super::systems(context),
        time: context.seconds(1, 3),
    }
}

/// Returns the stages of this part for the progress display, each with its expected duration.
pub fn stages(context: &Context<'_>) -> Vec<(String, Duration)> {
    plan(context).stages(super::rounds(context))
}

/// Measures all conditions.
pub fn measure(context: &Context<'_>) -> Result<Vec<Row>> {
    plan(context).measure(context)
}

/// Returns the paper's loss in percent; `None` if the paper states none, as under stress.
fn paper_percent(row: &Row) -> Option<f64> {
    let lost = match row.system {
        System::Rospy => paper::LOST_ROS1,
        System::Rclpy => paper::LOST_ROS2,
        System::Tautline | System::TautlineFifo => return None,
    };
    let percent = |[lost, sent]: [u32; 2]| 100.0 * f64::from(lost) / f64::from(sent);
    match (row.stressed, row.cell.bytes, row.cell.rate_hz) {
        (true, ..) => None,
        (false, 100_000, 100) => Some(percent(lost[0])),
        (false, 100_000, 200) => Some(percent(lost[1])),
        (false, 100_000, _) => None,
        (false, ..) => Some(0.0),
    }
}

/// Formats the losses next to those of the paper.
pub fn table(rows: &[Row]) -> String {
    table::markdown(
        rows,
        &[
            column("link", |row: &Row| row.link.name()),
            column("system", |row| row.system.name().into()),
            column("load", load_words),
            column("B", |row| row.cell.bytes.to_string()),
            column("Hz", |row| row.cell.rate_hz.to_string()),
            column("sent", |row| row.sent.to_string()),
            column("lost", |row| row.sent.saturating_sub(row.arrived).to_string()),
            column("lost %", |row| or_dash(row.lost_percent, 1)),
            column("sent at Hz", |row| {
                or_dash(tautline_lab::rig::stats::median(row.sent_hz.iter().copied()), 0)
            }),
            column("median delay ms", |row| or_dash(row.delay_p50_ms, 1)),
            column("paper's lost %", |row| or_dash(paper_percent(row), 1)),
            column("", exceptions),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_states_losses_of_the_largest_messages() {
        let load = Load { stressed: false, traffic: false };
        let row =
            |bytes, rate_hz| Row::new(System::Rospy, Over::Radio, load, Cell { bytes, rate_hz });
        let percent = paper_percent(&row(100_000, 100)).unwrap();
        assert!((percent - 25.65).abs() < 0.01, "{percent}");
        assert_eq!(paper_percent(&row(100, 200)), Some(0.0));
        assert_eq!(paper_percent(&row(100_000, 20)), None);
    }
}
