// SPDX-License-Identifier: Apache-2.0
//! The robot's file: accepted and refused texts, and the wording of errors.

use proptest::prelude::*;
use std::path::PathBuf;
use std::time::Duration;
use tautline::config::{
    AuditConfig, Beacons, Budget, Config, MAX_FILE_BYTES, MAX_NESTING, Realtime, Surroundings,
    Warning, parse, starter,
};
use tautline::treatment::peer_names::Accepted;
use tautline::treatment::{Compression, treatment};
use tautline_gateway::types::compose::YamlValue;
use tautline_proto::limits as proto;
use tautline_proto::{Marking, Rate};
use tautline_testkit::reference::EXAMPLE;

fn surroundings() -> Surroundings {
    Surroundings {
        host_name: Some("robot1-pc".into()),
        interfaces: Some(vec!["lo".into(), "wlan0".into(), "wlan1".into()]),
        ..Surroundings::default()
    }
}

/// Adds `security: none`, because most of these files do not test keys.
fn keyless(text: &str) -> String {
    let says = ["security:", "key:"].iter().any(|word| text.contains(word));
    let security = if !text.contains("peers:") || says { "" } else { "\nsecurity: none\n" };
    format!("{text}{security}")
}

fn checked_config(text: &str) -> (Config, Vec<Warning>) {
    match parse(&keyless(text), &surroundings()).map(tautline_plan::with_warnings) {
        Ok(checked) => (checked.config, checked.warnings),
        Err(problems) => panic!("{}", join_lines(&problems)),
    }
}

fn join_lines<T: std::fmt::Display>(found: &[T]) -> String {
    found.iter().map(|one| format!("{one}\n")).collect()
}

fn warnings(text: &str) -> String {
    join_lines(&checked_config(text).1)
}

#[test]
fn errors_in_files_match_the_golden_page() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/bad_files.txt");
    let page = std::fs::read_to_string(path).unwrap();
    let now: String = page.split("=== ").skip(1).map(case_with_report).collect();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    for (now, expected) in now.lines().zip(expected.lines()) {
        assert_eq!(now, expected, "UPDATE=1 accepts the new words");
    }
    assert_eq!(now.len(), expected.len());
}

/// Returns one case of the page (title, file, `---`, report) with a new report.
fn case_with_report(case: &str) -> String {
    let (title, rest) = case.split_once('\n').unwrap();
    let end_of_file = if rest.starts_with("---\n") { 0 } else { rest.find("\n---\n").unwrap() + 1 };
    let file = &rest[..end_of_file];
    let report = parse(&keyless(file), &surroundings())
        .map_or_else(|problems| join_lines(&problems), |_| String::new());
    format!("=== {title}\n{file}---\n{report}")
}

#[test]
fn a_file_needs_only_a_name() {
    let (config, _) = checked_config("name: robot1");
    assert_eq!(config.listen, "[::]:18470".parse().unwrap());
    assert_eq!(config.control.to_str(), Some("/run/tautline/robot1.sock"));
    assert_eq!(config.metrics, None);
    assert!(config.diagnostics);
    assert_eq!(config.marking, Some(Marking::default()));
    let ros1 = config.ros1.unwrap();
    assert_eq!((ros1.master.as_str(), ros1.host.as_str()), ("http://localhost:11311", "robot1-pc"));
    assert_eq!(ros1.node_name, "/tautline");
    let limits = &config.limits;
    let sizes = [limits.max_message, limits.queue_bytes, limits.reassembly_bytes];
    assert_eq!(sizes, [proto::MESSAGE_BYTES, proto::QUEUE_BYTES, proto::REASSEMBLY_BYTES]);
    assert_eq!(config.limits.queue_time, Duration::from_secs(2));
    assert_eq!(config.limits.repair_budget, 0.3);
    let realtime = Realtime { priority: None, cpu: None, lock_memory: false };
    assert_eq!(config.realtime, realtime);
    assert!(config.tf.change_nothing());
}

#[test]
fn the_example_file_has_its_documented_meaning() {
    let (config, warnings) = checked_config(EXAMPLE);
    assert_eq!(warnings, []);
    let [base, robot2, robot3, robot4] = &config.peers[..] else { panic!("four peers") };
    assert_eq!((base.links[0].host.as_str(), base.links[0].port), ("10.0.0.2", 18470));
    assert_eq!(robot2.names.local_name("/scan"), "/robot2/front/scan");
    let accepted = |name| robot2.names.accepted(name, |_| true);
    assert_eq!((accepted("/scan"), accepted("/odom")), (Accepted::Yes, Accepted::No));
    assert_eq!(base.names.accept[0].types, ["geometry_msgs/Twist"]);
    assert!(base.names.accept[1].types.is_empty(), "any");
    assert_eq!((base.call.len(), base.offer.len(), robot2.offer.len()), (2, 5, 0));
    assert_eq!(robot3.links.len(), 2);
    assert_eq!(robot3.links[1].host, "fe80::3%wlan1");
    assert_eq!(robot3.links[1].mtu, Some(1400));
    assert!(robot4.links.is_empty());
    assert_eq!((robot2.max_rate_bps, robot2.max_priority), (4_000_000, 150));
    assert_eq!((base.max_rate_bps, base.max_priority), (1_000_000_000, 255));
    assert_eq!(config.radios[0].rate, Rate::AUTO);
    assert_eq!(config.radios[0].in_flight, 3);
    let camera = treatment(&config.topics, "/camera/front/image").unwrap();
    assert_eq!(camera.lifespan, Some(Duration::from_millis(500)));
    assert_eq!(camera.rate_hz, Some(5.0));
    assert_eq!(camera.compression, Compression::Zstd);
    assert_eq!(camera.to, Some(vec!["base".into()]));
    assert!(camera.repair);
    assert_eq!(config.realtime.priority, Some(50));
    let [watchdog] = &config.watchdogs[..] else { panic!("one watchdog") };
    let times = (watchdog.after, watchdog.repeat);
    assert_eq!(times, (Duration::from_secs(2), Some(Duration::from_secs(1))));
    assert_eq!(watchdog.topic, "/robot2/plan");
    assert_eq!(watchdog.message, [("data".into(), YamlValue::One("stop".into()))]);
    let frames: Vec<&str> = config.tf.frames.iter().map(|frame| frame.as_str()).collect();
    assert_eq!((frames, &*config.tf.prefix), (vec!["odom", "base_link", "arm/**"], "robot1/"));
    assert!(config.tf.shared[0].matches("map") && config.tf.shared.len() == 1);
}

#[test]
fn packets_are_marked_as_configured() {
    let marking = |text: &str| checked_config(&format!("name: r\ndscp: {text}")).0.marking;
    let usual = Marking::default();
    assert_eq!(marking("true"), Some(usual.clone()));
    assert_eq!(marking("false"), None);
    let ef = Marking { dscp: [8, 0, 32, 46], ..usual.clone() };
    assert_eq!(marking("{ voice: 46 }"), Some(ef));
    let few = Marking { from: [30, 140, 256], ..usual };
    assert_eq!(marking("{ best_effort_from: 30, voice_from: 256 }"), Some(few));
}

#[test]
fn topics_keep_the_order_of_the_file_in_both_forms() {
    let as_map = checked_config("{name: r, topics: {/z: {}, /a: {priority: 3}, /m: }}").0.topics;
    let as_list = checked_config("{name: r, topics: [/z, {name: /a, priority: 3}, /m]}").0.topics;
    assert_eq!(as_map, as_list);
    let order: Vec<&str> = as_map.iter().map(|rule| rule.pattern.as_str()).collect();
    assert_eq!(order, ["/z", "/a", "/m"]);
}

#[test]
fn a_watchdog_may_be_only_a_time() {
    let file = "{name: r, watchdogs: {/a: 500ms, /b: {after: 1s, message: }, \
                /c: {after: 1s, message: {x: [1, {y: ''}], z: 'true'}}}}";
    let watchdogs = checked_config(file).0.watchdogs;
    assert_eq!((watchdogs[0].after, watchdogs[0].repeat), (Duration::from_millis(500), None));
    assert!(watchdogs[0].message.is_empty() && watchdogs[1].message.is_empty());
    let one = |text: &str| YamlValue::One(text.into());
    let list = YamlValue::List(vec![one("1"), YamlValue::Map(vec![("y".into(), one(""))])]);
    assert_eq!(watchdogs[2].message, [("x".into(), list), ("z".into(), one("true"))]);
}

#[test]
fn the_file_overrides_the_environment_of_ros() {
    let environment = Surroundings {
        ros_master_uri: Some("http://10.0.0.9:11311/".into()),
        ros_hostname: Some("rover".into()),
        ros_ip: Some("10.0.0.7".into()),
        runtime_folder: Some("/run/user/1000".into()),
        ..surroundings()
    };
    let config = parse("name: robot1", &environment).unwrap().config;
    assert_eq!(config.control.to_str(), Some("/run/user/1000/tautline/robot1.sock"));
    let ros1 = config.ros1.unwrap();
    assert_eq!((ros1.master.as_str(), ros1.host.as_str()), ("http://10.0.0.9:11311", "rover"));
    let by_address = Surroundings { ros_hostname: None, ..environment.clone() };
    assert_eq!(parse("name: robot1", &by_address).unwrap().config.ros1.unwrap().host, "10.0.0.7");
    let file = "{name: r, ros1: {host: here, master: 'http://there:1'}}";
    let ros1 = parse(file, &environment).unwrap().config.ros1.unwrap();
    assert_eq!((ros1.master.as_str(), ros1.host.as_str()), ("http://there:1", "here"));
    assert_eq!(parse("{name: r, ros1: false}", &environment).unwrap().config.ros1, None);
}

#[test]
fn settings_of_ros_2_come_from_the_file_or_the_environment() {
    let environment = Surroundings {
        ros_domain_id: Some("42".into()),
        ros_discovery_range: Some("LOCALHOST".into()),
        ament_prefix_path: Some("/opt/overlay:/opt/ros/kilted".into()),
        ..surroundings()
    };
    let of = |file: &str, from: &Surroundings| parse(file, from).unwrap().config.ros2.unwrap();
    let ros2 = of("{name: r, ros2: true}", &environment);
    assert_eq!((ros2.domain, ros2.localhost), (42, true));
    assert_eq!(ros2.definitions, ["/opt/overlay", "/opt/ros/kilted"].map(PathBuf::from));
    assert_eq!(parse("{name: r, ros2: true}", &environment).unwrap().config.ros1, None);
    let file = "{name: r, ros2: {domain: 7, range: subnet, definitions: /types}}";
    let ros2 = of(file, &environment);
    assert_eq!((ros2.domain, ros2.localhost), (7, false));
    assert_eq!(ros2.definitions, [PathBuf::from("/types")]);
    let humble = Surroundings { ros_localhost_only: Some("1".into()), ..surroundings() };
    assert!(of("{name: r, ros2: true}", &humble).localhost);
    assert!(!of("{name: r, ros2: true}", &surroundings()).localhost);
    for (variable, wrong) in [
        ("ROS_DOMAIN_ID", Surroundings { ros_domain_id: Some("233".into()), ..surroundings() }),
        (
            "ROS_AUTOMATIC_DISCOVERY_RANGE",
            Surroundings { ros_discovery_range: Some("OFF".into()), ..surroundings() },
        ),
    ] {
        let report = join_lines(&parse("{name: r, ros2: true}", &wrong).unwrap_err());
        assert!(report.contains(variable), "{report}");
        assert!(parse("name: r", &wrong).is_ok());
    }
}

#[test]
fn a_wrong_variable_is_named() {
    let environment = Surroundings { ros_master_uri: Some("robot:11311".into()), ..surroundings() };
    let report = join_lines(&parse("name: robot1", &environment).unwrap_err());
    assert!(report.contains("'robot:11311' in the environment's ROS_MASTER_URI"), "{report}");
    assert!(parse("{name: r, ros1: false}", &environment).is_ok());
}

#[test]
fn beacons_are_off_or_limited_to_named_interfaces() {
    let beacons = |value: &str| checked_config(&format!("name: r\n{value}\n")).0.beacons;
    assert_eq!(beacons(""), Beacons::Off);
    assert_eq!(beacons("beacons: false"), Beacons::Off);
    assert_eq!(beacons("beacons: true"), Beacons::Everywhere);
    assert_eq!(beacons("beacons: wlan0"), Beacons::On(vec!["wlan0".into()]));
    let both = vec!["wlan0".into(), "wlan1".into()];
    assert_eq!(beacons("beacons: [wlan0, wlan1]"), Beacons::On(both));
    let report = warnings("name: r\nbeacons: [wlan0, wlan7]\n");
    assert!(report.contains("2:18: beacons: this machine has no interface 'wlan7'"), "{report}");
    let report = warnings("name: r\nlisten: 10.0.0.1:18470\nbeacons: true\n");
    assert!(report.contains("3:1: beacons: this node receives no beacons"), "{report}");
    for heard in ["listen: 18470\nbeacons: true", "listen: 10.0.0.1:18470\nbeacons: false"] {
        let report = warnings(&format!("name: r\n{heard}\n"));
        assert!(!report.contains("beacons"), "{report}");
    }
}

#[test]
fn the_path_of_the_audit_log_comes_from_the_file_or_the_service_manager() {
    let of = |line: &str, from: &Surroundings| {
        parse(&keyless(&format!("name: robot1\n{line}")), from).unwrap().config.audit
    };
    let file = |path: &str, size, files| AuditConfig::Files { path: path.into(), size, files };
    let systemd = Surroundings { logs_folder: Some("/var/log/tautline".into()), ..surroundings() };
    let (plain, usual) = (surroundings(), file("/var/log/tautline/robot1.audit", 8 << 20, 4));
    assert_eq!((of("", &plain), of("", &systemd)), (AuditConfig::Off, usual.clone()));
    assert_eq!((of("audit: true", &plain), of("audit: true", &systemd)), (usual.clone(), usual));
    assert_eq!(of("audit: false", &systemd), AuditConfig::Off);
    assert_eq!(of("audit: { to: journald }", &systemd), AuditConfig::Journald);
    let given = of("audit: { file: log/a, size: 1MiB, files: 2 }", &systemd);
    assert_eq!(given, file(&plain.folder.join("log/a").to_string_lossy(), 1 << 20, 2));
}

#[test]
fn a_watchdog_without_a_permitted_peer_is_a_warning() {
    let said = |peers: &str, topic: &str| {
        let file = format!("name: r\npeers: {{ {peers} }}\nwatchdogs: {{ {topic}: 500ms }}\n");
        warnings(&file).contains(&format!("3:14: watchdogs.{topic}: no peer may publish it"))
    };
    for fed in [
        "b: { accept: /cmd_vel }",
        "b: {}, c: { accept: { \"/cmd*\": geometry_msgs/Twist } }",
        "b: { accept: /drive, remap: { /drive: /cmd_vel } }",
    ] {
        assert!(!said(fed, "/cmd_vel"), "{fed}");
    }
    for unfed in [
        "",
        "b: { accept: /cmd }",
        "b: { prefix: /b, accept: /cmd_vel }",
        "b: { prefix: /cmd }",
        "b: { accept: /cmd_vel, remap: { /cmd_vel: /drive } }",
    ] {
        assert!(said(unfed, "/cmd_vel"), "{unfed}");
    }
    assert!(!said("b: { prefix: /b }", "/b/scan"), "it may be what the peer senses");
}

#[test]
fn a_budget_makes_a_link_metered() {
    let file = |budget: &str, topic: &str| {
        let lte = format!("{{ name: lte, address: b2, budget: {budget} }}");
        format!(
            "name: r\npeers: {{ b: {{ links: [{lte}], accept: \"/**\" }} }}\ntopics: {{ /scan: {topic} }}\n"
        )
    };
    let (config, found) = checked_config(&file("5GB / 30d", "{ over_budget: true, to: b }"));
    assert_eq!(found, []);
    let link = &config.peers[0].links[0];
    assert!(link.metered && link.budget == Budget::parse("5GB/30d"), "{link:?}");
    assert!(config.topics[0].treatment.links.over_budget);
    assert_eq!(config.state.to_str(), Some("/var/lib/tautline"));
    let report = warnings(&file("5GB/30d", "{}"));
    assert!(report.contains("peers.b.links: every link has a budget, and no topic"), "{report}");
    let report = warnings(&file("2GB/30d", "{ over_budget: true }"));
    let words = "peers.b.links[0].budget: heartbeats alone use about 2554MB/30d, more than";
    assert!(report.contains(words), "{report}");
    let with_wifi = |budget: &str| {
        file(budget, "{}").replace("links: [", "links: [{ name: wifi, address: b1 }, ")
    };
    assert!(!warnings(&with_wifi("2GB/30d")).contains("heartbeats"));
    let report = warnings(&with_wifi("100MB/30d"));
    let words = "peers.b.links[1].budget: heartbeats alone use about 130MB/30d, more than";
    assert!(report.contains(words), "{report}");
    let report = warnings("name: r\npeers: { b: b }\ntopics: { /scan: { over_budget: true } }\n");
    assert!(report.contains("topics./scan.over_budget: no link has a 'budget'"), "{report}");
}

#[test]
fn copies_of_a_topic_that_is_not_duplicated_have_no_effect() {
    let copies = |links: &str| {
        warnings(&format!("name: r\ntopics:\n  /scan: {{ priority: 255, copies: 3{links} }}\n"))
    };
    let words = "3:27: topics./scan.copies: no effect without 'links: duplicate'";
    assert!(copies("").contains(words), "{}", copies(""));
    assert!(copies(", links: best").contains(words));
    assert!(!copies(", links: duplicate").contains("no effect"));
}

#[test]
fn keys_without_effect_cause_warnings() {
    for (keys, expected) in [
        ("order_wait: 50ms", "order_wait: no effect without 'order: sent'"),
        ("order: sent, keep_last: 1", "order: 'sent' waits for nothing with 'keep_last: 1'"),
        ("fec: 60, links: duplicate", "fec: no parity while two links carry copies"),
        ("tf_prefix: false", "tf_prefix: 'tf' has no 'prefix'"),
    ] {
        let text = format!("name: robot1\npeers: {{}}\ntopics:\n  /scan: {{ {keys} }}\n");
        let found = warnings(&text);
        assert!(found.contains(expected), "{keys}: {found}");
    }
    let useful = "name: robot1\ntopics:\n  /scan: { order: sent, order_wait: 50ms }\n";
    assert!(!warnings(useful).contains("order"), "{}", warnings(useful));
}

#[test]
fn a_launched_name_is_used_where_the_file_has_none() {
    let named = |file: &str, name: &str| {
        let launched = Surroundings { node_name: Some(name.into()), ..surroundings() };
        parse(file, &launched)
    };
    let config = named("name: r", "/r1/link").unwrap().config;
    assert_eq!(config.ros1.unwrap().node_name, "/r1/link");
    let config = named("name: r\nros2: true", "/r1/link").unwrap().config;
    assert_eq!(config.ros2.unwrap().node_name, "/r1/link");
    let checked = named("name: r\nros2: { node_name: /own }", "/r1/link").unwrap();
    assert_eq!(checked.config.ros2.unwrap().node_name, "/own");
    let warning = "2:9: ros2.node_name: /own is used, although the arguments of ROS name this";
    assert!(join_lines(&checked.warnings).contains(warning), "{}", join_lines(&checked.warnings));
    let wrong = join_lines(&named("name: r", "/a b").unwrap_err());
    assert!(wrong.contains("ros1.node_name") && wrong.contains("the arguments of ROS"), "{wrong}");
}

#[test]
fn equal_and_nested_prefixes_cause_warnings() {
    let report = |one: &str, two: &str| {
        let file = format!(
            "name: r\npeers:\n  one: {{ address: b, prefix: {one} }}\n  \
             two: {{ address: c, prefix: {two} }}\n"
        );
        warnings(&file)
    };
    let equal = report("/a", "/a");
    assert!(equal.contains("4:22: peers.two.prefix: 'one' on line 3 has the same"), "{equal}");
    for (one, two, expected) in [
        ("/a", "/a/b", "/a/b of 'two' lies under /a of 'one' (see line 3): names of 'one'"),
        ("/a/b", "/a", "/a/b of 'one' lies under /a of 'two' (see line 3): names of 'two'"),
    ] {
        let found = report(one, two);
        assert!(found.contains(expected), "{found}");
    }
    assert!(!report("/a", "/ab").contains("prefix"), "{}", report("/a", "/ab"));
}

#[test]
fn unusual_values_cause_warnings() {
    let report = warnings("name: robot1");
    assert!(report.contains("no topics") && report.contains("no peers"), "{report}");
    let report = warnings("name: r\ntopics:\n  /camera/**: {}\n  /camera/info: {}\n");
    assert!(
        report.contains("4:3: topics./camera/info: never applies, because '/camera/**' on line 3"),
        "{report}"
    );
    let report =
        warnings("name: r\nradios: { wlan7: {} }\npeers: { b: { address: b, interface: eth9 } }\n");
    assert!(
        report.contains("2:11: radios.wlan7: this machine has no interface 'wlan7'"),
        "{report}"
    );
    assert!(report.contains("peers.b.interface: this machine has no interface 'eth9'"), "{report}");
}

#[test]
fn the_starter_file_passes_as_written_and_with_every_option_taken() {
    let written = starter::starter();
    assert_eq!(warnings(&written), "");
    // `links` replaces `address` and `when_slow` replaces `keep_last`, so only one of each pair is
    // allowed; `via` names a second peer.
    let is_option = |line: &&str| {
        !["#links", "#via", "#when_slow"].iter().any(|key| line.trim_start().starts_with(key))
    };
    let taken: String =
        written.lines().filter(is_option).map(|line| format!("{}\n", uncommented(line))).collect();
    // The two kinds of ROS exclude each other as well.
    for (other, kind) in [("ros1:", "ros2"), ("ros2:", "ros1")] {
        let (before, section) = taken.split_once(other).unwrap();
        let (_, after) = section.split_once("\n\n").unwrap();
        let (config, _) = checked_config(&format!("{before}\n\n{after}"));
        assert_eq!(config.realtime.cpu, Some(1));
        assert_eq!(
            (config.ros1.is_some(), config.ros2.is_some()),
            (kind == "ros1", kind == "ros2")
        );
    }
    let both = join_lines(&parse(&taken, &surroundings()).unwrap_err());
    assert!(both.contains("ros2: found 'ros1' as well"), "{both}");
    let links =
        "links: [{ address: 10.0.0.2, interface: wlan0 }, { address: 10.1.0.2, interface: wlan1 }]";
    let with_links =
        written.replace(&format!("#{links}"), links).replace("    address: 10.0.0.2\n", "");
    assert_eq!(checked_config(&with_links).0.peers[0].links.len(), 2);
}

fn uncommented(line: &str) -> String {
    match line.trim_start().strip_prefix('#') {
        Some(option) if !option.starts_with(' ') => line.replacen('#', "", 1),
        _ => line.into(),
    }
}

#[test]
fn hostile_files_are_refused_early() {
    let refused = |text: &str| join_lines(&parse(text, &surroundings()).unwrap_err());
    assert!(refused(&"a".repeat(MAX_FILE_BYTES + 1)).contains("a larger file"));
    let too_deep = format!("more than {MAX_NESTING} levels");
    // The parser looks ahead within brackets and braces, so its own limit may apply first.
    let far_too_deep = "recursion limit exceeded";
    for (piece, times, reason) in [
        ("[", 20, &*too_deep),
        ("- ", 60_000, &too_deep),
        ("[", 60_000, far_too_deep),
        ("{a: ", 60_000, far_too_deep),
        ("? ", 60_000, "a key that is not text"),
    ] {
        let report = refused(&piece.repeat(times));
        assert!(report.contains(reason), "{piece}: {report}");
    }
    let many: String = (0..10_000).map(|i| format!("unknown{i}: 1\n")).collect();
    assert!(parse(&many, &surroundings()).unwrap_err().len() > 9_999);
}

#[test]
fn too_many_peers_or_rules_are_refused() {
    let peers: String =
        (0..300).map(|i| format!("  p{i}: 10.0.{}.{}\n", i / 250, i % 250)).collect();
    let rules: String = (0..1100).map(|i| format!("  /t{i}: {{}}\n")).collect();
    let report = join_lines(
        &parse(&format!("name: r\npeers:\n{peers}topics:\n{rules}"), &surroundings()).unwrap_err(),
    );
    assert!(report.contains("2:1: peers: found 300 entries; allowed: at most 256"), "{report}");
    assert!(report.contains("topics: found 1100 entries; allowed: at most 1024"), "{report}");
}

fn damaged_example() -> impl Strategy<Value = String> {
    let length = EXAMPLE.len();
    let damage = (0..length, 0..12usize, "[ -~\\n\\t]{0,6}");
    proptest::collection::vec(damage, 1..6).prop_map(|cuts| {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for (start, cut, insert) in cuts {
            let start = start.min(bytes.len());
            let end = (start + cut).min(bytes.len());
            bytes.splice(start..end, insert.into_bytes());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

proptest! {
    #[test]
    fn any_text_is_accepted_or_refused_with_a_reason(text in any::<String>()) {
        assert_accepted_or_explained(&text)?;
    }

    #[test]
    fn any_yaml_like_text_is_accepted_or_refused_with_a_reason(text in "[a-c/*&!|>'\"{}\\[\\],:#?%@~ \\n\\t-]{0,120}") {
        assert_accepted_or_explained(&text)?;
    }

    #[test]
    fn a_damaged_file_is_accepted_or_refused_with_a_reason(text in damaged_example()) {
        assert_accepted_or_explained(&text)?;
    }

    #[test]
    fn any_value_of_any_key_is_accepted_or_refused_with_a_reason(
        key in "(name|listen|control|metrics|diagnostics|ros1|peers|radios|topics|watchdogs|tf|limits|realtime)",
        value in "[0-9a-zA-Z:/.%+-]{0,20}|\\PC{0,20}",
    ) {
        assert_accepted_or_explained(&format!("name: r\n{key}: {value}\n"))?;
        let quoted = value.replace('\'', "''");
        assert_accepted_or_explained(&format!("{key}: '{quoted}'\n"))?;
    }
}

fn assert_accepted_or_explained(text: &str) -> Result<(), TestCaseError> {
    if let Err(problems) = parse(text, &surroundings()) {
        prop_assert!(!problems.is_empty());
        let lines = text.lines().count() + 1;
        for problem in &problems {
            prop_assert!((1..=lines).contains(&problem.at.line), "{problem} in {lines} lines");
            prop_assert!(!problem.found.is_empty() && !problem.allowed.is_empty());
        }
    }
    Ok(())
}
