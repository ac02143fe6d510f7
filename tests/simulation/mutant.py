"""What a planted bug is: a name, what is wrong, and a patch of the real code while it is tried.

The suite has to kill each mutant: some seed within its budget must end in a violation. A mutant
that survives means that the workload never gets there, or that no invariant looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.runs import STEPS, Outcome, run_seed

# Where the seed decides, of all but the extras.
PLAIN = Options(extras=frozenset())
# Where leaders change all the time, cut off from those who follow and not from clients.
LEADERS = Options(
    brokers=3,
    faults=frozenset({"relay", "cut", "pause", "slow network"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 2, 3),),
)
# Where commits of the store have their answers lost.
STORE = Options(
    brokers=3,
    faults=frozenset(
        {"flaky store", "store outage", "store went back", "store cut", "cut", "kill", "pause"}
    ),
    topics=(TopicPlan("data3", 2, 3),),
)
# Where the store is away, or another one stands in its place.
OUTAGES = Options(
    brokers=3,
    faults=frozenset({"store outage"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 1, 3),),
)
STAND_INS = Options(
    brokers=3,
    faults=frozenset({"store went back"}),
    topics=(TopicPlan("data3", 1, 3),),
)
# Where brokers start again all the time.
RESTARTS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 1, 3),),
)
# Where disks lose what they have not synced.
POWER = Options(
    brokers=3,
    faults=frozenset(
        {
            "power loss",
            "torn write",
            "cut",
            "slow network",
            "flaky store",
            "store outage",
            "store cut",
        }
    ),
    admin=frozenset(),
    topics=(
        TopicPlan("data3", 1, 3),
        TopicPlan("datasync", 1, 3, {"durability": "fsync"}),
    ),
)
# Where replicas move all the time.
MOVES = Options(
    brokers=4,
    faults=frozenset({"cut", "slow network", "kill"}),
    admin=frozenset({"reassignments"}),
    topics=(TopicPlan("data3", 2, 3),),
)
# Where disks fail that have to sync.
DISKS = Options(
    brokers=3,
    faults=frozenset({"failing disk", "slow network"}),
    admin=frozenset(),
    topics=(TopicPlan("datasync", 2, 3, {"durability": "fsync"}),),
)
# Where records are deleted.
DELETIONS = Options(
    brokers=3,
    faults=frozenset({"cut", "kill", "broken connection"}),
    admin=frozenset({"delete records"}),
    topics=(TopicPlan("data3", 1, 3),),
)


# Where a request carries many partitions, whose leaders change and whose topics go.
BUNDLES = Options(
    brokers=3,
    faults=frozenset({"relay", "cut", "pause", "slow network"}),
    admin=frozenset({"scratch topics"}),
    topics=(TopicPlan("data3", 6, 3), TopicPlan("data2", 2, 2, {"min.insync.replicas": "1"})),
    extras=frozenset({"bundles"}),
)
# Where replication factors change all the time.
FACTORS = Options(
    brokers=4,
    faults=frozenset({"cut", "slow network", "kill"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 3, 3),),
    extras=frozenset({"factors"}),
)
# Where static members start again and again, and coordinators change.
STATICS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop", "pause"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 2, 3),),
    extras=frozenset({"static members"}),
)
# Where what groups append takes long, and their members come and go.
SLOW = Options(
    brokers=3,
    faults=frozenset({"pause", "broken connection"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 2, 3),),
    extras=frozenset({"slow disks", "static members"}),
)
# Where replicas move under a throttle, and nothing goes wrong.
THROTTLED = Options(
    brokers=4,
    faults=frozenset(),
    admin=frozenset(),
    topics=(TopicPlan("data3", 3, 3),),
    extras=frozenset({"throttles"}),
)
# Where a tenant has a rate over all brokers, and nothing goes wrong.
METERED = Options(
    brokers=3,
    faults=frozenset(),
    admin=frozenset(),
    topics=(TopicPlan("data3", 3, 3),),
    extras=frozenset({"quotas"}),
)
# Where a tenant may have so many groups, and nothing goes wrong.
CROWDED = Options(
    brokers=3,
    faults=frozenset(),
    admin=frozenset(),
    topics=(TopicPlan("data3", 1, 3),),
    extras=frozenset({"group limits"}),
)
# The same, where coordinators die and come back.
CROWDED_AND_MOVED = Options(
    brokers=3,
    faults=frozenset({"kill", "stop"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 1, 3),),
    extras=frozenset({"group limits"}),
)
# Where brokers are emptied and taken back.
DRAINED = Options(
    brokers=4,
    faults=frozenset({"cut", "slow network", "kill"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 3, 3),),
    extras=frozenset({"drains"}),
)


class Patch:
    """Replaces attributes, and puts them back."""

    def __init__(self) -> None:
        self._originals: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """`owner.name` becomes `value`; returns what it was."""
        original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        self._originals.append((owner, name, original))
        setattr(owner, name, value)
        return original

    def undo(self) -> None:
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)
        self._originals.clear()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug.

    - `seeds`: those that have killed it before, tried first.
    - `budget`: so many further seeds, from 1 on, may be tried.
    - `is_quick`: the first seeds find it, so every run tries it.
    """

    name: str
    wrong: str
    plant: Callable[[Patch], None]
    seeds: tuple[int, ...] = ()
    budget: int = 40
    steps: int = STEPS
    options: Options | None = None
    is_quick: bool = False


# Not found by a check: the code that the mutant patches has changed.
PATCH_IS_OLD = ("TypeError", "AttributeError", "NameError", "KeyError: '")


def is_patch_at_fault(line: str) -> bool:
    """Whether this is the error of a call that the mutant's code does not fit any more."""
    return line.startswith(PATCH_IS_OLD) or ("TypeError(" in line and "<locals>" in line)


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The mutant is alive within."""
    patch = Patch()
    try:
        mutant.plant(patch)
        yield
    finally:
        patch.undo()


def hunt(mutant: Mutant) -> tuple[int, Outcome | None]:
    """(seeds tried, the outcome that killed it or None)."""
    tried = 0
    seeds = [*mutant.seeds, *(seed for seed in range(1, mutant.budget + 1))]
    with planted(mutant):
        for seed in seeds:
            tried += 1
            steps = mutant.steps if mutant.options is None else 2 * mutant.steps
            outcome = run_seed(seed, steps, mutant.options or PLAIN)
            if outcome.failure is not None:
                last_line = outcome.failure.strip().splitlines()[-1]
                assert not is_patch_at_fault(last_line), f"the patch is at fault: {last_line}"
                return tried, outcome
    return tried, None
