"""Kafka requests on behalf of a tenant's principal, without a socket.

    principal, tenant, host ─► a connection of its own ─► frame ─► Dispatcher ─► frame ─► response

A call goes the way of any client's request: the same dispatcher, guards, ACLs, quotas and counts.
There is no other way in, so what a control plane may do for somebody is what he may do.

Runs on the broker's loop; the frames are made and read elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import grpc

from data_plane.broker.authentication.authentication import why_shut
from data_plane.broker.request.api import CloseConnection, ConnectionInfo, Deferred
from data_plane.broker.request.dispatch import Dispatcher
from data_plane.broker.request.namespaces import RequestNames
from data_plane.broker.request.principal import Principal
from data_plane.broker.services import Services
from data_plane.cell.acls import AclOperation, AclResourceType
from data_plane.cell.metadata import NO_LEADER
from data_plane.cell.virtual_topics import shown_partition
from data_plane.server.cell_calls import Calls, Done, Refused
from data_plane.wire.errors import WireError
from data_plane.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.reader import Reader
from data_plane.wire.registry import API_BY_KEY, ApiKey
from data_plane.wire.writer import Writer

CLIENT_ID: Final = "cell-operations"
EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
# One that names topics, not ids.
_LIST_OFFSETS_VERSION: Final = 7
_SIZE_BYTES: Final = 4


class Caller(NamedTuple):
    """On whose behalf."""

    tenant: str
    principal: Principal
    host: str


class KafkaCalls:
    """Of one broker."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._services: Services = calls.services
        # Made when it is first needed.
        self._dispatcher: Dispatcher | None = None
        self._ids = itertools.count(1)

    async def call(self, caller: Caller, api_key: ApiKey, version: int, request: Any) -> Any:
        """The response. Raises Refused for what a client's connection would be closed for."""
        spec = API_BY_KEY[api_key]
        writer = Writer()
        encode_request_header(
            writer,
            RequestHeader(
                api_key=int(api_key),
                api_version=version,
                correlation_id=0,
                client_id=CLIENT_ID,
            ),
        )
        spec.encode_request(writer, request, version)
        frame = bytearray(writer.buf)

        def start(done: Done[bytes]) -> None:
            self._dispatch(caller, frame, done)

        answer = await self._calls.begin(start)
        reader = Reader(answer, _SIZE_BYTES, len(answer))
        decode_response_header(reader, int(api_key), version)
        return spec.decode_response(reader, version)

    async def list_offsets(
        self,
        caller: Caller,
        timestamps: Mapping[tuple[str, int], int],
        isolation_level: int = READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], Any]:
        """By topic and partition: the answer's error code, and the offset, which is -1 when no
        record has this timestamp or a later one. One request, or none for none."""
        if not timestamps:
            return {}
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, index), timestamp in timestamps.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            topic.partitions.append(partition)
        wanted = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation_level, topics=list(topics.values())
        )
        answer = await self.call(caller, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, wanted)
        return {
            (topic.name, one.partition_index): one
            for topic in answer.topics
            for one in topic.partitions
        }

    def wall_ms(self) -> int:
        """The date."""
        return self._services.wall_clock.wall_ms(self._calls.now_ms())

    def leader_of(self, tenant: str, topic: str, partition: int) -> int:
        """A broker's id; -1 while there is none."""
        image = self._services.image
        there = image.topic(tenant, topic)
        shown = None if there is None else shown_partition(image, there, partition)
        return NO_LEADER if shown is None else shown.leader

    def may_to_topic(self, caller: Caller, operation: AclOperation, topic: str) -> bool:
        """On the loop. Raises Refused."""
        rights = self._names(caller).rights
        return rights.is_open or rights.may(
            caller.principal, caller.host, operation, AclResourceType.TOPIC, topic
        )

    def _names(self, caller: Caller) -> RequestNames:
        """Of who may ask, as when a client logs in. On the loop; raises Refused."""
        services = self._services
        names = services.namespaces.names.get(caller.tenant)
        if names is None:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"there is no tenant {caller.tenant}")
        reason = why_shut(services.image, caller.tenant)
        if reason:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, reason)
        return names

    def _dispatch(self, caller: Caller, frame: bytearray, done: Done[bytes]) -> None:
        """On the loop."""
        services = self._services
        self._names(caller)
        connection = ConnectionInfo(
            connection_id=-next(self._ids),
            peer=CLIENT_ID,
            listener=services.advertised_listeners[0].name if services.advertised_listeners else "",
            host=caller.host,
            port=0,
            close=_closing(done),
            fail=_closing(done),
            # It is no connection that the tenant has opened, and cannot be made to wait.
            waits_with_tenant=True,
        )
        connection.authenticate(caller.principal, caller.tenant)
        if self._dispatcher is None:
            self._dispatcher = Dispatcher(services)
        now_ms = self._calls.now_ms()
        try:
            answer = self._dispatcher.dispatch(connection, frame, 0, len(frame), now_ms)
        except (CloseConnection, WireError) as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        assert answer is not None, "each of these requests has an answer"
        if isinstance(answer, Deferred):
            # Copied while the pass still holds what the buffers refer to.
            answer.when_complete(lambda frames: done(b"".join(frames), None))
        else:
            done(b"".join(answer), None)


def _closing(done: Done[bytes]) -> Callable[[str], None]:
    return lambda reason: done(None, Refused(grpc.StatusCode.ABORTED, reason))
