"""Where the replicas of new partitions go, and whether a client's own choice is possible.

The choice itself is data_plane.cell.placement's; here are Kafka's checks, codes and words. Brokers
that are fenced may get replicas of new partitions when there are not enough others, as in Apache
Kafka: they are not in the ISR then, until they have come back. So a topic can be made while a
broker restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from data_plane.broker.cell.controller_settings import default_replication_factor
from data_plane.broker.config.topic_bounds import TOPIC_BOUNDS
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.cell.changes import Assignment, ChangePartition
from data_plane.cell.metadata import BrokerImage, MetadataImage, PartitionImage
from data_plane.cell.partition_state import next_epochs, with_leader
from data_plane.cell.placement import Placer, is_ready
from data_plane.wire.errors import ErrorCode


def registered_brokers(services: Services, image: MetadataImage) -> dict[int, BrokerImage]:
    """All brokers that may hold replicas, this one included: a broker without a shared store
    registers nowhere."""
    if services.node_id in image.brokers:
        return dict(image.brokers)
    this = BrokerImage(
        services.node_id, services.advertised_host, services.advertised_port, services.rack
    )
    return {**image.brokers, services.node_id: this}


class NewPartitions:
    """Places the partitions that one request makes, so that all of them are balanced together.
    Made anew for each image that the request is decided on."""

    def __init__(self, services: Services, image: MetadataImage) -> None:
        self.brokers = registered_brokers(services, image)
        self._config = services.config
        self._image = image
        self._placer: Placer | None = None
        # What tenants have with what this request has added so far, of those that were asked about.
        self._partitions: dict[str, int] = {}

    @property
    def topic_bounds(self) -> list[str]:
        """What an operator allows tenants (config/topic_bounds.py)."""
        return self._config.get_list(TOPIC_BOUNDS)

    def take_room(self, tenant: str, partitions_count: int) -> None:
        """That tenant is to have so many more. Raises Refusal: it takes nothing in, or has as many
        as it may have."""
        known = self._image.tenant(tenant)
        if known is None:
            return
        reason = known.why_inactive()
        if reason:
            raise Refusal(ErrorCode.POLICY_VIOLATION, reason)
        partitions_max = known.quotas.partitions
        if partitions_max is None:
            return
        there = self._partitions.get(tenant)
        if there is None:
            topics = self._image.topics_of(tenant).values()
            there = sum(len(topic.partitions) for topic in topics if not topic.internal)
            self._partitions[tenant] = there
        if there + partitions_count > partitions_max:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"The tenant has {there} partition(s), and may have {partitions_max}: "
                f"{partitions_count} more would be too many.",
            )
        self._partitions[tenant] = there + partitions_count

    @property
    def placer(self) -> Placer:
        # Counts all replicas of the image: not before somebody wants to know.
        if self._placer is None:
            self._placer = Placer(self.brokers.values(), self._image)
        return self._placer

    def default_factor(self, property_name: str) -> int:
        """How many replicas a topic gets that names none."""
        ready_count = sum(map(is_ready, self.brokers.values()))
        return default_replication_factor(self._config, property_name, ready_count)

    def place(self, partitions_count: int, replication_factor: int) -> tuple[Assignment, ...]:
        """Raises Refusal."""
        placer = self.placer
        if replication_factor > len(placer):
            raise _invalid_factor(
                f"Unable to replicate the partition {replication_factor} time(s): The target "
                f"replication factor of {replication_factor} cannot be reached because only "
                f"{len(placer)} broker(s) are registered or some brokers have all their log "
                "directories cordoned."
            )
        if placer.unfenced_count == 0:
            raise _invalid_factor(
                f"Unable to replicate the partition {replication_factor} time(s): All brokers "
                "are currently fenced or have all their log directories cordoned."
            )
        return tuple(placer.place(replication_factor) for _ in range(partitions_count))

    def check_manual(self, index: int, replicas: Sequence[int]) -> Assignment:
        """A client's own choice for one partition. Raises Refusal."""
        assignment = check_manual_assignment(replicas, self.brokers)
        if not any(self._is_active(node_id) for node_id in assignment):
            raise _invalid_assignment(
                "All brokers specified in the manual partition assignment for partition "
                f"{index} are fenced or in controlled shutdown."
            )
        return assignment

    def initial_states(
        self, topic_id: UUID, first_index: int, assignments: Sequence[Assignment]
    ) -> Iterator[ChangePartition]:
        """What is to be changed of new partitions in the same commit: who is fenced is not in
        sync, though a new partition begins with all its replicas in the ISR."""
        inactive = {node_id for node_id in self.brokers if not self._is_active(node_id)}
        if not inactive:
            return
        for index, replicas in enumerate(assignments, first_index):
            isr = tuple(node_id for node_id in replicas if node_id not in inactive)
            if isr == replicas:
                continue
            new = PartitionImage(replicas, isr=replicas, leader=replicas[0])
            changed = with_leader(replace(new, isr=isr), isr[0])
            yield ChangePartition(topic_id, index, next_epochs(new, changed))

    def _is_active(self, node_id: int) -> bool:
        broker = self.brokers[node_id]
        return not broker.is_fenced and not broker.in_controlled_shutdown


def check_manual_assignment(replicas: Sequence[int], brokers: Collection[int]) -> Assignment:
    """That the replicas are distinct and registered. Raises Refusal."""
    if not replicas:
        raise _invalid_assignment("The manual partition assignment includes an empty replica list.")
    seen: set[int] = set()
    for broker in sorted(replicas):
        if broker in seen:
            raise _invalid_assignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        seen.add(broker)
        if broker not in brokers:
            raise _invalid_assignment(
                f"The manual partition assignment includes broker {broker}, but no such broker "
                "is registered."
            )
    return tuple(replicas)


def check_same_replication(assignments: Sequence[Assignment]) -> None:
    """All partitions of a topic have equally many replicas. Raises Refusal."""
    first_size = len(assignments[0])
    for replicas in assignments:
        if len(replicas) != first_size:
            raise _invalid_assignment(
                "The manual partition assignment includes a partition with "
                f"{len(replicas)} replica(s), but this is not consistent with previous "
                f"partitions, which have {first_size} replica(s)."
            )


def _invalid_assignment(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _invalid_factor(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)
