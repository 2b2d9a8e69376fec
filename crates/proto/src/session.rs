// SPDX-License-Identifier: Apache-2.0
//! The session with one peer: which of its lives we talk to, and under which keys.
//!
//! Keys come and go, every two minutes and after every outage; a session lasts
//! while both nodes live. Handshakes that cross do no harm: all keys of one
//! session are good for receiving, the newest for sending.

use crate::address::Place;
use crate::bucket::{Allowance, Bucket};
use crate::config::{KEY_LIFETIME, REKEY_AFTER};
use crate::crypto::cookies::{CookieJar, MacKey};
use crate::crypto::keys::{KEY, PublicKey, SecretKey};
use crate::crypto::noise::{Initiator, ReceivedInitiation, Split};
use crate::crypto::seal::Sealer;
use crate::limits;
use crate::time::{Duration, Instant};
use crate::wire::packet::{
    CookieReply, Greeting, Initiation, MAC, Response, Verdict, start_initiation, start_response,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// A call is repeated as it is for so long; then another is made.
const INITIATION_LIFETIME: Duration = Duration::from_secs(5);
/// Answers not yet used by their callers.
const MAX_PENDING_RESPONSES: usize = 4;
/// Calls at once with a cookie: twice as often as a peer is sought.
const COOKIE_INITIATIONS: Allowance = Allowance { burst: 2, per_second: 12 };
/// Answers to our calls that are opened: each costs a key agreement of about 50 us. Whoever hears
/// a call and knows our public key can make some that do not hold; among ten times as many a true
/// one is opened within a few calls.
const RESPONSES: Allowance = Allowance { burst: 100, per_second: 100 };
/// An answer not used for so long never will be.
const RESPONSE_LIFETIME: Duration = Duration::from_secs(10);
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
    pub(crate) sealer: Arc<Sealer>,
    /// The life of the peer that they were agreed with.
    pub(crate) epoch: u64,
    born: Instant,
}

struct PendingInitiation {
    caller: Initiator,
    session: u32,
    /// All before the codes.
    packet: Vec<u8>,
    mac1: [u8; MAC],
    since: Instant,
}

struct PendingResponse {
    keys: Keys,
    /// The call's own, by which it is known when it comes again.
    ephemeral: Vec<u8>,
    answer: Vec<u8>,
    to: Place,
}

/// What a packet under some keys shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyStatus {
    /// Keys in use.
    Known,
    /// Keys of an answer of ours, used for the first time; the answer went there.
    Fresh { new_epoch: bool, to: Place },
}

/// What an answer to our call led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeOutcome {
    /// New keys, and whether with another life of the peer.
    Keys { new_epoch: bool },
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
    proof: MacKey,
    jar: CookieJar,
    pending_initiation: Option<PendingInitiation>,
    /// The peer does not take our calls, and need not hear more of them so soon.
    quiet_until: Instant,
    pending_responses: VecDeque<PendingResponse>,
    /// Newest first.
    keys: VecDeque<Keys>,
    /// The life of the peer that the session is with.
    epoch: Option<u64>,
    /// There was a session, whether it ended with a goodbye or not.
    was_established: bool,
    /// Ours, as this peer sees it: another after each goodbye.
    own_epoch: u64,
    /// New sessions that the peer may still begin.
    new_sessions: Bucket,
    /// Calls that its cookies may still bring about.
    cookie_initiations: Bucket,
    /// Answers to our calls that may still cost a key agreement.
    answers: Bucket,
    past_epochs: VecDeque<u64>,
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
            proof: MacKey::of(&key),
            jar: CookieJar::default(),
            pending_initiation: None,
            quiet_until: Instant::default(),
            pending_responses: VecDeque::new(),
            keys: VecDeque::new(),
            epoch: None,
            was_established: false,
            own_epoch,
            new_sessions: Bucket::new(limits::NEW_SESSIONS),
            cookie_initiations: Bucket::new(COOKIE_INITIATIONS),
            answers: Bucket::new(RESPONSES),
            past_epochs: VecDeque::new(),
            released: Vec::new(),
        }
    }

    /// Whether there is a session, by a link that is up or not.
    pub(crate) fn is_established(&self) -> bool {
        self.epoch.is_some()
    }

    /// Whether there ever was a session.
    pub(crate) fn was_established(&self) -> bool {
        self.was_established
    }

    /// What tells this peer whether we began anew.
    pub(crate) fn own_epoch(&self) -> u64 {
        self.own_epoch
    }

    /// Ends the session, for both: what either says next is of another life.
    pub(crate) fn end(&mut self, own_epoch: u64) {
        self.abandon_initiation();
        let numbers = self.keys.drain(..).chain(self.pending_responses.drain(..).map(|it| it.keys));
        self.released.extend(numbers.map(|keys| keys.local));
        self.leave_epoch();
        self.own_epoch = own_epoch;
    }

    /// The peer's life so far is over.
    fn leave_epoch(&mut self) {
        self.past_epochs.extend(self.epoch.take());
        if self.past_epochs.len() > MAX_PAST {
            self.past_epochs.pop_front();
        }
    }

    /// Whether packets under these keys may go on with the session, or begin another.
    pub(crate) fn may_begin(&mut self, now: Instant, epoch: u64) -> bool {
        self.epoch == Some(epoch) || self.new_sessions.take(now)
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
        if self
            .pending_initiation
            .as_ref()
            .is_none_or(|pending| now.since(pending.since) >= INITIATION_LIFETIME)
        {
            self.abandon_initiation();
            let (caller, noise) =
                Initiator::call(secret, &self.key, drawn, &greeting.emit()).ok()?;
            let packet = start_initiation(session, &noise);
            let mac1 = [0; MAC];
            self.pending_initiation =
                Some(PendingInitiation { caller, session, packet, mac1, since: now });
        }
        let pending_initiation = self.pending_initiation.as_mut()?;
        let mut datagram = pending_initiation.packet.clone();
        pending_initiation.mac1 = self.jar.prove(now, &self.proof, &mut datagram);
        Some(datagram)
    }

    /// The number of the call under way.
    pub(crate) fn pending_session(&self) -> Option<u32> {
        self.pending_initiation.as_ref().map(|pending| pending.session)
    }

    fn abandon_initiation(&mut self) {
        self.released.extend(self.pending_initiation.take().map(|pending| pending.session));
    }

    /// Takes a cookie; `None` if it does not hold, else whether to call again at once with it.
    /// Anybody who hears a call and knows the public key of the called node can make one.
    pub(crate) fn accept_cookie(&mut self, now: Instant, cookie: &CookieReply<'_>) -> Option<bool> {
        let pending_initiation =
            self.pending_initiation.as_ref().filter(|it| it.session == cookie.your_session)?;
        let holds = self.jar.take(now, &self.proof, &pending_initiation.mac1, cookie);
        holds.then(|| self.cookie_initiations.take(now))
    }

    /// Our answer to a call that came before.
    pub(crate) fn repeat_response(
        &mut self,
        call: &Initiation<'_>,
        from: Place,
    ) -> Option<Vec<u8>> {
        let ephemeral = call.noise.get(..KEY);
        let known = self.pending_responses.iter_mut().find(|it| ephemeral == Some(&it.ephemeral));
        known.map(|pending| {
            pending.to = from;
            pending.answer.clone()
        })
    }

    /// Answers a call from `from`. `session` is a number not in use.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        from: Place,
        called: ReceivedInitiation,
        call: &Initiation<'_>,
        (their_epoch, our_epoch): (u64, u64),
        session: u32,
    ) -> Option<Vec<u8>> {
        let (split, answer) = self.reply(called, call, our_epoch, session, Verdict::Welcome)?;
        let keys = Keys::new(now, &split, (session, call.session), their_epoch)?;
        let ephemeral = call.noise.get(..KEY)?.to_vec();
        self.pending_responses.retain(|it| {
            let alive = now.since(it.keys.born) < RESPONSE_LIFETIME;
            self.released.extend((!alive).then_some(it.keys.local));
            alive
        });
        if self.pending_responses.len() == MAX_PENDING_RESPONSES {
            self.released.extend(self.pending_responses.pop_front().map(|it| it.keys.local));
        }
        self.pending_responses.push_back(PendingResponse {
            keys,
            ephemeral,
            answer: answer.clone(),
            to: from,
        });
        Some(answer)
    }

    /// Tells a peer why it is not taken.
    pub(crate) fn refuse(
        &self,
        called: ReceivedInitiation,
        call: &Initiation<'_>,
        session: u32,
        verdict: Verdict,
    ) -> Option<Vec<u8>> {
        self.reply(called, call, 0, session, verdict).map(|(_, answer)| answer)
    }

    fn reply(
        &self,
        called: ReceivedInitiation,
        call: &Initiation<'_>,
        epoch: u64,
        session: u32,
        verdict: Verdict,
    ) -> Option<(Split, Vec<u8>)> {
        let (split, noise) = called.answer(&verdict.emit(epoch)).ok()?;
        let mut answer = start_response(session, call.session, &noise);
        answer.extend_from_slice(&self.proof.mac(&answer));
        Some((split, answer))
    }

    /// Whether another answer may cost a key agreement.
    pub(crate) fn may_complete(&mut self, now: Instant) -> bool {
        self.answers.take(now)
    }

    /// Reads the answer to our call. `alive`: the session is, by some link.
    pub(crate) fn finish(
        &mut self,
        now: Instant,
        answer: &Response<'_>,
        alive: bool,
    ) -> Option<HandshakeOutcome> {
        let pending_initiation =
            self.pending_initiation.as_mut().filter(|it| it.session == answer.your_session)?;
        let (split, payload) = pending_initiation.caller.finish(answer.noise).ok()?;
        let (epoch, verdict) = Verdict::parse(&payload).ok()?;
        if verdict != Verdict::Welcome {
            self.quiet_until = now + INITIATION_LIFETIME;
            self.abandon_initiation();
            return Some(HandshakeOutcome::Refused(verdict));
        }
        let numbers = (pending_initiation.session, answer.session);
        if alive && self.past_epochs.contains(&epoch) {
            self.abandon_initiation();
            return Some(HandshakeOutcome::Past);
        }
        if !self.may_begin(now, epoch) {
            self.abandon_initiation();
            return None;
        }
        let keys = Keys::new(now, &split, numbers, epoch)?;
        self.pending_initiation = None;
        Some(HandshakeOutcome::Keys { new_epoch: self.install(keys) })
    }

    /// Whether that life of the peer ended when a later one came.
    pub(crate) fn is_past_epoch(&self, epoch: u64) -> bool {
        self.past_epochs.contains(&epoch)
    }

    /// The peer's life that packets with the number `session` are of, and the keys.
    pub(crate) fn find(&self, now: Instant, session: u32) -> Option<(&Keys, bool)> {
        let young = |keys: &Keys, life| now.since(keys.born) < life;
        let known = self.keys.iter().filter(|keys| young(keys, KEY_LIFETIME));
        let fresh = self.pending_responses.iter().map(|it| &it.keys);
        let fresh = fresh.filter(|keys| young(keys, RESPONSE_LIFETIME));
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
    pub(crate) fn confirm(&mut self, session: u32) -> KeyStatus {
        let fresh = self.pending_responses.iter().position(|it| it.keys.local == session);
        match fresh.and_then(|index| self.pending_responses.remove(index)) {
            None => KeyStatus::Known,
            Some(PendingResponse { keys, to, .. }) => {
                let new_epoch = self.install(keys);
                if new_epoch {
                    // The answer to a call made before may be of an earlier life.
                    self.abandon_initiation();
                }
                KeyStatus::Fresh { new_epoch, to }
            }
        }
    }

    /// Whether it is another life of the peer than before.
    fn install(&mut self, keys: Keys) -> bool {
        let new_epoch = self.epoch != Some(keys.epoch);
        if new_epoch {
            self.released.extend(self.keys.drain(..).map(|old| old.local));
            self.past_epochs.retain(|past_epochs| *past_epochs != keys.epoch);
            self.leave_epoch();
            self.epoch = Some(keys.epoch);
            self.was_established = true;
            // What another life was told before must not bring that one back.
            self.pending_responses.retain(|it| {
                let same = it.keys.epoch == keys.epoch;
                self.released.extend((!same).then_some(it.keys.local));
                same
            });
        }
        self.keys.push_front(keys);
        if self.keys.len() > MAX_KEYS {
            self.released.extend(self.keys.pop_back().map(|old| old.local));
        }
        new_epoch
    }

    /// Forgets keys that are too old.
    pub(crate) fn expire_keys(&mut self, now: Instant) {
        self.keys.retain(|keys| {
            let young = now.since(keys.born) < KEY_LIFETIME;
            self.released.extend((!young).then_some(keys.local));
            young
        });
    }

    /// When new keys are to be made, or old ones forgotten.
    pub(crate) fn rekey_at(&self) -> Option<Instant> {
        let grace = if self.renews { Duration::ZERO } else { REKEY_GRACE };
        let renewal = self.keys.front()?.born + REKEY_AFTER + grace;
        let end = self.keys.iter().map(|keys| keys.born + KEY_LIFETIME).min();
        Some(end.map_or(renewal, |end| end.min(renewal)))
    }
}

impl Keys {
    fn new(born: Instant, split: &Split, (local, remote): (u32, u32), epoch: u64) -> Option<Self> {
        Some(Self { local, remote, sealer: Arc::new(Sealer::new(split)?), epoch, born })
    }
}
