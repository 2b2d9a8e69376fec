// SPDX-License-Identifier: Apache-2.0
//! Notifications to systemd (`Type=notify`, `WatchdogSec=`). Without systemd every function does
//! nothing.

use sd_notify::NotifyState;
use std::time::Duration;

/// Notifies that the node is up: sockets are bound, and the data plane runs.
pub fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// Returns the interval at which to call [`notify_alive`]: half the unit's WatchdogSec; `None` without a
/// watchdog.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

/// Notifies that the data plane still runs; to be called from its loop, not from another thread.
pub fn notify_alive() {
    notify(&[NotifyState::Watchdog]);
}

/// Notifies that the node reads its file again; [`notify_ready`] ends this state.
pub fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "systemd was not notified"),
    }
}

/// Notifies that the node drains its queues and stops.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd was not notified");
    }
}
