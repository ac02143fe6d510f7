"""Clients are told the addresses of the listener that they came through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_plane.broker.cell.cell_view import live_brokers, reached_by
from data_plane.broker.produce.produce_response import node_endpoints
from data_plane.broker.request.api import RequestContext
from data_plane.cell.changes import InvalidChange, RegisterBroker, UpdateFeature, apply_changes
from data_plane.cell.features import METADATA_VERSION, OPEN_LEVEL
from data_plane.cell.metadata import (
    BrokerImage,
    Endpoint,
    MetadataImage,
    decode_image,
    encode_image,
)
from data_plane.cell.registration import decide_registration
from data_plane.cell.settings import ControllerSettings
from data_plane.wire.messages.describe_cluster_request import DescribeClusterRequest
from data_plane.wire.messages.metadata_request import MetadataRequest
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer
from tests.broker.broker_player import NODE_ID
from tests.cell.cases import NEW_CELL, NEWEST_BROKER

OWN = (Endpoint("INSIDE", "127.0.0.1", 9092), Endpoint("USERS", "example.org", 9094))
OTHER = BrokerImage(
    9, "10.0.0.9", 1, listeners=(Endpoint("INSIDE", "10.0.0.9", 1), Endpoint("USERS", "b9", 2))
)
INSIDE_ONLY = BrokerImage(10, "10.0.0.10", 1, listeners=(Endpoint("INSIDE", "10.0.0.10", 1),))
OLDER = BrokerImage(11, "10.0.0.11", 1)


@pytest.fixture
def broker() -> AdminPlayer:
    player = AdminPlayer()
    player.services.advertised_listeners = OWN
    player.services.image = replace(
        player.services.image, brokers={one.node_id: one for one in (OTHER, INSIDE_ONLY, OLDER)}
    )
    return player


USERS_SEE = {NODE_ID: ("example.org", 9094), 9: ("b9", 2), 11: ("10.0.0.11", 1)}
INSIDE_SEE = {
    NODE_ID: ("127.0.0.1", 9092),
    9: ("10.0.0.9", 1),
    10: ("10.0.0.10", 1),
    11: ("10.0.0.11", 1),
}


@pytest.mark.parametrize(("listener", "seen"), [("USERS", USERS_SEE), ("INSIDE", INSIDE_SEE)])
def test_each_listener_has_its_own_addresses(
    broker: AdminPlayer, listener: str, seen: dict[int, tuple[str, int]]
) -> None:
    broker.connection.listener = listener
    metadata = broker.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
    assert {one.node_id: (one.host, one.port) for one in metadata.brokers} == seen
    cluster = broker.ask(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
    assert {one.broker_id: (one.host, one.port) for one in cluster.brokers} == seen
    context = RequestContext(
        0, 0, 0, None, broker.connection, broker.services.namespaces.names["default"]
    )
    endpoints = node_endpoints(broker.services, context, {NODE_ID, 9, 10, 11, 12})
    assert {node_id: (host, port) for node_id, host, port, _ in endpoints} == seen


def test_who_came_through_none_of_the_listeners_is_told_the_first_addresses(
    broker: AdminPlayer,
) -> None:
    """The simulator's and the brokers' own connections."""
    for one in (OTHER, INSIDE_ONLY, OLDER):
        assert reached_by(broker.services, one, "INTER_BROKER") is one
    assert len(live_brokers(broker.services)) == 4


def test_addresses_of_listeners_are_kept() -> None:
    registered = replace(NEWEST_BROKER, listeners=OWN)
    image = apply_changes(NEW_CELL, [RegisterBroker(registered)])
    assert decode_image(encode_image(image)) == image
    assert image.brokers[1].listeners == OWN
    assert image.brokers[1].endpoint("USERS") == OWN[1]
    with pytest.raises(InvalidChange, match="no room"):
        apply_changes(image, [UpdateFeature(METADATA_VERSION, OPEN_LEVEL - 1)])


def test_a_cell_of_the_first_level_keeps_one_address() -> None:
    image = MetadataImage("cluster")
    with pytest.raises(InvalidChange, match="has no RegisterBroker like this"):
        apply_changes(image, [RegisterBroker(replace(NEWEST_BROKER, listeners=OWN))])
    (change,) = decide_registration(
        image, replace(NEWEST_BROKER, listeners=OWN), None, ControllerSettings()
    )
    assert isinstance(change, RegisterBroker)
    assert change.broker.listeners == ()
