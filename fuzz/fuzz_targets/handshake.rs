// SPDX-License-Identifier: Apache-2.0
#![no_main]
//! Handshake initiations, responses, cookie replies and beacons of any content, with valid and
//! invalid MACs, to a node that has a session with its peer and initiates handshakes with others.

use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::{Config, PublicKey, SecretKey};
use tautline_testkit::attacker::{Attacked, PEER};

/// Appends the MACs to a handshake packet, as a sender that knows the key.
fn prove(key: &PublicKey, mut packet: Vec<u8>, codes: usize) -> Vec<u8> {
    let proof = MacKey::for_receiver(key);
    if codes == 2 {
        CookieJar::default().append_macs(tautline_proto::Instant(0), &proof, &mut packet);
    } else {
        let mac = proof.mac(&packet);
        packet.extend_from_slice(&mac);
    }
    packet
}

libfuzzer_sys::fuzz_target!(|pieces: Vec<(u8, &[u8])>| {
    let config = Config::new("node", SecretKey::insecure("node"));
    let mut attacked = Attacked::new(config);
    let key = SecretKey::insecure(attacked.endpoint.name()).public();
    let (_, call) = attacked.call(2, 9);
    for (kind, bytes) in pieces {
        let packet = match kind % 6 {
            // Raw bytes; with valid MACs; a genuine initiation, changed and given valid MACs.
            0 => bytes.to_vec(),
            1 => prove(&key, [&[b'T', 0], bytes].concat(), 2),
            2 => prove(&key, [&[b'T', 1], bytes].concat(), 1),
            3 => [&[b'T', 2 + kind / 6 % 2], bytes].concat(),
            _ => {
                let mut changed = call[..call.len() - 32].to_vec();
                for (at, byte) in bytes.iter().enumerate() {
                    let place = 2 + (at * 7 + usize::from(*byte)) % (changed.len() - 2);
                    changed[place] ^= byte;
                }
                prove(&key, changed, 2)
            }
        };
        attacked.inject(&packet);
    }
    assert!(attacked.endpoint.peer(PEER).met);
});
