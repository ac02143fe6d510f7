"""What a call of a control plane ends with when its work on the broker fails."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from data_plane.broker.cell.waiting_writes import TooManyWaiting
from data_plane.cell.metadata_store import StoreUnavailable
from data_plane.server.cell_calls import BadRequest, Calls, Refused
from tests.broker.broker_player import BrokerPlayer


class Ended(Exception):
    """What gRPC raises to end a call."""


class OpenCall:
    """The context's double: it ends as gRPC's does, and remembers how."""

    def __init__(self) -> None:
        self.ended: tuple[grpc.StatusCode, str] | None = None

    async def abort(self, status: grpc.StatusCode, words: str) -> None:
        self.ended = status, words
        raise Ended


def ended(broker: BrokerPlayer, error: Exception) -> tuple[grpc.StatusCode, str] | None:
    calls = Calls(broker.services, lambda call: call(), broker.log, lambda: broker.now_ms)
    context = OpenCall()
    with pytest.raises(Ended):
        asyncio.run(calls.abort(context, error))  # type: ignore[arg-type]
    return context.ended


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TooManyWaiting(""), grpc.StatusCode.UNAVAILABLE),
        (StoreUnavailable("away"), grpc.StatusCode.UNAVAILABLE),
        (BadRequest("name: empty"), grpc.StatusCode.INVALID_ARGUMENT),
        (Refused(grpc.StatusCode.NOT_FOUND, "no such tenant"), grpc.StatusCode.NOT_FOUND),
    ],
)
def test_what_is_to_be_expected_has_its_status_and_words(
    error: Exception, status: grpc.StatusCode
) -> None:
    broker = BrokerPlayer()
    assert ended(broker, error) == (status, str(error))
    assert not broker.log.events


def test_a_bug_is_told_by_the_brokers_log_alone() -> None:
    broker = BrokerPlayer()
    status, words = ended(broker, ZeroDivisionError("a bug")) or (None, "")
    assert status is grpc.StatusCode.INTERNAL
    assert "bug" not in words
    assert [event for _, event, _ in broker.log.events] == ["cell_admin_call_failed"]
