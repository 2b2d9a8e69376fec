// SPDX-License-Identifier: Apache-2.0
//! Records of peers that come up, go down or move, and of failed handshakes, in the log and the audit log.

use super::context::Context;
use crate::audit::{DownReason, Event, HandshakeFailure, Session, Text};
use crate::notices;
use tautline_proto::{Endpoint, LinkId, LinkView, Notice, PeerId, Place};

/// Logs and records that a peer came up.
pub(super) fn peer_up(cx: &mut Context<'_>, peer: PeerId, new_session: bool) {
    if cx.may_log_about(peer) {
        tracing::info!(peer = cx.peers.name(peer), new_session, "peer is up");
    }
    let event = Event::Came {
        key: cx.endpoint.peer(peer).key.to_string().into(),
        address: peer_address(cx.endpoint, peer),
        session: if new_session { Session::New } else { Session::Same },
    };
    cx.record_peer_event(peer, event);
}

/// Logs and records that a peer went down.
pub(super) fn peer_down(cx: &mut Context<'_>, peer: PeerId, said_goodbye: bool) {
    if cx.may_log_about(peer) {
        tracing::info!(peer = cx.peers.name(peer), said_goodbye, "peer is down");
    }
    let reason = if said_goodbye { DownReason::Goodbye } else { DownReason::Silence };
    cx.record_peer_event(peer, Event::Went { reason });
}

/// Records that a peer was removed from the file.
pub(super) fn peer_removed(cx: &mut Context<'_>, peer: PeerId) {
    cx.record_peer_event(peer, Event::Went { reason: DownReason::Removed });
}

/// Logs and records that the address of a peer changed.
pub(super) fn peer_moved(cx: &mut Context<'_>, peer: PeerId, to: Place) {
    if cx.may_log_about(peer) {
        tracing::info!(peer = cx.peers.name(peer), %to, "peer has moved");
    }
    cx.record_peer_event(peer, Event::Moved { address: address_text(cx.endpoint, to) });
}

/// Records a handshake that established no session.
pub(super) fn failed_handshake(cx: &mut Context<'_>, notice: &Notice) {
    let (reason, from, name, key) = match notice {
        Notice::UnknownKey { name, key, from, .. } => {
            (HandshakeFailure::UnknownKey, from, Some(name), Some(key))
        }
        Notice::OtherKey { from, .. } => (HandshakeFailure::OtherKey, from, None, None),
        Notice::OtherName { theirs, from, .. } => {
            (HandshakeFailure::WrongName, from, Some(theirs), None)
        }
        Notice::Version { from, .. } => (HandshakeFailure::OtherVersion, from, None, None),
        Notice::Twins { name, from, .. } => (HandshakeFailure::Twin, from, Some(name), None),
        Notice::TheyRefuse { from, .. } => (HandshakeFailure::RefusedByPeer, from, None, None),
        Notice::NotRelayed { .. }
        | Notice::UnknownEnd { .. }
        | Notice::RelayLoop { .. }
        | Notice::BlackHole { .. }
        | Notice::NoDirectPath { .. }
        | Notice::TooLarge { .. } => return,
    };
    let event = Event::HandshakeRefused {
        reason,
        address: from.to_string().into(),
        name: name.map(Text::from),
        key: key.map(|key| key.to_string().into()),
    };
    cx.recorder.record(&notices::cause(notice), event);
}

/// Removes notices about handshakes of a peer whose link came up. Logs the start and the end of a
/// direct path to a peer behind a relay.
pub(super) fn link_changed(cx: &mut Context<'_>, link: LinkId, is_up: bool) {
    let now = cx.now;
    let Some(view) = cx.endpoint.link(link) else { return };
    let (LinkView { peer, remote, .. }, is_direct) = (view, view.is_direct_path());
    if is_up {
        let name = cx.endpoint.peer(peer).name;
        notices::drop_handshake_notices(cx.notices, name, remote);
    }
    let Some(remote) = remote.filter(|_| is_direct) else { return };
    let cause = cx.peers.cause(peer);
    let is_logged = cx.notices.may_log(now, &cause);
    let peer = cx.peers.name(peer).to_owned();
    if is_up {
        notices::drop_direct_path_notices(cx.notices, &peer);
    }
    match is_up {
        _ if !is_logged => {}
        true => tracing::info!(peer, %remote, "direct path found"),
        false => {
            tracing::info!(peer, %remote, "direct path ended; the relay carries its packets")
        }
    }
}

/// Returns the remote address of one of a peer's links, preferably of a link that is up.
fn peer_address(endpoint: &Endpoint, peer: PeerId) -> Text {
    let links = endpoint.links().filter_map(|link| endpoint.link(link));
    let known = links.filter(|link| link.peer == peer && link.remote.is_some());
    let best = known.max_by_key(|link| link.up);
    best.and_then(|link| link.remote).map_or("".into(), |place| address_text(endpoint, place))
}

fn address_text(endpoint: &Endpoint, place: Place) -> Text {
    match place {
        Place::Udp(address) => address.to_string().into(),
        Place::Relay { hop, .. } => format!("via {}", endpoint.peer(hop).name).into(),
    }
}
