// SPDX-License-Identifier: Apache-2.0
//! What a call has to show before any key agreement is done for it: that the
//! caller knows our public key, and under flood that it receives where it says
//! it is. Nobody is remembered for that (WireGuard, section 5.3 and 5.4.4).

use super::keys::{KEY, PublicKey, SecretKey, hash};
use super::seal::{open_once, seal_once};
use crate::bucket::{Allowance, Bucket};
use crate::time::{Duration, Instant};
use crate::wire::packet::{COOKIE, CookieReply, Initiation, MAC, Response};
use ring::hmac;

/// Calls answered without a cookie: so many at once, and so many in a second. A key
/// agreement takes about 0.2 ms, so that they cost at most 1 % of a processor.
const FREE: Allowance = Allowance { burst: 32, per_second: 32 };
/// Calls answered with a cookie, of one sender (or of those whose addresses fall together).
const PROVEN: Allowance = Allowance { burst: 4, per_second: 4 };
/// Cookies handed out: one is smaller than the call it answers, and each costs a packet.
const COOKIES: Allowance = Allowance { burst: 128, per_second: 512 };
/// Groups that senders with a cookie fall into.
const GROUPS: usize = 256;
/// A cookie holds for one such span and what is left of the next.
const COOKIE_SPAN: Duration = Duration::from_secs(60);
/// A caller uses a cookie no longer than it surely holds.
const COOKIE_USE: Duration = Duration::from_secs(60);

/// Whether a call is worth a key agreement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It is.
    Admit,
    /// Not before it comes with this cookie.
    Ask(Vec<u8>),
    /// It does not know our key.
    Stranger,
    /// Too many came.
    Flood,
}

/// The one who is called.
#[derive(Debug)]
pub struct CookieChecker {
    own: MacKey,
    /// Cookies are made of the first; the second is the one before it.
    secrets: [[u8; KEY]; 2],
    renew_at: Instant,
    free: Bucket,
    cookies: Bucket,
    groups: Vec<Bucket>,
}

impl CookieChecker {
    /// For the owner of `secret`.
    pub fn new(secret: &SecretKey) -> Self {
        Self {
            own: MacKey::of(&secret.public()),
            secrets: [[0; KEY]; 2],
            renew_at: Instant::default(),
            free: Bucket::new(FREE),
            cookies: Bucket::new(COOKIES),
            groups: vec![Bucket::new(PROVEN); GROUPS],
        }
    }

    /// Whether `answer` comes from somebody who knows our public key.
    pub fn knows_us(&self, answer: &Response<'_>) -> bool {
        self.own.holds(answer.proven, &answer.mac1)
    }

    /// Judges a call from an address, and of whom that is: one owner has one share, however many
    /// addresses it uses. `draw` gives fresh randomness.
    pub fn judge(
        &mut self,
        now: Instant,
        (from, owner): (&[u8], &[u8]),
        call: &Initiation<'_>,
        mut draw: impl FnMut() -> [u8; KEY],
    ) -> Admission {
        if !self.own.holds(call.proven, &call.mac1) {
            return Admission::Stranger;
        }
        if self.free.take(now) {
            return Admission::Admit;
        }
        if now >= self.renew_at {
            // After a pause longer than the span the old secret is as old as the pause.
            let before = self.secrets[0];
            let stale = now >= self.renew_at + COOKIE_SPAN;
            self.secrets = [draw(), if stale { draw() } else { before }];
            self.renew_at = now + COOKIE_SPAN;
        }
        let cookies = self.secrets.map(|secret| cookie(&secret, from));
        let shown = cookies.iter().find(|it| mac(*it, &[call.proven, &call.mac1]) == call.mac2);
        match shown {
            // The secret makes it impossible to choose an address that falls together with another's.
            Some(_) if self.groups[usize::from(cookie(&self.secrets[0], owner)[0])].take(now) => {
                Admission::Admit
            }
            Some(_) => Admission::Flood,
            None if self.cookies.take(now) => {
                let nonce = *draw().first_chunk().unwrap_or(&[0; 12]);
                let packet = self.own.cookie(call.session, &call.mac1, nonce, &cookies[0]);
                packet.map_or(Admission::Flood, Admission::Ask)
            }
            None => Admission::Flood,
        }
    }
}

/// What somebody who knows a public key can make of it.
#[derive(Debug, Clone)]
pub struct MacKey {
    mac_key: [u8; KEY],
    cookie_key: [u8; KEY],
}

impl MacKey {
    /// For packets to the owner of `key`.
    pub fn of(key: &PublicKey) -> Self {
        Self {
            mac_key: hash(&[b"tautline mac", &key.0]),
            cookie_key: hash(&[b"tautline cookie", &key.0]),
        }
    }

    /// The code of a packet.
    pub fn mac(&self, packet: &[u8]) -> [u8; MAC] {
        mac(&self.mac_key, &[packet])
    }

    fn holds(&self, packet: &[u8], found: &[u8; MAC]) -> bool {
        // Not a secret worth timing: who knows the public key can make it.
        self.mac(packet) == *found
    }

    /// The packet with a cookie for the caller `session`, whose call had the code `mac1`.
    pub fn cookie(
        &self,
        session: u32,
        mac1: &[u8; MAC],
        nonce: [u8; 12],
        cookie: &[u8; COOKIE],
    ) -> Option<Vec<u8>> {
        let sealed = seal_once(&self.cookie_key(mac1), nonce, cookie)?;
        Some(CookieReply { your_session: session, nonce, sealed: &sealed }.emit())
    }

    /// Of the one cookie that answers the call with this code.
    fn cookie_key(&self, mac1: &[u8; MAC]) -> [u8; KEY] {
        hash(&[&self.cookie_key, mac1])
    }
}

/// A caller's cookie, if it was asked for one.
#[derive(Debug, Clone, Default)]
pub struct CookieJar(Option<([u8; COOKIE], Instant)>);

impl CookieJar {
    /// Takes a cookie that answers the call with the code `mac1` to the owner of `proof`.
    pub fn take(
        &mut self,
        now: Instant,
        proof: &MacKey,
        mac1: &[u8; MAC],
        cookie: &CookieReply<'_>,
    ) -> bool {
        let opened = open_once(&proof.cookie_key(mac1), cookie.nonce, cookie.sealed);
        let Some(opened) = opened.and_then(|bytes| bytes.try_into().ok()) else { return false };
        self.0 = Some((opened, now + COOKIE_USE));
        true
    }

    /// Ends a call with its codes: `packet` is all before them. Returns the first.
    pub fn prove(&self, now: Instant, proof: &MacKey, packet: &mut Vec<u8>) -> [u8; MAC] {
        let mac1 = proof.mac(packet);
        let mac2 = match &self.0 {
            Some((cookie, until)) if now < *until => mac(cookie, &[packet, &mac1]),
            _ => [0; MAC],
        };
        packet.extend_from_slice(&mac1);
        packet.extend_from_slice(&mac2);
        mac1
    }
}

/// HMAC-SHA256 (RFC 2104), its first 16 bytes.
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; MAC] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    parts.iter().for_each(|part| context.update(part));
    let mut out = [0; MAC];
    out.copy_from_slice(&context.sign().as_ref()[..MAC]);
    out
}

fn cookie(secret: &[u8; KEY], from: &[u8]) -> [u8; COOKIE] {
    mac(secret, &[from])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::packet::{Packet, start_initiation};

    const HOUR: Instant = Instant(3_600_000_000_000);

    struct Doorstep {
        gate: CookieChecker,
        proof: MacKey,
        jar: CookieJar,
        drawn: u8,
    }

    impl Doorstep {
        fn new() -> Self {
            let secret = SecretKey::insecure("base");
            let proof = MacKey::of(&secret.public());
            Self { gate: CookieChecker::new(&secret), proof, jar: CookieJar::default(), drawn: 0 }
        }

        fn call(&self, now: Instant) -> Vec<u8> {
            let mut packet = start_initiation(7, &[1; 120]);
            self.jar.prove(now, &self.proof, &mut packet);
            packet
        }

        fn judge(&mut self, now: Instant, host: u8, packet: &[u8]) -> Admission {
            self.judge_port(now, host, 0, packet)
        }

        fn judge_port(&mut self, now: Instant, host: u8, port: u8, packet: &[u8]) -> Admission {
            let Ok(Packet::Initiation(call)) = Packet::parse(packet) else { panic!("a call") };
            let Self { gate, drawn, .. } = self;
            gate.judge(now, (&[10, 0, 0, host, port], &[10, 0, 0, host]), &call, || {
                *drawn += 1;
                [*drawn; KEY]
            })
        }

        fn take(&mut self, now: Instant, call: &[u8], answer: &Admission) {
            let Admission::Ask(datagram) = answer else { panic!("{answer:?}") };
            let Ok(Packet::CookieReply(cookie)) = Packet::parse(datagram) else {
                panic!("a cookie")
            };
            let Ok(Packet::Initiation(call)) = Packet::parse(call) else { panic!("a call") };
            assert!(datagram.len() < call.proven.len(), "no amplification");
            assert!(self.jar.take(now, &self.proof, &call.mac1, &cookie));
        }
    }

    #[test]
    fn a_node_that_has_just_started_answers_at_once() {
        let mut door = Doorstep::new();
        let call = door.call(Instant(1));
        for _ in 0..FREE.burst {
            assert_eq!(door.judge(Instant(1), 1, &call), Admission::Admit);
        }
        assert!(matches!(door.judge(Instant(1), 1, &call), Admission::Ask(_)));
    }

    #[test]
    fn who_does_not_know_the_key_gets_nothing() {
        let mut door = Doorstep::new();
        let mut call = door.call(HOUR);
        call[20] ^= 1;
        assert_eq!(door.judge(HOUR, 1, &call), Admission::Stranger);
    }

    #[test]
    fn under_flood_a_cookie_is_asked_for_and_holds_for_its_address_alone() {
        let mut door = Doorstep::new();
        let call = door.call(HOUR);
        for _ in 0..FREE.burst {
            assert_eq!(door.judge(HOUR, 1, &call), Admission::Admit);
        }
        let answer = door.judge(HOUR, 1, &call);
        door.take(HOUR, &call, &answer);
        let call = door.call(HOUR);
        assert_eq!(door.judge(HOUR, 1, &call), Admission::Admit);
        assert!(matches!(door.judge(HOUR, 2, &call), Admission::Ask(_)), "another address");
        for _ in 1..PROVEN.burst {
            assert_eq!(door.judge(HOUR, 1, &call), Admission::Admit);
        }
        assert_eq!(door.judge(HOUR, 1, &call), Admission::Flood, "one sender has its share");
    }

    #[test]
    fn ports_are_no_way_to_more() {
        let mut door = Doorstep::new();
        let call = door.call(HOUR);
        while door.judge(HOUR, 1, &call) == Admission::Admit {}
        let admitted = (0..40).filter(|port| {
            let call = door.call(HOUR);
            let answer = door.judge_port(HOUR, 1, *port, &call);
            if matches!(answer, Admission::Ask(_)) {
                door.take(HOUR, &call, &answer);
            }
            let call = door.call(HOUR);
            door.judge_port(HOUR, 1, *port, &call) == Admission::Admit
        });
        assert_eq!(admitted.count(), PROVEN.burst as usize);
    }

    #[test]
    fn cookies_end_with_their_secrets() {
        let mut door = Doorstep::new();
        let call = door.call(HOUR);
        while door.judge(HOUR, 1, &call) == Admission::Admit {}
        let answer = door.judge(HOUR, 1, &call);
        door.take(HOUR, &call, &answer);
        let call = door.call(HOUR);
        let mut at = |seconds| {
            let now = HOUR + Duration::from_secs(seconds);
            while door.gate.free.take(now) {}
            door.judge(now, 1, &call)
        };
        assert_eq!(at(59), Admission::Admit);
        assert_eq!(at(61), Admission::Admit, "the secret before is still good");
        assert!(matches!(at(122), Admission::Ask(_)));
    }

    #[test]
    fn cookies_for_others_are_not_taken() {
        let mut door = Doorstep::new();
        let call = door.call(HOUR);
        while door.judge(HOUR, 1, &call) == Admission::Admit {}
        let Admission::Ask(datagram) = door.judge(HOUR, 1, &call) else { panic!("a cookie") };
        let Ok(Packet::CookieReply(cookie)) = Packet::parse(&datagram) else { panic!("a cookie") };
        assert!(!door.jar.take(HOUR, &door.proof, &[9; MAC], &cookie));
    }
}
