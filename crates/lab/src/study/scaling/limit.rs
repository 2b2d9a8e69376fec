// SPDX-License-Identifier: Apache-2.0
//! What limits a run, found from the processor time, the channel and the queues.

use serde::Serialize;

/// A process, or a thread of it, that uses this much of the processor time it may have is at its
/// limit, percent.
const PROCESS_BUSY: f64 = 90.0;
/// A machine whose cores are this busy together has no time left, percent.
const MACHINE_BUSY: f64 = 95.0;
/// A saturated 802.11 channel at 6 Mbps with full packets is busy for 95 % of the time: the rest is
/// DIFS and the mean backoff of one station. With shorter packets the share is lower.
const CHANNEL_BUSY: f64 = 90.0;
/// Echoes that must return for the load to count as carried, percent.
pub const CARRIED_PERCENT: f64 = 99.0;
/// Messages that the senders must publish for a run to count, percent of those asked for.
pub const PRODUCED_PERCENT: f64 = 95.0;
/// A queue grows if the median round trip of the last quarter exceeds the one of the first quarter
/// by this factor and by [`GROWTH_MS`].
const GROWTH: f64 = 2.0;
const GROWTH_MS: f64 = 2.0;

/// A limit that a run has reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "of")]
pub enum Limit {
    /// All cores of the machine are busy: a limit of this machine, not of the system.
    Machine,
    /// The processor time of one process, named.
    Process(String),
    /// The radio channel.
    Airtime,
    /// A queue grew or overflowed, and no other limit was found.
    Queue,
}

impl Limit {
    /// Describes the limit in a word or two.
    pub fn words(&self) -> String {
        match self {
            Self::Machine => "CPU of the machine".into(),
            Self::Process(name) => format!("CPU of {name}"),
            Self::Airtime => "airtime".into(),
            Self::Queue => "queue".into(),
        }
    }
}

/// What a run shows about its limits.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Messages published, percent of those asked for.
    pub produced_percent: f64,
    /// Echoes that returned, percent of those expected.
    pub echoed_percent: f64,
    /// Median round trips of the first and of the last quarter, milliseconds.
    pub quarters_ms: Option<[f64; 2]>,
    /// Processor time of all cores, percent.
    pub machine_percent: f64,
    /// The busiest process: its name, and its processor time in percent of what it may have.
    pub busiest: Option<(String, f64)>,
    /// Busy time of the radio channel, percent.
    pub channel_percent: Option<f64>,
}

impl Evidence {
    /// Whether the round trips grow during the run.
    pub fn grows(&self) -> bool {
        let grows = |[first, last]: [f64; 2]| last > GROWTH * first && last - first > GROWTH_MS;
        self.quarters_ms.is_some_and(grows)
    }

    /// Whether the load was produced and carried without a growing queue.
    pub fn is_sustained(&self) -> bool {
        self.produced_percent >= PRODUCED_PERCENT
            && self.echoed_percent >= CARRIED_PERCENT
            && !self.grows()
    }

    /// Returns the limits that the run has reached, the narrowest first; none if it is sustained.
    pub fn limits(&self) -> Vec<Limit> {
        if self.is_sustained() {
            return Vec::new();
        }
        let mut limits = Vec::new();
        if self.machine_percent >= MACHINE_BUSY {
            limits.push(Limit::Machine);
        }
        if self.channel_percent.is_some_and(|busy| busy >= CHANNEL_BUSY) {
            limits.push(Limit::Airtime);
        }
        if let Some((name, percent)) = &self.busiest
            && *percent >= PROCESS_BUSY
        {
            limits.push(Limit::Process(name.clone()));
        }
        if limits.is_empty() {
            limits.push(Limit::Queue);
        }
        limits
    }

    /// Returns why the run says nothing about the transport, if so.
    pub fn void(&self) -> Option<String> {
        (self.produced_percent < PRODUCED_PERCENT).then(|| {
            format!(
                "the senders published {:.0} % of the messages asked for; at least {PRODUCED_PERCENT:.0} % are needed",
                self.produced_percent
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Evidence {
        Evidence {
            produced_percent: 100.0,
            echoed_percent: 100.0,
            quarters_ms: Some([2.0, 2.1]),
            machine_percent: 50.0,
            busiest: Some(("echoer".into(), 40.0)),
            channel_percent: None,
        }
    }

    #[test]
    fn a_load_that_is_carried_has_no_limit_even_on_a_busy_machine() {
        let busy = Evidence { machine_percent: 99.0, ..good() };
        assert!(busy.limits().is_empty() && busy.is_sustained() && busy.void().is_none());
    }

    #[test]
    fn the_limit_is_named_by_what_is_busy() {
        let lost = || Evidence { echoed_percent: 80.0, ..good() };
        assert_eq!(lost().limits(), [Limit::Queue]);
        let process = Evidence { busiest: Some(("echoer".into(), 97.0)), ..lost() };
        assert_eq!(process.limits(), [Limit::Process("echoer".into())]);
        let machine = Evidence { machine_percent: 99.0, ..process };
        assert_eq!(machine.limits()[0], Limit::Machine);
        let air = Evidence { channel_percent: Some(95.0), ..lost() };
        assert_eq!(air.limits(), [Limit::Airtime]);
    }

    #[test]
    fn a_growing_round_trip_is_a_queue_before_anything_is_lost() {
        let grows = Evidence { quarters_ms: Some([3.0, 90.0]), ..good() };
        assert_eq!(grows.limits(), [Limit::Queue]);
        let jitter = Evidence { quarters_ms: Some([0.5, 1.4]), ..good() };
        assert!(jitter.is_sustained());
    }

    #[test]
    fn a_load_that_the_senders_do_not_produce_voids_the_run() {
        let slow = Evidence { produced_percent: 60.0, ..good() };
        assert!(slow.void().unwrap().contains("60 %"));
    }
}
