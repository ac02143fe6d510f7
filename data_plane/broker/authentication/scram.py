"""SCRAM (RFC 5802, 7677): the server's side of an exchange, and the making of verifiers.

    client     n,,n=alice,r=<nonce>
    server     r=<nonce><its own>,s=<salt>,i=<iterations>
    client     c=biws,r=<both nonces>,p=<proof>
    server     v=<signature>

Invariants
- A login that does not exist, or has no verifier for the mechanism, is answered like one that has:
  with a salt that is always the same (decoys.py), and with the same refusal at the end.
- The server's nonce is new in each exchange, so that no message of an earlier one proves anything.
- Proofs are compared in constant time.

Deliberately absent: channel binding (`p=`), which Apache Kafka does not have either; mandatory
extensions, of which there are none; normalization of names and passwords (SASLprep), which Kafka
and its clients leave out, too.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable

from data_plane.broker.authentication.sasl_exchange import (
    OTHER_AUTHORIZATION_ID,
    TOO_LONG_LOGIN,
    Challenge,
    FindCredential,
    Outcome,
    Proven,
    Refused,
)
from data_plane.cell.credentials import (
    LOGIN_CHARACTERS_MAX,
    SCRAM_HASHES,
    Credential,
    ScramVerifier,
)

# A first message has a name, which may be escaped, and a nonce; a last one nonces and a proof. What
# is kept of them between the two is bounded by it.
MESSAGE_BYTES_MAX = 4096
NONCE_BYTES = 18

_NAME = r"(?:[^\0=,]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
# Apache Kafka's clients name an extension by a word.
_EXTENSIONS = r"(?:,[A-Za-z]+=[^\0,]+)*"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unsigned>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """What takes milliseconds: SaltedPassword of RFC 5802."""
    return hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password, salt, iterations)


def verifier_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    """The verifier of a salted password."""
    hash_name = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return ScramVerifier(
        salt, stored_key, hmac.digest(salted, b"Server Key", hash_name), iterations
    )


def is_password_of(mechanism: str, verifier: ScramVerifier, password: bytes) -> bool:
    """Whether the verifier was made of this password. Takes milliseconds."""
    salted = salted_password(mechanism, password, verifier.salt, verifier.iterations)
    tried = verifier_of(mechanism, salted, verifier.salt, verifier.iterations)
    return hmac.compare_digest(tried.stored_key, verifier.stored_key)


class ScramExchange:
    """See SaslExchange. `nonce` is new, and nobody can guess it; `decoy` makes the verifier of who
    has none."""

    def __init__(
        self,
        mechanism: str,
        find: FindCredential,
        decoy: Callable[[str, str], ScramVerifier],
        nonce: str,
    ) -> None:
        self.login = ""
        self._mechanism = mechanism
        self._find = find
        self._decoy = decoy
        self._nonce = nonce
        self._next: Callable[[str], Outcome] = self._take_first

    def take(self, token: bytes) -> Outcome:
        take, self._next = self._next, _take_none
        if len(token) > MESSAGE_BYTES_MAX:
            return Refused(f"a message of {len(token)} bytes, allowed are {MESSAGE_BYTES_MAX}")
        try:
            message = token.decode()
        except UnicodeDecodeError:
            return Refused("the message is not UTF-8")
        return take(message)

    def _take_first(self, message: str) -> Outcome:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            return Refused("Invalid SCRAM client first message format")
        login = _plain_name(match["name"])
        if len(login) > LOGIN_CHARACTERS_MAX:
            return Refused(TOO_LONG_LOGIN)
        self.login = login
        self._credential = self._find(self.login)
        verifier = None
        if self._credential is not None:
            verifier = self._credential.verifiers.get(self._mechanism)
        self._is_known = verifier is not None
        self._verifier = verifier or self._decoy(self._mechanism, self.login)
        if _plain_name(match["authorization_id"] or "") not in ("", self.login):
            return Refused("another authorization id", OTHER_AUTHORIZATION_ID)
        self._header = match["header"]
        self._both_nonces = match["nonce"] + self._nonce
        salt = b64encode(self._verifier.salt).decode()
        answer = f"r={self._both_nonces},s={salt},i={self._verifier.iterations}"
        self._said = f"{match['bare']},{answer}"
        self._next = self._take_final
        return Challenge(answer.encode())

    def _take_final(self, message: str) -> Outcome:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            return Refused("Invalid SCRAM client final message format")
        # librdkafka before 2.6.1 says its own a second time before both (Apache Kafka, 3.8.1).
        if not match["nonce"].endswith(self._both_nonces):
            return Refused("Invalid client nonce in the final client message.")
        try:
            binding = b64decode(match["binding"], validate=True)
            proof = b64decode(match["proof"], validate=True)
        except ValueError:
            return Refused("not base64")
        if binding != self._header.encode():
            return Refused("another channel binding than in the first message")
        signed = f"{self._said},{match['unsigned']}".encode()
        is_proven = self._proves(proof, signed)
        if not (is_proven and self._is_known):
            return Refused("Invalid client credentials")
        credential = self._credential
        assert isinstance(credential, Credential)
        hash_name = SCRAM_HASHES[self._mechanism]
        signature = hmac.digest(self._verifier.server_key, signed, hash_name)
        return Proven(credential, b"v=" + b64encode(signature))

    def _proves(self, proof: bytes, signed: bytes) -> bool:
        hash_name = SCRAM_HASHES[self._mechanism]
        stored_key = self._verifier.stored_key
        signature = hmac.digest(stored_key, signed, hash_name)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), stored_key)


def _take_none(message: str) -> Outcome:
    return Refused("a message after the last one")


def _plain_name(name: str) -> str:
    """The name without the escapes of SCRAM."""
    return name.replace("=2C", ",").replace("=3D", "=")
