// SPDX-License-Identifier: Apache-2.0
//! Tables about formulas and experiment 9.

use super::data::{self, SCAN_BYTES};
use super::formula::{CSLV_BYTES_PER_S, Formula};
use super::judge::{Accuracy, Judged, Model, Test};
use super::ninth::{Computers, Limit, Point, Team};
use super::single::{self, Pair};
use super::{Report, Set};
use crate::rig::stats::middle;
use crate::rig::table::{column, markdown, or_dash};
use crate::sim::team::Transport;
use std::collections::BTreeSet;

/// Rows of the table of the largest errors.
const WORST: usize = 6;

/// Returns each table with its name in the page.
pub fn all(report: &Report) -> Vec<(&'static str, String)> {
    vec![
        ("limits", limits(&report.single)),
        ("formulas", formulas(&report.sets)),
        ("parameters", parameters(&report.sets)),
        ("pairs", pairs(&report.sets)),
        ("worst", worst(&report.thesis)),
        ("ninth", ninth(&report.ninth)),
        ("at-the-limit", at_the_limit(&report.ninth)),
    ]
}

/// What limits one sender and one echoer in the thesis.
fn limits(pairs: &[Pair]) -> String {
    let columns = [
        column("link", |it: &Pair| it.link.into()),
        column("contents", |it| it.contents.into()),
        column("bytes", |it| it.bytes.to_string()),
        column("clock", |it| format!("{} %", it.cpu_percent)),
        column("most, messages/s", |it| format!("{:.0}", it.most_per_s)),
        column("ms each", |it| format!("{:.2}", it.time_ms())),
        column("MB/s", |it| format!("{:.2}", it.bytes_per_s() / 1e6)),
        column("limit", |it| match it.limit {
            single::Limit::Processor => "processor".into(),
            single::Limit::Link => "link".into(),
        }),
    ];
    markdown(pairs, &columns)
}

fn formulas(sets: &[Set]) -> String {
    let lines: Vec<(&Set, &Test)> =
        sets.iter().flat_map(|set| set.tests.iter().map(move |test| (set, test))).collect();
    let lines: Vec<_> = lines.into_iter().filter(|(_, test)| test.all.is_some()).collect();
    type Line<'a> = (&'a Set, &'a Test);
    let columns = [
        column("rows", |(set, _): &Line| set.name.clone()),
        column("formula", |(_, test)| test.model.words()),
        column("predicted from", |(_, test)| test.test.into()),
        column("rows (overloaded)", |(_, test)| {
            let count = |it: Option<Accuracy>| it.map_or(0, |it| it.rows);
            format!("{} ({})", count(test.all), count(test.overloaded))
        }),
        column("echoes/s, %", |(_, test)| both(test, |it| it.echoed.median)),
        column("round trip, %", |(_, test)| both(test, |it| it.rtt.median)),
        column("90th percentile of round trip, %", |(_, test)| both(test, |it| it.rtt.p90)),
    ];
    markdown(&lines, &columns)
}

/// Formats an error of all rows, and of those beyond capacity.
fn both(test: &Test, of: fn(Accuracy) -> f64) -> String {
    let one = |it: Option<Accuracy>| or_dash(it.map(of), 1);
    format!("{} ({})", one(test.all), one(test.overloaded))
}

/// The fitted parameters of sets whose rows show a limit.
fn parameters(sets: &[Set]) -> String {
    let columns = [
        column("rows", |it: &&Set| it.name.clone()),
        column("number (overloaded)", |it| format!("{} ({})", it.rows, it.overloaded)),
        column("one pair, messages/s", |it| {
            let per_s = it.formula.as_ref().map(|formula| formula.capacity(1, SCAN_BYTES));
            or_dash(per_s, 0)
        }),
        column("k", |it| or_dash(it.formula.as_ref().map(|formula| formula.k), 3)),
        column("round trip without a queue, ms", |it| {
            let bases = it.formula.iter().flat_map(|formula| &formula.sizes);
            let bases = bases.filter_map(|size| Some(format!("{:.1}", size.base_ms?)));
            bases.collect::<Vec<_>>().join(", ")
        }),
    ];
    let with_limit: Vec<&Set> = sets.iter().filter(|set| set.formula.is_some()).collect();
    markdown(&with_limit, &columns)
}

/// How many pairs fit at a frequency: measured by the thesis, and by the formulas.
fn pairs(sets: &[Set]) -> String {
    struct Line {
        hz: f64,
        accepted: Option<usize>,
        refused: Option<usize>,
        cslv: usize,
        ours: usize,
    }
    let Ok([bare, _]) = data::thesis() else { return String::new() };
    let Ok(cslv) = Model::Cslv.formula(&bare.rows) else { return String::new() };
    let Some(ours) = &sets[0].formula else { return String::new() };
    let frequencies: BTreeSet<u64> = bare.rows.iter().map(|it| it.frequency_hz.to_bits()).collect();
    let line = |hz: f64| {
        let own = || bare.rows.iter().filter(move |it| it.frequency_hz == hz);
        let most = |formula: &Formula| formula.most_pairs(SCAN_BYTES, hz, 1.0);
        Line {
            hz,
            accepted: own().filter(|it| it.is_acceptable()).map(|it| it.pairs).max(),
            refused: own().filter(|it| !it.is_acceptable()).map(|it| it.pairs).min(),
            cslv: most(&cslv),
            ours: most(ours),
        }
    };
    let lines: Vec<Line> = frequencies.into_iter().map(f64::from_bits).map(line).collect();
    let columns = [
        column("Hz", |it: &Line| it.hz.to_string()),
        column("pairs that the thesis accepted", |it| or_dash(it.accepted.map(|n| n as f64), 0)),
        column("pairs that failed", |it| or_dash(it.refused.map(|n| n as f64), 0)),
        column("CSLV", |it| it.cslv.to_string()),
        column("C(N, S)", |it| it.ours.to_string()),
    ];
    markdown(&lines, &columns)
}

/// The rows with the largest errors of the round trip.
fn worst(judged: &[Judged]) -> String {
    let mut sorted: Vec<&Judged> = judged.iter().collect();
    sorted.sort_by(|one, other| other.rtt_error().total_cmp(&one.rtt_error()));
    sorted.truncate(WORST);
    let columns = [
        column("pairs", |it: &&Judged| it.row.pairs.to_string()),
        column("Hz", |it| it.row.frequency_hz.to_string()),
        column("load, % of the capacity", |it| format!("{:.0}", 100.0 * it.predicted.load)),
        column("echoes/s, measured", |it| format!("{:.0}", it.row.echoed_per_s)),
        column("predicted", |it| format!("{:.0}", it.predicted.echoed_per_s)),
        column("round trip, ms, measured", |it| format!("{:.0}", it.row.rtt_ms)),
        column("predicted", |it| format!("{:.0}", it.predicted.rtt_ms)),
        column("error, %", |it| format!("{:.0}", it.rtt_error())),
    ];
    markdown(&sorted, &columns)
}

/// The climbs of one team and transport with all seeds.
struct Climbs<'a> {
    team: Team,
    pairs: usize,
    /// By seed: the highest load that was held, and the next one.
    limits: Vec<[Option<&'a Point>; 2]>,
}

impl<'a> Climbs<'a> {
    fn of(team: Team, points: &'a [Point]) -> Self {
        let own: Vec<&Point> = points.iter().filter(|it| it.team == team).collect();
        let seeds: BTreeSet<u64> = own.iter().map(|it| it.seed).collect();
        let limit = |seed: u64| {
            let mut climb: Vec<&Point> = own.iter().copied().filter(|it| it.seed == seed).collect();
            climb.sort_by(|one, other| one.frequency_hz.total_cmp(&other.frequency_hz));
            let good = climb.iter().take_while(|it| it.is_held()).count();
            [good.checked_sub(1).map(|last| climb[last]), climb.get(good).copied()]
        };
        let pairs = own.first().map_or(0, |it| it.pairs);
        Self { team, pairs, limits: seeds.into_iter().map(limit).collect() }
    }

    /// Returns the highest held frequencies, the lowest first; 0 where none was held.
    fn highest(&self) -> Vec<f64> {
        let of = |it: &[Option<&Point>; 2]| it[0].map_or(0.0, |point| point.frequency_hz);
        let mut all: Vec<f64> = self.limits.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Returns the median and, if the seeds differ, the range.
    fn words(&self) -> String {
        let all = self.highest();
        let (Some(low), Some(high)) = (all.first(), all.last()) else { return "-".into() };
        let [low, middle, high] = [*low, middle(&all), *high].map(hertz);
        let range = if low == high { String::new() } else { format!(" ({low} to {high})") };
        middle + &range
    }

    /// Names what limited the next load; of several seeds, each limit once.
    fn limit_words(&self) -> String {
        let limits = self.limits.iter().filter_map(|it| it[1]);
        let limits = limits.flat_map(|it| it.limits.iter().map(kind_of));
        let words: BTreeSet<&str> = limits.collect();
        words.into_iter().collect::<Vec<_>>().join(", ")
    }
}

/// Names a limit without the number of the program.
fn kind_of(limit: &Limit) -> &'static str {
    match limit {
        Limit::Process(name) if name.starts_with("sender") => "CPU of a sender",
        Limit::Process(name) if name.starts_with("echoer") => "CPU of an echoer",
        Limit::Process(_) => "CPU of a daemon",
        Limit::Airtime => "airtime",
        Limit::Queue => "queue",
    }
}

/// One team with its three transports.
struct Row<'a> {
    tcp: Climbs<'a>,
    nodelay: Climbs<'a>,
    tautline: Climbs<'a>,
}

impl Row<'_> {
    /// Returns Tautline's highest frequency as a multiple of the better one of plain ROS 1.
    fn ratio(&self) -> Option<f64> {
        let [tcp, nodelay, tautline] =
            [&self.tcp, &self.nodelay, &self.tautline].map(|it| middle(&it.highest()));
        let plain = tcp.max(nodelay);
        (plain > 0.0).then(|| tautline / plain)
    }
}

fn rows(points: &[Point]) -> Vec<Row<'_>> {
    let keys: BTreeSet<(Computers, usize, usize)> =
        points.iter().map(|it| (it.team.computers, it.team.nodes, it.team.hosts)).collect();
    let row = |(computers, nodes, hosts)| {
        let of = |transport| Climbs::of(Team { transport, computers, hosts, nodes }, points);
        let [tcp, nodelay, tautline] =
            [Transport::Tcp, Transport::TcpNodelay, Transport::Tautline].map(of);
        Row { tcp, nodelay, tautline }
    };
    keys.into_iter().map(row).collect()
}

/// The highest held frequency by hosts and nodes.
fn ninth(points: &[Point]) -> String {
    let columns = [
        column("computers", |it: &Row| it.tcp.team.computers.words().into()),
        column("nodes on each host", |it| it.tcp.team.nodes.to_string()),
        column("hosts", |it| it.tcp.team.hosts.to_string()),
        column("pairs", |it| it.tcp.pairs.to_string()),
        column("ROS 1, Hz", |it| it.tcp.words()),
        column("with TCP_NODELAY", |it| it.nodelay.words()),
        column("Tautline", |it| it.tautline.words()),
        column("Tautline over ROS 1", |it| or_dash(it.ratio(), 2)),
        column("limit of ROS 1", |it| it.tcp.limit_words()),
        column("limit of Tautline", |it| it.tautline.limit_words()),
        column("CSLV, Hz", |it| {
            let per_s = CSLV_BYTES_PER_S / SCAN_BYTES as f64;
            format!("{:.1}", per_s / it.tcp.pairs as f64)
        }),
    ];
    markdown(&rows(points), &columns)
}

/// What was measured at the first load that was not held: plain ROS 1 and Tautline on the thesis's
/// computers, by the first seed.
fn at_the_limit(points: &[Point]) -> String {
    let mut rows = rows(points);
    rows.retain(|it| it.tcp.team.computers == Computers::Thesis);
    let climbs = rows.iter().flat_map(|it| [&it.tcp, &it.tautline]);
    let lines: Vec<(Team, &Point)> =
        climbs.filter_map(|it| Some((it.team, it.limits.first()?[1]?))).collect();
    type Line<'a> = (Team, &'a Point);
    let columns = [
        column("system", |(team, _): &Line| system(team.transport).into()),
        column("nodes", |(team, _)| team.nodes.to_string()),
        column("hosts", |(team, _)| team.hosts.to_string()),
        column("Hz", |(_, it)| hertz(it.frequency_hz)),
        column("returned, %", |(_, it)| format!("{:.1}", it.echoed_percent)),
        column("mean ms", |(_, it)| or_dash(it.rtt_ms.map(|rtt| rtt.mean), 0)),
        column("channel wanted, %", |(_, it)| format!("{:.0}", it.wanted_percent)),
        column("on the air, %", |(_, it)| format!("{:.0}", it.busy_percent)),
        column("failed attempts, %", |(_, it)| format!("{:.0}", it.failed_percent)),
        column("busiest program", |(_, it)| {
            let busiest = it.busiest.as_ref().filter(|(_, percent)| *percent > 0.0);
            busiest.map_or("-".into(), |(name, percent)| format!("{name}, {percent:.0} %"))
        }),
        column("messages in queues", |(_, it)| it.queued.to_string()),
    ];
    markdown(&lines, &columns)
}

/// Formats a frequency of R20, which has at most two decimals.
fn hertz(hz: f64) -> String {
    ((hz * 100.0).round() / 100.0).to_string()
}

fn system(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "ROS 1",
        Transport::TcpNodelay => "ROS 1, TCP_NODELAY",
        Transport::Tautline => "Tautline",
    }
}
