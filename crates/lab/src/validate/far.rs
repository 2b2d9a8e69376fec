// SPDX-License-Identifier: Apache-2.0
//! A bottleneck beyond a router, and its load.

use crate::rig::stats::Samples;
use anyhow::{Context, Result};

/// Fraction of a full packet of 1500 bytes that is message payload.
pub const PAYLOAD_SHARE: f64 = 1425.0 / 1500.0;
/// Bytes of a laser's message.
pub const LASER_BYTES: u64 = 1000;
/// Rate of a laser's messages.
pub const LASER_MBPS: f64 = 0.4;

/// The pipe between robot and router.
pub const FAST: &str = "rate: 1Gbps, queue: 10MB, delay: 10us";

/// Returns a scenario's text up to its flows: a robot, a router and a base, with a fast link
/// between robot and router, and the pipe `slow` (its keys without delay) between router and base.
pub fn scenario(seconds: u64, slow: &str, flows: &str) -> String {
    path(seconds, &format!("{slow}, delay: 1ms"), flows)
}

/// Like [`scenario`], with all keys of the pipe `slow`.
pub fn path(seconds: u64, slow: &str, flows: &str) -> String {
    hops(seconds, [FAST, slow], flows)
}

/// Like [`path`], with all keys of both pipes.
pub fn hops(seconds: u64, [fast, slow]: [&str; 2], flows: &str) -> String {
    format!(
        "about: A bottleneck beyond a router\n\
         source: made up\n\
         duration: {seconds}s\n\
         networks:\n  \
           fast: {{ pipe: {{ {fast} }} }}\n  \
           slow: {{ pipe: {{ {slow} }} }}\n\
         stations:\n  \
           robot: {{ networks: [fast] }}\n  \
           router: {{ networks: [fast, slow] }}\n  \
           base: {{ networks: [slow] }}\n\
         routes:\n  - [robot, router, base]\n\
         flows:\n{flows}"
    )
}

/// Returns a laser's scans as a flow of a scenario.
pub fn laser(start_ms: u64) -> String {
    format!(
        "  - {{ name: laser, from: robot, to: base, size: {LASER_BYTES}, every: 20ms, priority: 200, keep_last: 10, start: {start_ms}ms }}\n"
    )
}

/// Returns a laser's scans, and 20 % more bulk than a link carries, as flows of a scenario.
pub fn load(mbps: u64, bulk_bytes: u64, start_ms: u64) -> String {
    let every_us = bulk_bytes * 8 * 10 / (mbps * 12);
    let laser = laser(start_ms);
    format!(
        "{laser}  - {{ name: bulk, from: robot, to: base, size: {bulk_bytes}, every: {every_us}us, priority: 20, keep_last: 10, start: {}ms }}\n",
        start_ms + 5
    )
}

/// Average number of packets in a burst of losses.
const BURST: f64 = 5.0;

/// Returns a loss as a scenario states it: of single packets, or in bursts.
pub fn loss(percent: u64, bursts: bool) -> String {
    let share = percent as f64 / 100.0;
    if !bursts {
        return format!("{share}");
    }
    // The bad state loses every packet, and lasts for a burst. It is entered as often as the loss
    // requires.
    let leave = 1.0 / BURST;
    let enter = leave * share / (1.0 - share);
    format!("{{ enter: {enter:.5}, leave: {leave} }}")
}

/// Returns the samples of a flow.
pub fn flow<'a>(flows: &'a [(String, Samples)], name: &str) -> Result<&'a Samples> {
    let found = flows.iter().find(|(it, _)| it == name);
    Ok(&found.with_context(|| format!("no flow '{name}'"))?.1)
}
