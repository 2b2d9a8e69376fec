// SPDX-License-Identifier: Apache-2.0
//! Determinism, and invariants of all configurations.

use crate::net::{Flow, IP_BYTES, MS, Nanos, Net, SECOND, Tag, US, fixed};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tautline_medium::{
    Access, Aqm, Interference, Loss, Motion, Outcome, Output, PathLoss, Phy, PipeConfig, RadioId,
    RateControl, Reordering, StationId, Trace, Trial, WifiConfig,
};

fn busy_scene(seed: u64) -> String {
    let law = PathLoss { at_1m_db: 40.0, exponent: 3.5, shadowing_db: 4.0 };
    let config = WifiConfig {
        rate: RateControl::Adaptive,
        access: Access::Edca,
        path_loss: Some(law),
        loss: Loss::GilbertElliott { enter: 0.05, leave: 0.2 },
        ..WifiConfig::default()
    };
    let place = |x| [x, 0.0, 0.0];
    let drive = |x, y| Motion { waypoints: vec![(0, place(x)), (2 * SECOND, place(y))] };
    let motions = vec![Motion::at(place(0.0)), drive(5.0, 80.0), drive(60.0, 5.0)];
    let mut net = Net::moving(seed, config, motions);
    let noise =
        Interference { burst: MS, mean_pause: 9 * MS, place: place(9.0), from: 0, until: SECOND };
    net.medium.interfere(0, net.network, noise);
    for (station, dscp) in [(1, 46), (2, 8), (2, 0)] {
        let (from, to) = (net.radios[station], Some(net.radios[0]));
        let flow = net.add(Flow { from, to, bytes: IP_BYTES, dscp, ecn_capable: false });
        net.saturate(flow);
    }
    net.run(2 * SECOND);
    format!("{:?}", net.events)
}

#[test]
fn outputs_depend_on_the_seed_only() {
    let first = busy_scene(7);
    assert!(first.len() > 100_000);
    assert!(first == busy_scene(7));
    assert!(first != busy_scene(8));
}

#[test]
fn networks_do_not_influence_each_other() {
    let run = |with_other: bool| {
        let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0, 0.0]);
        let other = net.medium.add_network(PipeConfig::default());
        let from = net.medium.add_radio(net.stations[0], other, 10);
        let flows = [net.flow(0, 2), net.flow(1, 2)];
        flows.iter().for_each(|flow| net.saturate(*flow));
        if with_other {
            let flow = net.add(Flow { from, to: None, bytes: 500, dscp: 0, ecn_capable: false });
            net.saturate(flow);
        }
        net.run(SECOND);
        flows.map(|flow| net.delivered(flow, 2))
    };
    assert_eq!(run(false), run(true));
}

/// An action on a medium; actions are separated by pauses.
#[derive(Debug, Clone)]
enum Act {
    Send { from: usize, to: Option<usize>, bytes: u32, dscp: u8 },
    Cut { a: usize, b: usize, out: bool },
    CutOff { station: usize, out: bool },
    SetRate { number: usize },
    Interfere { burst: Nanos, mean_pause: Nanos, lasts: Nanos },
}

const STATIONS: usize = 4;

fn act() -> impl Strategy<Value = Act> {
    let station = 0..STATIONS;
    prop_oneof![
        // The last number is a receiver that does not exist.
        12 => (station.clone(), prop::option::weighted(0.9, 0..=STATIONS), 20..1500_u32, 0..64_u8)
            .prop_map(|(from, to, bytes, dscp)| Act::Send { from, to, bytes, dscp }),
        1 => (station.clone(), station.clone(), any::<bool>())
            .prop_map(|(a, b, out)| Act::Cut { a, b, out }),
        1 => (station, any::<bool>()).prop_map(|(station, out)| Act::CutOff { station, out }),
        1 => (0..8_usize).prop_map(|number| Act::SetRate { number }),
        1 => (0..5 * MS, 0..20 * MS, 0..50 * MS)
            .prop_map(|(burst, mean_pause, lasts)| Act::Interfere { burst: burst + US, mean_pause, lasts }),
    ]
}

fn acts() -> impl Strategy<Value = Vec<(Nanos, Act)>> {
    let pause = prop_oneof![Just(0), 0..100 * US, 0..5 * MS];
    prop::collection::vec((pause, act()), 1..150)
}

fn losses() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        (0.0..1.0).prop_map(|probability| Loss::Uniform { probability }),
        (0.01..1.0, 0.01..1.0).prop_map(|(enter, leave)| Loss::GilbertElliott { enter, leave }),
    ]
}

prop_compose! {
    fn wifi()(
        ofdm in any::<bool>(),
        edca in any::<bool>(),
        adaptive in any::<bool>(),
        retries in 0..=7_u32,
        loss in losses(),
        per_frame in any::<bool>(),
        law in prop::option::of((2.0..4.0, 0.0..8.0)),
        point in prop::option::weighted(0.3, 0..STATIONS),
    ) -> WifiConfig {
        let phy = if ofdm { Phy::Ofdm } else { Phy::Dsss };
        let path_loss = law.map(|(exponent, shadowing_db)| PathLoss {
            at_1m_db: 40.0,
            exponent,
            shadowing_db,
        });
        WifiConfig {
            phy,
            access: if edca { Access::Edca } else { Access::Dcf },
            rate: if adaptive {
                RateControl::Adaptive
            } else {
                RateControl::Fixed(phy.rates()[retries as usize % phy.rates().len()].bps)
            },
            retries,
            loss,
            trial: if per_frame { Trial::Frame } else { Trial::Attempt },
            path_loss,
            access_point: point.map(StationId),
            ..WifiConfig::default()
        }
    }
}

prop_compose! {
    fn pipe()(
        rate_bps in 1_000..10_000_000_u64,
        overhead_bytes in 0..100_u32,
        burst_bytes in 0..5_000_u64,
        delay in 0..50 * MS,
        jitter in 0..50 * MS,
        loss in losses(),
        queue_bytes in 0..20_000_u64,
        half_duplex in any::<bool>(),
        reordered in 0.0..0.2,
        has_trace in any::<bool>(),
        aqm in prop::sample::select(vec![Aqm::None, Aqm::Codel, Aqm::Step(MS)]),
    ) -> PipeConfig {
        PipeConfig {
            rate_bps, overhead_bytes, burst_bytes, delay, jitter, loss, queue_bytes, half_duplex,
            reordering: Reordering { probability: reordered, delay: 2 * jitter },
            duplicates: 0.0,
            aqm,
            trace: has_trace.then(|| Trace::new(&[1, 4, 4, 20])).flatten(),
        }
    }
}

fn motions() -> impl Strategy<Value = Vec<Motion>> {
    let place = || (-150.0..150.0).prop_map(|x| [x, 0.0, 0.0]);
    let motion = (place(), prop::option::of(place())).prop_map(|(from, to)| Motion {
        waypoints: [Some((0, from)), to.map(|to| (SECOND, to))].into_iter().flatten().collect(),
    });
    prop::collection::vec(motion, STATIONS)
}

/// Time and parameters of each accepted frame.
type AcceptedFrames = BTreeMap<usize, (Nanos, Flow)>;

/// Plays actions with one flow per frame. [`Act::SetRate`] selects from `rates`.
fn play(net: &mut Net, acts: Vec<(Nanos, Act)>, rates: &[u64]) -> AcceptedFrames {
    let mut taken = AcceptedFrames::new();
    for (pause, act) in acts {
        net.run(net.now + pause);
        match act {
            Act::Send { from, to, bytes, dscp } => {
                let radio = |number: usize| net.radios.get(number).copied();
                let to = to.map(|to| radio(to).unwrap_or(RadioId(99)));
                let what =
                    Flow { from: net.radios[from], to, bytes, dscp, ecn_capable: dscp % 2 == 1 };
                let flow = net.add(what);
                if net.send(flow) {
                    taken.insert(flow, (net.now, what));
                }
            }
            Act::Cut { a, b, out } => {
                net.medium.set_pair_outage(net.stations[a], net.stations[b], out)
            }
            Act::CutOff { station, out } => {
                net.medium.set_station_outage(net.stations[station], out)
            }
            Act::SetRate { number } => {
                net.medium.set_rate(net.now, net.network, rates[number % rates.len()]);
            }
            Act::Interfere { burst, mean_pause, lasts } => {
                let (from, until) = (net.now, net.now + lasts);
                let what = Interference { burst, mean_pause, place: [0.0; 3], from, until };
                net.medium.interfere(net.now, net.network, what);
            }
        }
    }
    taken
}

/// Checks that each accepted frame has one outcome for its sender, and arrives at most once at its
/// receivers, no earlier than possible.
fn check(net: &Net, taken: &AcceptedFrames, least: impl Fn(&Flow) -> Nanos) {
    assert!(net.events.is_sorted_by_key(Output::at), "in order of time");
    let mut ended = BTreeMap::new();
    let mut arrived = BTreeMap::new();
    for event in &net.events {
        match event {
            Output::Sent { radio, payload: Tag { flow, .. }, .. } => {
                assert_eq!(*radio, taken[flow].1.from);
                *ended.entry(*flow).or_insert(0) += 1;
            }
            Output::Delivered { at, from, to, payload: Tag { flow, .. }, .. } => {
                let (sent_at, what) = &taken[flow];
                assert_eq!(*from, what.from);
                assert!(what.to.is_none_or(|meant| meant == *to), "{what:?} came to {to:?}");
                assert!(*at >= sent_at + least(what), "{what:?} sent {sent_at} came {at}");
                *arrived.entry((*flow, *to)).or_insert(0) += 1;
            }
        }
    }
    assert!(taken.keys().all(|flow| ended.get(flow) == Some(&1)), "each ends once");
    assert_eq!(ended.len(), taken.len());
    assert!(arrived.values().all(|times| *times == 1), "none comes twice");
    for station in 0..STATIONS {
        assert_eq!(net.stats(station).waiting, 0);
    }
}

/// Checks that `Done` implies delivery: without an access point, and with loss per attempt.
fn check_done_is_delivered(net: &Net, taken: &AcceptedFrames) {
    for (flow, (_, what)) in taken {
        let done = net.sent(*flow).iter().all(|(_, outcome)| *outcome == Outcome::Done);
        let to = what.to.and_then(|to| net.radios.iter().position(|radio| *radio == to));
        match (what.to, to) {
            (Some(_), None) => assert!(!done),
            (Some(_), Some(to)) if done => assert_eq!(net.numbers(*flow, to).len(), 1),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_radio_network_reports_the_outcome_of_each_frame(
        seed: u64, config in wifi(), motions in motions(), acts in acts(),
    ) {
        let phy = config.phy;
        let rates: Vec<u64> = phy.rates().iter().map(|rate| rate.bps).collect();
        let mut net = Net::moving(seed, config.clone(), motions);
        let taken = play(&mut net, acts, &rates);
        net.drain();
        check(&net, &taken, |what| phy.data_airtime(rates.len() - 1, what.bytes, 0));
        if config.access_point.is_none() && config.trial == Trial::Attempt {
            check_done_is_delivered(&net, &taken);
        }
    }

    #[test]
    fn a_pipe_reports_the_outcome_of_each_frame(seed: u64, config in pipe(), acts in acts()) {
        let mut net = Net::pipe(seed, config.clone(), STATIONS);
        let taken = play(&mut net, acts, &[500, 100_000, 20_000_000]);
        net.drain();
        check(&net, &taken, |_| config.delay);
    }

    #[test]
    fn rare_polling_gives_the_same_outputs_for_frames_in_flight(
        seed: u64, config in wifi(), motions in motions(), acts in acts(), later in 1..20 * MS,
    ) {
        let run = |step: Option<Nanos>| {
            let mut net = Net::moving(seed, config.clone(), motions.clone());
            play(&mut net, acts.clone(), &[config.phy.rates()[0].bps]);
            while let Some(at) = net.medium.poll_timeout() {
                net.medium.handle_timeout(at + step.unwrap_or(0));
                net.events.extend(std::iter::from_fn(|| net.medium.poll_output()));
            }
            format!("{:?}", net.events)
        };
        prop_assert_eq!(run(None), run(Some(later)));
    }
}
