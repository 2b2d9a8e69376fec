// SPDX-License-Identifier: Apache-2.0
//! The limit of a run, found from measured processor time, channel and queues.

use super::queue::Queued;
use super::scene::Dropped;
use super::watch::Busiest;
use serde::Serialize;

/// Use of the allowed processor time from which a process, or a thread of it, is at its limit,
/// percent.
pub const PROCESS_BUSY: f64 = 90.0;
/// Use of all cores from which the machine is at its limit, percent.
const MACHINE_BUSY: f64 = 95.0;
/// Percentage of the time with a waiting or transmitted frame from which the channel is at its limit.
/// The transmission time alone is less, because DIFS and backoff take a quarter of the time between
/// short frames.
pub const CHANNEL_BUSY: f64 = 95.0;
/// Use of a cable's rate from which the cable is full, percent.
const LINK_BUSY: f64 = 95.0;
/// Messages under way per conversation from which a queue exists; without a queue, up to two may be
/// under way at the end of the counted time.
const QUEUED_PER_CONVERSATION: f64 = 3.0;
/// Echoes that must return for the load to count as carried, percent.
pub const CARRIED_PERCENT: f64 = 99.0;
/// Messages that the senders must publish for a valid run, percent of the requested messages.
pub const PRODUCED_PERCENT: f64 = 95.0;
/// A queue grows if the median round trip of the last quarter exceeds that of the first by this
/// factor and by [`GROWTH_MS`].
const GROWTH: f64 = 2.0;
/// See [`GROWTH`]; milliseconds.
const GROWTH_MS: f64 = 2.0;
/// Maximum mean round trip of a load that the thesis accepted; its worst accepted row, 256 nodes at
/// 1 Hz, has 221 ms.
pub const ACCEPTABLE_MS: f64 = 250.0;

/// Whether the median round trips of the first and last quarter, in milliseconds, show a growing
/// queue.
pub fn shows_growth([first, last]: [f64; 2]) -> bool {
    last > GROWTH * first && last - first > GROWTH_MS
}

/// A limit that a run has reached, with the measured values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Limit {
    /// All cores of the machine are busy: a limit of this machine, not of the system.
    Machine {
        /// Processor time of all cores, percent.
        percent: f64,
    },
    /// A process was ready to run for most of the time, and other programs had the processors: a
    /// limit of this machine too.
    Starved {
        /// The process.
        of: Busiest,
    },
    /// The processor time of one process.
    Process {
        /// The process.
        of: Busiest,
    },
    /// The radio channel.
    Airtime {
        /// Time in which a frame waited or was on the air, percent.
        percent: f64,
    },
    /// The rate of the cable.
    Link {
        /// Bits carried in the busier direction, percent of the rate.
        percent: f64,
    },
    /// A daemon drops messages, and neither a processor nor the link is busy: a limit of its own.
    Dropped {
        /// The dropped messages.
        of: Dropped,
    },
    /// Messages queue, and neither a processor nor the link is busy.
    Queue {
        /// Messages under way at the end of the counted time.
        messages: usize,
        /// The location of most of their bytes.
        place: &'static str,
    },
    /// No measured resource is at its limit.
    NotFound {
        /// The process closest to its limit.
        of: Option<Busiest>,
    },
}

impl Limit {
    /// Describes the limit and its measured value in a few words.
    pub fn words(&self) -> String {
        match self {
            Self::Machine { percent } => format!("CPU of the machine ({percent:.0} %)"),
            Self::Starved { of } => format!(
                "CPU of the machine ({} ran {:.0} % and waited {:.0} % of the time)",
                of.name, of.run_percent, of.wait_percent
            ),
            Self::Process { of } => format!("CPU of {} ({:.0} %)", of.name, of.run_percent),
            Self::Airtime { percent } => {
                format!("airtime (frames waited {percent:.0} % of the time)")
            }
            Self::Link { percent } => format!("rate of the link ({percent:.0} %)"),
            Self::Dropped { of } => {
                format!("the daemon's limit '{}' ({} messages dropped)", of.reason, of.messages)
            }
            Self::Queue { messages, place } => format!("queue {place} ({messages} messages)"),
            Self::NotFound { of: Some(of) } => format!(
                "none measured (busiest is {}: ran {:.0} %, waited {:.0} %)",
                of.name, of.run_percent, of.wait_percent
            ),
            Self::NotFound { of: None } => "none measured".into(),
        }
    }
}

/// Measurements that show the limits of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Evidence {
    /// Published messages, percent of the requested messages.
    pub produced_percent: f64,
    /// Returned echoes, percent of the expected echoes.
    pub echoed_percent: f64,
    /// Median round trips of the first and of the last quarter of the counted time, milliseconds.
    pub rtt_quarters_ms: Option<[f64; 2]>,
    /// Processor time of all cores, by any program of this machine, percent; `None` if the hosts
    /// are other machines.
    pub machine_percent: Option<f64>,
    /// The process that is closest to its limit; `None` on other machines, where it is not measured.
    pub busiest: Option<Busiest>,
    /// Time in which the radio channel was busy, percent.
    pub channel_percent: Option<f64>,
    /// Time in which a frame waited for the radio channel or was on it, percent.
    pub contended_percent: Option<f64>,
    /// Bits carried by a cable with a rate in the busier direction, percent of the rate.
    pub link_percent: Option<f64>,
    /// The daemons' most frequent drop; `None` without drops.
    pub dropped: Option<Dropped>,
    /// Queues at the end of the counted time.
    pub queued: Queued,
}

impl Evidence {
    /// Whether the round trips grew during the run.
    pub fn grows(&self) -> bool {
        self.rtt_quarters_ms.is_some_and(shows_growth)
    }

    /// Whether the load was produced and carried without a long or growing queue.
    pub fn is_sustained(&self) -> bool {
        // A queue that the warm-up has filled may grow too slowly to be detected.
        let is_short = self.rtt_quarters_ms.is_none_or(|[_, last]| last <= ACCEPTABLE_MS);
        self.produced_percent >= PRODUCED_PERCENT
            && self.echoed_percent >= CARRIED_PERCENT
            && is_short
            && !self.grows()
    }

    /// Returns the limits that the run has reached, the machine's first; at least one.
    pub fn limits(&self) -> Vec<Limit> {
        let mut limits = Vec::new();
        let at_least = |percent: Option<f64>, bound| percent.filter(|percent| *percent >= bound);
        let machine = at_least(self.machine_percent, MACHINE_BUSY);
        limits.extend(machine.map(|percent| Limit::Machine { percent }));
        let air = at_least(self.contended_percent, CHANNEL_BUSY);
        limits.extend(air.map(|percent| Limit::Airtime { percent }));
        let link = at_least(self.link_percent, LINK_BUSY);
        limits.extend(link.map(|percent| Limit::Link { percent }));
        limits.extend(self.limit_of_process());
        if limits.is_empty() {
            limits.push(self.limit_if_nothing_is_busy());
        }
        limits
    }

    fn limit_of_process(&self) -> Option<Limit> {
        let of = self.busiest.clone()?;
        if of.run_percent >= PROCESS_BUSY {
            return Some(Limit::Process { of });
        }
        (of.demand_percent() >= PROCESS_BUSY).then_some(Limit::Starved { of })
    }

    fn limit_if_nothing_is_busy(&self) -> Limit {
        if let Some(of) = self.dropped.clone().filter(|_| self.echoed_percent < CARRIED_PERCENT) {
            return Limit::Dropped { of };
        }
        match self.queued.messages_per_conversation >= QUEUED_PER_CONVERSATION {
            true => Limit::Queue { messages: self.queued.messages, place: self.queued.place() },
            false => Limit::NotFound { of: self.busiest.clone() },
        }
    }

    /// Returns why the run is void; `None` if it is valid.
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

    fn busy(run_percent: f64, wait_percent: f64) -> Option<Busiest> {
        Some(Busiest { name: "echoer 0".into(), run_percent, wait_percent })
    }

    fn good() -> Evidence {
        Evidence {
            produced_percent: 100.0,
            echoed_percent: 100.0,
            rtt_quarters_ms: Some([2.0, 2.1]),
            machine_percent: Some(50.0),
            busiest: busy(40.0, 5.0),
            ..Evidence::default()
        }
    }

    #[test]
    fn a_carried_load_is_sustained_even_on_a_busy_machine() {
        let busy = Evidence { machine_percent: Some(99.0), ..good() };
        assert!(busy.is_sustained() && busy.void().is_none());
        let jitter = Evidence { rtt_quarters_ms: Some([0.5, 1.4]), ..good() };
        assert!(jitter.is_sustained());
        assert!(!Evidence { rtt_quarters_ms: Some([3.0, 90.0]), ..good() }.is_sustained());
        assert!(!Evidence { rtt_quarters_ms: Some([300.0, 310.0]), ..good() }.is_sustained());
        assert!(!Evidence { echoed_percent: 80.0, ..good() }.is_sustained());
    }

    #[test]
    fn the_limit_is_named_by_what_was_measured() {
        let words = |evidence: Evidence| -> Vec<String> {
            evidence.limits().iter().map(Limit::words).collect()
        };
        assert_eq!(words(good()), ["none measured (busiest is echoer 0: ran 40 %, waited 5 %)"]);
        let process = Evidence { busiest: busy(97.0, 0.0), ..good() };
        assert_eq!(words(process.clone()), ["CPU of echoer 0 (97 %)"]);
        let machine = Evidence { machine_percent: Some(99.0), ..process };
        assert_eq!(words(machine)[0], "CPU of the machine (99 %)");
        let starved = Evidence { busiest: busy(60.0, 35.0), ..good() };
        assert!(words(starved)[0].contains("ran 60 % and waited 35 %"));
        let air = Evidence { channel_percent: Some(80.0), contended_percent: Some(98.0), ..good() };
        assert_eq!(words(air), ["airtime (frames waited 98 % of the time)"]);
        let idle_air =
            Evidence { channel_percent: Some(90.0), contended_percent: Some(93.0), ..good() };
        assert!(words(idle_air)[0].starts_with("none measured"));
        let link = Evidence { link_percent: Some(99.0), ..good() };
        assert_eq!(words(link), ["rate of the link (99 %)"]);
    }

    #[test]
    fn messages_under_way_are_a_queue_only_if_nothing_is_busy() {
        let queued = Queued {
            messages: 40,
            messages_per_conversation: 20.0,
            send_bytes: 900,
            ..Queued::default()
        };
        let evidence = Evidence { queued: queued.clone(), ..good() };
        assert_eq!(evidence.limits()[0].words(), "queue in send buffers (40 messages)");
        let few = Queued { messages_per_conversation: 2.0, ..queued };
        let evidence = Evidence { queued: few, ..good() };
        assert!(matches!(evidence.limits()[0], Limit::NotFound { .. }));
    }

    #[test]
    fn drops_of_an_idle_daemon_are_its_own_limit() {
        let dropped = Some(Dropped { reason: "over_rate".into(), messages: 900 });
        let evidence = Evidence { echoed_percent: 50.0, dropped: dropped.clone(), ..good() };
        assert_eq!(
            evidence.limits()[0].words(),
            "the daemon's limit 'over_rate' (900 messages dropped)"
        );
        let carried = Evidence { dropped, ..good() };
        assert!(matches!(carried.limits()[0], Limit::NotFound { .. }));
    }

    #[test]
    fn a_load_that_the_senders_do_not_produce_voids_the_run() {
        let slow = Evidence { produced_percent: 60.0, ..good() };
        assert!(slow.void().unwrap().contains("60 %"));
    }
}
