// SPDX-License-Identifier: Apache-2.0
//! Parameters of peers at this master, each under its peer's prefix. A parameter that a local program
//! has set there stays as it is. If a local program changes one that we have set, the peer is asked to
//! set it; without its new value from there, it is put back.

use super::master::Master;
use super::xmlrpc::CallError;
use crate::description::Parameters;
use crate::mapping::is_below;
use dxr::Value;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time in which the peer has to show a value that a local program has set here.
const PATIENCE: Duration = Duration::from_secs(6);
/// Deepest level of a parameter's name.
const MAX_LEVELS: usize = 32;

/// The parameters of all peers, by their numbers and prefixes: those under an earlier prefix are being
/// removed.
#[derive(Debug, Default)]
pub(super) struct Mirrors(BTreeMap<(u32, String), Mirror>);

#[derive(Debug, Default)]
struct Mirror {
    wanted: Parameters,
    /// As last written by us.
    ours: Parameters,
    /// Values that local programs have set, and since when.
    changed: Changed,
    checked: Option<Instant>,
    is_running: bool,
    is_removed: bool,
}

/// One comparison of a peer's parameters with those at the master.
pub(super) struct Job {
    prefix: String,
    wanted: Parameters,
    ours: Parameters,
    changed: Changed,
}

type Changed = BTreeMap<String, (Json, Instant)>;

/// The result of a job.
pub(super) struct Mirrored {
    prefix: String,
    ours: Parameters,
    changed: Changed,
    pub error: Option<CallError>,
}

impl Mirrors {
    pub fn set(&mut self, peer: u32, prefix: String, parameters: Option<Parameters>) {
        for mirror in self.0.iter_mut().filter(|(key, _)| key.0 == peer).map(|(_, it)| it) {
            mirror.is_removed = true;
            mirror.wanted.clear();
            mirror.checked = None;
        }
        if let Some(mut wanted) = parameters {
            let below = format!("{prefix}/");
            wanted.retain(|name, _| name.starts_with(&below));
            let mirror = self.0.entry((peer, prefix)).or_default();
            (mirror.is_removed, mirror.wanted, mirror.checked) = (false, wanted, None);
        }
    }

    /// The prefixes of peers whose parameters are shown here; other peers do not get these.
    pub fn prefixes(&self) -> Vec<String> {
        self.0.keys().map(|(_, prefix)| prefix.clone()).collect()
    }

    /// Starts the comparisons that are due.
    pub fn due(&mut self, period: Duration) -> Vec<(u32, Job)> {
        let mut jobs = Vec::new();
        for ((peer, prefix), mirror) in &mut self.0 {
            let is_due = mirror.checked.is_none_or(|at| at.elapsed() >= period);
            if is_due && !mirror.is_running {
                (mirror.checked, mirror.is_running) = (Some(Instant::now()), true);
                let (wanted, ours) = (mirror.wanted.clone(), mirror.ours.clone());
                let (prefix, changed) = (prefix.clone(), mirror.changed.clone());
                jobs.push((*peer, Job { prefix, wanted, ours, changed }));
            }
        }
        jobs
    }

    /// Ends a comparison; returns what local programs have changed since the one before.
    pub fn finish(&mut self, peer: u32, mirrored: Mirrored) -> Parameters {
        let key = (peer, mirrored.prefix);
        let Some(mirror) = self.0.get_mut(&key) else { return Parameters::new() };
        let is_new = |name: &String, (value, _): &(Json, Instant)| {
            mirror.changed.get(name).is_none_or(|(before, _)| before != value)
        };
        let news = mirrored.changed.iter().filter(|(name, it)| is_new(name, it));
        let news = news.map(|(name, (value, _))| (name.clone(), value.clone())).collect();
        (mirror.is_running, mirror.ours) = (false, mirrored.ours);
        mirror.changed = mirrored.changed;
        if mirror.is_removed && mirror.ours.is_empty() {
            self.0.remove(&key);
        }
        news
    }

    /// Removes everything that we have written.
    pub async fn remove_all(&mut self, master: &Arc<Master>) -> Result<(), CallError> {
        for ((_, prefix), Mirror { ours, .. }) in std::mem::take(&mut self.0) {
            let job = Job { prefix, wanted: Parameters::new(), ours, changed: Changed::new() };
            if let Some(error) = job.run(master).await.error {
                return Err(error);
            }
        }
        Ok(())
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
    pub async fn run(mut self, master: &Master) -> Mirrored {
        let error = self.try_run(master).await.err();
        Mirrored { prefix: self.prefix, ours: self.ours, changed: self.changed, error }
    }

    async fn try_run(&mut self, master: &Master) -> Result<(), CallError> {
        let found = master.parameters(&self.prefix).await?;
        let found = leaves(found.as_ref(), &self.prefix, &[]);
        follow_changes(&found, &self.wanted, &self.ours, &mut self.changed, Instant::now());
        let wanted = self.wanted.iter();
        let is_kept = |name: &String| self.changed.get(name).is_some_and(|it| !is_over(it));
        let wanted = wanted.map(|(name, value)| match is_kept(name) {
            // As if the peer had it already.
            true => (name.clone(), self.changed[name].0.clone()),
            false => (name.clone(), value.clone()),
        });
        let wanted: Parameters = wanted.collect();
        self.changed.retain(|_, it| !is_over(it));
        for change in changes(&found, &wanted, &mut self.ours) {
            match change {
                Change::Set(name, value) => {
                    if let Some(to) = xml_value(&value) {
                        master.set_parameter(&name, to).await?;
                        self.ours.insert(name, value);
                    }
                }
                Change::Delete(name) => {
                    master.delete_parameter(&name).await?;
                    self.ours.remove(&name);
                }
                Change::DeleteAll => {
                    master.delete_parameter(&self.prefix).await?;
                    self.ours.clear();
                }
            }
        }
        Ok(())
    }
}

fn is_over((_, since): &(Json, Instant)) -> bool {
    since.elapsed() >= PATIENCE
}

/// Follows what local programs have set in place of our values.
fn follow_changes(
    found: &Parameters,
    wanted: &Parameters,
    ours: &Parameters,
    changed: &mut Changed,
    now: Instant,
) {
    changed.retain(|name, (value, _)| {
        found.get(name) == Some(value) && wanted.get(name).is_some_and(|it| it != value)
    });
    for (name, value) in found {
        let (our, peers) = (ours.get(name), wanted.get(name));
        let is_changed = our.is_some_and(|it| it != value) && peers.is_some_and(|it| it != value);
        if is_changed {
            changed.entry(name.clone()).or_insert_with(|| (value.clone(), now));
        }
    }
}

/// Sets parameters that exist and are no namespaces: a peer's value does not replace one.
pub(super) async fn set_existing(master: &Master, parameters: Parameters) -> Result<(), CallError> {
    for (name, value) in parameters {
        let is_there = matches!(master.parameters(&name).await?, Some(it) if !is_struct(&it));
        if let Some(to) = xml_value(&value).filter(|_| is_there) {
            master.set_parameter(&name, to).await?;
        }
    }
    Ok(())
}

fn is_struct(value: &Value) -> bool {
    matches!(value, Value::Struct(_))
}

/// What to change at the master. A parameter that has the wanted value counts as ours, since it may
/// be from before a restart of this program.
fn changes(found: &Parameters, wanted: &Parameters, ours: &mut Parameters) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, value) in wanted {
        match found.get(name) {
            Some(there) if there == value => drop(ours.insert(name.clone(), value.clone())),
            Some(_) if !ours.contains_key(name) => {}
            // A parameter is no namespace, and vice versa: the master would replace one by the other.
            None if !ours.contains_key(name) && is_in_the_way(found, name) => {}
            _ => changes.push(Change::Set(name.clone(), value.clone())),
        }
    }
    ours.retain(|name, _| wanted.contains_key(name) || found.contains_key(name));
    if wanted.is_empty() && !ours.is_empty() && found == ours {
        return vec![Change::DeleteAll];
    }
    for (name, value) in ours.iter().filter(|(name, _)| !wanted.contains_key(*name)) {
        if found.get(name) == Some(value) {
            changes.push(Change::Delete(name.clone()));
        }
    }
    ours.retain(|name, value| wanted.contains_key(name) || found.get(name) == Some(value));
    changes
}

fn is_in_the_way(found: &Parameters, name: &str) -> bool {
    let above = name.match_indices('/').skip(1).any(|(at, _)| found.contains_key(&name[..at]));
    let next = found.range(format!("{name}/")..).next();
    above || next.is_some_and(|(other, _)| is_below(other, name))
}

/// The parameters in a response of `getParam` for the name `below`, without those under the names
/// `left_out`. Those whose type or name ROS 2 and JSON lack are left out.
pub(super) fn leaves(found: Option<&Value>, below: &str, left_out: &[String]) -> Parameters {
    let mut all = Parameters::new();
    if let Some(found) = found {
        collect(found, below, 0, left_out, &mut all);
    }
    all
}

fn collect(value: &Value, name: &str, level: usize, left_out: &[String], all: &mut Parameters) {
    if left_out.iter().any(|prefix| is_below(name, prefix)) {
        return;
    }
    match value {
        Value::Struct(members) if level < MAX_LEVELS => {
            for (key, member) in members {
                collect(member, &format!("{name}/{key}"), level + 1, left_out, all);
            }
        }
        other => {
            if let Some(plain) = json_value(other) {
                all.insert(name.to_owned(), plain);
            }
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
mod tests {
    use super::*;

    fn parameters(all: &[(&str, i64)]) -> Parameters {
        all.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    }

    fn set(name: &str, value: i64) -> Change {
        Change::Set(name.into(), json!(value))
    }

    #[test]
    fn parameters_under_an_earlier_prefix_are_removed() {
        let mut mirrors = Mirrors::default();
        let finish = |mirrors: &mut Mirrors, done: &[(&str, &[(&str, i64)])]| {
            let jobs = mirrors.due(Duration::ZERO);
            assert_eq!(jobs.len(), done.len());
            for ((peer, job), (prefix, ours)) in jobs.into_iter().zip(done) {
                assert_eq!(job.prefix, *prefix);
                let (prefix, ours, changed) = (job.prefix, parameters(ours), Changed::new());
                mirrors.finish(peer, Mirrored { prefix, ours, changed, error: None });
            }
        };
        // A name elsewhere is not shown.
        let all = parameters(&[("/r/a", 1), ("/q", 2), ("/rest", 3)]);
        mirrors.set(1, "/r".into(), Some(all));
        assert_eq!(mirrors.0.values().next().unwrap().wanted, parameters(&[("/r/a", 1)]));
        finish(&mut mirrors, &[("/r", &[("/r/a", 1)])]);
        mirrors.set(1, "/s".into(), Some(parameters(&[("/s/a", 1)])));
        assert_eq!(mirrors.prefixes(), ["/r", "/s"]);
        finish(&mut mirrors, &[("/r", &[]), ("/s", &[("/s/a", 1)])]);
        assert_eq!(mirrors.prefixes(), ["/s"]);
        mirrors.set(1, String::new(), None);
        finish(&mut mirrors, &[("/s", &[])]);
        assert!(mirrors.prefixes().is_empty());
    }

    #[test]
    fn only_parameters_that_are_ours_are_changed_or_removed() {
        let found = parameters(&[("/r/local", 1), ("/r/ours", 2), ("/r/gone", 3), ("/r/same", 4)]);
        let wanted = parameters(&[("/r/local", 9), ("/r/ours", 8), ("/r/same", 4), ("/r/new", 5)]);
        let mut ours = parameters(&[("/r/ours", 2), ("/r/gone", 3)]);
        let expected = [set("/r/new", 5), set("/r/ours", 8), Change::Delete("/r/gone".into())];
        assert_eq!(changes(&found, &wanted, &mut ours), expected);
        assert_eq!(ours["/r/same"], json!(4), "it is ours now");
        assert!(!ours.contains_key("/r/local"));
    }

    #[test]
    fn what_a_local_program_changes_is_put_back_and_what_it_changes_at_the_end_stays() {
        let wanted = parameters(&[("/r/a", 1), ("/r/b", 2)]);
        let mut ours = wanted.clone();
        let found = parameters(&[("/r/a", 7)]);
        assert_eq!(changes(&found, &wanted, &mut ours), [set("/r/a", 1), set("/r/b", 2)]);
        assert_eq!(changes(&found, &Parameters::new(), &mut ours), []);
        assert!(ours.is_empty());
    }

    #[test]
    fn a_change_counts_until_the_peer_or_the_program_takes_it_back() {
        let (ours, now) = (parameters(&[("/r/a", 1), ("/r/b", 2)]), Instant::now());
        let mut changed = Changed::new();
        let mut follow = |found: &[(&str, i64)], wanted: &[(&str, i64)]| {
            follow_changes(&parameters(found), &parameters(wanted), &ours, &mut changed, now);
            changed.keys().cloned().collect::<Vec<_>>()
        };
        let own = [("/r/a", 1), ("/r/b", 2)];
        assert!(follow(&[("/r/a", 1), ("/r/b", 2), ("/r/local", 5)], &own).is_empty());
        assert_eq!(follow(&[("/r/a", 7), ("/r/b", 2)], &own), ["/r/a"]);
        assert!(follow(&[("/r/a", 7)], &[("/r/a", 7), ("/r/b", 2)]).is_empty(), "the peer has it");
        assert_eq!(follow(&[("/r/a", 8)], &own), ["/r/a"]);
        assert!(follow(&[("/r/a", 1)], &own).is_empty(), "the program has undone it");
        assert!(follow(&[("/r/a", 1)], &[("/r/a", 3)]).is_empty(), "the peer has changed it");
    }

    #[test]
    fn a_prefix_that_is_all_ours_is_removed_at_once() {
        let mut ours = parameters(&[("/r/a", 1), ("/r/b", 2)]);
        let found = ours.clone();
        assert_eq!(changes(&found, &Parameters::new(), &mut ours.clone()), [Change::DeleteAll]);
        let more = parameters(&[("/r/a", 1), ("/r/b", 2), ("/r/local", 3)]);
        let each = ["/r/a", "/r/b"].map(|name| Change::Delete(name.into()));
        assert_eq!(changes(&more, &Parameters::new(), &mut ours), each);
    }

    #[test]
    fn a_namespace_of_local_parameters_is_not_replaced() {
        let found = parameters(&[("/r/a/b", 1), ("/r/c", 2)]);
        let wanted = parameters(&[("/r/a", 1), ("/r/c/d", 2), ("/r/ab", 3)]);
        assert_eq!(changes(&found, &wanted, &mut Parameters::new()), [set("/r/ab", 3)]);
    }

    #[test]
    fn trees_become_names_and_values() {
        let inner = [("rate".to_owned(), Value::Double(2.0)), ("x".to_owned(), Value::Integer(3))];
        let base64 = ("binary".to_owned(), Value::Base64(vec![1]));
        let camera =
            ("camera".to_owned(), Value::Struct(inner.into_iter().chain([base64]).collect()));
        let other = ("r2".to_owned(), Value::Struct([("p".to_owned(), Value::Integer(1))].into()));
        let tree = Value::Struct([camera, other].into());
        let expected = Parameters::from([
            ("/r/camera/rate".to_owned(), json!(2.0)),
            ("/r/camera/x".to_owned(), json!(3)),
        ]);
        assert_eq!(leaves(Some(&tree), "/r", &["/r/r2".to_owned()]), expected);
        for (_, value) in expected {
            assert_eq!(xml_value(&value).and_then(|it| json_value(&it)), Some(value));
        }
    }
}
