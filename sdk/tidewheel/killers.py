"""Finds the message whose handler kills the process, by what resumes.py says of each partition.

Before anything of a partition is handled, the beginning of the run is committed with its first
offset. Where records run alone, each is committed as in hand before its handler is called, and as
done after that; until then nothing else runs in the process (gate.py), or its death would be put
down to the wrong one.

Invariants
- What cannot be committed is handled nevertheless. A death that is not counted costs one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from tidewheel.consumer import Consumer
from tidewheel.errors import TidewheelError
from tidewheel.message import Message, TopicPartition
from tidewheel.resumes import Resumes
from tidewheel.transport.librdkafka.connection import logger


class Line(Enum):
    """FREE: by its key, as ever. ALONE: in the line of its partition, and nothing beside it in the
    whole process. BEHIND: in that line, because records before it are, and otherwise as ever."""

    FREE = "free"
    ALONE = "alone"
    BEHIND = "behind"


class Killers:
    """What one subscriber knows of its partitions' earlier runs. `is_on` False: it looks at
    nothing, and all is as if nothing had ever died."""

    def __init__(self, consumer: Consumer, *, is_on: bool) -> None:
        self._consumer = consumer
        self._is_on = is_on
        self._resumes: dict[TopicPartition, Resumes] = {}
        # Of each partition the records that still wait to run alone, or do; and all in its line.
        self._waiting: dict[TopicPartition, int] = {}
        self._in_line: dict[TopicPartition, int] = {}

    async def begin(self, firsts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Partitions whose first messages have come, at these offsets: look up what was, and commit
        that a run begins. Returns what was committed."""
        if not self._is_on or not firsts:
            return {}
        try:
            known = await self._consumer.committed_metadata(firsts)
        except TidewheelError as error:
            logger.warning("Earlier runs are not known: %s", error)
            known = {}
        for place, offset in firsts.items():
            self._resumes[place] = Resumes(known.get(place), offset)
            if self._resumes[place].alone_left:
                logger.warning(
                    "Processes have died at %s, offset %d: its messages run one at a time now",
                    place,
                    offset,
                )
        begun = {place: self._resumes[place].begun() for place in firsts}
        return dict(firsts) if await self._commit(firsts, begun) else {}

    def place_of(self, place: TopicPartition) -> Line:
        """How the next record of this partition is handled; each ends with `done`."""
        resumes = self._resumes.get(place)
        if resumes is not None and resumes.alone_left:
            resumes.taken_alone()
            self._waiting[place] = self._waiting.get(place, 0) + 1
            line = Line.ALONE
        elif self._in_line.get(place):
            line = Line.BEHIND
        else:
            return Line.FREE
        self._in_line[place] = self._in_line.get(place, 0) + 1
        return line

    def done(self, place: TopicPartition, line: Line) -> None:
        """One of these is through."""
        if line is Line.ALONE and place in self._waiting:
            self._waiting[place] -= 1
        if line is not Line.FREE and place in self._in_line:
            self._in_line[place] -= 1

    def ending(self) -> set[TopicPartition]:
        """Partitions none of whose further records run alone, while some are still in line."""
        return {
            place
            for place, count in self._in_line.items()
            if count and not self._resumes[place].alone_left
        }

    def kills(self, message: Message) -> int:
        """How many processes have died with it in hand, alone."""
        resumes = self._resumes.get(message.topic_partition)
        return 0 if resumes is None else resumes.kills(message.offset)

    async def in_hand(self, message: Message) -> None:
        """It is about to be handled alone."""
        place = message.topic_partition
        resumes = self._resumes.get(place)
        if resumes is not None:
            metadata = resumes.in_hand(message.offset, self._left(place))
            await self._commit({place: message.offset}, {place: metadata})

    async def put_down(self, message: Message) -> None:
        """It was handled alone, has failed, and waits until it is handled again."""
        place = message.topic_partition
        resumes = self._resumes.get(place)
        if resumes is not None:
            await self._commit({place: message.offset}, {place: resumes.moved(self._left(place))})

    def moved(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """The metadata to commit with offsets further on."""
        return {
            place: self._resumes[place].moved(self._left(place))
            for place in places
            if place in self._resumes
        }

    def ended(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """The metadata to commit last."""
        return {
            place: self._resumes[place].ended(self._left(place))
            for place in places
            if place in self._resumes
        }

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """They are not ours any more."""
        for place in places:
            self._resumes.pop(place, None)
            self._waiting.pop(place, None)
            self._in_line.pop(place, None)

    def _left(self, place: TopicPartition) -> int:
        return self._resumes[place].alone_left + self._waiting.get(place, 0)

    async def _commit(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str]
    ) -> bool:
        try:
            await self._consumer.commit_with(offsets, metadata)
        except TidewheelError as error:
            logger.warning("A run is not counted: %s", error)
            return False
        return True
