// SPDX-License-Identifier: Apache-2.0
//! Cases of two computers: the same load over Tautline and over plain ROS, on one link.

pub mod case;
pub mod report;
pub mod runs;
pub mod trial;
