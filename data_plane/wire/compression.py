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
- Large results lie in memory of their own that the system clears page by page as it is written, by
  the codec, without the interpreter. A bytearray would be cleared as a whole beforehand by a thread
  that lets no other one run: 60 ms for the largest batch.

Deliberately absent: dictionaries, streaming, and reading lz4 or snappy variants older than message
format v2 (their batches are refused before anyone looks inside).
"""

from __future__ import annotations

import mmap
import zlib
from collections import deque
from enum import IntEnum
from typing import Final

import cramjam

from data_plane.wire.errors import ErrorCode, InvalidRecords

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""What one batch may unpack to unless the caller says otherwise: 128 times the default
`message.max.bytes`. Text seldom packs better than 1:20, a bomb packs 1:1000 or more."""

UNPACKER_KEPT_BYTES: Final = 1024 * 1024
"""What one `Unpacker` keeps: what the largest batch of librdkafka's default settings unpacks to."""

# Clients write blocks of 32 and 64 KiB, which take several hundred bytes however well they pack. A
# block costs a microsecond though it be empty, so there must not be one for every few bytes.
_BLOCKS_ANYWAY: Final = 1024
_BLOCK_BYTES_MEAN_MIN: Final = 64

# What probably unpacks to no more than this gets ordinary memory, which may be in the cache.
_SMALL_BYTES: Final = 256 * 1024
_SMALL_RATIO: Final = 8
_SMALL_BYTES_MIN: Final = 64 * 1024

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


_PACKED: Final = frozenset(codec for codec in Compression if codec is not Compression.NONE)
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


def decompress(codec: int, data: Buffer, size_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """What `data` unpacks to, at most `size_max` bytes. The buffer is the caller's own.

    Raises InvalidRecords: INVALID_RECORD when the bytes are not what the codec says, TooLarge
    (MESSAGE_TOO_LARGE) when they unpack to more than `size_max`, UNSUPPORTED_COMPRESSION_TYPE for
    an unknown codec.
    """
    if codec == Compression.NONE:
        if len(data) > size_max:
            raise _too_large(codec, size_max)
        return bytes(data)
    if codec not in _PACKED:
        raise _unknown(codec)
    size = min(size_max, max(_SMALL_BYTES_MIN, _SMALL_RATIO * len(data)))
    if size <= _SMALL_BYTES:
        out = bytearray(size)
        written = _unpack_into(Compression(codec), data, memoryview(out))
        if written is not None:
            del out[written:]
            return out
        if size == size_max:
            raise _too_large(codec, size_max)
    return _unpack_large(codec, data, size_max)[1]


def _unpack_large(codec: int, data: Buffer, size_max: int) -> tuple[mmap.mmap, memoryview]:
    """Memory for `size_max` bytes, of which only what is written to takes any, and what `data`
    unpacks to. The size a frame states is not believed, and most Java clients state none."""
    memory = mmap.mmap(-1, max(1, size_max))
    try:
        with memoryview(memory) as view, view[:size_max] as out:
            written = _unpack_into(Compression(codec), data, out)
            if written is not None:
                return memory, view[:written]
    except InvalidRecords:
        # At once, and without the interpreter, which the collection of garbage would hold.
        memory.close()
        raise
    memory.close()
    raise _too_large(codec, size_max)


class Unpacker:
    """Unpacks one batch after the other into the same memory, for looking at and forgetting.

    Fresh memory costs several times what the codecs do, because every page of it is cleared. What
    does not fit the kept memory gets its own, which goes with the next batch or `forget`.
    """

    __slots__ = ("_kept", "_kept_bytes", "_large")

    def __init__(self, kept_bytes: int = UNPACKER_KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._kept: memoryview | None = None  # Made when the first compressed batch comes.
        self._large: tuple[mmap.mmap, memoryview] | None = None

    def unpack_small(self, codec: int, data: Buffer, size_max: int) -> Buffer | None:
        """As `unpack`, but None when it would take more than `size_max` bytes or the kept ones."""
        if codec not in _PACKED:
            raise _unknown(codec)
        if self._kept is None:
            self._kept = memoryview(bytearray(self._kept_bytes))
        written = _unpack_into(Compression(codec), data, self._kept[: max(0, size_max)])
        return None if written is None else self._kept[:written]

    def unpack(self, codec: int, data: Buffer, size_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
        """As `decompress`, but the result is valid only until the next call."""
        self.forget()
        if codec == Compression.NONE:
            return decompress(codec, data, size_max)
        small = self.unpack_small(codec, data, size_max)
        if small is not None:
            return small
        if size_max <= self._kept_bytes:
            raise _too_large(codec, size_max)
        self._large = _unpack_large(codec, data, size_max)
        return self._large[1]

    def forget(self) -> None:
        """Give back what a large batch took."""
        if self._large is not None:
            (memory, view), self._large = self._large, None
            view.release()
            memory.close()


class UnpackerPool:
    """Unpackers for worker threads, which use one each and for a while.

    A thread may come and go; the memory stays, of at most `kept_max` unpackers. `take` and
    `give_back` may be called in any thread.
    """

    __slots__ = ("_free",)

    def __init__(self, kept_max: int) -> None:
        # With more than `kept_max`, those that nobody has used for the longest time go.
        self._free: deque[Unpacker] = deque(maxlen=kept_max)

    def __len__(self) -> int:
        """Unpackers that nobody uses."""
        return len(self._free)

    def take(self) -> Unpacker:
        try:
            return self._free.pop()
        except IndexError:
            return Unpacker()

    def give_back(self, unpacker: Unpacker) -> None:
        unpacker.forget()
        self._free.append(unpacker)


def _unpack_into(codec: Compression, data: Buffer, out: memoryview) -> int | None:
    """How many bytes of `out` were written; None when `data` unpacks to more than it holds."""
    if codec is Compression.SNAPPY:
        return _unpack_snappy_into(data, out)
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


def _unpack_snappy_into(data: Buffer, out: memoryview) -> int | None:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _unpack_snappy_block(view, out)
    # The two versions are read over: xerial has only ever written 1 and 1.
    position = len(_XERIAL_HEADER)
    end = 0
    blocks_left = blocks_max = _blocks_max(len(view))
    while position < len(view):
        blocks_left -= 1
        if blocks_left < 0:
            raise _too_many_blocks(Compression.SNAPPY, blocks_max)
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < size <= len(view) - position:
            raise _broken(Compression.SNAPPY, "a block reaches beyond the end of its batch")
        written = _unpack_snappy_block(view[position : position + size], out[end:])
        if written is None:
            return None
        end += written
        position += size
    return end


def _unpack_snappy_block(block: memoryview, out: memoryview) -> int | None:
    """One raw block. It begins with its unpacked size, which the library holds it to; no input
    expands more than 64 times (three bytes copy at most 64), so a size beyond that is a lie."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > 64 * len(block):
            raise _broken(Compression.SNAPPY, "its stated size is impossible")
        if size > len(out):
            return None
        written: int = cramjam.snappy.decompress_raw_into(block, out[:size]) if size else 0
    except (cramjam.DecompressionError, OSError) as error:
        raise _broken(Compression.SNAPPY, error) from error
    return written


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
