"""Brokers tell each other twice a second what they give of the tenants' caps.

What is told travels on connections of its own between brokers, never through the metadata store:

    broker 1 ─► PushTelemetry {what it gives, by tenant and rate; what its tenants hold} ─► broker 2
             ◄─ heard; when all others have said so, broker 1's shares may grow

A broker without tenants' quotas tells nothing and has no timer.

Invariants
- One message at a time is under way to each broker; a round that is not confirmed by all is over
  when the next one begins.
- What a message costs follows from what it says, not from how many tenants there are.
- What is said before a restart is older than what is said after it.

Deliberately absent: what shares come to (shares.py), and what they limit (tenant_rates.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, Protocol

from data_plane.broker.quotas.held import NOTHING_HELD, Held
from data_plane.broker.quotas.shares import Demand, ShareTable
from data_plane.broker.quotas.tenant_rates import RateKey
from data_plane.broker.request.peers import Peers
from data_plane.broker.services import Services
from data_plane.wire.errors import MalformedFrame
from data_plane.wire.messages.push_telemetry_request import (
    PushTelemetryRequest,
    encode_push_telemetry_request,
)
from data_plane.wire.primitives import Writer
from data_plane.wire.registry import ApiKey

INTERVAL_MS: Final = 500
API_VERSION: Final = 0


class Sharer(Protocol):
    """Whose caps are shared: the quotas of this broker."""

    def share_caps(self) -> Mapping[RateKey, float]: ...
    def needs_shares(self) -> bool:
        """Whether there is anything to tell."""

    def end_period(self, duration_ms: int, now_ms: int) -> tuple[Mapping[RateKey, Demand], Held]:
        """What was given since the last period, and what tenants hold on this broker."""

    def set_shares(
        self,
        shares: Mapping[RateKey, float],
        changed: Collection[RateKey],
        brokers: int,
        now_ms: int,
    ) -> None:
        """This broker's shares from now on, and which of them are others than before."""

    def set_held(
        self, held_elsewhere: dict[int, Held], tenants: Collection[str] | None = None
    ) -> None:
        """What tenants hold on the other brokers, as these have said last, in that order; None:
        something may be new of each tenant."""


class ShareExchange:
    """A component. `peers` None: the broker is alone."""

    def __init__(
        self, services: Services, sharer: Sharer, peers: Peers | None, now_ms: Callable[[], int]
    ) -> None:
        self._services = services
        self._sharer = sharer
        self._peers = peers
        self._now_ms = now_ms
        self._table: ShareTable[RateKey] = ShareTable(services.node_id)
        self._held: dict[int, Held] = {}
        # Tenants of words that have gone with their brokers: they hold less.
        self._lessened: set[str] = set()
        self._sequence = 0
        self._begun_ms: int | None = None
        # Of this life of the broker.
        self._life = 0
        self._under_way: set[int] = set()
        self._confirmed: set[int] = set()

    def start(self, now_ms: int) -> None:
        self._life = now_ms
        self._follow(now_ms)

    def stop(self, now_ms: int) -> None:
        """Nothing is told any more."""
        self._begun_ms = None

    def next_deadline_ms(self) -> int | None:
        if not self._sharer.needs_shares():
            return None
        return self._now_ms() if self._begun_ms is None else self._begun_ms + INTERVAL_MS

    def tick(self, now_ms: int) -> None:
        if not self._sharer.needs_shares():
            self._begun_ms = None
            # By the time that there is a quota again the others may have other things.
            self._held.clear()
            self._lessened.clear()
            return
        begun_ms = self._begun_ms
        if begun_ms is None or now_ms - begun_ms >= INTERVAL_MS:
            duration_ms = INTERVAL_MS if begun_ms is None else now_ms - begun_ms
            self._begun_ms = now_ms
            self._begin_round(duration_ms, now_ms)

    def quotas_changed(self, now_ms: int) -> None:
        """The image has others."""
        if self._begun_ms is not None or self._sharer.needs_shares():
            self._follow(now_ms)
            if not self._others():
                self._table.confirmed(now_ms)
            self._lessened.clear()
            self._sharer.set_held(self._held)
            self._apply(now_ms)

    # A round

    def _begin_round(self, duration_ms: int, now_ms: int) -> None:
        demands, held = self._sharer.end_period(duration_ms, now_ms)
        self._sequence += 1
        self._confirmed = set()
        self._follow(now_ms)
        self._table.demand(demands, now_ms)
        others = self._others()
        if not others:
            self._table.confirmed(now_ms)
        elif self._peers is not None:
            body = self._encode(demands, held)
            for node_id in others:
                if node_id not in self._under_way:
                    self._under_way.add(node_id)
                    on_response = partial(self._answered, node_id, self._sequence)
                    key = int(ApiKey.PUSH_TELEMETRY)
                    self._peers.send(node_id, key, API_VERSION, [bytearray(body)], on_response)
        self._sharer.set_held(self._held, self._take_lessened())
        self._apply(now_ms)

    def _answered(self, node_id: int, sequence: int, body: memoryview | None, now_ms: int) -> None:
        self._under_way.discard(node_id)
        if body is None or sequence != self._sequence:
            return
        self._confirmed.add(node_id)
        if self._confirmed.issuperset(self._others()):
            self._table.confirmed(now_ms)
            self._apply(now_ms)

    def heard(self, message: bytes, now_ms: int) -> None:
        """Another broker's word. Raises MalformedFrame."""
        try:
            document: dict[str, Any] = json.loads(message)
            node_id = int(document["node"])
            sequence = int(document["life"]), int(document["sequence"])
            demands = {
                RateKey(str(tenant), str(rate)): Demand(float(per_s), bool(is_hungry))
                for tenant, rate, per_s, is_hungry in document["demands"]
            }
            counts = {
                str(tenant): {str(quota): int(count) for quota, count in of_tenant.items()}
                for tenant, of_tenant in document["held"].items()
            }
            # Of brokers that count none, and older ones.
            held = Held(counts, frozenset(map(int, document.get("partitions", ()))), now_ms)
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedFrame(f"a broker tells of its tenants: {error!r}") from error
        self._follow(now_ms)
        if self._table.heard(node_id, sequence, demands, now_ms):
            before = self._held.pop(node_id, NOTHING_HELD).counts
            # Behind those that were heard before.
            self._held[node_id] = held
            tenants = before.keys() | counts.keys()
            changed = [one for one in tenants if before.get(one) != counts.get(one)]
            self._sharer.set_held(self._held, [*changed, *self._take_lessened()])
        self._apply(now_ms)

    # What is known

    def _others(self) -> set[int]:
        brokers = self._services.image.brokers
        own = self._services.node_id
        return {
            node_id
            for node_id, broker in brokers.items()
            if node_id != own and not broker.is_fenced
        }

    def _follow(self, now_ms: int) -> None:
        others = self._others()
        for node_id in self._held.keys() - others:
            self._lessened.update(self._held.pop(node_id).counts)
        self._table.set_brokers(others, now_ms)
        self._table.set_caps(self._sharer.share_caps(), now_ms)

    def _take_lessened(self) -> Collection[str]:
        lessened, self._lessened = self._lessened, set()
        return lessened

    def _apply(self, now_ms: int) -> None:
        changed = self._table.take_changed()
        self._sharer.set_shares(self._table.shares, changed, len(self._others()) + 1, now_ms)

    def _encode(self, demands: Mapping[RateKey, Demand], held: Held) -> bytearray:
        message = {
            "node": self._services.node_id,
            "life": self._life,
            "sequence": self._sequence,
            "demands": [[*key, one.rate, one.is_hungry] for key, one in demands.items()],
            "held": held.counts,
            "partitions": sorted(held.partitions),
        }
        writer = Writer()
        metrics = json.dumps(message, separators=(",", ":")).encode()
        encode_push_telemetry_request(writer, PushTelemetryRequest(metrics=metrics), API_VERSION)
        return writer.buf
