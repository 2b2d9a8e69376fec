// SPDX-License-Identifier: Apache-2.0
//! Robot and base with their masters, joined by 6 Mbps, on the first processor; and an attacker.

use super::super::case::Bound;
use super::super::ros::{Middleware, Ros, RosProgram};
use super::super::world::{Computer, Link, LinkLimits, Pair};
use super::attacker::Attacker;
use crate::air::kernel::punctual::{Confined, processors};
use crate::processes::Process;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_proto::PublicKey;

/// Numbers of the daemons.
pub const ROBOT: usize = 0;
pub const BASE: usize = 1;
pub const NAMES: [&str; 2] = ["robot", "base"];

/// Counted time of a phase: 500 scans.
pub const COUNTED: Duration = Duration::from_secs(10);
/// The attacker is under way before what is measured.
pub const LEAD: Duration = Duration::from_millis(500);
/// P99 of a flow, of its median without an attack in the same run.
pub const TIMES_QUIET: Bound = Bound::AtMost(1.5);
/// Messages of a flow, percent of those sent.
pub const RECEIVED: Bound = Bound::AtLeast(100.0);

const LINK: Link = Link::Wire(LinkLimits { rate_bps: Some(6_000_000), loss: 0.0 });

/// What is there before any daemon. Fields end in this order.
pub struct Ground {
    _masters: [Process; 2],
    /// Beside the two.
    pub attacker: Attacker,
    /// The two.
    pub pair: Pair,
    _confined: Confined,
}

impl Ground {
    /// Starts everything, on the processor of the victims.
    pub fn new(folder: &Path) -> Result<Self> {
        // Threads and programs inherit where this one may run.
        let [victims, attacker] = processors()?[..] else {
            bail!("found one processor; the attacker needs another");
        };
        let confined = Confined::to(victims)?;
        let pair = Pair::new(LINK, 0)?;
        let attacker = Attacker::new(&[&pair.robot, &pair.base], attacker)?;
        let roscore = |computer| program(computer, folder).roscore();
        let masters = [roscore(&pair.robot)?, roscore(&pair.base)?];
        Ok(Self { _masters: masters, attacker, pair, _confined: confined })
    }

    /// [`ROBOT`] or [`BASE`].
    pub fn computer(&self, number: usize) -> &Computer {
        if number == ROBOT { &self.pair.robot } else { &self.pair.base }
    }
}

/// A program of ROS 1 on a computer with a master of its own.
pub fn program<'a>(computer: &'a Computer, folder: &'a Path) -> RosProgram<'a> {
    RosProgram { computer, middleware: Middleware::own(Ros::One), folder }
}

/// The public key that a daemon says it has.
pub fn key(status: &Value) -> Result<PublicKey> {
    let key = status["key"].as_str().context("no key in status")?;
    key.parse().with_context(|| format!("found the key '{key}' in status"))
}

/// Packets that a daemon says it refused, by reason.
pub fn refused(status: &Value) -> BTreeMap<String, u64> {
    let all = status["packets_refused"].as_object().into_iter().flatten();
    all.filter_map(|(reason, count)| Some((reason.clone(), count.as_u64()?))).collect()
}

/// The same since it was as `before`.
pub fn refused_since(status: &Value, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut refused = refused(status);
    for (reason, count) in &mut refused {
        *count = count.saturating_sub(before.get(reason).copied().unwrap_or(0));
    }
    refused.retain(|_, count| *count > 0);
    refused
}

/// Replaces a text in the base's file, which has to have it.
pub fn edit_base(folder: &Path, before: &str, after: &str) -> Result<()> {
    let file = folder.join("base.yaml");
    let text = std::fs::read_to_string(&file)?;
    ensure!(text.contains(before), "no '{before}' in {}", file.display());
    std::fs::write(&file, text.replacen(before, after, 1))?;
    Ok(())
}

/// Makes a folder for what one phase writes.
pub fn subfolder(folder: &Path, name: &str) -> Result<PathBuf> {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
