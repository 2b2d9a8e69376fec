// SPDX-License-Identifier: Apache-2.0
//! Nodes and parameters that robots show each other. Each list is a message on a channel of its own,
//! with a reserved name and type, at the lowest priority; a newer list replaces the one before. The
//! receiver shows it under the peer's prefix.

use super::{ChannelKey, Topics};
use crate::config::Show;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use tautline_gateway::description::{Nodes, Parameters, Shown as ShownNode};
use tautline_gateway::description::{read_nodes, read_parameters, write_parameters};
use tautline_gateway::logs;
use tautline_gateway::mapping::{
    Pattern, SERVICE_TIMEOUT, ServiceTreatment, Treatment, check_local_name, is_below,
    service_treatment,
};
use tautline_gateway::types::Dialect;
use tautline_gateway::{Command, Service};
use tautline_proto::{
    ChannelConfig, ChannelId, DeliveryOrder, Duration, Instant, LinkPolicy, LinkUse, Message,
    OfferedQos, OfferedTopic, PeerId, Role, SendError,
};

/// Lists of nodes and parameters leave after all else.
const PRIORITY: u8 = 0;
/// Logs queued for a peer, and the age past which they are worthless (that of ROS 2).
const KEPT_LOGS: u16 = 100;
const LOG_LIFESPAN: Duration = Duration::from_secs(10);
/// Messages with new values that are queued for a peer.
const QUEUED_CHANGES: u32 = 100;
/// Services of each node of ROS 2 that read its parameters, and those that set them
/// (`rcl_interfaces/srv`).
const READ: [&str; 4] =
    ["describe_parameters", "get_parameters", "get_parameter_types", "list_parameters"];
const SET: [&str; 2] = ["set_parameters", "set_parameters_atomically"];
const PARAMETER_TYPES: &str = "rcl_interfaces/srv/";

/// A kind of list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Nodes,
    Parameters,
    /// New values for parameters of the receiver.
    Changes,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Nodes, Self::Parameters, Self::Changes];

    /// The name and the type of its channel.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Nodes => ("/_tautline/nodes", "tautline/Nodes"),
            Self::Parameters => ("/_tautline/parameters", "tautline/Parameters"),
            Self::Changes => ("/_tautline/set_parameters", "tautline/Parameters"),
        }
    }

    fn of(offered: &OfferedTopic) -> Option<Self> {
        let names = (offered.name.as_str(), offered.type_name.as_str());
        Self::ALL.into_iter().find(|kind| kind.names() == names)
    }

    fn is_shown(self, show: Show) -> bool {
        match self {
            Self::Nodes => show.nodes,
            Self::Parameters => show.parameters,
            Self::Changes => false,
        }
    }

    /// Whether a robot with this ROS has such lists.
    fn is_of(self, dialect: Option<Dialect>) -> bool {
        dialect.is_some() && (self == Self::Nodes || dialect == Some(Dialect::Ros1))
    }
}

/// The lists of this robot and of its peers.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// The current lists of this robot, while a peer wants them.
    lists: BTreeMap<Kind, Bytes>,
    /// Our channels to peers, and those that a peer wants.
    channels: BTreeMap<(PeerId, Kind), ChannelId>,
    wanted: BTreeSet<(PeerId, Kind)>,
    /// Whether the gateway reports nodes and parameters.
    described: (bool, bool),
    /// Channels of peers, and since when their session has ended.
    remote: BTreeMap<ChannelKey, (Kind, Option<Instant>)>,
    /// The last lists of peers, for another prefix.
    received: BTreeMap<(PeerId, Kind), Bytes>,
}

impl Shown {
    /// Whether a peer shows this list here.
    fn has(&self, peer: PeerId, kind: Kind) -> bool {
        self.remote.iter().any(|(key, (it, _))| key.peer == peer && *it == kind)
    }
}

/// Whether `name` is a service for parameters of a node of ROS 2 that a peer with these rights may
/// use.
pub(crate) fn may_use_parameters(show: Show, set: &[Pattern], name: &str) -> bool {
    let Some((node, service)) = name.rsplit_once('/') else { return false };
    let may_set = || set.iter().any(|pattern| pattern.matches(node));
    // Who sets a parameter reads what it is.
    (READ.contains(&service) && (show.parameters || may_set()))
        || (SET.contains(&service) && may_set())
}

fn channel(kind: Kind) -> ChannelConfig {
    let (name, type_name) = kind.names();
    let (keep_last, order) = match kind {
        Kind::Nodes | Kind::Parameters => (1, DeliveryOrder::Newest),
        Kind::Changes => (QUEUED_CHANGES, DeliveryOrder::Arrival),
    };
    ChannelConfig {
        topic: OfferedTopic {
            name: name.into(),
            type_name: type_name.into(),
            type_hash: String::new(),
            priority: PRIORITY,
            keep_last,
            lifespan: None,
            qos: OfferedQos::default(),
            role: Role::Topic,
            order,
        },
        definition: "".into(),
        repair: true,
        thin: false,
        fec: None,
        links: LinkUse { policy: LinkPolicy::of_priority(PRIORITY), ..LinkUse::default() },
    }
}

impl Topics {
    /// The treatment of the logs of this robot, which need no rule.
    pub(super) fn treatment_of_logs(&self, topic: &str) -> Option<Treatment> {
        let shows = |peer: &PeerId| topic == logs::TOPIC && self.rights(*peer).show.logs;
        let peers = self.endpoint.peers().filter(shows);
        let to: Vec<String> = peers.map(|peer| self.peer_name(peer).to_owned()).collect();
        let (keep_last, lifespan) = (Some(KEPT_LOGS), Some(LOG_LIFESPAN));
        (!to.is_empty()).then_some(Treatment {
            priority: PRIORITY,
            keep_last,
            lifespan,
            to: Some(to),
            ..Treatment::default()
        })
    }

    /// The treatment of a local service: that of its rule, or that of a service for parameters of a
    /// node, which need no rule.
    pub(super) fn treatment_of_service(&self, service: &Service) -> Option<ServiceTreatment> {
        let name = &service.name;
        service_treatment(&self.service_rules, name).or_else(|| {
            let is_one = service.type_name.starts_with(PARAMETER_TYPES);
            let may_use = |peer: &PeerId| self.rights(*peer).may_use_parameters(name);
            let peers = self.endpoint.peers().filter(|peer| is_one && may_use(peer));
            let to: Vec<String> = peers.map(|peer| self.peer_name(peer).to_owned()).collect();
            let timeout = SERVICE_TIMEOUT;
            (!to.is_empty()).then_some(ServiceTreatment {
                priority: PRIORITY,
                timeout,
                to: Some(to),
            })
        })
    }

    /// Advertises the lists that peers may see, withdraws the others, and removes lists of peers that
    /// have not come again with a new session.
    pub(super) fn sweep_shown(&mut self, now: Instant) {
        for peer in self.endpoint.peers().collect::<Vec<_>>() {
            for kind in Kind::ALL {
                let may_see = match kind {
                    Kind::Changes => self.shown.has(peer, Kind::Parameters),
                    _ => kind.is_of(self.dialect) && kind.is_shown(self.rights(peer).show),
                };
                let known = self.shown.channels.get(&(peer, kind)).copied();
                match (may_see, known) {
                    (true, None) => {
                        if let Some(open) = self.offer_channel(now, peer, None, channel(kind)) {
                            self.shown.channels.insert((peer, kind), open);
                        }
                    }
                    (false, Some(channel)) => {
                        self.endpoint.withdraw(now, peer, channel);
                        self.shown.channels.remove(&(peer, kind));
                        self.not_wanted(peer, kind);
                    }
                    _ => {}
                }
            }
        }
        let over = |since: Option<Instant>| {
            since.is_some_and(|at| now.since(at) > super::remote::REOFFER_GRACE)
        };
        let remote = self.shown.remote.iter();
        let gone: Vec<_> = remote.filter(|(_, it)| over(it.1)).map(|(key, _)| *key).collect();
        for key in gone {
            self.shown_withdrawn(key);
        }
    }

    /// A list of this robot has changed.
    pub(super) fn show(&mut self, now: Instant, kind: Kind, list: Bytes) {
        if self.shown.lists.get(&kind) == Some(&list) {
            return;
        }
        self.shown.lists.insert(kind, list);
        let wanted = self.shown.wanted.iter().filter(|(_, it)| *it == kind);
        for (peer, _) in wanted.copied().collect::<Vec<_>>() {
            self.send_list(now, peer, kind);
        }
    }

    fn send_list(&mut self, now: Instant, peer: PeerId, kind: Kind) {
        let channel = self.shown.channels.get(&(peer, kind)).copied();
        let (Some(channel), Some(list)) = (channel, self.shown.lists.get(&kind)) else { return };
        self.send_payload_of(now, peer, kind, channel, list.clone());
    }

    fn send_payload_of(
        &mut self,
        now: Instant,
        peer: PeerId,
        kind: Kind,
        channel: ChannelId,
        payload: Bytes,
    ) {
        let message =
            Message { payload, published: now, source: 0, encoded: false, lifespan: None };
        match self.endpoint.send(now, peer, channel, message) {
            Ok(()) | Err(SendError::NotWanted) => {}
            Err(error) => {
                let (here, name) = (self.endpoint.name(), self.peer_name(peer));
                let text =
                    format!("{}: not sent from '{here}' to '{name}': {error}", kind.names().0);
                self.peer_notice(now, peer, &text);
            }
        }
    }

    /// Whether a channel of ours carries a list. The gateway reports what a peer wants, and no more.
    pub(super) fn shown_wanted(&mut self, now: Instant, key: ChannelKey, wanted: bool) -> bool {
        let mut channels = self.shown.channels.iter();
        let found = channels.find(|((peer, _), it)| *peer == key.peer && **it == key.channel);
        let Some((&(peer, kind), _)) = found else { return false };
        match wanted {
            true => {
                self.shown.wanted.insert((peer, kind));
                self.describe();
                self.send_list(now, peer, kind);
            }
            false => self.not_wanted(peer, kind),
        }
        true
    }

    fn not_wanted(&mut self, peer: PeerId, kind: Kind) {
        self.shown.wanted.remove(&(peer, kind));
        if !self.shown.wanted.iter().any(|(_, it)| *it == kind) {
            self.shown.lists.remove(&kind);
        }
        self.describe();
    }

    fn describe(&mut self) {
        let wants = |kind| self.shown.wanted.iter().any(|(_, it)| *it == kind);
        let wanted = (wants(Kind::Nodes), wants(Kind::Parameters));
        if std::mem::replace(&mut self.shown.described, wanted) != wanted {
            let (nodes, parameters) = wanted;
            self.gateway(Command::Describe { nodes, parameters });
        }
    }

    /// Whether a peer's channel carries a list. Without a prefix, its names could not be told from
    /// those of this robot.
    pub(super) fn shown_offered(
        &mut self,
        now: Instant,
        key: ChannelKey,
        offered: &OfferedTopic,
    ) -> bool {
        // A new session may give the number to another topic.
        self.shown.remote.remove(&key);
        let Some(kind) = Kind::of(offered) else { return false };
        // The list continues under its new number.
        self.shown.remote.retain(|other, (it, _)| other.peer != key.peer || *it != kind);
        let rights = self.rights(key.peer);
        let is_wanted = match kind {
            // Also without the right to set, so that the peer learns which line is missing.
            Kind::Changes => self.dialect == Some(Dialect::Ros1) && rights.show.parameters,
            _ => kind.is_of(self.dialect) && !rights.names.prefix.is_empty(),
        };
        if is_wanted {
            self.shown.remote.insert(key, (kind, None));
        }
        self.endpoint.want(now, key.peer, key.channel, is_wanted);
        true
    }

    /// Takes a list of a peer. Returns whether the channel carries one.
    pub(super) fn shown_message(&mut self, now: Instant, key: ChannelKey, payload: &Bytes) -> bool {
        let Some((kind, _)) = self.shown.remote.get(&key).copied() else { return false };
        if !self.within_rate(now, key, payload.len()) {
            return true;
        }
        self.take_list(now, key, kind, payload);
        true
    }

    fn take_list(&mut self, now: Instant, key: ChannelKey, kind: Kind, payload: &Bytes) {
        let done = match kind {
            Kind::Nodes => read_nodes(payload).map(|nodes| self.show_nodes_of(key.peer, nodes)),
            Kind::Parameters => {
                read_parameters(payload).map(|all| self.show_parameters_of(key.peer, all))
            }
            Kind::Changes => read_parameters(payload).map(|all| self.set_for(now, key, all)),
        };
        match done {
            Ok(()) if kind != Kind::Changes => {
                self.shown.received.insert((key.peer, kind), payload.clone());
            }
            Ok(()) => {}
            Err(reason) => {
                let reason = crate::notices::plain(&reason);
                self.refuse(now, key, kind.names().0, &reason);
            }
        }
    }

    /// Whether this robot's ROS can have a name of a peer, and no other peer has the place.
    fn may_show(&self, peer: PeerId, local: &str) -> bool {
        let prefix = &self.rights(peer).names.prefix;
        let is_of_other = |(other, it): (PeerId, &str)| {
            other != peer && it.len() > prefix.len() && is_below(local, it)
        };
        check_local_name(local, self.dialect).is_ok() && !self.prefixes().any(is_of_other)
    }

    fn show_nodes_of(&mut self, peer: PeerId, theirs: Nodes) {
        let names = &self.rights(peer).names;
        let local = |all: BTreeSet<String>| all.iter().map(|it| names.local_name(it)).collect();
        let mut nodes = Nodes::new();
        for (name, ShownNode { publishes, serves }) in theirs {
            let name = format!("{}{name}", names.prefix);
            if self.may_show(peer, &name) {
                let (publishes, serves) = (local(publishes), local(serves));
                nodes.insert(name, ShownNode { publishes, serves });
            }
        }
        self.gateway(Command::StandIn { peer: peer.0, nodes });
    }

    fn show_parameters_of(&mut self, peer: PeerId, theirs: Parameters) {
        let prefix = self.rights(peer).names.prefix.clone();
        let local = theirs.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value));
        let local = local.filter(|(name, _)| self.may_show(peer, name)).collect();
        self.gateway(Command::Mirror { peer: peer.0, prefix, parameters: Some(local) });
    }

    /// Sets parameters of this robot for a peer, if it has the right.
    fn set_for(&mut self, now: Instant, key: ChannelKey, parameters: Parameters) {
        let rights = self.rights(key.peer);
        let is_allowed = |name: &String, _: &mut serde_json::Value| rights.may_set(name);
        let mut denied = parameters;
        let parameters: Parameters = denied.extract_if(.., is_allowed).collect();
        if !parameters.is_empty() {
            self.gateway(Command::SetParameters { parameters });
        }
        if let Some(name) = denied.into_keys().next() {
            self.deny_setting(now, key, &name);
        }
    }

    /// Asks a peer to set parameters that a local program has changed here.
    pub(super) fn ask_to_set(&mut self, now: Instant, peer: u32, parameters: Parameters) {
        let peer = PeerId(peer);
        let Some(&channel) = self.shown.channels.get(&(peer, Kind::Changes)) else { return };
        let prefix = &self.rights(peer).names.prefix;
        let theirs = parameters.into_iter().filter_map(|(name, value)| {
            Some((name.strip_prefix(prefix.as_str())?.to_owned(), value))
        });
        let payload = write_parameters(&theirs.collect()).into();
        self.send_payload_of(now, peer, Kind::Changes, channel, payload);
    }

    /// Whether a peer refuses a list of ours, or to set a parameter, for this reason.
    pub(super) fn shown_refused(&mut self, now: Instant, key: ChannelKey, reason: &str) -> bool {
        let mut channels = self.shown.channels.iter();
        if !channels.any(|((peer, _), channel)| *peer == key.peer && *channel == key.channel) {
            return false;
        }
        let text = format!("'{}' refuses {reason}", self.peer_name(key.peer));
        self.peer_notice(now, key.peer, &text);
        true
    }

    /// Removes what is shown of a channel; returns whether it carries a list.
    pub(super) fn shown_withdrawn(&mut self, key: ChannelKey) -> bool {
        let Some((kind, _)) = self.shown.remote.remove(&key) else { return false };
        self.shown.received.remove(&(key.peer, kind));
        self.hide(key.peer, kind);
        true
    }

    fn hide(&mut self, peer: PeerId, kind: Kind) {
        let peer = peer.0;
        self.gateway(match kind {
            Kind::Changes => return,
            Kind::Nodes => Command::StandIn { peer, nodes: Nodes::new() },
            Kind::Parameters => Command::Mirror { peer, prefix: String::new(), parameters: None },
        });
    }

    /// A peer has a new session, in which it advertises its lists again.
    pub(super) fn new_session_of_shown(&mut self, now: Instant, peer: PeerId) {
        for (key, (_, stale_since)) in &mut self.shown.remote {
            if key.peer == peer {
                stale_since.get_or_insert(now);
            }
        }
        let wanted = self.shown.wanted.iter().filter(|(it, _)| *it == peer);
        for (peer, kind) in wanted.copied().collect::<Vec<_>>() {
            self.not_wanted(peer, kind);
        }
    }

    /// Removes what is shown of a peer, and what was shown to it.
    pub(super) fn remove_shown_of(&mut self, peer: PeerId) {
        let keys = self.shown.remote.keys().filter(|key| key.peer == peer);
        for key in keys.copied().collect::<Vec<_>>() {
            self.shown_withdrawn(key);
        }
        for kind in Kind::ALL {
            self.shown.channels.remove(&(peer, kind));
            self.not_wanted(peer, kind);
        }
    }

    /// Shows the lists of a peer by its new prefix and rights.
    pub(super) fn follow_shown_rights(&mut self, now: Instant, peer: PeerId) {
        let lists = self.endpoint.channels_in(peer).filter_map(|channel| {
            let (offered, ..) = self.endpoint.channel_in(peer, channel)?;
            Kind::of(offered).map(|kind| (channel, kind, offered.clone()))
        });
        for (channel, kind, offered) in lists.collect::<Vec<_>>() {
            let key = ChannelKey { peer, channel };
            let received = self.shown.received.get(&(peer, kind)).cloned();
            self.shown_withdrawn(key);
            self.waiting.remove(&key);
            self.shown_offered(now, key, &offered);
            if let Some(list) = received.filter(|_| self.shown.remote.contains_key(&key)) {
                self.take_list(now, key, kind, &list);
            }
        }
        self.sweep_shown(now);
    }
}
