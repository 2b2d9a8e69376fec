// SPDX-License-Identifier: Apache-2.0
//! An order placed in a real browser, and a robot driven by its keyboard.

use super::stage::{Plan, Stage};
use super::team::{ROBOTS, Team};
use super::truth;
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::Duration;
use tautline_lab::air::Punctuality;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::progress::Progress;
use tautline_lab::setup::ros;

/// Maximum time of an order, including the start of the browser.
const PATIENCE: Duration = Duration::from_secs(150);
const TABLE: &str = "4";
/// Port of the page, on the kitchen's loopback.
const PORT: &str = "9090";
/// Robot that serves the order.
const SERVING: &str = ROBOTS[1];
/// Robot that the keyboard drives.
const DRIVEN: &str = ROBOTS[0];

/// The result of an order that was placed on the page.
#[derive(Debug, Serialize)]
pub struct Order {
    /// ROS of the robots.
    pub team: Team,
    /// Reason why the order was not served; `None` if it was served.
    pub trouble: Option<String>,
    /// Distance that the other robot drove while its key was pressed, metres.
    pub driven_m: f64,
    /// Lateness of the radio's emulator.
    pub emulator: Punctuality,
}

/// Places an order for one robot on the page, and drives the other robot by keyboard. A picture of the
/// page is written to `page.png` in the run's folder.
pub fn run(plan: &Plan<'_>, progress: &Progress) -> Result<Order> {
    progress.enter_next();
    let mut stage = Stage::new(plan)?;
    let _waiter = stage.waiter()?;
    let _server = stage.page(PORT)?;
    progress.enter_next();
    stage.air.count_from_now();
    let begin = driven_pose(plan)?;
    let mut command = stage.computers[0].command("/usr/bin/python3");
    let picture = plan.folder.join("page.png");
    let script = super::stage::script("browser.py");
    ros::settle(&mut command, "browser")
        .arg(script)
        .args([&format!("http://127.0.0.1:{PORT}/"), TABLE, SERVING, DRIVEN])
        .arg(picture);
    let mut browser = Process::start_talking("browser", command, plan.folder)?;
    let trouble = browser.await_line("served", PATIENCE).err();
    stage.check()?;
    let (end, emulator) = (driven_pose(plan)?, stage.punctuality()?);
    stage.close()?;
    Ok(Order {
        team: plan.team,
        trouble: trouble.map(|error| format!("{error:#}")),
        driven_m: (end[0] - begin[0]).hypot(end[1] - begin[1]),
        emulator,
    })
}

fn driven_pose(plan: &Plan<'_>) -> Result<truth::Pose> {
    truth::pose(plan.folder, DRIVEN)?.context("the arena has no robots")
}
