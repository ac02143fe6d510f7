"""The demo's accident: one broker of the cell is killed in the middle, and comes back later.

    kill -9          the leader of partition 0, without any warning
    new leaders      when the cell has given all it led to others
    started again    with its data, as `tidewheel up --add ID` would
    in sync again    when it has copied what it missed and every ISR has it

How long producing was interrupted is the longest time between two acknowledgements of a partition,
from the kill on: seen by the producer, with all that its client library needs to find the new
leader.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidewheel import Client
from tidewheel.errors import TidewheelError
from tidewheel.interceptors import ProducerInterceptor
from tidewheel.message import Receipt

from stack.supervisor import Supervisor

LOOK_UP_S: Final = 0.1
LOOK_TIMEOUT_S: Final = 3.0
"""Whom the client asks may just have died, and it would wait for him for long."""

LEADERS_SECONDS_MAX: Final = 30.0
IN_SYNC_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class CellEvent:
    """Something that happened to the cell, `at_s` seconds after the demo's start."""

    at_s: float
    what: str


class Pulse(ProducerInterceptor):
    """Counts acknowledgements, and notes the longest time between two of a partition since
    `begin`."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self._last_s: dict[int, float] = {}
        self._longest_s: defaultdict[int, float] = defaultdict(float)

    def begin(self) -> None:
        """From now on: what was before the kill is no interruption."""
        now_s = time.perf_counter()
        self._last_s = dict.fromkeys(self._last_s, now_s)
        self._longest_s.clear()

    def on_acknowledgement(
        self, topic: str, receipt: Receipt | None, error: TidewheelError | None
    ) -> None:
        """Of each message; it has to be quick."""
        if receipt is None:
            return
        self.acknowledged += 1
        now_s, partition = time.perf_counter(), receipt.partition
        gap_s = now_s - self._last_s.get(partition, now_s)
        self._last_s[partition] = now_s
        if gap_s > self._longest_s[partition]:
            self._longest_s[partition] = gap_s

    @property
    def longest_s(self) -> float:
        """Of all partitions."""
        return max(self._longest_s.values(), default=0.0)


class Outage:
    """One broker's death and return. Its steps are called by the demo; `history` tells of them."""

    def __init__(self, supervisor: Supervisor, say: Callable[[str], None]) -> None:
        self.victim: int | None = None
        self.history: list[CellEvent] = []
        self.is_over = False
        self._supervisor = supervisor
        self._say = say
        self._started_s = time.perf_counter()

    async def kill(self, client: Client, topic: str) -> None:
        """kill -9 the leader of partition 0, and wait until the cell has other leaders."""
        victim = (await client.admin.describe_topic(topic)).partitions[0].leader
        broker = next(b for b in self._supervisor.brokers if b.broker_id == victim)
        self.victim = victim
        broker.kill_now()
        self._note(f"broker {victim} is killed (kill -9)")
        self._say(f"Broker {victim} is killed with kill -9, in the middle of it all.")
        if await self._until(client, topic, self._has_other_leaders, LEADERS_SECONDS_MAX):
            self._note("all it led has new leaders")

    async def bring_back(self, client: Client, topic: str) -> None:
        """Start it again on its data, and wait until it is in sync everywhere."""
        assert self.victim is not None, "it was killed"
        # It waits until the broker serves, which must not stop the flights.
        await asyncio.to_thread(self._supervisor.start_broker, self.victim)
        self._note(f"broker {self.victim} is started again")
        if await self._until(client, topic, self._is_in_sync, IN_SYNC_SECONDS_MAX):
            self._note(f"broker {self.victim} is in sync again")
            self.is_over = True

    def _has_other_leaders(self, leaders: list[int], _in_sync: list[set[int]]) -> bool:
        return all(leader not in (self.victim, -1) for leader in leaders)

    def _is_in_sync(self, _leaders: list[int], in_sync: list[set[int]]) -> bool:
        return all(self.victim in isr for isr in in_sync)

    async def _until(
        self,
        client: Client,
        topic: str,
        condition: Callable[[list[int], list[set[int]]], bool],
        seconds_max: float,
    ) -> bool:
        deadline_s = time.perf_counter() + seconds_max
        while time.perf_counter() < deadline_s:
            try:
                async with asyncio.timeout(LOOK_TIMEOUT_S):
                    # Any broker answers this. librdkafka sends more specific questions to the
                    # controller that it knows, and that may be the one that has just died.
                    topics = {found.name: found for found in await client.admin.topics()}
            except TimeoutError:
                continue
            except TidewheelError as error:
                if not error.retriable:
                    raise
            else:
                partitions = topics[topic].partitions if topic in topics else ()
                leaders = [p.leader for p in partitions]
                in_sync = [set(p.in_sync_replicas) for p in partitions]
                if partitions and condition(leaders, in_sync):
                    return True
            await asyncio.sleep(LOOK_UP_S)
        return False

    def _note(self, what: str) -> None:
        self.history.append(CellEvent(time.perf_counter() - self._started_s, what))
