// SPDX-License-Identifier: Apache-2.0
//! Tests of the radio model through its public items, one module for each behaviour.

mod access_point;
mod contention;
mod determinism;
mod edca;
mod hidden;
mod interference;
mod loss;
mod motion;
mod net;
mod outage;
mod pipes;
mod saturation;
