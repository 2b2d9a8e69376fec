// SPDX-License-Identifier: Apache-2.0
//! What this robot knows of its peers: their names, rights and links, and which of them are down.

use super::rights::{OfferedType, Right, Rights};
use super::waiting::{Denied, RequestKind, check_offer_strings};
use crate::config::{Config, PeerConfig};
use crate::quota::Cause;
use crate::treatment::Treatment;
use std::collections::{BTreeMap, BTreeSet};
use tautline_gateway::names::{check_local_name, check_peer_name, is_below};
use tautline_gateway::types::Dialect;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::translate::dialect_of;
use tautline_proto::{Duration, Instant, OfferedTopic, PeerId};

/// Duration of an outage after which topics are no longer read for the peer. In a shorter
/// outage, published messages are queued within lifespan and queue limits.
pub(super) const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Time for which a channel of a peer's last session is kept if it is not advertised again.
pub(super) const REOFFER_GRACE: Duration = Duration::from_secs(5);

/// Time for which a topic is still read after the last peer has unsubscribed. A peer that subscribes and
/// unsubscribes in turn, or returns in a new session, then causes no work for the ROS master.
pub(super) const UNSUBSCRIBE_DELAY: Duration = Duration::from_secs(10);

/// The state of a peer that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    Since(Instant),
    /// Nothing is read for the peer any more.
    GivenUp,
}

/// The peers, by number, in the order of the file.
#[derive(Debug)]
pub(crate) struct Peers {
    /// The name of this robot.
    own_name: String,
    /// The ROS whose types this robot uses.
    pub(super) dialect: Option<Dialect>,
    names: Vec<String>,
    rights: Vec<Rights>,
    /// Names and numbers of the links to each peer.
    links: BTreeMap<PeerId, Vec<(String, u8)>>,
    outages: BTreeMap<PeerId, Outage>,
    /// The peers that have refused a message for its size in this session.
    pub(super) size_limited: BTreeSet<PeerId>,
}

impl Peers {
    pub(super) fn new(config: &Config) -> Self {
        let ros = config.ros();
        Self {
            own_name: config.name.clone(),
            dialect: ros.as_ref().map(|(dialect, _)| *dialect),
            names: config.peers.iter().map(|peer| peer.name.clone()).collect(),
            rights: config.peers.iter().map(|peer| Rights::new(peer, ros.as_ref())).collect(),
            links: BTreeMap::new(),
            outages: BTreeMap::new(),
            size_limited: BTreeSet::new(),
        }
    }

    pub(super) fn name(&self, peer: PeerId) -> &str {
        &self.names[peer.0 as usize]
    }

    /// Returns the cause for all events that this peer triggers.
    pub(super) fn cause(&self, peer: PeerId) -> Cause {
        Cause::Peer(self.name(peer).to_owned())
    }

    pub(super) fn rights(&self, peer: PeerId) -> &Rights {
        &self.rights[peer.0 as usize]
    }

    pub(super) fn rights_mut(&mut self, peer: PeerId) -> &mut Rights {
        &mut self.rights[peer.0 as usize]
    }

    /// Returns the names of all peers with their rights.
    pub(super) fn all_rights_mut(&mut self) -> impl Iterator<Item = (&str, &mut Rights)> {
        self.names.iter().map(String::as_str).zip(&mut self.rights)
    }

    /// Returns all peers that have a prefix, with their prefixes.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = (PeerId, &str)> {
        let all = (0..).map(PeerId).zip(&self.rights);
        all.map(|(peer, rights)| (peer, rights.names.prefix.as_str())).filter(|it| !it.1.is_empty())
    }

    /// Adds a peer, or replaces its name and rights. `previous` is its former configuration.
    pub(super) fn insert_or_update(
        &mut self,
        id: PeerId,
        peer: &PeerConfig,
        previous: Option<&PeerConfig>,
        ros: Option<&(Dialect, InstalledTypes)>,
    ) {
        let index = id.0 as usize;
        let rights = Rights::new(peer, ros);
        if index == self.names.len() {
            self.names.push(peer.name.clone());
            self.rights.push(rights);
            return;
        }
        self.names[index].clone_from(&peer.name);
        match previous.filter(|previous| previous.max_rate_bps == peer.max_rate_bps) {
            // Tokens of the rate limit that the peer has used still count.
            Some(_) => self.rights[index].update_keeping_rate(rights),
            None => self.rights[index] = rights,
        }
    }

    /// Releases the prefixes of all peers that `kept` does not select.
    pub(super) fn forget_names_of_others(&mut self, kept: impl Fn(PeerId) -> bool) {
        for (_, rights) in (0..).map(PeerId).zip(&mut self.rights).filter(|(id, _)| !kept(*id)) {
            rights.forget_names();
        }
    }

    /// Sets the names and numbers of the links to a peer.
    pub(crate) fn set_links(&mut self, peer: PeerId, names: Vec<(String, u8)>) {
        self.links.insert(peer, names);
    }

    pub(crate) fn links_to(&self, peer: PeerId) -> &[(String, u8)] {
        self.links.get(&peer).map_or(&[], Vec::as_slice)
    }

    /// Returns the name of the link with this number.
    pub(crate) fn link_name(&self, peer: PeerId, number: u8) -> Option<&str> {
        let named = self.links_to(peer).iter().find(|(_, it)| *it == number);
        named.map(|(name, _)| name.as_str())
    }

    /// Whether a topic is sent to this peer: as [`Self::is_offered_to`], and one of the links that its
    /// rule names leads to the peer, if the rule names any.
    pub(super) fn is_topic_offered_to(
        &self,
        peer: PeerId,
        name: &str,
        treatment: &Treatment,
    ) -> bool {
        let only = &treatment.links.only;
        let mut links = self.links_to(peer).iter();
        self.is_offered_to(peer, name, treatment.to.as_deref())
            && (only.is_empty() || links.any(|(link, _)| only.contains(link)))
    }

    /// Whether the topic or service `name` is for this peer: by `to` of its rule (`None` means all
    /// peers) and by the peer's rights.
    pub(super) fn is_offered_to(&self, peer: PeerId, name: &str, to: Option<&[String]>) -> bool {
        to.is_none_or(|to| to.iter().any(|it| it == self.name(peer)))
            && self.rights(peer).is_offered(name)
    }

    /// Returns the local name of a topic or service that a peer advertises, if the file allows it.
    pub(super) fn accepted_name(
        &self,
        peer: PeerId,
        kind: RequestKind,
        offered: &OfferedTopic,
    ) -> Result<String, Denied> {
        let rights = self.rights(peer);
        let (name, hash) = (offered.type_name.as_str(), offered.type_hash.as_str());
        let is_foreign = self.dialect.is_some_and(|own| dialect_of(name) != own);
        let found = OfferedType { offered: name, name, hash, is_foreign };
        let right = match kind {
            RequestKind::Publish => rights.right_to_publish(&offered.name, found),
            _ => rights.right_to_serve(&offered.name, found),
        };
        // A name without a leading '/' would not stay under the peer's prefix.
        if !rights.names.renames(&offered.name) {
            check_peer_name(&offered.name).map_err(|error| Denied::Invalid(error.to_string()))?;
        }
        match right {
            Right::NotListed => Err(Denied::NotListed),
            Right::NotConfigured => Err(Denied::NotConfigured),
            Right::Granted => {
                check_offer_strings(offered).map_err(Denied::Invalid)?;
                if kind == RequestKind::Publish
                    && rights.log_prefix(&offered.name, name, hash).is_some()
                {
                    return Ok(offered.name.clone());
                }
                let local = rights.names.local_name(&offered.name);
                check_local_name(&local, self.dialect)
                    .map_err(|error| Denied::Unusable(error.to_string()))?;
                match self.prefix_conflict(peer, &offered.name, &local) {
                    Some(reason) => Err(Denied::Invalid(reason)),
                    None => Ok(local),
                }
            }
        }
    }

    /// Returns the reason why `local` is not a name for this peer: it lies under the more specific
    /// prefix of another peer, and local nodes expect that peer's topics and services there. A line
    /// in the file that names the topic or service without a star allows it all the same.
    fn prefix_conflict(&self, peer: PeerId, theirs: &str, local: &str) -> Option<String> {
        let own = self.rights(peer);
        let (other, prefix) = self.prefixes().find(|(other, prefix)| {
            *other != peer && prefix.len() > own.names.prefix.len() && is_below(local, prefix)
        })?;
        (!own.names.is_named(theirs)).then(|| {
            let (other, here) = (self.name(other), &self.own_name);
            format!(
                "refused, since its name at '{here}' would be {local}, under the prefix {prefix} of \
                 '{other}'; a line {theirs} without a star under 'accept' there allows it"
            )
        })
    }

    /// Notes that a peer is up; returns whether it had been given up.
    pub(super) fn mark_up(&mut self, peer: PeerId) -> bool {
        self.outages.remove(&peer) == Some(Outage::GivenUp)
    }

    /// Notes that a peer is down.
    pub(super) fn mark_down(&mut self, now: Instant, peer: PeerId) {
        self.outages.insert(peer, Outage::Since(now));
    }

    pub(super) fn is_down(&self, peer: PeerId) -> bool {
        self.outages.contains_key(&peer)
    }

    pub(super) fn is_given_up(&self, peer: PeerId) -> bool {
        self.outages.get(&peer) == Some(&Outage::GivenUp)
    }

    /// Gives up peers that have been down for longer than [`GIVE_UP_AFTER`]; returns these peers.
    pub(super) fn give_up_absent(&mut self, now: Instant) -> Vec<PeerId> {
        let mut gone = Vec::new();
        for (peer, outage) in &mut self.outages {
            if matches!(outage, Outage::Since(at) if now.since(*at) > GIVE_UP_AFTER) {
                *outage = Outage::GivenUp;
                gone.push(*peer);
            }
        }
        gone
    }
}
