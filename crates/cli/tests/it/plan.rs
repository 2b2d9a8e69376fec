// SPDX-License-Identifier: Apache-2.0
//! `tautline plan` from the user's side.

use crate::PROGRAM;
use serde_json::{Value as Json, json};
use std::path::Path;
use std::process::{Command, Output};

const ROBOT: &str = "name: robot1\nsecurity: none\npeers: { base: { address: 10.0.0.1, accept: [/cmd_vel] } }\n\
    topics:\n  \
    /scan: { priority: 200, expect: { rate: 20Hz, size: 1kB } }\n  \
    /image: { priority: 20, rate: 5Hz, expect: { rate: 30Hz, size: 40kB } }\n";
const BASE: &str = "name: base\nsecurity: none\npeers: { robot1: { address: 10.0.0.2, prefix: /robot1 } }\n\
    topics:\n  \
    /cmd_vel: { priority: 220, expect: { rate: 20Hz } }\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.file("robot1.yaml", ROBOT);
        place.file("base.yaml", BASE);
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn plan(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("plan").args(arguments).current_dir(self.path()).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> (Json, Option<i32>) {
        let output = self.plan(&[arguments, &["--json"]].concat());
        let json = serde_json::from_slice(&output.stdout);
        (json.unwrap_or_else(|_| panic!("{}", error(&output))), output.status.code())
    }
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A report of a topic in `status --json`.
fn report(topic: &str, direction: &str, peer: &str, messages: u64, bytes: u64) -> Json {
    json!({
        "topic": topic, "direction": direction, "peer": peer, "type_name": "", "priority": 200,
        "rate_hz": null, "wanted": true, "messages": messages, "bytes": bytes, "delivered": 0,
        "queued": 0, "sent": 0, "rate_limited": 0, "recovered_packets": 0, "dropped": {},
        "given_up": null, "links": null, "delay": null, "delay_bound_ms": null,
    })
}

fn snapshot(node: &str, uptime_s: f64, topics: &[Json]) -> String {
    let mut status: Json =
        serde_json::from_str(include_str!("../../../tautline/src/status/fixture.json")).unwrap();
    status["node"] = node.into();
    status["uptime_s"] = uptime_s.into();
    status["topics"] = topics.into();
    status.to_string()
}

#[test]
fn a_plan_names_missing_rates_and_sizes() {
    let place = Place::new();
    place.file("base.yaml", &BASE.replace(", expect: { rate: 20Hz }", ""));
    let both = ["base.yaml", "robot1.yaml", "--radio", "wifi:6Mbps"];
    let output = place.plan(&both);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error(&output).contains("base.yaml: /cmd_vel: rate and size must be known"),
        "{}",
        error(&output)
    );
    place.file("base.yaml", BASE);
    assert!(error(&place.plan(&both)).contains("base.yaml: /cmd_vel: the size must be known"));
    let (plan, code) = place.json(&[&both[..], &["--expect", "base:/cmd_vel=20Hz,48B"]].concat());
    assert_eq!(code, Some(0), "{plan}");
    let topics = plan["plan"]["topics"].as_array().unwrap();
    let names: Vec<&str> = topics.iter().filter_map(|it| it["topic"].as_str()).collect();
    assert_eq!(names, ["/cmd_vel", "/scan", "/image"]);
    assert_eq!(topics[2]["rate_hz"], 5.0, "the rate limit of the rule");
    let delays = ["least_ms", "typical_ms", "worst_ms"].map(|it| topics[1][it].as_f64().unwrap());
    assert!(delays.is_sorted(), "{delays:?}");
}

#[test]
fn excess_load_is_reported_with_the_topics_that_lose() {
    let place = Place::new();
    place.file("robot1.yaml", &ROBOT.replace("rate: 5Hz, ", ""));
    let (plan, code) = place.json(&["robot1.yaml", "--radio", "wifi:6Mbps"]);
    assert_eq!((code, &plan["plan"]["fits"]), (Some(3), &json!(false)));
    assert_eq!(plan["plan"]["gives_way"][0]["topic"], "/image");
    let output = place.plan(&["robot1.yaml", "--radio", "wifi:6Mbps"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("/image gives way (priority 20): it keeps"), "{text}");
}

#[test]
fn the_file_may_name_its_radio_and_check_warns_if_it_is_too_slow() {
    let place = Place::new();
    let radio = "radios: { wlan0: { channel: \"wifi:6Mbps\" } }\n";
    place.file("robot1.yaml", &format!("{ROBOT}{radio}"));
    let (plan, code) = place.json(&["robot1.yaml"]);
    let radios = json!([{ "radio": "wlan0", "channel": "802.11 at 6 Mbps, WMM" }]);
    assert_eq!((code, &plan["radios"]), (Some(0), &radios));
    let check = || {
        let mut command = Command::new(PROGRAM);
        let output = command.args(["check", "robot1.yaml"]).current_dir(place.path()).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert!(!check().contains("wlan0.channel"));
    place.file("robot1.yaml", &format!("{}{radio}", ROBOT.replace("rate: 5Hz, ", "")));
    let text = check();
    assert!(
        text.contains("radios.wlan0.channel") && text.contains("% of what this radio carries"),
        "{text}"
    );
    place.file("robot2.yaml", &ROBOT.replace("robot1", "robot2"));
    place.file("base.yaml", &format!("{BASE}{}", radio.replace('6', "54")));
    let output = place.plan(&["robot1.yaml", "base.yaml"]);
    assert!(error(&output).contains("the files have different radios"), "{}", error(&output));
    let output = place.plan(&["robot2.yaml"]);
    assert!(error(&output).contains("no radio: give --radio"), "{}", error(&output));
}

#[test]
fn notes_name_gaps_and_contradictions_of_files() {
    let place = Place::new();
    let robot = ROBOT.replace("accept: [/cmd_vel]", "accept: [/stop]");
    place.file("robot1.yaml", &robot);
    place.file("robot2.yaml", &ROBOT.replace("robot1", "robot2"));
    let base = BASE.replace("rate: 20Hz", "rate: 20Hz, size: 48B");
    place.file(
        "base.yaml",
        &base.replace(
            "10.0.0.2, prefix: /robot1 }",
            "10.0.0.2, prefix: /robot1 }, robot3: 10.0.0.4",
        ),
    );
    let (plan, _) =
        place.json(&["base.yaml", "robot1.yaml", "robot2.yaml", "--radio", "wifi:6Mbps"]);
    assert_eq!(
        plan["notes"],
        json!([
            "no file of robot3: what it sends is not counted",
            "robot1.yaml: does not accept /cmd_vel of base; it is not counted",
            "robot2 has base as a peer, but base.yaml has no peer robot2",
        ])
    );
    let topics = plan["plan"]["topics"].as_array().unwrap();
    let commands: Vec<_> =
        topics.iter().filter(|it| it["topic"] == "/cmd_vel").map(|it| &it["to"]).collect();
    assert_eq!(commands, ["robot3"]);
    place.file("copy.yaml", &robot);
    let output = place.plan(&["robot1.yaml", "copy.yaml", "--radio", "wifi:6Mbps"]);
    assert!(error(&output).contains("robot1.yaml and copy.yaml are both files of robot1"));
}

#[test]
fn a_worst_case_beyond_the_lifespan_is_reported() {
    let place = Place::new();
    place.file("robot1.yaml", &ROBOT.replace("rate: 5Hz", "rate: 5Hz, lifespan: 50ms"));
    let arguments = ["robot1.yaml", "--radio", "wifi:6Mbps"];
    let (plan, _) = place.json(&arguments);
    assert_eq!(plan["plan"]["topics"][1]["may_expire"], true);
    let text = String::from_utf8(place.plan(&arguments).stdout).unwrap();
    assert!(text.contains("/image from robot1 to base: messages may expire: worst case"), "{text}");
}

/// A robot with Wi-Fi and a metered link.
const TWO_LINKS: &str = "name: robot1\nsecurity: none\npeers:\n  base:\n    links:\n      \
    - { name: wifi, address: 10.0.0.1, interface: wlan0 }\n      \
    - { name: lte, address: 10.1.0.1, interface: wwan0, metered: true }\n    \
    accept: [/cmd_vel]\ntopics:\n  \
    /pose: { priority: 250, only_links: [wifi, lte], expect: { rate: 20Hz, size: 100B } }\n  \
    /scan: { priority: 200, expect: { rate: 20Hz, size: 1kB } }\n  \
    /image: { priority: 20, only_links: [wifi], expect: { rate: 5Hz, size: 40kB } }\n";
const BASE_OF_TWO_LINKS: &str = "name: base\nsecurity: none\npeers:\n  robot1:\n    prefix: /robot1\n    \
    links:\n      - { name: wifi, address: 10.0.0.2, interface: wlp2s0 }\n      \
    - { name: lte, address: 10.1.0.2, interface: eth0, metered: true }\ntopics:\n  \
    /cmd_vel: { priority: 190, expect: { rate: 20Hz, size: 48B } }\n";

#[test]
fn topics_are_planned_on_the_radios_of_their_links() {
    let place = Place::new();
    place.file("robot1.yaml", TWO_LINKS);
    place.file("base.yaml", BASE_OF_TWO_LINKS);
    let radios =
        ["--radio", "wlan0,wlp2s0=wifi:6Mbps", "--radio", "wwan0,eth0=line:1Mbps,delay=40ms"];
    let (plan, code) = place.json(&[&["robot1.yaml", "base.yaml"], &radios[..]].concat());
    assert_eq!(code, Some(0), "{plan}");
    let carried = |topic: &str| {
        let topics = plan["plan"]["topics"].as_array().unwrap();
        let found = topics.iter().find(|it| it["topic"] == topic).unwrap();
        let radios = found["radios"].as_array().unwrap();
        radios.iter().map(|it| it["radio"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(carried("/pose"), ["wlan0", "wwan0"], "a copy on each link that it names");
    assert_eq!(carried("/scan"), ["wlan0"], "the other link is metered");
    assert_eq!(carried("/cmd_vel"), ["wlan0"], "by the base's links");
    let without = |radio: &str| {
        let all = plan["plan"]["without"].as_array().unwrap();
        all.iter().find(|it| it["radio"] == radio).unwrap().clone()
    };
    let waiting = json!([{ "from": "robot1", "to": "base", "topic": "/image" }]);
    assert_eq!(without("wlan0")["waits"], waiting);
    assert_eq!(without("wwan0")["waits"], json!([]));
    let output = place.plan(&[&["robot1.yaml", "base.yaml"], &radios[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("While wlan0 is down")
            && text.contains("/image from robot1 to base waits: no other link"),
        "{text}"
    );
}

#[test]
fn radios_of_several_links_come_from_the_files_too() {
    let place = Place::new();
    let radios = |wifi: &str, lte: &str| {
        format!(
            "radios: {{ {wifi}: {{ channel: \"wifi:6Mbps\" }}, {lte}: {{ channel: \"line:1Mbps\" }} }}\n"
        )
    };
    place.file("robot1.yaml", &format!("{TWO_LINKS}{}", radios("wlan0", "wwan0")));
    place.file("base.yaml", &format!("{BASE_OF_TWO_LINKS}{}", radios("wlp2s0", "eth0")));
    let (plan, _) = place.json(&["robot1.yaml", "base.yaml"]);
    let names: Vec<_> = plan["radios"].as_array().unwrap().iter().map(|it| &it["radio"]).collect();
    assert_eq!(names, ["wlan0", "wwan0"], "the base's have the same channels");
    for (arguments, expected) in [
        (
            &["--radio", "wlan0=wifi:6Mbps", "--radio", "wifi:6Mbps"][..],
            "several radios need INTERFACE",
        ),
        (
            &["--radio", "wlan0=wifi:6Mbps", "--radio", "wlan0=line:1Mbps"],
            "wlan0 has a radio already",
        ),
        (
            &["--radio", "wlan0=wifi:6Mbps", "--radio", "lte0=line:1Mbps"],
            "give --radio wwan0=RADIO",
        ),
    ] {
        let output = place.plan(&[&["robot1.yaml"], arguments].concat());
        assert!(error(&output).contains(expected), "{}", error(&output));
    }
    let output = place.plan(&["robot1.yaml", "--radio", "wlan0=wifi:6Mbps"]);
    assert!(error(&output).contains("give --radio wwan0=RADIO"), "a name is not for all links");
}

#[test]
fn paths_without_a_known_radio_are_named() {
    let place = Place::new();
    let waiting = "name: base\nsecurity: none\npeers: { robot1: { prefix: /robot1 } }\ntopics:\n  \
                   /cmd_vel: { priority: 190, expect: { rate: 20Hz, size: 48B } }\n";
    place.file("robot1.yaml", TWO_LINKS);
    place.file("base.yaml", waiting);
    let via = "robot1: { via: [relay], accept: [/scan] }, relay: { address: 10.0.0.3 }";
    place.file("far.yaml", &waiting.replace("robot1: { prefix: /robot1 }", via));
    let radios = ["--radio", "wlan0=wifi:6Mbps", "--radio", "wwan0=line:1Mbps"];
    for (files, expected) in [
        (&["base.yaml"][..], "no file of robot1 has links to base"),
        (&["base.yaml", "robot1.yaml"], "base: peers.robot1 has no links, so that only one"),
        (&["far.yaml"], "a relay leads to robot1; relays are planned with one radio only"),
    ] {
        let output = place.plan(&[files, &radios].concat());
        assert!(error(&output).contains(expected), "{}", error(&output));
    }
}

#[test]
fn snapshots_show_the_links_of_a_topic() {
    let place = Place::new();
    let mut scan = report("/scan", "out", "robot1", 1000, 1_000_000);
    scan["links"] = json!({
        "policy": "best", "bytes": { "wifi": 990_000, "lte": 10_000 }, "limits": { "lte": "metered" },
    });
    let mut status: Json = serde_json::from_str(&snapshot("base", 100.0, &[scan])).unwrap();
    let link = status["links"][0].clone();
    let links = [("wifi", "wlan0"), ("lte", "wwan0")].map(|(name, radio)| {
        let mut link = link.clone();
        link["peer"] = "robot1".into();
        link["name"] = name.into();
        link["radio"] = radio.into();
        link["up"] = true.into();
        link
    });
    status["links"] = json!(links);
    place.file("base.json", &status.to_string());
    let radios = ["--radio", "wlan0=wifi:6Mbps", "--radio", "wwan0=line:1Mbps"];
    let (plan, _) = place.json(&[&["--from", "base.json"], &radios[..]].concat());
    let topic = &plan["plan"]["topics"][0];
    assert_eq!(topic["radios"].as_array().unwrap().len(), 1, "{topic}");
    assert_eq!(topic["radios"][0]["radio"], "wlan0");
    assert_eq!(plan["plan"]["without"][0]["waits"], json!([]), "the other link takes over");
    let output = place.plan(&["--from", "base.json", "--radio", "wlan0=wifi:6Mbps"]);
    assert!(error(&output).contains("the radio wwan0 is unknown"), "{}", error(&output));
}

#[test]
fn rates_and_sizes_are_read_from_snapshots() {
    let place = Place::new();
    // The base receives what the robot sends; of the robot there is no snapshot.
    let topics = |messages| {
        [
            report("/cmd_vel", "out", "robot1", messages, messages * 48),
            report("/scan", "in", "robot1", messages / 2, messages / 2 * 1000),
        ]
    };
    place.file("early.json", &snapshot("base", 100.0, &topics(5000)));
    place.file("late.json", &snapshot("base", 110.0, &topics(5400)));
    let (plan, _) =
        place.json(&["--from", "early.json", "--from", "late.json", "--radio", "wifi:6Mbps"]);
    let topics = plan["plan"]["topics"].as_array().unwrap();
    let found: Vec<_> = topics
        .iter()
        .map(|it| {
            (
                it["from"].as_str().unwrap(),
                it["rate_hz"].as_f64().unwrap(),
                it["bytes"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(found, [("base", 40.0, 48), ("robot1", 20.0, 1000)]);
    assert_eq!(plan["measured"], json!([]), "the snapshots have no delays");
}

#[test]
fn measured_delays_are_compared_with_the_worst_case() {
    let place = Place::new();
    let scan = |messages: u64, late: u64| {
        let mut scan = report("/scan", "in", "robot1", messages, messages * 1000);
        scan["delay"] = json!({
            "mean_ms": 3.0, "p50_ms": 2.0, "p99_ms": 4.0, "max_ms": 950.0,
            "buckets": [[4.0, messages - late], [1000.0, late]],
        });
        [scan]
    };
    place.file("early.json", &snapshot("base", 100.0, &scan(1000, 1)));
    place.file("calm.json", &snapshot("base", 110.0, &scan(1200, 1)));
    place.file("late.json", &snapshot("base", 110.0, &scan(1200, 4)));
    let arguments = |last| ["--from", "early.json", "--from", last, "--radio", "wifi:6Mbps"];
    let (plan, _) = place.json(&arguments("calm.json"));
    let expected = json!([{
        "from": "robot1", "to": "base", "topic": "/scan", "messages": 200,
        "p99_ms": 4.0, "most_ms": 4.0, "error_ms": null,
    }]);
    assert_eq!(plan["measured"], expected, "delays between the snapshots");
    let (plan, _) = place.json(&arguments("late.json"));
    let of = |key: &str| plan["measured"][0][key].as_f64();
    assert_eq!((of("p99_ms"), of("most_ms")), (Some(1000.0), Some(950.0)));
    for (last, is_late) in [("calm.json", false), ("late.json", true)] {
        let output = place.plan(&arguments(last));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.contains("LATER THAN PLANNED"), is_late, "{text}");
        assert!(text.contains("Measured delays"), "{text}");
    }
}

#[test]
fn delays_are_drawn_against_the_load_and_the_number_of_robots() {
    let place = Place::new();
    let small = "name: robot1\nsecurity: none\npeers: { base: 10.0.0.1 }\ntopics:\n  \
                 /scan: { expect: { rate: 20Hz, size: 1kB } }\n  \
                 /map: { expect: { rate: 1Hz, size: 1kB } }\n";
    place.file("robot1.yaml", small);
    let radio = ["robot1.yaml", "--radio", "line:300kbps,shared", "--plot", "plot.svg"];
    let drawn = |more: &[&str]| {
        let output = place.plan(&[&radio[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        std::fs::read_to_string(place.path().join("plot.svg")).unwrap()
    };
    let load = drawn(&[]);
    for text in ["<svg", "/scan", "/map", "worst case", "fits up to ", " ms"] {
        assert!(load.contains(text), "{text}");
    }
    let robots = drawn(&["--plot-robots", "robot1"]);
    assert!(robots.contains("fits one robot") && robots.contains("robots like robot1"));
    let output = place.plan(&[&radio[..], &["--plot-robots", "robot7"]].concat());
    assert!(error(&output).contains("allowed are base, robot1"), "{}", error(&output));
    let full = ["robot1.yaml", "--radio", "line:1kbps,shared", "--plot", "plot.svg"];
    let output = place.plan(&[&full[..], &["--plot-robots", "robot1"]].concat());
    assert!(error(&output).contains("nothing to draw"), "{}", error(&output));
    // The name comes from a peer.
    let hostile = report("/<b>&\u{7}", "in", "robot1", 100, 100_000);
    place.file("base.json", &snapshot("base", 100.0, &[hostile]));
    let arguments = ["--from", "base.json", "--radio", "wifi:54Mbps", "--plot", "plot.svg"];
    assert_eq!(place.plan(&arguments).status.code(), Some(0));
    let text = std::fs::read_to_string(place.path().join("plot.svg")).unwrap();
    assert!(text.contains("/&lt;b&gt;&amp;") && !text.contains('\u{7}'));
    let nowhere = ["robot1.yaml", "--radio", "line:4Mbps", "--plot", "none/plot.svg"];
    assert!(error(&place.plan(&nowhere)).contains("--plot none/plot.svg: No such file"));
}

#[test]
fn errors_of_input_name_the_value_and_the_allowed_values() {
    let place = Place::new();
    place.file("young.json", &snapshot("base", 1.0, &[report("/cmd_vel", "out", "robot1", 9, 90)]));
    place.file("other.json", "{}");
    let radio = ["--radio", "wifi:6Mbps"];
    for (arguments, expected) in [
        (
            &["robot1.yaml", "--radio", "wifi:7Mbps"][..],
            "7 Mbps is no rate of 802.11; allowed are 6, 9",
        ),
        (&["missing.yaml"], "missing.yaml"),
        (
            &["robot1.yaml", "--expect", "/scan"],
            "--expect /scan: no '='; allowed is TOPIC=RATE,SIZE",
        ),
        (&["robot1.yaml", "--expect", "/scan=fast,1kB"], "'fast' is no rate"),
        (&["robot1.yaml", "--expect", "/scam=1Hz,1kB"], "no file has a topic of this name"),
        (
            &["robot1.yaml", "--expect", "robot9:/scan=1Hz,1kB"],
            "no file of robot9; there are files of: robot1",
        ),
        (&["robot1.yaml", "--plot", "plot.png"], "give a name that ends in .svg"),
        (&["--from", "young.json"], "the snapshot of base covers 1.0 s"),
        (
            &["--from", "other.json"],
            "other.json: not a snapshot of this version's `tautline status --json`",
        ),
        (&[], "no topics"),
    ] {
        let all = if arguments.contains(&"--radio") {
            arguments.to_vec()
        } else {
            [arguments, &radio].concat()
        };
        let output = place.plan(&all);
        assert_eq!(output.status.code(), Some(1), "{all:?}");
        assert!(error(&output).contains(expected), "{all:?}: {}", error(&output));
    }
}
