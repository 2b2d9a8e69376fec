// SPDX-License-Identifier: Apache-2.0
//! Tables and targets of the restaurant.

use super::bezier::Drive;
use super::condition::Condition;
use super::faults::Outcome;
use super::orders::Served;
use super::page::Order;
use super::periods::Jitter;
use super::regulation::{STEPS, Steps};
use super::stage::Plan;
use super::team::{Controller, Team, Transport};
use serde::Serialize;
use std::time::Duration;
use tautline_lab::air::Punctuality;
use tautline_lab::rig::processes::word;
use tautline_lab::rig::stats::{Delay, delay, median};
use tautline_lab::rig::table::{self, Column, column, or_dash};
use tautline_lab::rig::verdict::{Bound, Verdict};

/// Target for the largest path error with the controller in the kitchen, as a multiple of that with the
/// controller on the robot.
const ERROR_RATIO: Bound = Bound::AtMost(1.3);
/// Target for the p99 delay of commands from their publication in the kitchen to the wheels.
const COMMAND_MS: Bound = Bound::AtMost(15.0);
/// Target for the number of events that must not happen.
const NONE: Bound = Bound::AtMost(0.0);
/// Target for the distance that a robot drives while the browser's key is pressed.
const DRIVEN_M: Bound = Bound::AtLeast(0.2);

/// Figures of the report.
#[derive(Default, Serialize)]
pub struct Figures {
    /// Parts that were not measured, with reasons.
    pub skipped: Vec<String>,
    /// Runs with orders of guests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Served>,
    /// Orders of the page.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Order>,
    /// Drives along the Bezier path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bezier: Vec<Drive>,
    /// Steps of the control loop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regulation: Vec<Steps>,
    /// Jitter of the controllers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub periods: Vec<Jitter>,
    /// Drives with a fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Outcome>,
}

/// A part that was run.
pub struct Section {
    /// The name, also on the page of the documentation.
    pub name: &'static str,
    /// The table, in Markdown.
    pub table: String,
    /// Whether the radio's emulator was late in one of its runs, which makes the section void.
    pub is_void: bool,
}

impl Section {
    fn new<T>(
        name: &'static str,
        rows: &[T],
        columns: Vec<Column<T>>,
        emulator: impl Fn(&T) -> Option<&Punctuality>,
    ) -> Option<Self> {
        let is_void = rows.iter().filter_map(emulator).any(|emulator| !emulator.counts);
        (!rows.is_empty()).then(|| Self { name, table: table::markdown(rows, &columns), is_void })
    }
}

/// Drives with the same robots, transport, condition and controller.
struct Drives<'f> {
    first: &'f Drive,
    all: Vec<&'f Drive>,
    /// For a controller in the kitchen, the ratio of its largest error to that of a controller on
    /// the robot.
    ratio: Option<f64>,
}

impl Drives<'_> {
    fn key(drive: &Drive) -> (Team, Transport, Condition, Controller) {
        (drive.team, drive.transport, drive.condition, drive.controller)
    }

    /// Returns the median of the largest errors, metres.
    fn largest_m(&self) -> Option<f64> {
        median(self.all.iter().filter_map(|it| it.largest_error_m))
    }

    fn rms_m(&self) -> Option<f64> {
        median(self.all.iter().filter_map(|it| it.rms_error_m))
    }

    /// Returns the delays of all commands.
    fn commands(&self) -> Option<Delay> {
        delay(self.all.iter().flat_map(|it| it.command_ms.iter().copied()).collect())
    }

    /// Returns a lateness of the emulator that makes a drive void; `None` if all drives count.
    fn late(&self) -> Option<&Punctuality> {
        self.all.iter().filter_map(|it| it.emulator.as_ref()).find(|emulator| !emulator.counts)
    }

    /// Returns how many drives reached the path's end without an error.
    fn arrived(&self) -> usize {
        self.all.iter().filter(|it| it.arrived && it.trouble.is_none()).count()
    }

    /// Returns the lost commands, percent.
    fn lost_percent(&self) -> f64 {
        let sent: usize = self.all.iter().map(|it| it.sent).sum();
        let arrived: usize = self.all.iter().map(|it| it.command_ms.len()).sum();
        100.0 * sent.saturating_sub(arrived) as f64 / sent.max(1) as f64
    }
}

impl Figures {
    /// Returns the time limit for orders without Tautline: the time that they took with Tautline. `None`
    /// if that was not measured, and for orders with Tautline.
    pub fn limit(&self, plan: &Plan<'_>) -> Option<Duration> {
        let with = |run: &&Served| run.team == plan.team && run.transport == Transport::Tautline;
        let with = self.orders.iter().find(with)?;
        (plan.transport == Transport::Plain).then(|| Duration::from_secs_f64(with.seconds))
    }

    /// Returns the parts that were run.
    pub fn sections(&self) -> Vec<Section> {
        let all = [
            Section::new("orders", &self.orders, order_columns(), |it| it.emulator.as_ref()),
            Section::new("page", &self.pages, page_columns(), |it| Some(&it.emulator)),
            Section::new("bezier", &self.drives(), drive_columns(), Drives::late),
            Section::new("regulation", &self.regulation, step_columns(), |it| it.emulator.as_ref()),
            Section::new("periods", &self.periods, period_columns(), |it| Some(&it.emulator)),
            Section::new("faults", &self.faults, fault_columns(), |it| Some(&it.emulator)),
        ];
        all.into_iter().flatten().collect()
    }

    /// Groups the drives by kind, in the order of their first drives.
    fn drives(&self) -> Vec<Drives<'_>> {
        let mut kinds: Vec<Drives<'_>> = Vec::new();
        for drive in &self.bezier {
            match kinds.iter_mut().find(|it| Drives::key(it.first) == Drives::key(drive)) {
                Some(kind) => kind.all.push(drive),
                None => kinds.push(Drives { first: drive, all: vec![drive], ratio: None }),
            }
        }
        let ratios: Vec<_> = kinds.iter().map(|kind| ratio(&kinds, kind)).collect();
        kinds.iter_mut().zip(ratios).for_each(|(kind, ratio)| kind.ratio = ratio);
        kinds
    }

    /// Returns the verdicts on the targets, which apply to Tautline.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let ours = self.orders.iter().filter(|run| run.transport == Transport::Tautline);
        let mut verdicts: Vec<Verdict> = ours.flat_map(order_verdicts).collect();
        verdicts.extend(self.pages.iter().flat_map(page_verdicts));
        verdicts.extend(self.bezier_verdicts());
        let loops = self.regulation.iter().filter(|it| it.transport == Transport::Tautline);
        verdicts.extend(loops.map(loop_verdict));
        verdicts.extend(self.faults.iter().map(fault_verdict));
        verdicts
    }

    fn bezier_verdicts(&self) -> Vec<Verdict> {
        let drives = self.drives();
        let ours = drives.iter().filter(|it| {
            it.first.transport == Transport::Tautline && it.first.controller == Controller::Kitchen
        });
        let of_kind = |kind: &Drives<'_>| {
            let name = format!("bezier {}, {}", word(kind.first.team), word(kind.first.condition));
            let what = format!("{name}: largest error over the robot's own");
            let missing = (kind.all.len() - kind.arrived()) as f64;
            let mut verdicts = vec![
                NONE.judge(format!("{name}: drives that did not arrive"), Some(missing), ""),
                ERROR_RATIO.judge(what, kind.ratio, "times"),
            ];
            if kind.first.condition == Condition::Cameras {
                let p99 = kind.commands().map(|it| it.p99);
                verdicts.push(COMMAND_MS.judge(format!("{name}: command to wheel p99"), p99, "ms"));
            }
            verdicts
        };
        ours.flat_map(of_kind).collect()
    }
}

/// Returns the ratio of the largest errors with the controller in the kitchen and on the robot.
fn ratio(all: &[Drives<'_>], drives: &Drives<'_>) -> Option<f64> {
    let (team, transport, condition, controller) = Drives::key(drives.first);
    let own = (team, transport, condition, Controller::Local);
    let local = all.iter().find(|it| Drives::key(it.first) == own)?;
    let is_kitchen = controller == Controller::Kitchen;
    is_kitchen.then(|| Some(drives.largest_m()? / local.largest_m()?)).flatten()
}

fn centi(metres: f64) -> f64 {
    metres * 100.0
}

fn order_verdicts(run: &Served) -> [Verdict; 3] {
    let name = format!("orders {}", word(run.team));
    let lost = run.accepted.saturating_sub(run.count());
    let all = Bound::AtLeast(f64::from(run.orders));
    [
        all.judge(format!("{name}: served"), Some(f64::from(run.count())), "orders"),
        NONE.judge(format!("{name}: lost"), Some(f64::from(lost)), "orders"),
        NONE.judge(format!("{name}: collisions"), Some(run.collisions.len() as f64), "collisions"),
    ]
}

fn page_verdicts(order: &Order) -> [Verdict; 2] {
    let served = f64::from(u8::from(order.trouble.is_none()));
    let name = format!("page {}", word(order.team));
    [
        Bound::AtLeast(1.0).judge(format!("{name}: orders of a browser served"), Some(served), ""),
        DRIVEN_M.judge(format!("{name}: driven by the browser's key"), Some(order.driven_m), "m"),
    ]
}

fn loop_verdict(steps: &Steps) -> Verdict {
    let [team, condition] = [word(steps.team), word(steps.condition)];
    let name = format!("regulation {team}, {condition}, {}", steps.controller.name());
    let all = Bound::AtLeast(f64::from(STEPS));
    all.judge(format!("{name}: steps that settled"), Some(steps.settled() as f64), "steps")
}

fn fault_verdict(outcome: &Outcome) -> Verdict {
    let name = format!("fault {} {}", word(outcome.fault), word(outcome.team));
    let as_specified = f64::from(u8::from(outcome.fault.is_as_specified(outcome)));
    Bound::AtLeast(1.0).judge(format!("{name}: as specified"), Some(as_specified), "")
}

fn order_columns() -> Vec<Column<Served>> {
    vec![
        column("robots", |run: &Served| word(run.team)),
        column("transport", |run| word(run.transport)),
        column("orders", |run| run.orders.to_string()),
        column("served", |run| run.count().to_string()),
        column("seconds", |run| format!("{:.0}", run.seconds)),
        column("seconds per order", |run| {
            let count = f64::from(run.count());
            or_dash((count > 0.0).then(|| run.seconds / count), 1)
        }),
        column("collisions", |run| run.collisions.len().to_string()),
        column("images at the kitchen", |run| run.images().to_string()),
        column("trouble", |run| run.trouble.as_deref().map_or("-", first_line).into()),
    ]
}

/// Returns the first line of a trouble; its other lines quote a log.
fn first_line(trouble: &str) -> &str {
    trouble.lines().next().unwrap_or_default()
}

fn page_columns() -> Vec<Column<Order>> {
    vec![
        column("robots", |it: &Order| word(it.team)),
        column("order of the browser served", |it| yes_or_no(it.trouble.is_none())),
        column("driven by its key, m", |it| format!("{:.2}", it.driven_m)),
    ]
}

fn drive_columns<'f>() -> Vec<Column<Drives<'f>>> {
    vec![
        column("robots", |it: &Drives<'_>| word(it.first.team)),
        column("transport", |it| word(it.first.transport)),
        column("condition", |it| word(it.first.condition)),
        column("controller", |it| it.first.controller.name().into()),
        column("arrived", |it| format!("{} of {}", it.arrived(), it.all.len())),
        column("largest error cm", |it| or_dash(it.largest_m().map(centi), 1)),
        column("times the robot's own", |it| or_dash(it.ratio, 2)),
        column("rms cm", |it| or_dash(it.rms_m().map(centi), 1)),
        column("commands lost %", |it| format!("{:.1}", it.lost_percent())),
        column("command p50 ms", |it| or_dash(it.commands().map(|it| it.p50), 1)),
        column("p99 ms", |it| or_dash(it.commands().map(|it| it.p99), 1)),
        column("max ms", |it| or_dash(it.commands().map(|it| it.max), 1)),
    ]
}

fn step_columns() -> Vec<Column<Steps>> {
    vec![
        column("robots", |it: &Steps| word(it.team)),
        column("transport", |it| word(it.transport)),
        column("condition", |it| word(it.condition)),
        column("controller", |it| it.controller.name().into()),
        column("overshoot %", |it| {
            or_dash(median(it.qualities.iter().map(|q| q.overshoot_percent)), 0)
        }),
        column("settled", |it| format!("{} of {}", it.settled(), it.qualities.len())),
        column("after s", |it| or_dash(it.settled_s().filter(|it| it.is_finite()), 2)),
        column("deviation V, median", |it| {
            or_dash(median(it.qualities.iter().map(|q| q.deviation_v)), 3)
        }),
        column("worst", |it| format!("{:.3}", it.worst_v())),
        column("trouble", |it| it.trouble.as_deref().map_or("-", first_line).into()),
    ]
}

fn period_columns() -> Vec<Column<Jitter>> {
    vec![
        column("robot", |it: &Jitter| it.robot.into()),
        column("ROS", |it| it.ros.to_string()),
        column("robots", |it| word(it.team)),
        column("scheduler", |it| if it.is_fifo { "SCHED_FIFO" } else { "SCHED_OTHER" }.into()),
        column("load", |it| if it.is_stressed { "stress" } else { "orders" }.into()),
        column("periods", |it| it.periods.to_string()),
        column("mean ms", |it| format!("{:.2}", it.mean_ms)),
        column("p99 ms", |it| format!("{:.2}", it.p99_ms)),
        column("max ms", |it| format!("{:.2}", it.max_ms)),
        column("paper's max ms", |it| it.paper_max_ms.to_string()),
    ]
}

fn fault_columns() -> Vec<Column<Outcome>> {
    vec![
        column("robots", |it: &Outcome| word(it.team)),
        column("fault", |it| word(it.fault)),
        column("robot", |it| it.robot.into()),
        column("stood after s", |it| or_dash(it.stood_after_s, 2)),
        column("moved after s", |it| or_dash(it.moved_after_s, 2)),
        column("drove on", |it| it.reached_table_first.map_or("-".into(), yes_or_no)),
        column("order served", |it| yes_or_no(it.served)),
        column("other robot serves", |it| it.other_served.map_or("-".into(), yes_or_no)),
        column("collisions", |it| it.collisions.to_string()),
    ]
}

fn yes_or_no(is: bool) -> String {
    if is { "yes" } else { "no" }.into()
}
