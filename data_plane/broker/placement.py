"""Where the replicas of new partitions go, and whether a client's own choice is possible.

Pure decisions over the ids of the registered brokers. With one broker every partition is on it;
spreading over racks and hosts comes with replication.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.broker.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.cell.changes import Assignment
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.errors import ErrorCode


def registered_brokers(services: Services, image: MetadataImage) -> list[int]:
    """The ids of all brokers that may hold replicas, this one included."""
    return sorted({services.node_id, *image.brokers})


def decide_placement(
    partitions_count: int, replication_factor: int, brokers: Sequence[int], first: int = 0
) -> tuple[Assignment, ...]:
    """Replicas of each new partition, leaders in turn from broker number `first` on.

    Raises Refusal."""
    if replication_factor > len(brokers):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered or some brokers have all their log "
            "directories cordoned.",
        )
    count = len(brokers)
    return tuple(
        tuple(brokers[(first + index + step) % count] for step in range(replication_factor))
        for index in range(partitions_count)
    )


def check_manual_assignment(replicas: Sequence[int], brokers: Sequence[int]) -> Assignment:
    """A client's own choice for one partition. Raises Refusal."""
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    seen: set[int] = set()
    for broker in sorted(replicas):
        if broker in seen:
            raise _invalid(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        seen.add(broker)
        if broker not in brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {broker}, but no such broker "
                "is registered."
            )
    return tuple(replicas)


def check_same_replication(assignments: Sequence[Assignment]) -> None:
    """All partitions of a topic have equally many replicas. Raises Refusal."""
    sizes = {len(replicas) for replicas in assignments}
    if len(sizes) > 1:
        raise _invalid(
            "The manual partition assignment includes a partition with "
            f"{max(sizes)} replica(s), but this is not consistent with previous partitions, "
            f"which have {min(sizes)} replica(s)."
        )


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
