"""Checking passwords against verifiers: off the loop, a few at a time, and once for each.

A check costs milliseconds, which is what makes guessing expensive, so it runs in a worker thread
(fair_work.py: each address has its turn). A password that was right is remembered by an HMAC
under a key that this process has drawn and nobody else knows, together with the verifier that it
was right for: a thousand connections of one application cost one check.

Invariants
- A remembered password counts for that very verifier only: what is changed or deleted in the
  metadata is not remembered.
- No password and nothing that could be reversed to one outlives its check.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from data_plane.broker.authentication.decoys import Decoys
from data_plane.broker.authentication.scram import is_password_of
from data_plane.broker.request.fair_work import FairWork
from data_plane.cell.credentials import Credential, ScramVerifier

if TYPE_CHECKING:
    from random import Random

# Checks that wait or run; more are refused, and their clients connect again. An address may have no
# more of them than there is room left for, so there is always some for another one.
CHECKS_MAX = 2_000
REMEMBERED_MAX = 10_000
# No tenant has that name.
STRANGERS = ""
KEY_BYTES = 32

# Told whether the password is that of the credential; None when it could not be checked.
OnChecked = Callable[[bool | None], None]


class PasswordChecks:
    """Those of one broker."""

    def __init__(self, work: FairWork, random: Random, decoys: Decoys) -> None:
        self._work = work
        self._random = random
        self._decoys = decoys
        # Drawn when it is first needed.
        self._key = b""
        # Login → the HMAC of the password, and what it was checked against.
        self._right: dict[str, tuple[bytes, ScramVerifier]] = {}
        self._open_count = 0
        self._open_by_host: Counter[str] = Counter()

    def __len__(self) -> int:
        """Checks that wait or run."""
        return self._open_count

    @property
    def remembered_count(self) -> int:
        return len(self._right)

    def check(
        self,
        host: str,
        login: str,
        credential: Credential | None,
        password: bytes,
        on_checked: OnChecked,
    ) -> None:
        """Whether `password` is that of `credential`; a login without one costs as much."""
        self._key = self._key or self._random.randbytes(KEY_BYTES)
        mechanism, verifier = self._verifier(login, credential)
        proof = hmac.digest(self._key, b"%s\0%s" % (login.encode(), password), "sha256")
        known = self._right.get(login)
        if known is not None and known[1] == verifier and hmac.compare_digest(known[0], proof):
            on_checked(True)
            return
        if self._open_by_host[host] >= CHECKS_MAX - self._open_count:
            on_checked(None)
            return
        self._open_count += 1
        self._open_by_host[host] += 1

        def work() -> bool:
            return is_password_of(mechanism, verifier, password)

        def done(is_right: bool | None, error: BaseException | None) -> None:
            self._open_count -= 1
            self._open_by_host[host] -= 1
            if not self._open_by_host[host]:
                del self._open_by_host[host]
            if error is None and is_right and credential is not None:
                self._remember(login, proof, verifier)
            on_checked(None if error is not None else is_right and credential is not None)

        # Nobody knows yet whose client it is.
        self._work.submit(STRANGERS, host, work, done)

    def _verifier(self, login: str, credential: Credential | None) -> tuple[str, ScramVerifier]:
        if credential is None:
            return self._decoys.for_password(login)
        # All of them are of the same password, or the user has two.
        return next(iter(sorted(credential.verifiers.items())))

    def _remember(self, login: str, proof: bytes, verifier: ScramVerifier) -> None:
        self._right.pop(login, None)
        self._right[login] = (proof, verifier)
        if len(self._right) > REMEMBERED_MAX:
            del self._right[next(iter(self._right))]
