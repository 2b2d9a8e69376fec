// SPDX-License-Identifier: Apache-2.0
//! `tautline-lab sim` as the user runs it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LAB: &str = env!("CARGO_BIN_EXE_tautline-lab");

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name)
}

fn sim(file: &Path, arguments: &[&str]) -> Output {
    Command::new(LAB).arg("sim").arg(file).args(arguments).output().unwrap()
}

fn figures(name: &str) -> Value {
    let output = sim(&scenario(name), &["--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn flow<'a>(figures: &'a Value, name: &str) -> &'a Value {
    let flows = figures["flows"].as_array().unwrap();
    flows.iter().find(|flow| flow["name"] == name).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let run = |seed: &str, name: &str| {
        let output = folder.path().join(name);
        let to = output.to_str().unwrap();
        let arguments = ["--json", "--seed", seed, "--output", to];
        let printed = sim(&scenario("outage.yaml"), &arguments).stdout;
        (printed, std::fs::read(output.join("samples.csv")).unwrap())
    };
    let first = run("7", "a");
    assert_eq!(first, run("7", "b"));
    assert_ne!(first, run("8", "c"));
}

#[test]
fn in_one_hop_of_pound_the_laser_overtakes_the_image() {
    let figures = figures("pound-1hop.yaml");
    for (name, sent) in [("laser", 1000), ("image", 500)] {
        let flow = flow(&figures, name);
        assert_eq!((&flow["sent"], &flow["received"]), (&sent.into(), &sent.into()), "{flow}");
    }
    // Behind a whole image in one queue the mean would be 50 ms.
    let laser = flow(&figures, "laser")["delay_ms"]["mean"].as_f64().unwrap();
    assert!((2.0..10.0).contains(&laser), "{laser} ms");
}

/// A map is repaired as long as it takes. A laser next to it waits for the packet that is being sent,
/// and no longer.
#[test]
fn a_large_map_arrives_and_the_laser_waits_for_one_of_its_packets() {
    let figures = figures("large-map.yaml");
    for (link, packet_ms) in [("slow", 12.0), ("fast", 2.4)] {
        let map = flow(&figures, &format!("map-{link}"));
        assert_eq!(map["received"], 1, "{map}");
        let delay = |flow: &Value, name| flow["delay_ms"][name].as_f64().unwrap();
        assert!(delay(map, "mean") > 10_000.0, "{map}");
        let alone = flow(&figures, &format!("laser-{link}-alone"));
        let laser = flow(&figures, &format!("laser-{link}"));
        assert_eq!(laser["received"], laser["sent"]);
        for name in ["mean", "p99"] {
            let added = delay(laser, name) - delay(alone, name);
            assert!(added < packet_ms * 1.2, "{link}: {name} is {added} ms longer");
        }
    }
}

#[test]
fn tcp_in_virtual_time_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("download.yaml");
    let text = std::fs::read_to_string(scenario("saturation.yaml")).unwrap();
    std::fs::write(&file, text.replace("over: udp", "over: tcp")).unwrap();
    let output = sim(&file, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let problem = said.split_once("download.yaml:").unwrap().1;
    assert!(problem.contains(": flows[0].over: found 'tcp'; allowed: tautline or udp"), "{said}");
    assert!(problem.contains("tautline-lab air"), "{said}");
}

#[test]
fn saturated_throughput_matches_the_standard() {
    let figures = figures("saturation.yaml");
    let flows = figures["flows"].as_array().unwrap();
    let kbps: f64 = flows.iter().map(|flow| flow["goodput_kbps"].as_f64().unwrap()).sum();
    // Three stations: 4.93 Mbps of IP, of which 1472 of 1500 bytes are payload.
    assert!((kbps / 4836.0 - 1.0).abs() < 0.03, "{kbps} kbps");
}

#[test]
fn load_does_not_degrade_a_control_loop() {
    let figures = figures("pound-control-loop.yaml");
    let quality = &figures["control_loops"][0];
    let overshoot = quality["overshoot_percent"].as_f64().unwrap();
    // 35 % without delay, 45 % with a delay of one period.
    assert!((30.0..45.0).contains(&overshoot), "{quality}");
    assert!(quality["settled_s"].as_f64().is_some_and(|seconds| seconds < 1.5), "{quality}");
}

#[test]
fn an_error_in_a_scenario_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.yaml");
    let text = "about: x\nduration: 1s\nnetworks:\n  a:\n    wifi: { rate: 7Mbps }\n\
                stations:\n  b: { networks: [a] }\n  c: { networks: [a] }\n";
    std::fs::write(&file, text).unwrap();
    let output = sim(&file, &[]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(error.contains("bad.yaml:5:") && error.contains("54Mbps"), "{error}");
}

/// Runs a scenario's text; returns its figures.
fn figures_of(text: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made.yaml");
    std::fs::write(&file, text).unwrap();
    let output = sim(&file, &["--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_saturating_writer_loses_messages_but_stays_on_schedule() {
    let figures = figures_of(
        "about: x\nduration: 1s\nnetworks:\n  line:\n    pipe: { rate: 6Mbps, queue: 20KB }\n\
         stations:\n  a: { networks: [line] }\n  b: { networks: [line] }\n\
         flows:\n  - { name: bulk, from: a, to: b, size: 1472, every: saturate, over: udp }\n",
    );
    let kbps = flow(&figures, "bulk")["goodput_kbps"].as_f64().unwrap();
    assert!((kbps / 5888.0 - 1.0).abs() < 0.02, "{kbps} kbps");
    assert!(flow(&figures, "bulk")["mdr_percent"].as_f64().unwrap() < 50.0);
}

#[test]
fn an_outage_within_another_does_not_end_it() {
    let figures = figures_of(
        "about: x\nduration: 10s\nnetworks: { line: { pipe: { rate: 6Mbps } } }\n\
         stations:\n  a: { networks: [line] }\n  b: { networks: [line] }\n\
         flows:\n  - { name: beat, from: a, to: b, size: 100, every: 100ms, over: udp }\n\
         events:\n  - { at: 1s, for: 8s, outage: a }\n  - { at: 2s, for: 1s, outage: a }\n",
    );
    assert_eq!(flow(&figures, "beat")["received"], 20, "80 of 100 fall into the outage");
}

#[test]
fn three_relay_hops_deliver_without_ip_forwarding() {
    let text = std::fs::read_to_string(scenario("relay-3hops.yaml")).unwrap();
    let short = text.replace("duration: 155s", "duration: 5s").replace("count: 1000", "count: 200");
    let figures = figures_of(&short);
    let laser = flow(&figures, "laser");
    assert_eq!((&laser["sent"], &laser["received"]), (&200.into(), &200.into()), "{laser}");
    assert!(flow(&figures, "image")["received"].as_u64() > Some(0), "{figures}");
    let links = figures["links"].as_array().unwrap();
    let name = |link: &Value| link["name"].as_str().unwrap().to_owned();
    let link = |it: &str| links.iter().find(|link| name(link) == it).unwrap();
    let packets = |it: &str| link(it)["sent_packets"].as_u64().unwrap();
    assert!(packets("relay2 to base on adhoc") >= packets("robot to base through relay1"));
    assert!(!links.iter().any(|link| name(link) == "robot to base on adhoc"));
}

/// Wi-Fi fails for 10 of 30 s. `keep_last` and `only_links` drop the lost messages.
#[test]
fn traffic_continues_on_the_other_radio_while_one_is_out() {
    let figures = figures("two-radios.yaml");
    let received = |name: &str| flow(&figures, name)["received"].as_u64().unwrap();
    assert_eq!(received("laser"), 1500, "all that were sent");
    let commands = received("command");
    assert!(commands >= 1490, "{commands} of 1500: each has a copy on LTE");
    // The images need both radios for their rate, and one of them suffices.
    let images = received("images");
    assert!(images >= 270, "{images} of 300");
    // 100 logs fall into the outage; the last ten are kept and arrive after it.
    let logs = received("logs");
    assert!((195..=215).contains(&logs), "{logs} of 300 by Wi-Fi alone");
}

/// Each scan takes one of two links of different delay at random.
#[test]
fn ordered_delivery_costs_delay_or_messages() {
    let text = std::fs::read_to_string(scenario("two-radios.yaml")).unwrap();
    let text = text.split("events:").next().unwrap().replace("duration: 30s", "duration: 9s");
    let laser = |order: &str| {
        let keys = format!("priority: 200, links: weighted, order: {order},");
        let figures = figures_of(&text.replace("priority: 200,", &keys));
        let laser = flow(&figures, "laser");
        (laser["received"].as_f64().unwrap(), laser["delay_ms"]["mean"].as_f64().unwrap())
    };
    let [arrival, sent, newest] = ["arrival", "sent", "newest"].map(laser);
    assert_eq!((arrival.0, sent.0), (450.0, 450.0), "all arrive within the wait");
    assert!(sent.1 > arrival.1 && arrival.1 > newest.1, "{arrival:?}, {sent:?}, {newest:?}");
    assert!(newest.0 < 400.0, "{newest:?}: what is overtaken is dropped");
}

#[test]
fn an_avoided_link_carries_images_only_while_the_other_is_out() {
    let text = std::fs::read_to_string(scenario("two-radios.yaml")).unwrap();
    let avoiding = text.replace("keep_last: 2,", "keep_last: 2, avoid_links: [lte],");
    let bytes = |text: &str| {
        let figures = figures_of(text);
        let links = figures["links"].as_array().unwrap().clone();
        let lte = links.iter().find(|link| link["name"] == "robot to base on lte").unwrap();
        lte["sent_bytes"].as_u64().unwrap()
    };
    let images_in_outage = 100 * 61_000;
    let avoided = bytes(&avoiding);
    assert!(avoided > images_in_outage * 9 / 10, "{avoided} bytes by LTE");
    let before = avoiding.replace("duration: 30s", "duration: 9s");
    let before = before.split("events:").next().unwrap();
    let used = bytes(before);
    assert!(used < 61_000, "{used} bytes by LTE while Wi-Fi is up");
    assert!(bytes(&text) > avoided, "without the key, LTE carries images at all times");
}
