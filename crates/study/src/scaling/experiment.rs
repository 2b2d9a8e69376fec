// SPDX-License-Identifier: Apache-2.0
//! The experiments. Each consists of ladders: runs of one system on one link, whose load grows from
//! rung to rung until it exceeds the system's limit.

use super::load::{Contents, Load, Pairing, Recording, SMALLEST_TEXT, THESIS_TEXT};
use super::row::Row;
use super::scene::Medium;
use super::system::System;
use super::trial::Trial;
use serde::Serialize;

/// Number of rungs above the limit that are still measured; the second confirms the first.
const RUNGS_ABOVE_LIMIT: usize = 2;
/// Number of such rungs in ladders that decide about targets: their repetitions confirm the limit.
const RUNGS_ABOVE_HELD: usize = 1;
/// Repetitions of the runs that decide about targets.
const ACCEPTANCE_RUNS: usize = 3;

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// One pair with small messages, whose frequency rises to the limit (the thesis's experiment 1).
    Frequency,
    /// One pair whose nodes have 100, 75 or 50 % of a core (experiment 3).
    Cpu,
    /// One pair over wire, token bucket and modelled radio (experiments 4 and 6).
    Radio,
    /// One pair with a scan, an image, or the messages of --bag (experiment 5).
    Recorded,
    /// 1 to 128 pairs on two hosts, 1 to 300 Hz (experiment 7).
    Vertical,
    /// 2 to 8 hosts, every sender to every echoer (experiment 9, which was never run).
    Horizontal,
    /// The highest load that plain ROS 1 and Tautline carry over the same radio.
    Tautline,
    /// Your own load: --senders, --hz, --contents and --link. Runs only if named.
    Own,
}

/// The load of [`Experiment::Own`].
#[derive(Debug, Clone, clap::Args)]
pub struct OwnLoad {
    /// With the experiment `own`: numbers of senders, each with an echoer.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u16).range(1..=128))]
    senders: Vec<u16>,
    /// With the experiment `own`: messages per second of each sender.
    #[arg(long, value_delimiter = ',', default_value = "10", value_parser = frequency)]
    hz: Vec<f64>,
    /// With the experiment `own`: what is sent: scan, image, or the bytes of a text.
    #[arg(long, default_value = "scan", value_parser = contents)]
    contents: Contents,
    /// With the experiment `own`: link between the hosts.
    #[arg(long, value_enum, default_value_t = Medium::Wired)]
    link: Medium,
}

/// Highest frequency of a sender, Hz, as in the thesis.
const MAX_HZ: f64 = 1e6;

fn frequency(text: &str) -> std::result::Result<f64, String> {
    let hz = text.parse().ok().filter(|hz| (0.1..=MAX_HZ).contains(hz));
    hz.ok_or_else(|| format!("'{text}' is no frequency; allowed are 0.1 to {MAX_HZ} (Hz)"))
}

fn contents(text: &str) -> std::result::Result<Contents, String> {
    const BYTES: std::ops::RangeInclusive<usize> = SMALLEST_TEXT..=16_000_000;
    match (text, text.parse()) {
        ("scan", _) => Ok(Contents::Scan),
        ("image", _) => Ok(Contents::Image),
        (_, Ok(bytes)) if BYTES.contains(&bytes) => Ok(Contents::Text(bytes)),
        _ => Err(format!(
            "'{text}' is no contents; allowed are scan, image, and {} to {} (bytes of a text)",
            BYTES.start(),
            BYTES.end()
        )),
    }
}

/// Runs of one system with a growing load. Each load is a rung.
#[derive(Debug, Clone)]
pub struct Ladder {
    /// Experiment that it belongs to.
    pub experiment: Experiment,
    /// Repetitions unless the user asks for others.
    pub repetitions: usize,
    trials: Vec<Trial>,
    /// Expected number of rungs, to estimate the remaining time.
    likely: usize,
    /// Whether a repetition carried the load, for each rung so far.
    carried: Vec<bool>,
}

/// Frequencies of the sweep, Hz; the thesis went from 1 Hz to 1 MHz in steps of ten.
const FREQUENCIES: &[f64] = &[10.0, 100.0, 1000.0, 5000.0, 10e3, 20e3, 50e3];
const ALL_SYSTEMS: &[System] = &[
    System::Rospy,
    System::RospyNodelay,
    System::Roscpp,
    System::RoscppNodelay,
    System::Rclpy,
    System::Zenoh,
    System::Tautline,
    System::TautlineRoscpp,
];
/// Systems that are compared on a wire. TCP_NODELAY changes nothing there, since the wire is never
/// full.
const ON_WIRE: &[System] = &[
    System::Rospy,
    System::Roscpp,
    System::Rclpy,
    System::Zenoh,
    System::Tautline,
    System::TautlineRoscpp,
];
const FEW_SYSTEMS: &[System] = &[System::Rospy, System::Roscpp, System::Rclpy, System::Tautline];
/// Numbers of robots in the comparison over the radio.
const ROBOTS: [usize; 10] = [6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// Numbers of robots in a quick comparison.
const QUICK_ROBOTS: [usize; 4] = [8, 9, 12, 13];
/// Numbers of pairs with small messages in this comparison.
const TEXT_PAIRS: [usize; 9] = [4, 6, 8, 12, 16, 24, 32, 40, 48];
/// Numbers of pairs with scans in this comparison.
const SCAN_PAIRS: [usize; 6] = [4, 5, 6, 7, 8, 9];
/// Scans per second of each of these pairs.
const SCANS_HZ: f64 = 10.0;
/// Expected rungs of Tautline in the comparison, including the rung above the limit. Used only to
/// estimate the remaining time.
const LIKELY_RUNGS: usize = 8;
/// Expected rungs of plain ROS 1 in the comparison.
const LIKELY_PLAIN_RUNGS: usize = 4;
/// Systems with rospy nodes in the comparison over the radio. They do not take part in the loads of
/// small messages, which are too many for rospy on two cores.
const BY_ROSPY: &[System] = &[System::Rospy, System::RospyNodelay, System::Tautline];
/// Systems with roscpp nodes in the comparison over the radio.
const BY_ROSCPP: &[System] = &[System::Roscpp, System::RoscppNodelay, System::TautlineRoscpp];
/// Bytes of a small message in the comparison over the radio.
const SMALL_BYTES: usize = 64;
/// Small messages per second of each pair in this comparison.
const SMALL_HZ: f64 = 50.0;

impl Experiment {
    /// Experiments of `--quick`.
    pub const QUICK: [Self; 3] = [Self::Frequency, Self::Vertical, Self::Tautline];

    /// Returns the ladders of the experiment; `recording` replaces the generated messages of
    /// [`Self::Recorded`].
    pub fn ladders(self, quick: bool, recording: Option<&Recording>, own: &OwnLoad) -> Vec<Ladder> {
        match self {
            Self::Frequency => self.frequency(quick),
            Self::Cpu => self.cpu(quick),
            Self::Radio => self.radio(quick),
            Self::Recorded => self.recorded(quick, recording),
            Self::Vertical => self.vertical(quick),
            Self::Horizontal => self.horizontal(quick),
            Self::Tautline => self.tautline(quick),
            Self::Own => self.own(own),
        }
    }

    fn frequency(self, quick: bool) -> Vec<Ladder> {
        let hz = if quick { &[10.0, 1000.0, 10e3] } else { FREQUENCIES };
        let systems = if quick { FEW_SYSTEMS } else { ON_WIRE };
        let loads = one_pair(&Contents::Text(THESIS_TEXT), hz);
        systems.iter().map(|system| self.ladder(*system, Medium::Wired, &loads)).collect()
    }

    fn cpu(self, quick: bool) -> Vec<Ladder> {
        let hz: &[f64] = if quick { &[200.0, 2000.0] } else { &[1000.0, 2000.0, 4000.0, 8000.0] };
        let loads = one_pair(&Contents::Text(THESIS_TEXT), hz);
        let with = |share| {
            let mut ladder = self.ladder(System::Rospy, Medium::Wired, &loads);
            for trial in &mut ladder.trials {
                trial.cpu_share_percent = Some(share);
            }
            ladder
        };
        [100, 75, 50].map(with).into()
    }

    fn radio(self, quick: bool) -> Vec<Ladder> {
        let hz: &[f64] = if quick { &[20.0, 60.0] } else { &[20.0, 80.0] };
        let loads = one_pair(&Contents::Scan, hz);
        let media = [Medium::Wired, Medium::TokenBucket, Medium::Radio];
        let systems = [System::Rospy, System::Tautline];
        let on = |medium| systems.map(|system| self.ladder(system, medium, &loads));
        media.into_iter().flat_map(on).collect()
    }

    fn recorded(self, quick: bool, recording: Option<&Recording>) -> Vec<Ladder> {
        let systems = [System::Rospy, System::Roscpp, System::Rclpy];
        let ladder = |system, contents: &Contents, hz: &[f64]| {
            self.ladder(system, Medium::Wired, &one_pair(contents, hz))
        };
        let Some(recording) = recording else {
            let (scan_hz, image_hz): (&[f64], &[f64]) = match quick {
                true => (&[200.0], &[20.0]),
                false => (&[200.0, 2000.0], &[20.0, 80.0]),
            };
            let scan = systems.map(|it| ladder(it, &Contents::Scan, scan_hz));
            let image = systems.map(|it| ladder(it, &Contents::Image, image_hz));
            return scan.into_iter().chain(image).collect();
        };
        let replays = if recording.is_rosbag() { System::Rospy } else { System::Rclpy };
        let contents = Contents::Recorded(recording.clone());
        let hz: &[f64] =
            if quick { &[10.0, 100.0] } else { &[10.0, 20.0, 40.0, 100.0, 200.0, 400.0] };
        vec![ladder(replays, &contents, hz)]
    }

    /// One process for each node, as in the thesis: roscpp, because this machine has memory for 256
    /// such nodes.
    fn vertical(self, quick: bool) -> Vec<Ladder> {
        let hz: &[f64] = if quick { &[10.0, 100.0] } else { &[1.0, 20.0, 100.0, 300.0] };
        let senders: &[usize] = if quick { &[1, 8] } else { &[1, 16, 128] };
        let ladder = |medium, senders: usize, hz: &[f64]| {
            let loads: Vec<Load> =
                hz.iter().map(|hz| Load::pairs(senders, Contents::Scan, *hz)).collect();
            self.ladder(System::Roscpp, medium, &loads)
        };
        let wired = senders.iter().map(|senders| ladder(Medium::Wired, *senders, hz));
        let few: &[usize] = if quick { &[] } else { &[1, 4, 16] };
        let radio = few.iter().map(|senders| ladder(Medium::Radio, *senders, &[10.0, 100.0]));
        wired.chain(radio).collect()
    }

    fn horizontal(self, quick: bool) -> Vec<Ladder> {
        let hosts: &[usize] = if quick { &[2, 4] } else { &[2, 4, 6, 8] };
        let nodes: &[usize] = if quick { &[1] } else { &[1, 4] };
        let combinations =
            nodes.iter().flat_map(|nodes| hosts.iter().map(move |hosts| (*hosts, *nodes)));
        let ladder = |(hosts, nodes): (usize, usize)| {
            let load = |hz| Load {
                pairing: Pairing::EveryToEvery,
                ..Load::pairs(hosts * nodes / 2, Contents::Scan, hz)
            };
            let mut ladder = self.ladder(System::Roscpp, Medium::Wired, &[10.0, 50.0].map(load));
            for trial in &mut ladder.trials {
                trial.hosts = hosts;
            }
            ladder
        };
        combinations.map(ladder).collect()
    }

    /// Three families of loads on the same radio; see [`super::acceptance`]. Every system held the
    /// lowest loads in early runs.
    fn tautline(self, quick: bool) -> Vec<Ladder> {
        let robots: &[usize] = if quick { &QUICK_ROBOTS } else { &ROBOTS };
        let robots: Vec<Load> = robots.iter().map(|robots| Load::robots(*robots)).collect();
        let pairs = |contents: Contents, hz: f64| {
            move |pairs: &usize| Load::pairs(*pairs, contents.clone(), hz)
        };
        let small = TEXT_PAIRS.iter().map(pairs(Contents::Text(SMALL_BYTES), SMALL_HZ)).collect();
        let scans = SCAN_PAIRS.iter().map(pairs(Contents::Scan, SCANS_HZ)).collect();
        let families: Vec<(Vec<Load>, &[System])> = match quick {
            true => vec![(robots, BY_ROSPY)],
            false => {
                vec![
                    (robots.clone(), BY_ROSPY),
                    (robots, BY_ROSCPP),
                    (small, BY_ROSCPP),
                    (scans, BY_ROSCPP),
                ]
            }
        };
        let ladders = families.into_iter().flat_map(|(loads, systems)| {
            systems.iter().map(move |system| self.ladder(*system, Medium::Radio, &loads))
        });
        let repetitions = if quick { 1 } else { ACCEPTANCE_RUNS };
        let likely = |it: &Ladder| match it.system().has_daemons() {
            true => LIKELY_RUNGS,
            false => LIKELY_PLAIN_RUNGS.min(it.trials.len() - 1),
        };
        let ladders = ladders.map(|it| Ladder { likely: likely(&it), repetitions, ..it });
        ladders.collect()
    }

    fn own(self, own: &OwnLoad) -> Vec<Ladder> {
        let loads_of = |senders: u16| -> Vec<Load> {
            let load = |hz: &f64| Load::pairs(senders.into(), own.contents.clone(), *hz);
            own.hz.iter().map(load).collect()
        };
        let of = |senders: &u16| {
            let loads = loads_of(*senders);
            ALL_SYSTEMS.iter().map(move |system| self.ladder(*system, own.link, &loads))
        };
        own.senders.iter().flat_map(of).collect()
    }

    fn ladder(self, system: System, medium: Medium, loads: &[Load]) -> Ladder {
        let trial = |load: &Load| Trial {
            experiment: self,
            system,
            medium,
            hosts: 2,
            load: load.clone(),
            cpu_share_percent: None,
        };
        let trials: Vec<Trial> = loads.iter().map(trial).collect();
        let (likely, carried) = (trials.len(), Vec::new());
        Ladder { experiment: self, repetitions: 1, trials, likely, carried }
    }
}

fn one_pair(contents: &Contents, hz: &[f64]) -> Vec<Load> {
    hz.iter().map(|hz| Load::pairs(1, contents.clone(), *hz)).collect()
}

impl Ladder {
    /// Returns the system whose runs these are.
    pub fn system(&self) -> System {
        self.trials[0].system
    }

    /// Returns the run on a rung; `None` above the last rung, and if enough lower rungs were not carried.
    pub fn trial(&self, rung: usize) -> Option<&Trial> {
        let is_for_targets = self.experiment == Experiment::Tautline;
        let enough = if is_for_targets { RUNGS_ABOVE_HELD } else { RUNGS_ABOVE_LIMIT };
        let failed = self.carried.iter().rev().take_while(|carried| !**carried).count();
        let is_over = failed >= enough && rung >= self.carried.len();
        if is_over { None } else { self.trials.get(rung) }
    }

    /// Records whether the load of a rung was carried in one repetition.
    pub fn note(&mut self, rung: usize, row: &Row) {
        let is_for_targets = self.experiment == Experiment::Tautline;
        self.note_carried(rung, if is_for_targets { row.is_held() } else { row.is_sustained() });
    }

    fn note_carried(&mut self, rung: usize, carried: bool) {
        if self.carried.len() <= rung {
            self.carried.resize(rung + 1, false);
        }
        self.carried[rung] |= carried;
    }

    /// Whether a rung is expected to be run.
    pub fn is_likely(&self, rung: usize) -> bool {
        rung < self.likely
    }

    /// Whether a void run of the ladder is repeated, because targets depend on it.
    pub fn repeats_void_runs(&self) -> bool {
        self.experiment == Experiment::Tautline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn ladders(experiment: Experiment, quick: bool) -> Vec<Ladder> {
        let own = OwnLoad {
            senders: vec![1, 2],
            hz: vec![10.0, 20.0],
            contents: Contents::Scan,
            link: Medium::Radio,
        };
        experiment.ladders(quick, None, &own)
    }

    #[test]
    fn a_wrong_load_is_refused_with_the_allowed_values() {
        assert_eq!(contents("scan"), Ok(Contents::Scan));
        assert_eq!(contents("1024"), Ok(Contents::Text(1024)));
        assert!(contents("3").unwrap_err().contains("19 to"));
        assert!(contents("lidar").unwrap_err().contains("scan, image"));
        assert!(frequency("0").unwrap_err().contains("'0' is no frequency"));
    }

    #[test]
    fn a_ladder_ends_above_the_limit_unless_a_higher_rung_was_sustained() {
        let mut ladder = ladders(Experiment::Frequency, false).remove(0);
        ladder.note_carried(0, true);
        ladder.note_carried(1, false);
        assert!(ladder.trial(2).is_some());
        ladder.note_carried(2, false);
        assert!(ladder.trial(3).is_none());
        assert!(ladder.trial(2).is_some(), "repetitions of the last rung are made");
        ladder.note_carried(2, true);
        assert!(ladder.trial(3).is_some());
    }

    #[test]
    fn the_next_load_is_tried_if_one_repetition_carries_a_load() {
        let mut ladder = ladders(Experiment::Tautline, false).remove(0);
        assert_eq!(ladder.repetitions, 3);
        for carried in [false, true, false] {
            ladder.note_carried(0, carried);
        }
        assert!(ladder.trial(1).is_some());
        ladder.note_carried(1, false);
        assert!(ladder.trial(2).is_none());
    }

    #[test]
    fn runs_have_unique_names() {
        for experiment in Experiment::value_variants() {
            for quick in [true, false] {
                let ladders = ladders(*experiment, quick);
                let names: Vec<String> =
                    ladders.iter().flat_map(|it| it.trials.iter().map(Trial::name)).collect();
                let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
                assert_eq!(distinct.len(), names.len(), "{names:?}");
            }
        }
    }
}
