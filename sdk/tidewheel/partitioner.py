"""Which partition a message goes to.

`hash` is murmur2 over the key as Kafka's Java client does it, so that producers in any language
agree where a key lives; messages without a key go to a random partition that changes with every
batch (librdkafka's `murmur2_random`). `random` ignores keys. A function may choose freely.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from typing import Final, Literal

PartitionerFunction = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, partition_count) -> partition, from 0 to partition_count - 1."""

Partitioner = Literal["hash", "random"] | PartitionerFunction

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2 with the seed Kafka's Java client uses, as unsigned 32 bits.

    >>> hash_partition(b"kafka", 12)
    4
    """
    length = len(data)
    value = _SEED ^ length
    whole = length - length % 4
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = word * _MULTIPLIER & _MASK
        word ^= word >> 24
        word = word * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if whole != length:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * _MULTIPLIER & _MASK
    value ^= value >> 13
    value = value * _MULTIPLIER & _MASK
    return value ^ value >> 15


def hash_partition(key: bytes, partition_count: int) -> int:
    """The partition of a key, as Kafka's default partitioner chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def random_partition(
    topic: str, key: bytes | None, value: bytes | None, partition_count: int
) -> int:
    """Any partition, whatever the key."""
    return _random.randrange(partition_count)
