// SPDX-License-Identifier: Apache-2.0
//! Watchdogs: a safe message is published when a topic from peers goes silent, for any reason: its
//! publisher, the peer or the radio fails, or all messages are too old.
//!
//! A message from a peer arms the watchdog. The watchdog fires when no message is published within
//! its time. Then it sleeps, or repeats the safe message, until the next message.

use super::publications::Publications;
use super::safe::SafeMessage;
use crate::audit;
use crate::codec::job::Job;
use crate::config::WatchdogConfig;
use crate::quota::Cause;
use crate::status::WatchdogReport;
use crate::topics::context::Context;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tautline_gateway::types::compose::Fields;
use tautline_gateway::{Command, MAX_SOURCES, Origin, Source, Topic};
use tautline_proto::{Duration, Instant};

/// The source of safe messages.
const SAFE_MESSAGE_SOURCE: Source = Source::local(MAX_SOURCES + 1);
/// Time for which a topic that no peer advertises any more stays published after its safe message,
/// because the message is still in transit to subscribers.
const UNPUBLISH_DELAY: Duration = Duration::from_secs(5);

/// The safe message of a watchdog.
#[derive(Debug)]
enum Composition {
    /// No topic of a peer has been published under the watchdog's name yet.
    Unknown,
    /// The safe message is being composed for this topic.
    Requested(Topic),
    Ready(Topic, Bytes),
    /// The safe message cannot be composed for this topic.
    Impossible(Topic),
}

impl Composition {
    fn topic(&self) -> Option<&Topic> {
        match self {
            Self::Unknown => None,
            Self::Requested(topic) | Self::Ready(topic, _) | Self::Impossible(topic) => Some(topic),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Asleep,
    /// Messages arrive. Without another message, the watchdog fires at this time.
    Armed(Instant),
    /// The topic is silent, and the safe message is still being composed.
    Late,
    /// The topic is silent: the time of the last safe message, and the time of the next one if it repeats.
    Silent(Instant, Option<Instant>),
}

#[derive(Debug)]
struct Watchdog {
    after: Duration,
    repeat: Option<Duration>,
    fields: Arc<Fields>,
    composition: Composition,
    state: State,
    /// Number of safe messages published.
    published: u64,
}

impl Watchdog {
    fn new(config: &WatchdogConfig) -> Self {
        Self {
            after: config.after,
            repeat: config.repeat,
            fields: Arc::new(config.message.clone()),
            composition: Composition::Unknown,
            state: State::Asleep,
            published: 0,
        }
    }

    /// Applies a changed configuration. The watchdog stays armed or silent.
    fn reconfigure(&mut self, now: Instant, config: &WatchdogConfig) {
        if let State::Armed(due) = &mut self.state
            && self.after != config.after
        {
            *due = (*due).min(now + config.after);
        }
        if let State::Silent(_, again) = &mut self.state
            && self.repeat != config.repeat
        {
            *again = config.repeat.map(|every| now + every);
        }
        (self.after, self.repeat) = (config.after, config.repeat);
        if *self.fields != config.message {
            self.fields = Arc::new(config.message.clone());
            self.composition = Composition::Unknown;
        }
    }

    fn next_due(&self) -> Option<Instant> {
        match self.state {
            State::Armed(due) => Some(due),
            State::Silent(_, again) => again,
            State::Asleep | State::Late => None,
        }
    }
}

/// All watchdogs, by the local names of their topics.
#[derive(Debug, Default)]
pub(crate) struct Watchdogs(BTreeMap<String, Watchdog>);

impl Watchdogs {
    pub(super) fn new(configs: &[WatchdogConfig]) -> Self {
        let named = |config: &WatchdogConfig| (config.topic.clone(), Watchdog::new(config));
        Self(configs.iter().map(named).collect())
    }

    /// Whether a topic must stay published although no peer advertises it.
    pub(super) fn must_stay_published(&self, topic: &str) -> bool {
        self.0.get(topic).is_some_and(|watchdog| watchdog.state != State::Asleep)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.values().filter_map(Watchdog::next_due).min()
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = WatchdogReport> {
        self.0.iter().map(|(topic, watchdog)| {
            let state = match watchdog.state {
                State::Asleep => "asleep",
                State::Armed(_) => "armed",
                State::Late | State::Silent(..) => "silent",
            };
            let (topic, published) = (topic.clone(), watchdog.published);
            WatchdogReport { topic, state: state.into(), published }
        })
    }

    /// Replaces the watchdogs. A topic that already had a watchdog keeps its state. Returns the
    /// topics of removed watchdogs, which may have been published only for them.
    pub(super) fn reconfigure(
        &mut self,
        cx: &mut Context<'_>,
        configs: &[WatchdogConfig],
        publications: &Publications,
    ) -> Vec<String> {
        let now = cx.now;
        let mut before = std::mem::take(&mut self.0);
        for config in configs {
            let known = before.remove(&config.topic);
            let mut watchdog = known.unwrap_or_else(|| Watchdog::new(config));
            watchdog.reconfigure(now, config);
            self.0.insert(config.topic.clone(), watchdog);
            let published = publications.get(&config.topic).filter(|it| !it.channels.is_empty());
            if let Some(topic) = published.map(|it| it.topic.clone()) {
                self.watch(cx, &topic);
            }
        }
        before.into_keys().collect()
    }

    /// Requests the safe message for a topic from peers that is now published, if the topic has a watchdog.
    pub(crate) fn watch(&mut self, cx: &mut Context<'_>, topic: &Topic) {
        let Some(watchdog) = self.0.get_mut(&topic.name) else { return };
        let is_known = watchdog.composition.topic().is_some_and(|known| {
            (&known.type_name, &known.type_hash, &known.definition)
                == (&topic.type_name, &topic.type_hash, &topic.definition)
        });
        if is_known {
            return;
        }
        watchdog.composition = Composition::Requested(topic.clone());
        let (topic, fields) = (topic.clone(), watchdog.fields.clone());
        cx.submit_job(Job::Compose { topic, fields });
    }

    /// Takes a composed safe message that was requested.
    pub(super) fn on_composed(
        &mut self,
        cx: &mut Context<'_>,
        publications: &Publications,
        topic: &Topic,
        composed: Result<SafeMessage, String>,
    ) {
        let name = topic.name.clone();
        let Some(watchdog) = self.0.get_mut(&name) else { return };
        if !matches!(&watchdog.composition, Composition::Requested(requested) if requested == topic)
        {
            // The type has changed since the request, or the message was requested twice.
            return;
        }
        let is_late = watchdog.state == State::Late;
        match composed {
            Ok(SafeMessage { message, problem }) => {
                watchdog.composition = Composition::Ready(topic.clone(), message);
                if let Some(problem) = problem {
                    let type_name = &topic.type_name;
                    let text = format!(
                        "watchdogs.{name}.message for {type_name}: {problem}; all its fields \
                         are zero instead"
                    );
                    publications.notice(cx, &name, &text);
                }
            }
            Err(reason) => {
                watchdog.composition = Composition::Impossible(topic.clone());
                let text =
                    format!("watchdogs.{name}: the safe message cannot be composed: {reason}");
                publications.notice(cx, &name, &text);
            }
        }
        if is_late {
            self.fire(cx, publications, &name);
        }
    }

    /// Rearms the watchdog, because a message from a peer was passed to the gateway.
    pub(super) fn rearm(&mut self, cx: &mut Context<'_>, topic: &str) {
        let now = cx.now;
        let Some(watchdog) = self.0.get_mut(topic) else { return };
        let was_silent = matches!(watchdog.state, State::Late | State::Silent(..));
        if was_silent && cx.notices.may_log(now, &Cause::Safety(topic.to_owned())) {
            tracing::info!(topic, "messages from peers arrive again");
        }
        watchdog.state = State::Armed(now + watchdog.after);
    }

    pub(super) fn run(&mut self, cx: &mut Context<'_>, publications: &Publications) {
        let now = cx.now;
        let is_due = |watchdog: &Watchdog| watchdog.next_due().is_some_and(|due| due <= now);
        let due = self.0.iter().filter(|(_, watchdog)| is_due(watchdog));
        let due: Vec<_> = due.map(|(topic, _)| topic.clone()).collect();
        for topic in due {
            self.fire(cx, publications, &topic);
        }
    }

    fn fire(&mut self, cx: &mut Context<'_>, publications: &Publications, name: &str) {
        let now = cx.now;
        let wanted = publications.is_wanted(name);
        let Some(watchdog) = self.0.get_mut(name) else { return };
        if !wanted {
            // Without a subscriber, peers send nothing, so nothing has to be made safe.
            watchdog.state = State::Asleep;
            return;
        }
        let first = !matches!(watchdog.state, State::Silent(..));
        let again = watchdog.repeat.map(|every| now + every);
        let is_ready = matches!(watchdog.composition, Composition::Ready(..));
        let done = match &watchdog.composition {
            Composition::Unknown | Composition::Requested(_) => {
                watchdog.state = State::Late;
                return;
            }
            Composition::Ready(_, message) => {
                let (topic, payload) = (name.to_owned(), message.clone());
                watchdog.published += 1;
                let origin = Origin::default();
                let publish =
                    Command::Publish { topic, source: SAFE_MESSAGE_SOURCE, payload, origin };
                cx.send_to_gateway(publish);
                "its safe message was published"
            }
            Composition::Impossible(_) => "no safe message could be composed",
        };
        watchdog.state = State::Silent(now, again);
        if first {
            let after = watchdog.after;
            let cause = Cause::Safety(name.to_owned());
            let silence_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            let topic = name.into();
            let event = audit::Event::SafeMessage { topic, silence_ms, published: is_ready };
            cx.recorder.record(&cause, event);
            let text = format!("{name}: no message from peers for {after:?}; {done}");
            cx.notice(cause, &text);
        }
    }

    /// Repeats requests for safe messages that may have been lost. Returns the topics that no
    /// longer need to stay published for a watchdog.
    pub(super) fn sweep(&mut self, cx: &mut Context<'_>) -> Vec<String> {
        let now = cx.now;
        let mut over = Vec::new();
        let long_ago = |at: Instant| now.since(at) > UNPUBLISH_DELAY;
        for (name, watchdog) in &mut self.0 {
            if let Composition::Requested(topic) = &watchdog.composition {
                let (topic, fields) = (topic.clone(), watchdog.fields.clone());
                cx.submit_job(Job::Compose { topic, fields });
            }
            match watchdog.state {
                State::Asleep => over.push(name.clone()),
                State::Silent(at, None) if long_ago(at) => over.push(name.clone()),
                _ => {}
            }
        }
        over
    }
}
