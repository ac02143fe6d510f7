"""A cell of three brokers whose dead letters are put back, over random histories: their topic, the
subscription and another topic change their leaders apart, some hear of it later, paths are cut,
brokers start again, answers are lost; operations begin, pause, end and follow each other.

What must hold, whatever happens:
- What a committed step has planned arrives once at its target, and nothing else does.
- An operation that is done has moved all that it was about; one that was cancelled a beginning of
  it. What was redriven is passed over, unless it was asked for again.
- In the end every operation has ended, and all replicas have the same logs and know the same.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

from data_plane.broker.dead_letter_operations import (
    DeadLetterOperations,
    NotPossible,
    Selection,
    Status,
    View,
    Wanted,
    Wish,
)
from data_plane.cell.metadata import TopicImage
from data_plane.log.log import FEATURE
from data_plane.replica.partition import Partition
from data_plane.wire.kernel_types import FACTS_FLAG
from data_plane.wire.records import NewRecord, build_batch
from features.redrive.fold import Redrives
from features.redrive.operations import OPERATION_HEADER, bits_from
from tests.broker.cell_player import TOPIC, TOPIC_ID
from tests.features.faulty_cell import FaultyCell, batches_of, play_to_its_end

PAY_ID = UUID(int=50)
DEAD_ID = UUID(int=51)
ELSEWHERE_ID = UUID(int=52)
TOPICS = (PAY_ID, DEAD_ID, ELSEWHERE_ID)
CONFIGS = {"tidewheel.headers": "true", "file.delete.delay.ms": "0", "tidewheel.redrive.max": "0"}
SELECTIONS = (
    Selection(is_all=True),
    Selection(is_all=True, again=True),
    Selection(reason="odd"),
    Selection(reason="odd", again=True),
)
# Kept beyond their end by a fold; the check needs all of them.
OPERATIONS_MAX = 20
ENDED_MS = 60_000


class RedriveCell(FaultyCell):
    """One history."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, CONFIGS)
        own = self.cell.image.topics_by_id[TOPIC_ID].partitions
        pay = {"tidewheel.source": TOPIC, "file.delete.delay.ms": "0"}
        self.cell.add_topic(TopicImage("default", "pay", PAY_ID, own, pay, source_id=TOPIC_ID))
        self.cell.add_topic(TopicImage("default", "pay.dlq", DEAD_ID, own, CONFIGS))
        self.cell.add_topic(TopicImage("default", "elsewhere", ELSEWHERE_ID, own, CONFIGS))
        self.letters_count = self.elections_count = self.restarts_count = 0
        self.asked: dict[str, Wanted] = {}
        self.views: list[View] = []
        self.moved_count = 0

    def step(self) -> None:
        actions = [self.bury] * 2 + [self.begin] * 3 + [self.wish] * 2
        actions += [self.deliver] * 14 + [self.work] * 14 + [self.pass_time] * 8
        actions += [self.elect] * 2 + [self.tell] * 2 + [self.heal] * 2 + [self.cut, self.restart]
        self.rng.choice(actions)()

    def leading(self, topic_id: UUID = DEAD_ID) -> list[int]:
        """Those that take themselves for the leader of its partition."""
        return [one for one in self.cell.brokers if self.replica(one, topic_id).is_leader]

    def replica(self, node_id: int, topic_id: UUID = DEAD_ID) -> Partition:
        return self.cell.replica(node_id, topic_id=topic_id)

    def operations(self, node_id: int) -> DeadLetterOperations:
        found = self.cell.brokers[node_id].services.dead_letter_operations
        assert found is not None
        return found

    # What is done

    def bury(self) -> None:
        """Dead letters arrive; whoever takes itself for the leader stores them."""
        for node_id in self.leading():
            records = [self.letter() for _ in range(self.rng.randrange(1, 6))]
            batch = build_batch(records, compression=self.rng.choice([0, 4]), attributes=FACTS_FLAG)
            partition = self.replica(node_id)
            partition.append_as_leader(batch, 0, len(batch), now_ms=self.now_ms, origin=FEATURE)

    def letter(self) -> NewRecord:
        number = self.letters_count
        self.letters_count += 1
        headers = (
            (b"tw-source", b"orders/0/%d" % number),
            (b"tw-attempt", b"3"),
            (b"tw-produced-at", b"1"),
            (b"tw-first-failed-at", b"2"),
            (b"tw-reason", b"odd" if number % 2 else b"even"),
            (b"tw-dead", b"%s/0/0/%d" % (PAY_ID.hex.encode(), number)),
        )
        return NewRecord(self.now_ms, None, b"%d" % number, headers)

    def begin(self) -> None:
        """A new operation, or one that was asked for before."""
        leaders = self.leading()
        if not leaders:
            return
        if self.asked and (len(self.asked) >= OPERATIONS_MAX or self.rng.random() < 0.3):
            wanted = self.asked[self.rng.choice(list(self.asked))]
        else:
            is_purge = self.rng.random() < 0.15
            target = "" if is_purge else self.rng.choice(["", "elsewhere"])
            rate_max = self.rng.choice([0, 0, 20, 200])
            selection = self.rng.choice(SELECTIONS)
            name = f"{len(self.asked)}"
            wanted = Wanted(name, is_purge, selection, target, rate_max, "User:me")
        node_id = self.rng.choice(leaders)
        with suppress(NotPossible):
            self.operations(node_id).begin(
                self.replica(node_id), wanted, self.now_ms, lambda *_: None
            )
            self.asked[wanted.id] = wanted

    def wish(self) -> None:
        leaders = self.leading()
        if leaders and self.asked:
            wishes = [Wish.RUN] * 4 + [Wish.PAUSE] * 2 + [Wish.CANCEL]
            self.say(self.rng.choice(leaders), self.rng.choice(wishes))

    def say(self, node_id: int, wish: Wish) -> None:
        fold = self.replica(node_id).log.fold(Redrives)
        if fold.active is not None:
            with suppress(NotPossible):
                self.operations(node_id).change(
                    self.replica(node_id), fold.active.order.id, wish, self.now_ms, lambda *_: None
                )

    # What goes wrong

    def elect(self) -> None:
        self.elections_count += 1
        told = [one for one in self.cell.brokers if self.rng.random() < 0.6]
        leader = self.rng.choice(list(self.cell.brokers))
        self.cell.change(topic_id=self.rng.choice(TOPICS), leader=leader, only=told)

    def restart(self) -> None:
        if self.rng.random() < 0.5:
            return
        node_id = self.rng.choice(list(self.cell.brokers))
        topics = self.cell.image.topics_by_id
        led = [one for one, topic in topics.items() if topic.partitions[0].leader == node_id]
        self.cell.restart(node_id, is_clean=self.rng.random() < 0.3)
        self.restarts_count += 1
        for topic_id in led:
            self.cell.change(topic_id=topic_id, leader=self.rng.choice(list(self.cell.brokers)))

    # The end

    def settle(self) -> None:
        super().settle()
        (leader,) = self.leading()
        end_ms = self.now_ms + ENDED_MS
        while self.replica(leader).log.fold(Redrives).active is not None:
            assert self.now_ms < end_ms, self.replica(leader).log.fold(Redrives).active
            self.say(leader, Wish.RUN)
            self.cell.run(500)
        self.cell.run(500)

    def check(self) -> None:
        logs = {topic_id: self.log_of(topic_id) for topic_id in TOPICS}
        (leader,) = self.leading()
        self.views = self.operations(leader).listed(self.replica(leader))
        planned, done = self.story(logs[DEAD_ID])
        found: Counter[tuple[str, bytes]] = Counter()
        for topic_id in (PAY_ID, ELSEWHERE_ID):
            for record in logs[topic_id]:
                found[topic_id.hex, dict(record.headers)[b"tw-dead"]] += 1
        assert found == planned, "moved otherwise than planned"
        self.moved_count = found.total()
        for node_id in self.cell.brokers:
            fold = self.replica(node_id).log.fold(Redrives)
            assert fold.redriven.within(0, 100_000) == sorted(done["redriven"])
            assert fold.purged.within(0, 100_000) == sorted(done["purged"])

    def log_of(self, topic_id: UUID) -> list[Any]:
        """All records, with their batches' leader epochs in the place of timestamps."""
        logs = []
        for node_id in self.cell.brokers:
            log = self.replica(node_id, topic_id).log
            log.load()
            logs.append(
                [
                    record._replace(timestamp=header.partition_leader_epoch)
                    for header, records in batches_of(log, log.log_start_offset)
                    for record in records
                ]
            )
        assert all(log == logs[0] for log in logs), "replicas differ"
        return logs[0]

    def story(self, log: list[Any]) -> tuple[Counter[tuple[str, bytes]], dict[str, set[int]]]:
        """What was planned, by target and what it says there; and what has become of letters."""
        planned: Counter[tuple[str, bytes]] = Counter()
        letters: dict[int, int] = {}
        done: dict[str, set[int]] = {"redriven": set(), "purged": set()}
        active: dict[str, Any] | None = None
        for record in log:
            if OPERATION_HEADER not in dict(record.headers):
                letters[record.offset] = int(record.value)
                continue
            said = json.loads(record.value)
            if said["say"] == "begin":
                assert active is None, "two at a time"
                active = {"id": said["order"]["id"], "number": (record.timestamp, record.offset)}
                wanted = self.asked[active["id"]]
                active["chosen"] = [
                    offset
                    for offset, number in letters.items()
                    if offset < said["order"]["end_offset"]
                    and offset not in done["purged"]
                    and (wanted.selection.again or offset not in done["redriven"])
                    and (not wanted.selection.reason or number % 2)
                ]
                active["moved"] = []
            elif said["say"] == "step":
                assert active is not None
                assert said["id"] == active["id"]
                assert not said["void"]
                bits = said.get("plan") or said.get("purged")
                offsets = bits_from(bits).offsets() if bits else []
                active["moved"] += offsets
                done["purged" if "purged" in said else "redriven"].update(offsets)
                for offset in offsets if "plan" in said else ():
                    place = "/".join(map(str, (DEAD_ID.hex, 0, *active["number"], offset)))
                    planned[said["plan"]["topic"], place.encode()] += 1
                if said["ended"]:
                    whole, moved = active["chosen"], active["moved"]
                    is_done = said["ended"] == Status.DONE.value
                    assert moved == (whole if is_done else whole[: len(moved)]), active
                    active = None
        assert active is None, "one goes on for ever"
        return planned, done


def play(seed: int, steps: int = 500) -> RedriveCell:
    """A history, to its end. Raises AssertionError."""
    return play_to_its_end(RedriveCell(seed), steps)
