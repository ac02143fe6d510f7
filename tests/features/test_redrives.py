"""Dead letters that are put back, or purged, at one broker without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from data_plane.broker.dead_letter_operations import (
    Counts,
    NotPossible,
    Selection,
    Status,
    Wish,
)
from data_plane.cell.acls import AclOperation
from data_plane.cell.changes import AlterConfigs
from data_plane.cell.metadata import ResourceType
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.server.cell_calls import BadRequest, Calls, Refused
from data_plane.server.kafka_calls import KafkaCalls
from data_plane.server.tenant_redrives import TenantRedrives
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch
from features.redrive import letters as letters_module
from features.redrive.fold import Redrives
from tests.broker.broker_player import NOW_MS
from tests.features.redrive_player import ALL, RedrivePlayer

CALLER = messages.Caller(tenant="default", principal="User:alice", host="10.0.0.1")


def test_letters_come_back_to_their_subscription_as_a_first_attempt() -> None:
    player = RedrivePlayer()
    made = NewRecord(NOW_MS, b"k", b"v", ((b"tw-tag", b"eu"), (b"h", b"1")))
    player.produce("orders", [], batch=build_batch([made]))
    player.run_jobs()
    player.kill("0:0", headers=((b"tw-reason", b"timeout"), (b"tw-consumer", b"c-1")))
    player.settle()
    begun = player.begin()
    assert (begun.status, begun.first_offset, begun.end_offset) == (Status.RUNNING, 0, 1)
    assert player.finish().counts == Counts(looked=1, moved=1)
    (back,) = player.retried()
    headers = dict(back.headers)
    assert (back.key, back.value) == (b"k", b"v")
    dead = headers.pop(b"tw-dead") or b""
    assert dead.startswith(player.dlq.log.topic_id.hex.encode() + b"/0/0/")
    assert headers == {
        b"tw-tag": b"eu",
        b"h": b"1",
        b"tw-source": b"orders/0/0",
        b"tw-produced-at": b"%d" % NOW_MS,
        b"tw-first-failed-at": b"%d" % NOW_MS,
        b"tw-attempt": b"1",
        b"tw-redriven": b"1",
    }
    # Nobody sees what is written down of it.
    assert player.values_of(player.letters()) == [b"v"]


def test_what_was_redriven_fails_again_as_any_message() -> None:
    player = RedrivePlayer(policy={"retry.attempts.max": "2"})
    player.bury(b"a")
    player.begin()
    player.finish()
    (back,) = player.retried()
    player.nack(f"1:{back.offset}")
    player.pass_ms(5_000)
    _, retry = player.retried()
    assert dict(retry.headers)[b"tw-attempt"] == b"2"
    player.nack(f"1:{retry.offset}")
    player.settle()
    first, second = player.letters()
    assert dict(second.headers)[b"tw-redriven"] == b"1"
    assert b"tw-redriven" not in dict(first.headers)
    player.begin(id="two")
    assert player.finish("two").counts == Counts(looked=2, moved=1)
    assert dict(player.retried()[-1].headers)[b"tw-redriven"] == b"2"


def test_loops_stop() -> None:
    player = RedrivePlayer(policy={"redrive.max": "3"})
    player.bury(b"a")
    for number in range(5):
        player.begin(id=f"{number}")
        view = player.finish(f"{number}")
        if number < 3:
            assert view.counts.moved == 1
            player.kill(f"1:{player.retried()[-1].offset}")
            player.settle(10)
        else:
            assert (view.counts.moved, view.counts.over_limit) == (0, 1)
    assert len(player.retried()) == 3
    assert len(player.letters()) == 4
    # What the topic says goes first.
    edit = (("tidewheel.redrive.max", "0"),)
    player.commit(AlterConfigs("default", ResourceType.TOPIC, "pay.dlq", edit))
    player.begin(id="more")
    assert player.finish("more").counts.moved == 1


@pytest.mark.parametrize(
    ("selection", "moved"),
    [
        (Selection(filter="eu"), [b"a", b"c"]),
        (Selection(filter="eu", reason="TIME"), [b"a"]),
        (Selection(reason="time"), [b"a", b"b"]),
        (Selection(exception="BankError"), [b"b"]),
        (Selection(exception="app.BankError"), [b"b"]),
        (Selection(exception="Error"), []),
        (Selection(offsets=(0, 2, 77)), [b"a", b"c"]),
        (Selection(from_offset=1), [b"b", b"c"]),
        (Selection(until_offset=1), [b"a"]),
        (Selection(from_ms=NOW_MS + 1_000, until_ms=NOW_MS + 2_000), [b"b"]),
        (Selection(ids=("id-a", "id-x")), [b"a"]),
        (ALL, [b"a", b"b", b"c"]),
    ],
)
def test_only_what_was_chosen(selection: Selection, moved: list[bytes]) -> None:
    player = RedrivePlayer()
    player.append((b"a", (b"tw-tag", b"eu"), (b"tw-id", b"id-a")), (b"b",))
    player.append((b"c", (b"tw-tag", b"eu")))
    player.kill("0:0", headers=((b"tw-reason", b"timeout"),))
    player.settle(10)
    exception = (b"tw-exception", b"app.BankError")
    player.kill("0:1", headers=((b"tw-reason", b"Time out"), exception))
    player.settle(10)
    player.kill("0:2")
    player.settle(10)
    player.begin(selection)
    assert player.finish().counts.moved == len(moved)
    assert player.values_of(player.retried()) == moved
    # What was redriven is not chosen again, unless somebody asks for it.
    player.begin(selection, id="two")
    assert player.finish("two").counts.moved == 0
    player.begin(selection._replace(again=True), id="three")
    assert player.finish("three").counts.moved == len(moved)
    assert player.values_of(player.retried()) == 2 * moved


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(), "it is empty"),
        (Selection(again=True), "it is empty"),
        (Selection(reason="x", is_all=True), "one or the other"),
        (Selection(filter="eu and"), "filter: "),
        (Selection(offsets=(-1,)), "offsets: "),
        (Selection(offsets=tuple(range(1_001))), "offsets: 1001 of them"),
        (Selection(ids=("",)), "ids: "),
        (Selection(reason="x" * 1_025), "reason: more than 1024"),
    ],
)
def test_a_selection_that_says_nothing_is_refused(selection: Selection, words: str) -> None:
    player = RedrivePlayer()
    player.bury(b"a")
    for is_purge in (False, True):
        with pytest.raises(NotPossible, match=words):
            player.begin(selection, is_purge=is_purge)
    player.settle()
    assert player.retried() == []
    assert player.redrives.operations == {}


def test_what_was_purged_is_never_chosen() -> None:
    player = RedrivePlayer()
    player.bury(b"a", b"b", b"c")
    player.begin(Selection(offsets=(1,)), is_purge=True)
    assert player.finish().counts == Counts(looked=1, moved=1)
    player.begin(ALL._replace(again=True), id="two")
    assert player.finish("two").counts == Counts(looked=3, moved=2)
    assert player.values_of(player.retried()) == [b"a", b"c"]
    assert player.operations.marked(player.dlq, 0, 9) == ([0, 2], [1])
    assert player.operations.marked(player.dlq, 1, 2) == ([], [1])


def test_to_another_topic() -> None:
    player = RedrivePlayer(policy={"redrive.max": "1"})
    player.create_topic("elsewhere", 1, {"tidewheel.headers": "true"})
    player.bury(b"a", b"b")
    player.begin(target="elsewhere")
    assert player.finish().counts.moved == 2
    found = player.letters("elsewhere")
    assert player.values_of(found) == [b"a", b"b"]
    headers = dict(found[0].headers)
    # It is no attempt of anything, and so no dead letter.
    assert b"tw-attempt" not in headers
    assert headers[b"tw-redriven"] == b"1"
    assert player.retried() == []


def test_of_messages_without_origin_only_the_topic_can_be_named() -> None:
    player = RedrivePlayer()
    player.create_topic("plain", 1, {"tidewheel.headers": "true"})
    player.create_topic("elsewhere", 1, {"tidewheel.headers": "true"})
    forged = (b"tw-dead", b"%s/0/0/5" % player.retry.log.topic_id.hex.encode())
    player.produce("plain", [], batch=build_batch([NewRecord(NOW_MS, None, b"x", (forged,))]))
    player.run_jobs()
    plain = player.services.partitions.get_by_name("default", "plain", 0)
    with pytest.raises(NotPossible, match="no subscription is known"):
        player.begin(partition=plain)
    player.begin(partition=plain, target="elsewhere")
    player.settle()
    assert player.values_of(player.letters("elsewhere")) == [b"x"]


def test_an_empty_partition_has_nothing_to_redrive_however_often_it_is_asked() -> None:
    player = RedrivePlayer()
    player.create_topic("empty", 1, {"tidewheel.headers": "true"})
    empty = player.services.partitions.get_by_name("default", "empty", 0)
    for number in range(3):
        player.begin(id=f"{number}", partition=empty)
        player.settle(5)
    assert empty is not None
    views = player.operations.listed(empty)
    assert [view.status for view in views] == [Status.DONE] * 3


def test_messages_of_others_among_dead_letters_are_counted_and_stay() -> None:
    player = RedrivePlayer()
    player.bury(b"a")
    (letter,) = player.letters()
    # A copy of a dead letter that a client has made.
    copy = NewRecord(NOW_MS, letter.key, b"copy", letter.headers)
    player.produce("pay.dlq", [], batch=build_batch([copy]))
    player.run_jobs()
    player.begin()
    assert player.finish().counts == Counts(looked=2, moved=1, no_origin=1)
    assert player.values_of(player.retried()) == [b"a"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere", "there is no topic nowhere"),
        ("pay", "is a subscription"),
        ("pay.dlq", "the topic that they are in"),
        ("headless", "tidewheel.headers is not true"),
    ],
)
def test_where_letters_cannot_go(target: str, words: str) -> None:
    player = RedrivePlayer()
    player.create_topic("headless", 1)
    player.bury(b"a")
    with pytest.raises(NotPossible, match=words):
        player.begin(target=target)


def test_one_at_a_time_and_once() -> None:
    player = RedrivePlayer()
    player.bury(b"a")
    player.begin(rate_max=1)
    assert player.begin(rate_max=1).wanted.id == "one"
    with pytest.raises(NotPossible, match="the id of another"):
        player.begin(Selection(reason="x"))
    with pytest.raises(NotPossible, match="operation one is under way"):
        player.begin(id="two")
    player.finish()
    assert player.begin(rate_max=1).status is Status.DONE
    assert len(player.retried()) == 1
    with pytest.raises(NotPossible, match="there is no operation three"):
        player.change(Wish.CANCEL, "three")
    with pytest.raises(NotPossible, match="is over: done"):
        player.change(Wish.PAUSE)


def test_the_rate_is_kept() -> None:
    player = RedrivePlayer()
    player.bury(*(b"%d" % number for number in range(60)))
    player.begin(rate_max=20)
    began_ms = player.now_ms
    counts = []
    while player.view().status is Status.RUNNING:
        counts.append((player.now_ms - began_ms, len(player.retried())))
        player.pass_ms(50)
        assert player.now_ms < began_ms + 20_000
    # What is planned goes at once, so it may be ahead by a plan.
    assert all(count <= 2 + ms * 20 // 1000 for ms, count in counts), counts
    took_ms = player.now_ms - began_ms
    assert 2_500 <= took_ms <= 6_000
    assert player.values_of(player.retried()) == [b"%d" % number for number in range(60)]


def test_pause_resume_cancel() -> None:
    player = RedrivePlayer()
    player.bury(*(b"%d" % number for number in range(40)))
    player.begin(rate_max=20)
    player.settle(5)
    player.change(Wish.PAUSE)
    player.settle(3)
    assert player.view().status is Status.PAUSED
    count = len(player.retried())
    assert 0 < count < 40
    player = player.restarted(is_clean=False)
    player.settle(40)
    assert (len(player.retried()), player.view().counts.moved) == (count, count)
    player.change(Wish.RUN)
    player.settle(5)
    assert player.view().status is Status.RUNNING
    player.change(Wish.CANCEL)
    with pytest.raises(NotPossible, match="was cancelled"):
        player.change(Wish.RUN)
    view = player.finish()
    assert view.status is Status.CANCELLED
    assert count < view.counts.moved < 40
    assert len(player.retried()) == view.counts.moved
    assert player.change(Wish.CANCEL).status is Status.CANCELLED
    # The others are still to be had, and come once.
    player.begin(id="two")
    assert player.finish("two").counts.moved == 40 - view.counts.moved
    assert player.values_of(player.retried()) == [b"%d" % number for number in range(40)]


def test_letters_that_come_meanwhile_are_not_meant() -> None:
    player = RedrivePlayer()
    player.bury(b"a", b"b")
    player.begin(rate_max=1)
    player.bury(b"c")
    assert player.finish().counts.moved == 2
    assert player.values_of(player.retried()) == [b"a", b"b"]


def test_a_target_that_goes_for_good_ends_it() -> None:
    player = RedrivePlayer()
    player.create_topic("elsewhere", 1, {"tidewheel.headers": "true"})
    player.bury(*(b"%d" % number for number in range(20)))
    player.begin(target="elsewhere", rate_max=10)
    player.settle(5)
    moved = len(player.letters("elsewhere"))
    assert 0 < moved < 20
    topic = player.services.image.topic("default", "elsewhere")
    assert topic is not None
    player.delete_topic(topic.topic_id)
    view = player.finish()
    assert view.status is Status.GONE
    assert view.counts.moved >= moved
    player.begin(id="two")
    assert player.finish("two").counts.moved == 20 - view.counts.moved


def test_it_is_held_while_nothing_can_be_stored_for_the_tenant() -> None:
    player = RedrivePlayer()
    player.bury(b"a")
    names = player.services.namespaces.names["default"]
    names.storage_refusal = "the tenant is full"
    player.begin()
    player.settle(5)
    view = player.view()
    assert (view.status, view.held, view.counts.moved) == (Status.RUNNING, "the tenant is full", 0)
    names.storage_refusal = ""
    player.settle(100)
    assert player.view().status is Status.DONE
    assert player.view().held == ""


def test_without_the_level_there_is_none() -> None:
    player = RedrivePlayer(redrives=0)
    player.bury(b"a")
    with pytest.raises(NotPossible, match=r"tidewheel\.redrives at level 1"):
        player.begin()


def test_large_histories_are_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters_module, "SCANNED_BYTES_MAX", 1)
    monkeypatch.setattr(letters_module, "SPAN_MAX", 3)
    monkeypatch.setattr(letters_module, "RECORDS_BYTES_MAX", 100)
    player = RedrivePlayer()
    values = [b"%d" % number for number in range(30)]
    player.bury(*values[:10])
    player.bury(*values[10:])
    player.begin()
    assert player.finish().counts == Counts(looked=30, moved=30)
    assert player.values_of(player.retried()) == values


def test_what_clients_say_of_redrives_is_nothing_that_counts() -> None:
    player = RedrivePlayer()
    player.append((b"a", (b"tw-redriven", b"many")), (b"b", (b"tw-dead", b"x")))
    player.kill("0:0")
    player.kill("0:1")
    player.settle()
    player.begin()
    assert player.finish().counts.moved == 2
    assert [dict(one.headers)[b"tw-redriven"] for one in player.retried()] == [b"1", b"1"]


def test_a_header_of_dead_letters_that_a_client_has_set_delivers_a_message_once() -> None:
    player = RedrivePlayer()
    forged = (b"tw-dead", b"%s/0/0/5" % player.retry.log.topic_id.hex.encode())
    player.append((b"later", (b"tw-delay", b"1s"), forged), (b"now", forged), (b"odd", forged))
    player.settle(30)
    assert player.values() == [b"now", b"odd", b"later"]
    player.nack("0:1")
    player.settle(100)
    assert player.values_of(player.retried()) == [b"now"]


@pytest.mark.parametrize("target", ["", "elsewhere"])
def test_letters_arrive_once_after_a_death_at_any_moment(target: str) -> None:
    sent_twice = 0
    for steps in range(24):
        player = RedrivePlayer()
        player.create_topic("elsewhere", 1, {"tidewheel.headers": "true"})
        player.bury(b"a", b"b", b"c")
        player.begin(target=target, rate_max=20)
        for _ in range(steps):
            if player.executor.queue:
                player.executor.run_one()
            player.pass_time(10)
        player = player.restarted(is_clean=steps % 2 == 0)
        arrived = len(player.letters("elsewhere") if target else player.retried())
        sent_twice += arrived > player.view().counts.moved
        assert player.finish().counts.moved == 3
        found = player.letters("elsewhere") if target else player.retried()
        assert player.values_of(found) == [b"a", b"b", b"c"], steps
    # Otherwise it has not tried what it says.
    assert sent_twice > 0


class Operator:
    """Asks of a player's broker."""

    def __init__(self, player: RedrivePlayer) -> None:
        def on_loop(call: Callable[[], None]) -> None:
            call()
            player.run_jobs()
            player.services.tick(player.now_ms)

        calls = Calls(player.services, on_loop, player.log, lambda: player.now_ms)
        self.kafka = KafkaCalls(calls)
        self.redrives = TenantRedrives(self.kafka, calls)

    def begin(self, selection: Any = None, **options: Any) -> messages.RedriveResponse:
        request = messages.BeginRedriveRequest(
            **{
                "caller": CALLER,
                "topic": "pay.dlq",
                "id": "one",
                "selection": selection or messages.DeadLetterSelection(all=True),
                **options,
            }
        )
        return asyncio.run(self.redrives.begin(request))

    def change(self, wish: Any, id: str = "one") -> messages.RedriveResponse:
        request = messages.ChangeRedriveRequest(caller=CALLER, topic="pay.dlq", id=id, wish=wish)
        return asyncio.run(self.redrives.change(request))

    def listed(self, **options: Any) -> messages.ListRedrivesResponse:
        request = messages.ListRedrivesRequest(**{"caller": CALLER, "topic": "pay.dlq", **options})
        return asyncio.run(self.redrives.listed(request))

    def redriven(self, start: int, end: int) -> messages.ListRedrivenResponse:
        request = messages.ListRedrivenRequest(
            caller=CALLER, topic="pay.dlq", from_offset=start, until_offset=end
        )
        return asyncio.run(self.redrives.redriven(request))


def test_a_control_plane_asks() -> None:
    player = RedrivePlayer()
    player.bury(b"a", b"b")
    operator = Operator(player)
    selection = messages.DeadLetterSelection(until_offset=1, reason="")
    begun = operator.begin(selection, rate_max=5).redrive
    assert (begun.id, begun.status, begun.rate_max) == ("one", "running", 5)
    assert (begun.selection, begun.principal) == (selection, "User:alice")
    assert operator.change(messages.ChangeRedriveRequest.PAUSE).redrive.status != "running"
    assert operator.change(messages.ChangeRedriveRequest.RESUME).redrive.status == "running"
    player.settle()
    (listed,) = operator.listed().redrives
    assert (listed.status, listed.looked, listed.moved) == ("done", 1, 1)
    marked = operator.redriven(0, 10)
    assert (list(marked.redriven), list(marked.purged), marked.until_offset) == ([0], [], 10)
    purge = operator.begin(id="two", is_purge=True).redrive
    assert purge.is_purge
    player.settle()
    assert list(operator.redriven(0, 1_000_000).purged) == [1]
    assert operator.redriven(0, 1_000_000).until_offset == 100_000


def test_what_is_asked_wrongly_is_told() -> None:
    player = RedrivePlayer()
    player.bury(b"a")
    operator = Operator(player)
    with pytest.raises(BadRequest, match="selection: it is empty"):
        operator.begin(messages.DeadLetterSelection(again=True))
    with pytest.raises(BadRequest, match="id: "):
        operator.begin(id="")
    with pytest.raises(BadRequest, match="rate_max: -1"):
        operator.begin(rate_max=-1)
    with pytest.raises(BadRequest, match="goes nowhere"):
        operator.begin(is_purge=True, target_topic="orders")
    with pytest.raises(BadRequest, match="wish: "):
        operator.change(0)
    with pytest.raises(BadRequest, match="in this order"):
        operator.redriven(3, 2)
    unknown = operator.change(messages.ChangeRedriveRequest.PAUSE, "none").failure
    assert unknown.error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert operator.listed(topic="pay").failure.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    nowhere = operator.listed(topic="no").failure
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    player.create_topic("headless", 1)
    for headless in (operator.begin(topic="headless"), operator.listed(topic="headless")):
        assert headless.failure.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "tidewheel.headers is not true" in headless.failure.message
    other = messages.Caller(tenant="other", principal="User:alice")
    with pytest.raises(Refused) as refused:
        operator.listed(caller=other)
    assert refused.value.status is grpc.StatusCode.NOT_FOUND
    player.services.dead_letter_operations = None
    with pytest.raises(Refused) as refused:
        operator.listed()
    assert refused.value.status is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("needed", "options"),
    [
        ((AclOperation.READ, "pay.dlq"), {}),
        ((AclOperation.READ, "pay"), {}),
        ((AclOperation.WRITE, "elsewhere"), {"target_topic": "elsewhere"}),
        ((AclOperation.DELETE, "pay.dlq"), {"is_purge": True}),
    ],
)
def test_who_may_not_is_told(
    monkeypatch: pytest.MonkeyPatch,
    needed: tuple[AclOperation, str],
    options: dict[str, Any],
) -> None:
    player = RedrivePlayer()
    player.create_topic("elsewhere", 1, {"tidewheel.headers": "true"})
    player.bury(b"a")
    operator = Operator(player)
    asked = []

    def may(caller: Any, operation: AclOperation, topic: str) -> bool:
        asked.append((operation, topic))
        return (operation, topic) != needed

    monkeypatch.setattr(operator.kafka, "may_to_topic", may)
    failure = operator.begin(**options).failure
    assert failure.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert f"User:alice has no {needed[0].name} on topic {needed[1]}" in failure.message
    assert player.redrives.operations == {}
    monkeypatch.undo()
    assert operator.begin(**options).redrive.id == "one"
    monkeypatch.setattr(operator.kafka, "may_to_topic", may)
    failure = operator.change(messages.ChangeRedriveRequest.CANCEL).failure
    assert failure.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert set(asked) <= {needed, (AclOperation.READ, "pay.dlq")}


def test_snapshots_are_whole_or_refused() -> None:
    player = RedrivePlayer()
    player.bury(b"a", b"b", b"c")
    player.begin(Selection(offsets=(0,)), rate_max=1)
    player.finish()
    player.begin(id="two", is_purge=True)
    player.finish("two")
    fold = player.redrives
    data = fold.snapshot()
    other = Redrives()
    other.restore([data[:7], data[7:]])
    assert other.operations == fold.operations
    assert (other.redriven.blocks, other.purged.blocks) == (
        fold.redriven.blocks,
        fold.purged.blocks,
    )
    assert other.snapshot() == data
    with pytest.raises(ValueError, match="torn"):
        other.restore([data[:-1]])
    other.restore([])
    assert len(other) == 0
