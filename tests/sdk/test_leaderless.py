"""Partitions without a leader: why, and that nobody waits for what will not come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tidewheel import leaderless
from tidewheel.errors import BatchSendFailed, BrokerUnreachable, NoLeader, StorageFailed
from tidewheel.leaderless import explain, raise_if_stalled, why_leaderless
from tidewheel.transport.port import BrokerInfo, ClusterInfo, ConfigEntry, PartitionInfo, TopicInfo


def topic(*partitions: tuple[int, Sequence[int]]) -> TopicInfo:
    """Of (leader, replicas)."""
    return TopicInfo(
        "orders",
        tuple(
            PartitionInfo(number, leader, tuple(replicas), ())
            for number, (leader, replicas) in enumerate(partitions)
        ),
    )


def test_with_leaders_everywhere_nothing_is_wrong() -> None:
    assert why_leaderless(topic((1, [1, 2]), (2, [1, 2])), [1, 2], {}) is None


def test_a_disk_is_named_where_the_broker_runs() -> None:
    why = why_leaderless(topic((2, [2]), (-1, [1]), (-1, [1])), [1, 2], {1: "/disk"})
    assert isinstance(why, StorageFailed)
    assert why.message == (
        "orders[1] and 1 more have no leader although broker 1, which has the data, runs: its disk "
        "(/disk) is full or has failed"
    )
    assert "make room" in why.hint
    several = why_leaderless(topic((-1, [1, 2])), [1, 2], {1: "/one", 2: "/two"})
    assert isinstance(several, StorageFailed)
    assert "their disks (/one, /two) are full or have failed" in several.message


def test_a_broker_that_does_not_run_is_named() -> None:
    why = why_leaderless(topic((-1, [1, 2])), [3], {})
    assert isinstance(why, NoLeader)
    assert why.message == "orders[0] has no leader: brokers 1, 2 do not run"
    why = why_leaderless(topic((-1, [1, 2])), [2, 3], {2: "/disk"})
    assert isinstance(why, NoLeader)
    assert "broker 1 does not run, and 2 cannot lead" in why.message


class FakeAdmin:
    def __init__(self, found: TopicInfo | None, *, tells_directories: bool = True) -> None:
        self.found = found
        self._tells_directories = tells_directories
        self.asked = 0

    async def describe_topic(self, name: str) -> TopicInfo:
        self.asked += 1
        if self.found is None:
            raise BrokerUnreachable("nobody answers")
        return self.found

    async def cluster(self) -> ClusterInfo:
        return ClusterInfo("cell", 1, (BrokerInfo(1, "127.0.0.1", 9092),))

    async def broker_configs(self, broker_id: int) -> list[ConfigEntry]:
        if not self._tells_directories:
            raise BrokerUnreachable("no answer")
        return [ConfigEntry("log.dirs", "/a,/b", False, "STATIC_BROKER_CONFIG", True, False)]


@pytest.mark.parametrize(("tells", "words"), [(True, "its disk (/a or /b) is"), (False, "disk is")])
def test_the_directories_are_those_of_the_brokers_configuration(tells: bool, words: str) -> None:
    admin: Any = FakeAdmin(topic((-1, [1])), tells_directories=tells)
    why = asyncio.run(explain(admin, "orders"))
    assert why is not None
    assert words in why.message


class FakeSender:
    """Two messages are outstanding until they are dropped."""

    def __init__(self) -> None:
        self.settled, self.outstanding = 1, 2
        self.dropped = asyncio.Event()

    async def abandon(self) -> None:
        self.dropped.set()

    async def wait(self) -> str:
        await self.dropped.wait()
        return "all were decided"


async def stalled(admin: Any) -> tuple[FakeSender, BatchSendFailed | None]:
    sender: Any = FakeSender()
    try:
        await asyncio.wait_for(raise_if_stalled(sender, admin, "orders", sender.wait()), 0.2)
    except BatchSendFailed as error:
        return sender, error
    except TimeoutError:
        return sender, None
    pytest.fail("it ended by itself")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaderless, "LOOK_S", 0.001)
    monkeypatch.setattr(leaderless, "STALLED_S", 0.005)


def test_who_waits_for_a_failed_disk_is_told_so() -> None:
    sender, error = asyncio.run(stalled(FakeAdmin(topic((-1, [1])))))
    assert error is not None
    assert (error.sent, error.failed) == (1, 2)
    assert isinstance(error.first_error, StorageFailed)
    assert sender.dropped.is_set()


@pytest.mark.parametrize("found", [topic((1, [1])), topic((-1, [2])), None])
def test_what_may_pass_by_itself_is_waited_for(found: TopicInfo | None) -> None:
    """A slow leader, a broker that is down, no answer at all: the delivery timeout ends it."""
    admin = FakeAdmin(found)
    _, error = asyncio.run(stalled(admin))
    assert error is None
    assert admin.asked > 0


def test_an_outcome_is_passed_on() -> None:
    async def end() -> str:
        return "sent"

    async def fail() -> str:
        raise BrokerUnreachable("gone")

    async def run(sending: Any) -> str:
        sender: Any = SimpleNamespace(settled=0, outstanding=0)
        admin: Any = FakeAdmin(None)
        return await raise_if_stalled(sender, admin, "orders", sending)

    assert asyncio.run(run(end())) == "sent"
    with pytest.raises(BrokerUnreachable):
        asyncio.run(run(fail()))
