// SPDX-License-Identifier: Apache-2.0
//! A node with a constant state, for tests of the control socket.

use std::sync::{Arc, Mutex};
use tautline::audit::Actor;
use tautline::status::{Status, TopicChange};
use tautline_cli::control::NodeControl;

/// Returns the state that the node reports.
pub fn status() -> Status {
    serde_json::from_str(include_str!("../../../../tautline/src/status/fixture.json")).unwrap()
}

/// A node that responds with [`status`] and stores changes.
#[derive(Default)]
pub struct FakeNode {
    pub changes: Mutex<Vec<(TopicChange, Actor)>>,
}

impl FakeNode {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
}

impl NodeControl for FakeNode {
    fn status(&self) -> Result<Status, String> {
        Ok(status())
    }

    fn change_topic(&self, change: TopicChange, by: Actor) -> Result<Vec<String>, String> {
        let known = ["/scan", "/diagnostics"];
        if !known.contains(&change.topic.as_str()) {
            return Err(format!(
                "no topic '{}' is sent from here; there are: {}",
                change.topic,
                known.join(", ")
            ));
        }
        let changed = vec![change.topic.clone()];
        self.changes.lock().unwrap().push((change, by));
        Ok(changed)
    }
}
