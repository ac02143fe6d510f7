"""The calls of CellAdmin: read in gRPC's thread, decided on the broker's loop, written in gRPC's.

What is asked of the loop is a decision or a reference to the image, which never changes. Reading
messages, looking through all topics and writing answers cost the loop nothing.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio

from data_plane.broker.admin.declarations import decide_declarations, decide_deletions
from data_plane.broker.admin.declared import Result, Unavailable
from data_plane.broker.services import Logger, Services
from data_plane.broker.topics.requested_replicas import registered_brokers
from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import StoreUnavailable, VersionConflict
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminServicer
from data_plane.server.cell_admin_listing import write_cell, write_digest, write_page
from data_plane.server.cell_admin_messages import (
    BadRequest,
    read_apply,
    read_delete,
    write_result,
)

T = TypeVar("T")
Request = TypeVar("Request")

# Which messages it is for does not matter here.
Context = grpc.aio.ServicerContext[Any, Any]
# A method of the service.
Call = Callable[["CellAdminService", Request, Context], Awaitable[T]]
Decide = Callable[[MetadataImage, list[Result]], Sequence[Change]]


class OnLoop(Protocol):
    """Runs something on the broker's loop, called from any thread."""

    def __call__(self, call: Callable[[], None]) -> None: ...


async def _abort(
    context: Context,
    code: grpc.StatusCode,
    error: Exception,
) -> NoReturn:
    await context.abort(code, str(error))
    raise AssertionError("abort returns")


def _answered(call: Call[Request, T]) -> Call[Request, T]:
    """The answer, or the gRPC status that says why there is none."""

    @functools.wraps(call)
    async def answer(self: CellAdminService, request: Request, context: Context) -> T:
        try:
            return await call(self, request, context)
        except BadRequest as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, error)
        except Unavailable as error:
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, error)
        except (StoreUnavailable, VersionConflict) as error:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, error)
        except Exception as error:
            self.log.error("cell_admin_call_failed", error=repr(error), exc_info=True)
            await context.abort(grpc.StatusCode.INTERNAL, "the broker failed; its log says why")
            raise

    return answer


class CellAdminService(CellAdminServicer):
    """One broker's. Runs on the loop of gRPC's thread."""

    def __init__(self, services: Services, on_loop: OnLoop, log: Logger) -> None:
        self._services = services
        self._on_loop = on_loop
        self.log = log

    @_answered
    async def Apply(  # noqa: N802
        self, request: messages.ApplyRequest, context: Context
    ) -> messages.ApplyResponse:
        wanted = read_apply(request)

        def decide(image: MetadataImage, results: list[Result]) -> Sequence[Change]:
            return decide_declarations(self._services, image, wanted, results)

        results, version = await self._commit(decide, validate_only=request.validate_only)
        return messages.ApplyResponse(results=map(write_result, results), version=version)

    @_answered
    async def Delete(  # noqa: N802
        self, request: messages.DeleteRequest, context: Context
    ) -> messages.DeleteResponse:
        wanted = read_delete(request)

        def decide(image: MetadataImage, results: list[Result]) -> Sequence[Change]:
            return decide_deletions(self._services, image, wanted, results)

        results, version = await self._commit(decide)
        return messages.DeleteResponse(results=map(write_result, results), version=version)

    @_answered
    async def List(  # noqa: N802
        self, request: messages.ListRequest, context: Context
    ) -> messages.ListResponse:
        image = await self._ask(lambda: self._services.image)
        return await asyncio.to_thread(write_page, image, request)

    @_answered
    async def Digest(  # noqa: N802
        self, request: messages.DigestRequest, context: Context
    ) -> messages.DigestResponse:
        image = await self._ask(lambda: self._services.image)
        return write_digest(image)

    @_answered
    async def DescribeCell(  # noqa: N802
        self, request: messages.DescribeCellRequest, context: Context
    ) -> messages.DescribeCellResponse:
        services = self._services
        image, brokers = await self._ask(
            lambda: (services.image, registered_brokers(services, services.image))
        )
        return await asyncio.to_thread(write_cell, image, brokers)

    async def _ask(self, read: Callable[[], T]) -> T:
        """What `read` returns on the broker's loop."""
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(read())
                except Exception as error:
                    future.set_exception(error)

        self._on_loop(call)
        return await asyncio.wrap_future(future)

    async def _commit(
        self, decide: Decide, *, validate_only: bool = False
    ) -> tuple[list[Result], int]:
        """The results, and the version at which they are in force. Whoever stops waiting leaves the
        commit to go on: what becomes of it is not known then."""
        services = self._services
        future: Future[tuple[list[Result], int]] = Future()
        results: list[Result] = []

        def decided(image: MetadataImage) -> Sequence[Change]:
            results.clear()
            changes = decide(image, results)
            return () if validate_only else changes

        def done(error: BaseException | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if error is None:
                future.set_result((results, services.image.version))
            else:
                future.set_exception(error)

        self._on_loop(lambda: services.metadata.write(decided, done))
        return await asyncio.wrap_future(future)
