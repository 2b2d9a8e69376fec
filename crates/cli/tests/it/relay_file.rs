// SPDX-License-Identifier: Apache-2.0
//! The relay's file, by the commands that read it.

use crate::PROGRAM;
use std::path::Path;
use std::process::Command;
use tautline::config::{Config, MAX_MEMBERS, MAX_TEAMS, Security, Surroundings, parse};
use tautline_proto::SecretKey;

fn tautline(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.args(arguments).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn key(name: &str) -> String {
    SecretKey::insecure(name).public().to_string()
}

fn config(text: &str) -> Config {
    parse(text, &Surroundings::default()).unwrap_or_else(|all| panic!("{all:?}")).config
}

fn problems(text: &str) -> Vec<String> {
    let found = parse(text, &Surroundings::default());
    found.map(|it| panic!("{it:?}")).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn members_become_peers_of_their_teams() {
    let (robot, base, third) = (key("robot"), key("base"), key("third"));
    let config = config(&format!(
        "name: relay\nlisten: 18471\nteams:\n  blue:\n    max_rate: 20Mbps\n    members:\n      robot: {robot}\n      \
         base: {{ key: {base}, max_priority: 200, mtu: 1400 }}\n  red: {{ members: {{ robot: {third} }} }}\n"
    ));
    assert!(config.ros1.is_none() && config.ros2.is_none() && config.topics.is_empty());
    assert!(config.marking.is_none() && !config.diagnostics);
    assert_eq!(config.control, Path::new("/run/tautline-relay/relay.sock"));
    assert_eq!(config.security, Security::Keys("relay.key".into()));
    assert_eq!(config.listen.port(), 18471);
    let found =
        config.peers.iter().map(|it| (&*it.name, it.team.as_deref(), it.relay, it.max_priority));
    let found: Vec<_> = found.collect();
    assert_eq!(
        found,
        [
            ("blue/robot", Some("blue"), true, 255),
            ("blue/base", Some("blue"), true, 200),
            ("red/robot", Some("red"), true, 255),
        ]
    );
    let teams = config.teams.unwrap();
    assert_eq!((teams[0].max_rate_bps, teams[1].max_rate_bps), (Some(20_000_000), None));
    assert_eq!(teams[1].queue_bytes, 8 << 20);
}

#[test]
fn each_mistake_is_reported_with_line_and_allowed_values() {
    let (robot, base) = (key("robot"), key("base"));
    let long = "a".repeat(32);
    let cases = [
        ("teams:\n  blue: {}".to_owned(), "1:1: name: found nothing, though it is required"),
        (
            "name: relay\nteams:\n  blue:\n    max_rat: 1Mbps".into(),
            "4:5: teams.blue: found the unknown key 'max_rat'; allowed: perhaps 'max_rate'",
        ),
        (
            "name: relay\nteams: { blue: { max_rate: 20 } }".into(),
            "teams.blue.max_rate: found '20'",
        ),
        (
            "name: relay\nteams: { blue: { queue_bytes: 1kB } }".into(),
            "teams.blue.queue_bytes: found '1kB'",
        ),
        ("name: relay\nteams: { \"blue team\": {} }".into(), "teams: found the name 'blue team'"),
        ("name: relay\nteams: [blue]".into(), "teams: found a list"),
        (
            "name: relay\nteams: { blue: { members: [robot] } }".into(),
            "teams.blue.members: found a list",
        ),
        (
            "name: relay\nteams: { blue: { members: { robot: {} } } }".into(),
            "teams.blue.members.robot.key: found nothing",
        ),
        (
            "name: relay\nteams: { blue: { members: { robot: abc } } }".into(),
            "teams.blue.members.robot.key: found 'abc'",
        ),
        ("name: relay\npeers: {}\nteams: {}".into(), "2:1: found the unknown key 'peers'"),
        (
            format!(
                "name: relay\nteams:\n  a: {{ members: {{ x: {robot} }} }}\n  b: {{ members: {{ y: {robot} }} }}"
            ),
            "4:22: teams.b.members.y.key: found the key of 'a/x'; allowed: a key that no other member has",
        ),
        (
            format!("name: relay\nteams:\n  {long}: {{ members: {{ {long}: {base} }} }}"),
            "found 65 bytes of TEAM/MEMBER; allowed: at most 63 bytes",
        ),
    ];
    for (text, expected) in cases {
        let found = problems(&text);
        assert!(found.iter().any(|it| it.contains(expected)), "{text}\n{expected}\n{found:?}");
    }
}

#[test]
fn the_numbers_of_teams_and_members_are_limited() {
    let teams: String = (0..=MAX_TEAMS).map(|number| format!("  t{number}: {{}}\n")).collect();
    let found = problems(&format!("name: relay\nteams:\n{teams}"));
    assert!(
        found.iter().any(|it| it.contains("found 257 teams; allowed: at most 256")),
        "{found:?}"
    );
    let members: String = (0..=MAX_MEMBERS)
        .map(|number| format!("      m{number}: {}\n", key(&number.to_string())))
        .collect();
    let found = problems(&format!("name: relay\nteams:\n  a:\n    members:\n{members}"));
    let expected = "found 1025 members of all teams; allowed: at most 1024";
    assert!(found.iter().any(|it| it.contains(expected)), "{found:?}");
}

#[test]
fn the_commands_distinguish_the_kinds_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let relay = path("relay.yaml");
    let (code, text) = tautline(&["init", "--relay", &relay]);
    assert!(code == Some(0) && text.contains("create the relay's key"), "{text}");
    let (code, text) = tautline(&["check", &relay]);
    assert!(code == Some(0) && text.contains("is valid"), "{text}");
    assert!(text.contains("rescue/robot1") && text.contains("Teams, whose members"), "{text}");
    assert!(text.contains("the two members without whom nothing is forwarded"), "{text}");
    let (code, text) = tautline(&["run", &relay]);
    assert!(
        code == Some(78) && text.contains("`tautline relay FILE` runs that of a relay"),
        "{text}"
    );
    let robot = path("robot.yaml");
    assert_eq!(tautline(&["init", &robot]).0, Some(0));
    let (code, text) = tautline(&["relay", &robot]);
    assert!(
        code == Some(78) && text.contains("found the file of a robot; allowed: a relay's file"),
        "{text}"
    );

    std::fs::write(&robot, "name: relay\nteam: {}\n").unwrap();
    let (code, text) = tautline(&["relay", &robot]);
    assert!(code == Some(78) && text.contains("found 'team' instead of 'teams'"), "{text}");

    let key = path("relay.key");
    let (_, made) = tautline(&["keygen", "--json", &key]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let public = made["public"].as_str().unwrap();
    let own = format!("name: relay\nteams:\n  a:\n    members:\n      me: {public}\n");
    std::fs::write(&relay, own).unwrap();
    let (code, text) = tautline(&["check", &relay]);
    assert!(code == Some(1), "{text}");
    assert!(text.contains("5:11: teams.a.members.me.key: found the relay's own key"), "{text}");
}

#[test]
fn the_packaged_example_is_valid_and_the_unit_starts_it() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let example = packaging.join("examples/relay.yaml").display().to_string();
    let (code, text) = tautline(&["check", &example]);
    assert!(code == Some(0) && !text.contains("warning"), "{text}");
    let (_, text) = tautline(&["check", "--json", &example]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["teams"][0]["max_rate_bps"], 20_000_000);
    assert_eq!(json["peers"][3]["name"], "farm/base");
    let unit = std::fs::read_to_string(packaging.join("tautline-relay.service")).unwrap();
    let robot = std::fs::read_to_string(packaging.join("tautline.service")).unwrap();
    for line in [
        "ExecStart=/usr/bin/tautline relay /etc/tautline/relay.yaml",
        "ConditionPathExists=/etc/tautline/relay.yaml",
        "RuntimeDirectory=tautline-relay",
    ] {
        assert!(unit.lines().any(|it| it == line), "{line}");
    }
    // Both may run on one machine: systemd removes the folder of the one that ends.
    assert!(robot.contains("\nRuntimeDirectory=tautline\n"));
    let hardening = robot.lines().skip_while(|line| !line.starts_with("AmbientCapabilities"));
    for line in hardening.take_while(|line| !line.starts_with("[Install]")) {
        assert!(
            line.is_empty() || line.starts_with('#') || unit.lines().any(|it| it == line),
            "{line}"
        );
    }
}
