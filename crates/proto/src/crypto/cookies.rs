// SPDX-License-Identifier: Apache-2.0
//! The defence against floods of initiations. Before any key agreement, MAC1 shows that the
//! initiator knows our public key. During a flood, a cookie shows that the initiator receives packets
//! at its address. Neither check needs state for each initiator (WireGuard, sections 5.3 and
//! 5.4.4).

use super::keys::{KEY, PublicKey, SecretKey, hash};
use super::seal::{open_once, seal_once};
use crate::bucket::{Allowance, Bucket};
use crate::time::{Duration, Instant};
use crate::wire::packet::{COOKIE, CookieReply, Initiation, MAC, Response};
use ring::hmac;

/// Initiations admitted without a cookie. A key agreement takes about 0.2 ms, so that they cost at
/// most 1 % of a processor.
const NO_COOKIE_LIMIT: Allowance = Allowance { burst: 32, per_second: 32 };
/// Initiations admitted with a cookie, for each group of senders.
const COOKIE_LIMIT: Allowance = Allowance { burst: 4, per_second: 4 };
/// Limit of cookie replies. A reply is smaller than the initiation that causes it, and costs one
/// packet.
const COOKIE_REPLIES: Allowance = Allowance { burst: 128, per_second: 512 };
/// Number of groups of senders with a cookie.
const GROUPS: usize = 256;
/// Period after which the secret of cookies changes. A cookie stays valid until the next period ends.
const SECRET_PERIOD: Duration = Duration::from_secs(60);
/// An initiator uses a cookie for this time. The cookie is valid for at least that long.
const COOKIE_LIFETIME: Duration = Duration::from_secs(60);

/// The decision on an initiation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Do the key agreement.
    Admit,
    /// Send this cookie reply instead.
    NeedsCookie(Vec<u8>),
    /// MAC1 is wrong: the sender does not know our key.
    BadMac,
    /// A limit is reached.
    Flood,
}

/// The responder's side.
#[derive(Debug)]
pub struct CookieChecker {
    own_mac: MacKey,
    /// The present secret, from which cookies are made, and the previous one.
    secrets: [[u8; KEY]; 2],
    renew_at: Instant,
    no_cookie_limit: Bucket,
    cookie_replies: Bucket,
    groups: Vec<Bucket>,
}

impl CookieChecker {
    /// Makes a checker for the owner of `secret`.
    pub fn new(secret: &SecretKey) -> Self {
        Self {
            own_mac: MacKey::for_receiver(&secret.public()),
            secrets: [[0; KEY]; 2],
            renew_at: Instant::default(),
            no_cookie_limit: Bucket::new(NO_COOKIE_LIMIT),
            cookie_replies: Bucket::new(COOKIE_REPLIES),
            groups: vec![Bucket::new(COOKIE_LIMIT); GROUPS],
        }
    }

    /// Whether the sender of `response` knows our public key.
    pub fn has_valid_mac1(&self, response: &Response<'_>) -> bool {
        self.own_mac.is_valid(response.mac1_input, &response.mac1)
    }

    /// Decides on an initiation from an address. With a cookie, the limit applies to the `owner` of
    /// the address, however many addresses the owner uses. `draw` returns fresh randomness.
    pub fn check(
        &mut self,
        now: Instant,
        (from, owner): (&[u8], &[u8]),
        initiation: &Initiation<'_>,
        mut draw: impl FnMut() -> [u8; KEY],
    ) -> Admission {
        if !self.own_mac.is_valid(initiation.mac1_input, &initiation.mac1) {
            return Admission::BadMac;
        }
        if self.no_cookie_limit.take(now) {
            return Admission::Admit;
        }
        if now >= self.renew_at {
            // After a pause longer than the span, the present secret is too old to remain as the
            // previous one.
            let previous = self.secrets[0];
            let stale = now >= self.renew_at + SECRET_PERIOD;
            self.secrets = [draw(), if stale { draw() } else { previous }];
            self.renew_at = now + SECRET_PERIOD;
        }
        let cookies = self.secrets.map(|secret| cookie(&secret, from));
        let mac2_of =
            |cookie: &[u8; COOKIE]| mac(cookie, &[initiation.mac1_input, &initiation.mac1]);
        if cookies.iter().any(|it| mac2_of(it) == initiation.mac2) {
            // Without the secret, nobody can choose an address that falls into the group of another
            // sender.
            let group = usize::from(cookie(&self.secrets[0], owner)[0]);
            let admitted = self.groups[group].take(now);
            return if admitted { Admission::Admit } else { Admission::Flood };
        }
        if !self.cookie_replies.take(now) {
            return Admission::Flood;
        }
        let nonce = *draw().first_chunk().unwrap_or(&[0; 12]);
        let reply = self.own_mac.cookie(initiation.session, &initiation.mac1, nonce, &cookies[0]);
        reply.map_or(Admission::Flood, Admission::NeedsCookie)
    }
}

/// Keys that anybody can derive from a public key.
#[derive(Debug, Clone)]
pub struct MacKey {
    mac_key: [u8; KEY],
    cookie_key: [u8; KEY],
}

impl MacKey {
    /// The keys for packets to the owner of `key`.
    pub fn for_receiver(key: &PublicKey) -> Self {
        Self {
            mac_key: hash(&[b"tautline mac", &key.0]),
            cookie_key: hash(&[b"tautline cookie", &key.0]),
        }
    }

    /// MAC1 of a packet.
    pub fn mac(&self, packet: &[u8]) -> [u8; MAC] {
        mac(&self.mac_key, &[packet])
    }

    fn is_valid(&self, packet: &[u8], found: &[u8; MAC]) -> bool {
        // Constant time is not needed: anybody who knows the public key can compute the MAC.
        self.mac(packet) == *found
    }

    /// The cookie reply to the initiation of `session` with `mac1`.
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

    /// The key that encrypts the one cookie reply to an initiation with this MAC1.
    fn cookie_key(&self, mac1: &[u8; MAC]) -> [u8; KEY] {
        hash(&[&self.cookie_key, mac1])
    }
}

/// The initiator's cookie, if it has received one.
#[derive(Debug, Clone, Default)]
pub struct CookieJar(Option<([u8; COOKIE], Instant)>);

impl CookieJar {
    /// Accepts the cookie reply to an initiation with `mac1`; `false` if it is invalid.
    pub fn accept(
        &mut self,
        now: Instant,
        remote: &MacKey,
        mac1: &[u8; MAC],
        cookie: &CookieReply<'_>,
    ) -> bool {
        let opened = open_once(&remote.cookie_key(mac1), cookie.nonce, cookie.sealed);
        let Some(opened) = opened.and_then(|bytes| bytes.try_into().ok()) else { return false };
        self.0 = Some((opened, now + COOKIE_LIFETIME));
        true
    }

    /// Appends MAC1 and MAC2 to an initiation; returns MAC1.
    pub fn append_macs(&self, now: Instant, remote: &MacKey, packet: &mut Vec<u8>) -> [u8; MAC] {
        let mac1 = remote.mac(packet);
        let mac2 = match &self.0 {
            Some((cookie, until)) if now < *until => mac(cookie, &[packet, &mac1]),
            _ => [0; MAC],
        };
        packet.extend_from_slice(&mac1);
        packet.extend_from_slice(&mac2);
        mac1
    }
}

/// The first 16 bytes of HMAC-SHA256 (RFC 2104).
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

    struct Responder {
        checker: CookieChecker,
        mac_key: MacKey,
        jar: CookieJar,
        drawn: u8,
    }

    impl Responder {
        fn new() -> Self {
            let secret = SecretKey::insecure("base");
            let mac_key = MacKey::for_receiver(&secret.public());
            Self {
                checker: CookieChecker::new(&secret),
                mac_key,
                jar: CookieJar::default(),
                drawn: 0,
            }
        }

        fn initiation(&self, now: Instant) -> Vec<u8> {
            let mut packet = start_initiation(7, &[1; 120]);
            self.jar.append_macs(now, &self.mac_key, &mut packet);
            packet
        }

        fn check(&mut self, now: Instant, host: u8, packet: &[u8]) -> Admission {
            self.check_from_port(now, host, 0, packet)
        }

        fn check_from_port(
            &mut self,
            now: Instant,
            host: u8,
            port: u8,
            packet: &[u8],
        ) -> Admission {
            let Ok(Packet::Initiation(initiation)) = Packet::parse(packet) else {
                panic!("an initiation")
            };
            let Self { checker, drawn, .. } = self;
            checker.check(now, (&[10, 0, 0, host, port], &[10, 0, 0, host]), &initiation, || {
                *drawn += 1;
                [*drawn; KEY]
            })
        }

        fn accept_reply(&mut self, now: Instant, initiation: &[u8], reply: &Admission) {
            let Admission::NeedsCookie(datagram) = reply else { panic!("{reply:?}") };
            let Ok(Packet::CookieReply(cookie)) = Packet::parse(datagram) else {
                panic!("a cookie")
            };
            let Ok(Packet::Initiation(initiation)) = Packet::parse(initiation) else {
                panic!("an initiation")
            };
            assert!(datagram.len() < initiation.mac1_input.len(), "no amplification");
            assert!(self.jar.accept(now, &self.mac_key, &initiation.mac1, &cookie));
        }
    }

    #[test]
    fn a_node_that_has_just_started_admits_initiations() {
        let mut responder = Responder::new();
        let initiation = responder.initiation(Instant(1));
        for _ in 0..NO_COOKIE_LIMIT.burst {
            assert_eq!(responder.check(Instant(1), 1, &initiation), Admission::Admit);
        }
        assert!(matches!(responder.check(Instant(1), 1, &initiation), Admission::NeedsCookie(_)));
    }

    #[test]
    fn an_initiator_that_does_not_know_the_key_gets_no_reply() {
        let mut responder = Responder::new();
        let mut initiation = responder.initiation(HOUR);
        initiation[20] ^= 1;
        assert_eq!(responder.check(HOUR, 1, &initiation), Admission::BadMac);
    }

    #[test]
    fn under_flood_a_cookie_is_needed_and_is_valid_for_its_address_alone() {
        let mut responder = Responder::new();
        let initiation = responder.initiation(HOUR);
        for _ in 0..NO_COOKIE_LIMIT.burst {
            assert_eq!(responder.check(HOUR, 1, &initiation), Admission::Admit);
        }
        let reply = responder.check(HOUR, 1, &initiation);
        responder.accept_reply(HOUR, &initiation, &reply);
        let initiation = responder.initiation(HOUR);
        assert_eq!(responder.check(HOUR, 1, &initiation), Admission::Admit);
        assert!(
            matches!(responder.check(HOUR, 2, &initiation), Admission::NeedsCookie(_)),
            "another address"
        );
        for _ in 1..COOKIE_LIMIT.burst {
            assert_eq!(responder.check(HOUR, 1, &initiation), Admission::Admit);
        }
        assert_eq!(
            responder.check(HOUR, 1, &initiation),
            Admission::Flood,
            "the limit of one sender"
        );
    }

    #[test]
    fn several_source_ports_share_the_limit_of_initiations() {
        let mut responder = Responder::new();
        let initiation = responder.initiation(HOUR);
        while responder.check(HOUR, 1, &initiation) == Admission::Admit {}
        let admitted = (0..40).filter(|port| {
            let initiation = responder.initiation(HOUR);
            let reply = responder.check_from_port(HOUR, 1, *port, &initiation);
            if matches!(reply, Admission::NeedsCookie(_)) {
                responder.accept_reply(HOUR, &initiation, &reply);
            }
            let initiation = responder.initiation(HOUR);
            responder.check_from_port(HOUR, 1, *port, &initiation) == Admission::Admit
        });
        assert_eq!(admitted.count(), COOKIE_LIMIT.burst as usize);
    }

    #[test]
    fn cookies_end_with_their_secrets() {
        let mut responder = Responder::new();
        let initiation = responder.initiation(HOUR);
        while responder.check(HOUR, 1, &initiation) == Admission::Admit {}
        let reply = responder.check(HOUR, 1, &initiation);
        responder.accept_reply(HOUR, &initiation, &reply);
        let initiation = responder.initiation(HOUR);
        let mut at = |seconds| {
            let now = HOUR + Duration::from_secs(seconds);
            while responder.checker.no_cookie_limit.take(now) {}
            responder.check(now, 1, &initiation)
        };
        assert_eq!(at(59), Admission::Admit);
        assert_eq!(at(61), Admission::Admit, "the previous secret is still valid");
        assert!(matches!(at(122), Admission::NeedsCookie(_)));
    }

    #[test]
    fn a_cookie_for_another_initiation_is_invalid() {
        let mut responder = Responder::new();
        let initiation = responder.initiation(HOUR);
        while responder.check(HOUR, 1, &initiation) == Admission::Admit {}
        let Admission::NeedsCookie(datagram) = responder.check(HOUR, 1, &initiation) else {
            panic!("a cookie")
        };
        let Ok(Packet::CookieReply(cookie)) = Packet::parse(&datagram) else { panic!("a cookie") };
        assert!(!responder.jar.accept(HOUR, &responder.mac_key, &[9; MAC], &cookie));
    }
}
