"""Why a topic cannot be used: partitions without a leader, in words that say what to do.

A client library goes on trying where a partition has no leader, since there will be one in a moment
when a broker has died. Where the brokers of its replicas run and there is none all the same,
nothing comes of waiting: what is to be read is on a disk that is full or has failed, and somebody
has to see to it. Which it is follows from what every client can ask for: who runs, and who leads.

`raise_if_stalled` is for programs with somebody who waits in front of them; applications go by
their delivery timeout, and `Reasons` names the cause in what they get then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from tidewheel.admin import Admin
from tidewheel.errors import BatchSendFailed, NoLeader, StorageFailed, TidewheelError
from tidewheel.sender import Sender
from tidewheel.transport.port import TopicInfo

STALLED_S: Final = 10.0
"""So long no message is acknowledged before it is asked why. After a broker's death there is a new
leader sooner."""
LOOK_S: Final = 1.0
REASON_WAIT_S: Final = 3.0
"""So long a failed message waits for what the brokers say of it."""
REASON_KEPT_S: Final = 10.0
DIRECTORIES_PROPERTY: Final = "log.dirs"

T = TypeVar("T")


def why_leaderless(
    topic: TopicInfo, running: Iterable[int], directories: Mapping[int, str]
) -> NoLeader | StorageFailed | None:
    """What keeps partitions of the topic from having a leader; None when all have one.

    `directories` are those of the running brokers, as far as they are known."""
    leaderless = [partition for partition in topic.partitions if partition.leader < 0]
    if not leaderless:
        return None
    first = leaderless[0]
    present = [broker for broker in first.replicas if broker in set(running)]
    absent = [broker for broker in first.replicas if broker not in present]
    what = f"{topic.name}[{first.partition}]"
    what += f" and {len(leaderless) - 1} more have" if len(leaderless) > 1 else " has"
    if not absent:
        disks = ", ".join(directories[broker] for broker in present if broker in directories)
        disks = f" ({disks})" if disks else ""
        if len(present) == 1:
            return StorageFailed(
                f"{what} no leader although broker {present[0]}, which has the data, runs: its "
                f"disk{disks} is full or has failed"
            )
        return StorageFailed(
            f"{what} no leader although brokers {_listed(present)}, which have the data, run: "
            f"their disks{disks} are full or have failed"
        )
    does = "brokers {} do not run" if len(absent) > 1 else "broker {} does not run"
    cause = does.format(_listed(absent))
    if present:
        cause += (
            f", and {_listed(present)} cannot lead: messages may be missing there, or the disk is "
            "full or has failed"
        )
    return NoLeader(f"{what} no leader: {cause}")


def _listed(brokers: list[int]) -> str:
    return ", ".join(map(str, brokers))


async def explain(admin: Admin, topic: str) -> NoLeader | StorageFailed | None:
    """As `why_leaderless`, by asking the brokers."""
    found = await admin.describe_topic(topic)
    leaderless = [partition for partition in found.partitions if partition.leader < 0]
    if not leaderless:
        return None
    running = {broker.broker_id for broker in (await admin.cluster()).brokers}
    asked = running.intersection(leaderless[0].replicas)
    directories = {broker: await _directories(admin, broker) for broker in sorted(asked)}
    return why_leaderless(found, running, {b: text for b, text in directories.items() if text})


async def _directories(admin: Admin, broker: int) -> str:
    """Where the broker keeps its logs; "" where it doesn't say so."""
    try:
        entries = await admin.broker_configs(broker)
    except TidewheelError:
        return ""
    values = [entry.value for entry in entries if entry.name == DIRECTORIES_PROPERTY]
    return " or ".join((values[0] or "").split(",")) if values else ""


class Reasons:
    """Why topics take no messages, for errors that come too late to wait for much more. Who asks
    while an answer is under way, or soon after, gets the same: thousands of messages fail at
    once."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._asked: dict[str, tuple[float, asyncio.Task[TidewheelError | None]]] = {}

    async def of(self, topic: str) -> TidewheelError | None:
        """What keeps partitions of `topic` from having a leader; None when nothing does, or nobody
        says so in time."""
        now_s = asyncio.get_running_loop().time()
        self._asked = {
            name: (asked_s, task)
            for name, (asked_s, task) in self._asked.items()
            if now_s - asked_s < REASON_KEPT_S
        }
        if topic not in self._asked:
            self._asked[topic] = (now_s, asyncio.ensure_future(self._ask(topic)))
        return await asyncio.shield(self._asked[topic][1])

    async def _ask(self, topic: str) -> TidewheelError | None:
        try:
            async with asyncio.timeout(REASON_WAIT_S):
                return await explain(self._admin, topic)
        except (TidewheelError, TimeoutError):
            return None


async def raise_if_stalled(
    sender: Sender, admin: Admin, topic: str, sending: Coroutine[Any, Any, T]
) -> T:
    """What `sending` returns, unless nothing is acknowledged for `STALLED_S` and partitions of the
    topic have no leader that waiting would bring. What is outstanding is dropped then.

    Raises BatchSendFailed then, and what `sending` raises."""
    task = asyncio.ensure_future(sending)
    loop = asyncio.get_running_loop()
    settled, since_s = sender.settled, loop.time()
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=LOOK_S)
            if done:
                return task.result()
            if sender.settled != settled or not sender.outstanding:
                settled, since_s = sender.settled, loop.time()
            elif loop.time() - since_s >= STALLED_S:
                since_s = loop.time()
                why = await _why_hopeless(admin, topic)
                if why is not None:
                    raise _given_up(sender, why)
    finally:
        if not task.done():
            await _end(sender, task)


async def _why_hopeless(admin: Admin, topic: str) -> StorageFailed | None:
    try:
        why = await explain(admin, topic)
    except TidewheelError:
        # Nobody answers: that the delivery timeout tells.
        return None
    return why if isinstance(why, StorageFailed) else None


def _given_up(sender: Sender, why: StorageFailed) -> BatchSendFailed:
    sent, left = sender.settled, sender.outstanding
    message = f"{left} messages were not acknowledged: {why.message}"
    return BatchSendFailed(message, sent=sent, failed=left, first_error=why)


async def _end(sender: Sender, task: asyncio.Future[Any]) -> None:
    """Drop what is outstanding, so that the task has nothing to wait for."""
    await sender.abandon()
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # Nobody else asks for it.
