// SPDX-License-Identifier: Apache-2.0
//! The interface to all networks of a scene.

use crate::config::{Interference, Loss, Motion};
use crate::frame::{Frame, Output, QueueFull, RadioStats};
use crate::ids::{Nanos, NetworkId, RadioId, StationId};
use crate::network::Network;
use crate::networks::{NetworkKind, Running};
use crate::outage::Outage;
use crate::scene::Scene;
use std::collections::VecDeque;

#[derive(Debug)]
struct Radio {
    station: StationId,
    network: usize,
    /// The radio's number on its network.
    number: usize,
}

/// The stations, their radios and the networks between them.
///
/// Contract: `now` never decreases; call [`Medium::handle_timeout`] with the current time before
/// [`Medium::send`] if [`Medium::poll_timeout`] is due; after each input, drain
/// [`Medium::poll_output`].
///
/// ```
/// use tautline_medium::{Frame, Medium, Motion, Output, PipeConfig};
///
/// let mut medium = Medium::new(1);
/// let [robot, base] = [(); 2].map(|()| medium.add_station(Motion::at([0.0; 3])));
/// let line = medium.add_network(PipeConfig { rate_bps: 8_000_000, ..PipeConfig::default() });
/// let [from, to] = [robot, base].map(|station| medium.add_radio(station, line, 100));
/// medium.send(0, from, Frame { to: Some(to), bytes: 1000, dscp: 0, ecn_capable: false, payload: "scan" })?;
/// while let Some(at) = medium.poll_timeout() {
///     medium.handle_timeout(at);
/// }
/// let arrivals: Vec<_> = std::iter::from_fn(|| medium.poll_output())
///     .filter(|output| matches!(output, Output::Delivered { .. }))
///     .map(|output| output.at())
///     .collect();
/// assert_eq!(arrivals, [1_000_000]);
/// # Ok::<(), tautline_medium::QueueFull<&str>>(())
/// ```
#[derive(Debug)]
pub struct Medium<P> {
    seed: u64,
    scene: Scene,
    networks: Vec<Running<P>>,
    /// By [`RadioId`].
    radios: Vec<Radio>,
    outputs: VecDeque<Output<P>>,
}

impl<P: Clone> Medium<P> {
    /// Creates an empty medium. The same seed and inputs give the same outputs.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            scene: Scene::new(seed),
            networks: Vec::new(),
            radios: Vec::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Adds a station.
    pub fn add_station(&mut self, motion: Motion) -> StationId {
        self.scene.add(motion)
    }

    /// Adds a network. Each has its own random sequence, so that networks do not influence each other.
    pub fn add_network(&mut self, kind: impl Into<NetworkKind>) -> NetworkId {
        let id = NetworkId(self.networks.len());
        let seed = self.seed ^ (id.0 as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let seed = fastrand::Rng::with_seed(seed).u64(..);
        self.networks.push(kind.into().start(id, seed));
        id
    }

    /// Gives a station a radio on a network. `queue_packets` limits its queue (per access
    /// category); a pipe has its own limit in bytes.
    pub fn add_radio(
        &mut self,
        station: StationId,
        network: NetworkId,
        queue_packets: usize,
    ) -> RadioId {
        let id = RadioId(self.radios.len());
        let number = self.network_mut(network).add(id, station, queue_packets);
        self.radios.push(Radio { station, network: network.0, number });
        id
    }

    /// Returns the station and network of a radio.
    #[must_use]
    pub fn radio(&self, radio: RadioId) -> (StationId, NetworkId) {
        let Radio { station, network, .. } = self.radios[radio.0];
        (station, NetworkId(network))
    }

    /// Returns a station's position at a time.
    #[must_use]
    pub fn place(&self, station: StationId, now: Nanos) -> [f64; 3] {
        self.scene.place(station, now)
    }

    /// Returns a radio's counters.
    #[must_use]
    pub fn stats(&self, radio: RadioId) -> RadioStats {
        let Radio { network, number, .. } = self.radios[radio.0];
        self.networks[network].network().stats(number)
    }

    /// Returns how long a network has been in use.
    #[must_use]
    pub fn busy(&self, network: NetworkId, now: Nanos) -> Nanos {
        self.networks[network.0].network().busy(now)
    }

    /// Starts (`out`) or ends an outage. Outages are independent: the end of an outage on one network does
    /// not end an outage on all networks.
    pub fn outage(&mut self, outage: Outage, out: bool) {
        self.scene.outage(outage, out);
    }

    /// Starts (`active`) or ends an outage of a station, during which it neither sends nor receives.
    pub fn set_station_outage(&mut self, station: StationId, active: bool) {
        self.outage(Outage::at(station), active);
    }

    /// Starts (`active`) or ends an outage between two stations.
    pub fn set_pair_outage(&mut self, a: StationId, b: StationId, active: bool) {
        self.outage(Outage::between(a, b), active);
    }

    /// Adds interference to an 802.11 network; a pipe has none.
    pub fn interfere(&mut self, now: Nanos, network: NetworkId, what: Interference) {
        self.network_mut(network).interfere(now, what);
    }

    /// Changes the rate of a pipe, or the fixed rate of an 802.11 network.
    pub fn set_rate(&mut self, now: Nanos, network: NetworkId, rate_bps: u64) {
        self.network_mut(network).set_rate(now, rate_bps);
    }

    /// Changes the artificial loss of a network, in addition to collisions and weak signals. The
    /// meaning of a trial is unchanged. Current bursts end.
    pub fn set_loss(&mut self, network: NetworkId, loss: Loss) {
        self.network_mut(network).set_loss(loss);
    }

    /// Passes a frame to a radio.
    ///
    /// # Errors
    /// Returns the frame if the radio's queue is full; counted in [`RadioStats::queue_drops`].
    pub fn send(
        &mut self,
        now: Nanos,
        radio: RadioId,
        frame: Frame<P>,
    ) -> Result<(), QueueFull<P>> {
        let Radio { network, number, .. } = self.radios[radio.0];
        self.network_mut(NetworkId(network)).send(now, number, frame).map_err(QueueFull)
    }

    /// Returns the time at which [`Medium::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.networks.iter().filter_map(|running| running.network().next()).min()
    }

    /// Processes everything that is due by `now`, each event at its own time.
    pub fn handle_timeout(&mut self, now: Nanos) {
        loop {
            let networks = self.networks.iter_mut().map(Running::network_mut);
            let due = networks.filter_map(|network| Some((network.next()?, network)));
            let Some((at, network)) = due.min_by_key(|(at, _)| *at).filter(|(at, _)| *at <= now)
            else {
                return;
            };
            network.step(at, &self.scene, &mut self.outputs);
        }
    }

    fn network_mut(&mut self, network: NetworkId) -> &mut dyn Network<P> {
        self.networks[network.0].network_mut()
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<Output<P>> {
        self.outputs.pop_front()
    }
}
