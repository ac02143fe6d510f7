"""Calls of CellAdmin for an operator at a terminal: one thing at a time, in plain words.

What is declared from here is found again by its kind, tenant and name; its resource id is drawn
when it is made, since an id is never used twice. Each call goes by what the cell has: the next
generation of that. Two operators who change the same thing at once: the second is told.

Deliberately absent: what the things mean (operators.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import grpc

from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract import cell_operations_pb2 as operations
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub
from stack.certificates import StackCertificates
from stack.errors import EXIT_USAGE, StackError
from stack.folder import StackFolder
from stack.hints import command

TIMEOUT_S: Final = 30.0
_DONE: Final = (messages.Result.DONE, messages.Result.UNCHANGED)
_WORDS: Final = {
    messages.Result.STALE: "somebody has changed it meanwhile; look at it, and try again",
    messages.Result.GONE: "it was deleted meanwhile",
}


@dataclass(frozen=True, slots=True)
class CellAdminAccess:
    """Where CellAdmin is, and the operator's PEM files."""

    address: str
    authority: Path
    certificate: Path
    key: Path


def access_of_stack(folder: StackFolder) -> CellAdminAccess:
    """That of a stack that runs on this machine. Raises StackError."""
    state = folder.read_state()
    brokers = [] if state is None else state.living()
    ports = [broker.cell_admin_port for broker in brokers if broker.cell_admin_port]
    if not ports:
        raise StackError(
            f"No stack with CellAdmin runs with the data in {folder.path}. Start it with "
            f"{command('up', folder)}, or say where the cell is: --cell, --cell-ca, "
            "--cell-certificate and --cell-key.",
            EXIT_USAGE,
        )
    certificates = StackCertificates(folder.tls)
    certificate, key = certificates.operator
    address = f"127.0.0.1:{ports[0]}"
    return CellAdminAccess(address, certificates.operators_authority, certificate, key)


class CellAdmin:
    """Use it as a context manager. All calls raise StackError."""

    def __init__(self, access: CellAdminAccess) -> None:
        try:
            contents = [
                path.read_bytes() for path in (access.authority, access.key, access.certificate)
            ]
        except OSError as error:
            raise StackError(f"{error.filename}: {error.strerror}.", EXIT_USAGE) from error
        self._address = access.address
        self._channel = grpc.secure_channel(access.address, grpc.ssl_channel_credentials(*contents))
        self._stub: Any = CellAdminStub(self._channel)
        self._operations: Any = CellOperationsStub(self._channel)

    def __enter__(self) -> CellAdmin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._channel.close()

    def items(self, kind: int, tenant: str = "") -> Iterator[messages.Item]:
        """All of a kind, of one tenant or of all."""
        token = ""
        while True:
            request = messages.ListRequest(tenant=tenant, page_token=token)
            request.kind = kind  # type: ignore[assignment]
            page = self._call(self._stub.List, request)
            yield from page.items
            token = page.next_page_token
            if not token:
                return

    def apply(self, resource: messages.Resource, known: messages.Item | None, what: str) -> None:
        """Declare the next generation of `known`, or something new."""
        if known is not None and known.resource.resource_id:
            resource.resource_id = known.resource.resource_id
            resource.generation = known.resource.generation + 1
        else:
            resource.resource_id, resource.generation = f"cli_{uuid.uuid4().hex}", 1
        resource.owner = messages.API
        answer = self._call(self._stub.Apply, messages.ApplyRequest(resources=[resource]))
        self._check(answer.results[0], what)

    def delete(self, known: messages.Item, what: str) -> None:
        """Delete what was declared, with its thing."""
        deletion = messages.Deletion(
            resource_id=known.resource.resource_id, generation=known.resource.generation
        )
        answer = self._call(self._stub.Delete, messages.DeleteRequest(deletions=[deletion]))
        self._check(answer.results[0], what)

    def deleted_topics(self, tenant: str) -> Iterator[operations.DeletedTopic]:
        """Those that can come back, of one tenant or, with "", of all."""
        request = operations.ListDeletedTopicsRequest(tenant=tenant)
        while True:
            page = self._call(self._operations.ListDeletedTopics, request)
            yield from page.topics
            if not page.has_more:
                return
            request.after_tenant, request.after_name = page.topics[-1].tenant, page.topics[-1].name

    def undelete(self, tenant: str, name: str) -> None:
        request = operations.DeletedTopicRequest(tenant=tenant, name=name)
        self._call(self._operations.UndeleteTopic, request)

    def purge(self, tenant: str, name: str) -> None:
        request = operations.DeletedTopicRequest(tenant=tenant, name=name)
        self._call(self._operations.PurgeTopic, request)

    def begin_redrive(self, request: operations.BeginRedriveRequest) -> operations.RedriveResponse:
        """Its failure is the broker's word, for example that it does not lead the partition."""
        answer: operations.RedriveResponse = self._call(self._operations.BeginRedrive, request)
        return answer

    def redrives(self, request: operations.ListRedrivesRequest) -> operations.ListRedrivesResponse:
        """See begin_redrive."""
        answer: operations.ListRedrivesResponse
        answer = self._call(self._operations.ListRedrives, request)
        return answer

    @staticmethod
    def _check(result: messages.Result, what: str) -> None:
        if result.outcome not in _DONE:
            words = result.message or _WORDS.get(result.outcome, "the cell does not do it")
            raise StackError(f"{what}: {words.rstrip('.')}.")

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
            if code is grpc.StatusCode.UNAVAILABLE:
                raise StackError(
                    f"CellAdmin at {self._address} does not answer, or does not take this "
                    f"certificate ({details})."
                ) from error
            words = (details or code.name).rstrip(".")
            raise StackError(f"CellAdmin at {self._address} says: {words}.") from error
