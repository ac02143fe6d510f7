"""The cell's feed of changes, taken in from where it was left.

    version stored      Watch after it      events into rows      version stored      …

One follower of a cell at a time has its lease, so that rows are not written twice. One that is so
slow that its lease is over may write a row that another one has let go of: each event is what there
was then. So everything is listed each hour, too, whatever the feed tells. Where the feed does not
go back so far, or tells of another store, or a row went that hid a client's topic, all topics are
listed, and the feed goes on from there. What clients' topics are gone is told by a list that is not
older than what was taken in, unless all brokers of the cell say that it has no such version any
more: it was restored.

A broker says something at once, or that it does not go back so far after a while in which it waits
for the version. One that says nothing in FIRST_RESPONSE_S does not answer, and is not asked first
by the next follower.

Bounds: FOLLOW_S for a look, from the first response on; a follower that dies leaves its lease for
LEASE_S more than it may take.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Final

import grpc
from django.db.models import Q, QuerySet
from django.utils import timezone

from control_plane.cells.connections import (
    CellRefused,
    CellUnavailable,
    cell_admin,
    cell_operations,
    ending_after,
    endpoints_of,
    set_aside,
)
from control_plane.cells.models import Cell, CellProgress
from control_plane.reconciliation.adoption import adopt_all, adopt_events
from control_plane.reconciliation.back_offs import READING, ask, cells_that_answer
from control_plane.reconciliation.listing import pages_of
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract import cell_operations_pb2 as operations_messages

log = logging.getLogger(__name__)

FOLLOW_S: Final = 0.7
# More than a broker waits for a version that another one has told of.
FIRST_RESPONSE_S: Final = 7.0
LEASE_S: Final = 3.0
# Listing takes as long as there are topics.
LIST_LEASE_S: Final = 120.0
LIST_EVERY: Final = timedelta(hours=1)


def follow_cells(follow_s: float = FOLLOW_S) -> None:
    """Take in what all cells that answer have to tell."""
    for cell in cells_that_answer(READING):
        ask(cell, partial(_follow_if_nobody_does, cell, follow_s))


def _follow_if_nobody_does(cell: Cell, follow_s: float) -> bool | None:
    """None: somebody else does, and nobody was asked here."""
    return follow(cell, follow_s) or None


def follow(cell: Cell, follow_s: float = FOLLOW_S) -> bool:
    """Take in what the feed has, and what comes within so long; False when somebody else does.
    Raises CellError."""
    progress = take_lease(cell, FIRST_RESPONSE_S + follow_s + LEASE_S)
    if progress is None:
        return False
    try:
        if _is_list_due(progress) or not _read(cell, progress, follow_s):
            take_in_all(cell, progress)
    finally:
        give_back_lease(progress)
    return True


def _is_list_due(progress: CellProgress) -> bool:
    if progress.feed_version is None or progress.lists_done != progress.lists_due:
        return True
    listed_at = progress.listed_at
    return listed_at is None or listed_at <= timezone.now() - LIST_EVERY


def _read(cell: Cell, progress: CellProgress, follow_s: float) -> bool:
    """Whether the feed goes back as far as it was taken in."""
    request = operations_messages.WatchRequest(
        after_version=progress.feed_version, store_id=progress.feed_store_id
    )
    with cell_operations(cell) as operations:
        watch = operations.Watch(request, timeout=FIRST_RESPONSE_S + follow_s)
        try:
            _take_in(cell, progress, next(watch))
            with ending_after(watch, follow_s):
                for response in watch:
                    _take_in(cell, progress, response)
        except CellRefused as refusal:
            if refusal.code is not grpc.StatusCode.OUT_OF_RANGE:
                raise
            return False
        finally:
            watch.cancel()
    return True


def _take_in(
    cell: Cell, progress: CellProgress, response: operations_messages.WatchResponse
) -> None:
    adopt_events(cell, response.events)
    if response.events:
        renew_lease(progress, FIRST_RESPONSE_S + LEASE_S)
    if response.version != progress.feed_version:
        _store(cell, response.version, response.store_id)


def take_in_all(cell: Cell, lease: CellProgress) -> None:
    """List all topics, and go on in the feed from where it was before that: what changes while the
    pages are read is told again, and what is to be listed then is listed again."""
    renew_lease(lease, LIST_LEASE_S)
    with cell_admin(cell) as admin, cell_operations(cell) as operations:
        watch = operations.Watch(operations_messages.WatchRequest(), timeout=FIRST_RESPONSE_S)
        first = next(watch)
        watch.cancel()
        progress = CellProgress.objects.get(cell=cell)
        if progress.feed_store_id == first.store_id:
            _refuse_one_that_is_behind(cell, progress.feed_version or 0, first.version)
        items: list[messages.Item] = []
        for page in pages_of(admin, kind=messages.KIND_TOPIC, at_least=first.version):
            items += page.items
    adopt_all(cell, items)
    _store(cell, first.version, first.store_id)
    CellProgress.objects.filter(cell=cell).update(
        lists_done=progress.lists_due, listed_at=timezone.now()
    )


def _refuse_one_that_is_behind(cell: Cell, taken_in: int, version: int) -> None:
    """Raises CellUnavailable where another broker has what was taken in, or may have it."""
    if version >= taken_in:
        return
    versions = {}
    for endpoint in endpoints_of(cell):
        with cell_admin(cell, endpoint) as admin:
            described = admin.DescribeCell(messages.DescribeCellRequest(), timeout=FIRST_RESPONSE_S)
        versions[endpoint] = described.version
    if max(versions.values()) < taken_in:
        log.warning("cell %s: was restored to version %d from %d", cell.name, version, taken_in)
        return
    for endpoint, one in versions.items():
        if one < taken_in:
            set_aside(endpoint)
    words = f"a broker of the cell is behind: it has version {version}, and another one {taken_in}"
    raise CellUnavailable(grpc.StatusCode.UNAVAILABLE, words)


def take_lease(cell: Cell, duration_s: float) -> CellProgress | None:
    """Be the one who takes in what the cell has, for at most so long."""
    now = timezone.now()
    free = CellProgress.objects.filter(
        Q(followed_until=None) | Q(followed_until__lte=now), cell=cell
    )
    until = now + timedelta(seconds=duration_s)
    if not free.update(followed_until=until):
        return None
    progress = CellProgress.objects.get(cell=cell)
    # What names the lease, should somebody have taken it over already.
    progress.followed_until = until
    return progress


def renew_lease(lease: CellProgress, duration_s: float) -> None:
    """Have it for so long from now on, unless somebody else has it by now."""
    until = timezone.now() + timedelta(seconds=duration_s)
    if _leased(lease).update(followed_until=until):
        lease.followed_until = until


def give_back_lease(lease: CellProgress) -> None:
    _leased(lease).update(followed_until=None)


def _leased(lease: CellProgress) -> QuerySet[CellProgress]:
    return CellProgress.objects.filter(cell=lease.cell_id, followed_until=lease.followed_until)


def _store(cell: Cell, version: int, store_id: str) -> None:
    CellProgress.objects.filter(cell=cell).update(feed_version=version, feed_store_id=store_id)
    Cell.objects.filter(id=cell.id, metadata_version__lt=version).update(metadata_version=version)
