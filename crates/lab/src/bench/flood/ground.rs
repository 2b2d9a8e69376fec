// SPDX-License-Identifier: Apache-2.0
//! Robot and base with their masters, connected by 6 Mbps, on the first processor; and an attacker.

use super::attacker::Attacker;
use crate::rig::processes::{Process, make_folder};
use crate::rig::punctual::{Confined, processors};
use crate::rig::verdict::Bound;
pub use crate::setup::daemon::{BASE, NAMES, ROBOT};
use crate::setup::ros;
use crate::setup::world::{Computer, Link, Pair};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_proto::PublicKey;

/// Counted time of a phase: 500 scans.
pub const COUNTED: Duration = Duration::from_secs(10);
/// Time from the start of the attack to the start of the measurement.
pub const LEAD: Duration = Duration::from_millis(500);
/// P99 of a flow, divided by its median without an attack in the same run.
pub const TIMES_QUIET: Bound = Bound::AtMost(1.5);
/// Messages of a flow received, percent of those sent.
pub const RECEIVED: Bound = Bound::AtLeast(100.0);

const LINK: Link = Link::wire(6_000_000);

/// Everything that exists before the daemons. Fields are dropped in this order.
pub struct Ground {
    _masters: Vec<Process>,
    /// Attacker of both computers.
    pub attacker: Attacker,
    /// Robot and base.
    pub pair: Pair,
    _confined: Confined,
}

impl Ground {
    /// Starts everything on the victims' processor.
    pub fn new(folder: &Path) -> Result<Self> {
        // Threads and programs inherit the processor of this thread.
        let [victims, attacker] = processors()?[..] else {
            bail!("found one processor; the attacker needs another");
        };
        let confined = Confined::to(victims)?;
        let pair = Pair::new(LINK, 0)?;
        let attacker = Attacker::new(&[&pair.robot, &pair.base], attacker)?;
        let masters = ros::masters(&pair, folder)?;
        Ok(Self { _masters: masters, attacker, pair, _confined: confined })
    }

    /// Returns the computer [`ROBOT`] or [`BASE`].
    pub fn computer(&self, number: usize) -> &Computer {
        if number == ROBOT { &self.pair.robot } else { &self.pair.base }
    }
}

/// Returns the public key in a daemon's status.
pub fn key(status: &Value) -> Result<PublicKey> {
    let key = status["key"].as_str().context("no key in status")?;
    key.parse().with_context(|| format!("found the key '{key}' in status"))
}

/// Returns the packets that a daemon refused, by reason.
pub fn refused(status: &Value) -> BTreeMap<String, u64> {
    let all = status["packets_refused"].as_object().into_iter().flatten();
    all.filter_map(|(reason, count)| Some((reason.clone(), count.as_u64()?))).collect()
}

/// Returns the packets refused since `before`.
pub fn refused_since(status: &Value, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut refused = refused(status);
    for (reason, count) in &mut refused {
        *count = count.saturating_sub(before.get(reason).copied().unwrap_or(0));
    }
    refused.retain(|_, count| *count > 0);
    refused
}

/// Replaces a text in the base's file; fails if the file does not contain the text.
pub fn edit_base(folder: &Path, before: &str, after: &str) -> Result<()> {
    let file = folder.join("base.yaml");
    let text = std::fs::read_to_string(&file)?;
    ensure!(text.contains(before), "no '{before}' in {}", file.display());
    std::fs::write(&file, text.replacen(before, after, 1))?;
    Ok(())
}

/// Creates a folder for the output of one phase.
pub fn subfolder(folder: &Path, name: &str) -> Result<PathBuf> {
    let folder = folder.join(name);
    make_folder(&folder)?;
    Ok(folder)
}
