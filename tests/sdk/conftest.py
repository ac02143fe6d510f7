"""Async tests, and the brokers they run on: one in memory, one process of ours.

TIDEWHEEL_TEST_BOOTSTRAP runs the broker tests on other brokers, e.g. Apache Kafka.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from tidewheel import Client, ClientSettings, ConsumerSettings
from tidewheel.testing import MemoryBroker, VirtualClock

from stack.broker_process import WITH_FEATURES
from tests.broker_process import BrokerProcess

TEST_TIMEOUT_S = 60.0

QUICK = ConsumerSettings(
    session_timeout_ms=6_000, heartbeat_interval_ms=200, commit_interval_ms=200, fetch_wait_ms=50
)


async def until(condition: Callable[[], Awaitable[bool] | bool]) -> None:
    """Wait for a condition; the test's time-out bounds it."""
    while True:
        result = condition()
        if await result if inspect.isawaitable(result) else result:
            return
        await asyncio.sleep(0.02)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests on a loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run() -> None:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await pyfuncitem.obj(**arguments)

    asyncio.run(run())
    return True


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker."""
    given = os.environ.get("TIDEWHEEL_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    properties = {
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
    }
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, set=properties, module=WITH_FEATURES) as broker:
        yield broker.bootstrap


@pytest.fixture(params=["memory", "broker"])
def make_client(request: pytest.FixtureRequest) -> Callable[..., Client]:
    """Makes clients of one broker; every test runs on both transports."""
    if request.param == "memory":
        # Waits are short here, and what is due in an hour is not to come.
        broker = MemoryBroker(VirtualClock(autojump=True, jump_s_max=300))
        return lambda **arguments: broker.client(**{"consumer": QUICK, **arguments})
    address = request.getfixturevalue("bootstrap")

    def make(**arguments: Any) -> Client:
        settings = ClientSettings(request_timeout_ms=10_000)
        return Client(address, **{"settings": settings, "consumer": QUICK, **arguments})

    return make


@pytest.fixture
def name() -> str:
    """A topic or group name nobody else uses."""
    return f"t{uuid4().hex[:10]}"
