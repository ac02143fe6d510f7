"""What the reconciler decides about answers of cells, and how long it waits."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings

from control_plane.celery_app import app
from control_plane.reconciliation import tasks
from control_plane.reconciliation.logic import (
    CELL_RETRY_MAX,
    RETRY_FIRST,
    RETRY_MAX,
    Verdict,
    answer_to_apply,
    answer_to_delete,
    cell_retry_after,
    retry_after,
)
from control_plane.reconciliation.sending import PARTITIONS_MAX, RESOURCES_MAX, batches
from data_plane.contract import cell_admin_pb2 as messages

Result = messages.Result


def result(
    outcome: Result.Outcome.ValueType, generation: int, message: str = "", error_code: int = 0
) -> Result:
    return Result(
        resource_id="r",
        outcome=outcome,
        generation=generation,
        message=message,
        error_code=error_code,
    )


@pytest.mark.parametrize(
    ("outcome", "cell_has", "owner", "verdict"),
    [
        (Result.DONE, 3, messages.API, Verdict.IN_FORCE),
        (Result.UNCHANGED, 3, messages.API, Verdict.IN_FORCE),
        (Result.STALE, 4, messages.API, Verdict.LATER),
        (Result.GONE, 2, messages.API, Verdict.OVER),
        # The same generation with another content, against a thing that is somebody else's.
        (Result.CONFLICT, 3, messages.API, Verdict.COUNT_ON),
        (Result.CONFLICT, 0, messages.API, Verdict.FAILED),
        (Result.CONFLICT, 2, messages.API, Verdict.FAILED),
        (Result.CONFLICT, 0, messages.CLIENT, Verdict.IN_FORCE),
        (Result.REFUSED, 0, messages.API, Verdict.FAILED),
        (Result.OUTCOME_UNSPECIFIED, 3, messages.API, Verdict.FAILED),
    ],
)
def test_an_answer_to_an_apply(
    outcome: Result.Outcome.ValueType,
    cell_has: int,
    owner: messages.Owner.ValueType,
    verdict: Verdict,
) -> None:
    sent = messages.Resource(resource_id="r", generation=3, owner=owner)
    answer = answer_to_apply(result(outcome, cell_has), sent)
    assert (answer.verdict, answer.generation) == (verdict, 3)


def test_a_refusal_says_why() -> None:
    sent = messages.Resource(resource_id="r", generation=1)
    refused = result(Result.REFUSED, 0, message="no brokers", error_code=38)
    assert answer_to_apply(refused, sent).reason == "no brokers (error 38)"


def test_a_deletion_is_done_when_all_ids_are_gone() -> None:
    gone = result(Result.DONE, 2), result(Result.UNCHANGED, 1)
    assert answer_to_delete(gone, 2).verdict is Verdict.GONE
    stale = answer_to_delete([*gone, result(Result.STALE, 7)], 2)
    assert (stale.verdict, stale.cell_generation) == (Verdict.COUNT_ON, 7)
    refused = answer_to_delete([result(Result.REFUSED, 1, message="no")], 2)
    assert (refused.verdict, refused.reason) == (Verdict.FAILED, "no")


def test_waits_grow_up_to_a_bound_and_are_spread() -> None:
    waits = [retry_after(attempts, 1.0) for attempts in range(1, 100)]
    assert waits[0] == RETRY_FIRST
    assert waits == sorted(waits)
    assert waits[-1] == RETRY_MAX
    assert retry_after(1, 0.0) == RETRY_FIRST / 2
    assert cell_retry_after(1_000_000, 1.0) == CELL_RETRY_MAX
    assert cell_retry_after(1, 0.0) > timedelta(0)


def test_no_call_is_beyond_the_bounds_and_tenants_come_first() -> None:
    topics = [
        messages.Resource(resource_id=f"t{n}", topic=messages.Topic(partitions=partitions))
        for n, partitions in enumerate([PARTITIONS_MAX, 1, PARTITIONS_MAX + 1, *[1] * 2000])
    ]
    tenant = messages.Resource(resource_id="tenant", tenant_spec=messages.Tenant())
    made = list(batches([*topics, tenant]))
    assert made[0][0].resource_id == "tenant"
    assert sorted(one.resource_id for batch in made for one in batch) == sorted(
        one.resource_id for one in [tenant, *topics]
    )
    for batch in made:
        assert len(batch) <= RESOURCES_MAX
        partitions = sum(one.topic.partitions for one in batch)
        assert partitions <= PARTITIONS_MAX or len(batch) == 1


def test_tasks_are_begun_by_the_beat_and_wait_for_no_time() -> None:
    # As a worker does when it starts.
    app.loader.import_default_modules()
    begun = {entry["task"]: entry for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    ours = (tasks.reconcile, tasks.follow, tasks.repair, tasks.lives, tasks.look)
    assert {task.name for task in ours} <= begun.keys() <= set(app.tasks)
    for entry in begun.values():
        # A round that nobody has taken is not needed any more when the next one comes.
        assert entry["options"] == {"expires": entry["schedule"]}
