// SPDX-License-Identifier: Apache-2.0
//! The statuses: the node, each peer with its links, each radio, and the drops.

use super::array::{DiagnosticStatus, Level};
use crate::columns::{Columns, LINKS, PEERS, RADIOS, ReportWithRates, Value};
use crate::rates::{self, LinkRates, RadioRates, Rates, TopicRates};
use crate::reasons::DroppedMessage;
use crate::status::{LinkReport, PeerReport, RadioReport, Status, TopicReport, up_or_down};
use std::collections::BTreeMap;
use std::fmt::Display;

/// Maximum number of drop reasons reported one by one; the rest is reported as a sum.
const MAX_DROPPED: usize = 64;
/// Maximum number of topics for each peer that are reported with the links that carry them.
const MAX_LINK_USES: usize = 64;
/// Maximum number of topics that are reported with recent drops.
const MAX_GIVEN_UP: usize = 16;
/// Maximum number of notices reported, newest first.
const MAX_NOTICES: usize = 5;
/// Maximum characters of a line for people; longer lines are cut.
const MAX_LINE: usize = 300;
const UNKNOWN: &str = "-";
/// Reasons for drops that the file intends. They cause no warning.
const INTENDED_DROPS: [&str; 2] = [RATE_LIMITED, DroppedMessage::NoNamedFrame.as_str()];
const RATE_LIMITED: &str = "rate_limited";

/// Returns all statuses of `now`; rates and growth are since `earlier`.
pub(super) fn build(earlier: Option<&Status>, now: &Status) -> Vec<DiagnosticStatus> {
    let rates = rates::between(earlier, now);
    let mut all = vec![node(earlier, now)];
    all.extend(now.peers.iter().map(|it| peer(now, it, &rates)));
    let radios = now.radios.iter().zip(&rates.radios);
    all.extend(
        radios.map(|(it, rates)| radio(now, &ReportWithRates { now: it, rates: Some(rates) })),
    );
    all.push(drops(earlier, now));
    all
}

/// The node's name is in every status, because statuses of several robots may reach one base station.
fn status(
    of: &Status,
    part: &str,
    (level, message): (Level, String),
    values: Vec<(String, String)>,
) -> DiagnosticStatus {
    DiagnosticStatus {
        level,
        name: format!("tautline {}: {part}", of.node),
        message: truncate_text(message),
        hardware_id: of.node.clone(),
        values,
    }
}

fn truncate_text(text: String) -> String {
    match text.char_indices().nth(MAX_LINE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn value(key: impl Into<String>, value: impl Display) -> (String, String) {
    (key.into(), value.to_string())
}

/// Formats a number with one digit after the decimal point.
fn tenths(number: Option<f64>) -> String {
    number.map_or(UNKNOWN.into(), |number| format!("{number:.1}"))
}

fn rounded_text(number: Option<f64>) -> String {
    number.map_or(UNKNOWN.into(), |number| format!("{number:.0}"))
}

fn node(earlier: Option<&Status>, now: &Status) -> DiagnosticStatus {
    let mut values = vec![
        value("version", &now.version),
        value("uptime (s)", rounded_text(Some(now.uptime_s))),
        value("security", &now.security),
        value("listens on UDP", &now.listen),
    ];
    for gateway in &now.gateways {
        let state = up_or_down(gateway.connected);
        values.push(value(&gateway.kind, format!("{} {state}", gateway.location)));
    }
    let newest = now.notices.iter().rev().take(MAX_NOTICES).enumerate();
    values.extend(
        newest.map(|(i, text)| value(format!("notice {}", i + 1), truncate_text(text.clone()))),
    );
    status(now, "node", condition(earlier, now), values)
}

/// Returns the most severe condition of the node.
fn condition(earlier: Option<&Status>, now: &Status) -> (Level, String) {
    if let Some(gateway) = now.gateways.iter().find(|gateway| !gateway.connected) {
        let text = format!("{} at {} is down", gateway.kind, gateway.location);
        let trouble = Some(gateway.trouble.clone()).filter(|trouble| !trouble.is_empty());
        return (Level::Error, trouble.unwrap_or(text));
    }
    if let Some(gateway) = now.gateways.iter().find(|gateway| !gateway.trouble.is_empty()) {
        return (Level::Warn, gateway.trouble.clone());
    }
    let is_new = |notice: &&String| earlier.is_some_and(|it| !it.notices.contains(notice));
    match now.notices.iter().rev().find(is_new) {
        Some(notice) => (Level::Warn, notice.clone()),
        None => (Level::Ok, "running".into()),
    }
}

fn peer(now: &Status, peer: &PeerReport, rates: &Rates) -> DiagnosticStatus {
    let links = now.links.iter().zip(&rates.links).filter(|(link, _)| link.peer == peer.name);
    let links: Vec<_> =
        links.map(|(now, rates)| ReportWithRates { now, rates: Some(rates) }).collect();
    let condition = match peer.state.as_str() {
        "up" => condition_of_links(&links),
        state => (Level::Warn, state.to_owned()),
    };
    let mut told = values(&PEERS, &ReportWithRates { now: peer, rates: None }, "");
    for (link, number) in links.iter().zip(1..) {
        told.extend(values(&LINKS, link, &format!("link {number} ")));
    }
    let carried = rates.topics.iter().filter(|topic| topic.peer == peer.name);
    told.extend(carried.filter_map(links_of_topic).take(MAX_LINK_USES));
    status(now, &format!("peer {}", peer.name), condition, told)
}

/// Returns the condition of a peer that is up.
fn condition_of_links(links: &[ReportWithRates<'_, LinkReport, LinkRates>]) -> (Level, String) {
    let all = links.len();
    let down = links.iter().filter(|link| !link.now.up).count();
    let stalled = links.iter().filter(|link| link.now.up && link.now.stalled).count();
    let silent = links.iter().filter(|link| link.now.up && link.now.silent).count();
    match (down, stalled, silent) {
        (0, 0, 0) => (Level::Ok, "up".into()),
        (0, 0, _) => (Level::Warn, format!("up, but {silent} of {all} links are silent")),
        (0, _, _) => (Level::Warn, format!("up, but {stalled} of {all} links are stalled")),
        _ => (Level::Warn, format!("up, but {down} of {all} links are down")),
    }
}

/// Returns the links that carried a topic since the earlier snapshot, and the policy that chose them.
fn links_of_topic(topic: &TopicRates) -> Option<(String, String)> {
    let links = topic.links.as_ref()?;
    Some(value(format!("links of {}", topic.topic), truncate_text(links.in_words())))
}

/// Returns the values of a report. Each key is `before` followed by the key of the column.
fn values<Report, Rates>(
    columns: &Columns<Report, Rates>,
    report: &ReportWithRates<'_, Report, Rates>,
    before: &str,
) -> Vec<(String, String)> {
    let shown = columns.in_diagnostics().into_iter().filter_map(|(column, key)| {
        Some(value(format!("{before}{key}"), format_value((column.read)(report))?))
    });
    shown.collect()
}

/// Formats a value of a column; `None` if there is no such value.
fn format_value(value: Value) -> Option<String> {
    Some(match value {
        Value::Absent => return None,
        Value::Unknown => UNKNOWN.into(),
        Value::Text(words) | Value::Address(words) if words.is_empty() => UNKNOWN.into(),
        Value::Text(words) | Value::Address(words) => words,
        Value::Flag(is_true) => is_true.to_string(),
        Value::Count(number) | Value::Bytes(number) => number.to_string(),
        Value::PartOfBytes(part, total) | Value::UsedBytes(part, total) => {
            format!("{part} of {total}")
        }
        Value::Number(number) => rounded_text(Some(number)),
        Value::Several(values) => {
            values.into_iter().filter_map(format_value).collect::<Vec<_>>().join(", ")
        }
        Value::Dropped(_, reasons) => reasons.values().sum::<u64>().to_string(),
        Value::Passed(passed, _) => passed.to_string(),
        Value::BitRate(bps) => rounded_text(Some(bps)),
        Value::Milliseconds(ms) => tenths(Some(ms)),
        Value::Share(share) => tenths(Some(share * 100.0)),
        Value::NowAndTotal(now, _) => return format_value(*now),
    })
}

fn radio(now: &Status, radio: &ReportWithRates<'_, RadioReport, RadioRates>) -> DiagnosticStatus {
    let condition = (Level::Ok, format!("paced by {}", radio.now.paced_by));
    let values = values(&RADIOS, radio, "");
    status(now, &format!("radio {}", radio.now.radio), condition, values)
}

/// Counts since the start, by object (`/scan > base`) and reason.
type Counts = BTreeMap<(String, String), u64>;

fn counts(status: &Status) -> Counts {
    let mut all = Counts::new();
    let mut add = |of: &str, reason: &str, count: u64| {
        if count > 0 {
            *all.entry((of.to_owned(), reason.to_owned())).or_default() += count;
        }
    };
    for topic in &status.topics {
        let of = topic_and_peer(topic);
        topic.dropped.iter().for_each(|(reason, count)| add(&of, reason, *count));
        add(&of, RATE_LIMITED, topic.rate_limited);
    }
    for it in status.gateways.iter().flat_map(|gateway| &gateway.rejected) {
        let of = if it.topic.is_empty() { "other topics" } else { &it.topic };
        add(of, &it.reason, it.count);
    }
    status.packets_refused.iter().for_each(|(reason, count)| add("packets", reason, *count));
    all
}

fn topic_and_peer(topic: &TopicReport) -> String {
    format!("{} {} {}", topic.topic, topic.direction.arrow(), topic.peer)
}

/// Messages or packets of one object that were dropped or refused for one reason.
struct Dropped {
    of: String,
    reason: String,
    count: u64,
    increase: u64,
}

impl Dropped {
    fn is_warned_of(&self) -> bool {
        self.increase > 0 && !INTENDED_DROPS.contains(&&*self.reason)
    }
}

/// Returns the recent drops of each topic with their reasons.
fn given_up(now: &Status) -> Vec<(String, String)> {
    let recent = now.topics.iter().filter_map(|topic| {
        let lately = topic.given_up.as_ref()?;
        Some(value(format!("{} lately", topic_and_peer(topic)), truncate_text(lately.in_words())))
    });
    recent.take(MAX_GIVEN_UP).collect()
}

/// Describes the drops by fraction and reasons if these are known, else by count.
fn in_words(now: &Status, dropped: &Dropped) -> String {
    let Dropped { of, reason, increase, .. } = dropped;
    let topic = now.topics.iter().find(|topic| topic_and_peer(topic) == *of);
    match topic.and_then(|topic| topic.given_up.as_ref()) {
        Some(lately) if lately.reasons.contains_key(reason) => {
            format!("{of}: {}", lately.in_words())
        }
        _ => format!("{of}: {increase} {}", reason.replace('_', " ")),
    }
}

fn drops(earlier: Option<&Status>, now: &Status) -> DiagnosticStatus {
    let before = earlier.map(counts);
    let drop = |((of, reason), count): ((String, String), u64)| {
        let key = (of, reason);
        let known = before.as_ref().map_or(count, |it| it.get(&key).copied().unwrap_or(0));
        let (of, reason) = key;
        Dropped { of, reason, count, increase: count.saturating_sub(known) }
    };
    let mut all: Vec<Dropped> = counts(now).into_iter().map(drop).collect();
    all.sort_by_key(|it| std::cmp::Reverse((it.is_warned_of(), it.increase, it.count)));
    let rest = all[all.len().min(MAX_DROPPED)..].iter().map(|it| it.count).sum::<u64>();
    let mut values = given_up(now);
    let counted = all.iter().take(MAX_DROPPED);
    values.extend(
        counted.map(|it| value(format!("{}: {}", it.of, it.reason.replace('_', " ")), it.count)),
    );
    if rest > 0 {
        values.push(value("all others", rest));
    }
    let growing: Vec<&Dropped> = all.iter().filter(|it| it.is_warned_of()).collect();
    let condition = match growing[..] {
        [] if all.is_empty() => (Level::Ok, "nothing was dropped".into()),
        [] => (Level::Ok, "nothing is being dropped".into()),
        [most, ..] => {
            let more = match growing.len() {
                1 => String::new(),
                all => format!(", and {} more", all - 1),
            };
            (Level::Warn, format!("being dropped: {}{more}", in_words(now, most)))
        }
    };
    status(now, "drops", condition, values)
}
