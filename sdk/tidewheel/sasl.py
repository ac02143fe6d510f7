"""A client's side of SCRAM (RFC 5802) and PLAIN, where librdkafka does not do the talking.

    client-first ─► server-first (salt, iterations, nonce) ─► client-final (proof) ─► server-final

Deliberately absent: what stands around the messages, and channel binding, which Kafka has not.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final, NamedTuple

PLAIN: Final = "PLAIN"
DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MAX: Final = 1_000_000
_HEADER: Final = "n,,"


class NotTrusted(Exception):
    """The broker has not shown that it knows the user."""


def plain_message(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


class ScramKeys(NamedTuple):
    """RFC 5802: a server keeps the last two."""

    client: bytes
    stored: bytes
    server: bytes


def keys_of(digest: str, password: bytes, salt: bytes, iterations: int) -> ScramKeys:
    """Those of a password; `digest` is one of DIGESTS."""
    salted = hashlib.pbkdf2_hmac(digest, password, salt, iterations)
    client = hmac.digest(salted, b"Client Key", digest)
    stored = hashlib.new(digest, client).digest()
    return ScramKeys(client, stored, hmac.digest(salted, b"Server Key", digest))


class ScramClient:
    """One exchange: `first`, then `final` with the answer, then `check` with the last one."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "") -> None:
        self._digest = DIGESTS[mechanism]
        self._password = password.encode()
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(18)).decode()
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"{_HEADER}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Raises NotTrusted."""
        fields = _fields(server_first)
        nonce, iterations_text = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise NotTrusted("the broker's answer is not to this client's question")
        if not iterations_text.isdecimal() or not 1 <= int(iterations_text) <= ITERATIONS_MAX:
            raise NotTrusted(f"the broker asks for {iterations_text[:20]} iterations")
        salt = base64.b64decode(fields.get("s", ""))
        keys = keys_of(self._digest, self._password, salt, int(iterations_text))
        header = base64.b64encode(_HEADER.encode()).decode()
        without_proof = f"c={header},r={nonce}"
        message = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        signature = hmac.digest(keys.stored, message, self._digest)
        proof = bytes(a ^ b for a, b in zip(keys.client, signature, strict=True))
        self._server_signature = hmac.digest(keys.server, message, self._digest)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Raises NotTrusted."""
        shown = base64.b64decode(_fields(server_final).get("v", ""))
        if not hmac.compare_digest(shown, self._server_signature):
            raise NotTrusted("the broker does not know this user's password")


def _fields(message: bytes) -> dict[str, str]:
    return {
        name: value
        for name, equals, value in (item.partition("=") for item in message.decode().split(","))
        if equals
    }
