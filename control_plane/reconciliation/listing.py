"""What a cell has, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import grpc

from control_plane.cells.connections import CellRefused, CellUnavailable
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract import cell_operations_pb2 as operations_messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub

PAGE_MAX: Final = 1000


def pages_of(
    admin: CellAdminStub,
    tenant: str = "",
    kind: messages.Kind.ValueType = messages.KIND_UNSPECIFIED,
    *,
    at_least: int = 0,
) -> Iterator[messages.ListResponse]:
    """All pages, of a tenant or of all, as they were in a version or a later one. Any broker
    answers, and one that is cut off knows older versions alone. Raises CellError."""
    after = ""
    while True:
        request = messages.ListRequest(
            tenant=tenant, kind=kind, page_size=PAGE_MAX, page_token=after
        )
        page = admin.List(request)
        if page.version < at_least:
            words = f"a broker of the cell is behind: it shows version {page.version}"
            raise CellUnavailable(
                grpc.StatusCode.UNAVAILABLE, f"{words}, and another one {at_least}"
            )
        yield page
        after = page.next_page_token
        if not after:
            return


def items_of(
    admin: CellAdminStub,
    tenant: str,
    kind: messages.Kind.ValueType = messages.KIND_UNSPECIFIED,
    *,
    at_least: int = 0,
) -> Iterator[messages.Item]:
    """Those of a tenant; none where the cell has no such tenant. Raises CellError."""
    try:
        for page in pages_of(admin, tenant, kind, at_least=at_least):
            yield from page.items
    except CellRefused as refusal:
        if not says_no_such_tenant(refusal):
            raise


def says_no_such_tenant(refusal: CellRefused) -> bool:
    """Whether that is why a List was refused: the field comes first in the cell's words."""
    is_invalid = refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    return is_invalid and refusal.detail.startswith("tenant:")


def topic_id_of(
    admin: CellAdminStub, operations: CellOperationsStub, tenant: str, name: str
) -> bytes | None:
    """Of the topic of this name, be it deleted, as long as it can come back."""
    for item in items_of(admin, tenant, messages.KIND_TOPIC):
        if item.resource.name == name:
            return item.topic_id
    for topic in deleted_topics_of(operations, tenant):
        if topic.name == name:
            return topic.topic_id
    return None


def deleted_topics_of(
    operations: CellOperationsStub, tenant: str
) -> Iterator[operations_messages.DeletedTopic]:
    """Those that the cell has kept. Raises CellError."""
    request = operations_messages.ListDeletedTopicsRequest(tenant=tenant)
    while True:
        page = operations.ListDeletedTopics(request)
        yield from page.topics
        if not page.has_more:
            return
        request.after_tenant, request.after_name = page.topics[-1].tenant, page.topics[-1].name
