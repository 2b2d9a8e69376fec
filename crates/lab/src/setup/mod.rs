// SPDX-License-Identifier: Apache-2.0
//! Set-up of benches and studies: computers and links, daemons, ROS programs, and the measurement of what they
//! use.

pub mod daemon;
pub mod ends;
pub mod flows;
pub mod iperf;
pub mod load;
pub mod node;
pub mod ros;
pub mod stress;
pub mod traffic;
pub mod usage;
pub mod world;
