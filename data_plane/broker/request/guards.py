"""Guards: what is left of a request for who may not do everything.

Where a tenant has ACLs, or denies what none is about, a guard looks at each request before its
handler. It takes out of the request what its sender may not do, and says what the answer has to add
to be about all of it; so handlers know nothing of rights.

    DeleteGroups a, b ─► guard: b is refused ─► handler: DeleteGroups a ─► answer: a, and b's error

Refused and unknown must not be told apart: what a guard refuses it refuses by the name that was
asked for, and never looks whether there is such a thing.

Deliberately absent: which API needs what (data_plane/broker/authorization). Produce, Fetch and some
others, whose handlers read their bytes themselves, ask by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_plane.broker.request.api import (
    CloseConnection,
    Deferred,
    Guard,
    Handler,
    LongAnswer,
    RequestContext,
)

# From the handler's response to the one that is sent.
Complete = Callable[[Any], Any]


class Answered:
    """A guard's word that the request needs no handler."""

    __slots__ = ("response",)

    def __init__(self, response: Any) -> None:
        self.response = response


def guarded(handler: Handler, guard: Guard | None) -> Handler:
    """`handler`, behind its guard."""

    def handle(services: Any, context: RequestContext, request: Any, now_ms: int) -> Any:
        if guard is None:
            raise CloseConnection(f"API {context.api_key} has no rule that says who may use it")
        verdict = guard(context, request)
        if isinstance(verdict, Answered):
            return verdict.response
        response = handler(services, context, request, now_ms)
        if verdict is None:
            return response
        if not isinstance(response, Deferred):
            return _completed(response, verdict)
        completed: Deferred[Any] = Deferred(is_exclusive=response.is_exclusive)
        response.when_complete(lambda found: completed.complete(_completed(found, verdict)))
        return completed

    return handle


def _completed(response: Any, complete: Complete) -> Any:
    if isinstance(response, LongAnswer):
        make = response.make
        return LongAnswer(lambda: complete(make()), response.held)
    return complete(response)
