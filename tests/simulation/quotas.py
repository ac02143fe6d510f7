"""A tenant with a quota over the whole cell: its rate over all brokers is its cap, and all goes on.

    set     a cap of what the tenant `default` produces per second, of which its clients want more
    change  another cap, lower or higher, or none
    lift    at the end, so that everything that was produced can be read

Clients of the simulation pay no heed to throttle_time_ms: what holds them back is the broker, which
mutes their connections. `Rates` counts what arrives at all brokers beside the brokers' own numbers,
and no cap is passed by more than a burst, the requests that are under way, and a tenth; where
brokers are cut off, frozen or killed, by no more than if each of them had all of it. In cells where
nothing else goes wrong nobody waits who has had less than REACHED of it: clients that move to
another broker have their rate there after SETTLE_MS.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenant_quotas import NO_TENANT_QUOTAS, PutTenantQuotas, TenantQuotas
from tests.simulation.administrator import Administrator
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

TENANT = "default"
# Bytes per second.
CAPS = (3_000, 5_000)
# How much a cell without faults may be above its cap.
SLACK = 1.1
# From a new cap on, for the image to be everywhere and shares to follow.
SETTLE_MS = 2_000
# What may come at once: a second's worth, and what is under way on all connections.
UNDER_WAY_BYTES = 9_000
# Over how long it is looked whether a cap is reached.
REACHED_MS = 3_000
REACHED = 0.9 * (REACHED_MS - SETTLE_MS) / REACHED_MS
RETRY_MS = 200


class Rates:
    """What clients produce, all brokers together, against the cap in force."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._cap: int | None = None
        self._since_us = 0
        self._above = 0.0
        self._at_us = 0
        # (when, how much), of the last REACHED_MS.
        self._recent: deque[tuple[int, int]] = deque()
        self._recent_bytes = 0

    @property
    def slack(self) -> float:
        """Where brokers do not hear each other for a while, each may have all of it."""
        return SLACK if self._cell.is_peaceful else SLACK * len(self._cell.nodes)

    def set_cap(self, cap: int | None) -> None:
        """From now on; None: nothing is looked at."""
        self._cap = cap
        self._since_us = self._at_us = self._world.now_us + SETTLE_MS * US_PER_MS
        self._above = 0.0
        self._recent.clear()
        self._recent_bytes = 0

    def produced(self, tenant: str, size: int) -> None:
        """A Produce of a client is about to be handled."""
        cap, now_us = self._cap, self._world.now_us
        if cap is None or now_us < self._since_us or tenant != TENANT:
            return
        seconds = (now_us - self._at_us) / (1000 * US_PER_MS)
        self._at_us = now_us
        self._above = max(0.0, self._above - seconds * cap * self.slack) + size
        self._world.count("produces under a quota")
        if self._above > cap * self.slack + UNDER_WAY_BYTES:
            self._world.violate(
                f"{TENANT} produces more than {cap} bytes per second over all brokers: "
                f"{self._above:.0f} bytes above that"
            )
        self._recent.append((now_us, size))
        self._recent_bytes += size
        self._forget()

    def held_back(self, tenant: str, duration_ms: int) -> None:
        """A client has to wait. In a cell without faults nobody does who would be well below the
        cap."""
        cap = self._cap
        if cap is None or tenant != TENANT:
            return
        self._world.count("waits for a quota")
        if self._world.now_us - self._since_us < REACHED_MS * US_PER_MS:
            return
        self._world.count("waits for a quota that are looked at")
        self._forget()
        if self._cell.is_peaceful and self._recent_bytes < REACHED * cap * REACHED_MS / 1000:
            self._world.violate(
                f"{TENANT} has to wait {duration_ms} ms, and has had {self._recent_bytes} bytes in "
                f"{REACHED_MS} ms, of {cap} per second"
            )

    def _forget(self) -> None:
        recent, now_us = self._recent, self._world.now_us
        while recent and now_us - recent[0][0] > REACHED_MS * US_PER_MS:
            self._recent_bytes -= recent.popleft()[1]


class QuotaSetter(Administrator):
    """See the module."""

    interval_ms = 12_000

    def __init__(self, cell: Cell, name: str) -> None:
        super().__init__(cell, name)
        self._is_lifted = False

    @property
    def is_settled(self) -> bool:
        return not self._is_stopped or self._is_lifted

    def start(self) -> None:
        self._cap(self.random.choice(CAPS))
        super().start()

    def stop(self) -> None:
        super().stop()
        self._lift()

    def change(self) -> None:
        self._cap(self.random.choice((*CAPS, None)))

    def _cap(self, cap: int | None) -> None:
        self.world.note(self.name, f"caps {TENANT} at {cap}")
        self._set(cap)

    def _lift(self) -> None:
        image = self.cell.store.image
        tenant = image.tenants.get(TENANT)
        self._is_lifted = tenant is None or tenant.quotas == NO_TENANT_QUOTAS
        if not self._is_lifted:
            self._set(None)
            self.world.at(RETRY_MS * US_PER_MS, self._lift)

    def _set(self, cap: int | None) -> None:
        """Through one of the brokers, as CellAdmin does."""
        self.cell.rates.set_cap(None)
        node = self.cell.nodes[self.any_node()]
        if not node.is_up or node.services is None:
            return
        quotas = TenantQuotas(produce_bytes_per_s=cap)

        def decide(image: MetadataImage) -> list[Change]:
            tenant = image.tenants.get(TENANT)
            known = NO_TENANT_QUOTAS if tenant is None else tenant.quotas
            return [] if known == quotas else [PutTenantQuotas(TENANT, quotas)]

        def done(error: BaseException | None) -> None:
            if error is None:
                self.world.count("quotas set")
                self.cell.rates.set_cap(None if self._is_stopped else cap)

        metadata = node.services.metadata
        node.run(lambda: metadata.write(decide, done))
