// SPDX-License-Identifier: Apache-2.0
//! `tautline plan`.

mod plot;

use super::words::{UNKNOWN, bytes, format_si, milliseconds};
use super::{Failure, output};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use tautline::config::{self, channel};
use tautline::status::Status;
use tautline_plan::inputs::{Expectation, Inputs, MeasuredDelay, RobotFile, UNKNOWN_RATE_OR_SIZE};
use tautline_plan::{
    Axis, OutageEffect, RadioShare, Radios, ReducedTopic, Team, TeamPlan, TopicPlan, Traffic,
    Waiting, WorstCase,
};

/// Maximum bytes of a snapshot of a daemon.
const MAX_SNAPSHOT: u64 = 16 << 20;
/// What the figures assume.
const ASSUMPTIONS: &[&str] = &[
    "all robots on a radio hear each other, and all messages use these radios",
    "every peer that a rule allows wants its topics",
    "messages come at their rate, each as large as expected",
    "no other network uses the channel",
    "no packet needs more attempts than ATTEMPTS; one message in a thousand may",
];

/// What the figures assume about several radios.
const ASSUMPTIONS_OF_LINKS: &[&str] = &[
    "all links are up; a topic with `best` uses the one with the least delay that has room for it",
    "the parts of a striped message are chosen so that they arrive together",
    "metered links, and those of avoid_links, carry a topic only while no other link can",
];

/// Arguments of `tautline plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tautline plan base.yaml robot1.yaml --radio wifi:6Mbps\n  \
                  tautline plan robot1.yaml --radio line:2Mbps,delay=40ms --expect /scan=10Hz,4kB\n  \
                  tautline status --json > base.json; tautline plan --from base.json --radio wifi:24Mbps\n  \
                  tautline plan base.yaml robot1.yaml --radio wifi:6Mbps --plot delays.svg\n  \
                  tautline plan robot1.yaml --radio wlan0=wifi:24Mbps --radio wwan0=line:5Mbps,delay=40ms\n\n\
                  Rates and sizes come from --expect, from a snapshot of a running daemon, or from the\n\
                  file (topics: /scan: { expect: { rate: 10Hz, size: 4kB } }).\n\n\
                  Exit code: 0 if everything fits, 3 if not, 1 for an error.")]
pub struct Arguments {
    /// The robots' files
    files: Vec<PathBuf>,
    /// The radio: wifi:RATE[,dcf][,loss=SHARE] or line:RATE[,delay=TIME][,loss=SHARE][,shared];
    /// several as INTERFACE[,INTERFACE...]=RADIO each [default: `channel` of the radios in the files]
    #[arg(long, value_name = "RADIO")]
    radio: Vec<String>,
    /// A snapshot of a running daemon (`tautline status --json`), or - for standard input; two of
    /// one daemon measure the time between them
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Rate and size of a topic: [NODE:]TOPIC=RATE,SIZE
    #[arg(long, value_name = "EXPECTATION")]
    expect: Vec<String>,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
    /// Draw worst-case and typical delay of each topic against the load, as SVG
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Draw them against the number of robots like this one
    #[arg(long, value_name = "NODE", requires = "plot")]
    plot_robots: Option<String>,
}

/// Exit code if something does not fit.
const EXIT_DOES_NOT_FIT: u8 = 3;

pub fn plan(arguments: &Arguments) -> Result<(), Failure> {
    let inputs = read_inputs(arguments)?;
    let radios = match arguments.radio.is_empty() {
        true => Radios::from_files(inputs.files.iter().map(|it| &it.config)),
        false => Radios::from_options(&arguments.radio),
    };
    let radios = radios.map_err(Failure::new)?;
    let traffic = inputs.traffic(&radios).map_err(missing_values)?;
    let team = Team { radios: radios.as_slice().to_vec(), traffic };
    if let Some(path) = &arguments.plot {
        draw(&team, path, arguments.plot_robots.as_deref())?;
    }
    let plan = team.plan();
    let measured = inputs.delays();
    let shown = match arguments.json {
        true => output::print_json(&json!({
            "radios": team.radios.iter().map(|it| json!({
                "radio": it.name,
                "channel": channel::words(&it.channel),
            })).collect::<Vec<_>>(),
            "plan": plan,
            "measured": measured,
            "notes": inputs.notes(),
            "assumptions": assumptions(&team),
        })),
        false => output::print(&in_words(&team, &plan, &measured, &inputs.notes())),
    };
    shown?;
    if plan.fits { Ok(()) } else { Err(Failure::with_code(EXIT_DOES_NOT_FIT, "")) }
}

fn draw(team: &Team, path: &Path, robot: Option<&str>) -> Result<(), Failure> {
    let axis = match robot {
        None => Axis::Load,
        Some(name) if team.traffic.iter().any(|it| it.from == name || it.to == name) => {
            Axis::Robots(name.to_owned())
        }
        Some(name) => {
            let ends = team.traffic.iter().flat_map(|it| [&*it.from, &*it.to]);
            let names: BTreeSet<&str> = ends.collect();
            let names: Vec<&str> = names.into_iter().collect();
            return Err(Failure::new(format!(
                "--plot-robots {name}: the plan has no node of this name; allowed are {}",
                names.join(", ")
            )));
        }
    };
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("--plot {}: {error}", path.display()));
    let radios: Vec<String> = team.radios.iter().map(|it| channel::words(&it.channel)).collect();
    let against = if matches!(axis, Axis::Load) { "the load" } else { "the number of robots" };
    let title = format!("{}: delay against {against}", radios.join(" and "));
    if path.extension().is_none_or(|it| it != "svg") {
        return Err(failed(&"the picture is an SVG; give a name that ends in .svg"));
    }
    let sweep = team.sweep(&axis);
    if sweep.points.iter().flat_map(|it| &it.topics).all(|it| it.worst_ms.is_none()) {
        return Err(failed(&"nothing to draw, since no delay has a bound even at the lowest load"));
    }
    let text = plot::svg(&title, &axis, &sweep).map_err(|error| failed(&error))?;
    std::fs::write(path, text).map_err(|error| failed(&error))
}

fn assumptions(team: &Team) -> Vec<&'static str> {
    let links = if team.radios.len() > 1 { ASSUMPTIONS_OF_LINKS } else { &[] };
    [ASSUMPTIONS, links].concat()
}

fn missing_values(missing: Vec<String>) -> Failure {
    let mut text = "the plan needs more:".to_owned();
    missing.iter().for_each(|it| text += &format!("\n  {it}"));
    if missing.iter().any(|it| it.ends_with(UNKNOWN_RATE_OR_SIZE)) {
        text += "\nGive rate and size by --expect TOPIC=RATE,SIZE, by --from SNAPSHOT of the running robot,\n\
                 or in the file: topics: TOPIC: { expect: { rate: 10Hz, size: 4kB } }";
    }
    Failure::new(text)
}

fn read_inputs(arguments: &Arguments) -> Result<Inputs, Failure> {
    let file = |path: &PathBuf| {
        let config = config::load(path).map_err(Failure::new)?.config;
        Ok(RobotFile { path: path.display().to_string(), config })
    };
    let expectations = arguments.expect.iter().map(|it| Expectation::parse(it));
    Ok(Inputs {
        files: arguments.files.iter().map(file).collect::<Result<_, Failure>>()?,
        snapshots: arguments.from.iter().map(|it| read_snapshot(it)).collect::<Result<_, _>>()?,
        expectations: expectations.collect::<Result<_, _>>().map_err(Failure::new)?,
    })
}

fn read_snapshot(path: &Path) -> Result<Status, Failure> {
    let wrong =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(MAX_SNAPSHOT).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path).map_err(|error| wrong(&error))?;
        file.take(MAX_SNAPSHOT).read_to_string(&mut text)
    };
    read.map_err(|error| wrong(&error))?;
    let not_a_snapshot = |why: &dyn std::fmt::Display| {
        wrong(&format!("not a snapshot of this version's `tautline status --json`: {why}"))
    };
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|_| not_a_snapshot(&"it is not JSON"))?;
    serde_json::from_value(json).map_err(|error| not_a_snapshot(&error))
}

fn in_words(team: &Team, plan: &TeamPlan, measured: &[MeasuredDelay], notes: &[String]) -> String {
    let verdict = if plan.fits { "everything fits" } else { "not everything fits" };
    let mut text = String::new();
    for (radio, it) in team.radios.iter().zip(&plan.loads) {
        let load = it.load * 100.0;
        let _ = match team.radios.len() {
            1 => writeln!(
                text,
                "{}\nload {load:.0} % of what it carries: {verdict}",
                channel::words(&radio.channel)
            ),
            _ => writeln!(
                text,
                "{}: {}: load {load:.0} % of what it carries",
                it.radio,
                channel::words(&radio.channel)
            ),
        };
    }
    if team.radios.len() > 1 {
        let _ = writeln!(text, "{verdict}");
    }
    text += "\nTopics\n";
    let header = [
        "TOPIC",
        "FROM",
        "TO",
        "PRIORITY",
        "HZ",
        "SIZE",
        "AIR",
        "IDLE ms",
        "TYPICAL ms",
        "WORST ms",
        "ATTEMPTS",
        "FITS UP TO",
    ];
    let several = team.radios.len() > 1;
    text += &output::table(header, plan.topics.iter().map(|it| row(it, several)));
    for it in &plan.gives_way {
        let _ = write!(text, "\n{}", gives_way(plan, it));
    }
    if !plan.gives_way.is_empty() {
        text += "\nThe delays above are those of what is left.\n";
    }
    plan.topics.iter().for_each(|it| text += &lateness(it));
    if !measured.is_empty() {
        let header = ["TOPIC", "FROM", "TO", "MESSAGES", "P99 ms", "LONGEST ms", "WORST ms", ""];
        let rows = measured.iter().map(|it| measured_row(plan, it));
        let _ = write!(text, "\nMeasured delays\n{}", output::table(header, rows));
    }
    plan.without.iter().for_each(|it| text += &effect_of_outage(plan, it));
    let more = plan.more.iter().map(|it| format!("{} like {}", it.robots, it.like));
    let more: Vec<String> = more.collect();
    if !more.is_empty() {
        let _ = writeln!(text, "\nMore robots that would fit: {}.", more.join(", or "));
    }
    if !notes.is_empty() {
        text += "\nNotes:\n";
        notes.iter().for_each(|it| text += &format!("  - {it}\n"));
    }
    text += "\nThis assumes:\n";
    assumptions(team).iter().for_each(|it| text += &format!("  - {it}\n"));
    text
}

/// Formats a rate, rounded down to three digits so that it still fits.
fn rounded_down(hz: f64) -> String {
    let scale = 10_f64.powf(2.0 - hz.log10().floor().max(0.0));
    format_si((hz * scale).floor() / scale)
}

/// Returns a line about a topic that fits but whose messages may be too late; empty for other topics.
fn lateness(it: &TopicPlan) -> String {
    let Traffic { topic, from, to, .. } = &it.traffic;
    let name = format!("{topic} from {from} to {to}");
    match (it.may_expire, it.worst_ms, it.traffic.lifespan) {
        (true, Some(worst), Some(lifespan)) => format!(
            "{name}: messages may expire: worst case {} ms, lifespan {} ms.\n",
            milliseconds(Some(worst)),
            lifespan.as_millis()
        ),
        (_, None, _) if it.least_ms.is_some() => format!(
            "{name}: the worst case has no bound: the radio is nearly full, and messages may wait and be dropped.\n"
        ),
        _ => String::new(),
    }
}

/// Describes what happens while a radio is down.
fn effect_of_outage(plan: &TeamPlan, it: &OutageEffect) -> String {
    let loads = it.loads.iter().map(|it| format!("{} {:.0} %", it.radio, it.load * 100.0));
    let loads: Vec<String> = loads.collect();
    let mut text = format!("\nWhile {} is down (load {}):\n", it.radio, loads.join(", "));
    for Waiting { topic, from, to } in &it.waits {
        let _ = writeln!(text, "  {topic} from {from} to {to} waits: no other link may carry it");
    }
    for it in &it.gives_way {
        let _ = writeln!(text, "  {}", gives_way(plan, it));
    }
    let differs = |topic: &&WorstCase| {
        let is_of = |it: &&TopicPlan| it.traffic.matches(&topic.from, &topic.to, &topic.topic);
        let planned = plan.topics.iter().find(is_of);
        planned.is_none_or(|it| milliseconds(it.worst_ms) != milliseconds(topic.worst_ms))
    };
    let changed: Vec<&WorstCase> = it.topics.iter().filter(differs).collect();
    if !changed.is_empty() {
        let row = |it: &&WorstCase| {
            let worst = it.worst_ms.map_or("unbounded".into(), |ms| milliseconds(Some(ms)));
            [format!("  {}", it.topic), it.from.clone(), it.to.clone(), worst]
        };
        let header = ["  TOPIC", "FROM", "TO", "WORST ms"];
        text += &output::table(header, changed.iter().map(row));
    }
    text
}

fn gives_way(plan: &TeamPlan, it: &ReducedTopic) -> String {
    let senders = plan.topics.iter().map(|it| &it.traffic).filter(|one| one.topic == it.topic);
    let of = match senders.into_iter().all(|one| it.from.contains(&one.from)) {
        true => String::new(),
        false => format!(" of {}", it.from.iter().cloned().collect::<Vec<_>>().join(", ")),
    };
    let left = match it.rate_hz {
        0.0 => "is not sent".into(),
        hz => format!("keeps {} of {} Hz", rounded_down(hz), format_si(it.asked_hz)),
    };
    format!("{}{of} gives way (priority {}): it {left}.", it.topic, it.priority)
}

fn measured_row(plan: &TeamPlan, it: &MeasuredDelay) -> [String; 8] {
    let is_it = |of: &&TopicPlan| of.traffic.matches(&it.from, &it.to, &it.topic);
    let worst_ms = plan.topics.iter().find(is_it).and_then(|it| it.worst_ms);
    let is_late = worst_ms.is_some_and(|worst| it.exceeds(worst));
    [
        it.topic.clone(),
        it.from.clone(),
        it.to.clone(),
        format_si(it.messages as f64),
        milliseconds(Some(it.p99_ms)),
        milliseconds(Some(it.most_ms)),
        milliseconds(worst_ms),
        if is_late { "LATER THAN PLANNED".into() } else { String::new() },
    ]
}

/// Formats a topic's share of the airtime, with the names of the radios if the team has `several`.
fn airtime_text(carried: &[RadioShare], several: bool) -> String {
    let one = |it: &RadioShare| match several {
        true => format!("{} {:.1} %", it.radio, it.share * 100.0),
        false => format!("{:.1} %", it.share * 100.0),
    };
    carried.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn row(plan: &TopicPlan, several: bool) -> [String; 12] {
    let it = &plan.traffic;
    let via: String = it.via.iter().map(|via| format!(" via {via}")).collect();
    let delay = |ms: Option<f64>| match plan.least_ms {
        Some(_) if ms.is_none() => "unbounded".into(),
        _ => milliseconds(ms),
    };
    [
        it.topic.clone(),
        it.from.clone(),
        format!("{}{via}", it.to),
        it.priority.to_string(),
        format_si(it.rate_hz),
        bytes(it.bytes as f64),
        airtime_text(&plan.radios, several),
        milliseconds(plan.least_ms),
        delay(plan.typical_ms),
        delay(plan.worst_ms),
        plan.attempts.map_or(UNKNOWN.into(), |it| it.to_string()),
        match plan.fits_up_to_hz {
            None => "any rate".into(),
            // Without this topic, the other topics do not fit either.
            Some(0.0) => "no rate".into(),
            Some(hz) => format!("{} Hz", rounded_down(hz)),
        },
    ]
}
