// SPDX-License-Identifier: Apache-2.0
//! Reports of links. Local ROS nodes get them on a topic; applications that embed the node get them
//! from [`Handle::watch_links`](crate::Handle::watch_links).

use super::common::Common;
use crate::diagnostics::LinkTopic;
use crate::status::LinkReport;
use crate::topics::Topics;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::SystemTime;
use tautline_proto::{Duration, Event, Instant};

/// Maximum number of applications that receive reports.
const MAX_WATCHERS: usize = 16;
/// Minimum interval between two reports of all links, for any number of links.
const REPORT_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct News {
    topic: Option<LinkTopic>,
    watchers: Vec<Watcher>,
    /// Time at which a report of the changes since the last report is due.
    due: Option<Instant>,
    reported_at: Instant,
}

#[derive(Debug)]
struct Watcher {
    sender: SyncSender<Vec<LinkReport>>,
    /// Whether the channel was full, so that the application does not have the latest report.
    outdated: bool,
}

impl Watcher {
    /// Sends a report; returns whether the application still receives.
    fn report(&mut self, links: &[LinkReport]) -> bool {
        let sent = self.sender.try_send(links.to_vec());
        self.outdated = matches!(sent, Err(TrySendError::Full(_)));
        !matches!(sent, Err(TrySendError::Disconnected(_)))
    }
}

impl News {
    /// Creates the reports; local ROS nodes receive them on `topic`, if given.
    pub(super) fn new(topic: Option<LinkTopic>) -> Self {
        Self { topic, ..Self::default() }
    }

    /// Schedules a report if the event concerns a link.
    pub(super) fn on_event(&mut self, event: &Event) {
        if matches!(event, Event::LinkUp { .. } | Event::LinkDown { .. } | Event::LinkRate { .. }) {
            self.schedule();
        }
    }

    /// Schedules a report. Also called when links were removed.
    pub(super) fn schedule(&mut self) {
        self.due.get_or_insert(self.reported_at + REPORT_EVERY);
    }

    /// Sets the topic for local ROS nodes; returns the previous one.
    pub(super) fn set_topic(&mut self, topic: Option<LinkTopic>) -> Option<LinkTopic> {
        std::mem::replace(&mut self.topic, topic)
    }

    /// Returns the time at which [`News::report_changed`] is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// Reports the links if a change is due.
    pub(super) fn report_changed(
        &mut self,
        now: Instant,
        common: &mut Common,
        topics: &mut Topics,
    ) {
        if self.due.is_some_and(|at| at <= now) {
            let links = link_reports(common, topics);
            self.watchers.retain_mut(|watcher| watcher.report(&links));
            self.publish(now, common, topics, &links);
            (self.due, self.reported_at) = (None, now);
        }
    }

    /// Reports the links even without a change, to local ROS nodes and to applications that do not
    /// have the latest report. Called once per second.
    pub(super) fn report(&mut self, now: Instant, common: &mut Common, topics: &mut Topics) {
        if let Some(topic) = &self.topic {
            // This topic is not advertised to peers, because they have links of their own.
            topics.publish_own_topic_locally(&mut common.context(now), topic.topic());
        }
        let is_outdated = self.watchers.iter().any(|watcher| watcher.outdated);
        let has_subscribers = self.has_subscribers(topics);
        if is_outdated || has_subscribers {
            let links = link_reports(common, topics);
            self.watchers.retain_mut(|watcher| !watcher.outdated || watcher.report(&links));
            self.publish(now, common, topics, &links);
            if let Some(topic) = self.topic.as_mut().filter(|_| has_subscribers) {
                topic.keep(now.since(Instant::default()), links);
            }
        }
        if let Some(topic) = self.topic.as_mut().filter(|_| !has_subscribers) {
            topic.forget();
        }
    }

    fn has_subscribers(&self, topics: &Topics) -> bool {
        let topic = self.topic.as_ref();
        topic.is_some_and(|topic| topics.is_own_topic_wanted(&topic.topic().name))
    }

    /// Publishes an array of links if there are subscribers.
    fn publish(
        &self,
        now: Instant,
        common: &mut Common,
        topics: &mut Topics,
        links: &[LinkReport],
    ) {
        let Some(topic) = self.topic.as_ref().filter(|_| self.has_subscribers(topics)) else {
            return;
        };
        let name = &topic.topic().name;
        // Other ROS nodes use this clock; a time before 1970 is replaced by zero.
        let stamp = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        match topic.message(now.since(Instant::default()), links, stamp) {
            Ok(message) => topics.send_own_message(&mut common.context(now), name, message),
            Err(error) => common.notice(now, &format!("{name}: {error}")),
        }
    }

    /// Adds an application that receives reports, the current one immediately.
    pub(super) fn watch(
        &mut self,
        common: &Common,
        topics: &Topics,
        sender: SyncSender<Vec<LinkReport>>,
    ) -> Result<(), String> {
        let links = link_reports(common, topics);
        if self.watchers.len() == MAX_WATCHERS {
            // Disconnected applications free their slots.
            self.watchers.retain_mut(|watcher| watcher.report(&links));
        }
        if self.watchers.len() == MAX_WATCHERS {
            return Err(format!("{MAX_WATCHERS} applications watch links already, the maximum"));
        }
        let mut watcher = Watcher { sender, outdated: false };
        if watcher.report(&links) {
            self.watchers.push(watcher);
        }
        Ok(())
    }
}

fn link_reports(common: &Common, topics: &Topics) -> Vec<LinkReport> {
    common.reporter.links(common.now(), common.exchange(topics))
}
