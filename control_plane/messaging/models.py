"""Topics, as they are declared, and as the cell says that they are.

`partitions` and `configs` are the spec: what REST or Terraform declared, and nothing that changes
by itself. `observed` is what the cell said last, defaults included. Of a topic that clients manage,
the spec is a copy of what they made.

A topic that was deleted is gone for clients, and its cell keeps it, with its messages, until
`purge_after`: it can be had back till then, and its name is taken.

Invariants
- `generation` is 0 for what clients made and nothing has declared: the cell has no resource of it.
- A cell never takes a resource id again once it was deleted. So a topic that is had back is another
  resource, whose id has the `incarnation` behind the topic's.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from control_plane.tenancy.ids import TypedIdField
from control_plane.tenancy.models import NAME_CHARACTERS_MAX, DeclaredModel, TenantModel


class ManagedBy(models.TextChoices):
    """Who changes a thing: what is declared here, or the tenant's Kafka clients."""

    API = "api"
    CLIENT = "client"


class Topic(TenantModel, DeclaredModel):
    """A topic of a tenant."""

    id = TypedIdField("top")
    name = models.CharField(max_length=NAME_CHARACTERS_MAX)
    partitions = models.IntegerField()
    # 0: the cell's default.
    replication_factor = models.IntegerField(default=0)
    # Kafka's names and texts. What is not named is the clients', or the default.
    configs = models.JSONField(default=dict)
    managed_by = models.CharField(max_length=8, choices=ManagedBy.choices, default=ManagedBy.API)
    deletion_protection = models.BooleanField(default=False)
    kafka_topic_id = models.UUIDField(null=True, blank=True)
    # Until the cell has done it: take over what clients made, or what was deleted; only the topic
    # with `kafka_topic_id`.
    takes_over = models.BooleanField(default=False)
    incarnation = models.PositiveIntegerField(default=1)
    # It is deleted, its cell has not kept the name, and clients have another topic of it, which is
    # adopted when this row goes.
    has_successor = models.BooleanField(default=False, db_default=False)
    observed = models.JSONField(default=dict)
    purge_after = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("organization", "name"), name="topic_name_once"),
        )
        indexes = (models.Index(fields=("organization", "id"), name="topic_pages"),)
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name

    @property
    def resource_id(self) -> str:
        """What the cell knows it as."""
        return self.resource_ids[-1]

    @property
    def resource_ids(self) -> list[str]:
        """All that the cell may know it as, the present one last."""
        later = [f"{self.id}-{number}" for number in range(2, self.incarnation + 1)]
        return [self.id, *later]

    def incarnation_of(self, resource_id: str) -> int:
        """Which of its incarnations, those included that are not known here, the cell knows by this
        id; 0 when it is none."""
        first, _, number = resource_id.partition("-")
        if first != self.id:
            return 0
        if resource_id == self.id:
            return 1
        return int(number) if number.isascii() and number.isdecimal() else 0

    def declared(self) -> dict[str, Any]:
        return {
            "managed_by": str(self.managed_by),
            "deletion_protection": self.deletion_protection,
            "spec": self.spec(),
        }

    def spec(self) -> dict[str, Any]:
        """As REST shows it."""
        return {
            "partitions": self.partitions,
            "replication_factor": self.replication_factor,
            "configs": self.configs,
        }
