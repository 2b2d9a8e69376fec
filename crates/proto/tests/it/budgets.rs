// SPDX-License-Identifier: Apache-2.0
//! A link whose allowance is used up carries only the channels that may exceed it.

use tautline_proto::stats::DropReason;
use tautline_proto::{
    ChannelConfig, Duration, HEARTBEAT_BYTES_PER_SECOND, LinkId, LinkUse, LinkView, PeerId,
};
use tautline_testkit::net::*;

const P: PeerId = PeerId(0);
const LINK: LinkId = LinkId(0);
const SECOND: Duration = Duration::from_secs(1);

/// A channel that still uses a spent link.
fn permitted_channel(name: &str, priority: u8) -> ChannelConfig {
    let links = LinkUse { over_budget: true, ..LinkUse::default() };
    ChannelConfig { links, ..channel(topic(name, priority)) }
}

fn used_bytes(link: &LinkView<'_>) -> u64 {
    link.stats.sent_bytes + link.stats.received_bytes
}

fn received(net: &Net) -> usize {
    net.nodes[1].received.len()
}

#[test]
fn a_spent_link_carries_only_the_permitted_channel() {
    let mut net = Net::pair(1, &Pipe::with_rate(6_000_000));
    let image = net.open(0, P, channel(topic("/image", 240)));
    let command = net.open(0, P, permitted_channel("/cmd_vel", 10));
    net.nodes[0].endpoint.link_mut(LINK).set_allowance(Some(0));
    assert!(net.nodes[0].endpoint.link(LINK).unwrap().spent);
    for round in 0..8 {
        net.send(0, P, image, payload(round, 5000));
        net.send(0, P, command, payload(round, 50));
        net.run(SECOND);
    }
    let of = |net: &Net, channel| net.nodes[1].received.iter().filter(|it| it.2 == channel).count();
    assert_eq!((of(&net, command), of(&net, image)), (8, 0), "whatever the priorities");
    assert!(net.nodes[0].endpoint.link(LINK).unwrap().up, "heartbeats continue");
    let before = received(&net);
    net.nodes[0].endpoint.link_mut(LINK).set_allowance(None);
    assert!(!net.nodes[0].endpoint.link(LINK).unwrap().spent);
    net.send(0, P, command, payload(9, 50));
    net.run(SECOND);
    assert_eq!(received(&net) - before, 9);
    net.check_conservation(0, P, &[image, command]);
}

#[test]
fn the_next_packet_follows_a_used_up_allowance() {
    let mut net = Net::pair(2, &Pipe::with_rate(6_000_000));
    let image = net.open(0, P, channel(topic("/image", 100)));
    let begun = used_bytes(&net.nodes[0].endpoint.link(LINK).unwrap());
    net.nodes[0].endpoint.link_mut(LINK).set_allowance(Some(20_000));
    net.send(0, P, image, payload(1, 100_000));
    net.run(SECOND);
    let link = net.nodes[0].endpoint.link(LINK).unwrap();
    // A packet is sent as long as a byte is left. After that, acknowledgements and heartbeats of one second
    // follow.
    let over = used_bytes(&link) - begun - 20_000;
    assert!(link.spent && over < 1500 + 4000, "{over} bytes more than allowed");
    assert_eq!(received(&net), 0);
    net.check_conservation(0, P, &[image]);
}

#[test]
fn messages_queued_for_a_spent_link_follow_the_ordinary_rules() {
    let mut net = Net::pair(3, &Pipe::with_rate(6_000_000));
    let mut short_lived = topic("/scan", 200);
    short_lived.lifespan = Some(Duration::from_millis(300));
    let scan = net.open(0, P, channel(short_lived));
    let image = net.open(0, P, channel(topic("/image", 100)));
    net.nodes[0].endpoint.link_mut(LINK).set_allowance(Some(0));
    for round in 0..15 {
        net.send(0, P, scan, payload(round, 100));
        net.send(0, P, image, payload(round, 100));
    }
    net.run(SECOND);
    let dropped = |channel, reason| {
        let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(channel).unwrap();
        stats.dropped.iter().find(|(it, _)| *it == reason).map_or(0, |(_, count)| count)
    };
    assert_eq!(dropped(scan, DropReason::Superseded) + dropped(scan, DropReason::Expired), 15);
    assert_eq!(dropped(image, DropReason::Superseded), 5, "keep_last is 10");
    assert_eq!(received(&net), 0);
    net.check_conservation(0, P, &[scan, image]);
}

#[test]
fn a_channel_opens_over_a_spent_link() {
    let mut net = Net::pair(4, &Pipe::with_rate(6_000_000));
    for node in 0..2 {
        net.nodes[node].endpoint.link_mut(LINK).set_allowance(Some(0));
    }
    let command = net.open(0, P, permitted_channel("/cmd_vel", 200));
    net.send(0, P, command, payload(1, 50));
    net.run(SECOND);
    assert_eq!(received(&net), 1);
}

#[test]
fn a_relay_carries_messages_that_a_spent_direct_link_may_not() {
    let mut net = Net::new(5);
    let pipe = Pipe::with_rate(6_000_000);
    let [robot, relay, base] =
        ["robot", "relay", "base"].map(|it| net.add(it, defaults(), pipe.clone()));
    let (to_relay, _) = net.join(robot, relay);
    let (back_to_relay, _) = net.join(base, relay);
    let (to_base, to_robot) = net.join(robot, base);
    for peer in net.nodes[relay].endpoint.peers() {
        let rights = tautline_proto::Rights { relayed: true, max_priority: 255 };
        net.nodes[relay].endpoint.peer_mut(peer).set_rights(rights);
    }
    net.nodes[robot].endpoint.peer_mut(to_base).add_relayed_link(net.now, to_relay).unwrap();
    net.nodes[base].endpoint.peer_mut(to_robot).add_relayed_link(net.now, back_to_relay).unwrap();
    net.run(SECOND * 3);
    let image = net.open(robot, to_base, channel(topic("/image", 100)));
    let direct = LinkId(1);
    assert_eq!(net.nodes[robot].endpoint.link(direct).unwrap().peer, to_base);
    net.nodes[robot].endpoint.link_mut(direct).set_allowance(Some(0));
    let before = net.nodes[robot].endpoint.link(direct).unwrap().stats.sent_bytes;
    for round in 0..5 {
        net.send(robot, to_base, image, payload(round, 5000));
        net.run(SECOND);
    }
    assert_eq!(net.nodes[base].received.len(), 5);
    let sent = net.nodes[robot].endpoint.link(direct).unwrap().stats.sent_bytes - before;
    assert!(sent < 5 * 1000, "{sent} bytes on the spent link");
}

#[test]
fn an_idle_link_uses_the_documented_bytes() {
    let mut net = Net::pair(6, &Pipe::with_rate(6_000_000));
    let begun = used_bytes(&net.nodes[0].endpoint.link(LINK).unwrap());
    net.run(SECOND * 1000);
    let per_second = (used_bytes(&net.nodes[0].endpoint.link(LINK).unwrap()) - begun) / 1000;
    assert!(HEARTBEAT_BYTES_PER_SECOND.abs_diff(per_second) < 10, "{per_second}");
}
