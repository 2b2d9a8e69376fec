// SPDX-License-Identifier: Apache-2.0
//! What daemons use of the machine between two moments.

use super::daemon::Daemon;
use super::processes::Usage;
use anyhow::Result;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Use of the machine by one daemon.
#[derive(Debug, Clone, Serialize)]
pub struct DaemonFigures {
    /// Of one core, with master and peer but no messages.
    pub idle_cpu_percent: f64,
    /// Of one core, over the counted time.
    pub cpu_percent: f64,
    /// Memory before any message.
    pub idle_resident_bytes: u64,
    /// Memory at the end of the counted time.
    pub resident_bytes: u64,
}

/// A measurement under way.
pub struct Watch {
    since: Instant,
    before: Vec<Usage>,
}

/// One daemon's use during a watch.
pub struct Watched {
    /// Of one core.
    pub cpu_percent: f64,
    /// At the end.
    pub resident_bytes: u64,
}

impl Watch {
    /// Begins.
    pub fn start(daemons: &[Daemon]) -> Result<Self> {
        Ok(Self {
            since: Instant::now(),
            before: usages(daemons)?,
        })
    }

    /// Ends; one entry per daemon, in their order.
    pub fn stop(self, daemons: &[Daemon]) -> Result<Vec<Watched>> {
        let elapsed = self.since.elapsed();
        let watched = |(before, after): (Usage, Usage)| Watched {
            cpu_percent: 100.0
                * after
                    .cpu
                    .saturating_sub(before.cpu)
                    .div_duration_f64(elapsed),
            resident_bytes: after.resident_bytes,
        };
        Ok(self
            .before
            .into_iter()
            .zip(usages(daemons)?)
            .map(watched)
            .collect())
    }
}

fn usages(daemons: &[Daemon]) -> Result<Vec<Usage>> {
    daemons
        .iter()
        .map(|daemon| daemon.process.usage())
        .collect()
}

/// Watches daemons that have nothing to do; at once if there are none.
pub fn watch_idle(daemons: &[Daemon], time: Duration) -> Result<Vec<Watched>> {
    let watch = Watch::start(daemons)?;
    if !daemons.is_empty() {
        std::thread::sleep(time);
    }
    watch.stop(daemons)
}

/// Both watches of one daemon.
pub fn figures(idle: &Watched, busy: &Watched) -> DaemonFigures {
    DaemonFigures {
        idle_cpu_percent: idle.cpu_percent,
        cpu_percent: busy.cpu_percent,
        idle_resident_bytes: idle.resident_bytes,
        resident_bytes: busy.resident_bytes,
    }
}
