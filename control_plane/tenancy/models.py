"""Abstract models: rows that belong to one tenant, and resources that are declared to a cell.

Invariants
- A tenant's rows are reached through `objects.of(organization_id)`. There is no query without a
  tenant but `objects.across_tenants()`, for what is across them; a test lists who
  says that.
- A generation only grows. `observed_generation` is what the cell has confirmed; it equals
  `generation` when, and only when, the cell has what is declared.
- What is deleted has `deleted_at`, and its row stays until the cell has confirmed; that of a key
  stays longer.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar

from django.db import models

from control_plane.tenancy.errors import StaleGeneration

ModelT = TypeVar("ModelT", bound=models.Model)

STATUS_REASON_CHARACTERS_MAX = 1000
NAME_CHARACTERS_MAX = 249
ETAG_CHARACTERS = 32


class UnscopedQuery(RuntimeError):
    """A query for a tenant's rows that names no tenant: a bug."""


class TenantManager(models.Manager[ModelT], Generic[ModelT]):
    """The only way to a tenant's rows."""

    def get_queryset(self) -> NoReturn:
        raise UnscopedQuery(
            f"{self.model.__name__}.objects has no rows of all tenants; say .of(organization_id)"
        )

    def of(self, organization_id: str) -> models.QuerySet[ModelT]:
        """The rows of one tenant."""
        return self.across_tenants().filter(organization_id=organization_id)

    def across_tenants(self) -> models.QuerySet[ModelT]:
        """The rows of all tenants: never in an answer to a tenant."""
        return models.QuerySet(self.model, using=self._db)


class TenantModel(models.Model):
    """A row that belongs to one tenant."""

    organization = models.ForeignKey(
        "accounts.Organization", on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[TenantManager[Self]] = TenantManager()

    class Meta:
        abstract = True


class ResourceStatus(models.TextChoices):
    """Where the cell is with what was declared."""

    PROVISIONING = "provisioning"
    READY = "ready"
    UPDATING = "updating"
    DELETING = "deleting"
    FAILED = "failed"


class DeclaredModel(models.Model):
    """A resource that a cell is told of; see docs/cell-admin.md for what generations mean there."""

    generation = models.BigIntegerField(default=1)
    observed_generation = models.BigIntegerField(default=0)
    status = models.CharField(
        max_length=16, choices=ResourceStatus.choices, default=ResourceStatus.PROVISIONING
    )
    status_reason = models.CharField(
        max_length=STATUS_REASON_CHARACTERS_MAX, blank=True, default=""
    )
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    def declared(self) -> dict[str, Any]:
        """What is declared, and nothing that changes by itself."""
        raise NotImplementedError

    @property
    def etag(self) -> str:
        """Changes with what is declared, and with nothing else: what the cell says of it changes
        under the same one."""
        content = json.dumps(self.declared(), sort_keys=True, separators=(",", ":"))
        return f'"{hashlib.sha256(content.encode()).hexdigest()[:ETAG_CHARACTERS]}"'

    def refuse_unless(self, if_match: str | None) -> None:
        """Raise StaleGeneration when If-Match names others than the present ETag."""
        if if_match is None or if_match.strip() == "*":
            return
        if self.etag not in {tag.strip() for tag in if_match.split(",")}:
            raise StaleGeneration("It has been changed since it was read; read it again.")

    def declare_again(self) -> None:
        """The declaration has changed: a new generation, which the cell has yet to take."""
        self.generation += 1
        self.status_reason = ""
        self.status = (
            ResourceStatus.DELETING
            if self.deleted_at is not None
            else ResourceStatus.UPDATING
            if self.observed_generation
            else ResourceStatus.PROVISIONING
        )

    def settle(self) -> None:
        """What is declared is in force without a cell, which is not told of it."""
        self.observed_generation = self.generation
        self.status_reason = ""
        self.status = ResourceStatus.READY
