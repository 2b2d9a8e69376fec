// SPDX-License-Identifier: Apache-2.0
//! How packets reach a peer: its links, the radios that links share as bottlenecks, and link
//! selection.

pub(crate) mod address_discovery;
pub(crate) mod headroom;
pub(crate) mod interleaving;
pub(crate) mod link;
pub(crate) mod links;
pub(crate) mod mtu;
pub(crate) mod policy;
pub(crate) mod radio;
pub(crate) mod redundancy;
pub(crate) mod relay_window;
pub(crate) mod select;
pub(crate) mod source;
pub(crate) mod trial;
