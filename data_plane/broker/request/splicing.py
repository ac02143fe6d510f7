"""Responses put together from pieces that were encoded once.

Some administrative answers repeat the same thousands of bytes: partitions that differ in their
index, topics with equal configurations. Encoding each from message objects holds up the loop for
seconds. Here the generated encoder writes the fields around an array with the array empty, and
once each distinct element; the pieces are joined.

    | fields before | 0 | tail |          what the encoder writes without elements
    | fields before | n | e1 … en | tail |

The caller knows how many bytes the encoder writes behind the array (`tail_bytes`); everything else
follows from sizes. Each user has a test that compares with the generated encoder, by version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from data_plane.wire.primitives import Writer

Bytes = bytes | bytearray


class ArrayPlace(NamedTuple):
    """Where an array stands in what the generated encoder writes."""

    is_flexible: bool
    tail_bytes: int

    def splice(self, around: Bytes, count: int, chunks: Iterable[Bytes]) -> bytearray:
        """`around`, which has the array empty, with `count` elements joined from `chunks`."""
        end = len(around) - self.tail_bytes
        writer = Writer()
        writer.buf += around[: end - _length_bytes(self.is_flexible, 0)]
        if self.is_flexible:
            writer.write_uvarint(count + 1)
        else:
            writer.write_int32(count)
        writer.buf += b"".join(chunks)
        writer.buf += around[end:]
        return writer.buf

    def elements(self, encoded: Bytes, empty: Bytes, count: int) -> bytes:
        """The bytes of all `count` elements in `encoded`, which is otherwise equal to `empty`."""
        longer_length = _length_bytes(self.is_flexible, count) - _length_bytes(self.is_flexible, 0)
        size = len(encoded) - len(empty) - longer_length
        end = len(encoded) - self.tail_bytes
        return bytes(encoded[end - size : end])


def _length_bytes(is_flexible: bool, count: int) -> int:
    """Size of an array's length: an unsigned varint of count + 1, or 32 bits."""
    if not is_flexible:
        return 4
    return max(1, -(-(count + 1).bit_length() // 7))
