// SPDX-License-Identifier: Apache-2.0
//! `tautline doctor` on a robot in a namespace, on which faults are planted. Needs root, nft and iptables,
//! ROS 1 of Debian, and `make ros2`.

#[allow(dead_code)]
mod fake;
#[path = "doctor/rows.rs"]
mod rows;
#[allow(dead_code)]
mod running;
#[path = "doctor/scene.rs"]
mod scene;

use rows::ROWS;
use scene::{Scene, texts_of};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use tautline_node::doctor::CHECKS;

/// The checks that found harm.
fn harmful(findings: &Json) -> BTreeSet<String> {
    let all = findings["findings"].as_array().unwrap().iter();
    let harmful = all.filter(|it| ["stops", "delays"].contains(&it["harm"].as_str().unwrap()));
    harmful.map(|it| it["check"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_check_has_a_planted_fault() {
    let planted: BTreeSet<&str> = ROWS.iter().map(|row| row.check).collect();
    let checks: BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(planted, checks);
    assert_eq!(checks.len(), CHECKS.len(), "two checks of one name");
    assert!(ROWS.len() >= 20);
}

#[test]
fn each_planted_fault_is_found_with_its_fix_and_nothing_else() {
    let mut scene = Scene::new();
    let healthy = scene.findings();
    assert!(harmful(&healthy).is_empty(), "{healthy:#}");
    let mut problems = Vec::new();
    for row in ROWS {
        (row.plant)(&mut scene);
        let found = scene.findings();
        let of_check = texts_of(&found, row.check);
        let is_named = |text: &String| row.texts.iter().all(|it| text.contains(it));
        if !of_check.iter().any(is_named) {
            problems.push(format!("{}: {:?} not in {of_check:?} of {found:#}", row.name, row.texts));
        }
        let others = harmful(&found).into_iter().filter(|it| {
            it != row.check && !row.also.contains(&it.as_str())
        });
        problems.extend(others.map(|it| {
            format!("{}: finds {it} as well: {:?}", row.name, texts_of(&found, &it))
        }));
        scene.heal();
    }
    let healed = scene.findings();
    assert!(harmful(&healed).is_empty(), "{healed:#}");
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}
