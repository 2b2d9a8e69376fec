// SPDX-License-Identifier: Apache-2.0
//! The node itself, and its lists of peers and radios.

use crate::config::RadioConfig;
use crate::crypto::keys::PublicKey;
use crate::endpoint::membership::check_name;
use crate::endpoint::network::Network;
use crate::endpoint::state::Endpoint;
use crate::error::SetupError;
use crate::ids::{PeerId, RadioId};
use crate::path::radio::Radio;
use crate::time::{Duration, Instant};
use std::collections::BTreeSet;

/// The node.
impl Endpoint {
    /// Sets the time of day, in microseconds since 1970. Repeat this when the clock may have been set.
    pub fn set_wall(&mut self, now: Instant, wall_us: i64) {
        self.router.net.cx.set_wall(now, wall_us);
    }

    /// Changes limits: bytes queued for one peer, the time that they may take to drain, and the
    /// repair budget in percent.
    pub fn set_limits(&mut self, queue_bytes: usize, queue_time: Duration, repair_percent: u32) {
        let Network { cx, peers, .. } = &mut self.router.net;
        cx.config.queue_bytes = queue_bytes;
        cx.config.queue_time = queue_time;
        cx.config.repair_percent = repair_percent;
        for peer in peers.iter_mut() {
            peer.channels.outbox.repairs.set_percent(repair_percent);
        }
    }

    /// Adds a radio.
    pub fn add_radio(&mut self, config: RadioConfig) -> RadioId {
        self.router.net.radios.push(Radio::new(config))
    }

    /// Changes the configuration of a radio.
    pub fn set_radio(&mut self, radio: RadioId, config: RadioConfig) {
        self.router.net.radios[radio].set_config(config);
        for id in self.links() {
            if self.router.net.peers[id].radio == radio {
                self.router.net.set_controller(id);
            }
        }
    }

    /// Sends a goodbye to all peers with the next packets.
    pub fn close(&mut self) {
        for peer in self.router.net.peers.iter_mut().filter(|peer| peer.up) {
            peer.goodbye_now = true;
        }
    }
}

/// Peers.
impl Endpoint {
    /// Adds a peer without links. Its key identifies it.
    pub fn add_peer(&mut self, name: &str, key: PublicKey) -> Result<PeerId, SetupError> {
        self.router.add_peer(None, name, key)
    }

    /// Checks a complete list of peers, with the errors of [`Self::add_peer`].
    pub fn check_peers(&self, peers: &[(&str, PublicKey)]) -> Result<(), SetupError> {
        let peers: Vec<_> = peers.iter().map(|(name, key)| (None, *name, *key)).collect();
        self.check_members(&peers)
    }

    /// Checks a complete list of peers, each with the name of its team.
    pub fn check_members(
        &self,
        peers: &[(Option<&str>, &str, PublicKey)],
    ) -> Result<(), SetupError> {
        let mut names = BTreeSet::from([self.name()]);
        let mut keys = BTreeSet::from([self.key()]);
        let mut short_names = BTreeSet::new();
        for &(team, name, key) in peers {
            check_name(name)?;
            if !names.insert(name) {
                return Err(SetupError::NameTaken(name.into()));
            }
            if !keys.insert(key) {
                return Err(SetupError::KeyTaken(name.into()));
            }
            let is_new = short_names.insert((team, key.short_name()));
            if !is_new || key.short_name() == self.router.net.cx.short_name {
                return Err(SetupError::ShortNameTaken(name.into()));
            }
        }
        Ok(())
    }
}
