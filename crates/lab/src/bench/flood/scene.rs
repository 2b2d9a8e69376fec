// SPDX-License-Identifier: Apache-2.0
//! Robot, base and attacker; one phase of the load, and one restart.

use super::attacker::{Assault, RATE_PER_S, Rates};
use super::forgery::{Forgery, Tap};
use super::ground::{
    BASE, COUNTED, Ground, LEAD, NAMES, ROBOT, edit_base, key, refused, refused_since, subfolder,
};
use super::name;
use crate::rig::processes::wait_for;
use crate::rig::stats::Summary;
use crate::setup::daemon::{Daemon, DaemonSetup, write_statuses};
use crate::setup::flows::Flow;
use crate::setup::load::Load;
use crate::setup::ros;
use crate::setup::usage::{MachineTicks, Watch};
use crate::setup::world::Computer;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tautline_proto::PublicKey;

/// Longest wait until a peer is up or down.
const MEETING_PATIENCE: Duration = Duration::from_secs(60);
/// Time after which a daemon has closed its socket to a peer that disconnected.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(1500);

/// Forged handshake initiations of one kind, sent to one daemon.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// Index of the attacked daemon: [`ROBOT`] or [`BASE`].
    pub victim: usize,
    /// Kind of the initiations.
    pub forgery: Forgery,
}

impl Attack {
    /// Returns `robot` or `base`.
    pub fn victim_name(self) -> &'static str {
        NAMES[self.victim]
    }
}

/// A restart under attack.
#[derive(Debug, Clone, Copy)]
pub struct Restart {
    /// [`ROBOT`], whose address the base knows from before; or [`BASE`], which then knows no
    /// address and depends on the robot's initiation.
    pub who: usize,
    /// Attack during the restart.
    pub attack: Option<Attack>,
}

impl Restart {
    /// Returns the name in tables.
    pub fn name(self) -> String {
        format!("{} restarts, {}", NAMES[self.who], name(self.attack))
    }
}

/// Figures of one phase.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub round: u64,
    pub phase: String,
    pub laser: Summary,
    pub image: Summary,
    /// CPU time of the robot's and the base's daemon, percent of one core.
    pub cpu_percent: [f64; 2],
    /// Growth of the daemons' memory since the phase began.
    pub grown_bytes: [i64; 2],
    /// Percent of all cores that any program kept busy.
    pub machine_busy_percent: f64,
    /// Packets that the attacked daemon refused, by reason.
    pub refused: BTreeMap<String, u64>,
    pub flood: Option<FloodFigures>,
}

/// Counts of the attacked kernel.
#[derive(Debug, Serialize)]
pub struct FloodFigures {
    pub received_per_s: f64,
    pub received_bytes_per_s: f64,
    pub answers_per_s: f64,
    /// Bytes sent in response, percent of the bytes received, Ethernet headers included.
    pub answered_bytes_percent: f64,
    /// Forged datagrams dropped because the socket was full, percent.
    pub overflowed_percent: f64,
}

/// Times that a restarted daemon needs to connect to its peer.
#[derive(Debug, Serialize)]
pub struct Meeting {
    pub phase: String,
    /// Time from its start until both daemons report their peer up; infinite (`null`) if they never
    /// do.
    pub seconds: Vec<f64>,
}

impl Figures {
    /// Returns the laser's p99, ms.
    pub fn laser_p99(&self) -> Option<f64> {
        self.laser.delay_ms.map(|delay| delay.p99)
    }

    /// Returns the rate of received datagrams, percent of the intended rate.
    pub fn rate_percent(&self) -> Option<f64> {
        Some(100.0 * self.flood.as_ref()?.received_per_s / f64::from(RATE_PER_S))
    }

    pub fn answered_percent(&self) -> Option<f64> {
        Some(self.flood.as_ref()?.answered_bytes_percent)
    }

    /// Returns the growth of the daemon that grew most, in 10^6 bytes.
    pub fn growth_mb(&self) -> f64 {
        self.grown_bytes.into_iter().max().unwrap_or(0) as f64 / 1e6
    }
}

/// Both daemons on the computers of a `Ground`. Fields are dropped in this order.
pub struct Scene<'a> {
    setup: &'a DaemonSetup,
    folder: &'a Path,
    /// Daemons of robot and base; one is missing while it restarts.
    daemons: Vec<Daemon>,
    /// Public keys of robot and base.
    keys: [PublicKey; 2],
    /// A handshake initiation that each of them received.
    recorded: [Vec<u8>; 2],
    ground: Ground,
}

impl<'a> Scene<'a> {
    /// Starts everything on the first processor.
    pub fn new(setup: &'a DaemonSetup, folder: &'a Path) -> Result<Self> {
        let ground = Ground::new(folder)?;
        let daemons = setup.start(&ground.pair, folder)?;
        let keys = [key(&daemons[ROBOT].status()?)?, key(&daemons[BASE].status()?)?];
        let recorded = [vec![], vec![]];
        let mut scene = Self { setup, folder, daemons, keys, recorded, ground };
        for victim in [ROBOT, BASE] {
            scene.recorded[victim] = scene.record(victim)?;
        }
        scene.restart_base_without_address()?;
        Ok(scene)
    }

    /// Ends a daemon until the other daemon has sent it an initiation; returns the initiation.
    fn record(&mut self, who: usize) -> Result<Vec<u8>> {
        let tap = Tap::open(self.computer(who))?;
        self.daemons.remove(who).end()?;
        let call = wait_for(MEETING_PATIENCE, || tap.initiation())?;
        self.daemons.insert(who, self.setup.run(self.computer(who), self.folder, self.folder)?);
        self.await_connected()?;
        call.with_context(|| format!("{} is not called", NAMES[who]))
    }

    fn await_connected(&mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(Daemon::await_connected)
    }

    /// Restarts the base without the robot's address. The base then waits for the robot's
    /// initiation at the socket that receives from every address.
    fn restart_base_without_address(&mut self) -> Result<()> {
        edit_base(self.folder, &format!(", address: {}", self.ground.pair.robot.address), "")?;
        self.daemons.pop().context("no base")?.end()?;
        self.daemons.push(self.setup.run(self.computer(BASE), self.folder, self.folder)?);
        self.await_connected()
    }

    fn computer(&self, number: usize) -> &Computer {
        self.ground.computer(number)
    }

    /// Runs the load once, with an attack or without.
    pub fn phase(&mut self, round: u64, attack: Option<Attack>) -> Result<Figures> {
        let phase = name(attack);
        let folder = subfolder(self.folder, &format!("{}-{round}", phase.replace(' ', "-")))?;
        let flows = [Flow::Laser, Flow::Image];
        let mut load = Load::start_with_own_masters(&flows, &self.ground.pair, &folder)?;
        let asked = attack.map_or(BASE, |attack| attack.victim);
        let refused_before = refused(&self.daemons[asked].status()?);
        let before = self.resident()?;
        let assault = attack.map(|attack| self.assault(attack)).transpose()?;
        std::thread::sleep(LEAD);
        let (watch, ticks) = (Watch::start(&self.daemons)?, MachineTicks::now()?);
        load.publish(COUNTED)?;
        let watched = watch.stop(&self.daemons)?;
        let machine_busy_percent = MachineTicks::now()?.busy_percent_since(ticks);
        let flood = assault.map(|it| self.end(it, asked)).transpose()?;
        let after = self.resident()?;
        load.drain(COUNTED)?;
        write_statuses(&self.daemons, &folder)?;
        load.write()?;
        load.leave()?;
        let mut summaries = ros::summaries(&folder, &flows)?;
        let mut summary = |flow| summaries.remove(&flow).context("no figures of a flow");
        let refused = refused_since(&self.daemons[asked].status()?, &refused_before);
        Ok(Figures {
            round,
            phase,
            laser: summary(Flow::Laser)?,
            image: summary(Flow::Image)?,
            cpu_percent: [watched[ROBOT].cpu_percent, watched[BASE].cpu_percent],
            grown_bytes: [after[ROBOT] - before[ROBOT], after[BASE] - before[BASE]],
            machine_busy_percent,
            refused,
            flood,
        })
    }

    fn resident(&self) -> Result<[i64; 2]> {
        let of = |number: usize| -> Result<i64> {
            Ok(self.daemons[number].process.usage()?.resident_bytes as i64)
        };
        Ok([of(ROBOT)?, of(BASE)?])
    }

    fn assault(&self, attack: Attack) -> Result<Assault<()>> {
        let Attack { victim, forgery } = attack;
        let datagrams = forgery.datagrams(&self.keys[victim], &self.recorded[victim]);
        let flood = || self.ground.attacker.flood(victim, &datagrams);
        Assault::start(self.computer(victim), flood)
    }

    fn end(&self, assault: Assault<()>, victim: usize) -> Result<FloodFigures> {
        let ((), rates) = assault.end(self.computer(victim))?;
        let Rates { received, received_bytes, sent, sent_bytes, overflowed_percent } = rates;
        Ok(FloodFigures {
            received_per_s: received,
            received_bytes_per_s: received_bytes,
            answers_per_s: sent,
            answered_bytes_percent: 100.0 * sent_bytes / received_bytes,
            overflowed_percent,
        })
    }

    /// Restarts a daemon `times` times.
    pub fn meetings(&mut self, times: u64, restart: Restart) -> Result<Meeting> {
        let assault = restart.attack.map(|attack| self.assault(attack)).transpose()?;
        std::thread::sleep(LEAD);
        let seconds = (0..times).map(|_| self.meet(restart.who)).collect::<Result<_>>()?;
        if let (Some(assault), Some(attack)) = (assault, restart.attack) {
            self.end(assault, attack.victim)?;
        }
        Ok(Meeting { phase: restart.name(), seconds })
    }

    /// Kills a daemon and waits until the other one reports it down; then starts it, and returns
    /// the seconds until both report their peer up.
    fn meet(&mut self, who: usize) -> Result<f64> {
        drop(self.daemons.remove(who));
        let is_missed = || Ok((!is_up(&self.daemons[0].status()?)).then_some(()));
        wait_for(MEETING_PATIENCE, is_missed)?
            .context("the other daemon does not report the killed one down")?;
        std::thread::sleep(FORGOTTEN_AFTER);
        self.daemons.insert(who, self.setup.run(self.computer(who), self.folder, self.folder)?);
        let start = Instant::now();
        let met = wait_for(MEETING_PATIENCE, || {
            // There is no status before the daemon listens.
            let mut all = self.daemons.iter();
            let met = all.all(|daemon| daemon.status().is_ok_and(|status| is_up(&status)));
            Ok(met.then(|| start.elapsed().as_secs_f64()))
        })?;
        Ok(met.unwrap_or(f64::INFINITY))
    }
}

fn is_up(status: &Value) -> bool {
    status["peers"][0]["state"] == "up"
}
