// SPDX-License-Identifier: Apache-2.0
//! Counters of the last ten seconds: which messages were dropped, and why. All other counters grow
//! from the node's start, but `status` must describe the present.

use crate::status::GivenUpReport;
use crate::topics::{ChannelKey, Exchange, LocalTopic};
use std::collections::{HashMap, VecDeque};
use tautline_proto::stats::{DropReason, Drops};
use tautline_proto::{Duration, Endpoint, Instant, PeerId};

/// Number of samples kept. One sample is taken per second.
const SAMPLES: usize = 10;
/// Minimum time that a report must cover.
const MIN_REPORT_SPAN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// Messages known to be complete at the receiver.
    delivered: u64,
    dropped: Drops,
}

#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// Payload bytes accepted for the peer.
    wanted_bytes: u64,
    sent_bytes: u64,
}

/// The messages of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stream {
    Out(ChannelKey),
    In(ChannelKey),
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    counts: HashMap<Stream, Counts>,
    loads: HashMap<PeerId, Load>,
}

/// The samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    samples: VecDeque<Sample>,
}

/// Recent rates to one peer, in bits per second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// Rate at which payload was accepted for the peer.
    pub(crate) wanted_bps: f64,
    /// Rate at which the links to the peer carried IP packets.
    pub(crate) sent_bps: f64,
}

/// The counters from the oldest sample until now.
#[derive(Debug)]
pub(crate) struct RecentCounters<'a> {
    pub(crate) exchange: Exchange<'a>,
    /// The oldest sample and its age in seconds; `None` until the age is long enough for a report.
    oldest: Option<(&'a Sample, f64)>,
    loads: HashMap<PeerId, Load>,
}

impl Recent {
    /// Takes a sample; to be called once per second.
    pub(crate) fn sample(&mut self, now: Instant, exchange: Exchange<'_>) {
        let Exchange { endpoint, topics, .. } = exchange;
        let out = topics.exported_topics().values().flat_map(LocalTopic::keys).map(Stream::Out);
        let incoming = endpoint.peers().flat_map(|peer| {
            let channels = endpoint.peer(peer).channels_in();
            channels.map(move |channel| Stream::In(ChannelKey { peer, channel }))
        });
        let streams = out.chain(incoming);
        let counts = streams.filter_map(|stream| Some((stream, counts(endpoint, stream)?)));
        self.keep(Sample { at: now, counts: counts.collect(), loads: loads(exchange) });
    }

    fn keep(&mut self, sample: Sample) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    fn oldest(&self, now: Instant) -> Option<(&Sample, f64)> {
        let oldest = self.samples.front()?;
        let age = now.since(oldest.at);
        (age >= MIN_REPORT_SPAN).then_some((oldest, age.as_secs_f64()))
    }

    /// Returns the counters from the oldest sample until `now`.
    pub(crate) fn counters_until<'a>(
        &'a self,
        now: Instant,
        exchange: Exchange<'a>,
    ) -> RecentCounters<'a> {
        RecentCounters { exchange, oldest: self.oldest(now), loads: loads(exchange) }
    }
}

impl RecentCounters<'_> {
    /// Returns the recent rates to a peer; `None` until there are samples for a report.
    pub(crate) fn rates(&self, peer: PeerId) -> Option<Rates> {
        let (oldest, seconds) = self.oldest?;
        let [before, now] =
            [&oldest.loads, &self.loads].map(|loads| loads.get(&peer).copied().unwrap_or_default());
        let bps = |before: u64, now: u64| now.saturating_sub(before) as f64 * 8.0 / seconds;
        Some(Rates {
            wanted_bps: bps(before.wanted_bytes, now.wanted_bytes),
            sent_bps: bps(before.sent_bytes, now.sent_bytes),
        })
    }

    /// Returns a report of the dropped messages of a channel; `None` if none were dropped.
    pub(crate) fn given_up(&self, stream: Stream) -> Option<GivenUpReport> {
        let (oldest, seconds) = self.oldest?;
        let before = oldest.counts.get(&stream).copied().unwrap_or_default();
        let counts = counts(self.exchange.endpoint, stream)?;
        let lost = increases(&before.dropped, &counts.dropped);
        let messages = lost.iter().map(|(_, count)| count).sum();
        if messages == 0 {
            return None;
        }
        let is_short = lost.iter().any(|(reason, _)| reason.is_prevented_by_capacity());
        let link_cause = match stream {
            Stream::Out(key) if is_short => self.capacity_shortage(key.peer),
            _ => None,
        };
        Some(GivenUpReport {
            seconds,
            messages,
            of: messages + counts.delivered.saturating_sub(before.delivered),
            reasons: lost.iter().map(|(reason, n)| (reason.as_str().into(), *n)).collect(),
            why: reason_text(&lost, link_cause),
        })
    }

    /// Returns, in words, why the links to a peer lacked capacity; `None` if the average rates do
    /// not show a shortage.
    fn capacity_shortage(&self, peer: PeerId) -> Option<String> {
        let endpoint = self.exchange.endpoint;
        let view = endpoint.peer(peer);
        if !view.up {
            return Some(format!("{} is down", view.name));
        }
        let links = endpoint.links().filter_map(|id| endpoint.link(id));
        let mut up = links.filter(|link| link.peer == peer && link.up && !link.silent);
        if up.next().is_some_and(|first| first.spent) && up.all(|link| link.spent) {
            return Some(format!("the budgets of the links to {} are used up", view.name));
        }
        let rates = self.rates(peer)?;
        // If less was accepted than sent, messages came in bursts, which the averages do not show.
        (rates.wanted_bps > rates.sent_bps).then(|| {
            let [sent, wanted] = [rates.sent_bps, rates.wanted_bps].map(bit_rate);
            let links = endpoint.links().filter_map(|id| endpoint.link(id));
            let links = links.filter(|link| link.peer == peer).count();
            let link = if links == 1 { "link" } else { "links" };
            format!("{link} to {} carried {sent}; {wanted} wanted", view.name)
        })
    }
}

fn counts(endpoint: &Endpoint, stream: Stream) -> Option<Counts> {
    let (delivered, dropped) = match stream {
        Stream::Out(ChannelKey { peer, channel }) => {
            let (_, _, stats) = endpoint.peer(peer).channel_out(channel)?;
            (stats.delivered, stats.dropped)
        }
        Stream::In(ChannelKey { peer, channel }) => {
            let (_, _, stats) = endpoint.peer(peer).channel_in(channel)?;
            (stats.delivered, stats.dropped)
        }
    };
    Some(Counts { delivered, dropped })
}

fn loads(exchange: Exchange<'_>) -> HashMap<PeerId, Load> {
    let Exchange { endpoint, topics, .. } = exchange;
    let mut loads = HashMap::<_, Load>::new();
    for ChannelKey { peer, channel } in topics.exported_topics().values().flat_map(LocalTopic::keys)
    {
        if let Some((_, _, stats)) = endpoint.peer(peer).channel_out(channel) {
            loads.entry(peer).or_default().wanted_bytes += stats.bytes;
        }
    }
    for link in endpoint.links().filter_map(|id| endpoint.link(id)) {
        loads.entry(link.peer).or_default().sent_bytes += link.stats.sent_bytes;
    }
    loads
}

/// Returns the growth of each counter that grew, the largest first.
fn increases(before: &Drops, now: &Drops) -> Vec<(DropReason, u64)> {
    let increases =
        |(reason, count): (DropReason, u64)| (reason, count.saturating_sub(before.get(reason)));
    let mut all: Vec<_> = now.iter().map(increases).filter(|(_, count)| *count > 0).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all
}

/// Returns the reasons in words:
/// `newer messages replaced them (60), they exceeded their lifespan (2) (link to base ...)`.
fn reason_text(lost: &[(DropReason, u64)], link_cause: Option<String>) -> String {
    let part = |(reason, count): &(DropReason, u64)| match lost.len() {
        1 => reason.clause().to_owned(),
        _ => format!("{} ({count})", reason.clause()),
    };
    let parts: Vec<String> = lost.iter().map(part).collect();
    let tail = link_cause.map(|text| format!(" ({text})")).unwrap_or_default();
    format!("{}{tail}", parts.join(", "))
}

/// Formats `3.1 Mbps`.
fn bit_rate(bps: f64) -> String {
    let scales = [(1e9, "Gbps"), (1e6, "Mbps"), (1e3, "kbps")];
    // The limit is the value from which rounding would give four digits.
    match scales.into_iter().find(|(scale, _)| bps >= 0.99995 * scale) {
        Some((scale, unit)) => format!("{:.1} {unit}", bps / scale),
        None => format!("{bps:.0} bps"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drops(counts: &[(DropReason, u64)]) -> Drops {
        let mut drops = Drops::default();
        for (reason, count) in counts {
            (0..*count).for_each(|_| drops.add(*reason));
        }
        drops
    }

    #[test]
    fn only_growing_counters_are_reported_largest_first() {
        use DropReason::{Expired, Lost, Superseded};
        let before = drops(&[(Lost, 5), (Superseded, 3)]);
        let now = drops(&[(Lost, 5), (Superseded, 4), (Expired, 9)]);
        assert_eq!(increases(&before, &now), [(Expired, 9), (Superseded, 1)]);
        assert_eq!(increases(&now, &now), []);
    }

    #[test]
    fn the_reason_of_drops_is_a_sentence() {
        let one = [(DropReason::Superseded, 82)];
        let link = Some("link to base carried 3.1 Mbps; 5.2 Mbps wanted".into());
        assert_eq!(
            reason_text(&one, link),
            "newer messages replaced them (link to base carried 3.1 Mbps; 5.2 Mbps wanted)"
        );
        let two = [(DropReason::Lost, 3), (DropReason::Late, 1)];
        assert_eq!(
            reason_text(&two, None),
            "fragments were lost and not repaired in time (3), newer messages had arrived before them (1)"
        );
    }

    #[test]
    fn rates_have_a_unit_and_one_digit_behind_the_point() {
        let expected = [(999.0, "999 bps"), (3_140_000.0, "3.1 Mbps"), (999_990.0, "1.0 Mbps")];
        for (bps, text) in expected {
            assert_eq!(bit_rate(bps), text);
        }
    }

    #[test]
    fn as_many_samples_are_kept_as_are_reported() {
        let mut recent = Recent::default();
        assert!(recent.oldest(Instant(0)).is_none());
        let at = |second: u64| Instant(second * 1_000_000_000);
        for second in 0..30 {
            recent.keep(Sample { at: at(second), counts: HashMap::new(), loads: HashMap::new() });
        }
        assert_eq!(recent.samples.len(), SAMPLES);
        assert_eq!(recent.oldest(at(30)).map(|(_, age)| age), Some(10.0));
        assert!(recent.oldest(at(20)).is_none(), "too short a time to tell of");
    }
}
