// SPDX-License-Identifier: Apache-2.0
//! Correctness through ROS at both ends, on a link without limits. Every message arrives intact, a
//! latched message reaches late joiners, and the daemons unregister from their masters when they
//! end. No figure is judged.

use crate::rig::processes::{Process, empty_folder};
use crate::rig::progress::Progress;
use crate::rig::stats::Samples;
use crate::setup::daemon::{Daemon, DaemonSetup};
use crate::setup::flows::{ALL, Flow};
use crate::setup::load::Load;
use crate::setup::ros::{self, RosProgram, START_PATIENCE};
use crate::setup::world::{Computer, Link, Pair};
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(3);
const LATCHED_TOPIC: &str = "/robot/description";
const LATCHED_TEXT: &str = "said once, before anyone listened";

/// Runs all checks; logs and samples go to `folder`, which is created empty.
pub fn run(folder: &Path, daemons: &DaemonSetup) -> Result<ExitCode> {
    empty_folder(folder)?;
    let seconds = Duration::from_secs;
    let progress = Progress::for_case(
        "smoke",
        &[
            ("starting two ROS masters and two daemons", seconds(5)),
            ("a latched message for late joiners", seconds(3)),
            ("three topics, both ways", TIME + seconds(4)),
            ("ending the daemons", seconds(2)),
        ],
    );
    let pair = Pair::new(Link::UNLIMITED, 0)?;
    let on = |computer| RosProgram::own(computer, folder);
    let masters = ros::masters(&pair, folder)?;
    let mut running = daemons.start(&pair, folder)?;
    progress.enter_next();
    check_latched(&on(&pair.robot), &on(&pair.base))?;
    progress.enter_next();
    check_flows(&pair, folder)?;
    progress.enter_next();
    for (daemon, computer) in running.iter_mut().zip([&pair.robot, &pair.base]) {
        check_end(daemon, computer, &on(computer))?;
    }
    drop(masters);
    progress.finish();
    println!(
        "smoke: every message arrived intact, the latched one at both late joiners, and the daemons unregistered"
    );
    Ok(ExitCode::SUCCESS)
}

fn check_latched(robot: &RosProgram, base: &RosProgram) -> Result<()> {
    let program = |side: &RosProgram, name: &str, role: &str| -> Result<Process> {
        side.python(name, "latched.py", &[role.into(), LATCHED_TOPIC.into(), LATCHED_TEXT.into()])
    };
    let mut publisher = program(robot, "latched-publisher", "publish")?;
    publisher.await_line("ready", START_PATIENCE)?;
    let mut late = program(base, "latched-late", "await")?;
    late.await_line("first", START_PATIENCE)?;
    let mut later = program(base, "latched-later", "await")?;
    later.await_line("first", START_PATIENCE)?;
    Ok(())
}

fn check_flows(pair: &Pair, folder: &Path) -> Result<()> {
    let mut load = Load::start_with_own_masters(&ALL, pair, folder)?;
    load.publish(TIME)?;
    load.drain(TIME)?;
    load.write()?;
    for flow in ALL {
        check_complete(flow, &ros::samples(folder, flow)?)?;
    }
    Ok(())
}

fn check_complete(flow: Flow, samples: &Samples) -> Result<()> {
    let name = flow.name();
    let arrived: Vec<u64> = samples.arrivals.iter().map(|arrival| arrival.sequence).collect();
    let sent: Vec<u64> = (0..samples.sent_ns.len() as u64).collect();
    ensure!(
        arrived == sent,
        "{name}: {} messages were sent, {} arrived: {arrived:?}",
        sent.len(),
        arrived.len()
    );
    for arrival in &samples.arrivals {
        let stamp = samples.sent_ns[arrival.sequence as usize];
        ensure!(
            arrival.sent_ns == stamp,
            "{name} {}: stamped {stamp}, arrived as {}",
            arrival.sequence,
            arrival.sent_ns
        );
    }
    Ok(())
}

fn check_end(daemon: &mut Daemon, computer: &Computer, program: &RosProgram) -> Result<()> {
    daemon.end()?;
    for entry in program.registrations()? {
        ensure!(
            !entry.contains("tautline"),
            "still registered at the master of {}: {entry}",
            computer.name
        );
    }
    Ok(())
}
