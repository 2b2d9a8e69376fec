// SPDX-License-Identifier: Apache-2.0
//! What the way last carried while packets waited. Where stations take turns on a channel, a
//! queue shows only when it is too late: a few percent less and none is seen at all. So near
//! the ceiling growth is gentle for long, as CUBIC's plateau is (RFC 9438).

/// From this part of the ceiling on.
const NEAR: f64 = 0.93;
/// More than so much of it, and it was none.
const BEYOND: f64 = 1.2;

/// In bits per second, if it is known.
#[derive(Debug, Default)]
pub(super) struct Ceiling(Option<f64>);

/// How what is sent may grow.
#[derive(Debug, PartialEq)]
pub(super) enum Growth {
    Gently,
    /// Up to so many bits per second.
    UpTo(f64),
}

impl Ceiling {
    /// Packets waited while the way carried so much. A first ceiling is `share`, and only where
    /// packets waited for more than they usually do: else it may be no queue that they met.
    pub(super) fn follow(&mut self, carried: f64, gain: f64, share: f64, unusual: bool) {
        self.0 = match self.0 {
            Some(ceiling) => Some(ceiling + gain * (carried - ceiling)),
            None => unusual.then_some(share),
        };
    }

    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// From `share` on; a way that is `clear` is not near its ceiling.
    pub(super) fn growth(&mut self, share: f64, clear: bool) -> Growth {
        match self.0 {
            Some(ceiling) if share < NEAR * ceiling => Growth::UpTo(NEAR * ceiling),
            Some(ceiling) if !clear && share <= BEYOND * ceiling => Growth::Gently,
            _ => {
                self.0 = None;
                Growth::UpTo(f64::INFINITY)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_gentle_near_what_the_way_carried_while_packets_waited() {
        let mut ceiling = Ceiling::default();
        assert_eq!(ceiling.growth(1e6, false), Growth::UpTo(f64::INFINITY));
        ceiling.follow(2e6, 0.25, 2e6, false);
        assert_eq!(ceiling.growth(1e6, false), Growth::UpTo(f64::INFINITY), "a usual wait");
        ceiling.follow(2e6, 0.25, 2e6, true);
        assert_eq!(ceiling.growth(1e6, false), Growth::UpTo(0.93 * 2e6));
        assert_eq!(ceiling.growth(0.93 * 2e6, false), Growth::Gently);
        assert_eq!(ceiling.growth(1.2 * 2e6, false), Growth::Gently);
        assert_eq!(ceiling.growth(1.21 * 2e6, false), Growth::UpTo(f64::INFINITY));
        assert_eq!(ceiling.growth(2e6, false), Growth::UpTo(f64::INFINITY), "forgotten");
    }

    #[test]
    fn a_clear_way_is_not_near_its_ceiling() {
        let mut ceiling = Ceiling::default();
        ceiling.follow(2e6, 0.25, 2e6, true);
        assert_eq!(ceiling.growth(2e6, true), Growth::UpTo(f64::INFINITY));
    }
}
