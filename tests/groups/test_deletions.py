"""Deleting groups whose offsets need several appends, of which the log may refuse some."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from uuid import UUID

import pytest

from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.effects import AppendRecords, ClientContext, Effect, Respond
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch
from tests.groups.requests import commit

CLIENT = ClientContext("c", "/127.0.0.1", 9)
GROUP = "readers"
MESSAGE_BYTES_MAX = 1 << 20


class Coordinator:
    """Coordinates one partition, whose log takes what it is told to take."""

    def __init__(self, tombstones_per_append_max: int, chore_appends_max: int = 2) -> None:
        numbers = count()
        config = GroupCoordinatorConfig(
            offsets_topic_num_partitions=1,
            tombstones_per_append_max=tombstones_per_append_max,
            chore_appends_max=chore_appends_max,
        )
        self.groups = GroupCoordinator(config, new_uuid=lambda: str(next(numbers)))
        self.now_ms = 0
        self.answers: list[Respond] = []
        self.waiting: list[AppendRecords] = []
        # Keys that the log has, with their values.
        self.log: dict[bytes, bytes | None] = {}
        assert self.groups.start_loading(0, 1)
        self.tell(self.groups.load(0, 1, {}, 0))

    def tell(self, effects: list[Effect]) -> None:
        self.answers += [each for each in effects if isinstance(each, Respond)]
        self.waiting += [each for each in effects if isinstance(each, AppendRecords)]

    def commit(self, group_id: str, topic: str, partitions: Iterable[int]) -> None:
        request = commit(group_id, {(topic, index): 7 for index in partitions})
        self.tell(self.groups.commit_offsets("default", request, CLIENT, "commit", self.now_ms))
        self.settle()

    def delete(self, group_id: str) -> None:
        self.tell(self.groups.delete_groups("default", [group_id], "delete", self.now_ms))

    def settle(self, error: ErrorCode = ErrorCode.NONE) -> list[NewRecord]:
        """The oldest append has its outcome."""
        append = self.waiting.pop(0)
        if error is ErrorCode.NONE:
            for record in append.records:
                assert record.key is not None
                self.log[record.key] = record.value
        self.tell(self.groups.append_done(append.append_id, error, self.now_ms))
        return append.records

    def pass_turns(self) -> None:
        while self.groups.has_chores:
            self.now_ms += 1
            self.tell(self.groups.tick(self.now_ms))

    def settle_all(self) -> None:
        self.pass_turns()
        while self.waiting:
            self.settle()
            self.pass_turns()

    @property
    def kept_keys(self) -> list[bytes]:
        return [key for key, value in self.log.items() if value is not None]

    def deletion_error(self) -> ErrorCode:
        (answer,) = [each for each in self.answers if each.token == "delete"]
        return ErrorCode(answer.response.results[0].error_code)


@pytest.mark.parametrize("refused", range(3))
def test_a_group_goes_only_with_all_its_offsets(refused: int) -> None:
    """What is left of them would belong to the next group of that name."""
    one = Coordinator(tombstones_per_append_max=2)
    one.commit(GROUP, "orders", range(5))
    one.delete(GROUP)
    one.pass_turns()
    for _ in range(refused):
        one.settle()
        one.pass_turns()
    one.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    one.settle_all()
    assert one.deletion_error() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    left = one.groups.committed_offsets("default")
    assert len(left) == len(one.kept_keys) == (1 if refused == 2 else 2)
    one.answers.clear()
    one.delete(GROUP)
    one.settle_all()
    assert one.deletion_error() is ErrorCode.NONE
    assert not one.kept_keys
    assert not list(one.groups.groups())


def test_a_group_with_few_offsets_goes_with_them_in_one_append() -> None:
    one = Coordinator(tombstones_per_append_max=5)
    one.commit(GROUP, "orders", range(5))
    one.delete(GROUP)
    (append,) = one.waiting
    assert len(append.records) == 6
    one.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert one.deletion_error() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(one.groups.committed_offsets("default")) == 5
    assert one.groups.counters.append_failures == 1


@pytest.mark.parametrize("group_id", ["g", "é" * 16_000, "g" * 32_000])
def test_no_append_of_tombstones_is_larger_than_a_log_takes(group_id: str) -> None:
    one = Coordinator(GroupCoordinatorConfig().tombstones_per_append_max, 16)
    for start in range(0, 600, 10):
        one.commit(group_id, "t" * 249, range(start, start + 10))
    one.delete(group_id)
    one.pass_turns()
    while one.waiting:
        assert len(build_batch(one.settle())) < MESSAGE_BYTES_MAX
        one.pass_turns()
    assert one.deletion_error() is ErrorCode.NONE
    assert not one.kept_keys


def test_offsets_of_a_topic_that_is_gone_are_looked_for_again_when_the_log_refuses() -> None:
    one = Coordinator(tombstones_per_append_max=2)
    topic_id = UUID(int=7)
    one.groups.delete_orphans(lambda tenant, name, topic_id: False, one.now_ms)
    one.commit(GROUP, "orders", range(3))
    one.tell(one.groups.topics_deleted("default", {"orders": topic_id}, one.now_ms))
    one.pass_turns()
    one.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    one.settle_all()
    assert len(one.kept_keys) == 2
    assert not one.groups.may_have_orphans
    one.now_ms += one.groups.config.offsets_retention_check_interval_ms
    one.tell(one.groups.tick(one.now_ms))
    assert one.groups.may_have_orphans
    one.tell(one.groups.delete_orphans(lambda tenant, name, topic_id: True, one.now_ms))
    one.settle_all()
    assert not one.kept_keys
    assert not one.groups.committed_offsets("default")
