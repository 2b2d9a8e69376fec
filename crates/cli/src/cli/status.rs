// SPDX-License-Identifier: Apache-2.0
//! `tautline status`.

use super::find::Daemon;
use super::words::{self, UNKNOWN, drop_counts, format_si, part_of_bytes, percent, uptime};
use super::{Failure, output};
use std::collections::BTreeMap;
use std::fmt::Write;
use tautline::columns::{Columns, LINKS, PEERS, RADIOS, ReportWithRates, TEAMS, TOPICS};
use tautline::status::{
    GatewayReport, LinesReport, LinkReport, PlanReport, Status, TopicReport, UncheckedReport,
    WaitingReport, WatchdogReport, up_or_down,
};

/// Arguments of `tautline status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tautline status\n  tautline status --node robot1\n  tautline status --json\n\n\
                        Counters start with the daemon. Recent drops cover the last ten seconds.\n\
                        LOSS is that since the last interruption of the link, and after a slash since the start.\n\
                        'tautline top' shows rates."
)]
pub struct Arguments {
    /// Print the snapshot as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub fn status(arguments: &Arguments) -> Result<(), Failure> {
    let status = arguments.daemon.connect()?.status().map_err(Failure::new)?;
    if arguments.json { output::print_json(&status) } else { output::print(&in_words(&status)) }
}

pub fn in_words(status: &Status) -> String {
    let mut text = format!(
        "{}  tautline {}, up {}, listens on UDP {}\n{}",
        status.node,
        status.version,
        uptime(status.uptime_s),
        status.listen,
        security(status),
    );
    for gateway in &status.gateways {
        let GatewayReport { kind, location, trouble, .. } = gateway;
        let state = up_or_down(gateway.connected);
        let colon = if trouble.is_empty() { "" } else { ": " };
        let _ = writeln!(text, "{kind}  {location} {state}{colon}{trouble}");
        text.push_str(&rejected_lines(gateway));
    }
    reports(&mut text, "Peers", &PEERS, &status.peers);
    if !status.teams.is_empty() {
        reports(&mut text, "Teams", &TEAMS, &status.teams);
    }
    reports(&mut text, "Topics", &TOPICS, &status.topics);
    text.push_str(&link_use(&status.topics));
    text.push_str(&recent_drops(&status.topics));
    reports(&mut text, "Radios", &RADIOS, &status.radios);
    reports(&mut text, "Links", &LINKS, &status.links);
    text.push_str(&budgets(&status.links));
    if !status.watchdogs.is_empty() {
        let header = ["TOPIC", "STATE", "PUBLISHED"];
        section(&mut text, "Watchdogs", header, status.watchdogs.iter().map(watchdog));
    }
    if !status.plan.is_empty() {
        let header = ["OF", "WHAT", "EXPECTED", "MEASURED", "STATE", "KEY"];
        section(&mut text, "Plan", header, status.plan.iter().map(plan_cells));
    }
    if !status.waiting.is_empty() {
        let header = ["PEER", "WANTS TO", "NAME", "TYPE", "LINE TO ADD UNDER peers.PEER"];
        section(
            &mut text,
            "Not allowed by the file",
            header,
            status.waiting.iter().map(waiting_row),
        );
        status.to_allow_all.iter().for_each(|it| text.push_str(&allow_all_text(it)));
    }
    text.push_str(&unchecked_section(&status.unchecked));
    if !status.one_sided.is_empty() {
        let rows = status.one_sided.iter().map(|it| [it.peer.clone(), it.field.clone()]);
        section(&mut text, "Fields that only one ROS has", ["PEER", "FIELD"], rows);
    }
    let refused = drop_counts(&status.packets_refused);
    if !refused.is_empty() {
        let _ = write!(text, "\nPackets refused: {refused}\n");
    }
    if !status.notices.is_empty() {
        let _ = write!(text, "\nNotices\n  {}\n", status.notices.join("\n  "));
    }
    text
}

/// Describes this node's identity; with a conspicuous warning where nothing proves it.
pub fn security(status: &Status) -> String {
    match &status.key {
        Some(key) => format!("key {key}\n"),
        None => "NO SECURITY: anybody on the network can act as any node (security: none)\n".into(),
    }
}

fn section<const N: usize>(
    text: &mut String,
    title: &str,
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    let _ = write!(text, "\n{title}\n{}", output::table(header, rows));
}

/// Formats reports with the columns of their table.
fn reports<Report, Rates>(
    text: &mut String,
    title: &str,
    columns: &Columns<Report, Rates>,
    reports: &[Report],
) {
    let columns = columns.status_columns();
    let header: Vec<&str> = columns.iter().map(|(_, heading)| *heading).collect();
    let row = |now| {
        let seen = ReportWithRates { now, rates: None };
        columns.iter().map(|(column, _)| words::format_cell(&(column.read)(&seen))).collect()
    };
    let _ = write!(text, "\n{title}\n{}", output::dyn_table(&header, reports.iter().map(row)));
}

/// Formats a line for each topic with rejected messages.
fn rejected_lines(gateway: &GatewayReport) -> String {
    let mut topics = BTreeMap::<_, BTreeMap<String, u64>>::new();
    for it in &gateway.rejected {
        let key = (&it.topic, it.direction.arrow());
        topics.entry(key).or_default().insert(it.reason.clone(), it.count);
    }
    let line = |((topic, arrow), reasons): (&(&String, &str), &BTreeMap<_, _>)| {
        let topic = if topic.is_empty() { "other topics" } else { topic };
        format!("  rejected {arrow} {topic}: {}\n", drop_counts(reasons))
    };
    topics.iter().map(line).collect()
}

/// Formats the recent drops with reasons, a line for each topic and peer; empty if there are none.
fn recent_drops(topics: &[TopicReport]) -> String {
    let line = |topic: &TopicReport| {
        let given_up = topic.given_up.as_ref()?.in_words();
        let (arrow, TopicReport { topic, peer, .. }) = (topic.direction.arrow(), topic);
        Some(format!("  {topic} {arrow} {peer}: {given_up}\n"))
    };
    let lines: String = topics.iter().filter_map(line).collect();
    if lines.is_empty() { lines } else { format!("\nRecent drops\n{lines}") }
}

/// Formats which links carry the topics to peers with several links; empty if there are none.
fn link_use(topics: &[TopicReport]) -> String {
    let line = |topic: &TopicReport| {
        let links = topic.links.as_ref()?.in_words();
        Some(format!("  {} {} {}: {links}\n", topic.topic, topic.direction.arrow(), topic.peer))
    };
    let lines: String = topics.iter().filter_map(line).collect();
    if lines.is_empty() { lines } else { format!("\nLinks of topics\n{lines}") }
}

/// Formats the budgets of links; empty if there are none.
fn budgets(links: &[LinkReport]) -> String {
    let row = |link: &LinkReport| {
        let budget = link.budget.as_ref()?;
        Some([
            link.peer.clone(),
            link.name.clone(),
            part_of_bytes(budget.used_bytes, budget.total_bytes),
            percent(Some(budget.used())),
            budget.period_ends.clone(),
            if budget.spent { "used up" } else { "" }.into(),
        ])
    };
    let rows: Vec<[String; 6]> = links.iter().filter_map(row).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        let header = ["PEER", "LINK", "USED", "", "PERIOD ENDS", "STATE"];
        section(&mut text, "Budgets of links", header, rows.into_iter());
    }
    text
}

fn waiting_row(it: &WaitingReport) -> [String; 5] {
    [&it.peer, &it.act, &it.name, &it.type_name, &it.line].map(Clone::clone)
}

/// Formats the names whose messages are not checked against their types; empty if there are none.
fn unchecked_section(unchecked: &[UncheckedReport]) -> String {
    let row = |it: &UncheckedReport| {
        let peer = it.peer.as_deref().unwrap_or("any");
        [peer, &it.name, &it.type_name, &it.why].map(str::to_owned)
    };
    let mut text = String::new();
    if !unchecked.is_empty() {
        let header = ["PEER", "NAME", "TYPE", "WHY"];
        section(&mut text, "Messages not checked", header, unchecked.iter().map(row));
    }
    text
}

fn allow_all_text(LinesReport { peer, lines }: &LinesReport) -> String {
    format!(
        "\n  To allow all requests of '{peer}', replace these keys under peers.{peer}; omit \
         unwanted lines:\n{lines}"
    )
}

fn watchdog(watchdog: &WatchdogReport) -> [String; 3] {
    [watchdog.topic.clone(), watchdog.state.clone(), format_si(watchdog.published as f64)]
}

fn plan_cells(it: &PlanReport) -> [String; 6] {
    let quantity = |value: f64| it.assumption.format_value(value);
    [
        it.subject.clone(),
        it.assumption.as_str().into(),
        quantity(it.expected),
        it.measured.map_or(UNKNOWN.into(), quantity),
        match (it.failed_for_s, it.measured) {
            (Some(seconds), _) => format!("FAILS for {}", uptime(seconds)),
            (None, Some(_)) => "holds".into(),
            (None, None) => UNKNOWN.into(),
        },
        it.key.clone(),
    ]
}
