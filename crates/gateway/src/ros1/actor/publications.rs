// SPDX-License-Identifier: Apache-2.0
//! Topics of peers, published to local subscribers.

use super::context::{Context, Setup};
use crate::deliveries::{Deliveries, Subscriber};
use crate::ros1::admission::Admitted;
use crate::ros1::handshake::refuse;
use crate::ros1::header::{Header, TAUTLINE_FIELD};
use crate::ros1::master::{NodesByName, Snapshot};
use crate::ros1::note::Note;
use crate::ros1::publication::Publication;
use crate::ros1::shown::for_logs;
use crate::{Event, Origin, Source, Topic, identity};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Time limit for the master to tell a subscriber's address. Until then, the subscriber gets no
/// latched messages.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(2);

/// The topics of peers that are published here.
pub(super) struct Publications {
    current: BTreeMap<String, Publication>,
    /// Publications that have ended, with subscribers. rospy does not close a connection whose publisher
    /// left the master, and waits ever longer before it makes a new one.
    ended: BTreeMap<String, Publication>,
    deliveries: Deliveries,
    /// For topics with messages that were delivered before our start: the subscribers that the master
    /// listed when it first answered. All others have left since, or are new.
    subscribed_at_start: Option<NodesByName>,
}

impl Publications {
    pub fn new(setup: &Setup) -> Self {
        Self {
            current: BTreeMap::new(),
            ended: BTreeMap::new(),
            deliveries: Deliveries::open(setup.options.deliveries.clone()),
            subscribed_at_start: None,
        }
    }

    pub fn get(&self, topic: &str) -> Option<&Publication> {
        self.current.get(topic)
    }

    /// All topics that are published.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Publication)> {
        self.current.iter()
    }

    /// Replaces the description of a topic; `false` if it is not published with this type.
    pub fn update(&mut self, topic: &Topic) -> bool {
        let publication = self.current.get_mut(&topic.name);
        let Some(publication) = publication.filter(|it| it.has_type_of(topic)) else {
            return false;
        };
        publication.update(topic.clone());
        true
    }

    /// Publishes a topic that is not published yet.
    pub fn add(&mut self, context: &Context, topic: Topic) {
        let name = topic.name.clone();
        let drops = context.setup.shared.drops.counter(&name);
        let mut publication = Publication::new(topic, drops, self.deliveries.clone());
        // Connections for another type close here.
        let ended = self.ended.remove(&name);
        if let Some(ended) = ended.filter(|it| it.has_type_of(&publication.topic)) {
            publication.subscribers = ended.subscribers;
            context.emit(Event::Wanted { topic: name.clone(), wanted: true });
        }
        self.current.insert(name, publication);
    }

    /// Stops publishing a topic; `false` if it was not published.
    pub fn remove(&mut self, context: &Context, topic: &str) -> bool {
        let Some(mut publication) = self.current.remove(topic) else { return false };
        if !publication.subscribers.is_empty() {
            context.emit(Event::Wanted { topic: topic.into(), wanted: false });
            publication.forget(None);
            self.ended.insert(topic.into(), publication);
        }
        context.setup.shared.troubles.clear(topic, "conflict");
        context.setup.shared.drops.release(topic);
        true
    }

    /// Keeps the subscribers that the master lists when it answers for the first time.
    pub fn on_snapshot(&mut self, snapshot: &Snapshot) {
        if self.subscribed_at_start.is_none() {
            let known =
                snapshot.subscribers.iter().filter(|it| self.deliveries.has_deliveries(it.0));
            let known = known.map(|(topic, nodes)| (topic.clone(), nodes.clone()));
            self.subscribed_at_start = Some(known.collect());
        }
    }

    /// Records that the topic is registered: no local node uses it with another type.
    pub fn clear_conflict(&mut self, context: &Context, topic: &str) {
        if let Some(publication) = self.current.get_mut(topic) {
            publication.conflict_cleared = true;
            publication.conflict = None;
        }
        context.setup.shared.troubles.clear(topic, "conflict");
    }

    /// Refuses a topic that a local node uses with another type.
    pub fn refuse(&mut self, context: &Context, topic: &str, reason: String) {
        let Some(publication) = self.current.get_mut(topic) else { return };
        if publication.conflict.as_ref() != Some(&reason) {
            publication.conflict = Some(reason.clone());
            context.setup.shared.troubles.set(topic, "conflict", reason.clone());
            context.emit(Event::Refused { topic: topic.into(), reason });
        }
    }

    pub fn publish(
        &mut self,
        context: &Context,
        topic: &str,
        source: Source,
        payload: Bytes,
        origin: &Origin,
    ) {
        context.setup.shared.backlog.release(payload.len());
        if let Some(publication) = self.current.get_mut(topic) {
            publication.publish(source, payload, origin);
        }
    }

    pub fn forget(&mut self, topic: &str, source: Option<Source>) {
        if let Some(publication) = self.current.get_mut(topic) {
            publication.forget(source);
        }
    }

    /// The publication of a topic, unless it is in conflict.
    pub fn publication(&self, topic: &str) -> Option<&Publication> {
        self.current.get(topic).filter(|found| found.conflict.is_none())
    }

    /// Takes a connection whose header requests a topic.
    pub fn add_subscriber(&mut self, context: &mut Context, connection: Admitted, header: &Header) {
        let id = context.serial();
        let (identity, notes) = (context.setup.identity.clone(), context.notes.clone());
        let name = header.get("topic").unwrap_or_default();
        let publication = self.current.get_mut(name).filter(|found| found.conflict.is_none());
        let Some(publication) = publication else {
            let reason = format!("{} does not publish '{}'", identity.node_name, for_logs(name));
            tokio::spawn(refuse(connection, reason, identity));
            return;
        };
        let caller = header.get("callerid").unwrap_or_default();
        let admitted = match publication.refusal(header) {
            Some(reason) => Err(reason),
            None => publication.admit_subscriber(connection.peer, caller, Instant::now()),
        };
        if let Err(reason) = admitted {
            if header.get(TAUTLINE_FIELD).is_none() && publication.should_report(&reason) {
                context.emit(Event::Refused { topic: name.into(), reason: reason.clone() });
            }
            tokio::spawn(refuse(connection, reason, identity));
            return;
        }
        publication.add_subscriber(id, connection, caller, &identity, notes);
        if publication.subscribers.len() == 1 {
            context.emit(Event::Wanted { topic: name.into(), wanted: true });
        }
        identify(context, id, name, caller);
    }

    /// Records the process of a subscriber, which is now known.
    pub fn on_identified(&mut self, topic: &str, id: u64, identity: Subscriber) {
        let Some(publication) = find_publication([&mut self.current, &mut self.ended], topic)
        else {
            return;
        };
        let Some(caller) = publication.subscribers.get(&id).map(|it| &it.caller) else { return };
        let at_start = self.subscribed_at_start.as_ref().and_then(|it| it.get(topic));
        if !at_start.is_some_and(|nodes| nodes.contains(caller)) {
            // A node that subscribed after our start has none of the messages delivered before.
            self.deliveries.forget(topic, identity);
        }
        publication.on_identified(id, identity);
    }

    pub fn on_subscriber_left(&mut self, context: &Context, topic: &str, id: u64) {
        let Some(publication) = find_publication([&mut self.current, &mut self.ended], topic)
        else {
            return;
        };
        let Some(left) = publication.subscribers.remove(&id) else { return };
        publication.forget_deliveries(&left);
        if publication.subscribers.is_empty() && self.ended.remove(topic).is_none() {
            context.emit(Event::Wanted { topic: topic.into(), wanted: false });
        }
    }
}

/// Asks the master for the address of a subscriber's process: another process may have its name
/// later.
fn identify(context: &Context, id: u64, topic: &str, caller: &str) {
    let (master, caller) = (context.prober.master.clone(), caller.to_owned());
    let topic = topic.to_owned();
    context.spawn(async move {
        let uri = match timeout(IDENTIFY_TIMEOUT, master.lookup_node(&caller)).await {
            Ok(Ok(uri)) => Some(uri),
            // The master is away, or does not know the subscriber, which counts as a new process.
            Ok(Err(_)) | Err(_) => None,
        };
        let unknown = uri.is_none().then(|| (std::process::id(), id));
        let identity = identity(&(caller, uri, unknown)).into();
        Note::Identified { topic, id, identity }
    });
}

/// The publication of a topic, current or ended.
fn find_publication<'a>(
    all: [&'a mut BTreeMap<String, Publication>; 2],
    topic: &str,
) -> Option<&'a mut Publication> {
    all.into_iter().find_map(|publications| publications.get_mut(topic))
}
