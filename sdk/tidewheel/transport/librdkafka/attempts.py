"""Asking again: a request whose answer does not come is put to whoever answers by then.

A broker that is frozen or cut off keeps its connections and says nothing. librdkafka would wait for
it as long as the caller is willing to wait at all, and the caller would hear of a time-out although
the rest of the cell had gone on after two seconds. So a request is tried in attempts: the first is
short, and each further one has twice the time, for requests that do take long. Between two of them
another broker is asked for the metadata, by which librdkafka learns of new leaders and controllers.

An attempt without an answer may have been carried out. Each attempt is told so (`is_unsure`), and a
request that would fail the second time ("exists already") counts as done then.

It deliberately knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidewheel.errors import BrokerUnreachable, RequestTimedOut, TidewheelError

T = TypeVar("T")

FIRST_ATTEMPT_S: Final = 3.0
METADATA_ATTEMPT_S: Final = 1.0
"""Every broker knows the metadata and tells them at once."""
ATTEMPT_S_MIN: Final = 0.1
PAUSE_S: Final = 0.1

Attempt = Callable[[float, bool], Awaitable[T]]
"""Asks once: it gets the seconds that it may take, and whether an earlier attempt may have been
carried out."""


async def until_answered(
    attempt: Attempt[T],
    timeout_s: float,
    between: Callable[[float], Awaitable[object]] | None = None,
    first_attempt_s: float = FIRST_ATTEMPT_S,
) -> T:
    """The answer of the first attempt that gets one. Raises the last attempt's error once
    `timeout_s` have passed, and at once an error that trying again cannot mend.

    `between` is awaited before each further attempt, with the seconds that it may take.
    """
    deadline = time.monotonic() + timeout_s
    attempt_s, is_unsure = first_attempt_s, False
    while True:
        left_s = deadline - time.monotonic()
        try:
            return await attempt(max(ATTEMPT_S_MIN, min(attempt_s, left_s)), is_unsure)
        except TidewheelError as error:
            if not error.retriable or time.monotonic() + PAUSE_S >= deadline:
                raise
            is_unsure = is_unsure or isinstance(error, RequestTimedOut | BrokerUnreachable)
            refused = error
        await asyncio.sleep(PAUSE_S)
        if between is not None:
            try:
                await between(deadline - time.monotonic())
            except TidewheelError as error:
                # What the caller has asked for is what he wants to hear of.
                raise refused from error
        attempt_s *= 2
