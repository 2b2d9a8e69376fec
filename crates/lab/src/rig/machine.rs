// SPDX-License-Identifier: Apache-2.0
//! What a reader needs to know of the machine to judge a measured delay: processor, memory, and
//! where the kernel may preempt.

use super::processes::run;
use serde::Serialize;
use std::process::Command;

/// Facts of this machine; `unknown` where the system does not say.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Model of the processor, from proc_cpuinfo(5).
    pub cpu: String,
    /// Processors that this program may use.
    pub cores: usize,
    /// Memory in 10^6 bytes.
    pub memory_mb: u64,
    /// Hypervisor, `none` on bare metal.
    pub virtualization: String,
    /// Preemption model of the kernel.
    pub preemption: String,
    /// Time per second that real-time threads may take, microseconds of a million; see sched(7).
    pub realtime_runtime_us: String,
}

impl Machine {
    /// Reads the facts of this machine.
    pub fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let facts = Facts {
            version: output_of("uname", &["-v"]).unwrap_or_default(),
            realtime: read("/sys/kernel/realtime"),
            boot: read("/proc/cmdline"),
            chosen: read("/sys/kernel/debug/sched/preempt"),
            config: config(),
        };
        let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "unknown".into());
        Self {
            cpu: or_unknown(entry(&read("/proc/cpuinfo"), "model name")),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mb: entry(&read("/proc/meminfo"), "MemTotal").map_or(0, |size| megabytes(&size)),
            virtualization: or_unknown(hypervisor()),
            preemption: facts.preemption(),
            realtime_runtime_us: or_unknown(
                Some(read("/proc/sys/kernel/sched_rt_runtime_us").trim().to_owned())
                    .filter(|it| !it.is_empty()),
            ),
        }
    }

    /// Describes the machine in one sentence.
    pub fn line(&self, kernel: &str) -> String {
        let Self { cpu, cores, memory_mb, virtualization, preemption, .. } = self;
        let place = match virtualization.as_str() {
            "none" => "no hypervisor".into(),
            name => format!("hypervisor: {name}"),
        };
        format!(
            "Linux {kernel}, preemption: {preemption}; {cpu}, {cores} cores, {memory_mb} MB, {place}"
        )
    }
}

/// systemd-detect-virt exits with an error and the word `none` on bare metal.
fn hypervisor() -> Option<String> {
    let output = Command::new("systemd-detect-virt").arg("--vm").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|it| !it.is_empty())
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    run(Command::new(program).args(arguments)).ok().map(|said| said.trim().to_owned())
}

/// Returns the kernel's build options, empty where the system does not have them.
fn config() -> String {
    let beside = || output_of("uname", &["-r"]).map(|release| format!("/boot/config-{release}"));
    match output_of("zcat", &["/proc/config.gz"]) {
        Some(text) => text,
        None => beside().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default(),
    }
}

fn entry(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn megabytes(size: &str) -> u64 {
    let kilobytes = size.strip_suffix(" kB").and_then(|number| number.parse::<u64>().ok());
    kilobytes.map_or(0, |kilobytes| kilobytes * 1024 / 1_000_000)
}

/// Where a kernel states its preemption model.
#[derive(Default)]
struct Facts {
    /// `uname -v`.
    version: String,
    /// `1` with PREEMPT_RT.
    realtime: String,
    /// Options given at boot.
    boot: String,
    /// Models of a dynamic kernel, the chosen one in brackets.
    chosen: String,
    /// Build options.
    config: String,
}

impl Facts {
    fn preemption(&self) -> String {
        if self.realtime.trim() == "1" || self.version.contains("PREEMPT_RT") {
            return "PREEMPT_RT".into();
        }
        let model = self.chosen_model();
        match (self.version.contains("PREEMPT_DYNAMIC"), model) {
            (true, Some(model)) => format!("PREEMPT_DYNAMIC, now {model} (not PREEMPT_RT)"),
            (true, None) => "PREEMPT_DYNAMIC, unknown model (not PREEMPT_RT)".into(),
            (false, Some(model)) => format!("{model} (not PREEMPT_RT)"),
            (false, None) if self.version.contains("PREEMPT") => "full (not PREEMPT_RT)".into(),
            (false, None) => "unknown (not PREEMPT_RT)".into(),
        }
    }

    fn chosen_model(&self) -> Option<&str> {
        let bracketed = self.chosen.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        let at_boot = || self.boot.split_whitespace().find_map(|it| it.strip_prefix("preempt="));
        bracketed.map(|(model, _)| model).or_else(at_boot).or_else(|| self.built_in())
    }

    fn built_in(&self) -> Option<&'static str> {
        let models = [
            ("CONFIG_PREEMPT_NONE=y", "none"),
            ("CONFIG_PREEMPT_VOLUNTARY=y", "voluntary"),
            ("CONFIG_PREEMPT_LAZY=y", "lazy"),
            ("CONFIG_PREEMPT=y", "full"),
        ];
        let is_set = |option: &str| self.config.lines().any(|line| line == option);
        models.into_iter().find(|(option, _)| is_set(option)).map(|(_, model)| model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_kernel_has_the_model_chosen_last() {
        let mut facts = Facts {
            version: "#1 SMP PREEMPT_DYNAMIC".into(),
            config: "CONFIG_PREEMPT_NONE=y\n# CONFIG_PREEMPT is not set\n".into(),
            ..Facts::default()
        };
        assert_eq!(facts.preemption(), "PREEMPT_DYNAMIC, now none (not PREEMPT_RT)");
        facts.boot = "quiet preempt=full".into();
        assert_eq!(facts.preemption(), "PREEMPT_DYNAMIC, now full (not PREEMPT_RT)");
        facts.chosen = "none (voluntary) full".into();
        assert_eq!(facts.preemption(), "PREEMPT_DYNAMIC, now voluntary (not PREEMPT_RT)");
    }

    #[test]
    fn a_real_time_kernel_says_so() {
        let version = "#1 SMP PREEMPT_RT Debian".into();
        assert_eq!(Facts { version, ..Facts::default() }.preemption(), "PREEMPT_RT");
        assert_eq!(Facts::default().preemption(), "unknown (not PREEMPT_RT)");
    }

    #[test]
    fn entries_of_proc_are_found() {
        assert_eq!(entry("a : 1\nmodel name\t: X 5\n", "model name").unwrap(), "X 5");
        assert_eq!(megabytes("24684000 kB"), 25_276);
    }
}
