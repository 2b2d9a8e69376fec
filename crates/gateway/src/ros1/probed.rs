// SPDX-License-Identifier: Apache-2.0
//! Queries about other nodes, and their results.

use super::connection::{ConnectError, Description};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit of a first probe. A node that exceeds it leaves the slots of new probes and is
/// probed again among the retries.
const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const FIRST_PROBE_ERROR: &str = "no answer to the first probe within 1 s";

/// A question of discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Query {
    /// Where is `node`, and what does it publish on `topic`?
    Probe { topic: String, node: String, is_retry: bool },
    /// Is `node`, last seen at `uri`, alive, and which topics does it publish?
    Check { node: String, uri: String },
}

/// A publisher that was found.
#[derive(Debug)]
pub(super) struct LocatedPublisher {
    pub uri: String,
    pub description: Description,
}

/// The result of [`Query::Check`].
#[derive(Debug)]
pub(super) enum CheckResult {
    /// The node is at `uri` and publishes these topics, each with its type.
    Publishes { uri: String, topics: BTreeMap<String, String> },
    /// The node responds, but not with its publications.
    Responds,
    /// Nothing listens at `uri`.
    Gone,
    /// No response.
    Silent,
}

/// The result of a probe.
#[derive(Debug)]
pub(super) enum ProbeResult<T> {
    Found(T),
    /// Another Tautline node, or this one.
    Tautline,
    /// Nothing listens there; the reason, for a person.
    Ended(String),
    /// The reason, for a person.
    Failed(String),
}

impl<T> ProbeResult<T> {
    /// Runs a probe; the first one only for [`FIRST_PROBE_TIMEOUT`].
    pub async fn run(
        is_retry: bool,
        probe: impl Future<Output = Result<T, ConnectError>>,
    ) -> ProbeResult<T> {
        let result = match is_retry {
            true => Ok(probe.await),
            false => timeout(FIRST_PROBE_TIMEOUT, probe).await,
        };
        match result {
            Ok(Ok(found)) => Self::Found(found),
            Ok(Err(ConnectError::Tautline(_))) => Self::Tautline,
            Ok(Err(error)) if error.is_connection_refused() => Self::Ended(error.to_string()),
            Ok(Err(error)) => Self::Failed(error.to_string()),
            Err(_) => Self::Failed(FIRST_PROBE_ERROR.into()),
        }
    }
}
