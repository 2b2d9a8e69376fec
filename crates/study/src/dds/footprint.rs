// SPDX-License-Identifier: Apache-2.0
//! Threads, mapped shared libraries and memory of one idle node of each system.
//!
//! The node is a publisher of one topic that has not published. Proportional memory (`Pss`, see
//! proc_pid_smaps(5)) divides a page by the number of programs that share it.

use super::hop::Failure;
use super::probe::{Probe, Quality, Role, Start};
use super::stage::{Place, Stage};
use super::system::System;
use super::{Context, Part, Step, step};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tautline_lab::rig::processes::status_bytes;

/// Time until a new node is idle.
const REST: Duration = Duration::from_secs(2);
/// Systems whose publisher is measured.
const NODES: [System; 5] =
    [System::Rospy, System::Roscpp, System::RclpyShm, System::Cyclone, System::Zenoh];
/// Systems whose first daemon is measured.
const DAEMONS: [System; 2] = [System::Tautline11, System::Tautline22];

/// One idle program.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Program.
    pub program: String,
    pub threads: u64,
    /// Mapped shared libraries.
    pub libraries: usize,
    /// Total size of the files of these libraries.
    pub library_bytes: u64,
    pub resident_bytes: u64,
    pub proportional_bytes: u64,
}

/// Returns those of `systems` that the run measures.
fn chosen(context: &Context, systems: &[System]) -> Vec<System> {
    systems.iter().copied().filter(|it| context.systems.contains(it)).collect()
}

/// Returns the steps of [`run`].
pub fn steps(context: &Context) -> Vec<Step> {
    let stages = chosen(context, &NODES).len() + chosen(context, &DAEMONS).len();
    let time = Duration::from_secs(2) * u32::try_from(stages).unwrap_or(0) + REST;
    vec![(step(Part::Footprint, "idle nodes"), time)]
}

/// Starts all nodes, waits until they are idle, and reads their memory and threads.
pub fn run(context: &Context, failures: &mut Vec<Failure>) -> Result<Vec<Row>> {
    context.progress.enter_next();
    let mut running = Vec::new();
    for system in chosen(context, &NODES).into_iter().chain(chosen(context, &DAEMONS)) {
        match start(context, system) {
            Ok(found) => running.push((system, found)),
            Err(error) => {
                let error = format!("{error:#}");
                eprintln!("tautline-lab: footprint, {}: {error}", system.name());
                let (part, place) = ("footprint", Place::Local);
                failures.push(Failure { part, system, place, error });
            }
        }
    }
    std::thread::sleep(REST);
    let mut rows = Vec::new();
    for (system, (stage, node)) in &running {
        if let Some(node) = node {
            rows.push(of_process(format!("node, {}", system.title()), node.id())?);
        }
        if *system == System::Rospy {
            let master = stage.first_master().context("no master")?;
            rows.push(of_process("ROS 1 master".into(), master)?);
        }
        if let Some(daemon) = stage.daemons.first() {
            let title = format!("daemon of {}", system.title());
            rows.push(of_process(title, daemon.process.id())?);
        }
    }
    for (_, (stage, node)) in running {
        drop(node);
        stage.end()?;
    }
    Ok(rows)
}

fn start(context: &Context, system: System) -> Result<(Stage, Option<Probe>)> {
    let folder = context.folder("footprint").join(system.name());
    let number = context.next_number();
    let mut stage = Stage::new(system, Place::Local, number, &context.daemons, folder)?;
    stage.await_ready()?;
    if system.sides().is_some() {
        return Ok((stage, None));
    }
    let start = Start { warm: false, ..Start::for_role(Role::Publish, Quality::DEFAULT) };
    let mut node = Probe::start(&stage, start, "node")?;
    node.await_ready()?;
    Ok((stage, Some(node)))
}

fn of_process(program: String, id: u32) -> Result<Row> {
    let folder = Path::new("/proc").join(id.to_string());
    let read = |name: &str| {
        let file = folder.join(name);
        std::fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))
    };
    let (status, rollup) = (read("status")?, read("smaps_rollup")?);
    let maps = read("maps")?;
    let libraries = libraries(&maps);
    let size = |it: &&str| std::fs::metadata(it).map_or(0, |it| it.len());
    Ok(Row {
        threads: threads(&status).with_context(|| format!("no Threads of {program}"))?,
        libraries: libraries.len(),
        library_bytes: libraries.iter().map(size).sum(),
        resident_bytes: status_bytes(&status, "VmRSS:").context("no VmRSS")?,
        proportional_bytes: status_bytes(&rollup, "Pss:").context("no Pss")?,
        program,
    })
}

fn threads(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}

/// Returns the shared libraries in a process's `maps`, each once.
fn libraries(maps: &str) -> BTreeSet<&str> {
    let named = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    named.filter(|it| it.ends_with(".so") || it.contains(".so.")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_counts_once_and_other_files_do_not() {
        let maps = "7f1 r--p 0 08:01 7   /usr/lib/libc.so.6\n7f2 r-xp 0 08:01 7   /usr/lib/libc.so.6\n\
                    7f3 r--p 0 08:01 8   /usr/lib/python3/_json.so\n7f4 r--p 0 08:01 9   /usr/bin/python3\n\
                    7f5 rw-p 0 00:00 0   [heap]\n";
        let found: Vec<&str> = libraries(maps).into_iter().collect();
        assert_eq!(found, ["/usr/lib/libc.so.6", "/usr/lib/python3/_json.so"]);
        assert_eq!(threads("Name:\tx\nThreads:\t12\n"), Some(12));
    }
}
