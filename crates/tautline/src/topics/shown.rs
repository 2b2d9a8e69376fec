// SPDX-License-Identifier: Apache-2.0
//! Nodes and parameters that robots show each other. Each kind of list has a channel of its own,
//! with a reserved name and type and the lowest priority. A newer list replaces the one before. The
//! receiver shows the list under the peer's prefix.

use super::context::Context;
use super::key::ChannelKey;
use super::peers::{REOFFER_GRACE, UNSUBSCRIBE_DELAY};
use crate::config::Show;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use tautline_gateway::Command;
use tautline_gateway::description::{MAX_BYTES, NodeInfo, Nodes, Parameters};
use tautline_gateway::description::{read_nodes, read_parameters, write_parameters};
use tautline_gateway::names::{check_local_name, is_below};
use tautline_gateway::types::Dialect;
use tautline_proto::{
    ChannelConfig, ChannelId, DeliveryOrder, Duration, Instant, LinkPolicy, LinkUse, Message,
    OfferedQos, OfferedTopic, PeerId, Role, SendError,
};

/// Priority of lists of nodes and parameters, which are sent after all other messages.
const LIST_PRIORITY: u8 = 0;
/// Minimum interval at which lists of one kind from one peer are shown here. Of the lists in between, only
/// the last is shown. Each list costs a ROS 1 master up to 50 ms. Peers send parameters less often.
const MIN_SHOW_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of messages with new values that are queued for a peer.
const MAX_QUEUED_CHANGES: u32 = 100;
/// A kind of list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Nodes,
    Parameters,
    /// New values that the sender sets for parameters of the receiver.
    Changes,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Nodes, Self::Parameters, Self::Changes];

    /// Returns the name and the type of the kind's channel.
    fn name_and_type(self) -> (&'static str, &'static str) {
        match self {
            Self::Nodes => ("/_tautline/nodes", "tautline/Nodes"),
            Self::Parameters => ("/_tautline/parameters", "tautline/Parameters"),
            Self::Changes => ("/_tautline/set_parameters", "tautline/Parameters"),
        }
    }

    fn from_offer(offered: &OfferedTopic) -> Option<Self> {
        let names = (offered.name.as_str(), offered.type_name.as_str());
        Self::ALL.into_iter().find(|kind| kind.name_and_type() == names)
    }

    fn is_shown(self, show: Show) -> bool {
        match self {
            Self::Nodes => show.nodes,
            Self::Parameters => show.parameters,
            Self::Changes => false,
        }
    }

    /// Whether a robot with this ROS has lists of this kind.
    fn applies_to(self, dialect: Option<Dialect>) -> bool {
        dialect.is_some() && (self == Self::Nodes || dialect == Some(Dialect::Ros1))
    }
}

/// The lists of this robot and of its peers.
#[derive(Debug, Default)]
pub(super) struct ShownLists {
    /// The current lists of this robot, while the gateway reports them.
    lists: BTreeMap<Kind, Bytes>,
    /// Our channels to peers.
    channels: BTreeMap<(PeerId, Kind), ChannelId>,
    /// The kinds of lists that each peer wants.
    wanted: BTreeSet<(PeerId, Kind)>,
    /// When a peer last wanted each kind. The gateway reports the kind for [`UNSUBSCRIBE_DELAY`] longer, so
    /// that a peer whose interest changes repeatedly causes no work.
    last_wanted: BTreeMap<Kind, Instant>,
    /// Whether the gateway reports nodes, and whether it reports parameters.
    reported: (bool, bool),
    remote: BTreeMap<(PeerId, Kind), RemoteList>,
    /// Requests of peers to set parameters that were dropped above their rate.
    pub(super) over_rate_drops: u64,
}

/// A list of a peer.
#[derive(Debug, Default)]
struct RemoteList {
    /// The peer's channel with the list. Without a channel, `stale_since` is the time since which
    /// it is missing.
    channel: Option<ChannelId>,
    stale_since: Instant,
    /// When a list was last shown.
    shown_at: Option<Instant>,
    /// A later list that waits for [`MIN_SHOW_INTERVAL`].
    next: Option<Bytes>,
    /// The last list without an error. It is shown again if the prefix changes.
    received: Option<Bytes>,
}

impl ShownLists {
    /// Whether a peer has a list of this kind here.
    fn has_remote_list(&self, peer: PeerId, kind: Kind) -> bool {
        self.remote.contains_key(&(peer, kind))
    }

    /// Returns the kind of list that a channel of a peer carries.
    fn kind_at(&self, key: ChannelKey) -> Option<Kind> {
        let is_there = |it: &RemoteList| it.channel == Some(key.channel);
        Kind::ALL.into_iter().find(|kind| self.remote.get(&(key.peer, *kind)).is_some_and(is_there))
    }
}

fn list_channel_config(kind: Kind) -> ChannelConfig {
    let (name, type_name) = kind.name_and_type();
    let (keep_last, order) = match kind {
        Kind::Nodes | Kind::Parameters => (1, DeliveryOrder::Newest),
        Kind::Changes => (MAX_QUEUED_CHANGES, DeliveryOrder::Arrival),
    };
    ChannelConfig {
        topic: OfferedTopic {
            name: name.into(),
            type_name: type_name.into(),
            type_hash: String::new(),
            priority: LIST_PRIORITY,
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
        links: LinkUse { policy: LinkPolicy::of_priority(LIST_PRIORITY), ..LinkUse::default() },
    }
}

impl ShownLists {
    /// Advertises the lists that peers may see, and withdraws the others. Shows peers' lists that
    /// waited, and removes lists that peers no longer advertise.
    pub(super) fn sweep(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        for peer in cx.endpoint.peers().collect::<Vec<_>>() {
            for kind in Kind::ALL {
                let may_see = match kind {
                    Kind::Changes => self.has_remote_list(peer, Kind::Parameters),
                    _ => {
                        kind.applies_to(cx.peers.dialect)
                            && kind.is_shown(cx.peers.rights(peer).show)
                    }
                };
                let known = self.channels.get(&(peer, kind)).copied();
                match (may_see, known) {
                    (true, None) => {
                        if let Some(open) = cx.offer_channel(peer, None, list_channel_config(kind))
                        {
                            self.channels.insert((peer, kind), open);
                        }
                    }
                    (false, Some(channel)) => {
                        cx.endpoint.peer_mut(peer).withdraw(now, channel);
                        self.channels.remove(&(peer, kind));
                        self.wanted.remove(&(peer, kind));
                    }
                    _ => {}
                }
            }
        }
        self.describe(cx);
        let is_over =
            |it: &RemoteList| it.channel.is_none() && now.since(it.stale_since) > REOFFER_GRACE;
        for (peer, kind) in self.remote.keys().copied().collect::<Vec<_>>() {
            match is_over(&self.remote[&(peer, kind)]) {
                true => drop(self.hide(cx, peer, kind)),
                false => self.take_next(cx, peer, kind),
            }
        }
    }

    /// Stores a changed list of this robot, and sends it to the peers that want it.
    pub(super) fn on_list_changed(&mut self, cx: &mut Context<'_>, kind: Kind, list: Bytes) {
        if self.lists.get(&kind) == Some(&list) {
            return;
        }
        self.lists.insert(kind, list);
        let wanted = self.wanted.iter().filter(|(_, it)| *it == kind);
        for (peer, _) in wanted.copied().collect::<Vec<_>>() {
            self.send_list(cx, peer, kind);
        }
    }

    fn send_list(&mut self, cx: &mut Context<'_>, peer: PeerId, kind: Kind) {
        let channel = self.channels.get(&(peer, kind)).copied();
        let (Some(channel), Some(list)) = (channel, self.lists.get(&kind)) else { return };
        self.send_payload(cx, peer, kind, channel, list.clone());
    }

    fn send_payload(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerId,
        kind: Kind,
        channel: ChannelId,
        payload: Bytes,
    ) {
        let now = cx.now;
        let message =
            Message { payload, published: now, source: 0, encoded: false, lifespan: None };
        match cx.endpoint.peer_mut(peer).send(now, channel, message) {
            Ok(()) | Err(SendError::NotWanted) => {}
            Err(error) => {
                let (here, name) = (cx.endpoint.name(), cx.peers.name(peer));
                let text = format!(
                    "{}: not sent from '{here}' to '{name}': {error}",
                    kind.name_and_type().0
                );
                cx.peer_notice(peer, &text);
            }
        }
    }

    /// Handles a peer's subscription to one of our lists, or its end. The gateway reports only the
    /// lists that a peer wants. Returns whether the channel carries a list.
    pub(super) fn on_wanted(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        wanted: bool,
    ) -> bool {
        let mut channels = self.channels.iter();
        let found = channels.find(|((peer, _), it)| *peer == key.peer && **it == key.channel);
        let Some((&(peer, kind), _)) = found else { return false };
        if wanted {
            self.wanted.insert((peer, kind));
            self.describe(cx);
            self.send_list(cx, peer, kind);
        } else {
            self.wanted.remove(&(peer, kind));
        }
        true
    }

    /// Orders the gateway to report the lists that peers want, or wanted in the last [`UNSUBSCRIBE_DELAY`].
    fn describe(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let wanted = self.wanted.iter().filter(|(peer, _)| !cx.peers.is_given_up(*peer));
        let wanted: BTreeSet<Kind> = wanted.map(|(_, kind)| *kind).collect();
        let ShownLists { last_wanted, lists, reported, .. } = self;
        last_wanted.extend(wanted.into_iter().map(|kind| (kind, now)));
        last_wanted.retain(|_, at| now.since(*at) < UNSUBSCRIBE_DELAY);
        lists.retain(|kind, _| last_wanted.contains_key(kind));
        let [nodes, parameters] =
            [Kind::Nodes, Kind::Parameters].map(|kind| last_wanted.contains_key(&kind));
        if std::mem::replace(reported, (nodes, parameters)) != (nodes, parameters) {
            cx.send_to_gateway(Command::Describe { nodes, parameters });
        }
    }

    /// Handles a peer's advertisement, if its channel carries a list. Without a prefix, the list is
    /// not read: its names could not be distinguished from those of this robot. Returns whether the
    /// channel carries a list.
    pub(super) fn on_offered(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        offered: &OfferedTopic,
    ) -> bool {
        // The number may have belonged to another list.
        self.on_withdrawn(cx, key);
        let Some(kind) = Kind::from_offer(offered) else { return false };
        let rights = cx.peers.rights(key.peer);
        let is_wanted = match kind {
            // Read even without the right to set parameters, so that the peer learns which line is missing.
            Kind::Changes => cx.peers.dialect == Some(Dialect::Ros1) && rights.show.parameters,
            _ => kind.applies_to(cx.peers.dialect) && !rights.names.prefix.is_empty(),
        };
        if is_wanted {
            let list = self.remote.entry((key.peer, kind)).or_default();
            list.channel = Some(key.channel);
        }
        cx.endpoint.peer_mut(key.peer).want(cx.now, key.channel, is_wanted);
        true
    }

    /// Takes a list of a peer. Returns whether the channel carries a list.
    pub(super) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        payload: &Bytes,
    ) -> bool {
        let Some(kind) = self.kind_at(key) else { return false };
        if kind != Kind::Changes && payload.len() <= MAX_BYTES {
            // A list does not count against the peer's rate: if it were dropped, it would be
            // missing until the next change. MIN_SHOW_INTERVAL limits the work that lists cause.
            let list = self.remote.get_mut(&(key.peer, kind));
            list.into_iter().for_each(|it| it.next = Some(payload.clone()));
            self.take_next(cx, key.peer, kind);
        } else if cx.check_rate(key, payload.len()) {
            self.take_list(cx, key, kind, payload);
        } else {
            self.over_rate_drops += 1;
        }
        true
    }

    /// Shows a peer's queued list, if it is due.
    fn take_next(&mut self, cx: &mut Context<'_>, peer: PeerId, kind: Kind) {
        let now = cx.now;
        let Some(list) = self.remote.get_mut(&(peer, kind)) else { return };
        let is_due = list.shown_at.is_none_or(|at| now.since(at) >= MIN_SHOW_INTERVAL);
        let Some(channel) = list.channel.filter(|_| is_due) else { return };
        let next = list.next.take();
        if let Some(next) = next.filter(|it| list.received.as_ref() != Some(it)) {
            list.shown_at = Some(now);
            self.take_list(cx, ChannelKey { peer, channel }, kind, &next);
        }
    }

    fn take_list(&mut self, cx: &mut Context<'_>, key: ChannelKey, kind: Kind, payload: &Bytes) {
        let done = match kind {
            Kind::Nodes => read_nodes(payload).map(|nodes| self.show_nodes_of(cx, key.peer, nodes)),
            Kind::Parameters => {
                read_parameters(payload).map(|all| self.show_parameters_of(cx, key.peer, all))
            }
            Kind::Changes => {
                read_parameters(payload).map(|all| self.set_parameters_for(cx, key, all))
            }
        };
        match done {
            Ok(()) if kind != Kind::Changes => {
                let list = self.remote.get_mut(&(key.peer, kind));
                list.into_iter().for_each(|it| it.received = Some(payload.clone()));
            }
            Ok(()) => {}
            Err(reason) => {
                let reason = crate::notices::plain(&reason);
                cx.refuse(key, kind.name_and_type().0, &reason);
            }
        }
    }

    /// Whether this robot's ROS allows a name of a peer, and no other peer has a claim to it.
    fn may_show(&self, cx: &Context<'_>, peer: PeerId, local: &str) -> bool {
        let prefix = &cx.peers.rights(peer).names.prefix;
        let is_of_other = |(other, it): (PeerId, &str)| {
            other != peer && it.len() > prefix.len() && is_below(local, it)
        };
        check_local_name(local, cx.peers.dialect).is_ok() && !cx.peers.prefixes().any(is_of_other)
    }

    fn show_nodes_of(&mut self, cx: &mut Context<'_>, peer: PeerId, theirs: Nodes) {
        let names = &cx.peers.rights(peer).names;
        let local = |all: BTreeSet<String>| all.iter().map(|it| names.local_name(it)).collect();
        let mut nodes = Nodes::new();
        for (name, NodeInfo { publishes, serves }) in theirs {
            let name = format!("{}{name}", names.prefix);
            if self.may_show(cx, peer, &name) {
                let (publishes, serves) = (local(publishes), local(serves));
                nodes.insert(name, NodeInfo { publishes, serves });
            }
        }
        cx.send_to_gateway(Command::ShowNodes { peer: peer.0, nodes });
    }

    fn show_parameters_of(&mut self, cx: &mut Context<'_>, peer: PeerId, theirs: Parameters) {
        let prefix = cx.peers.rights(peer).names.prefix.clone();
        let local = theirs.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value));
        let local = local.filter(|(name, _)| self.may_show(cx, peer, name)).collect();
        cx.send_to_gateway(Command::ShowParameters {
            peer: peer.0,
            prefix,
            parameters: Some(local),
        });
    }

    /// Sets parameters of this robot for a peer, if it has the right.
    fn set_parameters_for(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        parameters: Parameters,
    ) {
        let rights = cx.peers.rights(key.peer);
        let is_allowed = |name: &String, _: &mut serde_json::Value| rights.may_set(name);
        let mut denied = parameters;
        let parameters: Parameters = denied.extract_if(.., is_allowed).collect();
        if !parameters.is_empty() {
            cx.send_to_gateway(Command::SetParameters { parameters });
        }
        if let Some(name) = denied.into_keys().next() {
            cx.deny_parameter(key, &name);
        }
    }

    /// Asks a peer to set parameters that a local program has changed here.
    pub(super) fn request_parameter_changes(
        &mut self,
        cx: &mut Context<'_>,
        peer: u32,
        parameters: Parameters,
    ) {
        let peer = PeerId(peer);
        let Some(&channel) = self.channels.get(&(peer, Kind::Changes)) else { return };
        let prefix = &cx.peers.rights(peer).names.prefix;
        let theirs = parameters.into_iter().filter_map(|(name, value)| {
            Some((name.strip_prefix(prefix.as_str())?.to_owned(), value))
        });
        let payload = write_parameters(&theirs.collect()).into();
        self.send_payload(cx, peer, Kind::Changes, channel, payload);
    }

    /// Handles a peer's refusal of one of our lists, or of a parameter change. Returns whether the
    /// channel carries a list.
    pub(super) fn on_refused(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        reason: &str,
    ) -> bool {
        let mut channels = self.channels.iter();
        if !channels.any(|((peer, _), channel)| *peer == key.peer && *channel == key.channel) {
            return false;
        }
        let text = format!("'{}' refuses {reason}", cx.peers.name(key.peer));
        cx.peer_notice(key.peer, &text);
        true
    }

    /// Ends a channel of a peer. Returns whether it carried a list. The list stays shown for a
    /// while, so that a peer that advertises and withdraws it in turn causes no work.
    pub(super) fn on_withdrawn(&mut self, cx: &mut Context<'_>, key: ChannelKey) -> bool {
        let now = cx.now;
        let kind = self.kind_at(key);
        let list = kind.and_then(|kind| self.remote.get_mut(&(key.peer, kind)));
        if let Some(list) = list {
            (list.channel, list.stale_since) = (None, now);
        }
        kind.is_some()
    }

    /// Removes what is shown of a peer's list. Returns the list.
    fn hide(&mut self, cx: &mut Context<'_>, peer: PeerId, kind: Kind) -> Option<Bytes> {
        let list = self.remote.remove(&(peer, kind))?;
        let peer = peer.0;
        match kind {
            Kind::Changes => {}
            Kind::Nodes => cx.send_to_gateway(Command::ShowNodes { peer, nodes: Nodes::new() }),
            Kind::Parameters => {
                cx.send_to_gateway(Command::ShowParameters {
                    peer,
                    prefix: String::new(),
                    parameters: None,
                });
            }
        }
        list.received
    }

    /// Handles a new session of a peer, in which the peer advertises its lists again.
    pub(super) fn new_session(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let now = cx.now;
        for (_, list) in self.remote.iter_mut().filter(|((it, _), _)| *it == peer) {
            if list.channel.take().is_some() {
                list.stale_since = now;
            }
        }
        self.wanted.retain(|(it, _)| *it != peer);
    }

    /// Removes what is shown of a peer here, and the channels of our lists to it.
    pub(super) fn remove_peer(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        for kind in Kind::ALL {
            self.hide(cx, peer, kind);
            self.channels.remove(&(peer, kind));
            self.wanted.remove(&(peer, kind));
        }
    }

    /// Applies the new prefix and the new rights of a peer to its lists that are shown here.
    pub(super) fn apply_rights(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let lists = cx.endpoint.peer(peer).channels_in().filter_map(|channel| {
            let (offered, ..) = cx.endpoint.peer(peer).channel_in(channel)?;
            Kind::from_offer(offered).map(|kind| (channel, kind, offered.clone()))
        });
        for (channel, kind, offered) in lists.collect::<Vec<_>>() {
            let key = ChannelKey { peer, channel };
            let received = self.hide(cx, peer, kind);
            cx.pending_requests.remove(&key);
            self.on_offered(cx, key, &offered);
            if let Some(list) = received.filter(|_| self.has_remote_list(peer, kind)) {
                self.take_list(cx, key, kind, &list);
            }
        }
        self.sweep(cx);
    }
}
