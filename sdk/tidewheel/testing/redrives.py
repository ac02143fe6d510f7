"""Dead letters of a broker in memory that are put back, or purged: at once, by the rules of a cell.

    redrive("orders.pay", reason="timeout")    those in orders.pay.dlq, to orders.pay
    tw-redriven: 1                             how often; tw-attempt begins again at 1

What was redriven before is passed over unless `again` asks for it, what was purged always is, and a
letter that was redriven too often (`tidewheel.redrive.max`) stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tidewheel.dead_letters import FAILED_HEADER, Wanted, dead_letter_of
from tidewheel.errors import InvalidRequest
from tidewheel.filters import Filter, InvalidFilter
from tidewheel.message import ATTEMPT_HEADER, Message, TopicPartition
from tidewheel.nacks import CONSUMER_HEADER, EXCEPTION_HEADER, REASON_HEADER
from tidewheel.retry_policy import DEAD_LETTERS_SUFFIX
from tidewheel.subscriptions import HEADERS_PROPERTY
from tidewheel.testing.retries import DEAD_HEADER
from tidewheel.testing.topics import MemorySubscription, MemoryTopic

if TYPE_CHECKING:
    from tidewheel.testing.memory import MemoryBroker

LIMIT_PROPERTY: Final = "tidewheel.redrive.max"
LIMIT_DEFAULT: Final = 5
REDRIVEN_HEADER: Final = "tw-redriven"
_TAKEN_OFF: Final = frozenset(
    {
        DEAD_HEADER,
        ATTEMPT_HEADER,
        FAILED_HEADER,
        REASON_HEADER,
        EXCEPTION_HEADER,
        CONSUMER_HEADER,
        REDRIVEN_HEADER,
    }
)


class Moved(NamedTuple):
    """How many letters were redriven or purged, and how many of those that matched stay: they were
    redriven too often, or came from no subscription that is there."""

    moved: int
    over_limit: int = 0
    no_origin: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """Which dead letters: all conditions that are given hold. `reason` is a part of it, `exception`
    a class, with its module or without; `places` are partitions and offsets."""

    filter: str = ""
    reason: str = ""
    exception: str = ""
    ids: Collection[str] = ()
    places: Collection[tuple[int, int]] = ()
    all: bool = False
    again: bool = False

    def check(self) -> None:
        """Raises InvalidRequest for what says nothing, or too much."""
        given = [self.filter, self.reason, self.exception, self.ids, self.places]
        if not self.all and not any(given):
            raise InvalidRequest("The selection is empty, which means nothing: all=True is all")
        if self.all and any(given):
            raise InvalidRequest("all, and conditions: give one or the other")

    def choose(self, messages: list[Message]) -> Iterator[Message]:
        """Those of a topic's. Raises InvalidRequest."""
        try:
            wanted = Filter(self.filter) if self.filter else None
        except InvalidFilter as error:
            raise InvalidRequest(error.message) from error
        said = Wanted(self.reason, self.exception)
        for message in messages:
            dead = dead_letter_of(message)
            says = said == Wanted() or (dead is not None and said.matches(dead))
            is_there = not self.places or (message.partition, message.offset) in self.places
            has_id = not self.ids or (message.header("tw-id") or b"").decode() in self.ids
            is_tagged = wanted is None or wanted.matches(message.tags)
            if says and is_there and has_id and is_tagged:
                yield message


class MemoryRedrives:
    """What was redriven and purged of a broker's dead letters."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._redriven: set[tuple[TopicPartition, int]] = set()
        self._purged: set[tuple[TopicPartition, int]] = set()

    def redrive(self, name: str, letters: Letters, to: str) -> Moved:
        """See MemoryBroker."""
        letters.check()
        topic = self._topic(name)
        target = self._target(topic, to) if to else None
        moved = over_limit = no_origin = 0
        for letter in list(letters.choose(self._broker.messages(topic.name))):
            place = letter.topic_partition, letter.offset
            if place in self._purged or (place in self._redriven and not letters.again):
                continue
            origin = self._origin(letter) if target is None else None
            if target is None and origin is None:
                no_origin += 1
                continue
            count = _redriven_count(letter)
            limit = _limit_of(topic, *([] if origin is None else [origin[0]]))
            if 0 < limit <= count:
                over_limit += 1
                continue
            self._move(letter, origin, target, count + 1)
            self._redriven.add(place)
            moved += 1
        self._broker.wake()
        return Moved(moved, over_limit, no_origin)

    def purge(self, name: str, letters: Letters) -> Moved:
        """See MemoryBroker."""
        letters.check()
        topic = self._topic(name)
        places = {
            (letter.topic_partition, letter.offset)
            for letter in letters.choose(self._broker.messages(topic.name))
        }
        places -= self._purged
        if not letters.again:
            places -= self._redriven
        self._purged |= places
        return Moved(len(places))

    def _move(
        self,
        letter: Message,
        origin: tuple[MemorySubscription, int] | None,
        target: MemoryTopic | None,
        count: int,
    ) -> None:
        headers = [one for one in letter.headers if one[0] not in _TAKEN_OFF]
        if origin is not None:
            headers.append((ATTEMPT_HEADER, b"1"))
        headers.append((REDRIVEN_HEADER, b"%d" % count))
        back = Message(
            "", 0, -1, self._broker.clock.now_ms(), letter.key, letter.value, tuple(headers)
        )
        if origin is not None:
            subscription, pair = origin
            subscription.take_back(pair, back)
        elif target is not None:
            back.topic = target.name
            back.partition = letter.partition % target.partitions_count
            self._broker.append(back)

    def _topic(self, name: str) -> MemoryTopic:
        """The dead-letter topic of a subscription, or the topic itself. Raises TopicNotFound."""
        topic = self._broker.topic(name)
        if isinstance(topic, MemorySubscription):
            topic = self._broker.topic(topic.policy.dead_letters or name + DEAD_LETTERS_SUFFIX)
        return self._broker.log_of(topic)

    def _target(self, topic: MemoryTopic, name: str) -> MemoryTopic:
        target = self._broker.log_of(self._broker.topic(name))
        if target is topic:
            raise InvalidRequest(f"{name} is the topic that they are in")
        if target.configs.get(HEADERS_PROPERTY, "").lower() != "true":
            words = f"topic {name} takes no dead letters: {HEADERS_PROPERTY} is not true"
            raise InvalidRequest(words)
        return target

    def _origin(self, letter: Message) -> tuple[MemorySubscription, int] | None:
        """The subscription that it came from, and which partition pair of it."""
        name, _, rest = (letter.header(DEAD_HEADER) or b"").decode().partition("/")
        found = self._broker.topics.get(name)
        pair = rest.partition("/")[0]
        if not isinstance(found, MemorySubscription) or not pair.isdigit():
            return None
        return found, int(pair)


def _redriven_count(letter: Message) -> int:
    value = letter.header(REDRIVEN_HEADER) or b""
    return int(value) if value.isdigit() and len(value) < 10 else 0


def _limit_of(*topics: MemoryTopic | MemorySubscription) -> int:
    """What the first of these says that says anything, or the default."""
    said = (topic.configs.get(LIMIT_PROPERTY, "") for topic in topics)
    return next((int(one) for one in said if one.isdigit()), LIMIT_DEFAULT)
