// SPDX-License-Identifier: Apache-2.0
//! The session with one peer: its epoch and its key sets.
//!
//! Key sets change every two minutes and after every outage; a session lasts until one node
//! restarts or says goodbye. Simultaneous handshakes do no harm: all key sets of a session are
//! valid for receiving, and the newest is used for sending.

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

/// An initiation is retransmitted for this time; then a new one is made.
const INITIATION_LIFETIME: Duration = Duration::from_secs(5);
/// Maximum number of stored responses whose keys no packet has confirmed.
const MAX_PENDING_RESPONSES: usize = 4;
/// Limit of initiations that cookie replies cause: twice the rate at which a peer is sought.
const COOKIE_INITIATION_LIMIT: Allowance = Allowance { burst: 2, per_second: 12 };
/// Responses that are opened: each costs a key agreement of about 50 us. Anybody who hears an
/// initiation and knows our public key can forge responses that pass MAC1. Even among ten times as
/// many forgeries, a genuine response is opened within a few initiations.
const RESPONSE_LIMIT: Allowance = Allowance { burst: 100, per_second: 100 };
/// Time after which a stored response is forgotten.
const RESPONSE_LIFETIME: Duration = Duration::from_secs(10);
/// Maximum number of key sets valid for receiving: the newest, and those of packets in flight.
const MAX_KEYS: usize = 3;
/// Maximum number of earlier session epochs of the peer that are remembered.
const MAX_PAST_EPOCHS: usize = 8;
/// The node with the smaller key renews the keys. If it has not done so after this time, the other
/// node renews them.
const REKEY_GRACE: Duration = Duration::from_secs(15);

/// The key set of one handshake.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Session number in packets to this node.
    local: u32,
    /// Session number in packets to the peer.
    pub(crate) remote: u32,
    pub(crate) sealer: Arc<Sealer>,
    /// The peer's session epoch.
    pub(crate) epoch: u64,
    created: Instant,
}

/// The session numbers of a key set; see [`Keys`].
#[derive(Debug, Clone, Copy)]
struct SessionNumbers {
    local: u32,
    remote: u32,
}

/// The session epochs of both nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epochs {
    pub(crate) own: u64,
    pub(crate) peer: u64,
}

struct PendingInitiation {
    initiator: Initiator,
    session: u32,
    /// The packet before its MACs.
    packet: Vec<u8>,
    mac1: [u8; MAC],
    since: Instant,
}

struct PendingResponse {
    keys: Keys,
    /// Ephemeral key of the initiation, which identifies a retransmission.
    ephemeral: Vec<u8>,
    response: Vec<u8>,
    to: Place,
}

/// Where a key set was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOrigin {
    /// The key set is in use.
    InUse,
    /// The key set belongs to a stored response and was not confirmed yet.
    Stored,
}

/// What a packet that decrypts does to its key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyStatus {
    /// The key set was in use already.
    InUse,
    /// The packet confirmed a stored response. `to` is the place to which the response was sent.
    Confirmed { new_epoch: bool, to: Place },
}

/// The effect of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeOutcome {
    /// A new key set is in use.
    Keys { new_epoch: bool },
    /// The peer does not accept this node.
    Refused(Verdict),
    /// The epoch is earlier than that of the session: two nodes have the peer's key.
    EarlierEpoch,
}

/// The session with one peer.
pub(crate) struct Session {
    pub(crate) key: PublicKey,
    /// This node renews the keys first.
    is_rekey_initiator: bool,
    remote_mac: MacKey,
    cookies: CookieJar,
    pending_initiation: Option<PendingInitiation>,
    /// No initiation before this time, since the peer refused the last one.
    quiet_until: Instant,
    pending_responses: VecDeque<PendingResponse>,
    /// Key sets in use, newest first.
    keys: VecDeque<Keys>,
    /// The peer's session epoch.
    epoch: Option<u64>,
    /// There has been a session.
    was_established: bool,
    /// This node's session epoch for the peer; it changes after each goodbye.
    own_epoch: u64,
    /// Limit of new sessions that the peer begins.
    new_sessions: Bucket,
    /// Limit of initiations that cookie replies cause.
    cookie_initiations: Bucket,
    /// Limit of responses that are opened.
    responses: Bucket,
    past_epochs: VecDeque<u64>,
    /// Session numbers that are no longer in use.
    pub(crate) released_numbers: Vec<u32>,
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
            is_rekey_initiator: own < key,
            remote_mac: MacKey::for_receiver(&key),
            cookies: CookieJar::default(),
            pending_initiation: None,
            quiet_until: Instant::default(),
            pending_responses: VecDeque::new(),
            keys: VecDeque::new(),
            epoch: None,
            was_established: false,
            own_epoch,
            new_sessions: Bucket::new(limits::NEW_SESSIONS),
            cookie_initiations: Bucket::new(COOKIE_INITIATION_LIMIT),
            responses: Bucket::new(RESPONSE_LIMIT),
            past_epochs: VecDeque::new(),
            released_numbers: Vec::new(),
        }
    }

    /// Whether there has been a session.
    pub(crate) fn was_established(&self) -> bool {
        self.was_established
    }

    /// This node's session epoch, by which the peer recognises a restart.
    pub(crate) fn own_epoch(&self) -> u64 {
        self.own_epoch
    }

    /// Ends the session for both nodes: the next one has other epochs.
    pub(crate) fn end(&mut self, own_epoch: u64) {
        self.abandon_initiation();
        let numbers = self.keys.drain(..).chain(self.pending_responses.drain(..).map(|it| it.keys));
        self.released_numbers.extend(numbers.map(|keys| keys.local));
        self.retire_epoch();
        self.own_epoch = own_epoch;
    }

    fn retire_epoch(&mut self) {
        self.past_epochs.extend(self.epoch.take());
        if self.past_epochs.len() > MAX_PAST_EPOCHS {
            self.past_epochs.pop_front();
        }
    }

    /// Whether a key set with this epoch continues the session, or may begin another.
    pub(crate) fn may_use_epoch(&mut self, now: Instant, epoch: u64) -> bool {
        self.epoch == Some(epoch) || self.new_sessions.take(now)
    }

    /// The key set used for sending.
    pub(crate) fn keys(&self) -> Option<&Keys> {
        self.keys.front()
    }

    /// Returns the initiation to send: a retransmission of the pending initiation, or a new one
    /// with the unused number `session`.
    pub(crate) fn initiate(
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
            let (initiator, noise) =
                Initiator::initiate(secret, &self.key, drawn, &greeting.emit()).ok()?;
            let packet = start_initiation(session, &noise);
            let mac1 = [0; MAC];
            self.pending_initiation =
                Some(PendingInitiation { initiator, session, packet, mac1, since: now });
        }
        let pending = self.pending_initiation.as_mut()?;
        let mut datagram = pending.packet.clone();
        pending.mac1 = self.cookies.append_macs(now, &self.remote_mac, &mut datagram);
        Some(datagram)
    }

    /// The session number of the pending initiation.
    pub(crate) fn pending_session(&self) -> Option<u32> {
        self.pending_initiation.as_ref().map(|pending| pending.session)
    }

    fn abandon_initiation(&mut self) {
        self.released_numbers.extend(self.pending_initiation.take().map(|pending| pending.session));
    }

    /// Accepts a cookie. Returns `None` if it is invalid, and otherwise whether to retransmit the
    /// initiation immediately. Anybody who hears an initiation and knows the public key of its
    /// receiver can forge a cookie.
    pub(crate) fn accept_cookie(&mut self, now: Instant, cookie: &CookieReply<'_>) -> Option<bool> {
        let pending =
            self.pending_initiation.as_ref().filter(|it| it.session == cookie.your_session)?;
        let valid = self.cookies.accept(now, &self.remote_mac, &pending.mac1, cookie);
        valid.then(|| self.cookie_initiations.take(now))
    }

    /// The stored response to a retransmitted initiation.
    pub(crate) fn repeat_response(
        &mut self,
        initiation: &Initiation<'_>,
        from: Place,
    ) -> Option<Vec<u8>> {
        let ephemeral = initiation.noise.get(..KEY);
        let known = self.pending_responses.iter_mut().find(|it| ephemeral == Some(&it.ephemeral));
        known.map(|pending| {
            pending.to = from;
            pending.response.clone()
        })
    }

    /// Accepts an initiation from `from`, and stores the response. `session` is an unused number.
    pub(crate) fn respond(
        &mut self,
        now: Instant,
        from: Place,
        received: ReceivedInitiation,
        initiation: &Initiation<'_>,
        epochs: Epochs,
        session: u32,
    ) -> Option<Vec<u8>> {
        let (split, response) =
            self.build_response(received, initiation, epochs.own, session, Verdict::Welcome)?;
        let numbers = SessionNumbers { local: session, remote: initiation.session };
        let keys = Keys::new(now, &split, numbers, epochs.peer)?;
        let ephemeral = initiation.noise.get(..KEY)?.to_vec();
        self.pending_responses.retain(|it| {
            let alive = now.since(it.keys.created) < RESPONSE_LIFETIME;
            self.released_numbers.extend((!alive).then_some(it.keys.local));
            alive
        });
        if self.pending_responses.len() == MAX_PENDING_RESPONSES {
            self.released_numbers
                .extend(self.pending_responses.pop_front().map(|it| it.keys.local));
        }
        self.pending_responses.push_back(PendingResponse {
            keys,
            ephemeral,
            response: response.clone(),
            to: from,
        });
        Some(response)
    }

    /// Refuses an initiation with the given verdict.
    pub(crate) fn refuse(
        &self,
        received: ReceivedInitiation,
        initiation: &Initiation<'_>,
        session: u32,
        verdict: Verdict,
    ) -> Option<Vec<u8>> {
        let built = self.build_response(received, initiation, 0, session, verdict);
        built.map(|(_, response)| response)
    }

    fn build_response(
        &self,
        received: ReceivedInitiation,
        initiation: &Initiation<'_>,
        own_epoch: u64,
        session: u32,
        verdict: Verdict,
    ) -> Option<(Split, Vec<u8>)> {
        let (split, noise) = received.respond(&verdict.emit(own_epoch)).ok()?;
        let mut response = start_response(session, initiation.session, &noise);
        response.extend_from_slice(&self.remote_mac.mac(&response));
        Some((split, response))
    }

    /// Whether another response may be opened.
    pub(crate) fn may_open_response(&mut self, now: Instant) -> bool {
        self.responses.take(now)
    }

    /// Opens the response to the pending initiation. `alive`: a link to the peer is up.
    pub(crate) fn on_response(
        &mut self,
        now: Instant,
        response: &Response<'_>,
        alive: bool,
    ) -> Option<HandshakeOutcome> {
        let pending =
            self.pending_initiation.as_mut().filter(|it| it.session == response.your_session)?;
        let (split, payload) = pending.initiator.finish(response.noise).ok()?;
        let (epoch, verdict) = Verdict::parse(&payload).ok()?;
        if verdict != Verdict::Welcome {
            self.quiet_until = now + INITIATION_LIFETIME;
            self.abandon_initiation();
            return Some(HandshakeOutcome::Refused(verdict));
        }
        let numbers = SessionNumbers { local: pending.session, remote: response.session };
        if alive && self.past_epochs.contains(&epoch) {
            self.abandon_initiation();
            return Some(HandshakeOutcome::EarlierEpoch);
        }
        if !self.may_use_epoch(now, epoch) {
            self.abandon_initiation();
            return None;
        }
        let keys = Keys::new(now, &split, numbers, epoch)?;
        self.pending_initiation = None;
        Some(HandshakeOutcome::Keys { new_epoch: self.install(keys) })
    }

    /// Whether a later epoch of the peer followed this one.
    pub(crate) fn is_past_epoch(&self, epoch: u64) -> bool {
        self.past_epochs.contains(&epoch)
    }

    /// The key set of packets with this session number.
    pub(crate) fn find_keys(&self, now: Instant, session: u32) -> Option<(&Keys, KeyOrigin)> {
        let is_valid = |keys: &Keys, lifetime| now.since(keys.created) < lifetime;
        let in_use = self.keys.iter().filter(|keys| is_valid(keys, KEY_LIFETIME));
        let stored = self.pending_responses.iter().map(|it| &it.keys);
        let stored = stored.filter(|keys| is_valid(keys, RESPONSE_LIFETIME));
        in_use
            .map(|keys| (keys, KeyOrigin::InUse))
            .chain(stored.map(|keys| (keys, KeyOrigin::Stored)))
            .find(|(keys, _)| keys.local == session)
    }

    /// Whether packets under this key set continue the present session.
    pub(crate) fn is_current(&self, keys: &Keys) -> bool {
        self.epoch == Some(keys.epoch)
    }

    /// Notes that a packet with this session number was decrypted. A stored key set then comes into
    /// use.
    pub(crate) fn confirm(&mut self, session: u32) -> KeyStatus {
        let stored = self.pending_responses.iter().position(|it| it.keys.local == session);
        match stored.and_then(|index| self.pending_responses.remove(index)) {
            None => KeyStatus::InUse,
            Some(PendingResponse { keys, to, .. }) => {
                let new_epoch = self.install(keys);
                if new_epoch {
                    // The response to an earlier initiation may be of an earlier epoch.
                    self.abandon_initiation();
                }
                KeyStatus::Confirmed { new_epoch, to }
            }
        }
    }

    /// Puts a key set into use; returns whether its epoch is new.
    fn install(&mut self, keys: Keys) -> bool {
        let new_epoch = self.epoch != Some(keys.epoch);
        if new_epoch {
            self.released_numbers.extend(self.keys.drain(..).map(|old| old.local));
            self.past_epochs.retain(|past| *past != keys.epoch);
            self.retire_epoch();
            self.epoch = Some(keys.epoch);
            self.was_established = true;
            // A response to another epoch must not bring that epoch back.
            self.pending_responses.retain(|it| {
                let same = it.keys.epoch == keys.epoch;
                self.released_numbers.extend((!same).then_some(it.keys.local));
                same
            });
        }
        self.keys.push_front(keys);
        if self.keys.len() > MAX_KEYS {
            self.released_numbers.extend(self.keys.pop_back().map(|old| old.local));
        }
        new_epoch
    }

    /// Forgets key sets that are too old.
    pub(crate) fn expire_keys(&mut self, now: Instant) {
        self.keys.retain(|keys| {
            let is_valid = now.since(keys.created) < KEY_LIFETIME;
            self.released_numbers.extend((!is_valid).then_some(keys.local));
            is_valid
        });
    }

    /// When to renew the keys, or to forget a key set.
    pub(crate) fn rekey_at(&self) -> Option<Instant> {
        let grace = if self.is_rekey_initiator { Duration::ZERO } else { REKEY_GRACE };
        let renewal = self.keys.front()?.created + REKEY_AFTER + grace;
        let end = self.keys.iter().map(|keys| keys.created + KEY_LIFETIME).min();
        Some(end.map_or(renewal, |end| end.min(renewal)))
    }
}

impl Keys {
    fn new(created: Instant, split: &Split, numbers: SessionNumbers, epoch: u64) -> Option<Self> {
        let SessionNumbers { local, remote } = numbers;
        Some(Self { local, remote, sealer: Arc::new(Sealer::new(split)?), epoch, created })
    }
}
