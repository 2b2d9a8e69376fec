// SPDX-License-Identifier: Apache-2.0
//! State that all parts of the data plane use.

use super::listen::Listen;
use crate::clock::Clock;
use crate::config::Config;
use crate::quota::Cause;
use crate::report::Reporter;
use crate::topics::{Context, Exchange, Shared, Topics};
use tautline_proto::{Endpoint, Instant, PeerId, PublicKey};

/// The time, the current file, the protocol, the shared state of the topics, and the socket of the node.
pub(super) struct Common {
    pub(super) clock: Clock,
    pub(super) config: Config,
    /// The protocol, whose channels carry the topics.
    pub(super) endpoint: Endpoint,
    pub(super) shared: Shared,
    pub(super) reporter: Reporter,
    pub(super) listen: Listen,
}

impl Common {
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the view for work of the topics at `now`.
    pub(super) fn context(&mut self, now: Instant) -> Context<'_> {
        self.shared.context(now, &mut self.endpoint)
    }

    /// Returns the data from which reports are made.
    pub(super) fn exchange<'a>(&'a self, topics: &'a Topics) -> Exchange<'a> {
        Exchange { endpoint: &self.endpoint, topics, shared: &self.shared }
    }

    /// Adds a notice about this node.
    pub(super) fn notice(&mut self, now: Instant, text: &str) {
        self.shared.notice(now, Cause::Here, text);
    }

    pub(super) fn peer_of(&self, key: PublicKey) -> Option<PeerId> {
        let endpoint = &self.endpoint;
        endpoint.peers().find(|id| endpoint.peer(*id).key == key)
    }
}
