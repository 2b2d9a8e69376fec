// SPDX-License-Identifier: Apache-2.0
//! Reload of a changed file into the running daemon, for SIGHUP and `tautline reload`.
//!
//! The file is read and checked as at the start, and compared with the running configuration
//! ([`difference`](tautline::reload::difference)). All steps that may fail are tried before the first
//! change. Then the data plane applies all changes between two iterations of its loop.

use crate::control::NodeControl;
use crate::metrics::{MetricsError, MetricsServer};
use crate::origin::Origin;
use std::sync::{Arc, Mutex, PoisonError};
use tautline::Handle;
use tautline::audit::Actor;
use tautline::config::{self, Config};
use tautline::reload::{Changes, NeedsRestart, difference};
use tautline::status::{Status, TopicChange};
use tautline_gateway::threads::End;
use tautline_plan::with_warnings;

/// Reloads a node's file, one reload at a time. Results are also logged.
pub struct Reloader {
    origin: Origin,
    handle: Arc<Handle>,
    running: Mutex<Running>,
}

/// The running configuration and its metrics server.
struct Running {
    config: Config,
    metrics: Option<MetricsServer>,
}

impl Reloader {
    /// Starts to serve metrics. `config` is the running configuration of the node of `handle`, read from
    /// the file of `origin`.
    pub fn start(
        origin: Origin,
        config: Config,
        handle: Arc<Handle>,
    ) -> Result<Self, MetricsError> {
        let start = |address| MetricsServer::start(address, handle.clone());
        let metrics = config.metrics.map(start).transpose()?;
        Ok(Self { origin, handle, running: Mutex::new(Running { config, metrics }) })
    }

    /// Reads the file, returns its differences from the running configuration, and applies them unless
    /// `dry_run`. On an error, nothing has changed; the error's text is for people.
    fn reload_file(&self, dry_run: bool) -> Result<Changes, String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = config::load_launched(&self.origin.file, &self.origin.launch);
        let checked = with_warnings(loaded.map_err(|error| error.to_string())?);
        let file = self.origin.file.display();
        let place = |reason: NeedsRestart| format!("{file}: {reason}");
        let found = difference(&running.config, &checked.config);
        let mut changes =
            found.map_err(|all| all.into_iter().map(place).collect::<Vec<_>>().join("\n"))?;
        changes.kept = self.handle.topic_changes()?;
        if !dry_run {
            for warning in &checked.warnings {
                tracing::warn!("{file}:{warning}");
            }
            self.apply(&mut running, checked.config)?;
        }
        Ok(changes)
    }

    fn apply(&self, running: &mut Running, new: Config) -> Result<(), String> {
        let moved = running.config.metrics != new.metrics;
        let start = |address| MetricsServer::start(address, self.handle.clone());
        let metrics = new.metrics.filter(|_| moved).map(start).transpose();
        let metrics = metrics.map_err(|error| error.to_string())?;
        self.handle.reconfigure(new.clone())?;
        running.config = new;
        if moved {
            running.metrics = metrics;
        }
        Ok(())
    }
}

impl NodeControl for Reloader {
    fn status(&self) -> Result<Status, String> {
        Ok(self.handle.status()?)
    }

    fn change_topic(&self, change: TopicChange, by: Actor) -> Result<Vec<String>, String> {
        Ok(self.handle.change_topic(change, by)?)
    }

    fn thread_ended(&self, thread: &str, how: End) {
        self.handle.thread_ended(thread, how);
    }

    fn reload(&self, dry_run: bool, by: Actor) -> Result<Changes, String> {
        let done = self.reload_file(dry_run);
        if dry_run {
            return done;
        }
        match &done {
            Ok(changes) => log(changes),
            Err(error) => tracing::error!("reload: nothing was changed: {error}"),
        }
        let lines = done.as_ref().map(Changes::lines).map_err(Clone::clone);
        self.handle.record_change(by, lines);
        done
    }
}

fn log(changes: &Changes) {
    for line in changes.lines() {
        tracing::info!("reload: {line}");
    }
    if changes.is_empty() {
        tracing::info!("reload: no changes, the file matches the running configuration");
    }
    for change in &changes.kept {
        tracing::info!("reload: kept, a change by 'tautline set': {change}");
    }
}
