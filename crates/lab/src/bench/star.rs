// SPDX-License-Identifier: Apache-2.0
//! Five peers behind one interface: fairness between peers, and a dead one among them.

use super::processes::run as run_command;
use super::world::{LinkLimits, Star};
use anyhow::{Result, bail};
use std::path::Path;

/// As on the command line.
pub const NAME: &str = "five-peers";

const PEERS: u8 = 5;
const LIMITS: LinkLimits = LinkLimits {
    rate_bps: Some(6_000_000),
    loss: 0.0,
};

/// Builds the computers and shows that they reach each other; the daemon-to-daemon load is still to come.
pub fn run(_folder: &Path) -> Result<()> {
    let star = Star::new(PEERS, LIMITS)?;
    let ping = |address: &str| {
        run_command(
            star.sender
                .command("ping")
                .args(["-c", "1", "-W", "2", address]),
        )
        .map(drop)
    };
    for peer in &star.peers {
        ping(&peer.address)?;
    }
    if let Some(peer) = star.peers.last() {
        star.unplug(peer)?;
        if ping(&peer.address).is_ok() {
            bail!("{} answers although it is unplugged", peer.name);
        }
    }
    bail!("{NAME}: the computers and links are there, the load between daemons is not written yet")
}
