"""What tenants hold over several brokers: counted once, whoever coordinates, and as he changes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.quotas.held import CONNECTIONS, CONNECTIONS_UNHEARD_MS, Held, TenantHoldings
from data_plane.cell.tenant_quotas import TenantQuotas
from data_plane.cell.tenants import TenantImage
from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.effects import AppendRecords, ClientContext, Effect, Respond
from data_plane.groups.loaded_shard import LoadedShard
from data_plane.groups.loading import fold_records
from data_plane.groups.totals import COMMITTED_OFFSETS, GROUPS, TenantLimit
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import Record
from tests.broker.broker_player import BrokerPlayer
from tests.groups.requests import commit

ACME = TenantImage("acme", "acme-cluster")
PARTITIONS = 4
BROKERS = 3
GROUPS_MAX = 6
CLIENT = ClientContext("c", "/127.0.0.1", 9)


class OnlyCoordinator:
    """What the holdings ask the group service for."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.coordinator = coordinator


class Broker:
    """The holdings of one broker, and its coordinator."""

    def __init__(self, node_id: int, logs: dict[int, list[Record]], **limits: Any) -> None:
        self.node_id = node_id
        self.player = BrokerPlayer(node_id=node_id)
        self.player.make_tenant("acme")
        self.logs = logs
        self.holdings = TenantHoldings(self.player.services, lambda: self.player.now_ms)
        self.coordinator = GroupCoordinator(
            GroupCoordinatorConfig(offsets_topic_num_partitions=PARTITIONS),
            new_uuid=lambda: "uuid",
            limit_of=self.holdings.limit_of_groups,
        )
        groups: Any = OnlyCoordinator(self.coordinator)
        self.player.services.groups = groups
        self.heard: dict[int, Held] = {}
        tenant = replace(ACME, quotas=TenantQuotas(**limits))
        self.holdings.set_tenants({"acme": tenant})
        self.holdings.set_elsewhere(self.heard)

    def lead(self, partition: int, epoch: int) -> None:
        assert self.coordinator.start_loading(partition, epoch)
        folded, _ = fold_records(self.logs[partition])
        self._carry_out(self.coordinator.load(partition, epoch, folded, 0))
        self._carry_out(self.coordinator.finish(0))

    def give_up(self, partition: int) -> None:
        self._carry_out(self.coordinator.unload(partition, 0))
        self._carry_out(self.coordinator.finish(0))

    def commits(self, group_id: str, *partitions: int) -> bool:
        """Whether a commit is taken."""
        offsets: Any = {("orders", each): 1 for each in partitions or (0,)}
        tenant_id = ACME.tenant_id
        request = commit(group_id, offsets)
        effects = self.coordinator.commit_offsets(tenant_id, request, CLIENT, "token", 0)
        (response,) = self._carry_out(effects)
        error = response.topics[0].partitions[0].error_code
        assert error in (ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        return bool(error == ErrorCode.NONE)

    def _carry_out(self, effects: Sequence[Effect]) -> list[Any]:
        answers = []
        for effect in effects:
            if isinstance(effect, AppendRecords):
                log = self.logs[effect.partition]
                for each in effect.records:
                    log.append(Record(len(log), each.timestamp, each.key, each.value, ()))
                settled = self.coordinator.append_done(effect.append_id, ErrorCode.NONE, 0)
                answers += self._carry_out(settled)
            elif isinstance(effect, Respond):
                answers.append(effect.response)
        return answers


class Cell:
    """Brokers that lead the partitions of `__consumer_offsets`."""

    def __init__(self, **limits: Any) -> None:
        self.logs: dict[int, list[Record]] = {each: [] for each in range(PARTITIONS)}
        self.brokers = [Broker(node, self.logs, **limits) for node in range(1, BROKERS + 1)]
        self.leaders = {each: self.brokers[each % BROKERS] for each in range(PARTITIONS)}
        self.epoch = 1
        self.names = 0
        for partition, broker in self.leaders.items():
            broker.lead(partition, self.epoch)

    def new_group(self, partition: int) -> str:
        """A name of a group that lives there."""
        coordinator = self.brokers[0].coordinator
        while True:
            self.names += 1
            name = f"group-{self.names}"
            if coordinator.partition_of(ACME.tenant_id, name) == partition:
                return name

    def commits_new(self, partition: int) -> bool:
        return self.leaders[partition].commits(self.new_group(partition))

    def move(self, partition: int, broker: Broker) -> None:
        before = self.leaders[partition]
        if before is not broker:
            self.epoch += 1
            before.give_up(partition)
            broker.lead(partition, self.epoch)
            self.leaders[partition] = broker

    def tell(self, *brokers: Broker, cut_off: Broker | None = None) -> None:
        """Each tells all others, one after the other, but for one that hears nothing."""
        for broker in brokers or self.brokers:
            word = broker.holdings.look()._replace(at_ms=broker.player.now_ms)
            for other in self.brokers:
                if other not in (broker, cut_off):
                    other.heard.pop(broker.node_id, None)
                    other.heard[broker.node_id] = word
                    other.holdings.set_elsewhere(other.heard)

    def fail(self, broker: Broker) -> None:
        """It is fenced: nobody has heard anything of it, and others lead."""
        self.brokers.remove(broker)
        for other in self.brokers:
            other.heard.pop(broker.node_id, None)
        for partition in [each for each, leader in self.leaders.items() if leader is broker]:
            self.epoch += 1
            heir = self.brokers[partition % len(self.brokers)]
            heir.lead(partition, self.epoch)
            self.leaders[partition] = heir

    def groups_count(self) -> int:
        """As the logs have them."""
        folded = [fold_records(log)[0].get(ACME.tenant_id) for log in self.logs.values()]
        return sum(len(one.simple_groups) for one in folded if one is not None)


def test_groups_are_counted_over_all_coordinators() -> None:
    cell = Cell(groups=3)
    assert [cell.commits_new(partition) for partition in (0, 1, 2)] == [True] * 3
    cell.tell()
    assert not any(cell.commits_new(partition) for partition in range(PARTITIONS))
    (broker, *_) = cell.brokers
    assert broker.holdings.limit_of_groups(ACME.tenant_id, GROUPS) == TenantLimit(3, 2)
    assert broker.holdings.limit_of_groups(ACME.tenant_id, COMMITTED_OFFSETS) is None
    assert broker.holdings.limit_of_groups("default", GROUPS) is None


def test_right_after_a_planned_move_nobody_is_refused_what_he_may_have() -> None:
    cell = Cell(groups=GROUPS_MAX)
    for _ in range(4):
        assert cell.commits_new(0)
    cell.tell()
    cell.move(0, cell.brokers[1])
    # The word of the old coordinator counts these groups, and so does the new one's memory.
    assert cell.commits_new(0)
    assert cell.commits_new(0)
    cell.tell()
    assert not any(cell.commits_new(partition) for partition in range(PARTITIONS))
    assert cell.groups_count() == GROUPS_MAX


def test_right_after_the_death_of_a_coordinator_its_groups_count() -> None:
    cell = Cell(groups=4)
    for partition in (0, 0, 0, 1):
        assert cell.commits_new(partition)
    cell.tell()
    cell.fail(cell.leaders[0])
    assert not cell.commits_new(0)
    cell.tell()
    assert not any(cell.commits_new(partition) for partition in range(PARTITIONS))


def test_what_a_broker_has_not_been_told_of_a_move_is_not_counted_twice() -> None:
    cell = Cell(groups=GROUPS_MAX)
    for _ in range(4):
        assert cell.commits_new(0)
    cell.tell()
    old, new, third = cell.brokers
    cell.move(0, new)
    cell.tell(old, cut_off=third)
    cell.tell(new)
    # It has two words of these groups, an old one and a new one.
    limit = third.holdings.limit_of_groups(ACME.tenant_id, GROUPS)
    assert limit == TenantLimit(GROUPS_MAX, 4)


def test_what_a_third_broker_hears_of_a_move_is_counted_once() -> None:
    cell = Cell(groups=GROUPS_MAX)
    for _ in range(4):
        assert cell.commits_new(0)
    cell.tell()
    old, new, third = cell.brokers
    assert cell.leaders[0] is old
    cell.move(0, new)
    cell.tell(new)
    limit = third.holdings.limit_of_groups(ACME.tenant_id, GROUPS)
    assert limit == TenantLimit(GROUPS_MAX, 4)
    cell.tell(old)
    cell.tell(new)
    assert third.holdings.limit_of_groups(ACME.tenant_id, GROUPS) == limit


STEP_KINDS = ["commit", "commit", "move", "tell", "tell one"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(STEP_KINDS),
        st.integers(0, PARTITIONS - 1),
        st.integers(0, BROKERS - 1),
    ),
    max_size=40,
)


def play(steps: Sequence[tuple[str, int, int]]) -> None:
    """Nobody is refused who has room, and once all know what the others have nobody has too
    much."""
    cell = Cell(groups=GROUPS_MAX)
    for step, partition, number in steps:
        before = cell.groups_count()
        if step == "move":
            cell.move(partition, cell.brokers[number])
        elif step == "tell":
            cell.tell(cell.brokers[number])
        elif step == "tell one":
            cell.tell(cell.brokers[number], cut_off=cell.brokers[partition % BROKERS])
        elif not cell.commits_new(partition):
            assert before >= GROUPS_MAX
    cell.tell()
    cell.tell()
    before = cell.groups_count()
    for partition in range(PARTITIONS):
        if cell.commits_new(partition):
            assert before < GROUPS_MAX
            cell.tell()
            before = cell.groups_count()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_limits_hold_through_moves_of_coordinators(steps: list[tuple[str, int, int]]) -> None:
    play(steps)


def _never_twice(self: Any) -> list[Any]:
    return []


def _alone(self: Any, tenant: str, quota: str) -> int:
    return 0


def _loaded_as_nothing(self: Any, folded: Any, now_ms: int) -> Any:
    folded.groups.clear()
    folded.simple_groups.clear()
    yield 1
    return now_ms


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (TenantHoldings, "_counted_twice", _never_twice),
        (TenantHoldings, "_held_elsewhere", _alone),
        (LoadedShard, "restore", _loaded_as_nothing),
    ],
)
def test_a_planted_bug_shows_in_some_history(
    owner: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    monkeypatch.setattr(owner, name, wrong)
    for _ in range(50):
        steps = [
            (rng.choice(STEP_KINDS), rng.randrange(PARTITIONS), rng.randrange(BROKERS))
            for _ in range(30)
        ]
        try:
            play(steps)
        except AssertionError:
            return
    pytest.fail("nothing showed it")


def test_offsets_of_other_brokers_count() -> None:
    cell = Cell(committed_offsets=5)
    first = cell.new_group(0)
    assert cell.leaders[0].commits(first, 0, 1, 2)
    cell.tell()
    second = cell.new_group(1)
    assert not cell.leaders[1].commits(second, 0, 1, 2)
    assert cell.leaders[1].commits(second, 0, 1)
    cell.tell()
    assert not cell.leaders[0].commits(first, 3)
    assert cell.leaders[0].commits(first, 0, 1, 2)
    refused = cell.leaders[0].coordinator.counters.refused
    assert refused[COMMITTED_OFFSETS] == 1


def test_who_has_no_limits_is_told_to_nobody() -> None:
    cell = Cell()
    assert cell.commits_new(0)
    (broker, *_) = cell.brokers
    assert not broker.holdings.is_active
    assert broker.holdings.look() == Held({})


def test_connections_are_counted_over_all_brokers() -> None:
    cell = Cell(connections=3)
    first, second, _ = cell.brokers
    shares = [broker.player.services.connections.of("acme") for broker in (first, second)]
    shares[0].add(2)
    cell.tell()
    assert second.holdings.why_no_connection("acme") == ""
    shares[1].add(1)
    cell.tell()
    words = "The tenant has 3 connections, and may have 3: 1 more is too much."
    for broker in cell.brokers:
        assert broker.holdings.why_no_connection("acme") == words
        assert broker.holdings.why_no_connection("default") == ""
    assert second.holdings.refused_connections_count == 1
    shares[0].add(-1)
    assert first.holdings.why_no_connection("acme") == ""
    # Of a broker that may be dead they are about to come to the others.
    for broker in cell.brokers:
        broker.player.now_ms += CONNECTIONS_UNHEARD_MS
    assert second.holdings.why_no_connection("acme") == ""
    assert first.holdings.look().counts == {"acme": {CONNECTIONS: 1}}


@pytest.mark.parametrize("quota", [GROUPS, COMMITTED_OFFSETS])
def test_a_limit_holds_as_soon_as_it_is_set(quota: str) -> None:
    cell = Cell()
    for _ in range(3):
        assert cell.commits_new(0)
    broker = cell.leaders[0]
    three: dict[str, Any] = {quota: 3}
    broker.holdings.set_tenants({"acme": replace(ACME, quotas=TenantQuotas(**three))})
    assert not cell.commits_new(0)
    broker.holdings.set_tenants({"acme": ACME})
    assert cell.commits_new(0)
