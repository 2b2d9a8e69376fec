// SPDX-License-Identifier: Apache-2.0
//! Decisions of a new file about the advertisements of peers.

use super::context::Context;
use super::waiting::{Denied, RequestKind};
use crate::config::{Config, PeerConfig};
use std::collections::BTreeMap;
use tautline_proto::{ChannelId, OfferedTopic, PeerId, Role};

/// The file's decisions on the channels of a peer.
pub(super) type Verdicts = BTreeMap<ChannelId, Verdict>;

/// The file's decision about an advertisement of a peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Accepted, under this local name.
    Accepted(String),
    NotListed,
    NotConfigured,
}

/// Returns the decisions about all channels of a peer, by the present names and rights.
pub(super) fn verdicts(cx: &Context<'_>, peer: PeerId) -> Verdicts {
    let verdict = |channel| {
        let (topic, ..) = cx.endpoint.peer(peer).channel_in(channel)?;
        Some((channel, verdict(cx, peer, topic)))
    };
    cx.endpoint.peer(peer).channels_in().filter_map(verdict).collect()
}

fn verdict(cx: &Context<'_>, peer: PeerId, offered: &OfferedTopic) -> Verdict {
    let accepted = match offered.role {
        Role::Topic => cx.peers.accepted_name(peer, RequestKind::Publish, offered),
        Role::Answers => cx.peers.accepted_name(peer, RequestKind::Serve, offered),
        Role::Calls if cx.peers.rights(peer).may_call(&offered.name) => Ok(offered.name.clone()),
        Role::Calls => Err(Denied::NotConfigured),
    };
    match accepted {
        Ok(name) => Verdict::Accepted(name),
        Err(Denied::NotListed) => Verdict::NotListed,
        Err(Denied::Invalid(_) | Denied::NotConfigured | Denied::Unusable(_)) => {
            Verdict::NotConfigured
        }
    }
}

/// Returns the peers of a configuration that the endpoint has, each with its number.
pub(super) fn configured_peers<'a>(
    cx: &Context<'_>,
    config: &'a Config,
) -> BTreeMap<PeerId, &'a PeerConfig> {
    let number =
        |peer: &PeerConfig| cx.endpoint.peers().find(|id| cx.endpoint.peer(*id).key == peer.key);
    config.peers.iter().filter_map(|peer| Some((number(peer)?, peer))).collect()
}
