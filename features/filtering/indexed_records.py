"""The projections of a subscription: all of its source's records, or those whose tags match.

Both know from the tag indexes what they show without reading it: where a fetch has to read, and how
many records there are.

    segment        0..999                    1000..1999           2000..
    index          whole                     up to 1499           none
    known          what is shown of it       up to 1499           nothing: scanned

Deliberately absent: making indexes (tag_indexes.py), what they say (tag_views.py), reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from data_plane.broker.fetch.projection import Selection, SourceBatch
from data_plane.log.cold_files import Retired
from data_plane.log.reads import segments_from
from features.delayed.visibility import ALL_BUT_HIDDEN, both, not_hidden
from features.filtering.matching import Matcher
from features.filtering.tag_views import TagView

if TYPE_CHECKING:
    from data_plane.log.indexes import AbortedTransaction
    from data_plane.log.log import Log
    from data_plane.log.segment import Segment
    from features.filtering.tag_index import SegmentTags
    from features.filtering.tag_indexes import TagIndexes

# Views of a segment, one for each filter that is read with, of two bytes for a block of 64 KiB and
# more. With more of them they are made again.
VIEWS_MAX: Final = 64
# Passed over in one look, which may be on the loop. Behind them it is as if nothing were known.
PASSED_AT_ONCE_MAX: Final = 100


class FilteredRecords:
    """Shows the records whose tags match, and that are not hidden."""

    def __init__(self, matcher: Matcher, indexes: TagIndexes) -> None:
        self._matcher = matcher
        self._indexes = indexes

    def select(self, batch: SourceBatch) -> Selection:
        records, start, end = batch.records()
        matching = self._matcher.select(records, start, end, batch.header.record_count)
        return both(matching, not_hidden(batch)) if matching else False

    def shown_whole_until(self, log: Log, offset: int, end: int) -> int:
        return offset

    def candidates(self, log: Log, offset: int, end: int, *, has_shown: bool) -> tuple[int, int]:
        segments = log.segments_if_loaded
        if segments is None:
            return offset, end
        first = segments_from(segments, offset)
        for segment in segments[first : first + PASSED_AT_ONCE_MAX]:
            known = self._known_at(log, segment, offset)
            if known is None:
                return offset, end
            tags, view = known
            start, stop = view.candidates(tags, offset, has_shown=has_shown)
            if start >= end:
                return end, end
            if start < view.next_offset:
                return start, min(stop, end)
            # Nothing up to where the index ends.
            offset = start
            if offset < segment.next_offset:
                return offset, end
        return offset, end

    def _known_at(
        self, log: Log, segment: Segment, offset: int
    ) -> tuple[SegmentTags, TagView] | None:
        """What is known at `offset`, which lies in the segment, or in the gap before it."""
        tags = self._indexes.find(segment)
        view = None if tags is None else tags.views.get(self)
        if tags is None or view is None or offset >= view.next_offset:
            self._indexes.want(log, segment)
            return None
        if segment.sealed and tags.saved_bytes < tags.size:
            self._indexes.want(log, segment)
        return tags, view

    def prepare(self, log: Log, offset: int) -> None:
        segments = log.loaded_segments
        segment = segments[segments_from(segments, offset)]
        try:
            tags = self._indexes.load(segment)
        except Retired:
            # Whoever reads begins again, with the segments of then.
            return
        except OSError as error:
            if segment.retired or log.is_deleted_meanwhile(error):
                return
            raise log.log_directory.fail(error) from error
        if tags is None:
            return
        view = tags.views.get(self)
        if view is None:
            view = TagView(self._matcher.passes)
            if len(tags.views) >= VIEWS_MAX:
                tags.views.clear()
            tags.views[self] = view
        view.update(tags)

    def counted(
        self, log: Log, offset: int, end: int, aborted: Sequence[AbortedTransaction]
    ) -> tuple[int, int, int]:
        segments = log.loaded_segments
        segment = segments[segments_from(segments, offset)]
        known = self._known_at(log, segment, offset)
        if known is None:
            # The next segment may have an index.
            return 0, offset, max(min(end, segment.next_offset), offset + 1)
        tags, view = known
        return view.counted(tags, offset, end, aborted)


class AllRecords(FilteredRecords):
    """Shows everything that is not hidden, and knows how much that is."""

    def select(self, batch: SourceBatch) -> Selection:
        return not_hidden(batch)

    def shown_whole_until(self, log: Log, offset: int, end: int) -> int:
        return ALL_BUT_HIDDEN.shown_whole_until(log, offset, end)

    def candidates(self, log: Log, offset: int, end: int, *, has_shown: bool) -> tuple[int, int]:
        return offset, end
