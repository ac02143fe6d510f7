"""Producer ids that say nothing of how many there are.

Ids come from one counter of the cell. Told as they are, each would tell a tenant how many producers
all the others have made since its last one. So where the cell has a key, an id is told as a
permutation of its number, in the upper half of the ids that there are:

    number   0 … 2^62-1   ──►  told   2^62 … 2^63-1, each once, in no order that can be seen

Invariants
- Different numbers give different ids, whatever the key. An id that was told before there was a key
  is below all that come after it.
- The key never changes (cell/tenancy_changes.py), so no id is ever told twice. An unsafe downgrade
  to metadata.version 1 forgets it. Under the next key the numbers go on, and that one of them gives
  an id of before is a chance of 2^-62 for each two.

The permutation is a Feistel network of four rounds with HMAC-SHA256, which nobody who lacks the
key can tell from a random one (Luby and Rackoff).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

HALF_BITS: Final = 31
NUMBERS_MAX: Final = 1 << (2 * HALF_BITS)
_MASK: Final = (1 << HALF_BITS) - 1
_ROUNDS: Final = 4
_PURPOSE: Final = b"producer ids"


def told_producer_id(number: int, cell_key: bytes) -> int:
    """The id that stands for the number; the number itself without a key."""
    if not cell_key:
        return number
    assert 0 <= number < NUMBERS_MAX
    key = hmac.digest(cell_key, _PURPOSE, hashlib.sha256)
    left, right = number >> HALF_BITS, number & _MASK
    for step in range(_ROUNDS):
        drawn = hmac.digest(key, bytes([step]) + right.to_bytes(4, "big"), hashlib.sha256)
        left, right = right, left ^ (int.from_bytes(drawn[:4], "big") & _MASK)
    return NUMBERS_MAX | left << HALF_BITS | right
