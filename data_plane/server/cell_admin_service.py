"""The calls of CellAdmin: read in gRPC's thread, decided on the broker's loop, written in gRPC's.

What is asked of the loop is a decision or a reference to the image, which never changes. Reading
messages, looking through all topics and writing answers cost the loop nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from data_plane.broker.admin.declarations import decide_declarations, decide_deletions
from data_plane.broker.admin.declared import Result
from data_plane.broker.cell.cell_view import controller_id
from data_plane.broker.topics.requested_replicas import registered_brokers
from data_plane.cell.authors import Author
from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminServicer
from data_plane.server.cell_admin_listing import write_cell, write_digest, write_page
from data_plane.server.cell_admin_messages import (
    read_apply,
    read_delete,
    write_result,
)
from data_plane.server.cell_calls import Calls, Context, Done, answered, author_of

Decide = Callable[[MetadataImage, list[Result]], Sequence[Change]]


class CellAdminService(CellAdminServicer):
    """One broker's. Runs on the loop of gRPC's thread."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self._services = calls.services

    @answered
    async def Apply(  # noqa: N802
        self, request: messages.ApplyRequest, context: Context
    ) -> messages.ApplyResponse:
        wanted = read_apply(request)

        def decide(image: MetadataImage, results: list[Result]) -> Sequence[Change]:
            return decide_declarations(self._services, image, wanted, results)

        cost = sum(max(1, one.topic.partitions) for one in request.resources)
        results, version = await self._commit(
            decide, author_of(context), cost, validate_only=request.validate_only
        )
        return messages.ApplyResponse(results=map(write_result, results), version=version)

    @answered
    async def Delete(  # noqa: N802
        self, request: messages.DeleteRequest, context: Context
    ) -> messages.DeleteResponse:
        wanted = read_delete(request)

        def decide(image: MetadataImage, results: list[Result]) -> Sequence[Change]:
            return decide_deletions(self._services, image, wanted, results)

        results, version = await self._commit(decide, author_of(context), len(request.deletions))
        return messages.DeleteResponse(results=map(write_result, results), version=version)

    @answered
    async def List(  # noqa: N802
        self, request: messages.ListRequest, context: Context
    ) -> messages.ListResponse:
        image = await self.calls.ask(lambda: self._services.image)
        return await asyncio.to_thread(write_page, image, request)

    @answered
    async def Digest(  # noqa: N802
        self, request: messages.DigestRequest, context: Context
    ) -> messages.DigestResponse:
        image = await self.calls.ask(lambda: self._services.image)
        return write_digest(image)

    @answered
    async def DescribeCell(  # noqa: N802
        self, request: messages.DescribeCellRequest, context: Context
    ) -> messages.DescribeCellResponse:
        services = self._services
        image, brokers, controller = await self.calls.ask(
            lambda: (
                services.image,
                registered_brokers(services, services.image),
                controller_id(services),
            )
        )
        return await asyncio.to_thread(write_cell, image, brokers, controller)

    async def _commit(
        self, decide: Decide, author: Author, cost: int, *, validate_only: bool = False
    ) -> tuple[list[Result], int]:
        """The results, and the version at which they are in force."""
        services = self._services
        results: list[Result] = []

        def decided(image: MetadataImage) -> Sequence[Change]:
            results.clear()
            changes = decide(image, results)
            return () if validate_only else changes

        def start(done: Done[tuple[list[Result], int]]) -> None:
            services.metadata.write(
                decided,
                lambda error: done((results, services.image.version), error),
                author=author,
                cost=cost,
            )

        return await self.calls.begin(start)
