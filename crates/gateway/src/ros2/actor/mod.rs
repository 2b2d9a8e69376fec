// SPDX-License-Identifier: Apache-2.0
//! The state of the gateway, and the effect of each command and each discovery.

mod nodes;
mod services;

use super::discovery::Offer;
use super::endpoints::Endpoints;
use super::graph::{self, GidBytes, ObservedGidBytes, Pace};
use super::history::Histories;
use super::liveliness::{State, Timers};
use super::names;
use super::nodes::{Announced, Reports, StandIns};
use super::publication::{Publication, REDISCOVERY};
use super::subscription::Subscription;
use super::{Context, Order, Publications, Ros2Options, qos};
use crate::action_names::is_action_status;
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::types::installed::{Cache, Installed};
use crate::types::{Dialect, Schema, action, hash};
use crate::{Event, Named, Selector, Topic};
use bytes::Bytes;
use services::Services;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline_dds::{
    DdsError, Discovery, Qos as Dds, RawReader, RawWriter, SampleInfo, Specification,
};

/// Orders processed before their consequences.
const BATCH: usize = 1024;

/// The constant part of the state.
pub struct Setup {
    pub options: Ros2Options,
    pub context: Context,
    pub selector: Selector,
    pub publications: Publications,
    pub orders: Sender<Order>,
}

pub struct Actor {
    setup: Setup,
    topic_endpoints: Endpoints,
    service_endpoints: Endpoints,
    /// Offers of local topics, as last reported to the node.
    offered: BTreeMap<String, Topic>,
    subscribed: BTreeMap<String, Option<Subscription>>,
    advertised: BTreeMap<String, Advertised>,
    services: Services,
    definitions: Cache,
    histories: Histories,
    gid_bytes: GidBytes,
    observed_gid_bytes: Arc<ObservedGidBytes>,
    graph: RawWriter,
    _graph_reader: RawReader,
    /// The last message of our node.
    graph_sent: Bytes,
    graph_pace: Pace,
    /// The nodes of other participants.
    announced: Arc<Mutex<Announced>>,
    node_reports: Reports,
    stand_ins: StandIns,
    liveliness: Timers,
    /// When subscribers from before the start that were not found have left.
    rediscovery_ends: Option<Instant>,
}

/// A topic that peers publish here, and its state as last reported to the node.
struct Advertised {
    topic: Topic,
    wanted: bool,
    refused: Option<String>,
}

/// Topics and services to update.
#[derive(Default)]
struct Changed {
    topics: BTreeSet<String>,
    services: BTreeSet<String>,
}

impl Actor {
    /// Joins the graph and starts discovery.
    pub fn new(setup: Setup) -> Result<Self, DdsError> {
        let participant = &setup.context.participant;
        let (writers, readers) = (setup.context.writers.clone(), setup.context.readers.clone());
        let orders = setup.orders.clone();
        let announced = Arc::<Mutex<Announced>>::default();
        let announcers = announced.clone();
        participant.discover(move |event| {
            writers.on_event(&event);
            readers.on_event(&event);
            if lock(&announcers).on_event(&event) {
                let _ = orders.send(Order::NodesChanged);
            }
            // Fails only while the gateway stops.
            let _ = orders.send(Order::Discovered(event));
        })?;
        let dds = Dds {
            durability: 1,
            depth: 1,
            ignore_own: true,
            user_data: names::endpoint_user_data("", &setup.options.tautline_name).into_bytes(),
            max_blocking_time: 0,
            ..Dds::default()
        };
        let specification =
            Specification { topic: graph::TOPIC, type_name: graph::TYPE, qos: &dds };
        let orders = setup.orders.clone();
        let observed_gid_bytes = Arc::<ObservedGidBytes>::default();
        let observer = observed_gid_bytes.clone();
        let announcements = announced.clone();
        let observe = move |bytes: Bytes, info: &SampleInfo| {
            let Some((participant, writer)) = graph::read(&bytes).zip(info.writer) else { return };
            if observer.on_message(participant.gid_bytes) {
                let _ = orders.send(Order::GidSizeChanged);
            }
            if lock(&announcements).on_message(&writer, participant.nodes) {
                let _ = orders.send(Order::NodesChanged);
            }
        };
        let reader = RawReader::new(participant, specification, observe, |_, _| ())?;
        Ok(Self {
            graph: RawWriter::new(participant, specification, |_, _| ())?,
            _graph_reader: reader,
            topic_endpoints: Endpoints::of_topics(),
            service_endpoints: Endpoints::of_services(),
            offered: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            advertised: BTreeMap::new(),
            services: Services::default(),
            definitions: Cache::new(setup.options.installed.clone()),
            histories: Histories::default(),
            gid_bytes: GidBytes::Sixteen,
            observed_gid_bytes,
            graph_sent: Bytes::new(),
            graph_pace: Pace::default(),
            announced,
            node_reports: Reports::default(),
            stand_ins: StandIns::default(),
            liveliness: Timers::default(),
            rediscovery_ends: Some(setup.context.started + REDISCOVERY),
            setup,
        })
    }

    /// Runs until stopped, or until all senders of orders are dropped.
    pub fn run(mut self, orders: &Receiver<Order>) {
        self.update_graph();
        while let Ok(first) = self.next(orders) {
            let mut changed = self.update_histories();
            changed.topics.extend(self.liveliness.take_losses(Instant::now()));
            let more = std::iter::from_fn(|| orders.try_recv().ok()).take(BATCH);
            for order in first.into_iter().chain(more) {
                match order {
                    Order::Do(command) => self.command(command, &mut changed),
                    Order::Discovered(event) => {
                        self.node_reports.on_change();
                        self.discovered(event, &mut changed);
                    }
                    Order::GidSizeChanged => self.update_gid_bytes(),
                    Order::NodesChanged => {
                        lock(&self.announced).on_notified();
                        self.node_reports.on_change();
                        // A node may have taken the name of a stand-in, or have left it.
                        self.graph_pace.changed |= !self.stand_ins.is_empty();
                    }
                    Order::WritersChanged => self.graph_pace.changed = true,
                    Order::Count(topic, due) => self.histories.schedule_at(&topic, due),
                    Order::LivelinessChanged(topic) => drop(changed.topics.insert(topic)),
                    Order::Emit(event) => self.emit(event),
                    Order::Stop => return lock(&self.setup.publications).clear(),
                }
            }
            for topic in &changed.topics {
                self.update_offer(topic);
                self.update_publication(topic);
                self.report_keys(topic);
            }
            for service in &changed.services {
                self.update_service(service);
            }
            self.advance_services(Instant::now());
            self.assert_liveliness(Instant::now());
            self.end_rediscovery(Instant::now());
            self.report_nodes();
            self.update_graph();
        }
    }

    /// Starts and ends counts of kept messages. The node gets new depths; messages are not read
    /// again.
    fn update_histories(&mut self) -> Changed {
        let now = Instant::now();
        for topic in self.histories.to_count(now) {
            match self.topic_endpoints.topic_offer(&topic) {
                Some(offer) => {
                    let participant = &self.setup.context.participant;
                    if let Some(Some(subscription)) = self.subscribed.get(&topic) {
                        subscription.begin_count();
                    }
                    self.histories.count(&topic, &offer.type_name, participant);
                }
                None => self.histories.forget(&topic),
            }
        }
        let topics: BTreeSet<String> = self.histories.ended(now).into_iter().collect();
        for topic in &topics {
            let Some(Some(subscription)) = self.subscribed.get(topic) else { continue };
            for (writer, depth) in self.histories.depths(topic) {
                subscription.set_depth(writer, depth, |source, successor| {
                    self.emit(Event::Depth { topic: topic.clone(), source, successor, depth });
                });
            }
        }
        Changed { topics, ..Changed::default() }
    }

    /// The next order; `None` if a timer expires first.
    fn next(&self, orders: &Receiver<Order>) -> Result<Option<Order>, RecvTimeoutError> {
        let now = Instant::now();
        let timers = [
            self.histories.next_due(),
            self.services.next_wake(now),
            self.graph_pace.due(now),
            self.liveliness.next_due(),
            self.node_reports.next_due(),
            self.rediscovery_ends,
        ];
        let Some(wake) = timers.into_iter().flatten().min() else {
            return orders.recv().map(Some).map_err(|_| RecvTimeoutError::Disconnected);
        };
        match orders.recv_timeout(wake.saturating_duration_since(now)) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            other => other.map(Some),
        }
    }

    fn command(&mut self, command: crate::Command, changed: &mut Changed) {
        use crate::Command::*;
        match command {
            Subscribe { topic } => {
                self.subscribed.entry(topic.clone()).or_default();
                changed.topics.insert(topic);
            }
            Unsubscribe { topic } => {
                self.graph_pace.changed |= self.subscribed.remove(&topic).is_some();
                self.clear_trouble(&topic, "reading");
            }
            Advertise { topic } => {
                changed.topics.insert(topic.name.clone());
                let name = topic.name.clone();
                let wanted = self.advertised.get(&name).is_some_and(|known| known.wanted);
                self.advertised.insert(name, Advertised { topic, wanted, refused: None });
            }
            Unadvertise { topic } => {
                self.unadvertise(&topic);
            }
            // These do not reach the actor.
            Publish { .. } | Forget { .. } => {}
            Serve { service } => self.serve(service),
            Unserve { service } => self.unserve(&service),
            Answer { service, call, outcome } => self.answer(service, call, outcome),
            Call { service, call, request, patience, .. } => {
                let deadline = Instant::now() + patience;
                self.call(super::calls::Call { service, call, request, patience, deadline });
            }
            Describe { nodes, .. } => self.want_nodes(nodes),
            StandIn { peer, nodes } => {
                self.stand_ins.set(peer, nodes);
                self.graph_pace.changed = true;
            }
            // Parameters of ROS 1; those of ROS 2 are services of each node.
            Mirror { .. } | SetParameters { .. } => {}
            Reselect => self.reselect(changed),
        }
    }

    /// The selector has changed: updates all topics and services.
    fn reselect(&mut self, changed: &mut Changed) {
        for topic in self.topic_endpoints.names() {
            let fresh = !self.offered.contains_key(topic)
                && (self.setup.selector)(Named::Topic(topic))
                && self
                    .topic_endpoints
                    .topic_offer(topic)
                    .is_some_and(|offer| offer.united.transient_local);
            if fresh {
                self.histories.schedule(topic, Instant::now());
            }
            changed.topics.insert(topic.to_owned());
        }
        changed.services.extend(self.service_endpoints.names().map(str::to_owned));
    }

    fn discovered(&mut self, event: Discovery, changed: &mut Changed) {
        let is_kept = matches!(&event, Discovery::Writer(it) if it.qos.durability > 0);
        changed.services.extend(self.service_endpoints.on_event(&event));
        if let Discovery::WriterGone { guid } = event {
            self.setup.context.callers.with(|it| it.forget(guid));
        }
        let new_reader = match &event {
            Discovery::Reader(reader) => {
                Some((reader.guid, qos::offered(&reader.qos).transient_local))
            }
            _ => None,
        };
        if let Some(topic) = self.topic_endpoints.on_event(&event) {
            if is_kept && (self.setup.selector)(Named::Topic(&topic)) {
                self.histories.schedule(&topic, Instant::now());
            }
            let subscription = self.subscribed.get(&topic).and_then(Option::as_ref);
            if let Discovery::WriterGone { guid } = &event {
                self.histories.forget_writer(&topic, guid);
                if let Some(source) = subscription.and_then(|it| it.forget(*guid)) {
                    self.emit(Event::SourceGone { topic: topic.clone(), source });
                }
            }
            let publication = lock(&self.setup.publications).get(&topic).cloned();
            if let Discovery::ReaderGone { guid } = &event {
                self.setup.context.deliveries.forget(&topic, u128::from_be_bytes(*guid));
                publication.iter().for_each(|it| it.on_reader_gone(*guid));
            }
            if let (Some((reader, joins_late)), Some(publication)) = (new_reader, publication) {
                publication.on_reader(reader, joins_late);
            }
            changed.topics.insert(topic);
        }
        let text = match self.topic_endpoints.left_out + self.service_endpoints.left_out {
            0 => String::new(),
            count => format!("the domain has too many endpoints: {count} are left out"),
        };
        self.set_trouble("", "discovery", text);
    }

    /// Forgets subscribers from before the start that have not come again, with the writers for them.
    fn end_rediscovery(&mut self, now: Instant) {
        if self.rediscovery_ends.take_if(|end| *end <= now).is_none() {
            return;
        }
        let Context { deliveries, readers, .. } = &self.setup.context;
        let gone = deliveries.forget_unknown(|it| readers.knows(&it.to_be_bytes()));
        let publications: Vec<_> = lock(&self.setup.publications).values().cloned().collect();
        for publication in publications {
            gone.iter().for_each(|reader| publication.on_reader_gone(reader.to_be_bytes()));
        }
    }

    fn emit(&self, event: Event) {
        self.setup.context.events.emit(event);
    }

    /// Sets one kind of trouble with a topic, or clears it (empty).
    fn set_trouble(&self, topic: &str, kind: &'static str, text: String) {
        self.setup.context.shared.troubles.update(topic, kind, text);
    }

    fn clear_trouble(&self, topic: &str, kind: &'static str) {
        self.setup.context.shared.troubles.clear(topic, kind);
    }

    /// Reports local nodes whose types have a key. A topic with a key would need that key, which
    /// discovery does not announce.
    fn report_keys(&self, name: &str) {
        let is_sent = (self.setup.selector)(Named::Topic(name));
        let is_published = self.advertised.contains_key(name);
        let text = self.topic_endpoints.key_trouble(name, is_sent, is_published);
        let troubles = &self.setup.context.shared.troubles;
        if text.is_empty() {
            troubles.clear(name, "keys");
        } else if troubles.set(name, "keys", text.clone()) {
            log_limited!(warn, {}, "{text}");
        }
    }

    /// Offers or withdraws a local topic, and updates its subscription.
    fn update_offer(&mut self, name: &str) {
        let offer = self
            .topic_endpoints
            .topic_offer(name)
            .filter(|_| (self.setup.selector)(Named::Topic(name)));
        match &offer {
            Some(offer) => self.offer(name, offer.clone()),
            None => self.withdraw(name),
        }
        // The subscription comes last: its messages are of the topic as offered.
        self.update_subscription(name, offer.as_ref());
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
        self.set_trouble(name, "types", others);
        if offer.united.transient_local {
            // Peers get as many messages as their publishers keep only if that is known before.
            // The status of an action keeps one.
            let is_new = !self.offered.contains_key(name) && !is_action_status(name);
            if is_new && self.histories.is_uncounted(name) {
                return;
            }
            offer.united.depth = self.histories.depth(name);
        }
        offer.united.liveliness.lost = self.is_lost(name, offer.united.liveliness.lease);
        let topic = self.topic(name, offer);
        if self.offered.get(name) != Some(&topic) {
            self.offered.insert(name.into(), topic.clone());
            self.emit(Event::Offered(topic));
        }
    }

    /// Whether no publisher of a local topic is alive. Without a reader, that is what was known last.
    fn is_lost(&mut self, name: &str, lease: Option<Duration>) -> bool {
        let Some(lease) = lease else { return false };
        let read = self.subscribed.get(name).and_then(Option::as_ref);
        match read.map_or(State::Unknown, |it| it.liveliness(lease)) {
            State::Alive => return false,
            State::LostFrom(at) if at <= Instant::now() => return true,
            State::LostFrom(at) => self.liveliness.expect_loss(name, at),
            State::Unknown => {}
        }
        self.offered.get(name).is_some_and(|known| known.qos.liveliness.lost)
    }

    fn withdraw(&mut self, name: &str) {
        self.clear_trouble(name, "types");
        self.histories.forget(name);
        if self.offered.remove(name).is_some() {
            self.emit(Event::Withdrawn { topic: name.into() });
        }
    }

    fn topic(&mut self, name: &str, offer: Offer) -> Topic {
        let definition = self.definition(&offer.type_name);
        let type_hash = match offer.hash.is_empty() {
            false => offer.hash,
            // The type is not installed. An empty definition would be an empty type.
            true if definition.is_empty() => String::new(),
            // ROS 2 before Iron announces no hashes.
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

    /// Empty if it is not installed: the type still passes between robots with ROS 2.
    fn definition(&mut self, type_name: &str) -> Arc<str> {
        let read = |installed: &Installed| match type_name.split('/').nth(1) {
            Some("action") => action::installed_part(type_name, installed),
            Some("srv") => installed.service(type_name, Dialect::Ros2),
            _ => installed.definition(type_name, Dialect::Ros2),
        };
        self.definitions.get(type_name, read, |error| {
            tracing::info!("robots with ROS 1 need their own definition of {type_name}: {error}");
        })
    }

    fn update_subscription(&mut self, name: &str, offer: Option<&Offer>) {
        let Some(slot) = self.subscribed.get_mut(name) else { return };
        let Some(offer) = offer else {
            *slot = None;
            return;
        };
        if slot.as_ref().is_none_or(|before| before.type_name != offer.type_name) {
            let new = slot.insert(Subscription::new(&offer.type_name, &offer.hash));
            for (writer, depth) in self.histories.depths(name) {
                new.set_depth(writer, depth, |_, _| {});
            }
        }
        let Some(subscription) = slot else { return };
        let classes = offer.united.all_classes();
        match subscription.read(name, classes, &self.setup.context, &self.setup.orders) {
            Ok(is_changed) => self.graph_pace.changed |= is_changed,
            Err(error) => {
                self.set_trouble(name, "reading", format!("{name} is not read: {error}"));
            }
        }
    }

    /// Publishes a topic of peers, unless local nodes use its name with another type.
    fn update_publication(&mut self, name: &str) {
        let Some(advertised) = self.advertised.get(name) else { return };
        let topic = &advertised.topic;
        let Some(dds_type) = names::dds_type(&topic.type_name) else {
            let reason = format!("'{}' is no type of ROS 2 (package/msg/Type)", topic.type_name);
            return self.refuse(name, reason);
        };
        let wanted = self.topic_endpoints.is_wanted(name, &dds_type);
        if let Some(other) = self.topic_endpoints.topic_conflict(name, &dds_type, &topic.type_hash)
        {
            let reason = format!(
                "nodes in domain {} have it as {other}, but peers send {} ({})",
                self.setup.options.domain, topic.type_name, topic.type_hash
            );
            if other.is_misread() {
                return self.refuse(name, reason);
            }
            self.report_refusal(name, reason);
        }
        if let Err(error) = self.publish(name) {
            return self.refuse(name, error.to_string());
        }
        let Some(advertised) = self.advertised.get_mut(name) else { return };
        let lease = advertised.topic.qos.liveliness.lease;
        self.liveliness.follow(name, lease, Instant::now());
        if advertised.wanted != wanted {
            advertised.wanted = wanted;
            self.emit(Event::Wanted { topic: name.into(), wanted });
        }
    }

    fn publish(&mut self, name: &str) -> Result<(), DdsError> {
        let Some(advertised) = self.advertised.get(name) else { return Ok(()) };
        let known = lock(&self.setup.publications).get(name).cloned();
        if let Some(known) = known.filter(|known| known.serves(&advertised.topic)) {
            return known.follow(&advertised.topic.qos);
        }
        let (topic, orders) = (advertised.topic.clone(), self.setup.orders.clone());
        let on_change = Box::new(move || drop(orders.send(Order::WritersChanged)));
        let publication = Arc::new(Publication::new(topic, &self.setup.context, on_change)?);
        let replaced = lock(&self.setup.publications).insert(name.into(), publication);
        // Deleted without the lock, which the writing of other topics needs.
        drop(replaced);
        self.graph_pace.changed = true;
        Ok(())
    }

    /// Shows publications as alive, or as lost.
    fn assert_liveliness(&mut self, now: Instant) {
        for name in self.liveliness.take_due(now) {
            let publication = lock(&self.setup.publications).get(&name).cloned();
            let (Some(publication), Some(known)) = (publication, self.advertised.get(&name)) else {
                continue;
            };
            let shown = match known.topic.qos.liveliness.lost {
                true => publication.hide_lost(),
                false => publication.assert_liveliness(known.wanted),
            };
            if let Err(error) = shown {
                log_limited!(warn, {topic = name, %error,}, "liveliness is not asserted");
            }
        }
    }

    fn refuse(&mut self, name: &str, reason: String) {
        self.remove_publication(name);
        self.report_refusal(name, reason);
        if let Some(advertised) = self.advertised.get_mut(name)
            && std::mem::take(&mut advertised.wanted)
        {
            self.emit(Event::Wanted { topic: name.into(), wanted: false });
        }
    }

    /// Reports each reason once.
    fn report_refusal(&mut self, name: &str, reason: String) {
        let Some(advertised) = self.advertised.get_mut(name) else { return };
        if advertised.refused.as_ref() == Some(&reason) {
            return;
        }
        advertised.refused = Some(reason.clone());
        self.set_trouble(name, "refused", format!("{name}: {reason}"));
        self.emit(Event::Refused { topic: name.into(), reason });
    }

    fn remove_publication(&mut self, name: &str) {
        self.liveliness.follow(name, None, Instant::now());
        let removed = lock(&self.setup.publications).remove(name);
        self.graph_pace.changed |= removed.is_some();
    }

    fn unadvertise(&mut self, name: &str) {
        self.remove_publication(name);
        self.clear_trouble(name, "refused");
        self.clear_trouble(name, "publishing");
        self.setup.context.shared.drops.release(name);
        if self.advertised.remove(name).is_some_and(|known| known.wanted) {
            self.emit(Event::Wanted { topic: name.into(), wanted: false });
        }
        self.report_keys(name);
    }
}
