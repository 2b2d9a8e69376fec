// SPDX-License-Identifier: Apache-2.0
//! What all parts of the actor share.

use crate::ros1::actions::Actions;
use crate::ros1::connection::Identity;
use crate::ros1::master::{Master, OwnNode};
use crate::ros1::note::Note;
use crate::ros1::options::Ros1Options;
use crate::ros1::probes::Prober;
use crate::ros1::xmlrpc::Endpoint;
use crate::shared::Shared;
use crate::{Event, Events, Selector};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The constant part of the state.
pub struct Setup {
    pub options: Ros1Options,
    pub master: Endpoint,
    pub own: OwnNode,
    pub tcpros_port: u16,
    pub identity: Identity,
    pub selector: Selector,
    pub events: Arc<dyn Events>,
    pub actions: Arc<Actions>,
    pub shared: Arc<Shared>,
}

/// The argument of all parts: who we are, and how to reach the master, the node and the actor.
pub struct Context {
    pub setup: Setup,
    pub prober: Prober,
    pub notes: mpsc::Sender<Note>,
    next_serial: u64,
    is_poll_requested: bool,
}

impl Context {
    pub fn new(setup: Setup, notes: mpsc::Sender<Note>) -> Self {
        let master = Arc::new(Master::new(setup.master.clone(), setup.own.clone()));
        let prober = Prober::new(master, setup.identity.clone(), setup.own.uri.clone());
        Self { setup, prober, notes, next_serial: 0, is_poll_requested: false }
    }

    /// Our node name at the master.
    pub fn own_name(&self) -> &str {
        &self.setup.own.name
    }

    /// A number that this gateway has not used before.
    pub fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    pub fn emit(&self, event: Event) {
        self.setup.events.emit(event);
    }

    /// Polls the master as soon as the current command or note is done.
    pub fn request_poll(&mut self) {
        self.is_poll_requested = true;
    }

    /// Whether a part has wanted a poll since the last call.
    pub fn take_poll_request(&mut self) -> bool {
        std::mem::take(&mut self.is_poll_requested)
    }

    /// Spawns a task whose result is a note.
    pub fn spawn(&self, task: impl Future<Output = Note> + Send + 'static) {
        let notes = self.notes.clone();
        tokio::spawn(async move {
            // Fails only while the gateway stops.
            let _ = notes.send(task.await).await;
        });
    }
}
