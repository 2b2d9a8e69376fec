// SPDX-License-Identifier: Apache-2.0
//! The difference between the running configuration and another one. Pure: no I/O.

use super::changes::{Change, Changes, Detail, Kind};
use crate::config::{Config, Fixed, Group, Member};

/// A difference that only a restart applies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key}: found {found}; allowed while the daemon runs: {allowed}. To apply the change, restart \
     the daemon"
)]
pub struct NeedsRestart {
    /// Path of the key in the file.
    pub key: String,
    /// The value in the new configuration.
    pub found: String,
    /// The value in the running configuration.
    pub allowed: String,
}

/// Returns the changes that turn `old` into `new`. The error lists every difference that needs a
/// restart.
pub fn difference(old: &Config, new: &Config) -> Result<Changes, Vec<NeedsRestart>> {
    let fixed = new.entries.fixed.iter().filter_map(|entry| {
        let running = old.entries.fixed.iter().find(|running| running.key == entry.key)?;
        needs_restart(running, entry)
    });
    let fixed: Vec<NeedsRestart> = fixed.collect();
    if !fixed.is_empty() {
        return Err(fixed);
    }
    let mut all = Changes::default();
    for (old, new) in old.entries.groups.iter().zip(&new.entries.groups) {
        all.compare(old, new);
    }
    Ok(all)
}

fn needs_restart(running: &Fixed, new: &Fixed) -> Option<NeedsRestart> {
    let (found, allowed) = match running.shown == new.shown {
        true => ("another value", "the running value"),
        false => (&*new.shown, &*running.shown),
    };
    (running.compared != new.compared).then(|| NeedsRestart {
        key: new.key.clone(),
        found: found.into(),
        allowed: allowed.into(),
    })
}

impl Changes {
    fn compare(&mut self, old: &Group, new: &Group) {
        let what = new.what;
        let same = |a: &Member, b: &Member| a.identity == b.identity;
        let is_gone = |it: &&Member| !new.members.iter().any(|other| same(it, other));
        for gone in old.members.iter().filter(is_gone) {
            self.add(what, &gone.name, Kind::Removed, Vec::new());
        }
        for entry in &new.members {
            match old.members.iter().find(|other| same(entry, other)) {
                None => self.add(what, &entry.name, Kind::Added, Vec::new()),
                Some(known) if known.keys != entry.keys => {
                    self.add(what, &entry.name, Kind::Changed, details(known, entry));
                }
                Some(_) => {}
            }
        }
        let (before, after) = (common_names(old, new), common_names(new, old));
        if new.is_ordered && before != after {
            let (before, after) = (before.join(", "), after.join(", "));
            let detail = Detail { key: "order".into(), before, after };
            self.add(what, "rules", Kind::Changed, vec![detail]);
        }
    }

    fn add(&mut self, what: &str, name: &str, kind: Kind, details: Vec<Detail>) {
        self.changes.push(Change { what: what.into(), name: name.into(), kind, details });
    }
}

/// Returns the keys whose values differ in two versions of an entry.
fn details(before: &Member, after: &Member) -> Vec<Detail> {
    let value = |member: &Member, key| {
        let found = member.keys.iter().find(|(other, _)| *other == key);
        found.map_or_else(|| "none".to_owned(), |(_, value)| value.clone())
    };
    let mut keys: Vec<&str> = before.keys.iter().map(|(key, _)| *key).collect();
    keys.extend(after.keys.iter().map(|(key, _)| *key));
    let mut seen = std::collections::BTreeSet::new();
    keys.retain(|key| seen.insert(*key));
    let details = keys.into_iter().map(|key| Detail {
        key: key.into(),
        before: value(before, key),
        after: value(after, key),
    });
    details.filter(|detail| detail.before != detail.after).collect()
}

/// Returns the names of the entries that both groups have, in the order of the first group.
fn common_names<'g>(group: &'g Group, other: &Group) -> Vec<&'g str> {
    let is_common = |name: &&str| other.members.iter().any(|member| member.name == *name);
    group.members.iter().map(|member| &*member.name).filter(is_common).collect()
}
