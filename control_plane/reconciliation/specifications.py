"""Rows as the resources of CellAdmin. Pure: the same row gives the same content, so that a repeated
apply changes nothing, and a digest over rows equals the cell's.

What is not in a row and is declared all the same is here: that a deleted topic can be had back.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from control_plane.access.facade import (
    OPERATION_NUMBERS,
    OPERATIONS,
    PATTERN_TYPE_NUMBERS,
    RESOURCE_TYPE_NUMBERS,
)
from control_plane.access.models import ApiKey, Grant
from control_plane.accounts.models import Organization, OrganizationState
from control_plane.messaging.facade import UNDELETE_DAYS
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.quotas.facade import limits_of
from control_plane.quotas.models import Plan, TenantQuota
from data_plane.contract import cell_admin_pb2 as messages

UNDELETE_MS: Final = "tidewheel.undelete.ms"
UNDELETE_MS_DEFAULT: Final = str(UNDELETE_DAYS * 24 * 3600 * 1000)
# The cell has 256 for a state and its reason.
STATE_REASON_CHARACTERS_MAX: Final = 240
ALLOW: Final = 3

# The cell's names of limits; those that it has none of are not told.
CELL_LIMIT_NAMES: Final[Mapping[str, str]] = {
    "produce_bytes_per_second": "produce_bytes_per_s",
    "consume_bytes_per_second": "consume_bytes_per_s",
    "requests_per_second": "requests_per_s",
    "connections": "connections",
    "partitions": "partitions",
    "storage_bytes": "storage_bytes",
    "groups": "groups",
    "message_bytes": "message_bytes",
}
_STATES: Final = {
    OrganizationState.TRIAL: messages.TENANT_ACTIVE,
    OrganizationState.ACTIVE: messages.TENANT_ACTIVE,
    OrganizationState.SUSPENDED: messages.TENANT_READ_ONLY,
    OrganizationState.DELETED: messages.TENANT_BLOCKED,
}
_MECHANISMS: Final = {
    "SCRAM-SHA-256": messages.ScramVerifier.SCRAM_SHA_256,
    "SCRAM-SHA-512": messages.ScramVerifier.SCRAM_SHA_512,
}


def tenant_resource(organization: Organization) -> messages.Resource:
    is_deleted = organization.state == OrganizationState.DELETED
    reason = "The tenant was deleted." if is_deleted else organization.state_reason
    return messages.Resource(
        resource_id=organization.id,
        generation=organization.generation,
        owner=messages.API,
        tenant=organization.slug,
        tenant_spec=messages.Tenant(
            cluster_id=organization.id,
            state=_STATES[OrganizationState(organization.state)],
            state_reason=reason[:STATE_REASON_CHARACTERS_MAX],
        ),
    )


def topic_resource(organization: Organization, topic: Topic) -> messages.Resource:
    is_clients = topic.managed_by == ManagedBy.CLIENT
    resource = messages.Resource(
        resource_id=topic.resource_id,
        generation=topic.generation,
        owner=messages.CLIENT if is_clients else messages.API,
        tenant=organization.slug,
        name=topic.name,
        topic=messages.Topic(
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs={UNDELETE_MS: UNDELETE_MS_DEFAULT} | topic.configs,
        ),
    )
    if topic.takes_over and topic.kafka_topic_id is not None:
        resource.take_over_topic_id = topic.kafka_topic_id.bytes
    return resource


def login_of(organization: Organization, key: ApiKey) -> str:
    """The name that a Kafka client logs in with; its password is the key's secret."""
    return f"{key.id}@{organization.slug}"


def credential_resource(organization: Organization, key: ApiKey) -> messages.Resource:
    expires_at = key.expires_at
    return messages.Resource(
        resource_id=key.id,
        generation=key.generation,
        owner=messages.API,
        tenant=organization.slug,
        name=login_of(organization, key),
        credential=messages.Credential(
            principal=key.service_account_id,
            verifiers=[
                _verifier(mechanism, kept) for mechanism, kept in sorted(key.verifiers.items())
            ],
            networks=key.networks,
            is_disabled=key.revoked_at is not None,
            expires_at_ms=0 if expires_at is None else int(expires_at.timestamp() * 1000),
        ),
    )


def _verifier(mechanism: str, kept: Mapping[str, Any]) -> messages.ScramVerifier:
    return messages.ScramVerifier(
        mechanism=_MECHANISMS[mechanism],
        salt=b64decode(kept["salt"]),
        stored_key=b64decode(kept["stored_key"]),
        server_key=b64decode(kept["server_key"]),
        iterations=kept["iterations"],
    )


def grant_resource(organization: Organization, grant: Grant) -> messages.Resource:
    return messages.Resource(
        resource_id=grant.id,
        generation=grant.generation,
        owner=messages.API,
        tenant=organization.slug,
        name=grant.id,
        grants=messages.Grants(
            acls=[
                messages.Acl(
                    resource_type=RESOURCE_TYPE_NUMBERS[grant.resource_type],
                    pattern_type=PATTERN_TYPE_NUMBERS[grant.pattern_type],
                    name=grant.resource_name,
                    principal=f"User:{grant.service_account_id}",
                    host="*",
                    operation=OPERATION_NUMBERS[operation],
                    permission=ALLOW,
                )
                for operation in OPERATIONS[grant.role, grant.resource_type]
            ]
        ),
    )


def quota_resource(organization: Organization, plan: Plan, quota: TenantQuota) -> messages.Resource:
    """A tenant's limits as a whole, which are nobody else's. The cell knows no limit of 0: it gets
    the next one, and what is made here is refused here."""
    limits = limits_of(plan, quota)
    return messages.Resource(
        resource_id=quota.id,
        generation=quota.generation,
        owner=messages.API,
        tenant=organization.slug,
        take_over=True,
        quota=messages.Quota(
            limits={cell: float(max(1, limits[own])) for own, cell in CELL_LIMIT_NAMES.items()}
        ),
    )


def resource_of(organization: Organization, row: object) -> messages.Resource:
    """Any of them. `organization.plan` is loaded where the row is a quota."""
    match row:
        case Organization():
            return tenant_resource(row)
        case Topic():
            return topic_resource(organization, row)
        case ApiKey():
            return credential_resource(organization, row)
        case Grant():
            return grant_resource(organization, row)
        case TenantQuota():
            return quota_resource(organization, organization.plan, row)
    raise AssertionError(f"{type(row).__name__} is not declared to cells")
