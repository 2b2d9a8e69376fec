// SPDX-License-Identifier: Apache-2.0
//! The session with one peer: which of its lives we talk to, and under which keys.
//!
//! Keys come and go, every two minutes and after every outage; a session lasts
//! while both nodes live. Handshakes that cross do no harm: all keys of one
//! session are good for receiving, the newest for sending.

use crate::address::Place;
use crate::bucket::{Allowance, Bucket};
use crate::config::{KEYS_LIFE, REKEY_AFTER};
use crate::crypto::gate::{Jar, Proof};
use crate::crypto::keys::{KEY, PublicKey, SecretKey};
use crate::crypto::noise::{Called, Caller, Split};
use crate::crypto::seal::Sealer;
use crate::limits;
use crate::time::{Duration, Instant};
use crate::wire::packet::{Answer, Call, Cookie, Greeting, MAC, Verdict, start_answer, start_call};
use std::collections::VecDeque;

/// A call is repeated as it is for so long; then another is made.
const CALL_LIFE: Duration = Duration::from_secs(5);
/// Answers not yet used by their callers.
const MAX_ANSWERED: usize = 4;
/// Calls at once with a cookie: twice as often as a peer is sought.
const COOKIE_CALLS: Allowance = Allowance { burst: 2, per_second: 12 };
/// Answers to our calls that are opened: each costs a key agreement of about 50 us. Whoever hears
/// a call and knows our public key can make some that do not hold; among ten times as many a true
/// one is opened within a few calls.
const ANSWERS: Allowance = Allowance { burst: 100, per_second: 100 };
/// An answer not used for so long never will be.
const ANSWER_LIFE: Duration = Duration::from_secs(10);
/// Keys good for receiving: the newest, and those that packets under way may have.
const MAX_KEYS: usize = 3;
/// Earlier lives of the peer that are remembered.
const MAX_PAST: usize = 8;
/// The side of the smaller key makes new ones; the other only if it has not for so much longer.
const REKEY_GRACE: Duration = Duration::from_secs(15);

/// Keys that both ends have.
#[derive(Debug)]
pub(crate) struct Keys {
    /// On packets to us.
    local: u32,
    /// On packets to the peer.
    pub(crate) remote: u32,
    pub(crate) sealer: Sealer,
    /// The life of the peer that they were agreed with.
    pub(crate) epoch: u64,
    born: Instant,
}

struct Calling {
    caller: Caller,
    session: u32,
    /// All before the codes.
    packet: Vec<u8>,
    mac1: [u8; MAC],
    since: Instant,
}

struct Answered {
    keys: Keys,
    /// The call's own, by which it is known when it comes again.
    ephemeral: Vec<u8>,
    answer: Vec<u8>,
    to: Place,
}

/// What a packet under some keys shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Keys in use.
    Known,
    /// Keys of an answer of ours, used for the first time; the answer went there.
    Fresh { new_life: bool, to: Place },
}

/// What an answer to our call led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// New keys, and whether with another life of the peer.
    Keys { new_life: bool },
    /// The peer does not take us.
    Refused(Verdict),
    /// An earlier life of the peer, while a later one is there: two nodes have its key.
    Past,
}

/// The session with one peer.
pub(crate) struct Session {
    pub(crate) key: PublicKey,
    /// It is for us to make new keys in time.
    renews: bool,
    proof: Proof,
    jar: Jar,
    calling: Option<Calling>,
    /// The peer does not take our calls, and need not hear more of them so soon.
    quiet_until: Instant,
    answered: VecDeque<Answered>,
    /// Newest first.
    keys: VecDeque<Keys>,
    /// The life of the peer that the session is with.
    epoch: Option<u64>,
    /// There was a session, whether it ended with a goodbye or not.
    was_met: bool,
    /// Ours, as this peer sees it: another after each goodbye.
    own_epoch: u64,
    /// New sessions that the peer may still begin.
    lives: Bucket,
    /// Calls that its cookies may still bring about.
    cookie_calls: Bucket,
    /// Answers to our calls that may still cost a key agreement.
    answers: Bucket,
    past: VecDeque<u64>,
    /// Numbers that are not in use any more.
    pub(crate) released: Vec<u32>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(own: PublicKey, key: PublicKey, own_epoch: u64) -> Self {
        Self {
            key,
            renews: own < key,
            proof: Proof::of(&key),
            jar: Jar::default(),
            calling: None,
            quiet_until: Instant::default(),
            answered: VecDeque::new(),
            keys: VecDeque::new(),
            epoch: None,
            was_met: false,
            own_epoch,
            lives: Bucket::new(limits::NEW_SESSIONS),
            cookie_calls: Bucket::new(COOKIE_CALLS),
            answers: Bucket::new(ANSWERS),
            past: VecDeque::new(),
            released: Vec::new(),
        }
    }

    /// Whether there is a session, by a link that is up or not.
    pub(crate) fn is_met(&self) -> bool {
        self.epoch.is_some()
    }

    /// Whether there ever was a session.
    pub(crate) fn was_met(&self) -> bool {
        self.was_met
    }

    /// What tells this peer whether we began anew.
    pub(crate) fn own_epoch(&self) -> u64 {
        self.own_epoch
    }

    /// Ends the session, for both: what either says next is of another life.
    pub(crate) fn end(&mut self, own_epoch: u64) {
        self.hang_up();
        let numbers = self.keys.drain(..).chain(self.answered.drain(..).map(|it| it.keys));
        self.released.extend(numbers.map(|keys| keys.local));
        self.leave_epoch();
        self.own_epoch = own_epoch;
    }

    /// The peer's life so far is over.
    fn leave_epoch(&mut self) {
        self.past.extend(self.epoch.take());
        if self.past.len() > MAX_PAST {
            self.past.pop_front();
        }
    }

    /// Whether packets under these keys may go on with the session, or begin another.
    pub(crate) fn may_begin(&mut self, now: Instant, epoch: u64) -> bool {
        self.epoch == Some(epoch) || self.lives.take(now)
    }

    /// The keys to send under.
    pub(crate) fn keys(&self) -> Option<&Keys> {
        self.keys.front()
    }

    /// Our call to the peer: the one under way, or another. `session` is a number not in
    /// use, taken if another is made.
    pub(crate) fn call(
        &mut self,
        now: Instant,
        secret: &SecretKey,
        greeting: &Greeting<'_>,
        session: u32,
        drawn: [u8; KEY],
    ) -> Option<Vec<u8>> {
        if now < self.quiet_until {
            return None;
        }
        if self.calling.as_ref().is_none_or(|calling| now.since(calling.since) >= CALL_LIFE) {
            self.hang_up();
            let (caller, noise) = Caller::call(secret, &self.key, drawn, &greeting.emit()).ok()?;
            let packet = start_call(session, &noise);
            let mac1 = [0; MAC];
            self.calling = Some(Calling { caller, session, packet, mac1, since: now });
        }
        let calling = self.calling.as_mut()?;
        let mut datagram = calling.packet.clone();
        calling.mac1 = self.jar.prove(now, &self.proof, &mut datagram);
        Some(datagram)
    }

    /// The number of the call under way.
    pub(crate) fn calls_as(&self) -> Option<u32> {
        self.calling.as_ref().map(|calling| calling.session)
    }

    fn hang_up(&mut self) {
        self.released.extend(self.calling.take().map(|calling| calling.session));
    }

    /// Takes a cookie; `None` if it does not hold, else whether to call again at once with it.
    /// Anybody who hears a call and knows the public key of the called node can make one.
    pub(crate) fn take_cookie(&mut self, now: Instant, cookie: &Cookie<'_>) -> Option<bool> {
        let calling = self.calling.as_ref().filter(|it| it.session == cookie.your_session)?;
        let holds = self.jar.take(now, &self.proof, &calling.mac1, cookie);
        holds.then(|| self.cookie_calls.take(now))
    }

    /// Our answer to a call that came before.
    pub(crate) fn answer_again(&mut self, call: &Call<'_>, from: Place) -> Option<Vec<u8>> {
        let ephemeral = call.noise.get(..KEY);
        let known = self.answered.iter_mut().find(|it| ephemeral == Some(&it.ephemeral));
        known.map(|answered| {
            answered.to = from;
            answered.answer.clone()
        })
    }

    /// Answers a call from `from`. `session` is a number not in use.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        from: Place,
        called: Called,
        call: &Call<'_>,
        (their_epoch, our_epoch): (u64, u64),
        session: u32,
    ) -> Option<Vec<u8>> {
        let (split, answer) = self.reply(called, call, our_epoch, session, Verdict::Welcome)?;
        let keys = Keys::new(now, &split, (session, call.session), their_epoch)?;
        let ephemeral = call.noise.get(..KEY)?.to_vec();
        self.answered.retain(|it| {
            let alive = now.since(it.keys.born) < ANSWER_LIFE;
            self.released.extend((!alive).then_some(it.keys.local));
            alive
        });
        if self.answered.len() == MAX_ANSWERED {
            self.released.extend(self.answered.pop_front().map(|it| it.keys.local));
        }
        self.answered.push_back(Answered { keys, ephemeral, answer: answer.clone(), to: from });
        Some(answer)
    }

    /// Tells a peer why it is not taken.
    pub(crate) fn refuse(
        &self,
        called: Called,
        call: &Call<'_>,
        session: u32,
        verdict: Verdict,
    ) -> Option<Vec<u8>> {
        self.reply(called, call, 0, session, verdict).map(|(_, answer)| answer)
    }

    fn reply(
        &self,
        called: Called,
        call: &Call<'_>,
        epoch: u64,
        session: u32,
        verdict: Verdict,
    ) -> Option<(Split, Vec<u8>)> {
        let (split, noise) = called.answer(&verdict.emit(epoch)).ok()?;
        let mut answer = start_answer(session, call.session, &noise);
        answer.extend_from_slice(&self.proof.mac(&answer));
        Some((split, answer))
    }

    /// Whether another answer may cost a key agreement.
    pub(crate) fn may_finish(&mut self, now: Instant) -> bool {
        self.answers.take(now)
    }

    /// Reads the answer to our call. `alive`: the session is, by some link.
    pub(crate) fn finish(&mut self, now: Instant, answer: &Answer<'_>, alive: bool) -> Option<Met> {
        let calling = self.calling.as_mut().filter(|it| it.session == answer.your_session)?;
        let (split, payload) = calling.caller.finish(answer.noise).ok()?;
        let (epoch, verdict) = Verdict::parse(&payload).ok()?;
        if verdict != Verdict::Welcome {
            self.quiet_until = now + CALL_LIFE;
            self.hang_up();
            return Some(Met::Refused(verdict));
        }
        let numbers = (calling.session, answer.session);
        if alive && self.past.contains(&epoch) {
            self.hang_up();
            return Some(Met::Past);
        }
        if !self.may_begin(now, epoch) {
            self.hang_up();
            return None;
        }
        let keys = Keys::new(now, &split, numbers, epoch)?;
        self.calling = None;
        Some(Met::Keys { new_life: self.install(keys) })
    }

    /// Whether that life of the peer ended when a later one came.
    pub(crate) fn is_past(&self, epoch: u64) -> bool {
        self.past.contains(&epoch)
    }

    /// The peer's life that packets with the number `session` are of, and the keys.
    pub(crate) fn find(&self, now: Instant, session: u32) -> Option<(&Keys, bool)> {
        let young = |keys: &Keys, life| now.since(keys.born) < life;
        let known = self.keys.iter().filter(|keys| young(keys, KEYS_LIFE));
        let fresh = self.answered.iter().map(|it| &it.keys);
        let fresh = fresh.filter(|keys| young(keys, ANSWER_LIFE));
        known
            .map(|keys| (keys, true))
            .chain(fresh.map(|keys| (keys, false)))
            .find(|(keys, _)| keys.local == session)
    }

    /// Whether packets under these keys go on with the session that there is.
    pub(crate) fn continues(&self, keys: &Keys) -> bool {
        self.epoch == Some(keys.epoch)
    }

    /// A packet under the keys of that number holds: an answer of ours is in use now.
    pub(crate) fn confirm(&mut self, session: u32) -> Standing {
        let fresh = self.answered.iter().position(|it| it.keys.local == session);
        match fresh.and_then(|index| self.answered.remove(index)) {
            None => Standing::Known,
            Some(Answered { keys, to, .. }) => {
                let new_life = self.install(keys);
                if new_life {
                    // The answer to a call made before may be of an earlier life.
                    self.hang_up();
                }
                Standing::Fresh { new_life, to }
            }
        }
    }

    /// Whether it is another life of the peer than before.
    fn install(&mut self, keys: Keys) -> bool {
        let new_life = self.epoch != Some(keys.epoch);
        if new_life {
            self.released.extend(self.keys.drain(..).map(|old| old.local));
            self.past.retain(|past| *past != keys.epoch);
            self.leave_epoch();
            self.epoch = Some(keys.epoch);
            self.was_met = true;
            // What another life was told before must not bring that one back.
            self.answered.retain(|it| {
                let same = it.keys.epoch == keys.epoch;
                self.released.extend((!same).then_some(it.keys.local));
                same
            });
        }
        self.keys.push_front(keys);
        if self.keys.len() > MAX_KEYS {
            self.released.extend(self.keys.pop_back().map(|old| old.local));
        }
        new_life
    }

    /// Forgets keys that are too old.
    pub(crate) fn expire_keys(&mut self, now: Instant) {
        self.keys.retain(|keys| {
            let young = now.since(keys.born) < KEYS_LIFE;
            self.released.extend((!young).then_some(keys.local));
            young
        });
    }

    /// When new keys are to be made, or old ones forgotten.
    pub(crate) fn rekey_at(&self) -> Option<Instant> {
        let grace = if self.renews { Duration::ZERO } else { REKEY_GRACE };
        let renewal = self.keys.front()?.born + REKEY_AFTER + grace;
        let end = self.keys.iter().map(|keys| keys.born + KEYS_LIFE).min();
        Some(end.map_or(renewal, |end| end.min(renewal)))
    }
}

impl Keys {
    fn new(born: Instant, split: &Split, (local, remote): (u32, u32), epoch: u64) -> Option<Self> {
        Some(Self { local, remote, sealer: Sealer::new(split)?, epoch, born })
    }
}
