"""Verifiers of those who have none: what a login that does not exist is answered with.

They look like those of real users: with salts as long and iterations as many, each as often as
among the cell's credentials. A login is answered alike each time, and by each broker: what it has
is drawn by a key of the cell. When users come and go, a decoy changes only if the numbers of what
they have do by a factor of two, and then few of them.

Invariants
- Nothing proves a decoy.
- What is drawn depends on the key, the login and the first CENSUS_MAX credentials only.

Deliberately absent: a tenant's own habits. The draw is among the cell's credentials.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from data_plane.cell.credentials import (
    ITERATIONS_MIN,
    KEY_BYTES,
    Credentials,
    ScramVerifier,
)

# Looked at once for each change of the credentials, on the loop.
CENSUS_MAX = 1_000
SALT_BYTES = 20


class _Look(NamedTuple):
    """What can be seen of a verifier, or measured."""

    mechanism: str
    salt_bytes: int
    iterations: int


class Decoys:
    """Those of one broker. `key` and `credentials` are the cell's as they are now."""

    def __init__(self, key: Callable[[], bytes], credentials: Callable[[], Credentials]) -> None:
        self._key = key
        self._credentials = credentials
        self._counted: Credentials | None = None
        # By mechanism, and by that with which a password is checked.
        self._looks: dict[str, Counter[_Look]] = {}
        self._password_looks: Counter[_Look] = Counter()

    def for_mechanism(self, mechanism: str, login: str) -> ScramVerifier:
        """The verifier of a login that has none for this mechanism."""
        self._count()
        looks = self._looks.get(mechanism) or {_Look(mechanism, SALT_BYTES, ITERATIONS_MIN): 1}
        return self._make(looks, login)[1]

    def for_password(self, login: str) -> tuple[str, ScramVerifier]:
        """What a password of a login that does not exist is checked against: as much work."""
        self._count()
        looks = self._password_looks or {_Look("SCRAM-SHA-256", SALT_BYTES, ITERATIONS_MIN): 1}
        return self._make(looks, login)

    def _make(self, looks: dict[_Look, int], login: str) -> tuple[str, ScramVerifier]:
        look = min(sorted(looks), key=lambda one: self._rank(one, looks[one], login))
        seed = hmac.digest(self._key(), f"salt {look.mechanism} {login}".encode(), "sha256")
        salt = hashlib.shake_256(seed).digest(look.salt_bytes)
        size = KEY_BYTES[look.mechanism]
        verifier = ScramVerifier(salt, bytes(size), bytes(size), look.iterations)
        return look.mechanism, verifier

    def _rank(self, look: _Look, count: int, login: str) -> float:
        """The least is drawn, each as often as its weight says; another one's weight does not
        change it (rendezvous hashing)."""
        weight = 1 << (count.bit_length() - 1)
        drawn = hmac.digest(self._key(), f"look {look} {login}".encode(), "sha256")
        return -math.log((int.from_bytes(drawn[:6], "big") + 1) / (1 << 48)) / weight

    def _count(self) -> None:
        credentials = self._credentials()
        if credentials is self._counted:
            return
        self._counted = credentials
        self._looks, self._password_looks = {}, Counter()
        for credential in islice(credentials.values(), CENSUS_MAX):
            looks = [
                _Look(mechanism, len(verifier.salt), verifier.iterations)
                for mechanism, verifier in sorted(credential.verifiers.items())
            ]
            for look in looks:
                self._looks.setdefault(look.mechanism, Counter())[look] += 1
            # As PasswordChecks chooses it.
            self._password_looks.update(looks[:1])
