// SPDX-License-Identifier: Apache-2.0
//! Parameters of peers at this master, each under its peer's prefix. A parameter that a local program
//! has set there stays as it is. If a local program changes one that we have set, the peer is asked to
//! set it. If the peer does not show the new value in time, the old value is put back.
//!
//! A further parameter under the prefix, the mark [`MARK`], has the name and the address of the daemon
//! that keeps the copies. It is written before them and deleted after them. No daemon offers what is
//! under a marked prefix to peers. If the mark is gone, so are the copies: the master is a new one.
//! A mark with our name and another address is from before a crash.

use super::master::Master;
use super::shown::for_logs;
use super::xmlrpc::CallError;
use crate::description::Parameters;
use crate::lock::lock;
use crate::names::is_below;
use dxr::Value;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Time in which the peer has to show a value that a local program has set here.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(6);
/// Maximum number of levels of a parameter's name.
const MAX_LEVELS: usize = 32;
/// The parameter that marks a prefix with copies.
pub(super) const MARK: &str = "tautline_copies_of";

/// The parameters of all peers, by their numbers and prefixes: those under an earlier prefix are being
/// removed.
#[derive(Debug, Default)]
pub(super) struct Mirrors(BTreeMap<(u32, String), Mirror>);

#[derive(Debug, Default)]
struct Mirror {
    wanted: Parameters,
    copies: Arc<Mutex<Copies>>,
    /// The start of the last comparison, and the earliest time of the next one.
    started: Option<Instant>,
    next: Option<Instant>,
    is_running: bool,
    is_removed: bool,
    /// Why there can be no copies, as text for a person; empty if there can.
    trouble: String,
}

/// The known copies at the master. A running comparison updates it with each call.
#[derive(Debug, Default)]
struct Copies {
    /// The copies as last written by us.
    ours: Parameters,
    /// Values that local programs have set, and the time of each change.
    changed: LocalChanges,
    /// Whether the mark was ours since this program has started.
    had_mark: bool,
}

/// One comparison of a peer's parameters with those at the master.
pub(super) struct Job {
    prefix: String,
    wanted: Parameters,
    copies: Arc<Mutex<Copies>>,
}

type LocalChanges = BTreeMap<String, (Json, Instant)>;
/// Parameters at the master; `None`: a value that JSON cannot express, or a prefix with copies.
type MasterParameters = BTreeMap<String, Option<Json>>;

/// The result of a job.
pub(super) struct Mirrored {
    prefix: String,
    /// Parameters that local programs have changed since the previous comparison.
    pub changed: Parameters,
    trouble: String,
    pub error: Option<CallError>,
}

impl Mirrors {
    /// Sets the parameters of a peer to show. The new list waits for the next comparison, so that no peer
    /// can keep the master busy.
    pub fn set(&mut self, peer: u32, prefix: String, parameters: Option<Parameters>) {
        for mirror in self.0.iter_mut().filter(|(key, _)| key.0 == peer).map(|(_, it)| it) {
            mirror.is_removed = true;
            mirror.wanted.clear();
            mirror.trouble.clear();
        }
        if let Some(mut wanted) = parameters {
            let below = format!("{prefix}/");
            wanted.retain(|name, _| name.starts_with(&below) && !has_mark(name));
            let mirror = self.0.entry((peer, prefix)).or_default();
            (mirror.is_removed, mirror.wanted) = (false, wanted);
        }
    }

    /// Starts the comparisons that are due.
    pub fn start_due_jobs(&mut self, now: Instant) -> Vec<(u32, Job)> {
        let is_due = |it: &Mirror| !it.is_running && it.next.is_none_or(|next| next <= now);
        // A peer that withdraws its list and shows it again has to wait, too.
        self.0.retain(|_, it| !(it.is_removed && is_due(it) && lock(&it.copies).ours.is_empty()));
        let mut jobs = Vec::new();
        for ((peer, prefix), mirror) in self.0.iter_mut().filter(|(_, it)| is_due(it)) {
            (mirror.started, mirror.is_running) = (Some(now), true);
            jobs.push((*peer, mirror.job(prefix)));
        }
        jobs
    }

    /// Ends a comparison. The next one starts at least `period` after this one started. Long lists keep
    /// the master busy, so the pause is at least as long as the comparison.
    pub fn on_job_done(&mut self, peer: u32, done: Mirrored, period: Duration, now: Instant) {
        let Some(mirror) = self.0.get_mut(&(peer, done.prefix)) else { return };
        mirror.is_running = false;
        if done.error.is_none() && !mirror.is_removed {
            mirror.trouble = done.trouble;
        }
        mirror.next = mirror.started.map(|at| at + period.max(2 * now.duration_since(at)));
    }

    /// Why the parameters of peers are not shown; or empty.
    pub fn trouble(&self) -> String {
        let troubles = self.0.values().map(|it| it.trouble.as_str()).filter(|it| !it.is_empty());
        troubles.collect::<Vec<_>>().join("; ")
    }

    /// Removes everything that we have written, by one concurrent job for each peer and prefix.
    pub async fn remove_all(&mut self, master: &Arc<Master>) {
        let mut jobs = JoinSet::new();
        for ((_, prefix), mut mirror) in std::mem::take(&mut self.0) {
            mirror.wanted.clear();
            let (job, master) = (mirror.job(&prefix), master.clone());
            jobs.spawn(async move { job.run(&master).await });
        }
        while let Some(done) = jobs.join_next().await {
            if let Ok(Mirrored { prefix, error: Some(error), .. }) = done {
                tracing::warn!(prefix, %error, "copies of parameters are still at the ROS master");
            }
        }
    }
}

impl Mirror {
    fn job(&self, prefix: &str) -> Job {
        let (wanted, copies) = (self.wanted.clone(), self.copies.clone());
        Job { prefix: prefix.into(), wanted, copies }
    }
}

/// A call of the master.
#[derive(Debug, PartialEq)]
enum Change {
    Set(String, Json),
    Delete(String),
    /// All parameters under the prefix are ours, and none is wanted.
    DeleteAll,
}

impl Job {
    pub async fn run(self, master: &Master) -> Mirrored {
        let mut changed = Parameters::new();
        let (trouble, error) = match self.try_run(master, &mut changed).await {
            Ok(trouble) => (trouble, None),
            Err(error) => (String::new(), Some(error)),
        };
        Mirrored { prefix: self.prefix, changed, trouble, error }
    }

    /// Returns why there can be no copies; empty if there can.
    async fn try_run(
        &self,
        master: &Master,
        new_values: &mut Parameters,
    ) -> Result<String, CallError> {
        let tree = master.parameters(&self.prefix).await?;
        let mut found = MasterParameters::new();
        tree.iter().for_each(|it| collect(it, &self.prefix, 0, &mut found));
        let (mark, own) = (format!("{}/{MARK}", self.prefix), master.own_node());
        let ours = format!("{} {}", own.name, own.uri);
        let is_first = !lock(&self.copies).had_mark;
        match found.remove(&mark).map(mark_text) {
            Some(text) if text == ours => {}
            Some(text) if is_first && text.split(' ').next() == Some(&own.name) => {
                lock(&self.copies).adopt(&found, &self.wanted);
                master.set_parameter(&mark, Value::String(ours)).await?;
            }
            Some(other) => {
                lock(&self.copies).forget();
                let owner = for_logs(&other);
                return Ok(self.not_shown(&format!("the daemon {owner} has copies there")));
            }
            None => {
                lock(&self.copies).forget();
                if self.wanted.is_empty() {
                    return Ok(String::new());
                }
                if let Some(name) = self.blocking_name(master, &found, tree.is_some()).await? {
                    return Ok(self.not_shown(&format!("{name} is local")));
                }
                master.set_parameter(&mark, Value::String(ours)).await?;
            }
        }
        lock(&self.copies).had_mark = true;
        let changes = lock(&self.copies).compare(&found, &self.wanted, new_values);
        for change in changes {
            self.apply(change, master).await?;
        }
        if self.wanted.is_empty() && lock(&self.copies).ours.is_empty() {
            master.delete_parameter(&mark).await?;
        }
        Ok(String::new())
    }

    fn not_shown(&self, reason: &str) -> String {
        format!("parameters of a peer are not shown under {}: {reason}", self.prefix)
    }

    /// Returns the prefix, or a namespace above it, if that has a value. The master would replace the value.
    async fn blocking_name(
        &self,
        master: &Master,
        found: &MasterParameters,
        is_there: bool,
    ) -> Result<Option<String>, CallError> {
        if is_blocked(found, &format!("{}/{MARK}", self.prefix)) {
            return Ok(Some(self.prefix.clone()));
        }
        for (at, _) in self.prefix.match_indices('/').skip(1).filter(|_| !is_there) {
            let name = &self.prefix[..at];
            if master.parameters(name).await?.is_some_and(|it| !is_struct(&it)) {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    async fn apply(&self, change: Change, master: &Master) -> Result<(), CallError> {
        match change {
            Change::Set(name, value) => {
                let Some(to) = xml_value(&value) else { return Ok(()) };
                // Before the call: a call that fails may have had its effect.
                lock(&self.copies).ours.insert(name.clone(), value);
                master.set_parameter(&name, to).await
            }
            Change::Delete(name) => {
                master.delete_parameter(&name).await?;
                lock(&self.copies).ours.remove(&name);
                Ok(())
            }
            Change::DeleteAll => {
                master.delete_parameter(&self.prefix).await?;
                lock(&self.copies).ours.clear();
                Ok(())
            }
        }
    }
}

impl Copies {
    fn forget(&mut self) {
        self.ours.clear();
        self.changed.clear();
    }

    /// Takes over copies from before a crash of this program.
    fn adopt(&mut self, found: &MasterParameters, wanted: &Parameters) {
        let same = wanted.iter().filter(|(name, value)| has_value(found, name, value));
        self.ours = same.map(|(name, value)| (name.clone(), value.clone())).collect();
    }

    /// The calls that give the copies their wanted values; `new_values` are new values of local programs.
    fn compare(
        &mut self,
        found: &MasterParameters,
        wanted: &Parameters,
        new_values: &mut Parameters,
    ) -> Vec<Change> {
        let now = Instant::now();
        *new_values = follow_changes(found, wanted, &self.ours, &mut self.changed, now);
        let is_over = |since: &Instant| now.duration_since(*since) >= CONFIRM_TIMEOUT;
        let mut wanted = wanted.clone();
        for (name, (value, _)) in self.changed.iter().filter(|(_, (_, since))| !is_over(since)) {
            // The peer is treated as if it had the new value already.
            wanted.insert(name.clone(), value.clone());
        }
        self.changed.retain(|_, (_, since)| !is_over(since));
        plan_changes(found, &wanted, &mut self.ours)
    }
}

/// Follows what local programs have set in place of our values; returns what is new.
fn follow_changes(
    found: &MasterParameters,
    wanted: &Parameters,
    ours: &Parameters,
    changed: &mut LocalChanges,
    now: Instant,
) -> Parameters {
    changed.retain(|name, (value, _)| {
        has_value(found, name, value) && wanted.get(name).is_some_and(|it| it != value)
    });
    let mut new_values = Parameters::new();
    for (name, value) in found.iter().filter_map(|(name, it)| Some((name, it.as_ref()?))) {
        let (our, peers) = (ours.get(name), wanted.get(name));
        let is_changed = our.is_some_and(|it| it != value) && peers.is_some_and(|it| it != value);
        if is_changed && !changed.contains_key(name) {
            changed.insert(name.clone(), (value.clone(), now));
            new_values.insert(name.clone(), value.clone());
        }
    }
    new_values
}

fn has_value(found: &MasterParameters, name: &str, value: &Json) -> bool {
    found.get(name).is_some_and(|it| it.as_ref() == Some(value))
}

/// Sets parameters of this robot that exist and are no namespaces: a peer's value does not replace a
/// namespace. Copies that other daemons keep do not belong to this robot.
pub(super) async fn set_existing(master: &Master, parameters: Parameters) -> Result<(), CallError> {
    for (name, value) in parameters {
        let is_there = matches!(master.parameters(&name).await?, Some(it) if !is_struct(&it));
        if let Some(to) = xml_value(&value).filter(|_| is_there)
            && !is_copy(master, &name).await?
        {
            master.set_parameter(&name, to).await?;
        }
    }
    Ok(())
}

/// Whether a namespace above the parameter is marked.
async fn is_copy(master: &Master, name: &str) -> Result<bool, CallError> {
    for (at, _) in name.match_indices('/').skip(1) {
        if master.parameters(&format!("{}/{MARK}", &name[..at])).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn mark_text(value: Option<Json>) -> String {
    value.as_ref().and_then(Json::as_str).unwrap_or("unknown").to_owned()
}

fn is_struct(value: &Value) -> bool {
    matches!(value, Value::Struct(_))
}

fn has_mark(name: &str) -> bool {
    name.split('/').any(|it| it == MARK)
}

/// Returns the changes to make at the master.
fn plan_changes(
    found: &MasterParameters,
    wanted: &Parameters,
    ours: &mut Parameters,
) -> Vec<Change> {
    // A parameter is no namespace, and vice versa: the master would replace one by the other.
    ours.retain(|name, _| found.contains_key(name) || !is_blocked(found, name));
    let mut changes = Vec::new();
    for (name, value) in wanted {
        match found.get(name) {
            Some(_) if !ours.contains_key(name) => {}
            Some(there) if there.as_ref() == Some(value) => {
                ours.insert(name.clone(), value.clone());
            }
            None if is_blocked(found, name) => {}
            _ => changes.push(Change::Set(name.clone(), value.clone())),
        }
    }
    ours.retain(|name, value| wanted.contains_key(name) || has_value(found, name, value));
    let is_ours = |(name, value): (&String, &Option<Json>)| {
        value.as_ref().is_some_and(|value| ours.get(name) == Some(value))
    };
    if wanted.is_empty() && !ours.is_empty() && found.iter().all(is_ours) {
        return vec![Change::DeleteAll];
    }
    let deleted = ours.keys().filter(|name| !wanted.contains_key(*name));
    changes.extend(deleted.map(|name| Change::Delete(name.clone())));
    changes
}

fn is_blocked(found: &MasterParameters, name: &str) -> bool {
    let above = name.match_indices('/').skip(1).any(|(at, _)| found.contains_key(&name[..at]));
    let next = found.range(format!("{name}/")..).next();
    above || next.is_some_and(|(other, _)| is_below(other, name))
}

/// The parameters of this robot in a response of `getParam` for `/`, without copies of peers'
/// parameters, and without those whose type or name JSON or ROS 2 cannot express.
pub(super) fn own_parameters(tree: Option<&Value>) -> Parameters {
    let mut found = MasterParameters::new();
    tree.iter().for_each(|it| collect(it, "", 0, &mut found));
    let plain = found.into_iter().filter(|(name, _)| !has_mark(name));
    plain.filter_map(|(name, value)| Some((name, value?))).collect()
}

fn collect(value: &Value, name: &str, level: usize, found: &mut MasterParameters) {
    match value {
        Value::Struct(members)
            if level < MAX_LEVELS && (level == 0 || !members.contains_key(MARK)) =>
        {
            for (key, member) in members {
                collect(member, &format!("{name}/{key}"), level + 1, found);
            }
        }
        other => {
            found.insert(name.to_owned(), json_value(other));
        }
    }
}

fn json_value(value: &Value) -> Option<Json> {
    match value {
        Value::Integer(number) => Some(json!(number)),
        Value::Boolean(flag) => Some(json!(flag)),
        Value::String(text) => Some(json!(text)),
        Value::Double(number) => number.is_finite().then(|| json!(number)),
        Value::Array(all) => {
            all.iter().map(json_value).collect::<Option<Vec<_>>>().map(Json::Array)
        }
        _ => None,
    }
}

fn xml_value(value: &Json) -> Option<Value> {
    match value {
        Json::Bool(flag) => Some(Value::Boolean(*flag)),
        Json::String(text) => Some(Value::String(text.clone())),
        Json::Number(number) if number.is_f64() => number.as_f64().map(Value::Double),
        Json::Number(number) => number.as_i64()?.try_into().ok().map(Value::Integer),
        Json::Array(all) => all.iter().map(xml_value).collect::<Option<_>>().map(Value::Array),
        Json::Null | Json::Object(_) => None,
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
