// SPDX-License-Identifier: Apache-2.0
//! An order placed in a real browser.

use super::stage::{Plan, Stage};
use super::team::{ROBOTS, Team};
use crate::rig::processes::Process;
use crate::rig::progress::Progress;
use crate::setup::ros;
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

/// Longest time of an order, the start of the browser included.
const PATIENCE: Duration = Duration::from_secs(150);
const TABLE: &str = "4";

/// An order of the page.
#[derive(Debug, Serialize)]
pub struct Order {
    /// ROS of the robots.
    pub team: Team,
    /// Why the order was not served, if it was not.
    pub trouble: Option<String>,
}

/// Orders Tetra to a table by the page; a picture of the page goes to `page.png`.
pub fn run(plan: &Plan<'_>, progress: &Progress) -> Result<Order> {
    progress.next();
    let mut stage = Stage::new(plan)?;
    let _waiter = stage.waiter()?;
    let (_server, address) = stage.page()?;
    progress.next();
    let mut command = stage.computers[0].command("/usr/bin/python3");
    let picture = plan.folder.join("page.png");
    let script = ros::script_folder().join("restaurant/browser.py");
    ros::settle(&mut command, "browser")
        .arg(script)
        .args([&address, TABLE, ROBOTS[1]])
        .arg(picture);
    let mut browser = Process::start_talking("browser", command, plan.folder)?;
    let trouble = browser.await_line("served", PATIENCE).err();
    stage.check()?;
    stage.close()?;
    Ok(Order { team: plan.team, trouble: trouble.map(|error| format!("{error:#}")) })
}
