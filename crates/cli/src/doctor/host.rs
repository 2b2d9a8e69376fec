// SPDX-License-Identifier: Apache-2.0
//! The computer: clock, processor, buffers and disk.

use super::finding::{CheckFinding, CheckResult, Harm};
use super::links;
use super::machine::{Machine, ProgramOutput};
use super::robot::Robot;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tautline::config::{AuditConfig, SYSTEM_LOGS_FOLDER};

/// The receive buffer that the daemon asks for (docs/how-to/links.md), in bytes.
const RECEIVE_BUFFER: u64 = tautline::RECEIVE_BUFFER_BYTES as u64;
/// Rate above which a link loses packets with the default receive buffer, in bits per second.
const FAST_BPS: u64 = 500_000_000;
/// Free space below which a disk is too small for logs, in bytes.
const MIN_FREE: u64 = 50 << 20;
/// Drivers whose governor `powersave` follows the load.
const SELF_GOVERNED: [&str; 3] = ["intel_pstate", "amd-pstate", "amd-pstate-epp"];

/// Without the Internet, the base is the source of the time.
const CHRONY_AT_BASE: &str = "without the Internet, at the base: printf 'local stratum 10\\nallow\\n' | \
                              sudo tee /etc/chrony/conf.d/tautline.conf; sudo systemctl restart chrony";
const CHRONY_ON_ROBOTS: &str = "and on each robot: echo 'server ADDRESS_OF_BASE iburst' | sudo tee \
                                /etc/chrony/conf.d/tautline.conf; sudo systemctl restart chrony";

pub(super) fn clock(machine: &Machine, robot: &Robot) -> CheckResult {
    let is_synchronized =
        match machine.run("timedatectl", &["show", "--property=NTPSynchronized", "--value"]) {
            ProgramOutput::Output(text) if text.trim() == "yes" => true,
            ProgramOutput::Output(text) if text.trim() == "no" => false,
            // Without an answer of timedatectl, the kernel says whether the clock is synchronized.
            _ => match tautline::sys::clock_is_synchronized() {
                Ok(it) => it,
                Err(error) => return CheckResult::Skipped(format!("adjtimex: {error}")),
            },
        };
    if is_synchronized {
        return CheckResult::Completed(Vec::new());
    }
    let found = "the clock is not synchronized (NTP)";
    let found = match links::clocks_agree(robot) {
        true => CheckFinding::new(
            Harm::Note,
            format!("{found}; it agrees with the clocks of the peers ('peer-clock')"),
            "The clocks may drift apart: tf refuses stamps that are off by more than its tolerance, \
             mostly 100 ms.",
        ),
        false => CheckFinding::new(
            Harm::Delays,
            found,
            "tf refuses messages whose stamps are off by more than its tolerance, mostly 100 ms.",
        ),
    };
    let install = "sudo apt install chrony; chronyc tracking";
    CheckResult::Completed(vec![found.fix(install).fix(CHRONY_AT_BASE).fix(CHRONY_ON_ROBOTS)])
}

pub(super) fn governor(machine: &Machine, _: &Robot) -> CheckResult {
    let folder = "/sys/devices/system/cpu";
    let is_cpu =
        |name: &&String| name.strip_prefix("cpu").is_some_and(|it| it.parse::<u32>().is_ok());
    let names = machine.list(folder);
    let property = |cpu: &str, name: &str| machine.read(format!("{folder}/{cpu}/cpufreq/{name}"));
    let governed: Vec<(&String, String)> = names
        .iter()
        .filter(is_cpu)
        .filter_map(|cpu| Some((cpu, property(cpu, "scaling_governor")?)))
        .collect();
    if governed.is_empty() {
        return CheckResult::DoesNotApply(
            "the kernel does not control the processor's frequency".into(),
        );
    }
    let slow: Vec<&String> = governed
        .iter()
        .filter(|(cpu, governor)| {
            let driver = property(cpu, "scaling_driver").unwrap_or_default();
            governor == "powersave" && !SELF_GOVERNED.contains(&driver.as_str())
        })
        .map(|(cpu, _)| *cpu)
        .collect();
    if slow.is_empty() {
        return CheckResult::Completed(Vec::new());
    }
    let found = CheckFinding::new(
        Harm::Delays,
        format!("the governor of {} of {} processors is powersave", slow.len(), governed.len()),
        "They always run at their lowest frequency.",
    );
    CheckResult::Completed(vec![found.fix(
        "echo schedutil | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor  # or performance",
    )])
}

pub(super) fn receive_buffer(machine: &Machine, robot: &Robot) -> CheckResult {
    let Some(granted) = machine.number("/proc/sys/net/core/rmem_max") else {
        return CheckResult::Skipped("/proc/sys/net/core/rmem_max is not readable".into());
    };
    if granted >= RECEIVE_BUFFER {
        return CheckResult::Completed(Vec::new());
    }
    let links = robot.status.iter().flat_map(|it| &it.links);
    let is_fast = links.filter_map(|it| it.available_bps).any(|it| it > FAST_BPS);
    let found = CheckFinding::new(
        if is_fast { Harm::Delays } else { Harm::Note },
        format!("net.core.rmem_max is {granted}; the daemon asks for {RECEIVE_BUFFER}"),
        "The default of 212 992 bytes suits links up to about 500 Mbps; above, packets are lost here.",
    );
    CheckResult::Completed(vec![found.fix(format!(
        "echo net.core.rmem_max={RECEIVE_BUFFER} | sudo tee /etc/sysctl.d/90-tautline.conf && sudo sysctl --system"
    ))])
}

/// The folders that the daemon writes to.
fn folders(robot: &Robot) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::from([PathBuf::from(SYSTEM_LOGS_FOLDER)]);
    if let Some(config) = robot.config() {
        all.insert(config.state.clone());
        if let AuditConfig::Files { path, .. } = &config.audit {
            all.extend(path.parent().map(Path::to_path_buf));
        }
    }
    all
}

pub(super) fn disk(machine: &Machine, robot: &Robot) -> CheckResult {
    let (mut all, mut disks) = (Vec::new(), BTreeSet::new());
    for folder in folders(robot) {
        let path = machine.path(&folder);
        // A folder that the daemon will make is on the disk of its parent.
        let existing = path.ancestors().find(|it| it.exists());
        let Some(disk) = existing.and_then(|it| rustix::fs::statvfs(it).ok()) else { continue };
        // Two folders on one disk are one finding.
        let device = existing.and_then(|it| it.metadata().ok()).map(|it| it.dev());
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if disk.f_blocks == 0 || free >= MIN_FREE || !disks.insert(device) {
            continue;
        }
        let shown = folder.display();
        let found = CheckFinding::new(
            Harm::Delays,
            format!("{} MiB are free on the disk of {shown}", free >> 20),
            "The audit log and the state that survives a restart cannot be written.",
        );
        all.push(
            found
                .fix("sudo journalctl --vacuum-size=100M; sudo apt clean")
                .fix(format!("sudo du -xh {shown} | sort -h | tail  # shows what takes the room")),
        );
    }
    CheckResult::Completed(all)
}
