"""Budgets: what all connections of a process share, and how much of it each namespace uses.

A budget has a maximum. Each namespace that uses some of it has a share, which counts what it uses.
A share has a maximum where one is set, for all namespaces or for one. Where a budget `leaves_room`
nobody may have more than is left unused then, so there is always something for another one:

    A alone                    takes a half
    A and B                    a third each, and a third for whoever comes
    nine of them               a tenth each

The rest is first come, first served. A cell with one tenant has no need of it.

    Budget(max=512 MiB, share_max=64 MiB)
      ├─ share of `default`     used
      └─ share of `acme`        used, share_max=16 MiB

Invariants
- What a budget has given is the sum of what its shares use.
- A share lasts as long as somebody holds it, who must while he uses something: there are no more of
  them than connections and fetch sessions, and never more than NAMESPACES_MAX.

Deliberately absent: what the numbers count, and what is done when there is no room.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

UNLIMITED = 1 << 62
NAMESPACES_MAX = 10_000

# Answers that clients have not read, of all consumers. The more of it is taken the less a fetch
# gets (cold_reads.py).
UNSENT_BYTES_TOTAL_MAX = 512 << 20


class TooManyNamespaces(Exception):
    """There is no share for another one."""


class Share:
    """What one namespace uses of a budget."""

    __slots__ = ("__weakref__", "_budget", "namespace", "share_max", "used")

    def __init__(self, budget: Budget, namespace: str) -> None:
        self._budget = budget
        self.namespace = namespace
        self.used = 0
        # None: as the budget says for all.
        self.share_max: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether the namespace, whatever the others do, may take nothing more."""
        share_max = self._budget.share_max if self.share_max is None else self.share_max
        return share_max is not None and self.used >= share_max

    def left(self, own_more: int = 0, all_more: int = 0) -> int:
        """How much the namespace may still take, if so much more than what is counted is used, by
        itself and by all. Negative where that is more than there is."""
        # Written out: every fetch of a consumer asks.
        budget = self._budget
        used = self.used + own_more
        left = budget.max - budget.used - all_more
        if budget.leaves_room:
            # So much that as much as there is then is left unused.
            left = (left - used) // 2
        share_max = self.share_max
        if share_max is None:
            share_max = budget.share_max
        return left if share_max is None else min(left, share_max - used)

    def take(self, amount: int) -> bool:
        """Take `amount` if there is so much left."""
        if amount > self.left():
            return False
        self.add(amount)
        return True

    def add(self, amount: int) -> None:
        """Count what is used already, be it too much; a negative amount is given back."""
        self.used += amount
        self._budget.used += amount

    def give_back(self, amount: int) -> None:
        self.add(-amount)


class Budget:
    """One of the process. `share_max` holds for each namespace that has none of its own."""

    __slots__ = ("_shares", "leaves_room", "max", "share_max", "used")

    def __init__(self, maximum: int = UNLIMITED, share_max: int | None = None) -> None:
        self.max = maximum
        self.share_max = share_max
        self.used = 0
        self.leaves_room = False
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()

    def used_by(self) -> dict[str, int]:
        """By namespace; without those that nobody holds."""
        return {namespace: share.used for namespace, share in self._shares.items()}

    def use_of(self, namespace: str) -> int:
        """What one uses."""
        share = self._shares.get(namespace)
        return 0 if share is None else share.used

    def of(self, namespace: str) -> Share:
        """The share of a namespace. Raises TooManyNamespaces."""
        share = self._shares.get(namespace)
        if share is None:
            if len(self._shares) >= NAMESPACES_MAX:
                raise TooManyNamespaces(f"more than {NAMESPACES_MAX} namespaces at a time")
            share = self._shares[namespace] = Share(self, namespace)
        return share
