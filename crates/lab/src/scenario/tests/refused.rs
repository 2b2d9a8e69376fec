// SPDX-License-Identifier: Apache-2.0
//! Rejected files and the text of their errors.

use super::{BASE, refused};

/// Changes of [`BASE`], and the whole error of each.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "duration: 30s",
        "duration: 30",
        "2:11: duration: found '30'; allowed: a time from 1us to 24h with its unit (us, ms, s, min, h)",
    ),
    (
        "duration: 30s",
        "duration: [30s]",
        "2:11: duration: found a list; allowed: a time from 1us to 24h with its unit (us, ms, s, min, h)",
    ),
    (
        "about: A test\n",
        "",
        "1:1: about: found nothing, though it is required; allowed: a value, see docs/reference/scenarios.md",
    ),
    (
        "about: A test\n",
        "about:\n",
        "1:1: about: found nothing; allowed: one line of 1 to 300 characters",
    ),
    (
        "duration: 30s",
        "duration: 30s\nduration: 31s",
        "3:1: found 'duration' a second time (first on line 2); allowed: each key once",
    ),
    (
        "duration: 30s",
        "duration: 30s\nseed: 1",
        "3:1: found the unknown key 'seed'; allowed: about, source, duration, networks, stations, routes, flows, control_loops, events, tautline",
    ),
    (
        "rate: 6Mbps",
        "rate: 6",
        "5:19: networks.adhoc.wifi.rate: found '6'; allowed: 'adaptive', or a rate from 100bps to 100Gbps with its unit (bps, kbps, Mbps, Gbps)",
    ),
    (
        "rate: 6Mbps",
        "rate: 7Mbps",
        "5:19: networks.adhoc.wifi.rate: found '7Mbps'; allowed: a rate of ofdm: 6Mbps, 9Mbps, 12Mbps, 18Mbps, 24Mbps, 36Mbps, 48Mbps, 54Mbps",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, phy: dsss",
        "5:19: networks.adhoc.wifi.rate: found '6Mbps'; allowed: a rate of dsss: 1Mbps, 2Mbps, 5.5Mbps, 11Mbps",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, phy: ofmd",
        "5:31: networks.adhoc.wifi.phy: found 'ofmd'; allowed: perhaps 'ofdm'; all: ofdm, dsss",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, loss: { enter: 1%, leave: 0% }",
        "5:52: networks.adhoc.wifi.loss.leave: found '0%'; allowed: more than 0%, at most 100%",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, loss: { enter: 1%, laeve: 5% }",
        "5:45: networks.adhoc.wifi.loss: found the unknown key 'laeve'; allowed: perhaps 'leave'; all: enter, leave",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, loss: much",
        "5:32: networks.adhoc.wifi.loss: found 'much'; allowed: 0% to 100%, or { enter: SHARE, leave: SHARE }",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, noise: 5",
        "5:33: networks.adhoc.wifi.noise: found '5'; allowed: a number from -200 to 0",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, retires: 5",
        "5:26: networks.adhoc.wifi: found the unknown key 'retires'; allowed: perhaps 'retries'; all: phy, rate, access, retries, loss, loss_per, power, noise, carrier_sense, path_loss, access_point",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, access_point: bsae",
        "5:40: networks.adhoc.wifi.access_point: found the unknown station 'bsae'; allowed: perhaps 'base'; all: robot, base, worker1, worker2, worker3",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, access_point: worker2",
        "5:40: networks.adhoc.wifi.access_point: found 'worker2'; allowed: a station with 'adhoc' among its networks",
    ),
    (
        "rate: 6Mbps",
        "rate: 6Mbps, path_loss: { exponent: 3 }",
        "9:3: stations.robot.at: found nothing; allowed: a position (at, around, moves or trace), since 'adhoc' has path_loss\n10:3: stations.base.at: found nothing; allowed: a position (at, around, moves or trace), since 'adhoc' has path_loss",
    ),
    (
        "rate: 3Mbps",
        "",
        "6:3: networks.modem.pipe: found neither of them; allowed: one of rate and trace",
    ),
    (
        "rate: 3Mbps",
        "trace: missing.up",
        "7:20: networks.modem.pipe.trace: found /nonexistent/missing.up: No such file or directory (os error 2); allowed: a readable text file, relative to this one",
    ),
    (
        "rate: 3Mbps",
        "rate: 3Mbps, trace: lte.up",
        "7:33: networks.modem.pipe.trace: found a rate and a trace; allowed: one of rate and trace",
    ),
    (
        "rate: 3Mbps",
        "rate: 3Mbps, aqm: codel, mark: 1ms",
        "7:44: networks.modem.pipe.mark: found an aqm and a mark; allowed: one of aqm and mark",
    ),
    (
        "rate: 3Mbps",
        "rate: 3Mbps, aqm: red",
        "7:31: networks.modem.pipe.aqm: found 'red'; allowed: none, codel",
    ),
    (
        "pipe:",
        "line:",
        "7:5: networks.modem: found the unknown key 'line'; allowed: perhaps 'pipe'; all: wifi, pipe",
    ),
    (
        "pipe: { rate: 3Mbps }",
        "{ wifi: { rate: 6Mbps }, pipe: { rate: 1Mbps } }",
        "6:3: networks.modem: found a map of keys; allowed: exactly one of these keys: wifi, pipe",
    ),
    (
        "  modem:",
        "  mo dem:",
        "6:3: networks: found the name 'mo dem'; allowed: 1 to 63 letters, digits, '_' or '-'",
    ),
    (
        "  base: { networks: [adhoc]",
        "  base: { networks: [adohc]",
        "10:22: stations.base.networks[0]: found the unknown network 'adohc'; allowed: perhaps 'adhoc'; all: adhoc, modem",
    ),
    (
        "  base: { networks: [adhoc]",
        "  base: { networks: [adhoc, adhoc]",
        "10:29: stations.base.networks[1]: found 'adhoc'; allowed: each network once",
    ),
    (
        "  base: { networks: [adhoc]",
        "  base: { networks: []",
        "10:3: stations.base.networks: found nothing; allowed: at least one network",
    ),
    (
        "  base: { networks: [adhoc]",
        "  base: { networks: [adhoc], at: [1]",
        "10:34: stations.base.at: found a list of 1; allowed: a position in metres, [x, y] or [x, y, z]",
    ),
    (
        "  base: { networks: [adhoc]",
        "  base: { networks: [adhoc], at: [1, x]",
        "10:38: stations.base.at[1]: found 'x'; allowed: a number from -100000 to 100000",
    ),
    (
        "  base: { networks: [adhoc]",
        "  base: { networks: [adhoc], trace: walk.csv",
        "10:37: stations.base.trace: found /nonexistent/walk.csv: No such file or directory (os error 2); allowed: a readable text file, relative to this one",
    ),
    (
        "  base: { networks: [adhoc]",
        "  base: { networks: [adhoc], at: [1, 2], trace: walk.csv",
        "10:49: stations.base.trace: found a second key for its position; allowed: one of at, around, moves and trace",
    ),
    (
        "  base: { networks: [adhoc]",
        "  base: { networks: [adhoc], moves: [{ at: 2s, to: [0, 0] }, { at: 1s, to: [0, 0] }]",
        "10:68: stations.base.moves[1].at: found '1s'; allowed: a time after the waypoint before it, '2s'",
    ),
    (
        "count: 3, ",
        "",
        "11:40: stations.worker.around: found no 'count'; allowed: 'around' with 'count'; 'at' for one station",
    ),
    (
        ", radius: 2",
        "",
        "11:50: stations.worker.around: found no 'radius'; allowed: 'around' with 'radius', in metres",
    ),
    (
        "count: 3",
        "count: 257",
        "11:20: stations.worker.count: found '257'; allowed: a whole number from 1 to 256",
    ),
    ("count: 3", "count: 255", "8:1: stations: found more than 256 stations; allowed: at most 256"),
    (
        "  base:",
        "  worker2: { networks: [adhoc] }\n  base:",
        "12:3: stations.worker: found a second station 'worker2'; allowed: each name once, names from 'count' included",
    ),
    (
        "to: base",
        "to: bse",
        "13:37: flows[0].to: found the unknown station 'bse'; allowed: perhaps 'base'; all: robot, base, worker1, worker2, worker3",
    ),
    (
        "to: base",
        "to: bot*",
        "13:37: flows[0].to: found the pattern 'bot*', which matches no station; allowed: robot, base, worker1, worker2, worker3",
    ),
    (
        "to: base",
        "to: robot",
        "13:37: flows[0].to: found 'robot'; allowed: another station than the sender",
    ),
    (
        "from: robot",
        "from: worker1",
        "13:39: flows[0].to: found no path from 'worker1' to 'base'; allowed: two stations with a common network, or both on one of the routes",
    ),
    (
        "from: robot, to: base",
        "from: worker*, to: '*o*'",
        "13:39: flows[0].to: found patterns that match 3 and 4 stations; allowed: as many other stations as 'from' matches, to make pairs; or one station",
    ),
    (
        "every: 20ms",
        "every: often",
        "13:61: flows[0].every: found 'often'; allowed: 'saturate', or a time from 1us to 24h with its unit (us, ms, s, min, h)",
    ),
    (
        "every: 20ms",
        "every: 20ms, over: radio",
        "13:73: flows[0].over: found 'radio'; allowed: tautline, udp, tcp",
    ),
    (
        "every: 20ms",
        "every: saturate",
        "13:61: flows[0].every: found saturate; allowed: a time between two messages, or over: udp or tcp",
    ),
    (
        "every: 20ms",
        "every: 20ms, over: tcp",
        "13:61: flows[0].every: found '20ms'; allowed: 'saturate': TCP always has more to send",
    ),
    (
        "every: 20ms",
        "every: 20ms, congestion: bbr",
        "13:79: flows[0].congestion: found 'bbr'; allowed: nothing, or over: tcp in the same flow",
    ),
    (
        "every: 20ms",
        "every: saturate, over: tcp, congestion: reno",
        "13:94: flows[0].congestion: found 'reno'; allowed: cubic, bbr",
    ),
    (
        "every: 20ms",
        "every: saturate, over: tcp, echo: true",
        "13:88: flows[0].echo: found 'true'; allowed: false, or over: tautline or udp",
    ),
    (
        "every: 20ms",
        "every: 20ms, priority: 256",
        "13:77: flows[0].priority: found '256'; allowed: a whole number from 0 to 255",
    ),
    (
        "every: 20ms",
        "every: 20ms, start: 30s",
        "13:74: flows[0].start: found '30s'; allowed: a time before the end, which is at '30s'",
    ),
    (
        "every: 20ms",
        "every: 20ms, links: both",
        "13:74: flows[0].links: found 'both'; allowed: best, weighted, stripe, duplicate",
    ),
    (
        "every: 20ms",
        "every: 20ms, order: lifo",
        "13:74: flows[0].order: found 'lifo'; allowed: arrival, sent, newest",
    ),
    (
        "every: 20ms",
        "every: 20ms, copies: 1",
        "13:75: flows[0].copies: found '1'; allowed: a whole number from 2 to 16",
    ),
    (
        "every: 20ms",
        "every: 20ms, only_links: [adohc]",
        "13:80: flows[0].only_links[0]: found the unknown link 'adohc'; allowed: networks that 'robot' and 'base' share: perhaps 'adhoc'; all: adhoc",
    ),
    (
        "every: 20ms",
        "every: 20ms, avoid_links: [adhoc, modem]",
        "13:88: flows[0].avoid_links[1]: found the unknown link 'modem'; allowed: networks that 'robot' and 'base' share: adhoc",
    ),
    (
        "every: 20ms",
        "every: 20ms, over: udp, only_links: [adhoc]",
        "13:91: flows[0].only_links[0]: found 'adhoc'; allowed: nothing, or over: tautline in the same flow",
    ),
    (
        "robot, to: base, size: 1KB, every: 20ms }",
        "base, to: worker1, size: 1KB, every: 20ms, only_links: [adhoc] }\nroutes: [[base, robot, worker1]]",
        "13:82: flows[0].only_links[0]: found 'adhoc'; allowed: nothing: one link follows the route between the stations",
    ),
    (
        "every: 20ms",
        "every: 20ms, echo: yes",
        "13:73: flows[0].echo: found 'yes'; allowed: true or false",
    ),
];

#[test]
fn each_error_names_line_key_value_and_allowed_values() {
    for (from, to, expected) in REFUSED {
        assert!(BASE.contains(from), "{from}");
        assert_eq!(refused(&BASE.replacen(from, to, 1)), *expected, "{from} -> {to}");
    }
}

/// Additions to [`BASE`] from its line 14 on, and the whole error of each.
const REFUSED_AT_THE_END: &[(&str, &str)] = &[
    (
        "- { name: laser, from: base, to: robot, size: 1, every: 1s }",
        "14:13: flows[1].name: found a second flow 'laser'; allowed: each name once",
    ),
    (
        "routes: [[robot, base]]",
        "14:10: routes[0]: found 2 of them; allowed: a chain of at least three stations",
    ),
    (
        "routes: [[robot, worker1, base]]",
        "14:27: routes[0][2]: found 'base'; allowed: a station that shares a network with 'worker1'",
    ),
    (
        "routes: [[robot, worker1, robot]]",
        "14:27: routes[0][2]: found 'robot'; allowed: each station of a route once",
    ),
    (
        "routes: [[robot, worker1, worker2], [robot, worker3, worker2]]",
        "14:37: routes[1]: found a path from 'robot' to 'worker2' via 'worker3', where an earlier route goes via 'worker1'; allowed: one path between two stations",
    ),
    (
        "control_loops: [{ plant: robot, controller: robot, period: 20ms }]",
        "14:45: control_loops[0].controller: found 'robot'; allowed: another station than the plant's",
    ),
    (
        "control_loops: [{ plant: robot, controller: base, period: 20ms, plant_model: lrc }]",
        "14:78: control_loops[0].plant_model: found 'lrc'; allowed: perhaps 'rlc'; all: rlc",
    ),
    (
        "control_loops: [{ plant: robot, controller: base, period: 20ms, over: tcp }]",
        "14:71: control_loops[0].over: found 'tcp'; allowed: tautline or udp",
    ),
    (
        "events: [{ at: 30s, for: 1s, outage: robot }]",
        "14:16: events[0].at: found '30s'; allowed: a time before the end, which is at '30s'",
    ),
    (
        "events: [{ at: 1s, outage: robot }]",
        "14:10: events[0].for: found nothing; allowed: a duration, such as 5s",
    ),
    (
        "events: [{ at: 1s, for: 1s }]",
        "14:10: events[0]: found none of them; allowed: exactly one of outage, interference and rate",
    ),
    (
        "events: [{ at: 1s, for: 1s, outage: robot, rate: { network: modem, to: 1Mbps } }]",
        "14:10: events[0]: found more than one of them; allowed: exactly one of outage, interference and rate",
    ),
    (
        "events: [{ at: 1s, for: 1s, rate: { network: modem, to: 1Mbps } }]",
        "14:25: events[0].for: found '1s'; allowed: nothing: a new rate lasts to the end",
    ),
    (
        "events: [{ at: 1s, rate: { network: modme, to: 1Mbps } }]",
        "14:37: events[0].rate.network: found the unknown network 'modme'; allowed: perhaps 'modem'; all: adhoc, modem",
    ),
    (
        "events: [{ at: 1s, rate: { network: adhoc, to: 1Mbps } }]",
        "14:48: events[0].rate.to: found '1Mbps'; allowed: a rate of ofdm: 6Mbps, 9Mbps, 12Mbps, 18Mbps, 24Mbps, 36Mbps, 48Mbps, 54Mbps",
    ),
    (
        "events: [{ at: 1s, for: 1s, outage: [base, worker1] }]",
        "14:37: events[0].outage: found a list; allowed: two stations that share a network",
    ),
    (
        "events: [{ at: 1s, for: 1s, outage: robot, network: modme }]",
        "14:53: events[0].network: found 'modme'; allowed: a network of the outage: perhaps 'modem'; all: adhoc, modem",
    ),
    (
        "events: [{ at: 1s, for: 1s, outage: [base, robot], network: modem }]",
        "14:61: events[0].network: found 'modem'; allowed: a network of the outage: adhoc",
    ),
    (
        "events: [{ at: 1s, rate: { network: modem, to: 1Mbps }, network: modem }]",
        "14:66: events[0].network: found 'modem'; allowed: nothing, or an outage in the same event",
    ),
    (
        "events: [{ at: 1s, for: 1s, outage: [base] }]",
        "14:37: events[0].outage: found a list of 1; allowed: a station, or a pair of stations [one, other]",
    ),
    (
        "events: [{ at: 1s, for: 1s, interference: { network: modem, at: [0, 0], burst: 1ms, pause: 1ms } }]",
        "14:54: events[0].interference.network: found 'modem'; allowed: a wifi network; a pipe has no interference",
    ),
    (
        "tautline: { in_flight: 0 }",
        "14:24: tautline.in_flight: found '0'; allowed: a whole number from 1 to 64",
    ),
    ("tautline: { dscp: 46 }", "14:19: tautline.dscp: found '46'; allowed: true or false"),
    ("tautline: { relay: maybe }", "14:20: tautline.relay: found 'maybe'; allowed: true or false"),
    (
        "tautline: { relay: true }",
        "14:20: tautline.relay: found 'true'; allowed: false, or 'routes' along which nodes relay packets",
    ),
    (
        "tautline: 2",
        "14:11: tautline: found '2'; allowed: a map of these keys: in_flight, rate, dscp, relay",
    ),
    (
        "tautline: { rate: &a 6Mbps, in_flight: *a }",
        "14:40: found an alias ('*name'); allowed: the value itself, or the text in quotes",
    ),
];

#[test]
fn each_nested_error_names_its_line_and_key() {
    for (addition, expected) in REFUSED_AT_THE_END {
        let indent = if addition.starts_with('-') { "  " } else { "" };
        assert_eq!(refused(&format!("{BASE}{indent}{addition}\n")), *expected, "{addition}");
    }
}

#[test]
fn entries_of_lists_and_maps_each_report_their_own_problem() {
    let text = BASE
        .replace("rate: 6Mbps", "rate: fast")
        .replace("rate: 3Mbps", "rate: slow, delay: long")
        .replace("count: 3", "count: x")
        .replace("size: 1KB", "size: big");
    let problems = refused(&text);
    let lines: Vec<&str> = problems.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(lines, ["5", "7", "11", "13"], "{problems}");
}
