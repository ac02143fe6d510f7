"""The digests of CellAdmin.Digest, computed from resources as they are declared.

    kinds = digests_of(resources)                 all that are not deleted
    kinds[KIND_TOPIC] == answer.kinds[…].digest

A digest is the sum, modulo 2^256, of a SHA-256 for each resource over its id, generation, owner,
kind, tenant, name and content, each with its length before it. The content is canonical JSON; that
of a credential has a hash in the place of its verifiers.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from data_plane.contract import cell_admin_pb2 as messages

_MODULUS = 1 << 256
_KINDS: Mapping[str, tuple[str, messages.Kind.ValueType]] = {
    "tenant_spec": ("tenant", messages.KIND_TENANT),
    "topic": ("topic", messages.KIND_TOPIC),
    "credential": ("credential", messages.KIND_CREDENTIAL),
    "grants": ("grants", messages.KIND_GRANTS),
    "quota": ("quota", messages.KIND_QUOTA),
}
_STATES = {
    messages.TENANT_STATE_UNSPECIFIED: "active",
    messages.TENANT_ACTIVE: "active",
    messages.TENANT_READ_ONLY: "read-only",
    messages.TENANT_BLOCKED: "blocked",
}
_MECHANISMS = {
    messages.ScramVerifier.SCRAM_SHA_256: "SCRAM-SHA-256",
    messages.ScramVerifier.SCRAM_SHA_512: "SCRAM-SHA-512",
}


def digests_of(resources: Iterable[messages.Resource]) -> dict[messages.Kind.ValueType, bytes]:
    """By kind, as the cell has them once these and no others are declared."""
    totals: dict[messages.Kind.ValueType, int] = {}
    for resource in resources:
        _, number = _KINDS[str(resource.WhichOneof("spec"))]
        totals[number] = (totals.get(number, 0) + _number_of(resource)) % _MODULUS
    return {kind: total.to_bytes(32, "big") for kind, total in totals.items()}


def _number_of(resource: messages.Resource) -> int:
    field = str(resource.WhichOneof("spec"))
    kind, _ = _KINDS[field]
    name = resource.name
    if field == "quota" and resource.quota.HasField("entity"):
        name = _json(_entity(resource.quota))
    owner = "client" if resource.owner == messages.CLIENT else "api"
    content = _CONTENTS[field](resource)
    texts = (resource.resource_id, str(resource.generation), owner, kind, resource.tenant, name)
    digest = hashlib.sha256()
    for text in (*texts, content):
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return int.from_bytes(digest.digest(), "big")


def _json(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _tenant(resource: messages.Resource) -> str:
    tenant = resource.tenant_spec
    everybody = tenant.allow_if_no_acl if tenant.HasField("allow_if_no_acl") else None
    content: dict[str, Any] = {
        "cluster_id": tenant.cluster_id,
        "state": _STATES[tenant.state],
        "state_reason": tenant.state_reason,
        "allows_if_no_acl": everybody,
        "super_users": list(tenant.super_users),
    }
    if tenant.HasField("undelete_ms"):
        content["undelete_ms"] = tenant.undelete_ms
    return _json(content)


def _topic(resource: messages.Resource) -> str:
    topic = resource.topic
    return _json(
        {
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "configs": dict(topic.configs),
        }
    )


def _credential(resource: messages.Resource) -> str:
    credential = resource.credential
    verifiers = sorted(
        [
            _MECHANISMS[one.mechanism],
            *(b64encode(key).decode() for key in (one.salt, one.stored_key, one.server_key)),
            one.iterations,
        ]
        for one in credential.verifiers
    )
    hashed = hashlib.sha256(_json(verifiers).encode()).hexdigest() if verifiers else None
    return _json(
        {
            "principal": credential.principal,
            "iterations": {_MECHANISMS[v.mechanism]: v.iterations for v in credential.verifiers},
            "verifiers_sha256": hashed,
            "networks": list(credential.networks),
            "is_disabled": credential.is_disabled,
            "expires_at_ms": credential.expires_at_ms,
        }
    )


def _grants(resource: messages.Resource) -> str:
    acls = [
        [
            acl.resource_type,
            acl.pattern_type,
            acl.name,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission,
        ]
        for acl in resource.grants.acls
    ]
    return _json({"acls": sorted(acls)})


def _quota(resource: messages.Resource) -> str:
    quota = resource.quota
    entity = _entity(quota) if quota.HasField("entity") else None
    return _json({"entity": entity, "limits": dict(quota.limits)})


def _entity(quota: messages.Quota) -> list[str | None]:
    entity = quota.entity
    return [
        entity.user if entity.HasField("user") else None,
        entity.client_id if entity.HasField("client_id") else None,
    ]


_CONTENTS = {
    "tenant_spec": _tenant,
    "topic": _topic,
    "credential": _credential,
    "grants": _grants,
    "quota": _quota,
}
