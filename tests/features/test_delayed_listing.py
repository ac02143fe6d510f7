"""What is pending: listed by time, counted, and cancelled by filter, over CellOperations' calls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import grpc
import pytest

from data_plane.cell.acls import AclOperation
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.server import tenant_delayed
from data_plane.server.cell_calls import BadRequest, Calls, Refused
from data_plane.server.kafka_calls import KafkaCalls
from data_plane.server.tenant_delayed import TenantDelayed
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import Header
from features.delayed import fold as fold_module
from features.delayed.fold import DelayedMessages
from features.delayed.pending_set import PendingSet
from features.filtering.tags import join_tags, split_tags
from tests.broker.broker_player import NOW_MS
from tests.features.delayed_player import DelayedPlayer

CALLER = messages.Caller(tenant="default", principal="User:alice")


class SmallSet(PendingSet):
    """So that most messages are in runs on the disk."""

    def __init__(self, fs: Any, folder: str) -> None:
        super().__init__(
            fs, folder, near_max=16, near_low=4, run_entries=8, runs_merged=3, done_max=50
        )


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_module, "PendingSet", SmallSet)


class Operator:
    """Asks of a player's broker."""

    def __init__(self, player: DelayedPlayer) -> None:
        self.player = player

        def on_loop(call: Callable[[], None]) -> None:
            call()
            player.run_jobs()

        calls = Calls(player.services, on_loop, player.log, lambda: player.now_ms)
        self.delayed = TenantDelayed(KafkaCalls(calls), calls)

    def listed(self, filter: str = "", **options: Any) -> messages.ListDelayedResponse:
        numbers = {
            name: options.pop(name)
            for name in ("messages_max", "bytes_max", "value_bytes_max", "caller")
            if name in options
        }
        selection = messages.DelayedSelection(topic="orders", filter=filter, **options)
        request = messages.ListDelayedRequest(selection=selection, **{"caller": CALLER, **numbers})
        return asyncio.run(self.delayed.listed(request))

    def all(self, filter: str = "", **options: Any) -> list[tuple[int, int]]:
        """(due, offset), page by page."""
        found: list[tuple[int, int]] = []
        while True:
            page = self.listed(filter, **options)
            assert not page.HasField("failure")
            found += ((one.deliver_at_ms, one.record.offset) for one in page.messages)
            if not page.HasField("next"):
                return found
            options["after"] = page.next

    def count(self, *edges_ms: int, **options: Any) -> messages.CountDelayedResponse:
        request = messages.CountDelayedRequest(
            **{"caller": CALLER, "topic": "orders", "edges_ms": edges_ms, **options}
        )
        return asyncio.run(self.delayed.count(request))

    def cancel(
        self, filter: str = "", messages_max: int = 0, **options: Any
    ) -> messages.CancelDelayedResponse:
        selection = messages.DelayedSelection(topic="orders", filter=filter, **options)
        request = messages.CancelDelayedRequest(
            caller=CALLER, selection=selection, messages_max=messages_max
        )
        return asyncio.run(self.delayed.cancel(request))


class World:
    """Messages due at various times, some moved, some cancelled; and what a dict says of them."""

    def __init__(self, seed: int, count: int = 120) -> None:
        self.rng = random.Random(seed)
        self.player = DelayedPlayer()
        self.operator = Operator(self.player)
        self.pending: dict[int, tuple[int, set[bytes]]] = {}
        for offset in range(count):
            due_ms = NOW_MS + self.rng.choice([10_000, 10_000, 20_000, 3_600_000 + offset])
            tags = set(self.rng.sample([b"eu", b"us", b"test"], self.rng.randrange(3)))
            headers: list[Header] = [(b"tw-tag", tag) for tag in sorted(tags)]
            headers.append((b"tw-deliver-at", b"%d" % due_ms))
            self.player.append((b"%d" % offset, *headers))
            self.pending[offset] = due_ms, tags
        self.player.pass_ms(2_000)
        for offset in self.rng.sample(range(count), count // 4):
            header: Header = (b"tw-cancel-offset", b"%d" % offset)
            if self.rng.random() < 0.5:
                due_ms = NOW_MS + self.rng.choice([15_000, 20_000, 7_200_000])
                self.pending[offset] = due_ms, self.pending[offset][1]
                moved: Header = (b"tw-reschedule-offset", b"%d" % offset)
                answer = self.player.append((b"", moved, (b"tw-deliver-at", b"%d" % due_ms)))
            else:
                answer = self.player.append((b"", header))
                del self.pending[offset]
            assert answer.error_code == ErrorCode.NONE
        self.player.pass_ms(100)

    def expected(
        self, matches: Callable[[set[bytes]], bool] = lambda _: True, first: int = 0, end: int = 0
    ) -> list[tuple[int, int]]:
        return sorted(
            (due_ms, offset)
            for offset, (due_ms, tags) in self.pending.items()
            if matches(tags) and first <= due_ms and (not end or due_ms < end)
        )


@pytest.mark.parametrize("seed", range(6))
def test_lists_are_by_time_and_complete(seed: int) -> None:
    world = World(seed)
    ask = world.operator.all
    assert ask() == ask(messages_max=1_000) == ask(messages_max=7) == world.expected()
    assert ask("eu and not test", messages_max=3) == world.expected(
        lambda tags: b"eu" in tags and b"test" not in tags
    )
    first, end = NOW_MS + 15_000, NOW_MS + 3_600_050
    assert ask(from_ms=first, until_ms=end, messages_max=5) == world.expected(first=first, end=end)
    assert ask("us", from_ms=first) == world.expected(lambda tags: b"us" in tags, first)
    assert ask("nowhere") == []


@pytest.mark.parametrize("seed", range(6))
def test_counts(seed: int) -> None:
    world = World(seed)
    times = sorted({due_ms for due_ms, _ in world.expected()})
    edges = [0, *times[:5], times[5] + 1, NOW_MS + 3_600_030, times[-1], times[-1] + 1, 1 << 45]
    counted = world.operator.count(*edges)
    assert counted.count == len(world.pending) == sum(counted.counts)
    assert counted.uncertain == 0
    assert counted.first_ms == times[0]
    for at, (first, end) in enumerate(pairwise(edges)):
        assert counted.counts[at] == len(world.expected(first=first, end=end))
    assert list(world.operator.count().counts) == []


@pytest.mark.parametrize("seed", range(6))
def test_what_matches_is_cancelled_and_nothing_else(seed: int) -> None:
    world = World(seed)
    wanted = world.expected(lambda tags: b"eu" in tags, NOW_MS + 12_000)
    cancelled: list[int] = []
    options: dict[str, Any] = {}
    while True:
        answer = world.operator.cancel("eu", 10, from_ms=NOW_MS + 12_000, **options)
        assert not answer.HasField("failure")
        assert not answer.refused
        cancelled += answer.cancelled
        if not answer.HasField("next"):
            break
        options = {"after": answer.next}
    assert sorted(cancelled) == sorted(offset for _, offset in wanted)
    for offset in cancelled:
        del world.pending[offset]
    assert world.operator.all() == world.expected()
    assert not world.operator.cancel("eu", from_ms=NOW_MS + 12_000).cancelled
    world.player.pass_ms(7_200_000)
    for _ in range(100):
        world.player.pass_ms(100)
    assert sorted(world.player.values(), key=int) == [b"%d" % at for at in sorted(world.pending)]


def test_what_was_delivered_meanwhile_is_refused_and_the_others_are_cancelled() -> None:
    player = DelayedPlayer()
    operator = Operator(player)
    for delay in (b"1s", b"1h", b"2s", b"2h"):
        player.delayed(delay, delay)
    look = operator.delayed._look

    def late(*arguments: Any) -> Any:
        view = look(*arguments)
        player.pass_ms(2_000)
        player.pass_ms(10)
        return view

    operator.delayed._look = late  # type: ignore[assignment,method-assign]
    answer = operator.cancel()
    assert list(answer.cancelled) == [1, 3]
    assert {one.offset for one in answer.refused} == {0, 2}
    assert all("too late" in one.reason for one in answer.refused)
    assert player.values() == [b"1s", b"2s"]


def test_pages_are_bounded() -> None:
    player = DelayedPlayer()
    operator = Operator(player)
    for number in range(6):
        player.delayed(b"x" * 1_000, b"%dh" % (1 + number))
    page = operator.listed(bytes_max=2_500)
    assert len(page.messages) == 2
    assert page.next.offset == 1
    page = operator.listed(bytes_max=300)
    assert (len(page.messages), page.next.offset) == (1, 0)
    assert page.messages[0].record.is_cut
    assert page.messages[0].ByteSize() <= 300
    page = operator.listed(value_bytes_max=10)
    assert [len(one.record.value) for one in page.messages] == [10] * 6
    assert {one.record.value_bytes for one in page.messages} == {1_000}


def test_a_call_looks_at_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_delayed, "LOOKED_MAX", 4)
    player = DelayedPlayer()
    operator = Operator(player)
    for number in range(10):
        tag: Header = (b"tw-tag", b"last" if number == 9 else b"other")
        player.append((b"", tag, (b"tw-delay", b"%dh" % (1 + number))))
    page = operator.listed("last")
    assert (len(page.messages), page.next.offset) == (0, 3)
    assert len(operator.all("last")) == 1
    answer = operator.cancel("last")
    assert (list(answer.cancelled), answer.next.offset) == ([], 3)


def test_of_what_cannot_be_read_the_place_is_told() -> None:
    player = DelayedPlayer()
    operator = Operator(player)
    player.delayed(b"damaged", b"1h")
    player.delayed(b"sound", b"2h")
    segment = player.orders.log.segments[0]
    player.fs.flip_bit(segment.path(), 65)
    segment.unverified_end = segment.size
    damaged, sound = operator.listed().messages
    assert (damaged.record.offset, damaged.record.is_cut, damaged.record.value) == (0, True, b"")
    assert sound.record.value == b"sound"
    assert operator.count().count == 2


def test_who_may_not_is_told() -> None:
    player = DelayedPlayer()
    operator = Operator(player)
    player.delayed(b"later", b"1h")
    asked: list[AclOperation] = []

    def may_not(caller: Any, operation: AclOperation, topic: str) -> bool:
        asked.append(operation)
        return False

    operator.delayed._kafka.may_to_topic = may_not  # type: ignore[method-assign]
    for answer in (operator.listed(), operator.count(), operator.cancel()):
        assert answer.failure.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert asked == [AclOperation.READ, AclOperation.READ, AclOperation.WRITE]
    assert len(player.orders.log.fold(DelayedMessages)) == 1


def test_what_is_asked_wrongly_is_told() -> None:
    player = DelayedPlayer()
    operator = Operator(player)
    with pytest.raises(BadRequest, match="filter: column 7"):
        operator.listed("eu and")
    with pytest.raises(BadRequest, match="ascending"):
        operator.count(5, 4)
    with pytest.raises(BadRequest, match="edges_ms: 1002"):
        operator.count(*range(1_002))
    with pytest.raises(BadRequest, match="messages_max"):
        operator.listed(messages_max=1_001)
    with pytest.raises(BadRequest, match="partition"):
        operator.listed(partition=-1)
    with pytest.raises(Refused) as refusal:
        operator.listed(caller=messages.Caller(tenant="nobody", principal="User:a"))
    assert refusal.value.status is grpc.StatusCode.NOT_FOUND
    answer = operator.count(topic="nothing")
    assert answer.failure.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert operator.count(partition=9).failure.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    player.create_topic("plain", 1)
    assert operator.count(topic="plain").count == 0


def test_tags_are_joined_as_they_are_split() -> None:
    tags = [b"a", b"x" * 63, b"x" * 64, b"x" * 128, "ü".encode()]
    assert list(split_tags(join_tags(tags))) == tags
