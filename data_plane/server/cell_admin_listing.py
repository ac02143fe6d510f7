"""What CellAdmin shows: the image as its messages, page by page.

Items are in the order of kind, tenant and name. A page ends with PAGE_MAX items, or when it has
PAGE_BYTES_MAX. Pages go by what there is when they are asked for: what comes or goes meanwhile is
on none of them or on one, everything else on exactly one.

Pure: no sockets, no threads. It takes a thread to call it, since a page looks through its kind.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.cell.declarations import (
    API_OWNER,
    CLIENT_OWNER,
    TOPIC_KIND,
    Declaration,
    Declared,
)
from data_plane.cell.metadata import BrokerImage, MetadataImage
from data_plane.cell.reassignment import target_of
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.server.cell_admin_messages import BadRequest

PAGE_MAX: Final = 1000
# A client takes messages of 4 MiB where nobody has told it otherwise.
PAGE_BYTES_MAX: Final = 2 * 1024 * 1024

_OWNER_NUMBERS = {API_OWNER: messages.API, CLIENT_OWNER: messages.CLIENT}
KIND_NUMBERS: Final[Mapping[str, messages.Kind.ValueType]] = {
    TOPIC_KIND: messages.KIND_TOPIC,
}


class Place(NamedTuple):
    """Where an item stands in the order of all. `part`: what is declared comes first, where a kind
    has more than that under names of their own."""

    kind: int
    tenant: str
    part: int
    name: str


# An item of a tenant, made when it is on the page.
Made = tuple[Place, Callable[[], messages.Item]]
Items = Callable[[MetadataImage, str], Iterable[Made]]


def write_page(image: MetadataImage, request: messages.ListRequest) -> messages.ListResponse:
    """One page of what there is. Raises BadRequest."""
    size = request.page_size or PAGE_MAX
    if not 1 <= size <= PAGE_MAX:
        raise BadRequest(f"page_size: {size}; give 1 to {PAGE_MAX}, or 0 for the maximum")
    after = _read_token(request.page_token) if request.page_token else None
    if request.tenant and image.tenant(request.tenant) is None:
        raise BadRequest(f"tenant: there is no tenant {request.tenant!r}")
    if request.kind and request.kind not in _ITEMS:
        raise BadRequest(f"kind: {request.kind} is none")
    kinds = [int(request.kind)] if request.kind else sorted(_ITEMS)
    tenants = [request.tenant] if request.tenant else sorted({DEFAULT_TENANT, *image.tenants})
    response = messages.ListResponse(version=image.version)
    bytes_left = PAGE_BYTES_MAX
    last: Place | None = None
    for place, make in _items_after(image, kinds, tenants, after):
        item = make()
        bytes_left -= item.ByteSize()
        if last is not None and (len(response.items) == size or bytes_left < 0):
            response.next_page_token = _write_token(last)
            break
        response.items.append(item)
        last = place
    return response


def _items_after(
    image: MetadataImage, kinds: Iterable[int], tenants: Iterable[str], after: Place | None
) -> Iterator[Made]:
    for kind in kinds:
        for tenant in tenants:
            if after is not None and (kind, tenant) < (after.kind, after.tenant):
                continue
            items = _ITEMS[kind](image, tenant)
            for made in sorted(items, key=_place_of):
                if after is None or made[0] > after:
                    yield made


def _place_of(made: Made) -> Place:
    return made[0]


def _write_token(place: Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read_token(token: str) -> Place:
    try:
        place = json.loads(base64.urlsafe_b64decode(token.encode()))
    except ValueError:
        place = None
    match place:
        case [int(kind), str(tenant), int(part), str(name)]:
            return Place(kind, tenant, part, name)
    raise BadRequest("page_token: is not one that was given with a page")


def _resource(image: MetadataImage, declared: Declared) -> tuple[messages.Item, Declaration | None]:
    """An item with all but its content, and what is declared of it."""
    declaration = image.declarations.of_thing(declared)
    item = messages.Item(kind=KIND_NUMBERS[declared.kind])
    resource = item.resource
    resource.tenant, resource.name = declared.tenant, declared.name
    if declaration is None:
        resource.owner = messages.CLIENT
    else:
        resource.resource_id = declaration.resource_id
        resource.generation = declaration.generation
        resource.owner = _OWNER_NUMBERS[declaration.owner]
    return item, declaration


def _topics(image: MetadataImage, tenant: str) -> Iterator[Made]:
    def made(name: str) -> messages.Item:
        topic = topics[name]
        item, declaration = _resource(image, Declared(TOPIC_KIND, tenant, name))
        item.topic_id = topic.id_bytes
        item.partitions = len(topic.partitions)
        item.replication_factor = len(target_of(topic.partitions[0]))
        item.configs.update(topic.configs)
        if declaration is not None:
            specification = TopicSpecification.from_text(declaration.specification)
            spec = item.resource.topic
            spec.partitions = specification.partitions
            spec.replication_factor = specification.replication_factor
            spec.configs.update(specification.configs)
        return item

    topics = image.topics_of(tenant)
    for name, topic in topics.items():
        if not topic.internal:
            yield Place(messages.KIND_TOPIC, tenant, 0, name), partial(made, name)


# By the number of the kind, which is their order.
_ITEMS: Final[Mapping[int, Items]] = {
    int(messages.KIND_TOPIC): _topics,
}


def write_digest(image: MetadataImage) -> messages.DigestResponse:
    declarations = image.declarations
    total = declarations.digest()
    return messages.DigestResponse(
        digest=total.to_bytes(),
        resources=total.resources,
        version=image.version,
        kinds=[
            messages.KindDigest(
                kind=KIND_NUMBERS[kind], digest=of_kind.to_bytes(), resources=of_kind.resources
            )
            for kind, of_kind in sorted(declarations.digests.items())
            if of_kind.resources
        ],
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
