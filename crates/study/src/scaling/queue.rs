// SPDX-License-Identifier: Apache-2.0
//! Queues of a run, and the use of its link: messages under way, bytes in the kernel's sockets,
//! frames at the radios.

use super::scene::Scene;
use super::watch::Watched;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval at which the radios' queues are read. The interval does not divide a sender's period:
/// otherwise all readings would fall at the same phases of it.
const LOOK_PERIOD: Duration = Duration::from_micros(13_700);
/// If the queued messages have more than this many times the bytes in the kernel's buffers, most of
/// them are inside the programs.
const INSIDE: u64 = 4;

/// Queues at the end of the counted time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Queued {
    /// Published messages that had not returned.
    pub messages: usize,
    /// Number of such messages for each pair of a sender and an echoer that answers it.
    pub messages_per_conversation: f64,
    /// Bytes of these messages in ROS 1; 0 if unknown.
    pub bytes: u64,
    /// Bytes in the send buffers of all sockets of all hosts; 0 on other machines.
    pub send_bytes: u64,
    /// Bytes in the receive buffers; 0 on other machines.
    pub receive_bytes: u64,
    /// Frames at the radios, waiting or on the air: the mean over the counted time.
    pub radio_frames: Option<f64>,
}

impl Queued {
    /// Returns the location of most of the bytes.
    pub fn place(&self) -> &'static str {
        match (self.send_bytes, self.receive_bytes) {
            (send, receive) if self.bytes > INSIDE * (send + receive) => "inside the programs",
            (send, receive) if send >= receive => "in send buffers",
            _ => "in receive buffers",
        }
    }
}

/// Measurements of the link and the queues.
#[derive(Debug, Default)]
pub struct Measured {
    /// Time in which the radio channel was busy, percent.
    pub channel_percent: Option<f64>,
    /// Time in which a frame waited for the radio channel or was on it, percent.
    pub contended_percent: Option<f64>,
    /// Bits sent by the busier host, percent of the cable's rate.
    pub link_percent: Option<f64>,
    /// Queues. The numbers of messages are not set: the samples show them.
    pub queued: Queued,
}

/// A measurement in progress.
pub struct Meter<'a> {
    scene: &'a Scene,
    /// A process of each host.
    hosts: Vec<u32>,
    rate_bps: Option<u64>,
    channel: Option<[u64; 2]>,
    sent: Vec<u64>,
    since: Instant,
}

impl<'a> Meter<'a> {
    /// Starts a measurement on the hosts of these processes; `rate_bps` is the rate of their cable.
    pub fn start(scene: &'a Scene, watched: &[Watched], rate_bps: Option<u64>) -> Self {
        let hosts = one_of_each_host(watched);
        let sent = hosts.iter().map(|id| sent_bytes(*id)).collect();
        Self { scene, hosts, rate_bps, channel: scene.channel(), sent, since: Instant::now() }
    }

    /// Measures for `time`.
    pub fn measure(self, time: Duration) -> Measured {
        let (mut looks, mut contended, mut frames) = (0, 0, 0);
        while self.since.elapsed() < time {
            let Some(waiting) = self.scene.radio_frames() else {
                std::thread::sleep(time.saturating_sub(self.since.elapsed()));
                continue;
            };
            (looks, frames) = (looks + 1, frames + waiting);
            contended += u64::from(waiting > 0);
            std::thread::sleep(LOOK_PERIOD.min(time.saturating_sub(self.since.elapsed())));
        }
        let of_looks = |count: u64| (looks > 0).then(|| count as f64 / looks as f64);
        let [send_bytes, receive_bytes] = self.socket_bytes();
        Measured {
            channel_percent: self.channel_percent(),
            contended_percent: of_looks(contended).map(|share| 100.0 * share),
            link_percent: self.link_percent(),
            queued: Queued {
                send_bytes,
                receive_bytes,
                radio_frames: of_looks(frames),
                ..Queued::default()
            },
        }
    }

    fn channel_percent(&self) -> Option<f64> {
        let ([busy_before, before], [busy, now]) = (self.channel?, self.scene.channel()?);
        Some(100.0 * (busy - busy_before) as f64 / (now - before).max(1) as f64)
    }

    fn link_percent(&self) -> Option<f64> {
        let rate_bps = self.rate_bps? as f64;
        let seconds = self.since.elapsed().as_secs_f64();
        let sent = self.hosts.iter().zip(&self.sent);
        let sent = sent.map(|(id, before)| sent_bytes(*id).saturating_sub(*before)).max()?;
        Some(100.0 * 8.0 * sent as f64 / seconds / rate_bps)
    }

    fn socket_bytes(&self) -> [u64; 2] {
        let tables = ["tcp", "udp"];
        let files = self.hosts.iter().flat_map(|id| tables.map(|table| network_file(*id, table)));
        files
            .map(|file| queued_bytes(&read(&file)))
            .fold([0, 0], |sum, it| [0, 1].map(|n| sum[n] + it[n]))
    }
}

/// Returns a process of each network namespace.
fn one_of_each_host(watched: &[Watched]) -> Vec<u32> {
    let mut hosts = BTreeMap::new();
    for it in watched {
        if let Ok(namespace) = std::fs::read_link(format!("/proc/{}/ns/net", it.id)) {
            hosts.entry(namespace).or_insert(it.id);
        }
    }
    hosts.into_values().collect()
}

fn network_file(id: u32, name: &str) -> PathBuf {
    Path::new("/proc").join(id.to_string()).join("net").join(name)
}

/// Reads a file of /proc; empty if the process has ended.
fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Returns the bytes that a process's host has sent on its links.
fn sent_bytes(id: u32) -> u64 {
    transmitted(&read(&network_file(id, "dev")))
}

/// Sums the transmitted bytes of /proc/net/dev, the ninth number of each interface but `lo`.
fn transmitted(table: &str) -> u64 {
    let interfaces = table.lines().filter_map(|line| line.split_once(':'));
    let links = interfaces.filter(|(name, _)| name.trim() != "lo");
    links.filter_map(|(_, numbers)| numbers.split_whitespace().nth(8)?.parse::<u64>().ok()).sum()
}

/// Sums the bytes in send and receive buffers of /proc/net/tcp or udp: the fifth column.
fn queued_bytes(table: &str) -> [u64; 2] {
    const LISTENS: &str = "0A";
    let mut sum = [0, 0];
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().take(5).collect();
        let [_, _, _, state, queues] = fields[..] else { continue };
        // The queues of a listening socket count connections.
        if state == LISTENS {
            continue;
        }
        let hex = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let (send, receive) = queues.split_once(':').unwrap_or(("0", "0"));
        sum = [sum[0] + hex(send), sum[1] + hex(receive)];
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_bytes_are_in_the_fifth_column() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n\
            0: 0100007F:2C2F 00000000:0000 0A 00000000:00000005 00:00000000\n\
            1: 0100007F:2C2F 0100007F:A1B2 01 00001000:00000010 00:00000000\n\
            2: 0100007F:A1B2 0100007F:2C2F 01 00000001:00000000 00:00000000\n";
        assert_eq!(queued_bytes(table), [0x1001, 0x10]);
        assert_eq!(queued_bytes(""), [0, 0]);
    }

    #[test]
    fn bytes_on_the_loopback_are_not_counted() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes    packets\n\
            lo:  700 1 0 0 0 0 0 0 700 1 0 0 0 0 0 0\n veth0: 10 2 0 0 0 0 0 0 42 3 0 0 0 0 0 0\n";
        assert_eq!(transmitted(table), 42);
    }

    #[test]
    fn a_queue_is_located_by_its_bytes() {
        let of = |bytes, send_bytes, receive_bytes| {
            Queued { bytes, send_bytes, receive_bytes, ..Queued::default() }.place()
        };
        assert_eq!(of(100_000, 1000, 500), "inside the programs");
        assert_eq!(of(100_000, 90_000, 500), "in send buffers");
        assert_eq!(of(100_000, 900, 50_000), "in receive buffers");
    }
}
