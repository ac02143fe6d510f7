"""The five codecs of a record batch: none, gzip, snappy, lz4, zstd, each in the framing Kafka uses.

A batch compresses everything behind its 61-byte header as one piece; the codec is the low three
bits of the batch's attributes.

- gzip: RFC 1952, one or more members.
- snappy: Java clients and brokers write xerial's framing (a magic, two versions, then blocks of a
  length and raw snappy); librdkafka and others write one raw snappy block. Both are read; the first
  is written, in blocks of 32 KiB, as Kafka's broker does when it compresses anew.
- lz4: the frame format. Java refuses frames whose blocks depend on each other, so frames are put
  together here: independent blocks of 64 KiB, neither checksums nor content size, as Kafka writes.
- zstd: RFC 8878 frames.

Invariants
- `decompress` never returns, and never reserves, more than `size_max` bytes whatever the input says
  about itself. An input that would need more is refused with MESSAGE_TOO_LARGE: the sender must
  send less, and sending the same again is pointless.
- Input from outside never raises anything but `InvalidRecords`.

Deliberately absent: dictionaries, streaming, and reading lz4 or snappy variants older than message
format v2 (their batches are refused before anyone looks inside).
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

import cramjam

from data_plane.wire.errors import ErrorCode, InvalidRecords

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""What one batch may unpack to unless the caller says otherwise: 128 times the default
`message.max.bytes`. Text seldom packs better than 1:20, a bomb packs 1:1000 or more."""

UNPACKER_KEPT_BYTES: Final = 2 * 1024 * 1024
"""What one `Unpacker` keeps: the largest batch of default settings, twice."""

# Clients write blocks of 32 and 64 KiB, which take several hundred bytes however well they pack. A
# block costs a microsecond though it be empty, so there must not be one for every few bytes.
_BLOCKS_ANYWAY: Final = 1024
_BLOCK_BYTES_MEAN_MIN: Final = 64

_FIRST_GUESS_BYTES_MIN: Final = 64 * 1024
_FIRST_GUESS_RATIO: Final = 8
_GROWTH: Final = 4

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
"""Magic; version 1 with independent blocks; 64 KiB blocks; the checksum of those two bytes."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_FAST_LEVEL: Final = 9
_LZ4_LEVEL_MAX: Final = 12
"""The library's; Kafka's scale goes to 17, where the Java library does what it does at 12."""
_LZ4_STORED: Final = 0x80000000
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_DICTIONARY: Final = 0x01
_LZ4_END_MARK: Final = b"\x00\x00\x00\x00"


class Compression(IntEnum):
    """The codecs by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_DEFAULT_LEVEL: Final = {Compression.GZIP: 6, Compression.ZSTD: 3}
_MODULES: Final = {
    Compression.GZIP: cramjam.gzip,
    Compression.LZ4: cramjam.lz4,
    Compression.ZSTD: cramjam.zstd,
}


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the framing Kafka's broker writes for `codec`.

    `level` is that of Kafka's `compression.<codec>.level`: gzip 1 to 9 or -1 for zlib's choice,
    zstd up to 22 (default 3), lz4 1 to 17, of which 9, the default, means the fast compressor and
    any other the high-compressing one; snappy has none.
    """
    if codec == Compression.GZIP:
        packer = zlib.compressobj(
            _DEFAULT_LEVEL[Compression.GZIP] if level is None else level, zlib.DEFLATED, 31
        )
        return packer.compress(data) + packer.flush()
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.LZ4:
        return _compress_lz4(data, level)
    if codec == Compression.ZSTD:
        return bytes(
            cramjam.zstd.compress(
                data, _DEFAULT_LEVEL[Compression.ZSTD] if level is None else level
            )
        )
    if codec == Compression.NONE:
        return bytes(data)
    raise _unknown(codec)


def decompress(
    codec: int, data: Buffer, size_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes | bytearray:
    """What `data` unpacks to, at most `size_max` bytes. The buffer is the caller's own.

    Raises InvalidRecords: INVALID_RECORD when the bytes are not what the codec says, TooLarge
    (MESSAGE_TOO_LARGE) when they unpack to more than `size_max`, UNSUPPORTED_COMPRESSION_TYPE for
    an unknown codec.
    """
    if codec == Compression.NONE:
        if len(data) > size_max:
            raise _too_large(codec, size_max)
        return bytes(data)
    if codec == Compression.SNAPPY:
        return _decompress_snappy(data, size_max)
    if codec not in _MODULES:
        raise _unknown(codec)
    size = max(_FIRST_GUESS_BYTES_MIN, _FIRST_GUESS_RATIO * len(data))
    return _decompress_growing(Compression(codec), data, size, size_max)


class Unpacker:
    """Unpacks one batch after the other into the same memory, for looking at and forgetting.

    Fresh memory costs several times what the codecs do, because every page of it is cleared. What
    does not fit the kept memory gets its own, as `decompress` does, and gives it back.
    """

    __slots__ = ("_kept", "_kept_bytes")

    def __init__(self, kept_bytes: int = UNPACKER_KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._kept: bytearray | None = None  # Made when the first compressed batch comes.

    def unpack(self, codec: int, data: Buffer, size_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
        """As `decompress`, but the result is valid only until the next call."""
        if codec not in _MODULES or size_max < self._kept_bytes:
            return decompress(codec, data, size_max)
        if self._kept is None:
            self._kept = bytearray(self._kept_bytes)
        written = _unpack_into(Compression(codec), data, self._kept)
        if written is None:
            size = max(self._kept_bytes, _FIRST_GUESS_RATIO * len(data)) * _GROWTH
            return _decompress_growing(Compression(codec), data, size, size_max)
        return memoryview(self._kept)[:written]


def _decompress_growing(codec: Compression, data: Buffer, size: int, size_max: int) -> bytearray:
    """Unpack into a buffer of `size` that grows fourfold until it fits or reaches `size_max`.

    The size a frame states is not believed, and most Java clients state none.
    """
    size = min(size, size_max)
    while True:
        out = bytearray(size)
        written = _unpack_into(codec, data, out)
        if written is not None:
            del out[written:]
            return out
        if size >= size_max:
            raise _too_large(codec, size_max)
        size = min(size_max, size * _GROWTH)
        del out  # So that the two are never held at once.


def _unpack_into(codec: Compression, data: Buffer, out: bytearray) -> int | None:
    """How many bytes of `out` were written; None when `data` unpacks to more than it holds."""
    if codec is Compression.LZ4:
        _check_lz4_frame(data)
    try:
        written: int = _MODULES[codec].decompress_into(data, out)
    except (cramjam.DecompressionError, OSError) as error:
        if "whole buffer" in str(error) and "write" in str(error):
            return None
        raise _broken(codec, error) from error
    return written


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces.append(len(block).to_bytes(4, "big"))
        pieces.append(block)
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, size_max: int) -> bytearray | bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, size_max)
    # The two versions are read over: xerial has only ever written 1 and 1.
    position = len(_XERIAL_HEADER)
    pieces: list[bytearray] = []
    room = size_max
    blocks_max = _blocks_max(len(view))
    while position < len(view):
        if len(pieces) == blocks_max:
            raise _too_many_blocks(Compression.SNAPPY, blocks_max)
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < size <= len(view) - position:
            raise _broken(Compression.SNAPPY, "a block reaches beyond the end of its batch")
        try:
            piece = _decompress_snappy_block(view[position : position + size], room)
        except TooLarge as error:
            raise _too_large(Compression.SNAPPY, size_max) from error
        room -= len(piece)
        pieces.append(piece)
        position += size
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytearray:
    """One raw block. It begins with its unpacked size, which the library holds it to; no input
    expands more than 64 times (three bytes copy at most 64), so a size beyond that is a lie."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > 64 * len(block):
            raise _broken(Compression.SNAPPY, "its stated size is impossible")
        if size > size_max:
            raise _too_large(Compression.SNAPPY, size_max)
        out = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, out) if size else 0
    except (cramjam.DecompressionError, OSError) as error:
        raise _broken(Compression.SNAPPY, error) from error
    del out[written:]
    return out


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    pieces = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        block = view[start : start + _LZ4_BLOCK_BYTES]
        if level is None or level == _LZ4_FAST_LEVEL:
            packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        else:
            packed = bytes(
                cramjam.lz4.compress_block(
                    block,
                    mode="high_compression",
                    compression=min(level, _LZ4_LEVEL_MAX),
                    store_size=False,
                )
            )
        if len(packed) < len(block):
            pieces.append(len(packed).to_bytes(4, "little"))
            pieces.append(packed)
        else:
            pieces.append((len(block) | _LZ4_STORED).to_bytes(4, "little"))
            pieces.append(bytes(block))
    pieces.append(_LZ4_END_MARK)
    return b"".join(pieces)


def _check_lz4_frame(data: Buffer) -> None:
    """One frame of independent blocks and nothing behind it: the library would read several frames
    and blocks that depend on each other, Java reads the first frame only and refuses the latter."""
    size = len(data)
    flags = data[4] if size > 4 else 0
    if size > 6 and not flags & _LZ4_INDEPENDENT:
        raise _broken(Compression.LZ4, "its blocks depend on each other")
    position = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    blocks_left = blocks_max = _blocks_max(size)
    while position + 4 <= size:
        blocks_left -= 1
        if blocks_left < 0:
            raise _too_many_blocks(Compression.LZ4, blocks_max)
        block_bytes = int.from_bytes(data[position : position + 4], "little")
        position += 4
        if not block_bytes:
            end = position + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
            if end < size:
                raise _broken(Compression.LZ4, f"{size - end} bytes remain behind its frame")
            return
        position += (block_bytes & ~_LZ4_STORED) + checksum_bytes
    # Cut off, which the library says better.


def _blocks_max(packed_bytes: int) -> int:
    return _BLOCKS_ANYWAY + packed_bytes // _BLOCK_BYTES_MEAN_MIN


def _too_many_blocks(codec: Compression, blocks_max: int) -> InvalidRecords:
    return _broken(codec, f"it has more than {blocks_max} blocks for its size")


class TooLarge(InvalidRecords):
    """The records would unpack to more than is allowed."""


def _too_large(codec: int, size_max: int) -> TooLarge:
    return TooLarge(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a {Compression(codec).name.lower()} batch unpacks to more than {size_max} bytes",
    )


def _broken(codec: Compression, why: object) -> InvalidRecords:
    return InvalidRecords(
        ErrorCode.INVALID_RECORD, f"a {codec.name.lower()} batch does not unpack: {why}"
    )


def _unknown(codec: int) -> InvalidRecords:
    return InvalidRecords(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {codec}"
    )
