// SPDX-License-Identifier: Apache-2.0
//! The cases and the targets of each.

use super::trial::{Outcome, Transport};
use crate::rig::verdict::Bound::{self, AtLeast, AtMost};
use crate::rig::verdict::{IDLE_CPU_PERCENT, IDLE_RESIDENT_MB, Verdict};
use crate::setup::flows::Flow;
use crate::setup::ros::Ros;
use crate::setup::usage::DaemonFigures;
use crate::setup::world::{Link, LinkLimits, MTU};
use std::collections::BTreeMap;

/// Figures of all transports of one run.
pub type Outcomes = BTreeMap<Transport, Outcome>;

/// A case with two computers, one link and the load of [`Flow`].
#[derive(Debug, PartialEq)]
pub struct Case {
    /// Name on the command line.
    pub name: &'static str,
    /// ROS that the robots run.
    pub ros: Ros,
    /// The link.
    pub link: Link,
    /// Whether the daemons' configuration contains the rate.
    pub rate_configured: bool,
    /// Transports that are measured.
    pub transports: &'static [Transport],
    /// Targets, which decide the conclusion.
    pub targets: &'static [&'static [Target]],
    /// Figures that others reached elsewhere on such a link. They do not affect the conclusion.
    pub comparisons: &'static [&'static [Target]],
    /// Known figures of the other transports on this link.
    pub known: &'static [Known],
}

/// A measure and its bound.
#[derive(Debug, PartialEq)]
pub struct Target {
    what: Measure,
    bound: Bound,
}

/// A measured quantity, of Tautline unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Measure {
    /// Messages received, percent of messages sent.
    ReceivedPercent(Flow),
    /// Mean delay, ms.
    MeanMs(Flow),
    /// Mean delay of another transport, divided by Tautline's in the same run.
    MeanTimesUnder(Transport, Flow),
    /// 99th percentile of delay, ms.
    P99Ms(Flow),
    /// Largest delay, ms.
    MaxMs(Flow),
    /// Standard deviation of gaps, ms.
    GapStdMs(Flow),
    /// Standard deviation of TCPROS's gaps, divided by Tautline's in the same run.
    GapStdTimesUnderTcpros(Flow),
    /// Mean delay, divided by wire bytes / rate.
    MeanTimesAirtime(Flow),
    /// Image bytes delivered, percent of the rate that the laser leaves.
    ImageSharePercent,
    /// Messages whose outcome the daemon does not know.
    Unaccounted(Flow),
    /// CPU time of the busier daemon, percent of one core.
    CpuPercent,
    IdleCpuPercent,
    /// Memory of the larger daemon when idle, in 10^6 bytes.
    IdleResidentMb,
}

/// A figure measured earlier on the same link. The run is void if it differs by more than a
/// quarter.
#[derive(Debug, PartialEq)]
pub struct Known {
    transport: Transport,
    laser_mean_ms: f64,
}

/// Largest relative deviation from a known figure.
const KNOWN_TOLERANCE: f64 = 0.25;
/// Bytes that each packet adds to a message: Tautline's header (as the case `header` measures),
/// UDP, IPv4 and Ethernet.
const PACKET_OVERHEAD_BYTES: u64 = 40 + 8 + 20 + 14;
/// Bytes of a full packet as the kernel's token bucket counts them: Ethernet header and IP packet.
const FULL_PACKET_BYTES: u64 = 14 + MTU as u64;

use Flow::{Command, Image, Laser};
use Measure::*;

const fn target(what: Measure, bound: Bound) -> Target {
    Target { what, bound }
}

const AT_6_MBPS: &[Target] = &[
    target(ReceivedPercent(Laser), AtLeast(100.0)),
    target(P99Ms(Laser), AtMost(8.0)),
    target(GapStdMs(Laser), AtMost(3.0)),
    target(P99Ms(Command), AtMost(8.0)),
    target(ReceivedPercent(Image), AtLeast(99.0)),
    target(MeanTimesAirtime(Image), AtMost(1.25)),
    target(CpuPercent, AtMost(6.0)),
    target(IdleCpuPercent, IDLE_CPU_PERCENT),
    target(IdleResidentMb, IDLE_RESIDENT_MB),
];

const BESIDE_TCPROS: &[Target] = &[target(GapStdTimesUnderTcpros(Laser), AtLeast(8.0))];

const AT_3_MBPS: &[Target] = &[
    target(ReceivedPercent(Laser), AtLeast(100.0)),
    target(ReceivedPercent(Command), AtLeast(100.0)),
    target(P99Ms(Laser), AtMost(14.0)),
    target(P99Ms(Command), AtMost(14.0)),
    target(ImageSharePercent, AtLeast(90.0)),
    target(MaxMs(Image), AtMost(500.0)),
    target(Unaccounted(Image), AtMost(0.0)),
];

const WITH_LOSS: &[Target] = &[
    target(ReceivedPercent(Laser), AtLeast(99.5)),
    target(ReceivedPercent(Image), AtLeast(99.5)),
    target(P99Ms(Laser), AtMost(20.0)),
];

/// Tables 1 and 2 of the Pound paper: one hop of real 802.11 at 6 Mbps, with the paper's own laser
/// and an image of 64 KB (61 KB here), and without commands in the other direction.
const OF_POUND: &[Target] = &[
    target(ReceivedPercent(Laser), AtLeast(99.8)),
    target(ReceivedPercent(Image), AtLeast(99.9)),
    target(MeanMs(Laser), AtMost(4.1)),
    target(GapStdMs(Laser), AtMost(2.0)),
    target(MeanMs(Image), AtMost(112.0)),
];

/// The same tables, compared with plain ROS 1.
const OF_POUND_BESIDE_ROS_1: &[Target] = &[
    target(MeanTimesUnder(Transport::Tcpros, Laser), AtLeast(18.6 / 4.1)),
    target(MeanTimesUnder(Transport::TcprosNodelay, Laser), AtLeast(6.0 / 4.1)),
];

/// Measured on this link with rospy 1.15 and a 64 KB image.
const KNOWN_AT_6_MBPS: &[Known] = &[
    Known { transport: Transport::Tcpros, laser_mean_ms: 35.0 },
    Known { transport: Transport::TcprosNodelay, laser_mean_ms: 24.0 },
];

/// Measured on this link with rclpy 9.1 and a 64 KB image.
const KNOWN_AT_6_MBPS_ROS_2: &[Known] = &[
    Known { transport: Transport::Ros2Reliable, laser_mean_ms: 25.0 },
    Known { transport: Transport::Ros2BestEffort, laser_mean_ms: 25.0 },
];

const ALL_TRANSPORTS: &[Transport] =
    &[Transport::Tautline, Transport::Tcpros, Transport::TcprosNodelay];
const BEST_TWO: &[Transport] = &[Transport::Tautline, Transport::TcprosNodelay];
const OF_ROS_2: &[Transport] =
    &[Transport::Tautline, Transport::Ros2Reliable, Transport::Ros2BestEffort];

const fn link(rate_bps: u64, loss: f64) -> Link {
    Link::Wire(LinkLimits { rate_bps: Some(rate_bps), loss })
}

const RADIO: Link = Link::Radio("half-duplex-6mbps");
const NEXT_TO_TCPROS: &[&[Target]] = &[AT_6_MBPS, BESIDE_TCPROS];

/// All cases of two computers.
const CASES: &[Case] = &[
    Case {
        transports: ALL_TRANSPORTS,
        known: KNOWN_AT_6_MBPS,
        ..of_ros_1("6mbps", link(6_000_000, 0.0), NEXT_TO_TCPROS)
    },
    Case {
        rate_configured: true,
        transports: ALL_TRANSPORTS,
        known: KNOWN_AT_6_MBPS,
        ..of_ros_1("6mbps-rate", link(6_000_000, 0.0), NEXT_TO_TCPROS)
    },
    of_ros_1("3mbps", link(3_000_000, 0.0), &[AT_3_MBPS]),
    Case { rate_configured: true, ..of_ros_1("3mbps-rate", link(3_000_000, 0.0), &[AT_3_MBPS]) },
    of_ros_1("6mbps-loss", link(6_000_000, 0.05), &[WITH_LOSS]),
    Case {
        transports: ALL_TRANSPORTS,
        comparisons: &[OF_POUND, OF_POUND_BESIDE_ROS_1],
        ..of_ros_1("6mbps-radio", RADIO, &[])
    },
    Case {
        known: KNOWN_AT_6_MBPS_ROS_2,
        ..of_ros_2("6mbps", link(6_000_000, 0.0), false, &[AT_6_MBPS])
    },
    Case {
        known: KNOWN_AT_6_MBPS_ROS_2,
        ..of_ros_2("6mbps-rate", link(6_000_000, 0.0), true, &[AT_6_MBPS])
    },
    of_ros_2("3mbps", link(3_000_000, 0.0), false, &[AT_3_MBPS]),
    of_ros_2("3mbps-rate", link(3_000_000, 0.0), true, &[AT_3_MBPS]),
    of_ros_2("6mbps-loss", link(6_000_000, 0.05), false, &[WITH_LOSS]),
    Case { comparisons: &[OF_POUND], ..of_ros_2("6mbps-radio", RADIO, false, &[]) },
];

const fn of_ros_1(name: &'static str, link: Link, targets: &'static [&'static [Target]]) -> Case {
    let (ros, transports, rate_configured) = (Ros::One, BEST_TWO, false);
    Case { name, ros, link, rate_configured, transports, targets, comparisons: &[], known: &[] }
}

const fn of_ros_2(
    name: &'static str,
    link: Link,
    rate_configured: bool,
    targets: &'static [&'static [Target]],
) -> Case {
    let (ros, transports) = (Ros::Two, OF_ROS_2);
    Case { name, ros, link, rate_configured, transports, targets, comparisons: &[], known: &[] }
}

impl Case {
    /// Returns all cases with robots that run `ros`.
    pub fn for_ros(ros: Ros) -> impl Iterator<Item = &'static Case> {
        CASES.iter().filter(move |case| case.ros == ros)
    }

    /// Returns the case of that name.
    pub fn named(name: &str, ros: Ros) -> Option<&'static Case> {
        Self::for_ros(ros).find(|case| case.name == name)
    }

    /// Returns one verdict per target.
    pub fn verdicts(&self, outcomes: &Outcomes) -> Vec<Verdict> {
        self.judge(self.targets, outcomes)
    }

    /// Returns one verdict per comparison.
    pub fn comparisons(&self, outcomes: &Outcomes) -> Vec<Verdict> {
        self.judge(self.comparisons, outcomes)
    }

    fn judge(&self, targets: &[&[Target]], outcomes: &Outcomes) -> Vec<Verdict> {
        let judge = |target: &Target| {
            let (what, unit, found) = self.measured_value(target.what, outcomes);
            target.bound.judge(what, found, unit)
        };
        targets.iter().copied().flatten().map(judge).collect()
    }

    /// Returns the reasons why the run is void: the link or another transport deviates from its
    /// known figures. Empty if the run is valid.
    pub fn reasons_for_void(&self, outcomes: &Outcomes) -> Vec<String> {
        let off = |known: &Known| {
            let outcome = outcomes.get(&known.transport)?;
            let found =
                outcome.topics.get(&Laser)?.delay_ms.map_or(f64::INFINITY, |delay| delay.mean);
            let deviation = found / known.laser_mean_ms - 1.0;
            (deviation.abs() > KNOWN_TOLERANCE).then(|| {
                format!(
                    "laser mean over {} is {found:.1} ms; {} ms is known for this link, {:.0} % off is allowed",
                    known.transport.name(),
                    known.laser_mean_ms,
                    100.0 * KNOWN_TOLERANCE
                )
            })
        };
        self.known.iter().filter_map(off).collect()
    }

    /// Returns the name of a measure, its unit and the measured value.
    fn measured_value(
        &self,
        what: Measure,
        outcomes: &Outcomes,
    ) -> (String, &'static str, Option<f64>) {
        let ours = outcomes.get(&Transport::Tautline);
        let of = |flow| ours?.topics.get(&flow);
        let delay = |flow| of(flow)?.delay_ms;
        let gap_std =
            |outcome: Option<&Outcome>, flow| Some(outcome?.topics.get(&flow)?.gap_ms?.std);
        let largest =
            |figure: fn(&DaemonFigures) -> f64| ours?.daemons.values().map(figure).reduce(f64::max);
        let named = |flow: Flow, what: &str| format!("{} {what}", flow.name());
        match what {
            ReceivedPercent(flow) => {
                (named(flow, "received"), "%", of(flow).map(|it| it.mdr_percent))
            }
            MeanMs(flow) => (named(flow, "mean"), "ms", delay(flow).map(|it| it.mean)),
            MeanTimesUnder(rival, flow) => {
                let theirs = || outcomes.get(&rival)?.topics.get(&flow)?.delay_ms;
                let times = theirs().zip(delay(flow)).map(|(theirs, own)| theirs.mean / own.mean);
                (named(flow, &format!("mean under {}'s", rival.name())), "times", times)
            }
            P99Ms(flow) => (named(flow, "p99"), "ms", delay(flow).map(|it| it.p99)),
            MaxMs(flow) => (named(flow, "oldest delivered"), "ms", delay(flow).map(|it| it.max)),
            GapStdMs(flow) => (named(flow, "gap std"), "ms", gap_std(ours, flow)),
            GapStdTimesUnderTcpros(flow) => {
                let theirs = gap_std(outcomes.get(&Transport::Tcpros), flow);
                let times = theirs.zip(gap_std(ours, flow)).map(|(theirs, own)| theirs / own);
                (named(flow, "gap std under TCPROS's"), "times", times)
            }
            MeanTimesAirtime(flow) => {
                let airtime_s = || {
                    let bytes = wire_bytes(*ours?.message_bytes.get(&flow)?);
                    Some(8.0 * bytes as f64 / self.rate_bps()?)
                };
                let times = delay(flow).zip(airtime_s()).map(|(it, s)| it.mean / 1000.0 / s);
                (named(flow, "mean delay over wire bytes / rate"), "times", times)
            }
            ImageSharePercent => {
                let share = ours.and_then(|ours| self.image_share(ours));
                ("image bytes carried of the rate left".into(), "%", share)
            }
            Unaccounted(flow) => {
                let messages = ours.and_then(|ours| *ours.unaccounted.get(&flow)?);
                let found = messages.map(|messages| messages.unsigned_abs() as f64);
                (named(flow, "messages with unknown outcome"), "messages", found)
            }
            CpuPercent => {
                let percent = largest(|daemon| daemon.cpu_percent);
                ("daemon under this load".into(), "% of a core", percent)
            }
            IdleCpuPercent => {
                let percent = largest(|daemon| daemon.idle_cpu_percent);
                ("daemon idle".into(), "% of a core", percent)
            }
            IdleResidentMb => {
                let megabytes = largest(|daemon| daemon.idle_resident_bytes as f64 / 1e6);
                ("daemon memory, idle".into(), "MB", megabytes)
            }
        }
    }

    fn rate_bps(&self) -> Option<f64> {
        self.link.rate_bps().map(|rate| rate as f64)
    }

    /// Returns the message bytes of images delivered, percent of the rate that the laser leaves.
    fn image_share(&self, ours: &Outcome) -> Option<f64> {
        let laser_per_s = 1.0 / Laser.period().as_secs_f64();
        let laser_bps = 8.0 * laser_per_s * wire_bytes(*ours.message_bytes.get(&Laser)?) as f64;
        let image_bps = 8.0 * ours.images_per_s * *ours.message_bytes.get(&Image)? as f64;
        Some(100.0 * image_bps / (self.rate_bps()? - laser_bps))
    }
}

/// Returns the bytes on the link for one message, Ethernet headers included.
fn wire_bytes(message_bytes: u64) -> u64 {
    let packets = message_bytes.div_ceil(FULL_PACKET_BYTES - PACKET_OVERHEAD_BYTES);
    message_bytes + packets * PACKET_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::stats::{Delay, Gap, Summary};

    fn summary(mdr_percent: f64, mean: f64, p99: f64, std: f64) -> Summary {
        Summary {
            sent: 1000,
            received: 1000,
            duplicates: 0,
            mdr_percent,
            delay_ms: Some(Delay { mean, p50: mean, p99, max: p99 }),
            gap_ms: Some(Gap { mean: 20.0, std }),
            publisher_late_ms: None,
        }
    }

    fn outcome(laser: Summary) -> Outcome {
        Outcome {
            topics: [(Laser, laser), (Image, summary(100.0, 95.0, 110.0, 2.0))].into(),
            message_bytes: [(Laser, 1024), (Image, 61346)].into(),
            images_per_s: 4.5,
            machine_busy_percent: 20.0,
            daemons: BTreeMap::new(),
            emulator: None,
            unaccounted: BTreeMap::new(),
        }
    }

    fn measured_in(verdicts: &[Verdict], what: &str) -> (f64, bool) {
        let verdict = verdicts.iter().find(|verdict| verdict.what == what).unwrap();
        (verdict.found.unwrap(), verdict.reached)
    }

    #[test]
    fn targets_are_judged_against_the_same_runs_rival() {
        let case = Case::named("6mbps", Ros::One).unwrap();
        let outcomes = Outcomes::from([
            (Transport::Tautline, outcome(summary(99.9, 3.0, 7.9, 2.5))),
            (Transport::Tcpros, outcome(summary(100.0, 35.0, 101.0, 35.0))),
        ]);
        let verdicts = case.verdicts(&outcomes);
        assert_eq!(measured_in(&verdicts, "laser received"), (99.9, false));
        assert_eq!(measured_in(&verdicts, "laser p99"), (7.9, true));
        assert_eq!(measured_in(&verdicts, "laser gap std under TCPROS's"), (14.0, true));
    }

    #[test]
    fn a_comparison_with_a_rival_has_no_influence_on_the_verdict() {
        let case = Case::named("6mbps-radio", Ros::One).unwrap();
        let outcomes = Outcomes::from([
            (Transport::Tautline, outcome(summary(100.0, 3.0, 6.0, 1.9))),
            (Transport::Tcpros, outcome(summary(100.0, 12.0, 40.0, 9.0))),
        ]);
        let comparisons = case.comparisons(&outcomes);
        assert_eq!(measured_in(&comparisons, "laser mean"), (3.0, true));
        assert_eq!(measured_in(&comparisons, "laser mean under tcpros's"), (4.0, false));
        assert!(case.verdicts(&outcomes).is_empty());
    }

    #[test]
    fn the_scenarios_of_radio_cases_exist() {
        let radios = CASES.iter().filter_map(|case| match case.link {
            Link::Radio(name) => Some(name),
            Link::Wire(_) => None,
        });
        let names = |name| -> Vec<String> {
            let stations = crate::scenario::named(name).unwrap().stations;
            stations.into_iter().map(|station| station.name).collect()
        };
        assert!(radios.map(names).all(|stations| stations == ["robot", "base"]));
    }

    #[test]
    fn every_case_exists_for_ros_1_and_ros_2_with_its_rivals() {
        let names = |ros| Case::for_ros(ros).map(|case| (case.name, case.link)).collect::<Vec<_>>();
        assert_eq!(names(Ros::One), names(Ros::Two));
        for case in CASES {
            assert_eq!(case.transports[0], Transport::Tautline);
            let rivals = &case.transports[1..];
            assert!(rivals.iter().all(|rival| rival.ros() == Some(case.ros)), "{case:?}");
            assert!(case.known.iter().all(|known| rivals.contains(&known.transport)), "{case:?}");
        }
    }

    #[test]
    fn an_unmeasured_goal_is_not_reached() {
        let case = Case::named("6mbps", Ros::One).unwrap();
        let outcomes =
            Outcomes::from([(Transport::Tautline, outcome(summary(100.0, 3.0, 7.0, 2.0)))]);
        let verdicts = case.verdicts(&outcomes);
        let command = verdicts.iter().find(|verdict| verdict.what == "command p99").unwrap();
        assert!(command.found.is_none() && !command.reached);
    }

    #[test]
    fn a_rival_more_than_a_quarter_off_voids_the_run() {
        let case = Case::named("6mbps", Ros::One).unwrap();
        let run = |mean| {
            Outcomes::from([(Transport::Tcpros, outcome(summary(100.0, mean, 101.0, 35.0)))])
        };
        assert!(case.reasons_for_void(&run(43.0)).is_empty());
        assert!(case.reasons_for_void(&run(44.0))[0].contains("44.0 ms"));
        assert!(!case.reasons_for_void(&run(26.0)).is_empty());
    }

    #[test]
    fn the_share_of_images_is_relative_to_the_remaining_capacity() {
        let case = Case::named("3mbps", Ros::One).unwrap();
        let share = case.image_share(&outcome(summary(100.0, 3.0, 7.0, 2.0))).unwrap();
        let left_bps = 3e6 - 50.0 * 8.0 * (1024.0 + 82.0);
        assert!((share - 100.0 * 4.5 * 61346.0 * 8.0 / left_bps).abs() < 1e-9);
    }
}
