// SPDX-License-Identifier: Apache-2.0
//! Waits that are not of our making: a radio that gathers packets, a download beside us, a way
//! that became longer. They are told apart by sending nothing until all of ours is gone.

use super::rival::Rival;
use crate::rate::FULL_PACKET;
use crate::time::{Duration, Instant, airtime};

/// With each measurement the most of late becomes less by this: by half in some seconds.
const PEAK_AGES: f64 = 1.0 - 1.0 / 256.0;
/// What part of a wait has to be left for it to be the same.
const SAME: f64 = 0.5;
/// Less than this part of what the way carried is far less.
const CUT: f64 = 0.75;
/// What is found to be less than this part of it counts,
const FAR_LESS: f64 = 0.6;
/// by so much.
const FALL: u32 = 16;
/// Who makes others wait so long fills a queue whatever they do.
const RIVAL: Duration = Duration::from_millis(20);
/// Two sights of a wait that cannot be ours are so far apart: one alone may be a machine's.
const SIGHTS_APART: Duration = Duration::from_millis(100);
const SIGHT_AGES: Duration = Duration::from_secs(2);
/// A test takes no more than one part in so many of all time,
const TEST_EVERY: u32 = 4;
/// and there is none for so long after one, where nothing tells that it would be different now.
const LEAST_REST: Duration = Duration::from_secs(2);
const MOST_REST: Duration = Duration::from_secs(60);
/// The queue of a rival varies anyway.
const RIVAL_REST: Duration = Duration::from_secs(8);
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
    rival: Rival,
    trouble: Option<Trouble>,
    test: Option<Test>,
    /// When packets first were seen to wait longer than ours can take, and how long.
    sight: Option<(Instant, Duration)>,
    /// The last test ended then, and no other is due for so long.
    tested: Instant,
    rest: Duration,
    /// The most of late that was sent, in bits per second.
    peak: f64,
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
#[derive(Debug, Default)]
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

/// What a report tells.
#[derive(Debug)]
pub(super) struct Seen {
    /// How long packets waited on average, all told.
    pub(super) waited: Duration,
    pub(super) packets: u64,
    /// When the newest of them left.
    pub(super) left: Instant,
    /// For how long all of ours that was under way can have kept the way busy.
    pub(super) ours: Duration,
    /// What the way may carry, in bits per second.
    pub(super) guess: f64,
}

/// What a test came to.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The wait is not ours.
    Foreign,
    /// Nor is this one, seen without a test.
    Sighted,
    /// Nothing yet: nothing is to be sent for so long once more.
    Again(Duration),
}

impl Foreign {
    /// What is to be taken off all waits. Those of others vary, so it is a little more than the
    /// last time.
    pub(super) fn wait(&self) -> Duration {
        self.wait * 5 / 4
    }

    /// Who fills the queue that packets wait in, if anybody does.
    pub(super) fn rival(&self) -> Option<&Rival> {
        (self.wait > RIVAL).then_some(&self.rival)
    }

    pub(super) fn rival_mut(&mut self) -> Option<&mut Rival> {
        (self.wait > RIVAL).then_some(&mut self.rival)
    }

    /// Packets wait, and less is sent than the `share` of the way until now.
    pub(super) fn trouble(&mut self, now: Instant, waited: Duration, share: f64) {
        self.trouble.get_or_insert(Trouble { since: now, waited, share });
    }

    /// Packets wait no longer than is meant, now that `share` is sent.
    pub(super) fn calm(&mut self, share: f64) {
        if self.rival().is_none() {
            self.rival.is_away();
        }
        self.trouble.take_if(|trouble| share > trouble.share * CUT);
    }

    /// How long a full packet takes in better times.
    fn packet(&self) -> Duration {
        airtime(FULL_PACKET, self.peak as u64)
    }

    /// Whether it is being found out what packets wait for.
    pub(super) fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// Begins a test if it is time for one: for how long nothing is to be sent.
    pub(super) fn test(&mut self, now: Instant, waits: &Waits) -> Option<Duration> {
        if self.tested == Instant::default() {
            (self.tested, self.rest) = (now, LEAST_REST);
        }
        let &Waits { waited, most, ours, share, drains, time } = waits;
        self.peak = share.max(self.peak * PEAK_AGES);
        let pause = ((self.wait() + waited).max(drains) + time).min(LONGEST_PAUSE);
        let urgent = self.lasts(now, waits) || self.rest.is_zero();
        let share = self.trouble.as_ref().map_or(share, |trouble| trouble.share.max(share));
        let rest = if urgent { pause * TEST_EVERY } else { self.rest };
        let since = now.since(self.tested);
        let worth = waited >= WORTH.max(self.packet().mul_f64(OWN)) && since >= rest;
        let due = self.rival().is_some() && since >= MOST_REST;
        if !worth && !due {
            return None;
        }
        self.trouble = None;
        self.begin(now + pause, Test { time, waited, most, ours, share, ..Test::default() });
        Some(pause)
    }

    fn begin(&mut self, until: Instant, test: Test) {
        self.tested = until;
        self.test = Some(Test { until, ..test });
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

    /// For how long packets waited again that waited longer than all of `ours` can take: it needs
    /// no test to know that they waited for others.
    fn sighted(&mut self, now: Instant, waited: Duration, ours: Duration) -> Option<Duration> {
        if self.test.is_some() || waited <= self.wait().max(ours) + RIVAL {
            self.sight = None;
            return None;
        }
        let fresh = self.sight.filter(|(first, _)| now.since(*first) <= SIGHT_AGES);
        let (first, before) = *self.sight.insert(fresh.unwrap_or((now, waited)));
        if now.since(first) < SIGHTS_APART {
            return None;
        }
        self.sight = None;
        Some(waited.min(before))
    }

    /// What a test came to, if `seen` ends one.
    pub(super) fn add(&mut self, now: Instant, seen: &Seen) -> Option<Verdict> {
        let &Seen { waited, packets, left, ours, guess } = seen;
        if waited < self.wait.mul_f64(FAR_LESS) {
            self.wait = self.wait - (self.wait - waited) / FALL;
        }
        if let Some(wait) = self.sighted(now, waited, ours) {
            match &self.trouble {
                _ if self.rival().is_some() => {}
                Some(trouble) => self.rival.found(now, trouble.share),
                None => self.rival.sighted(now, guess),
            }
            self.wait = wait;
            return Some(Verdict::Sighted);
        }
        let test = self.test.as_mut().filter(|test| left >= test.until)?;
        test.seen.0 += waited * u32::try_from(packets).unwrap_or(u32::MAX);
        test.seen.1 += packets;
        let test = self.test.take_if(|test| left >= test.until + test.time)?;
        self.conclude(now, test)
    }

    fn conclude(&mut self, now: Instant, test: Test) -> Option<Verdict> {
        let waited = test.seen.0 / u32::try_from(test.seen.1).unwrap_or(u32::MAX).max(1);
        let still = waited.saturating_sub(self.wait());
        let packet = self.packet();
        // A queue of ours is not seen where packets are few: some of the wait is taken for ours.
        let ours = test.ours.max(test.waited / 3);
        if test.waited.saturating_sub(still) >= ours.mul_f64(SAME) {
            self.rest = (self.rest * 2).clamp(LEAST_REST, MOST_REST);
            let less = waited.saturating_sub(packet);
            if less < self.wait.mul_f64(FAR_LESS) {
                self.wait = less;
            }
            return None;
        }
        self.rest = Duration::ZERO;
        if still > test.most * 2 {
            // It had not been seen whole, or still grows: nothing is known of it yet.
            let pause = (waited + test.time).min(LONGEST_PAUSE);
            let again = Test { waited: still, most: still, seen: (Duration::ZERO, 0), ..test };
            self.begin(now + pause, again);
            return Some(Verdict::Again(pause));
        }
        self.wait += still.saturating_sub(packet);
        self.rival.found(now, test.share);
        if self.rival().is_some() {
            self.rest = RIVAL_REST;
        }
        Some(Verdict::Foreign)
    }
}
