"""LARGE STATES: what brokers meet with a million offsets and with large requests, in small cells.

A broker does little in one go (data_plane/broker/loop_bounds.py): the rest is cut in pieces, or a
thread does it. Here so little, drawn for each life, that a handful of offsets is a large state and
a compressed record a large request:

    sweep   ▓ piece   ▓ piece                      ▓ …       what a leader loads, looks for, deletes
    loop      commit    load   kill, another leader  deletion
    thread       ▓▓ unpacks    ▓▓ decodes

Their groups are those of `Keeper`s (keeper.py), whose topics come and go under the same names, and
all producers compress what they send. What holds, besides: no piece of work is left of a partition
that is led no more, what a coordinator counts is what it has, and at rest no offset of a topic that
is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from random import Random
from typing import TYPE_CHECKING

from data_plane.broker.coordinators.groups import service_of
from data_plane.broker.loop_bounds import LoopBounds
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.record_formats import CommittedOffset, OffsetKey
from data_plane.groups.shard import Shard
from data_plane.wire.primitives import ZERO_UUID
from data_plane.wire.records import Compression
from tests.simulation.namesakes import Namesakes

if TYPE_CHECKING:
    from data_plane.cell.metadata import MetadataImage
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

# What a large state of producers takes to be written.
FLUSH_MS_MEAN = 200
PROPERTIES = {"offsets.retention.check.interval.ms": "150"}
WHOLE = LoopBounds()
GROUP_WORK_PER_TURN_MAX = (1, 1, 15, WHOLE.group_work_per_turn_max)
TOMBSTONES_PER_APPEND_MAX = (1, 2, 2, WHOLE.group_tombstones_per_append_max)
CHORE_APPENDS_MAX = (1, 1, 2, WHOLE.group_chore_appends_max)
UNPACKED_BYTES_MAX = (0, 0, 150, WHOLE.unpacked_bytes_max)
REQUEST_BYTES_MAX = (0, 60, WHOLE.request_bytes_max)
CODECS = (
    Compression.NONE,
    Compression.GZIP,
    Compression.SNAPPY,
    Compression.LZ4,
    Compression.ZSTD,
)


class Shelves(Namesakes):
    """Topics that nobody writes to, for offsets."""

    names = ("shelf1", "shelf2")
    partitions = 4
    replicas = 2
    interval_ms = 350


def draw_bounds(rng: Random) -> LoopBounds:
    """Those of one life of a broker."""
    return LoopBounds(
        group_work_per_turn_max=rng.choice(GROUP_WORK_PER_TURN_MAX),
        group_tombstones_per_append_max=rng.choice(TOMBSTONES_PER_APPEND_MAX),
        group_chore_appends_max=rng.choice(CHORE_APPENDS_MAX),
        unpacked_bytes_max=rng.choice(UNPACKED_BYTES_MAX),
        request_bytes_max=rng.choice(REQUEST_BYTES_MAX),
    )


def codec_of(number: int) -> Compression:
    """Of the batch that begins with this number; the same whenever it is sent again."""
    return CODECS[number % len(CODECS)]


def look(node: Node) -> None:
    """At the end of a pass: what was left for later, and of whom."""
    services = node.services
    if services is None:
        return
    coordinator = service_of(services).coordinator
    _check_coordinator(node, coordinator)
    if coordinator.has_chores:
        node.world.count("passes that leave chores")
    if len(services.request_work):
        node.world.count("passes with requests at threads")


def _check_coordinator(node: Node, coordinator: GroupCoordinator) -> None:
    """What is left to do, and what is counted, is of what is led."""
    chores = coordinator._chores
    tenants = chain(*chores._others.values(), *chores._waiting.values())
    for chore in (*chores._urgent, *tenants):
        if isinstance(chore.owner, Shard) and chore.owner.is_closed:
            node.world.violate(f"{node.name} has a chore of a partition that it leads no more")
    shards = [
        loaded.shard
        for partition in (
            *coordinator.partitions.loaded.values(),
            *coordinator.partitions.opening.values(),
        )
        for loaded in partition.shards.values()
    ]
    counted, held = coordinator.offset_count(), sum(shard.offsets.count for shard in shards)
    if counted != held:
        node.world.violate(f"{node.name} counts {counted} offsets, and has {held}")


def orphans(cell: Cell) -> Iterable[str]:
    """At rest: offsets of topics that are gone."""
    image = cell.store.image
    for node in cell.nodes.values():
        if node.services is None:
            continue
        committed = service_of(node.services).coordinator.committed_offsets("default")
        gone = [key for key, value in committed.items() if is_of_gone_topic(image, key, value)]
        if gone:
            yield f"{node.name} keeps {len(gone)} offsets of topics that are gone: {gone[:2]}"


def is_of_gone_topic(image: MetadataImage, key: OffsetKey, value: CommittedOffset) -> bool:
    """The record of an offset with an expiry of its own has no room for the topic's id. When such
    an offset is loaded again, the name is all that is known of its topic, as in Kafka."""
    if value.topic_id == ZERO_UUID:
        return image.topic("default", key.topic) is None
    return value.topic_id not in image.topics_by_id
