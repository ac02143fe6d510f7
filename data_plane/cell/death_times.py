"""For how long dead brokers have been dead, over all controllers that have watched them.

Each controller measures with its own clock while it sees a broker dead, and notes the sum in the
image (`BrokerImage.dead_ms`), in whole steps; the next controller goes on from there.

    controller 1 sees 3 dead    0 … 10 s … 20 s … 27 s, and is gone      noted: 20 s
    controller 2 sees 3 dead                    1.5 s later, from 20 s on

So no two clocks are ever compared. What is lost is the last step, and the time in which nobody had
the lease or knew: a cell that was off for a night does not begin by replacing whom it has not seen
come back yet.

Invariants
- The sum grows by time that a controller watched, and by nothing else: nobody is replaced early.
- It is that of one process. Who is seen alive, or registers again, begins at nothing.
- It begins with a note only once the image has all that former controllers have committed: an older
  one may have a note of a death from which the broker has come back.

Deliberately absent: who is dead (liveness.py), writing the note (controller.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from data_plane.cell.liveness import Incarnation
from data_plane.cell.metadata import BrokerImage

# A delay is noted in so many steps, so that a change of controllers costs little and a death few
# commits; of a length between these.
NOTES_PER_DELAY = 60
STEP_MS_MIN = 1_000
STEP_MS_MAX = 60_000


class DeathTimes:
    """One per controller."""

    def __init__(self) -> None:
        # What was noted when this controller first saw it dead, and when that was.
        self._begun: dict[Incarnation, tuple[int, int]] = {}

    def restart(self) -> None:
        """Know only what is in the image."""
        self._begun.clear()

    def look(
        self,
        dead: AbstractSet[Incarnation],
        brokers: Mapping[int, BrokerImage],
        now_ms: int,
        *,
        has_all_notes: bool = True,
    ) -> None:
        """These are dead now, and no others. `has_all_notes`: whether `brokers` are as new as all
        that former controllers have committed."""
        for incarnation in self._begun.keys() - dead:
            del self._begun[incarnation]
        if not has_all_notes:
            return
        for incarnation in dead - self._begun.keys():
            broker = brokers.get(incarnation[0])
            is_registered = broker is not None and broker.incarnation_id == incarnation[1]
            noted_ms = broker.dead_ms if broker is not None and is_registered else 0
            self._begun[incarnation] = (noted_ms, now_ms)

    def lost(self, delay_ms: int, now_ms: int) -> frozenset[Incarnation]:
        """Who has been dead for `delay_ms`."""
        return frozenset(
            incarnation
            for incarnation, dead_ms in self._sums(now_ms).items()
            if dead_ms >= delay_ms
        )

    def notes(self, delay_ms: int, now_ms: int) -> dict[Incarnation, int]:
        """What is to be in the image, in ms: whole steps, and the delay itself once it is over.
        Nothing after that."""
        step_ms = max(STEP_MS_MIN, min(delay_ms // NOTES_PER_DELAY, STEP_MS_MAX))
        return {
            incarnation: delay_ms if dead_ms >= delay_ms else dead_ms // step_ms * step_ms
            for incarnation, dead_ms in self._sums(now_ms).items()
        }

    def _sums(self, now_ms: int) -> dict[Incarnation, int]:
        return {
            incarnation: noted_ms + now_ms - since_ms
            for incarnation, (noted_ms, since_ms) in self._begun.items()
        }
