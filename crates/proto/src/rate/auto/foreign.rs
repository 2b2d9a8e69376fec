// SPDX-License-Identifier: Apache-2.0
//! Waits that are not of our making: a radio that gathers packets, a download beside us, a way
//! that became longer. They are told apart by sending nothing until all of ours is gone.

use crate::rate::FULL_PACKET;
use crate::time::{Duration, Instant, airtime};

/// What part of a wait has to be left for it to be the same.
const SAME: f64 = 0.5;
/// Less than this part of what the way carried is far less.
const CUT: f64 = 0.75;
/// What is found to be less than this part of it counts,
const FAR_LESS: f64 = 0.6;
/// by so much.
const FALL: u32 = 16;
/// Who makes others wait so long would take all from whoever gives way,
const RIVAL: Duration = Duration::from_millis(30);
/// who therefore keeps this part of what the way carried before.
const CLAIM: f64 = 0.25;
/// A test takes no more than one part in so many of all time,
const TEST_EVERY: u32 = 4;
/// and there is none for so long after one, where nothing tells that it would be different now.
const LEAST_REST: Duration = Duration::from_secs(2);
const MOST_REST: Duration = Duration::from_secs(60);
/// None takes longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Shorter waits are not worth one,
const WORTH: Duration = Duration::from_millis(4);
/// nor those of so many packets: for half a one before it, and for itself where others are short.
const OWN: f64 = 1.5;

/// How long packets wait whatever is sent.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    wait: Duration,
    /// Of what the way carried before others did.
    claim: f64,
    trouble: Option<Trouble>,
    test: Option<Test>,
    /// The last test ended then, and no other is due for so long.
    tested: Instant,
    rest: Duration,
}

/// How packets wait now.
#[derive(Debug)]
pub(super) struct Waits {
    /// So long on average, beside what is known not to be ours.
    pub(super) waited: Duration,
    /// The longer of the two averages of late.
    pub(super) most: Duration,
    /// Of that, so much if what waits is ours.
    pub(super) ours: Duration,
    /// What is sent, in bits per second.
    pub(super) share: f64,
    /// How long a full packet takes in better times.
    pub(super) packet: Duration,
    /// All that is under way would have arrived after so long, if it is ours that waits.
    pub(super) drains: Duration,
    /// From when a packet leaves until its report comes.
    pub(super) time: Duration,
}

/// Packets began to wait.
#[derive(Debug)]
struct Trouble {
    since: Instant,
    /// How long they did.
    waited: Duration,
    /// What the way carried until then.
    share: f64,
}

/// Nothing is sent for a while, and then for a time it is seen how long packets wait.
#[derive(Debug)]
struct Test {
    until: Instant,
    time: Duration,
    /// Their waits together, and packets.
    seen: (Duration, u64),
    /// How much longer than thought packets waited before, and by how much that would become
    /// shorter if they waited for ours.
    waited: Duration,
    most: Duration,
    ours: Duration,
    /// What the way carried before all this.
    share: f64,
}

impl Foreign {
    /// What is to be taken off all waits. Those of others vary, so it is a little more than the
    /// last time.
    pub(super) fn wait(&self) -> Duration {
        self.wait * 5 / 4
    }

    /// What is sent at least, in bits per second: beside one who fills a queue whatever others do,
    /// a part of what the way carried before.
    pub(super) fn claim(&self) -> f64 {
        if self.wait > RIVAL { self.claim } else { 0.0 }
    }

    /// Packets wait, and less is sent than the `share` of the way until now.
    pub(super) fn trouble(&mut self, now: Instant, waited: Duration, share: f64) {
        self.trouble.get_or_insert(Trouble { since: now, waited, share });
    }

    /// Packets wait no longer than is meant, now that `share` is sent.
    pub(super) fn calm(&mut self, share: f64) {
        self.trouble.take_if(|trouble| share > trouble.share * CUT);
    }

    /// Begins a test if it is time for one: for how long nothing is to be sent.
    pub(super) fn test(&mut self, now: Instant, waits: &Waits) -> Option<Duration> {
        if self.tested == Instant::default() {
            (self.tested, self.rest) = (now, LEAST_REST);
        }
        let &Waits { waited, most, ours, share, packet, drains, time } = waits;
        let pause = ((self.wait() + waited).max(drains) + time).min(LONGEST_PAUSE);
        let urgent = self.lasts(now, waits) || self.rest.is_zero();
        let rest = if urgent { pause * TEST_EVERY } else { self.rest };
        if waited < WORTH.max(packet.mul_f64(OWN)) || now.since(self.tested) < rest {
            return None;
        }
        let until = now + pause;
        let share = self.trouble.take().map_or(share, |trouble| trouble.share.max(share));
        self.tested = until;
        self.test =
            Some(Test { until, time, waited, most, ours, share, seen: (Duration::ZERO, 0) });
        Some(pause)
    }

    /// Whether packets still wait although for some time far less has been sent than before
    /// they did.
    fn lasts(&self, now: Instant, waits: &Waits) -> bool {
        let Some(trouble) = &self.trouble else { return false };
        let lasted = now.since(trouble.since) > trouble.waited * 2 + waits.time * 3;
        let cut = waits.share < trouble.share * CUT;
        let same = waits.waited >= trouble.waited.mul_f64(SAME);
        lasted && cut && same
    }

    /// Packets waited so long on average, all told; the newest left at `left`. Whether that ends
    /// a test by which the wait is not ours.
    pub(super) fn add(&mut self, waited: Duration, packets: u64, left: Instant) -> bool {
        if waited < self.wait.mul_f64(FAR_LESS) {
            self.wait = self.wait - (self.wait - waited) / FALL;
        }
        let Some(test) = self.test.as_mut().filter(|test| left >= test.until) else { return false };
        test.seen.0 += waited * u32::try_from(packets).unwrap_or(u32::MAX);
        test.seen.1 += packets;
        let Some(test) = self.test.take_if(|test| left >= test.until + test.time) else {
            return false;
        };
        let waited = test.seen.0 / u32::try_from(test.seen.1).unwrap_or(u32::MAX).max(1);
        let left = waited.saturating_sub(self.wait());
        // A queue of ours is not seen where packets are few: some of the wait is taken for ours.
        let ours = test.ours.max(test.waited / 3);
        if test.waited.saturating_sub(left) >= ours.mul_f64(SAME) {
            self.rest = (self.rest * 2).clamp(LEAST_REST, MOST_REST);
            self.wait = self.wait.min(waited);
            return false;
        }
        self.rest = Duration::ZERO;
        if left > test.most * 2 {
            // It had not been seen whole, or still grows: nothing is known of it yet.
            self.trouble = Some(Trouble { since: test.until, waited: left, share: test.share });
            return false;
        }
        self.wait += left.saturating_sub(airtime(FULL_PACKET, test.share as u64));
        self.claim = test.share * CLAIM;
        true
    }
}
