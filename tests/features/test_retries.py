"""Nacks at one broker without a server: judged, stored, and the message back when it is due."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from data_plane.broker.authorization.requirements import GUARDS
from data_plane.broker.request.api import CloseConnection, KeptRequest
from data_plane.broker.request.principal import Principal
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
from data_plane.cell.changes import AlterConfigs, ChangePartition
from data_plane.cell.features import RETRIES
from data_plane.cell.metadata import ResourceType
from data_plane.wire.compression import Compression
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.init_producer_id_request import InitProducerIdRequest
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.records import NewRecord, build_batch
from data_plane.wire.registry import ApiKey
from features.delayed.runs import FileRun
from features.retry_dlq import positions
from tests.broker.admin_player import new_topic
from tests.broker.broker_player import NOW_MS
from tests.features.delayed_player import SkewedClock
from tests.features.retry_player import RetryPlayer

TOPIC_AUTHORIZATION_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_nacked_message_comes_back_after_the_delay_of_its_attempt() -> None:
    player = RetryPlayer()
    player.produce(
        "orders", [], batch=build_batch([NewRecord(NOW_MS - 9, b"k", b"v", ((b"h", b"1"),))])
    )
    player.run_jobs()
    assert [one.value for one in player.read("pay", 0)] == [b"v"]
    produced = player.nack("0:0", headers=((b"tw-reason", b"timeout"),))
    assert produced == (ErrorCode.NONE, 0, None)
    player.pass_ms(4_999)
    assert player.retried() == []
    player.pass_ms(1)
    (again,) = player.retried()
    assert (again.offset, again.key, again.value) == (1, b"k", b"v")
    assert again.headers == (
        (b"h", b"1"),
        (b"tw-source", b"orders/0/0"),
        (b"tw-attempt", b"2"),
        (b"tw-produced-at", b"%d" % (NOW_MS - 9)),
        (b"tw-first-failed-at", b"%d" % NOW_MS),
        (b"tw-reason", b"timeout"),
        (b"tw-fired", b"0"),
    )
    assert player.nack("1:1").error_code == ErrorCode.NONE
    player.pass_ms(30_000)
    (third,) = player.retried(2)
    headers = dict(third.headers)
    assert (third.value, headers[b"tw-attempt"], headers[b"tw-fired"]) == (b"v", b"3", b"2")
    assert headers[b"tw-first-failed-at"] == b"%d" % NOW_MS
    assert headers[b"tw-source"] == b"orders/0/0"
    assert b"tw-reason" not in headers
    player.pass_ms(10_000_000)
    assert len(player.retried()) == 2


@pytest.mark.parametrize("compression", list(Compression))
def test_what_follows_is_not_held_up(compression: int) -> None:
    player = RetryPlayer()
    player.store(b"a", b"b", b"c")
    assert player.nack("0:0", "0:2", compression=compression).error_code == ErrorCode.NONE
    player.store(b"d")
    assert [one.value for one in player.read("pay", 0)] == [b"a", b"b", b"c", b"d"]
    player.pass_ms(5_000)
    assert [one.value for one in player.retried()] == [b"a", b"c"]


def test_a_nack_that_was_said_before_brings_nothing_back_again() -> None:
    player = RetryPlayer()
    player.store(b"a", b"b")
    assert player.nack("0:0").error_code == ErrorCode.NONE
    assert player.nack("0:0", "0:1", "0:1").error_code == ErrorCode.NONE
    player.pass_ms(5_000)
    assert [one.value for one in player.retried()] == [b"a", b"b"]
    assert player.nack("0:0").error_code == ErrorCode.NONE
    player.pass_ms(1_000_000)
    assert len(player.retried()) == 2


def test_its_own_delay_goes_before_that_of_the_policy() -> None:
    player = RetryPlayer()
    player.store(b"a")
    player.nack("0:0", headers=((b"tw-delay", b"1h"),))
    player.pass_ms(3_599_999)
    assert player.retried() == []
    player.pass_ms(1)
    assert len(player.retried()) == 1


def test_the_last_attempt_leaves_a_dead_letter_and_nothing_comes_back() -> None:
    player = RetryPlayer(policy={"retry.attempts.max": "2"})
    player.store(b"a", b"b")
    player.nack("0:0")
    player.pass_ms(5_000)
    assert player.nack("1:1").error_code == ErrorCode.NONE
    assert player.command(((b"tw-dead-letter", b"0:1"),)).error_code == ErrorCode.NONE
    player.pass_ms(10_000_000)
    assert [one.value for one in player.retried()] == [b"a"]


def test_a_policy_that_is_edited_holds_for_the_next_nack() -> None:
    player = RetryPlayer()
    player.store(b"a", b"b")
    player.nack("0:0")
    edit = (("tidewheel.retry.backoff", "fixed:1s"),)
    player.commit(AlterConfigs("default", ResourceType.TOPIC, "pay", edit))
    player.nack("0:1")
    player.pass_ms(1_000)
    assert [one.value for one in player.retried()] == [b"b"]
    player.pass_ms(4_000)
    assert [one.value for one in player.retried()] == [b"b", b"a"]


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ("0:7", "no record was delivered from there"),
        ("1:0", "no record was delivered from there"),
        ("2:0", "not one of this pair"),
        ("0", "it names a partition and an offset"),
    ],
)
def test_what_was_not_delivered_is_refused_by_name(position: str, message: str) -> None:
    player = RetryPlayer()
    player.store(b"a")
    produced = player.nack("0:0", position)
    assert produced.error_code == ErrorCode.INVALID_RECORD
    assert produced.message is not None
    assert produced.message.startswith("record 1: ")
    assert message in produced.message
    assert player.retry.log.log_end_offset == 0


def test_plain_records_and_other_partitions_are_refused() -> None:
    player = RetryPlayer()
    player.store(b"a")
    produced = player.command(())
    assert (produced.error_code, produced.message) == (
        ErrorCode.INVALID_RECORD,
        "record 0: a subscription takes records with tw-nack or tw-dead-letter only",
    )
    produced = player.nack("0:0", index=0)
    assert produced.error_code == ErrorCode.INVALID_RECORD
    assert produced.message == "Topic 'pay' reads from another one: produce to its source."
    assert player.nack("0:0", index=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nacks_need_the_feature() -> None:
    player = RetryPlayer(retries=0)
    player.store(b"a")
    produced = player.nack("0:0")
    assert produced.error_code == ErrorCode.INVALID_RECORD
    assert produced.message is not None
    assert RETRIES in produced.message


def test_a_producer_that_repeats_a_batch_is_told_where_it_is() -> None:
    player = RetryPlayer()
    player.store(b"a", b"b", b"c")
    sent: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0}
    first = player.nack("0:0", "0:1", base_sequence=0, **sent)
    assert first == (ErrorCode.NONE, 0, None)
    assert player.nack("0:0", "0:1", base_sequence=0, **sent) == first
    assert player.retry.log.log_end_offset == 2
    skipped = player.nack("0:2", base_sequence=9, **sent)
    assert skipped.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert player.nack("0:2", base_sequence=2, **sent) == (ErrorCode.NONE, 2, None)


def test_batches_of_a_partition_are_judged_one_after_the_other() -> None:
    player = RetryPlayer()
    player.store(b"a")
    batch = build_batch([NewRecord(NOW_MS, None, None, ((b"tw-nack", b"0:0"),))])
    sent = [
        player.produce("pay", [], index=1, batch=bytearray(batch), connection=player.connect())
        for _ in range(5)
    ]
    assert len(player.executor.queue) == 1
    player.run_jobs()
    offsets = [
        part.base_offset
        for pending in sent
        for topic in pending.response.responses
        for part in topic.partition_responses
    ]
    assert offsets == [0, 1, 2, 3, 4]
    player.pass_ms(5_000)
    assert len(player.retried()) == 1


def test_who_is_gone_while_it_is_judged_holds_up_nobody() -> None:
    player = RetryPlayer()
    player.store(b"a", b"b")
    gone, waiting = player.connect(), player.connect()
    for connection in (gone, waiting):
        batch = build_batch([NewRecord(NOW_MS, None, None, ((b"tw-nack", b"0:0"),))])
        player.produce("pay", [], index=1, batch=batch, connection=connection)
        connection.gate.close()
    assert player.nack("0:1").error_code == ErrorCode.NONE
    player.pass_ms(5_000)
    assert b"b" in [one.value for one in player.retried()]


def test_it_comes_back_after_a_restart_and_once() -> None:
    player = RetryPlayer()
    player.store(b"a", b"b")
    player.nack("0:0", "0:1")
    for is_clean in (True, False):
        player = player.restarted(is_clean=is_clean)
        player.pass_ms(1_000)
        assert player.nack("0:0").error_code == ErrorCode.NONE
    player.pass_ms(4_000)
    assert [one.value for one in player.retried()] == [b"a", b"b"]
    player = player.restarted()
    player.pass_ms(100_000)
    assert [one.value for one in player.retried()] == [b"a", b"b"]


def test_who_may_read_may_nack_and_have_a_producer_id() -> None:
    player = RetryPlayer()
    player.store(b"a")
    reader = player.connect()
    reader.principal = Principal("User", "reader")
    player.services.handlers.guards.update(GUARDS)
    assert player.nack("0:0", connection=reader).error_code == ErrorCode.NONE
    for name, operation in (("pay", AclOperation.WRITE), ("orders", AclOperation.READ)):
        pattern = ResourcePattern(AclResourceType.TOPIC, PatternType.LITERAL, name)
        entry = AclEntry("User:writer", "*", operation, Permission.ALLOW)
        player.commit(AddAcls("default", (Acl(pattern, entry),)))
    assert player.nack("0:0", connection=reader).error_code == TOPIC_AUTHORIZATION_FAILED
    pattern = ResourcePattern(AclResourceType.TOPIC, PatternType.LITERAL, "pay")
    entry = AclEntry("User:reader", "*", AclOperation.READ, Permission.ALLOW)
    player.commit(AddAcls("default", (Acl(pattern, entry),)))
    assert player.nack("0:0", connection=reader).error_code == ErrorCode.NONE
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    answer = player.ask(ApiKey.INIT_PRODUCER_ID, 4, request, connection=reader)
    assert answer.error_code == ErrorCode.NONE
    writer = player.connect()
    writer.principal = Principal("User", "writer")
    assert player.nack("0:0", connection=writer).error_code == TOPIC_AUTHORIZATION_FAILED


def test_what_is_judged_in_one_leader_epoch_is_not_stored_in_the_next() -> None:
    player = RetryPlayer()
    player.store(b"a")
    batch = build_batch([NewRecord(NOW_MS, None, None, ((b"tw-nack", b"0:0"),))])
    pending = player.produce("pay", [], index=1, batch=batch)
    assert len(player.executor.queue) == 1
    topic = player.services.image.topic("default", "pay")
    assert topic is not None
    image = topic.partitions[0]
    later = replace(image, leader_epoch=image.leader_epoch + 1, partition_epoch=1)
    player.commit(ChangePartition(topic.topic_id, 0, later))
    player.run_jobs()
    ((part,),) = (one.partition_responses for one in pending.response.responses)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert player.retry.log.log_end_offset == 0
    assert player.nack("0:0").error_code == ErrorCode.NONE


def test_nothing_is_judged_while_the_clock_is_in_doubt() -> None:
    player = RetryPlayer()
    player.store(b"a")
    clock = SkewedClock()
    player.services.wall_clock = clock  # type: ignore[assignment]
    clock.skew_ms = 51
    assert player.nack("0:0").error_code == ErrorCode.REQUEST_TIMED_OUT
    clock.skew_ms = 50
    assert player.nack("0:0").error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry.backoff", "soon"),
        ("retry.backoff", "linear:5s"),
        ("retry.jitter", "1.5"),
        ("retry.attempts.max", "-1"),
        ("dlq.topic", "no topic"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(name: str, value: str) -> None:
    player = RetryPlayer()
    configs = {"tidewheel.source": "orders", f"tidewheel.{name}": value}
    (made,) = player.create(new_topic("other", -1, -1, configs=dict(configs)))
    assert made.error_code == ErrorCode.INVALID_CONFIG
    assert f"tidewheel.{name}" in (made.error_message or "")


def test_only_subscriptions_have_policies_and_none_of_them_is_compacted() -> None:
    player = RetryPlayer()
    (made,) = player.create(new_topic("other", 1, 1, configs={"tidewheel.retry.jitter": "0.5"}))
    assert made.error_code == ErrorCode.INVALID_CONFIG
    configs = {"tidewheel.source": "orders", "cleanup.policy": "compact"}
    (made,) = player.create(new_topic("other", -1, -1, configs=dict(configs)))
    assert made.error_code == ErrorCode.INVALID_CONFIG
    assert "cleanup.policy" in (made.error_message or "")


def test_the_lag_of_a_retry_partition_is_what_was_delivered() -> None:
    player = RetryPlayer()
    player.store(b"a", b"b", b"c")
    player.nack("0:0", "0:1")
    player.nack("0:2", headers=((b"tw-delay", b"1h"),))
    player.pass_ms(5_000)
    asked = ListOffsetsPartition(partition_index=1, timestamp=1 << 62)
    topic = ListOffsetsTopic(name="pay", partitions=[asked])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
    pending = player.send(ApiKey.LIST_OFFSETS, 7, request)
    player.run_jobs()
    ((part,),) = (one.partitions for one in pending.response.topics)
    assert (part.error_code, part.offset) == (ErrorCode.NONE, 2)


def test_what_has_left_the_source_is_forgotten_by_a_record() -> None:
    player = RetryPlayer()
    player.store(b"a", b"b", b"c")
    player.nack("0:0", "0:1", "0:2", headers=((b"tw-delay", b"1h"),))
    player.pass_ms(1_000)
    assert player.retry.log.log_end_offset == 3
    player.orders.log.delete_records(2)
    player.pass_ms(1_000)
    assert player.nacks.of_source.floor == 2
    assert player.nacks.of_source.lowest_offset == 2
    assert player.nack("0:0").error_code == ErrorCode.INVALID_RECORD
    player.pass_ms(10_000)
    # No record without need.
    assert player.retry.log.log_end_offset == 4
    player.pass_ms(3_600_000)
    assert [one.value for one in player.retried()] == [b"a", b"b", b"c"]
    player = player.restarted()
    player.pass_ms(1_000)
    assert player.nacks.of_source.floor == 2


def test_positions_are_merged_into_files_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        positions.Positions.__init__, "__kwdefaults__", {"run_entries": 4, "runs_merged": 2}
    )
    player = RetryPlayer()
    player.store(*(b"%d" % number for number in range(40)))
    for number in range(40):
        player.nack(f"0:{number}", headers=((b"tw-delay", b"1h"),))
    for _ in range(10):
        player.pass_ms(1_000)
    runs = player.nacks.of_source.runs
    assert any(isinstance(run, FileRun) for run in runs)
    assert len(runs) < 5
    assert player.nack("0:3").error_code == ErrorCode.NONE
    assert len(player.nacks) == 40


def test_a_batch_that_is_answered_at_once_holds_up_no_other_of_its_connection() -> None:
    player = RetryPlayer()
    player.store(b"a")
    released: list[bool] = []
    connection = player.connect()
    connection.keep = lambda buf, position, end: KeptRequest(
        bytearray(memoryview(buf)[position:end]), position, lambda: released.append(True)
    )
    sent: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    for count in (1, 2):
        player.nack("0:0", connection=connection, **sent)
        assert len(released) == count


def test_a_request_that_fails_at_once_gives_its_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    player = RetryPlayer()
    player.store(b"a")
    taker = player.services.taker
    assert taker is not None

    def fail(*arguments: Any, **named: Any) -> Any:
        raise OSError("no such device")

    with monkeypatch.context() as patch:
        patch.setattr(taker, "begin", fail)
        with pytest.raises(CloseConnection, match="no such device"):
            player.nack("0:0")
    assert player.nack("0:0").error_code == ErrorCode.NONE
