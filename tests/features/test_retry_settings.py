"""Configurations of retries: which cell takes them, and who may name a topic for dead letters."""

from __future__ import annotations

import pytest

from data_plane.cell.acls import (
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    AddAcls,
    PatternType,
    Permission,
    ResourcePattern,
)
from data_plane.cell.changes import UpdateFeature
from data_plane.cell.features import RETRIES
from data_plane.cell.metadata import ResourceType
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from tests.broker.admin_player import new_topic
from tests.features.delayed_player import all_properties
from tests.features.retry_player import RetryPlayer

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
SET, DELETE = 0, 1
PROPERTY = "tidewheel.dlq.topic"


def grant(operation: AclOperation, topic: str) -> AddAcls:
    """To whoever plays the client."""
    pattern = ResourcePattern(AclResourceType.TOPIC, PatternType.LITERAL, topic)
    entry = AclEntry("User:ANONYMOUS", "*", operation, Permission.ALLOW)
    return AddAcls("default", (Acl(pattern, entry),))


def player_with_rights() -> RetryPlayer:
    """Who asks may read `orders`, and make and alter `pay` and `bill`."""
    player = RetryPlayer()
    player.create_topic("theirs", 1, {"tidewheel.headers": "true"})
    player.create_topic("bill.dlq", 1, {"tidewheel.headers": "true"})
    for operation, topic in (
        (AclOperation.READ, "orders"),
        (AclOperation.ALTER_CONFIGS, "pay"),
        (AclOperation.CREATE, "bill"),
        (AclOperation.CREATE, "ship"),
    ):
        player.commit(grant(operation, topic))
    settings = {"allow.everyone.if.no.acl.found": "false"}
    cluster_id = player.services.image.cluster_id
    player.commit(PutTenant(TenantImage("default", cluster_id, settings=settings)))
    return player


def make(player: RetryPlayer, name: str, target: str = "") -> tuple[int, str | None]:
    configs = {"tidewheel.source": "orders", **({PROPERTY: target} if target else {})}
    (made,) = player.create(new_topic(name, -1, -1, configs=dict(configs)))
    return made.error_code, made.error_message


@pytest.mark.parametrize("target", ["theirs", "nowhere"])
def test_who_has_dead_letters_sent_to_a_topic_may_write_there(target: str) -> None:
    player = player_with_rights()
    # The same, whether there is such a topic or not.
    words = (
        f"Dead letters of topic 'ship' go to topic '{target}': who has them sent there needs WRITE "
        "on it."
    )
    assert make(player, "ship", target) == (REFUSED, words)
    edit = (PROPERTY, SET, target)
    code, message = player.alter(ResourceType.TOPIC, "pay", edit)
    assert (code, message) == (REFUSED, words.replace("ship", "pay"))
    player.commit(grant(AclOperation.WRITE, target))
    assert make(player, "ship", target) == (0, None)
    assert player.alter(ResourceType.TOPIC, "pay", edit)[0] == 0
    # Whoever edits something else has not sent them there.
    backoff = ("tidewheel.retry.backoff", SET, "fixed:1s")
    assert player.alter(ResourceType.TOPIC, "pay", backoff)[0] == 0


def test_the_name_that_stands_for_nothing_said_may_be_somebody_elses_topic() -> None:
    player = player_with_rights()
    code, message = make(player, "bill")
    assert code == REFUSED
    assert message is not None
    assert "'bill.dlq'" in message
    assert make(player, "ship") == (0, None)
    player.commit(grant(AclOperation.WRITE, "bill.dlq"))
    assert make(player, "bill") == (0, None)
    player.commit(grant(AclOperation.ALTER_CONFIGS, "bill"))
    assert player.alter(ResourceType.TOPIC, "bill", (PROPERTY, DELETE, None))[0] == 0


def test_policies_need_the_feature() -> None:
    player = RetryPlayer(retries=0)
    configs = {"tidewheel.source": "orders", "tidewheel.retry.attempts.max": "3"}
    made = player.create_outcome(new_topic("ship", -1, -1, configs=dict(configs)))
    words = (
        f"tidewheel.retry.attempts.max needs the feature {RETRIES} at level 1: `tidewheel features "
        "upgrade`, once all brokers know it."
    )
    assert made == (ErrorCode.INVALID_CONFIG, words)
    edit = ("tidewheel.retry.attempts.max", SET, "3")
    assert player.alter(ResourceType.TOPIC, "pay", edit) == (ErrorCode.INVALID_CONFIG, words)
    player.commit(UpdateFeature(RETRIES, 1))
    assert player.alter(ResourceType.TOPIC, "pay", edit)[0] == 0
    assert player.create_outcome(new_topic("ship", -1, -1, configs=dict(configs))) == (0, None)


def test_all_of_them_need_it_and_nothing_else_does() -> None:
    needs = all_properties().needs
    assert set(needs.values()) == {RETRIES}
    assert {name.split(".")[1] for name in needs} == {"retry", "dlq", "ordering"}
