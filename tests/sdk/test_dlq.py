"""`tidewheel dlq`: reading dead-letter topics, on a real broker, and what is wanted of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from tidewheel import Exponential, Message, sync
from tidewheel.cli.main import app
from tidewheel.dead_letters import Wanted, dead_letter_of, topic_of
from tidewheel.testing import MemoryBroker
from typer.testing import CliRunner, Result

from tests.sdk.test_retries import broker_with

Run = Callable[..., Result]
SOURCE = "orders"


@pytest.fixture
def run(bootstrap: str) -> Run:
    """The command line against the broker."""
    return lambda *arguments: CliRunner().invoke(
        app, ["dlq", *arguments], env={"TIDEWHEEL_URL": bootstrap}
    )


def headers_of(number: int) -> list[tuple[str, str]]:
    """As a broker writes them, for the dead letter of this number."""
    return [
        ("trace", "ab"),
        ("tw-source", f"{SOURCE}/{number % 2}/{100 + number}"),
        ("tw-attempt", str(3 if number % 3 else 1)),
        ("tw-produced-at", "1750000000000"),
        ("tw-first-failed-at", "1750000001000"),
        ("tw-failed-at", f"{1750000010000 + number}"),
        ("tw-reason", "the bank\nis closed" if number % 2 else "timeout"),
        ("tw-exception", "app.BankError" if number % 2 else "TimeoutError"),
        ("tw-consumer", "me"),
    ]


@pytest.fixture(scope="module")
def dlq(bootstrap: str) -> Iterator[str]:
    """Six dead letters and a stranger."""
    name = "orders.pay.dlq"
    with sync.Client(bootstrap) as client:
        client.admin.create_topic(name, partitions=2)
        for number in range(6):
            client.topic(name).send(
                f"order {number}", key="k", partition=number % 2, headers=headers_of(number)
            )
        client.topic(name).send("a stranger", partition=0)
        yield name
        client.admin.delete_topic(name)


def read(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_all_of_them_with_their_stories(run: Run, dlq: str) -> None:
    listed = run("list", dlq)
    assert listed.exit_code == 0, listed.output
    assert "orders/1/105" in listed.stdout
    assert "the bank\\nis closed" in listed.stdout, "nothing that moves the cursor"
    assert "that are not dead letters: 1" in listed.stderr
    found = sorted(read(run("list", dlq, "--json")), key=lambda one: str(one["origin"]))
    assert [one["origin"] for one in found] == [
        f"orders/{n % 2}/{100 + n}" for n in (0, 2, 4, 1, 3, 5)
    ]
    assert found[3] | {"offset": 0} == {
        "topic": dlq,
        "partition": 1,
        "offset": 0,
        "origin": "orders/1/101",
        "attempts": 3,
        "reason": "the bank\nis closed",
        "exception": "app.BankError",
        "consumer": "me",
        "produced_at_ms": 1750000000000,
        "first_failed_at_ms": 1750000001000,
        "failed_at_ms": 1750000010001,
        "key": "k",
        "value": "order 1",
        "headers": [list(pair) for pair in headers_of(1)],
    }


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--reason", "BANK"], [1, 3, 5]),
        (["--exception", "BankError"], [1, 3, 5]),
        (["--exception", "app.BankError", "--attempts", "3"], [1, 5]),
        (["--exception", "Bank"], []),
        (["--attempts", "1"], [0, 3]),
        (["--origin", "orders"], [0, 1, 2, 3, 4, 5]),
        (["--origin", "orders/0"], [0, 2, 4]),
        (["--origin", "orders/0/104"], [4]),
        (["--origin", "ord"], []),
        (["--origin", "orders/1", "--reason", "timeout"], []),
        (["--from", "end"], []),
    ],
)
def test_only_what_is_wanted(run: Run, dlq: str, options: list[str], numbers: list[int]) -> None:
    found = read(run("list", dlq, "--json", *options))
    assert sorted(str(one["value"]) for one in found) == [f"order {n}" for n in numbers]


def test_counts(run: Run, dlq: str) -> None:
    assert len(read(run("list", dlq, "--json", "--count", "4"))) == 4
    assert read(run("list", dlq, "--by", "attempts", "--json")) == [
        {"attempts": "3", "count": 4},
        {"attempts": "1", "count": 2},
    ]
    by_origin = run("list", dlq, "--by", "origin", "--exception", "TimeoutError")
    assert by_origin.stdout.split() == ["COUNT", "ORIGIN", "3", "orders/0"]


def test_one_of_them(run: Run, dlq: str) -> None:
    shown = run("show", dlq, "1:1")
    assert shown.exit_code == 0, shown.output
    for text in ("orders/1/103", "the bank\\nis closed", "app.BankError", "trace=ab", "order 3"):
        assert text in shown.stdout
    for place, says in (
        ("0:3", "no dead letter at 0:3"),  # The stranger.
        ("1:99", "no dead letter at 1:99"),
        ("7:0", "has no partition 7"),
        ("one", "PARTITION:OFFSET"),
    ):
        refused = run("show", dlq, place)
        assert refused.exit_code == 2, refused.output
        assert says in refused.stderr


def test_a_subscription_stands_for_its_dead_letters(run: Run, bootstrap: str, name: str) -> None:
    with sync.Client(bootstrap) as client:
        client.admin.create_topic(name, partitions=1, configs={"tidewheel.headers": True})
        client.admin.create_subscription(f"{name}.pay", name)
        none_yet = run("list", f"{name}.pay")
        assert none_yet.exit_code == 0, none_yet.output
        assert "made with the first one" in none_yet.stderr
        client.admin.create_topic(f"{name}.pay.dlq", partitions=1)
        client.topic(f"{name}.pay.dlq").send("order 2", headers=headers_of(2))
        assert len(read(run("list", f"{name}.pay", "--json"))) == 1
        none_match = run("list", f"{name}.pay", "--exception", "Nobody")
        assert "No dead letters match." in none_match.stdout
        named = {"tidewheel.source": name, "tidewheel.dlq.topic": f"{name}.missing"}
        client.admin.create_topic(f"{name}.lost", configs=named)
        lost = run("list", f"{name}.lost")
        assert lost.exit_code == 0, lost.output
        assert "is not made by itself" in lost.stderr
    missing = run("list", f"{name}.nobody.made.it")
    assert missing.exit_code == 1
    assert "does not exist" in missing.stderr


async def test_the_policy_names_the_topic() -> None:
    broker = broker_with(b"1")
    async with broker.client() as client:
        named = Exponential("5s", dead_letters="all.dead")
        await client.admin.create_subscription("t.a", "t", retry=named)
        await client.admin.create_subscription("t.b", "t")
        assert await topic_of(client.admin, "t.a") == "all.dead"
        assert await topic_of(client.admin, "t.b") == "t.b.dlq"
        assert await topic_of(client.admin, "t") == "t"


async def test_what_the_memory_broker_writes_is_read() -> None:
    broker: MemoryBroker = broker_with(b"1")
    async with broker.client() as client:
        await client.admin.create_subscription("t.g", "t")
        consumer = client.subscribe("t.g")
        message = await anext(consumer)
        await consumer.dead_letter(message, "of no use", error=ValueError("x"))
    (stored,) = broker.messages("t.g.dlq")
    dead = dead_letter_of(stored)
    assert dead is not None
    assert (dead.origin, dead.attempts, dead.reason) == ("t/0/0", 1, "of no use")
    assert (dead.exception, dead.consumer) == ("ValueError", "tidewheel")
    assert dead.produced_at_ms == message.timestamp_ms
    assert dead.first_failed_at_ms == dead.failed_at_ms == broker.clock.now_ms()
    assert Wanted(reason="USE", origin="t/0", attempts=1).matches(dead)


def test_headers_of_others_are_no_story() -> None:
    for headers in (
        (),
        (("tw-source", b"orders/0/1"),),
        (("tw-source", b"nonsense"), ("tw-attempt", b"3")),
        (("tw-source", None), ("tw-attempt", b"3")),
        (("tw-source", b"o/0/" + b"1" * 5_000), ("tw-attempt", b"3")),
    ):
        assert dead_letter_of(Message("t", 0, 0, 0, None, None, headers)) is None
    for attempt, time in ((b"x", b"soon"), (b"9" * 5_000, b"9" * 15)):
        odd = (
            ("tw-source", b"o/0/1"),
            ("tw-attempt", attempt),
            ("tw-failed-at", time),
            ("tw-produced-at", time),
        )
        message = Message("t", 0, 0, 0, None, None, odd)
        dead = dead_letter_of(message)
        assert dead is not None
        assert (dead.attempts, dead.failed_at_ms, dead.reason) == (1, None, "")
        assert message.produced_at is None
