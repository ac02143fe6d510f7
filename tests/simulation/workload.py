"""Who does what with the cell: topics, producers, readers, groups, an administrator.

Topics differ in what they promise: replicas, min.insync.replicas, syncs before acknowledgement,
unclean elections. Producers with acks=all make history that must hold; those with acks=0 and 1 make
logs differ, so that there is something to truncate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tests.simulation import delays
from tests.simulation.admin import Admin, TopicPlan
from tests.simulation.administrator import Administrator
from tests.simulation.bundler import BUNDLE_INTERVAL_MS, Bundler
from tests.simulation.client import Client
from tests.simulation.clock_errors import keep_for_long
from tests.simulation.commander import INTERVAL_MS as COMMAND_INTERVAL_MS
from tests.simulation.commander import Commander
from tests.simulation.delays import DELAYS, DelayedReader, DelayingProducer, plan_delays
from tests.simulation.drainer import Drainer
from tests.simulation.group_consumer import GroupConsumer
from tests.simulation.group_limits import GroupMaker
from tests.simulation.keeper import Keeper
from tests.simulation.keyed import (
    KeyedProducer,
    MapReader,
    is_keyed,
    plan_brief_table,
    plan_table,
)
from tests.simulation.large_states import Shelves
from tests.simulation.leaps import plan_leaps
from tests.simulation.namesakes import NAMES, Namesakes
from tests.simulation.producer import ACKS_ALL, Producer
from tests.simulation.projected_reader import ProjectedReader
from tests.simulation.quotas import QuotaSetter
from tests.simulation.reader import Reader, SlowReader
from tests.simulation.resizer import Resizer
from tests.simulation.retention import draw_retention, has_retention
from tests.simulation.retries import OF_BROKERS, RetryAdmin, plan_retried
from tests.simulation.retrying import RetryingConsumer
from tests.simulation.session_reader import SessionReader
from tests.simulation.settings import Settings
from tests.simulation.static_members import StaticInstance
from tests.simulation.subscriptions import STEADY, SubscribedMember, Subscriber, SubscriptionAdmin
from tests.simulation.tagged import TAGGED, plan_tagged, plan_tagged_table
from tests.simulation.tenants import TENANTS, ControlPlane, TenantUser
from tests.simulation.throttler import Throttler
from tests.simulation.undated import UNDATED, UndatedProducer, plan_undated
from tests.simulation.undeletes import KEPT_TOPICS, KeptKeeper, Undeleter
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

ADMIN_KINDS = (
    "scratch topics",
    "partitions",
    "configs",
    "reassignments",
    "elections",
    "delete records",
    "drains",
)
PRODUCE_INTERVAL_MS_CHOICES = (12, 30, 80)
LEAVE_INTERVAL_MS = 2500
KEEPERS = 3
HASTY_LEAVE_INTERVAL_MS = 600
STATIC_GROUP = "named"


def is_user_topic(name: str) -> bool:
    is_special = is_keyed(name) or name in Shelves.names or name in (DELAYS, *OF_BROKERS)
    return not name.startswith("__") and not is_special


def is_dated(name: str) -> bool:
    """Topics whose records say when they were made."""
    return is_user_topic(name) and name != UNDATED


def is_bundled(name: str) -> bool:
    """What is told of a name says nothing of another topic that had it."""
    return is_dated(name) and name not in NAMES and name not in KEPT_TOPICS


def is_promised(name: str) -> bool:
    """Topics for the idempotent producers: never deleted."""
    return name.startswith("data")


class Workload:
    """See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._random = cell.world.stream("workload")
        rng = self._random
        self.plans = self._draw_plans()
        self.retained = {
            plan.name
            for plan in self.plans
            if has_retention(plan.configs) and is_user_topic(plan.name)
        }
        kinds = self._draw_admin_kinds()
        self.admin = Admin(cell, "admin", self.plans, kinds)
        self.administrators = self._make_administrators()
        self.producers = self._make_producers()
        self.readers = self._make_readers()
        self.keyed: list[KeyedProducer] = []
        self.maps: list[MapReader] = []
        if any(is_keyed(plan.name) for plan in self.plans):
            self.keyed = [
                KeyedProducer(cell, f"keyed{number}", acks=ACKS_ALL, interval_ms=60, wants=is_keyed)
                for number in (1, 2)
            ]
            self.maps = [MapReader(cell, "map")]
            self.producers += self.keyed
        names = [plan.name for plan in self.plans if is_user_topic(plan.name)]
        self.members = [
            GroupConsumer(cell, f"g{group}m{member}", f"group{group}", names)
            for group in range(1, rng.randint(1, 2) + 1)
            for member in range(1, rng.randint(1, 2) + 1)
        ]
        if not names:
            self.members = []
        if "subscriptions" in cell.extras and any(plan.name == TAGGED for plan in self.plans):
            self.members += [
                SubscribedMember(cell, f"subscribed{number}", "subscribed", [STEADY])
                for number in (1, 2)
            ]
        self.instances: list[StaticInstance] = []
        if "static members" in cell.extras and names:
            self.instances = [
                StaticInstance(cell, f"{STATIC_GROUP}-{number}", STATIC_GROUP, names)
                for number in (1, 2)
            ]
        self._are_members_restless = rng.random() < 0.3 and bool(names)
        self._leave_interval_ms = LEAVE_INTERVAL_MS
        if "slow disks" in cell.extras and names:
            self._are_members_restless = True
            self._leave_interval_ms = HASTY_LEAVE_INTERVAL_MS

    def _draw_plans(self) -> list[TopicPlan]:
        cell = self._cell
        drawn = self._plan_topics()
        if cell.options.topics is not None:
            return list(cell.options.topics)
        draw_retention(cell.world.stream("retention"), drawn, is_wanted="pins" in cell.extras)
        if "brief tables" in cell.extras:
            drawn.append(plan_brief_table(cell.world.stream("brief tables")))
        if "subscriptions" in cell.extras:
            tagged = cell.world.stream("tagged")
            drawn += [plan_tagged(tagged), plan_tagged_table(tagged)]
        if "leaps" in cell.extras:
            # Brokers get empty disks there, so none holds anything alone.
            drawn = [plan for plan in drawn if plan.replicas > 1]
            drawn.append(plan_leaps(cell.world.stream("leap topic")))
        if "clock errors" in cell.extras:
            keep_for_long(cell.world.stream("long retention"), drawn)
        if "delays" in cell.extras:
            drawn.append(plan_delays(cell.world.stream("delay topic")))
        if "retries" in cell.extras:
            drawn.append(plan_retried(cell.world.stream("retried topic")))
        if "undated" in cell.extras:
            drawn.append(plan_undated(cell.world.stream("undated")))
        return drawn

    def _make_producers(self) -> list[Producer]:
        cell, rng = self._cell, self._random
        interval_ms = rng.choice(PRODUCE_INTERVAL_MS_CHOICES)
        count = rng.randint(2, 3)
        producers = [
            Producer(cell, f"p{number}", acks=ACKS_ALL, interval_ms=interval_ms, wants=is_promised)
            for number in range(1, count + 1)
        ]
        producers += [
            Producer(cell, f"plain{acks}", acks=acks, interval_ms=30, wants=is_dated)
            for acks in (0, 1)
        ]
        # Each kind that is only in some cells, with what it writes to.
        kinds: dict[str, tuple[type[Producer], str, int, Callable[[str], bool]]] = {
            "bundles": (Bundler, "bundler", BUNDLE_INTERVAL_MS, is_bundled),
            "delays": (DelayingProducer, "delaying", delays.INTERVAL_MS, DELAYS.__eq__),
            "undated": (UndatedProducer, "undated", 60, UNDATED.__eq__),
        }
        producers += [
            kind(cell, name, acks=ACKS_ALL, interval_ms=interval_ms, wants=wants)
            for extra, (kind, name, interval_ms, wants) in kinds.items()
            if extra in cell.extras
        ]
        if "delays" in cell.extras:
            producers += [
                Commander(
                    cell,
                    name,
                    acks=ACKS_ALL,
                    interval_ms=COMMAND_INTERVAL_MS,
                    wants=DELAYS.__eq__,
                    is_idempotent=is_idempotent,
                )
                for name, is_idempotent in (("commander", True), ("repeater", False))
            ]
        return producers

    def _make_readers(self) -> list[Reader]:
        cell = self._cell
        near_rack = self._random.choice(("east", "west", "north"))
        readers = [
            Reader(cell, "reader", wants=is_user_topic),
            Reader(cell, "near", rack=near_rack, wants=is_promised),
        ]
        if "fetch sessions" in cell.extras:
            readers += [
                SessionReader(cell, "session", wants=is_user_topic),
                SessionReader(cell, "near session", rack="west", wants=is_promised),
            ]
        if "projections" in cell.extras:
            readers.append(ProjectedReader(cell, "projected", wants=is_user_topic))
            readers.append(ProjectedReader(cell, "near projected", rack="west", wants=is_promised))
        if "subscriptions" in cell.extras:
            readers.append(Subscriber(cell, "subscriber", self.plans))
            readers.append(Subscriber(cell, "near subscriber", self.plans, rack="west"))
        if "delays" in cell.extras:
            readers.append(DelayedReader(cell, "delayed", wants=DELAYS.__eq__))
            readers.append(DelayedReader(cell, "near delayed", rack="west", wants=DELAYS.__eq__))
        if "retries" in cell.extras:
            readers.append(RetryingConsumer(cell, "retrying"))
            readers.append(RetryingConsumer(cell, "near retrying", rack="west"))
        if self.retained:
            readers.append(SlowReader(cell, "slow", wants=self.retained.__contains__))
        return readers

    def _draw_admin_kinds(self) -> list[str]:
        extras, wanted = self._cell.extras, self._cell.options.admin
        kinds = [kind for kind in ADMIN_KINDS if self._random.random() < 0.4]
        if wanted is not None:
            kinds = [kind for kind in ADMIN_KINDS if kind in wanted]
        if "bundles" in extras and "scratch topics" not in kinds:
            kinds.append("scratch topics")
        if "drains" in extras:
            # One has the last word; and topics come while brokers drain.
            kinds = [kind for kind in ("scratch topics", "partitions", *kinds) if kind != "drains"]
        return kinds

    def _make_administrators(self) -> list[Admin | Administrator]:
        administrators: list[Admin | Administrator] = [self.admin]
        if "throttles" in self._cell.extras:
            administrators.append(Throttler(self._cell, "throttler", self.plans))
        if "quotas" in self._cell.extras:
            administrators.append(QuotaSetter(self._cell, "quota setter"))
        if "group limits" in self._cell.extras:
            administrators.append(GroupMaker(self._cell, "group maker"))
        if "factors" in self._cell.extras:
            administrators.append(Resizer(self._cell, "resizer", self.plans))
        if "drains" in self._cell.extras:
            administrators.append(Drainer(self._cell, "drainer"))
        if "settings" in self._cell.extras:
            administrators.append(Settings(self._cell, "settings", self.plans))
        if "namesakes" in self._cell.extras:
            administrators.append(Namesakes(self._cell, "namesakes"))
        if "subscriptions" in self._cell.extras:
            administrators.append(SubscriptionAdmin(self._cell, "subscription admin", self.plans))
        if "retries" in self._cell.extras:
            administrators.append(RetryAdmin(self._cell, "retry admin"))
        if "tenants" in self._cell.extras:
            administrators.append(ControlPlane(self._cell, "control plane"))
            administrators += [TenantUser(self._cell, tenant) for tenant in TENANTS]
        if "large states" in self._cell.extras:
            lasting = [plan.name for plan in self.plans if is_promised(plan.name)]
            administrators.append(Shelves(self._cell, "shelves"))
            administrators += [
                Keeper(self._cell, f"keeper{number}", lasting[:1])
                for number in range(1, KEEPERS + 1)
            ]
        if "undeletes" in self._cell.extras:
            lasting = [plan.name for plan in self.plans if is_promised(plan.name)]
            administrators.append(Undeleter(self._cell, "undeleter"))
            administrators.append(KeptKeeper(self._cell, "kept keeper", lasting[:1]))
        return administrators

    def _plan_topics(self) -> list[TopicPlan]:
        rng = self._random
        plans = [TopicPlan("data3", rng.randint(1, 3), 3)]
        if rng.random() < 0.5:
            plans.append(TopicPlan("data2", 1, 2, {"min.insync.replicas": "1"}))
        if rng.random() < 0.4:
            plans.append(TopicPlan("datasync", 1, 3, {"durability": "fsync"}))
        if rng.random() < 0.3:
            plans.append(TopicPlan("data1", 1, 1))
        if rng.random() < 0.3:
            configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
            plans.append(TopicPlan("dataunclean", 1, 2, configs))
        if rng.random() < 0.5:
            plans.append(plan_table(rng))
        return plans

    def client_names(self) -> Iterable[str]:
        for client in self._clients():
            yield client.name

    def _clients(self) -> Iterable[Client]:
        yield self.admin
        yield from self.producers
        yield from self.readers
        yield from self.consumers()
        yield from self.maps
        yield from self.administrators[1:]

    def consumers(self) -> Iterable[GroupConsumer]:
        """All that are members of groups, or could be."""
        yield from self.members
        for instance in self.instances:
            yield from instance.processes

    def start(self, on_ready: Callable[[], None]) -> None:
        """Make the topics, then let everybody loose."""
        self.admin.make_topics(lambda: self._begin(on_ready))

    def _begin(self, on_ready: Callable[[], None]) -> None:
        for one in self.administrators:
            one.start()
        for producer in self.producers:
            producer.start()
        for reader in (*self.readers, *self.members, *self.maps):
            reader.start()
        for instance in self.instances:
            instance.start()
        if self._are_members_restless:
            self._leave_later()
        on_ready()

    def _leave_later(self) -> None:
        delay_ms = self._random.expovariate(1 / self._leave_interval_ms)
        self._cell.world.at(int(delay_ms * US_PER_MS), self._leave)

    def _leave(self) -> None:
        if self._are_members_restless:
            self._random.choice(self.members).leave()
            self._leave_later()

    def calm(self) -> None:
        """No more changes; producers finish what they have."""
        for one in self.administrators:
            one.stop()
        self._are_members_restless = False
        for producer in self.producers:
            producer.stop()
        for reader in self.maps:
            reader.calm()
        for slow in self.readers:
            if isinstance(slow, SlowReader | RetryingConsumer):
                slow.calm()
        for number, instance in enumerate(self.instances):
            instance.calm(may_go=number > 0)
