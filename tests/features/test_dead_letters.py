"""Dead letters on their way to their topics, at one broker without a server."""

from __future__ import annotations

from typing import Any

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
from data_plane.cell.changes import AlterConfigs
from data_plane.cell.metadata import ResourceType
from data_plane.log.fold import StoredBatch, sees
from data_plane.log.log import FEATURE
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import NewRecord, Record, build_batch, read_batch_header
from features.retry_dlq.arrivals import Arrivals
from features.retry_dlq.commands import DEAD_LETTER_HEADER
from features.retry_dlq.metrics import RetryMetrics
from features.retry_dlq.sender import DeadLetterSender
from tests.broker.admin_player import new_topic
from tests.broker.broker_player import NOW_MS
from tests.features.retry_player import RetryPlayer
from tests.log.world import read_all

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


class Player(RetryPlayer):
    """With time that passes until dead letters have arrived."""

    def settle(self) -> None:
        for _ in range(30):
            self.pass_ms(100)
            while not self.services.images.is_settled:
                self.pass_ms(1)

    def dead(self, *positions: str, **options: Any) -> None:
        produced = self.command(
            *(((DEAD_LETTER_HEADER, position.encode()),) for position in positions), **options
        )
        assert produced.error_code == ErrorCode.NONE, produced.message

    def letters(self, topic: str = "pay.dlq") -> list[Record]:
        partition = self.services.partitions.get_by_name("default", topic, 0)
        return [] if partition is None else self.read(topic, 0, 0, partition.high_watermark)

    @property
    def metrics(self) -> RetryMetrics:
        return self.sender.metrics

    @property
    def sender(self) -> DeadLetterSender:
        components = self.services.components
        return next(one for one in components if isinstance(one, DeadLetterSender))


def test_the_last_attempt_ends_in_a_topic_that_is_made_by_itself() -> None:
    player = Player(policy={"retry.attempts.max": "2"})
    player.produce(
        "orders", [], batch=build_batch([NewRecord(NOW_MS - 9, b"k", b"v", ((b"tw-tag", b"eu"),))])
    )
    player.run_jobs()
    player.nack("0:0", headers=((b"tw-reason", b"first"),))
    player.pass_ms(5_000)
    told = ((b"tw-reason", b"timeout"), (b"tw-exception", b"E"), (b"tw-consumer", b"c-1"))
    player.nack("1:1", headers=told)
    failed_ms = player.now_ms
    player.settle()
    (letter,) = player.letters()
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"v", failed_ms)
    assert dict(letter.headers) == {
        b"tw-tag": b"eu",
        b"tw-source": b"orders/0/0",
        b"tw-attempt": b"2",
        b"tw-produced-at": b"%d" % (NOW_MS - 9),
        b"tw-first-failed-at": b"%d" % NOW_MS,
        b"tw-failed-at": b"%d" % failed_ms,
        **dict(told),
        b"tw-dead": b"%s/0/0/2" % player.retry.log.topic_id.hex.encode(),
    }
    assert player.nacks.dead_letters.waiting_count == 0
    topic = player.services.image.topic("default", "pay.dlq")
    assert topic is not None
    assert topic.configs == {
        "tidewheel.headers": "true",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }
    assert (player.metrics.sent_count, player.metrics.look()) == (1, 0)


def test_each_arrives_once_and_in_order() -> None:
    player = Player()
    player.store(*(b"%d" % number for number in range(20)))
    for number in range(0, 20, 2):
        player.dead(f"0:{number}", f"0:{number + 1}")
        if number % 3 == 0:
            player.dead(f"0:{number}")
            player.settle()
    player.settle()
    assert [one.value for one in player.letters()] == [b"%d" % number for number in range(20)]
    assert player.nacks.dead_letters.waiting_count == 0


def test_what_was_sent_before_the_leader_knew_arrives_once() -> None:
    player = Player()
    player.store(b"a", b"b")
    player.dead("0:0", "0:1")
    player.settle()
    # As for a leader that comes after one which did not note what it had sent.
    fold = player.nacks
    fold.dead_letters = fold.dead_letters._replace(first_offset=0, waiting_count=2)
    player.settle()
    assert fold.dead_letters.waiting_count == 0
    assert [one.value for one in player.letters()] == [b"a", b"b"]
    target = player.services.partitions.get_by_name("default", "pay.dlq", 0)
    assert target is not None
    assert target.log.log_end_offset == 2
    origin = b"%s/0" % player.retry.log.topic_id.hex.encode()
    assert target.log.fold(Arrivals).last == {origin: (0, 1)}


def test_they_arrive_after_a_restart_at_any_moment() -> None:
    for steps in range(8):
        player = Player()
        player.store(b"a", b"b")
        player.command(((DEAD_LETTER_HEADER, b"0:0"),), ((DEAD_LETTER_HEADER, b"0:1"),))
        for _ in range(steps):
            if player.executor.queue:
                player.executor.run_one()
            player.pass_time(1)
        player = player.restarted(is_clean=steps % 2 == 0)
        player.settle()
        assert [one.value for one in player.letters()] == [b"a", b"b"], steps
        assert player.nacks.dead_letters.waiting_count == 0


def test_a_topic_that_is_named_is_not_made_and_holds_what_waits() -> None:
    player = Player(policy={"dlq.topic": "graveyard"})
    player.store(b"a")
    player.dead("0:0")
    player.settle()
    assert player.services.image.topic("default", "graveyard") is None
    assert player.metrics.look() == 1
    assert player.metrics.held_counts["no_such_topic"] > 0
    player.create_topic("graveyard", 1)
    player.settle()
    assert player.metrics.held_counts["invalid_record"] > 0
    assert player.letters("graveyard") == []
    edit = (("tidewheel.headers", "true"),)
    player.commit(AlterConfigs("default", ResourceType.TOPIC, "graveyard", edit))
    for _ in range(10):
        player.settle()
    assert [one.value for one in player.letters("graveyard")] == [b"a"]
    assert player.metrics.look() == 0


def test_whoever_may_read_the_subscription_may_read_its_dead_letters() -> None:
    player = Player()
    pattern = ResourcePattern(AclResourceType.TOPIC, PatternType.LITERAL, "pay")
    entry = AclEntry("User:reader", "*", AclOperation.READ, Permission.ALLOW)
    player.commit(AddAcls("default", (Acl(pattern, entry),)))
    player.retry.log.append_as_leader(*dead_batch(), leader_epoch=0, now_ms=NOW_MS, origin=FEATURE)
    player.retry.log.advance_high_watermark(1)
    player.retry.high_watermark = 1
    player.settle()
    acls = player.services.image.acls["default"]
    assert acls.by_pattern[pattern._replace(name="pay.dlq")] == {entry}


def dead_batch() -> tuple[bytearray, int, int]:
    headers = (
        (b"tw-dead-letter", b"0:0"),
        (b"tw-target", b"pay.dlq/0"),
        (b"tw-source", b"orders/0/0"),
    )
    batch = build_batch([NewRecord(NOW_MS, None, b"a", headers)], attributes=HIDDEN_FLAG)
    return batch, 0, len(batch)


def test_dead_letters_are_no_facts_about_delayed_messages_of_their_topic() -> None:
    player = Player(policy={"dlq.topic": "graveyard"})
    player.create_topic("graveyard", 1, {"tidewheel.headers": "true"})
    later = NewRecord(NOW_MS, None, b"later", ((b"tw-delay", b"1h"),))
    player.produce("graveyard", [], batch=build_batch([later]))
    player.run_jobs()
    player.store(b"a")
    # Its number in the source is that of the delayed message in the topic of dead letters.
    player.dead("0:0")
    player.settle()
    assert [one.value for one in player.letters("graveyard")] == [b"a"]
    player.pass_ms(3_600_000)
    assert [one.value for one in player.letters("graveyard")] == [b"a", b"later"]


def test_clients_send_no_dead_letters() -> None:
    player = Player()
    player.append((b"plain", (b"tw-dead", b"ab/0/0/5")))
    assert player.orders.log.fold(Arrivals).last == {}
    assert player.values() == [b"plain"]


def test_in_a_compacted_topic_they_stay_and_who_reads_it_anew_knows_of_the_last() -> None:
    player = Player()
    (made,) = player.create(
        new_topic("pay.dlq", 1, 1, configs={**COMPACTED, "tidewheel.headers": "true"})
    )
    assert made.error_code == ErrorCode.NONE, made.error_message
    player.store(b"without a key")
    for number in range(3):
        player.keyed(b"k", b"%d" % number)
    player.dead("0:0", "0:1", "0:2", "0:3")
    player.settle()
    target = player.services.partitions.get_by_name("default", "pay.dlq", 0)
    assert target is not None
    log = target.log
    newer = build_batch([NewRecord(NOW_MS, b"k", b"somebody else's")])
    player.produce("pay.dlq", [], batch=newer)
    player.produce("pay.dlq", [], batch=build_batch([NewRecord(NOW_MS, b"other", b"")]))
    log.roll()
    log.flush()
    checkpoint = player.logs.checkpoint_job(player.logs.directories[0])
    checkpoint.run()
    checkpoint.finish()
    job = log.compaction_job(player.now_ms)
    assert job is not None
    job.run()
    job.finish()
    values = [one.value for one in player.letters()]
    assert values == [b"without a key", b"0", b"1", b"2", b"somebody else's", b""]
    anew = Arrivals()
    for data in read_all(log):
        header = read_batch_header(data, 0)
        if sees(anew, header):
            anew.apply(StoredBatch(header, data))
    assert anew.last == log.fold(Arrivals).last
    assert len(anew) == 1
