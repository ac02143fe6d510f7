"""How many records of a client's TLS stream brought data, and how many did not.

A client may send records that bring nothing, above all KeyUpdates of TLS 1.3: 27 bytes for the
client, new keys for the server, and no request that anybody could bound. An honest client sends one
in millions of records. So FRUITLESS_RECORDS_MAX are let pass, and one more for each
DATA_RECORDS_PER_FRUITLESS that brought data.

Records are counted by their headers, which are not sealed. What is not read yet counts as nothing;
when all that was received has been read, the records that gave no data were fruitless.

Deliberately absent: what is in a record, and whether its length is allowed: OpenSSL judges that.
"""

from __future__ import annotations

from typing import Final

# A few end with the handshake itself, or say that the client closes.
FRUITLESS_RECORDS_MAX: Final = 32
DATA_RECORDS_PER_FRUITLESS: Final = 1_000
_HEADER_BYTES: Final = 5
# Changes of ciphers, alerts, handshakes and data.
_CONTENT_TYPES: Final = range(20, 24)
_CREDIT_MAX: Final = FRUITLESS_RECORDS_MAX * DATA_RECORDS_PER_FRUITLESS


class TlsRecords:
    """Those of one connection."""

    __slots__ = ("_credit", "_header", "_is_tls", "_left_bytes", "_unread_count")

    def __init__(self) -> None:
        # Of a header that has not arrived as a whole.
        self._header = b""
        # Of the record whose header has arrived.
        self._left_bytes = 0
        # That have arrived, and have given nothing yet.
        self._unread_count = 0
        self._credit = _CREDIT_MAX
        self._is_tls = True

    def received(self, data: memoryview) -> None:
        """The next bytes of the stream."""
        position, end = 0, len(data)
        left_bytes = self._left_bytes
        while position < end:
            if not left_bytes:
                header_end = position + _HEADER_BYTES - len(self._header)
                header = self._header + data[position:header_end]
                position = header_end
                if len(header) < _HEADER_BYTES:
                    self._header = header
                    break
                self._header = b""
                if header[0] not in _CONTENT_TYPES:
                    # The greeting of SSL 2, after which nothing here would be counted right.
                    self._is_tls = False
                left_bytes = header[3] << 8 | header[4]
            position += left_bytes
            if position > end:
                left_bytes = position - end
            else:
                left_bytes = 0
                self._unread_count += 1
        self._left_bytes = left_bytes

    def handshake_done(self) -> None:
        """All that has arrived until now was the handshake's, and has been read."""
        self._unread_count = 0

    def gave_data(self) -> None:
        """One of those that have arrived, for the first time."""
        self._unread_count -= 1
        if self._credit < _CREDIT_MAX:
            self._credit += 1

    def all_read(self) -> bool:
        """What has arrived is read. False when that is over."""
        if self._unread_count > 0:
            self._credit -= self._unread_count * DATA_RECORDS_PER_FRUITLESS
        self._unread_count = 0
        return not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether too much has brought nothing, or was not TLS."""
        return self._credit < 0 or not self._is_tls
