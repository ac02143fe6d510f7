"""`subscriptions`: made, listed, shown, edited and deleted, at a broker that runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from tidewheel import sync

from stack.__main__ import main
from stack.broker_process import WITH_FEATURES
from stack.errors import EXIT_FAILED, EXIT_USAGE
from tests.broker_process import BrokerProcess

Run = Callable[..., str]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("subscribed"), module=WITH_FEATURES) as broker:
        with sync.Client(broker.bootstrap) as client:
            tagged = {"tidewheel.headers": True}
            client.admin.create_topic("orders", partitions=2, configs=tagged)
            client.admin.create_topic("plain", partitions=1)
        yield broker.bootstrap


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str, status: int = 0) -> str:
        assert main(["subscriptions", *words, "--url", bootstrap]) == status
        said = capsys.readouterr()
        return said.err if status else said.out

    return call


def test_a_subscription_from_its_making_to_its_end(run: Run, bootstrap: str) -> None:
    assert "No subscriptions yet" in run("list")
    assert run("list", "--json") == "[]\n"
    made = run("create", "pay", "--source", "orders", "--filter", "checkout or refund")
    assert made == "Created pay: of orders, checkout or refund\n"
    run("create", "all", "--source", "orders")
    assert run("list").splitlines() == [
        "NAME   SOURCE   FILTER",
        "all    orders",
        "pay    orders   checkout or refund",
    ]
    shown = json.loads(run("show", "pay", "--json"))
    assert (shown["filter"], shown["partitions"]) == ("checkout or refund", 4)
    assert "checkout or refund" in run("show", "pay")
    edited = json.loads(run("edit", "pay", "--filter", "region:*", "--json"))
    assert edited == {"name": "pay", "source": "orders", "filter": "region:*"}
    assert run("edit", "pay", "--filter", "") == "Changed pay: of orders, (everything)\n"
    with sync.Client(bootstrap) as client:
        assert client.admin.subscription("pay").filter == ""
    assert "add --yes" in run("delete", "pay", status=EXIT_USAGE)
    assert run("delete", "pay", "--yes") == "Deleted pay; orders has its messages as before\n"
    run("delete", "all", "-y")
    assert run("list", "--json") == "[]\n"


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("create",), EXIT_USAGE, "its name is missing"),
        (("create", "x"), EXIT_USAGE, "--source TOPIC"),
        (("create", "x", "--source", "plain"), EXIT_FAILED, "has no tags"),
        (("create", "x", "--source", "nowhere"), EXIT_FAILED, "does not exist"),
        (("create", "x", "--source", "orders", "--filter", "(a"), EXIT_FAILED, "column 1"),
        (("edit", "x"), EXIT_USAGE, "Say which filter"),
        (("edit", "x", "--filter", "a"), EXIT_FAILED, "does not exist"),
        (("show", "plain"), EXIT_FAILED, "is no subscription"),
        (("delete", "plain", "--yes"), EXIT_FAILED, "is no subscription"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Run, words: tuple[str, ...], status: int, told: str
) -> None:
    assert told in run(*words, status=status)
