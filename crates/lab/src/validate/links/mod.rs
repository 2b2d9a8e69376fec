// SPDX-License-Identifier: Apache-2.0
//! Several links to one peer in virtual time: RCom's three radios under its own and our rate
//! control, and messages divided or copied among two links.

mod series;

use crate::validate::Written;

use crate::rig::parallel;
use crate::rig::progress::Progress;
use crate::rig::stats::{self, Delay, Samples};
use crate::rig::table::{self, column};
use crate::rivals;
use crate::scenario::{self, Pace, Scenario};
use crate::sim;
use anyhow::{Context, Result};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use tautline_medium::{Nanos, RadioId};
use tautline_proto::{LinkPolicy, Rate};

/// Images that RCom counts.
const IMAGES: usize = 1000;
/// Rates at which images are offered, in hertz: RCom's, and one that exceeds the radios.
const OFFERED_HZ: [u64; 2] = [50, 200];
/// Goodput of UDP payload of each single radio, in bits per second: 1472 of 1500 bytes on the pipes,
/// and a saturated station of the 54 Mbps channel (`validate dcf`).
const GOODPUT: [f64; 3] =
    [1.5e6 * 1472.0 / 1500.0, 11e6 * 1472.0 / 1500.0, 30.5e6 * 1472.0 / 1500.0];
/// Least fraction of the sum of [`GOODPUT`] that images must carry.
const LEAST_GOODPUT: f64 = 0.9;
/// Largest delay of a message striped over unequal links, relative to the better link alone.
const UNEVEN: f64 = 1.1;
/// Largest delay of a message striped over two equal links, relative to one of them.
const EQUAL: f64 = 1.0 / 1.7;
/// Largest increase of a topic's p99 delay next to a link that blocks, in milliseconds.
const BLOCKED_MS: f64 = 1.0;
/// Messages that are sent before this time do not count.
const SETTLED: Nanos = 5_000_000_000;
/// Expected duration of one case, for the progress line.
const EXPECTED: Duration = Duration::from_secs(3);

/// What carries the images of RCom's experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum System {
    Fixed,
    Aid,
    Aimd,
    Weighted,
    Best,
    Stripe,
}

impl System {
    const ALL: [Self; 6] =
        [Self::Fixed, Self::Aid, Self::Aimd, Self::Weighted, Self::Best, Self::Stripe];

    fn words(self) -> &'static str {
        match self {
            Self::Fixed => "RCom, fixed at the rates of the radios",
            Self::Aid => "RCom, AID",
            Self::Aimd => "RCom, AIMD",
            Self::Weighted => "Tautline, weighted",
            Self::Best => "Tautline, best",
            Self::Stripe => "Tautline, stripe",
        }
    }

    /// RCom draws the link of each image, as `weighted` does.
    fn apply(self, scenario: &mut Scenario) {
        scenario.tautline.rate = match self {
            Self::Aid => rivals::named(rivals::AID).unwrap_or_default(),
            Self::Aimd => rivals::named(rivals::AIMD).unwrap_or_default(),
            _ => Rate::AUTO,
        };
        scenario.tautline.fixed_at_network_rate = self == Self::Fixed;
        for flow in &mut scenario.flows {
            flow.links = match self {
                Self::Best => LinkPolicy::Best,
                Self::Stripe => LinkPolicy::Stripe,
                _ => LinkPolicy::Weighted,
            };
        }
    }

    /// Images per second in the paper's Table 2, offered at 50 Hz.
    fn images_per_s_in_paper(self) -> Option<f64> {
        match self {
            Self::Fixed => Some(3.3),
            Self::Aid => Some(10.1),
            Self::Aimd => Some(0.2),
            _ => None,
        }
    }
}

/// One run of RCom's experiment.
#[derive(Debug, Serialize)]
struct Images {
    offered_hz: u64,
    system: System,
    paper_per_s: Option<f64>,
    images_per_s: f64,
    packets_per_image: f64,
    airtime_percent: [f64; 3],
    /// Payload of the images, as a fraction of the sum of the radios' goodput.
    of_goodput: f64,
}

/// Returns RCom's experiment with images offered at this rate.
fn rcom(offered_hz: u64, system: System) -> Result<Scenario> {
    let mut scenario = scenario::named("rcom-three-radios")?;
    scenario.flows[0].pace = Pace::Every(1_000_000_000 / offered_hz);
    system.apply(&mut scenario);
    Ok(scenario)
}

fn images(offered_hz: u64, system: System) -> Result<Images> {
    let scenario = rcom(offered_hz, system)?;
    let mut seen = Vec::new();
    // Radios are numbered by station: the sender's come first.
    let radios = 3;
    let samples = sim::watch(&scenario, 1, scenario.duration / 100, |sight| {
        seen.push((sight.at_ns, [0, 1, 2].map(|radio| sight.radio(RadioId(radio)))));
    })?;
    let (_, samples) = samples.into_iter().next().context("the scenario has no flow")?;
    let arrived = samples.arrivals.len().clamp(1, IMAGES);
    let end = samples.arrivals.get(arrived - 1).map_or(scenario.duration, |it| it.received_ns);
    let index = seen.iter().position(|(at, _)| *at >= end).unwrap_or(seen.len() - 1);
    let (at, last) = &seen[index];
    let first = &seen[0].1;
    let during = samples.arrivals.iter().filter(|it| it.received_ns <= *at).count().max(1);
    let attempts: u64 = (0..radios).map(|it| last[it].attempts - first[it].attempts).sum();
    let seconds = *at as f64 / 1e9;
    let airtime =
        |it: usize| 100.0 * (last[it].airtime - first[it].airtime) as f64 / (*at).max(1) as f64;
    let images_per_s = during as f64 / seconds;
    let bits = scenario.flows[0].bytes as f64 * 8.0;
    Ok(Images {
        offered_hz,
        system,
        paper_per_s: system.images_per_s_in_paper().filter(|_| offered_hz == OFFERED_HZ[0]),
        images_per_s,
        packets_per_image: attempts as f64 / during as f64,
        airtime_percent: [airtime(0), airtime(1), airtime(2)],
        of_goodput: images_per_s * bits / GOODPUT.iter().sum::<f64>(),
    })
}

/// Messages over one link and over two.
#[derive(Debug, Serialize)]
struct Pair {
    case: &'static str,
    one: Option<Delay>,
    two: Option<Delay>,
    /// The allowed ratio, or the allowed difference in milliseconds for the blocked link.
    allowed: f64,
    reached: bool,
}

/// Returns a scenario with two pipes, whose flow uses both unless `only_first`.
fn two_links(pipes: [&str; 2], only_first: bool, flows: &str, events: &str) -> String {
    let [a, b] = pipes;
    let robot = if only_first { "[a]" } else { "[a, b]" };
    format!(
        "about: two links\nduration: 60s\nnetworks:\n  a: {{ pipe: {{ {a} }} }}\n  \
         b: {{ pipe: {{ {b} }} }}\nstations:\n  robot: {{ networks: {robot} }}\n  \
         base: {{ networks: [a, b] }}\nflows:\n{flows}{events}"
    )
}

fn delay_of(text: &str, flow: &str) -> Result<Option<Delay>> {
    let scenario = scenario::parse_made("two-links", text)?;
    let mut delays = Vec::new();
    for seed in 1..=3 {
        let samples: Vec<(String, Samples)> = sim::samples(&scenario, seed)?;
        let of_flow = samples.iter().filter(|(name, _)| name == flow);
        delays.extend(of_flow.flat_map(|(_, samples)| samples.delays(SETTLED..Nanos::MAX)));
    }
    Ok(stats::delay(delays))
}

fn pair(case: &'static str) -> Result<Pair> {
    let image = |size: &str, every: &str| {
        format!(
            "  - {{ name: it, from: robot, to: base, size: {size}, every: {every}, keep_last: 10, priority: 50, links: stripe }}\n"
        )
    };
    let fast = "rate: 20Mbps, delay: 5ms";
    let both = |pipes: [&str; 2], flows: &str| -> Result<[Option<Delay>; 2]> {
        Ok([
            delay_of(&two_links(pipes, true, flows, ""), "it")?,
            delay_of(&two_links(pipes, false, flows, ""), "it")?,
        ])
    };
    let ratio = |one: Option<Delay>, two: Option<Delay>, most: f64, of: fn(Delay) -> f64| {
        one.zip(two).is_some_and(|(one, two)| of(two) <= most * of(one))
    };
    Ok(match case {
        EQUAL_LINKS => {
            let [one, two] = both([fast, fast], &image("2MB", "2s"))?;
            let reached = ratio(one, two, EQUAL, |delay| delay.p50);
            Pair { case, one, two, allowed: EQUAL, reached }
        }
        UNEVEN_LINKS => {
            let flows = image("61KB", "200ms");
            let [one, two] = both([fast, "rate: 20Mbps, delay: 150ms"], &flows)?;
            let reached = ratio(one, two, UNEVEN, |delay| delay.p99);
            Pair { case, one, two, allowed: UNEVEN, reached }
        }
        _ => {
            let flows = "  - { name: it, from: robot, to: base, size: 1KB, every: 20ms, keep_last: 10, priority: 150 }\n  \
                         - { name: bulk, from: robot, to: base, size: 61KB, every: 150ms, priority: 20, keep_last: 1 }\n";
            let pipes = ["rate: 6Mbps, delay: 1ms", "rate: 6Mbps, delay: 1ms"];
            let block = "events:\n  - { at: 20s, rate: { network: a, to: 1kbps } }\n";
            let one = delay_of(&two_links(pipes, true, flows, ""), "it")?;
            let two = delay_of(&two_links(pipes, false, flows, block), "it")?;
            let reached = one.zip(two).is_some_and(|(one, two)| two.p99 <= one.p99 + BLOCKED_MS);
            Pair { case, one, two, allowed: BLOCKED_MS, reached }
        }
    })
}

const EQUAL_LINKS: &str = "2 MB over one of two equal links, and striped over both";
const UNEVEN_LINKS: &str = "61 KB over the link of 5 ms, and striped over links of 5 and 150 ms";
const BLOCKED_LINK: &str =
    "1 KB alongside bulk data over one link, and over two of which one blocks";
const PAIRS: [&str; 3] = [EQUAL_LINKS, UNEVEN_LINKS, BLOCKED_LINK];

/// All figures.
#[derive(Debug, Serialize)]
struct Figures {
    rcom: Vec<Images>,
    pairs: Vec<Pair>,
}

/// Runs all cases; exit code 3 if a target is missed. With `--docs`, also draws the links over
/// time.
pub fn run(written: &Written) -> Result<ExitCode> {
    let cases: Vec<(u64, System)> =
        OFFERED_HZ.into_iter().flat_map(|hz| System::ALL.map(|system| (hz, system))).collect();
    let words = cases.iter().map(|(hz, system)| format!("{hz} Hz, {}", system.words()));
    let drawn = written.docs().map_or(Vec::new(), |_| series::SYSTEMS.to_vec());
    let over_time = drawn.iter().map(|system| format!("over time, {}", system.words()));
    let words = words.chain(PAIRS.map(str::to_owned)).chain(over_time);
    let progress = Progress::new(words.map(|words| (words, EXPECTED)).collect());
    let rcom = parallel::run(&progress, cases, |(hz, system)| images(hz, system))?;
    let pairs = parallel::run(&progress, PAIRS.to_vec(), pair)?;
    let series = parallel::run(&progress, drawn, series::run)?.concat();
    progress.finish();
    let figures = Figures { rcom, pairs };
    if let Some(folder) = written.docs() {
        series::write_docs(&series, folder)?;
    }
    super::conclude(&figures, written.json, &figures.to_text(), figures.missed_targets().is_empty())
}

impl Figures {
    /// Returns the targets that are missed.
    fn missed_targets(&self) -> Vec<String> {
        let of = |system| {
            let mut rows = self.rcom.iter().filter(|row| row.offered_hz == OFFERED_HZ[1]);
            rows.find(|row| row.system == system)
        };
        let mut missed = Vec::new();
        if let (Some(ours), Some(aid), Some(fixed)) =
            (of(System::Stripe), of(System::Aid), of(System::Fixed))
        {
            if ours.of_goodput < LEAST_GOODPUT || ours.images_per_s <= aid.images_per_s {
                missed.push(format!("stripe carries {:.2} of the goodput", ours.of_goodput));
            }
            if ours.packets_per_image >= fixed.packets_per_image {
                missed.push("stripe sends more packets per image than fixed rates".into());
            }
        }
        missed.extend(self.pairs.iter().filter(|it| !it.reached).map(|it| it.case.to_owned()));
        missed
    }

    fn to_text(&self) -> String {
        let rcom = table::markdown(
            &self.rcom,
            &[
                column("offered Hz", |row: &Images| row.offered_hz.to_string()),
                column("system", |row| row.system.words().into()),
                column("images/s", |row| format!("{:.1}", row.images_per_s)),
                column("in the paper", |row| {
                    row.paper_per_s.map_or("–".into(), |per_s| per_s.to_string())
                }),
                column("packets per image", |row| format!("{:.1}", row.packets_per_image)),
                column("airtime % of 1.5, 11 and 54 Mbps", |row| {
                    row.airtime_percent.map(|percent| format!("{percent:.0}")).join(" / ")
                }),
                column("% of the goodput", |row| format!("{:.1}", row.of_goodput * 100.0)),
            ],
        );
        let pairs = table::markdown(
            &self.pairs,
            &[
                column("case", |row: &Pair| row.case.into()),
                column("one link, p50 / p99 ms", |row| ms(row.one)),
                column("two links, p50 / p99 ms", |row| ms(row.two)),
                column("", |row| if row.reached { "reached" } else { "missed" }.into()),
            ],
        );
        let missed: String =
            self.missed_targets().iter().map(|it| format!("missed: {it}\n")).collect();
        format!("{rcom}\n{pairs}\n{missed}")
    }
}

fn ms(delay: Option<Delay>) -> String {
    delay.map_or("–".into(), |it| format!("{:.1} / {:.1}", it.p50, it.p99))
}
