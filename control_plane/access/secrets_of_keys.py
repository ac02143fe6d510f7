"""Secrets of keys, and what is kept of them.

A secret is 32 random bytes, with `tws_` in front so that scanners of source code find it. It is as
hard to guess as a key of a cipher, so one SHA-256 is enough to recognise it by REST, and 4,096
iterations of SCRAM (RFC 5802) for the cell: slower hashes protect what people choose.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64encode
from typing import Final

SECRET_PREFIX: Final = "tws_"
SECRET_BYTES: Final = 32
SALT_BYTES: Final = 20
ITERATIONS: Final = 4096
SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def new_secret() -> str:
    """A secret that nobody has had."""
    return SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def secret_hash(secret: str) -> str:
    """What REST recognises a secret by."""
    return hashlib.sha256(secret.encode()).hexdigest()


def scram_verifiers(secret: str) -> dict[str, dict[str, str | int]]:
    """By mechanism what a server keeps: salt, StoredKey and ServerKey in base 64, iterations."""
    verifiers: dict[str, dict[str, str | int]] = {}
    for mechanism, name in SCRAM_HASHES.items():
        salt = secrets.token_bytes(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(name, secret.encode(), salt, ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", name)
        verifiers[mechanism] = {
            "salt": b64encode(salt).decode(),
            "stored_key": b64encode(hashlib.new(name, client_key).digest()).decode(),
            "server_key": b64encode(hmac.digest(salted, b"Server Key", name)).decode(),
            "iterations": ITERATIONS,
        }
    return verifiers
