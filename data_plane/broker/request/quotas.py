"""The quota port: who has used too much, and for how long it has to wait.

A manager is asked once for each request that is answered: it counts what the request has cost. What
becomes of its word is throttling.py's business.

Deliberately absent: rates and windows, which are those of an implementation. The one that there is
lets everybody go on.
"""

from __future__ import annotations

from typing import Protocol

from data_plane.broker.request.api import RequestContext
from data_plane.groups.totals import TenantLimit

FETCH_BYTES_UNLIMITED = (1 << 31) - 1


class QuotaManager(Protocol):
    """The port. Each method counts something and returns for how long its client has to wait, in
    milliseconds; 0 when it may go on."""

    # Whether it may say anything but 0; one that may not is not asked.
    is_active: bool

    def record_request(self, context: RequestContext) -> int:
        """A request is answered."""

    def record_produce(self, context: RequestContext, request_bytes: int) -> int:
        """A Produce of so many bytes is answered."""

    def record_fetch(self, context: RequestContext, answer_bytes: int, wait_ms: int) -> int:
        """An answer with so many bytes of records is about to leave. When the client has to wait,
        for this or since it has to for `wait_ms` anyway, the answer leaves without them, and they
        do not count."""

    def fetch_bytes_max(self, context: RequestContext) -> int:
        """How many bytes of records an answer may have at most: one that has more would have to
        wait again and again. A single batch may be larger all the same."""

    def record_mutations(self, context: RequestContext, partitions: int, is_strict: bool) -> int:
        """So many partitions are to be made or deleted. Where it `is_strict` and the client has to
        wait, they do not count, and must be refused. The answer says how long in any case."""

    def record_handler_time(self, context: RequestContext, duration_ns: int) -> None:
        """The loop was busy for so long with a request, or a thread was; what that means the client
        is told with its next answer."""

    def clock_ns(self) -> int:
        """For durations."""

    def thread_clock_ns(self) -> int:
        """For what the thread that asks takes of a processor."""

    def limit_of_groups(self, tenant_id: str, quota: str) -> TenantLimit | None:
        """How much the groups of a tenant may come to of GROUP_QUOTAS, and what other brokers have
        of it; None: nothing limits it."""

    def why_no_connection(self, tenant: str) -> str:
        """Why the tenant may not have a further connection now; "" when it may."""

    def owed_ms(self, tenant: str) -> int:
        """The tenant has a new connection: for how long it waits, for what others of it have taken,
        and since so many come."""

    def note_throttled(self, throttle_ms: int) -> None:
        """For so long a client waits, after all that was asked about it."""


class NoQuotas:
    """Nobody ever waits."""

    is_active = False

    def record_request(self, context: RequestContext) -> int:
        return 0

    def record_produce(self, context: RequestContext, request_bytes: int) -> int:
        return 0

    def record_fetch(self, context: RequestContext, answer_bytes: int, wait_ms: int) -> int:
        return 0

    def fetch_bytes_max(self, context: RequestContext) -> int:
        return FETCH_BYTES_UNLIMITED

    def record_mutations(self, context: RequestContext, partitions: int, is_strict: bool) -> int:
        return 0

    def record_handler_time(self, context: RequestContext, duration_ns: int) -> None:
        """Nobody asks."""

    def clock_ns(self) -> int:
        return 0

    def thread_clock_ns(self) -> int:
        return 0

    def limit_of_groups(self, tenant_id: str, quota: str) -> TenantLimit | None:
        return None

    def why_no_connection(self, tenant: str) -> str:
        return ""

    def owed_ms(self, tenant: str) -> int:
        return 0

    def note_throttled(self, throttle_ms: int) -> None:
        """Nobody is."""
