"""What all calls of a control plane have in common: the broker's loop, statuses and deadlines.

Calls run on the loop of gRPC's thread. What is asked of the broker's loop is a decision, a
reference or a request; reading and writing messages costs it nothing.

Bounds: CALL_TIMEOUT_S for each call, or what its caller gives, if that is less.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio

from data_plane.broker.admin.declared import Unavailable
from data_plane.broker.cell.waiting_writes import TooManyWaiting
from data_plane.broker.services import Logger, Services
from data_plane.cell.authors import CELL_ADMIN_SOURCE, Author
from data_plane.cell.metadata_store import StoreUnavailable, StoreWentBack, VersionConflict

T = TypeVar("T")

# Which messages it is for does not matter here.
Context = grpc.aio.ServicerContext[Any, Any]

# More than the metadata writer waits for a store that is away.
CALL_TIMEOUT_S: Final = 30.0


# Called on the broker's loop, once, with what came of something, or with the error.
Done = Callable[[T | None, BaseException | None], None]


class BadRequest(ValueError):
    """A field of a request, by its path, and what is wrong with it."""


def within(name: str, value: int, default: int, most: int) -> int:
    """A field's number, or its default where it is 0. Raises BadRequest."""
    if not 0 <= value <= most:
        raise BadRequest(f"{name}: {value}; give 1 to {most}, or 0 for {default}")
    return value or default


class Refused(Exception):
    """A call that gets this status, with these words."""

    def __init__(self, status: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class OnLoop(Protocol):
    """Runs something on the broker's loop, called from any thread."""

    def __call__(self, call: Callable[[], None]) -> None: ...


class Calls:
    """What services answer calls with; of one broker."""

    def __init__(
        self, services: Services, on_loop: OnLoop, log: Logger, now_ms: Callable[[], int]
    ) -> None:
        self.services = services
        self.now_ms = now_ms
        self._on_loop = on_loop
        self._log = log

    async def ask(self, read: Callable[[], T]) -> T:
        """What `read` returns on the broker's loop."""
        return await self.begin(lambda done: done(read(), None))

    async def begin(self, start: Callable[[Done[T]], None]) -> T:
        """What `start`, called on the broker's loop, has its argument called with, there and once.
        Whoever stops waiting leaves it to go on: what becomes of it is not known then."""
        future: Future[T] = Future()

        def done(result: T | None, error: BaseException | None) -> None:
            if future.running() or future.done() or not future.set_running_or_notify_cancel():
                # Told already, or nobody waits.
                return
            if error is not None:
                future.set_exception(error)
            else:
                # Without an error it is what was asked for, which may well be None.
                future.set_result(result)  # type: ignore[arg-type]

        def call() -> None:
            try:
                start(done)
            except Exception as error:
                done(None, error)

        self._on_loop(call)
        return await asyncio.wrap_future(future)

    async def abort(self, context: Context, error: Exception) -> NoReturn:
        """End the call with the status of an error."""
        match error:
            case grpc.aio.AbortError():
                raise error
            case BadRequest():
                status = grpc.StatusCode.INVALID_ARGUMENT
            case Unavailable():
                status = grpc.StatusCode.FAILED_PRECONDITION
            case StoreUnavailable() | StoreWentBack() | VersionConflict() | TooManyWaiting():
                # Not RESOURCE_EXHAUSTED, which gRPC gives for a message that is too large: control
                # planes send that again in halves.
                status = grpc.StatusCode.UNAVAILABLE
            case Refused():
                status = error.status
            case _:
                self._log.error("cell_admin_call_failed", error=repr(error), exc_info=error)
                words = "the broker failed; its log says why"
                await context.abort(grpc.StatusCode.INTERNAL, words)
        await context.abort(status, str(error))
        raise AssertionError("abort returns")


class Service(Protocol):
    """What has methods that are `answered`."""

    @property
    def calls(self) -> Calls: ...


SomeService = TypeVar("SomeService", bound=Service)
Request = TypeVar("Request")
Call = Callable[[SomeService, Request, Context], Awaitable[T]]


def answered(call: Call[SomeService, Request, T]) -> Call[SomeService, Request, T]:
    """Gives the answer in time, or the gRPC status that says why there is none."""

    @functools.wraps(call)
    async def answer(self: SomeService, request: Request, context: Context) -> T:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await call(self, request, context)
        except TimeoutError:
            words = f"it took longer than {CALL_TIMEOUT_S:g} s; what became of it is not known"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, words)
        except Exception as error:
            await self.calls.abort(context, error)
        raise AssertionError("abort returns")

    return answer


def author_of(context: Context) -> Author:
    """Who calls, by the common name of his certificate."""
    names = list(context.auth_context().get("x509_common_name", ()))
    principal = names[0].decode(errors="replace") if names else ""
    return Author(CELL_ADMIN_SOURCE, "", principal)
