// SPDX-License-Identifier: Apache-2.0
//! The data plane: one thread with an event loop. The loop waits for packets, timers and inputs,
//! passes each of them to the protocol, and drains the protocol's outputs.

mod beacons;
mod budgets;
mod links;
mod news;
mod peers;
mod planned;
mod ports;
mod realtime;
mod reload;
mod rendezvous;
mod silence;
mod teams;
mod train;
mod usage;

use crate::audit::{Audit, Recorder};
use crate::clock::Clock;
use crate::codec::Codec;
use crate::config::{Config, Limits, Security};
use crate::diagnostics::{Diagnostics, LinkTopic};
use crate::error::{OpenError, RunError, SystemError};
use crate::inlet::{Input, Waiting};
use crate::keys;
use crate::paths::Paths;
use crate::planned::{Planned, Planner};
use crate::quota::Cause;
use crate::recent::Recent;
use crate::report::{Refused, Reporter};
use crate::selection::Selection;
use crate::status::Status;
use crate::topics::{Exchange, Order, Shared, Topics};
use crate::udp::{self, Inbox, Reporting};
use beacons::Beacons;
pub use beacons::{GROUP_V4, GROUP_V6};
use budgets::Budgets;
use links::Link;
use news::News;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use silence::Silence;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};
use tautline_gateway::{Event as LocalEvent, Gateway};
use tautline_proto::{Endpoint, Event, Instant, PublicKey, RadioId, SecretKey, TeamId};
use train::Train;
use usage::Usage;

const TAG_LISTEN: u64 = 0;
const TAG_WAKE: u64 = 1;
const TAG_LINKS: u64 = 2;
/// Maximum number of inputs taken before packets are served.
const INPUT_BATCH: usize = 256;
/// Maximum time for the protocol's events before sockets and timers are served: one packet can
/// cause a thousand events.
const EVENT_TIME: Duration = Duration::from_millis(1);
/// Maximum number of sockets reported in one iteration of the loop.
const MAX_READY: usize = 64;
/// Maximum time at shutdown for the queues to drain.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Interval at which failed links and topics of restarted peers are checked.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Packet size that the in-flight budget is counted in, in bytes.
const FULL_PACKET: usize = 1500;
/// Minimum step of this machine's clock that causes a notice.
const CLOCK_JUMP: Duration = Duration::from_millis(100);
/// Minimum difference of two machines' clocks that causes a notice: tf needs stamps that agree to
/// milliseconds.
const CLOCKS_APART: Duration = Duration::from_millis(100);
/// Maximum datagram on an unknown path, in bytes: fits the minimum MTU of IPv6, 1280 bytes.
const DATAGRAM_UNKNOWN: usize = 1200;

/// Settings of the data plane that are not in the robot's file.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// What the loop calls to show that it runs.
    pub watchdog: Option<Watchdog>,
    /// Models of the channels that the file plans.
    pub planner: Option<Planner>,
}

/// A periodic call of the loop, by which a service manager sees that it runs.
#[derive(Debug, Clone, Copy)]
pub struct Watchdog {
    /// Interval.
    pub every: Duration,
    /// The call; it must not block.
    pub alive: fn(),
}

pub(crate) struct Driver {
    clock: Clock,
    config: Config,
    /// Topics and services that may be sent; gateways read this.
    selection: Arc<RwLock<Selection>>,
    /// The protocol, whose channels carry the topics.
    endpoint: Endpoint,
    topics: Topics,
    shared: Shared,
    reporter: Reporter,
    recent: Recent,
    usage: Usage,
    diagnostics: Option<Diagnostics>,
    news: News,
    poll: OwnedFd,
    /// Receives from any address; this includes strangers.
    listen: Reporting,
    address: SocketAddr,
    listen_readable: bool,
    links: Vec<Link>,
    /// Watches the paths to peers; set while the loop runs.
    paths: Option<Paths>,
    /// Number of the last link whose path is watched.
    next_watch: u64,
    beacons: Option<Beacons>,
    silence: Silence,
    budgets: Budgets,
    planned: Planned,
    planner: Option<Planner>,
    radios: BTreeMap<String, RadioId>,
    /// Teams of a relay, by name.
    teams: BTreeMap<String, TeamId>,
    /// Radio of links whose interface is unknown.
    unknown_radio: RadioId,
    /// Radios towards recent initiators without a link.
    strangers: HashMap<IpAddr, RadioId>,
    inputs: Receiver<Input>,
    /// Whether more inputs may be queued than were taken.
    more_inputs: bool,
    /// Whether more events of the protocol may be queued than were handled.
    more_events: bool,
    /// Whether more packets may leave than were sent.
    unsent: bool,
    waiting: Arc<Waiting>,
    inbox: Inbox,
    /// Packets that leave next.
    train: Train,
    drain_until: Option<Instant>,
    /// Time of day at the start of [`Clock`], in microseconds since 1970, as last measured.
    wall_origin_us: Option<i64>,
}

/// Returns what reports are made of.
fn exchange(driver: &Driver) -> Exchange<'_> {
    Exchange { endpoint: &driver.endpoint, topics: &driver.topics, shared: &driver.shared }
}

fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> SystemError {
    move |error| SystemError { what, error: error.into() }
}

impl Driver {
    pub(crate) fn new(
        config: &Config,
        selection: Arc<RwLock<Selection>>,
        inputs: Receiver<Input>,
        waiting: Arc<Waiting>,
    ) -> Result<Self, OpenError> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll"))?;
        let listen = udp::listen(config.listen)
            .map_err(|error| OpenError::Listen { address: config.listen, error })?;
        let address = listen.socket().local_addr().unwrap_or(config.listen);
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        for (fd, tag) in [(listen.socket().as_fd(), TAG_LISTEN), (waiting.wake().as_fd(), TAG_WAKE)]
        {
            epoll::add(&poll, fd, epoll::EventData::new_u64(tag), edge).map_err(system("epoll"))?;
        }
        let endpoint = Endpoint::new(protocol_config(config)?, Box::new(keys::random))?;
        let mut driver = Self {
            clock: Clock::start(),
            config: config.clone(),
            selection,
            beacons: Beacons::new(config, listen.socket()),
            endpoint,
            topics: Topics::new(config),
            shared: Shared::new(config),
            reporter: Reporter::new(config, address),
            recent: Recent::default(),
            usage: Usage::default(),
            diagnostics: Diagnostics::new(config),
            news: News::new(LinkTopic::new(config)),
            poll,
            listen,
            address,
            listen_readable: true,
            links: Vec::new(),
            paths: None,
            next_watch: 0,
            silence: Silence::default(),
            budgets: Budgets::default(),
            planned: Planned::default(),
            planner: None,
            radios: BTreeMap::new(),
            teams: BTreeMap::new(),
            unknown_radio: RadioId(0),
            strangers: HashMap::new(),
            inputs,
            more_inputs: false,
            more_events: false,
            unsent: false,
            waiting,
            inbox: Inbox::new(),
            train: Train::default(),
            drain_until: None,
            wall_origin_us: None,
        };
        driver.unknown_radio = driver.radio("unknown");
        driver.follow_peers(&config.peers)?;
        driver.check_clocks();
        Ok(driver)
    }

    pub(crate) fn key(&self) -> PublicKey {
        self.endpoint.key()
    }

    pub(crate) fn record_in(&mut self, audit: Audit) {
        self.shared.recorder = Recorder::new(audit);
    }

    /// Passes the time of day to the protocol; logs a notice if a clock was set or differs from a
    /// peer's.
    fn check_clocks(&mut self) {
        let now = self.now();
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let wall_us = i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX);
        self.endpoint.set_wall(now, wall_us);
        let origin_us = wall_us.saturating_sub((now.0 / 1000) as i64);
        let before = self.wall_origin_us.replace(origin_us).unwrap_or(origin_us);
        let jump = Duration::from_micros(origin_us.abs_diff(before));
        if jump >= CLOCK_JUMP {
            let direction = if origin_us > before { "forward" } else { "back" };
            let text =
                format!("this machine's clock was set {direction} by {:.1} s", jump.as_secs_f64());
            self.shared.notice(now, Cause::Here, &text);
        }
        for id in self.endpoint.peers() {
            let peer = self.endpoint.peer(id);
            let Some(clock) = peer.clock.filter(|_| peer.up) else { continue };
            let Some(offset_us) = clock.offset_us else { continue };
            let apart = Duration::from_micros(offset_us.unsigned_abs());
            if apart >= CLOCKS_APART + clock.bound {
                let direction = if offset_us > 0 { "ahead of" } else { "behind" };
                let text = format!(
                    "the clock of '{}' is {:.1} s {direction} this machine's: timestamps and tf of the \
                     two do not match; synchronize both clocks, for example with chrony",
                    peer.name,
                    apart.as_secs_f64()
                );
                self.shared.peer_notice(now, id, &text);
            }
        }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the radio of an interface; by default each interface is a radio.
    fn radio(&mut self, interface: &str) -> RadioId {
        if let Some(&known) = self.radios.get(interface) {
            return known;
        }
        let id = self.endpoint.add_radio(Self::radio_config(&self.config, interface));
        self.radios.insert(interface.to_owned(), id);
        self.reporter.name_radio(id, interface);
        id
    }

    /// Runs until shutdown, then unregisters the gateway.
    pub(crate) fn run(
        mut self,
        gateway: Box<dyn Gateway>,
        codec: &Codec,
        paths: Paths,
        settings: &Settings,
    ) -> Result<(), RunError> {
        self.planner = settings.planner;
        self.planned = Planned::new(&self.config, self.planner);
        self.paths = Some(paths);
        self.follow_paths();
        realtime::enter(&self.config.realtime);
        let result = self.run_loop(&*gateway, codec, settings);
        // Every thread that is blocked on an input is released, including the gateway's own.
        self.waiting.close();
        self.close_budgets();
        drop(self);
        gateway.shutdown();
        result
    }

    fn run_loop(
        &mut self,
        gateway: &dyn Gateway,
        codec: &Codec,
        settings: &Settings,
    ) -> Result<(), RunError> {
        let mut next_alive = settings.watchdog.map(|_| self.now());
        let mut next_sweep = self.now() + SWEEP_EVERY;
        // Outside of the driver, which may then change its thread until it runs.
        let mut ready = Vec::with_capacity(MAX_READY);
        loop {
            let wake_at = [next_alive, Some(next_sweep), self.drain_until, self.news.due()];
            self.wait(wake_at.into_iter().flatten().min(), &mut ready)?;
            self.read_sockets();
            self.take_inputs(gateway, codec);
            if let Some(failure) = self.waiting.failure() {
                return Err(failure);
            }
            let now = self.now();
            self.endpoint.handle_timeout(now);
            let cx = &mut self.shared.context(now, &mut self.endpoint);
            self.topics.handle_timeout(cx);
            if now >= next_sweep {
                next_sweep = now + SWEEP_EVERY;
                self.topics.sweep(cx);
                self.sweep_links();
                self.sweep_ports(now);
                self.check_silence(now);
                self.check_clocks();
                self.check_budgets(now);
                self.compare_with_plan(now);
                self.sweep_beacons();
                self.diagnose(gateway, codec);
                self.report_links(now);
                let (endpoint, topics) = (&self.endpoint, &self.topics);
                let exchange = Exchange { endpoint, topics, shared: &self.shared };
                self.recent.sample(now, exchange);
            }
            self.report_changed_links(now);
            if let (Some(at), Some(watchdog)) = (next_alive, settings.watchdog)
                && now >= at
            {
                (watchdog.alive)();
                next_alive = Some(now + watchdog.every);
            }
            self.drain(gateway, codec);
            if self.finished() {
                return Ok(());
            }
        }
    }

    /// Sleeps until the next event, with nanosecond resolution: a millisecond is a third of a
    /// packet at 3 Mbps.
    fn wait(
        &mut self,
        wake_at: Option<Instant>,
        ready: &mut Vec<epoll::Event>,
    ) -> Result<(), RunError> {
        let unread = self.listen_readable || self.links_readable();
        let unfinished = unread || self.more_inputs || self.more_events || self.unsent;
        let timers = [self.endpoint.poll_timeout(), self.topics.poll_timeout(), wake_at];
        let next = timers.into_iter().flatten().min();
        let timeout = match next {
            _ if unfinished => Some(Duration::ZERO),
            Some(at) => Some(at.since(self.now())),
            None => None,
        };
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        ready.clear();
        match epoll::wait(&self.poll, spare_capacity(ready), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(system("epoll_pwait2")(error).into()),
        }
        for event in ready.iter() {
            let (tag, flags) = (event.data.u64(), event.flags);
            match tag {
                TAG_LISTEN => self.listen_readable = true,
                TAG_WAKE => drop(rustix::io::read(self.waiting.wake(), &mut [0u8; 8])),
                tag => self.link_ready((tag - TAG_LINKS) as usize, flags),
            }
        }
        Ok(())
    }

    fn take_inputs(&mut self, gateway: &dyn Gateway, codec: &Codec) {
        self.more_inputs = true;
        for _ in 0..INPUT_BATCH {
            match self.inputs.try_recv() {
                Ok(input) => self.take_input(gateway, codec, input),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                    self.more_inputs = false;
                    return;
                }
            }
        }
    }

    fn take_input(&mut self, gateway: &dyn Gateway, codec: &Codec, input: Input) {
        let now = self.now();
        self.waiting.taken(&input);
        match input {
            Input::Local(event) => {
                if let LocalEvent::Message { received, .. } = &event {
                    tracing::trace!(waited = ?received.elapsed(), "message taken");
                }
                let cx = &mut self.shared.context(now, &mut self.endpoint);
                self.topics.on_local(cx, event);
            }
            Input::Codec(done) => {
                let cx = &mut self.shared.context(now, &mut self.endpoint);
                self.topics.on_codec(cx, done);
            }
            Input::Path { watch, path } => self.take_path(watch, path),
            Input::Reconfigure(config, question) => {
                question.answer(|| self.reconfigure(gateway, *config));
            }
            Input::NetworkChanged => {
                self.refresh_followers();
                self.send_beacon_soon();
            }
            Input::Notice(text) => self.shared.notice(now, Cause::Here, &text),
            Input::Status(question) => question.answer(|| self.status(gateway, codec)),
            Input::Changed(by, outcome) => {
                let outcome = outcome.as_ref().map(Vec::as_slice).map_err(String::as_str);
                self.shared.recorder.changed(by, outcome);
            }
            Input::Change(change, by, question) => {
                let cx = &mut self.shared.context(now, &mut self.endpoint);
                question.answer(|| self.topics.set(cx, change, by));
            }
            Input::TopicChanges(question) => question.answer(|| self.topics.changes()),
            Input::WatchLinks(sender, question) => {
                question.answer(|| self.watch_links(sender));
            }
            Input::Shutdown => {
                self.drain_until.get_or_insert(now + DRAIN_TIME);
            }
        }
    }

    fn status(&self, gateway: &dyn Gateway, codec: &Codec) -> Status {
        let refused = Refused {
            inlet_full: self.waiting.refused.load(Ordering::Relaxed),
            codec_behind: codec.dropped.load(Ordering::Relaxed),
            over_time: self.usage.dropped(),
        };
        let teams = self.team_reports();
        let status =
            self.reporter.status(self.now(), exchange(self), &self.recent, gateway, &refused);
        Status { teams, ..status }
    }

    /// Publishes this node's state on /diagnostics if anybody listens; called once per second.
    fn diagnose(&mut self, gateway: &dyn Gateway, codec: &Codec) {
        let Some(mut diagnostics) = self.diagnostics.take() else { return };
        let now = self.now();
        let topic = diagnostics.topic().clone();
        let cx = &mut self.shared.context(now, &mut self.endpoint);
        self.topics.publish_own(cx, &topic);
        if self.topics.own_is_wanted(&topic.name) {
            // Other ROS nodes use this clock; a time before 1970 is as good as none.
            let stamp = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            match diagnostics.message(self.status(gateway, codec), stamp) {
                Ok(message) => {
                    let cx = &mut self.shared.context(now, &mut self.endpoint);
                    self.topics.send_own(cx, &topic.name, message);
                }
                Err(error) => {
                    let text = format!("{}: {error}", topic.name);
                    self.shared.notice(now, Cause::Here, &text);
                }
            }
        } else {
            diagnostics.forget();
        }
        self.diagnostics = Some(diagnostics);
    }

    /// Executes the requests of the protocol and the topics, within a time limit.
    fn drain(&mut self, gateway: &dyn Gateway, codec: &Codec) {
        let mut spent = Duration::ZERO;
        self.transmit();
        loop {
            let mut idle = true;
            self.more_events = false;
            while let Some((peer, event)) = self.endpoint.poll_event_of() {
                let now = self.now();
                self.news.on_event(&event);
                self.silence.on_event(&event);
                if let Event::Candidates { link, addresses, .. } = &event {
                    self.try_addresses(*link, addresses);
                }
                let cx = &mut self.shared.context(now, &mut self.endpoint);
                self.topics.on_remote(cx, event);
                let done = self.now();
                if let Some(peer) = peer {
                    self.usage.charge(now, done, peer);
                }
                idle = false;
                spent += done.since(now);
                if spent > EVENT_TIME {
                    self.more_events = true;
                    break;
                }
            }
            while let Some(order) = self.shared.poll_order() {
                match order {
                    Order::Gateway(command) => gateway.handle(command),
                    Order::Codec(job) => {
                        if let Some(refused) = codec.push(job) {
                            let now = self.now();
                            let cx = &mut self.shared.context(now, &mut self.endpoint);
                            self.topics.on_codec(cx, refused);
                        }
                    }
                }
            }
            if idle {
                return;
            }
            self.transmit();
            if self.more_events {
                return;
            }
        }
    }

    fn finished(&mut self) -> bool {
        let Some(until) = self.drain_until else { return false };
        let now = self.now();
        if now < until && !self.endpoint.is_drained() {
            return false;
        }
        self.endpoint.close();
        self.unsent = true;
        while self.unsent {
            self.transmit();
        }
        true
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
