"""Files of segments in worker threads, while the loop may replace segments or delete the log.

The loop marks a segment as retired before its files are renamed or removed. Who opens one looks at
that mark afterwards, so he reads the bytes that he means or learns that he has to start over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from data_plane.log.errors import LogDeleted
from data_plane.log.file_system import File
from data_plane.log.log_state import LogState
from data_plane.log.segment import Segment

T = TypeVar("T")


class Retired(Exception):
    """The segment was replaced while a worker thread opened it: start over."""


@contextlib.contextmanager
def cold_file(segment: Segment) -> Iterator[File]:
    """A descriptor of the segment's own file for a worker thread; raises Retired."""
    try:
        file = segment.directory.fs.open(segment.path(), write=False)
    except FileNotFoundError:
        if segment.retired:
            raise Retired from None
        raise
    try:
        if segment.retired:
            raise Retired
        yield file
    finally:
        file.close()


def read_as_it_is(log: LogState, read: Callable[[list[Segment]], T]) -> T:
    """What `read` makes of the log's segments; anew when the loop has replaced some in between.

    Raises what `read` raises, LogDeleted, LogDirFailure and LogNotLoaded."""
    directory = log.log_directory
    while True:
        segments = log.loaded_segments
        try:
            return read(segments)
        except Retired:
            # The others are listed as soon as the loop has them in place, unless it cannot.
            if log.is_closed:
                raise LogDeleted(log.folder) from None
            directory.check_online()
        except OSError as error:
            if log.is_deleted_meanwhile(error):
                raise LogDeleted(log.folder) from error
            raise directory.fail(error) from error
