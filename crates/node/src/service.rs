// SPDX-License-Identifier: Apache-2.0
//! What systemd is told (`Type=notify`, `WatchdogSec=`). Without systemd every
//! function does nothing.

use sd_notify::NotifyState;
use std::time::Duration;

/// Says that the node is up: sockets bound, data plane running.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// How often [`alive`] is to be called: half the unit's WatchdogSec; `None` without a watchdog.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

/// Says that the data plane still turns; call it from that loop, not from a thread beside it.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// Says that the node reads its file again; [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "systemd was not told"),
    }
}

/// Says that the node drains and stops.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd was not told");
    }
}
