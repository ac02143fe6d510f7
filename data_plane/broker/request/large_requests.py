"""Requests with very many items: what is proportional to them leaves the loop, or is cut up.

A frame of a megabyte names a hundred thousand topics or groups, which take half a second to decode,
look up and encode. Up to LARGE_BYTES a request is handled at once, as ever. Beyond:

    thread: decode, drop what is named twice    loop: a slice, a pause, a slice, …    thread: encode

Between slices the loop does what else there is to do; worker threads let it in within a
millisecond. The connection handles nothing further until the last slice (`ConnectionInfo.keep`).

Deliberately absent: what the slices mean; each API's handler sees an ordinary, smaller request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from data_plane.broker.request.api import (
    Buffer,
    CloseConnection,
    Deferred,
    KeptRequest,
    RequestContext,
    Slices,
)
from data_plane.broker.request.fair_work import OnDone
from data_plane.wire.errors import WireError

if TYPE_CHECKING:
    from data_plane.broker.services import Services

T = TypeVar("T")

LARGE_BYTES = 32 << 10
SLICE_ITEMS_MAX = 200

Decode = Callable[[KeptRequest], Sequence[Any]]
Handle = Callable[[Any, int], Deferred[Any] | None]
Encode = Callable[[], list[Buffer] | list[bytearray]]


class LargeRequest:
    """One of them. `decode` (in a thread) gives the slices; `handle` (on the loop) has done with
    one when it returns None or its Deferred is complete; then `encode` (in a thread) makes the
    answer."""

    __slots__ = (
        "_context",
        "_decode",
        "_encode",
        "_failure",
        "_handle",
        "_kept",
        "_next",
        "_result",
        "_services",
        "_slices",
        "_step",
        "deferred",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        kept: KeptRequest,
        decode: Decode,
        handle: Handle,
        encode: Encode,
    ) -> None:
        self._services = services
        self._context = context
        self._kept = kept
        self._decode = decode
        self._handle = handle
        self._encode = encode
        self._slices: Sequence[Any] = ()
        self._next = 0
        self._step: Callable[[Any, int], bool] = self._decoded
        self._result: Any = None
        self._failure: BaseException | None = None
        self.deferred: Deferred[Any] = Deferred()
        self._work(partial(decode, kept))

    def _work(self, work: Callable[[], Any]) -> None:
        connection = self._context.connection

        def unless_gone() -> Any:
            return None if connection.closed else work()

        self._services.request_work.submit(self._context, unless_gone, self._worked)

    def _worked(self, result: Any, error: BaseException | None) -> None:
        self._result, self._failure = result, error
        self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        """Go on with what a thread has done."""
        connection = self._context.connection
        result, self._result = self._result, None
        goes_on = False
        try:
            if self._failure is not None:
                raise self._failure
            if not connection.closed:
                goes_on = self._step(result, now_ms)
        except (WireError, CloseConnection) as error:
            connection.close(str(error))
        except Exception as error:
            connection.close(f"request failed: {error!r}")
            raise
        finally:
            if not goes_on:
                self._kept.release()

    # Steps: whether there is another one.

    def _decoded(self, slices: Sequence[Any], now_ms: int) -> bool:
        self._slices = slices
        self._step = self._handle_slice
        return self._handle_slice(None, now_ms)

    def _handle_slice(self, _: Any, now_ms: int) -> bool:
        if self._next == len(self._slices):
            self._step = self._encoded
            self._work(self._encode)
            return True
        waits_for = self._handle(self._slices[self._next], now_ms)
        self._next += 1
        if waits_for is None:
            pause(self._services, self._context, self._worked)
        else:
            waits_for.when_complete(lambda _: pause(self._services, self._context, self._worked))
        return True

    def _encoded(self, frames: Any, now_ms: int) -> bool:
        self.deferred.complete(frames)
        return False


def pause(services: Services, context: RequestContext, on_done: OnDone) -> None:
    """Others have their turn before a thread is back from doing nothing."""
    services.request_work.submit(context, _nothing, on_done)


def _nothing() -> None:
    pass


def sliced(items: Sequence[T], items_max: int = SLICE_ITEMS_MAX) -> list[Sequence[T]]:
    """At least one slice, so that there is an answer."""
    return [items[start : start + items_max] for start in range(0, max(1, len(items)), items_max)]


def slices_of(asked: str, answered: str) -> Slices:
    """For requests with a list `asked`, and responses with a list `answered`."""

    def cut(request: Any) -> list[Any]:
        parts = []
        for items in sliced(list(dict.fromkeys(getattr(request, asked)))):
            part = copy(request)
            setattr(part, asked, items)
            parts.append(part)
        return parts

    def merge(response: Any, more: Any) -> None:
        getattr(response, answered).extend(getattr(more, answered))

    return Slices(cut, merge)
