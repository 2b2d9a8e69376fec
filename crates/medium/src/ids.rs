// SPDX-License-Identifier: Apache-2.0
//! Time, and the numbers of stations, radios and networks.

/// Nanoseconds since the medium's start.
pub type Nanos = u64;

/// A place with one or more radios: a robot, a base station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StationId(pub usize);

/// One station's interface on one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RadioId(pub usize);

/// Radios that can reach each other: an 802.11 channel, or a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkId(pub usize);
