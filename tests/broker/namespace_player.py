"""A broker with tenants, and clients of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from data_plane.broker.coordinators import group_handlers
from data_plane.broker.coordinators.groups import GroupService
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.authorizer import SUPER_USERS
from data_plane.broker.request.principal import ANONYMOUS
from data_plane.cell.changes import Change, ChangePartition, RegisterBroker
from data_plane.cell.features import SUPPORTED_FEATURES
from data_plane.cell.metadata import BrokerImage
from data_plane.cell.partition_state import next_epochs
from data_plane.cell.tenants import DEFAULT_TENANT, PutTenant, TenantImage
from data_plane.wire.primitives import Message
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer
from tests.broker.broker_player import NODE_ID, Pending

SECOND = "second"
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class NamespacePlayer(AdminPlayer):
    """All APIs that a broker has."""

    def __init__(self, properties: Mapping[str, str] | None = None, seed: int = 1) -> None:
        super().__init__({**PROPERTIES, **(properties or {})}, seed=seed)
        services = self.services
        services.groups = GroupService(services)
        services.components.append(services.groups)
        group_handlers.register(services.handlers)
        services.start(self.now_ms)
        self.register(NODE_ID)
        # Everybody may do everything in both, also where there are ACLs.
        self.make_tenant(SECOND)
        boss = {SUPER_USERS: str(ANONYMOUS)}
        cluster_id = services.image.cluster_id
        self.commit(PutTenant(TenantImage(SECOND, f"{SECOND}-cluster", settings=boss)))
        self.commit(PutTenant(TenantImage(DEFAULT_TENANT, cluster_id, settings=boss)))
        self.first = self.client_of(DEFAULT_TENANT)
        self.second = self.client_of(SECOND)

    def client_of(self, tenant: str) -> Client:
        connection = self.connect()
        connection.namespace = tenant
        return Client(self, connection)

    def commit(self, change: Change) -> None:
        self.apply(change)
        self.run_jobs()

    def apply(self, change: Change) -> None:
        """As `commit`, and whatever waits for a thread goes on waiting."""
        services = self.services
        version = services.image.version
        image = services.store.apply((change,), version, f"after {version}")
        services.apply_image(image, self.now_ms)

    def register(self, node_id: int) -> None:
        self.commit(RegisterBroker(BrokerImage(node_id, "host", 9092, features=SUPPORTED_FEATURES)))

    def change_partition(
        self,
        topic: str,
        index: int,
        *,
        replicas: tuple[int, ...],
        tenant: str = DEFAULT_TENANT,
        **fields: Any,
    ) -> None:
        """Have it on other brokers, too; the first of them that is in the ISR leads."""
        image = self.services.image.topics_of(tenant)[topic]
        old = image.partitions[index]
        isr = tuple(node_id for node_id in replicas if node_id in old.isr) or replicas
        new = replace(old, replicas=replicas, isr=isr, leader=isr[0], **fields)
        self.commit(ChangePartition(image.topic_id, index, next_epochs(old, new)))


class Client:
    """One connection."""

    def __init__(self, player: NamespacePlayer, connection: ConnectionInfo) -> None:
        self._player = player
        self._connection = connection

    def send(self, api_key: ApiKey, version: int, request: Any) -> Pending:
        return self._player.send(api_key, version, request, connection=self._connection)

    def ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        return self.take(self.send(api_key, version, request))

    def take(self, pending: Pending) -> Any:
        player = self._player
        player.run_jobs()
        while not player.services.images.is_settled:
            player.pass_time(1)
            player.run_jobs()
        for _ in range(3):
            if not pending.is_answered:
                player.pass_time(1)
                player.run_jobs()
        return pending.response


class Plain:
    """Messages as plain values, in which ids that were drawn are told apart only by the order in
    which they are seen."""

    def __init__(self, *first_seen: str) -> None:
        self._ids: dict[str, str] = {}
        for text in first_seen:
            self.of(text)

    def _label(self, text: str) -> str:
        return self._ids.setdefault(text, f"id {len(self._ids)}")

    def of(self, value: Any) -> Any:
        if isinstance(value, Message):
            fields = {name: self.of(getattr(value, name)) for name in sorted(value.__slots__)}
            return type(value).__name__, fields
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if isinstance(value, UUID):
            return self._label(str(value))
        if isinstance(value, str):
            return _UUID.sub(lambda found: self._label(found.group()), value)
        return bytes(value) if isinstance(value, memoryview) else value
