// SPDX-License-Identifier: Apache-2.0
//! Named network namespaces (ip-netns(8)), and work done inside them.

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// Settings of every namespace; a kernel without IPv6 lacks some of them.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // A relay sends a packet through the radio that received it; no ICMP redirect is useful.
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
];

/// Namespaces that are removed together.
#[derive(Default)]
pub struct Namespaces {
    names: Vec<String>,
}

impl Namespaces {
    /// Creates one namespace for each name, without IPv6 and with IP forwarding.
    pub fn new(names: Vec<String>) -> Result<Self> {
        let mut made = Self::default();
        let lines: String = names.iter().map(|name| format!("netns add {name}\n")).collect();
        // From here on a failure removes the namespaces already created.
        made.names = names;
        batch(&[], &lines)?;
        for name in &made.names {
            enter(name, settle)?;
        }
        Ok(made)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let lines: String = self.names.iter().map(|name| format!("netns del {name}\n")).collect();
        // If removal fails, the namespaces end with the enclosure.
        let _ = batch(&["-force"], &lines);
    }
}

fn settle() -> Result<()> {
    for (key, value) in SETTINGS {
        let path = format!("/proc/sys/net/{key}");
        match std::fs::write(&path, value) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot write {value} to {path}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs a task on a thread inside a namespace. Sockets opened there stay in that namespace.
pub fn enter<T: Send>(name: &str, task: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let path = format!("/run/netns/{name}");
    let place = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    let inside = || {
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("cannot enter network namespace '{name}'"))?;
        task()
    };
    let outcome = std::thread::scope(|scope| scope.spawn(inside).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns a command that runs `program` in a namespace.
pub fn command(name: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{name}")).arg("--").arg(program);
    command
}

/// Runs `ip` once with a batch of commands, one per line.
pub fn batch(options: &[&str], lines: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(options).args(["-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn();
    let mut running = running.context("cannot start ip (package iproute2)")?;
    let mut input = running.stdin.take().context("no standard input")?;
    // If the program ends before it has read everything, its stderr states the reason.
    let _ = input.write_all(lines.as_bytes());
    drop(input);
    let output = running.wait_with_output()?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", explain(&String::from_utf8_lossy(&output.stderr), lines));
    }
    Ok(())
}

/// Returns the error text and the line that it refers to (`Command failed -:3`).
fn explain(complaint: &str, lines: &str) -> String {
    let number = complaint.lines().find_map(|line| line.strip_prefix("Command failed -:"));
    let number = number.and_then(|number| number.trim().parse::<usize>().ok());
    let line = number.and_then(|number| lines.lines().nth(number.checked_sub(1)?));
    format!("{} (in '{}')", complaint.trim(), line.unwrap_or("its batch"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_batch_quotes_the_line() {
        let said = "RTNETLINK answers: File exists\nCommand failed -:2\n";
        let explained = explain(said, "link add a type bridge\nlink add b type bridge\n");
        assert!(explained.ends_with("(in 'link add b type bridge')"), "{explained}");
        assert!(explain("", "").contains("its batch"));
    }
}
