// SPDX-License-Identifier: Apache-2.0
//! Services after a reload of the file, and services of a removed peer.

use super::channel;
use crate::topics::Context;
use crate::topics::{ChannelKey, Topics};
use tautline_gateway::mapping::ServiceTreatment;
use tautline_proto::{PeerId, Role};

impl Topics {
    /// Gives up the services that a peer serves and its calls.
    pub(crate) fn remove_services_of(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let of_peer = |key: &&ChannelKey| key.peer == peer;
        for key in self.services.remote.keys().filter(of_peer).copied().collect::<Vec<_>>() {
            self.remove_service(cx, key);
        }
        self.services.callers.retain(|key, _| key.peer != peer);
        self.services.serving.retain(|_, serving| serving.peer != peer);
        for local in self.services.local.values_mut() {
            local.answers.remove(&peer);
        }
    }

    /// Advertises the services of this robot by the new rules.
    pub(crate) fn follow_service_rules(&mut self, cx: &mut Context<'_>) {
        let services: Vec<_> = self.services.local.values().map(|it| it.service.clone()).collect();
        for service in services {
            let name = service.name.clone();
            match self.treatment_of_service(cx, &service) {
                None => self.service_withdrawn(cx, &name),
                Some(treatment) => self.follow_service_rule(cx, &name, treatment),
            }
        }
    }

    fn follow_service_rule(
        &mut self,
        cx: &mut Context<'_>,
        name: &str,
        treatment: ServiceTreatment,
    ) {
        let now = cx.now;
        let Some(mut local) = self.services.local.remove(name) else { return };
        let ServiceTreatment { priority, timeout, .. } = treatment;
        local.treatment = treatment;
        let config = channel(&local.service, Role::Answers, priority, timeout);
        let mut excluded = Vec::new();
        for peer in cx.endpoint.peers() {
            let known = local.answers.get(&peer).copied();
            if !cx.peers.is_for(peer, name, local.treatment.to.as_deref()) {
                if let Some(channel) = local.answers.remove(&peer) {
                    cx.endpoint.withdraw(now, peer, channel);
                    excluded.push(peer);
                }
                continue;
            }
            let offered = known.and_then(|channel| cx.endpoint.channel_out(peer, channel));
            if offered.is_some_and(|(offered, ..)| *offered == config) {
                continue;
            }
            let open = cx.offer_channel(peer, known, config.clone());
            local.answers.extend(open.map(|channel| (peer, channel)));
        }
        self.services.local.insert(name.to_owned(), local);
        self.close_call_channels(cx, name, &excluded);
        self.open_call_channels(cx, name);
    }

    fn close_call_channels(&mut self, cx: &mut Context<'_>, name: &str, peers: &[PeerId]) {
        let now = cx.now;
        let callers = self
            .services
            .callers
            .extract_if(.., |key, service| peers.contains(&key.peer) && service.as_str() == name);
        for (key, _) in callers {
            cx.endpoint.want(now, key.peer, key.channel, false);
        }
        self.services.serving.retain(|_, it| it.service != name || !peers.contains(&it.peer));
    }
}
