// SPDX-License-Identifier: Apache-2.0
//! Between medium and endpoint: what networks do to datagrams and the medium does
//! not model (copies, reordering, loss behind the radio), and a look at what leaves.

use fastrand::Rng;
use std::collections::BTreeMap;
use tautline_medium::{Nanos, StationId};

/// Bytes that may pass the in-flight budget beside the packet it was asked about: headers of
/// small messages that share a packet, and acknowledgements that ride on it.
const RIDING_BYTES: usize = 512;

/// What befalls datagrams on their way into one host.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mishaps {
    /// Share that is lost.
    pub loss: f64,
    /// Share that comes twice.
    pub duplicate: f64,
    /// Share, of copies too, that is held back.
    pub reorder: f64,
    /// Longest time for which one is held back.
    pub reorder_by: Nanos,
}

/// A datagram that an endpoint lets go.
#[derive(Debug)]
pub struct Departure {
    /// Whose.
    pub host: StationId,
    /// IP bytes that the kernel held before on the same radio, of links that are up and not stalled.
    pub in_flight: usize,
    /// The radio's budget, in IP bytes.
    pub limit: usize,
    /// The IP bytes of the datagram.
    pub ip_bytes: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Gate {
    random: Rng,
    mishaps: BTreeMap<StationId, Mishaps>,
    /// What left although the budget of its radio was used up, in words.
    pub over_budget: Option<String>,
    /// Datagrams that mishaps made away with.
    pub lost: u64,
}

impl Gate {
    /// A gate that lets everything pass.
    pub fn new(seed: u64) -> Self {
        let mishaps = BTreeMap::new();
        Self { random: Rng::with_seed(seed), mishaps, over_budget: None, lost: 0 }
    }

    /// What shall befall datagrams to a host from now on.
    pub fn set(&mut self, host: StationId, mishaps: Mishaps) {
        self.mishaps.insert(host, mishaps);
    }

    /// How much later each copy of a datagram that has just come reaches the endpoint.
    pub fn delays(&mut self, host: StationId) -> Vec<Nanos> {
        let Mishaps { loss, duplicate, reorder, reorder_by } =
            self.mishaps.get(&host).copied().unwrap_or_default();
        if self.random.f64() < loss {
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

    /// Looks at a datagram with messages that leaves: it has to keep within the budget,
    /// unless the radio is idle.
    pub fn see(&mut self, departure: &Departure) {
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

    #[test]
    fn nothing_befalls_a_host_without_mishaps() {
        let mut gate = Gate::new(1);
        assert!((0..1000).all(|_| gate.delays(HOST) == [0]));
    }

    #[test]
    fn mishaps_have_their_shares() {
        let mut gate = Gate::new(1);
        gate.set(HOST, Mishaps { loss: 0.2, duplicate: 0.1, reorder: 0.5, reorder_by: 100 });
        let passed: Vec<_> = (0..10_000).map(|_| gate.delays(HOST)).collect();
        let count = |copies| passed.iter().filter(|p| p.len() == copies).count();
        assert!((1900..2100).contains(&count(0)));
        assert_eq!(gate.lost, count(0) as u64);
        assert!((700..900).contains(&count(2)), "{}", count(2));
        assert!(passed.iter().flatten().all(|delay| *delay <= 100));
        let late = passed.iter().flatten().filter(|delay| **delay > 0).count();
        assert!((4000..4800).contains(&late), "{late}");
    }
}
