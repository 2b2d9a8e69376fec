// SPDX-License-Identifier: Apache-2.0
//! Lines without contention: a token bucket, a serial radio, a modem.

use crate::net::{MS, Nanos, Net, SECOND};
use tautline_medium::{Aqm, Loss, Output, PipeConfig, Reordering, Trace};

/// At this rate 1500 bytes take 12 ms.
const MBPS: u64 = 1_000_000;
const FRAME: Nanos = 12 * MS;

fn slow() -> PipeConfig {
    PipeConfig { rate_bps: MBPS, ..PipeConfig::default() }
}

/// Returns the arrival times of frames that are sent at the same time.
fn arrivals(config: PipeConfig, frames: usize) -> Vec<Nanos> {
    let mut net = Net::pipe(1, config, 2);
    let flow = net.flow(0, 1);
    (0..frames).for_each(|_| assert!(net.send(flow)));
    net.drain();
    net.delivered(flow, 1).into_iter().map(|(at, _)| at).collect()
}

#[test]
fn frames_take_their_serialization_time_and_the_delay() {
    assert_eq!(arrivals(slow(), 3), [FRAME, 2 * FRAME, 3 * FRAME]);
    let delayed = PipeConfig { delay: 50 * MS, ..slow() };
    assert_eq!(arrivals(delayed, 2), [FRAME + 50 * MS, 2 * FRAME + 50 * MS]);
    let padded = PipeConfig { overhead_bytes: 1500, ..slow() };
    assert_eq!(arrivals(padded, 1), [2 * FRAME]);
}

#[test]
fn a_frame_is_reported_as_sent_after_its_serialization_time() {
    let mut net = Net::pipe(1, PipeConfig { delay: 50 * MS, ..slow() }, 2);
    let flow = net.flow(0, 1);
    net.send(flow);
    net.drain();
    assert_eq!(net.sent(flow)[0].0, FRAME);
    assert_eq!((net.busy(), net.stats(0).airtime), (FRAME, FRAME));
}

#[test]
fn delayed_frames_arrive_after_later_frames() {
    let reordering = Reordering { probability: 0.1, delay: 30 * MS };
    let mut net = Net::pipe(1, PipeConfig { reordering, rate_bps: 8 * MBPS, ..slow() }, 2);
    let flow = net.flow(0, 1);
    for number in 0..1000 {
        assert!(net.send_at(number * 5 * MS, flow));
    }
    net.drain();
    let late = net.delivered(flow, 1).into_iter();
    let late: Vec<_> = late.map(|(at, number)| at - number * 5 * MS - FRAME / 8).collect();
    let delayed = late.iter().filter(|late| **late > 0).count();
    assert!((60..=140).contains(&delayed) && late.iter().all(|late| *late <= 30 * MS));
    let numbers = net.numbers(flow, 1);
    assert!(numbers.len() == 1000 && !numbers.is_sorted());
}

#[test]
fn some_frames_arrive_twice() {
    let config = PipeConfig { duplicates: 0.25, queue_bytes: 1_000_000, ..slow() };
    let count = arrivals(config, 400).len();
    assert!((460..=540).contains(&count), "{count}");
}

#[test]
fn a_recorded_capacity_sends_1500_bytes_at_a_time() {
    let trace = Trace::new(&[10, 11, 20]);
    let recorded = PipeConfig { trace, ..slow() };
    assert_eq!(arrivals(recorded.clone(), 5), [10, 11, 20, 30, 31].map(|ms| ms * MS));
    // With their overhead, frames take 1.5 opportunities.
    let padded = PipeConfig { overhead_bytes: 750, ..recorded };
    assert_eq!(arrivals(padded, 2), [11 * MS, 20 * MS]);
}

#[test]
fn jitter_spreads_arrivals_and_keeps_their_order() {
    let mut net = Net::pipe(1, PipeConfig { jitter: 30 * MS, rate_bps: 8 * MBPS, ..slow() }, 2);
    let flow = net.flow(0, 1);
    for number in 0..500 {
        assert!(net.send_at(number * 5 * MS, flow));
    }
    net.drain();
    assert_eq!(net.numbers(flow, 1), (0..500).collect::<Vec<_>>());
    let late = net.delivered(flow, 1).into_iter().map(|(at, number)| at - number * 5 * MS);
    let late: Vec<_> = late.map(|late| late - FRAME / 8).collect();
    assert!(late.iter().all(|late| *late <= 30 * MS));
    assert!(late.iter().any(|late| *late < 5 * MS) && late.iter().any(|late| *late > 25 * MS));
}

#[test]
fn an_idle_bucket_sends_its_burst_at_once() {
    let bucket = PipeConfig { burst_bytes: 3000, ..slow() };
    assert_eq!(arrivals(bucket.clone(), 4), [0, 0, FRAME, 2 * FRAME]);

    // Half of a frame's time refills half of a frame.
    let mut net = Net::pipe(1, bucket, 2);
    let flow = net.flow(0, 1);
    (0..2).for_each(|_| assert!(net.send(flow)));
    assert!(net.send_at(FRAME / 2, flow));
    net.drain();
    assert_eq!(net.delivered(flow, 1)[2].0, FRAME);
    // The bucket never holds more than the burst.
    let again = 100 * FRAME;
    net.run(again);
    (0..3).for_each(|_| assert!(net.send(flow)));
    net.drain();
    let times: Vec<_> = net.delivered(flow, 1)[3..].iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [again, again, again + FRAME]);
}

#[test]
fn the_queue_has_its_limit_in_bytes() {
    let mut net = Net::pipe(1, PipeConfig { queue_bytes: 4600, overhead_bytes: 20, ..slow() }, 2);
    let flow = net.flow(0, 1);
    let taken: Vec<bool> = (0..5).map(|_| net.send(flow)).collect();
    assert_eq!(taken, [true, true, true, false, false]);
    assert_eq!((net.stats(0).queue_drops, net.stats(0).waiting), (2, 3));
    net.drain();
    assert_eq!(net.stats(0).waiting, 0);
    assert!(net.send(flow));
}

#[test]
fn half_duplex_pipes_share_their_rate_between_directions() {
    let came = |half_duplex| {
        let mut net = Net::pipe(1, PipeConfig { half_duplex, ..slow() }, 2);
        let (there, back) = (net.flow(0, 1), net.flow(1, 0));
        net.saturate(there);
        net.saturate(back);
        net.run(12 * SECOND);
        [net.delivered(there, 1).len(), net.delivered(back, 0).len()]
    };
    assert_eq!(came(false), [1000, 1000]);
    assert_eq!(came(true), [500, 500]);
}

#[test]
fn a_broadcast_takes_its_serialization_time_once_and_reaches_all() {
    let mut net = Net::pipe(1, PipeConfig { half_duplex: true, ..slow() }, 4);
    let flow = net.broadcasts(0);
    net.send(flow);
    net.drain();
    for station in 1..4 {
        assert_eq!(net.delivered(flow, station), [(FRAME, 0)]);
    }
    assert_eq!(net.busy(), FRAME);
}

#[test]
fn a_new_rate_applies_to_the_remaining_bytes() {
    let mut net = Net::pipe(1, slow(), 2);
    let flow = net.flow(0, 1);
    (0..3).for_each(|_| assert!(net.send(flow)));
    // A quarter of the first frame is sent; the remaining bytes are sent at four times the rate.
    net.run(FRAME / 4);
    net.medium.set_rate(net.now, net.network, 4 * MBPS);
    net.drain();
    let times: Vec<_> = net.delivered(flow, 1).into_iter().map(|(at, _)| at).collect();
    let first = FRAME / 4 + FRAME * 3 / 16;
    assert_eq!(times, [first, first + FRAME / 4, first + FRAME / 2]);
}

#[test]
fn a_rate_that_changes_often_does_not_starve_the_pipe() {
    let mut net = Net::pipe(1, slow(), 2);
    let flow = net.flow(0, 1);
    net.saturate(flow);
    for step in 0..1200 {
        net.run(step * 10 * MS);
        let rate = if step % 2 == 0 { MBPS } else { 2 * MBPS };
        net.medium.set_rate(net.now, net.network, rate);
    }
    let came = net.delivered(flow, 1).len();
    assert!(came.abs_diff(1500) < 5, "{came}");
}

#[test]
fn a_rate_of_zero_stops_the_pipe_and_another_rate_restarts_it() {
    let mut net = Net::pipe(1, PipeConfig { burst_bytes: 1500, ..slow() }, 2);
    let flow = net.flow(0, 1);
    (0..3).for_each(|_| assert!(net.send(flow)));
    net.run(FRAME / 2);
    net.medium.set_rate(net.now, net.network, 0);
    net.run(10 * SECOND);
    assert_eq!(net.numbers(flow, 1), [0]);
    net.medium.set_rate(net.now, net.network, MBPS);
    net.drain();
    let times: Vec<_> = net.delivered(flow, 1).into_iter().map(|(at, _)| at).collect();
    assert!(times[1].abs_diff(10 * SECOND + FRAME / 2) < MS, "{times:?}");
    assert_eq!(times[2], times[1] + FRAME);
}

#[test]
fn loss_is_per_frame_and_not_repaired() {
    let config = PipeConfig { loss: Loss::Uniform { probability: 0.3 }, ..slow() };
    let mut net = Net::pipe(1, config, 2);
    let flow = net.flow(0, 1);
    for _ in 0..2000 {
        assert!(net.send(flow));
        net.drain();
    }
    let came = net.delivered(flow, 1).len();
    assert!(came.abs_diff(1400) < 80, "{came}");
    assert_eq!(net.stats(0).failed_attempts as usize, 2000 - came);
    assert_eq!(net.sent(flow).len(), 2000);
}

/// Overloads the pipe by 10 %; returns how many frames were sent, arrived, and arrived marked in
/// the last second.
fn overloaded(aqm: Aqm, ecn_capable: bool) -> [usize; 3] {
    let config = PipeConfig { aqm, rate_bps: 12 * MBPS, queue_bytes: 10_000_000, ..slow() };
    let mut net = Net::pipe(1, config, 2);
    let flow = net.flow(0, 1);
    net.flow_mut(flow).ecn_capable = ecn_capable;
    for number in 0..5500 {
        assert!(net.send_at(number * MS * 10 / 11, flow));
    }
    net.drain();
    let arrived = net.events.iter().filter_map(|event| match event {
        Output::Delivered { marked, payload, .. } if payload.number >= 4400 => Some(*marked),
        _ => None,
    });
    let marked: Vec<bool> = arrived.collect();
    [1100, marked.len(), marked.iter().filter(|it| **it).count()]
}

#[test]
fn active_queue_management_marks_capable_frames_and_drops_others() {
    assert_eq!(overloaded(Aqm::None, true), [1100, 1100, 0]);
    assert_eq!(overloaded(Aqm::Step(5 * MS), true), [1100, 1100, 1100]);
    assert_eq!(overloaded(Aqm::Step(5 * MS), false), [1100, 1100, 0]);
    let [_, arrived, marked] = overloaded(Aqm::Codel, true);
    assert!(arrived == 1100 && (50..700).contains(&marked), "{arrived} {marked}");
    let [_, arrived, marked] = overloaded(Aqm::Codel, false);
    assert!((900..1050).contains(&arrived) && marked == 0, "{arrived}");
}
