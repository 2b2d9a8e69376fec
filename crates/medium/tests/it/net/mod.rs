// SPDX-License-Identifier: Apache-2.0
//! A test driver of a medium: it sends traffic, advances time and records outputs.

pub use tautline_medium::Nanos;
use tautline_medium::{
    Frame, Medium, Motion, NetworkId, Outcome, Output, PathLoss, PipeConfig, RadioId, RateControl,
    StationId, WifiConfig,
};

pub const US: Nanos = 1_000;
pub const MS: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000_000_000;
pub const IP_BYTES: u32 = 1500;
/// Airtime of [`IP_BYTES`] at 6 Mbps.
pub const FRAME_6: Nanos = 2072 * US;
/// Airtime of an ACK at 6 Mbps.
pub const ACK_6: Nanos = 44 * US;
/// Airtime of [`IP_BYTES`] at 54 Mbps.
pub const FRAME_54: Nanos = 248 * US;
pub const SLOT: Nanos = 9 * US;
pub const SIFS: Nanos = 16 * US;
pub const DIFS: Nanos = SIFS + 2 * SLOT;

/// Path loss so steep that signals are sensed at 25 m, but neither sensed nor readable at 50 m.
pub const STEEP: PathLoss = PathLoss { at_1m_db: 40.0, exponent: 4.0, shadowing_db: 0.0 };

/// A sequence of frames with equal parameters, numbered by their payload.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    pub from: RadioId,
    pub to: Option<RadioId>,
    pub bytes: u32,
    pub dscp: u8,
    pub ecn_capable: bool,
}

/// A payload: the flow and the number of the frame in that flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    pub flow: usize,
    pub number: u64,
}

pub struct Net {
    pub medium: Medium<Tag>,
    pub network: NetworkId,
    pub stations: Vec<StationId>,
    pub radios: Vec<RadioId>,
    pub events: Vec<Output<Tag>>,
    pub now: Nanos,
    flows: Vec<(Flow, u64)>,
    saturated: Vec<usize>,
}

pub fn fixed(mbps: u64) -> WifiConfig {
    WifiConfig { rate: RateControl::Fixed(mbps * 1_000_000), ..WifiConfig::default() }
}

impl Net {
    fn new(
        mut medium: Medium<Tag>,
        network: NetworkId,
        motions: Vec<Motion>,
        queue: usize,
    ) -> Self {
        let stations: Vec<_> = motions.into_iter().map(|m| medium.add_station(m)).collect();
        let radios = stations.iter().map(|s| medium.add_radio(*s, network, queue)).collect();
        let (events, flows, saturated) = (Vec::new(), Vec::new(), Vec::new());
        Self { medium, network, stations, radios, events, now: 0, flows, saturated }
    }

    /// Creates an 802.11 network of stations on a line, at these positions in metres.
    pub fn wifi(seed: u64, config: WifiConfig, metres: &[f64]) -> Self {
        let motions = metres.iter().map(|x| Motion::at([*x, 0.0, 0.0])).collect();
        Self::moving(seed, config, motions)
    }

    pub fn moving(seed: u64, config: WifiConfig, motions: Vec<Motion>) -> Self {
        let mut medium = Medium::new(seed);
        let network = medium.add_network(config);
        Self::new(medium, network, motions, 10)
    }

    pub fn pipe(seed: u64, config: PipeConfig, stations: usize) -> Self {
        let mut medium = Medium::new(seed);
        let network = medium.add_network(config);
        Self::new(medium, network, vec![Motion::at([0.0; 3]); stations], 10)
    }

    /// Adds a best-effort flow between two stations with frames of [`IP_BYTES`].
    pub fn flow(&mut self, from: usize, to: usize) -> usize {
        let (from, to) = (self.radios[from], Some(self.radios[to]));
        self.add(Flow { from, to, bytes: IP_BYTES, dscp: 0, ecn_capable: false })
    }

    pub fn broadcasts(&mut self, from: usize) -> usize {
        self.add(Flow {
            from: self.radios[from],
            to: None,
            bytes: IP_BYTES,
            dscp: 0,
            ecn_capable: false,
        })
    }

    pub fn add(&mut self, flow: Flow) -> usize {
        self.flows.push((flow, 0));
        self.flows.len() - 1
    }

    pub fn flow_mut(&mut self, flow: usize) -> &mut Flow {
        &mut self.flows[flow].0
    }

    /// Sends the next frame of a flow; returns whether the queue accepted it.
    pub fn send(&mut self, flow: usize) -> bool {
        let (what, number) = &mut self.flows[flow];
        let payload = Tag { flow, number: *number };
        *number += 1;
        let Flow { from, to, bytes, dscp, ecn_capable } = *what;
        self.medium.send(self.now, from, Frame { to, bytes, dscp, ecn_capable, payload }).is_ok()
    }

    pub fn send_at(&mut self, at: Nanos, flow: usize) -> bool {
        self.run(at);
        self.send(flow)
    }

    /// Keeps two frames of this flow in the queue from now on.
    pub fn saturate(&mut self, flow: usize) {
        self.saturated.push(flow);
        assert!(self.send(flow) && self.send(flow));
    }

    pub fn run(&mut self, until: Nanos) {
        while let Some(at) = self.medium.poll_timeout().filter(|at| *at <= until) {
            assert!(at >= self.now, "time went back from {} to {at}", self.now);
            self.now = at;
            self.medium.handle_timeout(at);
            while let Some(output) = self.medium.poll_output() {
                if let Output::Sent { payload: Tag { flow, .. }, .. } = &output
                    && self.saturated.contains(flow)
                {
                    self.send(*flow);
                }
                self.events.push(output);
            }
        }
        self.now = until;
    }

    /// Runs until no events are left.
    pub fn drain(&mut self) {
        while let Some(at) = self.medium.poll_timeout() {
            self.run(at);
        }
    }

    /// Returns times and numbers of a flow's frames that arrived at a station.
    pub fn delivered(&self, flow: usize, to: usize) -> Vec<(Nanos, u64)> {
        let wanted = self.radios[to];
        let pick = |event: &Output<Tag>| match event {
            Output::Delivered { at, to, payload, .. } if *to == wanted && payload.flow == flow => {
                Some((*at, payload.number))
            }
            _ => None,
        };
        self.events.iter().filter_map(pick).collect()
    }

    pub fn numbers(&self, flow: usize, to: usize) -> Vec<u64> {
        self.delivered(flow, to).into_iter().map(|(_, number)| number).collect()
    }

    /// Returns times and outcomes of a flow's frames for their sender.
    pub fn sent(&self, flow: usize) -> Vec<(Nanos, Outcome)> {
        let pick = |event: &Output<Tag>| match event {
            Output::Sent { at, outcome, payload, .. } if payload.flow == flow => {
                Some((*at, *outcome))
            }
            _ => None,
        };
        self.events.iter().filter_map(pick).collect()
    }

    pub fn stats(&self, station: usize) -> tautline_medium::RadioStats {
        self.medium.stats(self.radios[station])
    }

    /// Returns the share of a station's attempts that failed.
    pub fn failed_share(&self, station: usize) -> f64 {
        let stats = self.stats(station);
        stats.failed_attempts as f64 / stats.attempts as f64
    }

    pub fn busy(&self) -> Nanos {
        self.medium.busy(self.network, self.now)
    }
}
