// SPDX-License-Identifier: Apache-2.0
//! Messages that take longer than ten seconds on their link: they arrive once, at about the time that
//! the link needs, and urgent messages are delayed no more than by other bulk data.

use std::time::Duration;
use tautline_proto::stats::DropReason;
use tautline_proto::{ChannelConfig, ChannelId, PeerId};
use tautline_testkit::net::*;

const P: PeerId = PeerId(0);
const MAP_BYTES: usize = 4_000_000;
const MAP: u32 = 1;
const MAP_PRIORITY: u8 = 10;

/// The channel of a latched map: the last message is kept, and messages have no lifespan.
fn map_channel() -> ChannelConfig {
    let mut map = topic("/map", MAP_PRIORITY);
    map.keep_last = 1;
    channel(map)
}

/// The time that the map takes on a link in full packets, of which 1425 of 1500 bytes are payload.
fn serialization_time(rate_bps: u64, loss: f64) -> Duration {
    let bits = MAP_BYTES as f64 * 8.0 * 1500.0 / 1425.0 / (1.0 - loss);
    Duration::from_secs_f64(bits / rate_bps as f64)
}

fn arrivals(net: &Net, channel: ChannelId) -> usize {
    net.nodes[1].received.iter().filter(|it| it.2 == channel).count()
}

fn link_bytes(net: &Net) -> u64 {
    let link = net.nodes[0].endpoint.links().next().unwrap();
    net.nodes[0].endpoint.link(link).unwrap().stats.sent_bytes
}

fn set_cut(net: &mut Net, cut: bool) {
    net.nodes.iter_mut().for_each(|node| node.pipe.cut = cut);
}

/// Runs until the map has arrived and returns the time of its arrival. Checks that it arrives once and
/// unchanged, and that the sender knows of the delivery.
fn await_map(net: &mut Net, map: ChannelId, limit: Duration) -> Duration {
    let start = net.now;
    assert!(net.run_until_done(100 * MS, limit, |net| arrivals(net, map) > 0), "in {limit:?}");
    let taken = net.now.since(start);
    net.run(20_000 * MS);
    let received: Vec<_> = net.nodes[1].received.iter().filter(|it| it.2 == map).collect();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].3.payload, payload(MAP, MAP_BYTES));
    let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(map).unwrap();
    assert!(stats.adds_up() && stats.delivered == 1, "{stats:?}");
    taken
}

#[test]
fn a_message_of_half_a_minute_arrives_once_in_the_time_that_its_link_needs() {
    for (rate_bps, loss, is_far) in
        [(1_000_000, 0.01, false), (1_000_000, 0.01, true), (5_000_000, 0.05, true)]
    {
        let mut net = Net::pair(1, &Pipe { is_far, ..Pipe::lossy(rate_bps, loss) });
        let map = net.open(0, P, map_channel());
        net.send(0, P, map, payload(MAP, MAP_BYTES));
        let taken = await_map(&mut net, map, Duration::from_secs(60));
        let needed = serialization_time(rate_bps, loss);
        println!("{rate_bps} bps, {loss}: {taken:?}; serialization {needed:?}");
        assert!(taken < needed.mul_f64(1.15), "{taken:?} instead of {needed:?}");
    }
}

#[test]
fn fragments_that_arrived_before_an_outage_are_not_resent() {
    // The second outage is longer than the lifetime of keys.
    for outage in [15, 200].map(Duration::from_secs) {
        let mut net = Net::pair(2, &Pipe::lossy(1_000_000, 0.01));
        let map = net.open(0, P, map_channel());
        let before = link_bytes(&net);
        net.send(0, P, map, payload(MAP, MAP_BYTES));
        net.run(15_000 * MS);
        set_cut(&mut net, true);
        net.run(outage);
        set_cut(&mut net, false);
        let taken = await_map(&mut net, map, Duration::from_secs(60));
        let needed = serialization_time(1_000_000, 0.01);
        println!("{taken:?} after an outage of {outage:?}; {needed:?} in all");
        assert!(taken + 13_000 * MS < needed.mul_f64(1.15), "{taken:?}");
        let sent = link_bytes(&net) - before;
        assert!(sent < MAP_BYTES as u64 * 6 / 5, "{sent} bytes");
    }
}

#[test]
fn a_message_continues_after_more_urgent_ones() {
    let mut net = Net::pair(3, &Pipe::lossy(2_000_000, 0.02));
    let map = net.open(0, P, map_channel());
    let image = net.open(0, P, channel(topic("/image", 50)));
    let before = link_bytes(&net);
    net.send(0, P, map, payload(MAP, MAP_BYTES));
    net.run(8_000 * MS);
    let map_bytes = link_bytes(&net) - before;
    for n in 0..400 {
        net.send(0, P, image, payload(n, 30_000));
        net.run(100 * MS);
    }
    assert_eq!(arrivals(&net, map), 0);
    let taken = await_map(&mut net, map, Duration::from_secs(60));
    let left = serialization_time(2_000_000, 0.02).mul_f64(1.15);
    let left = left.mul_f64(1.0 - map_bytes as f64 / MAP_BYTES as f64);
    assert!(taken < left + 3_000 * MS, "{taken:?} of {left:?}");
}

/// The traffic alongside the scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bulk {
    Nothing,
    Map,
    Images,
}

/// The ages of scans at delivery, 50th and 99th percentile, over several seeds.
fn scan_ages(pipe: &Pipe, bulk: Bulk) -> [Duration; 2] {
    let mut ages = Vec::new();
    for seed in 1..=4 {
        let mut net = Net::pair(seed, pipe);
        let scan = net.open(0, P, channel(topic("/scan", 200)));
        let map = net.open(0, P, map_channel());
        let image = net.open(0, P, channel(topic("/image", 10)));
        if bulk == Bulk::Map {
            net.send(0, P, map, payload(MAP, MAP_BYTES));
        }
        let until = net.now + serialization_time(pipe.rate_bps, pipe.loss);
        for n in 0.. {
            if net.now >= until {
                break;
            }
            let waiting = net.nodes[0].endpoint.peer(P).channel_out(image).unwrap().2.queued;
            if bulk == Bulk::Images && waiting < 2 {
                net.send(0, P, image, payload(n, 20_000));
            }
            net.send(0, P, scan, payload(n, 1000));
            net.run(25 * MS);
        }
        assert_eq!(arrivals(&net, map), 0, "the map takes longer");
        let scans = net.nodes[1].received.iter().filter(|it| it.2 == scan);
        ages.extend(scans.map(|it| it.3.age));
    }
    ages.sort();
    [50, 99].map(|percent| ages[ages.len() * percent / 100])
}

#[test]
fn scans_during_a_large_message_wait_only_for_the_packets_on_the_link() {
    for (rate_bps, loss) in [(1_000_000, 0.01), (5_000_000, 0.05)] {
        for is_far in [false, true] {
            let pipe = Pipe { is_far, ..Pipe::lossy(rate_bps, loss) };
            let [alone, images, map] =
                [Bulk::Nothing, Bulk::Images, Bulk::Map].map(|bulk| scan_ages(&pipe, bulk));
            println!("{rate_bps} bps, {loss}, far: {is_far}: {alone:?}, {images:?}, {map:?}");
            let packet = Duration::from_secs_f64(1500.0 * 8.0 / rate_bps as f64);
            // A scan waits for up to two full packets. If the scan is lost, the next scan reveals
            // the loss, and the repair waits again.
            assert!(map[0] < alone[0] + packet * 2, "{map:?}, alone {alone:?}");
            assert!(map[1] < alone[1] + packet * 5, "{map:?}, alone {alone:?}");
            assert!(map[1] < images[1] + packet, "{map:?}, images {images:?}");
        }
    }
}

#[test]
fn a_message_without_acknowledgements_is_dropped() {
    let mut net = Net::pair(4, &Pipe::with_rate(6_000_000));
    let scan = net.open(0, P, channel(topic("/scan", 200)));
    let map = net.open(0, P, map_channel());
    // The peer acknowledges all but the fragments of the map.
    net.nodes[0].pipe.lost_priority = Some(MAP_PRIORITY);
    net.send(0, P, map, payload(MAP, MAP_BYTES));
    let mut repairs = Vec::new();
    for n in 0..6000 {
        net.send(0, P, scan, payload(n, 1000));
        net.run(20 * MS);
        let link = net.nodes[0].endpoint.links().next().unwrap();
        repairs.push(net.nodes[0].endpoint.link(link).unwrap().stats.repair_bytes);
    }
    assert_eq!((arrivals(&net, map), arrivals(&net, scan)), (0, 6000));
    let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(map).unwrap();
    assert_eq!(stats.dropped.get(DropReason::Lost), 1, "{stats:?}");
    // The map is given up within 30 s. Until then, repairs may take their share of the bytes sent for the
    // first time, a burst of 64 KiB, and 8 kB/s.
    let first = MAP_BYTES as u64 + 1500 * 1000;
    assert!(repairs[1500] < first * 3 / 10 + 65_536 + 30 * 8_000, "{} bytes", repairs[1500]);
    assert_eq!(repairs[1500], repairs[5999]);
    net.check_conservation(0, P, &[map, scan]);
}

#[test]
fn a_burst_of_a_fast_link_is_acknowledged_before_its_receiver_forgets_it() {
    let mut net = Net::pair(5, &Pipe::with_rate(4_000_000_000));
    let map = net.open(0, P, map_channel());
    for number in 1..=5 {
        net.send(0, P, map, payload(number, MAP_BYTES));
        net.run(100 * MS);
    }
    assert_eq!(arrivals(&net, map), 5);
    let link = net.nodes[0].endpoint.links().next().unwrap();
    let stats = *net.nodes[0].endpoint.link(link).unwrap().stats;
    assert!(stats.lost_packets < 10, "{stats:?}");
}

#[test]
fn losses_at_the_end_of_a_message_are_repaired_at_the_rate_of_the_link() {
    let mut net = Net::pair(6, &Pipe::with_rate(20_000_000));
    let map = net.open(0, P, map_channel());
    net.send(0, P, map, payload(MAP, MAP_BYTES));
    net.run(1300 * MS);
    net.nodes[0].pipe.loss = 0.5;
    net.run(600 * MS);
    net.nodes[0].pipe.loss = 0.0;
    let taken = await_map(&mut net, map, Duration::from_secs(600));
    println!("{taken:?} for a tenth of the message");
    assert!(taken < 1_000 * MS, "{taken:?}");
}

#[test]
fn losses_around_an_outage_cost_only_their_duration() {
    let mut net = Net::pair(7, &Pipe::with_rate(50_000_000));
    let map = net.open(0, P, map_channel());
    net.send(0, P, map, payload(MAP, MAP_BYTES));
    net.run(300 * MS);
    // Before and after the outage, hundreds of repairs of full packets are lost.
    for _ in 0..2 {
        net.nodes[0].pipe.longest = 1200;
        net.run(1_000 * MS);
        net.nodes[0].pipe.longest = DATAGRAM;
        set_cut(&mut net, true);
        net.run(15_000 * MS);
        set_cut(&mut net, false);
    }
    let taken = await_map(&mut net, map, Duration::from_secs(600));
    println!("{taken:?} after more losses than the budget of repairs covers");
    assert!(taken < 6_000 * MS, "{taken:?}");
}
