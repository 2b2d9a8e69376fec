// SPDX-License-Identifier: Apache-2.0
//! How packets reach a peer: links, the radios that they share as bottlenecks, and the choice
//! between them.

pub(crate) mod headroom;
pub(crate) mod link;
pub(crate) mod radio;
pub(crate) mod relay_window;
pub(crate) mod select;
