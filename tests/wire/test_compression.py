"""Codecs: round trips, other people's framings, and inputs that lie about their size."""

from __future__ import annotations

import gzip
import random
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.wire.compression import Compression, Unpacker, UnpackerPool, compress, decompress
from data_plane.wire.errors import ErrorCode, InvalidRecords
from tests.wire.kernel_pairs import mutate

PACKED = [codec for codec in Compression if codec is not Compression.NONE]
MIXED = b"".join(b'{"row": %d, "tail": "N%d"}' % (i, i * i % 977) for i in range(9000))
codecs = pytest.mark.parametrize("codec", list(Compression))
packed_codecs = pytest.mark.parametrize("codec", PACKED)


@codecs
@pytest.mark.parametrize("size", [0, 1, 100, 32768, 32769, 65535, 65536, 65537, len(MIXED)])
def test_round_trip(codec: Compression, size: int) -> None:
    assert decompress(codec, compress(codec, MIXED[:size]), size) == MIXED[:size]


@codecs
def test_round_trip_of_noise(codec: Compression) -> None:
    noise = random.Random(5).randbytes(200_000)
    assert decompress(codec, compress(codec, memoryview(noise))) == noise


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, [1, 9]),
        (Compression.LZ4, [9, 1, 8, 12, 17]),
        (Compression.ZSTD, [-5, 1, 19]),
    ],
)
def test_levels(codec: Compression, levels: list[int]) -> None:
    sizes = [len(compress(codec, MIXED, level)) for level in levels]
    assert sizes == sorted(sizes, reverse=True)
    assert all(decompress(codec, compress(codec, MIXED, level)) == MIXED for level in levels)


def test_default_levels() -> None:
    assert compress(Compression.GZIP, MIXED, -1) == compress(Compression.GZIP, MIXED)
    assert compress(Compression.LZ4, MIXED, 9) == compress(Compression.LZ4, MIXED)
    assert compress(Compression.ZSTD, MIXED, 3) == compress(Compression.ZSTD, MIXED)


def test_reads_snappy_as_librdkafka_writes_it() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(MIXED))) == MIXED


def test_writes_snappy_as_java_does() -> None:
    data = compress(Compression.SNAPPY, MIXED)
    assert data[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    size = int.from_bytes(data[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(data[20 : 20 + size]) == 32 * 1024


def test_writes_lz4_that_java_reads() -> None:
    """Java refuses frames whose blocks depend on each other (FLG bit 5 clear)."""
    data = compress(Compression.LZ4, MIXED)
    assert data[:4] == b"\x04\x22\x4d\x18"
    assert data[4] & 0b1111_1101 == 0b0110_0000
    assert data.endswith(b"\0\0\0\0")
    assert bytes(cramjam.lz4.decompress(data)) == MIXED


def test_reads_what_others_write() -> None:
    assert decompress(Compression.GZIP, gzip.compress(MIXED) + gzip.compress(b"more")) == (
        MIXED + b"more"
    )
    assert decompress(Compression.ZSTD, bytes(cramjam.zstd.compress(MIXED, 12))) == MIXED


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (bytes(cramjam.lz4.compress(MIXED)), "depend on each other"),
        (compress(Compression.LZ4, MIXED) * 2, "remain behind its frame"),
        (compress(Compression.LZ4, MIXED) + b"\0", "1 bytes remain behind its frame"),
    ],
)
def test_lz4_that_java_does_not_read_is_refused(data: bytes, why: str) -> None:
    for unpack in (decompress, Unpacker().unpack):
        with pytest.raises(InvalidRecords, match=why):
            unpack(Compression.LZ4, data)


def xxh32(data: bytes) -> int:
    """The checksum of LZ4 frames, for less than 16 bytes (github.com/Cyan4973/xxHash, its
    specification)."""
    first, second, third, fourth, fifth = (
        2654435761, 2246822519, 3266489917, 668265263, 374761393,
    )  # fmt: skip

    def turned(value: int, bits: int, factor: int) -> int:
        value &= 0xFFFFFFFF
        return (value << bits | value >> 32 - bits) * factor & 0xFFFFFFFF

    total = fifth + len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little")
        total = turned(total + word * third, 17, fourth)
    for byte in data[whole:]:
        total = turned(total + byte * fifth, 11, first)
    total = (total ^ total >> 15) * second & 0xFFFFFFFF
    total = (total ^ total >> 13) * third & 0xFFFFFFFF
    return total ^ total >> 16


def lz4_frame(content: bytes, flags: int) -> bytes:
    """One frame of independent, stored blocks of up to ten bytes."""
    descriptor = bytes((0x60 | flags, 0x40))
    if flags & 0x08:
        descriptor += len(content).to_bytes(8, "little")
    out = b"\x04\x22\x4d\x18" + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,))
    for start in range(0, len(content), 10):
        block = content[start : start + 10]
        out += (len(block) | 1 << 31).to_bytes(4, "little") + block
        if flags & 0x10:
            out += xxh32(block).to_bytes(4, "little")
    out += bytes(4)
    return out + (xxh32(content).to_bytes(4, "little") if flags & 0x04 else b"")


@pytest.mark.parametrize("block_checksums", [0, 0x10])
@pytest.mark.parametrize("content_size", [0, 0x08])
@pytest.mark.parametrize("content_checksum", [0, 0x04])
def test_lz4_with_all_that_a_frame_may_have_is_read_and_nothing_behind_it(
    block_checksums: int, content_size: int, content_checksum: int
) -> None:
    """Go's clients, for one, write checksums."""
    flags = block_checksums | content_size | content_checksum
    frame = lz4_frame(b"some content.", flags)
    assert decompress(Compression.LZ4, frame) == b"some content."
    for behind in (b"\0", bytes(4), frame):
        with pytest.raises(InvalidRecords, match=f"{len(behind)} bytes remain behind its frame"):
            decompress(Compression.LZ4, frame + behind)


@codecs
def test_an_unpacker_gives_what_decompress_gives(codec: Compression) -> None:
    unpacker = Unpacker(10_000)
    for size in (0, 9_999, 10_000, 10_001, len(MIXED), 5):
        packed = memoryview(compress(codec, MIXED[:size]))
        assert unpacker.unpack(codec, packed) == MIXED[:size]
        assert unpacker.unpack(codec, packed, size) == MIXED[:size]
        if size:
            with pytest.raises(InvalidRecords, match=f"more than {size - 1} bytes"):
                unpacker.unpack(codec, packed, size - 1)
        with pytest.raises(InvalidRecords):
            unpacker.unpack(codec, b"\xff\xfe\xfdnoise" if codec else bytes(11), 10)


def snappy_of_empty_blocks(count: int) -> bytes:
    return b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2 + b"\0\0\0\1\0" * count


def lz4_of_empty_blocks(count: int) -> bytes:
    return b"\x04\x22\x4d\x18\x60\x40\x82" + b"\0\0\0\x80" * count + bytes(4)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.SNAPPY, snappy_of_empty_blocks(200_000)),
        (Compression.LZ4, lz4_of_empty_blocks(250_000)),
    ],
    ids=["snappy", "lz4"],
)
def test_a_frame_of_countless_blocks_is_refused(codec: Compression, data: bytes) -> None:
    with pytest.raises(InvalidRecords, match=r"it has more than \d+ blocks for its size") as caught:
        decompress(codec, data)
    assert caught.value.error_code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("size", [1 << 20, 60 << 20])
@pytest.mark.parametrize("codec", [Compression.SNAPPY, Compression.LZ4])
def test_blocks_that_pack_as_well_as_they_can_are_read(codec: Compression, size: int) -> None:
    assert decompress(codec, compress(codec, bytes(size))) == bytes(size)


def test_a_thousand_small_blocks_are_read() -> None:
    assert decompress(Compression.SNAPPY, snappy_of_empty_blocks(1_000)) == b""
    assert decompress(Compression.LZ4, lz4_of_empty_blocks(1_000)) == b""


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_an_unpacker_keeps_its_own_memory_and_no_more(codec: Compression) -> None:
    bomb, small = compress(codec, bytes(64 << 20)), compress(codec, MIXED[:5000])
    unpacker = Unpacker(1 << 20)
    unpacker.unpack(codec, small)
    tracemalloc.start()
    try:
        for _ in range(3):
            assert unpacker.unpack(codec, small) == MIXED[:5000]
            with pytest.raises(InvalidRecords, match="unpacks to more than"):
                unpacker.unpack(codec, bomb, 4 << 20)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000
    assert peak < (4 << 20) + 500_000


def test_a_pool_keeps_few_unpackers() -> None:
    pool = UnpackerPool(kept_max=2)
    taken = [pool.take() for _ in range(3)]
    assert len(set(map(id, taken))) == 3
    for unpacker in taken:
        pool.give_back(unpacker)
    assert len(pool) == 2
    assert pool.take() is taken[2]


@packed_codecs
def test_nothing_large_is_cleared_by_the_interpreter(codec: Compression) -> None:
    """Which would hold up all other threads for 60 ms: a broker's heartbeats, too."""
    packed = compress(codec, bytes(64 << 20))
    unpacker = Unpacker()
    unpacker.unpack_small(codec, compress(codec, b"x"), 1)
    tracemalloc.start()
    try:
        assert len(decompress(codec, packed)) == len(unpacker.unpack(codec, packed)) == 64 << 20
        unpacker.forget()
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@packed_codecs
def test_what_is_not_small_is_left_for_later(codec: Compression) -> None:
    unpacker = Unpacker(10_000)
    for size, size_max in ((10_001, 1 << 20), (5_000, 4_999), (1, 0), (1, -5)):
        assert unpacker.unpack_small(codec, compress(codec, MIXED[:size]), size_max) is None
    for size, size_max in ((10_000, 1 << 20), (5_000, 5_000), (0, 0), (0, -5)):
        packed = compress(codec, MIXED[:size])
        assert unpacker.unpack_small(codec, packed, size_max) == MIXED[:size]
    with pytest.raises(InvalidRecords, match="does not unpack"):
        unpacker.unpack_small(codec, b"\xff\xfe\xfdnoise", 1 << 20)


@codecs
def test_size_limit_is_exact(codec: Compression) -> None:
    data = compress(codec, MIXED)
    assert decompress(codec, data, len(MIXED)) == MIXED
    assert decompress(codec, data, len(MIXED) + 1) == MIXED
    with pytest.raises(InvalidRecords, match=f"more than {len(MIXED) - 1} bytes") as caught:
        decompress(codec, data, len(MIXED) - 1)
    assert caught.value.error_code is ErrorCode.MESSAGE_TOO_LARGE


@packed_codecs
def test_bomb_takes_no_more_memory_than_allowed(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 * 1024 * 1024))
    size_max = 4 * 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecords, match="unpacks to more than"):
            decompress(codec, bomb, size_max)
        assert tracemalloc.get_traced_memory()[1] < size_max + 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x0f",  # Raw, stating 4 GiB.
        b"\xff\xff\xff\x07\x00a",  # Raw, stating 16 MiB in two bytes.
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x09\x01\x00a",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff\x01\x00a",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00",
    ],
)
def test_snappy_that_lies(data: bytes) -> None:
    with pytest.raises(InvalidRecords) as caught:
        decompress(Compression.SNAPPY, data)
    assert caught.value.error_code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    for call in (compress, decompress):
        with pytest.raises(InvalidRecords) as caught:
            call(codec, b"abc")
        assert caught.value.error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@packed_codecs
@given(seed=st.integers(0, 2**32))
def test_hostile_input_raises_nothing_else(codec: Compression, seed: int) -> None:
    rng = random.Random(seed)
    data = mutate(rng, compress(codec, MIXED[: rng.choice([0, 10, 900])]), 4)
    if rng.random() < 0.1:
        data = bytearray(rng.randbytes(rng.randrange(60)))
    try:
        unpacked = decompress(codec, data, 5000)
    except InvalidRecords:
        return
    assert len(unpacked) <= 5000
