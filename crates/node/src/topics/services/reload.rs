// SPDX-License-Identifier: Apache-2.0
//! Services after a reload of the file, and services of a removed peer.

use super::channel;
use crate::topics::{Key, Topics};
use tautline_gateway::mapping::{ServiceTreatment, service_treatment};
use tautline_proto::{Endpoint, Instant, PeerId, Role};

impl Topics {
    /// Gives up the services that a peer serves and its calls.
    pub(in crate::topics) fn part_from_services(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        peer: PeerId,
    ) {
        let of_peer = |key: &&Key| key.0 == peer;
        for key in self.services.remote.keys().filter(of_peer).copied().collect::<Vec<_>>() {
            self.remove_service(now, endpoint, key);
        }
        self.services.callers.retain(|(caller, _), _| *caller != peer);
        self.services.serving.retain(|_, serving| serving.peer != peer);
        for local in self.services.local.values_mut() {
            local.answers.remove(&peer);
        }
    }

    /// Advertises the services of this robot by the new rules.
    pub(in crate::topics) fn follow_service_rules(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
    ) {
        for name in self.services.local.keys().cloned().collect::<Vec<_>>() {
            match service_treatment(&self.service_rules, &name) {
                None => self.service_withdrawn(now, endpoint, &name),
                Some(treatment) => self.follow_service_rule(now, endpoint, &name, treatment),
            }
        }
    }

    fn follow_service_rule(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        name: &str,
        treatment: ServiceTreatment,
    ) {
        let Some(mut local) = self.services.local.remove(name) else { return };
        let ServiceTreatment { priority, timeout, .. } = treatment;
        local.treatment = treatment;
        let config = channel(&local.service, Role::Answers, priority, timeout);
        let mut shut_out = Vec::new();
        for peer in endpoint.peers() {
            let known = local.answers.get(&peer).copied();
            if !self.is_for(peer, name, local.treatment.to.as_deref()) {
                if let Some(channel) = local.answers.remove(&peer) {
                    endpoint.withdraw(now, peer, channel);
                    shut_out.push(peer);
                }
                continue;
            }
            let offered = known.and_then(|channel| endpoint.channel_out(peer, channel));
            if offered.is_some_and(|(offered, ..)| *offered == config) {
                continue;
            }
            let open = self.offer_channel(now, endpoint, peer, known, config.clone());
            local.answers.extend(open.map(|channel| (peer, channel)));
        }
        self.services.local.insert(name.to_owned(), local);
        self.shut_callers_out(now, endpoint, name, &shut_out);
        self.let_in(now, endpoint, name);
    }

    fn shut_callers_out(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        name: &str,
        peers: &[PeerId],
    ) {
        let callers = self
            .services
            .callers
            .extract_if(.., |(peer, _), service| peers.contains(peer) && service.as_str() == name);
        for ((peer, channel), _) in callers {
            endpoint.want(now, peer, channel, false);
        }
        self.services.serving.retain(|_, it| it.service != name || !peers.contains(&it.peer));
    }
}
