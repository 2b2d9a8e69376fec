// SPDX-License-Identifier: Apache-2.0
//! Pairing: two machines exchange names, public keys and topics under a short code that a person
//! carries from one to the other. [spec/pairing.md](../../../../spec/pairing.md) specifies it.
//! Everything here is pure; `cli/pair/` has the sockets, files and questions.
//!
//! | module | contents |
//! |---|---|
//! | `code` | the code and its public part |
//! | `wire` | datagrams and frames |
//! | `exchange` | the key agreement and the sealed frames |
//! | `facts` | what the two ends say about themselves |
//! | `plan` | which topics cross, under which names, and which commands are accepted |
//! | `file` | the text of the files |
//! | `extend` | new lines in a file that exists |

pub mod code;
pub mod exchange;
pub mod extend;
pub mod facts;
pub mod file;
pub mod plan;
pub mod wire;

pub use code::Code;

use std::time::Duration;

/// Version of the pairing protocol, in every query and HELLO.
pub const VERSION: u8 = 1;
/// TCP port on which the base waits. It has the number of the daemon's UDP port.
pub const PORT: u16 = tautline::config::DEFAULT_PORT;
/// UDP port of queries and answers. It differs from the daemon's port, which the daemon holds.
pub const SEARCH_PORT: u16 = 18471;
tautline_proto::limits! {
    /// Number of wrong codes after which the base ends the pairing.
    pub const TRIES: u8 = 3;
    /// Pause after a wrong code, before the next one is checked.
    pub const PAUSE: Duration = Duration::from_secs(1);
    /// Connections at the base that have not proved the code. If there are more, the oldest connection of
    /// the address with the most connections ends.
    pub const MAX_STRANGERS: usize = 32;
    /// Time in which a connection must prove the code.
    pub const STRANGER_TIME: Duration = Duration::from_secs(10);
    /// Bytes of a frame before the code is proved.
    pub const MAX_OPEN: usize = 256;
    /// Bytes of a frame after the code is proved.
    pub const MAX_SEALED: usize = 512 << 10;
    /// Answers of a base to queries per second and address family.
    pub const ANSWERS_PER_SECOND: u32 = 20;
    /// Bases that a robot tries in one run: each may be an attacker, who gets one guess.
    pub const MAX_BASES: usize = 3;
    /// Addresses of one base that a robot tries.
    pub const MAX_ADDRESSES: usize = 16;
}
