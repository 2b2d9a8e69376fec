// SPDX-License-Identifier: Apache-2.0
//! Robot, base, and a peer of the base that has turned against it; one phase of the load.

use super::kinds::{Barrage, CALLED_SERVICE, HEARD_TOPIC, Kind};
use super::probe::{LATE_OVER_MS, Probe};
use super::toll::{DaemonCost, Meter};
use super::{RATE_PER_S, Rights};
use crate::bench::flood::attacker::{Assault, at_rate};
use crate::bench::flood::ground::{
    BASE, COUNTED, Ground, LEAD, ROBOT, edit_base, key, refused, refused_since, subfolder,
};
use crate::rig::processes::Process;
use crate::rig::punctual::stay_on;
use crate::rig::stats::{Delay, Lateness, Summary};
use crate::rig::worker::Worker;
use crate::setup::daemon::{Daemon, DaemonSetup};
use crate::setup::flows::{ALL, Flow};
use crate::setup::load::Load;
use crate::setup::ros::{self, RosProgram, START_PATIENCE};
use crate::setup::usage::MachineTicks;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tautline::keys;
use tautline_proto::PublicKey;
use tautline_testkit::peer::{Identity, Peer};

/// Name of the attacker in the base's file.
const MALLORY: &str = "mallory";
/// Time after the attacker has left until its leftovers are checked. A daemon no longer publishes the topics of
/// a peer that has been down for ten seconds, and notices within seconds that the peer is down.
pub const AFTER: Duration = Duration::from_secs(15);
/// A daemon whose memory exceeds its idle memory by more than this is restarted before the next
/// phase.
const FRESH_BYTES: u64 = 8_000_000;
/// Time before a daemon's memory counts as that of an idle daemon.
const SETTLING: Duration = Duration::from_secs(2);
/// Bytes of control messages that may stay queued for a peer until it returns.
const FEW_BYTES: u64 = 1000;
/// Maximum number of leftovers that are named; further leftovers are only counted.
const NAMED: usize = 5;

/// Figures of one phase.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub rights: Rights,
    /// Number of the run, from 1.
    pub run: u64,
    /// Kind of the attack; `None` for a baseline.
    pub kind: Option<Kind>,
    /// Whether the delays are judged: the phase was not repeated.
    pub judged: bool,
    /// Scheduling delay of the machine itself; `None` if it could not be measured.
    pub machine_late_ms: Option<Lateness>,
    pub flows: BTreeMap<Flow, Summary>,
    /// Resource use of the attacked daemon.
    pub toll: DaemonCost,
    /// Memory of the attacked daemon, idle before the phase.
    pub idle_bytes: u64,
    /// Memory of the attacked daemon after the phase.
    pub after_bytes: Option<u64>,
    /// Percent of all cores that any program kept busy.
    pub machine_busy_percent: f64,
    /// Packets of the attacker per second that reached the victim's kernel.
    pub received_per_s: f64,
    /// Percent of these packets that were dropped because the socket was full.
    pub overflowed_percent: f64,
    /// Packets per second that the victim sent to the attacker.
    pub answers_per_s: f64,
    /// Whether the victim agreed to everything that the kind needs.
    pub agreed: bool,
    /// Packets that the daemon refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Description of the daemon's death.
    pub died: Option<String>,
    /// Leftovers: entries after [`AFTER`] that did not exist before.
    pub left: Vec<String>,
}

impl Figures {
    /// Returns the p99 in ms; infinite if no message arrived.
    pub fn p99(&self, flow: Flow) -> f64 {
        self.delay(flow).map_or(f64::INFINITY, |delay| delay.p99)
    }

    /// Returns the median in ms; infinite if no message arrived.
    pub fn p50(&self, flow: Flow) -> f64 {
        self.delay(flow).map_or(f64::INFINITY, |delay| delay.p50)
    }

    fn delay(&self, flow: Flow) -> Option<Delay> {
        self.flows.get(&flow)?.delay_ms
    }

    /// Whether the machine itself was late, as far as that is known.
    pub fn machine_was_late(&self) -> bool {
        self.machine_late_ms.is_some_and(|late| late.p99 > LATE_OVER_MS)
    }

    /// Returns the messages received, percent of those sent.
    pub fn received_percent(&self, flow: Flow) -> f64 {
        self.flows.get(&flow).map_or(0.0, |summary| summary.mdr_percent)
    }

    /// Returns the numbers of messages received and sent, for tables.
    pub fn received_of_sent(&self, flow: Flow) -> String {
        self.flows.get(&flow).map_or("none".into(), |it| format!("{}/{}", it.received, it.sent))
    }

    /// Returns the largest growth of the daemon's memory, in 10^6 bytes.
    pub fn growth_mb(&self) -> f64 {
        self.toll.peak_bytes.saturating_sub(self.idle_bytes) as f64 / 1e6
    }

    /// Returns the growth that remained after the attacker left, in 10^6 bytes.
    pub fn left_mb(&self) -> Option<f64> {
        Some(self.after_bytes?.saturating_sub(self.idle_bytes) as f64 / 1e6)
    }
}

/// Daemons and attacker on the computers of a `Ground`. Fields are dropped in this order.
pub struct Scene<'a> {
    setup: &'a DaemonSetup,
    folder: &'a Path,
    rights: Rights,
    daemons: Vec<Daemon>,
    /// Memory of the base's idle daemon.
    idle_bytes: u64,
    /// Number of phases so far.
    made: usize,
    identity: Identity,
    robot: PublicKey,
    _attacked: Process,
    ground: Ground,
}

impl<'a> Scene<'a> {
    /// Starts everything on the first processor.
    pub fn new(setup: &'a DaemonSetup, folder: &'a Path, rights: Rights) -> Result<Self> {
        let ground = Ground::new(folder)?;
        let pair = &ground.pair;
        let daemons = setup.start(pair, folder)?;
        let [robot, base] = [key(&daemons[ROBOT].status()?)?, key(&daemons[BASE].status()?)?];
        let file = folder.join(format!("{MALLORY}.key"));
        let public = keys::generate(&file)?;
        let line = format!("peers:\n  {MALLORY}: {{ key: {public}{} }}\n", rights.lines());
        edit_base(folder, "peers:\n", &line)?;
        edit_base(folder, "radios:", &format!("services: [ {CALLED_SERVICE} ]\nradios:"))?;
        let mut attacked =
            RosProgram::own(&pair.base, folder).python("attacked", "attacked.py", &[])?;
        attacked.await_line("ready", START_PATIENCE)?;
        let identity = Identity { name: MALLORY.into(), secret: keys::load(&file)?, other: base };
        let mut scene = Self {
            setup,
            folder,
            rights,
            daemons,
            idle_bytes: 0,
            made: 0,
            identity,
            robot,
            _attacked: attacked,
            ground,
        };
        scene.restart_base()?;
        Ok(scene)
    }

    /// Restarts the base's daemon.
    fn restart_base(&mut self) -> Result<()> {
        drop(self.daemons.remove(BASE));
        let base = self.setup.run(self.ground.computer(BASE), self.folder, self.folder)?;
        self.daemons.insert(BASE, base);
        await_peer(&mut self.daemons[BASE], "robot")?;
        std::thread::sleep(SETTLING);
        self.idle_bytes = self.daemons[BASE].process.usage()?.resident_bytes;
        Ok(())
    }

    /// Runs the load once, with an attack or without.
    pub fn phase(&mut self, run: u64, kind: Option<Kind>) -> Result<Figures> {
        let phase = kind.map_or("quiet".into(), Kind::name);
        let folder = subfolder(self.folder, &format!("{}-{phase}", self.made))?;
        self.made += 1;
        let registered = self.registrations()?;
        let mut load = Load::start_with_own_masters(&ALL, &self.ground.pair, &folder)?;
        let refused_before = refused(&self.daemons[BASE].status()?);
        let (meter, ticks) =
            (Meter::start(&self.daemons[BASE], "base", self.folder)?, MachineTicks::now()?);
        let assault = kind.map(|kind| self.assault(kind)).transpose()?;
        std::thread::sleep(LEAD);
        let first_ns = load.begin(COUNTED)?;
        let probe = Probe::start(first_ns..first_ns + COUNTED.as_nanos() as u64);
        load.await_published(COUNTED)?;
        let machine_late_ms = probe.end()?;
        let toll = meter.stop(&self.daemons[BASE])?;
        let machine_busy_percent = MachineTicks::now()?.busy_percent_since(ticks);
        let base = self.ground.computer(BASE);
        let (agreed, rates) = assault.map(|it| it.end(base)).transpose()?.unwrap_or_default();
        let gone = Instant::now();
        load.drain(COUNTED)?;
        load.write()?;
        load.leave()?;
        // After baseline phases as well: programs that return sooner lose messages.
        std::thread::sleep(AFTER.saturating_sub(gone.elapsed()));
        let mut figures = Figures {
            rights: self.rights,
            run,
            kind,
            machine_late_ms,
            flows: ros::summaries(&folder, &ALL)?,
            toll,
            idle_bytes: self.idle_bytes,
            machine_busy_percent,
            received_per_s: rates.received,
            overflowed_percent: rates.overflowed_percent,
            answers_per_s: rates.sent,
            agreed,
            ..Figures::default()
        };
        self.record_leftovers(&mut figures, &registered, &refused_before)?;
        Ok(figures)
    }

    /// Records the attacker's leftovers. Restarts the daemon if its state without an attack is no
    /// longer known.
    fn record_leftovers(
        &mut self,
        figures: &mut Figures,
        registered: &BTreeSet<String>,
        refused_before: &BTreeMap<String, u64>,
    ) -> Result<()> {
        let base = &mut self.daemons[BASE];
        if let Err(error) = base.process.check_running() {
            figures.died = Some(format!("{error:#}"));
            return self.restart_base();
        }
        let Ok(status) = base.status() else {
            figures.died = Some("it runs, but does not respond to `tautline status`".into());
            return self.restart_base();
        };
        figures.after_bytes = Some(base.process.usage()?.resident_bytes);
        figures.refused = refused_since(&status, refused_before);
        let now = self.registrations()?;
        figures.left = leftovers(&status, now.difference(registered));
        if !figures.left.is_empty()
            || figures.after_bytes.is_none_or(|after| after > self.idle_bytes + FRESH_BYTES)
        {
            self.restart_base()?;
        }
        Ok(())
    }

    fn registrations(&self) -> Result<BTreeSet<String>> {
        RosProgram::own(self.ground.computer(BASE), self.folder).registrations()
    }

    fn assault(&self, kind: Kind) -> Result<Assault<bool>> {
        let (attacker, identity) = (&self.ground.attacker, self.identity.clone());
        let barrage = Barrage::new(kind, [&identity.other, &self.robot]);
        let processor = attacker.processor;
        let socket = attacker.socket(BASE)?;
        let mut peer = Peer::meet(socket, identity).context("the attacker connects to the base")?;
        Assault::start(self.ground.computer(BASE), || {
            Ok(Worker::start(move |stop| {
                stay_on(processor)?;
                attack(&mut peer, barrage, stop)
            }))
        })
    }
}

/// Attacks until `stop` is set; returns whether the victim agreed to what the kind needs. The peer
/// leaves without a goodbye.
fn attack(peer: &mut Peer, mut barrage: Barrage, stop: &AtomicBool) -> Result<bool> {
    let agreed = barrage.prepare(peer)?;
    at_rate(RATE_PER_S, stop, |_| {
        barrage.send(peer)?;
        peer.listen()?;
        Ok(())
    })?;
    Ok(agreed)
}

/// Waits until a daemon is connected to its master and that peer; other peers may be down.
fn await_peer(daemon: &mut Daemon, name: &str) -> Result<()> {
    daemon.await_status(|status| {
        let is_up = |peer: &Value| peer["name"] == name && peer["state"] == "up";
        status["gateways"][0]["connected"] == true
            && status["peers"].as_array().is_some_and(|peers| peers.iter().any(is_up))
    })
}

/// Returns the attacker's leftovers in status and at the master.
fn leftovers<'a>(status: &Value, registered: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut left = Vec::new();
    let entries = |list: &str| status[list].as_array().cloned().unwrap_or_default();
    for peer in entries("peers").iter().filter(|peer| peer["name"] == MALLORY) {
        if peer["state"] == "up" {
            left.push("the peer is up".into());
        }
        if let Some(bytes) = peer["queued_bytes"].as_u64().filter(|it| *it > FEW_BYTES) {
            left.push(format!("{bytes} bytes are queued for the peer"));
        }
    }
    let topics = entries("topics");
    // A topic that a local program reads stays published, for the return of the peer.
    let of_peer = topics.iter().filter(|it| {
        it["peer"] == MALLORY && it["direction"] == "in" && it["topic"] != HEARD_TOPIC
    });
    left.extend(shortened_list("status", of_peer.map(|it| it["topic"].as_str().unwrap_or("?"))));
    // Topics that the robot publishes appear and disappear with the load.
    let is_expected =
        |word: &str| word == HEARD_TOPIC || ALL.iter().any(|flow| flow.topic() == word);
    let of_daemon =
        registered.filter(|it| it.contains("tautline") && !it.split(' ').any(is_expected));
    left.extend(shortened_list("master", of_daemon.map(String::as_str)));
    left
}

/// Returns the first entries, and the number of the others.
fn shortened_list<'a>(place: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<&str> = names.collect();
    let named = names.iter().take(NAMED).map(|name| format!("{place}: {name:.80}"));
    let more = names.len().saturating_sub(NAMED);
    let rest = (more > 0).then(|| format!("{place}: {more} more"));
    named.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_new_leftovers_are_reported() {
        let topic = |peer: &str, direction: &str| json!({ "topic": "/t", "peer": peer, "direction": direction });
        let status = json!({
            "peers": [{ "name": MALLORY, "state": "down", "queued_bytes": 7000 }],
            "topics": [topic(MALLORY, "in"), topic(MALLORY, "out"), topic("robot", "in")],
        });
        let registered: Vec<String> =
            (0..7).map(|n| format!("publisher /t{n} /tautline")).collect();
        let left = leftovers(&status, registered.iter());
        assert_eq!(left[..2], ["7000 bytes are queued for the peer", "status: /t"]);
        assert_eq!((left.len(), left[7].as_str()), (8, "master: 2 more"));
    }
}
