"""Cells whose brokers do not know the same, or do not answer: whose word is taken, and who is left
alone meanwhile. The brokers are gRPC servers that answer as they are told."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import uuid4

import grpc
import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from control_plane.accounts.models import Organization
from control_plane.cells.connections import CellRefused, CellUnavailable, cell_admin
from control_plane.cells.models import Cell, CellProgress
from control_plane.messaging.logic import (
    TopicSpec,
    do_create_topic,
    do_delete_topic,
    do_undelete_topic,
)
from control_plane.messaging.models import Topic
from control_plane.operations.models import OutboxEntry
from control_plane.places import places
from control_plane.reconciliation import following, sending
from control_plane.reconciliation.adoption import adopt_all
from control_plane.reconciliation.following import (
    FIRST_RESPONSE_S,
    LIST_EVERY,
    follow,
    follow_cells,
    give_back_lease,
    renew_lease,
    take_lease,
)
from control_plane.reconciliation.listing import items_of
from control_plane.reconciliation.looking import look_at_cells
from control_plane.reconciliation.rounds import (
    PROBE_S,
    PROBES,
    PROBES_MAX,
    ROUNDS_PER_CELL_MAX,
    reconcile_due,
    rounds_of,
)
from control_plane.usage.reading import read_cells
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract import cell_operations_pb2 as operations_messages
from data_plane.server.change_feed import AHEAD_TIMEOUT_S
from data_plane.server.inter_broker_tls import TlsFiles
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.control_plane.cells import trusted
from tests.control_plane.played_cells import STORE, PlayedBroker, clients_item, serving
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db,
]

TOLD_SECONDS_MAX = 5.0
# As many as a worker may well have, and fewer than the connections of a process.
THREADS = 6


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority(tmp_path_factory.mktemp("tls") / "ca").issue("both", "IP:127.0.0.1")


@pytest.fixture
def cell(files: TlsFiles, settings: Any) -> Cell:
    trusted(settings, files)
    return make_cell()


def at(cell: Cell, endpoints: list[str], *, taken_in: int | None = None) -> Cell:
    """The cell has these addresses, and its feed is taken in up to that version."""
    Cell.objects.filter(id=cell.id).update(admin_endpoints=endpoints)
    CellProgress.objects.update_or_create(
        cell=cell,
        defaults={
            "feed_version": taken_in,
            "feed_store_id": STORE,
            "listed_at": timezone.now(),
        },
    )
    return Cell.objects.get(id=cell.id)


def names_of(tenant: Tenant) -> set[str]:
    return set(Topic.objects.of(tenant.id).values_list("name", flat=True))


def placed(cell: Cell, slug: str) -> Tenant:
    """A tenant in this cell."""
    Cell.objects.exclude(id=cell.id).update(is_accepting=False)
    Cell.objects.filter(id=cell.id).update(is_accepting=True)
    return make_tenant(slug)


def status_of(tenant: Tenant) -> str:
    return Organization.objects.get(id=tenant.id).status


def test_a_broker_has_time_to_say_that_its_feed_has_no_such_version() -> None:
    assert FIRST_RESPONSE_S > AHEAD_TIMEOUT_S


def test_who_follows_a_broker_that_says_nothing_goes_to_the_next_one(
    cell: Cell, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FIRST_RESPONSE_S", 1.0)
    hangs, answers = PlayedBroker(hangs=True), PlayedBroker()
    with serving(files, hangs, answers) as endpoints:
        try:
            asked = at(cell, endpoints, taken_in=10)
            with pytest.raises(CellUnavailable):
                follow(asked, 0.1)
            assert len(hangs.watched) == 1
            assert follow(asked, 0.1) is True
            assert (len(hangs.watched), len(answers.watched)) == (1, 1)
        finally:
            hangs.released.set()


def test_a_look_at_a_feed_in_which_nothing_happens_ends_in_time(
    cell: Cell, files: TlsFiles
) -> None:
    with serving(files, PlayedBroker()) as endpoints:
        began_s = time.monotonic()
        assert follow(at(cell, endpoints, taken_in=10), 0.1) is True
        assert time.monotonic() - began_s < FIRST_RESPONSE_S


def test_everything_is_listed_each_hour_and_when_it_is_due(
    cell: Cell, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = make_tenant("acme")
    gone = clients_item(acme, "gone")
    played = PlayedBroker(items=[gone])
    with serving(files, played) as endpoints:
        asked = at(cell, endpoints)
        progress = CellProgress.objects.filter(cell=asked)
        assert follow(asked, 0.1) is True
        assert names_of(acme) == {"gone"}
        # As if a slow follower had written it after another one had heard that it is no more.
        played.items = []
        follow(asked, 0.1)
        assert names_of(acme) == {"gone"}
        progress.update(listed_at=timezone.now() - LIST_EVERY)
        follow(asked, 0.1)
        assert names_of(acme) == set()
        # What is due while it is listed is due still.
        played.items = [gone]
        progress.update(lists_due=F("lists_due") + 1)

        def adopt_while_it_is_due_again(cell: Cell, items: list[messages.Item]) -> None:
            progress.update(lists_due=F("lists_due") + 1)
            adopt_all(cell, items)

        with monkeypatch.context() as patched:
            patched.setattr(following, "adopt_all", adopt_while_it_is_due_again)
            follow(asked, 0.1)
        assert names_of(acme) == {"gone"}
        assert progress.get().lists_due == progress.get().lists_done + 1
        follow(asked, 0.1)
        assert progress.get().lists_due == progress.get().lists_done


def test_a_lease_that_somebody_else_has_by_now_is_not_given_back(
    cell: Cell, files: TlsFiles
) -> None:
    at(cell, [])
    slow = take_lease(cell, -1.0)
    assert slow is not None
    other = take_lease(cell, 60.0)
    assert other is not None
    give_back_lease(slow)
    renew_lease(slow, 1.0)
    assert take_lease(cell, 60.0) is None
    give_back_lease(other)
    assert take_lease(cell, 60.0) is not None


def test_a_list_of_a_broker_that_is_behind_makes_nothing_go(cell: Cell, files: TlsFiles) -> None:
    acme = make_tenant("acme")
    old, new = clients_item(acme, "old"), clients_item(acme, "new")
    behind = PlayedBroker(version=850, items=[old])
    ahead = PlayedBroker(version=900, items=[old, new], feed_from=880)
    with serving(files, ahead, behind) as (ahead_at, behind_at):
        # Too long ago for the feed: everything is listed.
        assert follow(at(cell, [ahead_at], taken_in=500), 0.1) is True
        assert names_of(acme) == {"old", "new"}
        before = dict(Topic.objects.of(acme.id).values_list("name", "id"))
        asked = at(cell, [behind_at, ahead_at], taken_in=900)
        with pytest.raises(CellUnavailable, match="behind"):
            follow(asked, 0.1)
        assert CellProgress.objects.get(cell=cell).feed_version == 900
        # From now on the one that is not comes first.
        assert follow(asked, 0.1) is True
        assert ahead.watched[-1].after_version == 900
    assert dict(Topic.objects.of(acme.id).values_list("name", "id")) == before


def test_pages_of_a_broker_that_is_behind_the_feed_are_not_believed(
    cell: Cell, files: TlsFiles
) -> None:
    acme = make_tenant("acme")
    old, new = clients_item(acme, "old"), clients_item(acme, "new")

    class CutOff(PlayedBroker):
        """Its feed is told by one that knows more than the one that lists."""

        def List(self, request: Any, context: Any) -> Any:  # noqa: N802
            return messages.ListResponse(items=[old], version=850)

    whole = PlayedBroker(version=900, items=[old, new])
    with serving(files, whole, CutOff(version=900)) as (whole_at, cut_off_at):
        assert follow(at(cell, [whole_at]), 0.1) is True
        assert names_of(acme) == {"old", "new"}
        with pytest.raises(CellUnavailable, match="behind"):
            follow(at(cell, [cut_off_at]), 0.1)
    assert names_of(acme) == {"old", "new"}


def test_a_cell_that_was_restored_is_listed_when_all_of_its_brokers_say_so(
    cell: Cell, files: TlsFiles
) -> None:
    acme = make_tenant("acme")
    old, new = clients_item(acme, "old"), clients_item(acme, "new")
    one, two = PlayedBroker(version=900, items=[old, new]), PlayedBroker(version=900)
    with serving(files, one, two) as endpoints:
        assert follow(at(cell, endpoints), 0.1) is True
        assert names_of(acme) == {"old", "new"}
        for broker in (one, two):
            broker.version, broker.items = 850, [old]
        assert follow(at(cell, endpoints, taken_in=900), 0.1) is True
    assert names_of(acme) == {"old"}
    assert CellProgress.objects.get(cell=cell).feed_version == 850


def test_an_answer_of_a_broker_whose_store_is_away_is_none_to_what_is_declared(
    cell: Cell, files: TlsFiles
) -> None:
    with serving(files, PlayedBroker(stores_nothing=True)) as endpoints:
        acme = make_tenant("acme")
        asked = at(cell, endpoints, taken_in=10)
        progress = CellProgress.objects.filter(cell=asked)
        for failures in (1, 2, 3):
            reconcile_due()
            retry_at = progress.get().retry_at
            assert retry_at is not None
            assert retry_at > timezone.now()
            progress.update(retry_at=timezone.now())
            # It shows what it has, all the same.
            follow_cells(0.1)
            look_at_cells()
            assert (progress.get().failures, progress.get().read_failures) == (failures, 0)
            assert progress.get().retry_at is not None
            assert Cell.objects.get(id=cell.id).last_error != ""
            OutboxEntry.objects.of(acme.id).update(not_before=timezone.now())


def test_who_has_asked_nobody_has_no_answer(cell: Cell, files: TlsFiles) -> None:
    with serving(files, PlayedBroker()) as endpoints:
        asked = at(cell, endpoints, taken_in=10)
        CellProgress.objects.filter(cell=asked).update(read_failures=3)
        assert take_lease(asked, 60.0) is not None
        follow_cells(0.1)
        assert CellProgress.objects.get(cell=asked).read_failures == 3
        CellProgress.objects.filter(cell=asked).update(followed_until=None)
        follow_cells(0.1)
        assert CellProgress.objects.get(cell=asked).read_failures == 0


def test_so_many_rounds_of_a_cell_at_a_time(cell: Cell, files: TlsFiles) -> None:
    beside = make_cell("beside")
    with serving(files, PlayedBroker(), PlayedBroker()) as endpoints:
        for each, endpoint in zip((cell, beside), endpoints, strict=True):
            at(each, [endpoint])
        here, there = placed(cell, "here"), placed(beside, "there")
        with ExitStack() as stack:
            for _ in range(ROUNDS_PER_CELL_MAX):
                assert stack.enter_context(places.take(rounds_of(cell), ROUNDS_PER_CELL_MAX))
            assert reconcile_due() == 1
            assert (status_of(here), status_of(there)) == ("provisioning", "ready")
        assert reconcile_due() == 1
        assert status_of(here) == "ready"


def test_a_cell_that_did_not_answer_is_probed_by_one(cell: Cell, files: TlsFiles) -> None:
    played = PlayedBroker()
    with serving(files, played) as endpoints:
        asked = at(cell, endpoints)
        tenants = [make_tenant(f"waits-{number}") for number in range(3)]
        progress = CellProgress.objects.filter(cell=asked)
        progress.update(failures=4, retry_at=timezone.now())
        with ExitStack() as stack:
            for _ in range(PROBES_MAX):
                stack.enter_context(places.take(PROBES, PROBES_MAX))
            assert reconcile_due() == 0
        # Another process probes it.
        progress.update(retry_at=timezone.now() + timedelta(seconds=PROBE_S))
        assert reconcile_due() == 0
        assert played.applied == []
        progress.update(retry_at=timezone.now())
        assert reconcile_due() == 1
        assert (progress.get().failures, progress.get().retry_at) == (0, None)
        # It has answered, and the others follow.
        assert reconcile_due() == len(tenants) - 1
    assert {status_of(tenant) for tenant in tenants} == {"ready"}


def test_use_of_a_cluster_with_two_names_is_read_once(cell: Cell, files: TlsFiles) -> None:
    played = PlayedBroker()
    with serving(files, played) as endpoints:
        at(cell, endpoints)
        at(make_cell("another-name"), endpoints)
        look_at_cells()
        read_cells()
    assert played.usage_reads == 1


def test_use_is_read_by_one_at_a_time_of_cells_that_answer(cell: Cell, files: TlsFiles) -> None:
    played = PlayedBroker()
    with serving(files, played) as endpoints:
        asked = at(cell, endpoints)
        read_cells()
        # It has not said yet which cluster it is.
        assert played.usage_reads == 0
        look_at_cells()
        read_cells()
        assert played.usage_reads == 1
        # It was read just now, or somebody is at it.
        read_cells()
        assert played.usage_reads == 1
        progress = CellProgress.objects.filter(cell=asked)
        away_until = timezone.now() + timedelta(minutes=1)
        progress.update(usage_due_at=None, read_retry_at=away_until)
        read_cells()
        assert played.usage_reads == 1
        progress.update(read_retry_at=None)
        read_cells()
        assert played.usage_reads == 2


@pytest.mark.django_db(transaction=True)
def test_a_cell_that_hangs_leaves_threads_to_the_others(files: TlsFiles, settings: Any) -> None:
    trusted(settings, files)
    make_cell("one")
    make_cell("two")
    hung, other = Cell.objects.order_by("id")
    hangs = PlayedBroker(hangs=True)
    errors: list[BaseException] = []
    is_over = threading.Event()

    def work() -> None:
        try:
            while not is_over.wait(0.02):
                reconcile_due()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    with serving(files, hangs, PlayedBroker()) as (hangs_at, answers_at):
        at(hung, [hangs_at])
        at(other, [answers_at])
        for number in range(2 * THREADS):
            placed(hung, f"waits-{number}")
        acme = placed(other, "acme")
        for thread in threads:
            thread.start()
        try:
            deadline_s = time.monotonic() + TOLD_SECONDS_MAX
            while status_of(acme) != "ready":
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
        finally:
            is_over.set()
            hangs.released.set()
            for thread in threads:
                thread.join()
    assert errors == []


def test_what_is_taken_over_is_not_older_than_what_the_cell_has_said(
    cell: Cell, files: TlsFiles
) -> None:
    class Behind(PlayedBroker):
        """What it takes is in a version that it does not show yet."""

        shown_version = 850

        def List(self, request: Any, context: Any) -> Any:  # noqa: N802
            return messages.ListResponse(items=self.items, version=self.shown_version)

    acme = make_tenant("acme")
    topic = do_create_topic(acme.actor, acme.id, "orders", TopicSpec(1))
    spec = messages.Topic(partitions=1, configs={"retention.ms": "5000"})
    resource = messages.Resource(
        resource_id=topic.id,
        generation=5,
        owner=messages.API,
        tenant=acme.organization.slug,
        name="orders",
        topic=spec,
    )
    item = messages.Item(
        kind=messages.KIND_TOPIC, resource=resource, topic_id=uuid4().bytes, partitions=1
    )
    played = Behind(version=900, items=[item], generations={topic.id: 10})
    with serving(files, played) as endpoints:
        asked = at(cell, endpoints)
        # A database that was restored: the cell is at generation 10, and this one at 7.
        rows = Topic.objects.of(acme.id)
        rows.update(generation=7, observed_generation=6)
        assert reconcile_due() == 0
        assert rows.get().generation == 7
        assert rows.get().status != "ready"
        assert CellProgress.objects.get(cell=asked).failures == 1
        played.shown_version = 900
        item.resource.generation = 10
        CellProgress.objects.filter(cell=asked).update(retry_at=timezone.now())
        OutboxEntry.objects.of(acme.id).update(not_before=timezone.now())
        assert reconcile_due() == 1
    taken = rows.get()
    assert (taken.generation, taken.observed_generation, taken.status) == (10, 10, "ready")
    assert taken.configs == {"retention.ms": "5000"}


def test_a_round_ends_in_time_and_what_is_left_is_told_by_the_next(
    cell: Cell, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "ROUND_S", 0.0)
    monkeypatch.setattr(sending, "RESOURCES_MAX", 2)
    acme = make_tenant("acme")
    for number in range(5):
        do_create_topic(acme.actor, acme.id, f"t{number}", TopicSpec(1))
    played = PlayedBroker()
    open_entries = OutboxEntry.objects.of(acme.id).filter(done_at=None)
    with serving(files, played) as endpoints:
        at(cell, endpoints)
        count = open_entries.count()
        while count:
            assert reconcile_due() == 1
            # One call, and its resources are recorded; no other one is taken for done.
            assert open_entries.count() == max(0, count - 2)
            count = open_entries.count()
        assert reconcile_due() == 0
        topics = Topic.objects.of(acme.id)
        assert set(topics.values_list("status", flat=True)) == {"ready"}
        assert len({each.resource_id for each in played.applied}) == len(played.applied)
        for topic in topics.all():
            do_delete_topic(acme.actor, acme.id, topic.id, purge=True)
        for left in (4, 3, 2, 1, 0):
            assert reconcile_due() == 1
            assert topics.count() == open_entries.count() == left
        assert sorted(played.purged) == [f"t{number}" for number in range(5)]


def had_back(tenant: Tenant, *names: str) -> None:
    """Topics that the cell has kept, and that are to come back, the last one first."""
    ids = [Topic.objects.of(tenant.id).get(name=name).id for name in names]
    for topic_id in ids:
        Topic.objects.of(tenant.id).filter(id=topic_id).update(kafka_topic_id=uuid4())
        do_delete_topic(tenant.actor, tenant.id, topic_id)
    reconcile_due()
    for topic_id in reversed(ids):
        do_undelete_topic(tenant.actor, tenant.id, topic_id)


def test_what_the_cell_has_kept_is_not_given_up_while_it_cannot_come_back(
    cell: Cell, files: TlsFiles
) -> None:
    acme = make_tenant("acme")
    do_create_topic(acme.actor, acme.id, "orders", TopicSpec(1))
    played = PlayedBroker()
    topics = Topic.objects.of(acme.id)
    with serving(files, played) as endpoints:
        at(cell, endpoints)
        reconcile_due()
        had_back(acme, "orders")
        topic_id = topics.get().kafka_topic_id
        assert topic_id is not None
        played.why_not = "its source is deleted"
        played.kept = [operations_messages.DeletedTopic(name="orders", topic_id=topic_id.bytes)]
        assert reconcile_due() == 1
        refused = topics.get()
        assert (refused.status, refused.status_reason) == ("failed", "its source is deleted")
        entries = OutboxEntry.objects.of(acme.id).filter(resource_id=refused.id, done_at=None)
        assert entries.exists()
        played.why_not = ""
        entries.update(not_before=timezone.now())
        assert reconcile_due() == 1
        assert topics.get().status == "ready"
        # What it has not kept is no more.
        had_back(acme, "orders")
        played.why_not, played.kept = "there is no such topic", []
        assert reconcile_due() == 1
        over = topics.get()
        assert (over.status, over.status_reason) == ("failed", sending.MESSAGES_GONE)


def test_a_source_comes_back_before_what_reads_it(cell: Cell, files: TlsFiles) -> None:
    acme = make_tenant("acme")
    for name in ("reader", "source"):
        do_create_topic(acme.actor, acme.id, name, TopicSpec(1))
    # Its row is the older one, as that of a subscription may be whose source was adopted later.
    configs = {"tidewheel.source": "source", "tidewheel.filter": "a"}
    Topic.objects.of(acme.id).filter(name="reader").update(configs=configs)
    played = PlayedBroker()
    with serving(files, played) as endpoints:
        at(cell, endpoints)
        reconcile_due()
        had_back(acme, "reader", "source")
        assert reconcile_due() == 1
    assert played.undeleted == ["source", "reader"]
    assert set(Topic.objects.of(acme.id).values_list("status", flat=True)) == {"ready"}


def test_a_list_that_is_refused_is_no_tenant_that_is_gone(cell: Cell, files: TlsFiles) -> None:
    words = ["page_size: is 0 to 1000"]

    class Refuses(PlayedBroker):
        def List(self, request: Any, context: Any) -> Any:  # noqa: N802
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, words[0])

    with serving(files, Refuses()) as endpoints, cell_admin(at(cell, endpoints)) as admin:
        with pytest.raises(CellRefused, match="page_size"):
            list(items_of(admin, "acme"))
        words[0] = "tenant: there is no tenant 'acme'"
        assert list(items_of(admin, "acme")) == []
