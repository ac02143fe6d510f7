"""What a cell has, as rows: for what clients made, and for what was declared before this database
was restored from a backup. Pure; who calls it holds the tenant's lock and saves the row.

A cell keeps any character in a configuration, and Postgres every one but NUL. A row shows another
one in its place, and its spec leaves such a configuration to the clients: so it is not changed when
the topic is taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from control_plane.access.models import ApiKey
from control_plane.accounts.logic import PURGE_GRACE_DAYS
from control_plane.accounts.models import Organization, OrganizationState
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.quotas.facade import limits_of
from control_plane.quotas.models import TenantQuota
from control_plane.reconciliation.specifications import (
    CELL_LIMIT_NAMES,
    UNDELETE_MS,
    UNDELETE_MS_DEFAULT,
)
from control_plane.tenancy.models import DeclaredModel
from data_plane.contract import cell_admin_pb2 as messages

HAD_BACK: Final = "It was deleted and had back after the backup that this database is from."
NUL: Final = "\0"
NUL_SHOWN: Final = "\N{REPLACEMENT CHARACTER}"


def shown(text: str) -> str:
    """As Postgres takes it."""
    return text.replace(NUL, NUL_SHOWN)


def observe_topic(topic: Topic, item: messages.Item) -> None:
    """What the cell says of it, beside what is declared."""
    topic.kafka_topic_id = UUID(bytes=item.topic_id)
    topic.observed = observed(item)


def observed(item: messages.Item) -> dict[str, Any]:
    return {
        "partitions": item.partitions,
        "replication_factor": item.replication_factor,
        "configs": {shown(key): shown(value) for key, value in sorted(item.configs.items())},
    }


def copy_clients_topic(topic: Topic, item: messages.Item) -> None:
    """The spec of what clients manage is a copy of what they made."""
    observe_topic(topic, item)
    topic.managed_by = ManagedBy.CLIENT
    topic.partitions = item.partitions
    topic.replication_factor = item.replication_factor
    topic.configs = _storable(item.configs)


def _storable(configs: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value for key, value in sorted(configs.items()) if NUL not in key and NUL not in value
    }


def take_over(organization: Organization, row: DeclaredModel, item: messages.Item) -> None:
    """The row becomes what the cell has been declared; the generation is the cell's."""
    resource = item.resource
    row.generation = resource.generation
    row.settle()
    match row:
        case Topic():
            _take_over_topic(row, item)
        case Organization():
            _take_over_tenant(row, resource.tenant_spec)
        case ApiKey():
            _take_over_key(row, resource.credential)
        case TenantQuota():
            _take_over_limits(organization, row, resource.quota)


def take_over_end(row: DeclaredModel) -> None:
    """What the cell has deleted has ended here, too: nothing accepts a key that Kafka refuses, or
    serves a tenant that was purged. The caller deletes what keeps no row."""
    now = timezone.now()
    match row:
        case ApiKey():
            row.revoked_at = row.revoked_at or now
            row.deleted_at = row.deleted_at or now
            row.settle()
        case Organization():
            _end_tenant(row)


def _end_tenant(organization: Organization) -> None:
    organization.state = OrganizationState.DELETED
    if organization.purge_after is None:
        organization.purge_after = timezone.now() + timedelta(days=PURGE_GRACE_DAYS)


def _take_over_topic(topic: Topic, item: messages.Item) -> None:
    resource = item.resource
    observe_topic(topic, item)
    # It may have been had back since.
    topic.incarnation = max(topic.incarnation, topic.incarnation_of(resource.resource_id))
    topic.managed_by = ManagedBy.CLIENT if resource.owner == messages.CLIENT else ManagedBy.API
    topic.partitions = resource.topic.partitions
    topic.replication_factor = resource.topic.replication_factor
    configs = dict(resource.topic.configs)
    if configs.get(UNDELETE_MS) == UNDELETE_MS_DEFAULT:
        del configs[UNDELETE_MS]
    topic.configs = _storable(configs)
    topic.takes_over = False
    topic.purge_after = topic.deleted_at = None


def _take_over_tenant(organization: Organization, tenant: messages.Tenant) -> None:
    if tenant.state == messages.TENANT_BLOCKED:
        _end_tenant(organization)
    elif tenant.state == messages.TENANT_READ_ONLY:
        organization.state = OrganizationState.SUSPENDED
        organization.state_reason = tenant.state_reason
    elif organization.state not in (OrganizationState.TRIAL, OrganizationState.ACTIVE):
        organization.state = OrganizationState.ACTIVE
        organization.state_reason = ""


def _take_over_key(key: ApiKey, credential: messages.Credential) -> None:
    key.networks = list(credential.networks)
    expires_at_ms = credential.expires_at_ms
    key.expires_at = datetime.fromtimestamp(expires_at_ms / 1000, UTC) if expires_at_ms else None
    if credential.is_disabled and key.revoked_at is None:
        key.revoked_at = timezone.now()


def _take_over_limits(organization: Organization, quota: TenantQuota, told: messages.Quota) -> None:
    present = limits_of(organization.plan, quota)
    for own, cell in CELL_LIMIT_NAMES.items():
        limit = int(told.limits.get(cell, 0))
        if limit and limit != max(1, present[own]):
            setattr(quota, own, limit)
