"""Service accounts, keys and grants.

A service account is a principal of its tenant: `User:sa_…` in ACLs and logs. A key is a secret of a
service account, so keys are replaced without touching grants. Of a secret there is kept what REST
needs (a hash) and what the cell needs (SCRAM verifiers), and never the secret.
"""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models

from control_plane.accounts.models import Role
from control_plane.tenancy.ids import TypedIdField
from control_plane.tenancy.models import NAME_CHARACTERS_MAX, DeclaredModel, TenantModel

SECRET_HASH_CHARACTERS = 64


class ServiceAccount(TenantModel):
    """A program that acts for a tenant. `role` is what its keys may do by REST."""

    id = TypedIdField("sa")
    name = models.CharField(max_length=64)
    description = models.CharField(max_length=500, blank=True, default="")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("organization", "name"),
                condition=models.Q(deleted_at=None),
                name="service_account_once",
            ),
        )
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name


class Scope(models.TextChoices):
    """Where a key is accepted."""

    KAFKA = "kafka"
    REST = "rest"


class ApiKey(TenantModel, DeclaredModel):
    """A secret of a service account. Its login in the cell is `<id>@<tenant>`."""

    id = TypedIdField("key")
    service_account = models.ForeignKey(ServiceAccount, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=64, blank=True, default="")
    scopes = ArrayField(models.CharField(max_length=8, choices=Scope.choices))
    secret_hash = models.CharField(max_length=SECRET_HASH_CHARACTERS, unique=True)
    # By mechanism: salt, stored_key and server_key in base 64, iterations.
    verifiers = models.JSONField(default=dict)
    networks = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    # The key that this one replaces.
    rotated_from = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        indexes = (models.Index(fields=("service_account", "id"), name="keys_of_account"),)
        ordering = ("id",)

    def declared(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "service_account_id": self.service_account_id,
            "scopes": self.scopes,
            "networks": self.networks,
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
        }


class GrantRole(models.TextChoices):
    """What a grant allows on a resource; control_plane/access/acls.py says which operations."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    MANAGER = "manager"


class ResourceType(models.TextChoices):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional_id"


class PatternType(models.TextChoices):
    LITERAL = "literal"
    PREFIXED = "prefixed"


class Grant(TenantModel, DeclaredModel):
    """A service account may do something on the resources of a name, or of a beginning of names."""

    id = TypedIdField("grant")
    service_account = models.ForeignKey(ServiceAccount, on_delete=models.PROTECT, related_name="+")
    role = models.CharField(max_length=16, choices=GrantRole.choices)
    resource_type = models.CharField(max_length=20, choices=ResourceType.choices)
    pattern_type = models.CharField(
        max_length=10, choices=PatternType.choices, default=PatternType.LITERAL
    )
    resource_name = models.CharField(max_length=NAME_CHARACTERS_MAX)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=(
                    *("service_account", "role", "resource_type", "pattern_type"),
                    "resource_name",
                ),
                condition=models.Q(deleted_at=None),
                name="grant_once",
            ),
        )
        ordering = ("id",)

    def declared(self) -> dict[str, Any]:
        return {
            "service_account_id": self.service_account_id,
            "role": str(self.role),
            "resource_type": str(self.resource_type),
            "pattern_type": str(self.pattern_type),
            "resource_name": self.resource_name,
        }
