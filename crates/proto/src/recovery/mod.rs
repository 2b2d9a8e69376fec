// SPDX-License-Identifier: Apache-2.0
//! Which packets of a link arrived, as the receiver ([`received`]) and the sender ([`sent`]) know
//! it: acknowledgements, round trips, losses.

pub(crate) mod received;
pub(crate) mod sent;
