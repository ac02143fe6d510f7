"""Plans, and what one tenant may use beyond or below its plan."""

from __future__ import annotations

from typing import Any

from django.core.validators import MinValueValidator
from django.db import models

from control_plane.tenancy.ids import TypedIdField
from control_plane.tenancy.models import DeclaredModel, TenantModel

# Limits that the cell keeps, and those that are kept here when something is made.
CELL_LIMITS = (
    "produce_bytes_per_second",
    "consume_bytes_per_second",
    "requests_per_second",
    "connections",
    "partitions",
    "storage_bytes",
    "delayed_messages",
    "groups",
    "message_bytes",
)
OWN_LIMITS = ("topics", "service_accounts", "api_keys", "grants", "members")
LIMITS = (*CELL_LIMITS, *OWN_LIMITS)


def _limit(**options: Any) -> models.BigIntegerField[Any, Any]:
    return models.BigIntegerField(validators=[MinValueValidator(0)], **options)


class Plan(models.Model):
    """What is sold: a limit for everything."""

    id = TypedIdField("plan")
    name = models.SlugField(max_length=64, unique=True)
    # Tenants that sign up by themselves get the one plan that says so.
    is_default = models.BooleanField(default=False)
    produce_bytes_per_second = _limit(default=1_000_000)
    consume_bytes_per_second = _limit(default=4_000_000)
    requests_per_second = _limit(default=500)
    connections = _limit(default=100)
    partitions = _limit(default=100)
    storage_bytes = _limit(default=10 * 1024**3)
    delayed_messages = _limit(default=100_000)
    groups = _limit(default=100)
    message_bytes = _limit(default=1_048_576)
    topics = _limit(default=50)
    service_accounts = _limit(default=20)
    api_keys = _limit(default=50)
    grants = _limit(default=200)
    members = _limit(default=20)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("is_default",),
                condition=models.Q(is_default=True),
                name="one_default_plan",
            ),
        )
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name


class TenantQuota(TenantModel, DeclaredModel):
    """What a tenant may use: its plan's limits where it has none of its own here."""

    id = TypedIdField("quota")
    produce_bytes_per_second = _limit(null=True, blank=True)
    consume_bytes_per_second = _limit(null=True, blank=True)
    requests_per_second = _limit(null=True, blank=True)
    connections = _limit(null=True, blank=True)
    partitions = _limit(null=True, blank=True)
    storage_bytes = _limit(null=True, blank=True)
    delayed_messages = _limit(null=True, blank=True)
    groups = _limit(null=True, blank=True)
    message_bytes = _limit(null=True, blank=True)
    topics = _limit(null=True, blank=True)
    service_accounts = _limit(null=True, blank=True)
    api_keys = _limit(null=True, blank=True)
    grants = _limit(null=True, blank=True)
    members = _limit(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("organization",), name="quota_once"),)

    def declared(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LIMITS}
