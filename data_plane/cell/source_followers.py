"""Retry partitions go where their source goes: the same replicas, and its leader where that can be.

A virtual topic's own partition p (virtual_topics.py) holds what comes back of the source's
partition p, and its leader has to have that one's records. So its replicas are those that the
source has, or is on its way to, and its leader is the source's as soon as that one is in sync here.

    source      replicas 1 2 3, on the way to 1 2 4    leader 1
    follower    replicas 1 2 3  ─► on the way to 1 2 4, by itself; leader 3 ─► 1

It follows from the image alone, in every look of the controller: what did not fit into a commit, or
an older controller has done, is made up for by the next look. The two reassignments are complete
each in its own time.

Invariants
- No other rule moves replicas or leaders of a follower; whoever counts what a broker has counts a
  source with its followers.

Deliberately absent: elections, in which a follower is a partition like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from data_plane.cell.metadata import NO_LEADER, PartitionImage
from data_plane.cell.partition_state import with_leader
from data_plane.cell.partitions_draft import PartitionsDraft, Place
from data_plane.cell.reassignment import start, target_of

# Completes a reassignment if there is nothing to be waited for.
Finish = Callable[[Place, PartitionImage], PartitionImage]


def follow_sources(draft: PartitionsDraft, electable: AbstractSet[int], finish: Finish) -> None:
    """Have all followers where their sources are, as far as the commit has room."""
    for place, of_source in draft.followers():
        if draft.is_full:
            return
        partition = draft.get(place)
        if partition.leader == NO_LEADER:
            # There is nothing to copy from.
            continue
        source = draft.get(of_source)
        target = target_of(source)
        followed = partition
        if target_of(partition) != target:
            followed = finish(place, start(partition, target))
        leader = source.leader
        if leader != followed.leader and leader in followed.isr and leader in electable:
            followed = with_leader(followed, leader)
        if followed is not partition:
            draft.put(place, followed)
