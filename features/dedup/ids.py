"""Message ids in records: the header `tw-id`."""

from __future__ import annotations

from collections.abc import Iterator

from data_plane.log.file_system import Buffer
from data_plane.wire.kernel import scan_headers
from features.delayed.commands import ID_HEADER


def ids_in(buf: Buffer, start: int, end: int, record_count: int) -> Iterator[tuple[int, bytes]]:
    """(index, id) of those plain records that have one."""
    for index, key, message_id in scan_headers(buf, start, end, record_count, ID_HEADER):
        if key == ID_HEADER and message_id:
            yield index, message_id
