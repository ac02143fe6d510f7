"""Values of properties: how they are shown, which are refused, and which lock everybody out."""

from __future__ import annotations

import pytest

from data_plane.cell.changes import AlterConfigs
from data_plane.wire.errors import ErrorCode
from tests.broker.admin_player import (
    APPEND,
    BROKER,
    DELETE,
    NODE,
    SET,
    TOPIC,
    AdminPlayer,
    Outcome,
    new_topic,
    synonyms,
)

E = ErrorCode
OK: Outcome = (0, None)


@pytest.fixture
def player() -> AdminPlayer:
    player = AdminPlayer()
    player.create(new_topic("cfg"))
    return player


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("retention.ms", " 77 ", "77"),
        ("retention.ms", "+77", "77"),
        ("min.cleanable.dirty.ratio", " .50 ", "0.5"),
        ("preallocate", " TRUE ", "true"),
        ("cleanup.policy", " compact , delete ", "compact,delete"),
        ("cleanup.policy", "delete,delete", "delete"),
    ],
)
def test_what_a_value_means_is_shown_as_apache_kafka(
    player: AdminPlayer, name: str, text: str, shown: str
) -> None:
    assert player.alter(TOPIC, "cfg", (name, SET, text)) == OK
    config = player.config(TOPIC, "cfg", name)
    assert config.value == shown
    assert synonyms(config)[0][1] == shown


def test_what_a_broker_s_value_means_is_shown(player: AdminPlayer) -> None:
    for resource in ("", NODE):
        assert player.alter(BROKER, resource, ("log.retention.ms", SET, " 77 ")) == OK
        assert player.value(BROKER, resource, "log.retention.ms") == "77"


@pytest.mark.parametrize("change", [(SET, "delete,"), (SET, "delete,,compact"), (APPEND, "")])
def test_a_list_with_an_empty_item_as_apache_kafka(
    player: AdminPlayer, change: tuple[int, str]
) -> None:
    assert player.alter(TOPIC, "cfg", ("cleanup.policy", *change)) == (
        E.INVALID_CONFIG,
        "Configuration 'cleanup.policy' values must not be empty.",
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max.connections", "0", "max.connections: Value must be at least 1"),
        ("max.connections.per.ip", "0", "nobody could connect"),
        ("max.connections.per.ip.overrides", "127.0.0.1:x", "not of the form address:count"),
        ("max.connections.per.ip.overrides", "localhost:5", "names of hosts are not looked up"),
        ("max.connections.per.ip.overrides", "[::1]", "not of the form address:count"),
        ("max.connections.per.ip.overrides", ":5", "not of the form address:count"),
        ("max.connections.per.ip.overrides", "127.0.0.1", "not of the form address:count"),
        ("log.retention.ms", "0", "Value must be at least 1, or -1 for no limit"),
        ("log.retention.ms", "-2", "Value must be at least 1, or -1 for no limit"),
        ("log.cleaner.min.cleanable.ratio", "1_0", "Not a number of type DOUBLE"),
    ],
)
@pytest.mark.parametrize("resource", ["", NODE])
def test_values_that_no_broker_may_have(
    player: AdminPlayer, resource: str, name: str, value: str, words: str
) -> None:
    code, message = player.alter(BROKER, resource, (name, SET, value))
    assert code == E.INVALID_REQUEST
    assert words in (message or "")


def test_no_connections_but_from_named_addresses(player: AdminPlayer) -> None:
    limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    both = ((limit, SET, "0"), (overrides, SET, "127.0.0.1:5,[::1]:6"))
    assert player.alter(BROKER, NODE, *both) == OK
    code, message = player.alter(BROKER, NODE, (overrides, DELETE, None))
    assert code == E.INVALID_REQUEST
    assert "nobody could connect" in (message or "")
    assert player.alter(BROKER, NODE, (overrides, DELETE, None), (limit, DELETE, None)) == OK


def test_overrides_that_an_earlier_release_took_say_nothing(player: AdminPlayer) -> None:
    limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    services = player.services
    stored = AlterConfigs("default", BROKER, "", ((overrides, "127.0.0.1"),))
    image = services.store.apply((stored,), services.image.version, "an earlier release")
    services.apply_image(image, player.now_ms)
    code, message = player.alter(BROKER, NODE, (limit, SET, "0"))
    assert code == E.INVALID_REQUEST
    assert "nobody could connect" in (message or "")
    both = ((limit, SET, "0"), (overrides, SET, "127.0.0.1:5"))
    assert player.alter(BROKER, NODE, *both) == OK


@pytest.mark.parametrize("overrides", [",", " ", "127.0.0.1:0", "127.0.0.1:0,[::1]:0"])
def test_overrides_that_let_nobody_in(player: AdminPlayer, overrides: str) -> None:
    changes = (
        ("max.connections.per.ip", SET, "0"),
        ("max.connections.per.ip.overrides", SET, overrides),
    )
    code, message = player.alter(BROKER, NODE, *changes)
    assert code == E.INVALID_REQUEST
    assert "nobody could connect" in (message or "")
