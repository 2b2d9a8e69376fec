// SPDX-License-Identifier: Apache-2.0
//! Loss, reordering, duplication: each useful message arrives once, within the repair budget.

use std::collections::HashSet;
use std::time::Duration;
use tautline_proto::stats::DropReason;
use tautline_proto::{ChannelConfig, Config, Event, MIN_DATAGRAM, OfferedTopic, PeerId};
use tautline_testkit::net::*;

const P: PeerId = PeerId(0);

#[test]
fn at_five_percent_loss_large_messages_still_arrive() {
    let mut net = Net::pair(1, &Pipe::lossy(6_000_000, 0.05));
    let laser = net.open(0, P, channel(topic("/scan", 200)));
    let image = net.open(0, P, channel(topic("/image", 10)));
    for n in 0..300 {
        if n % 8 == 0 {
            net.send(0, P, image, payload(n, 65_536));
        }
        net.send(0, P, laser, payload(n, 1000));
        net.run(20 * MS);
    }
    net.run(2000 * MS);
    let got = |c| net.nodes[1].received.iter().filter(|r| r.2 == c).count();
    assert_eq!((got(laser), got(image)), (300, 38));
    net.check_conservation(0, P, &[laser, image]);
    let link = net.nodes[0].endpoint.links().next().unwrap();
    let stats = *net.nodes[0].endpoint.link(link).unwrap().stats;
    let share = stats.repair_bytes as f64 / stats.sent_bytes as f64;
    assert!((0.03..0.12).contains(&share), "repairs are {share} of what is sent");
}

/// The 99th percentile of the age at delivery of 1000 scans of this priority on a link that loses
/// a tenth of the packets, and the bytes sent as repairs and as redundancy, relative to those of the
/// scans.
fn lossy_scans(priority: u8) -> (Duration, f64, f64) {
    let mut net = Net::pair(15, &Pipe::lossy(6_000_000, 0.1));
    let scan = net.open(0, P, channel(topic("/scan", priority)));
    for n in 0..1000 {
        net.send(0, P, scan, payload(n, 1000));
        net.run(20 * MS);
    }
    net.run(1000 * MS);
    let mut ages: Vec<_> = net.nodes[1].received.iter().map(|r| r.3.age).collect();
    assert_eq!(ages.len(), 1000, "each once");
    ages.sort();
    let link = net.nodes[0].endpoint.links().next().unwrap();
    let stats = *net.nodes[0].endpoint.link(link).unwrap().stats;
    net.check_conservation(0, P, &[scan]);
    (ages[990], stats.repair_bytes as f64 / 1e6, stats.redundant_bytes as f64 / 1e6)
}

#[test]
fn urgent_messages_are_sent_again_before_a_loss_is_known() {
    let (urgent, urgent_repairs, copies) = lossy_scans(200);
    let (other, other_repairs, none) = lossy_scans(20);
    assert!(urgent * 3 < other * 2, "{urgent:?}, {other:?}");
    assert!((0.8..2.0).contains(&copies), "{copies}");
    assert_eq!(none, 0.0);
    assert!(urgent_repairs < 0.3 && other_repairs < 0.3, "{urgent_repairs}, {other_repairs}");
}

#[test]
fn reordered_and_duplicated_packets_do_no_harm_and_cost_little() {
    let mut pipe = Pipe::with_rate(6_000_000);
    pipe.reorder = 0.3;
    pipe.duplicate = 0.2;
    let mut net = Net::pair(2, &pipe);
    let bulk = net.open(0, P, channel(topic("/bulk", 10)));
    for n in 0..100 {
        net.send(0, P, bulk, payload(n, 30_000));
        net.run(60 * MS);
    }
    net.run(1000 * MS);
    let got: Vec<_> = net.nodes[1].received.iter().map(|r| number_of(&r.3.payload)).collect();
    assert_eq!(got.iter().collect::<HashSet<_>>().len(), 100);
    assert_eq!(got.len(), 100, "nothing twice");
    for (_, _, _, message) in &net.nodes[1].received {
        let number = number_of(&message.payload);
        assert_eq!(message.payload, payload(number, 30_000), "bytes of message {number}");
    }
    let link = net.nodes[0].endpoint.links().next().unwrap();
    let stats = *net.nodes[0].endpoint.link(link).unwrap().stats;
    assert!(stats.repair_bytes < stats.sent_bytes / 4, "{stats:?}");
}

#[test]
fn without_repair_a_lost_fragment_drops_its_message_with_a_reason() {
    let mut net = Net::pair(3, &Pipe::lossy(6_000_000, 0.1));
    let mut config = channel(topic("/image", 10));
    config.repair = false;
    let image = net.open(0, P, config);
    for n in 0..100 {
        net.send(0, P, image, payload(n, 20_000));
        net.run(60 * MS);
    }
    net.run(2000 * MS);
    let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(image).unwrap();
    assert!(stats.dropped.get(DropReason::Lost) > 50, "{stats:?}");
    assert!(stats.adds_up() && stats.queued == 0 && stats.sent == 0, "{stats:?}");
}

#[test]
fn repairs_stay_within_their_budget_when_little_gets_through() {
    let mut net = Net::new(4);
    let config = Config { repair_percent: 20, ..defaults() };
    net.add("robot", config, Pipe::with_rate(6_000_000));
    net.add("base", defaults(), Pipe::with_rate(6_000_000));
    net.join(0, 1);
    net.run(1000 * MS);
    let bulk = net.open(0, P, channel(topic("/bulk", 10)));
    net.nodes[0].pipe.loss = 0.5;
    for n in 0..200 {
        net.send(0, P, bulk, payload(n, 20_000));
        net.run(50 * MS);
    }
    let link = net.nodes[0].endpoint.links().next().unwrap();
    let stats = *net.nodes[0].endpoint.link(link).unwrap().stats;
    let first = stats.sent_bytes - stats.repair_bytes;
    // The budget: 20 % of the bytes sent for the first time, a burst of 64 KiB, and 8 kB/s.
    let budget = first / 5 + 65_536 + 8_000 * 12;
    assert!(stats.repair_bytes < budget, "{} of {budget}", stats.repair_bytes);
    net.check_conservation(0, P, &[bulk]);
}

#[test]
fn repeated_definitions_leave_budget_for_repairs() {
    let mut net = Net::pair(14, &Pipe::with_rate(6_000_000));
    net.nodes[0].pipe.loss = 0.4;
    for n in 0..12 {
        // Each topic has a type of its own, so that the definition is requested.
        let type_name = format!("lab_msgs/Type{n}");
        let mut config =
            channel(tautline_proto::OfferedTopic { type_name, ..topic(&format!("/{n}"), 10) });
        config.definition = "x".repeat(60_000).into();
        net.open(0, P, config);
    }
    net.nodes[0].pipe.loss = 0.0;
    let last = net.open(0, P, channel(topic("/last", 20)));
    net.nodes[0].pipe.cut = true;
    net.send(0, P, last, payload(0, 1000));
    net.run(20 * MS);
    net.nodes[0].pipe.cut = false;
    net.run(2000 * MS);
    let arrived = net.nodes[1].received.iter().filter(|r| r.2 == last).count();
    assert_eq!(arrived, 1);
}

#[test]
fn a_late_message_is_dropped_if_only_the_newest_is_delivered() {
    let mut pipe = Pipe::with_rate(6_000_000);
    pipe.reorder = 0.5;
    pipe.reorder_by = 60 * MS;
    let mut net = Net::pair(5, &pipe);
    let mut latest = topic("/cmd_vel", 255);
    latest.keep_last = 1;
    let command = net.open(0, P, channel(latest));
    for n in 0..500 {
        net.send(0, P, command, payload(n, 48));
        net.run(20 * MS);
    }
    net.run(1000 * MS);
    let got: Vec<_> = net.nodes[1].received.iter().map(|r| number_of(&r.3.payload)).collect();
    assert!(got.windows(2).all(|w| w[0] < w[1]), "never an older command after a newer one");
    let (_, _, stats) = net.nodes[1].endpoint.peer(P).channel_in(command).unwrap();
    assert!(stats.dropped.get(DropReason::Late) > 0, "{stats:?}");
}

#[test]
fn a_message_cut_by_a_long_outage_continues_where_it_was() {
    let mut net = Net::pair(6, &Pipe::with_rate(6_000_000));
    let map = net.open(0, P, channel(topic("/map", 10)));
    net.send(0, P, map, payload(1, 600_000));
    net.run(300 * MS);
    net.nodes[0].pipe.cut = true;
    net.nodes[1].pipe.cut = true;
    net.run(15_000 * MS);
    net.nodes[0].pipe.cut = false;
    net.nodes[1].pipe.cut = false;
    net.run(5_000 * MS);
    assert_eq!(net.nodes[1].received.len(), 1);
    assert_eq!(net.nodes[1].received[0].3.payload, payload(1, 600_000));
    let link = net.nodes[0].endpoint.links().next().unwrap();
    let stats = *net.nodes[0].endpoint.link(link).unwrap().stats;
    assert!(stats.sent_bytes < 900_000, "what had arrived is not sent again: {stats:?}");
}

#[test]
fn losses_of_an_outage_are_counted_separately() {
    let mut net = Net::pair(16, &Pipe::with_rate(6_000_000));
    let scan = net.open(0, P, channel(topic("/scan", 200)));
    let publish = |net: &mut Net, seconds: u32| {
        for n in 0..seconds * 20 {
            net.send(0, P, scan, payload(n, 4000));
            net.run(50 * MS);
        }
    };
    publish(&mut net, 5);
    for cut in [true, false] {
        net.nodes.iter_mut().for_each(|node| node.pipe.cut = cut);
        publish(&mut net, if cut { 6 } else { 20 });
    }
    let link = net.nodes[0].endpoint.links().next().unwrap();
    let view = net.nodes[0].endpoint.link(link).unwrap();
    let before = view.stats.resumed.unwrap();
    let age = net.now.since(before.at).as_secs();
    assert!((18..=20).contains(&age), "{age}");
    assert!(before.lost > 0, "{before:?}");
    let acked = view.stats.acked_packets - before.acked_packets;
    let lost = view.stats.lost() - before.lost;
    assert!(acked > 500 && lost * 100 <= acked, "{lost} lost, {acked} acknowledged");
}

#[test]
fn a_thin_topic_keeps_conservation_through_losses_and_outages() {
    for repair in [true, false] {
        let mut net = Net::pair(15, &Pipe::with_rate(2_000_000));
        let thin = ChannelConfig { repair, thin: true, ..channel(topic("/image", 10)) };
        let image = net.open(0, P, thin);
        let faults = Pipe { duplicate: 0.1, reorder: 0.2, ..Pipe::lossy(2_000_000, 0.1) };
        for n in 0..400 {
            let cut = n % 100 >= 80;
            net.nodes.iter_mut().for_each(|node| node.pipe = Pipe { cut, ..faults.clone() });
            // The message is refused while the peer is down.
            let _ = net.try_send(0, P, image, payload(n, 20_000));
            net.run(50 * MS);
            net.check_conservation(0, P, &[image]);
        }
        net.nodes.iter_mut().for_each(|node| node.pipe = Pipe::with_rate(2_000_000));
        net.run(20_000 * MS);
        let stats = *net.nodes[0].endpoint.peer(P).channel_out(image).unwrap().2;
        assert_eq!((stats.queued, stats.sent), (0, 0), "{stats:?}");
        assert!(stats.dropped.get(DropReason::Thinned) > 100, "{stats:?}");
        net.nodes[1].received.clear();
        net.send(0, P, image, payload(400, 20_000));
        net.run(1_000 * MS);
        assert_eq!(net.nodes[1].received.len(), 1);
    }
}

#[test]
fn an_incomplete_message_is_given_up_when_newer_ones_of_its_source_come_for_ten_seconds() {
    let mut net = Net::pair(7, &Pipe::with_rate(6_000_000));
    let mut unrepaired = channel(OfferedTopic { keep_last: 1000, ..topic("/image", 10) });
    unrepaired.repair = false;
    let image = net.open(0, P, unrepaired);
    let laser = net.open(0, P, channel(topic("/scan", 200)));
    let dropped = |net: &Net| {
        let (_, _, stats) = net.nodes[1].endpoint.peer(P).channel_in(image).unwrap();
        stats.dropped.get(DropReason::Incomplete)
    };
    net.nodes[0].pipe.loss = 0.1;
    net.send(0, P, image, payload(1, 60_000));
    net.run(500 * MS);
    for n in 0..750 {
        net.send(0, P, laser, payload(n, 100));
        net.run(20 * MS);
    }
    assert_eq!(dropped(&net), 0, "another topic says nothing about it");
    for n in 2..14 {
        net.send(0, P, image, payload(n, 60_000));
        net.run(1000 * MS);
    }
    assert!((1..4).contains(&dropped(&net)), "{}", dropped(&net));
}

#[test]
fn a_message_that_is_not_repaired_outlives_an_overdue_acknowledgement() {
    let mut net = Net::pair(1, &Pipe::with_rate(6_000_000));
    let mut config = channel(topic("/image", 10));
    config.repair = false;
    let image = net.open(0, P, config);
    net.run(10_000 * MS);
    // The return path has become slower than the round-trip estimate allows for.
    net.nodes[1].pipe.delay = 20 * MS;
    net.send(0, P, image, payload(1, 30_000));
    net.run(2000 * MS);
    let link = net.nodes[0].endpoint.links().next().unwrap();
    let spurious = net.nodes[0].endpoint.link(link).unwrap().stats.spurious_losses;
    assert!(spurious > 0, "acknowledgements were overdue");
    let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(image).unwrap();
    assert_eq!((stats.delivered, stats.dropped.total()), (1, 0), "{stats:?}");
    assert_eq!(net.nodes[1].received.len(), 1);
}

#[test]
fn repairs_of_a_definition_become_rare_while_none_arrives() {
    let mut net = Net::pair(5, &Pipe::with_rate(6_000_000));
    // Not even packets of the least size pass.
    net.nodes[0].pipe.longest = MIN_DATAGRAM - 10;
    let mut config = channel(topic("/scan", 200));
    config.topic.type_name = "unknown/Type".into();
    config.definition = "x".repeat(60_000).into();
    net.nodes[0].endpoint.peer_mut(P).offer(net.now, config).unwrap();
    net.run(MS * 1000);
    let before = net.nodes[0].sent.len();
    net.run(MS * 1000);
    let full = |net: &Net| {
        net.nodes[0].sent[before..]
            .iter()
            .filter(|it| it.datagram.len() >= MIN_DATAGRAM - 10)
            .count()
    };
    let repairs = full(&net);
    assert!((1..50).contains(&repairs), "{repairs} repairs on a link for 500 packets");
    net.nodes[0].pipe.longest = DATAGRAM;
    net.run(MS * 1500);
    let known = |it: &Event| matches!(it, Event::Offered { .. });
    assert!(net.nodes[1].events.iter().any(known), "{:?}", net.nodes[1].events);
}
