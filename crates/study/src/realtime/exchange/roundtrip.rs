// SPDX-License-Identifier: Apache-2.0
//! Round trips by size and rate, with and without other traffic on the same link.

use super::session::{Cell, System};
use super::{Load, Over, Plan, Row, exceptions, load_words};
use crate::realtime::{Context, paper};
use anyhow::Result;
use std::time::Duration;
use tautline_lab::rig::table::{self, column, or_dash};

fn plan(context: &Context<'_>) -> Plan {
    let loads = context
        .stress_settings()
        .flat_map(|stressed| [false, true].map(|traffic| Load { stressed, traffic }));
    Plan {
        part: "roundtrip",
        links: vec![Over::Wire],
        // Quick runs omit stress; full runs have all four combinations.
        loads: loads.filter(|load| !context.quick || !load.stressed).collect(),
        cells: cells(context.quick),
        reply: true,
        systems: super::systems(context),
        time: context.seconds(2, 4),
    }
}

/// Returns the paper's cells: sizes at 100 Hz, and rates at 100 B.
fn cells(quick: bool) -> Vec<Cell> {
    let all = [(100, 10), (100, 20), (10, 100), (100, 100), (1000, 100), (10_000, 100), (100, 200)];
    let chosen = all
        .into_iter()
        .filter(|cell| !quick || ![(100, 20), (10, 100), (1000, 100), (100, 200)].contains(cell));
    chosen.map(|(bytes, rate_hz)| Cell { bytes, rate_hz }).collect()
}

/// Returns the stages of this part for the progress display, each with its expected duration.
pub fn stages(context: &Context<'_>) -> Vec<(String, Duration)> {
    plan(context).stages(super::rounds(context))
}

/// Measures all conditions.
pub fn measure(context: &Context<'_>) -> Result<Vec<Row>> {
    plan(context).measure(context)
}

/// Returns the paper's largest round trip, or a dash if the paper states none. It states none under
/// stress.
fn paper_words(row: &Row) -> String {
    if row.stressed {
        return "-".into();
    }
    let slow = row.cell.rate_hz < 100;
    match (row.system, row.traffic) {
        (System::Rospy, false) if slow => paper::ROUND_TRIP_ROS1_SLOW_IDLE_MS.to_string(),
        (System::Rospy, false) => paper::ROUND_TRIP_ROS1_FAST_IDLE_MS.to_string(),
        (System::Rospy, true) if slow => paper::ROUND_TRIP_ROS1_SLOW_TRAFFIC_MS.to_string(),
        (System::Rospy, true) if row.cell.rate_hz == 100 => {
            format!("over {}", paper::ROUND_TRIP_ROS1_FAST_TRAFFIC_MS)
        }
        (System::Rclpy, _) if row.cell.rate_hz <= 100 => {
            let [low, high] = paper::ROUND_TRIP_ROS2_MS;
            format!("{low}-{high}")
        }
        (System::Rclpy, true) => paper::ROUND_TRIP_ROS2_200_TRAFFIC_MS.to_string(),
        _ => "-".into(),
    }
}

/// Formats the round trips next to those of the paper.
pub fn table(rows: &[Row]) -> String {
    table::markdown(
        rows,
        &[
            column("system", |row: &Row| row.system.name().into()),
            column("load", load_words),
            column("B", |row| row.cell.bytes.to_string()),
            column("Hz", |row| row.cell.rate_hz.to_string()),
            column("replied of sent", |row| format!("{} of {}", row.replied, row.sent)),
            column("median ms", |row| or_dash(row.p50_ms, 2)),
            column("p99 ms", |row| or_dash(row.p99_ms, 2)),
            column("max ms", |row| or_dash(row.max_ms, 2)),
            column("paper's max ms", paper_words),
            column("", exceptions),
        ],
    )
}
