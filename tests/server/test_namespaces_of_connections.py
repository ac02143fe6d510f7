"""What connections take is counted with their namespace, and bounded where it has a share."""

from __future__ import annotations

import pytest

from data_plane.broker.request import budget as budget_module
from data_plane.broker.request.api import Deferred
from data_plane.broker.request.principal import Principal
from data_plane.server.listener import Listener
from data_plane.server.outgoing import PASS_BYTES_MAX
from data_plane.server.receive_buffers import FRAME_BUFFER_BYTES_MIN
from tests.server.connection_player import PlayedListener, connect, feed, frame
from tests.server.test_kept_requests import Keeper
from tests.server.test_listener import Harness, lose

ALICE = Principal("User", "alice")


def test_a_namespace_has_no_more_connections_than_its_share() -> None:
    harness = Harness()
    budget = harness.listener.connections_budget
    budget.share_max = 2
    kept = [harness.connect() for _ in range(2)]
    assert harness.connect()[1].is_aborted
    assert harness.reasons() == ["its namespace has as many connections as it may have"]
    # Who turns out to belong to another one makes room.
    first, _ = kept[0]
    assert first.info is not None
    first.info.authenticate(ALICE, "acme")
    assert (budget.of("default").used, budget.of("acme").used) == (1, 1)
    last, transport = harness.connect()
    assert not transport.is_aborted
    for connection in (first, kept[1][0], last):
        lose(connection)
    assert budget.used == 0
    assert not harness.listener.connections


def test_an_authentication_for_a_namespace_without_room_closes_the_connection() -> None:
    harness = Harness()
    budget = harness.listener.connections_budget
    budget.share_max = 1
    first, first_transport = harness.connect()
    assert first.info is not None
    first.info.authenticate(ALICE, "acme")
    second, second_transport = harness.connect()
    assert second.info is not None
    second.info.authenticate(ALICE, "acme")
    assert second_transport.is_closed
    assert not first_transport.is_closed
    lose(second)
    assert (budget.of("default").used, budget.of("acme").used) == (0, 1)


def test_there_is_a_bound_for_namespaces_with_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness()
    connections = [harness.connect() for _ in range(2)]
    # `default`, another one, and strangers.
    monkeypatch.setattr(budget_module, "NAMESPACES_MAX", 3)
    for number, (connection, _) in enumerate(connections):
        assert connection.info is not None
        connection.info.authenticate(ALICE, f"namespace-{number}")
    assert [transport.is_closed for _, transport in connections] == [False, True]


def test_half_frames_of_one_namespace_leave_the_others_room() -> None:
    listener = PlayedListener(lambda request: [b""])
    listener.memory.budget.share_max = 2 * FRAME_BUFFER_BYTES_MIN
    outcomes = []
    for name in ("acme", "acme", "acme", "globex"):
        connection, transport = connect(listener)
        assert connection.info is not None
        connection.info.authenticate(ALICE, name)
        feed(connection, frame(bytes(8_000))[:100])
        outcomes.append((name, transport.is_closed))
    assert outcomes == [("acme", False), ("acme", False), ("acme", True), ("globex", False)]
    assert listener.reasons == ["no memory left for half frames"]


def test_where_there_are_tenants_none_has_all_memory_of_half_frames_and_answers() -> None:
    harness = Harness()
    services = harness.broker.services
    budgets = (harness.listener.memory.budget, services.unsent)
    assert not any(budget.leaves_room for budget in budgets)
    harness.broker.make_tenant("acme")
    assert all(budget.leaves_room for budget in budgets)
    for budget in budgets:
        share = budget.of("acme")
        assert not share.take(budget.max // 2 + 1)
        assert share.take(budget.max // 2)
        assert budget.of("default").take(budget.max // 4)
    assert not Harness(is_inter_broker=True).listener.memory.budget.leaves_room
    later = Listener(
        "later",
        services,
        harness.clock,  # type: ignore[arg-type]
        lambda now_ms: None,
        lambda: None,
    )
    assert later.memory.budget.leaves_room


def test_what_is_kept_and_what_waits_counts_with_the_namespace() -> None:
    keeper = Keeper()
    memory = keeper.listener.memory
    memory.budget.share_max = 2_000
    closed = []
    for name in ("acme", "acme", "acme", "globex"):
        connection, transport = connect(keeper.listener)
        assert connection.info is not None
        connection.info.authenticate(ALICE, name)
        feed(connection, frame(b"k1" + bytes(798)) + frame(b"a2"))
        closed.append(transport.is_closed)
    assert closed == [False, False, True, False]
    assert memory.budget.of("acme").used == 2 * (800 + 6)
    while keeper.kept:
        keeper.finish()
    keeper.listener.take_turn()
    assert (memory.budget.used, memory.waiting_bytes) == (0, 0)


def test_who_changes_its_namespace_takes_along_what_it_uses() -> None:
    answers: list[Deferred[list[bytes]]] = []

    def script(request: bytes) -> list[bytes] | Deferred[list[bytes]]:
        if request == b"late":
            answers.append(Deferred())
            return answers[-1]
        return [bytes(PASS_BYTES_MAX + 1)]

    listener = PlayedListener(script)
    connection, _ = connect(listener)
    feed(connection, frame(b"late") + frame(b"now") + frame(b"waits"))
    before = [
        budget.of("default").used
        for budget in (listener.unsent, listener.memory.budget, listener.connections_budget)
    ]
    assert before == [PASS_BYTES_MAX + 1, 9, 1]
    assert connection.info is not None
    connection.info.authenticate(ALICE, "acme")
    for budget, used in zip(
        (listener.unsent, listener.memory.budget, listener.connections_budget), before, strict=True
    ):
        assert (budget.of("default").used, budget.of("acme").used) == (0, used)
    answers[0].complete([b""])
    listener.take_turn()
    connection.connection_lost(None)
    for budget in (listener.unsent, listener.memory.budget, listener.connections_budget):
        assert budget.used == 0
