// SPDX-License-Identifier: Apache-2.0
//! Whether the messages of a fleet fit on its radio, before the robots drive.
//!
//! The method is response-time analysis on airtime (Park, Delgado and Choi, 2020, equation 1): a
//! message waits for packets of lower priority that the kernel already holds, for all messages of its
//! station that precede it, and for other stations, which contend by the rules of 802.11's DCF
//! (Bianchi, 2000).

mod answers;
mod assessment;
mod backoff;
mod contention;
mod delays;
pub mod inputs;
mod load;
mod measurable;
mod queue;
mod radios;
mod response;
mod rivals;
mod spread;
mod sweep;
mod team;
mod traffic;
mod warnings;

pub use answers::{
    AdditionalRobots, OutageEffect, RadioShare, ReducedTopic, TeamPlan, TopicPlan, Waiting,
    WorstCase,
};
pub use assessment::{Assessment, FlowForecast};
pub use measurable::channel_model;
pub use radios::Radios;
pub use spread::Links;
pub use sweep::{Axis, Point, Sweep, TopicDelays};
pub use team::{Radio, RadioLoad, Team, Traffic};
pub use traffic::{Channel, Fleet, Flow};
pub use warnings::with_warnings;
