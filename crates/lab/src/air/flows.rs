// SPDX-License-Identifier: Apache-2.0
//! A scenario's own flows: UDP and TCP with plain sockets, the others with real nodes.

use super::station::{Air, sleep_until};
use super::{nodes, tcp, udp};
use crate::rig::clock::monotonic_ns;
use crate::rig::enclosure::SCRATCH;
use crate::rig::figures::FlowFigures;
use crate::rig::stats::Samples;
use crate::rig::worker::Stop;
use crate::scenario::{Flow, Over, Scenario};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tautline_medium::Nanos;

/// A flow that needs no node.
enum BySocket {
    Udp(udp::Running),
    Tcp(tcp::Running),
}

/// Running flows, see the module.
pub struct Flows {
    sockets: BTreeMap<usize, BySocket>,
    nodes: nodes::Nodes,
    offset: Nanos,
    stop: Stop,
}

impl Flows {
    /// Opens sockets and starts nodes.
    pub fn start(air: &Air, scenario: &Scenario, offset: Nanos) -> Result<Self> {
        let stop = Stop::default();
        let mut sockets = BTreeMap::new();
        for (number, flow) in scenario.flows.iter().enumerate() {
            let flow = match flow.over {
                Over::Tautline => continue,
                Over::Udp => BySocket::Udp(udp::start(air, scenario, number, offset, &stop)?),
                Over::Tcp => BySocket::Tcp(tcp::start(air, scenario, number, offset, &stop)?),
            };
            sockets.insert(number, flow);
        }
        let nodes = nodes::Nodes::start(air, scenario, Path::new(SCRATCH))?;
        Ok(Self { sockets, nodes, offset, stop })
    }

    /// Waits for the handshakes of the nodes and for the scenario's start.
    pub fn go(mut self, start: u64, scenario: &Scenario) -> Result<Self> {
        if scenario.flows.is_empty() {
            return Ok(self);
        }
        self.nodes.meet()?;
        ensure!(
            monotonic_ns() < start,
            "programs took longer than {} s to start: is the machine busy?",
            self.offset / 1_000_000_000
        );
        sleep_until(start, 0);
        self.nodes.go(scenario.duration as f64 / 1e9)?;
        Ok(self)
    }

    /// Waits for the end of the run: `end` by the emulator's clock.
    pub fn finish(
        self,
        scenario: &Scenario,
        origin: u64,
        end: Nanos,
    ) -> Result<Vec<(FlowFigures, Samples)>> {
        // Programs may end before the scenario's own flows.
        if !self.sockets.is_empty() {
            sleep_until(origin, end);
        }
        let remaining = Duration::from_nanos((origin + end).saturating_sub(monotonic_ns()));
        // Times count from the scenario's start.
        let start = origin + self.offset;
        let mut samples = self.nodes.finish(scenario, start, remaining)?;
        self.stop.store(true, Ordering::Release);
        let mut refused = BTreeMap::new();
        for (number, flow) in self.sockets {
            let done = match flow {
                BySocket::Udp(flow) => flow.finish(start)?,
                BySocket::Tcp(flow) => flow.finish(start)?,
            };
            samples.insert(number, done.samples);
            refused.insert(number, done.refused);
        }
        let figures = samples.into_iter().map(|(number, samples)| {
            let plan = &scenario.flows[number];
            let Flow { name, over, bytes, pace, .. } = plan;
            let counted = scenario.duration;
            let figures = FlowFigures::new(name, *over, *bytes, Some(*pace), &samples, counted);
            let refused = refused.get(&number).copied().unwrap_or(0);
            (FlowFigures { refused, ..figures }, samples)
        });
        Ok(figures.collect())
    }
}
