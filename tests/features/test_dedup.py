"""Message ids at one broker without a server: a second message within the window is acknowledged,
and not stored."""

from __future__ import annotations

import pytest

from data_plane.cell.changes import InvalidChange, UpdateFeature
from data_plane.cell.features import DEDUPLICATION
from data_plane.log.permit import PERMITTED, DeletionPermit
from data_plane.wire.compression import Compression
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import HIDDEN_FLAG, IDS_FLAG
from data_plane.wire.records import iter_batch_headers
from features.dedup.fold import fold_of
from features.dedup.forgetting import SLACK_MS
from features.headers import HEADER_RULES
from tests.broker.admin_player import DELETE, SET, TOPIC, new_topic
from tests.broker.broker_player import NOW_MS
from tests.features.dedup_player import WINDOW_MS, DedupPlayer, Sequence, produced, use_small_sets
from tests.log.world import read_all


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_sets(monkeypatch)


def test_a_second_message_with_the_id_is_acknowledged_and_not_stored() -> None:
    player = DedupPlayer()
    assert player.taken(b"a") == 0
    assert player.taken(b"b") == 1
    assert player.taken(b"a") == 0
    assert player.taken(b"c") == 2
    assert player.shown() == [(0, b"va"), (1, b"vb"), (2, b"vc")]
    assert player.duplicates.dropped_count == 1


def test_messages_without_an_id_are_all_stored() -> None:
    player = DedupPlayer()
    for _ in range(3):
        assert player.take((None, b"same")).error_code == 0
    assert player.shown() == [(0, b"same"), (1, b"same"), (2, b"same")]


@pytest.mark.parametrize("compression", list(Compression))
def test_duplicates_are_taken_out_and_leave_gaps(compression: int) -> None:
    player = DedupPlayer()
    player.taken(b"b", b"d")
    options = {"compression": compression}
    answer = player.take(
        (b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"c", b"4"), (b"d", b"5"), **options
    )
    assert (answer.error_code, answer.base_offset) == (0, 2)
    assert player.shown() == [(0, b"vb"), (1, b"vd"), (2, b"1"), (4, b"3"), (5, b"4")]
    assert player.orders.log.log_end_offset == 7
    assert player.taken(b"e") == 7


def test_the_window_ends() -> None:
    player = DedupPlayer()
    player.taken(b"a")
    player.pass_ms(WINDOW_MS - 1)
    assert player.taken(b"a") == 0
    player.pass_ms(1)
    assert player.taken(b"a") == 1
    # It is the newest that counts from then on.
    player.pass_ms(WINDOW_MS - 1)
    assert player.taken(b"a") == 1


def test_of_two_in_a_batch_the_first_is_stored() -> None:
    player = DedupPlayer()
    assert player.take((b"a", b"1"), (b"a", b"2"), (b"b", b"3")).base_offset == 0
    assert player.shown() == [(0, b"1"), (2, b"3")]


@pytest.mark.parametrize(
    ("ids", "base_offset"),
    [
        ((b"a", b"b", b"c"), 0),
        ((b"b", b"c"), 1),
        # Where they are nobody can say by one number.
        ((b"a", b"c"), -1),
        ((b"b", b"a"), -1),
        ((b"c", b"c"), -1),
    ],
)
def test_a_batch_of_duplicates_alone_is_answered_with_where_they_are(
    ids: tuple[bytes, ...], base_offset: int
) -> None:
    player = DedupPlayer()
    player.taken(b"a", b"b", b"c")
    assert player.taken(*ids) == base_offset
    assert player.orders.log.log_end_offset == 3


def test_an_idempotent_producer_goes_on_after_a_batch_of_duplicates() -> None:
    player = DedupPlayer()
    player.taken(b"a", b"b", b"c")
    assert player.taken(b"x", sequence=Sequence(7, 0)) == 3
    assert player.taken(b"a", b"b", b"c", sequence=Sequence(7, 1)) == 0
    assert player.taken(b"y", sequence=Sequence(7, 4)) == 7
    assert player.shown() == [(0, b"va"), (1, b"vb"), (2, b"vc"), (3, b"vx"), (7, b"vy")]
    # What it sends again gets the answer that it got.
    assert player.taken(b"a", b"b", b"c", sequence=Sequence(7, 1)) == 0
    assert player.taken(b"y", sequence=Sequence(7, 4)) == 7
    assert player.orders.log.log_end_offset == 8
    late = player.take((b"z", b"z"), sequence=Sequence(7, 9))
    assert late.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_repeats_no_run_is_answered_with_the_offsets_that_it_takes() -> None:
    player = DedupPlayer()
    player.taken(b"a", b"b", b"c")
    assert player.taken(b"c", b"a", sequence=Sequence(7, 0)) == 3
    assert player.taken(b"c", b"a", sequence=Sequence(7, 0)) == 3
    assert player.orders.log.log_end_offset == 5
    assert len(player.shown()) == 3


def test_a_repeated_batch_is_known_by_its_sequence_first() -> None:
    """Its own ids are in the log by then."""
    player = DedupPlayer()
    player.taken(b"b")
    sequence = Sequence(7, 0)
    assert player.taken(b"a", b"b", b"c", sequence=sequence) == 1
    assert player.taken(b"a", b"b", b"c", sequence=sequence) == 1
    assert player.orders.log.log_end_offset == 4
    assert player.duplicates.dropped_count == 1


def test_two_connections_send_the_same_at_once() -> None:
    player = DedupPlayer()
    other = player.connect()
    first = player.begin((b"a", b"1"), (b"b", b"2"))
    second = player.begin((b"b", b"3"), (b"c", b"4"), connection=other)
    third = player.begin((b"a", b"5"), (b"b", b"6"), connection=player.connect())
    player.run_jobs()
    assert [produced(one).base_offset for one in (first, second, third)] == [0, 2, 0]
    assert player.shown() == [(0, b"1"), (1, b"2"), (3, b"4")]


@pytest.mark.parametrize("is_clean", [True, False])
def test_ids_outlive_a_restart(is_clean: bool) -> None:
    player = DedupPlayer()
    ids = [b"%d" % number for number in range(50)]
    for one in ids:
        player.taken(one)
    fold = fold_of(player.orders.log)
    assert fold is not None
    assert fold.ids.runs
    again = player.again(is_clean=is_clean)
    for number, one in enumerate(ids):
        assert again.taken(one) == number


def test_ids_are_forgotten_when_their_window_is_over_for_all_clocks() -> None:
    player = DedupPlayer()
    for number in range(50):
        player.taken(b"%d" % number)
    log = player.orders.log
    fold = fold_of(log)
    assert fold is not None
    log.flush()
    assert log.needed_from == 0
    player.pass_ms(WINDOW_MS + SLACK_MS)
    assert len(fold) >= 50
    player.services.deletion_permit = DeletionPermit(why_not_by_date="the clock has jumped")
    player.pass_ms(3_000)
    assert len(fold) >= 50
    player.services.deletion_permit = PERMITTED
    player.pass_ms(3_000)
    assert len(fold) == 0
    assert log.needed_from == log.log_end_offset
    assert player.taken(b"1") == 50


def test_the_log_keeps_what_a_new_replica_has_to_know() -> None:
    player = DedupPlayer()
    for number in range(10):
        player.taken(b"%d" % number)
    log = player.orders.log
    log.roll()
    log.flush()
    log.delete_records(10)
    log.apply_retention(player.now_ms)
    assert log.disk_start_offset == 0
    assert player.taken(b"3") == 3
    player.pass_ms(WINDOW_MS + SLACK_MS + 3_000)
    log.apply_retention(player.now_ms)
    assert log.disk_start_offset == 10


def test_a_topic_without_a_window_stores_all_and_notes_nothing() -> None:
    player = DedupPlayer(configs={})
    for number in range(2):
        assert player.taken(b"a") == number
    assert _flags(player) == 0
    fold = fold_of(player.orders.log)
    assert fold is not None
    assert len(fold) == 0
    assert player.orders.log.config.record_rules is HEADER_RULES


def test_a_window_may_come_and_go() -> None:
    player = DedupPlayer(configs={})

    def set_window(text: str | None) -> None:
        change = ("dedup.window.ms", DELETE if text is None else SET, text)
        assert player.alter(TOPIC, "orders", change)[0] == 0

    assert player.taken(b"a") == 0
    set_window("1000")
    assert player.orders.log.config.message_timestamp_type == "LogAppendTime"
    # What was stored without a window is none of it.
    assert player.taken(b"a") == 1
    assert player.taken(b"a") == 1
    set_window(None)
    assert player.orders.log.config.message_timestamp_type == "CreateTime"
    assert player.taken(b"a") == 2
    set_window("1000")
    assert player.taken(b"a") == 1


def test_records_have_the_time_of_their_append() -> None:
    player = DedupPlayer()
    player.taken(b"a")
    player.take((None, b"plain"))
    assert [record.timestamp for record in player.read()] == [NOW_MS, NOW_MS]


def test_delivered_messages_are_delivered_whatever_their_id() -> None:
    """They are the broker's; a second one for later is a duplicate like any other."""
    player = DedupPlayer()
    for _ in range(2):
        answer = player.append((b"later", (b"tw-id", b"a"), (b"tw-delay", b"5s")))
        assert (answer.error_code, answer.base_offset) == (0, 0)
    assert player.values() == []
    player.pass_ms(5_000)
    assert player.values() == [b"later"]
    player.pass_ms(1_000)
    assert player.taken(b"a") == 0
    assert player.values() == [b"later"]


def test_it_needs_its_level() -> None:
    player = DedupPlayer(dedup_level=0)
    refused = player.take((b"a", b"1"))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert DEDUPLICATION in (refused.message or "")
    assert player.take((None, b"1")).error_code == 0
    player.commit(UpdateFeature(DEDUPLICATION, 1))
    assert player.taken(b"a") == 1
    with pytest.raises(InvalidChange):
        player.commit(UpdateFeature(DEDUPLICATION, 0))


@pytest.mark.parametrize(
    ("configs", "word"),
    [
        ({"dedup.window.ms": "-1"}, "at least 0"),
        ({"dedup.window.ms": "604800001"}, "no more than 604800000"),
        ({"dedup.window.ms": "soon"}, "soon"),
        ({"dedup.window.ms": "5", "tidewheel.headers": "false"}, "tidewheel.headers=true"),
        ({"dedup.window.ms": "5", "cleanup.policy": "compact"}, "cleanup.policy"),
        ({"dedup.window.ms": "5", "message.timestamp.type": "CreateTime"}, "timestamp.type"),
    ],
)
def test_what_a_window_does_not_go_with_is_refused(configs: dict[str, str], word: str) -> None:
    player = DedupPlayer()
    topic = new_topic("payments", configs={"tidewheel.headers": "true", **configs})
    code, message = player.create_outcome(topic)
    assert code == ErrorCode.INVALID_CONFIG
    assert word in (message or "")


def test_a_leader_takes_no_more_ids_than_it_can_store(monkeypatch: pytest.MonkeyPatch) -> None:
    player = DedupPlayer()
    monkeypatch.setattr("features.dedup.judgement.GROUPS_MAX", 0)
    refused = player.take((b"a", b"1"))
    assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert player.take((None, b"1")).error_code == 0


def test_commands_come_without_messages_that_have_an_id() -> None:
    """What a command is about may have gone with a duplicate."""
    player = DedupPlayer()
    later = (b"later", (b"tw-id", b"a"), (b"tw-delay", b"50s"))
    assert player.append(later).error_code == 0
    mixed = player.append((b"new", (b"tw-id", b"b")), (b"", (b"tw-cancel", b"a")))
    assert mixed.error_code == ErrorCode.INVALID_RECORD
    assert "batches without messages that have a tw-id" in (mixed.message or "")
    assert player.append((b"", (b"tw-cancel", b"a")), (b"plain",)).error_code == 0
    player.pass_ms(55_000)
    assert player.values() == [b"plain"]


def test_subscriptions_show_no_record_that_only_keeps_a_sequence() -> None:
    player = DedupPlayer()
    player.taken(b"a", b"b")
    configs = {"tidewheel.source": "orders"}
    (made,) = player.create(new_topic("all", partitions=-1, replication=-1, configs=configs))
    assert made.error_code == 0, made.error_message
    assert player.taken(b"b", b"a", sequence=Sequence(7, 0)) == 2
    assert player.orders.log.log_end_offset == 4
    assert player.values("all") == [b"va", b"vb"]


def test_metrics() -> None:
    player = DedupPlayer()
    player.taken(b"a")
    player.taken(b"a")
    registry = player.services.metrics
    assert registry.get_sample_value("tidewheel_dedup_ids_remembered") == 1
    assert registry.get_sample_value("tidewheel_dedup_duplicates_dropped_total") == 1


def _flags(player: DedupPlayer) -> int:
    found = 0
    for data in read_all(player.orders.log):
        for header in iter_batch_headers(data, 0, len(data)):
            found |= header.attributes & (HIDDEN_FLAG | IDS_FLAG)
    return found
