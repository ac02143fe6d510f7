"""`./tidewheel bench subscriptions`: what a filter costs, with the index of tags and without.

A log on the real disk is filled with tagged records, ten of which match, and is opened anew for
each question, so that nothing is in this process's memory (the page cache is warm):

    scan       every batch is looked at: records a second, plain and lz4
    worst      the same with the largest filter that is allowed, beside a single tag
    new tags   each record has tags that no other had, so that nothing that was decided helps: the
               costliest of several largest filters beside a single tag, in processor time
    index      made of the whole log: records a second, and its size
    find       all ten matches: milliseconds, and the part of the log that was read
    count      the lag of a group that has committed nothing
    produce    appends to a topic that reads headers beside one that does not

No network and no broker: this is what the broker's threads do. Not in here: what a client saves.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import structlog

from data_plane.broker.fetch.projected_reads import Scan, SliceScan
from data_plane.broker.fetch.projected_searches import ReadBudget, count_shown
from data_plane.broker.fetch.projection import ProjectedPartition
from data_plane.log.config import LogConfig
from data_plane.log.errors import UnknownPartition
from data_plane.log.log import Log
from data_plane.log.manager import LogManager
from data_plane.wire.compression import Compression
from data_plane.wire.records import BATCH_HEADER_BYTES, NewRecord, build_batch
from features.filtering.indexed_records import FilteredRecords
from features.filtering.language import NESTING_MAX, TERMS_MAX, Tag, parse_filter
from features.filtering.matching import Matcher
from features.filtering.tag_indexes import IndexJob, TagIndexes
from features.headers import HEADER_RULES
from stack.help import CommandParser, positive_number, write_any_text

TOPIC_ID: Final = UUID(int=30)
RECORDS_PER_BATCH: Final = 100
VALUE_BYTES: Final = 80
MATCHES: Final = 10
TAGS: Final = [b"carrier:%d" % number for number in range(50)]
RARE: Final = b"rare"
NOW_MS: Final = 1_700_000_000_000
# What the largest filters are made of, so that records may have tags of theirs.
TERMS: Final = [f"t{number}" for number in range(TERMS_MAX)]
NEW_TAGS_BATCHES: Final = 60


class NoExecutor:
    """The jobs are run by hand."""

    def submit(self, work: Any, on_done: Any) -> None:
        raise AssertionError("nobody wants an index here")


class Bench:
    """One log below `folder`."""

    def __init__(self, folder: Path, codec: int) -> None:
        self._folder = folder
        self._codec = codec
        self.config = LogConfig(retention_ms=-1)
        self.size_bytes = 0

    @contextmanager
    def log(self) -> Iterator[Log]:
        """The log, opened anew."""
        manager = LogManager([self._folder], default_config=self.config, now_ms=NOW_MS)
        assert manager.start(NOW_MS) == []
        try:
            log = manager.get(TOPIC_ID, 0)
        except UnknownPartition:
            log = manager.create(TOPIC_ID, "bench", 0, self.config)
        log.load()
        log.advance_high_watermark(log.log_end_offset)
        try:
            yield log
        finally:
            manager.close(NOW_MS)

    def fill(self, records: int) -> None:
        """With `records` of them; MATCHES of the batches have one with the tag RARE."""
        plain = [self._batch(number, is_rare=False) for number in range(len(TAGS))]
        rare = self._batch(0, is_rare=True)
        batches = records // RECORDS_PER_BATCH
        every = max(1, batches // MATCHES)
        with self.log() as log:
            for number in range(batches):
                is_rare = number % every == every // 2
                batch = bytearray(rare if is_rare else plain[number % len(plain)])
                log.append_as_leader(batch, 0, len(batch), leader_epoch=0, now_ms=NOW_MS)
            self.size_bytes = log.size_bytes

    def _batch(self, number: int, *, is_rare: bool) -> bytes:
        records = []
        for place in range(RECORDS_PER_BATCH):
            tags = [TAGS[(number + place) % len(TAGS)]]
            if is_rare and not place:
                tags.append(RARE)
            headers = tuple((b"tw-tag", tag) for tag in tags)
            value = b"%d:%d " % (number, place)
            records.append(NewRecord(NOW_MS, None, value.ljust(VALUE_BYTES, b"."), headers))
        return bytes(build_batch(records, compression=self._codec))


class Counting:
    """Counts the bytes that a log reads from the disk."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read_cold(self, *arguments: Any, **options: Any) -> Any:
        found = self._log.read_cold(*arguments, **options)
        self.bytes += found.size
        return found


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def new_indexes() -> TagIndexes:
    return TagIndexes(NoExecutor(), structlog.get_logger())


def scan(log: Any, projection: FilteredRecords) -> int:
    """All that is shown, slice by slice; returns how many batches."""
    end, shown = log.high_watermark, 0
    state = Scan(ProjectedPartition(b"", 0, projection), log.log_start_offset)
    while state.position < end:
        part = SliceScan(state, log, end, 1 << 20, None, state.position)
        part.take(part.run())
        if state.error is not None:
            raise state.error
        shown += len(state.shown)
        state.sent(state.shown, log)
    return shown


def count_all(log: Log, projection: FilteredRecords) -> int:
    return count_shown(projection, log, 0, log.high_watermark, (), ReadBudget())


def index(log: Log, indexes: TagIndexes) -> None:
    for segment in log.segments:
        while IndexJob(indexes, log, segment).run():
            pass


def rate(bench: Bench, millions: float, took: float) -> str:
    return f"{millions / took:8.1f} M records/s  {bench.size_bytes / took / 1e9:6.2f} GB/s"


def measure(records: int, codec: int, folder: Path) -> None:
    bench = Bench(folder, codec)
    bench.fill(records)
    millions = records / 1e6
    rare = Matcher(Tag(RARE))
    print(
        f"\n{Compression(codec).name.lower()}: {millions:g} M records, "
        f"{bench.size_bytes / 1e9:.2f} GB"
    )
    with bench.log() as log:
        took = seconds(lambda: scan(log, FilteredRecords(rare, new_indexes())))
        print(f"scan     {rate(bench, millions, took)}")
    with bench.log() as log:
        terms = " or ".join(f"t{number}" for number in range(TERMS_MAX - 2))
        worst = Matcher(parse_filter(f"not (carrier:* and ({terms})) and rare"))
        most = seconds(lambda: scan(log, FilteredRecords(worst, new_indexes())))
        print(f"worst    {most / took:8.2f} x of a single tag")
    with bench.log() as log:
        log.roll()
        took = seconds(lambda: index(log, new_indexes()))
        print(f"index    {rate(bench, millions, took)}")
    sizes = [path.stat().st_size for path in folder.rglob("*.tags.side")]
    print(
        f"         {sum(sizes) / 1e6:8.2f} MB on the disk, "
        f"{100 * sum(sizes) / bench.size_bytes:.3f} % of the log"
    )
    with bench.log() as log:
        counting: Any = Counting(log)
        projection = FilteredRecords(rare, new_indexes())
        started = time.perf_counter()
        shown = scan(counting, projection)
        took = time.perf_counter() - started
        print(
            f"find     {1e3 * took:8.1f} ms for {shown} matches, "
            f"{100 * counting.bytes / bench.size_bytes:.3f} % of the log read"
        )
    with bench.log() as log:
        projection = FilteredRecords(Matcher(Tag(TAGS[7])), new_indexes())
        counted: list[int] = []
        took = seconds(lambda: counted.append(count_all(log, projection)))
        print(f"count    {1e3 * took:8.1f} ms for {counted[0]:,} records")


def measure_produce(records: int, folder: Path) -> None:
    """The same batches, tagged, into a topic that reads headers and into one that does not."""
    times = {}
    for name, rules in (("without", None), ("with", HEADER_RULES)):
        bench = Bench(folder / name, Compression.NONE)
        bench.config = replace(bench.config, record_rules=rules)
        times[name] = min(seconds(partial(bench.fill, records)) for _ in range(2))
    print(f"\nproduce  {times['without'] / times['with']:8.2f} x with headers read")


def largest_filters() -> list[str]:
    """Of TERMS_MAX tags each: flat, in pairs, as deep as may be, and balanced."""
    pairs = list(zip(TERMS[::2], TERMS[1::2], strict=True))
    deep = TERMS[0]
    for number in range(1, NESTING_MAX):
        joined = (" and ", " or ")[number % 2]
        deep = f"({joined.join(TERMS[4 * number : 4 * number + 4])}{joined}{deep})"
    balanced = TERMS
    while len(balanced) > 1:
        joined = (" and ", " or ")[len(balanced).bit_length() % 2]
        balanced = [f"({joined.join(balanced[at : at + 2])})" for at in range(0, len(balanced), 2)]
    return [
        " or ".join(TERMS),
        " or ".join(f"({one} and {other})" for one, other in pairs),
        " and ".join(f"({one} or not {other})" for one, other in pairs),
        " or ".join(f"({one}:* and {other}:*)" for one, other in pairs),
        deep,
        *balanced,
    ]


def new_tags_batches(rng: random.Random, tags_max: int, value: str) -> list[bytes]:
    batches = []
    for _ in range(NEW_TAGS_BATCHES):
        records = []
        for _ in range(RECORDS_PER_BATCH):
            tags = [f"user:{rng.randrange(10**9)}"]
            tags += [rng.choice(TERMS) + value for _ in range(tags_max)]
            headers = tuple((b"tw-tag", tag.encode()) for tag in tags)
            records.append(NewRecord(NOW_MS, None, b"." * VALUE_BYTES, headers))
        batches.append(bytes(build_batch(records)))
    return batches


def select_seconds(text: str, batches: list[bytes]) -> float:
    """Processor time of the best of several rounds."""
    found = []
    for _ in range(7):
        matcher = Matcher(parse_filter(text))
        started = time.process_time()
        for batch in batches:
            matcher.select(batch, BATCH_HEADER_BYTES, len(batch), RECORDS_PER_BATCH)
        found.append(time.process_time() - started)
    return min(found)


def measure_new_tags() -> None:
    worst = 0.0
    for tags_max, value in ((0, ""), (3, ""), (3, ":x"), (20, "")):
        batches = new_tags_batches(random.Random(1), tags_max, value)
        single = select_seconds(RARE.decode(), batches)
        for text in largest_filters():
            worst = max(worst, select_seconds(text, batches) / single)
    print(f"\nnew tags {worst:8.2f} x of a single tag")


def main() -> None:
    write_any_text()
    parser = CommandParser(prog="./tidewheel bench subscriptions", description=__doc__)
    parser.add_argument(
        "--records", type=positive_number, default=10_000_000, help="[default: %(default)s]"
    )
    arguments = parser.parse_args()
    for codec in (Compression.NONE, Compression.LZ4):
        with tempfile.TemporaryDirectory() as folder:
            measure(arguments.records, codec, Path(folder))
    measure_new_tags()
    with tempfile.TemporaryDirectory() as folder:
        measure_produce(arguments.records // 10, Path(folder))
