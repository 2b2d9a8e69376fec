// SPDX-License-Identifier: Apache-2.0
//! The path to one peer: what two snapshots of the daemon measured between them, and what each topic
//! gets. Nothing is sent for this test, so that the rate of a link that carries little is a lower bound.

use super::links::sendable_bps;
use serde::Serialize;
use tautline::rates::{self, Rates, TopicRates};
use tautline::status::{Direction, LinkReport, Status, TopicReport, WaitingReport};
use tautline_plan::inputs::Inputs;
use tautline_plan::{Radios, Team, TeamPlan};

/// Fraction of the available rate above which a link counts as used.
const LOADED_LINK_FRACTION: f64 = 0.5;

/// The test of one peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerTest {
    /// The peer.
    pub peer: String,
    /// The state: `up`, `down` or `connecting`.
    pub state: String,
    /// Seconds between the two snapshots.
    pub seconds: f64,
    /// The path in words: each link, clocks, and what is not known.
    pub path: Vec<String>,
    /// What each topic gets.
    pub topics: Vec<TopicVerdict>,
}

/// What one topic gets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicVerdict {
    /// Local name.
    pub topic: String,
    /// Direction.
    pub direction: Direction,
    /// The expected result in words.
    pub words: String,
    /// Whether the topic does not arrive as published.
    pub is_harmed: bool,
}

/// Compares two snapshots of a daemon; an error lists the peers if there is none of this name.
pub fn test_peer(before: &Status, after: &Status, peer: &str) -> Result<PeerTest, String> {
    let Some(report) = after.peers.iter().find(|it| it.name == peer) else {
        let names: Vec<&str> = after.peers.iter().map(|it| it.name.as_str()).collect();
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        return Err(format!(
            "the daemon of '{}' has no peer '{peer}'; its peers: {names}",
            after.node
        ));
    };
    let rates = rates::between(Some(before), after);
    let plan = plan(before, after, peer);
    let mut path: Vec<String> = Vec::new();
    let links = after.links.iter().filter(|it| it.peer == peer);
    for link in links.clone() {
        let earlier = before
            .links
            .iter()
            .find(|it| it.peer == link.peer && it.name == link.name && it.remote == link.remote);
        path.extend(link_in_words(link, earlier, &rates));
    }
    if links.count() == 0 {
        path.push("no link: no address of the peer is known yet".into());
    }
    match report.clock.as_ref().and_then(|it| Some((it.offset_ms?, it.bound_ms))) {
        Some((offset, bound)) => {
            path.push(format!("clock there minus here: {offset:+.1} ms ±{bound:.1}"))
        }
        None => path.push("clocks: not compared yet, or only through relays".into()),
    }
    path.push(format!(
        "losses and delays of what '{peer}' sends: run 'sudo tautline doctor --peer {}' there",
        after.node
    ));
    let own = rates.topics.iter().filter(|it| it.peer == peer);
    let mut topics: Vec<TopicVerdict> =
        own.map(|it| verdict(it, after, &rates, plan.as_ref())).collect();
    let waiting = after.waiting.iter().filter(|it| it.peer == peer);
    topics.extend(waiting.map(not_accepted_here));
    let (state, seconds) = (report.state.clone(), rates.interval_s.unwrap_or(0.0));
    Ok(PeerTest { peer: peer.into(), state, seconds, path, topics })
}

fn link_in_words(link: &LinkReport, before: Option<&LinkReport>, rates: &Rates) -> Vec<String> {
    let name = if link.name.is_empty() { link.radio.as_str() } else { &link.name };
    let mut lines = vec![format!(
        "link {name}: {} by {}, {}",
        or_unknown(&link.remote),
        or_unknown(&link.radio),
        link.state
    )];
    if !link.up {
        lines.push(format!("  no packet arrives; ping {}", host(&link.remote)));
        return lines;
    }
    let between = match link.path.as_str() {
        "" => "not known yet".to_owned(),
        "direct" => "direct, no address translator (NAT)".into(),
        path => path.into(),
    };
    lines.push(format!("  path: {between}"));
    let since = |count: fn(&LinkReport) -> u64| count(link).saturating_sub(before.map_or(0, count));
    let lost = since(|it| it.lost_packets).saturating_sub(since(|it| it.late_packets));
    let outcomes = since(|it| it.acked_packets) + lost;
    let loss = match outcomes {
        0 => "no packet had an outcome in this time".into(),
        _ => format!(
            "{lost} of {outcomes} packets lost to the peer ({:.1} %)",
            lost as f64 * 100.0 / outcomes as f64
        ),
    };
    let rtt = link.rtt_ms.map_or("unknown".into(), |ms| format!("{ms:.1} ms"));
    lines.push(format!(
        "  round trip {rtt}; {loss}; {} repeats received",
        since(|it| it.duplicate_packets)
    ));
    lines.push(format!("  MTU {} ({})", link.mtu, or_unknown(&link.mtu_known_by)));
    let of_link = rates.links.iter().find(|it| it.peer == link.peer && it.remote == link.remote);
    let mbps = |bps: Option<f64>| bps.map_or("?".into(), |bps| format!("{:.3} Mbps", bps / 1e6));
    let sends = of_link.and_then(|it| it.sent_bps);
    let receives = of_link.and_then(|it| it.received_bps);
    lines.push(format!("  sends {}, receives {}", mbps(sends), mbps(receives)));
    lines.push(match (link.available_bps, sends) {
        (None, _) => {
            "  rate: unknown, no limit was met; a link shows its rate only under load".into()
        }
        (Some(bps), Some(sent)) if sent < bps as f64 * LOADED_LINK_FRACTION => format!(
            "  rate: at least {} (it is not full, and its rate grows with use), paced by {}",
            mbps(Some(bps as f64)),
            or_unknown(&link.paced_by)
        ),
        (Some(bps), _) => {
            format!("  rate: {}, paced by {}", mbps(Some(bps as f64)), or_unknown(&link.paced_by))
        }
    });
    lines
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

fn host(remote: &str) -> String {
    remote.parse::<std::net::SocketAddr>().map_or("ADDRESS".into(), |it| it.ip().to_string())
}

/// Returns the plan for what was published to the peer between the snapshots, on a line with the rate that
/// the peer's links can send; `None` if this rate is unknown.
fn plan(before: &Status, after: &Status, peer: &str) -> Option<TeamPlan> {
    let rate = sendable_bps(after, peer)?;
    let links = after.links.iter().filter(|it| it.peer == peer && it.up);
    let rtt_ms = links.clone().filter_map(|it| it.rtt_ms).fold(f64::INFINITY, f64::min);
    let delay = if rtt_ms.is_finite() { (rtt_ms / 2.0 * 1000.0).round() } else { 0.0 };
    let loss = links.map(|it| it.loss).fold(0.0, f64::max);
    let radio = format!("line:{rate}bps,delay={delay}us,loss={:.2}%", loss.min(0.5) * 100.0);
    let radios = Radios::from_options(&[radio]).ok()?;
    let of_peer = |status: &Status| {
        let mut status = status.clone();
        status.topics.retain(|it| it.peer == peer && it.direction == Direction::Out && it.wanted);
        status
    };
    let snapshots = vec![of_peer(before), of_peer(after)];
    let inputs = Inputs { snapshots, ..Inputs::default() };
    let traffic = inputs.traffic(&radios).ok()?;
    Some(Team { radios: radios.as_slice().to_vec(), traffic }.plan())
}

fn verdict(
    it: &TopicRates,
    after: &Status,
    rates: &Rates,
    plan: Option<&TeamPlan>,
) -> TopicVerdict {
    let is_it = |report: &&TopicReport| {
        report.topic == it.topic && report.peer == it.peer && report.direction == it.direction
    };
    let report = after.topics.iter().find(is_it);
    let (words, is_harmed) = match it.direction {
        Direction::Out => sent_verdict(it, after, rates.interval_s.unwrap_or(0.0), plan),
        Direction::In => received_verdict(it, report),
    };
    TopicVerdict { topic: it.topic.clone(), direction: it.direction, words, is_harmed }
}

fn sent_verdict(
    it: &TopicRates,
    after: &Status,
    seconds: f64,
    plan: Option<&TeamPlan>,
) -> (String, bool) {
    let refuses = format!("'{}' refuses {} (", it.peer, it.topic);
    let is_of_topic = |notice: &&String| notice.starts_with(&refuses);
    if let Some(notice) = after.notices.iter().rev().find(is_of_topic) {
        return (format!("not accepted there: {notice}"), true);
    }
    if !it.wanted {
        let words = format!(
            "not wanted by any node there, or not accepted: 'tautline status' at '{}' lists missing lines",
            it.peer
        );
        return (words, false);
    }
    if let Some(given_up) = &it.given_up {
        return (given_up.in_words(), true);
    }
    if it.rate_hz.is_none_or(|hz| hz == 0.0) {
        return (format!("nothing was published in the last {seconds:.0} s"), false);
    }
    let Some(plan) = plan else {
        return (
            "arrives; how late is unknown while the rate of the link is unknown".into(),
            false,
        );
    };
    let gives_way = plan.gives_way.iter().find(|one| one.topic == it.topic);
    if let Some(one) = gives_way {
        return match one.rate_hz {
            0.0 => {
                ("does not arrive: topics of higher priorities need the whole rate".into(), true)
            }
            hz => (every_nth_words(one.asked_hz, hz), true),
        };
    }
    let planned = plan.topics.iter().find(|one| one.traffic.topic == it.topic);
    match planned.and_then(|one| Some((one.typical_ms?, one.worst_ms))) {
        Some((typical, Some(worst))) => {
            (format!("arrives in about {typical:.1} ms, at most {worst:.1} ms"), false)
        }
        Some((typical, None)) => {
            (format!("arrives in about {typical:.1} ms, without a bound"), true)
        }
        None => ("arrives".into(), false),
    }
}

/// Formats `about every third message arrives (5.0 of 15.0 Hz)`.
fn every_nth_words(asked_hz: f64, hz: f64) -> String {
    let part = match (asked_hz / hz).round() as u64 {
        0 | 1 => "most messages arrive".to_owned(),
        2 => "about every second message arrives".into(),
        3 => "about every third message arrives".into(),
        number => format!("about every {number}th message arrives"),
    };
    format!("{part} ({hz:.1} of {asked_hz:.1} Hz): the link is too slow")
}

fn received_verdict(it: &TopicRates, report: Option<&TopicReport>) -> (String, bool) {
    if !it.wanted {
        return ("no node here subscribes".into(), false);
    }
    if let Some(given_up) = &it.given_up {
        return (given_up.in_words(), true);
    }
    match report.and_then(|it| it.delay.as_ref()) {
        Some(delay) => (
            format!(
                "arrived in {:.1} ms (p99 {:.1} ms) since the start",
                delay.p50_ms, delay.p99_ms
            ),
            false,
        ),
        None => ("nothing has arrived".into(), false),
    }
}

fn not_accepted_here(it: &WaitingReport) -> TopicVerdict {
    let direction = Direction::In;
    let words = format!("not accepted here: 'not-accepted' has the line for peers.{}", it.peer);
    TopicVerdict { topic: it.name.clone(), direction, words, is_harmed: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_a_rate_are_described_in_words() {
        assert!(
            every_nth_words(15.0, 5.0)
                .starts_with("about every third message arrives (5.0 of 15.0")
        );
        assert!(every_nth_words(12.0, 10.0).starts_with("most messages arrive (10.0 of"));
        assert!(every_nth_words(40.0, 1.0).contains("every 40th"));
    }
}
