"""Planted bugs of subscriptions: what is shown by which filter, and how far a reader is taken."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from crc32c import crc32c

from data_plane.broker.fetch import projected_reads
from data_plane.broker.fetch.fetch_scans import FetchScans
from data_plane.broker.fetch.projected_reads import Scan, Slice, SliceScan
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.virtual_topics import FILTER_PROPERTY, HEADERS_PROPERTY
from data_plane.log.log import Log
from data_plane.log.segment import Segment
from data_plane.wire import records
from data_plane.wire.kernel_types import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    LAST_OFFSET_DELTA_POSITION,
)
from features.filtering import tag_index, tag_indexes
from features.filtering.indexed_records import FilteredRecords
from features.filtering.language import parse_filter
from features.filtering.matching import Matcher
from features.filtering.subscriptions import Subscriptions
from features.filtering.tag_index import SegmentTags
from features.filtering.tag_indexes import IndexJob, TagIndexes
from features.filtering.tag_views import TagView
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch
from tests.simulation.tagged import TAGGED, TAGGED_TABLE

_TAGGED = TopicPlan(TAGGED, 2, 3, {HEADERS_PROPERTY: "true", "segment.ms": "200"})

# Where filters change, and little goes wrong.
SUBSCRIPTIONS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop", "cut", "broken connection"}),
    admin=frozenset({"elections", "delete records", "partitions"}),
    topics=(_TAGGED,),
    extras=frozenset({"subscriptions"}),
)
# Where leaders change all the time, and logs are cut.
CUT_LOGS = Options(
    brokers=3,
    faults=frozenset({"relay", "cut", "pause", "slow network"}),
    admin=frozenset(),
    topics=(_TAGGED,),
    extras=frozenset({"subscriptions"}),
)
# Where the source is compacted.
COMPACTED = Options(
    brokers=3,
    faults=frozenset({"kill", "stop"}),
    admin=frozenset(),
    topics=(
        TopicPlan(
            TAGGED_TABLE,
            1,
            3,
            {
                HEADERS_PROPERTY: "true",
                "cleanup.policy": "compact",
                "segment.ms": "200",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "300",
                "file.delete.delay.ms": "0",
            },
        ),
    ),
    extras=frozenset({"subscriptions"}),
)


# Which filter


def _does_not_hear_of_edits(patch: Patch) -> None:
    def keep(self: Any, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        return None

    patch.set(Subscriptions, "image_changed", keep)


def _edits_under_its_readers(patch: Patch) -> None:
    """The new filter is there at once, and the scans of the old one go on."""
    original: Any = Subscriptions.__dict__["image_changed"]

    def image_changed(self: Any, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        for topic_id, known in list(self._read.items()):
            topic = new.topics_by_id.get(topic_id)
            if topic is None or topic.configs.get(FILTER_PROPERTY, "") == known.filter:
                continue
            text = topic.configs.get(FILTER_PROPERTY, "")
            projection = FilteredRecords(Matcher(parse_filter(text)), self._indexes)
            for index, projected in known.partitions.items():
                if not index % 2:
                    projected.projection = projection
            self._read[topic_id] = known._replace(filter=text, projection=projection)
        original(self, old, new, now_ms)

    patch.set(Subscriptions, "image_changed", image_changed)


def _knows_by_name(patch: Patch) -> None:
    """One that is made anew has the filter of the former one of its name."""
    original: Any = Subscriptions.__dict__["_subscription"]
    projections: dict[tuple[Any, str], Any] = {}

    def subscription(self: Any, topic: TopicImage, source: TopicImage | None) -> Any:
        made = original(self, topic, source)
        first = projections.setdefault((self, topic.name), made.projection)
        if made.projection is not first:
            self._read[topic.topic_id] = made = made._replace(projection=first)
        return made

    patch.set(Subscriptions, "_subscription", subscription)


def _shares_what_is_remembered(patch: Patch) -> None:
    """What one filter says of a set of tags counts for all of them."""
    original: Any = Matcher.__dict__["__init__"]
    shared: dict[bytes, int] = {}

    def init(self: Any, expression: Any) -> None:
        original(self, expression)
        self._by_set = shared

    patch.set(Matcher, "__init__", init)


def _judges_by_the_first(patch: Patch) -> None:
    """The first record of a batch decides about all of it."""
    original: Any = Matcher.__dict__["select"]

    def select(self: Any, buf: Any, start: int, end: int, record_count: int) -> bytes | bool:
        selection: bytes | bool = original(self, buf, start, end, record_count)
        return selection if isinstance(selection, bool) else bool(selection[0])

    patch.set(Matcher, "select", select)


def _drops_what_has_no_tags(patch: Patch) -> None:
    original: Any = Matcher.__dict__["passes"]

    def passes(self: Any, stored_tags: bytes) -> bool:
        return bool(stored_tags) and bool(original(self, stored_tags))

    patch.set(Matcher, "passes", passes)


# Which partition


def _shows_the_source_twice(patch: Patch) -> None:
    """The subscription's own partitions are the source's as well."""
    original: Any = Subscriptions.__dict__["find"]

    def find(self: Any, tenant: str, topic: str, topic_id: bytes, index: int) -> Any:
        projected = original(self, tenant, topic, topic_id, index)
        if projected is None or index % 2 == 0:
            return projected
        return original(self, tenant, topic, topic_id, index - 1)

    patch.set(Subscriptions, "find", find)


# How far


def _skips_the_first_of_a_segment(patch: Patch) -> None:
    original: Any = SliceScan.__dict__["run"]

    def run(self: Any) -> Slice:
        found: Slice = original(self)
        first = {segment.base_offset for segment in self._log.segments[1:]}
        return found._replace(shown=[one for one in found.shown if one.base_offset not in first])

    patch.set(SliceScan, "run", run)


def _passes_over_an_index(patch: Patch) -> None:
    original: Any = TagView.__dict__["candidates"]

    def candidates(
        self: Any, tags: SegmentTags, offset: int, *, has_shown: bool
    ) -> tuple[int, int]:
        found: tuple[int, int] = original(self, tags, offset, has_shown=has_shown)
        if offset == tags.base_offset and found[0] < self.next_offset:
            return self.next_offset, self.next_offset
        return found

    patch.set(TagView, "candidates", candidates)


class _AllCommitted:
    """A log of which all counts as committed."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, "log_end_offset" if name == "high_watermark" else name)


def _keeps_the_index_of_what_is_cut(patch: Patch) -> None:
    """An index goes up to the end of the log, and a segment that is cut keeps its own."""
    original: Any = IndexJob.__dict__["__init__"]
    kept: dict[tuple[TagIndexes, str], SegmentTags] = {}

    def init(self: Any, indexes: TagIndexes, log: Log, segment: Segment) -> None:
        original(self, indexes, _AllCommitted(log), segment)

    def find(self: TagIndexes, segment: Segment) -> SegmentTags | None:
        return kept.get((self, segment.path()))

    def keep(self: TagIndexes, segment: Segment, tags: SegmentTags) -> SegmentTags:
        return kept.setdefault((self, segment.path()), tags)

    # Each batch by itself, also where more may be appended.
    patch.set(tag_indexes, "INDEX_FROM_BYTES", 1)
    patch.set(tag_index, "BLOCK_BYTES", 1)
    patch.set(IndexJob, "__init__", init)
    patch.set(TagIndexes, "find", find)
    patch.set(TagIndexes, "keep", keep)


def _ends_one_too_far(patch: Patch) -> None:
    """The last offset of a batch that is written anew is one too high."""
    original: Any = records.filter_batch

    def filter_batch(*arguments: Any, **options: Any) -> bytearray | None:
        part: bytearray | None = original(*arguments, **options)
        if part is not None:
            (delta,) = struct.unpack_from(">i", part, LAST_OFFSET_DELTA_POSITION)
            struct.pack_into(">i", part, LAST_OFFSET_DELTA_POSITION, delta + 1)
            struct.pack_into(">I", part, CRC_POSITION, crc32c(part[ATTRIBUTES_POSITION:]))
        return part

    patch.set(projected_reads, "filter_batch", filter_batch)


def _drops_closing_batches(patch: Patch) -> None:
    patch.set(FetchScans, "skipped", lambda self: iter(()))


def _shows_what_is_not_committed(patch: Patch) -> None:
    original: Any = FetchScans.__dict__["look_at"]

    def look_at(self: Any, target: Any, partition: Any, limit: int, bytes_max: int) -> Scan:
        scan: Scan = original(self, target, partition, partition.log.log_end_offset, bytes_max)
        return scan

    patch.set(FetchScans, "look_at", look_at)


def _drops_what_was_cleaned(patch: Patch) -> None:
    """A batch with fewer records than offsets counts as one that has nothing to show."""
    original: Any = projected_reads.shown_part

    def shown_part(projection: Any, batch: Any, offset_min: int) -> Any:
        header = batch.header
        if header.record_count <= header.last_offset_delta:
            return None
        return original(projection, batch, offset_min)

    patch.set(projected_reads, "shown_part", shown_part)


SUBSCRIPTION_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "stale filter",
        "an edit of a filter is not heard of",
        _does_not_hear_of_edits,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "edited under its readers",
        "what was scanned by a filter counts after it was edited",
        _edits_under_its_readers,
        options=SUBSCRIPTIONS,
    ),
    Mutant(
        "subscriptions known by name",
        "a subscription that is made anew is read by the filter of the former one",
        _knows_by_name,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "filters share what they remember",
        "what one filter says of a set of tags counts for the others",
        _shares_what_is_remembered,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "first record decides",
        "a batch is shown or not as a whole",
        _judges_by_the_first,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "no tags, no record",
        "records without tags never pass",
        _drops_what_has_no_tags,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "source shown twice",
        "a subscription's own partitions show the source's records",
        _shows_the_source_twice,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "first batch of a segment skipped",
        "what stands at a segment's beginning is not shown",
        _skips_the_first_of_a_segment,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "indexed segment skipped",
        "who comes to an indexed segment is told that nothing matches there",
        _passes_over_an_index,
        options=SUBSCRIPTIONS,
    ),
    Mutant(
        "index not truncated",
        "what is cut of a segment and written anew is found by the tags that stood there before",
        _keeps_the_index_of_what_is_cut,
        seeds=(7,),
        options=CUT_LOGS,
    ),
    Mutant(
        "filtered batch one too long",
        "a batch that is written anew takes its reader over the next record",
        _ends_one_too_far,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "subscriber not moved on",
        "where nothing matches, nothing moves a reader",
        _drops_closing_batches,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "subscriber beyond the high watermark",
        "records that are not committed are shown",
        _shows_what_is_not_committed,
        options=SUBSCRIPTIONS,
        is_quick=True,
    ),
    Mutant(
        "cleaned batches not shown",
        "of a batch that compaction has left in part nothing is shown",
        _drops_what_was_cleaned,
        options=COMPACTED,
        is_quick=True,
    ),
)
