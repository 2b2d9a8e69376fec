// SPDX-License-Identifier: Apache-2.0
//! Reload of the file: unchanged parts continue undisturbed; the rest is advertised, withdrawn,
//! published or given up.

use super::rights::Rights;
use super::waiting::{Act, Denied};
use super::{ChannelKey, Topics};
use crate::config::{Config, PeerConfig};
use crate::notices;
use std::collections::BTreeMap;
use std::sync::Arc;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf;
use tautline_gateway::types::Dialect;
use tautline_gateway::types::installed::Installed;
use tautline_proto::{ChannelId, Instant, OfferedTopic, PeerId, Role};

/// The file's decisions on the channels of a peer.
type Verdicts = BTreeMap<ChannelId, Verdict>;

/// The file's decision on an advertisement of a peer.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Accepted, under this local name.
    Taken(String),
    LeftOut,
    Waits,
}

impl Topics {
    /// Gives up everything that a peer has here, and everything kept for it. The caller then
    /// removes the peer.
    pub(crate) fn remove_all_of(&mut self, now: Instant, peer: PeerId) {
        self.record_removal(peer);
        self.remove_services_of(now, peer);
        self.remove_shown_of(peer);
        for key in self.remote.of_peer(peer).map(|(key, _)| key).collect::<Vec<_>>() {
            self.remote_withdrawn(now, key);
        }
        self.clear_interests(now, peer);
        self.absent.remove(&peer);
        self.returning.remove(&peer);
        self.examined.remove(&peer);
        self.names.remove(&peer);
        self.held.remove(&peer);
        self.waiting.retain(|key, _| key.peer != peer);
        for local in self.local.values_mut() {
            local.channels.remove(&peer);
        }
    }

    /// Replaces the configuration `old` by `new`. The endpoint already has the peers of `new`.
    pub(crate) fn reconfigure(&mut self, now: Instant, old: &Config, new: &Config) {
        let renamed_before = self.kept_with_new_names(now);
        self.reconfigure_peers(now, old, new);
        self.rules.clone_from(&new.topics);
        for name in self.local.keys().cloned().collect::<Vec<_>>() {
            self.follow_rules(now, &name);
        }
        self.service_rules.clone_from(&new.services);
        self.follow_service_rules(now);
        if old.watchdogs != new.watchdogs {
            self.reconfigure_watchdogs(now, &new.watchdogs);
        }
        if old.tf != new.tf {
            self.tf_rules = Arc::new(new.tf.clone());
            let topics = self.local.iter().filter(|(_, local)| local.transforms.is_some());
            self.read_again(topics.map(|(name, _)| name.clone()).collect::<Vec<_>>());
        }
        let renamed_now = self.kept_with_new_names(now);
        self.read_again(match names(&old.tf) == names(&new.tf) {
            true => &renamed_before ^ &renamed_now,
            false => &renamed_before | &renamed_now,
        });
    }

    /// Applies the names and rights of all peers. An advertisement is examined again if the
    /// decision on it changes, which the prefix of another peer can do as well.
    fn reconfigure_peers(&mut self, now: Instant, old: &Config, new: &Config) {
        let known = |peer: &PeerConfig| old.peers.iter().find(|it| it.key == peer.key);
        let all: BTreeMap<PeerId, &PeerConfig> = self.peers_in(new).collect();
        let before: BTreeMap<PeerId, Verdicts> = all
            .iter()
            .filter(|(_, peer)| known(peer).is_some())
            .map(|(id, _)| (*id, self.verdicts(*id)))
            .collect();
        for (id, rights) in (0..).map(PeerId).zip(&mut self.rights) {
            if !all.contains_key(&id) {
                rights.forget_names();
            }
        }
        for (id, peer) in &all {
            if known(peer) != Some(*peer) {
                self.set_peer(*id, peer, known(peer), new.ros().as_ref());
                self.follow_shown_rights(now, *id);
            }
        }
        for (peer, before) in before {
            for (channel, verdict) in self.verdicts(peer) {
                if before.get(&channel).is_some_and(|before| *before != verdict) {
                    self.examine_again(now, ChannelKey { peer, channel });
                }
            }
        }
    }

    /// Returns the peers of a configuration that the endpoint has, by their numbers.
    fn peers_in<'a>(
        &self,
        config: &'a Config,
    ) -> impl Iterator<Item = (PeerId, &'a PeerConfig)> + use<'a, '_> {
        let number = |peer: &PeerConfig| {
            self.endpoint.peers().find(|id| self.endpoint.peer(*id).key == peer.key)
        };
        config.peers.iter().filter_map(move |peer| Some((number(peer)?, peer)))
    }

    fn set_peer(
        &mut self,
        id: PeerId,
        peer: &PeerConfig,
        known: Option<&PeerConfig>,
        ros: Option<&(Dialect, Installed)>,
    ) {
        let index = id.0 as usize;
        let rights = Rights::new(peer, ros);
        if index == self.peer_names.len() {
            self.peer_names.push(peer.name.clone());
            self.rights.push(rights);
            return;
        }
        self.peer_names[index].clone_from(&peer.name);
        match known.filter(|known| known.max_rate_bps == peer.max_rate_bps) {
            // Tokens that the peer has taken still count.
            Some(_) => self.rights[index].follow(rights),
            None => self.rights[index] = rights,
        }
    }

    fn verdicts(&self, peer: PeerId) -> Verdicts {
        let verdict = |channel| {
            let (topic, ..) = self.endpoint.channel_in(peer, channel)?;
            Some((channel, self.verdict(peer, topic)))
        };
        self.endpoint.channels_in(peer).filter_map(verdict).collect()
    }

    fn verdict(&self, peer: PeerId, offered: &OfferedTopic) -> Verdict {
        let accepted = match offered.role {
            Role::Topic => self.accepted_name(peer, Act::Publish, offered),
            Role::Answers => self.accepted_name(peer, Act::Serve, offered),
            Role::Calls if self.rights(peer).may_call(&offered.name) => Ok(offered.name.clone()),
            Role::Calls => Err(Denied::Waits),
        };
        match accepted {
            Ok(name) => Verdict::Taken(name),
            Err(Denied::LeftOut) => Verdict::LeftOut,
            Err(Denied::Invalid(_) | Denied::Waits | Denied::Unusable(_)) => Verdict::Waits,
        }
    }

    /// Treats a channel of a peer as newly advertised, since it is another topic here now, or none.
    fn examine_again(&mut self, now: Instant, key: ChannelKey) {
        if !self.service_channel_withdrawn(now, key) {
            self.remote_withdrawn(now, key);
        }
        self.waiting.remove(&key);
        if let Some((offered, ..)) = self.endpoint.channel_in(key.peer, key.channel) {
            let untrue = notices::plain(&self.refused_here(key.peer, &offered.name));
            self.notices.retain(&self.cause(key.peer), |text| !text.starts_with(&untrue));
        }
        self.endpoint.want(now, key.peer, key.channel, false);
        self.endpoint.repeat_offer(now, key.peer, key.channel);
    }

    /// Applies the new rules to a local topic, for each peer.
    fn follow_rules(&mut self, now: Instant, name: &str) {
        let Some(treatment) = self.treatment_of(name) else {
            return self.local_withdrawn(now, name.to_owned());
        };
        let Some(mut local) = self.local.remove(name) else { return };
        if local.treatment != treatment {
            local.treatment = treatment;
            // Queued transforms may be due earlier now.
            self.next_held_back = self.next_held_back.map(|_| now);
        }
        for peer in self.endpoint.peers() {
            if self.is_topic_for(peer, name, &local.treatment) {
                let links = self.links_of(peer);
                let config = super::local::channel_config(&local.topic, &local.treatment, links);
                let known = local.channels.get(&peer);
                let offered = known.and_then(|it| self.endpoint.channel_out(peer, *it));
                if offered.is_none_or(|(offered, ..)| *offered != config) {
                    self.offer(now, &mut local, peer);
                }
            } else {
                if let Some(channel) = local.channels.remove(&peer) {
                    self.endpoint.withdraw(now, peer, channel);
                }
                local.not_wanted_by(now, peer);
            }
        }
        self.local.insert(name.to_owned(), local);
    }
}

/// The part of the rules that determines the names of frames.
fn names(rules: &tf::Rules) -> (&str, &[Pattern]) {
    (&rules.prefix, &rules.shared)
}
