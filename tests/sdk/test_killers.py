"""Handlers that kill their process: the deaths are counted, and the killer is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidewheel import App, Client, Fixed, Message, TopicPartition
from tidewheel.gate import Gate
from tidewheel.resumes import ALONE_RECORDS, DEATHS_MAX, KILLS_MAX, Resumes
from tidewheel.testing import MemoryBroker

from tests.sdk.conftest import QUICK
from tests.sdk.test_client_contract import take
from tests.sdk.test_retries import broker_with

MakeClient = Callable[..., Client]
RUNS_MAX = 60
G0 = TopicPartition("t.g", 0)


async def run_until_death(
    broker: MemoryBroker,
    killers: set[bytes],
    handled: list[bytes],
    *,
    advance_s: float = 3.0,
    concurrency: int = 16,
) -> bool:
    """One process of the app. Whether it was killed: its member is gone from the group at once,
    and nothing that it does afterwards is committed."""
    async with broker.client(consumer=QUICK) as client:
        app, running = App(client), set[bytes]()
        was_killed = False

        @app.subscriber("t", group="g", retry=Fixed("1s", attempts=3), concurrency=concurrency)
        async def handle(message: Message) -> None:
            nonlocal was_killed
            running.add(message.value)
            await client.clock.sleep(0.001)
            if message.value in killers:
                was_killed = True
                broker.drop_members("g")
                process.cancel()
                await asyncio.Event().wait()
            running.discard(message.value)
            handled.append(message.value)

        process = asyncio.create_task(app.run(handle_signals=False))
        steps = 0
        while not process.done() and steps < advance_s * 100:
            await broker.clock.advance(0.01)
            steps += 1
        app.stop()
        while not process.done():
            await broker.clock.advance(1)
        await asyncio.gather(process, return_exceptions=True)
        return was_killed


@pytest.mark.parametrize("concurrency", [1, 16])
async def test_the_killer_becomes_a_dead_letter_and_all_others_are_handled(
    concurrency: int,
) -> None:
    broker = broker_with(*(b"%d" % n for n in range(12)))
    handled: list[bytes] = []
    deaths = 0
    while await run_until_death(broker, {b"7"}, handled, concurrency=concurrency):
        deaths += 1
        assert deaths < RUNS_MAX
    (dead,) = broker.messages("t.g.dlq")
    assert dead.value == b"7"
    assert dead.header("tw-reason") == b"2 processes have died handling it alone"
    assert set(handled) == {b"%d" % n for n in range(12)} - {b"7"}
    assert deaths == DEATHS_MAX + KILLS_MAX
    assert broker.committed("g")[G0] == 12


async def test_who_ends_as_it_should_is_not_counted() -> None:
    broker = broker_with(*(b"%d" % n for n in range(3)))
    for _ in range(10):
        async with broker.client(consumer=QUICK) as client:
            app, begun = App(client), asyncio.Event()

            @app.subscriber("t", group="g", retry=Fixed("1s"), drain_timeout_s=0.1)
            async def handle(message: Message, begun: asyncio.Event = begun) -> None:
                begun.set()
                await asyncio.Event().wait()

            process = asyncio.create_task(app.run(handle_signals=False))
            while not begun.is_set():
                await broker.clock.advance(0.1)
            app.stop()
            while not process.done():
                await broker.clock.advance(0.1)
            await process
    assert broker.groups["g"].metadata[G0] == ""
    handled: list[bytes] = []
    assert not await run_until_death(broker, set(), handled)
    assert len(handled) == 3


async def test_progress_forgets_deaths() -> None:
    broker = broker_with(b"0", b"1")
    handled: list[bytes] = []
    for _ in range(DEATHS_MAX - 1):
        assert await run_until_death(broker, {b"1"}, handled)
    assert broker.groups["g"].metadata[G0] == f"tw:run:{DEATHS_MAX - 1}"
    assert not await run_until_death(broker, set(), handled)
    assert broker.groups["g"].metadata[G0] == ""
    assert "t.g.dlq" not in broker.topics


async def test_after_the_records_that_run_alone_keys_go_side_by_side_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidewheel.resumes.ALONE_RECORDS", 5)
    broker = MemoryBroker()
    broker.create_topic("t", configs={"tidewheel.headers": "true"})
    for number in range(300):
        broker.append(Message("t", 0, -1, 0, b"k%d" % (number % 20), b"%d" % number))
    handled: list[bytes] = []
    deaths = 0
    while await run_until_death(broker, {b"0"}, handled, advance_s=8):
        deaths += 1
        assert deaths < RUNS_MAX
    assert [m.value for m in broker.messages("t.g.dlq")] == [b"0"]
    first = [int(v) for v in dict.fromkeys(handled)]
    assert sorted(first) == list(range(1, 300))
    for key in range(20):
        of_key = [n for n in map(int, handled[-299:]) if n % 20 == key]
        assert all(a < b for a, b in pairwise(of_key)), "in order, also where the line ends"
    assert broker.committed("g")[G0] == 300


@settings(max_examples=200)
@given(
    killers=st.sets(st.integers(0, 30), max_size=4),
    innocent_deaths=st.lists(st.integers(1, 8).map(lambda n: 5 * n), max_size=3),
    batch=st.integers(1, 8),
    gaps=st.sets(st.integers(0, 30), max_size=10),
)
def test_only_killers_are_dead_letters_and_it_ends(
    killers: set[int], innocent_deaths: list[int], batch: int, gaps: set[int]
) -> None:
    """The pure part, with processes that run `batch` records at once and commit after each batch,
    and may also be killed by others, but not twice with the same record in hand."""
    records = [n for n in range(31) if n not in gaps]
    killers = killers & set(records)
    committed, dead, done = (0, ""), list[int](), set[int]()
    calls = 0
    for _ in range(200):
        left = [n for n in records if n >= committed[0]]
        if not left:
            break
        resumes = Resumes(committed, left[0])
        committed = (left[0], resumes.begun())
        is_killed = False
        while left and not is_killed:
            if resumes.alone_left:
                resumes.taken_alone()
                now, left = left[:1], left[1:]
                kills = resumes.kills(now[0])
                committed = (now[0], resumes.in_hand(now[0], resumes.alone_left + 1))
                if kills >= KILLS_MAX:
                    dead += now
                    now = []
            else:
                now, left = left[:batch], left[batch:]
            calls += 1
            if set(now) & killers or calls in innocent_deaths:
                is_killed = True
                break
            done.update(now)
            at = left[0] if left else 31
            committed = (at, resumes.moved(resumes.alone_left))
    else:
        pytest.fail("it does not end")
    assert set(dead) == killers
    assert done == set(records) - killers


def test_what_is_not_ours_says_nothing() -> None:
    for committed in (None, (5, ""), (5, "somebody else's"), (9, "tw:run:3")):
        resumes = Resumes(committed, 5)
        assert (resumes.alone_left, resumes.kills(5), resumes.begun()) == (0, 0, "tw:run:1")
    # The record in hand is gone: the next one is not to blame.
    assert Resumes((4, "tw:hand:2:7"), 5).kills(5) == 0
    assert Resumes((5, "tw:hand:2:7"), 5).kills(5) == 2
    assert Resumes((5, "tw:run:3"), 5).alone_left == ALONE_RECORDS


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=25))
def test_the_gate(plan: list[tuple[bool, int, bool]]) -> None:
    """Nobody is beside one that is alone, and all get through but those that are cancelled."""

    async def history() -> None:
        gate, inside, through = Gate(), list[bool](), list[int]()

        async def run(number: int, alone: bool, naps: int) -> None:
            async with gate.entered(alone=alone):
                inside.append(alone)
                assert not any(inside) or len(inside) == 1
                for _ in range(naps):
                    await asyncio.sleep(0)
                inside.remove(alone)
            through.append(number)

        tasks = []
        for number, (alone, naps, is_cancelled) in enumerate(plan):
            task = asyncio.create_task(run(number, alone, naps))
            await asyncio.sleep(0)
            # In the middle of a nap it would stay in `inside`.
            if is_cancelled and naps == 0:
                task.cancel()
            tasks.append(task)
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert set(through) >= {n for n, (_, naps, gone) in enumerate(plan) if naps or not gone}
        async with asyncio.timeout(5), gate.entered(alone=True):
            pass

    asyncio.run(history())


async def test_texts_beside_offsets_are_kept(make_client: MakeClient, name: str) -> None:
    async with make_client() as client:
        await client.admin.create_topic(name, partitions=1)
        await client.topic(name).send("1")
        consumer = client.subscribe(name, group=name, commit="manual")
        await take(consumer, 1)
        place = TopicPartition(name, 0)
        assert await consumer.committed_metadata([place]) == {}
        await consumer.commit_with({place: 1}, {place: "tw:run:2"})
        assert await consumer.committed_metadata([place]) == {place: (1, "tw:run:2")}
        await consumer.commit({place: 1})
        assert await consumer.committed_metadata([place]) == {place: (1, "")}
