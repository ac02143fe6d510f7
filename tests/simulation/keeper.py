"""Keepers: each has a group without members, and commits, deletes and fetches its offsets.

    commit shelf1 (id 7): 0=3 1=3 2=3      acknowledged: that is what is there
    commit, to expire at once              there or not, from then on
    shelf1 is deleted, made anew (id 9)    nothing is there, and never what was of id 7
    DeleteGroups                           acknowledged: nothing is there

A keeper asks for one thing at a time, so it knows what each offset may be: what it was last told,
or what it has asked for since without being told. Who was not told whether a group is deleted goes
on with another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.administrator import Administrator
from tests.simulation.group_consumer import MOVED, NOT_COMMITTED
from tests.simulation.large_states import Shelves

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

# Topic id and partition.
Place = tuple[UUID, int]

NOTHING = -1
# The last version in which a client says how long its offsets are kept.
COMMIT_VERSION_WITH_RETENTION = 4
# The first one in which topics have ids.
COMMIT_VERSION_WITH_IDS = 10
FETCH_VERSION_WITH_IDS = 10
RETENTION_MS_MAX = 500
OPERATIONS = ("commit",) * 5 + ("brief",) * 3 + ("fetch",) * 5 + ("delete",)
NOT_KEPT = NOT_COMMITTED | {ErrorCode.UNKNOWN_TOPIC_ID}


class Keeper(Administrator):
    """See the module. `lasting` are topics that are never deleted."""

    interval_ms = 25
    # Topics that come and go.
    shelves: tuple[str, ...] = Shelves.names

    def __init__(self, cell: Cell, name: str, lasting: list[str]) -> None:
        super().__init__(cell, name)
        self._lasting = lasting
        self._coordinator = NOTHING
        self._groups_count = 0
        self._is_waiting = False
        self._is_checked = False
        self._last_offset = 0
        # What each offset of this group was told to be, where it is known; nothing otherwise.
        self._told: dict[Place, set[int]] = {}
        # What it may become, by requests of which nobody knows whether they were acted on.
        self._asked: dict[Place, set[int]] = {}

    @property
    def is_settled(self) -> bool:
        return self._is_checked

    def start(self) -> None:
        self.refresh_metadata()
        super().start()

    def _go_on(self) -> None:
        if not self._is_checked:
            self._wait()
            if not self._is_waiting:
                self.change()

    @property
    def _group(self) -> str:
        return f"{self.name}.{self._groups_count}"

    def _use_another_group(self) -> None:
        self._groups_count += 1
        self._coordinator = NOTHING
        self._told.clear()
        self._asked.clear()

    def change(self) -> None:
        if self._coordinator == NOTHING:
            self._find_coordinator()
            return
        if self.random.random() < 0.2:
            self.refresh_metadata()
        operation = "fetch" if self._is_stopped else self.random.choice(OPERATIONS)
        if operation == "delete":
            self._delete()
        elif operation == "fetch":
            self._fetch()
        else:
            self._commit(is_brief=operation == "brief")

    def _find_coordinator(self) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        self._is_waiting = True
        self.ask(self.any_node(), ApiKey.FIND_COORDINATOR, request, self._found)

    def _found(self, response: Any) -> None:
        self._is_waiting = False
        found = None if response is None else response.coordinators[0]
        if found is not None and not found.error_code:
            self._coordinator = found.node_id

    def _places(self, names: tuple[str, ...] | list[str]) -> dict[UUID, list[int]]:
        found = {}
        for name in names:
            topic = self.topics.get(name)
            if topic is not None and topic.partitions:
                found[topic.topic_id] = sorted(topic.partitions)
        return found

    def _failed(self, error: ErrorCode | None) -> None:
        """No answer, or one that says that it was not for this broker."""
        if error is None or error in MOVED:
            if error is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._coordinator = NOTHING
        elif error not in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self.world.violate(f"{self.name} is told {error.name} of group {self._group}")

    # ---- commits

    def _commit(self, *, is_brief: bool) -> None:
        """What is brief is of a topic that stays: that version has no ids."""
        places = self._places(self._lasting if is_brief else [*self.shelves, *self._lasting])
        if not places:
            self.refresh_metadata()
            return
        self._last_offset += 1
        topics = []
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        for topic_id, indexes in places.items():
            chosen = [index for index in indexes if self.random.random() < 0.7]
            partitions = [
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=self._last_offset
                )
                for index in chosen
            ]
            topic = OffsetCommitRequestTopic(name=names[topic_id], partitions=partitions)
            if not is_brief:
                topic.topic_id = topic_id
            topics.append(topic)
        request = OffsetCommitRequest(
            group_id=self._group, generation_id_or_member_epoch=-1, topics=topics
        )
        version = COMMIT_VERSION_WITH_IDS
        values = {self._last_offset}
        if is_brief:
            version = COMMIT_VERSION_WITH_RETENTION
            request.retention_time_ms = self.random.randint(1, RETENTION_MS_MAX)
            values.add(NOTHING)
        asked = {
            (topic_id, partition.partition_index): values
            for topic_id, topic in zip(places, topics, strict=True)
            for partition in topic.partitions
        }
        ids = {names[topic_id]: topic_id for topic_id in places}
        self._is_waiting = True
        self.ask(
            self._coordinator,
            ApiKey.OFFSET_COMMIT,
            request,
            lambda response: self._committed(asked, ids, response),
            version=version,
        )

    def _committed(self, asked: dict[Place, set[int]], ids: dict[str, UUID], response: Any) -> None:
        self._is_waiting = False
        if response is None:
            self._failed(None)
            self._may_become(asked)
            return
        for topic in response.topics:
            topic_id = topic.topic_id if topic.topic_id.int else ids[topic.name]
            for piece in topic.partitions:
                place = (topic_id, piece.partition_index)
                error = ErrorCode(piece.error_code)
                if error is ErrorCode.NONE:
                    self.world.count("kept offsets committed")
                    self._told[place] = set(asked[place])
                    continue
                if error not in NOT_KEPT:
                    self._may_become({place: asked[place]})
                self._failed(error)

    def _may_become(self, asked: dict[Place, set[int]]) -> None:
        for place, values in asked.items():
            self._asked.setdefault(place, set()).update(values)

    # ---- deletion

    def _delete(self) -> None:
        self._is_waiting = True
        request = DeleteGroupsRequest(groups_names=[self._group])
        self.ask(self._coordinator, ApiKey.DELETE_GROUPS, request, self._deleted)

    def _deleted(self, response: Any) -> None:
        self._is_waiting = False
        error = None if response is None else ErrorCode(response.results[0].error_code)
        if error is ErrorCode.NONE:
            self.world.count("kept groups deleted")
            self._told.clear()
        elif error is ErrorCode.GROUP_ID_NOT_FOUND:
            topics = self.cell.store.image.topics_by_id
            lost = [
                one for one in self._told if one[0] in topics and NOTHING not in self._possible(one)
            ]
            if lost and not self.cell.is_group_lossy(self._group):
                self.world.violate(f"group {self._group} is not found, with offsets in {lost}")
        else:
            self._failed(error)
            self._use_another_group()

    # ---- fetches

    def _possible(self, place: Place) -> set[int]:
        return self._told.get(place, {NOTHING}) | self._asked.get(place, set())

    def _fetch(self) -> None:
        places = self._places([*self.shelves, *self._lasting])
        if not places:
            self.refresh_metadata()
            return
        group = OffsetFetchRequestGroup(
            group_id=self._group,
            topics=[
                OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=indexes)
                for topic_id, indexes in places.items()
            ],
        )
        self._is_waiting = True
        self.ask(
            self._coordinator,
            ApiKey.OFFSET_FETCH,
            OffsetFetchRequest(groups=[group]),
            self._fetched,
            version=FETCH_VERSION_WITH_IDS,
        )

    def _fetched(self, response: Any) -> None:
        self._is_waiting = False
        answer = None if response is None else response.groups[0]
        if answer is None or answer.error_code:
            self._failed(None if answer is None else ErrorCode(answer.error_code))
            return
        for topic in answer.topics:
            for piece in topic.partitions:
                if piece.error_code:
                    self._failed(ErrorCode(piece.error_code))
                    self.refresh_metadata()
                else:
                    self._check((topic.topic_id, piece.partition_index), piece.committed_offset)
        self._is_checked = self._is_stopped

    def _check(self, place: Place, offset: int) -> None:
        possible = self._possible(place)
        self.world.count("kept offsets fetched")
        if offset == NOTHING and place in self._told:
            self.world.count("kept offsets that have expired")
        if offset not in possible and not self.cell.is_group_lossy(self._group):
            topic = self.cell.store.image.topics_by_id.get(place[0])
            name = place[0] if topic is None else topic.name
            self.world.violate(
                f"group {self._group} is told offset {offset} of {name}-{place[1]}, not one of "
                f"{sorted(possible)}"
            )
