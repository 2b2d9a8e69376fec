// SPDX-License-Identifier: Apache-2.0
//! ROS 2 at either end of Tautline. So far only its names; the DDS participant is to come.

pub mod graph;
pub mod names;
