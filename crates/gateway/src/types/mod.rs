// SPDX-License-Identifier: Apache-2.0
//! Message types known only at run time, and the way between ROS 1's bytes and ROS 2's.
//!
//! ```text
//! text of a definition ─▶ definition::Schema ─▶ hash: md5 (ROS 1), RIHS01 (ROS 2) ─▶ trust
//!                               │
//!                               ├─ two of them ─▶ transcode::Transcoder: bytes to bytes
//!                               └─ with values that a person wrote ─▶ compose: bytes
//! ```
//! Pure but for `installed`, which reads `.msg` and `.srv` files. Definitions come from peers, and are
//! hostile until parsed.

pub mod compose;
pub mod definition;
pub mod derive;
pub mod hash;
pub mod installed;
pub mod own;
pub mod transcode;
pub mod translate;
pub mod trust;

pub use definition::{Dialect, Schema};
pub use transcode::Transcoder;
