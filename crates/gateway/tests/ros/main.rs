// SPDX-License-Identifier: Apache-2.0
//! Either gateway between real nodes.

mod bench;
mod ros1;
mod ros2;
