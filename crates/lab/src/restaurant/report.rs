// SPDX-License-Identifier: Apache-2.0
//! Tables and targets of the restaurant.

use super::bezier::{Controller, Drive};
use super::faults::Outcome;
use super::orders::Served;
use super::page::Order;
use super::team::Transport;
use crate::rig::processes::word;
use crate::rig::table::{self, Column, left, right};
use crate::rig::verdict::{Bound, Verdict};
use serde::Serialize;

/// Largest path error with the controller in the kitchen, over that with the controller on the robot.
const ERROR_RATIO: Bound = Bound::AtMost(1.3);
/// From a command's publication in the kitchen to the wheels, p99.
const COMMAND_MS: Bound = Bound::AtMost(15.0);

/// Figures of the report.
#[derive(Default, Serialize)]
pub struct Figures {
    /// Runs with orders of guests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Served>,
    /// Drives along the Bezier path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bezier: Vec<Drive>,
    /// Orders of the page.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Order>,
    /// Drives with a fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Outcome>,
}

impl Figures {
    /// Whether the radio's emulator was too late for a run to count.
    pub fn is_void(&self) -> bool {
        let orders = self.orders.iter().map(|run| &run.emulator);
        let bezier = self.bezier.iter().map(|drive| &drive.emulator);
        orders.chain(bezier).any(|emulator| !emulator.counts)
    }

    /// Returns the tables of the parts that were run.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.orders.is_empty() {
            text += &format!("\norders\n\n{}", table::text(&self.orders, &order_columns()));
        }
        if !self.bezier.is_empty() {
            text += &format!("\nbezier\n\n{}", table::text(&self.bezier, &drive_columns()));
        }
        if !self.faults.is_empty() {
            text += &format!("\nfaults\n\n{}", table::text(&self.faults, &fault_columns()));
        }
        text
    }

    /// Returns the targets, which are Tautline's.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let ours = self.orders.iter().filter(|run| run.transport == Transport::Tautline);
        let mut verdicts: Vec<Verdict> = ours.flat_map(of_orders).collect();
        verdicts.extend(self.of_bezier());
        verdicts.extend(self.pages.iter().map(of_page));
        verdicts.extend(self.faults.iter().map(of_fault));
        verdicts
    }

    fn of_bezier(&self) -> Vec<Verdict> {
        let ours = self.bezier.iter().filter(|it| {
            it.transport == Transport::Tautline && it.controller == Controller::Kitchen
        });
        let of_drive = |drive: &Drive| {
            let name = format!("bezier {}, {}", word(drive.team), word(drive.condition));
            let ratio =
                self.local(drive).map(|local| drive.largest_error_m / local.largest_error_m);
            let mut verdicts = vec![ERROR_RATIO.judge(
                format!("{name}: largest error over the robot's own"),
                ratio,
                "times",
            )];
            if drive.condition.has_cameras() {
                let p99 = drive.command_ms.map(|[_, p99, _]| p99);
                verdicts.push(COMMAND_MS.judge(format!("{name}: command to wheel p99"), p99, "ms"));
            }
            verdicts
        };
        ours.flat_map(of_drive).collect()
    }

    /// Returns the same drive with the controller on the robot.
    fn local(&self, drive: &Drive) -> Option<&Drive> {
        self.bezier.iter().find(|it| {
            (it.team, it.transport, it.condition) == (drive.team, drive.transport, drive.condition)
                && it.controller == Controller::Local
        })
    }
}

fn of_orders(run: &Served) -> [Verdict; 3] {
    let name = format!("orders {}", word(run.team));
    let lost = run.accepted.saturating_sub(run.count());
    let all = Bound::AtLeast(f64::from(run.orders));
    [
        all.judge(format!("{name}: served"), Some(f64::from(run.count())), "orders"),
        Bound::AtMost(0.0).judge(format!("{name}: lost"), Some(f64::from(lost)), "orders"),
        Bound::AtMost(0.0).judge(
            format!("{name}: collisions"),
            Some(run.collisions.len() as f64),
            "collisions",
        ),
    ]
}

fn of_page(order: &Order) -> Verdict {
    let served = f64::from(u8::from(order.trouble.is_none()));
    let name = format!("page {}: orders of a browser served", word(order.team));
    Bound::AtLeast(1.0).judge(name, Some(served), "orders")
}

fn of_fault(outcome: &Outcome) -> Verdict {
    let name = format!("fault {} {}", word(outcome.fault), word(outcome.team));
    let as_specified = f64::from(u8::from(outcome.fault.is_as_specified(outcome)));
    Bound::AtLeast(1.0).judge(format!("{name}: as specified"), Some(as_specified), "")
}

fn order_columns() -> Vec<Column<Served>> {
    vec![
        left("robots", 6, |run: &Served| word(run.team)),
        left("by", 8, |run| word(run.transport)),
        right("orders", 6, |run| run.orders.to_string()),
        right("served", 6, |run| run.count().to_string()),
        right("seconds", 7, |run| format!("{:.0}", run.seconds)),
        right("collisions", 10, |run| run.collisions.len().to_string()),
        right("images", 6, |run| run.images().to_string()),
        left("  trouble", 9, |run| format!("  {}", run.trouble.as_deref().unwrap_or("-"))),
    ]
}

fn drive_columns() -> Vec<Column<Drive>> {
    vec![
        left("robots", 6, |it: &Drive| word(it.team)),
        left("by", 8, |it| word(it.transport)),
        left("condition", 14, |it| word(it.condition)),
        left("controller", 10, |it| format!("{:?}", it.controller).to_lowercase()),
        right("max cm", 7, |it| format!("{:.1}", it.largest_error_m * 100.0)),
        right("rms cm", 7, |it| format!("{:.1}", it.rms_error_m * 100.0)),
        right("commands", 8, |it| it.commands[0].to_string()),
        right("arrived", 7, |it| it.commands[1].to_string()),
        right("p50 ms", 7, |it| milliseconds(it, 0)),
        right("p99 ms", 7, |it| milliseconds(it, 1)),
        right("max ms", 7, |it| milliseconds(it, 2)),
        left("  trouble", 9, |it| format!("  {}", it.trouble.as_deref().unwrap_or("-"))),
    ]
}

fn milliseconds(drive: &Drive, place: usize) -> String {
    drive.command_ms.map_or("-".into(), |spread| format!("{:.1}", spread[place]))
}

fn fault_columns() -> Vec<Column<Outcome>> {
    vec![
        left("robots", 6, |it: &Outcome| word(it.team)),
        left("fault", 8, |it| word(it.fault)),
        left("robot", 7, |it| it.robot.into()),
        right("stood after s", 13, |it| seconds(it.stood_after_s)),
        right("moved after s", 13, |it| seconds(it.moved_after_s)),
        right("served", 6, |it| it.served.to_string()),
        right("other served", 12, |it| it.other_served.map_or("-".into(), |it| it.to_string())),
        right("collisions", 10, |it| it.collisions.to_string()),
    ]
}

fn seconds(time: Option<f64>) -> String {
    time.map_or("-".into(), |time| format!("{time:.2}"))
}
