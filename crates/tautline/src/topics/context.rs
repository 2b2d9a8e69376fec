// SPDX-License-Identifier: Apache-2.0
//! State that all parts of the exchange share, and the view of it that each part gets as an argument.

use super::key::ChannelKey;
use super::lines;
use super::peers::Peers;
use super::waiting::PendingRequest;
use crate::audit::{self, Recorder};
use crate::codec::job::Job;
use crate::config::Config;
use crate::limits::MESSAGES;
use crate::notices::Notices;
use crate::quota::Cause;
use std::collections::{BTreeMap, VecDeque};
use tautline_gateway::Command;
use tautline_gateway::action_names::{ActionCall, action_call};
use tautline_proto::{ChannelConfig, ChannelId, Endpoint, Instant, OfferedTopic, PeerId, Role};

/// Work for another part of the daemon.
#[derive(Debug)]
pub(crate) enum Order {
    Gateway(Command),
    /// A job for the codec; [`Topics::on_codec`](super::Topics::on_codec) takes the result.
    Codec(Job),
}

/// State that exports, imports, services and lists share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) peers: Peers,
    pub(crate) notices: Notices,
    pub(crate) recorder: Recorder,
    /// Requests of peers that the file does not allow, by channel.
    pending_requests: BTreeMap<ChannelKey, PendingRequest>,
    orders: VecDeque<Order>,
}

impl Shared {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            peers: Peers::new(config),
            notices: Notices::default(),
            recorder: Recorder::default(),
            pending_requests: BTreeMap::new(),
            orders: VecDeque::new(),
        }
    }

    /// Returns the view for work at `now`.
    pub(crate) fn context<'a>(
        &'a mut self,
        now: Instant,
        endpoint: &'a mut Endpoint,
    ) -> Context<'a> {
        let Self { peers, notices, recorder, pending_requests, orders } = self;
        Context { now, endpoint, peers, notices, recorder, pending_requests, orders }
    }

    pub(crate) fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    pub(crate) fn notice(&mut self, now: Instant, cause: Cause, text: &str) {
        self.notices.add(now, cause, text);
    }

    /// Adds a notice about a peer.
    pub(crate) fn peer_notice(&mut self, now: Instant, peer: PeerId, text: &str) {
        self.notices.add(now, self.peers.cause(peer), text);
    }

    /// Returns all requests that need a line in the file, with their peers.
    pub(crate) fn pending_requests(&self) -> impl Iterator<Item = (PeerId, &PendingRequest)> {
        self.pending_requests.iter().map(|(key, waiting)| (key.peer, waiting))
    }

    /// Returns, for each peer with requests, the lines under peers.NAME that allow all of them.
    /// They replace the peer's present `accept`, `call`, `set_parameters` and `remap`.
    pub(crate) fn lines_to_allow_all(&self) -> impl Iterator<Item = (PeerId, String)> {
        let mut of_peers: BTreeMap<PeerId, Vec<&PendingRequest>> = BTreeMap::new();
        for (peer, waiting) in self.pending_requests() {
            of_peers.entry(peer).or_default().push(waiting);
        }
        of_peers.into_iter().map(|(peer, waiting)| {
            let rights = self.peers.rights(peer);
            (
                peer,
                lines::config_fragment(
                    &rights.names,
                    [&rights.call, &rights.set_parameters],
                    &waiting,
                ),
            )
        })
    }
}

/// The time, the protocol and [`Shared`], for one piece of work.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    /// The protocol, whose channels carry the topics.
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) peers: &'a mut Peers,
    pub(crate) notices: &'a mut Notices,
    pub(crate) recorder: &'a mut Recorder,
    pub(super) pending_requests: &'a mut BTreeMap<ChannelKey, PendingRequest>,
    orders: &'a mut VecDeque<Order>,
}

impl Context<'_> {
    pub(super) fn notice(&mut self, cause: Cause, text: &str) {
        self.notices.add(self.now, cause, text);
    }

    /// Adds a notice about a peer.
    pub(super) fn peer_notice(&mut self, peer: PeerId, text: &str) {
        self.notices.add(self.now, self.peers.cause(peer), text);
    }

    /// Adds a notice about a call or response of a peer that is not of its type.
    pub(super) fn malformed_notice(&mut self, peer: PeerId, reason: &str) {
        let text = format!("'{}' sent a malformed message: {reason}", self.peers.name(peer));
        self.peer_notice(peer, &text);
    }

    /// Whether a line about a peer may be logged.
    pub(super) fn may_log_about(&mut self, peer: PeerId) -> bool {
        self.notices.may_log(self.now, &self.peers.cause(peer))
    }

    /// Records an event that a peer causes.
    pub(super) fn record_peer_event(&mut self, peer: PeerId, event: audit::Event) {
        self.recorder.record(&self.peers.cause(peer), event);
    }

    /// Orders the gateway to execute a command.
    pub(super) fn send_to_gateway(&mut self, command: Command) {
        self.orders.push_back(Order::Gateway(command));
    }

    /// Orders the codec to do a job.
    pub(crate) fn submit_job(&mut self, job: Job) {
        self.orders.push_back(Order::Codec(job));
    }

    /// Advertises a channel; if `existing` is given, updates the advertisement of that channel.
    /// Returns the channel; on failure adds a notice and returns `existing`.
    pub(super) fn offer_channel(
        &mut self,
        peer: PeerId,
        existing: Option<ChannelId>,
        config: ChannelConfig,
    ) -> Option<ChannelId> {
        let now = self.now;
        let calls = if config.topic.role == Role::Calls { "calls of " } else { "" };
        let what = format!("{calls}{}", config.topic.name);
        let done = match existing {
            Some(channel) => {
                self.endpoint.peer_mut(peer).change_offer(now, channel, config).map(|()| channel)
            }
            None => self.endpoint.peer_mut(peer).offer(now, config),
        };
        let failed = |error| {
            let (here, name) = (self.endpoint.name(), self.peers.name(peer));
            let text = format!("{what}: not advertised from '{here}' to '{name}': {error}");
            self.peer_notice(peer, &text);
        };
        done.map_err(failed).ok().or(existing)
    }

    /// Adds a notice if an advertised priority exceeds the peer's highest priority.
    pub(super) fn check_priority(&mut self, peer: PeerId, offered: &OfferedTopic) {
        let allowed = self.peers.rights(peer).max_priority;
        // Every robot gives cancellations the highest priority, whatever the file says.
        let is_cancel = action_call(&offered.name) == Some(ActionCall::CancelGoal);
        if offered.priority <= allowed || is_cancel {
            return;
        }
        let (name, found) = (&offered.name, offered.priority);
        let (here, own) = (self.endpoint.name(), self.peers.name(peer));
        let text = format!(
            "{name} of '{own}' has priority {found}; '{here}' allows at most {allowed} \
             (peers.{own}.max_priority)"
        );
        self.peer_notice(peer, &text);
    }

    /// Whether a message of `bytes` is within the rate of its peer. If not, the caller must drop
    /// and count the message. The first such message of a burst is reported at both ends.
    pub(super) fn check_rate(&mut self, key: ChannelKey, bytes: usize) -> bool {
        let now = self.now;
        if self.peers.rights_mut(key.peer).admit(now, bytes) {
            return true;
        }
        // The previous burst may have ended since the last sweep.
        self.sweep_rates();
        let rights = self.peers.rights_mut(key.peer);
        if rights.drop_excess(now, bytes) {
            let rate_bps = rights.rate_bps();
            let offered = self.endpoint.peer(key.peer).channel_in(key.channel);
            let name = offered.map(|(it, ..)| it.name.clone()).unwrap_or_default();
            let (here, peer) = (self.endpoint.name(), self.peers.name(key.peer));
            let text = format!(
                "{name}, and perhaps others: topics and calls of '{peer}' exceed the {} kbps \
                 (peers.{peer}.max_rate) or {} messages per second that '{here}' accepts; the \
                 excess is dropped",
                rate_bps as f64 / 1e3,
                MESSAGES.per_second,
            );
            let event = audit::Event::OverRateBegan { topic: name.into(), limit_bps: rate_bps };
            self.record_peer_event(key.peer, event);
            self.peer_notice(key.peer, &text);
            self.endpoint.peer_mut(key.peer).refuse(now, key.channel, text);
        }
        false
    }

    /// Records the end of bursts above the rate.
    pub(super) fn sweep_rates(&mut self) {
        for (name, rights) in self.peers.all_rights_mut() {
            if let Some(dropped) = rights.end_burst(self.now) {
                let (messages, bytes) = (dropped.messages, dropped.bytes);
                let event = audit::Event::OverRateEnded { messages, bytes };
                self.recorder.record(&Cause::Peer(name.to_owned()), event);
            }
        }
    }
}
