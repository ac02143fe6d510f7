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

    def __str__(self) -> str:
        return f"{self.cell_id}/{self.node_id}"


class Placement(TenantModel):
    """The cell in which a tenant lives."""

    cell = models.ForeignKey(Cell, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("organization",), name="placed_once"),)
