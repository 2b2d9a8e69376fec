// SPDX-License-Identifier: Apache-2.0
//! Load and delays of a fleet on one channel.

use super::contention::Timing;
use super::traffic::{self, Fleet};
use super::{load, response};
use std::time::Duration;

/// The plan of a fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Assessment {
    /// Airtime that the fleet needs, as a fraction of the channel's capacity. The fleet fits below
    /// 1.
    pub load: f64,
    /// Forecasts in the order of the fleet's flows.
    pub flows: Vec<FlowForecast>,
}

/// The plan of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowForecast {
    /// Fraction of the channel's airtime that the flow's messages use.
    pub share: f64,
    /// Delay of one message on an idle channel, from its publication to its arrival.
    pub least: Duration,
    /// Mean delay; `None` if it grows without bound.
    pub typical: Option<Duration>,
    /// A delay that fewer than one message in 100 000 exceeds while no packet of its station needs
    /// more than `attempts`; `None` if it grows without bound.
    pub worst: Option<Duration>,
    /// Maximum attempts on the air that `worst` assumes for each packet; one message in a thousand may need
    /// more.
    pub attempts: u32,
}

/// Returns only the load ([`Assessment::load`]).
pub(super) fn load_of(fleet: &Fleet) -> f64 {
    let timing = Timing::for_channel(&fleet.channel);
    load::load(&fleet.channel, &timing, &traffic::streams(fleet))
}

/// Returns the airtime of all flows, as a fraction ([`FlowForecast::share`]).
pub(super) fn airtime_fraction(fleet: &Fleet) -> f64 {
    let timing = Timing::for_channel(&fleet.channel);
    let streams = traffic::streams(fleet).into_iter().take(fleet.flows.len());
    streams.map(|it| it.airtime(&timing) / it.period).sum()
}

/// Returns the delay of a message over all flows on an idle channel ([`FlowForecast::least`]).
pub(super) fn idle_delay(fleet: &Fleet) -> Duration {
    let timing = Timing::for_channel(&fleet.channel);
    let streams = traffic::streams(fleet).into_iter().take(fleet.flows.len());
    streams.map(|it| Duration::from_secs_f64(it.airtime(&timing) + timing.delay)).sum()
}

impl Assessment {
    /// Determines load and delays of a fleet.
    pub fn new(fleet: &Fleet) -> Self {
        let timing = Timing::for_channel(&fleet.channel);
        let streams = traffic::streams(fleet);
        let load = load::load(&fleet.channel, &timing, &streams);
        let flows = 0..fleet.flows.len();
        let flows = flows.map(|flow| response::forecast(&fleet.channel, &timing, &streams, flow));
        Self { load, flows: flows.collect() }
    }

    /// Whether the channel carries everything.
    pub fn fits(&self) -> bool {
        self.load < 1.0
    }
}
