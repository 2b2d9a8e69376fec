// SPDX-License-Identifier: Apache-2.0
//! Outages, by station and network.

use crate::ids::{NetworkId, StationId};

/// An outage of a station: it neither sends nor receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outage {
    /// The station.
    pub station: StationId,
    /// The only station that cannot reach it; `None`: no station can.
    pub from: Option<StationId>,
    /// The only affected network; `None`: all networks.
    pub network: Option<NetworkId>,
}

impl Outage {
    /// Returns the outage of a station on all its networks.
    #[must_use]
    pub const fn at(station: StationId) -> Self {
        Self { station, from: None, network: None }
    }

    /// Returns the outage between two stations on all their networks.
    #[must_use]
    pub const fn between(a: StationId, b: StationId) -> Self {
        Self { station: a, from: Some(b), network: None }
    }

    /// Returns the same outage on one network only.
    #[must_use]
    pub const fn on(self, network: NetworkId) -> Self {
        Self { network: Some(network), ..self }
    }

    /// Returns the same outage with the lower station first, so that equal outages compare equal.
    #[must_use]
    pub fn ordered(self) -> Self {
        match self.from {
            Some(other) if other < self.station => {
                Self { station: other, from: Some(self.station), ..self }
            }
            _ => self,
        }
    }
}
