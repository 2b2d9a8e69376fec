# SPDX-License-Identifier: Apache-2.0
"""Keys, hashes and the handshake of protocol.md, section 3, with python3-cryptography."""
import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class Refused(ValueError):
    """Bytes that violate the protocol. `error` is the name of the fault in the vectors."""

    def __init__(self, error, field=""):
        super().__init__(f"{error}: {field}" if field else error)
        self.error = error


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def hmac256(key, *parts):
    return hmac.digest(key, b"".join(parts), "sha256")


def mac(key, data):
    return hmac256(key, data)[:16]


def public_key(secret):
    key = X25519PrivateKey.from_private_bytes(secret).public_key()
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def agree(secret, public):
    """The library refuses an agreement whose result is zero."""
    try:
        return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Refused("agreement is zero") from None


def open_sealed(key, nonce, sealed, associated):
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, sealed, associated)
    except InvalidTag:
        raise Refused("decryption") from None


class Noise:
    """Noise_IK_25519_ChaChaPoly_SHA256, from either side."""

    def __init__(self, secret, ephemeral, responder_public):
        self.secret, self.ephemeral = secret, ephemeral
        self.chain = self.hash = b"Noise_IK_25519_ChaChaPoly_SHA256"
        self.key, self.nonce = None, 0
        self.mix_hash(b"tautline\0")
        self.mix_hash(responder_public)

    def mix_hash(self, data):
        self.hash = sha256(self.hash, data)

    def expand(self, data):
        temp = hmac256(self.chain, data)
        first = hmac256(temp, b"\1")
        return first, hmac256(temp, first, b"\2")

    def mix_key(self, agreement):
        self.chain, self.key = self.expand(agreement)
        self.nonce = 0

    def cipher_nonce(self):
        self.nonce += 1
        return struct.pack("<IQ", 0, self.nonce - 1)

    def seal(self, plain):
        sealed = ChaCha20Poly1305(self.key).encrypt(self.cipher_nonce(), plain, self.hash)
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed):
        plain = open_sealed(self.key, self.cipher_nonce(), sealed, self.hash)
        self.mix_hash(sealed)
        return plain

    def initiation(self, responder, payload):
        """The initiator's message."""
        own = public_key(self.ephemeral)
        self.mix_hash(own)
        self.mix_key(agree(self.ephemeral, responder))
        static = self.seal(public_key(self.secret))
        self.mix_key(agree(self.secret, responder))
        return own + static + self.seal(payload)

    def read_initiation(self, noise):
        """For the responder: returns the initiator's static key and payload."""
        self.theirs = noise[:32]
        self.mix_hash(self.theirs)
        self.mix_key(agree(self.secret, self.theirs))
        self.initiator = self.open(noise[32:80])
        self.mix_key(agree(self.secret, self.initiator))
        return self.initiator, self.open(noise[80:])

    def response(self, payload):
        """The responder's message."""
        own = public_key(self.ephemeral)
        self.mix_hash(own)
        self.mix_key(agree(self.ephemeral, self.theirs))
        self.mix_key(agree(self.ephemeral, self.initiator))
        return own + self.seal(payload)

    def read_response(self, noise):
        theirs = noise[:32]
        self.mix_hash(theirs)
        self.mix_key(agree(self.ephemeral, theirs))
        self.mix_key(agree(self.secret, theirs))
        return self.open(noise[32:])

    def split(self):
        """Returns two keys: for what the initiator seals, and for what it opens."""
        return self.expand(b"")
