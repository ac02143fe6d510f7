"""CellAdmin's messages and the broker's values, there and back; bad input is refused here.

Pure: no sockets, no threads.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.broker.admin.declared_topics import DeclaredTopic, Removal, Result
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.cell.declarations import (
    API_OWNER,
    CLIENT_OWNER,
    RESOURCE_ID_CHARACTERS_MAX,
    TOPIC_KIND,
    Declared,
)
from data_plane.cell.metadata import BrokerImage, MetadataImage, TopicImage
from data_plane.cell.reassignment import target_of
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.contract import cell_admin_pb2 as messages

BATCH_MAX: Final = 1000
PAGE_MAX: Final = 1000
TOPIC_ID_BYTES: Final = 16

_RESOURCE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_OWNERS = {
    messages.OWNER_UNSPECIFIED: API_OWNER,
    messages.API: API_OWNER,
    messages.CLIENT: CLIENT_OWNER,
}
_OWNER_NUMBERS = {API_OWNER: messages.API, CLIENT_OWNER: messages.CLIENT}


class BadRequest(ValueError):
    """A field of a request, by its path, and what is wrong with it."""


def read_apply(request: messages.ApplyRequest) -> list[DeclaredTopic]:
    """Raises BadRequest."""
    _check_batch("resources", request.resources)
    topics = [
        _read_resource(f"resources[{index}]", resource)
        for index, resource in enumerate(request.resources)
    ]
    _check_distinct("resources", [topic.resource_id for topic in topics], "resource_id")
    _check_distinct("resources", [topic.thing for topic in topics], "tenant and name")
    return topics


def read_delete(request: messages.DeleteRequest) -> list[Removal]:
    """Raises BadRequest."""
    _check_batch("deletions", request.deletions)
    for index, deletion in enumerate(request.deletions):
        path = f"deletions[{index}]"
        _check_resource_id(path, deletion.resource_id)
        _check_generation(path, deletion.generation)
    removals = [Removal(item.resource_id, item.generation, item.keep) for item in request.deletions]
    _check_distinct("deletions", [removal.resource_id for removal in removals], "resource_id")
    return removals


def write_result(result: Result) -> messages.Result:
    return messages.Result(
        resource_id=result.resource_id,
        outcome=messages.Result.Outcome.ValueType(int(result.outcome)),
        generation=result.generation,
        error_code=int(result.code),
        message=result.message,
    )


def _read_resource(path: str, resource: messages.Resource) -> DeclaredTopic:
    _check_resource_id(path, resource.resource_id)
    _check_generation(path, resource.generation)
    owner = _OWNERS.get(resource.owner)
    if owner is None:
        raise BadRequest(f"{path}.owner: {resource.owner} is none")
    for field_name, text in (("tenant", resource.tenant), ("name", resource.name)):
        if not text:
            raise BadRequest(f"{path}.{field_name}: is missing")
    if resource.WhichOneof("spec") != "topic":
        raise BadRequest(f"{path}.topic: is missing; nothing else can be declared")
    topic = resource.topic
    if topic.partitions < 1:
        raise BadRequest(f"{path}.topic.partitions: {topic.partitions} is less than 1")
    if not 0 <= topic.replication_factor <= 32767:
        raise BadRequest(
            f"{path}.topic.replication_factor: {topic.replication_factor} is neither 0, for the "
            "cell's default, nor 1 to 32767"
        )
    topic_id = resource.take_over_topic_id
    if len(topic_id) not in (0, TOPIC_ID_BYTES):
        raise BadRequest(
            f"{path}.take_over_topic_id: has {len(topic_id)} bytes; a topic id has {TOPIC_ID_BYTES}"
        )
    specification = TopicSpecification(
        topic.partitions, topic.replication_factor, dict(topic.configs)
    )
    return DeclaredTopic(
        resource.resource_id,
        resource.generation,
        resource.tenant,
        resource.name,
        specification,
        owner,
        UUID(bytes=topic_id) if topic_id else None,
    )


def _check_batch(path: str, items: Sequence[object]) -> None:
    if not 1 <= len(items) <= BATCH_MAX:
        raise BadRequest(f"{path}: {len(items)} of them; give 1 to {BATCH_MAX}")


def _check_resource_id(path: str, resource_id: str) -> None:
    if not _RESOURCE_ID.fullmatch(resource_id) or len(resource_id) > RESOURCE_ID_CHARACTERS_MAX:
        raise BadRequest(
            f"{path}.resource_id: {resource_id[:RESOURCE_ID_CHARACTERS_MAX]!r} is not 1 to "
            f"{RESOURCE_ID_CHARACTERS_MAX} letters, digits, hyphens and underscores"
        )


def _check_generation(path: str, generation: int) -> None:
    if generation < 1:
        raise BadRequest(f"{path}.generation: {generation} is less than 1")


def _check_distinct(path: str, keys: Sequence[object], what: str) -> None:
    first_of: dict[object, int] = {}
    for index, key in enumerate(keys):
        first = first_of.setdefault(key, index)
        if first != index:
            raise BadRequest(f"{path}[{index}]: has the {what} of {path}[{first}]")


# What there is.


class _Place(NamedTuple):
    """Where an item stands in the order of all."""

    tenant: str
    name: str


def write_page(image: MetadataImage, request: messages.ListRequest) -> messages.ListResponse:
    """One page of all topics but the broker's own. Raises BadRequest."""
    size = request.page_size or PAGE_MAX
    if not 1 <= size <= PAGE_MAX:
        raise BadRequest(f"page_size: {size}; give 1 to {PAGE_MAX}, or 0 for the maximum")
    after = _read_token(request.page_token) if request.page_token else None
    if request.tenant and image.tenant(request.tenant) is None:
        raise BadRequest(f"tenant: there is no tenant {request.tenant!r}")
    wanted = [request.tenant] if request.tenant else sorted({DEFAULT_TENANT, *image.tenants})
    # One more tells whether there is another page.
    page = list(islice(_items_after(image, wanted, after), size + 1))
    token = ""
    if len(page) > size:
        del page[size:]
        token = _write_token(page[-1][0])
    return messages.ListResponse(
        items=[_write_item(image, place, topic) for place, topic in page],
        next_page_token=token,
        version=image.version,
    )


def _items_after(
    image: MetadataImage,
    tenants: Iterable[str],
    after: _Place | None,
) -> Iterator[tuple[_Place, TopicImage]]:
    for tenant in tenants:
        if after is not None and tenant < after.tenant:
            continue
        for name, topic in sorted(image.topics_of(tenant).items()):
            place = _Place(tenant, name)
            if not topic.internal and (after is None or place > after):
                yield place, topic


def _write_item(image: MetadataImage, place: _Place, topic: TopicImage) -> messages.Item:
    declaration = image.declarations.by_thing.get(Declared(TOPIC_KIND, *place))
    replication_factor = len(target_of(topic.partitions[0]))
    item = messages.Item(
        topic_id=topic.id_bytes,
        partitions=len(topic.partitions),
        replication_factor=replication_factor,
        configs=dict(topic.configs),
    )
    resource = item.resource
    resource.tenant, resource.name = place
    if declaration is None:
        resource.owner = messages.CLIENT
    else:
        specification = TopicSpecification.from_text(declaration.specification)
        resource.resource_id = declaration.resource_id
        resource.generation = declaration.generation
        resource.owner = _OWNER_NUMBERS[declaration.owner]
        resource.topic.partitions = specification.partitions
        resource.topic.replication_factor = specification.replication_factor
        resource.topic.configs.update(specification.configs)
    return item


def _write_token(place: _Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read_token(token: str) -> _Place:
    try:
        place = json.loads(base64.urlsafe_b64decode(token.encode()))
    except ValueError:
        place = None
    match place:
        case [str(tenant), str(name)]:
            return _Place(tenant, name)
    raise BadRequest("page_token: is not one that was given with a page")


def write_digest(image: MetadataImage) -> messages.DigestResponse:
    declarations = image.declarations
    return messages.DigestResponse(
        digest=declarations.digest(), resources=len(declarations.by_thing), version=image.version
    )


def write_cell(
    image: MetadataImage, brokers: Mapping[int, BrokerImage]
) -> messages.DescribeCellResponse:
    """`brokers`: all, also one that is alone and registered nowhere."""
    partitions = dict.fromkeys(brokers, 0)
    leaders = dict.fromkeys(brokers, 0)
    for topic in image.topics_by_id.values():
        for partition in topic.partitions:
            for node_id in partition.replicas:
                partitions[node_id] = partitions.get(node_id, 0) + 1
            if partition.leader in leaders:
                leaders[partition.leader] += 1
    return messages.DescribeCellResponse(
        cluster_id=image.cluster_id,
        version=image.version,
        features=dict(image.features),
        brokers=[
            messages.Broker(
                node_id=node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack or "",
                is_fenced=broker.is_fenced,
                is_draining=broker.is_draining,
                partitions=partitions[node_id],
                leaders=leaders[node_id],
            )
            for node_id, broker in sorted(brokers.items())
        ],
    )
