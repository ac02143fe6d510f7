"""The few messages of Kafka's protocol that are put together here, and the ways to read answers.

Requests are bodies; connection.py puts the header before them. All are of the first version that is
flexible, but for the handshake, which never is.

Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from tidewheel.errors import BrokerError

T = TypeVar("T")

ApiKey = int
PRODUCE: Final = 0
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
# Tidewheel's own.
DESCRIBE_DELAYED: Final = 20_000
# As each is asked here; the handshake is the only one that is not flexible.
VERSIONS: Final[dict[ApiKey, int]] = {
    PRODUCE: 9,
    SASL_HANDSHAKE: 1,
    API_VERSIONS: 3,
    SASL_AUTHENTICATE: 2,
    DESCRIBE_DELAYED: 0,
}
NOT_FLEXIBLE: Final = frozenset({SASL_HANDSHAKE})
# Its answers have the old header: who asks does not know yet what the broker speaks.
OLD_ANSWER_HEADER: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS})

SOFTWARE_NAME: Final = "tidewheel"
_ACKS_ALL: Final = -1
_NO_TAGS: Final = b"\0"

RecordHeader = tuple[str, bytes | None]


class Reader:
    """Reads an answer from its beginning on. Raises BrokerError where it ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        found = self._data[self._at : self._at + count]
        if count < 0 or len(found) < count:
            raise BrokerError("The broker's answer is cut off")
        self._at += count
        return found

    def number(self, form: str) -> int:
        """One number, in `struct`'s words."""
        (value,) = struct.unpack(f">{form}", self.take(struct.calcsize(f">{form}")))
        return int(value)

    def int64s(self) -> list[int]:
        """A compact array of them."""
        count = max(0, self.uvarint() - 1)
        return list(struct.unpack(f">{count}q", self.take(8 * count)))

    def uvarint(self) -> int:
        """As lengths are written."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise BrokerError("The broker's answer makes no sense")

    def data(self) -> bytes | None:
        """Compact bytes, or nothing."""
        size = self.uvarint()
        return None if size == 0 else self.take(size - 1)

    def text(self) -> str | None:
        """A compact string, or nothing."""
        found = self.data()
        return None if found is None else found.decode("utf-8", "replace")

    def old_text(self) -> str:
        """A string with a length of two bytes."""
        return self.take(max(0, self.number("h"))).decode("utf-8", "replace")

    def each(self, read: Callable[[], T]) -> list[T]:
        """A compact array."""
        return [read() for _ in range(max(0, self.uvarint() - 1))]

    def skip_tags(self) -> None:
        """What later versions may have added."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())


def uvarint(value: int) -> bytes:
    """As lengths are written."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """As numbers in records are written."""
    return uvarint(value << 1 if value >= 0 else ~(value << 1))


def compact(data: bytes | str) -> bytes:
    """Bytes or a string, with the length."""
    data = data.encode() if isinstance(data, str) else data
    return uvarint(len(data) + 1) + data


def request_header(api: ApiKey, correlation_id: int, client_id: str) -> bytes:
    """What stands before each body."""
    name = client_id.encode()
    fixed = struct.pack(">hhih", api, VERSIONS[api], correlation_id, len(name))
    return fixed + name + (b"" if api in NOT_FLEXIBLE else _NO_TAGS)


def read_answer_header(api: ApiKey, reader: Reader) -> int:
    """The correlation id; the body follows."""
    correlation_id = reader.number("i")
    if api not in OLD_ANSWER_HEADER:
        reader.skip_tags()
    return correlation_id


def api_versions_request(version: str) -> bytes:
    """Says what this client is; `version` is the SDK's."""
    return compact(SOFTWARE_NAME) + compact(version) + _NO_TAGS


def read_api_versions(reader: Reader) -> tuple[int, dict[ApiKey, tuple[int, int]]]:
    """The error code, and the first and last version of each API."""
    error_code = reader.number("h")
    found: dict[ApiKey, tuple[int, int]] = {}
    if error_code:
        # In the first version, whose array is another one; nobody goes by it.
        return error_code, found
    for _ in range(max(0, reader.uvarint() - 1)):
        api, lowest, highest = reader.number("h"), reader.number("h"), reader.number("h")
        reader.skip_tags()
        found[api] = (lowest, highest)
    return error_code, found


def sasl_handshake_request(mechanism: str) -> bytes:
    """Names the way to log in."""
    return struct.pack(">h", len(mechanism)) + mechanism.encode()


def read_sasl_handshake(reader: Reader) -> tuple[int, list[str]]:
    """The error code, and the ways that there are."""
    error_code = reader.number("h")
    return error_code, [reader.old_text() for _ in range(max(0, reader.number("i")))]


def sasl_authenticate_request(message: bytes) -> bytes:
    """One step of a login."""
    return compact(message) + _NO_TAGS


def read_sasl_authenticate(reader: Reader) -> tuple[int, str, bytes]:
    """The error code with its words, and the broker's step."""
    return reader.number("h"), reader.text() or "", reader.data() or b""


class Produced(NamedTuple):
    """What became of a batch. `record_errors`: which records were at fault, by their place, and in
    which words."""

    error_code: int
    error_message: str
    record_errors: dict[int, str]


def produce_request(topic: str, partition: int, batch: bytes, timeout_ms: int) -> bytes:
    """One batch to one partition, acknowledged when all in-sync replicas have it."""
    return b"".join(
        (
            _NO_TRANSACTION,
            struct.pack(">hi", _ACKS_ALL, timeout_ms),
            uvarint(2),
            compact(topic),
            uvarint(2),
            struct.pack(">i", partition),
            compact(batch),
            _NO_TAGS * 3,
        )
    )


_NO_TRANSACTION: Final = b"\0"


def read_produced(reader: Reader) -> Produced:
    """Of the only partition. Raises BrokerError when there is none."""

    def record_error() -> tuple[int, str]:
        place, words = reader.number("i"), reader.text() or ""
        reader.skip_tags()
        return place, words

    def partition() -> Produced:
        reader.number("i")
        error_code = reader.number("h")
        reader.take(24)  # Offset, time of the append, start of the log.
        errors = dict(reader.each(record_error))
        words = reader.text() or ""
        reader.skip_tags()
        return Produced(error_code, words, errors)

    def topic() -> list[Produced]:
        reader.text()
        found = reader.each(partition)
        reader.skip_tags()
        return found

    found = [one for some in reader.each(topic) for one in some]
    if len(found) != 1:
        raise BrokerError("The broker's answer is about other partitions")
    return found[0]


_BEFORE_CRC: Final = struct.Struct(">qiibI")
_BEHIND_CRC: Final = struct.Struct(">hiqqqhii")
_LENGTH_COUNTS_FROM: Final = 12
_MAGIC: Final = 2


def record_batch(records: Sequence[Sequence[RecordHeader]], timestamp_ms: int) -> bytes:
    """Records that have headers and nothing else, of one time."""
    body = b"".join(_record(place, headers) for place, headers in enumerate(records))
    behind = _BEHIND_CRC.pack(
        0, len(records) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(records)
    )
    counted = behind + body
    length = _BEFORE_CRC.size + len(counted) - _LENGTH_COUNTS_FROM
    return _BEFORE_CRC.pack(0, length, -1, _MAGIC, crc32c(counted)) + counted


def _record(place: int, headers: Sequence[RecordHeader]) -> bytes:
    parts = [b"\0", varint(0), varint(place), varint(-1), varint(-1), varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (varint(-1),) if value is None else (varint(len(value)), value)
    record = b"".join(parts)
    return varint(len(record)) + record


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC_TABLE: Final = _crc_table()


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    table, crc = _CRC_TABLE, 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
