"""A tenant that may have so many groups, makes new ones until it may not, and is given a few more.

It may have as many offsets as groups, and hardly more memory than these take without metadata.
In half of the histories it only makes groups. In the others it commits anew in those that it has,
too: with longer metadata, or with an offset beside that is not there. Some commits it sends twice,
before the first one is answered.

Its commits reach the coordinators as a control plane's calls do, past the network. Coordinators
move, die and are cut off meanwhile, and what they have told each other is late or lost. All the
same

- no group is refused while there is less of all than the tenant may have: to an application that
  is an error;
- where nothing goes wrong no offset is refused that is there, and there are never many more groups
  than there may be: what comes within the time that a word takes. Brokers that do not hear each
  other have its limit each.

What has not been answered, or with an error of the log, may be there or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from data_plane.broker.coordinators.groups import Reply, service_of
from data_plane.cell.changes import Change, CreateTopic
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.placement import may_get_replicas
from data_plane.cell.tenant_quotas import PutTenantQuotas, TenantQuotas
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.groups.effects import ClientContext
from data_plane.groups.offset_commits import PLAIN_VALUE_BYTES_MAX
from data_plane.groups.offsets import OFFSET_OVERHEAD_BYTES, TOPIC_OVERHEAD_BYTES
from data_plane.groups.partitioning import partition_for_group
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.admin import OFFSETS_TOPIC
from tests.simulation.administrator import Administrator

if TYPE_CHECKING:
    from data_plane.broker.services import Services
    from tests.simulation.cell import Cell

TENANT = "crowd"
TOPIC = "places"
TOPIC_ID = UUID(int=0xC0DE)
# At first, and how many more each time.
GROUPS_MAX = 8
MORE = 2
# What may come to other brokers before they are heard.
SLACK = 7
# What a group with one offset takes at most, and an offset beside.
GROUP_BYTES = OFFSET_OVERHEAD_BYTES + PLAIN_VALUE_BYTES_MAX + TOPIC_OVERHEAD_BYTES + len(TOPIC)
OFFSET_BYTES = OFFSET_OVERHEAD_BYTES + PLAIN_VALUE_BYTES_MAX
METADATA_BYTES = 200
# How much of metadata there is room for.
SPARE_BYTES = METADATA_BYTES // 10
# How many of its commits are in groups that it has, how many of all are sent twice, and how soon a
# tenant that is full is given more: meanwhile it goes on.
ANEW = 0.3
TWICE = 0.2
RAISED = 0.4
_CLIENT = ClientContext("crowd", "/crowd", 9)

# A group's name, and a partition.
Offset = tuple[str, int]


def quotas_of(groups: int) -> TenantQuotas:
    """Any of these may be the one that is reached."""
    size_bytes = groups * (GROUP_BYTES + SPARE_BYTES)
    return TenantQuotas(groups=groups, committed_offsets=groups, group_metadata_bytes=size_bytes)


class GroupMaker(Administrator):
    """See the module."""

    interval_ms = 100

    def __init__(self, cell: Cell, name: str) -> None:
        super().__init__(cell, name)
        self._number = 0
        # The tenant that these are of: a store that goes back may have it made anew.
        self._tenant_id = ""
        # The highest limit that was asked for.
        self._limit = GROUPS_MAX
        self._is_full = False
        self._only_makes = self.random.random() < 0.5
        # In the order in which they were made, with how many offsets it has asked for in each.
        self._made: dict[str, int] = {}
        self._there: set[Offset] = set()
        # How many commits of it were not refused: while there are any it is there, or may be.
        self._asked: Counter[Offset] = Counter()
        # Groups whose metadata may have grown; and how many commits in groups that are there are
        # under way: until they are answered there are no others.
        self._larger: set[str] = set()
        self._under_way: Counter[str] = Counter()

    def change(self) -> None:
        image = self.cell.store.image
        tenant = image.tenants.get(TENANT)
        if tenant is None:
            self._make_tenant()
            return
        if tenant.tenant_id != self._tenant_id:
            self._tenant_id = tenant.tenant_id
            self._limit = GROUPS_MAX
            self._made.clear()
            self._there.clear()
            self._asked.clear()
            self._larger.clear()
            self._under_way.clear()
        if self._is_full and (self._only_makes or self.random.random() < RAISED):
            self._is_full = False
            self._limit += MORE
            self._write(lambda image: [PutTenantQuotas(TENANT, quotas_of(self._limit))])
            return
        topic = image.topic("default", OFFSETS_TOPIC)
        if topic is None:
            return
        idle = [group_id for group_id in self._made if not self._under_way[group_id]]
        if idle and not self._only_makes and self.random.random() < ANEW:
            group_id = self.random.choice(idle)
            is_larger = self.random.random() < 0.5
            places = [0] if is_larger else [0, self._made[group_id]]
        else:
            self._number += 1
            group_id, is_larger, places = f"{self.name}-{self._number}", False, [0]
        index = partition_for_group(tenant.tenant_id, group_id, len(topic.partitions))
        node = self.cell.nodes.get(topic.partitions[index].leader)
        if node is None or not node.is_up or node.is_stopping:
            return
        if group_id in self._made:
            self._made[group_id] = max(self._made[group_id], places[-1] + 1)
        if is_larger:
            self._larger.add(group_id)
        metadata = "m" * METADATA_BYTES if group_id in self._larger else ""
        is_twice = not self._only_makes and self.random.random() < TWICE
        for _ in range(2 if is_twice else 1):
            self._asked.update((group_id, place) for place in places)
            self._under_way[group_id] += 1
            node.at(0, self._commit, node, tenant.tenant_id, group_id, places, metadata)

    def _make_tenant(self) -> None:
        def decide(image: MetadataImage) -> list[Change]:
            staying = [i for i, broker in image.brokers.items() if may_get_replicas(broker)]
            if TENANT in image.tenants or len(staying) < 3:
                return []
            quotas = quotas_of(GROUPS_MAX)
            replicas = tuple(sorted(staying)[:3])
            return [
                PutTenant(TenantImage(TENANT, "crowd-cluster", quotas=quotas)),
                CreateTopic(TENANT, TOPIC, TOPIC_ID, (replicas,)),
            ]

        self._write(decide)

    def _write(self, decide: Callable[[MetadataImage], list[Change]]) -> None:
        node = self.cell.nodes[self.any_node()]
        if node.is_up and node.services is not None:
            metadata = node.services.metadata
            node.run(lambda: metadata.write(decide, lambda error: None))

    def _commit(
        self, node: Any, tenant_id: str, group_id: str, places: Sequence[int], metadata: str
    ) -> None:
        services = node.services
        if services is None:
            return
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=place, committed_offset=1, committed_metadata=metadata
            )
            for place in places
        ]
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)],
        )
        reply = Reply(partial(self._answered, services, tenant_id, group_id))
        service, now_ms = service_of(services), node.clock.now_ms()
        effects = service.coordinator.commit_offsets(tenant_id, request, _CLIENT, reply, now_ms)
        service.carry_out(effects, now_ms)

    def _answered(self, services: Services, tenant_id: str, group_id: str, response: Any) -> Any:
        if tenant_id != self._tenant_id:
            return response
        errors = {
            (group_id, each.partition_index): ErrorCode(each.error_code)
            for each in response.topics[0].partitions
        }
        for offset, error in errors.items():
            if error is ErrorCode.NONE:
                self._taken(offset)
            elif error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                self._refused(services, offset)
        if set(errors.values()) <= {ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE}:
            # Else it may still be under way.
            self._under_way[group_id] -= 1
        return response

    def _taken(self, offset: Offset) -> None:
        group_id, _ = offset
        if offset in self._there:
            self.world.count("offsets committed anew under a limit")
        self._there.add(offset)
        if group_id not in self._made:
            self._made[group_id] = 1
            self.world.count("groups made under a limit")
            if self.cell.is_peaceful and len(self._made) > self._limit + SLACK:
                self.world.violate(f"{TENANT} has {len(self._made)} groups, of {self._limit}")

    def _refused(self, services: Services, offset: Offset) -> None:
        group_id, place = offset
        self._asked[offset] -= 1
        if offset in self._there:
            # A coordinator that is cut off may not know it.
            if self.cell.is_peaceful:
                self.world.violate(f"{TENANT} is refused partition {place} of {group_id}, it has")
            return
        if place:
            self.world.count("offsets refused beside others")
            return
        self._is_full = True
        self.world.count("groups refused by a limit")
        # What there may be beside. That the same commit is under way is no reason to refuse it.
        offsets = [each for each, count in self._asked.items() if count > 0 and each != offset]
        groups = {name for name, _ in offsets}
        size_bytes = len(offsets) * OFFSET_BYTES + len(groups) * (GROUP_BYTES - OFFSET_BYTES)
        larger = [name for name, _ in offsets if name in self._larger]
        # What is sent twice grows twice, until it has settled.
        larger += [name for name in larger if self._under_way[name] > 0]
        size_bytes += METADATA_BYTES * len(larger)
        # As this broker knows it.
        quotas = services.image.tenants[TENANT].quotas
        if not (
            _is_full(quotas.groups, len(groups), 1)
            or _is_full(quotas.committed_offsets, len(offsets), 1)
            or _is_full(quotas.group_metadata_bytes, size_bytes, GROUP_BYTES)
        ):
            self.world.violate(
                f"{TENANT} is refused a group, and has {len(groups)} groups, {len(offsets)} "
                f"offsets and {size_bytes} bytes of {quotas} at most"
            )


def _is_full(limit: int | None, perhaps: int, more: int) -> bool:
    """Whether there may be no room for so much more."""
    return limit is not None and perhaps + more > limit
