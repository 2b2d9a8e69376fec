// SPDX-License-Identifier: Apache-2.0
//! Message types known at run time, and the conversion of messages between ROS 1 and ROS 2.
//!
//! ```text
//! text of a definition ─▶ definition::Schema ─▶ hash: md5 (ROS 1), RIHS01 (ROS 2) ─▶ trust
//!                               │
//!                               ├─ two of them ─▶ transcode::Transcoder: bytes to bytes
//!                               ├─ one of them ─▶ check::Checker: whether bytes are of the type
//!                               └─ with values in YAML ─▶ compose: bytes
//! ```
//! Only `installed` has I/O: it reads `.msg` and `.srv` files. Definitions come from peers, and are
//! untrusted until parsed.

pub mod action;
pub mod check;
pub mod compose;
mod constants;
pub mod definition;
pub mod derive;
pub mod hash;
pub mod installed;
pub mod own;
mod service_parts;
pub mod transcode;
pub mod translate;
pub mod trust;

pub use definition::{Dialect, Schema};
pub use transcode::Transcoder;
