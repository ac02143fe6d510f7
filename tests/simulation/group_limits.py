"""A tenant that may have so many groups, makes new ones until it may not, and is given a few more.

Its commits reach the coordinators as a control plane's calls do, past the network. Coordinators
move, die and are cut off meanwhile, and what they have told each other is late or lost. All the
same

- no group is refused while there are fewer than the tenant may have: to an application that is an
  error;
- where nothing goes wrong there are never many more than it may have: what comes within the time
  that a word takes. Brokers that do not hear each other have its limit each.

A group whose commit has not been answered may be there or not.
"""

from __future__ import annotations

from collections.abc import Callable
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
_CLIENT = ClientContext("crowd", "/crowd", 9)


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
        self._made: set[str] = set()
        # Not answered, and perhaps made.
        self._asked: set[str] = set()

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
            self._asked.clear()
        if self._is_full:
            self._is_full = False
            self._limit = max(self._limit, len(self._made)) + MORE
            self._write(lambda image: [PutTenantQuotas(TENANT, TenantQuotas(groups=self._limit))])
            return
        topic = image.topic("default", OFFSETS_TOPIC)
        if topic is None:
            return
        self._number += 1
        group_id = f"{self.name}-{self._number}"
        index = partition_for_group(tenant.tenant_id, group_id, len(topic.partitions))
        node = self.cell.nodes.get(topic.partitions[index].leader)
        if node is not None and node.is_up and not node.is_stopping:
            self._asked.add(group_id)
            node.at(0, self._commit, node, tenant.tenant_id, group_id)

    def _make_tenant(self) -> None:
        def decide(image: MetadataImage) -> list[Change]:
            staying = [i for i, broker in image.brokers.items() if may_get_replicas(broker)]
            if TENANT in image.tenants or len(staying) < 3:
                return []
            quotas = TenantQuotas(groups=GROUPS_MAX)
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

    def _commit(self, node: Any, tenant_id: str, group_id: str) -> None:
        services = node.services
        if services is None:
            return
        place = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[place])],
        )
        reply = Reply(partial(self._answered, services, tenant_id, group_id))
        service, now_ms = service_of(services), node.clock.now_ms()
        effects = service.coordinator.commit_offsets(tenant_id, request, _CLIENT, reply, now_ms)
        service.carry_out(effects, now_ms)

    def _answered(self, services: Services, tenant_id: str, group_id: str, response: Any) -> Any:
        error = ErrorCode(response.topics[0].partitions[0].error_code)
        if tenant_id != self._tenant_id:
            return response
        if error is ErrorCode.NONE:
            self._asked.discard(group_id)
            self._made.add(group_id)
            self.world.count("groups made under a limit")
            if self.cell.is_peaceful and len(self._made) > self._limit + SLACK:
                self.world.violate(f"{TENANT} has {len(self._made)} groups, of {self._limit}")
        elif error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            self._asked.discard(group_id)
            self._is_full = True
            self.world.count("groups refused by a limit")
            perhaps = len(self._made) + len(self._asked)
            # As this broker knows it.
            limit = services.image.tenants[TENANT].quotas.groups
            if limit is None or perhaps < limit:
                self.world.violate(
                    f"{TENANT} is refused a group, and has {perhaps} of {limit} at most"
                )
        return response
