// SPDX-License-Identifier: Apache-2.0
//! The Tautline protocol as a state machine, without sockets, clock, threads or global randomness.
//!
//! # Contract
//! There are four kinds of method: getters; `handle_*(now, input)`; mutators such as
//! [`PeerMut::send`]; and `poll_*`, which drain outputs. After any input or mutator, call
//! [`Endpoint::poll_transmit`] and [`Endpoint::poll_event`] until they return `None`. Call
//! [`Endpoint::handle_timeout`] at the time that [`Endpoint::poll_timeout`] returns. Events may stay queued
//! for a moment. Once [`limits::EVENTS`] events of a peer are queued, further packets with data from this
//! peer are refused. `now` never goes back.
//!
//! ```
//! use tautline_proto::{Config, Endpoint, Instant, LinkConfig, RadioConfig, SecretKey};
//!
//! let key = SecretKey::new([7; 32]); // In production, this and `random` need true randomness.
//! let config = Config::new("robot", key);
//! let mut seed = 1;
//! let random = move || { seed += 1; seed };
//! let mut endpoint = Endpoint::new(config, Box::new(random))?;
//! let radio = endpoint.add_radio(RadioConfig::default());
//! let base = endpoint.add_peer("base", SecretKey::new([8; 32]).public())?;
//! let remote = Some("192.0.2.1:18470".parse()?);
//! let link = LinkConfig { remote, datagram_bytes: 1472, header_bytes: 28, metered: false };
//! endpoint.peer_mut(base).add_link(Instant(0), radio, link)?;
//!
//! let now = Instant(0);
//! endpoint.handle_timeout(now);
//! while let Some(transmit) = endpoint.poll_transmit(now) {
//!     // Send `transmit.datagram` to `transmit.remote`.
//!     assert_eq!(transmit.datagram[0], b'T');
//! }
//! while let Some(event) = endpoint.poll_event() {
//!     println!("{event:?}");
//! }
//! let wait_until = endpoint.poll_timeout();
//! assert!(wait_until > Some(now));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod address;
mod arena;
mod bucket;
mod class;
mod clock;
mod config;
pub mod crypto;
mod delivery;
mod ecn;
mod endpoint;
mod error;
mod ids;
pub mod limits;
mod path;
pub mod rate;
mod recovery;
mod replay_window;
mod session;
pub mod stats;
mod time;
pub mod too_large;
pub mod wire;

pub use address::Place;
pub use bucket::Allowance;
pub use class::{Class, Marking};
pub use clock::ClockView;
pub use config::{
    ChannelConfig, Config, HEARTBEAT, HEARTBEAT_BYTES_PER_SECOND, LinkConfig, MAX_CHANNELS,
    MAX_LINKS_PER_PEER, METERED_HEARTBEAT, METERED_HEARTBEAT_BYTES_PER_SECOND, MIN_DATAGRAM,
    RadioConfig, Rate, Rights,
};
pub use crypto::keys::{KeyError, PublicKey, SecretKey};
pub use delivery::inbox::Received;
pub use delivery::outbox::Message;
pub use ecn::{Ecn, EcnCounts, EcnUse};
pub use endpoint::Endpoint;
pub use endpoint::arrival::Arrival;
pub use endpoint::events::{Event, NoPath, Notice};
pub use endpoint::handles::{LinkMut, PeerMut, TeamMut};
pub use endpoint::membership::RemovedPeer;
pub use endpoint::network::Transmit;
pub use endpoint::rendezvous::DirectPath;
pub use endpoint::teams::{TeamLimits, TeamStats};
pub use endpoint::views::{LinkView, PeerView, RadioView};
pub use error::{OfferError, SendError, SetupError};
pub use ids::{ChannelId, LinkId, PeerId, RadioId, TeamId};
pub use path::mtu::MtuState;
pub use path::policy::{LinkPolicy, LinkSet, LinkUse, SWITCH_MARGIN};
pub use time::{Duration, Instant};
pub use wire::control::{DeliveryOrder, OfferedQos, OfferedTopic, Role};
pub use wire::packet::Verdict;
