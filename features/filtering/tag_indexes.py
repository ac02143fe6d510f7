"""The tag indexes of this broker's segments: made by threads, kept beside the segments.

    a reader meets a segment ──► in memory? else from its file (a thread)
                             ──► what is not in it yet: wanted ──► tick ──► IndexJob, step by step

An index is made when somebody reads a subscription, or asks for its lag, and not when records are
appended: a topic without subscriptions costs nothing, and no append waits for an index. It goes up
to the high watermark. The end of a log, up to INDEX_FROM_BYTES of it, has none and is scanned.

Invariants
- One job at a time, a step of STEP_BYTES each; the loop does nothing but begin it.
- An index is of one Segment object. Whatever cuts or rewrites a segment makes another one, and its
  index is read again, which side_files.py refuses where it is not of these batches.
- MEMORY_BYTES_MAX in all, but for those that somebody is looking at; what is dropped is read again.
- A segment that cannot be read through has an index up to there, and is scanned from there on. Its
  log hears of the damage.

Deliberately absent: what an index says (tag_index.py); projections (indexed_records.py).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from data_plane.log.batch_walk import BatchWalk
from data_plane.log.cold_files import Retired, cold_file
from data_plane.log.lanes import JobStopped
from data_plane.log.side_files import Prefix, read_side_file, write_side_file
from data_plane.wire.errors import InvalidRecords
from data_plane.wire.records import BATCH_HEADER_BYTES
from features.filtering.tag_index import SegmentTags

if TYPE_CHECKING:
    from data_plane.broker.request.api import Executor
    from data_plane.broker.services import Logger
    from data_plane.log.log import Log
    from data_plane.log.segment import Segment

SIDE_NAME: Final = "tags"
# An index of less than that is not worth it, where more may be appended.
INDEX_FROM_BYTES: Final = 1 << 20
# What a job reads: some 50 ms of a thread.
STEP_BYTES: Final = 16 << 20
# The index of a segment that is still appended to is stored whenever it has grown by so much: a
# restart has to make no more of it again.
SAVE_BYTES: Final = 32 << 20
MEMORY_BYTES_MAX: Final = 64 << 20
SEGMENTS_MAX: Final = 1_000
# Beyond it nobody is noted; who still wants one asks again.
WANTED_MAX: Final = 1_000


class TagIndexes:
    """See the module. A component of the broker."""

    def __init__(self, executor: Executor, log: Logger) -> None:
        self._executor = executor
        self._log = log
        self._by_segment: dict[Segment, SegmentTags] = {}
        self._wanted: OrderedDict[Segment, Log] = OrderedDict()
        self._uses = 0
        self._is_running = False
        # More are in memory than there were.
        self._has_more = False

    # In any thread

    def find(self, segment: Segment) -> SegmentTags | None:
        """The segment's index, if it is in memory."""
        tags = self._by_segment.get(segment)
        if tags is not None:
            self._uses += 1
            tags.last_used = self._uses
        return tags

    def want(self, log: Log, segment: Segment) -> None:
        """Somebody looks at the segment's index, or would look beyond where it ends."""
        if len(self._wanted) < WANTED_MAX and _is_due(segment, self._by_segment.get(segment)):
            self._wanted[segment] = log

    # In worker threads

    def load(self, segment: Segment) -> SegmentTags | None:
        """The segment's index, from its file if need be. Raises Retired, OSError."""
        tags = self.find(segment)
        if tags is not None:
            return tags
        found = read_side_file(segment, SIDE_NAME)
        if found is None:
            return None
        try:
            tags = SegmentTags.decode(found[1], found[0])
        except ValueError:
            return None
        return self.keep(segment, tags)

    def keep(self, segment: Segment, tags: SegmentTags) -> SegmentTags:
        """Have it found from now on; returns the one that is."""
        kept = self._by_segment.setdefault(segment, tags)
        self._has_more = True
        return kept

    def forget(self, segment: Segment) -> None:
        """Have it read from its file again."""
        self._by_segment.pop(segment, None)

    # On the loop

    def start(self, now_ms: int) -> None:
        return

    def tick(self, now_ms: int) -> None:
        if self._has_more:
            self._has_more = False
            self._drop_unused()
        if self._is_running or not self._wanted:
            return
        # In one step: threads may add some meanwhile.
        segment, log = self._wanted.popitem(last=False)
        if log.is_closed or segment.retired:
            return
        self._is_running = True
        job = IndexJob(self, log, segment)

        def done(goes_on: bool | None, error: BaseException | None) -> None:
            self._is_running = False
            if error is not None:
                # Its log says so itself, to whoever reads it.
                self._log.warning("tag_index_failed", segment=segment.path(), error=repr(error))
            elif goes_on:
                self.want(log, segment)

        self._executor.submit(job.run, done)

    def next_deadline_ms(self) -> int | None:
        is_due = self._has_more or (self._wanted and not self._is_running)
        return 0 if is_due else None

    def stop(self, now_ms: int) -> None:
        self._wanted.clear()

    def _drop_unused(self) -> None:
        """Keep those that were used last, as many as fit."""
        kept: dict[Segment, SegmentTags] = {}
        left_bytes = MEMORY_BYTES_MAX
        # Threads may add some meanwhile.
        known = list(self._by_segment.items())
        for segment, tags in sorted(known, key=lambda item: -item[1].last_used):
            left_bytes -= tags.memory_bytes
            if (left_bytes < 0 and kept) or len(kept) >= SEGMENTS_MAX or segment.retired:
                self.forget(segment)
            else:
                kept[segment] = tags


def _is_due(segment: Segment, tags: SegmentTags | None) -> bool:
    """Whether there is something to do for a job."""
    if tags is not None and (tags.is_blocked or tags.size == segment.size):
        return segment.sealed and tags.saved_bytes < tags.size
    more_bytes = segment.size - (0 if tags is None else tags.size)
    return more_bytes >= INDEX_FROM_BYTES or (segment.sealed and more_bytes > 0)


class IndexJob:
    """Adds to the index of one segment, and stores it; in a worker thread."""

    def __init__(self, indexes: TagIndexes, log: Log, segment: Segment) -> None:
        self._indexes = indexes
        self._log = log
        self._segment = segment

    def run(self) -> bool:
        """Whether there is more to add. Raises LogDirFailure."""
        log, segment = self._log, self._segment
        try:
            tags = self._indexes.load(segment)
            if tags is None:
                tags = SegmentTags(segment.base_offset)
            try:
                has_added = self._add_to(tags)
            except BaseException:
                # Batches may be in it that were not published, and would come once more.
                self._indexes.forget(segment)
                raise
            is_last = segment.sealed and (tags.is_blocked or tags.size == segment.size)
            unsaved_bytes = tags.size - tags.saved_bytes
            if unsaved_bytes >= SAVE_BYTES or (is_last and unsaved_bytes):
                self._save(tags)
            self._indexes.keep(segment, tags)
            return has_added and _is_due(segment, tags)
        except (Retired, JobStopped):
            return False
        except OSError as error:
            if segment.retired or log.is_deleted_meanwhile(error):
                return False
            raise log.log_directory.fail(error) from error

    def _add_to(self, tags: SegmentTags) -> bool:
        log, segment, start = self._log, self._segment, tags.size
        stop_sign = log.log_directory.stop_sign
        limit_offset = log.high_watermark
        end = segment.size
        bad = segment.first_bad_range(start, end)
        if bad is not None:
            end = max(start, bad.start)
        prefix: Prefix | None = None
        with cold_file(segment) as file:
            walk = BatchWalk(file, start, end, check_crc=True, next_offset=tags.next_offset)
            for chunk in walk:
                stop_sign.look()
                for header in chunk.headers:
                    if header.next_offset > limit_offset:
                        break
                    try:
                        tags.add(header, chunk.data)
                    except InvalidRecords:
                        tags.is_blocked = True
                        break
                    at = header.position
                    prefix = Prefix(
                        chunk.position + header.end_position,
                        header.next_offset,
                        chunk.position + at,
                        bytes(memoryview(chunk.data)[at : at + BATCH_HEADER_BYTES]),
                    )
                else:
                    if walk.end_position - start < STEP_BYTES:
                        continue
                break
        if walk.problem:
            log.find_damage(walk.next_offset)
        if prefix is None or prefix.size == walk.end_position:
            tags.is_blocked |= bool(walk.problem) or (bad is not None and walk.end_position == end)
        if prefix is None:
            return False
        tags.publish(prefix)
        return True

    def _save(self, tags: SegmentTags) -> None:
        prefix = tags.prefix
        assert prefix is not None
        write_side_file(self._segment, SIDE_NAME, prefix, tags.encode())
        tags.saved_bytes = prefix.size
