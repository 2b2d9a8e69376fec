// SPDX-License-Identifier: Apache-2.0
//! Two links between two robots with real ROS, one of which fails for some seconds: unplugged, mute
//! without any sign, or blocked in the driver.

use crate::rig::clock::monotonic_ns;
use crate::rig::output::Output;
use crate::rig::output::name_in_reports;
use crate::rig::processes::make_folder;
use crate::rig::progress::Progress;
use crate::rig::stats::{Delay, Samples, Summary, delay};
use crate::rig::table::{self, bar, figure, left, right};
use crate::rig::verdict::{Bound, Conclusion, Verdict, verdict_lines};
use crate::setup::daemon::{Daemon, DaemonSetup, write_statuses};
use crate::setup::flows::{ALL, Flow};
use crate::setup::load::{COUNTDOWN, Load};
use crate::setup::ros;
use crate::setup::world::{Link, LinkLimits, Pair, SecondLink};
use anyhow::Result;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Name on the command line.
pub const NAME: &str = "links";

const LIMITS: LinkLimits = LinkLimits { rate_bps: Some(6_000_000), loss: 0.0 };
/// Publishing before the failure, during it, and after it.
const PHASES: [Duration; 3] =
    [Duration::from_secs(8), Duration::from_secs(8), Duration::from_secs(6)];
/// Messages before this time do not count: the rate of the links is not known yet.
const SETTLING: Duration = Duration::from_secs(2);
const START_TIME: Duration = Duration::from_secs(12);
/// Longest gap between two commands: one and a half periods.
const COMMAND_GAP_MS: Bound = Bound::AtMost(30.0);
/// Longest delay of a message: by then, everything is on the other link.
const LATEST_MS: Bound = Bound::AtMost(200.0);
/// Only the image that is being sent may be lost.
const IMAGES_LOST: Bound = Bound::AtMost(1.0);
/// Messages of the other flows that may be lost.
const NONE_LOST: Bound = Bound::AtMost(0.0);
/// Longest time from the return of the link until both links carry images again.
const BACK_S: Bound = Bound::AtMost(1.0);
/// A message counts as delayed if its delay exceeds the p99 over one link by more than this.
const ADDED_MS: f64 = 1.0;
/// Number of messages that may be delayed: the driver of a blocked link holds one.
const DELAYED: Bound = Bound::AtMost(1.0);

/// How the first link fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The cable is unplugged: both kernels lose the carrier.
    Unplugged,
    /// All packets are lost, in both directions, and nothing shows it.
    Mute,
    /// The robot's driver sends nothing, and is not down.
    Blocked,
}

impl Failure {
    const ALL: [Self; 3] = [Self::Unplugged, Self::Mute, Self::Blocked];

    fn name(self) -> String {
        name_in_reports(self)
    }

    fn begin(self, pair: &Pair) -> Result<()> {
        match self {
            Self::Unplugged => pair.base.carrier(false),
            Self::Mute => [&pair.robot, &pair.base].into_iter().try_for_each(|it| it.mute(true)),
            Self::Blocked => pair.robot.block(),
        }
    }

    fn end(self, pair: &Pair) -> Result<()> {
        match self {
            Self::Unplugged => pair.base.carrier(true),
            Self::Mute => [&pair.robot, &pair.base].into_iter().try_for_each(|it| it.mute(false)),
            Self::Blocked => pair.robot.unblock(LIMITS),
        }
    }
}

/// When the link failed and when it returned, ns.
#[derive(Debug, Clone, Copy)]
struct Times {
    first: u64,
    failed: u64,
    returned: u64,
    end: u64,
}

/// Figures of one flow with one failure.
#[derive(Debug, Serialize)]
struct Figures {
    failure: Failure,
    flow: Flow,
    sent: usize,
    lost: usize,
    before_ms: Option<Delay>,
    /// Messages of the first second of the failure that are later than the p99 over one link by more
    /// than 1 ms.
    delayed: Option<usize>,
    during_ms: Option<Delay>,
    /// Longest time between two arrivals during the failure and after it.
    gap_ms: f64,
    /// Time from the return until a message is as fast as over two links; of images only.
    back_s: Option<f64>,
}

#[derive(Serialize)]
struct AllFigures<'a> {
    figures: &'a [Figures],
}

/// Runs the case.
pub fn run(setup: &DaemonSetup, output: &Output) -> Result<Conclusion> {
    let time: Duration = PHASES.iter().sum();
    let names = Failure::ALL.map(Failure::name);
    let progress = output.progress(&names.each_ref().map(|name| (&**name, START_TIME + time)));
    let mut figures = Vec::new();
    for failure in Failure::ALL {
        let folder = output.folder.join(failure.name());
        figures.extend(measure(setup, failure, &folder, &progress)?);
        progress.enter_next();
    }
    progress.finish();
    let verdicts: Vec<Verdict> = figures.iter().flat_map(judge).collect();
    let words = format!(
        " two links of 6 Mbps, full duplex; the first one fails for {} s\n{}{}{}\n",
        PHASES[1].as_secs(),
        table(&figures),
        verdict_lines(&verdicts),
        output.raw_line(),
    );
    output.conclude(AllFigures { figures: &figures }, verdicts, &words)
}

fn measure(
    setup: &DaemonSetup,
    failure: Failure,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<Figures>> {
    make_folder(folder)?;
    let pair = Pair::new(Link::Wire(LIMITS), 1)?;
    let second = SecondLink::join(&pair, LIMITS)?;
    let masters = ros::masters(&pair, folder)?;
    let mut daemons = setup.start_with(&pair, &second, folder)?;
    let mut load = Load::start_with_own_masters(&ALL, &pair, folder)?;
    progress.say(&format!("{}: counting", failure.name()));
    let time: Duration = PHASES.iter().sum();
    let first = load.begin(time)?;
    let sleep_until = |at: u64| {
        std::thread::sleep(Duration::from_nanos(at.saturating_sub(monotonic_ns())));
        monotonic_ns()
    };
    let after = |at: u64, phase: Duration| at + phase.as_nanos() as u64;
    let failed = sleep_until(after(first, PHASES[0]));
    failure.begin(&pair)?;
    let returned = sleep_until(after(failed, PHASES[1]));
    failure.end(&pair)?;
    load.await_published(time + COUNTDOWN)?;
    load.drain(time)?;
    write_statuses(&daemons, folder)?;
    load.write()?;
    daemons.iter_mut().try_for_each(Daemon::end)?;
    drop(masters);
    let times = Times { first, failed, returned, end: after(first, time) };
    ALL.into_iter()
        .map(|flow| Ok(flow_figures(failure, flow, &ros::samples(folder, flow)?, times)))
        .collect()
}

fn flow_figures(failure: Failure, flow: Flow, samples: &Samples, times: Times) -> Figures {
    let Times { first, failed, returned, end } = times;
    let settling = SETTLING.as_nanos() as u64;
    let before_ms = delay(samples.delays(first + settling..failed));
    // Messages sent shortly before the return may arrive after it.
    let calm = returned - settling;
    let during_ms = delay(samples.delays(failed..calm));
    let second = failed + 1_000_000_000;
    let settled_ms = delay(samples.delays(second..calm));
    let mut received: Vec<u64> = samples.arrivals.iter().map(|it| it.received_ns).collect();
    received.sort_unstable();
    let gaps = received.windows(2).filter(|pair| pair[1] >= failed && pair[0] < end);
    let gap_ms = gaps.map(|pair| (pair[1] - pair[0]) as f64 / 1e6).fold(0.0, f64::max);
    let Summary { sent, received: distinct, .. } = samples.summary(None);
    let middle = before_ms.zip(during_ms).map(|(before, during)| (before.p50 + during.p50) / 2.0);
    let back = middle.filter(|_| flow == Flow::Image).and_then(|middle| {
        let mut fast = samples.arrivals.iter().filter(|it| it.sent_ns >= returned);
        fast.find(|it| it.delay_ms() < middle).map(|it| it.received_ns)
    });
    Figures {
        failure,
        flow,
        sent,
        lost: sent.saturating_sub(distinct),
        before_ms,
        delayed: settled_ms.map(|usual| {
            let delays = samples.delays(failed..second).into_iter();
            delays.filter(|ms| *ms > usual.p99 + ADDED_MS).count()
        }),
        during_ms,
        gap_ms,
        back_s: back.map(|at| (at - returned) as f64 / 1e9),
    }
}

fn judge(figures: &Figures) -> Vec<Verdict> {
    let what = |text: &str| format!("{}: {} {text}", figures.failure.name(), figures.flow.name());
    let latest = figures.during_ms.map(|delay| delay.max);
    let lost = Some(figures.lost as f64);
    match figures.flow {
        Flow::Command => vec![
            NONE_LOST.judge(what("lost"), lost, "messages"),
            COMMAND_GAP_MS.judge(what("longest gap"), Some(figures.gap_ms), "ms"),
        ],
        Flow::Laser => {
            let mut verdicts = vec![
                NONE_LOST.judge(what("lost"), lost, "messages"),
                LATEST_MS.judge(what("latest"), latest, "ms"),
            ];
            if figures.failure == Failure::Blocked {
                let delayed = figures.delayed.map(|count| count as f64);
                let text = what("delayed by more than 1 ms in the first second");
                verdicts.push(DELAYED.judge(text, delayed, "messages"));
            }
            verdicts
        }
        Flow::Image => vec![
            IMAGES_LOST.judge(what("lost"), lost, "messages"),
            BACK_S.judge(what("over both links again"), figures.back_s, "s"),
        ],
    }
}

fn table(figures: &[Figures]) -> String {
    table::format_rows(
        figures,
        &[
            left("first link", 9, |it: &Figures| it.failure.name()),
            left("topic", 7, |it| it.flow.name()),
            right("sent", 5, |it| it.sent.to_string()),
            right("lost", 4, |it| it.lost.to_string()),
            bar(),
            right("before p50", 10, |it| figure(it.before_ms, |delay| delay.p50, 1)),
            right("p99 ms", 6, |it| figure(it.before_ms, |delay| delay.p99, 1)),
            bar(),
            right("failed p50", 10, |it| figure(it.during_ms, |delay| delay.p50, 1)),
            right("p99", 6, |it| figure(it.during_ms, |delay| delay.p99, 1)),
            right("max ms", 6, |it| figure(it.during_ms, |delay| delay.max, 1)),
            bar(),
            right("gap ms", 6, |it| format!("{:.1}", it.gap_ms)),
            right("back s", 6, |it| it.back_s.map_or("-".into(), |s| format!("{s:.2}"))),
        ],
    )
}
