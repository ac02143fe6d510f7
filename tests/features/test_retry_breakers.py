"""The breaker at one broker: retries pause and come back, first deliveries go on, none is lost."""

from __future__ import annotations

from data_plane.broker.fetch.list_offsets import ASKS_PAUSE
from data_plane.cell.changes import AlterConfigs
from data_plane.cell.metadata import ResourceType
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.registry import ApiKey
from features.retry_dlq.breaker import PROBES_MAX, WAIT_MS_MIN
from tests.features.retry_player import RetryPlayer

DELAY_MS = 5_000


def broken(count: int = 120, *, failing: int = 120) -> RetryPlayer:
    """Of so many messages that were read the first ones were nacked."""
    player = RetryPlayer(policy={"retry.backoff": "fixed:5s"})
    player.store(*(b"%d" % index for index in range(count)))
    assert len(player.read("pay", 0)) == count
    assert player.nack(*(f"0:{offset}" for offset in range(failing))).error_code == 0
    return player


def asked(player: RetryPlayer, index: int = 1) -> tuple[int, int, int]:
    """Since when, how many were nacked, of how many."""
    wanted = ListOffsetsPartition(partition_index=index, timestamp=ASKS_PAUSE)
    topic = ListOffsetsTopic(name="pay", partitions=[wanted])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
    answer = player.ask(ApiKey.LIST_OFFSETS, 9, request)
    ((part,),) = (one.partitions for one in answer.topics)
    assert part.error_code == 0
    return part.timestamp, part.offset, part.leader_epoch


def metric(player: RetryPlayer, name: str, **labels: str) -> float | None:
    return player.services.metrics.get_sample_value(name, labels)


def test_retries_pause_and_a_few_are_tried() -> None:
    player = broken()
    assert metric(player, "tidewheel_retry_paused_partitions") == 1
    named = {"tenant": "default", "topic": "pay", "partition": "0"}
    assert metric(player, "tidewheel_retry_paused", **named) == 1
    player.pass_ms(DELAY_MS)
    # The time for the first probe has long come.
    tried = player.retried()
    assert len(tried) == PROBES_MAX
    assert metric(player, "tidewheel_retry_paused", **named) == 2
    player.store(b"new")
    assert [one.value for one in player.read("pay", 0)][-1] == b"new"
    player.nack(*(f"1:{one.offset}" for one in tried))
    player.pass_ms(2 * WAIT_MS_MIN - 1)
    assert len(player.retried()) == PROBES_MAX
    player.pass_ms(1)
    assert len(player.retried()) == 2 * PROBES_MAX


def test_all_come_back_once_a_probe_has_succeeded() -> None:
    player = broken()
    player.pass_ms(DELAY_MS)
    assert len(player.retried()) == PROBES_MAX
    for _ in range(3):
        player.pass_ms(1_000)
    retried = player.retried()
    assert sorted(int(one.value or b"") for one in retried) == list(range(120))
    assert metric(player, "tidewheel_retry_paused_partitions") == 0
    assert metric(player, "tidewheel_retry_pauses_total") == 1


def test_who_asks_is_told_since_when_and_why() -> None:
    player = broken(failing=99)
    assert asked(player) == (-1, -1, -1)
    since_ms = player.now_ms
    assert player.nack("0:99", "0:100").error_code == 0
    assert asked(player) == (since_ms, 101, 101)
    # The source's partition has no retries.
    assert asked(player, 0) == (-1, -1, -1)


def test_what_fails_less_often_comes_back_in_time() -> None:
    player = broken(failing=99)
    player.pass_ms(DELAY_MS)
    assert len(player.retried()) == 99


def test_who_does_not_want_it_sets_that_at_any_time() -> None:
    player = broken()
    player.pass_ms(DELAY_MS)
    assert len(player.retried()) == PROBES_MAX
    edit = (("tidewheel.retry.breaker", "false"),)
    player.commit(AlterConfigs("default", ResourceType.TOPIC, "pay", edit))
    player.pass_ms(1_000)
    assert len(player.retried()) == 120
    assert metric(player, "tidewheel_retry_paused_partitions") == 0


def test_the_next_life_begins_closed_and_has_lost_nothing() -> None:
    player = broken()
    player.pass_ms(DELAY_MS)
    assert len(player.retried()) == PROBES_MAX
    after = player.restarted(is_clean=False)
    for _ in range(3):
        after.pass_ms(1_000)
    assert sorted(int(one.value or b"") for one in after.retried()) == list(range(120))
