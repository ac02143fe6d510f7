"""DescribeDelayed, the API of Kafka's protocol by which the SDK asks what is pending."""

from __future__ import annotations

import re
from typing import Any

import pytest

from data_plane.broker.request.authorizer import ALLOW_EVERYONE
from data_plane.cell.acls import (
    NO_ACLS,
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    AddAcls,
    PatternType,
    Permission,
    RemoveAcls,
    ResourcePattern,
)
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_delayed_request import DescribeDelayedRequest
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NOW_MS
from tests.features.delayed_player import DelayedPlayer
from tests.features.test_delayed_listing import World, small_sets

__all__ = ["small_sets"]  # A fixture, for each test here.


def ask(player: DelayedPlayer, **wanted: Any) -> Any:
    request = DescribeDelayedRequest(**{"topic": "orders", **wanted})
    return player.ask(ApiKey.DESCRIBE_DELAYED, 0, request)


def pages(player: DelayedPlayer, **wanted: Any) -> list[Any]:
    found = [ask(player, **wanted)]
    while found[-1].next_offset >= 0:
        last = found[-1]
        after = {"after_deliver_at_ms": last.next_deliver_at_ms, "after_offset": last.next_offset}
        found.append(ask(player, **wanted, **after))
    assert all(page.error_code == 0 for page in found)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_it_says_what_the_listing_says(seed: int) -> None:
    world = World(seed)
    player, expected = world.player, world.expected
    for size in (7, 1_000):
        listed = [one for page in pages(player, messages_max=size) for one in page.messages]
        assert [(one.deliver_at_ms, one.offset) for one in listed] == expected()
        assert all(one.value == b"%d" % one.offset for one in listed)
        eu = pages(player, messages_max=size, filter="eu", is_to_cancel=True)
        offsets = [offset for page in eu for offset in page.offsets]
        assert not any(page.messages for page in eu)
        assert offsets == [offset for _, offset in expected(lambda tags: b"eu" in tags)]
    first, end = NOW_MS + 15_000, NOW_MS + 3_600_050
    between = pages(player, messages_max=5, from_ms=first, until_ms=end)
    assert [one.offset for page in between for one in page.messages] == [
        offset for _, offset in expected(first=first, end=end)
    ]
    counted = ask(player, edges_ms=[0, first, end])
    assert counted.pending_count == len(world.pending)
    assert counted.counts == [len(expected(end=first)), len(expected(first=first, end=end))]
    assert counted.first_ms == min(due_ms for due_ms, _ in world.pending.values())
    assert not counted.messages


def test_large_messages_come_cut() -> None:
    player = DelayedPlayer()
    header = (b"tw-deliver-at", b"%d" % (NOW_MS + 60_000))
    player.append((b"v" * 3_000, header, (b"h", b"x" * 100)))
    player.append((b"small", header))
    (first,) = ask(player, messages_max=10, bytes_max=1_000).messages
    assert (first.is_cut, first.value, first.value_bytes) == (True, b"v" * 500, 3_000)
    whole, small = ask(player, messages_max=10).messages
    assert (len(whole.value), whole.is_cut, small.value) == (3_000, False, b"small")
    assert [(one.key, one.value) for one in whole.headers] == [header, (b"h", b"x" * 100)]
    short, _ = ask(player, messages_max=10, value_bytes_max=2).messages
    assert (short.value, short.is_cut, len(short.headers)) == (b"vv", True, 2)


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not"),
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not"),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not"),
        ({"filter": "eu and"}, ErrorCode.INVALID_REQUEST, "filter: "),
        ({"edges_ms": [5, 3]}, ErrorCode.INVALID_REQUEST, "edges_ms: .* ascending"),
        ({"edges_ms": [0] * 1_002}, ErrorCode.INVALID_REQUEST, "edges_ms: 1002"),
        ({"messages_max": 1_001}, ErrorCode.INVALID_REQUEST, "messages_max: 1001"),
        ({"messages_max": -1}, ErrorCode.INVALID_REQUEST, "messages_max: -1"),
        ({"messages_max": 10_001, "is_to_cancel": True}, ErrorCode.INVALID_REQUEST, "10001"),
        ({"bytes_max": 1 << 21}, ErrorCode.INVALID_REQUEST, "bytes_max: "),
        ({"value_bytes_max": -2}, ErrorCode.INVALID_REQUEST, "value_bytes_max: -2"),
    ],
)
def test_what_makes_no_sense_is_named(wanted: Any, code: ErrorCode, words: str) -> None:
    answer = ask(DelayedPlayer(), **wanted)
    assert answer.error_code == code
    if code is ErrorCode.INVALID_REQUEST:
        assert re.search(words, answer.error_message)


def grant_alone(player: DelayedPlayer, operation: AclOperation) -> None:
    """Everybody may do this to topics, and nothing else."""
    image = player.services.image
    settings = {ALLOW_EVERYONE: "false"}
    player.commit(PutTenant(TenantImage("default", image.cluster_id, settings=settings)))
    there = image.acls.get("default", NO_ACLS)
    if there.count:
        player.commit(RemoveAcls("default", tuple(there)))
    entry = AclEntry("User:*", "*", operation, int(Permission.ALLOW))
    pattern = ResourcePattern(int(AclResourceType.TOPIC), int(PatternType.LITERAL), "*")
    player.commit(AddAcls("default", (Acl(pattern, entry),)))


def test_to_list_is_to_read_and_what_is_to_be_cancelled_is_to_write() -> None:
    world = World(1)
    player = world.player
    rights = {AclOperation.READ: False, AclOperation.WRITE: True}
    for operation, is_to_cancel in rights.items():
        grant_alone(player, operation)
        for wanted in (False, True):
            answer = ask(player, messages_max=3, is_to_cancel=wanted)
            is_allowed = wanted is is_to_cancel
            refused = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            assert answer.error_code == (0 if is_allowed else refused)
            assert bool(answer.messages or answer.offsets) is is_allowed
            assert answer.pending_count == (len(world.pending) if is_allowed else 0)
