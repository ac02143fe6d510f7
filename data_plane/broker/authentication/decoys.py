"""Verifiers of those who have none: what a login that does not exist is answered with.

They look like those of real users: with salts as long and iterations as many, each as often as
among the cell's credentials. A login is answered alike each time, and by each broker: what it has
is drawn by a key of the cell. When users come and go, a decoy changes only if the numbers of what
they have do by a factor of two, and then few of them.

Invariants
- Nothing proves a decoy.
- What is drawn depends on the key, the login and the first CENSUS_MAX credentials only.
- A draw is among LOOKS_MAX looks at most, however many a tenant gives its users: first come those
  of more tenants, then those of more users.

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
# Each costs every attempt of a login that does not exist an HMAC, on the loop.
LOOKS_MAX = 16
SALT_BYTES = 20


class _Look(NamedTuple):
    """What can be seen of a verifier, or measured."""

    mechanism: str
    salt_bytes: int
    iterations: int


class _Ticket(NamedTuple):
    """A look in the draw. `drawn_for` is what its lot depends on, besides the login."""

    look: _Look
    weight: int
    drawn_for: bytes


class _Census:
    """Who has what, of one kind of looks."""

    def __init__(self) -> None:
        self._users: Counter[_Look] = Counter()
        self._tenants: dict[_Look, set[str]] = {}

    def add(self, look: _Look, tenant: str) -> None:
        self._users[look] += 1
        self._tenants.setdefault(look, set()).add(tenant)

    def tickets(self) -> tuple[_Ticket, ...]:
        """Numbers by powers of two, so that little changes when they do."""

        def place(look: _Look) -> tuple[int, int, _Look]:
            return -len(self._tenants[look]).bit_length(), -self._users[look].bit_length(), look

        first = sorted(self._users, key=place)[:LOOKS_MAX]
        return tuple(_ticket(look, self._users[look]) for look in sorted(first))


def _ticket(look: _Look, count: int) -> _Ticket:
    return _Ticket(look, 1 << (count.bit_length() - 1), f"look {look} ".encode())


class Decoys:
    """Those of one broker. `key` and `credentials` are the cell's as they are now."""

    def __init__(self, key: Callable[[], bytes], credentials: Callable[[], Credentials]) -> None:
        self._key = key
        self._credentials = credentials
        self._counted: Credentials | None = None
        # By mechanism, and by that with which a password is checked.
        self._tickets: dict[str, tuple[_Ticket, ...]] = {}
        self._password_tickets: tuple[_Ticket, ...] = ()

    def for_mechanism(self, mechanism: str, login: str) -> ScramVerifier:
        """The verifier of a login that has none for this mechanism."""
        self._count()
        return self._make(self._tickets.get(mechanism, ()), mechanism, login)[1]

    def for_password(self, login: str) -> tuple[str, ScramVerifier]:
        """What a password of a login that does not exist is checked against: as much work."""
        self._count()
        return self._make(self._password_tickets, "SCRAM-SHA-256", login)

    def _make(
        self, tickets: tuple[_Ticket, ...], mechanism: str, login: str
    ) -> tuple[str, ScramVerifier]:
        """`mechanism` is that of a cell without any user."""
        key = self._key()
        look = _Look(mechanism, SALT_BYTES, ITERATIONS_MIN)
        if tickets:
            encoded = login.encode()
            look = min(tickets, key=lambda one: _lot(key, one, encoded)).look
        seed = hmac.digest(key, f"salt {look.mechanism} {login}".encode(), "sha256")
        salt = hashlib.shake_256(seed).digest(look.salt_bytes)
        size = KEY_BYTES[look.mechanism]
        verifier = ScramVerifier(salt, bytes(size), bytes(size), look.iterations)
        return look.mechanism, verifier

    def _count(self) -> None:
        credentials = self._credentials()
        if credentials is self._counted:
            return
        self._counted = credentials
        by_mechanism: dict[str, _Census] = {}
        of_passwords = _Census()
        for credential in islice(credentials.values(), CENSUS_MAX):
            looks = [
                _Look(mechanism, len(verifier.salt), verifier.iterations)
                for mechanism, verifier in sorted(credential.verifiers.items())
            ]
            for look in looks:
                by_mechanism.setdefault(look.mechanism, _Census()).add(look, credential.tenant)
            # As PasswordChecks chooses it.
            for look in looks[:1]:
                of_passwords.add(look, credential.tenant)
        self._tickets = {name: census.tickets() for name, census in by_mechanism.items()}
        self._password_tickets = of_passwords.tickets()


def _lot(key: bytes, ticket: _Ticket, login: bytes) -> float:
    """The least is drawn, each as often as its weight says; another one's weight does not change it
    (rendezvous hashing)."""
    drawn = hmac.digest(key, ticket.drawn_for + login, "sha256")
    return -math.log((int.from_bytes(drawn[:6], "big") + 1) / (1 << 48)) / ticket.weight
