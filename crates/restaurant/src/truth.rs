// SPDX-License-Identifier: Apache-2.0
//! The simulator's record, which nodes do not know: true poses, collisions, and arrivals of
//! commands at the wheels.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes at the end of the record that certainly contain a pose.
const TAIL_BYTES: u64 = 16_384;

/// A pose: x and y in metres, theta in radians.
pub type Pose = [f64; 3];

/// A line of the simulator's record; times are the machine's monotonic clock.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Record {
    /// Poses of all robots, true and by their odometry.
    Poses {
        /// Nanoseconds.
        ns: u64,
        /// True poses on the map, by robot.
        poses: BTreeMap<String, Pose>,
        /// Poses by odometry, relative to each robot's start.
        odometry: BTreeMap<String, Pose>,
    },
    /// Two things touched.
    Collision {
        /// Nanoseconds.
        ns: u64,
        /// Names of both: a robot, `wall`, `table 3`.
        collision: [String; 2],
    },
    /// A numbered command reached the wheels.
    Command {
        /// Nanoseconds.
        ns: u64,
        /// The number of the command.
        command: f64,
    },
    /// The start, and movements of a robot by the simulator.
    Other(IgnoredAny),
}

/// Reads the whole record. The last line may be cut off while the simulator still runs.
pub fn read(folder: &Path) -> Result<Vec<Record>> {
    let file = folder.join("truth.jsonl");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("no record of the arena in {}", file.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line: &str| {
        serde_json::from_str(line).with_context(|| format!("'{line}' in {}", file.display()))
    };
    whole.lines().map(parse).collect()
}

/// Returns a robot's current pose; `None` before the first record.
pub fn pose(folder: &Path, robot: &str) -> Result<Option<Pose>> {
    let mut file = File::open(folder.join("truth.jsonl"))?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(end.saturating_sub(TAIL_BYTES)))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    // The first and the last line may be cut off.
    let records = text.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    let mut poses = records.filter_map(|record| match record {
        Record::Poses { poses, .. } => Some(poses),
        _ => None,
    });
    Ok(poses.next().and_then(|poses| poses.get(robot).copied()))
}

/// Returns the collisions since a time, each as `kobuki and wall`; collisions of one pair within a
/// second are one.
pub fn collisions(records: &[Record], since: u64) -> Vec<String> {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for record in records {
        let Record::Collision { ns, collision } = record else { continue };
        let pair = collision.join(" and ");
        let before = last.insert(pair.clone(), *ns);
        if *ns >= since && before.is_none_or(|before| ns - before > 1_000_000_000) {
            found.push(pair);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_that_lasts_is_one_collision() {
        let line = |ns: u64| format!("{{\"collision\": [\"kobuki\", \"wall\"], \"ns\": {ns}}}");
        let times = [500, 1_000_000_000, 1_500_000_000, 4_000_000_000];
        let records: Vec<Record> =
            times.iter().map(|ns| serde_json::from_str(&line(*ns)).unwrap()).collect();
        assert_eq!(collisions(&records, 1000), ["kobuki and wall"; 1]);
        assert_eq!(collisions(&records, 0), ["kobuki and wall"; 2]);
    }

    #[test]
    fn records_are_distinguished() {
        let text = "{\"poses\": {\"kobuki\": [1, 2, 3]}, \"odometry\": {\"kobuki\": [0, 0, 0]}, \"ns\": 7}\n\
                    {\"command\": 3.0, \"robot\": \"tetra\", \"ns\": 8}\n\
                    {\"begin\": {}, \"ns\": 1}\n{\"cut";
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("truth.jsonl"), text).unwrap();
        let records = read(folder.path()).unwrap();
        assert!(matches!(&records[0], Record::Poses { ns: 7, .. }));
        assert!(matches!(&records[1], Record::Command { command: 3.0, .. }));
        assert_eq!(records.len(), 3);
    }
}
