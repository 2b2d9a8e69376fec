// SPDX-License-Identifier: Apache-2.0
//! The copies of a message that several links carry.

/// The copy of a message on one link.
#[derive(Debug)]
struct LinkCopy {
    link: u8,
    /// First byte not yet sent.
    next: u32,
}

/// The copies of a message, at most one on each link. A lost range is repaired immediately, although
/// another copy of it may still arrive: that copy may be on a slow link.
#[derive(Debug)]
pub(super) struct Copies {
    /// Copies to be sent, those in `begun` included.
    wanted: u8,
    begun: Vec<LinkCopy>,
}

impl Copies {
    /// `wanted` copies, of which none has begun.
    pub(super) fn new(wanted: u8) -> Self {
        Self { wanted, begun: Vec::new() }
    }

    /// First byte that a link has not sent; `None` if it carries no copy.
    pub(super) fn next_on(&self, link: u8) -> Option<u32> {
        match self.begun.iter().find(|copy| copy.link == link) {
            Some(copy) => Some(copy.next),
            None => (self.begun.len() < usize::from(self.wanted)).then_some(0),
        }
    }

    /// Bytes still to be sent of a message of `extent` bytes.
    pub(super) fn waiting_bytes(&self, extent: u32) -> u64 {
        let begun: u64 = self.begun.iter().map(|copy| u64::from(extent - copy.next)).sum();
        let others = u64::from(self.wanted).saturating_sub(self.begun.len() as u64);
        begun + others * u64::from(extent)
    }

    /// Records that a link has sent its copy up to `next`.
    pub(super) fn on_sent(&mut self, link: u8, next: u32) {
        match self.begun.iter_mut().find(|copy| copy.link == link) {
            Some(copy) => copy.next = next,
            None => self.begun.push(LinkCopy { link, next }),
        }
    }

    /// Ends the copy of a link that is down. If one copy is left, the message is no longer
    /// duplicated, and the result is the byte at which that copy continues.
    pub(super) fn abandon(&mut self, link: u8) -> Option<u32> {
        let index = self.begun.iter().position(|copy| copy.link == link)?;
        let gone = self.begun.remove(index);
        self.wanted -= 1;
        // If there was no other copy, the losses of this one are already being repaired.
        (self.wanted <= 1).then(|| self.begun.pop().unwrap_or(gone).next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_is_sent_once() {
        let mut copies = Copies::new(2);
        assert_eq!((copies.next_on(0), copies.next_on(1)), (Some(0), Some(0)));
        assert_eq!(copies.waiting_bytes(1000), 2000);
        copies.on_sent(0, 600);
        copies.on_sent(1, 1000);
        let next = [0, 1, 2].map(|link| copies.next_on(link));
        assert_eq!(next, [Some(600), Some(1000), None]);
        assert_eq!(copies.waiting_bytes(1000), 400);
    }

    #[test]
    fn the_last_copy_continues() {
        let mut copies = Copies::new(3);
        copies.on_sent(0, 600);
        copies.on_sent(1, 1000);
        assert_eq!(copies.abandon(2), None, "it has no copy");
        assert_eq!(copies.abandon(1), None, "two are left");
        copies.on_sent(2, 100);
        assert_eq!(copies.abandon(2), Some(600));
    }
}
