"""Two cells with tenants in both; one hangs or is killed. Tenants of the other one notice nothing:
REST answers them, what they declare is told, their clients are served.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache

from control_plane.access.logic import do_create_key
from control_plane.cells.models import Cell, Placement
from control_plane.messaging.models import Topic
from control_plane.operations.models import OutboxEntry
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.control_plane.cells import CellProcess, KafkaClient, manager_of, trusted
from tests.control_plane.processes import ControlPlaneProcesses
from tests.control_plane.rest import at, client_of, client_with, post
from tests.control_plane.tenants import Tenant, make_tenant
from tests.control_plane.test_faults_of_processes import wait_until_settled

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

TENANTS = 6
ROUNDS = 6
# From what is declared until it is there, for tenants of a cell that answers. The aim is 5 s for
# all that a new tenant needs; the rest is the machine's.
READY_SECONDS_MAX = 10.0
REST_SECONDS_MAX = 5.0
BACK_SECONDS_MAX = 60.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def processes(tmp_path: Path, authority: Authority) -> Iterator[dict[str, CellProcess]]:
    with (
        CellProcess(tmp_path / "one", authority, "one", "features") as one,
        CellProcess(tmp_path / "two", authority, "two", "features") as two,
    ):
        yield {"one": one, "two": two}


@pytest.fixture
def cells(
    processes: dict[str, CellProcess], authority: Authority, settings: Any
) -> dict[str, Cell]:
    trusted(settings, authority.issue("control-plane", "DNS:control-plane"))
    cache.clear()
    return {name: process.row(name) for name, process in processes.items()}


class Placed:
    """A tenant, where it is, a client of REST and one of Kafka."""

    def __init__(self, slug: str, processes: dict[str, CellProcess]) -> None:
        self.tenant: Tenant = make_tenant(slug)
        self.cell = Placement.objects.of(self.tenant.id).get().cell.name
        account, key, secret = manager_of(self.tenant)
        _, self.secret = do_create_key(
            *(self.tenant.actor, self.tenant.id, account.id, "owner"), scopes=("kafka", "rest")
        )
        # A viewer by default, which sends nothing by REST.
        account.role = "developer"
        account.save()
        self.owner = client_of(self.tenant.owner)
        self.rest = client_with(self.secret)
        self.kafka: KafkaClient = processes[self.cell].client(self.tenant, key, secret)

    def declare(self, name: str) -> Any:
        return post(self.owner, at(self.tenant, "topics"), {"name": name})

    def state_of(self, topic_id: str) -> str:
        shown = self.owner.get(at(self.tenant, f"topics/{topic_id}")).json()
        state: str = shown["status"]["state"]
        return state

    def send(self, topic_id: str, text: str) -> Any:
        body = {"partition": 0, "messages": [{"value": {"text": text}}]}
        return post(self.rest, at(self.tenant, f"topics/{topic_id}/messages"), body)

    def texts(self, topic_id: str) -> list[str]:
        address = at(self.tenant, f"topics/{topic_id}/messages")
        items = self.rest.get(address, {"partition": 0}).json()["items"]
        return [item["value"]["text"] for item in items]


@contextmanager
def hanging(process: CellProcess) -> Iterator[None]:
    os.kill(process.broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.broker.pid, signal.SIGCONT)


@contextmanager
def killed(process: CellProcess) -> Iterator[None]:
    process.broker.kill9()
    yield
    process.broker.start()


def in_time(seconds_max: float, ask: Callable[[], Any]) -> Any:
    began_s = time.monotonic()
    answer = ask()
    took_s = time.monotonic() - began_s
    assert took_s <= seconds_max, f"{took_s:.1f} s"
    return answer


def goes_on(placed: Placed, name: str) -> None:
    """A topic is declared, is there, and takes and shows messages: by REST and by Kafka."""
    made = in_time(REST_SECONDS_MAX, lambda: placed.declare(name))
    assert made.status_code == 201, made.content
    topic_id = made.json()["id"]
    deadline_s = time.monotonic() + READY_SECONDS_MAX
    while placed.state_of(topic_id) != "ready":
        assert time.monotonic() < deadline_s, "the reconciler is held up"
        time.sleep(0.1)
    sent = in_time(REST_SECONDS_MAX, lambda: placed.send(topic_id, "by REST"))
    assert sent.status_code == 201, sent.content
    assert placed.kafka.produce(name, b"by Kafka") == ""
    shown = in_time(REST_SECONDS_MAX, lambda: placed.texts(topic_id))
    assert shown == ["by REST", "by Kafka"]
    for what in ("usage", "quota", "topics", "groups"):
        answer = in_time(REST_SECONDS_MAX, partial(placed.rest.get, at(placed.tenant, what)))
        assert answer.status_code == 200, (what, answer.content)


@pytest.mark.parametrize("fault", [hanging, killed], ids=["hangs", "is killed"])
def test_one_cell_is_down_and_the_other_goes_on(
    cells: dict[str, Cell], processes: dict[str, CellProcess], tmp_path: Path, fault: Any
) -> None:
    with ControlPlaneProcesses(tmp_path, workers=1) as running:
        running.wait_ready(*running.workers)
        placed = [Placed(f"tenant-{number}", processes) for number in range(TENANTS)]
        wait_until_settled([each.tenant for each in placed])
        down = [each for each in placed if each.cell == "one"]
        living = [each for each in placed if each.cell == "two"]
        assert len(down) == len(living) == TENANTS // 2
        for each in placed:
            goes_on(each, "before")
        with fault(processes["one"]):
            for number in range(ROUNDS):
                # Each of them wants more of the cell that does not answer, ahead of the others.
                wanted = [each.declare(f"wanted-{number}") for each in down]
                assert {answer.status_code for answer in wanted} == {201}
                goes_on(living[number % len(living)], f"meanwhile-{number}")
            before = Topic.objects.of(down[0].tenant.id).get(name="before")
            refused = down[0].send(before.id, "lost")
            assert (refused.status_code, refused.json()["code"]) in (
                (503, "cell-unavailable"),
                (503, "outcome-unknown"),
            )
            assert down[0].owner.get(at(down[0].tenant, "topics")).status_code == 200
            assert all(
                OutboxEntry.objects.of(each.tenant.id).filter(done_at=None).exists()
                for each in down
            )
        wait_until_settled([each.tenant for each in placed], BACK_SECONDS_MAX)
        for each in placed:
            states = Topic.objects.of(each.tenant.id).values_list("status", flat=True)
            assert set(states) == {"ready"}
            goes_on(each, "afterwards")
        assert not running.ended(), running.ended()
