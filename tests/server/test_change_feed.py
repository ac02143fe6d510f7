"""The feed of changes over gRPC, of a broker whose store does what a test wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import grpc
import grpc.aio
import pytest

from data_plane.broker.cell.change_events import ChangeEvent, EventKind
from data_plane.cell.changes import (
    AllocateProducerIds,
    AlterConfigs,
    Change,
    CreateTopic,
    DeleteTopic,
)
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.cell.metadata_store import FEED_COMMITS_KEPT, InMemoryMetadataStore
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_operations_pb2_grpc import (
    CellOperationsStub,
    add_CellOperationsServicer_to_server,
)
from data_plane.server import change_feed
from data_plane.server.cell_calls import Calls
from data_plane.server.cell_operations_messages import write_event
from data_plane.server.cell_operations_service import CellOperationsService
from data_plane.server.change_feed import (
    EVENTS_KEPT_MAX,
    EVENTS_PER_RESPONSE_MAX,
    WATCHES_MAX,
    ChangeFeed,
)
from tests.broker.member_player import Clock, Member, topic
from tests.cell.cases import NEW_CELL

if TYPE_CHECKING:
    from data_plane.contract.cell_operations_pb2_grpc import CellOperationsAsyncStub

TIMEOUT_S = 20.0
WRITE_TIMEOUT_S = 0.5
AHEAD_TIMEOUT_S = 0.2
TOPIC = int(ResourceType.TOPIC)


class World:
    """A broker and a caller; commits run when they are asked for."""

    def __init__(self) -> None:
        clock = Clock()
        self.store = InMemoryMetadataStore(NEW_CELL, lambda: clock.now_ms)
        self.member = Member(self.store, clock)
        self.calls = Calls(self.member.services, self._on_loop, self.member.log, self.member.now_ms)
        self.feed = ChangeFeed(self.calls, AHEAD_TIMEOUT_S)
        self.stub: CellOperationsAsyncStub

    def _on_loop(self, call: Callable[[], None]) -> None:
        call()
        self.member.run_jobs()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[World]:
        server = grpc.aio.server()
        service = CellOperationsService(self.calls, self.feed, None, WRITE_TIMEOUT_S)
        add_CellOperationsServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await self.feed.start()
        options = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            stub: Any = CellOperationsStub(channel)
            self.stub = stub
            yield self
        self.feed.stop()
        await server.stop(0)

    def watch(self, after_version: int | None = None, store_id: str = "") -> Any:
        request = messages.WatchRequest(after_version=after_version, store_id=store_id)
        return self.stub.Watch(request, timeout=TIMEOUT_S)

    def commit(self, *changes: Change) -> None:
        """By this broker."""
        outcome = self.member.write(*changes)
        self.member.run_jobs()
        # Large ones are followed in steps.
        while not outcome.calls:
            self.member.pass_time(10)
        assert outcome.is_ok

    def commit_elsewhere(self, *changes: Change) -> None:
        """By another broker, of which this one has not heard yet."""
        version = self.store.read().version
        self.store.apply(changes, version, f"elsewhere {version}")

    def hear(self) -> None:
        self.member.follower.request_update()
        self.member.run_jobs()


Test = Callable[[World], Awaitable[None]]
Run = Callable[[Test], None]


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    # gRPC binds itself to the loop that it meets first.
    with asyncio.Runner() as running:
        yield running


@pytest.fixture
def run(runner: asyncio.Runner) -> Callable[[Test], None]:
    def run_one(test: Test) -> None:
        async def main() -> None:
            async with World().served() as world:
                await asyncio.wait_for(test(world), TIMEOUT_S)

        runner.run(main())

    return run_one


async def next_events(call: Any, count: int) -> list[messages.Event]:
    events: list[messages.Event] = []
    while len(events) < count:
        response = await call.read()
        assert response is not grpc.aio.EOF, await call.details()
        events += response.events
    assert len(events) == count
    return events


async def is_begun(call: Any) -> bool:
    try:
        return await call.read() is not grpc.aio.EOF
    except grpc.aio.AioRpcError:
        return False


async def status_of(call: Any) -> grpc.StatusCode:
    """What it ends with."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    code: grpc.StatusCode = await call.code()
    return code


def test_what_this_broker_and_others_commit_is_told_in_order(run: Run) -> None:
    async def test(world: World) -> None:
        call = world.watch()
        first = await call.read()
        assert (first.version, first.store_id, len(first.events)) == (0, "in memory", 0)
        world.commit(topic("mine", 1))
        world.commit_elsewhere(topic("theirs", 2))
        world.commit_elsewhere(AllocateProducerIds(0, 1000))
        world.hear()
        world.commit(DeleteTopic.of(world.member.image.topics_by_id[UUID(int=1)]))
        events = await next_events(call, 3)
        assert [(event.name, event.version, event.change) for event in events] == [
            ("mine", 1, messages.Event.MADE),
            ("theirs", 2, messages.Event.MADE),
            ("mine", 4, messages.Event.DELETED),
        ]
        assert events[1].item.partitions == 1
        assert events[1].topic_id == events[1].item.topic_id == UUID(int=2).bytes

    run(test)


def test_a_reader_goes_on_from_any_version_that_the_store_still_has(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "EVENTS_KEPT_MAX", 1)

    async def test(world: World) -> None:
        for number in range(1, 41):
            world.commit_elsewhere(topic(f"t{number}", number))
        world.hear()
        reads = world.member.store.feeds
        for after in (0, 1, 2, 20, 38):
            call = world.watch(after)
            events = await next_events(call, 40 - after)
            assert [event.version for event in events] == list(range(after + 1, 41))
            reads += 1
            assert world.member.store.feeds == reads, "it is not in the tail"
            call.cancel()
        (event,) = await next_events(world.watch(39), 1)
        assert (event.version, world.member.store.feeds) == (40, reads)

    run(test)


def test_what_the_store_has_cut_must_be_listed(run: Run) -> None:
    async def test(world: World) -> None:
        for number in range(FEED_COMMITS_KEPT + 2):
            world.commit_elsewhere(AllocateProducerIds(number, 1))
        world.hear()
        assert await status_of(world.watch(1)) == grpc.StatusCode.OUT_OF_RANGE
        call = world.watch(3)
        world.commit(topic("late", 1))
        (event,) = await next_events(call, 1)
        assert event.name == "late"

    run(test)


def test_another_store_and_a_version_that_is_not_there_must_be_listed(run: Run) -> None:
    async def test(world: World) -> None:
        assert await status_of(world.watch(None, "another")) == grpc.StatusCode.OUT_OF_RANGE
        assert await status_of(world.watch(7)) == grpc.StatusCode.OUT_OF_RANGE
        # It would have taken the store for one that went back.
        assert world.member.store.feeds == 0

    run(test)


def test_the_feed_goes_on_when_the_store_was_away(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "EVENTS_KEPT_MAX", 1)
    monkeypatch.setattr(change_feed, "STORE_RETRY_S", 0.01)

    async def test(world: World) -> None:
        for number in range(1, 4):
            world.commit_elsewhere(topic(f"t{number}", number))
        world.hear()
        world.member.store.is_down = True
        is_asked = asyncio.Event()
        world.member.store.when_down = is_asked.set
        call = world.watch(1)
        await call.read()
        await is_asked.wait()
        world.member.store.is_down = False
        events = await next_events(call, 2)
        assert [event.name for event in events] == ["t2", "t3"]

    run(test)


def test_the_tail_is_bounded_and_what_falls_out_of_it_is_read_from_the_store(
    run: Run,
) -> None:
    size, count = 500, EVENTS_KEPT_MAX // 500 + 2

    async def test(world: World) -> None:
        names = [f"t{number}" for number in range(size)]
        world.commit(*(topic(name, number) for number, name in enumerate(names, 1)))
        for value in range(1, count):
            values = (("retention.ms", str(value)),)
            world.commit(*(AlterConfigs("default", TOPIC, name, values) for name in names))
        # Handed over to the feed's loop.
        await asyncio.sleep(0)
        assert world.feed.version == count
        assert world.feed.events_kept == EVENTS_KEPT_MAX
        reads = world.member.store.feeds
        events = await next_events(world.watch(1), (count - 1) * size)
        assert world.member.store.feeds == reads + 1
        expected = [version for version in range(2, count + 1) for _ in names]
        assert [event.version for event in events] == expected
        await next_events(world.watch(count - 1), size)
        assert world.member.store.feeds == reads + 1

    run(test)


def test_a_commit_of_many_events_comes_in_pieces_that_say_where_to_go_on(run: Run) -> None:
    size = 2 * EVENTS_PER_RESPONSE_MAX + 1

    async def test(world: World) -> None:
        call = world.watch()
        await call.read()
        world.commit(*(topic(f"t{number}", number) for number in range(1, size + 1)))
        versions: list[tuple[int, int]] = []
        while not versions or versions[-1][0] < 1:
            response = await call.read()
            versions.append((response.version, len(response.events)))
        assert versions == [(0, EVENTS_PER_RESPONSE_MAX), (0, EVENTS_PER_RESPONSE_MAX), (1, 1)]

    run(test)


def test_a_watcher_has_one_response_at_a_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[ChangeEvent] = []

    def noting(event: ChangeEvent, image: MetadataImage) -> messages.Event:
        written.append(event)
        return write_event(event, image)

    monkeypatch.setattr(change_feed, "write_event", noting)
    size = 3 * EVENTS_PER_RESPONSE_MAX

    async def test(world: World) -> None:
        responses = world.feed.watch(None, "")
        await anext(responses)
        world.commit(*(topic(f"t{number}", number) for number in range(1, size + 1)))
        response = await anext(responses)
        assert len(response.events) == EVENTS_PER_RESPONSE_MAX
        assert len(written) == EVENTS_PER_RESPONSE_MAX + 1

    run(test)


def test_who_reads_too_slowly_is_dropped_and_goes_on_where_he_was(run: Run) -> None:
    async def test(world: World) -> None:
        call = world.watch()
        await call.read()
        large = (("x.y", "v" * 4_000),)
        for number in range(1, 600):
            world.commit(CreateTopic("default", f"t{number}", UUID(int=number), ((1,),), large))
        await asyncio.sleep(3 * WRITE_TIMEOUT_S)
        version = 0
        with contextlib.suppress(grpc.aio.AioRpcError):
            while True:
                version = (await call.read()).version
        assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert 0 < version < 599
        rest = await next_events(world.watch(version), 599 - version)
        assert rest[0].version == version + 1
        assert {event.kind for event in rest} == {int(EventKind.TOPIC)}

    run(test)


def test_there_are_so_many_watchers_and_no_more(run: Run) -> None:
    async def test(world: World) -> None:
        calls = [world.watch() for _ in range(WATCHES_MAX)]
        for call in calls:
            await call.read()
        assert await status_of(world.watch()) == grpc.StatusCode.RESOURCE_EXHAUSTED
        calls[0].cancel()
        call = world.watch()
        while not await is_begun(call):
            # The broker hears of it a moment later.
            call = world.watch()
        world.feed.stop()
        assert await status_of(call) == grpc.StatusCode.UNAVAILABLE

    run(test)
