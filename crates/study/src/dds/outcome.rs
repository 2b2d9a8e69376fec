// SPDX-License-Identifier: Apache-2.0
//! Outcome classes as in Table 4 of the paper, decided from the samples.

use serde::Serialize;

/// Deadline of the paper, milliseconds.
pub const DEADLINE_MS: f64 = 100.0;
/// Largest fraction of messages that may exceed the deadline, since the machine may be busy.
const LATE_SHARE: f64 = 0.05;

/// A system's result with a message size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All messages arrived, and at least 95 % within [`DEADLINE_MS`].
    Fine,
    /// All messages arrived, but more than 5 % later.
    DeadlineMissed,
    /// Messages did not arrive.
    Loss,
    /// Publishing did not end, or a program no longer answered.
    Halt,
    /// The programs ended with an error before the first message.
    ConfigurationError,
    /// The system has no such case.
    Unsupported,
}

impl Outcome {
    /// Determines the outcome. `planned` messages were to be published, and `sent` were (`None` if
    /// publishing did not end); `delays` has the delay of each message that arrived, in milliseconds.
    pub fn new(planned: u64, sent: Option<u64>, delays: &[f64]) -> Self {
        let arrived = delays.len() as u64;
        let late = delays.iter().filter(|delay| **delay > DEADLINE_MS).count();
        match sent {
            Some(sent) if sent >= planned => {
                if arrived < planned {
                    Self::Loss
                } else if late as f64 > LATE_SHARE * delays.len() as f64 {
                    Self::DeadlineMissed
                } else {
                    Self::Fine
                }
            }
            _ => Self::Halt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_follow_from_counts_and_delays() {
        let mut delays = vec![1.0; 100];
        assert_eq!(Outcome::new(100, Some(100), &delays), Outcome::Fine);
        delays[..6].fill(101.0);
        assert_eq!(Outcome::new(100, Some(100), &delays), Outcome::DeadlineMissed);
        assert_eq!(Outcome::new(100, Some(100), &delays[..99]), Outcome::Loss);
        assert_eq!(Outcome::new(100, Some(100), &[]), Outcome::Loss);
        assert_eq!(Outcome::new(100, Some(70), &delays[..70]), Outcome::Halt);
        assert_eq!(Outcome::new(100, None, &delays), Outcome::Halt);
    }
}
