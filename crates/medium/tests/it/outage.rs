// SPDX-License-Identifier: Apache-2.0
//! Outages of stations and pairs, and recovery.

use crate::net::{MS, Net, SECOND, fixed};
use tautline_medium::{Frame, Medium, Motion, Outage, Outcome, Output, PipeConfig, RadioId};

#[test]
fn a_station_in_an_outage_neither_sends_nor_receives() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0, 0.0]);
    let flows = [net.flow(0, 1), net.flow(1, 0), net.flow(1, 2)];
    net.medium.set_station_outage(net.stations[0], true);
    flows.iter().for_each(|flow| assert!(net.send(*flow)));
    net.drain();
    assert_eq!((net.numbers(flows[0], 1), net.numbers(flows[1], 0)), (vec![], vec![]));
    assert_eq!(net.numbers(flows[2], 2), [0], "the others go on");
    assert_eq!(net.sent(flows[0])[0].1, Outcome::GivenUp);
    assert_eq!(net.sent(flows[1])[0].1, Outcome::GivenUp);
}

#[test]
fn an_outage_of_a_pair_leaves_other_pairs_alone() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0, 0.0]);
    net.medium.set_pair_outage(net.stations[1], net.stations[0], true);
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
    net.medium.set_station_outage(net.stations[1], true);
    let taken: Vec<bool> = (0..12).map(|_| net.send(flow)).collect();
    assert_eq!(taken, [vec![true; 10], vec![false; 2]].concat());
    assert_eq!((net.stats(0).queue_drops, net.stats(0).waiting), (2, 10));
    net.run(30 * MS);
    assert_eq!(net.numbers(flow, 1), []);
    net.medium.set_station_outage(net.stations[1], false);
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
fn a_refused_frame_is_returned_unchanged() {
    let mut medium = tautline_medium::Medium::new(1);
    let wifi = medium.add_network(fixed(6));
    let station = medium.add_station(tautline_medium::Motion::at([0.0; 3]));
    let radio = medium.add_radio(station, wifi, 1);
    let frame = |payload| tautline_medium::Frame {
        to: None,
        bytes: 9,
        dscp: 46,
        ecn_capable: false,
        payload,
    };
    medium.send(0, radio, frame("first")).unwrap();
    let refused = medium.send(0, radio, frame("second")).unwrap_err().0;
    assert_eq!((refused.payload, refused.bytes, refused.dscp), ("second", 9, 46));
}

#[test]
fn a_pipe_loses_frames_sent_during_an_outage() {
    let mut net = Net::pipe(1, PipeConfig::default(), 2);
    let flow = net.flow(0, 1);
    for out in [false, true, false] {
        net.medium.set_pair_outage(net.stations[0], net.stations[1], out);
        net.send(flow);
        net.drain();
    }
    assert_eq!(net.numbers(flow, 1), [0, 2]);
    assert_eq!((net.sent(flow).len(), net.stats(0).failed_attempts), (3, 1));
}

/// Two stations share a channel and a pipe. Returns the radios that receive a frame from the first
/// station.
fn received(outages: &[(Outage, bool)]) -> Vec<RadioId> {
    let mut medium = Medium::new(1);
    let [robot, base] = [(); 2].map(|()| medium.add_station(Motion::at([0.0; 3])));
    let networks = [medium.add_network(fixed(6)), medium.add_network(PipeConfig::default())];
    let radios = networks.map(|it| [robot, base].map(|station| medium.add_radio(station, it, 9)));
    for (outage, out) in outages {
        medium.outage(*outage, *out);
    }
    for [from, to] in radios {
        medium
            .send(
                0,
                from,
                Frame { to: Some(to), bytes: 100, dscp: 0, ecn_capable: false, payload: () },
            )
            .unwrap();
    }
    while let Some(at) = medium.poll_timeout() {
        medium.handle_timeout(at);
    }
    let outputs = std::iter::from_fn(|| medium.poll_output());
    let mut received: Vec<RadioId> = outputs
        .filter_map(|output| match output {
            Output::Delivered { to, .. } => Some(to),
            Output::Sent { .. } => None,
        })
        .collect();
    received.sort();
    received
}

#[test]
fn an_outage_on_one_network_does_not_affect_the_other() {
    let [robot, base] = [0, 1].map(tautline_medium::StationId);
    let [wifi, pipe] = [0, 1].map(tautline_medium::NetworkId);
    let [by_wifi, by_pipe] = [RadioId(1), RadioId(3)];
    assert_eq!(received(&[]), [by_wifi, by_pipe]);
    for outage in [Outage::at(robot), Outage::at(base), Outage::between(base, robot)] {
        assert_eq!(received(&[(outage, true)]), []);
        assert_eq!(received(&[(outage.on(wifi), true)]), [by_pipe]);
        assert_eq!(received(&[(outage.on(pipe), true)]), [by_wifi]);
        let both = [(outage, true), (outage.on(pipe), true), (outage, false)];
        assert_eq!(received(&both), [by_wifi], "the outage on the pipe has not ended");
        let ended = [(outage.on(pipe), true), (outage.on(pipe), false)];
        assert_eq!(received(&ended), [by_wifi, by_pipe]);
    }
}
