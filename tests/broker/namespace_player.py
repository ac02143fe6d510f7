"""A broker with a second namespace, and clients of both.

Inside, what the second one calls `x` is called `2nd-x`; a client must never hear of that. The first
namespace is the whole broker, as today.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from data_plane.broker.authorization.requirements import GUARDS
from data_plane.broker.coordinators import group_handlers
from data_plane.broker.coordinators.groups import GroupService
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.authorizer import ALLOW_EVERYONE, SUPER_USERS
from data_plane.broker.request.principal import ANONYMOUS
from data_plane.broker.services import Services
from data_plane.cell.changes import Change, ChangePartition, RegisterBroker, UpdateFeature
from data_plane.cell.features import METADATA_VERSION, NEWEST_LEVEL, SUPPORTED_FEATURES
from data_plane.cell.metadata import BrokerImage
from data_plane.cell.partition_state import next_epochs
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.primitives import Message
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer
from tests.broker.broker_player import NODE_ID, Pending

SECOND = "second"
PREFIX = "2nd-"
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class _Inward:
    def _map(self, name: str) -> str:
        return PREFIX + name

    topic = group = transactional_id = _map


class _Outward:
    def _map(self, name: str) -> str:
        assert name.startswith(PREFIX), f"{name} is of another namespace"
        return name.removeprefix(PREFIX)

    topic = group = transactional_id = _map


class SecondNamespace:
    """Names with a prefix."""

    is_identity = False
    inward = _Inward()
    outward = _Outward()

    def _has(self, inside: str) -> bool:
        return inside.startswith(PREFIX)

    has_topic = has_group = has_transactional_id = _has


class NamespacePlayer(AdminPlayer):
    """All APIs that a broker has."""

    def __init__(self, properties: Mapping[str, str] | None = None, seed: int = 1) -> None:
        super().__init__({**PROPERTIES, **(properties or {})}, seed=seed)
        services = self.services
        services.namespaces.add(SECOND, SecondNamespace())
        services.groups = GroupService(services)
        services.components.append(services.groups)
        group_handlers.register(services.handlers)
        services.start(self.now_ms)
        self.register(NODE_ID)
        self.commit(UpdateFeature(METADATA_VERSION, NEWEST_LEVEL))
        # Everybody may do everything in both, also where there are ACLs.
        boss = {SUPER_USERS: str(ANONYMOUS)}
        self.commit(PutTenant(TenantImage(SECOND, "second-cluster", settings=boss)))
        cluster_id = services.image.cluster_id
        self.commit(PutTenant(TenantImage("default", cluster_id, settings=boss)))
        self.first = Client(self, self.connect())
        connection = self.connect()
        connection.namespace = SECOND
        self.second = Client(self, connection)

    def commit(self, change: Change) -> None:
        services = self.services
        version = services.image.version
        image = services.store.apply((change,), version, f"after {version}")
        services.apply_image(image, self.now_ms)
        self.run_jobs()

    def register(self, node_id: int) -> None:
        broker = BrokerImage(node_id, "host", 9092, is_fenced=False, features=SUPPORTED_FEATURES)
        self.commit(RegisterBroker(broker))

    def change_partition(
        self, topic: str, index: int, *, replicas: tuple[int, ...], **fields: Any
    ) -> None:
        """Have it on other brokers, too; the first of them that is in the ISR leads."""
        image = self.services.image.topics_by_name[topic]
        old = image.partitions[index]
        isr = tuple(node_id for node_id in replicas if node_id in old.isr) or replicas
        new = replace(old, replicas=replicas, isr=isr, leader=isr[0], **fields)
        self.commit(ChangePartition(image.topic_id, index, next_epochs(old, new)))


def let_everybody_in(services: Services, tenant: str) -> None:
    """Have the image say that in a tenant everybody may do everything."""
    services.handlers.guards.update(GUARDS)
    image = services.image
    settings = {ALLOW_EVERYONE: "true"}
    tenants = {**image.tenants, tenant: TenantImage(tenant, f"{tenant}-cluster", settings=settings)}
    services.image = replace(image, tenants=tenants)
    services.authorizer.image_changed(image, services.image, 0)


class Client:
    """One connection."""

    def __init__(self, player: NamespacePlayer, connection: ConnectionInfo) -> None:
        self._player = player
        self._connection = connection
        self._is_second = connection.namespace == SECOND

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
        assert pending.frames is not None
        data = b"".join(bytes(buffer) for buffer in pending.frames)
        if self._is_second:
            assert PREFIX.encode() not in data, "a name that is inside"
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
