// SPDX-License-Identifier: Apache-2.0
//! Shared code for tests, fuzzing and the lab. Products do not depend on this crate; features
//! select its parts, so that each user builds only what it needs.
//!
//! | module | feature | contents |
//! |---|---|---|
//! | `net` | | endpoints of the protocol in virtual time, over seeded pipes |
//! | `attacker` | | a node under attack in virtual time; a peer that draws its actions from bytes |
//! | `peer` | | a hand-made peer with a valid key, over a socket |
//! | `http` | | XML-RPC over HTTP |
//! | `again` | | tests that need a separate process or network |
//! | `wait` | | conditions with a deadline |
//! | `skip` | | tests that cannot be judged on this machine |
//! | `ros` | `ros` | ROS programs that tests control, masters, and a gateway that records its events |
//! | `reference` | `node` | the text of the pages on the files of the daemon |
//! | `running` | `node` | daemons, nodes in the process of the test, separate networks |
//!
//! A program under test is an argument: `env!("CARGO_BIN_EXE_tautline")` exists only in the package
//! that builds it.
#![allow(missing_docs, reason = "the names of small helpers say what they do")]

pub mod again;
pub mod attacker;
pub mod http;
pub mod net;
pub mod peer;
#[cfg(feature = "node")]
pub mod reference;
#[cfg(feature = "ros")]
pub mod ros;
#[cfg(feature = "node")]
pub mod running;
pub mod skip;
pub mod wait;
