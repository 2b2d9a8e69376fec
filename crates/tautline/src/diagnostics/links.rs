// SPDX-License-Identifier: Apache-2.0
//! Link states, published on the topic `NODE/link` for programs on the robot that adapt their data rate
//! to the links. Each link is a status whose keys contain their units.

use super::WINDOW;
use super::array::{Arrays, DiagnosticStatus, Level};
use crate::columns::{LINKS, ReportWithRates, Value};
use crate::config::Config;
use crate::rates::{self, EarlierLinks, LinkRates};
use crate::status::LinkReport;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tautline_gateway::Topic;
use tautline_gateway::types::transcode::TranscodeError;

/// Name of the topic, below the node's own name.
const TOPIC: &str = "link";

#[derive(Debug)]
pub(crate) struct LinkTopic {
    arrays: Arrays,
    node: String,
    /// Snapshots, one per second, oldest first, each with the node's uptime.
    earlier: VecDeque<(Duration, Vec<LinkReport>)>,
}

impl LinkTopic {
    /// Returns `None` for a node without ROS or with `diagnostics: false`.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let (dialect, _) = config.ros().filter(|_| config.diagnostics)?;
        let own_name = match (&config.ros1, &config.ros2) {
            (Some(ros1), _) => &ros1.node_name,
            (None, ros2) => &ros2.as_ref()?.node_name,
        };
        Some(Self {
            arrays: Arrays::new(&format!("{own_name}/{TOPIC}"), dialect)?,
            node: config.name.clone(),
            earlier: VecDeque::with_capacity(WINDOW),
        })
    }

    /// Returns the topic as the robot's ROS names it.
    pub(crate) fn topic(&self) -> &Topic {
        &self.arrays.topic
    }

    /// Returns the next array: the current state, and the rates over the last seconds. `uptime` is
    /// the time since the start; `stamp` is the time since 1970.
    pub(crate) fn message(
        &self,
        uptime: Duration,
        links: &[LinkReport],
        stamp: Duration,
    ) -> Result<Bytes, TranscodeError> {
        self.arrays.message(&self.statuses(uptime, links), stamp)
    }

    pub(super) fn statuses(&self, uptime: Duration, links: &[LinkReport]) -> Vec<DiagnosticStatus> {
        let earlier = self.earlier.front();
        let earlier =
            earlier.map(|(at, links)| EarlierLinks { age_s: (uptime - *at).as_secs_f64(), links });
        let mut numbers = HashMap::<String, u32>::new();
        let status = |(now, rates): (&LinkReport, &LinkRates)| {
            let number = numbers.entry(now.peer.clone()).or_default();
            *number += 1;
            self.status(&ReportWithRates { now, rates: Some(rates) }, *number)
        };
        links.iter().zip(&rates::link_rates(earlier, links)).map(status).collect()
    }

    fn status(
        &self,
        link: &ReportWithRates<'_, LinkReport, LinkRates>,
        number: u32,
    ) -> DiagnosticStatus {
        DiagnosticStatus {
            level: match (link.now.up, link.now.stalled || link.now.silent) {
                (true, false) => Level::Ok,
                (true, true) => Level::Warn,
                (false, _) => Level::Error,
            },
            name: format!("tautline {}: link {number} to {}", self.node, link.now.peer),
            message: link.now.state.clone(),
            hardware_id: self.node.clone(),
            values: values(link),
        }
    }

    /// Stores a snapshot of the current state; called once per second.
    pub(crate) fn keep(&mut self, uptime: Duration, links: Vec<LinkReport>) {
        if self.earlier.len() == WINDOW {
            self.earlier.pop_front();
        }
        self.earlier.push_back((uptime, links));
    }

    /// Discards the snapshots; called when nobody listens.
    pub(crate) fn forget(&mut self) {
        self.earlier.clear();
    }
}

/// Returns the keys and values; unknown values are omitted.
fn values(link: &ReportWithRates<'_, LinkReport, LinkRates>) -> Vec<(String, String)> {
    let columns = LINKS.for_programs().into_iter();
    let known = columns
        .filter_map(|(column, key)| Some((key.to_owned(), format_value((column.read)(link))?)));
    known.collect()
}

/// Formats a value of a column in the unit that its key names; `None` while it is unknown.
fn format_value(value: Value) -> Option<String> {
    Some(match value {
        Value::Absent | Value::Unknown => return None,
        Value::Text(words) | Value::Address(words) => {
            return Some(words).filter(|words| !words.is_empty());
        }
        Value::Flag(is_true) => is_true.to_string(),
        Value::Count(number)
        | Value::Bytes(number)
        | Value::PartOfBytes(number, _)
        | Value::UsedBytes(number, _)
        | Value::Passed(number, _) => number.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Several(_) => return None,
        Value::Dropped(_, reasons) => reasons.values().sum::<u64>().to_string(),
        Value::BitRate(bps) => format!("{bps:.0}"),
        Value::Milliseconds(ms) => format!("{:.6}", ms / 1e3),
        Value::Share(share) => format!("{share:.4}"),
        Value::NowAndTotal(now, _) => return format_value(*now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Surroundings};
    use crate::status::Status;

    fn links() -> Vec<LinkReport> {
        let status: Status = serde_json::from_str(include_str!("../status/fixture.json")).unwrap();
        status.links
    }

    fn topic(lines: &str) -> Option<LinkTopic> {
        let file = format!("name: robot1\n{lines}\n");
        LinkTopic::new(&config::parse(&file, &Surroundings::default()).unwrap().config)
    }

    fn value_of_key<'a>(status: &'a DiagnosticStatus, key: &str) -> Option<&'a str> {
        let found = status.values.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }

    #[test]
    fn the_links_topic_is_below_the_nodes_name_and_can_be_switched_off() {
        let ros1 = topic("ros1: { node_name: /bridge }").unwrap();
        assert_eq!(ros1.topic().name, "/bridge/link");
        assert_eq!(ros1.topic().type_name, "diagnostic_msgs/DiagnosticArray");
        let ros2 = topic("ros2: true").unwrap();
        assert_eq!(ros2.topic().name, "/tautline/link");
        assert_eq!(ros2.topic().type_name, "diagnostic_msgs/msg/DiagnosticArray");
        assert!(topic("diagnostics: false").is_none() && topic("ros1: false").is_none());
    }

    #[test]
    fn a_link_that_is_up_has_its_rate_and_one_that_is_down_has_none() {
        let topic = topic("").unwrap();
        let all = topic.statuses(Duration::from_secs(9), &links());
        let [base, robot2] = &all[..] else { panic!("{all:?}") };
        assert_eq!((base.level, &*base.name), (Level::Ok, "tautline robot1: link 1 to base"));
        assert_eq!(value_of_key(base, "available_bps"), Some("6120000"));
        assert_eq!(
            (value_of_key(base, "up"), value_of_key(base, "rtt_s")),
            (Some("true"), Some("0.004210"))
        );
        assert_eq!(value_of_key(base, "paced_by"), Some("back-pressure"));
        assert_eq!(value_of_key(base, "sent_bps"), None, "there was nothing before");
        assert_eq!(
            (value_of_key(base, "link"), value_of_key(base, "stalled")),
            (Some("wlan0"), Some("false"))
        );
        assert_eq!((robot2.level, &*robot2.message), (Level::Error, "down"));
        assert_eq!(
            (value_of_key(robot2, "available_bps"), value_of_key(robot2, "peer")),
            (Some("0"), Some("robot2"))
        );
    }

    #[test]
    fn a_link_that_is_stalled_is_a_warning() {
        let mut links = links();
        (links[0].stalled, links[0].state) = (true, "stalled".into());
        let base = topic("").unwrap().statuses(Duration::from_secs(9), &links).remove(0);
        assert_eq!((base.level, &*base.message), (Level::Warn, "stalled"));
        assert_eq!(
            (value_of_key(&base, "up"), value_of_key(&base, "stalled")),
            (Some("true"), Some("true"))
        );
    }

    #[test]
    fn rates_and_losses_are_those_of_the_last_five_seconds() {
        let mut topic = topic("").unwrap();
        let mut now = links();
        for second in 0..10 {
            topic.keep(Duration::from_secs(second), now.clone());
            now[0].sent_bytes += 1000;
            now[0].acked_packets += 19;
            now[0].lost_packets += 1;
        }
        assert_eq!(topic.earlier.len(), WINDOW);
        let all = topic.statuses(Duration::from_secs(10), &now);
        assert_eq!(
            (value_of_key(&all[0], "sent_bps"), value_of_key(&all[0], "loss")),
            (Some("8000"), Some("0.0500"))
        );
        topic.forget();
        assert_eq!(value_of_key(&topic.statuses(Duration::from_secs(10), &now)[0], "loss"), None);
    }
}
