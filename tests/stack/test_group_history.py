"""How the demo tells what happened in its group."""

from __future__ import annotations

from tidewheel.message import TopicPartition

from stack.demo.group import Group
from stack.demo.ledger import Ledger
from stack.demo.report import describe_event


def test_a_rebalance_that_brings_nothing_new_is_told_as_such() -> None:
    group = Group("127.0.0.1:1", "flights", "g", Ledger(1))

    def told(member: str, what: str, *partitions: int) -> str:
        group._note(member, what, [TopicPartition("flights", number) for number in partitions])
        return describe_event(group.history[-1]).partition(" s  ")[2]

    assert told("one", "gets", 2, 0) == "one gets partitions 0, 2"
    assert told("one", "gets") == "one keeps partitions 0, 2"
    assert told("one", "gets", 1) == "one gets partitions 1"
    assert told("one", "gives up", 0, 1) == "one gives up partitions 0, 1"
    assert told("one", "gets") == "one keeps partitions 2"
    assert told("two", "gets") == "two waits for partitions"
    assert told("one", "loses", 2) == "one loses partitions 2"
    assert told("one", "gets") == "one waits for partitions"
    assert told("one", "leaves") == "one leaves the group"
    assert group.has_partitions("one")
    assert not group.has_partitions("two")
