// SPDX-License-Identifier: Apache-2.0
//! One sender and one echoer of the thesis: the time that a processor takes for a message, and the
//! bytes that a link carries.

use super::data::{CARRIED, SCAN_BYTES, Table};
use crate::rig::stats::{median, middle};
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// Public summary of the thesis's raw logs, experiments 3 to 6 (github.com/sheepzez).
const SINGLE: &str = include_str!("../../../../reference/sheepzez_single_pair_summary.csv");
/// Bytes of an image of 640x480 with a Bayer pattern, in ROS 1.
const IMAGE_BYTES: usize = 640 * 480 + 67;
/// Bytes of the thesis's text.
const TEXT_BYTES: usize = 11;
/// Frequency up to which a row shows the round trip without a queue, by the size of messages, hertz.
const UNLOADED_HZ: [(usize, f64); 3] =
    [(TEXT_BYTES, 400.0), (SCAN_BYTES, 200.0), (IMAGE_BYTES, 20.0)];

/// One measured frequency.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    frequency_hz: f64,
    published_per_s: f64,
    echoed_per_s: f64,
    rtt_ms: f64,
}

/// A link and contents, with a share of the processor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    link: &'static str,
    bytes: usize,
    contents: &'static str,
    cpu_percent: u32,
}

/// What limited a sender and an echoer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sender could not publish more: a processor.
    Processor,
    /// The sender published more than returned: the link.
    Link,
}

/// A link and contents, with the limit that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Link between the two computers.
    pub link: &'static str,
    /// Kind of message.
    pub contents: &'static str,
    /// Bytes of a message.
    pub bytes: usize,
    /// Clock of the processors, percent of the highest.
    pub cpu_percent: u32,
    /// Mean round trip without a queue, milliseconds.
    pub base_ms: Option<f64>,
    /// Highest rate of echoes that held, per second: the median of the rows beyond it.
    pub most_per_s: f64,
    /// What limited it.
    pub limit: Limit,
}

impl Pair {
    /// Returns the time of a message at the limit, milliseconds.
    pub fn time_ms(&self) -> f64 {
        1e3 / self.most_per_s
    }

    /// Returns the rate at the limit, bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.most_per_s * self.bytes as f64
    }
}

/// Returns link, contents and share of the processor of a set of the summary.
fn key(set: &str) -> Option<Key> {
    let share =
        |mark: &str| set.split_once(mark)?.1.get(..3)?.trim_end_matches(['/', '_']).parse().ok();
    let key = |link, contents, cpu_percent| {
        let bytes = match contents {
            "image" => IMAGE_BYTES,
            "scan" => SCAN_BYTES,
            _ => TEXT_BYTES,
        };
        Some(Key { link, bytes, contents, cpu_percent })
    };
    let contents = if set.ends_with("video") { "image" } else { "scan" };
    if set.starts_with("no_echo_delay") {
        return match set.rsplit_once('/')?.1 {
            "wifi" => key("Wi-Fi", "text", 100),
            clock if clock.ends_with("_clockspeed") => {
                key("Ethernet", "text", clock.split('_').next()?.parse().ok()?)
            }
            // The row of experiment 3 again.
            _ => None,
        };
    }
    match set {
        _ if set.contains("experiment_5") => key("Ethernet", contents, share("/cpu")?),
        _ if set.contains("/wifi") => key("Wi-Fi", contents, 100),
        // The rows of experiment 5 again.
        _ => None,
    }
}

fn points(text: &str) -> Result<BTreeMap<Key, Vec<Point>>> {
    let mut sets = BTreeMap::<Key, Vec<Point>>::new();
    for line in Table::new(text).lines() {
        let line = line?;
        let Some(key) = key(line.text("set")?) else { continue };
        sets.entry(key).or_default().push(Point {
            frequency_hz: line.number("freq")?,
            published_per_s: line.number("sendrate")?,
            echoed_per_s: line.number("rxrate")?,
            rtt_ms: line.number("mean_thesis")?,
        });
    }
    Ok(sets)
}

fn pair(key: Key, points: &[Point]) -> Option<Pair> {
    let beyond: Vec<&Point> =
        points.iter().filter(|it| it.echoed_per_s < CARRIED * it.frequency_hz).collect();
    let most_per_s = median(beyond.iter().map(|it| it.echoed_per_s))?;
    let published: Vec<f64> =
        beyond.iter().map(|it| it.echoed_per_s / it.published_per_s).collect();
    let limit = if middle(&published) < CARRIED { Limit::Link } else { Limit::Processor };
    let unloaded_hz = UNLOADED_HZ.iter().find(|(bytes, _)| *bytes == key.bytes)?.1;
    let unloaded = points.iter().filter(|it| it.frequency_hz <= unloaded_hz);
    // A share of echoes that barely returns is a queue at any frequency.
    let unloaded = unloaded.filter(|it| it.echoed_per_s >= CARRIED * it.frequency_hz);
    let base_ms = median(unloaded.map(|it| it.rtt_ms));
    let Key { link, bytes, contents, cpu_percent } = key;
    Some(Pair { link, contents, bytes, cpu_percent, base_ms, most_per_s, limit })
}

/// Returns the limits of one sender and one echoer; sets that reached none are left out.
pub fn thesis() -> Result<Vec<Pair>> {
    let mut pairs: Vec<Pair> =
        points(SINGLE)?.into_iter().filter_map(|(key, points)| pair(key, &points)).collect();
    pairs.sort_by_key(|it| (it.link, it.bytes, std::cmp::Reverse(it.cpu_percent)));
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(link: &str, contents: &str, cpu_percent: u32) -> Pair {
        let all = thesis().unwrap();
        let own = all
            .into_iter()
            .find(|it| (it.link, it.contents, it.cpu_percent) == (link, contents, cpu_percent));
        own.unwrap()
    }

    #[test]
    fn over_wifi_scans_and_images_are_limited_by_the_same_bytes_per_second() {
        let [scan, image] = ["scan", "image"].map(|contents| found("Wi-Fi", contents, 100));
        assert_eq!((scan.limit, image.limit), (Limit::Link, Limit::Link));
        let ratio = scan.bytes_per_s() / image.bytes_per_s();
        assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
        assert_eq!(image.base_ms, None);
    }

    #[test]
    fn small_messages_are_limited_by_the_processor_on_both_links() {
        for link in ["Wi-Fi", "Ethernet"] {
            assert_eq!(found(link, "text", 100).limit, Limit::Processor, "{link}");
        }
        let [full, half] = [100, 50].map(|clock| found("Ethernet", "text", clock).time_ms());
        assert!((half / full - 2.0).abs() < 0.3, "{full} {half}");
    }

    #[test]
    fn the_processor_does_not_limit_images_over_ethernet() {
        let [full, half] = [100, 50].map(|clock| found("Ethernet", "image", clock));
        assert_eq!((full.limit, half.limit), (Limit::Link, Limit::Link));
        assert!((full.most_per_s / half.most_per_s - 1.0).abs() < 0.02);
    }
}
