"""Incremental fetch sessions over random histories: what a session tells is what a full fetch does.

A consumer with a session follows three partitions while they get records, lose them, change their
leader or ISR, begin elsewhere, and are deleted and made again under the same name. Whenever it has
come to rest a fetch without session must have nothing for it: no record, no error, no high
watermark, last stable offset or log start that it has not been told.

The same where every request is handled in slices of one partition, and things happen in between.
"""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest

from data_plane.broker.fetch import fetch_handler, fetch_poll, fetch_reads, large_fetches
from data_plane.cell.changes import ChangePartition, CreateTopic, DeleteTopic
from data_plane.cell.metadata import PartitionImage
from data_plane.log.errors import LogError
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.messages.fetch_response import FetchResponse, PartitionData
from data_plane.wire.records import NewRecord, build_batch, iter_batch_headers
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NODE_ID
from tests.broker.replicated_player import OTHERS, TOPIC_ID, ReplicatedPlayer

INDEXES = range(3)
ROUNDS_MAX = 60
RESTLESS_ROUNDS = 4
HISTORIES = 25
CHECKS = 40
# From 13 on a fetch names topics by id, and a session ends with its topic.
IDS_SINCE_VERSION = 13
FULL, NONE = (0, 0), (0, -1)
STEPS = ("append", "append", "followers", "followers", "role", "log", "delete", "topic", "isr")

# Of a partition: high watermark, last stable offset, log start.
Ends = tuple[int, int, int]


class SessionHistory:
    """See the module."""

    def __init__(self, seed: int, version: int, *, in_slices: bool = False) -> None:
        self._in_slices = in_slices
        # Whether things happen while a request is handled.
        self._is_restless = False
        self._random = random.Random(seed)
        self._version = version
        self._isolation_level = seed % 2
        self._player = ReplicatedPlayer(partitions_count=len(INDEXES))
        self._topic_id = TOPIC_ID
        self._session = FULL
        self._positions = dict.fromkeys(INDEXES, 0)
        # What the session was told of positions, and has told of ends.
        self._named: dict[int, int] = {}
        self._known: dict[int, Ends] = {}
        self.story: list[str] = []

    def _replica(self, index: int) -> Partition:
        replica = self._player.services.partitions.replica(self._topic_id, index)
        assert replica is not None
        return replica

    def _state(self, index: int) -> PartitionImage:
        return self._player.services.image.topics_by_id[self._topic_id].partitions[index]

    # The consumer

    def _fetch(self, indexes: list[int], session: tuple[int, int]) -> FetchResponse:
        """Of a connection of its own where there is no session, and then all there is."""
        player = self._player
        is_whole = session == NONE
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self._isolation_level,
            session_id=session[0],
            session_epoch=session[1],
            topics=[],
        )
        if indexes:
            topic = FetchTopic(partitions=[])
            if self._version >= IDS_SINCE_VERSION:
                topic.topic_id = self._topic_id
            else:
                topic.topic = "orders"
            for index in indexes:
                size = 1 << 20 if is_whole else self._random.choice((80, 1 << 20))
                topic.partitions.append(
                    FetchPartition(
                        partition=index,
                        fetch_offset=self._positions[index],
                        partition_max_bytes=size,
                    )
                )
            request.topics = [topic]
        connection = player.connect() if is_whole else player.connection
        pending = player.send(ApiKey.FETCH, self._version, request, connection=connection)
        while self._in_slices and player.executor.queue:
            if self._is_restless and self._random.random() < 0.3:
                self._happen()
            player.executor.run_one()
            player.services.wakes.run(player.now_ms)
        for _ in range(10):
            if not pending.is_answered:
                player.run_jobs()
        response = pending.response
        assert isinstance(response, FetchResponse)
        assert response.error_code == ErrorCode.NONE
        return response

    def _poll(self) -> dict[int, int]:
        """Fetch until nothing is new; returns the errors of partitions."""
        errors: dict[int, int] = {}
        quiet_count = 0
        for number in range(ROUNDS_MAX):
            self._is_restless = self._in_slices and number < RESTLESS_ROUNDS
            if self._session == FULL:
                response = self._fetch(list(INDEXES), FULL)
                self._session = (response.session_id, 1)
                self._named = dict(self._positions)
            else:
                changed = [one for one in INDEXES if self._named[one] != self._positions[one]]
                response = self._fetch(changed, self._session)
                self._named.update((one, self._positions[one]) for one in changed)
                self._session = (self._session[0], self._session[1] + 1)
            pieces = [piece for topic in response.responses for piece in topic.partitions]
            told = {one.partition_index: one.error_code for one in pieces if one.error_code}
            moves = [self._take(piece) for piece in pieces]
            if any(moves) or len(told) != len(pieces) or self._is_restless:
                errors, quiet_count = {}, 0
                continue
            errors |= told
            quiet_count += 1
            # An answer may be about one partition, and the next one about another.
            if quiet_count > (len(INDEXES) if self._in_slices else 0):
                return errors
        raise AssertionError("never at rest")

    def _take(self, piece: PartitionData) -> bool:
        """What came of one partition; whether the position has moved on."""
        index = piece.partition_index
        before = self._positions[index]
        if piece.error_code:
            self._known.pop(index, None)
            if piece.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._positions[index] = self._replica(index).log.log_start_offset
            return self._positions[index] != before
        self._known[index] = _ends(piece)
        data = piece.records or b""
        for header in iter_batch_headers(data, 0, len(data)):
            self._positions[index] = max(self._positions[index], header.next_offset)
        return self._positions[index] != before

    def check(self) -> None:
        """Come to rest, and hold what the session has told against a fetch without one."""
        if self._in_slices and self._random.random() < 0.3:
            # Another session, of the same consumer.
            self._session = FULL
            self._known.clear()
        errors = self._poll()
        response = self._fetch(list(INDEXES), NONE)
        for piece in (one for topic in response.responses for one in topic.partitions):
            index = piece.partition_index
            assert errors.get(index, 0) == piece.error_code, f"{index}: {errors}"
            if not piece.error_code:
                assert not piece.records, f"{index} has records at {self._positions[index]}"
                assert self._known[index] == _ends(piece), f"{index}"

    # What happens to the partitions

    def step(self) -> None:
        """Something does."""
        self._happen()
        self._player.run_jobs()

    def _happen(self) -> None:
        index = self._random.choice(INDEXES)
        kind = self._random.choice(STEPS)
        self.story.append(f"{kind} {index}")
        player, replica = self._player, self._replica(index)
        if kind == "role":
            self._change_leader(index)
        elif kind == "topic":
            self._make_anew()
        elif kind == "log" and replica.is_follower:
            self._follow(replica)
        elif replica.is_leader:
            self._lead(kind, index, replica)
        player.services.wakes.run(player.now_ms)

    def _lead(self, kind: str, index: int, replica: Partition) -> None:
        rng, player, log = self._random, self._player, replica.log
        if kind == "append":
            records = [
                NewRecord(player.now_ms, None, b"x" * rng.randrange(100))
                for _ in range(rng.randrange(1, 4))
            ]
            batch = bytearray(build_batch(records))
            replica.append_as_leader(batch, 0, len(batch), now_ms=player.now_ms)
        elif kind == "followers":
            for node_id in (one for one in OTHERS if rng.random() < 0.8):
                replica.follower_fetched(
                    node_id, player.broker_epoch(node_id), log.log_end_offset, 0, player.now_ms
                )
        elif kind == "delete":
            before = log.log_start_offset
            log.delete_records(rng.randrange(replica.high_watermark + 1))
            if log.log_start_offset != before:
                replica.log_start_changed()
        elif kind == "isr":
            isr = rng.choice(((7,), (7, 8), (7, 8, 9)))
            self._change(index, replace(self._state(index), isr=isr, elr=(), last_known_elr=()))

    def _follow(self, replica: Partition) -> None:
        """It gets a batch, cuts its log or begins anew."""
        rng, log = self._random, replica.log
        now_ms = self._player.now_ms
        choice = rng.random()
        try:
            if choice < 0.6:
                batch = bytearray(build_batch([NewRecord(now_ms, None, b"y")]))
                batch[0:8] = log.log_end_offset.to_bytes(8, "big")
                batch[12:16] = replica.leader_epoch.to_bytes(4, "big")
                replica.append_as_follower(
                    batch,
                    0,
                    len(batch),
                    leader_epoch=replica.leader_epoch,
                    leader_high_watermark=log.log_end_offset + rng.choice((0, 1)),
                    leader_log_start=0,
                    now_ms=now_ms,
                )
            elif choice < 0.8:
                epoch = rng.randrange(max(1, replica.leader_epoch))
                replica.truncate_for_divergence(epoch, rng.randrange(log.log_end_offset + 1))
            else:
                replica.restart_at(log.log_end_offset + rng.randrange(3))
        except LogError as error:
            self.story.append(repr(error))

    def _change_leader(self, index: int) -> None:
        state = self._state(index)
        leader = self._random.choice((NODE_ID, NODE_ID, *OTHERS, -1))
        if leader != state.leader:
            epoch = state.leader_epoch + 1
            isr = (NODE_ID, *OTHERS)
            self._change(index, replace(state, leader=leader, leader_epoch=epoch, isr=isr))

    def _change(self, index: int, state: PartitionImage) -> None:
        state = replace(state, partition_epoch=state.partition_epoch + 1)
        self._player.commit(ChangePartition(self._topic_id, index, state))

    def _make_anew(self) -> None:
        """Another topic under the same name, in one commit or in two."""
        if self._version >= IDS_SINCE_VERSION or self._random.random() > 0.2:
            return
        topic_id = UUID(int=self._topic_id.int + 1)
        gone = DeleteTopic(self._topic_id)
        made = CreateTopic("default", "orders", topic_id, ((NODE_ID, *OTHERS),) * len(INDEXES))
        if self._random.random() < 0.5:
            self._player.commit(gone, made)
        else:
            self._player.commit(gone)
            self._player.commit(made)
        self._topic_id = topic_id


def _ends(piece: PartitionData) -> Ends:
    return piece.high_watermark, piece.last_stable_offset, piece.log_start_offset


@pytest.mark.parametrize("version", [11, 12, 17, 18])
def test_a_session_tells_what_a_full_fetch_does(version: int) -> None:
    run_histories(version, in_slices=False)


@pytest.mark.parametrize("version", [11, 12, 17, 18])
def test_a_session_in_slices_does_too(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_handler, "LARGE_FETCH_BYTES", 0)
    monkeypatch.setattr(large_fetches, "NAMED_MAX", 1)
    monkeypatch.setattr(large_fetches, "LOOKED_AT_MAX", 1)
    monkeypatch.setattr(large_fetches, "TOLD_MAX", 1)
    monkeypatch.setattr(fetch_poll, "LOOKED_AT_MAX", 1)
    monkeypatch.setattr(fetch_reads, "LOOKED_AT_MAX", 1)
    run_histories(version, in_slices=True)


def run_histories(version: int, *, in_slices: bool) -> None:
    for seed in range(HISTORIES):
        history = SessionHistory(seed * 100 + version, version, in_slices=in_slices)
        try:
            for _ in range(CHECKS):
                for _ in range(1 + seed % 3):
                    history.step()
                history.check()
        except AssertionError as error:
            story = ", ".join(history.story[-12:])
            raise AssertionError(f"version {version}, seed {seed}: {error}; {story}") from error
