"""Partitions without a leader: why, and that nobody waits for what will not come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tidewheel import leaderless
from tidewheel.errors import (
    BatchSendFailed,
    BrokerUnreachable,
    DeliveryTimedOut,
    NoLeader,
    StorageFailed,
)
from tidewheel.leaderless import Reasons, explain, raise_if_stalled, why_leaderless
from tidewheel.sender import Delivery, Sender
from tidewheel.settings import ProducerSettings
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


class TimedOut:
    """What librdkafka says when the delivery timeout is over, whatever a broker has answered."""

    def name(self) -> str:
        return "_MSG_TIMED_OUT"

    def str(self) -> str:
        return "Local: Message timed out"

    def retriable(self) -> bool:
        return False


async def sent_too_late(admin: Any, count: int) -> list[DeliveryTimedOut]:
    """The errors of messages whose time is over, all at once."""
    sender = Sender(ProducerSettings(), (), lambda broken: None)
    sender.why = Reasons(admin).of
    errors = []

    async def send() -> None:
        delivery = Delivery(sender, "orders")
        message: Any = SimpleNamespace()
        delivery.settle(TimedOut(), message)
        try:
            await delivery
        except DeliveryTimedOut as error:
            errors.append(error)

    await asyncio.gather(*(send() for _ in range(count)))
    return errors


def test_a_message_whose_time_is_over_names_the_disk() -> None:
    """A program goes by its delivery timeout; what it gets then says why. All of them ask once."""
    admin = FakeAdmin(topic((-1, [1])))
    errors = asyncio.run(sent_too_late(admin, 100))
    assert len(errors) == 100
    assert admin.asked == 1
    text = str(errors[0])
    assert text.startswith('sending to "orders" failed: Message timed out: orders[0] has no leader')
    assert "its disk (/a or /b) is full or has failed" in text
    assert "may store the message twice" in text


@pytest.mark.parametrize("found", [topic((1, [1])), None])
def test_without_a_cause_it_is_what_it_was(found: TopicInfo | None) -> None:
    (error,) = asyncio.run(sent_too_late(FakeAdmin(found), 1))
    assert error.message == 'sending to "orders" failed: Message timed out'


def test_brokers_that_say_nothing_do_not_keep_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FakeAdmin):
        async def describe_topic(self, name: str) -> TopicInfo:
            self.asked += 1
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(leaderless, "REASON_WAIT_S", 0.01)
    admin = Silent(None)
    errors = asyncio.run(sent_too_late(admin, 2))
    assert [error.kafka_name for error in errors] == ["_MSG_TIMED_OUT"] * 2
    assert admin.asked == 1
