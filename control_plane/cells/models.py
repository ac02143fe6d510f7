"""Cells, what is known of their brokers, and which tenant lives where.

A tenant lives in one cell. `is_accepting` False drains a cell of newcomers: who is there stays.
Addresses and capacities are an operator's; the rest is what the cell said when it was last asked.
"""

from __future__ import annotations

from django.db import models

from control_plane.tenancy.ids import TypedIdField
from control_plane.tenancy.models import TenantModel


class Cell(models.Model):
    """A cell: the unit of scale and of failure."""

    id = TypedIdField("cell")
    name = models.SlugField(max_length=64, unique=True)
    region = models.CharField(max_length=64, blank=True, default="")
    # `host:port` of brokers' CellAdmin, tried in order.
    admin_endpoints = models.JSONField(default=list)
    bootstrap_servers = models.CharField(max_length=1000)
    is_accepting = models.BooleanField(default=True)
    tenants_max = models.PositiveIntegerField(default=1000)
    partitions_max = models.PositiveIntegerField(default=20_000)

    cluster_id = models.CharField(max_length=64, blank=True, default="")
    metadata_version = models.BigIntegerField(default=0)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=1000, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name


class CellProgress(models.Model):
    """How far this control plane is with a cell. It is no part of the cell's row, which operators
    save as a whole."""

    cell = models.OneToOneField(
        Cell, on_delete=models.CASCADE, primary_key=True, related_name="progress"
    )
    # Calls in a row that came to nothing, and when the next one is due where no broker answered:
    # of those that declare something, and of those that read.
    failures = models.IntegerField(default=0)
    retry_at = models.DateTimeField(null=True, blank=True)
    read_failures = models.IntegerField(default=0)
    read_retry_at = models.DateTimeField(null=True, blank=True)
    # What the cell's feed of changes has told is taken in up to here, of this store.
    feed_store_id = models.CharField(max_length=200, blank=True, default="")
    feed_version = models.BigIntegerField(null=True, blank=True)
    # How often all topics were to be listed, and how often they were; when that was.
    lists_due = models.BigIntegerField(default=0)
    lists_done = models.BigIntegerField(default=0)
    listed_at = models.DateTimeField(null=True, blank=True)
    # Somebody takes it in until then, at the latest.
    followed_until = models.DateTimeField(null=True, blank=True)
    # The digests, the cell's and ours, that were found to differ by nothing that is to be repaired.
    compared_digests = models.CharField(max_length=200, blank=True, default="")
    compared_at = models.DateTimeField(null=True, blank=True)
    # Its brokers' use is read from then on; who reads it puts that off.
    usage_due_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"progress of {self.cell_id}"


class BrokerStatus(models.Model):
    """A broker, as its cell described it."""

    cell = models.ForeignKey(Cell, on_delete=models.CASCADE, related_name="brokers")
    node_id = models.IntegerField()
    host = models.CharField(max_length=255)
    port = models.IntegerField()
    rack = models.CharField(max_length=255, blank=True, default="")
    is_fenced = models.BooleanField(default=False)
    is_draining = models.BooleanField(default=False)
    partitions = models.IntegerField(default=0)
    leaders = models.IntegerField(default=0)
    seen_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cell", "node_id"), name="broker_once"),)
        ordering = ("cell", "node_id")
        verbose_name_plural = "brokers"

    def __str__(self) -> str:
        return f"{self.cell_id}/{self.node_id}"


class Placement(TenantModel):
    """The cell in which a tenant lives. Who tells the cell of the tenant holds the row's lock."""

    cell = models.ForeignKey(Cell, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("organization",), name="placed_once"),)
