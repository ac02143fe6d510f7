"""Brokers of cells that answer as they are told: gRPC servers with services that a test writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc

from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract import cell_operations_pb2 as operations_messages
from data_plane.contract.cell_admin_pb2_grpc import (
    CellAdminServicer,
    add_CellAdminServicer_to_server,
)
from data_plane.contract.cell_operations_pb2_grpc import (
    CellOperationsServicer,
    add_CellOperationsServicer_to_server,
)
from data_plane.server.inter_broker_tls import TlsFiles
from tests.control_plane.tenants import Tenant

THREADS = 8
STORE = "store-1"

# What is not written down here is not asked.
_Admin: Any = CellAdminServicer
_Operations: Any = CellOperationsServicer


@contextmanager
def serving(files: TlsFiles, *brokers: Any) -> Iterator[list[str]]:
    """The brokers' addresses."""
    key, certificate, authority = (
        Path(path).read_bytes() for path in (files.key, files.certificate, files.authority)
    )
    credentials = grpc.ssl_server_credentials(
        [(key, certificate)], authority, require_client_auth=True
    )
    servers = []
    try:
        endpoints = []
        for broker in brokers:
            server = grpc.server(ThreadPoolExecutor(THREADS))
            servers.append(server)
            if isinstance(broker, CellAdminServicer):
                add_CellAdminServicer_to_server(broker, server)
            if isinstance(broker, CellOperationsServicer):
                add_CellOperationsServicer_to_server(broker, server)
            endpoints.append(f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}")
            server.start()
        yield endpoints
    finally:
        for server in servers:
            server.stop(None).wait()


def clients_item(tenant: Tenant, name: str, **configs: str) -> messages.Item:
    """A topic of Kafka clients', as a cell tells of it."""
    resource = messages.Resource(owner=messages.CLIENT, tenant=tenant.organization.slug, name=name)
    return messages.Item(
        kind=messages.KIND_TOPIC,
        resource=resource,
        topic_id=uuid4().bytes,
        partitions=1,
        replication_factor=1,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


@dataclass(eq=False)
class PlayedBroker(_Admin, _Operations):  # type: ignore[misc]
    """One that shows the topics that it is given, as of a version, and takes whatever is applied.

    `hangs`: it takes calls, and answers none until `released` is set. `stores_nothing`: it answers
    what it has in its image, and nothing that needs the cell's store.
    """

    version: int = 10
    # The oldest version, and the newest, that its feed goes on from.
    feed_from: int = 0
    items: list[messages.Item] = field(default_factory=list)
    hangs: bool = False
    stores_nothing: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    watched: list[operations_messages.WatchRequest] = field(default_factory=list)
    # Of resources of which the cell has a later generation than is told.
    generations: dict[str, int] = field(default_factory=dict)
    applied: list[messages.Resource] = field(default_factory=list)
    usage_reads: int = 0
    calls: int = 0
    purged: list[str] = field(default_factory=list)
    # Deleted topics that it has kept, and why it gives none back; those that it gave back.
    kept: list[operations_messages.DeletedTopic] = field(default_factory=list)
    why_not: str = ""
    undeleted: list[str] = field(default_factory=list)

    def _wait(self) -> None:
        if self.hangs:
            self.released.wait()

    def DescribeCell(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._wait()
        return messages.DescribeCellResponse(cluster_id="played", version=self.version)

    def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._wait()
        return messages.ListResponse(items=self.items, version=self.version)

    def Apply(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._wait()
        if self.stores_nothing:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the store does not answer")
        self.calls += 1
        self.applied += request.resources
        results = [self._applied(each) for each in request.resources]
        return messages.ApplyResponse(results=results, version=self.version)

    def _applied(self, resource: messages.Resource) -> messages.Result:
        later = self.generations.get(resource.resource_id, 0)
        is_stale = later > resource.generation
        return messages.Result(
            resource_id=resource.resource_id,
            outcome=messages.Result.STALE if is_stale else messages.Result.DONE,
            generation=max(later, resource.generation),
        )

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._wait()
        results = [
            messages.Result(
                resource_id=each.resource_id,
                outcome=messages.Result.DONE,
                generation=each.generation,
            )
            for each in request.deletions
        ]
        return messages.DeleteResponse(results=results, version=self.version)

    def PurgeTopic(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.purged.append(request.name)
        return operations_messages.DeletedTopicResponse()

    def ListDeletedTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        return operations_messages.ListDeletedTopicsResponse(topics=self.kept)

    def UndeleteTopic(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.why_not:
            context.abort(grpc.StatusCode.NOT_FOUND, self.why_not)
        self.undeleted.append(request.name)
        return operations_messages.DeletedTopicResponse()

    def ReadUsage(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.usage_reads += 1
        self._wait()
        yield from ()

    def Watch(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.watched.append(request)
        self._wait()
        after = self.version
        if request.HasField("after_version"):
            after = request.after_version
            if not self.feed_from <= after <= self.version:
                context.abort(grpc.StatusCode.OUT_OF_RANGE, "List")
        yield operations_messages.WatchResponse(version=after, store_id=STORE)
        # Nothing else happens here, and the caller ends it.
        ended = threading.Event()
        if context.add_callback(ended.set):
            ended.wait()
