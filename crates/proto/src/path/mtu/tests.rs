// SPDX-License-Identifier: Apache-2.0

use super::*;

const HEADER: usize = 28;
const BASE: usize = BASE_DATAGRAM + HEADER;
const MS: u64 = 1_000_000;

/// A path on which each packet is acknowledged, or known to be lost, at once.
struct Path {
    mtu: PathMtu,
    passes: usize,
    number: u64,
    now: Instant,
    /// Sizes of the probes.
    probes: Vec<usize>,
}

impl Path {
    fn new(limit: usize, passes: usize) -> Self {
        let mtu = PathMtu::new(limit, HEADER);
        Self { mtu, passes, number: 1, now: Instant(MS), probes: Vec::new() }
    }

    /// Sends probes until none is due.
    fn probe(&mut self) {
        while let Some(size) = self.mtu.due_probe(self.now) {
            self.now = self.now + Duration::from_millis(1);
            self.mtu.on_probe_sent(self.number, size);
            assert_eq!(self.mtu.due_probe(self.now), None, "one at a time");
            self.number += 1;
            self.probes.push(size);
            assert!(self.probes.len() < 100, "{:?}", self.probes);
            if size <= self.passes {
                self.mtu.on_probe_acked(self.now);
            } else {
                self.mtu.on_probe_lost(self.now);
            }
        }
    }

    fn send(&mut self, size: usize) {
        let number = self.number;
        self.number += 1;
        if size <= self.passes {
            self.mtu.on_acked(number, size);
        } else {
            self.mtu.on_lost(number, self.number, size);
        }
    }

    /// Sends full packets with small packets between them.
    fn send_full(&mut self, packets: usize) {
        for _ in 0..packets {
            self.send(self.mtu.size);
            self.send(100);
        }
    }

    fn found_size(&self) -> (usize, MtuState) {
        (self.mtu.size, self.mtu.state())
    }
}

#[test]
fn the_mtu_of_the_interface_takes_one_probe() {
    for limit in [1500, 1400, 1280, 2304, 9000] {
        let mut path = Path::new(limit, 9000);
        assert_eq!(path.found_size(), (BASE, MtuState::Searching));
        path.probe();
        assert_eq!((path.found_size(), path.probes.len()), ((limit, MtuState::Full), 1));
    }
}

#[test]
fn the_first_size_is_confirmed_as_well() {
    let mut path = Path::new(700, 700);
    assert_eq!(path.found_size(), (700, MtuState::Searching));
    path.probe();
    assert_eq!((path.found_size(), path.probes.len()), ((700, MtuState::Full), 1));
    // On a link without large packets, only a probe shows that the present size does not pass.
    let mut path = Path::new(1500, 576);
    path.probe();
    assert_eq!(path.found_size(), (576, MtuState::BlackHole));
    assert_eq!(path.mtu.take_black_hole(), Some(BlackHole { lost: BASE, passes: 576 }));
}

#[test]
fn likely_sizes_are_found_exactly_and_others_to_a_sixteenth() {
    for passes in [1280, 1400, 1420, 1492, 1500, 1228, 1340, 1800, 2304, 4470, 8000] {
        let mut path = Path::new(9000, passes);
        path.probe();
        let (size, state) = path.found_size();
        let likely = COMMON_MTUS.contains(&passes);
        let least = if likely { passes } else { passes - passes / PRECISION };
        assert!((least..=passes).contains(&size), "{passes}: {size}");
        assert_eq!(state, MtuState::Probed, "{passes}");
        assert!(path.probes.len() <= 30, "{passes}: {:?}", path.probes);
    }
}

#[test]
fn one_lost_probe_has_no_effect() {
    let mut path = Path::new(1500, 1500);
    for _ in 1..MAX_PROBES {
        assert_eq!(path.mtu.due_probe(path.now), Some(1500));
        path.mtu.on_probe_sent(path.number, 1500);
        path.mtu.on_probe_lost(path.now);
    }
    path.probe();
    assert_eq!(path.found_size(), (1500, MtuState::Full));
}

#[test]
fn the_base_size_falls_if_it_does_not_pass() {
    for passes in [576, 700, 1000, 300] {
        let mut path = Path::new(1500, passes);
        path.send_full(6);
        path.probe();
        let (size, state) = path.found_size();
        assert!(size <= passes && size > passes * 8 / 10, "{passes}: {size}");
        assert_eq!(state, MtuState::BlackHole);
    }
}

#[test]
fn a_black_hole_is_left_within_three_rounds_and_reported_once() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    path.passes = 1280;
    path.send_full(3);
    assert_eq!(path.found_size(), (BASE, MtuState::Searching));
    assert_eq!(path.mtu.take_black_hole(), None, "not confirmed");
    path.probes.clear();
    path.probe();
    assert_eq!(path.probes[0], 1500, "the former size is tried first");
    assert_eq!(path.found_size(), (1280, MtuState::BlackHole));
    let hole = BlackHole { lost: 1500, passes: 1280 };
    assert_eq!(path.mtu.take_black_hole(), Some(hole));
    assert_eq!(path.mtu.take_black_hole(), None);
}

#[test]
fn a_false_alarm_costs_one_probe() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    path.passes = 1280;
    path.send_full(3);
    path.passes = 1500;
    path.probes.clear();
    path.probe();
    assert_eq!((path.found_size(), path.probes.len()), ((1500, MtuState::Full), 1));
    assert_eq!(path.mtu.take_black_hole(), None);
}

#[test]
fn a_late_acknowledgement_of_a_large_packet_undoes_a_fall() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    let large = path.number;
    path.passes = 1280;
    path.send_full(3);
    assert_eq!(path.mtu.size, BASE);
    path.mtu.on_acked(large - 1, 1500);
    assert_eq!(path.mtu.size, BASE, "it was sent before the losses");
    path.mtu.on_acked(large, 1500);
    assert_eq!(path.found_size(), (1500, MtuState::Full));
}

#[test]
fn losses_of_one_burst_are_one_round() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    for number in 10..60 {
        path.mtu.on_lost(number, 100, 1500);
    }
    path.mtu.on_acked(70, 100);
    assert_eq!(path.mtu.size, 1500);
}

#[test]
fn losses_without_smaller_packets_that_arrive_are_an_outage() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    for number in 10..60 {
        path.mtu.on_lost(number, number + 1, 1500);
    }
    assert_eq!(path.mtu.size, 1500);
}

#[test]
fn a_peer_without_new_acknowledgements_is_in_an_outage() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    for number in 10..1000 {
        path.mtu.on_lost(number, number + 1, 1500);
        path.mtu.on_acked(9, 100);
    }
    assert_eq!(path.mtu.size, 1500);
}

#[test]
fn a_message_that_confirms_the_last_size_ends_the_search() {
    let mut path = Path::new(1500, 1228);
    while let Some(size) = path.mtu.due_probe(path.now).filter(|size| *size > BASE) {
        path.mtu.on_probe_sent(path.number, size);
        path.mtu.on_probe_lost(path.now);
    }
    assert_eq!(path.found_size(), (BASE, MtuState::Searching));
    path.send(BASE);
    assert_eq!(path.mtu.due_probe(path.now), None);
    assert_eq!(path.found_size(), (BASE, MtuState::Probed));
    let again = path.mtu.next_search();
    path.now = path.now + Duration::from_secs(1);
    assert_eq!((path.mtu.due_probe(path.now), path.mtu.next_search()), (None, again));
}

#[test]
fn losses_of_small_packets_indicate_no_black_hole() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    for number in (10..100).step_by(3) {
        path.mtu.on_lost(number, number + 1, 1500);
        path.mtu.on_lost(number + 1, number + 2, 100);
        path.mtu.on_acked(number + 2, 100);
    }
    assert_eq!(path.mtu.size, 1500);
}

#[test]
fn a_stream_of_medium_packets_does_not_hide_a_black_hole() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    path.passes = 1400;
    for _ in 0..3 {
        path.send(1500);
        path.send(1350);
    }
    path.probe();
    assert_eq!(path.found_size(), (1400, MtuState::BlackHole));
}

#[test]
fn packets_that_were_sent_before_a_fall_cause_no_other() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    path.passes = 1280;
    path.send_full(3);
    for number in 100..200 {
        path.mtu.on_lost(number, number + 1, 1500);
        path.mtu.on_acked(number, 100);
    }
    assert_eq!(path.mtu.size, BASE);
}

#[test]
fn a_larger_path_is_found_after_ten_minutes() {
    let mut path = Path::new(1500, 1400);
    path.probe();
    path.passes = 1500;
    path.probes.clear();
    path.now = path.mtu.next_search().unwrap().before(Duration::from_nanos(1));
    path.probe();
    assert!(path.probes.is_empty());
    path.now = path.mtu.next_search().unwrap();
    path.probe();
    assert_eq!(path.found_size(), (1500, MtuState::Full));
    assert_eq!(path.mtu.next_search(), None);
}

#[test]
fn the_interface_limits_what_any_acknowledgement_can_claim() {
    let mut path = Path::new(1400, 9000);
    path.probe();
    path.mtu.on_acked(5, 9000);
    path.mtu.on_probe_acked(path.now);
    assert_eq!(path.mtu.size, 1400);
    path.mtu.set_limit(1300, HEADER);
    assert_eq!(path.found_size(), (1300, MtuState::Full));
    // A probe of the former limit is still on its way.
    let mut path = Path::new(1500, 1500);
    let size = path.mtu.due_probe(path.now).unwrap();
    path.mtu.on_probe_sent(1, size);
    path.mtu.set_limit(1300, HEADER);
    path.mtu.on_probe_acked(path.now);
    assert_eq!(path.mtu.size, 1300);
}

#[test]
fn a_peer_that_acknowledges_no_large_packet_gets_few_probes_and_the_least_size() {
    for passes in [MIN_DATAGRAM + HEADER, 100] {
        let mut path = Path::new(9000, passes);
        for _ in 0..1000 {
            path.send_full(1);
            path.probe();
        }
        assert_eq!(path.mtu.size, MIN_DATAGRAM + HEADER);
        assert!(path.probes.len() < 90, "{:?}", path.probes);
    }
}

#[test]
fn a_size_that_the_interface_refuses_is_left_at_once() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    path.mtu.on_refused(path.now, 1500);
    assert_eq!(path.found_size(), (BASE, MtuState::Searching));
    path.passes = 1400;
    path.probe();
    assert_eq!(path.found_size(), (1400, MtuState::Probed));
    assert!(!path.mtu.on_refused(path.now, MIN_DATAGRAM), "nothing smaller is built");
    assert_eq!(path.mtu.size, 1400, "handshakes and reports are never larger");
}

#[test]
fn another_interface_begins_again_and_a_larger_limit_is_searched() {
    let mut path = Path::new(BASE, 1500);
    path.mtu.set_limit(1500, 48);
    assert_eq!(path.mtu.size, BASE_DATAGRAM + 48);
    let mut path = Path::new(700, 1500);
    path.mtu.set_limit(1500, HEADER);
    assert_eq!(path.found_size(), (BASE, MtuState::Searching));
    path.probe();
    assert_eq!(path.found_size(), (1500, MtuState::Full));
    path.mtu.restart();
    assert_eq!(path.mtu.size, BASE);
}

#[test]
fn after_an_outage_a_fall_is_examined_again() {
    let mut path = Path::new(1500, 1500);
    path.probe();
    path.passes = 600;
    path.send_full(6);
    path.probe();
    assert_eq!(path.mtu.state(), MtuState::BlackHole);
    path.passes = 1500;
    path.mtu.on_interruption();
    path.mtu.on_up();
    path.probe();
    assert_eq!(path.found_size(), (1500, MtuState::Full));
}
