"""A consumer with incremental fetch sessions (KIP-227), as all current clients are.

To each broker it names its partitions once, later only those whose position or epoch has changed or
that it reads elsewhere now; an answer has only what there is to say:

    full       data3-0 at 0, data3-1 at 0          ─►  session 77, data3-0: records
    next       data3-0 at 5                        ─►  data3-1: high watermark 3, records
    next       nothing; forget data3-1             ─►  nothing

After a request without an answer nobody knows whether the session has taken it. The reader begins a
new one and gives the old one up, as clients do, or goes on as if it had: then the broker has to
refuse who is one request ahead of it. Two things hold: a session speaks only of
what it was asked for, and hides nothing. In the end, when all is at rest, who reads through
sessions is at the end of every log, like those who ask for all of it each time (audit.py).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.reader import MAX_WAIT_MS, WRONG_EPOCH_CHANCE, Asked, Reader, Target

NO_SESSION = 0
FIRST_EPOCH = 0
# How often a reader gives up a session for no reason.
LEAVE_CHANCE = 0.01
ANEW_CHANCE = 0.5

Key = tuple[UUID, int]


class Session:
    """What one broker was told, and is to be told next."""

    __slots__ = ("epoch", "named", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FIRST_EPOCH
        # What was asked for of each partition when it was named last.
        self.named: dict[Key, Asked] = {}

    def begin_anew(self) -> None:
        """The next request names everything; it ends what the broker still knows of this one."""
        self.epoch = FIRST_EPOCH
        self.named.clear()


class SessionReader(Reader):
    """See the module."""

    _sessions: dict[int, Session]

    def start(self) -> None:
        self._sessions = {node_id: Session() for node_id in self.cell.node_ids}
        super().start()

    def _fetch_all(self) -> None:
        """Also brokers of which nothing is wanted any more have to be told so."""
        super()._fetch_all()
        for node_id, session in self._sessions.items():
            if session.named and node_id not in self._busy_nodes:
                wanted = [
                    target
                    for target, position in self.positions.items()
                    if self._source(target, position) == node_id
                ]
                if not wanted:
                    self._fetch(node_id, [])

    def _fetch(self, node_id: int, targets: list[Target]) -> None:
        session = self._sessions[node_id]
        if session.epoch != FIRST_EPOCH and self.random.random() < LEAVE_CHANCE:
            session.begin_anew()
        wanted = {self._key(target): self._asked(node_id, target) for target in targets}
        changed = [
            one
            for key, one in wanted.items()
            if key not in session.named or _differs(one, session.named[key])
        ]
        forgotten = [key for key in session.named if key not in wanted]
        if not wanted and session.epoch == FIRST_EPOCH:
            return
        for key in forgotten:
            del session.named[key]
        for key, one in wanted.items():
            # Named or not, the broker is asked as it is now.
            session.named[key] = session.named.get(key, one)._replace(known=one.known)
        session.named.update((self._key(one.target), one) for one in changed)
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=self._topics(changed),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[index])
                for topic_id, index in forgotten
            ],
            rack_id=self._rack,
        )
        is_full = session.epoch == FIRST_EPOCH
        self.world.count("full fetches of sessions" if is_full else "fetches in a session")
        if forgotten:
            self.world.count("partitions forgotten by a session", len(forgotten))
        self._busy_nodes[node_id] = None
        asked = dict(session.named)
        self.ask(
            node_id,
            ApiKey.FETCH,
            request,
            lambda response: self._session_took(node_id, session, asked, response),
            purpose="fetch",
        )

    def _key(self, target: Target) -> Key:
        return self.topics[target[0]].topic_id, target[1]

    def _asked(self, node_id: int, target: Target) -> Asked:
        leader = self.leader(*target)
        epoch = -1 if leader is None else leader.epoch
        if epoch >= 0 and self.random.random() < WRONG_EPOCH_CHANCE:
            epoch = max(0, epoch + self.random.choice((-1, 1)))
        known = self._epoch_at(node_id, *self._key(target))
        return Asked(target, self.positions[target].offset, epoch, known)

    def _topics(self, changed: list[Asked]) -> list[FetchTopic]:
        topics: dict[UUID, FetchTopic] = {}
        for one in changed:
            topic_id, index = self._key(one.target)
            topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    fetch_offset=one.offset,
                    current_leader_epoch=one.epoch,
                    partition_max_bytes=self.partition_bytes_max,
                )
            )
        return list(topics.values())

    def _session_took(
        self, node_id: int, session: Session, asked: dict[Key, Asked], response: Any
    ) -> None:
        if response is None:
            if session.session_id == NO_SESSION or self.random.random() < ANEW_CHANCE:
                session.begin_anew()
            else:
                session.epoch += 1
        elif response.error_code:
            self.world.count(f"sessions lost by {ErrorCode(response.error_code).name}")
            session.session_id = NO_SESSION
            session.begin_anew()
        elif response.session_id == NO_SESSION:
            session.session_id = NO_SESSION
            session.begin_anew()
        else:
            session.session_id = response.session_id
            session.epoch += 1
        self._took(node_id, asked, response)

    def _check_whole(self, node_id: int, asked: dict[Key, Asked], response: Any) -> None:
        """A session speaks of what it was asked for, and of each once."""
        answered = [
            (topic.topic_id, piece.partition_index)
            for topic in response.responses
            for piece in topic.partitions
        ]
        if len(answered) != len(set(answered)) or not set(answered) <= asked.keys():
            self.world.violate(
                f"{self.name} has asked b{node_id} for {[one.target for one in asked.values()]} "
                f"and is answered about {answered}"
            )


def _differs(one: Asked, other: Asked) -> bool:
    return (one.offset, one.epoch) != (other.offset, other.epoch)
