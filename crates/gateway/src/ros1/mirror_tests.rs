// SPDX-License-Identifier: Apache-2.0
//! Copies of parameters, without a master.

use super::*;

const PERIOD: Duration = Duration::from_secs(2);

fn parameters(all: &[(&str, i64)]) -> Parameters {
    all.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

fn master_parameters(all: &[(&str, i64)]) -> MasterParameters {
    parameters(all).into_iter().map(|(name, value)| (name, Some(value))).collect()
}

fn set(name: &str, value: i64) -> Change {
    Change::Set(name.into(), json!(value))
}

fn finished_job(prefix: &str) -> Mirrored {
    let (changed, trouble) = (Parameters::new(), String::new());
    Mirrored { prefix: prefix.into(), changed, trouble, error: None }
}

/// Ends the jobs that start now as if they had these copies.
fn finish(mirrors: &mut Mirrors, now: Instant, expected: &[(&str, &[(&str, i64)])]) {
    let jobs = mirrors.start_due_jobs(now);
    let prefixes: Vec<&str> = jobs.iter().map(|(_, job)| job.prefix.as_str()).collect();
    assert!(prefixes.iter().eq(expected.iter().map(|(prefix, _)| prefix)), "{prefixes:?}");
    for ((peer, job), (prefix, ours)) in jobs.iter().zip(expected) {
        lock(&job.copies).ours = parameters(ours);
        mirrors.on_job_done(*peer, finished_job(prefix), PERIOD, now);
    }
}

#[test]
fn parameters_under_an_earlier_prefix_are_removed() {
    let (mut mirrors, begin) = (Mirrors::default(), Instant::now());
    // Names elsewhere and marks are not shown.
    let mark = format!("/r/{MARK}");
    let all = parameters(&[("/r/a", 1), ("/q", 2), ("/rest", 3), (&mark, 4)]);
    mirrors.set(1, "/r".into(), Some(all));
    assert_eq!(mirrors.0.values().next().unwrap().wanted, parameters(&[("/r/a", 1)]));
    finish(&mut mirrors, begin, &[("/r", &[("/r/a", 1)])]);
    mirrors.set(1, "/s".into(), Some(parameters(&[("/s/a", 1)])));
    finish(&mut mirrors, begin + PERIOD, &[("/r", &[]), ("/s", &[("/s/a", 1)])]);
    finish(&mut mirrors, begin + 2 * PERIOD, &[("/s", &[("/s/a", 1)])]);
    mirrors.set(1, String::new(), None);
    finish(&mut mirrors, begin + 3 * PERIOD, &[("/s", &[])]);
    assert!(mirrors.start_due_jobs(begin + 4 * PERIOD).is_empty() && mirrors.0.is_empty());
}

#[test]
fn new_and_withdrawn_lists_do_not_shorten_the_period() {
    let (mut mirrors, begin) = (Mirrors::default(), Instant::now());
    let list = |value| Some(parameters(&[("/r/a", value)]));
    let mut started = 0;
    for tenth in 0..100 {
        let now = begin + PERIOD * tenth / 10;
        mirrors.set(1, "/r".into(), list(i64::from(tenth)));
        for (peer, job) in mirrors.start_due_jobs(now) {
            // Half of these leave nothing at the master.
            lock(&job.copies).ours = if started % 2 == 0 { job.wanted } else { Parameters::new() };
            mirrors.on_job_done(peer, finished_job("/r"), PERIOD, now);
            started += 1;
        }
        mirrors.set(1, String::new(), None);
        assert!(mirrors.start_due_jobs(now).is_empty());
    }
    assert_eq!(started, 10);
    // A comparison that takes longer than the period is followed by a pause.
    let slow = begin + 20 * PERIOD;
    mirrors.set(1, "/r".into(), list(1));
    assert_eq!(mirrors.start_due_jobs(slow).len(), 1);
    mirrors.on_job_done(1, finished_job("/r"), PERIOD, slow + 3 * PERIOD);
    assert!(mirrors.start_due_jobs(slow + 5 * PERIOD).is_empty());
    assert_eq!(mirrors.start_due_jobs(slow + 6 * PERIOD).len(), 1);
}

#[test]
fn only_our_copies_of_parameters_are_changed_or_removed() {
    let found =
        master_parameters(&[("/r/local", 1), ("/r/ours", 2), ("/r/gone", 3), ("/r/same", 4)]);
    let wanted = parameters(&[("/r/local", 9), ("/r/ours", 8), ("/r/same", 4), ("/r/new", 5)]);
    let mut ours = parameters(&[("/r/ours", 2), ("/r/gone", 3)]);
    let expected = [set("/r/new", 5), set("/r/ours", 8), Change::Delete("/r/gone".into())];
    assert_eq!(plan_changes(&found, &wanted, &mut ours), expected);
    assert!(!ours.contains_key("/r/same"), "a local program has set it");
    assert!(!ours.contains_key("/r/local"));
    let mut copies = Copies::default();
    copies.adopt(&found, &wanted);
    assert_eq!(copies.ours, parameters(&[("/r/same", 4)]));
}

#[test]
fn local_changes_are_reverted_except_at_the_end() {
    let wanted = parameters(&[("/r/a", 1), ("/r/b", 2)]);
    let mut ours = wanted.clone();
    let found = master_parameters(&[("/r/a", 7)]);
    assert_eq!(plan_changes(&found, &wanted, &mut ours), [set("/r/a", 1), set("/r/b", 2)]);
    assert_eq!(plan_changes(&found, &Parameters::new(), &mut ours), []);
    assert!(ours.is_empty());
}

#[test]
fn a_change_is_kept_until_the_peer_or_the_program_reverts_it() {
    let (ours, now) = (parameters(&[("/r/a", 1), ("/r/b", 2)]), Instant::now());
    let mut changed = LocalChanges::new();
    let mut follow = |all: &[(&str, i64)], wanted: &[(&str, i64)]| {
        let (all, wanted) = (master_parameters(all), parameters(wanted));
        let new_values = follow_changes(&all, &wanted, &ours, &mut changed, now);
        (changed.keys().cloned().collect::<Vec<_>>(), new_values.into_keys().collect::<Vec<_>>())
    };
    let own = [("/r/a", 1), ("/r/b", 2)];
    let (none, a) = (Vec::<String>::new(), vec!["/r/a".to_owned()]);
    let nothing = || (none.clone(), none.clone());
    assert_eq!(follow(&[("/r/a", 1), ("/r/b", 2), ("/r/local", 5)], &own), nothing());
    assert_eq!(follow(&[("/r/a", 7), ("/r/b", 2)], &own), (a.clone(), a.clone()));
    assert_eq!(follow(&[("/r/a", 7), ("/r/b", 2)], &own), (a.clone(), none.clone()), "no news");
    assert_eq!(follow(&[("/r/a", 7)], &[("/r/a", 7), ("/r/b", 2)]), nothing(), "the peer has it");
    assert_eq!(follow(&[("/r/a", 8)], &own), (a.clone(), a.clone()));
    assert_eq!(follow(&[("/r/a", 9)], &own), (a.clone(), a), "another value");
    assert_eq!(follow(&[("/r/a", 1)], &own), nothing(), "the program has undone it");
    assert_eq!(follow(&[("/r/a", 1)], &[("/r/a", 3)]), nothing(), "the peer has changed it");
}

#[test]
fn a_prefix_is_removed_at_once_only_if_it_contains_only_our_copies() {
    let ours = parameters(&[("/r/a", 1), ("/r/b", 2)]);
    let all = |more: &[(&str, Option<Json>)]| {
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let found =
            master_parameters(&[("/r/a", 1), ("/r/b", 2)]).into_iter().chain(more).collect();
        plan_changes(&found, &Parameters::new(), &mut ours.clone())
    };
    assert_eq!(all(&[]), [Change::DeleteAll]);
    let each = ["/r/a", "/r/b"].map(|name| Change::Delete(name.into()));
    assert_eq!(all(&[("/r/local", Some(json!(3)))]), each);
    assert_eq!(all(&[("/r/binary", None)]), each, "a value that JSON lacks");
}

#[test]
fn a_namespace_of_local_parameters_is_not_replaced() {
    let mut found = master_parameters(&[("/r/a/b", 1), ("/r/c", 2)]);
    found.insert("/r/binary".into(), None);
    let wanted = parameters(&[("/r/a", 1), ("/r/c/d", 2), ("/r/ab", 3), ("/r/binary", 4)]);
    assert_eq!(plan_changes(&found, &wanted, &mut Parameters::new()), [set("/r/ab", 3)]);
    // Nor is it replaced if the value there was ours.
    let mut ours = wanted.clone();
    ours.remove("/r/binary");
    assert_eq!(plan_changes(&found, &wanted, &mut ours), [set("/r/ab", 3)]);
    assert_eq!(ours, parameters(&[("/r/ab", 3)]));
}

#[test]
fn parameter_trees_become_names_and_values() {
    let tree = |all: Vec<(&str, Value)>| {
        Value::Struct(all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let camera = tree(vec![
        ("rate", Value::Double(2.0)),
        ("x", Value::Integer(3)),
        ("binary", Value::Base64(vec![1])),
    ]);
    let copies = tree(vec![("p", Value::Integer(1)), (MARK, Value::String("/tautline".into()))]);
    let all = tree(vec![("camera", camera), ("r2", copies)]);
    let expected = Parameters::from([
        ("/camera/rate".to_owned(), json!(2.0)),
        ("/camera/x".to_owned(), json!(3)),
    ]);
    assert_eq!(own_parameters(Some(&all)), expected);
    let mut found = MasterParameters::new();
    collect(&all, "/r", 0, &mut found);
    let names = ["/r/camera/binary", "/r/camera/rate", "/r/camera/x", "/r/r2"];
    assert!(found.keys().eq(names) && found["/r/r2"].is_none());
    for (_, value) in expected {
        assert_eq!(xml_value(&value).and_then(|it| json_value(&it)), Some(value));
    }
}
