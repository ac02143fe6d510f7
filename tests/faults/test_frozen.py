"""A broker that is frozen or cut off keeps its connections and says nothing: what that costs those
who use the SDK as it comes.

The cell puts others in its place within seconds. Clients have to notice by themselves that the old
one does not answer, and go to the new ones while their caller is still willing to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tidewheel import Client, ClientSettings
from tidewheel.message import TopicPartition

from tests.faults import network as network_module
from tests.faults.cell import Cell
from tests.faults.conftest import NoteInterruption
from tests.faults.network import Network

TOPIC = "orders"
PARTITIONS = 6
KEYS = 12
GROUP = "billing"
OTHER_GROUP = "shipping"
SEND_S_MAX = 20.0
"""The delivery time-out is 30 s. Usually it takes 6 to 7."""
ANSWER_S_MAX = 25.0

needs_namespaces = pytest.mark.skipif(
    bool(network_module.why_unavailable()), reason=network_module.why_unavailable() or "available"
)


async def took(action: Awaitable[object]) -> float:
    """The seconds that it took."""
    began = time.monotonic()
    await action
    return time.monotonic() - began


async def send_round(client: Client, number: int) -> list[float]:
    """One message of each key, all at once."""
    topic = client.topic(TOPIC)
    return await asyncio.gather(
        *(took(topic.send(f"{number}", key=f"key-{key}")) for key in range(KEYS))
    )


async def read_all(client: Client, count: int) -> dict[bytes | None, list[int]]:
    """What is stored, by key and in order: `count` messages, and no more."""
    found: dict[bytes | None, list[int]] = {}
    ends = await client.admin.offsets(TOPIC)
    assert sum(ends.values()) == count
    left = count
    async for message in client.subscribe(TOPIC):
        assert message.value is not None
        found.setdefault(message.key, []).append(int(message.value))
        left -= 1
        if not left:
            break
    return found


async def sends_survive(
    cell: Cell, victim: int, freeze: Callable[[int], None], thaw: Callable[[int], None]
) -> list[float]:
    async with Client(cell.bootstrap) as client:
        await send_round(client, 0)
        freeze(victim)
        try:
            seconds = [*await send_round(client, 1), *await send_round(client, 2)]
        finally:
            thaw(victim)
        cell.wait_until_in_sync(TOPIC)
        stored = await read_all(client, 3 * KEYS)
    assert stored == {f"key-{key}".encode(): [0, 1, 2] for key in range(KEYS)}
    return seconds


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_sends_survive_a_frozen_leader(tmp_path: Path, note_interruption: NoteInterruption) -> None:
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        victim = cell.leaders(TOPIC)[0]
        seconds = asyncio.run(sends_survive(cell, victim, cell.pause, cell.resume))
        note_interruption("SDK: a send while a leader is frozen", seconds)
        assert max(seconds) < SEND_S_MAX


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(3) as made:
        yield made


@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_sends_survive_a_leader_that_is_cut_off(
    tmp_path: Path, network: Network, note_interruption: NoteInterruption
) -> None:
    with Cell(tmp_path, network=network) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        victim = cell.leaders(TOPIC)[0]
        seconds = asyncio.run(
            sends_survive(cell, victim, network.isolate, lambda _victim: network.heal())
        )
        note_interruption("SDK: a send while a leader is cut off", seconds)
        assert max(seconds) < SEND_S_MAX


async def admin_requests(client: Client) -> dict[str, float]:
    """The seconds that each kind of administrative request takes, all at once."""
    admin = client.admin
    here = TopicPartition(TOPIC, 0)
    asked: dict[str, Awaitable[object]] = {
        "cluster": admin.cluster(),
        "topics": admin.topics(),
        "describe_topic": admin.describe_topic(TOPIC),
        "create_topic": admin.create_topic("made-meanwhile", partitions=2),
        "create_partitions": admin.create_partitions("grows", 5),
        "delete_topic": admin.delete_topic("goes"),
        "configs": admin.configs(TOPIC),
        "alter_configs": admin.alter_configs(TOPIC, {"retention.ms": 86_400_000}),
        "offsets": admin.offsets(TOPIC),
        "delete_records": admin.delete_records({here: 0}),
        "groups": admin.groups(),
        "describe_group": admin.describe_group(GROUP),
        "group_offsets": admin.group_offsets(GROUP),
        "lag": admin.lag(GROUP),
        "reset_offsets": admin.reset_offsets(OTHER_GROUP, TOPIC, "earliest"),
    }
    seconds = await asyncio.gather(*map(took, asked.values()))
    return dict(zip(asked, seconds, strict=True))


async def read_and_commit(client: Client, count: int) -> None:
    async with client.subscribe(TOPIC, group=GROUP) as consumer:
        async for _ in consumer:
            count -= 1
            if not count:
                break


async def admin_survives(cell: Cell, role: str) -> dict[str, float]:
    settings = ClientSettings(request_timeout_ms=60_000)
    async with Client(cell.bootstrap, settings=settings) as client:
        await send_round(client, 0)
        await read_and_commit(client, KEYS)
        await client.admin.reset_offsets(OTHER_GROUP, TOPIC, "latest")
        for name in ("grows", "goes"):
            await client.admin.create_topic(name, partitions=1)
        await admin_requests_have_connections(client)
        coordinator = (await client.admin.describe_group(GROUP)).coordinator
        victim = coordinator if role == "coordinator" else cell.controller()
        cell.pause(victim)
        try:
            seconds = await admin_requests(client)
        finally:
            cell.resume(victim)
        # What was not answered by the frozen one must not end the process when it goes on.
        cell.wait_until_in_sync(TOPIC)
        names = {topic.name: len(topic.partitions) for topic in await client.admin.topics()}
        assert names == {TOPIC: PARTITIONS, "made-meanwhile": 2, "grows": 5}
        assert set(await client.admin.groups()) == {GROUP, OTHER_GROUP}
        moved = await client.admin.group_offsets(OTHER_GROUP)
        assert set(moved.values()) == {0}
        lags = await client.admin.lag(GROUP)
        # The message that was in hand at the end counts as not processed.
        assert sum(lag.messages for lag in lags) == 1
        return seconds


async def admin_requests_have_connections(client: Client) -> None:
    """Ask everybody something, so that the frozen one is connected."""
    await client.admin.groups()
    await client.admin.offsets(TOPIC)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("role", ["coordinator", "controller"])
def test_administrative_requests_survive_a_frozen_broker(tmp_path: Path, role: str) -> None:
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        seconds = asyncio.run(admin_survives(cell, role))
        late = {name: took_s for name, took_s in seconds.items() if took_s > ANSWER_S_MAX}
        assert not late, seconds


async def consuming_goes_on(cell: Cell) -> float:
    """The longest time without a message while the coordinator, which leads partitions, too, is
    frozen. Every message is read, some perhaps twice."""
    async with Client(cell.bootstrap) as client:
        seen: set[tuple[bytes | None, bytes | None]] = set()
        arrivals = [time.monotonic()]
        first_round = asyncio.Event()

        async def consume() -> None:
            async with client.subscribe(TOPIC, group=GROUP) as consumer:
                async for message in consumer:
                    seen.add((message.key, message.value))
                    arrivals.append(time.monotonic())
                    if len(seen) == KEYS:
                        first_round.set()
                    if len(seen) == 3 * KEYS:
                        break

        reading = asyncio.create_task(consume())
        await send_round(client, 0)
        await first_round.wait()
        arrivals.append(time.monotonic())
        victim = (await client.admin.describe_group(GROUP)).coordinator
        cell.pause(victim)
        try:
            await send_round(client, 1)
            await send_round(client, 2)
            await reading
        finally:
            cell.resume(victim)
        cell.wait_until_in_sync(TOPIC)
        return max(later - earlier for earlier, later in pairwise(arrivals))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_group_goes_on_without_a_frozen_coordinator(
    tmp_path: Path, note_interruption: NoteInterruption
) -> None:
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        silence_s = asyncio.run(consuming_goes_on(cell))
        note_interruption("SDK: a group whose coordinator is frozen", [silence_s])
        assert silence_s < ANSWER_S_MAX
