// SPDX-License-Identifier: Apache-2.0
//! Telling of links: local ROS nodes by a topic, applications that embed the node by
//! [`Handle::watch_links`](crate::Handle::watch_links).

use super::Driver;
use crate::diagnostics::LinkTopic;
use crate::quota::Cause;
use crate::status::LinkReport;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::SystemTime;
use tautline_proto::{Duration, Event, Instant};

/// Applications that may be told.
const MAX_WATCHERS: usize = 16;
/// Least time between two times that all is told, however many links there are.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// What of the links is to be told to whom.
#[derive(Debug, Default)]
pub(super) struct News {
    topic: Option<LinkTopic>,
    watchers: Vec<Watcher>,
    /// When what happened since is to be told.
    due: Option<Instant>,
    told: Instant,
}

#[derive(Debug)]
struct Watcher {
    sender: SyncSender<Vec<LinkReport>>,
    /// It had not taken what was told before, and has not got the latest.
    owed: bool,
}

impl Watcher {
    /// Whether it is still there.
    fn tell(&mut self, links: &[LinkReport]) -> bool {
        let sent = self.sender.try_send(links.to_vec());
        self.owed = matches!(sent, Err(TrySendError::Full(_)));
        !matches!(sent, Err(TrySendError::Disconnected(_)))
    }
}

impl News {
    /// `topic`: what local ROS nodes are told on, if they are.
    pub(super) fn new(topic: Option<LinkTopic>) -> Self {
        Self { topic, ..Self::default() }
    }

    /// Looks whether an event is news.
    pub(super) fn hear(&mut self, event: &Event) {
        if matches!(event, Event::LinkUp { .. } | Event::LinkDown { .. } | Event::LinkRate { .. }) {
            self.hear_of_links();
        }
    }

    /// Links were removed.
    pub(super) fn hear_of_links(&mut self) {
        self.due.get_or_insert(self.told + TELL_EVERY);
    }

    /// What local ROS nodes are told on from now on; returns what they were.
    pub(super) fn set_topic(&mut self, topic: Option<LinkTopic>) -> Option<LinkTopic> {
        std::mem::replace(&mut self.topic, topic)
    }

    /// When [`Driver::tell_news`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Driver {
    /// Tells of the links if something happened.
    pub(super) fn tell_news(&mut self, now: Instant) {
        if self.news.due.is_some_and(|at| at <= now) {
            let links = self.reporter.links(&self.endpoint);
            self.news.watchers.retain_mut(|watcher| watcher.tell(&links));
            self.publish_links(now, &links);
            (self.news.due, self.news.told) = (None, now);
        }
    }

    /// Tells of the links however little happened: local ROS nodes, and applications that have
    /// not got the latest. Called once per second.
    pub(super) fn tell_links(&mut self, now: Instant) {
        if let Some(topic) = &self.news.topic {
            // Peers have links of their own; nothing of ours is offered to them.
            self.topics.publish_own_here(topic.topic());
        }
        let is_owed = self.news.watchers.iter().any(|watcher| watcher.owed);
        let is_heard = self.topic_is_heard();
        if is_owed || is_heard {
            let links = self.reporter.links(&self.endpoint);
            self.news.watchers.retain_mut(|watcher| !watcher.owed || watcher.tell(&links));
            self.publish_links(now, &links);
            if let Some(topic) = self.news.topic.as_mut().filter(|_| is_heard) {
                topic.keep(now.since(Instant::default()), links);
            }
        }
        if let Some(topic) = self.news.topic.as_mut().filter(|_| !is_heard) {
            topic.rest();
        }
    }

    fn topic_is_heard(&self) -> bool {
        let topic = self.news.topic.as_ref();
        topic.is_some_and(|topic| self.topics.own_is_wanted(&topic.topic().name))
    }

    /// Publishes an array if anybody listens.
    fn publish_links(&mut self, now: Instant, links: &[LinkReport]) {
        let Some(topic) = self.news.topic.as_ref().filter(|_| self.topic_is_heard()) else {
            return;
        };
        let name = topic.topic().name.clone();
        // The clock of other ROS nodes; one before 1970 is as good as none.
        let stamp = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        match topic.message(now.since(Instant::default()), links, stamp) {
            Ok(message) => self.topics.send_own(now, &mut self.endpoint, &name, message),
            Err(error) => self.topics.notice(now, Cause::Here, &format!("{name}: {error}")),
        }
    }

    /// Tells one more application from now on, of what is at once.
    pub(super) fn watch_links(
        &mut self,
        sender: SyncSender<Vec<LinkReport>>,
    ) -> Result<(), String> {
        let links = self.reporter.links(&self.endpoint);
        if self.news.watchers.len() == MAX_WATCHERS {
            // Those that have gone make room.
            self.news.watchers.retain_mut(|watcher| watcher.tell(&links));
        }
        if self.news.watchers.len() == MAX_WATCHERS {
            return Err(format!(
                "{MAX_WATCHERS} applications are told of links already, which is the most"
            ));
        }
        let mut watcher = Watcher { sender, owed: false };
        if watcher.tell(&links) {
            self.news.watchers.push(watcher);
        }
        Ok(())
    }
}
