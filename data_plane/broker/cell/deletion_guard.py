"""Whether anything may be deleted now: is the image vouched for, and can the date be trusted?

Retention, compaction, the expiry of offsets and of producers, and tidying up after deleted topics
work by settings and dates. A broker that began with the image of its disk, or has been cut off from
the metadata store, has settings that may long have been changed; a clock may be wrong for a moment.
What is deleted by mistake is gone, and the log start that says so spreads to other replicas; what
is deleted late costs space. So it waits, and operators can see that and why: in the log, in
/metrics and in /healthz.

Invariants
- `Services.deletion_permit` is as of this tick for all components that come after this one.
- Each suspension and its end is logged once. One that comes with the start, as it always does, is
  no warning before it has lasted for START_MS.
- Appends are noted by a date that is vouched for, or by none (data_plane/log/vouched_date.py).

Deliberately absent: what vouches for an image (broker_lifecycle.py) and for a date (wall_clock.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from data_plane.log.permit import PERMITTED, DeletionPermit

if TYPE_CHECKING:
    from data_plane.broker.request.metrics import BrokerCollector
    from data_plane.broker.services import Services

# So long a store may take to answer a broker that has just started.
START_MS = 30_000


def _scope(permit: DeletionPermit) -> str:
    """What must not be deleted."""
    if permit.why_nothing:
        return "everything"
    return "by date" if permit.why_not_by_date else ""


def _no_doubt(now_ms: int) -> str:
    return ""


class DeletionGuard:
    """A component, before all that ask for the permit. `read_ahead_ms`: how far the wall
    clock is ahead of the steady one."""

    def __init__(self, services: Services, read_ahead_ms: Callable[[], int]) -> None:
        self._services = services
        self._read_ahead_ms = read_ahead_ms
        # Why the image may be out of date; "" when it is not. A broker that is alone keeps the
        # metadata itself.
        self.image_doubt: Callable[[int], str] = _no_doubt
        self.suspensions_count = 0
        self._has_begun = False
        # When to warn that the image has been in doubt since the start; None: it has not.
        self._warn_ms: int | None = None

    def start(self, now_ms: int) -> None:
        self.tick(now_ms)
        if self._services.deletion_permit.why_nothing:
            self._warn_ms = now_ms + START_MS

    def tick(self, now_ms: int) -> None:
        services = self._services
        clock = services.wall_clock
        clock.observe(now_ms, now_ms + self._read_ahead_ms())
        # Records without a timestamp are as old as their append: noted by a wrong date they would
        # go too early once it is right.
        services.logs.vouched_date.look(clock.vouched_offset_ms, now_ms)
        reason = self.image_doubt(now_ms)
        if reason:
            permit = DeletionPermit.refused(reason)
        else:
            doubt = clock.doubt
            permit = DeletionPermit(why_not_by_date=doubt) if doubt else PERMITTED
        before, services.deletion_permit = services.deletion_permit, permit
        # Reasons have changing numbers in them; what is suspended has not.
        if _scope(before) != _scope(permit):
            self._tell(before, permit)
        self._has_begun = True
        if self._warn_ms is not None:
            self._tell_if_it_lasts(permit, now_ms)

    def _tell_if_it_lasts(self, permit: DeletionPermit, now_ms: int) -> None:
        assert self._warn_ms is not None
        if not permit.why_nothing:
            self._warn_ms = None
        elif now_ms >= self._warn_ms:
            self._warn_ms = None
            self._services.log.warning(
                "deletion_suspended", scope=_scope(permit), reason=permit.why_nothing
            )

    def _tell(self, before: DeletionPermit, permit: DeletionPermit) -> None:
        log = self._services.log
        if permit.why_not_by_date:
            self.suspensions_count += not before.why_not_by_date
            # Every start begins so, or goes on so, and it says nothing of what is wrong.
            is_start = not self._has_begun or self._services.wall_clock.is_settling_at_start
            tell = log.info if is_start else log.warning
            tell("deletion_suspended", scope=_scope(permit), reason=permit.why_not_by_date)
        else:
            log.info("deletion_resumed", was=before.why_not_by_date)

    def add_metrics(self, collector: BrokerCollector) -> None:
        """Series of their own for what is suspended, and for the clock."""
        services = self._services

        def ahead_ms() -> float:
            measured = services.wall_clock.store_offset
            return float("nan") if measured is None else measured.ahead_ms

        collector.add_gauge(
            "tidewheel_deletion_suspended",
            "1: nothing is deleted, because the image may be out of date.",
            lambda: bool(services.deletion_permit.why_nothing),
        )
        collector.add_gauge(
            "tidewheel_deletion_by_date_suspended",
            "1: nothing is deleted or expires because of the date, which is in doubt.",
            lambda: bool(services.deletion_permit.why_not_by_date),
        )
        collector.add_gauge(
            "tidewheel_clock_ahead_of_store_ms",
            "How far this broker's clock is ahead of the metadata store's; NaN: not compared.",
            ahead_ms,
        )
        collector.add_total(
            "tidewheel_deletion_suspensions",
            "Times that deletion was suspended.",
            lambda: self.suspensions_count,
        )

    def next_deadline_ms(self) -> int | None:
        """Every broker has a tick each second anyway."""
        return None

    def stop(self, now_ms: int) -> None:
        """Nothing to let go of."""
