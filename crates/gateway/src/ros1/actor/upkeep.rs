// SPDX-License-Identifier: Apache-2.0
//! The master: polled, and told what it does not know yet.

use super::{Actor, NotAdvertised, Note, Poll};
use crate::ros1::inquiry::users;
use crate::ros1::master::Snapshot;
use crate::ros1::publication::Phase;
use crate::ros1::shown;
use crate::ros1::turns;
use crate::ros1::xmlrpc::CallError;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How often the master is asked what it knows.
const POLL_PERIOD: Duration = Duration::from_secs(1);
/// How long unregistering may take when the gateway stops.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a poll that took so long. Lists that take long cost a core each time.
fn rest_after(took: Duration) -> Duration {
    if took > POLL_PERIOD { took } else { Duration::ZERO }
}

/// Whether a master that gave this error is there, and what is wrong.
fn trouble(error: &CallError) -> (bool, String) {
    match error {
        CallError::TooLarge { .. } => (
            true,
            format!("the ROS master lists too much, so what it knew before goes on: {error}"),
        ),
        _ => (false, format!("the ROS master does not answer: {error}")),
    }
}

impl Actor {
    pub(super) fn poll(&mut self) {
        self.next_poll = Instant::now() + POLL_PERIOD;
        if self.polling {
            self.poll_again = true;
            return;
        }
        self.polling = true;
        self.poll_began = Instant::now();
        let (inquirer, name_taken) = (self.inquirer.clone(), self.name_taken);
        self.spawn(async move {
            let snapshot = match inquirer.master.poll().await {
                Ok(snapshot) => snapshot,
                Err(error) => return Note::Polled(Err(error)),
            };
            let namesake = if name_taken { inquirer.namesake().await } else { None };
            Note::Polled(Ok(Poll { snapshot, name_asked: name_taken, namesake }))
        });
    }

    pub(super) fn polled(&mut self, result: Result<Poll, CallError>) {
        self.polling = false;
        if std::mem::take(&mut self.poll_again) {
            let rest =
                result.as_ref().map_or(Duration::ZERO, |_| rest_after(self.poll_began.elapsed()));
            self.next_poll = Instant::now() + rest;
        }
        match result {
            Ok(poll) => {
                self.set_health(true, "");
                if poll.name_asked {
                    self.set_namesake(poll.namesake);
                }
                if !self.name_taken {
                    self.register_missing(&poll.snapshot);
                    self.register_services(&poll.snapshot);
                }
                self.services.discovery.on_snapshot(&poll.snapshot.services, Instant::now());
                self.discovery.on_snapshot(&poll.snapshot, Instant::now());
            }
            Err(error) => {
                let (connected, trouble) = trouble(&error);
                self.set_health(connected, &trouble);
            }
        }
        self.after_discovery();
        self.after_service_discovery();
        self.refresh_all();
    }

    fn set_health(&self, connected: bool, trouble: &str) {
        let mut health = self.setup.shared.health();
        if health.connected != connected {
            tracing::info!(master = self.setup.master.uri, connected, trouble, "ROS master");
        }
        health.connected = connected;
        health.master_trouble = trouble.into();
    }

    /// While another node lives under our name, registering would end it, and it us, in turns.
    fn set_namesake(&mut self, uri: Option<String>) {
        self.name_taken = uri.is_some();
        let own_name = &self.setup.options.node_name;
        self.setup.shared.health().name_trouble = uri.map_or_else(String::new, |uri| {
            format!(
                "another node at {} goes by our name {own_name}; nothing is registered until \
                 it leaves",
                shown(&uri)
            )
        });
    }

    /// Puts right what the master does not list, or lists without need.
    fn register_missing(&mut self, snapshot: &Snapshot) {
        let own_name = self.setup.options.node_name.clone();
        let lists =
            |nodes: Option<&BTreeSet<String>>| nodes.is_some_and(|nodes| nodes.contains(&own_name));
        for (topic, subscription) in &mut self.subscriptions {
            subscription.registered &= lists(snapshot.subscribers.get(topic));
        }
        for (topic, publication) in &mut self.publications {
            let listed = lists(snapshot.publishers.get(topic));
            if publication.phase == Phase::Registered && !listed {
                publication.phase = Phase::Pending;
            }
        }
        for (topic, nodes) in &snapshot.subscribers {
            if lists(Some(nodes)) && !self.subscriptions.contains_key(topic) {
                self.unregister_subscriber(topic);
            }
        }
        for (topic, nodes) in &snapshot.publishers {
            if lists(Some(nodes)) && !self.publications.contains_key(topic) {
                self.unregister_publisher(topic);
            }
        }
        self.register_subscribers();
        self.register_publishers(snapshot);
    }

    fn register_subscribers(&mut self) {
        let all = &self.subscriptions;
        let waiting = all.iter().filter(|(_, it)| it.waits()).map(|(topic, it)| (topic, it.turn));
        let busy = all.values().filter(|it| it.registering).map(|it| it.turn);
        for topic in turns::choose(waiting, busy, Instant::now()) {
            self.register_subscriber(topic);
        }
    }

    fn register_subscriber(&mut self, topic: String) {
        let Some(subscription) = self.subscriptions.get_mut(&topic) else { return };
        subscription.registering = true;
        let serial = subscription.serial;
        let offered = self.discovery.offered(&topic);
        let type_name = offered.map_or("*".into(), |topic| topic.type_name.clone());
        let master = self.inquirer.master.clone();
        self.spawn(async move {
            let publishers = master.register_subscriber(&topic, &type_name).await;
            Note::Subscribed { topic, serial, publishers }
        });
    }

    fn register_publishers(&mut self, snapshot: &Snapshot) {
        let all = &self.publications;
        let waiting = all.iter().filter(|(_, it)| it.waits()).map(|(topic, it)| (topic, it.turn));
        let busy = all.values().filter(|it| it.busy).map(|it| it.turn);
        for topic in turns::choose(waiting, busy, Instant::now()) {
            self.register_publisher(&topic, snapshot);
        }
    }

    fn register_publisher(&mut self, topic: &str, snapshot: &Snapshot) {
        let own_name = self.setup.options.node_name.as_str();
        let Some(found) = self.publications.get_mut(topic) else { return };
        found.busy = true;
        let asked = if found.cleared { vec![] } else { users(snapshot, &found.topic, own_name) };
        let (topic, serial) = (found.topic.clone(), found.serial);
        let inquirer = self.inquirer.clone();
        self.spawn(async move {
            let outcome = match inquirer.conflict(&topic, asked).await {
                Some(conflict) => Err(NotAdvertised::Conflict(conflict)),
                None => inquirer
                    .master
                    .register_publisher(&topic.name, &topic.type_name)
                    .await
                    .map_err(NotAdvertised::Master),
            };
            Note::Advertised { topic: topic.name, serial, outcome }
        });
    }

    pub(super) fn unregister_subscriber(&self, topic: &str) {
        let (master, topic) = (self.inquirer.master.clone(), topic.to_owned());
        // Tried again after a poll that still lists us.
        tokio::spawn(async move { master.unregister_subscriber(&topic).await.map_err(drop) });
    }

    pub(super) fn unregister_publisher(&self, topic: &str) {
        let (master, topic) = (self.inquirer.master.clone(), topic.to_owned());
        tokio::spawn(async move { master.unregister_publisher(&topic).await.map_err(drop) });
    }

    pub(super) async fn unregister_all(&mut self) {
        let master = self.inquirer.master.clone();
        let connected = self.setup.shared.health().connected;
        for subscription in self.subscriptions.values_mut() {
            subscription.silence();
        }
        if !connected {
            return;
        }
        let trouble = match timeout(UNREGISTER_TIMEOUT, master.leave()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it took more than {} s", UNREGISTER_TIMEOUT.as_secs()),
        };
        tracing::warn!("still registered at the ROS master: {trouble}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_of_a_master_that_lists_much_leave_time_between() {
        assert_eq!(rest_after(POLL_PERIOD / 2), Duration::ZERO);
        assert_eq!(rest_after(3 * POLL_PERIOD), 3 * POLL_PERIOD);
    }
}
