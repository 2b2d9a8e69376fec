// SPDX-License-Identifier: Apache-2.0
//! The data plane: one thread with an event loop. The loop waits for packets, timers and inputs,
//! passes each of them to the protocol, and drains the protocol's outputs.
//!
//! [`Driver`] passes each event to the part that it concerns. A part has its own state, and gets what
//! all parts use as [`Common`]: no part knows the driver.
//!
//! | part | its state |
//! |---|---|
//! | [`Links`], [`Radios`] | links with their paths and sockets; radios by interface |
//! | [`PacketReader`], [`PacketSender`] | received datagrams and each peer's time budget; the next train |
//! | [`Teams`], [`Beacons`], [`Budgets`], [`Silence`], [`Comparison`], [`Clocks`], [`News`] | one concern each |

mod beacons;
mod budgets;
mod clocks;
mod common;
mod entry;
mod event_loop;
mod link;
mod links;
mod listen;
mod news;
mod peers;
mod planned;
mod ports;
mod radios;
mod realtime;
mod receive;
mod rendezvous;
mod silence;
mod teams;
mod train;
mod transmit;
mod usage;

use crate::audit::{Audit, Recorder};
use crate::clock::Clock;
use crate::codec::Codec;
use crate::config::{Config, Limits, PeerConfig, Security};
use crate::diagnostics::{Diagnostics, LinkTopic};
use crate::error::{OpenError, RunError};
use crate::inlet::{InletState, Input};
use crate::keys;
use crate::paths::Paths;
use crate::planned::Planner;
use crate::recent::Recent;
use crate::report::Reporter;
use crate::selection::Selection;
use crate::topics::{Shared, Topics};
use beacons::Beacons;
pub use beacons::{GROUP_V4, GROUP_V6};
use budgets::Budgets;
use clocks::Clocks;
use common::Common;
use entry::FileEntry;
use links::Links;
use listen::Listen;
use news::News;
use planned::Comparison;
use radios::Radios;
use receive::PacketReader;
use silence::Silence;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tautline_gateway::{Command, Gateway};
use tautline_proto::{Endpoint, Instant, PeerId, PublicKey, Rights, SecretKey, SetupError};
use teams::Teams;
use transmit::PacketSender;

/// Settings of the data plane that are not in the robot's file.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Called by the loop to show that it runs.
    pub watchdog: Option<Watchdog>,
    /// Makes models of the channels that the file plans.
    pub planner: Option<Planner>,
}

/// A function that the loop calls periodically, so that a service manager sees that it runs.
#[derive(Debug, Clone, Copy)]
pub struct Watchdog {
    /// Interval.
    pub every: Duration,
    /// The function; it must not block.
    pub alive: fn(),
}

pub(crate) struct Driver {
    common: Common,
    topics: Topics,
    /// Selects the topics and services that may be sent. Gateways read it.
    selection: Arc<RwLock<Selection>>,
    links: Links,
    reader: PacketReader,
    sender: PacketSender,
    teams: Teams,
    beacons: Option<Beacons>,
    silence: Silence,
    budgets: Budgets,
    comparison: Comparison,
    clocks: Clocks,
    news: News,
    recent: Recent,
    diagnostics: Option<Diagnostics>,
    inputs: Receiver<Input>,
    /// Whether the queue may hold more inputs than were taken.
    more_inputs: bool,
    /// Whether the protocol may have more events than were handled.
    more_events: bool,
    waiting: Arc<InletState>,
    drain_until: Option<Instant>,
    /// Whether messages that were accepted before the shutdown may be in the codec.
    is_encoding: bool,
}

impl Driver {
    pub(crate) fn new(
        config: &Config,
        selection: Arc<RwLock<Selection>>,
        inputs: Receiver<Input>,
        waiting: Arc<InletState>,
    ) -> Result<Self, OpenError> {
        let listen = Listen::open(config.listen, waiting.wake())?;
        let endpoint = Endpoint::new(protocol_config(config)?, Box::new(keys::random))?;
        let beacons = Beacons::new(config, listen.socket());
        let mut common = Common {
            clock: Clock::start(),
            config: config.clone(),
            endpoint,
            shared: Shared::new(config),
            reporter: Reporter::new(config, listen.address),
            listen,
        };
        let radios = Radios::new(&mut common);
        let mut driver = Self {
            common,
            topics: Topics::new(config),
            selection,
            links: Links::new(radios),
            reader: PacketReader::new(),
            sender: PacketSender::default(),
            teams: Teams::default(),
            beacons,
            silence: Silence::default(),
            budgets: Budgets::new(waiting.clone()),
            comparison: Comparison::default(),
            clocks: Clocks::default(),
            news: News::new(LinkTopic::new(config)),
            recent: Recent::default(),
            diagnostics: Diagnostics::new(config),
            inputs,
            more_inputs: false,
            more_events: false,
            waiting,
            drain_until: None,
            is_encoding: false,
        };
        driver.apply_peers(&config.peers)?;
        driver.clocks.check(&mut driver.common);
        Ok(driver)
    }

    pub(crate) fn key(&self) -> PublicKey {
        self.common.endpoint.key()
    }

    pub(crate) fn record_in(&mut self, audit: Audit) {
        self.common.shared.recorder = Recorder::new(audit);
    }

    /// Runs until shutdown, then unregisters the gateway.
    pub(crate) fn run(
        mut self,
        gateway: Box<dyn Gateway>,
        codec: &Codec,
        paths: Paths,
        settings: &Settings,
    ) -> Result<(), RunError> {
        self.comparison = Comparison::new(&self.common.config, settings.planner);
        self.links.paths = Some(paths);
        self.links.follow_paths(&mut self.common);
        realtime::enter(&self.common.config.realtime);
        let result = self.run_loop(&*gateway, codec, settings);
        // Releases every thread that is blocked on an input, including the gateway's own.
        self.waiting.close();
        self.check_budgets(self.common.now());
        self.budgets.close();
        drop(self);
        gateway.shutdown();
        result
    }

    /// Counts the bytes of all links since the last call.
    fn check_budgets(&mut self, now: Instant) {
        if self.budgets.check(now, &mut self.common, &mut self.links.table) {
            self.news.schedule();
        }
    }
}

/// Replaces the configuration between two iterations of the loop.
impl Driver {
    /// Applies `new`. Steps that may fail come first: after an error nothing has changed.
    fn reconfigure(&mut self, gateway: &dyn Gateway, new: Config) -> Result<(), String> {
        teams::check_members(&self.common.endpoint, &new.peers)
            .and_then(|()| peers::check_links(&new.peers))
            .map_err(|error| error.to_string())?;
        let old = std::mem::replace(&mut self.common.config, new.clone());
        self.apply_limits();
        self.links.radios.follow(&mut self.common, &old);
        if old.marking != new.marking {
            self.links.reconnect(&mut self.common);
        }
        self.apply_peers(&new.peers).map_err(|error| error.to_string())?;
        let now = self.common.now();
        self.topics.reconfigure(&mut self.common.context(now), &old, &new);
        let selection = Selection::new(&new);
        if Selection::new(&old) != selection {
            *self.selection.write().unwrap_or_else(PoisonError::into_inner) = selection;
            gateway.handle(Command::Reselect);
        }
        self.apply_beacons(&new);
        self.comparison.apply_config(&mut self.common, &old);
        if old.diagnostics != new.diagnostics {
            self.apply_diagnostics(&new);
        }
        Ok(())
    }

    fn apply_limits(&mut self) {
        let limits = &self.common.config.limits;
        let percent = repair_percent(limits);
        self.common.endpoint.set_limits(limits.queue_bytes, limits.queue_time, percent);
    }

    /// Removes peers that are not among `peers`, adds missing peers, and gives each peer the links
    /// of the file. The sessions of the remaining peers continue.
    fn apply_peers(&mut self, peers: &[PeerConfig]) -> Result<(), SetupError> {
        // Counted now, because removed links take their counters with them.
        self.check_budgets(self.common.now());
        self.teams.follow(&mut self.common);
        let removed = self.teams.removed_peers(&self.common.endpoint, peers);
        removed.into_iter().for_each(|id| self.remove_peer(id));
        let common = &mut self.common;
        self.teams.drop_unnamed(common);
        for peer in peers {
            if let Some(id) = common.peer_of(peer.key) {
                common.endpoint.peer_mut(id).rename(&peer.name);
            }
        }
        for peer in peers {
            let id = match common.peer_of(peer.key) {
                Some(id) => id,
                None => self.teams.add_peer(&mut common.endpoint, peer)?,
            };
            let rights = Rights { relayed: peer.relay, max_priority: peer.max_priority };
            common.endpoint.peer_mut(id).set_rights(rights);
        }
        for peer in peers {
            if let Some(id) = common.peer_of(peer.key) {
                let entries = FileEntry::of_peer(&common.endpoint, peer);
                self.links.set_peer_links(common, id, &entries)?;
            }
        }
        self.links.name_relayed_radios(common);
        self.links.follow_direct_paths(common, peers);
        peers::drop_notices_of_relays(common, peers);
        self.check_budgets(self.common.now());
        self.links.follow_paths(&mut self.common);
        Ok(())
    }

    /// Ends the session with a peer that is no longer in the file.
    fn remove_peer(&mut self, id: PeerId) {
        let now = self.common.now();
        tracing::info!(peer = self.common.endpoint.peer(id).name, "peer was removed from the file");
        self.topics.remove_peer(&mut self.common.context(now), id);
        let removed = self.common.endpoint.peer_mut(id).remove(now);
        self.links.say_goodbye(&self.common, &removed);
        self.news.schedule();
    }

    fn apply_beacons(&mut self, new: &Config) {
        let socket = self.common.listen.socket();
        let before = self.beacons.take();
        self.beacons = Beacons::new(new, socket);
        if let Some(before) = before {
            before.hand_over(self.beacons.as_mut(), socket);
        }
    }

    fn apply_diagnostics(&mut self, new: &Config) {
        let now = self.common.now();
        let cx = &mut self.common.context(now);
        if let Some(gone) = self.diagnostics.take() {
            self.topics.stop_own_topic(cx, &gone.topic().name);
        }
        if let Some(gone) = self.news.set_topic(LinkTopic::new(new)) {
            self.topics.stop_own_topic(cx, &gone.topic().name);
        }
        self.diagnostics = Diagnostics::new(new);
    }
}

fn repair_percent(limits: &Limits) -> u32 {
    (limits.repair_budget * 100.0).round() as u32
}

fn protocol_config(config: &Config) -> Result<tautline_proto::Config, OpenError> {
    let key = match &config.security {
        Security::Keys(file) => keys::load(file)?,
        Security::None => SecretKey::insecure(&config.name),
    };
    Ok(tautline_proto::Config {
        max_message: config.limits.max_message,
        queue_bytes: config.limits.queue_bytes,
        queue_time: config.limits.queue_time,
        reassembly_bytes: config.limits.reassembly_bytes,
        repair_percent: repair_percent(&config.limits),
        ..tautline_proto::Config::new(&config.name, key)
    })
}
