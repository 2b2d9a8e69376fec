// SPDX-License-Identifier: Apache-2.0
//! The raw samples of a sender.

use anyhow::{Context, Result};
use std::path::Path;

/// A message and one of its echoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Number of the message, from 0.
    pub sequence: u64,
    /// Time of publishing.
    pub sent_ns: u64,
    /// Time at which the echo reached the callback; 0 if it did not.
    pub received_ns: u64,
}

impl Echo {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(',').map(|field| field.parse::<u64>().ok());
        let (sequence, _echoer, sent_ns, received_ns) =
            (fields.next()??, fields.next()??, fields.next()??, fields.next()??);
        fields.next().is_none().then_some(Self { sequence, sent_ns, received_ns })
    }

    /// Returns the round trip; `None` if the echo did not reach the callback.
    pub fn rtt_ms(self) -> Option<f64> {
        (self.received_ns > 0).then(|| self.received_ns.saturating_sub(self.sent_ns) as f64 / 1e6)
    }
}

/// Reads the raw samples of a sender.
pub fn read(file: &Path) -> Result<Vec<Echo>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("no samples in {}", file.display()))?;
    let parse = |(index, line)| {
        Echo::parse(line).with_context(|| {
            format!(
                "{}:{}: '{line}' is not sequence,echoer,sent_ns,received_ns",
                file.display(),
                index + 1
            )
        })
    };
    text.lines().enumerate().skip(1).map(parse).collect()
}
