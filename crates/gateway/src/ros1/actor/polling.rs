// SPDX-License-Identifier: Apache-2.0
//! Polls of the master.

use super::context::Context;
use crate::ros1::note::{Note, Poll};
use crate::ros1::polls::PollSchedule;
use crate::ros1::xmlrpc::CallError;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// When the master is polled, and whether it answers.
pub(super) struct Polling {
    polls: PollSchedule,
    /// Whether the master answers, as last logged; `None` before the first poll.
    logged_connected: Option<bool>,
}

impl Polling {
    pub fn new(now: Instant) -> Self {
        Self { polls: PollSchedule::new(now), logged_connected: None }
    }

    /// The time of the next poll; `None` during one.
    pub fn next_poll(&self) -> Option<Instant> {
        self.polls.next_poll()
    }

    /// A node has started or ended.
    pub fn on_nodes_changed(&mut self) {
        self.polls.on_nodes_changed(Instant::now());
    }

    /// Starts a poll, if none is running. With `names`, it also looks for other nodes that have our name,
    /// or one of these.
    pub fn start(&mut self, context: &Context, names: Option<Vec<String>>) {
        if !self.polls.start(Instant::now()) {
            return;
        }
        let prober = context.prober.clone();
        context.spawn(async move {
            let snapshot = match prober.master.poll().await {
                Ok(snapshot) => snapshot,
                Err(error) => return Note::Polled(Err(error)),
            };
            let mut poll = Poll { snapshot, namesake: None, lost: Vec::new() };
            if let Some(names) = names {
                poll.namesake = Some(prober.namesake().await);
                for name in names {
                    if prober.other_node(&name).await.is_some() {
                        poll.lost.push(name);
                    }
                }
            }
            Note::Polled(Ok(poll))
        });
    }

    /// A poll has ended, with an error or none.
    pub fn end_poll(&mut self, context: &Context, error: Option<&CallError>) {
        self.polls.end_poll(Instant::now(), error.is_none());
        match error {
            None => self.set_connected(context, true, String::new()),
            Some(error @ CallError::TooLarge { .. }) => self.set_connected(
                context,
                true,
                format!("the ROS master's lists exceed a limit, so its earlier lists stay in use: {error}"),
            ),
            Some(error) => {
                let trouble = format!("the ROS master does not answer: {error}");
                self.set_connected(context, false, trouble);
            }
        }
    }

    /// Sets whether the master answers, and logs a change.
    fn set_connected(&mut self, context: &Context, connected: bool, trouble: String) {
        let shared = &context.setup.shared;
        shared.connected.store(connected, Ordering::Relaxed);
        if self.logged_connected.replace(connected) != Some(connected) {
            let uri = &context.setup.master.uri;
            match connected {
                true => tracing::info!("the ROS master at {uri} answers"),
                false => tracing::warn!(
                    "{trouble}; start roscore, or correct ros1.master (ROS_MASTER_URI); the \
                     gateway connects as soon as {uri} answers"
                ),
            }
        }
        shared.troubles.update("", "master", trouble);
    }
}
