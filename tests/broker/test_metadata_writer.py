"""Commits: several decisions in one, conflicts, lost answers, a store that is away."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.cell.metadata_writer import DECISIONS_PER_COMMIT_MAX, OUTCOME_TIMEOUT_MS
from data_plane.broker.cell.waiting_writes import COST_MAX
from data_plane.cell.changes import (
    AllocateProducerIds,
    Change,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
)
from data_plane.cell.metadata import BrokerImage, MetadataImage
from data_plane.cell.metadata_store import (
    InMemoryMetadataStore,
    StaleControllerEpoch,
    StoreUnavailable,
    VersionConflict,
)
from tests.broker.member_player import Clock, Member, Outcome, topic

ACTIONS = ["write", "write", "run", "lose", "cut", "mend", "tick", "poke"]


@pytest.fixture
def member() -> Member:
    return Member()


def ids(image: MetadataImage) -> Sequence[Change]:
    return (AllocateProducerIds(image.next_producer_id, 10),)


def test_changes_are_in_the_image_when_the_caller_is_told(member: Member) -> None:
    outcome = member.write(topic("a", 1))
    assert outcome.calls == 0
    member.run_jobs()
    assert outcome.is_ok
    assert outcome.version == 1
    assert member.image == member.cell_store.read()
    assert "a" in member.image.topics_of("default")


def test_what_comes_while_a_commit_is_under_way_goes_into_the_next_one(member: Member) -> None:
    outcomes = [member.write(topic(f"t{number}", number)) for number in range(1, 12)]
    member.run_jobs()
    assert all(outcome.is_ok for outcome in outcomes)
    assert [len(changes) for _, changes, _ in member.store.applied] == [1, 10]
    assert member.image.version == 2


def test_a_commit_holds_a_bounded_number_of_decisions(member: Member) -> None:
    count = DECISIONS_PER_COMMIT_MAX + 2
    outcomes = [member.decide(ids) for _ in range(count)]
    member.run_jobs()
    assert all(outcome.is_ok for outcome in outcomes)
    sizes = [len(changes) for _, changes, _ in member.store.applied]
    assert sizes == [1, DECISIONS_PER_COMMIT_MAX, 1]


def test_each_decision_sees_what_those_before_it_in_the_commit_leave(member: Member) -> None:
    member.write(topic("first", 9))
    for _ in range(3):
        member.decide(ids)
    member.run_jobs()
    assert member.image.next_producer_id == 30
    assert len(member.store.applied) == 2


def test_a_broker_registered_in_the_middle_of_a_commit_has_the_commits_version(
    member: Member,
) -> None:
    member.write(topic("first", 9))
    member.write(topic("a", 1))
    member.write(RegisterBroker(BrokerImage(5, "host", 9092)))
    seen: list[int] = []

    def look(image: MetadataImage) -> Sequence[Change]:
        seen.append(image.brokers[5].broker_epoch)
        return ()

    member.decide(look)
    member.run_jobs()
    assert seen == [2]
    assert member.image.brokers[5].broker_epoch == member.image.version == 2
    assert member.image == member.cell_store.read()


def test_a_decision_that_raises_fails_alone(member: Member) -> None:
    def fail(image: MetadataImage) -> Sequence[Change]:
        raise LookupError("no")

    first = member.write(topic("a", 1))
    good = member.write(topic("b", 2))
    bad = member.decide(fail)
    unfit = member.write(topic("a", 3))
    late = member.write(topic("c", 4))
    member.run_jobs()
    assert all(outcome.is_ok for outcome in (first, good, late))
    assert isinstance(bad.error, LookupError)
    assert "exists" in str(unfit.error)
    assert sorted(member.image.topics_of("default")) == ["a", "b", "c"]


def test_a_failure_is_told_only_after_the_store_was_asked_for_news(member: Member) -> None:
    """Somebody else has deleted the topic that stands in the way."""
    member.write(topic("a", 1))
    member.run_jobs()
    member.cell_store.apply([DeleteTopic(UUID(int=1))], 1, "somebody else")
    outcome = member.write(topic("a", 2))
    assert outcome.calls == 0
    member.run_jobs()
    assert outcome.is_ok
    assert member.image.topics_of("default")["a"].topic_id == UUID(int=2)


def test_a_failure_is_told_while_the_store_is_away(member: Member) -> None:
    member.write(topic("a", 1))
    member.run_jobs()
    member.store.is_down = True
    outcome = member.write(topic("a", 2))
    member.run_jobs()
    assert "exists" in str(outcome.error)


def test_with_a_store_of_its_own_a_failure_is_told_at_once() -> None:
    member = Member(is_shared=False)
    member.write(topic("a", 1))
    member.run_jobs()
    outcome = member.write(topic("a", 2))
    assert "exists" in str(outcome.error)
    assert member.store.feeds == 0


def test_after_a_conflict_all_is_decided_anew_on_what_the_others_made(member: Member) -> None:
    other = Member(member.cell_store, member.clock, node_id=2)

    def faster() -> None:
        other.write(AllocateProducerIds(0, 5))
        other.run_jobs()

    member.store.before_apply = faster
    outcome = member.decide(ids)
    member.run_jobs()
    assert outcome.is_ok
    assert member.image.next_producer_id == 15
    assert member.partitions.versions == [1, 2]
    request_ids = [request_id for request_id, _, _ in member.store.applied]
    assert len(set(request_ids)) == 2, "the second commit is another one"


def test_a_lost_answer_is_asked_for_with_the_same_request_id(member: Member) -> None:
    member.store.lost_replies = 2
    outcome = member.decide(ids)
    member.run_jobs()
    assert outcome.calls == 0
    member.pass_time(500)
    assert outcome.is_ok
    assert member.image.next_producer_id == 10
    assert member.cell_store.read().version == 1
    assert len({request_id for request_id, _, _ in member.store.applied}) == 1
    assert len(member.store.applied) == 3


def test_a_lost_answer_is_understood_after_others_have_committed_too(member: Member) -> None:
    member.store.lost_replies = 1
    outcome = member.decide(ids)
    member.run_jobs()
    member.cell_store.apply([AllocateProducerIds(10, 7)], 1, "somebody else")
    member.pass_time(100)
    assert outcome.is_ok
    assert member.image.version == 1, "what came after it is the follower's business"
    member.follower.request_update()
    member.run_jobs()
    assert member.image.next_producer_id == 17


def test_the_follower_may_bring_our_own_commit_first(member: Member) -> None:
    member.store.lost_replies = 1
    outcome = member.decide(ids)
    member.run_jobs()
    member.follower.request_update()
    member.run_jobs()
    assert member.image.version == 1
    assert outcome.calls == 0
    member.pass_time(100)
    assert outcome.is_ok
    assert member.partitions.versions == [1]


def test_a_store_that_stays_away_fails_the_callers_in_the_end(member: Member) -> None:
    member.store.is_down = True
    first = member.write(topic("a", 1))
    second = member.write(topic("b", 2))
    member.pass_time(OUTCOME_TIMEOUT_MS - 2000, 100)
    assert (first.calls, second.calls) == (0, 0)
    member.pass_time(4000, 100)
    assert isinstance(first.error, StoreUnavailable)
    assert isinstance(second.error, StoreUnavailable)
    assert (first.calls, second.calls) == (1, 1)
    member.store.is_down = False
    third = member.write(topic("c", 3))
    member.pass_time(100)
    assert third.is_ok
    assert sorted(member.image.topics_of("default")) == ["c"]
    assert member.services.metadata.is_idle


def test_writes_wait_for_a_store_that_comes_back_in_time(member: Member) -> None:
    member.store.is_down = True
    outcomes = [member.write(topic("a", 1)), member.write(topic("b", 2))]
    member.pass_time(5000, 100)
    member.store.is_down = False
    member.pass_time(1200, 100)
    assert all(outcome.is_ok for outcome in outcomes)


def test_a_store_of_its_own_that_fails_fails_the_caller_at_once() -> None:
    member = Member(is_shared=False)
    member.store.is_down = True
    outcome = member.write(topic("a", 1))
    member.run_jobs()
    assert isinstance(outcome.error, StoreUnavailable)


def test_a_stale_controller_epoch_fails_that_commit_only(member: Member) -> None:
    member.cell_store.heartbeat(1, "i1", 1000, wants_controller=True)
    stale = [member.write(topic("a", 1), controller_epoch=7) for _ in range(2)]
    plain = member.write(topic("b", 2))
    current = member.write(topic("c", 3), controller_epoch=1)
    member.run_jobs()
    assert all(isinstance(outcome.error, StaleControllerEpoch) for outcome in stale)
    assert all(outcome.is_ok for outcome in (plain, current))
    assert sorted(member.image.topics_of("default")) == ["b", "c"]


def test_different_controller_epochs_are_never_in_one_commit_and_order_is_kept(
    member: Member,
) -> None:
    member.cell_store.heartbeat(1, "i1", 1000, wants_controller=True)
    epochs = [None, None, 1, 1, None, 1, None]
    outcomes = [
        member.write(topic(f"t{number}", number), controller_epoch=epoch)
        for number, epoch in enumerate(epochs, 1)
    ]
    member.run_jobs()
    assert all(outcome.is_ok for outcome in outcomes)
    commits = [
        (epoch, [change.name for change in changes if isinstance(change, CreateTopic)])
        for _, changes, epoch in member.store.applied
    ]
    assert commits == [
        (None, ["t1"]),
        (None, ["t2"]),
        (1, ["t3", "t4"]),
        (None, ["t5"]),
        (1, ["t6"]),
        (None, ["t7"]),
    ]


def test_a_callback_that_raises_does_not_stop_the_others(member: Member) -> None:
    def bad(error: BaseException | None) -> None:
        raise RuntimeError("a bug")

    member.services.metadata.write(ids, bad)
    member.services.metadata.write(ids, bad)
    outcome = member.write(topic("a", 1))
    member.run_jobs()
    assert outcome.is_ok
    assert [event for _, event, _ in member.log.events] == ["metadata_callback_failed"] * 2


def test_a_callback_may_write_again(member: Member) -> None:
    written: list[int] = []

    def again(error: BaseException | None) -> None:
        written.append(member.image.version)
        if len(written) < 2000:
            member.services.metadata.write(lambda image: (), again)

    member.services.store = InMemoryMetadataStore(MetadataImage("cluster"))
    member.services.metadata.write(lambda image: (), again)
    assert len(written) == 2000


def test_others_that_are_always_faster_end_in_a_conflict(member: Member) -> None:
    other = Member(member.cell_store, member.clock, node_id=2)

    def faster() -> None:
        other.decide(ids)
        other.run_jobs()
        other.follower.request_update()
        other.run_jobs()
        member.clock.now_ms += 1000
        member.store.before_apply = faster

    member.store.before_apply = faster
    outcome = member.write(topic("a", 1))
    member.run_jobs()
    assert isinstance(outcome.error, VersionConflict)
    assert outcome.calls == 1


@given(st.data())
def test_two_members_lose_and_double_nothing_whatever_the_store_does(data: st.DataObject) -> None:
    """Each allocation is made exactly once unless its caller was told that nobody knows; both
    members and the store agree in the end, and no image ever went back."""
    clock = Clock()
    store = InMemoryMetadataStore(MetadataImage("cluster"), lambda: clock.now_ms)
    members = [Member(store, clock, node_id=1), Member(store, clock, node_id=2)]
    outcomes = []
    for _ in range(data.draw(st.integers(1, 30))):
        member = data.draw(st.sampled_from(members))
        match data.draw(st.sampled_from(ACTIONS)):
            case "write":
                outcomes.append(member.decide(ids))
            case "run":
                if member.executor.queue:
                    member.executor.run_one()
            case "lose":
                member.store.lost_replies = 1
            case "cut":
                member.store.is_down = True
            case "mend":
                member.store.is_down = False
            case "tick":
                clock.now_ms += 60
                member.services.tick(clock.now_ms)
            case "poke":
                member.follower.request_update()
    for member in members:
        member.store.is_down = False
    for _ in range(40):
        for member in members:
            member.pass_time(100, 50)
            member.follower.request_update()
            member.run_jobs()
    assert all(outcome.is_ok for outcome in outcomes)
    assert store.read().next_producer_id == 10 * len(outcomes)
    for member in members:
        assert member.image == store.read()
        assert member.partitions.versions == sorted(set(member.partitions.versions))


def test_who_has_waited_too_long_was_decided_once_before_he_is_told(member: Member) -> None:
    member.store.is_down = True
    member.write(topic("a", 1))
    noted: list[str] = []

    def decide(image: MetadataImage) -> Sequence[Change]:
        noted.append("decided")
        return (topic("b", 2),)

    def refuse(image: MetadataImage) -> Sequence[Change]:
        noted.append("refused")
        raise ValueError

    def done(error: BaseException | None) -> None:
        assert isinstance(error, StoreUnavailable)
        noted.append("told")

    for each in (decide, refuse):
        member.services.metadata.write(each, done)
    assert noted == [], "they wait for the first one"
    member.pass_time(OUTCOME_TIMEOUT_MS + 2_000, 100)
    assert noted == ["decided", "told", "refused", "told"]
    member.store.is_down = False
    member.pass_time(2_000, 100)
    assert "b" not in member.image.topics_of("default")
    assert noted == ["decided", "told", "refused", "told"]


def test_long_decisions_are_made_one_in_a_turn() -> None:
    member = Member(is_shared=False)
    decided: list[int] = []
    outcomes: list[BaseException | None] = []
    writer = member.services.metadata
    member.write(topic("a", 1))

    def decide(number: int, image: MetadataImage) -> Sequence[Change]:
        decided.append(number)
        return ()

    for number in range(3):
        writer.write(partial(decide, number), outcomes.append, cost=COST_MAX)
    assert decided == [], "they wait for the commit"
    member.run_jobs()
    assert decided == [0], "nothing has to be committed, and the rest waits for another turn"
    for _ in range(2):
        member.pass_time(1)
    assert decided == [0, 1, 2]
    assert outcomes == [None] * 3
    assert writer.is_idle


def test_a_writer_may_give_up_sooner(member: Member) -> None:
    member.store.is_down = True
    outcomes = []
    for deadline_ms in (member.now_ms() + 500, None):
        outcome = Outcome(member)
        member.services.metadata.write(ids, outcome.done, deadline_ms=deadline_ms)
        outcomes.append(outcome)
    member.pass_time(2_000, 50)
    assert [outcome.calls for outcome in outcomes] == [1, 0]
    member.store.is_down = False
    member.pass_time(2_000, 50)
    assert [outcome.calls for outcome in outcomes] == [1, 1]
    assert outcomes[1].is_ok
