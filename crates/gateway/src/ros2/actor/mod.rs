// SPDX-License-Identifier: Apache-2.0
//! All state of the gateway, and what happens upon each command and each discovery.

mod services;

use super::discovery::{Change, Domain, Offer};
use super::graph::{self, GidBytes, Heard, Node, Pace};
use super::history::Histories;
use super::names;
use super::publication::Publication;
use super::subscription::{Marked, Subscription};
use super::{Order, Ros2Options, Shared, qos};
use crate::backlog::TOO_MUCH;
use crate::sparing::Sparing;
use crate::types::{Dialect, Schema, hash};
use crate::{Event, Events, Named, Selector, Topic};
use bytes::Bytes;
use services::Services;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tautline_dds::{
    DdsError, Discovery, Guid, Participant, Qos as Dds, RawReader, RawWriter, Specification,
};

/// Orders taken in before what follows from them is done.
const BATCH: usize = 1024;
/// Types whose definitions are remembered.
const MAX_DEFINITIONS: usize = 1024;

/// What the actor is made from.
pub struct Setup {
    pub options: Ros2Options,
    pub participant: Arc<Participant>,
    pub selector: Selector,
    pub events: Arc<dyn Events>,
    pub shared: Arc<Shared>,
    pub orders: Sender<Order>,
}

/// The state.
pub struct Actor {
    setup: Setup,
    domain: Domain,
    marked: Marked,
    /// What was told of topics that others publish here.
    offered: BTreeMap<String, Topic>,
    subscribed: BTreeMap<String, Option<Subscription>>,
    /// Topics that are to be published, and what was told of them.
    advertised: BTreeMap<String, Advertised>,
    services: Services,
    definitions: HashMap<String, Arc<str>>,
    histories: Histories,
    gid_bytes: GidBytes,
    heard: Arc<Heard>,
    graph: RawWriter,
    _graph_reader: RawReader,
    redraw: Pace,
}

/// A topic that peers publish here.
struct Advertised {
    topic: Topic,
    wanted: bool,
    refused: Option<String>,
}

/// What is to be looked at again.
#[derive(Default)]
struct Touched {
    topics: BTreeSet<String>,
    services: BTreeSet<String>,
}

impl Actor {
    /// Shows our node and begins to discover.
    pub fn new(setup: Setup) -> Result<Self, DdsError> {
        let marked = Marked::default();
        let (mark, orders) = (marked.clone(), setup.orders.clone());
        setup.participant.discover(move |event| {
            mark.note(&event);
            // Fails only while the gateway stops.
            let _ = orders.send(Order::Discovered(event));
        })?;
        let dds = Dds {
            durability: 1,
            depth: 1,
            ignore_own: true,
            max_blocking_time: 0,
            ..Dds::default()
        };
        let about = Specification { topic: graph::TOPIC, type_name: graph::TYPE, qos: &dds };
        let orders = setup.orders.clone();
        let heard = Arc::<Heard>::default();
        let hears = heard.clone();
        let hear = move |bytes: Bytes, _: &_| {
            if hears.take(&bytes) {
                let _ = orders.send(Order::Graph);
            }
        };
        let reader = RawReader::new(&setup.participant, about, hear, |_, _| ())?;
        Ok(Self {
            graph: RawWriter::new(&setup.participant, about, |_, _| ())?,
            _graph_reader: reader,
            domain: Domain::default(),
            marked,
            offered: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            advertised: BTreeMap::new(),
            services: Services::default(),
            definitions: HashMap::new(),
            histories: Histories::default(),
            gid_bytes: GidBytes::Sixteen,
            heard,
            redraw: Pace::default(),
            setup,
        })
    }

    /// Runs until told to stop, or until nobody can give orders any more.
    pub fn run(mut self, orders: &Receiver<Order>) {
        self.show_node_if_due();
        while let Ok(first) = self.next(orders) {
            let mut touched = self.look_at_histories();
            let more = std::iter::from_fn(|| orders.try_recv().ok()).take(BATCH);
            for order in first.into_iter().chain(more) {
                match order {
                    Order::Do(command) => self.command(command, &mut touched),
                    Order::Discovered(event) => self.discovered(event, &mut touched),
                    Order::Graph => self.heard(),
                    Order::Redraw => self.redraw.changed = true,
                    Order::TooMuch { service, call } => {
                        let outcome = Err(TOO_MUCH.into());
                        self.emit(Event::Answered { service, call, outcome });
                    }
                    Order::Stop => return self.leave(),
                }
            }
            for topic in &touched.topics {
                self.settle_offer(topic);
                self.settle_publication(topic);
            }
            for service in &touched.services {
                self.settle_service(service);
            }
            self.advance_services(Instant::now());
            self.show_node_if_due();
        }
    }

    /// Begins and ends counts of what publishers keep; topics of which more is known are read
    /// anew, so that all of it reaches those who now keep as much of it.
    fn look_at_histories(&mut self) -> Touched {
        let now = Instant::now();
        for topic in self.histories.to_count(now) {
            match self.domain.offer(&topic) {
                Some(offer) => {
                    let participant = &self.setup.participant;
                    self.histories.count(&topic, &offer.type_name, &offer.each, participant);
                }
                None => self.histories.forget(&topic),
            }
        }
        let topics: BTreeSet<String> = self.histories.ended(now).into_iter().collect();
        for topic in &topics {
            if let Some(slot) = self.subscribed.get_mut(topic) {
                *slot = None;
            }
        }
        Touched { topics, ..Touched::default() }
    }

    /// The next order; `None` when something else is due first.
    fn next(&self, orders: &Receiver<Order>) -> Result<Option<Order>, RecvTimeoutError> {
        let now = Instant::now();
        let due = [self.histories.next_due(), self.services.next_wake(now), self.redraw.due(now)];
        let due = due.into_iter().flatten().min();
        let Some(wake) = due else {
            return orders.recv().map(Some).map_err(|_| RecvTimeoutError::Disconnected);
        };
        match orders.recv_timeout(wake.saturating_duration_since(now)) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            other => other.map(Some),
        }
    }

    fn leave(self) {
        let all = &self.setup.shared.publications;
        all.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn command(&mut self, command: crate::Command, touched: &mut Touched) {
        use crate::Command::*;
        match command {
            Subscribe { topic } => {
                self.subscribed.entry(topic.clone()).or_default();
                touched.topics.insert(topic);
            }
            Unsubscribe { topic } => {
                self.redraw.changed |= self.subscribed.remove(&topic).is_some();
                self.setup.shared.health().set(&topic, "reading", String::new());
            }
            Advertise { topic } => {
                touched.topics.insert(topic.name.clone());
                let name = topic.name.clone();
                let wanted = self.advertised.get(&name).is_some_and(|it| it.wanted);
                self.advertised.insert(name, Advertised { topic, wanted, refused: None });
            }
            Unadvertise { topic } => {
                self.unadvertise(&topic);
            }
            // Those go past the actor.
            Publish { .. } => {}
            Serve { service } => self.serve(service),
            Unserve { service } => self.unserve(&service),
            Answer { service, call, outcome } => self.answer(service, call, outcome),
            Call { service, call, request, patience } => {
                let until = Instant::now() + patience;
                self.call(super::calls::Call { service, call, request, patience, until });
            }
            Reselect => self.reselect(touched),
        }
    }

    /// Everything is looked at again by what may leave now.
    fn reselect(&mut self, touched: &mut Touched) {
        for topic in self.domain.topics() {
            let fresh = !self.offered.contains_key(topic)
                && (self.setup.selector)(Named::Topic(topic))
                && self.domain.offer(topic).is_some_and(|offer| offer.united.transient_local);
            if fresh {
                self.histories.look_at(topic, Instant::now());
            }
            touched.topics.insert(topic.to_owned());
        }
        touched.services.extend(self.services.names().map(str::to_owned));
    }

    fn discovered(&mut self, event: Discovery, touched: &mut Touched) {
        let keeps = matches!(&event, Discovery::Writer(it) if it.qos.durability > 0);
        touched.services.extend(self.services.discovered(&event));
        match self.domain.take(event) {
            Change::Topic(topic) if keeps && (self.setup.selector)(Named::Topic(&topic)) => {
                self.histories.look_at(&topic, Instant::now());
                touched.topics.insert(topic);
            }
            Change::Nothing => {}
            Change::Topic(topic) => drop(touched.topics.insert(topic)),
            Change::Gone(topic, writer) => {
                let subscription = self.subscribed.get(&topic).and_then(Option::as_ref);
                if let Some(source) = subscription.and_then(|it| it.forget(writer)) {
                    self.emit(Event::SourceGone { topic: topic.clone(), source });
                }
                touched.topics.insert(topic);
            }
        }
        let text = match self.domain.left_out + self.services.left_out() {
            0 => String::new(),
            count => format!("{count} endpoints of the domain are too many and left out"),
        };
        self.setup.shared.health().set("", "discovery", text);
    }

    /// How long GUIDs are depends on the ROS at hand, and others tell it.
    fn heard(&mut self) {
        let gid_bytes = self.heard.look();
        self.redraw.changed |= self.gid_bytes != gid_bytes;
        self.gid_bytes = gid_bytes;
    }

    fn emit(&self, event: Event) {
        self.setup.events.emit(event);
    }

    /// Tells of a topic that is published here, or not any more; and reads it if it is wanted.
    fn settle_offer(&mut self, name: &str) {
        let offer = self.domain.offer(name).filter(|_| (self.setup.selector)(Named::Topic(name)));
        match &offer {
            Some(offer) => self.offer(name, offer.clone()),
            None => self.withdraw(name),
        }
        // What is read is kept as it was told.
        self.settle_subscription(name, offer.as_ref());
    }

    fn offer(&mut self, name: &str, mut offer: Offer) {
        let others = match offer.other_types.as_slice() {
            [] => String::new(),
            others => format!(
                "{name} is carried as {}; publishers with {} are left out",
                offer.type_name,
                others.join(", ")
            ),
        };
        self.setup.shared.health().set(name, "types", others);
        if offer.united.transient_local {
            offer.united.depth = self.histories.depth(name);
        }
        let topic = self.topic(name, offer);
        if self.offered.get(name) != Some(&topic) {
            self.offered.insert(name.into(), topic.clone());
            self.emit(Event::Offered(topic));
        }
    }

    fn withdraw(&mut self, name: &str) {
        self.setup.shared.health().set(name, "types", String::new());
        self.histories.forget(name);
        if self.offered.remove(name).is_some() {
            self.emit(Event::Withdrawn { topic: name.into() });
        }
    }

    fn topic(&mut self, name: &str, offer: Offer) -> Topic {
        let definition = self.definition(&offer.type_name);
        let type_hash = match offer.hash.is_empty() {
            false => offer.hash,
            // A type that is not installed, which is not an empty type.
            true if definition.is_empty() => String::new(),
            // ROS 2 before Iron tells no hashes.
            true => Schema::parse(&offer.type_name, &definition, Dialect::Ros2)
                .map(|schema| hash::type_hash(&schema))
                .unwrap_or_default(),
        };
        Topic {
            name: name.into(),
            type_name: offer.type_name,
            type_hash,
            definition,
            qos: offer.united,
        }
    }

    /// Empty where it is not installed: the type still passes between robots of ROS 2.
    fn definition(&mut self, type_name: &str) -> Arc<str> {
        if let Some(known) = self.definitions.get(type_name) {
            return known.clone();
        }
        let installed = &self.setup.options.installed;
        let found = match type_name.split('/').nth(1) {
            // It is part of an action's, of which there are three services and two topics.
            Some("action") => Ok(String::new()),
            Some("srv") => installed.service(type_name, Dialect::Ros2),
            _ => installed.definition(type_name, Dialect::Ros2),
        };
        let definition: Arc<str> = match found {
            Ok(text) => text.into(),
            Err(error) => {
                tracing::info!("robots of ROS 1 have to know {type_name} themselves: {error}");
                "".into()
            }
        };
        if self.definitions.len() < MAX_DEFINITIONS {
            self.definitions.insert(type_name.into(), definition.clone());
        }
        definition
    }

    fn settle_subscription(&mut self, name: &str, offer: Option<&Offer>) {
        let Some(slot) = self.subscribed.get_mut(name) else { return };
        let Some(offer) = offer else {
            *slot = None;
            return;
        };
        let asked = qos::to_read(&offer.each);
        if slot.as_ref().is_some_and(|it| it.type_name == offer.type_name && it.asked == asked) {
            return;
        }
        let context = Self::context(&self.setup, &self.marked);
        match Subscription::new(name, &offer.type_name, asked, &context) {
            Ok(mut new) => {
                if let Some(before) = slot.as_ref().filter(|it| it.type_name == offer.type_name) {
                    new.inherit(before);
                }
                *slot = Some(new);
                self.redraw.changed = true;
            }
            Err(error) => {
                let shared = &self.setup.shared;
                shared.health().set(name, "reading", format!("{name} is not read: {error}"));
            }
        }
    }

    /// Publishes what peers offer, unless readers or writers of another type have the name.
    fn settle_publication(&mut self, name: &str) {
        let Some(advertised) = self.advertised.get(name) else { return };
        let topic = &advertised.topic;
        let Some(dds_type) = names::dds_type(&topic.type_name) else {
            let reason = format!("'{}' is no type of ROS 2 (package/msg/Type)", topic.type_name);
            return self.refuse(name, reason);
        };
        let wanted = self.domain.is_wanted(name, &dds_type);
        if let Some(other) = self.domain.conflict(name, &dds_type, &topic.type_hash) {
            let reason = format!(
                "nodes in domain {} have it as {other}, but peers send {} ({})",
                self.setup.options.domain, topic.type_name, topic.type_hash
            );
            if other.is_misread() {
                return self.refuse(name, reason);
            }
            self.complain(name, reason);
        }
        if let Err(error) = self.publish(name) {
            return self.refuse(name, error.to_string());
        }
        let Some(advertised) = self.advertised.get_mut(name) else { return };
        if advertised.wanted != wanted {
            advertised.wanted = wanted;
            self.emit(Event::Wanted { topic: name.into(), wanted });
        }
    }

    fn publish(&mut self, name: &str) -> Result<(), DdsError> {
        let Some(advertised) = self.advertised.get(name) else { return Ok(()) };
        let known = self.setup.shared.publication(name);
        if known.is_some_and(|it| it.serves(&advertised.topic)) {
            return Ok(());
        }
        let orders = self.setup.orders.clone();
        let publication = Publication::new(
            advertised.topic.clone(),
            &self.setup.options.tautline_name,
            &self.setup.participant,
            &self.setup.shared,
            // The new writer is to be shown in the graph.
            Box::new(move || drop(orders.send(Order::Redraw))),
        )?;
        let all = &self.setup.shared.publications;
        all.write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.into(), Arc::new(publication));
        self.redraw.changed = true;
        Ok(())
    }

    fn refuse(&mut self, name: &str, reason: String) {
        self.remove_publication(name);
        self.complain(name, reason);
        if let Some(advertised) = self.advertised.get_mut(name)
            && std::mem::take(&mut advertised.wanted)
        {
            self.emit(Event::Wanted { topic: name.into(), wanted: false });
        }
    }

    /// Tells peers, once for each reason.
    fn complain(&mut self, name: &str, reason: String) {
        let Some(advertised) = self.advertised.get_mut(name) else { return };
        if advertised.refused.as_ref() == Some(&reason) {
            return;
        }
        advertised.refused = Some(reason.clone());
        self.setup.shared.health().set(name, "refused", format!("{name}: {reason}"));
        self.emit(Event::Refused { topic: name.into(), reason });
    }

    fn remove_publication(&mut self, name: &str) {
        let all = &self.setup.shared.publications;
        let gone = all.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.redraw.changed |= gone.is_some();
    }

    fn unadvertise(&mut self, name: &str) {
        self.remove_publication(name);
        let mut health = self.setup.shared.health();
        health.set(name, "refused", String::new());
        health.set(name, "publishing", String::new());
        drop(health);
        self.setup.shared.drops.leave(name);
        if self.advertised.remove(name).is_some_and(|it| it.wanted) {
            self.emit(Event::Wanted { topic: name.into(), wanted: false });
        }
    }

    fn show_node_if_due(&mut self) {
        if self.redraw.take(Instant::now()) {
            self.show_node();
        }
    }

    /// Tells the domain which readers and writers are of our node.
    fn show_node(&mut self) {
        let (namespace, name) = names::split_node_name(&self.setup.options.node_name);
        let (read, written): (Vec<Guid>, Vec<Guid>) = self.services.guids().unzip();
        let topics = self.subscribed.values().flatten().map(|it| it.guid);
        let readers = topics.chain(read).collect();
        let all = self.setup.shared.publications.read().unwrap_or_else(PoisonError::into_inner);
        let mut writers: Vec<Guid> = all.values().flat_map(|it| it.guids()).collect();
        drop(all);
        writers.extend(written);
        writers.sort_unstable();
        let nodes = [Node { namespace, name, readers, writers }];
        let message = graph::write(&self.setup.participant.guid, &nodes, self.gid_bytes);
        let written = match message {
            Ok(bytes) => self.graph.write(bytes.into(), None).map(drop),
            Err(error) => return tracing::error!(%error, "the graph's message"),
        };
        if let Err(error) = written {
            // Tried again after the interval, as any change.
            self.redraw.changed = true;
            static SPARING: Sparing = Sparing::new();
            if let Some(left_out) = SPARING.next() {
                tracing::warn!(%error, left_out, "our node is not shown in the graph");
            }
        }
    }
}
