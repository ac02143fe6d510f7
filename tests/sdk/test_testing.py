"""The doubles that are shipped for applications' tests: the clock and the memory broker."""

from __future__ import annotations

import asyncio

import pytest
from tidewheel import Message, TopicPartition
from tidewheel.errors import CommitFailed, DeliveryTimedOut, InvalidRequest, TopicNotFound
from tidewheel.testing import MemoryBroker, VirtualClock
from tidewheel.testing.memory import MemoryMember


async def test_advancing_wakes_sleepers_in_order_at_their_own_times() -> None:
    clock = VirtualClock(start_ms=0)
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now_ms()))
        if name == "chain":
            await sleeper("chained", 1)

    tasks = [asyncio.create_task(sleeper(*each)) for each in (("late", 3), ("chain", 1))]
    cancelled = asyncio.create_task(sleeper("cancelled", 2))
    await clock.advance(0.5)
    cancelled.cancel()
    await clock.advance(2)
    assert woken == [("chain", 1000), ("chained", 2000)]
    assert clock.now_ms() == 2500
    await clock.advance(10)
    await asyncio.gather(*tasks)
    assert woken[2:] == [("late", 3000)]


async def test_autojump_moves_on_when_nothing_else_happens() -> None:
    clock = VirtualClock(autojump=True)
    started_ms = clock.now_ms()
    await asyncio.wait_for(clock.sleep(3600), timeout=5)
    assert clock.now_ms() == started_ms + 3_600_000


async def test_autojump_does_not_go_further_than_it_may() -> None:
    clock = VirtualClock(start_ms=0, autojump=True, jump_s_max=60)
    far = asyncio.create_task(clock.sleep(61))
    for _ in range(3):
        await asyncio.wait_for(clock.sleep(0.3), timeout=5)
    await asyncio.sleep(0.05)
    assert (clock.now_ms(), far.done()) == (900, False)
    # From here it is near enough.
    await asyncio.wait_for(clock.sleep(1), timeout=5)
    await asyncio.wait_for(far, timeout=5)
    assert clock.now_ms() == 61_000


async def test_failing_sends_and_unknown_topics() -> None:
    broker = MemoryBroker()
    broker.create_topic("t")
    async with broker.client() as client:
        broker.fail_sends("_MSG_TIMED_OUT", 2)
        for _ in range(2):
            with pytest.raises(DeliveryTimedOut):
                await client.send("t", b"1")
        await client.send("t", b"2")
        assert [m.value for m in broker.messages("t")] == [b"2"]
        with pytest.raises(TopicNotFound):
            await client.send("u", b"1")
    open_broker = MemoryBroker(auto_create_topics=True)
    async with open_broker.client() as client:
        assert (await client.send("u", b"1")).offset == 0


def test_groups_share_evenly_move_little_and_fence_the_dropped() -> None:
    broker = MemoryBroker()
    broker.create_topic("t", partitions=5)
    members = [MemoryMember("", f"c{number}", None, ("t",)) for number in range(3)]
    broker.join("g", members[0])
    members[0].owned = broker.target("g", members[0])
    assert len(members[0].owned) == 5
    broker.join("g", members[1])
    assert broker.target("g", members[0]) < members[0].owned
    assert len(broker.target("g", members[1])) == 2
    broker.join("g", members[2])
    shares = [broker.target("g", member) for member in members]
    assert sorted(map(len, shares)) == [1, 2, 2]
    assert len(set().union(*shares)) == 5
    place = TopicPartition("t", 0)
    members[0].owned = {place}
    broker.commit("g", members[0], {place: 3})
    with pytest.raises(CommitFailed):
        broker.commit("g", members[1], {place: 4})
    broker.drop_members("g")
    with pytest.raises(CommitFailed):
        broker.commit("g", members[0], {place: 5})
    assert broker.committed("g") == {place: 3}


def test_what_it_refuses() -> None:
    broker = MemoryBroker()
    for name in ("", "a b", "x" * 250):
        with pytest.raises(InvalidRequest):
            broker.create_topic(name)
    with pytest.raises(InvalidRequest):
        broker.create_topic("t", partitions=0)
    broker.create_topic("t")
    with pytest.raises(TopicNotFound):
        broker.append(Message("t", 1, -1, 0, None, b""))
