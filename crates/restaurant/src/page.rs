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
/// The robots of the order and of the keyboard.
const SERVING: &str = ROBOTS[1];
const DRIVEN: &str = ROBOTS[0];

/// An order of the page.
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

/// Orders a robot to a table on the page, and drives the other robot by keyboard; `page.png`
/// becomes a picture of the page.
pub fn run(plan: &Plan<'_>, progress: &Progress) -> Result<Order> {
    progress.enter_next();
    let mut stage = Stage::new(plan)?;
    let _waiter = stage.waiter()?;
    let _server = stage.page(PORT)?;
    progress.enter_next();
    stage.air.count_from_now();
    let begin = place(plan)?;
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
    let (end, emulator) = (place(plan)?, stage.punctuality()?);
    stage.close()?;
    Ok(Order {
        team: plan.team,
        trouble: trouble.map(|error| format!("{error:#}")),
        driven_m: (end[0] - begin[0]).hypot(end[1] - begin[1]),
        emulator,
    })
}

fn place(plan: &Plan<'_>) -> Result<truth::Pose> {
    truth::pose(plan.folder, DRIVEN)?.context("the arena has no robots")
}
