"""`python -m benchmarks.kernel_micro`: the kernel's two forms side by side, and how much C gains.

One line a function: microseconds a call interpreted and compiled, their ratio, and where records
are walked, millions a second. Best of several runs, so that a busy machine disturbs little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import UUID

from data_plane.wire import (
    kernel,
    kernel_batches,
    kernel_records,
    kernel_requests,
    kernel_responses,
)
from data_plane.wire.kernel_types import FetchPartitionResult, ProducePartitionResult
from data_plane.wire.messages import fetch_request as fetch
from data_plane.wire.messages import produce_request as produce
from data_plane.wire.primitives import Writer
from data_plane.wire.records import NewRecord, build_batch, set_base_offset

RUNS = 5
RUN_SECONDS = 0.05
RECORDS = 10_000
TOPIC_ID = UUID(int=77)


def microseconds(call: Callable[[], Any]) -> float:
    """Of one call, the best of RUNS runs."""
    call()
    started = time.perf_counter()
    call()
    count = max(1, int(RUN_SECONDS / max(1e-9, time.perf_counter() - started)))
    best = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - started) / count)
    return best * 1e6


def cases() -> list[tuple[str, int, Callable[[Any, Any, Any, Any], Callable[[], Any]]]]:
    """(name, records it looks at, what makes the call from the four modules)."""
    batch = build_batch([NewRecord(1000 + i, b"%08d" % i, bytes(91)) for i in range(RECORDS)])
    tagged = build_batch([NewRecord(1000, b"", b"", ((b"tw-tag", b"x"),)) for _ in range(RECORDS)])
    small = build_batch([NewRecord(1000, b"key", bytes(100)) for _ in range(130)])
    stored = small * 64
    for i in range(64):
        set_base_offset(stored, i * len(small), i * 130, 0)
    end, tagged_end = len(batch), len(tagged)
    keep = b"\x01\x00" * (RECORDS // 2)
    produced, fetched = _requests(bytes(small))
    frames = b"".join(len(produced).to_bytes(4, "big") + produced for _ in range(4))
    head = bytes(9)
    produce_results = [("", TOPIC_ID.bytes, [ProducePartitionResult(3, 0, 77)])]
    fetch_results = [
        ("", TOPIC_ID.bytes, [FetchPartitionResult(i, 0, 5, 5, 0, None, -1, (small,)) for i in
                              range(100)])
    ]  # fmt: skip
    return [
        ("check_batches, 130 records of 100 B", 0,
         lambda b, k, q, r: lambda: b.check_batches(small, 0, len(small))),
        ("check_batches with walk", 0,
         lambda b, k, q, r: lambda: b.check_batches(small, 0, len(small), walk=True)),
        ("scan_batches, 64 batches", 0,
         lambda b, k, q, r: lambda: b.scan_batches(stored, 0, len(stored))),
        ("walk_records, 100 B", RECORDS,
         lambda b, k, q, r: lambda: k.walk_records(batch, 61, end, RECORDS)),
        ("find_timestamp, none found", RECORDS,
         lambda b, k, q, r: lambda: k.find_timestamp(batch, 61, end, RECORDS, 0, 2**40)),
        ("scan_headers, prefix nowhere", RECORDS,
         lambda b, k, q, r: lambda: k.scan_headers(batch, 61, end, RECORDS)),
        ("scan_headers, one in each", RECORDS,
         lambda b, k, q, r: lambda: k.scan_headers(tagged, 61, tagged_end, RECORDS)),
        ("list_keys", RECORDS, lambda b, k, q, r: lambda: k.list_keys(batch, 61, end, RECORDS)),
        ("filter_records, every other", RECORDS,
         lambda b, k, q, r: lambda: k.filter_records(batch, 61, end, RECORDS, 0, keep)),
        ("decode_records", RECORDS,
         lambda b, k, q, r: lambda: k.decode_records(batch, 61, end, RECORDS, 0, 0)),
        ("split_frames, 4 frames", 0,
         lambda b, k, q, r: lambda: q.split_frames(frames, 0, len(frames), 2**20)),
        ("parse_produce v13, 1 partition", 0,
         lambda b, k, q, r: lambda: q.parse_produce(produced, 0, len(produced), 13)),
        ("parse_fetch v17, 100 partitions", 0,
         lambda b, k, q, r: lambda: q.parse_fetch(fetched, 0, len(fetched), 17)),
        ("encode_produce_response, 1 partition", 0,
         lambda b, k, q, r: lambda: r.encode_produce_response(head, 13, produce_results)),
        ("encode_fetch_response, 100 partitions", 0,
         lambda b, k, q, r: lambda: r.encode_fetch_response(head, 17, fetch_results)),
    ]  # fmt: skip


def _requests(records: bytes) -> tuple[bytes, bytes]:
    """The bodies of a Produce 13 with one partition and a Fetch 17 with a hundred."""
    writer = Writer()
    produce.encode_produce_request(
        writer,
        produce.ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                produce.TopicProduceData(
                    topic_id=TOPIC_ID,
                    partition_data=[produce.PartitionProduceData(index=0, records=records)],
                )
            ],
        ),
        13,
    )
    produced = bytes(writer.buf)
    writer = Writer()
    partitions = [
        fetch.FetchPartition(partition=i, fetch_offset=7, partition_max_bytes=2**20)
        for i in range(100)
    ]
    fetch.encode_fetch_request(
        writer,
        fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=[fetch.FetchTopic(topic_id=TOPIC_ID, partitions=partitions)],
        ),
        17,
    )
    return produced, bytes(writer.buf)


def main() -> None:
    if not kernel.COMPILED:
        sys.exit(f"the kernel is interpreted here: {kernel.WHY_INTERPRETED}")
    package = "data_plane.wire.kernel_compiled"
    compiled = [
        import_module(f"{package}.{name}")
        for name in ("kernel_batches", "kernel_records", "kernel_requests", "kernel_responses")
    ]
    interpreted = [kernel_batches, kernel_records, kernel_requests, kernel_responses]
    print(f"{'':42}{'interpreted':>12}{'compiled':>12}{'ratio':>8}{'M records/s':>14}")
    for name, records, make in cases():
        slow = microseconds(make(*interpreted))
        fast = microseconds(make(*compiled))
        rate = f"{records / fast:14.1f}" if records else ""
        print(f"{name:42}{slow:9.1f} µs{fast:9.1f} µs{slow / fast:8.1f}{rate}")


if __name__ == "__main__":
    main()
