// SPDX-License-Identifier: Apache-2.0
//! `tautline plan`.

mod plot;

use super::words::{UNKNOWN, bytes, milliseconds, short};
use super::{Failure, output};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use tautline_node::config;
use tautline_node::plan::inputs::{Expectation, Inputs, MeasuredDelay, RobotFile};
use tautline_node::plan::{Axis, Channel, Team, TeamPlan, TopicPlan, radio};
use tautline_node::status::Status;

/// A snapshot of a daemon is not larger.
const MAX_SNAPSHOT: u64 = 16 << 20;
/// What the figures assume.
const ASSUMPTIONS: &[&str] = &[
    "all robots hear each other and use only this radio",
    "every peer that a rule allows wants its topics",
    "messages come at their rate, each as large as expected",
    "no other network uses the channel",
    "no packet needs more attempts than ATTEMPTS; one message in a thousand may",
];

/// Arguments of `tautline plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tautline plan base.yaml robot1.yaml --radio wifi:6Mbps\n  \
                  tautline plan robot1.yaml --radio line:2Mbps,delay=40ms --expect /scan=10Hz,4kB\n  \
                  tautline status --json > base.json; tautline plan --from base.json --radio wifi:24Mbps\n  \
                  tautline plan base.yaml robot1.yaml --radio wifi:6Mbps --plot delays.svg\n\n\
                  Rates and sizes come from --expect, from a snapshot of a running daemon, or from the\n\
                  file (topics: /scan: { expect: { rate: 10Hz, size: 4kB } }).\n\n\
                  Exit code: 0 if everything fits, 3 if not, 1 for an error.")]
pub struct Arguments {
    /// The robots' files
    files: Vec<PathBuf>,
    /// The radio: wifi:RATE[,dcf][,loss=SHARE] or line:RATE[,delay=TIME][,loss=SHARE][,shared]
    /// [default: `channel` of the radios in the files]
    #[arg(long, value_name = "RADIO")]
    radio: Option<String>,
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
const DOES_NOT_FIT: u8 = 3;

pub fn plan(arguments: &Arguments) -> Result<(), Failure> {
    let inputs = inputs(arguments)?;
    let channel = channel(arguments, &inputs)?;
    let traffic = inputs.traffic().map_err(ask)?;
    let team = Team { channel: channel.clone(), traffic };
    if let Some(path) = &arguments.plot {
        draw(&team, path, arguments.plot_robots.as_deref())?;
    }
    let plan = team.plan();
    let measured = inputs.delays();
    let shown = match arguments.json {
        true => output::print_json(&json!({
            "radio": radio::words(&channel),
            "plan": plan,
            "measured": measured,
            "assumptions": ASSUMPTIONS,
        })),
        false => output::print(&in_words(&channel, &plan, &measured)),
    };
    shown?;
    if plan.fits { Ok(()) } else { Err(Failure::with_code(DOES_NOT_FIT, "")) }
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
    let title = format!("{}: delay against load", radio::words(&team.channel));
    let text = plot::svg(&title, &axis, &team.sweep(&axis)).map_err(|error| failed(&error))?;
    std::fs::write(path, text).map_err(|error| failed(&error))
}

/// The radio of the command line, or the only one of the files.
fn channel(arguments: &Arguments, inputs: &Inputs) -> Result<Channel, Failure> {
    if let Some(text) = &arguments.radio {
        return radio::parse(text)
            .map_err(|error| Failure::new(format!("--radio {text}: {error}")));
    }
    let mut known: Vec<&Channel> = Vec::new();
    for (_, channel) in inputs.files.iter().flat_map(|it| &it.config.channels) {
        if !known.contains(&channel) {
            known.push(channel);
        }
    }
    match known[..] {
        [only] => Ok(only.clone()),
        [] => Err(Failure::new(format!(
            "no radio: give --radio, or in a file: radios: INTERFACE: {{ channel: \"wifi:6Mbps\" }}; allowed are {}",
            radio::FORMS
        ))),
        _ => {
            let all: Vec<String> =
                known.iter().map(|it| format!("  {}", radio::words(it))).collect();
            Err(Failure::new(format!(
                "the files have different radios; choose one with --radio:\n{}",
                all.join("\n")
            )))
        }
    }
}

fn ask(missing: Vec<String>) -> Failure {
    let lines: String = missing.iter().map(|it| format!("  {it}\n")).collect();
    Failure::new(format!(
        "the plan needs more:\n{lines}\
         Give rate and size by --expect TOPIC=RATE,SIZE, by --from SNAPSHOT of the running robot,\n\
         or in the file: topics: TOPIC: {{ expect: {{ rate: 10Hz, size: 4kB }} }}"
    ))
}

fn inputs(arguments: &Arguments) -> Result<Inputs, Failure> {
    let file = |path: &PathBuf| {
        let config = config::load(path).map_err(Failure::new)?.config;
        Ok(RobotFile { path: path.display().to_string(), config })
    };
    let expectations = arguments.expect.iter().map(|it| Expectation::parse(it));
    Ok(Inputs {
        files: arguments.files.iter().map(file).collect::<Result<_, Failure>>()?,
        snapshots: arguments.from.iter().map(|it| snapshot(it)).collect::<Result<_, _>>()?,
        expectations: expectations.collect::<Result<_, _>>().map_err(Failure::new)?,
    })
}

fn snapshot(path: &Path) -> Result<Status, Failure> {
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
    serde_json::from_str(&text).map_err(|error| {
        wrong(&format!("not a snapshot of this version's `tautline status --json`: {error}"))
    })
}

fn in_words(channel: &Channel, plan: &TeamPlan, measured: &[MeasuredDelay]) -> String {
    let verdict = if plan.fits { "everything fits" } else { "not everything fits" };
    let load = plan.load * 100.0;
    let mut text = format!(
        "{}\nload {load:.0} % of what it carries: {verdict}\n\nTopics\n",
        radio::words(channel)
    );
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
    text += &output::table(header, plan.topics.iter().map(row));
    for it in &plan.gives_way {
        let left = match it.rate_hz {
            0.0 => "is not sent".into(),
            hz => format!("keeps {} of {} Hz", short(hz), short(it.asked_hz)),
        };
        let _ = write!(text, "\n{} gives way (priority {}): it {left}.", it.topic, it.priority);
    }
    if !plan.gives_way.is_empty() {
        text += "\nThe delays above are those of what is left.\n";
    }
    if !measured.is_empty() {
        let header = ["TOPIC", "FROM", "TO", "MESSAGES", "P99 ms", "LONGEST ms", "WORST ms", ""];
        let rows = measured.iter().map(|it| measured_row(plan, it));
        let _ = write!(text, "\nMeasured delays\n{}", output::table(header, rows));
    }
    let more = plan.more.iter().map(|it| format!("{} like {}", it.robots, it.like));
    let more: Vec<String> = more.collect();
    if !more.is_empty() {
        let _ = writeln!(text, "\nMore robots that would fit: {}.", more.join(", or "));
    }
    text += "\nThis assumes:\n";
    ASSUMPTIONS.iter().for_each(|it| text += &format!("  - {it}\n"));
    text
}

fn measured_row(plan: &TeamPlan, it: &MeasuredDelay) -> [String; 8] {
    let is_it = |of: &&TopicPlan| {
        let of = &of.traffic;
        (&of.topic, &of.from, &of.to) == (&it.topic, &it.from, &it.to)
    };
    let worst_ms = plan.topics.iter().find(is_it).and_then(|it| it.worst_ms);
    let is_late = worst_ms.is_some_and(|worst| it.exceeds(worst));
    [
        it.topic.clone(),
        it.from.clone(),
        it.to.clone(),
        short(it.messages as f64),
        milliseconds(Some(it.p99_ms)),
        milliseconds(Some(it.most_ms)),
        milliseconds(worst_ms),
        if is_late { "LATER THAN PLANNED".into() } else { String::new() },
    ]
}

fn row(plan: &TopicPlan) -> [String; 12] {
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
        short(it.rate_hz),
        bytes(it.bytes as f64),
        format!("{:.1} %", plan.share * 100.0),
        milliseconds(plan.least_ms),
        delay(plan.typical_ms),
        delay(plan.worst_ms),
        plan.attempts.map_or(UNKNOWN.into(), |it| it.to_string()),
        match plan.fits_up_to_hz {
            None => "any rate".into(),
            // The others alone do not fit.
            Some(0.0) => UNKNOWN.into(),
            Some(hz) => format!("{} Hz", short(hz)),
        },
    ]
}
