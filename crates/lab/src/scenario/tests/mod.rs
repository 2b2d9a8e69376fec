// SPDX-License-Identifier: Apache-2.0
//! The scenarios of this repository, and the files generated from the format.

mod reference;
mod refused;

use super::*;
use proptest::prelude::*;
use serde_json::Value as Json;
use tautline::config::yaml::{Node, Yaml};
use tautline_medium::{Aqm, Loss, PipeConfig, RateControl, Reordering, StationId, WifiConfig};

/// Two stations on a radio, one on a pipe as well; cases extend or change it.
const BASE: &str = "\
about: A test
duration: 30s
networks:
  adhoc:
    wifi: { rate: 6Mbps }
  modem:
    pipe: { rate: 3Mbps }
stations:
  robot: { networks: [adhoc, modem] }
  base: { networks: [adhoc] }
  worker: { count: 3, networks: [modem], around: [1, 0], radius: 2 }
flows:
  - { name: laser, from: robot, to: base, size: 1KB, every: 20ms }
";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn scenario_files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join("scenarios")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();
    files
}

fn parsed_scenario(text: &str) -> Scenario {
    parse("test", text, Path::new("")).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// Returns all problems of `text`, one per line, as the error shows them.
fn refused(text: &str) -> String {
    let problems = parse("test", text, Path::new("/nonexistent")).expect_err(text);
    let lines: Vec<String> = problems.iter().map(|problem| problem.to_string()).collect();
    lines.join("\n")
}

/// Returns a YAML file as JSON Schema sees it; quoted numbers, which no scenario has, would be
/// numbers.
fn as_json(node: &Node) -> Json {
    match &node.yaml {
        Yaml::Nothing => Json::Null,
        Yaml::Scalar(text) => match serde_json::from_str(text) {
            Ok(value @ (Json::Number(_) | Json::Bool(_))) => value,
            _ => text.as_str().into(),
        },
        Yaml::List(nodes) => nodes.iter().map(as_json).collect(),
        Yaml::Map(entries) => {
            entries.iter().map(|(key, value)| (key.name.clone(), as_json(value))).collect()
        }
    }
}

fn json_of(text: &str) -> Json {
    as_json(&yaml::read(text, &mut Vec::new()).unwrap())
}

#[test]
fn every_scenario_loads_and_fits_the_schema() {
    let schema = jsonschema::validator_for(&reference::schema()).unwrap();
    let files = scenario_files();
    assert!(files.len() >= 12);
    for file in files {
        let scenario = load(&file).unwrap_or_else(|error| panic!("{error}"));
        assert!(scenario.source.is_some(), "{}: no source", file.display());
        let json = json_of(&std::fs::read_to_string(&file).unwrap());
        let wrong: Vec<String> = schema.iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", file.display());
    }
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let schema = jsonschema::validator_for(&reference::schema()).unwrap();
    assert!(schema.is_valid(&json_of(BASE)));
    for (from, to) in [
        ("about: A test\n", ""),
        ("about:", "abuot:"),
        ("30s", "30"),
        ("rate: 6Mbps", "rate: 6"),
        ("rate: 6Mbps", "rate: 6Mbps, phy: ofmd"),
        ("pipe:", "line:"),
        ("pipe: { rate: 3Mbps }", "pipe: { rate: 3Mbps }\n    wifi: { rate: 6Mbps }"),
        ("[1, 0]", "[1]"),
        ("count: 3", "count: 0"),
        ("every: 20ms", "every: often"),
        ("flows:", "events:\n  - { at: 1s, rate: { network: modem, to: 1Mbps }, for: 1s }\nflows:"),
        ("flows:", "events:\n  - { at: 1s, outage: base }\nflows:"),
    ] {
        let text = BASE.replace(from, to);
        assert!(!schema.is_valid(&json_of(&text)), "schema: {from} -> {to}");
        refused(&text);
    }
}

fn check_generated(name: &str, now: &str) {
    let path = repository().join("docs/reference").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, now).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == now,
        "docs/reference/{name} is not what the format says; run this test with UPDATE=1"
    );
}

#[test]
fn the_generated_schema_is_current() {
    check_generated("scenario.schema.json", &format!("{:#}\n", reference::schema()));
}

#[test]
fn the_generated_page_is_current() {
    let scenarios = scenario_files().into_iter().map(|file| load(&file).unwrap());
    let list: Vec<_> = scenarios.map(|scenario| (scenario.name, scenario.about)).collect();
    let page = reference::markdown(&list);
    assert!(!page.contains("| – |  |"), "a key without words:\n{page}");
    check_generated("scenarios.md", &page);
}

#[test]
fn defaults_are_filled_in() {
    let scenario = parsed_scenario(BASE);
    let NetworkKind::Wifi(wifi) = &scenario.networks[0].kind else { panic!() };
    assert_eq!((wifi.rate, wifi.retries), (RateControl::Fixed(6_000_000), 7));
    assert_eq!((wifi.power_dbm, wifi.noise_dbm, wifi.carrier_sense_dbm), (15.0, -94.0, -82.0));
    let NetworkKind::Pipe(pipe) = &scenario.networks[1].kind else { panic!() };
    assert_eq!((pipe.queue_bytes, pipe.burst_bytes, pipe.overhead_bytes), (100_000, 0, 0));
    assert_eq!(scenario.stations[0].queue_packets, 1000);
    assert_eq!(scenario.stations[0].motion.waypoints, [(0, [0.0; 3])]);
    let flow = &scenario.flows[0];
    assert_eq!(
        (flow.over, flow.priority, flow.pace, flow.congestion),
        (Over::Tautline, 100, Pace::Every(20_000_000), Congestion::Cubic)
    );
    let tautline = Tautline { in_flight: 2, dscp: true, ..Tautline::default() };
    assert_eq!(scenario.tautline, tautline);
}

#[test]
fn virtual_time_refuses_tcp_with_its_line() {
    assert!(parsed_scenario(BASE).real_time_only.is_empty());
    let tcp = "every: saturate, over: tcp, congestion: bbr, dscp: 8, count: 3";
    let scenario = parsed_scenario(&BASE.replace("every: 20ms", tcp));
    let flow = &scenario.flows[0];
    assert_eq!((flow.over, flow.pace), (Over::Tcp, Pace::Saturate));
    assert_eq!((flow.congestion, flow.dscp, flow.count), (Congestion::Bbr, 8, Some(3)));
    let [problem] = &scenario.real_time_only[..] else { panic!("{:?}", scenario.real_time_only) };
    assert_eq!(
        problem.to_string(),
        "13:77: flows[0].over: found 'tcp'; allowed: tautline or udp in virtual time: TCP is the kernel's own (tautline-lab air)"
    );
}

#[test]
fn every_key_of_wifi_and_pipe_reaches_the_medium() {
    let text = BASE
        .replace(
            "rate: 6Mbps",
            "phy: dsss, rate: 5.5Mbps, access: edca, retries: 3, loss: { enter: 1%, leave: 20% }, \
             loss_per: frame, power: -3.5, noise: -90, carrier_sense: -80, access_point: base",
        )
        .replace(
            "rate: 3Mbps",
            "rate: 3Mbps, delay: 40ms, jitter: 10ms, reorder: { share: 5%, by: 50ms }, duplicate: 2%, loss: 1%, queue: 64KiB, burst: 1600, overhead: 14, duplex: half, mark: 2ms",
        );
    let scenario = parsed_scenario(&text);
    let NetworkKind::Wifi(wifi) = &scenario.networks[0].kind else { panic!() };
    let expected = WifiConfig {
        phy: tautline_medium::Phy::Dsss,
        access: tautline_medium::Access::Edca,
        rate: RateControl::Fixed(5_500_000),
        retries: 3,
        loss: Loss::GilbertElliott { enter: 0.01, leave: 0.2 },
        trial: tautline_medium::Trial::Frame,
        power_dbm: -3.5,
        noise_dbm: -90.0,
        carrier_sense_dbm: -80.0,
        path_loss: None,
        access_point: Some(StationId(1)),
    };
    assert_eq!(*wifi, expected);
    let NetworkKind::Pipe(pipe) = &scenario.networks[1].kind else { panic!() };
    let expected = PipeConfig {
        rate_bps: 3_000_000,
        overhead_bytes: 14,
        burst_bytes: 1600,
        delay: 40_000_000,
        jitter: 10_000_000,
        loss: Loss::Uniform { probability: 0.01 },
        queue_bytes: 65536,
        half_duplex: true,
        reordering: Reordering { probability: 0.05, delay: 50_000_000 },
        duplicates: 0.02,
        trace: None,
        aqm: Aqm::Step(2_000_000),
    };
    assert_eq!(*pipe, expected);
    let codel = parsed_scenario(&BASE.replace("rate: 3Mbps", "rate: 3Mbps, aqm: codel"));
    let NetworkKind::Pipe(pipe) = &codel.networks[1].kind else { panic!() };
    assert_eq!(pipe.aqm, Aqm::Codel);
}

#[test]
fn counted_stations_stand_on_a_circle() {
    let scenario = parsed_scenario(BASE);
    let names: Vec<&str> = scenario.stations.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["robot", "base", "worker1", "worker2", "worker3"]);
    for (number, angle) in [(2, 0.0f64), (3, 120.0), (4, 240.0)] {
        let [x, y, z] = scenario.stations[number].motion.waypoints[0].1;
        let (dx, dy) = (2.0 * angle.to_radians().cos(), 2.0 * angle.to_radians().sin());
        assert!((x - 1.0 - dx).abs() < 1e-9 && (y - dy).abs() < 1e-9 && z == 0.0, "{x} {y} {z}");
    }
}

#[test]
fn links_of_a_flow_are_networks_that_its_ends_share() {
    let with = |keys: &str| {
        let text =
            BASE.replace("  base: { networks: [adhoc] }", "  base: { networks: [modem, adhoc] }");
        let flow = parsed_scenario(&text.replace("every: 20ms", &format!("every: 20ms, {keys}")))
            .flows
            .remove(0);
        (flow.links, flow.only_links, flow.avoid_links)
    };
    let (none, best) = (Vec::new(), LinkPolicy::Best);
    assert_eq!(with("priority: 20"), (LinkPolicy::Stripe, none.clone(), none.clone()));
    assert_eq!(with("links: duplicate"), (LinkPolicy::Duplicate(2), none.clone(), none.clone()));
    let three = with("links: duplicate, copies: 3");
    assert_eq!(three, (LinkPolicy::Duplicate(3), none.clone(), none.clone()));
    let only = with("links: best, only_links: [modem, adhoc]");
    assert_eq!(only, (best, vec![1, 0], none.clone()));
    assert_eq!(with("links: best, avoid_links: [adhoc]"), (best, none, vec![0]));
}

#[test]
fn a_flow_has_the_order_of_arrival_by_default() {
    let with = |keys: &str| {
        parsed_scenario(&BASE.replace("every: 20ms", &format!("every: 20ms{keys}")))
            .flows
            .remove(0)
            .order
    };
    let wait = std::time::Duration::from_millis(200);
    assert_eq!(with(""), DeliveryOrder::Arrival);
    assert_eq!(with(", order: sent"), DeliveryOrder::Sent { wait });
    assert_eq!(with(", order: newest"), DeliveryOrder::Newest);
}

fn flow_ends(from: &str, to: &str) -> Vec<(String, usize, usize)> {
    let text = BASE.replace("from: robot, to: base", &format!("from: {from}, to: {to}"));
    parsed_scenario(&text).flows.into_iter().map(|flow| (flow.name, flow.from, flow.to)).collect()
}

#[test]
fn a_pattern_makes_one_flow_per_station() {
    let expected = [2, 3, 4].map(|n| (format!("laser-worker{}", n - 1), n, 0));
    assert_eq!(flow_ends("worker*", "robot"), expected);
    let expected = [2, 3, 4].map(|n| (format!("laser-worker{}", n - 1), 0, n));
    assert_eq!(flow_ends("robot", "'*er*'"), expected);
}

#[test]
fn the_other_end_is_not_part_of_a_pattern() {
    assert_eq!(flow_ends("worker1", "worker*").len(), 2);
}

#[test]
fn patterns_at_both_ends_make_pairs() {
    let text = BASE
        .replace("  base:", "  echoer: { count: 3, networks: [modem] }\n  base:")
        .replace("from: robot, to: base", "from: worker*, to: echoer*");
    let flows: Vec<_> =
        parsed_scenario(&text).flows.into_iter().map(|f| (f.name, f.from, f.to)).collect();
    let expected = [1, 2, 3].map(|n| (format!("laser-worker{n}"), n + 4, n));
    // The workers' numbers follow those of three echoers, the robot and the base.
    assert_eq!(flows, expected.map(|(name, from, to)| (name, from, to)));
}

#[test]
fn a_route_is_followed_in_both_directions_before_a_common_network() {
    let text = format!("{BASE}routes:\n  - [base, robot, worker2]\n");
    let scenario = parsed_scenario(&text);
    assert_eq!(scenario.path(1, 3), Some(vec![1, 0, 3]));
    assert_eq!(scenario.path(3, 1), Some(vec![3, 0, 1]));
    assert_eq!(scenario.path(2, 3), Some(vec![2, 3]));
    assert_eq!(scenario.path(1, 2), None);
}

#[test]
fn events_are_in_order_of_time_and_say_when_they_end() {
    let text = format!(
        "{BASE}events:\n\
         - {{ at: 9s, rate: {{ network: modem, to: 1Mbps }} }}\n\
         - {{ at: 5s, for: 2s, outage: robot }}\n\
         - {{ at: 6s, for: 2s, outage: [robot, base] }}\n\
         - {{ at: 7s, for: 2s, outage: robot, network: modem }}\n\
         - {{ at: 8s, for: 2s, outage: [base, robot], network: adhoc }}\n\
         - {{ at: 1s, for: 2s, interference: {{ network: adhoc, at: [5, 5], burst: 2ms, pause: 10ms }} }}\n"
    );
    let second = 1_000_000_000;
    let events = parsed_scenario(&text).events;
    let times: Vec<Nanos> = events.iter().map(|event| event.at / second).collect();
    assert_eq!(times, [1, 5, 6, 7, 8, 9]);
    let interference = Interference {
        burst: 2_000_000,
        mean_pause: 10_000_000,
        place: [5.0, 5.0, 0.0],
        from: second,
        until: 3 * second,
    };
    assert_eq!(events[0].happening, Happening::Interference { network: 0, interference });
    let (robot, pair) = (Outage::at(StationId(0)), Outage::between(StationId(0), StationId(1)));
    let [adhoc, modem] = [0, 1].map(tautline_medium::NetworkId);
    for (number, outage) in [(1, robot), (2, pair), (3, robot.on(modem)), (4, pair.on(adhoc))] {
        let until = events[number].at + 2 * second;
        assert_eq!(events[number].happening, Happening::Outage { outage, until });
    }
    assert_eq!(events[5].happening, Happening::Rate { network: 1, bps: 1_000_000 });
}

#[test]
fn a_trace_is_read_relative_to_the_scenario() {
    let folder = std::env::temp_dir().join(format!("tautline-trace-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("walk.csv"), "seconds,x,y\n0,1,2\n2.5,3,4,5\n").unwrap();
    std::fs::write(folder.join("bad.csv"), "0,1,2\n0,3,4\n").unwrap();
    let with = |file: &str| {
        let station = format!("  base: {{ networks: [adhoc], trace: {file} }}");
        parse("test", &BASE.replace("  base: { networks: [adhoc] }", &station), &folder)
    };
    let (walk, bad, none) = (with("walk.csv"), with("bad.csv"), with("."));
    std::fs::remove_dir_all(&folder).unwrap();
    let expected = [(0, [1.0, 2.0, 0.0]), (2_500_000_000, [3.0, 4.0, 5.0])];
    assert_eq!(walk.unwrap().stations[1].motion.waypoints, expected);
    let problem = bad.unwrap_err().remove(0).to_string();
    assert!(problem.starts_with("10:37: stations.base.trace: found "), "{problem}");
    assert!(
        problem.contains("bad.csv: line 2: '0,3,4'; allowed: lines of seconds,x,y"),
        "{problem}"
    );
    assert!(none.unwrap_err()[0].found.ends_with("not a regular file"));
}

#[test]
fn the_error_of_a_file_begins_with_its_name() {
    let missing = load(Path::new("/nonexistent/a.yaml")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/a.yaml: cannot be read: "), "{missing}");
    let own_manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let wrong = load(&own_manifest).unwrap_err().to_string();
    assert!(wrong.starts_with(&format!("{}:", own_manifest.display())), "{wrong}");
}

#[test]
fn too_many_flows_and_too_large_files_are_refused() {
    let mut text = BASE.replace("count: 3", "count: 200");
    for number in 0..30 {
        text +=
            &format!("  - {{ name: f{number}, from: robot, to: worker*, size: 1, every: 1s }}\n");
    }
    let problems = refused(&text);
    let expected = "found more than 4096 flows; allowed: at most 4096";
    assert!(
        problems.starts_with("34:5: flows[21]: ") && problems.ends_with(expected),
        "{problems}"
    );
    let large = refused(&format!("{BASE}#{}", " ".repeat(256 * 1024)));
    assert_eq!(large, "1:1: found a larger file; allowed: at most 262144 bytes");
}

#[test]
fn checking_ends_at_the_limit_of_problems() {
    let text = BASE.replace("count: 3", "count: 250");
    let wrong = "  - { name: f, from: werker12, to: base, size: 1, every: 1s }\n".repeat(3000);
    let problems = parse("test", &(text + &wrong), Path::new("")).unwrap_err();
    assert_eq!(problems.len(), config::MAX_PROBLEMS);
    let allowed = &problems[0].allowed;
    assert!(allowed.starts_with("perhaps 'worker12'; all: robot, base, worker1, "), "{allowed}");
    assert!(allowed.ends_with("worker18 and 232 more"), "{allowed}");
}

/// Pieces of text that a mistake or malice may put into a file.
const PIECES: &[&str] = &[
    "",
    " ",
    "\n",
    "\n  ",
    ":",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "*",
    "&a ",
    "0",
    "-1",
    "1e999",
    "~",
    "'",
    "\"",
    "24h",
    "99999999999999999999Gbps",
    "networks",
    "worker*",
    "*",
    "[[[[",
    "{ wifi: ",
    "count: 256, ",
    "adaptive",
    "\u{0}",
    "é",
    "---\n",
    "!!int ",
    "null",
    "<<: ",
    "|\n",
];

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}") {
        let _ = parse("test", &text, Path::new("/nonexistent"));
    }

    #[test]
    fn no_damage_to_a_scenario_makes_the_reader_panic(
        which in any::<prop::sample::Index>(),
        damages in prop::collection::vec((any::<prop::sample::Index>(), 0usize..20, 0..PIECES.len()), 1..5),
    ) {
        let files = scenario_files();
        let mut text: Vec<char> = std::fs::read_to_string(which.get(&files)).unwrap().chars().collect();
        for (place, removed, piece) in damages {
            let start = place.index(text.len());
            let end = (start + removed).min(text.len());
            text.splice(start..end, PIECES[piece].chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(problems) = parse("test", &text, Path::new("/nonexistent")) {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(|p| p.at.line >= 1 && p.at.column >= 1));
        }
    }
}
