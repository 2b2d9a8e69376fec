// SPDX-License-Identifier: Apache-2.0
//! All networks of a scene behind one face.

use crate::pipe::Pipe;
use crate::scene::Scene;
use crate::wifi::Wifi;
use crate::{
    Interference, Loss, Motion, Nanos, NetworkId, PipeConfig, RadioId, RateControl, StationId,
    WifiConfig,
};
use std::collections::VecDeque;

/// An IP packet on its way over one network.
#[derive(Debug, Clone)]
pub struct Frame<P> {
    /// The receiver; `None` is every radio of the network.
    pub to: Option<RadioId>,
    /// Length of the IP packet; headers of the network are added here.
    pub bytes: u32,
    /// Differentiated services code point, 0-63: chooses the access category.
    pub dscp: u8,
    /// Whatever the caller wants back; the medium does not look at it.
    pub payload: P,
}

/// What became of a sent frame, as its sender knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has been on the air and, where the network acknowledges, was acknowledged.
    Done,
    /// All attempts failed.
    GivenUp,
}

/// What happens; in order of time.
#[derive(Debug, Clone)]
pub enum Output<P> {
    /// The sender's radio is done with a frame: a driver would free it now.
    Sent {
        /// When.
        at: Nanos,
        /// Of which radio.
        radio: RadioId,
        /// How it ended.
        outcome: Outcome,
        /// As given to [`Medium::send`].
        payload: P,
    },
    /// A frame reached a radio.
    Delivered {
        /// When its last bit came.
        at: Nanos,
        /// The radio that sent it first (an access point forwards).
        from: RadioId,
        /// The radio that has it.
        to: RadioId,
        /// As given to [`Medium::send`].
        payload: P,
    },
}

impl<P> Output<P> {
    /// When it happened.
    pub fn at(&self) -> Nanos {
        match self {
            Self::Sent { at, .. } | Self::Delivered { at, .. } => *at,
        }
    }
}

/// A radio's counters since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RadioStats {
    /// Frames waiting now, the one on the air included.
    pub waiting: u64,
    /// Time on the air, own ACKs included.
    pub airtime: Nanos,
    /// Data frames put on the air, repetitions included.
    pub attempts: u64,
    /// Of these, repetitions.
    pub retries: u64,
    /// Attempts without an ACK (collision, weak signal, loss); on a pipe, frames lost.
    pub failed_attempts: u64,
    /// Frames acknowledged.
    pub acknowledged: u64,
    /// Frames given up after all attempts.
    pub given_up: u64,
    /// Frames refused because the queue was full.
    pub queue_drops: u64,
    /// Frames received.
    pub received: u64,
    /// IP bytes received.
    pub received_bytes: u64,
}

/// Why a frame was not taken.
#[derive(Debug, thiserror::Error)]
#[error("the radio's queue is full")]
pub struct QueueFull<P>(
    /// The frame, unchanged.
    pub Frame<P>,
);

#[derive(Debug)]
enum Network<P> {
    Wifi(Wifi<P>),
    Pipe(Pipe<P>),
}

/// Stations, their radios and the networks between them.
///
/// Contract: `now` never goes back; call [`Medium::handle_timeout`] with the
/// current time before [`Medium::send`] if [`Medium::poll_timeout`] is due; after
/// each input drain [`Medium::poll_output`].
///
/// ```
/// use tautline_medium::{Frame, Medium, Motion, Output, PipeConfig};
///
/// let mut medium = Medium::new(1);
/// let [robot, base] = [(); 2].map(|()| medium.add_station(Motion::at([0.0; 3])));
/// let line = medium.add_pipe(PipeConfig { rate_bps: 8_000_000, ..PipeConfig::default() });
/// let [from, to] = [robot, base].map(|station| medium.add_radio(station, line, 100));
/// medium.send(0, from, Frame { to: Some(to), bytes: 1000, dscp: 0, payload: "scan" })?;
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
    /// Station, network and number there, by radio.
    radios: Vec<(StationId, usize, usize)>,
    outputs: VecDeque<Output<P>>,
}

impl<P: Clone> Medium<P> {
    /// An empty one. The same seed and inputs give the same outputs.
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
        let seed = self.network_seed();
        self.add(Network::Wifi(Wifi::new(config, seed)))
    }

    /// Adds a pipe.
    pub fn add_pipe(&mut self, config: PipeConfig) -> NetworkId {
        let seed = self.network_seed();
        self.add(Network::Pipe(Pipe::new(config, seed)))
    }

    /// Each network draws from its own sequence, so that one does not change another's fate.
    fn network_seed(&self) -> u64 {
        let number = self.networks.len() as u64 + 1;
        fastrand::Rng::with_seed(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
    }

    fn add(&mut self, network: Network<P>) -> NetworkId {
        self.networks.push(network);
        NetworkId(self.networks.len() - 1)
    }

    /// Gives a station a radio on a network. `queue_packets` bounds what waits at it
    /// (per access category); a pipe has its own bound in bytes.
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
        self.radios.push((station, network.0, number));
        id
    }

    /// The station and network of a radio.
    #[must_use]
    pub fn radio(&self, radio: RadioId) -> (StationId, NetworkId) {
        let (station, network, _) = self.radios[radio.0];
        (station, NetworkId(network))
    }

    /// Where a station is.
    #[must_use]
    pub fn place(&self, station: StationId, now: Nanos) -> [f64; 3] {
        self.scene.place(station, now)
    }

    /// A radio's counters.
    #[must_use]
    pub fn stats(&self, radio: RadioId) -> RadioStats {
        let (_, network, number) = self.radios[radio.0];
        match &self.networks[network] {
            Network::Wifi(wifi) => wifi.stats(number),
            Network::Pipe(pipe) => pipe.stats(number),
        }
    }

    /// Time for which a network has been in use.
    #[must_use]
    pub fn busy(&self, network: NetworkId, now: Nanos) -> Nanos {
        match &self.networks[network.0] {
            Network::Wifi(wifi) => wifi.busy(now),
            Network::Pipe(pipe) => pipe.busy(),
        }
    }

    /// Starts or ends an outage of a station: nothing it sends is heard, and it hears nothing.
    pub fn cut_off(&mut self, station: StationId, out: bool) {
        self.scene.cut_off(station, out);
    }

    /// Starts or ends an outage between two stations.
    pub fn cut(&mut self, a: StationId, b: StationId, out: bool) {
        self.scene.cut(a, b, out);
    }

    /// Adds interference to an 802.11 network; a pipe has none.
    pub fn interfere(&mut self, now: Nanos, network: NetworkId, what: Interference) {
        if let Network::Wifi(wifi) = &mut self.networks[network.0] {
            wifi.interfere(now, what);
        }
    }

    /// Changes a network's rate: a pipe's, or the fixed one of an 802.11 network.
    pub fn set_rate(&mut self, now: Nanos, network: NetworkId, rate_bps: u64) {
        match &mut self.networks[network.0] {
            Network::Wifi(wifi) => wifi.set_rate(RateControl::Fixed(rate_bps)),
            Network::Pipe(pipe) => pipe.set_rate(now, rate_bps),
        }
    }

    /// Changes what a network loses beside collisions and weak signals; what one
    /// trial is stays. Bursts under way end.
    pub fn set_loss(&mut self, network: NetworkId, loss: Loss) {
        match &mut self.networks[network.0] {
            Network::Wifi(wifi) => wifi.set_loss(loss),
            Network::Pipe(pipe) => pipe.set_loss(loss),
        }
    }

    /// Hands a frame to a radio.
    ///
    /// # Errors
    /// If the radio's queue is full; counted in [`RadioStats::queue_drops`].
    pub fn send(
        &mut self,
        now: Nanos,
        radio: RadioId,
        frame: Frame<P>,
    ) -> Result<(), QueueFull<P>> {
        let (_, network, number) = self.radios[radio.0];
        match &mut self.networks[network] {
            Network::Wifi(wifi) => wifi.send(now, number, frame),
            Network::Pipe(pipe) => pipe.send(now, number, frame),
        }
        .map_err(QueueFull)
    }

    /// When [`Medium::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.networks.iter().filter_map(Network::next).min()
    }

    /// Lets everything happen that is due by `now`, each at its own time.
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

    /// What has happened.
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
