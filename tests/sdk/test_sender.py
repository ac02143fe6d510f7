"""What the sender makes of reports that another thread brings, one or very many."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tidewheel.errors import DeliveryTimedOut, TidewheelError
from tidewheel.interceptors import ProducerInterceptor
from tidewheel.message import Receipt
from tidewheel.sender import DUE_MAX, Delivery, Sender
from tidewheel.settings import ProducerSettings
from tidewheel.transport.port import OnReport

TIMEOUT_S = 30


class Reported:
    """A record that a broker has taken."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)


class Transport:
    """Keeps what is sent, until the test has it reported."""

    def __init__(self) -> None:
        self.reports: list[OnReport] = []

    def produce(
        self,
        _topic: str,
        _value: bytes | None,
        _key: bytes | None,
        _partition: int,
        on_report: OnReport,
        *_more: object,
    ) -> None:
        self.reports.append(on_report)

    def report_all(self) -> None:
        for offset, on_report in enumerate(self.reports):
            on_report(None, Reported(offset))

    async def close(self) -> None:
        self.report_all()


class Acknowledged(ProducerInterceptor):
    """Notes the offset of each acknowledgement, and the turn of the loop in which it came."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.turns: list[int] = []
        self.turn = 0
        self._is_over = False

    def count_turns(self) -> None:
        if not self._is_over:
            self.turn += 1
            asyncio.get_running_loop().call_soon(self.count_turns)

    def stop(self) -> None:
        self._is_over = True

    def on_acknowledgement(
        self, _topic: str, receipt: Receipt | None, _error: TidewheelError | None
    ) -> None:
        assert receipt is not None, "no record fails here"
        self.offsets.append(receipt.offset)
        self.turns.append(self.turn)


def make_sender(*interceptors: ProducerInterceptor) -> tuple[Sender, Transport]:
    def broken(error: BaseException) -> None:
        raise AssertionError("an interceptor failed") from error

    sender = Sender(ProducerSettings(), interceptors, broken)
    transport = Transport()
    sender.transport = cast(Any, transport)
    return sender, transport


def send(sender: Sender, on_report: OnReport, count: int) -> None:
    for _ in range(count):
        sender.produce("t", b"1", None, 0, on_report, 0, None)


def sent(count: int) -> tuple[Acknowledged, Sender, Transport]:
    """A sender with so many records on their way, and what is told of them."""
    acknowledged = Acknowledged()
    sender, transport = make_sender(acknowledged)
    send(sender, sender.intercepted("t", Delivery(sender, "t").settle), count)
    return acknowledged, sender, transport


async def test_who_waits_for_an_outcome_need_not_wait_for_those_behind_it() -> None:
    """The transport says that all reports are in (`on_due`) only when they are: with a second's
    worth of them, a second late. Here it never says so."""
    sender, transport = make_sender()
    delivery = Delivery(sender, "t")
    send(sender, delivery.settle, 1)
    waiting = asyncio.ensure_future(delivery)
    await asyncio.sleep(0)
    await asyncio.to_thread(transport.report_all)
    async with asyncio.timeout(TIMEOUT_S):
        assert (await waiting).offset == 0


async def test_acknowledgements_leave_the_loop_to_others_now_and_then() -> None:
    """However often the transport says that there are reports."""
    count = 5 * DUE_MAX + 1
    acknowledged, sender, transport = sent(count)
    acknowledged.count_turns()
    # Here and not on a thread of its own: the loop has no turn before all of it is there.
    transport.report_all()
    for _ in range(10):
        sender.on_due()
    async with asyncio.timeout(TIMEOUT_S):
        await sender.flush()
    acknowledged.stop()
    assert acknowledged.offsets == list(range(count))
    assert max(map(acknowledged.turns.count, set(acknowledged.turns))) <= DUE_MAX


async def test_reports_that_come_one_by_one_are_all_acknowledged() -> None:
    """However the reporting thread and the loop get into each other's way."""
    count = 20 * DUE_MAX
    acknowledged, sender, transport = sent(count)
    reporting = asyncio.ensure_future(asyncio.to_thread(transport.report_all))
    async with asyncio.timeout(TIMEOUT_S):
        await sender.flush()
        await reporting
    assert acknowledged.offsets == list(range(count))


async def test_what_is_reported_while_the_sender_closes_is_acknowledged() -> None:
    count = 2 * DUE_MAX + 1
    acknowledged, sender, _ = sent(count)
    with pytest.raises(DeliveryTimedOut, match=f"{count} messages"):
        await sender.close(0.01)
    assert acknowledged.offsets == list(range(count))
    assert not sender.outstanding
