"""Dead letters whose target is deleted, a subscription, or takes less than what is sent at a time;
and operations that are paused, cancelled or begun anew at awkward moments."""

from __future__ import annotations

import random
from typing import Any

import pytest

from data_plane.broker.dead_letter_operations import Counts, Selection, Status, View, Wish
from data_plane.cell.topic_deletions import ChangeDeletion, Deletion
from data_plane.log.fold import StoredBatch
from data_plane.replica.partition import Partition
from data_plane.wire.records import NewRecord, build_batch, read_batch_header
from features.redrive.fold import Redrives
from features.redrive.marks import BLOCK_BITS, Marks, bits_of
from features.redrive.operations import Order, Plan, Step, begin_batch, step_batch
from features.retry_dlq.dead_letters import read_dead_letters
from features.retry_dlq.sender import DeadLetterSender
from tests.broker.admin_player import new_topic
from tests.features.redrive_player import ALL, RedrivePlayer

HEADERS = {"tidewheel.headers": "true"}
SMALL_SEGMENTS = {**HEADERS, "segment.bytes": str(1 << 20)}
EMPTY_HEADERS: tuple[tuple[bytes, bytes | None], ...] = ((b"", None),) * 60_000


def _one_step(player: RedrivePlayer) -> None:
    if player.executor.queue:
        player.executor.run_one()
    else:
        player.pass_time(10)


def _waiting(player: RedrivePlayer) -> int:
    return player.nacks.dead_letters.waiting_count


def _bury_with_empty_headers(player: RedrivePlayer, count: int) -> None:
    for number in range(count):
        made = NewRecord(player.now_ms, None, b"x", EMPTY_HEADERS)
        player.produce("orders", [], batch=build_batch([made]))
        player.run_jobs()
        player.kill(f"0:{number}")


def test_what_an_operation_has_moved_stays_moved_when_a_later_one_loses_its_target() -> None:
    player = RedrivePlayer()
    player.create_topic("elsewhere", 1, HEADERS)
    player.bury(b"0", b"1", b"2")
    player.begin()
    assert player.finish().counts.moved == 3
    player.begin(Selection(is_all=True, again=True), id="two", target="elsewhere", rate_max=10)
    while (active := player.redrives.active) is not None and active.plan is None:
        _one_step(player)
    topic = player.services.image.topic("default", "elsewhere")
    assert topic is not None
    player.delete_topic(topic.topic_id)
    assert player.finish("two").status is Status.GONE
    player.begin(id="three")
    assert player.finish("three").counts.moved == 0
    assert player.values_of(player.retried()) == [b"0", b"1", b"2"]


def test_marks_that_are_missing_are_those_of_a_set() -> None:
    chooser = random.Random(3)
    for _ in range(200):
        base = chooser.randrange(3 * BLOCK_BITS)
        known = {max(0, base + chooser.randrange(-50, 70_000)) for _ in range(60)}
        new = {base + chooser.randrange(65_000) for _ in range(9)}
        asked = sorted({*chooser.sample(sorted(known), 5), *new})
        marks = Marks()
        marks.add(bits_of(sorted(known)))
        assert marks.missing(bits_of(asked)).offsets() == [one for one in asked if one not in known]


def _apply(fold: Redrives, batch: bytearray, offset: int, epoch: int) -> None:
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = epoch.to_bytes(4, "big")
    fold.apply(StoredBatch(read_batch_header(batch, 0), batch))


def test_an_id_that_a_leader_with_less_of_the_log_begins_anew_is_the_same_everywhere() -> None:
    whole, late = Redrives(), Redrives()
    first = Order("one", False, ALL, "", {}, 0, 0, 0, 100, "User:me")
    _apply(whole, begin_batch(first, 1), 100, 0)
    _apply(whole, step_batch(Step("one", 100, Counts(), ended="done"), 1), 101, 0)
    plan = Plan("aa", 0, bits_of([149]), -1)
    for fold in (whole, late):
        _apply(fold, begin_batch(first._replace(end_offset=200), 2), 200, 3)
        _apply(fold, step_batch(Step("one", 150, Counts(1), plan), 2), 201, 3)
    assert whole.active is not None
    assert whole.active == late.active


@pytest.mark.parametrize("selection", [Selection(offsets=(999,)), Selection(from_offset=999)])
@pytest.mark.parametrize("is_purge", [False, True])
def test_offsets_behind_the_end_are_of_no_letters(selection: Selection, *, is_purge: bool) -> None:
    player = RedrivePlayer()
    player.bury(b"a")
    player.begin(selection, is_purge=is_purge)
    view = player.finish()
    assert (view.status, view.counts.moved) == (Status.DONE, 0)


def test_a_count_of_redrives_that_a_client_has_set_does_not_count() -> None:
    player = RedrivePlayer()
    player.append((b"a", (b"tw-redriven", b"9")))
    player.kill("0:0")
    player.settle()
    player.begin()
    assert player.finish().counts.moved == 1


def test_a_redrive_goes_in_parts_where_the_target_takes_less() -> None:
    player = RedrivePlayer()
    player.create_topic("elsewhere", 1, SMALL_SEGMENTS)
    values = [random.Random(number).randbytes(500_000) for number in range(3)]
    for value in values:
        player.bury(value)
    player.begin(target="elsewhere")
    assert player.finish().counts.moved == 3
    assert player.values_of(player.letters("elsewhere")) == values


def test_dead_letters_go_in_parts_where_the_target_takes_less() -> None:
    player = RedrivePlayer(policy={"dlq.topic": "graveyard"})
    player.create_topic("graveyard", 1, SMALL_SEGMENTS)
    values = [random.Random(number).randbytes(500_000) for number in range(3)]
    for value in values:
        player.append((value,))
    player.command(*(((b"tw-dead-letter", b"0:%d" % number),) for number in range(3)))
    player.settle(100)
    assert _waiting(player) == 0
    assert player.values_of(player.letters("graveyard")) == values


def test_dead_letters_with_many_empty_headers_go_in_parts() -> None:
    player = RedrivePlayer()
    for _ in range(18):
        made = NewRecord(player.now_ms, None, b"x", EMPTY_HEADERS)
        player.produce("orders", [], batch=build_batch([made]))
        player.run_jobs()
    player.command(*(((b"tw-dead-letter", b"0:%d" % number),) for number in range(18)))
    player.settle(20)
    assert _waiting(player) == 0


def test_of_records_with_many_empty_headers_few_are_in_memory_at_a_time() -> None:
    player = RedrivePlayer()
    player.create_topic("elsewhere", 1, HEADERS)
    _bury_with_empty_headers(player, 4)
    player.settle()
    log = player.retry.log
    end = player.retry.high_watermark
    assert read_dead_letters(log, 0, end, log.topic_id.bytes).letters_count == 1
    player.begin(target="elsewhere")
    planned = set()
    for _ in range(60):
        active = player.redrives.active
        if active is not None and active.plan is not None:
            planned.add(active.plan.letters.size)
        _one_step(player)
    assert player.finish().counts.moved == 4
    assert planned == {1}


def test_a_sender_without_work_is_forgotten() -> None:
    player = RedrivePlayer()
    player.bury(b"a")
    player.settle()
    (sender,) = (one for one in player.services.components if isinstance(one, DeadLetterSender))
    assert not sender._sending


def test_nothing_is_moved_once_it_is_said_to_be_paused() -> None:
    paused = 0
    for steps in range(12):
        player = RedrivePlayer()
        player.bury(*(b"%d" % number for number in range(20)))
        player.begin(rate_max=20)
        for _ in range(steps):
            if player.executor.queue:
                player.executor.run_one()
            player.pass_time(10)
        told: list[View | None] = []

        def note(view: View | None, _: Any, told: list[View | None] = told) -> None:
            told.append(view)

        player.operations.change(player.dlq, "one", Wish.PAUSE, player.now_ms, note)
        (view,) = told
        if view is not None and view.status is Status.PAUSED:
            paused += 1
            player.settle(10)
            assert player.view().counts.moved == view.counts.moved
    assert paused


def test_dead_letters_wait_while_their_topic_is_a_subscription() -> None:
    player = RedrivePlayer()
    player.create_topic("wide", 2, HEADERS)
    source = {"tidewheel.source": "wide"}
    player.create(new_topic("other", -1, -1, configs=source))
    player.create(new_topic("narrow", -1, -1, configs={**source, "tidewheel.dlq.topic": "other"}))
    made = build_batch([NewRecord(player.now_ms, None, b"x", ())])
    player.produce("wide", [], index=1, batch=made)
    player.run_jobs()
    command = NewRecord(player.now_ms, None, None, ((b"tw-dead-letter", b"2:0"),))
    player.produce("narrow", [], index=3, batch=build_batch([command]))
    player.settle()
    other: Partition | None = player.services.partitions.get_by_name("default", "other", 0)
    assert other is None or other.log.log_end_offset == 0


def test_a_deleted_topic_of_dead_letters_is_not_made_again_and_again() -> None:
    player = RedrivePlayer()
    player.bury(b"a")
    player.settle()
    topic = player.services.image.topic("default", "pay.dlq")
    assert topic is not None
    player.commit(ChangeDeletion(topic.topic_id, Deletion(player.now_ms, 10**9), None))
    writes = 0
    write = player.services.metadata.write

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal writes
        writes += 1
        return write(*arguments, **options)

    player.services.metadata.write = counted  # type: ignore[method-assign]
    player.append((b"b",))
    player.kill("0:1")
    for _ in range(20):
        player.pass_ms(100)
    assert writes < 10
    assert _waiting(player) == 1


def test_what_moves_nothing_is_cancelled_while_its_tenant_is_full() -> None:
    player = RedrivePlayer()
    player.bury(*(b"%d" % number for number in range(9)))
    player.begin(rate_max=1)
    player.settle(3)
    player.change(Wish.PAUSE)
    player.settle(20)
    assert player.view().status is Status.PAUSED
    player.services.namespaces.names["default"].storage_refusal = "the tenant is full"
    player.change(Wish.CANCEL)
    assert player.finish().status is Status.CANCELLED
