"""Cells whose brokers do not know the same, or do not answer: whose word is taken, and who is left
alone meanwhile. The brokers are gRPC servers that answer as they are told."""

from __future__ import annotations

import time
from typing import Any

import pytest

from control_plane.cells.connections import CellUnavailable
from control_plane.cells.models import Cell, CellProgress
from control_plane.messaging.models import Topic
from control_plane.reconciliation import following
from control_plane.reconciliation.following import FIRST_RESPONSE_S, follow
from data_plane.contract import cell_admin_pb2 as messages
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

SECONDS_MAX = 20.0


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
        cell=cell, defaults={"feed_version": taken_in, "feed_store_id": STORE}
    )
    return Cell.objects.get(id=cell.id)


def names_of(tenant: Tenant) -> set[str]:
    return set(Topic.objects.of(tenant.id).values_list("name", flat=True))


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
