"""A leader and a follower small enough to be right by looking: logs are lists of leader epochs.

The model leader reads real Fetch requests and writes real responses, keeps sessions as KIP-227 has
them, and answers at once. Record n of a partition is 16 bytes: its offset, its epoch, and a check
sum, so that the model follower notices what is not from this leader's log.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from data_plane.log.errors import LogError
from data_plane.replica.fetch_session import API_VERSION, FetchState, PartitionKey
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel import encode_fetch_response, parse_fetch
from data_plane.wire.kernel_types import (
    FetchPartitionResult,
    FetchPartitionView,
    FetchRequestView,
)

_RECORD = struct.Struct(">qiI")
RECORD_BYTES = _RECORD.size
HEAD = bytes(9)


def encode_record(offset: int, epoch: int) -> bytes:
    return _RECORD.pack(offset, epoch, zlib.crc32(b"%d %d" % (offset, epoch)))


@dataclass
class ModelLog:
    """`epochs[n]` is the leader epoch of the record at `start + n`."""

    epochs: list[int] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.epochs)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else -1

    def end_of(self, epoch: int) -> tuple[int, int]:
        """(largest epoch ≤ `epoch`, its end offset)."""
        known = [one for one in self.epochs if one <= epoch]
        if not known:
            return -1, self.start
        return max(known), self.start + len(known)

    def move_start(self, offset: int) -> None:
        if offset > self.start:
            del self.epochs[: offset - self.start]
            self.start = offset


class ModelLeader:
    """One broker's answers to the fetches of one follower."""

    def __init__(self) -> None:
        self.logs: dict[PartitionKey, ModelLog] = {}
        self.epochs: dict[PartitionKey, int] = {}
        self.high_watermarks: dict[PartitionKey, int] = {}
        # What the follower says that it has.
        self.acknowledged: dict[PartitionKey, int] = {}
        self.gives_sessions = True
        self.session_id = 0
        self.session_epoch = 0
        self.session: dict[PartitionKey, FetchPartitionView] = {}
        self.told: dict[PartitionKey, tuple[int, int]] = {}
        self.requests: list[FetchRequestView] = []
        self.records_per_partition_max = 5
        self._next_session_id = 1

    def lose_session(self) -> None:
        self.session_id = 0

    def answer(self, body: bytes | bytearray) -> bytes:
        """The response's body."""
        view = parse_fetch(body, 0, len(body), API_VERSION)
        self.requests.append(view)
        if view.session_epoch == 0:
            self.session, self.told = {}, {}
            self._name(view)
            self.session_id = 0
            if self.gives_sessions and self.session:
                self.session_id, self._next_session_id = (
                    self._next_session_id,
                    self._next_session_id + 1,
                )
                self.session_epoch = 1
            return self._encode(is_full=True)
        if view.session_id != self.session_id or not self.session_id:
            return self._refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if view.session_epoch != self.session_epoch:
            return self._refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self.session_epoch += 1
        self._name(view)
        for gone in view.forgotten_topics:
            for index in gone.partitions:
                self.session.pop((gone.topic_id, index), None)
        if not self.session:
            self.session_id = 0
        return self._encode(is_full=False)

    def _name(self, view: FetchRequestView) -> None:
        for topic in view.topics:
            for wanted in topic.partitions:
                key = (topic.topic_id, wanted.partition)
                if key not in self.session:
                    self.told.pop(key, None)
                elif key in self.told:
                    self.told[key] = (wanted.high_watermark, wanted.log_start_offset)
                self.session[key] = wanted
                self.acknowledged[key] = wanted.fetch_offset

    def _encode(self, is_full: bool) -> bytes:
        topics: dict[bytes, list[FetchPartitionResult]] = {}
        for (topic_id, index), wanted in self.session.items():
            result = self._read((topic_id, index), wanted)
            if result is not None or is_full:
                topics.setdefault(topic_id, []).append(result or FetchPartitionResult(index, 0, -1))
        return encoded([("", *item) for item in topics.items()], 0, self.session_id)

    def _read(self, key: PartitionKey, wanted: FetchPartitionView) -> FetchPartitionResult | None:
        index = key[1]
        log = self.logs.get(key)
        if log is None:
            return _error(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        epoch = self.epochs[key]
        if wanted.current_leader_epoch != epoch:
            is_old = wanted.current_leader_epoch < epoch
            return _error(
                index,
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
        offset = wanted.fetch_offset
        high_watermark = self.high_watermarks.get(key, 0)
        result = FetchPartitionResult(index, 0, high_watermark, log_start_offset=log.start)
        out_of_range = FetchPartitionResult(
            index, int(ErrorCode.OFFSET_OUT_OF_RANGE), -1, log_start_offset=log.start
        )
        if offset < log.start:
            return out_of_range
        if wanted.last_fetched_epoch >= 0 and offset > log.start:
            found = log.end_of(wanted.last_fetched_epoch)
            if found[0] < wanted.last_fetched_epoch or found[1] < offset:
                return result._replace(diverging_epoch=found)
        if offset > log.end:
            return out_of_range
        end = min(log.end, offset + self.records_per_partition_max)
        if offset == end and self.told.get(key) == (high_watermark, log.start):
            return None
        self.told[key] = (high_watermark, log.start)
        records = [encode_record(n, log.epochs[n - log.start]) for n in range(offset, end)]
        return result._replace(records=records)

    @staticmethod
    def _refusal(error: ErrorCode) -> bytes:
        return encoded([], int(error), 0)


def _error(index: int, error: ErrorCode) -> FetchPartitionResult:
    return FetchPartitionResult(index, int(error), -1)


def encoded(
    topics: list[tuple[str, bytes, list[FetchPartitionResult]]], error_code: int, session_id: int
) -> bytes:
    frame = b"".join(encode_fetch_response(HEAD, API_VERSION, topics, error_code, session_id))
    return frame[len(HEAD) :]


class ModelReplica:
    """A follower of one partition; refuses whatever it should never be asked to do."""

    def __init__(self, leader_epoch: int = 0) -> None:
        self.log = ModelLog()
        self.leader_epoch = leader_epoch
        self.leader_high_watermark = -1
        self.fails_with: Exception | None = None
        self.needs_sync = False
        # Whether a thread cuts the log, when told to.
        self.needs_cuts = False
        self._cut: tuple[int, int] | None = None
        self.cut_in_epoch = -1
        self.synced_end = 0
        self.epoch_before = -1
        self.appends_count = 0
        self._waiting: list[Callable[[], None]] = []

    def fetch_state(self) -> FetchState:
        if self.fails_with is not None:
            raise self.fails_with
        return FetchState(self.log.end, self.log.last_epoch, self.leader_epoch, self.log.start)

    @property
    def is_busy(self) -> bool:
        return self._cut is not None or (self.needs_sync and self.synced_end < self.log.end)

    def when_free(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)

    def sync(self) -> None:
        self.synced_end = self.log.end
        self._tell()

    def cut(self) -> None:
        """The thread is done; nothing comes of it where the leader epoch has changed."""
        cut, self._cut = self._cut, None
        if cut is not None and self.cut_in_epoch == self.leader_epoch:
            self._truncate(*cut)
        self._tell()

    def _tell(self) -> None:
        if self.is_busy:
            return
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def append_as_follower(
        self,
        buf: memoryview,
        start: int,
        end: int,
        *,
        leader_epoch: int,
        leader_high_watermark: int,
        leader_log_start: int,
        now_ms: int,
    ) -> None:
        if self.fails_with is not None:
            raise self.fails_with
        assert leader_epoch == self.leader_epoch, "data of another leader epoch"
        assert self._cut is None, "it takes no answers"
        self.appends_count += 1
        for position in range(start, end, _RECORD.size):
            data = bytes(buf[position : min(position + _RECORD.size, end)])
            if len(data) < _RECORD.size:
                break
            offset, epoch, _ = _RECORD.unpack(data)
            if data != encode_record(offset, epoch) or offset != self.log.end:
                raise LogError("a damaged record, or one that does not fit")
            self.log.epochs.append(epoch)
        self.leader_high_watermark = leader_high_watermark
        self.log.move_start(min(leader_log_start, self.log.end))

    def truncate_for_divergence(self, epoch: int, end_offset: int) -> None:
        assert self._cut is None, "it takes no answers"
        if self.needs_cuts:
            self._cut, self.cut_in_epoch = (epoch, end_offset), self.leader_epoch
        else:
            self._truncate(epoch, end_offset)

    def _truncate(self, epoch: int, end_offset: int) -> None:
        own_epoch, own_end = self.log.end_of(epoch)
        target = own_end if own_epoch != epoch and own_epoch >= 0 else min(own_end, end_offset)
        if own_epoch < 0:
            target = min(end_offset, self.log.end)
        del self.log.epochs[max(0, target - self.log.start) :]
        self.synced_end = min(self.synced_end, self.log.end)

    def restart_at(self, start_offset: int, epoch_before: int) -> None:
        self.log = ModelLog([], start_offset)
        self.epoch_before = epoch_before
        self.synced_end = start_offset
