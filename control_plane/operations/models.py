"""What writes leave behind: audit, outbox, answers of idempotent requests; and long operations.

Invariants
- An outbox entry is written in the transaction that changes what it is about. Its sequence counts
  from 1 for each tenant without holes, since it is taken from the tenant's row under its lock, and
  comes back with a transaction that is rolled back: who has seen n has seen all before n.
- An entry is done when the cell has the generation that it names, or a later one. Who empties
  Valkey loses nothing.
- Audit events are never changed, but that nobody is named in them when their tenant is erased.
"""

from __future__ import annotations

from django.db import models

from control_plane.tenancy.ids import ID_CHARACTERS_MAX, TypedIdField
from control_plane.tenancy.models import TenantModel

KEY_HASH_CHARACTERS = 64
ACTOR_NAME_CHARACTERS_MAX = 254
ORGANIZATION_CREATED = "organization.create"
TENANT_ERASED = "organization.erase"
# Each is another resource of the tenant's cell, which never forgets the id of one that was deleted.
RESOURCE_MADE = (
    "api_key.create",
    "grant.create",
    "subscription.create",
    "topic.create",
    "topic.undelete",
)


class OperationStatus(models.TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


OPEN = ("pending", "running")
"""Statuses of operations that are not done."""


class OperationKind(models.TextChoices):
    """What can take longer than a request."""

    PURGE_TOPIC = "topic.purge"


class Operation(TenantModel):
    """Something that takes longer than a request: it is done when the cell has confirmed the
    generation in `arguments` of its resource (settling.py), whose status says what it waits for."""

    id = TypedIdField("op")
    kind = models.CharField(max_length=40)
    resource_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    status = models.CharField(
        max_length=16, choices=OperationStatus.choices, default=OperationStatus.PENDING
    )
    arguments = models.JSONField(default=dict)
    result = models.JSONField(default=dict)
    error = models.CharField(max_length=1000, blank=True, default="")
    actor_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = (
            models.Index(fields=("organization", "id"), name="operation_pages"),
            models.Index(
                fields=("kind",), condition=models.Q(status__in=OPEN), name="operations_open"
            ),
            models.Index(
                fields=("finished_at",),
                condition=models.Q(finished_at__isnull=False),
                name="operations_finished",
            ),
        )
        ordering = ("id",)


class ActorKind(models.TextChoices):
    USER = "user"
    API_KEY = "api_key"
    OPERATOR = "operator"
    SYSTEM = "system"


class AuditEvent(models.Model):
    """Who did what, when. Survives the tenant, so it holds ids and no foreign keys."""

    id = TypedIdField("aud")
    organization_id = models.CharField(max_length=ID_CHARACTERS_MAX, blank=True, default="")
    at = models.DateTimeField(auto_now_add=True)
    actor_kind = models.CharField(max_length=10, choices=ActorKind.choices)
    actor_id = models.CharField(max_length=ID_CHARACTERS_MAX, blank=True, default="")
    actor_name = models.CharField(max_length=ACTOR_NAME_CHARACTERS_MAX, blank=True, default="")
    address = models.GenericIPAddressField(null=True, blank=True, unpack_ipv4=True)
    action = models.CharField(max_length=60)
    resource_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    resource_name = models.CharField(max_length=254, blank=True, default="")
    changes = models.JSONField(default=dict)

    class Meta:
        indexes = (
            models.Index(fields=("organization_id", "id"), name="audit_pages"),
            models.Index(fields=("organization_id", "resource_id"), name="audit_of_resource"),
            models.Index(
                fields=("actor_id", "at"),
                condition=models.Q(action=ORGANIZATION_CREATED),
                name="tenants_made_by",
            ),
            models.Index(
                fields=("address", "at"),
                condition=models.Q(action=ORGANIZATION_CREATED),
                name="tenants_made_at",
            ),
            models.Index(
                fields=("organization_id", "at"),
                condition=models.Q(action__in=RESOURCE_MADE),
                name="resources_made",
            ),
            models.Index(
                fields=("at",), condition=models.Q(action=TENANT_ERASED), name="tenants_erased"
            ),
        )
        ordering = ("id",)


class ResourceKind(models.TextChoices):
    """What the outbox can be about; docs/control-plane.md has what each is in a cell."""

    TENANT = "tenant"
    TOPIC = "topic"
    CREDENTIAL = "credential"
    GRANT = "grant"
    QUOTA = "quota"


class OutboxEntry(TenantModel):
    """A cell has to be told of `resource_id` in at least this generation."""

    id = models.BigAutoField(primary_key=True)
    sequence = models.BigIntegerField()
    kind = models.CharField(max_length=12, choices=ResourceKind.choices)
    resource_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    generation = models.BigIntegerField()
    attempts = models.IntegerField(default=0)
    not_before = models.DateTimeField(auto_now_add=True)
    last_error = models.CharField(max_length=1000, blank=True, default="")
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "outbox"
        constraints = (
            models.UniqueConstraint(fields=("organization", "sequence"), name="outbox_no_twice"),
        )
        indexes = (
            models.Index(
                fields=("not_before", "id"),
                condition=models.Q(done_at=None),
                name="outbox_pending",
            ),
            models.Index(
                fields=("resource_id",),
                condition=models.Q(done_at=None),
                name="outbox_of_resource",
            ),
            models.Index(
                fields=("done_at",),
                condition=models.Q(done_at__isnull=False),
                name="outbox_done",
            ),
        )
        ordering = ("id",)


class IdempotentAnswer(models.Model):
    """The answer to a request with an Idempotency-Key, for an hour.

    The key is stored hashed, and the answer encrypted under a key derived from it: a secret that
    was shown once can be had again by who knows the Idempotency-Key, and by no reader of this
    table.
    """

    id = models.BigAutoField(primary_key=True)
    actor_id = models.CharField(max_length=ID_CHARACTERS_MAX)
    key_hash = models.CharField(max_length=KEY_HASH_CHARACTERS)
    request_hash = models.CharField(max_length=KEY_HASH_CHARACTERS)
    status_code = models.IntegerField()
    answer = models.BinaryField()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("actor_id", "key_hash"), name="idempotency_key_once"),
        )
