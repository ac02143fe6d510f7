"""Use is counted once, whatever way samples come; and what is kept of it, for how long."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection, transaction
from django.db.models import Sum
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_plane.usage.facade import do_forget_names
from control_plane.usage.logic import RESOLUTIONS, do_forget_old_levels, do_store_samples
from control_plane.usage.models import (
    TenantUsage10s,
    TenantUsageHour,
    TenantUsageMinute,
    TopicUsageHour,
    UsageCursor,
    UsageIncarnation,
    UsageLevel,
)
from control_plane.usage.partitions import (
    MADE_AHEAD,
    TABLES,
    KeptTable,
    are_partitions_there,
    do_keep_partitions,
    do_make_partitions_if_missing,
)
from control_plane.usage.samples import (
    CONNECTIONS_HOLD_MS,
    FUTURE_MS_MAX,
    HOUR_MS,
    MINUTE_MS,
    STORAGE_HOLDS_MS,
    TEN_SECONDS_MS,
    Levels,
    Numbers,
    fold,
    interval_of,
)
from data_plane.contract.cell_operations_pb2 import (
    LostUsage,
    UsageSample,
)
from tests.control_plane.rest import at, client_of, member_of, operator
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

pytestmark = pytest.mark.django_db

EXAMPLES = {"nightly": 300}.get(os.environ.get("TIDEWHEEL_TEST_LEVEL", ""), 40)
ENDPOINT = "127.0.0.1:1"
# In the middle of an hour, of a day and of a month.
NOON_MS = 1_700_000_000_000 - 1_700_000_000_000 % HOUR_MS + HOUR_MS // 2


def now_ms() -> int:
    return int(timezone.now().timestamp() * 1000)


def sample(
    sequence: int,
    *,
    node_id: int = 1,
    incarnation: str = "life",
    tenant: str = "acme",
    topic: str = "orders",
    bytes_in: int = 0,
    storage: int | None = None,
    connections: int | None = None,
    end_ms: int = 0,
) -> UsageSample:
    made = UsageSample(
        broker_id=node_id, incarnation=incarnation, sequence=sequence, end_ms=end_ms or now_ms()
    )
    if bytes_in or storage is not None:
        made.topics.add(
            tenant=tenant,
            topic=topic,
            bytes_in=bytes_in,
            bytes_out=2 * bytes_in,
            records_in=bytes_in // 10,
            storage_bytes=storage,
        )
    if bytes_in or connections is not None:
        made.tenants.add(
            tenant=tenant, requests=bytes_in, throttle_ms=bytes_in, connections=connections or 0
        )
    return made


@pytest.fixture
def acme() -> Tenant:
    cache.clear()
    make_cell()
    do_make_partitions_if_missing()
    return make_tenant("acme")


def totals(tenant: Tenant) -> list[tuple[int, int, int, int]]:
    """By 10 seconds, minute and hour: bytes in and out, requests, throttling."""
    found = []
    for model in (TenantUsage10s, TenantUsageMinute, TenantUsageHour):
        rows = model.objects.filter(organization_id=tenant.id)
        names = ("produce_bytes", "fetch_bytes", "requests", "throttled_ms")
        sums: dict[str, Any] = rows.aggregate(**{name: Sum(name) for name in names})
        found.append(tuple(sums[name] or 0 for name in names))
    return found  # type: ignore[return-value]


def of_topics(tenant: Tenant) -> int:
    rows = TopicUsageHour.objects.filter(organization_id=tenant.id)
    return rows.aggregate(total=Sum("produce_bytes"))["total"] or 0


# Which samples a round brings: of a broker and one of its lives, from a sequence on, how many, and
# in which order.
ROUNDS = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.sampled_from(["first", "second", "third"]),
        st.integers(1, 12),
        st.integers(1, 6),
        st.sampled_from(["in order", "in order", "backwards", "twice"]),
    ),
    max_size=15,
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(ROUNDS)
def test_no_sample_is_counted_twice(acme: Tenant, rounds: list[Any]) -> None:
    with transaction.atomic():
        counted: set[tuple[int, str, int]] = set()
        brought: set[tuple[int, str, int]] = set()
        begun_ms = now_ms() - HOUR_MS
        for node_id, incarnation, first, count, order in rounds:
            sequences = list(range(first, first + count))
            if order == "backwards":
                sequences.reverse()
            elif order == "twice":
                sequences *= 2
            batch = [
                sample(
                    sequence,
                    node_id=node_id,
                    incarnation=incarnation,
                    bytes_in=1 << sequence,
                    end_ms=begun_ms + 4_000 * sequence,
                )
                for sequence in sequences
            ]
            expected = 0
            for sequence in sequences:
                key = (node_id, incarnation, sequence)
                brought.add(key)
                later = [one for one in counted if one[:2] == key[:2] and one[2] >= sequence]
                if not later:
                    counted.add(key)
                    expected += 1
            assert do_store_samples("cell", ENDPOINT, batch) == expected
        used = sum(1 << sequence for _, _, sequence in counted)
        assert totals(acme) == [(used, 2 * used, used, used)] * 3
        assert of_topics(acme) == used
        # What comes in order is all counted, and nothing more than came.
        assert counted <= brought
        transaction.set_rollback(True)


def test_what_comes_in_order_is_counted_whole_by_whoever_reads_from_anywhere(acme: Tenant) -> None:
    feed = [sample(number, bytes_in=number) for number in range(1, 21)]
    for first in (0, 5, 3, 0, 12, 19, 20, 7):
        do_store_samples("cell", ENDPOINT, feed[first : first + 8])
    assert totals(acme)[0][0] == sum(range(1, 21))
    cursor = UsageCursor.objects.get(cell_id="cell", node_id=1)
    assert (cursor.endpoint, cursor.incarnation, cursor.sequence) == (ENDPOINT, "life", 15)


def test_the_same_sequence_of_another_broker_or_life_or_cell_is_another_sample(
    acme: Tenant,
) -> None:
    for cell, node_id, life in (("a", 1, "x"), ("a", 2, "x"), ("a", 1, "y"), ("b", 1, "x")):
        batch = [sample(1, node_id=node_id, incarnation=life, bytes_in=10)]
        assert do_store_samples(cell, ENDPOINT, batch) == 1
        assert do_store_samples(cell, ENDPOINT, batch) == 0
    assert totals(acme)[0][0] == 40


def test_what_fails_is_counted_when_it_comes_again(acme: Tenant) -> None:
    batch = [sample(1, bytes_in=10)]
    with transaction.atomic():
        assert do_store_samples("cell", ENDPOINT, batch) == 1
        transaction.set_rollback(True)
    assert totals(acme)[0][0] == 0
    assert do_store_samples("cell", ENDPOINT, batch) == 1
    assert totals(acme)[0][0] == 10


def test_what_was_lost_is_written_down(acme: Tenant) -> None:
    made = sample(7, bytes_in=10)
    made.lost.CopyFrom(LostUsage(reason=LostUsage.KILLED, duration_ms=10_000))
    for _ in range(2):
        do_store_samples("cell", ENDPOINT, [made])
    assert UsageIncarnation.objects.get().lost_ms == 10_000


def test_what_is_nobodys_counts_for_nobody(acme: Tenant) -> None:
    strange = sample(1, tenant="default", bytes_in=10)
    assert do_store_samples("cell", ENDPOINT, [strange]) == 1
    assert not TenantUsage10s.objects.exists()
    assert not TopicUsageHour.objects.exists()


def folded(*samples: UsageSample, levels: Levels | None = None) -> dict[int, Numbers]:
    """Of the tenant, by the beginning of 10 seconds."""
    found = fold(samples, {"acme": "org_acme"}, levels or Levels(), NOON_MS + HOUR_MS)
    return {start_ms: numbers for (_, start_ms), numbers in found.tenants.items()}


def test_a_sample_counts_where_it_ends() -> None:
    ends = (NOON_MS, NOON_MS + 1, NOON_MS + TEN_SECONDS_MS)
    numbers = folded(*(sample(n, bytes_in=10**n, end_ms=end) for n, end in enumerate(ends, 1)))
    assert {start: one.produce_bytes for start, one in numbers.items()} == {
        NOON_MS - TEN_SECONDS_MS: 10,
        NOON_MS: 1_100,
    }
    assert interval_of(NOON_MS, HOUR_MS) == NOON_MS - HOUR_MS // 2


def test_storage_is_what_the_leaders_say_together() -> None:
    levels = Levels()

    def stored(sequence: int, node_id: int, minutes: float, storage: int, topic: str = "a") -> int:
        end_ms = int(NOON_MS + minutes * MINUTE_MS)
        said = sample(
            sequence,
            node_id=node_id,
            topic=topic,
            storage=storage,
            end_ms=end_ms,
            incarnation=f"of {node_id}",
        )
        (numbers,) = folded(said, levels=levels).values()
        return numbers.storage_bytes

    assert stored(1, 1, 0, 100) == 100
    assert stored(1, 2, 0.1, 50) == 150
    assert stored(2, 1, 1, 120) == 170
    assert stored(2, 2, 1.1, 7, topic="b") == 177
    # Broker 1 leads it no more, and says so; broker 2 does.
    assert stored(3, 1, 2, 0) == 57
    assert stored(3, 2, 2.1, 170) == 177
    # Broker 2 is gone, and broker 1 leads: what nobody measures any more counts no more.
    late = 2.1 + STORAGE_HOLDS_MS / MINUTE_MS + 0.1
    assert stored(4, 1, late, 170) == 170


def test_connections_are_those_of_all_brokers_until_one_is_started_anew() -> None:
    levels = Levels()

    def open_now(sequence: int, node_id: int, life: str, count: int, minutes: float) -> int:
        end_ms = int(NOON_MS + minutes * MINUTE_MS)
        said = sample(sequence, node_id=node_id, incarnation=life, connections=count, end_ms=end_ms)
        (numbers,) = folded(said, levels=levels).values()
        return numbers.connections

    assert open_now(1, 1, "a", 5, 0) == 5
    assert open_now(1, 2, "b", 7, 0) == 12
    assert open_now(2, 2, "c", 1, 1) == 6
    # What comes late says nothing new.
    assert open_now(2, 1, "a", 9, -1) == 6
    assert open_now(3, 2, "c", 2, CONNECTIONS_HOLD_MS / MINUTE_MS + 1) == 2


def test_levels_are_those_at_the_end_of_an_interval(acme: Tenant) -> None:
    start = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    start_ms = int(start.timestamp() * 1000)
    batch = [
        sample(1, bytes_in=10, storage=500, connections=3, end_ms=start_ms + 3_000),
        sample(2, bytes_in=10, storage=700, connections=4, end_ms=start_ms + 63_000),
        sample(3, bytes_in=10, storage=600, connections=5, end_ms=start_ms + 66_000),
    ]
    do_store_samples("cell", ENDPOINT, batch)
    for resolution, seen in {
        "10s": [(0, 10, 500, 3), (60, 20, 600, 5)],
        "minute": [(0, 10, 500, 3), (60, 20, 600, 5)],
        "hour": [(0, 30, 600, 5)],
    }.items():
        rows = RESOLUTIONS[resolution]._default_manager.order_by("starts_at")
        assert [
            (
                int((row.starts_at - start).total_seconds()),
                row.produce_bytes,
                row.storage_bytes,
                row.connections,
            )
            for row in rows
        ] == seen
    topic = TopicUsageHour.objects.get()
    assert (topic.starts_at, topic.produce_bytes, topic.storage_bytes) == (start, 30, 600)


def test_topics_have_a_row_where_something_is_not_zero(acme: Tenant) -> None:
    do_store_samples("cell", ENDPOINT, [sample(1, topic="idle", storage=0)])
    assert not TopicUsageHour.objects.exists()
    do_store_samples("cell", ENDPOINT, [sample(2, topic="idle", storage=5)])
    do_store_samples("cell", ENDPOINT, [sample(3, topic="idle", storage=0)])
    assert [row.storage_bytes for row in TopicUsageHour.objects.all()] == [0]


def test_a_clock_that_is_wrong_moves_use_and_loses_none(acme: Tenant) -> None:
    ends = (now_ms() + 10 * FUTURE_MS_MAX, now_ms(), now_ms() - 7 * 24 * HOUR_MS)
    for number, end_ms in enumerate(ends, 1):
        do_store_samples("cell", ENDPOINT, [sample(number, bytes_in=10, end_ms=end_ms)])
    last = TenantUsage10s.objects.order_by("starts_at").last()
    assert last is not None
    assert last.starts_at <= timezone.now()
    assert totals(acme)[2][0] == 30


def test_levels_that_hold_no_more_are_forgotten(acme: Tenant) -> None:
    do_store_samples("cell", ENDPOINT, [sample(1, storage=5, connections=1)])
    do_forget_old_levels(timezone.now())
    assert UsageLevel.objects.count() == 2
    do_forget_old_levels(timezone.now() + timedelta(days=2))
    assert not UsageLevel.objects.exists()


def test_of_a_tenant_that_is_no_more_totals_stay_and_no_names(acme: Tenant) -> None:
    do_store_samples("cell", ENDPOINT, [sample(1, bytes_in=10, storage=5, connections=1)])
    do_forget_names(acme.id)
    assert totals(acme)[2][0] == 10
    assert not TopicUsageHour.objects.exists()
    assert not UsageLevel.objects.exists()


def partitions(table: KeptTable) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass",
            [table.name],
        )
        return sorted(name for (name,) in cursor.fetchall())


def test_partitions_are_made_ahead_and_nothing_is_dropped_too_early() -> None:
    now = timezone.now()
    assert not are_partitions_there(now)
    do_keep_partitions(now)
    do_keep_partitions(now)
    assert are_partitions_there(now)
    for table in TABLES:
        start = now.astimezone(UTC)
        names = partitions(table)
        today = (
            f"{table.name}_{start:%Y%m}01" if table.is_monthly else f"{table.name}_{start:%Y%m%d}"
        )
        assert today in names
    # The next round finds enough until the one after it.
    assert are_partitions_there(now + MADE_AHEAD - timedelta(days=2))


def test_what_is_older_than_kept_goes_with_its_partition() -> None:
    past = timezone.now() - timedelta(days=500)
    do_keep_partitions(past)
    before = {table.name: partitions(table) for table in TABLES}
    do_keep_partitions(timezone.now())
    for table in TABLES:
        assert not set(before[table.name]) & set(partitions(table))
        oldest = min(partitions(table)).rpartition("_")[2]
        start = datetime.strptime(oldest, "%Y%m%d").replace(tzinfo=UTC)
        assert start > timezone.now() - table.kept - timedelta(days=32)


def test_a_clock_that_runs_ahead_drops_nothing(acme: Tenant) -> None:
    do_store_samples("cell", ENDPOINT, [sample(1, bytes_in=10)])
    do_keep_partitions(timezone.now() + timedelta(days=1000))
    assert [total[0] for total in totals(acme)] == [10, 10, 10]


@pytest.fixture
def used(acme: Tenant) -> datetime:
    """The hour that is over: five minutes of use, of two topics."""
    start = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    start_ms = int(start.timestamp() * 1000)
    batch = [
        sample(
            minute + 1,
            topic="orders" if minute % 2 else "refunds",
            bytes_in=100 * (minute + 1),
            storage=1_000,
            connections=2,
            end_ms=start_ms + minute * MINUTE_MS + 5_000,
        )
        for minute in range(5)
    ]
    do_store_samples("cell", ENDPOINT, batch)
    return start


def test_series_by_rest_are_paged_and_add_up(acme: Tenant, used: datetime) -> None:
    client = member_of(acme, "viewer")
    since = {"from": used.isoformat()}
    seen: list[int] = []
    query: dict[str, Any] = since | {"resolution": "minute", "limit": 2}
    while True:
        page = client.get(at(acme, "usage"), query).json()
        assert page["resolution"] == "minute"
        seen += [item["produce_bytes"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == [100, 200, 300, 400, 500]
    (hour,) = client.get(at(acme, "usage"), since).json()["items"]
    assert datetime.fromisoformat(hour["starts_at"]) == used
    assert (hour["produce_bytes"], hour["fetch_bytes"], hour["requests"]) == (1500, 3000, 1500)
    assert (hour["storage_bytes"], hour["connections"]) == (2000, 2)
    (orders,) = client.get(at(acme, "usage"), since | {"topic": "orders"}).json()["items"]
    assert (orders["produce_bytes"], orders["requests"]) == (600, 0)
    topics = client.get(at(acme, "usage/topics"), since | {"limit": 1}).json()
    assert [item["topic"] for item in topics["items"]] == ["orders"]
    more = since | {"cursor": topics["next_cursor"]}
    (refunds,) = client.get(at(acme, "usage/topics"), more).json()["items"]
    assert (refunds["topic"], refunds["produce_bytes"]) == ("refunds", 900)


def test_nothing_of_another_tenant_is_in_a_series(acme: Tenant, used: datetime) -> None:
    other = make_tenant("other")
    client = client_of(other.owner)
    assert client.get(at(other, "usage")).json()["items"] == []
    assert client.get(at(other, "usage"), {"topic": "orders"}).json()["items"] == []
    assert client.get(at(other, "usage/topics")).json()["items"] == []
    assert client.get(at(acme, "usage")).status_code == 404
    assert operator().get(at(acme, "usage")).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        {"resolution": "day"},
        {"resolution": "minute", "topic": "orders"},
        {"from": "yesterday"},
        {"from": "2026-01-31T12:00:00"},
        {"to": "0001-01-01T00:00:00Z"},
        {"from": "0001-01-01T00:00:00+01:00"},
        {"cursor": "eA=="},
        {"limit": "0"},
    ],
)
def test_what_cannot_be_asked_names_the_parameter(acme: Tenant, query: dict[str, str]) -> None:
    answer = client_of(acme.owner).get(at(acme, "usage"), query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].removeprefix("/") in {*query, "resolution"}


def test_any_zone_of_the_world_may_be_said(acme: Tenant, used: datetime) -> None:
    client = client_of(acme.owner)
    since = {"from": "2020-01-01T00:00:00+17:05"}
    for address in ("usage", "usage/topics"):
        answer = client.get(at(acme, address), since)
        assert answer.status_code == 200
        assert answer.json()["items"]


def test_limits_and_use_are_side_by_side(acme: Tenant) -> None:
    minute = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=1)
    end_ms = int(minute.timestamp() * 1000) + 30_000
    batch = [sample(1, bytes_in=60_000, storage=5_000, connections=3, end_ms=end_ms)]
    do_store_samples("cell", ENDPOINT, batch)
    quota = client_of(acme.owner).get(at(acme, "quota")).json()
    assert quota["used"].keys() <= quota["limits"].keys()
    assert quota["used"]["produce_bytes_per_second"] == 1_000
    assert quota["used"]["consume_bytes_per_second"] == 2_000
    assert quota["used"]["requests_per_second"] == 1_000
    assert (quota["used"]["storage_bytes"], quota["used"]["connections"]) == (5_000, 3)
    since = {"resolution": "minute", "from": minute.isoformat()}
    (row,) = client_of(acme.owner).get(at(acme, "usage"), since).json()["items"]
    assert row["produce_bytes"] == 60 * quota["used"]["produce_bytes_per_second"]
    assert row["storage_bytes"] == quota["used"]["storage_bytes"]
