// SPDX-License-Identifier: Apache-2.0
//! Disturbances between medium and endpoint that the medium does not model (duplicates, reordering,
//! loss behind the radio), and a check of sent packets.

use fastrand::Rng;
use std::collections::BTreeMap;
use tautline_medium::{Nanos, NetworkId, StationId};

/// Bytes by which a packet may exceed the in-flight budget: headers of small messages that share
/// the packet, and piggybacked acknowledgements.
const RIDING_BYTES: usize = 512;
/// Maximum number of simultaneous outages.
const MAX_OUTAGES: usize = 8;

/// Disturbances of datagrams to one host.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mishaps {
    /// Share of lost datagrams.
    pub loss: f64,
    /// Share of duplicated datagrams.
    pub duplicate: f64,
    /// Share of delayed datagrams, duplicates included.
    pub reorder: f64,
    /// Maximum extra delay.
    pub reorder_by: Nanos,
}

/// A datagram's last network, and its two ends.
#[derive(Debug, Clone, Copy)]
pub struct Passage {
    /// Network by which it arrives.
    pub network: NetworkId,
    /// Sender.
    pub from: StationId,
    /// Receiver.
    pub to: StationId,
}

/// A time without delivery; a field that is `None` matches everything.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    /// Affected network.
    pub network: Option<NetworkId>,
    /// Affected sender.
    pub from: Option<StationId>,
    /// Affected receiver.
    pub to: Option<StationId>,
    /// End of the outage.
    pub until: Nanos,
}

impl Outage {
    fn stops(&self, passage: &Passage) -> bool {
        self.network.is_none_or(|it| it == passage.network)
            && self.from.is_none_or(|it| it == passage.from)
            && self.to.is_none_or(|it| it == passage.to)
    }
}

/// A datagram sent by an endpoint.
#[derive(Debug)]
pub struct Departure {
    /// Sending host.
    pub host: StationId,
    /// IP bytes that the kernel held for the same radio before, on links that are up and not
    /// stalled; 0 if all of them belong to lower classes.
    pub in_flight: usize,
    /// In-flight budget of the radio, IP bytes.
    pub limit: usize,
    /// IP bytes of the datagram.
    pub ip_bytes: usize,
}

/// The gate, see the module.
#[derive(Debug)]
pub struct Gate {
    random: Rng,
    mishaps: BTreeMap<StationId, Mishaps>,
    outages: Vec<Outage>,
    /// First violation of a radio's budget, in words.
    pub over_budget: Option<String>,
    /// Datagrams lost in disturbances and outages.
    pub lost: u64,
}

impl Gate {
    /// Creates a gate that passes all datagrams.
    pub fn new(seed: u64) -> Self {
        let (mishaps, outages) = (BTreeMap::new(), Vec::new());
        Self { random: Rng::with_seed(seed), mishaps, outages, over_budget: None, lost: 0 }
    }

    /// Sets the disturbances of datagrams to a host.
    pub fn set(&mut self, host: StationId, mishaps: Mishaps) {
        self.mishaps.insert(host, mishaps);
    }

    /// Starts an outage; at the maximum number, the oldest ends.
    pub fn fail(&mut self, outage: Outage) {
        if self.outages.len() == MAX_OUTAGES {
            self.outages.remove(0);
        }
        self.outages.push(outage);
    }

    /// Ends all outages.
    pub fn end_outages(&mut self) {
        self.outages.clear();
    }

    /// Returns the extra delay of each copy of a received datagram; empty if it is lost.
    pub fn delays(&mut self, now: Nanos, passage: &Passage) -> Vec<Nanos> {
        let Mishaps { loss, duplicate, reorder, reorder_by } =
            self.mishaps.get(&passage.to).copied().unwrap_or_default();
        self.outages.retain(|outage| now < outage.until);
        let stopped = self.outages.iter().any(|outage| outage.stops(passage));
        if stopped || self.random.f64() < loss {
            self.lost += 1;
            return Vec::new();
        }
        let copies = 1 + usize::from(self.random.f64() < duplicate);
        let mut delay = || {
            let late = self.random.f64() < reorder;
            if late { self.random.u64(0..=reorder_by) } else { 0 }
        };
        (0..copies).map(|_| delay()).collect()
    }

    /// Checks a sent datagram with messages: it must fit the budget, unless the radio is idle.
    pub fn check_departure(&mut self, departure: &Departure) {
        let Departure { host, in_flight, limit, ip_bytes } = departure;
        let within = *in_flight == 0 || in_flight + ip_bytes <= limit + RIDING_BYTES;
        if !within {
            self.over_budget.get_or_insert(format!(
                "a packet of {ip_bytes} bytes left host {} while {in_flight} of {limit} bytes were in flight",
                host.0
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: StationId = StationId(0);
    const THERE: StationId = StationId(1);
    const HERE: Passage = Passage { network: NetworkId(0), from: THERE, to: HOST };

    #[test]
    fn a_host_without_mishaps_loses_nothing() {
        let mut gate = Gate::new(1);
        assert!((0..1000).all(|_| gate.delays(0, &HERE) == [0]));
    }

    #[test]
    fn mishaps_have_their_configured_probability() {
        let mut gate = Gate::new(1);
        gate.set(HOST, Mishaps { loss: 0.2, duplicate: 0.1, reorder: 0.5, reorder_by: 100 });
        let passed: Vec<_> = (0..10_000).map(|_| gate.delays(0, &HERE)).collect();
        let count = |copies| passed.iter().filter(|p| p.len() == copies).count();
        assert!((1900..2100).contains(&count(0)));
        assert_eq!(gate.lost, count(0) as u64);
        assert!((700..900).contains(&count(2)), "{}", count(2));
        assert!(passed.iter().flatten().all(|delay| *delay <= 100));
        let late = passed.iter().flatten().filter(|delay| **delay > 0).count();
        assert!((4000..4800).contains(&late), "{late}");
    }

    #[test]
    fn an_outage_stops_its_own_direction_and_network_until_it_ends() {
        let mut gate = Gate::new(1);
        let back = Passage { from: HOST, to: THERE, ..HERE };
        let beside = Passage { network: NetworkId(1), ..HERE };
        gate.fail(Outage { network: Some(NetworkId(0)), from: None, to: Some(HOST), until: 10 });
        assert!(gate.delays(9, &HERE).is_empty());
        assert_eq!([gate.delays(9, &back), gate.delays(9, &beside)], [[0], [0]]);
        assert_eq!(gate.delays(10, &HERE), [0]);
    }
}
