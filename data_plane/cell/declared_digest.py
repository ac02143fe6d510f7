"""One value over many resources that is kept up with each of them, in any order.

It is the sum, modulo 2^256, of a SHA-256 for each resource. So what comes is added and what goes is
taken away, and two cells with the same resources have the same sum however they came to it. Whoever
may declare resources could construct a collision; it protects from drift, not from its author.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

DIGEST_BYTES: Final = 32
_MODULUS: Final = 1 << (8 * DIGEST_BYTES)


class KindDigest(NamedTuple):
    """Of one kind or of all."""

    total: int
    resources: int

    def plus(self, *texts: str) -> KindDigest:
        """With one more resource."""
        return KindDigest((self.total + _number(texts)) % _MODULUS, self.resources + 1)

    def minus(self, *texts: str) -> KindDigest:
        """Without a resource that is in it."""
        return KindDigest((self.total - _number(texts)) % _MODULUS, self.resources - 1)

    def and_of(self, other: KindDigest) -> KindDigest:
        """Over both."""
        return KindDigest((self.total + other.total) % _MODULUS, self.resources + other.resources)

    def to_bytes(self) -> bytes:
        return self.total.to_bytes(DIGEST_BYTES, "big")


NOTHING_DIGESTED: Final = KindDigest(0, 0)


def _number(texts: tuple[str, ...]) -> int:
    """Each text with its length before it: where one ends is part of what is digested."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return int.from_bytes(digest.digest(), "big")
