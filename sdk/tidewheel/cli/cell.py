"""`tidewheel brokers`, `partitions` and `drain`: the cell, who leads what, and emptying a broker.

All three work on Metadata, so the first two are for any Kafka cluster. Draining is a property of a
Tidewheel broker (broker.drain); the cell's controller does the moving.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from tidewheel.cli.session import (
    PROGRAM,
    JsonOption,
    UrlOption,
    errors,
    fail,
    note,
    print_json,
    print_line,
    print_table,
    run,
    table,
)
from tidewheel.client import Client
from tidewheel.leaderless import explain
from tidewheel.transport.port import PartitionInfo, TopicInfo

LOOK_UP_S = 0.5
STALLED_S_DEFAULT = 120
# Topics without leaders of which it is said why.
EXPLAINED_MAX = 3


def brokers(as_json: JsonOption = False, url: UrlOption = None) -> None:
    """The cell's running brokers: addresses, what they lead, what they hold."""

    async def command(client: Client) -> None:
        cluster = await client.admin.cluster()
        topics = await client.admin.topics(internal=True)
        leads, holds, lags = Counter[int](), Counter[int](), Counter[int]()
        for _, p in _partitions_of(topics):
            leads[p.leader] += 1
            holds.update(p.replicas)
            lags.update(set(p.replicas) - set(p.in_sync_replicas))
        running = {broker.broker_id for broker in cluster.brokers}
        missing = sorted(set(holds) - running)
        if as_json:
            print_json(
                {
                    "cluster_id": cluster.cluster_id,
                    "controller": cluster.controller,
                    "brokers": [
                        {
                            "id": broker.broker_id,
                            "host": broker.host,
                            "port": broker.port,
                            "is_controller": broker.broker_id == cluster.controller,
                            "leads": leads[broker.broker_id],
                            "replicas": holds[broker.broker_id],
                            "replicas_out_of_sync": lags[broker.broker_id],
                        }
                        for broker in cluster.brokers
                    ],
                    "not_running": [{"id": i, "replicas": holds[i]} for i in missing],
                }
            )
            return
        numbers = ("LEADS", "REPLICAS", "OUT OF SYNC")
        made = table("BROKER", "ADDRESS", *numbers, "", right=frozenset({"BROKER", *numbers}))
        for broker in cluster.brokers:
            i = broker.broker_id
            role = "controller" if i == cluster.controller else ""
            figures = (f"{leads[i]:,}", f"{holds[i]:,}", f"{lags[i]:,}")
            made.add_row(str(i), f"{broker.host}:{broker.port}", *figures, role)
        for i in missing:
            made.add_row(str(i), "not running", "0", f"{holds[i]:,}", f"{lags[i]:,}", "")
        print_table(made)

    run(command, url)


def partitions(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Only of this topic.")
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="ID", help="Only with a replica there.")
    ] = None,
    troubled: Annotated[
        bool,
        typer.Option("--troubled", "-t", help="Only without leader or with replicas not in sync."),
    ] = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="The brokers' own topics too.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Partitions with leaders, replicas, and which of those are in sync."""

    async def command(client: Client) -> None:
        if topic is not None:
            topics = [await client.admin.describe_topic(topic)]
        else:
            topics = await client.admin.topics(internal=internal)
        rows = [
            (name, p)
            for name, p in _partitions_of(topics)
            if (broker is None or broker in p.replicas) and (not troubled or _trouble(p))
        ]
        if as_json:
            print_json([_as_json(name, p) for name, p in rows])
            return
        if not rows:
            print_line("No partition is in trouble." if troubled else "No partitions.")
            return
        made = table(
            *("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN SYNC", ""),
            right=frozenset({"PARTITION", "LEADER"}),
        )
        for name, p in rows:
            made.add_row(
                name,
                str(p.partition),
                str(p.leader) if p.leader >= 0 else "none",
                ",".join(map(str, p.replicas)),
                ",".join(map(str, p.in_sync_replicas)),
                _trouble(p),
            )
        print_table(made)
        await _explain_leaderless(client, rows)

    run(command, url)


async def _explain_leaderless(client: Client, rows: list[tuple[str, PartitionInfo]]) -> None:
    """Say what is wrong, once for partitions of the same brokers."""
    topics = {p.replicas: name for name, p in reversed(rows) if p.leader < 0}
    for name in sorted(set(topics.values()))[:EXPLAINED_MAX]:
        why = await explain(client.admin, name)
        if why is not None:
            note(f"{why.message}.\n  {why.hint.replace('`tidewheel ', f'`{PROGRAM} ')}")


def drain(
    broker: Annotated[int, typer.Argument(metavar="ID", help="The broker's id.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it take replicas again.")] = False,
    wait: Annotated[
        bool, typer.Option(help="Stay until it holds nothing; --no-wait returns at once.")
    ] = True,
    stalled_s: Annotated[
        int, typer.Option("--stalled", metavar="SECONDS", help="Give up after no move for so long.")
    ] = STALLED_S_DEFAULT,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Move all replicas off a broker, so that it can be taken away.

    The cell goes on serving meanwhile: each replica leaves when its replacement is in sync.
    """

    async def command(client: Client) -> None:
        if undo:
            await client.admin.set_draining(broker, False)
            _say(as_json, f"Broker {broker} may hold replicas again", broker, draining=False)
            return
        held = _held_by(broker, await client.admin.topics(internal=True))
        _refuse_without_room(
            broker, held, {b.broker_id for b in (await client.admin.cluster()).brokers}
        )
        await client.admin.set_draining(broker)
        if not wait:
            message = f"Broker {broker} is being drained of {len(held):,} replicas"
            _say(as_json, message, broker, draining=True, replicas=len(held))
            return
        await _until_empty(client, broker, stalled_s, is_quiet=as_json)
        message = f"Broker {broker} holds nothing any more and can be stopped for good"
        _say(as_json, message, broker, draining=True, replicas=0)

    run(command, url)


async def _until_empty(client: Client, broker: int, stalled_s: int, *, is_quiet: bool) -> None:
    """Wait for the last replica to leave, telling how many are left."""
    least, since = -1, time.monotonic()
    while held := _held_by(broker, await client.admin.topics(internal=True)):
        if least < 0 or len(held) < least:
            least, since = len(held), time.monotonic()
            if not is_quiet:
                errors.print(f"{least:,} left on broker {broker} …")
        if time.monotonic() - since > stalled_s:
            fail(
                f"Nothing has left broker {broker} for {stalled_s} s, and it still has {least:,} "
                "replicas",
                f"`{PROGRAM} partitions --broker {broker} --internal` shows them; "
                f"the draining goes on, and `{PROGRAM} drain {broker} --undo` ends it",
            )
        await asyncio.sleep(LOOK_UP_S)


def _refuse_without_room(
    broker: int, held: list[tuple[str, PartitionInfo]], running: set[int]
) -> None:
    """Replicas of one partition are on different brokers: too few others, and nothing can move."""
    most = max((len(p.replicas) for _, p in held), default=0)
    others = len(running - {broker})
    if most > others:
        (name, p) = next((name, p) for name, p in held if len(p.replicas) == most)
        fail(
            f"{name}-{p.partition} has {most} replicas, and without broker {broker} there are "
            f"{others} brokers for them",
            f"Add a broker first, for example `{PROGRAM} up --add`, with the --data of its stack",
        )


def _say(as_json: bool, message: str, broker: int, **fields: Any) -> None:
    if as_json:
        print_json({"broker": broker, **fields})
    else:
        print_line(message)


def _partitions_of(topics: Iterable[TopicInfo]) -> Iterator[tuple[str, PartitionInfo]]:
    return ((topic.name, partition) for topic in topics for partition in topic.partitions)


def _held_by(broker: int, topics: Iterable[TopicInfo]) -> list[tuple[str, PartitionInfo]]:
    return [(name, p) for name, p in _partitions_of(topics) if broker in p.replicas]


def _trouble(partition: PartitionInfo) -> str:
    if partition.leader < 0:
        return "no leader"
    missing = sorted(set(partition.replicas) - set(partition.in_sync_replicas))
    return f"{','.join(map(str, missing))} not in sync" if missing else ""


def _as_json(topic: str, partition: PartitionInfo) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "in_sync_replicas": list(partition.in_sync_replicas),
    }
