// SPDX-License-Identifier: Apache-2.0
//! Teams of a relay: none reaches another, and none delays another.

use std::net::SocketAddr;
use tautline_proto::stats::{DropReason, RefusedPacket};
use tautline_proto::wire::relay::RelayHeader;
use tautline_proto::{
    ChannelId, Duration, Event, Instant, LinkConfig, Notice, PeerId, PublicKey, RadioId, Rights,
    SecretKey, TeamId, TeamLimits,
};
use tautline_testkit::attacker;
use tautline_testkit::attacker::liar::{Liar, LiarConfig};
use tautline_testkit::net::*;

const RELAY: usize = 0;
const RELAYED: Rights = Rights { relayed: true, max_priority: 255 };
const LIAR: &str = "liar";
/// A rate that no test reaches.
const FAST: u64 = 1_000_000_000;

/// A relay with teams of two nodes each. Node `1 + 2 * n` is the robot of team n, the next one its base.
struct Teams {
    net: Net,
    ids: Vec<TeamId>,
    /// The relay's ids of nodes 1, 2, ...
    members: Vec<PeerId>,
}

fn key(name: &str) -> PublicKey {
    SecretKey::insecure(name).public()
}

impl Teams {
    fn new(limits: &[TeamLimits], pipe: &Pipe) -> Self {
        let mut net = Net::new(1);
        net.add("relay", defaults(), pipe.clone());
        let mut teams = Self { net, ids: Vec::new(), members: Vec::new() };
        for (number, limits) in limits.iter().enumerate() {
            let team = teams.net.nodes[RELAY].endpoint.add_team(*limits);
            teams.ids.push(team);
            let nodes = ["robot", "base"].map(|role| {
                let node =
                    teams.net.add(&format!("{role}{number}"), defaults(), Pipe::with_rate(FAST));
                teams.enrol(team, &format!("team{number}/{role}"), &format!("{role}{number}"));
                teams.net.add_peer(node, RELAY);
                node
            });
            for (node, other) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
                assert_eq!(teams.net.add_peer_through(node, other, &[PeerId(0)]), PeerId(1));
            }
        }
        teams.net.run(2000 * MS);
        for node in 1..teams.net.nodes.len() {
            assert!(teams.net.nodes[node].endpoint.peer(PeerId(1)).up, "node {node}");
        }
        teams
    }

    /// Adds a member at the relay. The relay finds out the member's address.
    fn enrol(&mut self, team: TeamId, name: &str, own_name: &str) -> PeerId {
        let endpoint = &mut self.net.nodes[RELAY].endpoint;
        let id = endpoint.team_mut(team).add_member(name, key(own_name)).unwrap();
        endpoint.peer_mut(id).set_rights(RELAYED);
        let link =
            LinkConfig { remote: None, datagram_bytes: DATAGRAM, header_bytes: 28, metered: false };
        endpoint.peer_mut(id).add_link(self.net.now, RadioId(0), link).unwrap();
        self.members.push(id);
        id
    }

    /// The delays of a laser of 1 kB at 20 Hz from the robot of a team to its base, while `meanwhile` runs
    /// in each step of a millisecond.
    fn laser(
        &mut self,
        (team, channel): (usize, ChannelId),
        mut meanwhile: impl FnMut(&mut Net, u64),
    ) -> Vec<Duration> {
        let (robot, base) = (1 + 2 * team, 2 + 2 * team);
        let mut sent: Vec<Instant> = Vec::new();
        for step in 0..8000 {
            meanwhile(&mut self.net, step);
            if step % 50 == 0 {
                let number = sent.len() as u32;
                sent.push(self.net.now);
                self.net.send(robot, PeerId(1), channel, payload(number, 1000));
            }
            self.net.run(MS);
        }
        self.net.run(1000 * MS);
        let received = self.net.nodes[base].received.iter().filter(|it| it.2 == channel);
        let delay = |it: &(Instant, PeerId, ChannelId, tautline_proto::Received)| {
            it.0.since(sent[number_of(&it.3.payload) as usize])
        };
        let mut delays: Vec<_> = received.map(delay).collect();
        delays.sort_unstable();
        delays
    }

    fn scan(&mut self, team: usize) -> ChannelId {
        self.net.open(1 + 2 * team, PeerId(1), channel(topic("/scan", 200)))
    }
}

/// A member that sends packets to be relayed without end, whatever the relay reports.
struct Flood {
    liar: Liar,
    address: SocketAddr,
    number: u64,
    seen: usize,
}

impl Flood {
    fn new(teams: &mut Teams, team: usize) -> Self {
        let name = format!("{}/{LIAR}", teams.ids[team].0);
        let id = teams.ids[team];
        teams.enrol(id, &name, LIAR);
        Self::at(&teams.net)
    }

    fn at(net: &Net) -> Self {
        let node = net.nodes[RELAY].endpoint.key();
        let cast = LiarConfig { name: LIAR.into(), node, team: Vec::new() };
        let address = SocketAddr::from(([192, 0, 2, 1], 18470));
        Self { liar: Liar::new(cast), address, number: 0, seen: 0 }
    }

    /// Reads what the relay sent to the flooding member.
    fn listen(&mut self, net: &mut Net) {
        let sent = &net.nodes[RELAY].sent;
        let own: Vec<_> =
            sent[self.seen..].iter().filter(|it| it.remote == self.address).cloned().collect();
        self.seen = sent.len();
        for transmit in own {
            self.liar.handle_datagram(&transmit.datagram);
        }
    }

    fn step(&mut self, net: &mut Net, to: &str, packets: usize) {
        if let Some(call) = self.liar.due_initiation(net.now) {
            net.inject(RELAY, self.address, &call);
        }
        self.listen(net);
        for _ in 0..packets {
            self.number += 1;
            let header =
                RelayHeader { hops: 8, life: None, from: None, to: Some(key(to).short_name()) };
            let mut frames = Vec::new();
            let carried = header.with_header(&[7; 1200]);
            attacker::data(255, self.number, None).emit_relay(&carried, &mut frames);
            if let Some(packet) = self.liar.packet(net.now, &frames) {
                net.inject(RELAY, self.address, &packet);
            }
        }
    }
}

fn percentile(delays: &[Duration], percent: usize) -> Duration {
    delays[(delays.len() * percent / 100).min(delays.len() - 1)]
}

#[test]
fn members_reach_their_own_team_and_nobody_else() {
    let mut teams = Teams::new(&[TeamLimits::default(); 2], &Pipe::with_rate(FAST));
    let scan = teams.scan(0);
    teams.net.send(1, PeerId(1), scan, payload(1, 1000));
    teams.net.run(200 * MS);
    assert_eq!(teams.net.nodes[2].received.len(), 1);
    // A robot of team 0 and a base of team 1 that even know each other's keys.
    let across = [(1, 4), (4, 1)]
        .map(|(node, other)| (node, teams.net.add_peer_through(node, other, &[PeerId(0)])));
    teams.net.nodes.iter_mut().for_each(|node| node.sent.clear());
    let before: Vec<_> = [3, 4].map(|node| teams.net.nodes[node].received.len()).into();
    teams.net.run(5000 * MS);
    for (node, peer) in across {
        assert!(!teams.net.nodes[node].endpoint.peer(peer).up);
    }
    let relay = &teams.net.nodes[RELAY];
    for id in &teams.ids {
        let stats = relay.endpoint.team_stats(*id);
        assert!(stats.refused.get(RefusedPacket::NoRoute) > 0, "{stats:?}");
    }
    let unknown = Event::Notice(Notice::UnknownEnd { name: "team0/robot".into() });
    assert!(relay.events.contains(&unknown), "as for a node that does not exist");
    assert_eq!(before, [3, 4].map(|node| teams.net.nodes[node].received.len()));
    let notices = |it: &Event| matches!(it, Event::Notice(_));
    assert!(!teams.net.nodes[3].events.iter().any(notices), "{:?}", teams.net.nodes[3].events);
}

#[test]
fn a_false_name_does_not_reach_another_team() {
    let mut teams = Teams::new(&[TeamLimits::default(); 2], &Pipe::with_rate(FAST));
    let mut flood = Flood::new(&mut teams, 0);
    while !flood.liar.has_keys() {
        flood.step(&mut teams.net, "base1", 0);
        teams.net.run(10 * MS);
    }
    let forwarded = |teams: &Teams| {
        let relay = &teams.net.nodes[RELAY].endpoint;
        [2, 3].map(|member: usize| relay.peer(teams.members[member]).relayed().accepted)
    };
    teams.net.run(2000 * MS);
    let before = forwarded(&teams);
    for claimed in ["robot1", "base1", "base0", "relay", "nobody"] {
        for to in ["robot1", "base1"] {
            flood.number += 1;
            let (from, to) = (Some(key(claimed).short_name()), Some(key(to).short_name()));
            let carried = RelayHeader { hops: 8, life: None, from, to }.with_header(&[7; 100]);
            let mut frames = Vec::new();
            attacker::data(200, flood.number, None).emit_relay(&carried, &mut frames);
            let packet = flood.liar.packet(teams.net.now, &frames).unwrap();
            teams.net.nodes[RELAY].sent.clear();
            teams.net.inject(RELAY, flood.address, &packet);
            let sent = &teams.net.nodes[RELAY].sent;
            let others = [3, 4].map(|node: usize| teams.net.nodes[node].address);
            assert!(sent.iter().all(|it| !others.contains(&it.remote)), "{claimed}");
        }
    }
    // The teams' own heartbeats through the relay need a moment longer.
    assert_eq!(forwarded(&teams), before);
}

#[test]
fn two_keys_with_one_short_name_may_be_in_different_teams() {
    let mut teams = Teams::new(&[TeamLimits::default(); 2], &Pipe::with_rate(FAST));
    let endpoint = &mut teams.net.nodes[RELAY].endpoint;
    let key = key("third");
    let members = |teams: [Option<&'static str>; 2]| {
        [(teams[0], "a/x", key), (teams[1], "b/x", SecretKey::insecure("other").public())]
    };
    assert!(endpoint.check_members(&members([Some("a"), Some("b")])).is_ok());
    let twice = [(Some("a"), "a/x", key), (Some("b"), "b/x", key)];
    assert!(endpoint.check_members(&twice).is_err(), "a key belongs to one team");
    assert!(endpoint.team_mut(teams.ids[0]).add_member("a/x", key).is_ok());
    assert!(endpoint.team_mut(teams.ids[1]).add_member("b/x", key).is_err());
}

/// Runs a laser of team 1 while a member of team 0 floods the relay, which sends 10 Mbps. Returns the 99th
/// percentile of its delay, if at least half of its messages arrived.
fn p99_under_flood(limit_bps: Option<u64>, has_teams: bool) -> Option<Duration> {
    let flooding = TeamLimits { rate_bps: limit_bps, ..TeamLimits::default() };
    let mut teams = Teams::new(&[flooding, TeamLimits::default()], &Pipe::with_rate(FAST));
    let mut flood = Flood::new(&mut teams, if has_teams { 0 } else { 1 });
    let scan = teams.scan(1);
    teams.net.nodes[RELAY].pipe = Pipe::with_rate(10_000_000);
    let victim = if has_teams { "base0" } else { "robot1" };
    let delays = teams.laser((1, scan), |net, _| flood.step(net, victim, 2));
    let relay = &teams.net.nodes[RELAY].endpoint;
    let [own, other] = [0, 1].map(|team: usize| relay.team_stats(teams.ids[team]));
    println!(
        "limit {limit_bps:?}, other team {has_teams}: {} of 160, p50 {:?}, p99 {:?}; team 0 sent {} kB, \
         refused {:?}, dropped {:?}; team 1 sent {} kB",
        delays.len(),
        percentile(&delays, 50),
        percentile(&delays, 99),
        own.sent_bytes / 1000,
        own.refused.iter().collect::<Vec<_>>(),
        own.dropped.iter().collect::<Vec<_>>(),
        other.sent_bytes / 1000,
    );
    if let Some(limit_bps) = limit_bps {
        // The bound: 8 s of flood, one second before and one after it, and the burst.
        assert!(own.sent_bytes * 8 < limit_bps * 12, "{} bytes", own.sent_bytes);
        assert!(
            own.refused.get(RefusedPacket::TeamFull) + own.refused.get(RefusedPacket::Bound) > 0
        );
    }
    (delays.len() >= 80).then(|| percentile(&delays, 99))
}

#[test]
fn a_flood_of_one_team_does_not_delay_another() {
    let calm = flooded_by_nobody();
    println!("without a flood: p99 {calm:?}");
    for limit in [None, Some(2_000_000)] {
        let delay = p99_under_flood(limit, true).expect("most messages arrive");
        assert!(delay < calm + 12 * MS, "{limit:?}: {delay:?}, without a flood {calm:?}");
    }
    let same_team = p99_under_flood(None, false);
    assert!(same_team.is_none_or(|it| it > 50 * MS), "the flood is one: {same_team:?}");
}

fn flooded_by_nobody() -> Duration {
    let mut teams = Teams::new(&[TeamLimits::default(); 2], &Pipe::with_rate(FAST));
    let scan = teams.scan(1);
    teams.net.nodes[RELAY].pipe = Pipe::with_rate(10_000_000);
    percentile(&teams.laser((1, scan), |_, _| {}), 99)
}

#[test]
fn a_team_that_respects_its_window_loses_nothing() {
    let limits = TeamLimits { rate_bps: Some(1_000_000), ..TeamLimits::default() };
    let mut teams = Teams::new(&[limits], &Pipe::with_rate(FAST));
    let scan = teams.scan(0);
    let image = teams.net.open(1, PeerId(1), channel(topic("/image", 20)));
    let delays = teams.laser((0, scan), |net, step| {
        if step % 50 == 0 {
            // 2 Mbps of images.
            let _ = net.try_send(1, PeerId(1), image, payload(step as u32, 12_500));
        }
    });
    let stats = teams.net.nodes[RELAY].endpoint.team_stats(teams.ids[0]);
    println!("p99 {:?}; {stats:?}", percentile(&delays, 99));
    assert_eq!(delays.len(), 160, "the laser overtakes the images at their sender");
    assert!(percentile(&delays, 99) < 120 * MS, "{:?}", percentile(&delays, 99));
    assert_eq!(stats.refused.total() + stats.dropped.get(DropReason::Overflow), 0);
    let bps = stats.sent_bytes as f64 * 8.0 / 10.0;
    assert!((500_000.0..1_200_000.0).contains(&bps), "{bps}");
}

#[test]
fn a_full_queue_of_one_team_does_not_affect_another() {
    let limits = TeamLimits { rate_bps: Some(100_000), queue_bytes: 20_000 };
    let mut teams = Teams::new(&[limits, TeamLimits::default()], &Pipe::with_rate(FAST));
    let mut flood = Flood::new(&mut teams, 0);
    for _ in 0..500 {
        flood.step(&mut teams.net, "base0", 2);
        teams.net.run(MS);
    }
    let relay = &teams.net.nodes[RELAY].endpoint;
    let stats = relay.team_stats(teams.ids[0]);
    assert!(stats.refused.get(RefusedPacket::TeamFull) > 0, "{stats:?}");
    assert!(stats.queued_bytes <= limits.queue_bytes, "{stats:?}");
    assert_eq!(relay.team_stats(teams.ids[1]).refused.total(), 0);
}

#[test]
fn a_removed_team_frees_its_index() {
    let mut teams = Teams::new(&[TeamLimits::default(); 2], &Pipe::with_rate(FAST));
    let scan = teams.scan(0);
    teams.net.send(1, PeerId(1), scan, payload(1, 1000));
    teams.net.run(500 * MS);
    let before = teams.net.nodes[RELAY].endpoint.team_stats(teams.ids[0]);
    assert!(before.packets > 0 && before.sent_bytes > 1000, "{before:?}");
    let gone = teams.members[1];
    teams.net.remove_peer(RELAY, gone);
    let after = teams.net.nodes[RELAY].endpoint.team_stats(teams.ids[0]);
    assert!(after.packets >= before.packets, "the counters of a member that left stay");
    let gone = teams.members[0];
    teams.net.remove_peer(RELAY, gone);
    let endpoint = &mut teams.net.nodes[RELAY].endpoint;
    endpoint.team_mut(teams.ids[0]).remove();
    let next = endpoint.add_team(TeamLimits::default());
    assert_eq!(next, teams.ids[0], "ids are used again");
    assert_eq!(endpoint.team_stats(next).packets, 0);
    teams.net.run(1000 * MS);
    assert!(teams.net.nodes[3].endpoint.peer(PeerId(1)).up, "the other team continues");
}
