"""Which brokers are alive, as one broker sees it, judged by its own clock.

Each broker renews its session in the store; the store counts the renewals. Every broker looks at
the counters with each of its own heartbeats and notes when one has moved; the controller acts on
that. Clocks of brokers and of the store are never compared.

    time   heartbeat says     broker 3 is
      0    3: renewals 17     UNKNOWN  (first look: it may have stood there for hours)
    500    3: renewals 18     ALIVE    seen to move
   1000    3: renewals 18     ALIVE
    ...
   2500    3: renewals 18     DEAD     no movement for one session timeout

A counter can stand still for two reasons: the broker is dead, or the store was away. So time
counts only while the observer itself reached the store: when two of its looks lie further apart
than half a session timeout, all brokers are UNKNOWN again and their time starts anew; likewise when
a heartbeat has failed of a broker that is not the controller, or the controller's lease has run out
by its own clock (controller.py). After an outage of the store nobody is declared dead who is not.

Invariants
- DEAD means that for one whole session timeout the observer looked at least once every half of
  it and saw no renewal by that incarnation.
- Of the incarnation that is registered only: the sessions of another one renew nothing.

Deliberately absent: what follows from it (controller.py), and the store's own expiry of leases,
by which every lease has run out after an outage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from data_plane.cell.metadata import BrokerImage
from data_plane.cell.metadata_store import BrokerSession

# The looks that prove somebody dead are at most this part of a session timeout apart.
LOOKS_PER_SESSION_TIMEOUT_MIN = 2

# A broker's process: node id and incarnation id.
Incarnation = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of the brokers' processes at one moment. Who is in neither is UNKNOWN."""

    alive: frozenset[Incarnation] = frozenset()
    dead: frozenset[Incarnation] = frozenset()

    def is_alive(self, broker: BrokerImage) -> bool:
        return (broker.node_id, broker.incarnation_id) in self.alive

    def is_dead(self, broker: BrokerImage) -> bool:
        return (broker.node_id, broker.incarnation_id) in self.dead


NOTHING_OBSERVED = Observed()


@dataclass(slots=True)
class _Renewals:
    count: int | None
    # When the counter was first seen where it stands.
    since_ms: int
    is_seen_moving: bool = False


class LivenessTracker:
    """Turns heartbeats into `Observed`. One per broker."""

    def __init__(self) -> None:
        self._renewals: dict[Incarnation, _Renewals] = {}
        self._last_look_ms: int | None = None

    def restart(self) -> None:
        """Know nothing any more: whoever looks next has not looked before."""
        self._renewals.clear()
        self._last_look_ms = None

    def look(
        self,
        brokers: Mapping[int, BrokerImage],
        sessions: Mapping[int, BrokerSession],
        session_timeout_ms: int,
        now_ms: int,
    ) -> Observed:
        """Take in one heartbeat's answer, which has just arrived."""
        if not self._is_continuous(session_timeout_ms, now_ms):
            self._renewals.clear()
        self._last_look_ms = now_ms
        known = {(broker.node_id, broker.incarnation_id) for broker in brokers.values()}
        for incarnation in self._renewals.keys() - known:
            del self._renewals[incarnation]
        for incarnation in known:
            session = sessions.get(incarnation[0])
            is_theirs = session is not None and session.incarnation_id == incarnation[1]
            count = session.renewals if session is not None and is_theirs else None
            entry = self._renewals.get(incarnation)
            if entry is None:
                self._renewals[incarnation] = _Renewals(count, now_ms)
            elif count is not None and count != entry.count:
                self._renewals[incarnation] = _Renewals(count, now_ms, is_seen_moving=True)
        return self._observed(session_timeout_ms, now_ms)

    def next_verdict_ms(self, session_timeout_ms: int) -> int | None:
        """From when on a look finds somebody dead, should nothing move until then: a look right
        then loses no time. None when nobody is left who might be."""
        last_look_ms = self._last_look_ms
        if last_look_ms is None:
            return None
        verdicts_ms = (entry.since_ms + session_timeout_ms for entry in self._renewals.values())
        return min((due_ms for due_ms in verdicts_ms if due_ms > last_look_ms), default=None)

    def is_current(self, session_timeout_ms: int, now_ms: int) -> bool:
        """Whether the last look is recent enough to act on."""
        return self._last_look_ms is not None and self._is_continuous(session_timeout_ms, now_ms)

    def _is_continuous(self, session_timeout_ms: int, now_ms: int) -> bool:
        if self._last_look_ms is None:
            return True
        gap_ms_max = session_timeout_ms // LOOKS_PER_SESSION_TIMEOUT_MIN
        return 0 <= now_ms - self._last_look_ms <= gap_ms_max

    def _observed(self, session_timeout_ms: int, now_ms: int) -> Observed:
        alive, dead = set(), set()
        for incarnation, entry in self._renewals.items():
            if now_ms - entry.since_ms >= session_timeout_ms:
                dead.add(incarnation)
            elif entry.is_seen_moving:
                alive.add(incarnation)
        return Observed(frozenset(alive), frozenset(dead))
