// SPDX-License-Identifier: Apache-2.0
//! Priority, lifespan, limits and fair queuing, and their cost.

use std::collections::BTreeSet;
use tautline_proto::stats::DropReason;
use tautline_proto::{
    ChannelConfig, ChannelId, Class, Config, Duration, LinkId, Message, OfferedTopic, PeerId,
    RadioConfig, RadioId, Transmit,
};
use tautline_testkit::net::*;

const P: PeerId = PeerId(0);
const MBPS_6: u64 = 6_000_000;
/// Airtime of a full packet at 6 Mbps.
const PACKET: Duration = Duration::from_millis(2);

fn delays_ms(net: &Net, node: usize, channel: ChannelId) -> Vec<f64> {
    let of_channel = net.nodes[node].received.iter().filter(|r| r.2 == channel);
    of_channel.map(|r| r.3.age.as_secs_f64() * 1e3).collect()
}

#[test]
fn a_small_urgent_message_waits_for_no_more_than_two_packets() {
    let mut net = Net::pair(1, &Pipe::with_rate(MBPS_6));
    let laser = net.open(0, P, channel(topic("/scan", 200)));
    let image = net.open(0, P, channel(topic("/image", 10)));
    for round in 0..50 {
        net.send(0, P, image, payload(round, 65_536));
        for k in 0..7 {
            net.run(Duration::from_micros(20_000 + u64::from(round * 37 + k * 11)));
            net.send(0, P, laser, payload(round, 1000));
        }
    }
    net.run(1000 * MS);
    let laser_delays = delays_ms(&net, 1, laser);
    assert_eq!(laser_delays.len(), 350);
    // The scan's own airtime of 1.4 ms, at most two packets in the kernel, and half a round trip as margin.
    let worst = laser_delays.iter().copied().fold(0.0, f64::max);
    let bound = 1.4 + 2.0 * PACKET.as_secs_f64() * 1e3 + 3.0;
    assert!(worst < bound, "worst {worst} ms, bound {bound} ms");
    assert_eq!(delays_ms(&net, 1, image).len(), 50);
    net.check_conservation(0, P, &[laser, image]);
}

/// A caller may build packets until there are no more, and hand them to the kernel only then.
#[test]
fn packets_in_sequence_stay_within_the_budget_before_any_kernel_report() {
    for (rate_bps, packets) in [(MBPS_6, 1..=1), (480_000_000, 10..=44)] {
        let mut net = Net::pair(1, &Pipe::with_rate(rate_bps));
        let image = net.open(0, P, channel(topic("/image", 10)));
        for round in 0..40 {
            net.send(0, P, image, payload(round, 100_000));
            net.run(200 * MS);
        }
        let now = net.now;
        let message = Message {
            payload: payload(40, 500_000).into(),
            published: now,
            source: 0,
            encoded: false,
            lifespan: None,
        };
        let endpoint = &mut net.nodes[0].endpoint;
        endpoint.peer_mut(P).send(now, image, message).unwrap();
        let budget = endpoint.radio(RadioId(0)).in_flight_limit_bytes;
        let row: Vec<Transmit> = std::iter::from_fn(|| endpoint.poll_transmit(now)).collect();
        let bytes: usize = row.iter().map(|it| it.datagram.len() + 28).sum();
        assert!(bytes <= budget, "{bytes} of {budget} at {rate_bps}");
        assert!(packets.contains(&row.len()), "{} packets at {rate_bps}", row.len());
    }
}

/// Classes of the packets with messages that a node has sent after the first `before` packets.
fn classes(net: &Net, node: usize, before: usize) -> Vec<(Class, u8)> {
    let sent = net.nodes[node].sent[before..].iter();
    sent.filter(|it| it.priority.is_some()).map(|it| (it.class, it.dscp)).collect()
}

#[test]
fn one_packet_of_each_higher_class_enters_alongside_lower_ones() {
    let mut net = Net::pair(1, &Pipe::with_rate(MBPS_6));
    let command = net.open(0, P, channel(topic("/cmd_vel", 220)));
    let laser = net.open(0, P, channel(topic("/scan", 200)));
    let image = net.open(0, P, channel(topic("/image", 20)));
    let before = net.nodes[0].sent.len();
    // Packets stay in the kernel, as they do behind bulk packets of other stations.
    net.nodes[0].stuck.push(address(1));
    net.send(0, P, image, payload(0, 65_536));
    net.run(5 * MS);
    assert_eq!(classes(&net, 0, before), [(Class::BestEffort, 0); 2]);
    for channel in [laser, command] {
        for n in 0..3 {
            net.send(0, P, channel, payload(n, 1000));
        }
    }
    let higher = [(Class::Video, 32), (Class::Voice, 48)];
    assert_eq!(classes(&net, 0, before)[2..], higher);
    net.run(40 * MS);
    assert_eq!(classes(&net, 0, before)[2..], higher, "one of each is enough");
}

#[test]
fn a_link_where_a_lower_class_is_stuck_still_carries_higher_ones() {
    let mut net = Net::pair(1, &Pipe::with_rate(MBPS_6));
    let laser = net.open(0, P, channel(topic("/scan", 200)));
    let image = net.open(0, P, channel(topic("/image", 20)));
    let before = net.nodes[0].sent.len();
    net.nodes[0].stuck.push(address(1));
    net.send(0, P, image, payload(0, 65_536));
    net.run(5 * MS);
    net.nodes[0].stuck.clear();
    net.run(100 * MS);
    assert!(net.nodes[0].endpoint.link(LinkId(0)).unwrap().stalled);
    let image_packets = classes(&net, 0, before).len();
    net.send(0, P, laser, payload(0, 1000));
    net.run(20 * MS);
    // The image may be repaired: there were few acknowledgements until now.
    let since = &classes(&net, 0, before)[image_packets..];
    assert!(!since.is_empty() && since.iter().all(|it| *it == (Class::Video, 32)), "{since:?}");
    assert_eq!(delays_ms(&net, 1, laser).len(), 1);
    net.send(0, P, laser, payload(1, 1000));
    net.run(20 * MS);
    assert_eq!(delays_ms(&net, 1, laser).len(), 2);
}

#[test]
fn a_radio_without_marking_has_one_class_and_one_budget() {
    let mut net = Net::pair(1, &Pipe::with_rate(MBPS_6));
    let laser = net.open(0, P, channel(topic("/scan", 255)));
    let image = net.open(0, P, channel(topic("/image", 0)));
    let plain = RadioConfig { marking: None, ..RadioConfig::default() };
    net.nodes[0].endpoint.set_radio(RadioId(0), plain);
    let before = net.nodes[0].sent.len();
    net.nodes[0].stuck.push(address(1));
    net.send(0, P, image, payload(0, 65_536));
    net.run(5 * MS);
    net.send(0, P, laser, payload(0, 1000));
    net.run(40 * MS);
    let data = net.nodes[0].sent[before..].iter().filter_map(|it| it.priority);
    assert!(data.clone().count() > 0 && data.clone().all(|priority| priority == 0));
    let unmarked = |it: &Transmit| (it.class, it.dscp) == (Class::BestEffort, 0);
    assert!(net.nodes[0].sent[before..].iter().all(unmarked));
}

#[test]
fn priority_can_change_while_messages_are_queued() {
    let mut net = Net::pair(2, &Pipe::with_rate(MBPS_6));
    let first = net.open(0, P, channel(topic("/first", 100)));
    let second = net.open(0, P, channel(topic("/second", 50)));
    net.send(0, P, first, payload(0, 60_000));
    net.send(0, P, second, payload(0, 60_000));
    let now = net.now;
    let raised = channel(topic("/second", 150));
    net.nodes[0].endpoint.peer_mut(P).change_offer(now, second, raised).unwrap();
    net.run(500 * MS);
    let order: Vec<_> = net.nodes[1].received.iter().map(|r| r.2).collect();
    assert_eq!(order, [second, first]);
}

#[test]
fn keep_last_replaces_messages_that_have_not_begun() {
    let mut net = Net::pair(3, &Pipe::with_rate(MBPS_6));
    let mut latest = topic("/image", 10);
    latest.keep_last = 1;
    let image = net.open(0, P, channel(latest));
    for n in 0..20 {
        net.send(0, P, image, payload(n, 65_536));
        net.run(10 * MS);
    }
    net.run(1000 * MS);
    let got: Vec<_> = net.nodes[1].received.iter().map(|r| number_of(&r.3.payload)).collect();
    assert_eq!((got[0], *got.last().unwrap()), (0, 19), "{got:?}");
    let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(image).unwrap();
    assert_eq!(stats.dropped.get(DropReason::Superseded), 20 - got.len() as u64);
    assert!(stats.adds_up());
}

#[test]
fn expired_messages_cost_no_airtime_and_are_counted() {
    let mut net = Net::pair(4, &Pipe::with_rate(1_000_000));
    let mut short = topic("/image", 10);
    short.lifespan = Some(300 * MS);
    short.keep_last = 1000;
    let image = net.open(0, P, channel(short));
    for n in 0..10 {
        net.send(0, P, image, payload(n, 20_000));
    }
    net.run(5000 * MS);
    let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(image).unwrap();
    assert!(stats.dropped.get(DropReason::Expired) >= 7, "{stats:?}");
    assert!(net.nodes[1].received.iter().all(|r| r.3.age <= 300 * MS));
    assert!(!net.nodes[1].received.is_empty() && stats.adds_up());
}

/// Sends two messages, of two publishers, before an outage and two within it. Returns the numbers of the
/// messages that arrive. `lifespans`: that of the channel, and those of the messages of each publisher.
fn survivors(fec: Option<u8>, lifespans: [Option<Duration>; 3]) -> Vec<u32> {
    let mut net = Net::pair(4, &Pipe::with_rate(1_000_000));
    let [of_channel, of_messages @ ..] = lifespans;
    let topic = OfferedTopic { lifespan: of_channel, keep_last: 1000, ..topic("/goal", 10) };
    let channel = net.open(0, P, ChannelConfig { fec, ..channel(topic) });
    let cut = |net: &mut Net, cut| net.nodes.iter_mut().for_each(|node| node.pipe.cut = cut);
    cut(&mut net, true);
    for first in [0, 2] {
        for (number, lifespan) in (first..).zip(of_messages) {
            let (payload, published) = (payload(number, 3000).into(), net.now);
            let (source, encoded) = (number % 2, false);
            let message = Message { payload, published, source, encoded, lifespan };
            net.nodes[0].endpoint.peer_mut(P).send(published, channel, message).unwrap();
        }
        net.run(5000 * MS);
    }
    cut(&mut net, false);
    net.run(10_000 * MS);
    net.check_conservation(0, P, &[channel]);
    let mut numbers: Vec<_> =
        net.nodes[1].received.iter().map(|it| number_of(&it.3.payload)).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_message_expires_by_its_own_and_its_channels_lifespan() {
    let [short, long] = [2, 60].map(|seconds| Some(Duration::from_secs(seconds)));
    for fec in [None, Some(50)] {
        assert_eq!(survivors(fec, [None, short, None]), [1, 3]);
        assert_eq!(survivors(fec, [long, short, None]), [1, 3]);
        assert_eq!(survivors(fec, [long, long, short]), [0, 2]);
        assert_eq!(survivors(fec, [short, long, None]), [0; 0]);
    }
}

#[test]
fn overflow_drops_whole_messages_of_the_lowest_priority() {
    let mut net = Net::new(5);
    let config = Config { queue_bytes: 100_000, ..defaults() };
    net.add("robot", config, Pipe::with_rate(MBPS_6));
    net.add("base", defaults(), Pipe::with_rate(MBPS_6));
    net.join(0, 1);
    net.run(1000 * MS);
    let mut many = topic("/low", 10);
    many.keep_last = 1000;
    let low = net.open(0, P, channel(many.clone()));
    many.name = "/high".into();
    many.priority = 20;
    let high = net.open(0, P, channel(many));
    for n in 0..9 {
        net.send(0, P, low, payload(n, 10_000));
    }
    for n in 0..9 {
        net.send(0, P, high, payload(n, 10_000));
    }
    net.run(2000 * MS);
    let stats = |c| *net.nodes[0].endpoint.peer(P).channel_out(c).unwrap().2;
    assert_eq!(stats(high).delivered, 9);
    assert_eq!(stats(low).dropped.get(DropReason::Overflow), 8, "{:?}", stats(low));
    assert!(stats(low).adds_up() && stats(high).adds_up());
}

#[test]
fn the_queue_is_bounded_in_time_to_drain() {
    let mut net = Net::new(6);
    let config = Config { queue_time: 500 * MS, ..defaults() };
    net.add("robot", config, Pipe::with_rate(MBPS_6));
    net.add("base", defaults(), Pipe::with_rate(MBPS_6));
    net.join(0, 1);
    net.run(1000 * MS);
    let mut many = topic("/bulk", 10);
    many.keep_last = 1000;
    let bulk = net.open(0, P, channel(many));
    for n in 0..200 {
        net.send(0, P, bulk, payload(n, 20_000));
        net.run(10 * MS);
    }
    let waiting = net.nodes[0].endpoint.peer(P).queued_bytes;
    assert!(waiting < MBPS_6 / 8 / 2 + 40_000, "{waiting} bytes wait");
    let worst = net.nodes[1].received.iter().map(|r| r.3.age).max().unwrap();
    assert!(worst < 700 * MS, "{worst:?}");
    net.check_conservation(0, P, &[bulk]);
}

#[test]
fn peers_on_one_radio_are_served_by_fair_queuing() {
    let mut net = Net::new(7);
    net.add("robot", defaults(), Pipe::with_rate(MBPS_6));
    for name in ["a", "b", "c"] {
        let node = net.add(name, defaults(), Pipe::with_rate(MBPS_6));
        net.join(0, node);
    }
    net.run(1000 * MS);
    let mut many = topic("/bulk", 10);
    many.keep_last = 1000;
    let channels: Vec<_> = (0..3).map(|p| net.open(0, PeerId(p), channel(many.clone()))).collect();
    for n in 0..40 {
        for (peer, &bulk) in channels.iter().enumerate() {
            // The first peer is asked to carry much more than its fair share.
            let times = if peer == 0 { 3 } else { 1 };
            for _ in 0..times {
                net.send(0, PeerId(peer as u32), bulk, payload(n, 10_000));
            }
        }
    }
    net.run(1000 * MS);
    let counts: Vec<_> = (1..4).map(|node| net.nodes[node].received.len()).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least >= 20 && most - least <= 1, "{counts:?}");
}

#[test]
fn an_unresolved_peer_delays_no_other() {
    let mut net = Net::new(8);
    net.add("robot", defaults(), Pipe::with_rate(MBPS_6));
    for name in ["a", "b"] {
        let node = net.add(name, defaults(), Pipe::with_rate(MBPS_6));
        net.join(0, node);
    }
    net.run(1000 * MS);
    let to_a = net.open(0, PeerId(0), channel(topic("/bulk", 10)));
    let to_b = net.open(0, PeerId(1), channel(topic("/scan", 200)));
    net.nodes[0].stuck.push(address(1));
    for n in 0..200 {
        net.send(0, PeerId(0), to_a, payload(n, 20_000));
        net.send(0, PeerId(1), to_b, payload(n, 1000));
        net.run(20 * MS);
    }
    let worst: Vec<_> = net.nodes[2].received.iter().map(|r| r.3.age).collect();
    assert_eq!(worst.len(), 200);
    let late = worst.iter().filter(|age| **age > 10 * MS).count();
    assert!(late <= 3, "only while the stall is being found out: {late} of 200 late");
}

#[test]
fn small_messages_share_a_packet_and_large_ones_do_not_delay_them() {
    let mut net = Net::pair(9, &Pipe::with_rate(MBPS_6));
    let small = net.open(0, P, channel(topic("/small", 100)));
    let bulk = net.open(0, P, channel(topic("/bulk", 10)));
    net.send(0, P, bulk, payload(0, 20_000));
    net.nodes[0].sent.clear();
    for n in 0..4 {
        net.send(0, P, small, payload(n, 40));
    }
    net.run(100 * MS);
    let with_small: Vec<_> = net.nodes[0].sent.iter().filter(|t| t.priority == Some(100)).collect();
    assert_eq!(with_small.len(), 1, "they share a packet");
    assert_eq!(net.nodes[1].received.iter().filter(|r| r.2 == small).count(), 4);
    let len = with_small[0].datagram.len();
    assert!(len < 300, "no bulk rides along: {len} bytes");
}

#[test]
fn a_kilobyte_message_carries_at_most_48_bytes_tag_included() {
    let mut net = Net::pair(10, &Pipe::with_rate(MBPS_6));
    let laser = net.open(0, P, channel(topic("/scan", 200)));
    for n in 0..3000 {
        net.send(0, P, laser, payload(n, 1024));
        net.run(10 * MS);
    }
    net.nodes[0].sent.clear();
    net.send(0, P, laser, payload(3000, 1024));
    let longest = net.nodes[0].sent.iter().map(|t| t.datagram.len()).max().unwrap();
    assert!(longest - 1024 <= 48, "{} bytes", longest - 1024);
}

/// The outcome of a steady stream on a link that is too slow for it.
struct Stream {
    /// Numbers of the publisher's periods between consecutive messages that arrived.
    gaps: BTreeSet<u32>,
    /// Times from publication to arrival, in milliseconds.
    ages: Vec<f64>,
    thinned: u64,
}

impl Stream {
    /// Runs a stream of images of 64 KB (92 ms at 6 Mbps), one every `period`, alongside a laser of
    /// higher priority.
    fn run(thin: bool, period: Duration) -> Self {
        let mut net = Net::pair(31, &Pipe::with_rate(MBPS_6));
        let mut latest = topic("/image", 10);
        latest.keep_last = 1;
        let image = ChannelConfig { thin, ..channel(latest) };
        let (laser, image) = (net.open(0, P, channel(topic("/scan", 200))), net.open(0, P, image));
        for n in 0..200 {
            net.send(0, P, image, payload(n, 65_536));
            for _ in 0..4 {
                net.send(0, P, laser, payload(n, 200));
                net.run(period / 4);
            }
        }
        net.run(1000 * MS);
        net.check_conservation(0, P, &[laser, image]);
        let of_image = net.nodes[1].received.iter().filter(|r| r.2 == image);
        // With the first image, rate control finds the rate of the link. That image is skipped.
        let numbers: Vec<_> = of_image.skip(1).map(|r| number_of(&r.3.payload)).collect();
        let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(image).unwrap();
        Self {
            gaps: numbers.windows(2).map(|two| two[1] - two[0]).collect(),
            ages: delays_ms(&net, 1, image),
            thinned: stats.dropped.get(DropReason::Thinned),
        }
    }

    fn oldest(&self) -> f64 {
        self.ages.iter().copied().fold(0.0, f64::max)
    }

    fn mean(&self) -> f64 {
        self.ages.iter().sum::<f64>() / self.ages.len() as f64
    }
}

#[test]
fn thinned_messages_are_evenly_spaced_and_do_not_wait_for_each_other() {
    for (period, every) in [(25, 4), (33, 3), (60, 2), (80, 2)] {
        let (latest, thin) = (Stream::run(false, period * MS), Stream::run(true, period * MS));
        assert_eq!(thin.gaps, [every].into(), "{period} ms");
        assert!(latest.gaps.len() > 1, "{period} ms: {:?}", latest.gaps);
        // An image alone takes 92 ms, and waits for the previous one for half a period.
        assert!(thin.oldest() < 105.0, "{period} ms: {}", thin.oldest());
        let waited = f64::from(period) / 2.0 - 4.0;
        assert!(thin.mean() + waited < latest.mean(), "{} {}", thin.mean(), latest.mean());
        assert!(latest.oldest() > 130.0, "{period} ms: {}", latest.oldest());
        assert_eq!((thin.ages.len() as u64 + thin.thinned, latest.thinned), (200, 0));
        assert!(latest.ages.len() > thin.ages.len(), "that is its price");
    }
}

#[test]
fn a_slow_link_is_not_filled_with_messages_that_expire_on_the_path() {
    // Messages of 30 KB every 50 ms. Each takes 125 ms and has a lifespan of 300 ms.
    let delivered = |keep_last, delay| {
        let mut net = Net::pair(32, &Pipe { delay, ..Pipe::with_rate(2_000_000) });
        let mut short = topic("/image", 10);
        (short.keep_last, short.lifespan) = (keep_last, Some(300 * MS));
        let image = net.open(0, P, channel(short));
        for n in 0..200 {
            net.send(0, P, image, payload(n, 30_000));
            net.run(50 * MS);
        }
        net.check_conservation(0, P, &[image]);
        net.nodes[1].received.len()
    };
    for delay in [MS, 30 * MS] {
        // As many messages arrive as fit, however many may be queued.
        for keep_last in [1, 3, 10, 1000] {
            let delivered = delivered(keep_last, delay);
            assert!((75..=81).contains(&delivered), "keep_last {keep_last}: {delivered}");
        }
    }
}

#[test]
fn a_message_that_seems_late_is_tried_if_it_is_the_newest() {
    let mut net = Net::pair(33, &Pipe::with_rate(1_000_000));
    let mut short = topic("/image", 10);
    short.lifespan = Some(300 * MS);
    let image = net.open(0, P, channel(short));
    net.send(0, P, image, payload(0, 30_000));
    net.run(500 * MS);
    // The link is faster now, but no estimate shows this yet.
    net.nodes[0].pipe.rate_bps = MBPS_6;
    for n in 1..4 {
        net.send(0, P, image, payload(n, 30_000));
        net.run(500 * MS);
    }
    let got: Vec<_> = net.nodes[1].received.iter().map(|r| number_of(&r.3.payload)).collect();
    assert_eq!(got, [0, 1, 2, 3]);
}

#[test]
fn nothing_is_thinned_on_a_fast_link() {
    let roomy = Stream::run(true, 110 * MS);
    assert_eq!((roomy.ages.len(), roomy.thinned), (200, 0));
}

#[test]
fn a_large_message_does_not_shorten_the_queue_of_more_urgent_ones() {
    let mut net = Net::pair(30, &Pipe::with_rate(2_000_000));
    let map = net.open(0, P, channel(topic("/map", 50)));
    let mut many = topic("/tf", 200);
    many.keep_last = 10;
    let tf = net.open(0, P, channel(many));
    net.send(0, P, map, payload(0, 4_000_000));
    net.run(2000 * MS);
    for number in 0..5 {
        net.send(0, P, tf, payload(number, 3000));
    }
    net.run(1000 * MS);
    let stats = net.nodes[0].endpoint.peer(P).channel_out(tf).unwrap().2;
    assert_eq!(stats.dropped.total(), 0, "{stats:?}");
}
