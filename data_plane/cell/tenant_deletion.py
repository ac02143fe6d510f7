"""What is left of tenants that are being deleted, and the next bit of it to be removed. Pure.

Nobody speaks for such a tenant any more (authentication.py), and nothing can be declared in it.
Each call gives one commit's worth, so that no commit is large; when there is little left, the
tenant goes with it. From states, never from events: whoever asks next goes on from what is there.

    credentials ─► topics ─► what is declared ─► the tenant, with its ACLs, quotas, configurations

Deliberately absent: who asks, and when (data_plane/broker/cell/tenant_deletions.py); data on disk,
which goes as that of any deleted topic; groups, whose offsets expire.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Final

from data_plane.cell.changes import Change, DeleteTopic
from data_plane.cell.credentials import DeleteCredential
from data_plane.cell.declarations import PutDeclaration
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import DEFAULT_TENANT, DELETING_TENANT, DeleteTenant

CREDENTIALS_PER_COMMIT_MAX: Final = 500
TOPICS_PER_COMMIT_MAX: Final = 100
# A topic of more goes by itself.
PARTITIONS_PER_COMMIT_MAX: Final = 1000
DECLARATIONS_AT_THE_END_MAX: Final = 500


def deleting_tenants(image: MetadataImage) -> list[str]:
    """Those of which something is left."""
    return sorted(
        name
        for name, tenant in image.tenants.items()
        if tenant.state == DELETING_TENANT and name != DEFAULT_TENANT
    )


def next_removals(image: MetadataImage) -> list[Change]:
    """The next bit, of one tenant; nothing when no tenant is being deleted."""
    tenants = deleting_tenants(image)
    if not tenants:
        return []
    tenant = tenants[0]
    return (
        _credentials(image, tenant)
        or _topics(image, tenant)
        or _declarations(image, tenant)
        or [DeleteTenant(tenant)]
    )


def _credentials(image: MetadataImage, tenant: str) -> list[Change]:
    logins = (login for login, one in image.credentials.items() if one.tenant == tenant)
    return [DeleteCredential(login) for login in islice(logins, CREDENTIALS_PER_COMMIT_MAX)]


def _topics(image: MetadataImage, tenant: str) -> list[Change]:
    changes: list[Change] = []
    partitions_left = PARTITIONS_PER_COMMIT_MAX
    for topic in islice(image.topics_of(tenant).values(), TOPICS_PER_COMMIT_MAX):
        partitions_left -= len(topic.partitions)
        if changes and partitions_left < 0:
            break
        changes.append(DeleteTopic.of(topic))
    return changes


def _declarations(image: MetadataImage, tenant: str) -> list[Change]:
    """As deleted, until there are few enough that they end with the tenant."""
    there = image.declarations.by_tenant.get(tenant, {})
    if len(there) <= DECLARATIONS_AT_THE_END_MAX:
        return []
    return [
        PutDeclaration(replace(item, specification="", is_deleted=True))
        for item in islice(there.values(), DECLARATIONS_AT_THE_END_MAX)
    ]
