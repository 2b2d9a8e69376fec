// SPDX-License-Identifier: Apache-2.0
//! Services after a reload of the file, and services of a removed peer.

use super::channel;
use crate::topics::{ChannelKey, Topics};
use crate::treatment::services::ServiceTreatment;
use tautline_proto::{Instant, PeerId, Role};

impl Topics {
    /// Gives up the services that a peer serves and its calls.
    pub(crate) fn remove_services_of(&mut self, now: Instant, peer: PeerId) {
        let of_peer = |key: &&ChannelKey| key.peer == peer;
        for key in self.services.remote.keys().filter(of_peer).copied().collect::<Vec<_>>() {
            self.remove_service(now, key);
        }
        self.services.callers.retain(|key, _| key.peer != peer);
        self.services.serving.retain(|_, serving| serving.peer != peer);
        for local in self.services.local.values_mut() {
            local.answers.remove(&peer);
        }
    }

    /// Advertises the services of this robot by the new rules.
    pub(crate) fn follow_service_rules(&mut self, now: Instant) {
        let services: Vec<_> = self.services.local.values().map(|it| it.service.clone()).collect();
        for service in services {
            let name = service.name.clone();
            match self.treatment_of_service(&service) {
                None => self.service_withdrawn(now, &name),
                Some(treatment) => self.follow_service_rule(now, &name, treatment),
            }
        }
    }

    fn follow_service_rule(&mut self, now: Instant, name: &str, treatment: ServiceTreatment) {
        let Some(mut local) = self.services.local.remove(name) else { return };
        let ServiceTreatment { priority, timeout, .. } = treatment;
        local.treatment = treatment;
        let config = channel(&local.service, Role::Answers, priority, timeout);
        let mut excluded = Vec::new();
        for peer in self.endpoint.peers() {
            let known = local.answers.get(&peer).copied();
            if !self.is_for(peer, name, local.treatment.to.as_deref()) {
                if let Some(channel) = local.answers.remove(&peer) {
                    self.endpoint.withdraw(now, peer, channel);
                    excluded.push(peer);
                }
                continue;
            }
            let offered = known.and_then(|channel| self.endpoint.channel_out(peer, channel));
            if offered.is_some_and(|(offered, ..)| *offered == config) {
                continue;
            }
            let open = self.offer_channel(now, peer, known, config.clone());
            local.answers.extend(open.map(|channel| (peer, channel)));
        }
        self.services.local.insert(name.to_owned(), local);
        self.close_call_channels(now, name, &excluded);
        self.open_call_channels(now, name);
    }

    fn close_call_channels(&mut self, now: Instant, name: &str, peers: &[PeerId]) {
        let callers = self
            .services
            .callers
            .extract_if(.., |key, service| peers.contains(&key.peer) && service.as_str() == name);
        for (key, _) in callers {
            self.endpoint.want(now, key.peer, key.channel, false);
        }
        self.services.serving.retain(|_, it| it.service != name || !peers.contains(&it.peer));
    }
}
