// SPDX-License-Identifier: Apache-2.0
//! The addresses of both ends of a link, as each end knows its own and as the other sees it. They
//! differ where an address translator (NAT) is on the path.

use crate::time::{Duration, Instant};
use std::net::SocketAddr;

/// Interval at which the question is repeated until it is answered.
const ASK_INTERVAL: Duration = Duration::from_millis(250);

/// Whether two addresses are the same. The interface of a link-local address has another number at each end,
/// and is not compared.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// The known addresses at both ends of a link.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AddressDiscovery {
    /// The address from which this node sends, as the caller knows it.
    own: Option<SocketAddr>,
    /// The address from which this node sends, as the peer sees it.
    observed: Option<SocketAddr>,
    /// The address that the peer saw before, while the peer is asked again.
    former: Option<SocketAddr>,
    /// Whether the question was sent.
    is_asked: bool,
    /// When the question may be sent again.
    ask_at: Instant,
    /// Whether the peer's packets come from another address than the one from which it sends.
    is_peer_translated: Option<bool>,
    /// The address from which the peer's last question came, until this node has answered.
    answer: Option<SocketAddr>,
}

impl AddressDiscovery {
    /// Sets the address from which this node sends; returns whether it changed.
    pub(crate) fn set_own(&mut self, own: SocketAddr) -> bool {
        let is_changed = self.own != Some(own);
        if is_changed {
            self.own = Some(own);
            self.ask_again();
        }
        is_changed
    }

    /// Whether the peer has not answered yet.
    pub(crate) fn needs_answer(&self) -> bool {
        self.own.is_some() && self.observed.is_none()
    }

    /// The question for the peer, if it is due.
    pub(crate) fn take_question(&mut self, now: Instant) -> Option<SocketAddr> {
        let own = self.own.filter(|_| self.needs_answer() && self.ask_at <= now)?;
        (self.is_asked, self.ask_at) = (true, now + ASK_INTERVAL);
        Some(own)
    }

    /// Handles the peer's question. It came from `from`; the peer believes that it sends from
    /// `own`.
    pub(crate) fn on_question(&mut self, from: SocketAddr, own: SocketAddr) {
        self.answer = Some(from);
        let is_known = !own.ip().is_unspecified() && own.port() != 0;
        self.is_peer_translated = is_known.then_some(!is_same(own, from));
    }

    /// The answer to the peer's last question, once.
    pub(crate) fn take_answer(&mut self) -> Option<SocketAddr> {
        self.answer.take()
    }

    /// Handles the peer's answer that it sees this node at `observed`. Returns whether the peer saw
    /// the node elsewhere before.
    pub(crate) fn on_answer(&mut self, observed: SocketAddr) -> bool {
        if !self.needs_answer() || !self.is_asked {
            return false;
        }
        self.observed = Some(observed);
        self.former.replace(observed) != Some(observed)
    }

    /// Asks the peer again, since it may see this node at another address now.
    pub(crate) fn ask_again(&mut self) {
        (self.observed, self.is_asked) = (None, false);
    }

    /// Forgets what is known about the path, because the path has changed.
    pub(crate) fn forget_path(&mut self) {
        *self = Self { own: self.own, ask_at: self.ask_at, ..Self::default() };
    }

    /// Whether an address translator on this node's side is on the path; `None` until known.
    pub(crate) fn is_translated(&self) -> Option<bool> {
        Some(!is_same(self.own?, self.observed?))
    }

    /// Whether an address translator on the peer's side is on the path; `None` until known.
    pub(crate) fn is_peer_translated(&self) -> Option<bool> {
        self.is_peer_translated
    }

    /// The addresses at which other nodes may reach this node, once known: the address that the peer sees,
    /// and this node's own.
    pub(crate) fn addresses(&self) -> [Option<SocketAddr>; 2] {
        [self.observed, self.own.filter(|_| self.observed.is_some())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_translator_shows_in_the_observed_address() {
        let (own, outside) = (address("192.168.1.2:18470"), address("203.0.113.7:40000"));
        let mut ends = AddressDiscovery::default();
        assert!(!ends.on_answer(outside), "nothing was asked");
        assert!(ends.set_own(own) && !ends.set_own(own));
        let start = Instant::default();
        assert_eq!((ends.take_question(start), ends.is_translated()), (Some(own), None));
        assert_eq!(ends.take_question(start), None, "not with each packet");
        assert_eq!(ends.take_question(start + ASK_INTERVAL), Some(own));
        assert!(ends.on_answer(outside) && !ends.on_answer(own), "one answer counts");
        ends.ask_again();
        assert!(!ends.on_answer(own), "the question was not sent yet");
        assert_eq!(ends.take_question(start + 2 * ASK_INTERVAL), Some(own));
        assert!(!ends.on_answer(outside), "no news");
        assert_eq!((ends.needs_answer(), ends.is_translated()), (false, Some(true)));
        assert_eq!(ends.addresses(), [Some(outside), Some(own)]);
        ends.ask_again();
        let later = start + 3 * ASK_INTERVAL;
        assert_eq!((ends.take_question(later), ends.addresses()), (Some(own), [None, None]));
        assert!(ends.on_answer(own));
        assert_eq!(ends.is_translated(), Some(false));
    }

    #[test]
    fn the_peers_question_shows_its_translator_and_is_answered_once() {
        let (theirs, from) = (address("192.168.1.2:18470"), address("203.0.113.7:18470"));
        let mut ends = AddressDiscovery::default();
        for (own, is_translated) in
            [(theirs, Some(true)), (from, Some(false)), (address("0.0.0.0:18470"), None)]
        {
            ends.on_question(from, own);
            assert_eq!(ends.is_peer_translated(), is_translated, "{own}");
            assert_eq!((ends.take_answer(), ends.take_answer()), (Some(from), None));
        }
    }
}
