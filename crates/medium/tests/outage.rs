// SPDX-License-Identifier: Apache-2.0
//! Outages of stations and pairs, and recovery.

mod net;

use net::{MS, Net, SECOND, fixed};
use tautline_medium::{Outcome, PipeConfig};

#[test]
fn a_station_cut_off_neither_sends_nor_receives() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0, 0.0]);
    let flows = [net.flow(0, 1), net.flow(1, 0), net.flow(1, 2)];
    net.medium.cut_off(net.stations[0], true);
    flows.iter().for_each(|flow| assert!(net.send(*flow)));
    net.drain();
    assert_eq!((net.numbers(flows[0], 1), net.numbers(flows[1], 0)), (vec![], vec![]));
    assert_eq!(net.numbers(flows[2], 2), [0], "the others go on");
    assert_eq!(net.sent(flows[0])[0].1, Outcome::GivenUp);
    assert_eq!(net.sent(flows[1])[0].1, Outcome::GivenUp);
}

#[test]
fn a_pair_cut_leaves_other_pairs_alone() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0, 0.0]);
    net.medium.cut(net.stations[1], net.stations[0], true);
    let pairs = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)];
    for (from, to) in pairs {
        let flow = net.flow(from, to);
        net.send(flow);
        net.drain();
        let expected: &[u64] = if from + to == 1 { &[] } else { &[0] };
        assert_eq!(net.numbers(flow, to), expected, "{from} to {to}");
    }
}

#[test]
fn a_queue_fills_to_its_limit_and_traffic_continues_after_the_outage() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0]);
    let flow = net.flow(0, 1);
    net.medium.cut_off(net.stations[1], true);
    let taken: Vec<bool> = (0..12).map(|_| net.send(flow)).collect();
    assert_eq!(taken, [vec![true; 10], vec![false; 2]].concat());
    assert_eq!((net.stats(0).queue_drops, net.stats(0).waiting), (2, 10));
    net.run(30 * MS);
    assert_eq!(net.numbers(flow, 1), []);
    net.medium.cut_off(net.stations[1], false);
    net.drain();
    let given_up = net.stats(0).given_up;
    assert!(given_up < 5, "30 ms are not enough to give up more: {given_up}");
    let numbers = net.numbers(flow, 1);
    assert_eq!(numbers, (10 - numbers.len() as u64..10).collect::<Vec<_>>());
    assert!(numbers.len() as u64 >= 10 - given_up);
    assert!(net.send_at(SECOND, flow), "and there is room again");
    net.drain();
    assert_eq!(net.numbers(flow, 1).last(), Some(&12));
}

#[test]
fn a_refused_frame_comes_back_unchanged() {
    let mut medium = tautline_medium::Medium::new(1);
    let wifi = medium.add_wifi(fixed(6));
    let station = medium.add_station(tautline_medium::Motion::at([0.0; 3]));
    let radio = medium.add_radio(station, wifi, 1);
    let frame = |payload| tautline_medium::Frame { to: None, bytes: 9, dscp: 46, payload };
    medium.send(0, radio, frame("first")).unwrap();
    let refused = medium.send(0, radio, frame("second")).unwrap_err().0;
    assert_eq!((refused.payload, refused.bytes, refused.dscp), ("second", 9, 46));
}

#[test]
fn a_pipe_loses_frames_sent_during_an_outage() {
    let mut net = Net::pipe(1, PipeConfig::default(), 2);
    let flow = net.flow(0, 1);
    for out in [false, true, false] {
        net.medium.cut(net.stations[0], net.stations[1], out);
        net.send(flow);
        net.drain();
    }
    assert_eq!(net.numbers(flow, 1), [0, 2]);
    assert_eq!((net.sent(flow).len(), net.stats(0).failed_attempts), (3, 1));
}
