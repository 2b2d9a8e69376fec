// SPDX-License-Identifier: Apache-2.0
//! The thread that tells the data plane what the program publishes, wants and serves. The data plane
//! takes such events without loss, so that passing one may block; neither the data plane nor the
//! program waits for it.

use super::participant::Participant;

/// Runs until the node stops.
pub(super) fn run(participant: &Participant) {
    while let Some(events) = participant.untold_events() {
        for event in events {
            participant.emit(event);
        }
        participant.announced();
    }
}
