// SPDX-License-Identifier: Apache-2.0
//! The packets of a link as their receiver ([`received`]) and their sender ([`sent`]) know them:
//! acknowledgements, round trips, loss detection.

pub(crate) mod ecn;
pub(crate) mod received;
mod reorder;
pub(crate) mod sent;
