"""Dead letters that are put back, or purged, on the memory broker."""

from __future__ import annotations

import pytest
from tidewheel import DeadLetter, Delays, Message
from tidewheel.errors import InvalidRequest, TopicNotFound
from tidewheel.testing import Letters, MemoryBroker, Moved

from tests.sdk.test_retries import broker_with, running

ALL = Letters(all=True)


async def bury(broker: MemoryBroker, reason: str = "timeout") -> list[tuple[bytes, int]]:
    """What is delivered from now on is a dead letter; what was delivered, as which attempt."""
    seen: list[tuple[bytes, int]] = []

    async def handle(message: Message) -> None:
        seen.append((message.value or b"", message.attempt))
        raise DeadLetter(reason)

    async with running(broker, handle, retry=Delays(["1s"])):
        await broker.clock.advance(5)
    return seen


async def test_letters_come_back_as_a_first_attempt_and_loops_stop() -> None:
    broker = broker_with(b"a", b"b", partitions=2)
    assert sorted(await bury(broker)) == [(b"a", 1), (b"b", 1)]
    for number in range(1, 6):
        assert broker.redrive("t.g", ALL) == Moved(2)
        assert broker.redrive("t.g", ALL) == Moved(0)
        assert sorted(await bury(broker)) == [(b"a", 1), (b"b", 1)]
        last = [one for one in broker.messages("t.g.dlq") if one.value == b"a"][-1]
        assert last.header("tw-redriven") == b"%d" % number
        assert last.source is not None
        assert last.source.topic == "t"
    assert broker.redrive("t.g", ALL) == Moved(0, over_limit=2)
    broker.alter_configs("t.g.dlq", {"tidewheel.redrive.max": "0"})
    assert broker.redrive("t.g.dlq", ALL) == Moved(2)


async def test_only_what_is_chosen_and_what_is_purged_never() -> None:
    broker = broker_with(b"a", b"b", b"c")
    await bury(broker, "Time out")
    first, second, third = broker.messages("t.g.dlq")
    assert broker.redrive("t.g", Letters(reason="nothing")) == Moved(0)
    assert broker.purge("t.g", Letters(places=[(0, second.offset)])) == Moved(1)
    assert broker.redrive("t.g", Letters(reason="time", places=[(0, first.offset)])) == Moved(1)
    assert broker.redrive("t.g", ALL) == Moved(1)
    assert broker.redrive("t.g", Letters(all=True, again=True)) == Moved(2)
    values = [value for value, _ in await bury(broker)]
    assert sorted(values) == [b"a", b"a", b"c", b"c"]
    assert third.value == b"c"


async def test_to_another_topic_and_what_is_refused() -> None:
    broker = broker_with(b"a")
    await bury(broker)
    broker.create_topic("plain")
    broker.create_topic("elsewhere", configs={"tidewheel.headers": "true"})
    assert broker.redrive("t.g", ALL, to="elsewhere") == Moved(1)
    (there,) = broker.messages("elsewhere")
    assert (there.value, there.attempt) == (b"a", 1)
    assert there.header("tw-attempt") is None
    for letters, to, words in (
        (Letters(), "", "means nothing"),
        (Letters(all=True, reason="x"), "", "one or the other"),
        (Letters(filter="eu and"), "", "a tag is missing"),
        (ALL, "plain", "takes no dead letters"),
        (ALL, "t.g", "is a subscription"),
        (ALL, "t.g.dlq", "that they are in"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            broker.redrive("t.g", letters, to=to)
        assert words in str(refused.value)
    with pytest.raises(TopicNotFound):
        broker.purge("nothing", ALL)
    broker.append(Message("t.g.dlq", 0, -1, 0, None, b"a stranger", ()))
    assert broker.redrive("t.g", ALL) == Moved(0, no_origin=1)
