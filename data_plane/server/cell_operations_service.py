"""The calls of CellOperations: what a control plane sees and does beside declaring."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc

from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsServicer
from data_plane.server.broker_operations import elect_leaders, set_draining
from data_plane.server.cell_calls import Calls, Context, Refused, answered, author_of
from data_plane.server.cell_operations_messages import write_sample
from data_plane.server.change_feed import WATCHES_MAX, WRITE_TIMEOUT_S, ChangeFeed
from data_plane.server.deleted_topics import purge, undelete, write_deleted_topics
from data_plane.server.kafka_calls import KafkaCalls
from data_plane.server.tenant_delayed import TenantDelayed
from data_plane.server.tenant_groups import TenantGroups
from data_plane.server.tenant_records import TenantRecords
from data_plane.server.tenant_redrives import TenantRedrives
from data_plane.server.usage_spool import UsageSpool

USAGE_READS_MAX: Final = 4
# Each may have some dozen MiB in memory.
RECORD_CALLS_MAX: Final = 4
GROUP_CALLS_MAX: Final = 4
DELAYED_CALLS_MAX: Final = 4
REDRIVE_CALLS_MAX: Final = 4
USAGE_POLL_S: Final = 1.0


class CellOperationsService(CellOperationsServicer):
    """One broker's. Runs on the loop of gRPC's thread."""

    def __init__(
        self,
        calls: Calls,
        feed: ChangeFeed,
        usage: UsageSpool | None = None,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self.calls = calls
        self._usage = usage
        self._write_timeout_s = write_timeout_s
        self._feed = feed
        kafka = KafkaCalls(calls)
        self._records = TenantRecords(kafka)
        self._groups = TenantGroups(kafka, calls)
        self._delayed = TenantDelayed(kafka, calls)
        self._delayed_calls = _Places(DELAYED_CALLS_MAX, "calls about delayed messages")
        self._redrives = TenantRedrives(kafka, calls)
        self._redrive_calls = _Places(REDRIVE_CALLS_MAX, "calls about dead letters")
        self._group_calls = _Places(GROUP_CALLS_MAX, "calls about groups")
        self._record_calls = _Places(RECORD_CALLS_MAX, "calls of Peek and Produce")
        self._watches = _Places(WATCHES_MAX, "calls of Watch")
        self._usage_reads = _Places(USAGE_READS_MAX, "calls of ReadUsage")

    @answered
    async def ListDeletedTopics(  # noqa: N802
        self, request: messages.ListDeletedTopicsRequest, context: Context
    ) -> messages.ListDeletedTopicsResponse:
        image = await self.calls.ask(lambda: self.calls.services.image)
        return await asyncio.to_thread(write_deleted_topics, image, request)

    @answered
    async def UndeleteTopic(  # noqa: N802
        self, request: messages.DeletedTopicRequest, context: Context
    ) -> messages.DeletedTopicResponse:
        return await undelete(self.calls, request, author_of(context))

    @answered
    async def PurgeTopic(  # noqa: N802
        self, request: messages.DeletedTopicRequest, context: Context
    ) -> messages.DeletedTopicResponse:
        return await purge(self.calls, request, author_of(context))

    @answered
    async def SetDraining(  # noqa: N802
        self, request: messages.SetDrainingRequest, context: Context
    ) -> messages.SetDrainingResponse:
        return await set_draining(self.calls, request, author_of(context))

    @answered
    async def ElectLeaders(  # noqa: N802
        self, request: messages.ElectLeadersRequest, context: Context
    ) -> messages.ElectLeadersResponse:
        return await elect_leaders(self.calls, request)

    @answered
    async def ListDelayed(  # noqa: N802
        self, request: messages.ListDelayedRequest, context: Context
    ) -> messages.ListDelayedResponse:
        with self._delayed_calls.taken():
            return await self._delayed.listed(request)

    @answered
    async def CountDelayed(  # noqa: N802
        self, request: messages.CountDelayedRequest, context: Context
    ) -> messages.CountDelayedResponse:
        with self._delayed_calls.taken():
            return await self._delayed.count(request)

    @answered
    async def CancelDelayed(  # noqa: N802
        self, request: messages.CancelDelayedRequest, context: Context
    ) -> messages.CancelDelayedResponse:
        with self._delayed_calls.taken():
            return await self._delayed.cancel(request)

    @answered
    async def BeginRedrive(  # noqa: N802
        self, request: messages.BeginRedriveRequest, context: Context
    ) -> messages.RedriveResponse:
        with self._redrive_calls.taken():
            return await self._redrives.begin(request)

    @answered
    async def ChangeRedrive(  # noqa: N802
        self, request: messages.ChangeRedriveRequest, context: Context
    ) -> messages.RedriveResponse:
        with self._redrive_calls.taken():
            return await self._redrives.change(request)

    @answered
    async def ListRedrives(  # noqa: N802
        self, request: messages.ListRedrivesRequest, context: Context
    ) -> messages.ListRedrivesResponse:
        with self._redrive_calls.taken():
            return await self._redrives.listed(request)

    @answered
    async def ListRedriven(  # noqa: N802
        self, request: messages.ListRedrivenRequest, context: Context
    ) -> messages.ListRedrivenResponse:
        with self._redrive_calls.taken():
            return await self._redrives.redriven(request)

    # The stubs know of generators only, which cannot tell how long a caller takes to read.
    async def Watch(  # type: ignore[override]  # noqa: N802
        self, request: messages.WatchRequest, context: Context
    ) -> None:
        try:
            with self._watches.taken():
                after = request.after_version if request.HasField("after_version") else None
                responses = self._feed.watch(after, request.store_id)
                await self._send(context, responses)
        except Exception as error:
            await self.calls.abort(context, error)

    async def ReadUsage(  # type: ignore[override]  # noqa: N802
        self, request: messages.ReadUsageRequest, context: Context
    ) -> None:
        try:
            with self._usage_reads.taken():
                await self._send(context, self._samples_after(request))
        except Exception as error:
            await self.calls.abort(context, error)

    @answered
    async def Peek(  # noqa: N802
        self, request: messages.PeekRequest, context: Context
    ) -> messages.PeekResponse:
        with self._record_calls.taken():
            return await self._records.peek(request)

    @answered
    async def Produce(  # noqa: N802
        self, request: messages.ProduceRequest, context: Context
    ) -> messages.ProduceResponse:
        with self._record_calls.taken():
            return await self._records.produce(request)

    @answered
    async def ListGroups(  # noqa: N802
        self, request: messages.ListGroupsRequest, context: Context
    ) -> messages.ListGroupsResponse:
        with self._group_calls.taken():
            return await self._groups.listed(request)

    @answered
    async def DescribeGroup(  # noqa: N802
        self, request: messages.DescribeGroupRequest, context: Context
    ) -> messages.DescribeGroupResponse:
        with self._group_calls.taken():
            return await self._groups.describe(request)

    @answered
    async def ResetOffsets(  # noqa: N802
        self, request: messages.ResetOffsetsRequest, context: Context
    ) -> messages.ResetOffsetsResponse:
        with self._group_calls.taken():
            return await self._groups.reset(request)

    async def _samples_after(
        self, request: messages.ReadUsageRequest
    ) -> AsyncIterator[messages.UsageSample]:
        spool = self._usage
        if spool is None:
            words = "this broker stores no use: its log says why"
            raise Refused(grpc.StatusCode.UNAVAILABLE, words)
        broker_id = self.calls.services.node_id
        incarnation, sequence = request.incarnation, request.sequence
        while True:
            seen = spool.last_sequence
            samples = spool.read(incarnation, sequence)
            while (sample := await asyncio.to_thread(next, samples, None)) is not None:
                incarnation, sequence = sample.incarnation, sample.sequence
                yield write_sample(sample, broker_id)
            if not request.follow:
                return
            while spool.last_sequence == seen:
                await self._feed.pause(USAGE_POLL_S)

    async def _send(self, context: Context, responses: AsyncIterator[Any]) -> None:
        """Each as soon as the caller has room for it. Raises Refused when he has none for long."""
        timeout_s = self._write_timeout_s
        async for response in responses:
            try:
                async with asyncio.timeout(timeout_s):
                    await context.write(response)
            except TimeoutError:
                words = f"nothing was read for {timeout_s:g} s; go on from the last response"
                raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, words) from None


class _Places:
    """How many calls of a kind there may be at a time: one that stays must not be all there are."""

    def __init__(self, places_max: int, what: str) -> None:
        self._left = places_max
        self._why_refused = f"there are {places_max} {what}, which is the limit of a broker"

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Raises Refused."""
        if self._left <= 0:
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, self._why_refused)
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1
