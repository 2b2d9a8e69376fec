// SPDX-License-Identifier: Apache-2.0
//! Tests of message types, and of either gateway between real nodes.

mod check;
mod compose;
mod frames;
mod hostile_types;
mod ros1;
mod ros2;
mod tf;
mod topics;
mod trust;
mod types;
