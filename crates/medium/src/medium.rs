// SPDX-License-Identifier: Apache-2.0
//! The interface to all networks of a scene.

use crate::config::{Interference, Loss, Motion, PipeConfig, RateControl, WifiConfig};
use crate::frame::{Frame, Output, QueueFull, RadioStats};
use crate::ids::{Nanos, NetworkId, RadioId, StationId};
use crate::outage::Outage;
use crate::pipe::Pipe;
use crate::scene::Scene;
use crate::wifi::Wifi;
use std::collections::VecDeque;

#[derive(Debug)]
enum Network<P> {
    Wifi(Wifi<P>),
    Pipe(Pipe<P>),
}

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
/// let line = medium.add_pipe(PipeConfig { rate_bps: 8_000_000, ..PipeConfig::default() });
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
    networks: Vec<Network<P>>,
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

    /// Adds an 802.11 channel.
    pub fn add_wifi(&mut self, config: WifiConfig) -> NetworkId {
        let (id, seed) = self.next_network();
        self.add(Network::Wifi(Wifi::new(id, config, seed)))
    }

    /// Adds a pipe.
    pub fn add_pipe(&mut self, config: PipeConfig) -> NetworkId {
        let (id, seed) = self.next_network();
        self.add(Network::Pipe(Pipe::new(id, config, seed)))
    }

    /// Returns number and seed of the next network. Each network has its own random sequence, so that
    /// networks do not influence each other.
    fn next_network(&self) -> (NetworkId, u64) {
        let number = self.networks.len() as u64 + 1;
        let seed = self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (NetworkId(self.networks.len()), fastrand::Rng::with_seed(seed).u64(..))
    }

    fn add(&mut self, network: Network<P>) -> NetworkId {
        self.networks.push(network);
        NetworkId(self.networks.len() - 1)
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
        let number = match &mut self.networks[network.0] {
            Network::Wifi(wifi) => wifi.add(id, station, queue_packets),
            Network::Pipe(pipe) => pipe.add(id, station),
        };
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
        match &self.networks[network] {
            Network::Wifi(wifi) => wifi.stats(number),
            Network::Pipe(pipe) => pipe.stats(number),
        }
    }

    /// Returns how long a network has been in use.
    #[must_use]
    pub fn busy(&self, network: NetworkId, now: Nanos) -> Nanos {
        match &self.networks[network.0] {
            Network::Wifi(wifi) => wifi.busy(now),
            Network::Pipe(pipe) => pipe.busy(),
        }
    }

    /// Starts or ends an outage. Outages are independent: the end of an outage on one network does
    /// not end an outage on all networks.
    pub fn outage(&mut self, outage: Outage, out: bool) {
        self.scene.outage(outage, out);
    }

    /// Starts or ends an outage of a station, which then neither sends nor receives.
    pub fn cut_off(&mut self, station: StationId, active: bool) {
        self.outage(Outage::at(station), active);
    }

    /// Starts or ends an outage between two stations.
    pub fn cut(&mut self, a: StationId, b: StationId, active: bool) {
        self.outage(Outage::between(a, b), active);
    }

    /// Adds interference to an 802.11 network; a pipe has none.
    pub fn interfere(&mut self, now: Nanos, network: NetworkId, what: Interference) {
        if let Network::Wifi(wifi) = &mut self.networks[network.0] {
            wifi.interfere(now, what);
        }
    }

    /// Changes the rate of a pipe, or the fixed rate of an 802.11 network.
    pub fn set_rate(&mut self, now: Nanos, network: NetworkId, rate_bps: u64) {
        match &mut self.networks[network.0] {
            Network::Wifi(wifi) => wifi.set_rate(RateControl::Fixed(rate_bps)),
            Network::Pipe(pipe) => pipe.set_rate(now, rate_bps),
        }
    }

    /// Changes the artificial loss of a network, in addition to collisions and weak signals. The
    /// meaning of a trial is unchanged. Current bursts end.
    pub fn set_loss(&mut self, network: NetworkId, loss: Loss) {
        match &mut self.networks[network.0] {
            Network::Wifi(wifi) => wifi.set_loss(loss),
            Network::Pipe(pipe) => pipe.set_loss(loss),
        }
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
        match &mut self.networks[network] {
            Network::Wifi(wifi) => wifi.send(now, number, frame),
            Network::Pipe(pipe) => pipe.send(now, number, frame),
        }
        .map_err(QueueFull)
    }

    /// Returns the time at which [`Medium::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.networks.iter().filter_map(Network::next).min()
    }

    /// Processes everything that is due by `now`, each event at its own time.
    pub fn handle_timeout(&mut self, now: Nanos) {
        loop {
            let due =
                self.networks.iter_mut().filter_map(|network| Some((network.next()?, network)));
            let Some((at, network)) = due.min_by_key(|(at, _)| *at).filter(|(at, _)| *at <= now)
            else {
                return;
            };
            match network {
                Network::Wifi(wifi) => wifi.step(at, &self.scene, &mut self.outputs),
                Network::Pipe(pipe) => pipe.step(at, &self.scene, &mut self.outputs),
            }
        }
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<Output<P>> {
        self.outputs.pop_front()
    }
}

impl<P: Clone> Network<P> {
    fn next(&self) -> Option<Nanos> {
        match self {
            Self::Wifi(wifi) => wifi.next(),
            Self::Pipe(pipe) => pipe.next(),
        }
    }
}
