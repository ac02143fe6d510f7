"""Where replicas go: on different racks and hosts, so that every broker has its share.

A `Placer` knows how many replicas and how many preferred leaderships each broker has, counted in
the image as it will be when all reassignments are complete, and keeps count of what it gives out.
Each choice is greedy, by these marks in this order, the lowest wins:

1. whether the broker is fenced: a topic can be made while a broker restarts, but what is alive
   comes first;
2. replicas of the same partition in the same rack, then on the same host;
3. leaderships, for a first replica; replicas; how often it follows this leader already, so that
   the leaders of a broker that dies go to different ones; the id.

Brokers that drain or stop get nothing.

    brokers 1 2 3, three replicas: 1 2 3 | 2 3 1 | 3 1 2 | 1 3 2 | 2 1 3 | 3 2 1 | …

Deliberately absent: Kafka's random start. Equal images give equal placements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from data_plane.cell.changes import Assignment
from data_plane.cell.metadata import BrokerImage, MetadataImage
from data_plane.cell.reassignment import target_of

_Marks = Callable[[int], tuple[int, ...]]


def host_of(broker: BrokerImage) -> str:
    """What fails together with everything on it."""
    return broker.host_id or broker.host


def may_get_replicas(broker: BrokerImage) -> bool:
    return not broker.is_draining and not broker.in_controlled_shutdown


def is_ready(broker: BrokerImage) -> bool:
    """Whether it may get replicas and can hold them in sync now."""
    return may_get_replicas(broker) and not broker.is_fenced


class Placer:
    """Gives out replicas over `brokers`, those that may not get any left out."""

    def __init__(self, brokers: Iterable[BrokerImage], image: MetadataImage) -> None:
        self._brokers = {broker.node_id: broker for broker in brokers}
        self._candidates = [
            broker for _, broker in sorted(self._brokers.items()) if may_get_replicas(broker)
        ]
        self.replicas_count: Counter[int] = Counter()
        self.leaders_count: Counter[int] = Counter()
        # How often a broker follows another one, and how often it comes next after it.
        self._followers: Counter[tuple[int, int]] = Counter()
        self._seconds: Counter[tuple[int, int]] = Counter()
        for topic in image.topics_by_id.values():
            for partition in topic.partitions:
                self.count(target_of(partition))

    def __len__(self) -> int:
        """How many brokers there are to choose from: the largest replication factor."""
        return len(self._candidates)

    @property
    def unfenced_count(self) -> int:
        return sum(not broker.is_fenced for broker in self._candidates)

    def is_fenced(self, node_id: int) -> bool:
        return self._brokers[node_id].is_fenced

    def count(self, replicas: Sequence[int], times: int = 1) -> None:
        """Take a partition's replicas into account so many times; negative: out of it."""
        for node_id in replicas:
            self.replicas_count[node_id] += times
        self.leaders_count[replicas[0]] += times
        for follower in replicas[1:]:
            self._followers[replicas[0], follower] += times
        for second in replicas[1:2]:
            self._seconds[replicas[0], second] += times

    def place(self, replication_factor: int) -> Assignment:
        """The replicas of a new partition, counted. At most `len(self)` of them."""
        leader = self._best(self._candidates, (), self._leader_marks)
        assert leader is not None
        chosen = [leader]

        def marks(node_id: int) -> tuple[int, ...]:
            return self.replicas_count[node_id], self._followers[leader, node_id]

        for _ in range(replication_factor - 1):
            node_id = self._best(self._candidates, chosen, marks)
            assert node_id is not None
            chosen.append(node_id)
        # Which of the followers comes second decides who leads after the first.
        followers = sorted(
            chosen[1:],
            key=lambda node_id: (
                self.is_fenced(node_id),
                self._seconds[leader, node_id],
                chosen.index(node_id),
            ),
        )
        replicas = (leader, *followers)
        self.count(replicas)
        return replicas

    def replacement(
        self,
        remaining: Sequence[int],
        replaced: int | None,
        *,
        is_leader: bool,
        excluded: Collection[int] = (),
    ) -> int | None:
        """Another broker for the replica on `replaced` (None: for one more) of a partition whose
        others are on `remaining`; unfenced, and none of `excluded`. None when there is none."""
        candidates = [
            broker
            for broker in self._candidates
            if not broker.is_fenced
            and broker.node_id != replaced
            and broker.node_id not in excluded
        ]
        marks = self._leader_marks if is_leader else self._follower_marks
        return self._best(candidates, remaining, marks)

    def crowding(self, replicas: Sequence[int]) -> tuple[int, int]:
        """How many replicas share a rack, and a host, with one before them: 0 is best."""
        racks, hosts = set(), set()
        for node_id in replicas:
            broker = self._brokers.get(node_id)
            racks.add(None if broker is None else broker.rack)
            hosts.add(str(node_id) if broker is None else host_of(broker))
        return len(replicas) - len(racks), len(replicas) - len(hosts)

    def _best(
        self,
        candidates: Sequence[BrokerImage],
        others: Sequence[int],
        marks: _Marks,
    ) -> int | None:
        known = [self._brokers[node_id] for node_id in others if node_id in self._brokers]
        best: tuple[tuple[int, ...], int] | None = None
        for broker in candidates:
            node_id = broker.node_id
            if node_id in others:
                continue
            mark = (
                int(broker.is_fenced),
                sum(other.rack == broker.rack for other in known),
                sum(host_of(other) == host_of(broker) for other in known),
                *marks(node_id),
            )
            if best is None or (mark, node_id) < best:
                best = (mark, node_id)
        return None if best is None else best[1]

    def _leader_marks(self, node_id: int) -> tuple[int, ...]:
        return self.leaders_count[node_id], self.replicas_count[node_id]

    def _follower_marks(self, node_id: int) -> tuple[int, ...]:
        return (self.replicas_count[node_id],)
