// SPDX-License-Identifier: Apache-2.0
//! The thread that notifies the data plane of what the program publishes, subscribes to and serves.
//! The data plane must not lose such events, so passing an event to it may block. Only this thread
//! waits for the data plane.

use super::participant::Participant;

/// Runs until the node stops.
pub(super) fn run(participant: &Participant) {
    while let Some(events) = participant.take_unreported_events() {
        for event in events {
            participant.emit(event);
        }
        participant.mark_announced();
    }
}
