"""How brokers of metadata.version 1 read what is written: the codecs as they were before there were
levels, kept as they were. What these do not take stops such a broker.

Not to be mended or extended: it stands for processes that run somewhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

# Positions of a broker: node id, …, incarnation id (7), broker epoch, …, dead ms (12).
BROKER_FIELDS = 13


def read_image(data: bytes) -> dict[str, Any]:
    """Raises ValueError, KeyError or TypeError."""
    document = json.loads(data)
    return {
        "topics": {
            entry["name"]: (
                UUID(entry["topic_id"]),
                tuple(read_partition(item) for item in entry["partitions"]),
                dict(entry["configs"]),
            )
            for entry in document["topics"]
        },
        "cluster_id": document["cluster_id"],
        "version": document["version"],
        "brokers": {item[0]: read_broker(*item) for item in document["brokers"]},
        "configs": {
            (resource_type, name): dict(values)
            for resource_type, name, values in document["configs"]
        },
        "next_producer_id": document["next_producer_id"],
    }


def read_broker(
    node_id: int,
    host: str,
    port: int,
    rack: str | None = None,
    inter_broker_host: str = "",
    inter_broker_port: int = 0,
    host_id: str = "",
    incarnation_id: str = "",
    broker_epoch: int = 0,
    is_fenced: bool = False,
    in_controlled_shutdown: bool = False,
    is_draining: bool = False,
    dead_ms: int = 0,
) -> tuple[Any, ...]:
    return (
        *(node_id, host, port, rack, inter_broker_host, inter_broker_port, host_id),
        *(incarnation_id, broker_epoch, is_fenced, in_controlled_shutdown, is_draining, dead_ms),
    )


def read_partition(item: Sequence[Any]) -> tuple[Any, ...]:
    replicas, isr, leader, leader_epoch, partition_epoch, *rest = item
    elr, last_known_leader, adding, removing, *recovery = rest or ((), -1, (), ())
    last_known_elr, log_ends = recovery or ((), ())
    return (
        *(tuple(replicas), tuple(isr), leader, leader_epoch, partition_epoch),
        *(tuple(elr), last_known_leader, tuple(adding), tuple(removing)),
        *(tuple(last_known_elr), tuple(tuple(end) for end in log_ends)),
    )


def read_change(item: Sequence[Any]) -> tuple[Any, ...]:
    """Raises ValueError or TypeError."""
    kind, *fields = item
    match kind:
        case "create_topic":
            name, topic_id, assignments, configs = fields
            pairs = tuple((key, value) for key, value in configs)
            return kind, name, UUID(topic_id), _read_assignments(assignments), pairs
        case "delete_topic":
            return kind, UUID(fields[0])
        case "add_partitions":
            return kind, UUID(fields[0]), _read_assignments(fields[1])
        case "alter_configs":
            resource_type, name, values = fields
            return kind, resource_type, name, tuple((key, value) for key, value in values)
        case "register_broker" | "change_broker":
            return kind, read_broker(*fields)
        case "unregister_broker":
            node_id, broker_epoch = fields
            return kind, node_id, broker_epoch
        case "change_partition":
            topic_hex, index, partition = fields
            return kind, UUID(topic_hex), index, read_partition(partition)
        case "allocate_producer_ids":
            return kind, fields[0], fields[1]
        case _:
            raise ValueError(f"a change of unknown kind {kind!r}: written by a newer version?")


def _read_assignments(runs: Sequence[Sequence[Any]]) -> tuple[tuple[int, ...], ...]:
    assignments: list[tuple[int, ...]] = []
    for count, replicas in runs:
        assignments.extend([tuple(replicas)] * count)
    return tuple(assignments)
