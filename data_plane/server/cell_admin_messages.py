"""What CellAdmin is asked: its messages as the broker's values; bad input is refused here.

Pure: no sockets, no threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.broker.admin.declared import Removal, Resource, Result, Specification
from data_plane.broker.admin.declared_credentials import CredentialSpecification
from data_plane.broker.admin.declared_grants import GrantsSpecification
from data_plane.broker.admin.declared_quotas import QuotaSpecification, quota_name
from data_plane.broker.admin.declared_tenants import TenantSpecification
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.cell.acls import Acl, AclEntry, ResourcePattern
from data_plane.cell.client_quotas import QuotaEntity
from data_plane.cell.credentials import ScramVerifier
from data_plane.cell.declarations import (
    API_OWNER,
    CLIENT_OWNER,
    RESOURCE_ID_CHARACTERS_MAX,
)
from data_plane.cell.grants import ACLS_OF_GRANTS_MAX
from data_plane.cell.tenants import ACTIVE_TENANT, BLOCKED_TENANT, READ_ONLY_TENANT
from data_plane.cell.virtual_topics import SOURCE_PROPERTY
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.server.cell_calls import BadRequest

BATCH_MAX: Final = 1000
TOPIC_ID_BYTES: Final = 16

# Topics and logins have bounds of their own, which are lower.
NAME_CHARACTERS_MAX: Final = 1024

MECHANISMS: Final[Mapping[int, str]] = {
    int(messages.ScramVerifier.SCRAM_SHA_256): "SCRAM-SHA-256",
    int(messages.ScramVerifier.SCRAM_SHA_512): "SCRAM-SHA-512",
}
_STATES = {
    messages.TENANT_STATE_UNSPECIFIED: ACTIVE_TENANT,
    messages.TENANT_ACTIVE: ACTIVE_TENANT,
    messages.TENANT_READ_ONLY: READ_ONLY_TENANT,
    messages.TENANT_BLOCKED: BLOCKED_TENANT,
}
_RESOURCE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_OWNERS = {
    messages.OWNER_UNSPECIFIED: API_OWNER,
    messages.API: API_OWNER,
    messages.CLIENT: CLIENT_OWNER,
}


def read_apply(request: messages.ApplyRequest) -> list[Resource]:
    """Raises BadRequest."""
    _check_batch("resources", request.resources)
    resources = [
        _read_resource(f"resources[{index}]", resource)
        for index, resource in enumerate(request.resources)
    ]
    _check_distinct("resources", [one.resource_id for one in resources], "resource_id")
    _check_distinct("resources", [one.thing for one in resources], "tenant and name")
    return resources


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


def _read_resource(path: str, resource: messages.Resource) -> Resource:
    _check_resource_id(path, resource.resource_id)
    _check_generation(path, resource.generation)
    owner = _OWNERS.get(resource.owner)
    if owner is None:
        raise BadRequest(f"{path}.owner: {resource.owner} is none")
    if not resource.tenant:
        raise BadRequest(f"{path}.tenant: is missing")
    field_name = resource.WhichOneof("spec")
    if field_name is None:
        raise BadRequest(f"{path}: has no specification: one of {', '.join(_READERS)}")
    kind, read, has_name = _READERS[field_name]
    name = resource.name
    if has_name and not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise BadRequest(f"{path}.name: has {len(name)} characters, not 1 to {NAME_CHARACTERS_MAX}")
    if not has_name and name:
        raise BadRequest(f"{path}.name: a {kind} has none")
    specification, take_over = read(f"{path}.{field_name}", resource)
    if isinstance(specification, QuotaSpecification):
        name = quota_name(specification.entity)
    return Resource(
        resource.resource_id,
        resource.generation,
        resource.tenant,
        name,
        specification,
        owner,
        take_over,
    )


# What is declared, and whether it is to be taken over.
Read = tuple[Specification, UUID | bool]


def _read_topic(path: str, resource: messages.Resource) -> Read:
    topic = resource.topic
    least = 0 if topic.configs.get(SOURCE_PROPERTY) else 1
    if topic.partitions < least:
        raise BadRequest(f"{path}.partitions: {topic.partitions} is less than {least}")
    if not 0 <= topic.replication_factor <= 32767:
        raise BadRequest(
            f"{path}.replication_factor: {topic.replication_factor} is neither 0, for the "
            "cell's default, nor 1 to 32767"
        )
    # Which field is to be taken over is said beside the specification.
    resource_path, topic_id = path.rpartition(".")[0], resource.take_over_topic_id
    if len(topic_id) not in (0, TOPIC_ID_BYTES):
        raise BadRequest(
            f"{resource_path}.take_over_topic_id: has {len(topic_id)} bytes; a topic id has "
            f"{TOPIC_ID_BYTES}"
        )
    if resource.take_over:
        raise BadRequest(f"{resource_path}.take_over: a topic is taken over by take_over_topic_id")
    specification = TopicSpecification(
        topic.partitions, topic.replication_factor, dict(topic.configs)
    )
    return specification, UUID(bytes=topic_id) if topic_id else False


def _read_tenant(path: str, resource: messages.Resource) -> Read:
    tenant = resource.tenant_spec
    state = _STATES.get(tenant.state)
    if state is None:
        raise BadRequest(f"{path}.state: {tenant.state} cannot be declared")
    everybody = tenant.allow_if_no_acl if tenant.HasField("allow_if_no_acl") else None
    users = tuple(tenant.super_users)
    undelete_ms = tenant.undelete_ms if tenant.HasField("undelete_ms") else None
    specification = TenantSpecification(
        tenant.cluster_id, state, tenant.state_reason, everybody, users, undelete_ms
    )
    return specification, resource.take_over


def _read_credential(path: str, resource: messages.Resource) -> Read:
    credential = resource.credential
    if not credential.principal:
        raise BadRequest(f"{path}.principal: is missing")
    verifiers: dict[str, ScramVerifier] = {}
    for index, verifier in enumerate(credential.verifiers):
        mechanism = MECHANISMS.get(verifier.mechanism)
        if mechanism is None or mechanism in verifiers:
            what = "is none" if mechanism is None else "is there before"
            raise BadRequest(f"{path}.verifiers[{index}].mechanism: {verifier.mechanism} {what}")
        verifiers[mechanism] = ScramVerifier(
            verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations
        )
    specification = CredentialSpecification(
        credential.principal,
        verifiers,
        tuple(credential.networks),
        credential.is_disabled,
        credential.expires_at_ms,
    )
    return specification, resource.take_over


def _read_grants(path: str, resource: messages.Resource) -> Read:
    acls = [
        Acl(
            ResourcePattern(acl.resource_type, acl.pattern_type, acl.name),
            AclEntry(acl.principal, acl.host, acl.operation, acl.permission),
        )
        for acl in resource.grants.acls
    ]
    if not 1 <= len(acls) <= ACLS_OF_GRANTS_MAX:
        raise BadRequest(f"{path}.acls: {len(acls)} of them; give 1 to {ACLS_OF_GRANTS_MAX}")
    _check_distinct(f"{path}.acls", acls, "content")
    return GrantsSpecification(frozenset(acls)), resource.take_over


def _read_quota(path: str, resource: messages.Resource) -> Read:
    quota, entity = resource.quota, None
    if not quota.limits:
        raise BadRequest(f"{path}.limits: is missing")
    if quota.HasField("entity"):
        user = quota.entity.user if quota.entity.HasField("user") else None
        client_id = quota.entity.client_id if quota.entity.HasField("client_id") else None
        if user is None and client_id is None:
            raise BadRequest(f"{path}.entity: has neither user nor client_id")
        entity = QuotaEntity(user, client_id)
    return QuotaSpecification(entity, dict(quota.limits)), resource.take_over


class _Reader(NamedTuple):
    kind: str
    read: Callable[[str, messages.Resource], Read]
    has_name: bool = True


# By the field of the specification.
_READERS: Final[Mapping[str, _Reader]] = {
    "tenant_spec": _Reader("tenant", _read_tenant, has_name=False),
    "topic": _Reader("topic", _read_topic),
    "credential": _Reader("credential", _read_credential),
    "grants": _Reader("grants", _read_grants),
    "quota": _Reader("quota", _read_quota, has_name=False),
}


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
