// SPDX-License-Identifier: Apache-2.0
//! Reload of the file: unchanged parts continue undisturbed; the rest is advertised, withdrawn,
//! published or given up.

use super::waiting::{Act, Denied};
use super::{ChannelKey, Context, Topics, record};
use crate::config::{Config, PeerConfig};
use crate::notices;
use std::collections::BTreeMap;
use std::sync::Arc;
use tautline_proto::{ChannelId, OfferedTopic, PeerId, Role};

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
    pub(crate) fn remove_all_of(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        record::removal(cx, peer);
        self.services.remove_peer(cx, peer);
        self.shown.remove_peer(cx, peer);
        for key in self.remote.of_peer(peer).map(|(key, _)| key).collect::<Vec<_>>() {
            self.remote_withdrawn(cx, key);
        }
        self.exports.clear_interests(cx, peer);
        cx.peers.came(peer);
        self.returning.remove(&peer);
        self.examined.remove(&peer);
        self.names.remove(&peer);
        self.held.remove(&peer);
        cx.waiting.retain(|key, _| key.peer != peer);
        self.exports.remove_peer(peer);
    }

    /// Replaces the configuration `old` by `new`. The endpoint already has the peers of `new`.
    pub(crate) fn reconfigure(&mut self, cx: &mut Context<'_>, old: &Config, new: &Config) {
        let renamed_before = self.exports.kept_with_new_names(cx);
        self.reconfigure_peers(cx, old, new);
        self.exports.follow_all_rules(cx, &new.topics);
        self.services.follow_rules(cx, &new.services);
        if old.watchdogs != new.watchdogs {
            self.reconfigure_watchdogs(cx, &new.watchdogs);
        }
        if old.tf != new.tf {
            self.tf_rules = Arc::new(new.tf.clone());
        }
        self.exports.follow_tf(cx, [&old.tf, &new.tf], &renamed_before);
    }

    /// Applies the names and rights of all peers. An advertisement is examined again if the
    /// decision on it changes, which the prefix of another peer can do as well.
    fn reconfigure_peers(&mut self, cx: &mut Context<'_>, old: &Config, new: &Config) {
        let known = |peer: &PeerConfig| old.peers.iter().find(|it| it.key == peer.key);
        let all = peers_in(cx, new);
        let before: BTreeMap<PeerId, Verdicts> = all
            .iter()
            .filter(|(_, peer)| known(peer).is_some())
            .map(|(id, _)| (*id, self.verdicts(cx, *id)))
            .collect();
        cx.peers.forget_names_of_others(|id| all.contains_key(&id));
        for (id, peer) in &all {
            if known(peer) != Some(*peer) {
                cx.peers.set(*id, peer, known(peer), new.ros().as_ref());
                self.shown.follow_rights(cx, *id);
            }
        }
        for (peer, before) in before {
            for (channel, verdict) in self.verdicts(cx, peer) {
                if before.get(&channel).is_some_and(|before| *before != verdict) {
                    self.examine_again(cx, ChannelKey { peer, channel });
                }
            }
        }
    }

    fn verdicts(&self, cx: &Context<'_>, peer: PeerId) -> Verdicts {
        let verdict = |channel| {
            let (topic, ..) = cx.endpoint.channel_in(peer, channel)?;
            Some((channel, self.verdict(cx, peer, topic)))
        };
        cx.endpoint.channels_in(peer).filter_map(verdict).collect()
    }

    fn verdict(&self, cx: &Context<'_>, peer: PeerId, offered: &OfferedTopic) -> Verdict {
        let accepted = match offered.role {
            Role::Topic => cx.peers.accepted_name(peer, Act::Publish, offered),
            Role::Answers => cx.peers.accepted_name(peer, Act::Serve, offered),
            Role::Calls if cx.peers.rights(peer).may_call(&offered.name) => {
                Ok(offered.name.clone())
            }
            Role::Calls => Err(Denied::Waits),
        };
        match accepted {
            Ok(name) => Verdict::Taken(name),
            Err(Denied::LeftOut) => Verdict::LeftOut,
            Err(Denied::Invalid(_) | Denied::Waits | Denied::Unusable(_)) => Verdict::Waits,
        }
    }

    /// Treats a channel of a peer as newly advertised, since it is another topic here now, or none.
    fn examine_again(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let now = cx.now;
        if !self.services.withdrawn(cx, key) {
            self.remote_withdrawn(cx, key);
        }
        cx.waiting.remove(&key);
        if let Some((offered, ..)) = cx.endpoint.channel_in(key.peer, key.channel) {
            let untrue = notices::plain(&cx.refused_here(key.peer, &offered.name));
            cx.notices.retain(&cx.peers.cause(key.peer), |text| !text.starts_with(&untrue));
        }
        cx.endpoint.want(now, key.peer, key.channel, false);
        cx.endpoint.repeat_offer(now, key.peer, key.channel);
    }
}

/// Returns the peers of a configuration that the endpoint has, by their numbers.
fn peers_in<'a>(cx: &Context<'_>, config: &'a Config) -> BTreeMap<PeerId, &'a PeerConfig> {
    let number =
        |peer: &PeerConfig| cx.endpoint.peers().find(|id| cx.endpoint.peer(*id).key == peer.key);
    config.peers.iter().filter_map(|peer| Some((number(peer)?, peer))).collect()
}
