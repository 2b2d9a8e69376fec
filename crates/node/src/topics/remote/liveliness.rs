// SPDX-License-Identifier: Apache-2.0
//! Liveliness of publications: local subscribers see a publisher of a peer as alive while it is
//! alive there and the peer is up.

use super::super::Topics;
use super::ChannelKey;
use crate::limits::MIN_LEASE;
use crate::topics::Context;
use std::collections::BTreeSet;
use tautline_gateway::{Command, Liveliness};
use tautline_proto::{OfferedTopic, PeerId};

impl Topics {
    /// Returns the liveliness with which a peer's topic is published here.
    pub(super) fn liveliness_of(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerId,
        offered: &OfferedTopic,
    ) -> Liveliness {
        let qos = &offered.qos;
        if let Some(lease) = qos.lease.filter(|lease| *lease < MIN_LEASE) {
            let (name, peer_name) = (&offered.name, cx.peers.name(peer));
            let text = format!(
                "{name} of '{peer_name}': its liveliness lease of {lease:?} is published as \
                 {MIN_LEASE:?}, the shortest that is allowed; subscribers that request less receive \
                 nothing"
            );
            cx.peer_notice(peer, &text);
        }
        Liveliness {
            manual: qos.manual_liveliness,
            lease: qos.lease.map(|lease| lease.max(MIN_LEASE)),
            lost: qos.lease.is_some() && qos.not_alive,
        }
    }

    /// Whether one of these topics of peers has a publisher that is alive, as far as known.
    pub(super) fn is_any_alive(&self, cx: &Context<'_>, from: &BTreeSet<ChannelKey>) -> bool {
        from.iter().any(|key| {
            let remote = self.remote.get(*key);
            !cx.peers.is_absent(key.peer) && remote.is_some_and(|it| !it.topic.qos.liveliness.lost)
        })
    }

    /// Follows a change of a peer that feeds publications.
    pub(super) fn update_liveliness_of(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let leased =
            self.remote.of_peer(peer).filter(|(_, it)| it.topic.qos.liveliness.lease.is_some());
        let names: BTreeSet<String> = leased.map(|(_, it)| it.topic.name.clone()).collect();
        names.iter().for_each(|name| self.update_liveliness(cx, name));
    }

    /// Reports to the gateway whether a publication is alive, if that has changed.
    pub(super) fn update_liveliness(&mut self, cx: &mut Context<'_>, name: &str) {
        let Some(known) = self.publications.get(name) else { return };
        let leased = known.topic.qos.liveliness.lease.is_some();
        let lost = leased && !known.own && !self.is_any_alive(cx, &known.from);
        let Some(known) = self.publications.get_mut(name) else { return };
        if std::mem::replace(&mut known.topic.qos.liveliness.lost, lost) != lost {
            let topic = known.topic.clone();
            cx.gateway(Command::Advertise { topic });
        }
    }
}
