// SPDX-License-Identifier: Apache-2.0
//! Figures of J. Park, R. Delgado, B. W. Choi, *Real-Time Characteristics of ROS 2.0 in Multiagent
//! Robot Systems: An Empirical Study*, IEEE Access, 2020 ("the paper").
//!
//! The paper's ROS 1 ran on a standard kernel, its ROS 2 on a kernel with PREEMPT_RT. Unless stated
//! otherwise, a pair has the values without and with stress-ng.

/// Largest scheduling latency of the standard kernel, microseconds.
pub const LATENCY_STANDARD_US: [f64; 2] = [290.0, 1280.0];
/// Largest scheduling latency with PREEMPT_RT, microseconds.
pub const LATENCY_PREEMPT_RT_US: [f64; 2] = [11.0, 26.0];

/// Periods of the four nodes, milliseconds.
pub const NODE_PERIODS_MS: [u64; 4] = [5, 10, 50, 100];
/// SCHED_FIFO priorities of the four nodes.
pub const NODE_PRIORITIES: [u8; 4] = [97, 96, 95, 94];
/// Largest jitter of the nodes of ROS 1, milliseconds, by stress, then by node.
pub const JITTER_ROS1_MS: [[f64; 4]; 2] = [[3.01, 4.58, 0.148, 0.142], [11.9, 14.2, 8.5, 4.4]];
/// Like [`JITTER_ROS1_MS`], for ROS 2.
pub const JITTER_ROS2_MS: [[f64; 4]; 2] =
    [[0.055, 0.051, 0.051, 0.097], [0.192, 0.162, 0.176, 0.139]];

/// Periods and deadlines of the four tasks, milliseconds.
pub const TASK_PERIODS_MS: [u64; 4] = [10, 20, 40, 80];
/// Execution times of the four tasks, milliseconds.
pub const TASK_EXECUTIONS_MS: [u64; 4] = [3, 5, 10, 15];
/// SCHED_FIFO priorities of the four tasks.
pub const TASK_PRIORITIES: [u8; 4] = [99, 98, 97, 96];
/// Worst-case response times that the paper states, milliseconds.
pub const RESPONSES_MS: [f64; 4] = [3.0, 5.0, 21.0, 50.0];
/// Largest response times that the paper measured with ROS 1.
pub const RESPONSES_ROS1_MS: [f64; 4] = [81.8, 36.8, 68.2, 99.1];
/// Largest response times that the paper measured with ROS 2.
pub const RESPONSES_ROS2_MS: [f64; 4] = [3.03, 5.04, 21.03, 50.04];

/// Largest round trip of ROS 1 with 100 B at 10 and 20 Hz, idle, milliseconds.
pub const ROUND_TRIP_ROS1_SLOW_IDLE_MS: f64 = 0.29;
/// Largest round trip of ROS 1 from 100 Hz on, idle.
pub const ROUND_TRIP_ROS1_FAST_IDLE_MS: f64 = 40.0;
/// Largest round trip of ROS 1 at 10 and 20 Hz with 30 Mbps of iperf3.
pub const ROUND_TRIP_ROS1_SLOW_TRAFFIC_MS: f64 = 50.0;
/// Largest round trip of ROS 1 at 100 Hz with 30 Mbps of iperf3; the paper states "over" this
/// value.
pub const ROUND_TRIP_ROS1_FAST_TRAFFIC_MS: f64 = 119.0;
/// Range of the largest round trips of ROS 2 up to 100 Hz.
pub const ROUND_TRIP_ROS2_MS: [f64; 2] = [0.4, 0.9];
/// Largest round trip of ROS 2 at 200 Hz with 30 Mbps of iperf3.
pub const ROUND_TRIP_ROS2_200_TRAFFIC_MS: f64 = 2.7;

/// Lost and sent messages of ROS 1 with 10^5 bytes, at 100 Hz and at 200 Hz. The paper states that no
/// message of up to 10^4 bytes was lost.
pub const LOST_ROS1: [[u32; 2]; 2] = [[46_164, 180_000], [134_259, 360_000]];
/// Like [`LOST_ROS1`], for ROS 2.
pub const LOST_ROS2: [[u32; 2]; 2] = [[179_907, 180_000], [359_859, 360_000]];
