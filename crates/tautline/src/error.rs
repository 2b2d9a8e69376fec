// SPDX-License-Identifier: Apache-2.0
//! The reasons why a node cannot start or continue, or does not answer.

use std::io;
use std::net::SocketAddr;

/// Implements `Debug` as `Display`: a `main` that returns such an error then prints it for a person.
macro_rules! show_as_text {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, out)
            }
        }
    )+};
}
pub(crate) use show_as_text;

show_as_text!(SystemError, OpenError, RunError, AskError);

/// The kernel refused a basic operation.
#[derive(thiserror::Error)]
#[error("{what}: {error}")]
pub struct SystemError {
    /// The operation that was tried.
    pub what: &'static str,
    /// The error of the system.
    pub error: io::Error,
}

/// The reason why a node cannot start.
#[derive(thiserror::Error)]
pub enum OpenError {
    /// The port or address cannot be used.
    #[error("cannot listen on {address} (listen:): {error}{}", listen_advice(error))]
    Listen {
        /// The address and port from the configuration.
        address: SocketAddr,
        /// The error of the system.
        error: io::Error,
    },
    /// The kernel refused a basic operation.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The node's own key cannot be used.
    #[error(transparent)]
    Key(#[from] crate::keys::KeyFileError),
    /// The names in the configuration do not fit the protocol.
    #[error(transparent)]
    Setup(#[from] tautline_proto::SetupError),
}

/// The reason why a node cannot continue.
#[derive(thiserror::Error)]
pub enum RunError {
    /// The kernel refused a basic operation.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A thread that the node needs has ended.
    #[error("the thread '{thread}' has {how}; the daemon stops, because it cannot work without it")]
    Thread {
        /// The name.
        thread: String,
        /// How it ended: by a panic, or otherwise.
        how: &'static str,
    },
}

/// The reason why a running node does not do what was requested.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
    /// The node is too busy. Nothing was changed.
    #[error("the node does not answer")]
    Busy,
    /// The node refuses, for this reason. Nothing was changed.
    #[error("{0}")]
    Refused(String),
}

impl From<AskError> for String {
    fn from(error: AskError) -> Self {
        error.to_string()
    }
}

fn listen_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; is another tautline running?",
        io::ErrorKind::AddrNotAvailable => {
            "; no interface has this address now; '[::]:PORT' listens on all addresses"
        }
        _ => "",
    }
}
