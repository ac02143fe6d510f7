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

from data_plane.broker.admin.declared_quotas import QuotaSpecification, limits_of, quota_name
from data_plane.broker.admin.declared_tenants import TenantSpecification
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.cell.acls import NO_ACLS, Acl
from data_plane.cell.client_quotas import NO_CLIENT_QUOTAS, QuotaEntity
from data_plane.cell.credentials import Credential
from data_plane.cell.declarations import (
    API_OWNER,
    CLIENT_OWNER,
    CREDENTIAL_KIND,
    GRANTS_KIND,
    QUOTA_KIND,
    TENANT_KIND,
    TOPIC_KIND,
    Declaration,
    Declared,
)
from data_plane.cell.grants import acls_of_grants
from data_plane.cell.metadata import BrokerImage, MetadataImage, TopicImage
from data_plane.cell.reassignment import target_of
from data_plane.cell.tenant_quotas import NO_TENANT_QUOTAS
from data_plane.cell.tenants import (
    ACTIVE_TENANT,
    BLOCKED_TENANT,
    DEFAULT_TENANT,
    DELETING_TENANT,
    READ_ONLY_TENANT,
)
from data_plane.cell.virtual_topics import shown_count
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.server.cell_admin_messages import MECHANISMS
from data_plane.server.cell_calls import BadRequest, within

PAGE_MAX: Final = 1000
# A client takes messages of 4 MiB where nobody has told it otherwise.
PAGE_BYTES_MAX: Final = 2 * 1024 * 1024

_OWNER_NUMBERS = {API_OWNER: messages.API, CLIENT_OWNER: messages.CLIENT}
KIND_NUMBERS: Final[Mapping[str, messages.Kind.ValueType]] = {
    TENANT_KIND: messages.KIND_TENANT,
    TOPIC_KIND: messages.KIND_TOPIC,
    CREDENTIAL_KIND: messages.KIND_CREDENTIAL,
    GRANTS_KIND: messages.KIND_GRANTS,
    QUOTA_KIND: messages.KIND_QUOTA,
}
_STATE_NUMBERS: Final = {
    ACTIVE_TENANT: messages.TENANT_ACTIVE,
    READ_ONLY_TENANT: messages.TENANT_READ_ONLY,
    BLOCKED_TENANT: messages.TENANT_BLOCKED,
    DELETING_TENANT: messages.TENANT_DELETING,
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
# Those of a tenant; made for one page.
Items = Callable[[str], Iterable[Made]]


def write_page(image: MetadataImage, request: messages.ListRequest) -> messages.ListResponse:
    """One page of what there is. Raises BadRequest."""
    size = within("page_size", request.page_size, PAGE_MAX, PAGE_MAX)
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
        items = _ITEMS[kind](image)
        for tenant in tenants:
            if after is not None and (kind, tenant) < (after.kind, after.tenant):
                continue
            for made in sorted(items(tenant), key=_place_of):
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


def write_topic(image: MetadataImage, topic: TopicImage) -> messages.Item:
    item, declaration = _resource(image, Declared(TOPIC_KIND, topic.tenant, topic.name))
    item.topic_id = topic.id_bytes
    item.partitions = shown_count(topic)
    item.replication_factor = len(target_of(topic.partitions[0]))
    item.configs.update(topic.configs)
    if declaration is not None:
        specification = TopicSpecification.from_text(declaration.specification)
        spec = item.resource.topic
        spec.partitions = specification.partitions
        spec.replication_factor = specification.replication_factor
        spec.configs.update(specification.configs)
    return item


def _topics(image: MetadataImage, tenant: str) -> Iterator[Made]:
    for name, topic in image.topics_of(tenant).items():
        if not topic.internal and topic.deletion is None:
            yield Place(messages.KIND_TOPIC, tenant, 0, name), partial(write_topic, image, topic)


def _tenants(image: MetadataImage, tenant: str) -> Iterator[Made]:
    def made() -> messages.Item:
        item, declaration = _resource(image, Declared(TENANT_KIND, tenant, ""))
        there = image.tenant(tenant)
        assert there is not None
        _show_tenant(item.tenant_now, TenantSpecification.of(there))
        if declaration is not None:
            specification = TenantSpecification.from_text(declaration.specification)
            _show_tenant(item.resource.tenant_spec, specification)
        return item

    yield Place(messages.KIND_TENANT, tenant, 0, ""), made


def _show_tenant(shown: messages.Tenant, tenant: TenantSpecification) -> None:
    shown.cluster_id = tenant.cluster_id
    # What this version does not know takes nothing in, as one that is read-only.
    shown.state = _STATE_NUMBERS.get(tenant.state, messages.TENANT_READ_ONLY)
    shown.state_reason = tenant.state_reason
    shown.super_users.extend(tenant.super_users)
    if tenant.allows_if_no_acl is not None:
        shown.allow_if_no_acl = tenant.allows_if_no_acl
    if tenant.undelete_ms is not None:
        shown.undelete_ms = tenant.undelete_ms


def _credentials(image: MetadataImage) -> Items:
    # They are kept by login, whichever tenant's they are.
    by_tenant: dict[str, list[Credential]] = {}
    for one in image.credentials.values():
        by_tenant.setdefault(one.tenant, []).append(one)

    def made(credential: Credential) -> messages.Item:
        thing = Declared(CREDENTIAL_KIND, credential.tenant, credential.login)
        item, declaration = _resource(image, thing)
        now = item.credential_now
        now.principal = credential.principal
        now.networks.extend(credential.networks)
        now.is_disabled = credential.is_disabled
        now.expires_at_ms = credential.expires_at_ms
        iterations = {name: one.iterations for name, one in credential.verifiers.items()}
        _show_verifiers(now, iterations)
        if declaration is not None:
            spec, document = item.resource.credential, json.loads(declaration.specification)
            spec.principal = document["principal"]
            spec.networks.extend(document["networks"])
            spec.is_disabled = document["is_disabled"]
            spec.expires_at_ms = document["expires_at_ms"]
            _show_verifiers(spec, document["iterations"])
        return item

    def of(tenant: str) -> Iterator[Made]:
        for credential in by_tenant.get(tenant, ()):
            place = Place(messages.KIND_CREDENTIAL, tenant, 0, credential.login)
            yield place, partial(made, credential)

    return of


def _show_verifiers(shown: messages.Credential, iterations: Mapping[str, int]) -> None:
    """Which there are; of what is in them only what is no secret."""
    for number, mechanism in MECHANISMS.items():
        if mechanism in iterations:
            shown.verifiers.add(
                mechanism=messages.ScramVerifier.Mechanism.ValueType(number),
                iterations=iterations[mechanism],
            )


def _grants(image: MetadataImage, tenant: str) -> Iterator[Made]:
    """Those that are declared, then a client's ACLs one by one."""

    def declared(declaration: Declaration) -> messages.Item:
        item, _ = _resource(image, declaration.declared)
        there = image.acls.get(tenant, NO_ACLS)
        acls = acls_of_grants(declaration.specification)
        _show_acls(item.resource.grants, acls)
        _show_acls(item.grants_now, (acl for acl in acls if acl in there))
        return item

    def of_client(acl: Acl) -> messages.Item:
        item = messages.Item(kind=messages.KIND_GRANTS)
        item.resource.tenant, item.resource.owner = tenant, messages.CLIENT
        _show_acls(item.grants_now, [acl])
        return item

    for thing, declaration in image.declarations.by_tenant.get(tenant, {}).items():
        if thing.kind == GRANTS_KIND:
            place = Place(messages.KIND_GRANTS, tenant, 0, thing.name)
            yield place, partial(declared, declaration)
    for acl in image.acls.get(tenant, NO_ACLS):
        if not image.declarations.granters(tenant, acl):
            name = json.dumps([*acl.pattern, *acl.entry])
            yield Place(messages.KIND_GRANTS, tenant, 1, name), partial(of_client, acl)


def _show_acls(shown: messages.Grants, acls: Iterable[Acl]) -> None:
    for pattern, entry in acls:
        shown.acls.add(
            resource_type=pattern.resource_type,
            pattern_type=pattern.pattern_type,
            name=pattern.name,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission=entry.permission,
        )


def _quotas(image: MetadataImage, tenant: str) -> Iterator[Made]:
    def made(entity: QuotaEntity | None, limits: Mapping[str, float]) -> messages.Item:
        item, declaration = _resource(image, Declared(QUOTA_KIND, tenant, quota_name(entity)))
        item.resource.name = ""
        _show_quota(item.quota_now, QuotaSpecification(entity, limits))
        if declaration is not None:
            specification = QuotaSpecification.from_text(declaration.specification)
            _show_quota(item.resource.quota, specification)
        return item

    there = image.tenant(tenant)
    assert there is not None
    of_clients = image.client_quotas.get(tenant, NO_CLIENT_QUOTAS)
    found: dict[QuotaEntity | None, Mapping[str, float]] = dict(of_clients.items())
    if there.quotas != NO_TENANT_QUOTAS:
        found[None] = limits_of(there.quotas)
    for entity, limits in found.items():
        place = Place(messages.KIND_QUOTA, tenant, 0, quota_name(entity))
        yield place, partial(made, entity, limits)


def _show_quota(shown: messages.Quota, quota: QuotaSpecification) -> None:
    shown.limits.update(quota.limits)
    if quota.entity is not None:
        shown.entity.SetInParent()
        if quota.entity.user is not None:
            shown.entity.user = quota.entity.user
        if quota.entity.client_id is not None:
            shown.entity.client_id = quota.entity.client_id


# By the number of the kind, which is their order.
_ITEMS: Final[Mapping[int, Callable[[MetadataImage], Items]]] = {
    int(messages.KIND_TENANT): lambda image: partial(_tenants, image),
    int(messages.KIND_TOPIC): lambda image: partial(_topics, image),
    int(messages.KIND_CREDENTIAL): _credentials,
    int(messages.KIND_GRANTS): lambda image: partial(_grants, image),
    int(messages.KIND_QUOTA): lambda image: partial(_quotas, image),
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
    image: MetadataImage, brokers: Mapping[int, BrokerImage], controller_id: int
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
        controller_id=controller_id,
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
