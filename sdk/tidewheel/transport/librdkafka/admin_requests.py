"""What all administrative requests share: a librdkafka admin client, and asking again.

Requests to a group's coordinator need care. librdkafka looks for the coordinator first, and when
such a request runs into its own time-out before that one is found and connected, finding it later
aborts the whole process (librdkafka issue 4605). So these requests get a time-out that never comes,
and are given up from here, together with the client that they share. A client that is ended drops
what it has not sent yet, so nothing is carried out long after its caller has heard of a failure; it
is ended when nobody waits for it any more, since it would never answer them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka.admin import AdminClient

from tidewheel.errors import RequestTimedOut
from tidewheel.transport.librdkafka.attempts import (
    METADATA_ATTEMPT_S,
    Attempt,
    until_answered,
)
from tidewheel.transport.librdkafka.connection import Connection, blocking, faults

T = TypeVar("T")

NEVER_S: Final = 3_600.0
"""A time-out that no request lives to see (librdkafka's maximum)."""


def only(futures: Mapping[Any, Future[Any]]) -> Future[Any]:
    """The answer to a request about one thing."""
    (future,) = futures.values()
    return future


def _ignore(answer: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, nor for its error."""
    if not answer.cancelled():
        answer.exception()


class SharedClient:
    """A client and how many wait for its answers."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        self.users = 0

    def end(self) -> None:
        """Let go of it, on a thread: it takes its time to end its connections."""
        last = [self.client]
        del self.client
        threading.Thread(target=last.clear, name="tidewheel-admin-end", daemon=True).start()


class AdminRequests:
    """One admin client, which polls in a thread of its own."""

    def __init__(self, connection: Connection, client: AdminClient) -> None:
        """`client` has found a broker."""
        self._connection = connection
        self._client = client
        self._group_client: SharedClient | None = None
        self._timeout_s = connection.request_timeout_s

    async def _until_answered(self, attempt: Attempt[T]) -> T:
        """The answer, at most after the request time-out, whoever is dead, frozen or cut off."""
        return await until_answered(attempt, self._timeout_s, self._learn_leaders)

    async def _at_coordinator(
        self, what: str, ask: Callable[[AdminClient], Future[T]], timeout_s: float
    ) -> T:
        """The answer to one attempt; `ask` gives the request NEVER_S. Raises RequestTimedOut."""
        shared = self._group_client
        if shared is None:
            shared = self._group_client = SharedClient(AdminClient(self._connection.properties()))
        shared.users += 1
        answer: asyncio.Future[T] | None = None
        try:
            with faults(what):
                answer = asyncio.wrap_future(ask(shared.client))
                # Not cancelled when time is up: librdkafka answers whatever it has been asked.
                await asyncio.wait({answer}, timeout=timeout_s)
                if answer.done():
                    return answer.result()
            raise RequestTimedOut(f"{what} failed: no answer within {timeout_s:.0f} s")
        except BaseException:
            if answer is not None and not answer.done():
                answer.add_done_callback(_ignore)
                if self._group_client is shared:
                    self._group_client = None
            raise
        finally:
            shared.users -= 1
            if not shared.users and self._group_client is not shared:
                shared.end()

    async def _learn_leaders(self, timeout_s: float) -> None:
        """librdkafka asks the controller and the leaders that it knew, for minutes after those have
        died. Any other broker tells who they are now."""
        await self._metadata("asking which brokers lead", timeout_s)

    async def _metadata(self, what: str, timeout_s: float) -> Any:
        """All that any broker knows of brokers and topics."""

        async def attempt(attempt_s: float, _is_unsure: bool) -> Any:
            return await blocking(what, self._client.list_topics, timeout=attempt_s)

        return await until_answered(attempt, timeout_s, first_attempt_s=METADATA_ATTEMPT_S)
