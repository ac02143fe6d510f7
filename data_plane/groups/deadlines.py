"""Timers in slots of a heap, where moving a timer into the future costs one attribute.

Nearly every heartbeat of every group postpones a session timer that never fires. A postponed timer
therefore stays in the slot where it is; when that slot's time comes, it is put into the slot of its
new time. Bringing a timer forward, or cancelling it, takes it out of its slot at once.

    schedule(t, 10)   slots: 10 {t}          t.due_ms = 10
    schedule(t, 40)   slots: 10 {t}          t.due_ms = 40      nothing moves
    expire(10)        slots: 40 {t}          nothing fires
    expire(40)        slots: -               t fires

Invariants
- Between calls, a timer with `due_ms` set is in one slot, at or before `due_ms`; no other one is.
- A timer that is not scheduled refers to nothing. An action mostly refers to the timer's owner, so
  an owner that cancels its timers when it goes is free at once, without the cycle collector.
- `next_deadline_ms()` is never later than the earliest due timer; it may be earlier (a spurious
  wake-up that moves some timers).
- One call of `expire` does at most EXPIRE_WORK_MAX; what is left is due in the next one. So the
  sessions of many members that end together do not hold the loop.
- There are at most as many slots as the farthest time-out has steps of FAR_STEP_MS, and some: those
  who come and go with long time-outs leave nothing else behind.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, TypeAlias

TimerAction: TypeAlias = Callable[[int], None]

# What one call of `expire` does: a timer that fires may end a rebalance and write log lines.
EXPIRE_WORK_MAX: Final = 2_000
FIRE_WORK: Final = 20

# Timers that are due later than NEAR_MS from now share slots, FAR_STEP_MS apart, until then.
NEAR_MS: Final = 1_000
FAR_STEP_MS: Final = 64


class Timer:
    """One thing that may have to happen later; see `Deadlines.schedule`."""

    __slots__ = ("_slot", "action", "due_ms", "slot_ms")

    def __init__(self) -> None:
        self.action: TimerAction | None = None
        self.due_ms: int | None = None
        self.slot_ms: int | None = None
        self._slot: dict[Timer, None] | None = None

    def cancel(self) -> None:
        """Never fires until it is scheduled again. Cancelling an idle timer does nothing."""
        self.action = None
        self.due_ms = None
        self.leave_slot()

    def enter_slot(self, slot: dict[Timer, None], slot_ms: int) -> None:
        slot[self] = None
        self._slot = slot
        self.slot_ms = slot_ms

    def leave_slot(self) -> None:
        if self._slot is not None:
            del self._slot[self]
            self._slot = None
            self.slot_ms = None


class Deadlines:
    """All timers of one coordinator."""

    __slots__ = ("_expired_ms", "_slots", "_times")

    def __init__(self) -> None:
        self._slots: dict[int, dict[Timer, None]] = {}
        self._times: list[int] = []
        # The time of the latest `expire`: it tells near from far.
        self._expired_ms = 0

    def schedule(self, timer: Timer, due_ms: int, action: TimerAction) -> None:
        """Let `timer` call `action(now_ms)` at `due_ms`, instead of what it was to do before."""
        timer.action = action
        timer.due_ms = due_ms
        slot_ms = timer.slot_ms
        if slot_ms is None or due_ms < slot_ms:
            timer.leave_slot()
            self._put(timer, due_ms)

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next, or None while nothing is scheduled."""
        times = self._times
        while times:
            if self._slots[times[0]]:
                return times[0]
            del self._slots[heappop(times)]
        return None

    def expire(self, now_ms: int) -> None:
        """Run the actions of timers due at `now_ms`, in the order of their due times.

        What an action schedules runs in a later call, even when it is due already: a timer that
        schedules itself for now cannot hold the loop. What an action cancels does not run.
        """
        self._expired_ms = now_ms
        due: list[Timer] = []
        work = 0
        times = self._times
        while times and times[0] <= now_ms and work < EXPIRE_WORK_MAX:
            slot = self._slots[times[0]]
            if not slot:
                del self._slots[heappop(times)]
                continue
            timer = next(iter(slot))
            timer.leave_slot()
            assert timer.due_ms is not None
            if timer.due_ms > now_ms:
                self._put(timer, timer.due_ms)
                work += 1
            else:
                due.append(timer)
                work += FIRE_WORK
        # Postponed timers come up at their old times.
        due.sort(key=_due_ms)
        for timer in due:
            # An earlier action may have cancelled this timer or scheduled it anew.
            action = timer.action
            if action is not None and timer.slot_ms is None:
                timer.cancel()
                action(now_ms)

    def __len__(self) -> int:
        """Timers and slots: what the memory bound is about."""
        return len(self._times) + sum(map(len, self._slots.values()))

    def _put(self, timer: Timer, due_ms: int) -> None:
        is_far = due_ms - self._expired_ms > NEAR_MS
        slot_ms = due_ms - due_ms % FAR_STEP_MS if is_far else due_ms
        slot = self._slots.get(slot_ms)
        if slot is None:
            slot = self._slots[slot_ms] = {}
            heappush(self._times, slot_ms)
        timer.enter_slot(slot, slot_ms)


def _due_ms(timer: Timer) -> int:
    assert timer.due_ms is not None
    return timer.due_ms
