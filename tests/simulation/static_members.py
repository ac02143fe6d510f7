"""Static members (KIP-345): instances whose processes come, die and get in each other's way.

An instance is a name in a group. Its process dies without a word and is back within the session
time-out, when nobody else should notice, or long after it; or a second process is started under the
same name, which fences the first. Who is told FENCED_INSTANCE_ID is out for good, as real clients
are, but may say one more thing before it believes that:

    first   ─ join, commit, commit ───────────────── commit ✗ FENCED_INSTANCE_ID
    second  ─────────────────────── join (same name), sync, commit ─

What holds
- Once a process holds its share, nothing that an older one of the same name says is taken.
- Nobody is fenced unless another process of the name may have joined since.
- Of an instance whose processes stay away the group is free within a bound of time, and every
  other is one member of the group that its process knows itself to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from data_plane.broker.coordinators.groups import service_of
from data_plane.groups.group import ClassicGroup
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.admin import OFFSETS_TOPIC
from tests.simulation.client import OnResponse
from tests.simulation.group_consumer import PAUSE_MS, SESSION_TIMEOUT_MS, GroupConsumer
from tests.simulation.world import US_PER_MS, World

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

INTERVAL_MS = 700
SHORT_MS_MIN = 300
SHORT_MS_MAX = 800
LONG_MS_MAX = 1500
SECOND_CHANCE = 0.4
LONG_CHANCE = 0.35
# How often the last of two instances stays away in the end.
GONE_CHANCE = 0.5
LAST_WORD_CHANCE = 0.7
LAST_WORD_OFFSET = 1 << 40
LOOK_US = 200_000
# A process is started again so long after its end: all timers of this client have run by then.
ENDED_US = 300_000
LAST_WORD = "last word"

# (leader of the group's partition, its epoch, both as the store has them, whether the broker that
# is asked knows that)
Standing = tuple[int, int, bool]


@dataclass(slots=True)
class Join:
    """A process asks for its name's place. It may be acted on while `answered_us` is -1."""

    sent_us: int
    answered_us: int = -1


class StaticConsumer(GroupConsumer):
    """One process of an instance; off until it is started."""

    def __init__(self, cell: Cell, name: str, instance: StaticInstance) -> None:
        super().__init__(cell, name, instance.group, instance.topics)
        self.instance = instance
        self.instance_id = instance.name
        self.is_down = self.is_stopped = True
        self._ended_us = -ENDED_US
        self._last_join = Join(0)
        self._sync_sent_us = 0

    @property
    def may_begin(self) -> bool:
        """Whether nothing of its last life is under way any more in this client itself."""
        return self.is_down and self.world.now_us - self._ended_us >= ENDED_US

    @property
    def is_settled(self) -> bool:
        return self.is_down or super().is_settled

    @property
    def member_id(self) -> str:
        return self._member_id

    def begin(self) -> None:
        """The process starts, and knows nothing of one before."""
        assert self.may_begin
        self.is_down = self.is_stopped = False
        self._coordinator = -1
        self.start()

    def end(self) -> None:
        """kill -9."""
        self.is_down = self.is_stopped = True
        self._ended_us = self.world.now_us
        self._round += 1
        self._state = "down"
        self._member_id = ""
        self.positions.clear()
        self._committed.clear()
        for (_, purpose), link in list(self._links.items()):
            if purpose != LAST_WORD:
                link.close()

    def _again(self, delay_ms: int = PAUSE_MS) -> None:
        if not self.is_down:
            super()._again(delay_ms)

    def _commit_as_before(self) -> None:
        """Not with this member's own name: that it may be fenced is another matter."""

    def ask(
        self,
        node_id: int,
        api_key: ApiKey,
        message: Any,
        on_response: OnResponse,
        purpose: str = "",
        version: int | None = None,
    ) -> None:
        """The same, and what comes of joins, beats and commits is the instance's matter, too."""
        if api_key is ApiKey.JOIN_GROUP and not message.member_id:
            self._last_join = self.instance.join_sent()
            on_response = _noting(self._last_join, self.world, on_response)
        elif api_key is ApiKey.SYNC_GROUP:
            self._sync_sent_us = self.world.now_us
        elif api_key in (ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT):
            before = self.instance.standing(node_id)
            sent_us = self.world.now_us
            inner = on_response

            def judged(response: Any) -> None:
                self.instance.judge(self, node_id, before, sent_us, response)
                inner(response)

            on_response = judged
        super().ask(node_id, api_key, message, on_response, purpose, version)

    def _synced(self, number: int, response: Any) -> None:
        if number == self._round and response is not None and not response.error_code:
            self.instance.holds(self, self._last_join, self._sync_sent_us)
        super()._synced(number, response)

    def _failed(self, error: ErrorCode | None) -> None:
        if error is not ErrorCode.FENCED_INSTANCE_ID:
            super()._failed(error)
            return
        self.world.count("static members fenced")
        if self.random.random() < LAST_WORD_CHANCE and self._generation >= 0:
            self._say_last_word()
        self.end()

    def _say_last_word(self) -> None:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=LAST_WORD_OFFSET
        )
        topic = OffsetCommitRequestTopic(name=self._subscribed[0], partitions=[partition])
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            topics=[topic],
        )
        self.ask(
            self._coordinator,
            ApiKey.OFFSET_COMMIT,
            request,
            lambda response: None,
            purpose=LAST_WORD,
        )


class StaticInstance:
    """A name, its two processes, and who starts and kills them."""

    def __init__(self, cell: Cell, name: str, group: str, topics: list[str]) -> None:
        self.cell = cell
        self.name = name
        self.group = group
        self.topics = topics
        self._world = cell.world
        self._random = cell.world.stream(f"instance {name}")
        self.processes = [StaticConsumer(cell, f"{name}{letter}", self) for letter in "ab"]
        self.is_gone = False
        self._is_calm = False
        self._away_until_us = 0
        # Who holds this name's share for certain, since when, and by which join.
        self._holder: StaticConsumer | None = None
        self._held_since_us = 0
        self._holder_join = Join(0)
        self._joins: list[Join] = []

    @property
    def running(self) -> list[StaticConsumer]:
        return [one for one in self.processes if not one.is_down]

    def start(self) -> None:
        self.processes[0].begin()
        self._next()
        self._world.at(LOOK_US, self._look)

    def _next(self) -> None:
        delay_ms = self._random.expovariate(1 / INTERVAL_MS) + 100
        self._world.at(int(delay_ms * US_PER_MS), self._change)

    def _change(self) -> None:
        if self._is_calm:
            return
        self._next()
        running = self.running
        if len(running) != 1:
            return
        if self._random.random() < SECOND_CHANCE:
            other = self._other(running[0])
            if other.may_begin:
                self._world.count("static members started twice")
                other.begin()
            return
        away_ms = self._random.randint(SHORT_MS_MIN, SHORT_MS_MAX)
        if self._random.random() < LONG_CHANCE:
            away_ms += SESSION_TIMEOUT_MS + self._random.randint(0, LONG_MS_MAX)
            self._world.count("static members away for long")
        else:
            self._world.count("static members restarted")
        running[0].end()
        self._away_until_us = self._world.now_us + away_ms * US_PER_MS

    def _other(self, process: StaticConsumer) -> StaticConsumer:
        return self.processes[1 - self.processes.index(process)]

    def _look(self) -> None:
        """A supervisor starts the process again when its time has come."""
        self._world.at(LOOK_US, self._look)
        if self.is_gone or self.running or self._world.now_us < self._away_until_us:
            return
        ready = [process for process in self.processes if process.may_begin]
        if ready:
            self._random.choice(ready).begin()

    def calm(self, may_go: bool) -> None:
        """The last change: perhaps its processes stay away for good."""
        self._is_calm = True
        self._away_until_us = 0
        if may_go and self._random.random() < GONE_CHANCE:
            self._world.count("static members gone for good")
            self.is_gone = True
            for process in self.running:
                process.end()

    # What its processes hear

    def join_sent(self) -> Join:
        join = Join(self._world.now_us)
        self._joins.append(join)
        return join

    def holds(self, process: StaticConsumer, join: Join, sync_sent_us: int) -> None:
        """That process is told its share, which is in the log then. Of two that were told at the
        same time nobody can say who came last."""
        is_later = self._holder in (None, process) or sync_sent_us > self._held_since_us
        self._holder = process if is_later else None
        self._held_since_us = self._world.now_us
        self._holder_join = join

    def _may_be_replaced(self) -> bool:
        """Whether another join may have come after the holder's."""
        return any(
            join is not self._holder_join and not -1 < join.answered_us < self._holder_join.sent_us
            for join in self._joins
        )

    def standing(self, node_id: int) -> Standing:
        """Who coordinates the group by the store, and whether that broker knows it."""
        topic = self.cell.store.image.topics_of("default").get(OFFSETS_TOPIC)
        services = self.cell.nodes[node_id].services
        if topic is None or services is None:
            return -1, -1, False
        partition = service_of(services).coordinator.partition_of("default", self.group)
        state = topic.partitions[partition]
        known = services.image.topics_by_id.get(topic.topic_id)
        is_known = (
            known is not None and known.partitions[partition].leader_epoch == state.leader_epoch
        )
        return state.leader, state.leader_epoch, is_known and state.leader == node_id

    def judge(
        self,
        process: StaticConsumer,
        node_id: int,
        before: Standing,
        sent_us: int,
        response: Any,
    ) -> None:
        """A beat or a commit of a process is answered, or how it joins again."""
        if response is None or self.cell.is_group_lossy(self.group):
            return
        is_commit = hasattr(response, "topics")
        errors = [response.error_code] if not is_commit else _errors_of(response)
        is_older = self._holder is not None and self._holder is not process
        if is_older and is_commit and 0 in errors and sent_us > self._held_since_us:
            self._world.violate(
                f"{process.name} commits for {self.name}, of which another process holds the share"
            )
        is_coordinator = before[2] and before == self.standing(node_id)
        is_fenced = int(ErrorCode.FENCED_INSTANCE_ID) in errors
        if not is_fenced or not is_coordinator or self._holder is not process:
            return
        if not self._may_be_replaced():
            self._world.violate(
                f"{process.name} is fenced by b{node_id}, and nobody else has joined as {self.name}"
            )

    # At rest

    def open_ends(self) -> list[str]:
        """What is not as it should be of this instance in a healthy cell at rest."""
        group = self._group_at_rest()
        if group is None:
            return [f"nobody coordinates {self.group}"]
        found = [
            f"{member.member_id} is in {self.group} as {self.name}"
            for member in group.members.values()
            if self.is_gone and member.group_instance_id == self.name
        ]
        if not self.is_gone:
            known = group.static_members.get(self.name)
            running = [one.member_id for one in self.running]
            if running != [known]:
                found.append(f"{running} run as {self.name}, {self.group} has {known}")
        return found

    def _group_at_rest(self) -> ClassicGroup | None:
        for node in self.cell.nodes.values():
            if node.services is not None and self.standing(node.node_id)[2]:
                coordinator = service_of(node.services).coordinator
                for group in coordinator.groups():
                    if group.group_id == self.group:
                        return group
        return None


def _noting(join: Join, world: World, on_response: OnResponse) -> OnResponse:
    def answered(response: Any) -> None:
        if response is not None:
            join.answered_us = world.now_us
        on_response(response)

    return answered


def _errors_of(response: Any) -> list[int]:
    return [piece.error_code for topic in response.topics for piece in topic.partitions]
