"""`./tidewheel bench control-plane`: the stack with its control plane, as one person starts it.

    up          until it serves: in an empty folder, and again in the one that it has made
    idle        what all of its processes have in memory, shared pages counted once (Pss)
    tenant      from signing up over REST until the first message is acknowledged
    apply       1,000 topics that were declared while the worker stood still, until all are ready
    rest        requests at 50 a second for a tenant with these topics, from when each was due
    pages       10,000 topics, a hundred at a time: the last ten pages beside the first ten

Nothing here passes or fails.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import psycopg
from confluent_kafka import Producer
from tidewheel.rest import Rest

from benchmarks.process_figures import tree_resident_bytes
from benchmarks.side_by_side import ROOT, Marks, benchmark_folder, write_document
from stack.control_plane import DATABASE, FIRST_PERSON, first_password
from stack.demo.tenants import LOG_IN, SIGN_UP, DemoTenant, make_tenant
from stack.folder import StackFolder, StackState
from stack.help import CommandParser, write_any_text
from stack.listeners import SASL
from stack.postgres import PostgresServer
from stack.requests import SERVER, WORKER

MARKS = Marks("<!-- control plane table: begin -->", "<!-- control plane table: end -->")
HEAD = "| figure | unit | Tidewheel | wanted |\n|---|---|---|---|"
TOPIC: Final = "orders"
PASSWORD: Final = "only for a benchmark"
TENANTS: Final = 5
TOPICS: Final = 1_000
PAGED_TOPICS: Final = 10_000
PAGE: Final = 100
ENDS: Final = 10
REQUESTS_PER_S: Final = 50
REQUESTS_S: Final = 30.0
THREADS: Final = 16
SETTLE_S: Final = 20.0
SECONDS_MAX: Final = 300.0
ROOM: Final = {"topics": 20_000, "partitions": 20_000}
# Rows that nobody is told of: as if a cell had refused them.
MORE_TOPICS = """
INSERT INTO messaging_topic
SELECT (jsonb_populate_record(one, jsonb_build_object(
    'id', 'top_' || lpad(number::text, 26, '0'), 'name', 'paged-' || number, 'status', 'failed',
    'kafka_topic_id', NULL
))).* FROM messaging_topic one, generate_series(1, %s) number WHERE one.id = %s
"""


class Stack:
    """One in a folder, as `./tidewheel up` has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.folder = StackFolder(path)

    def up(self) -> float:
        """Seconds until it serves."""
        began_s = time.perf_counter()
        self._run("up", "--port", "0", "--detach")
        return time.perf_counter() - began_s

    def down(self) -> None:
        self._run("down")

    def _run(self, command: str, *options: str) -> None:
        words = [sys.executable, "-P", "-m", "stack", command, "--data", str(self._path), *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"`{command}` failed: {done.stdout}{done.stderr}")

    @property
    def state(self) -> StackState:
        state = self.folder.read_state()
        assert state is not None, "it runs"
        return state

    def pid_of(self, part: str) -> int:
        return next(one.process.pid for one in self.state.living_parts() if one.part == part)

    @property
    def url(self) -> str:
        port = next(one.port for one in self.state.living_parts() if one.part == SERVER)
        return f"http://127.0.0.1:{port}"

    @property
    def operator(self) -> tuple[str, str]:
        return FIRST_PERSON, first_password(self.folder)

    def resident_bytes(self) -> int:
        state = self.state
        found = [state.supervisor, *(one.process for one in state.brokers)]
        found += [one.process for one in state.living_parts()]
        if state.postgres is not None:
            found.append(state.postgres.process)
        return sum(_resident_bytes(identity.pid) for identity in found)

    def database(self) -> psycopg.Connection[Any]:
        postgres = self.state.postgres
        assert postgres is not None, "it is the stack's own"
        server = PostgresServer(self.folder.postgres_data, port=postgres.port)
        return psycopg.connect(server.dsn_of(DATABASE), autocommit=True)


def _resident_bytes(pid: int) -> int:
    """Of a process that may have no child: the supervisor's are sessions of their own, and are
    counted by themselves."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    if not text or _name_of(pid) == "postgres":
        return tree_resident_bytes(pid)
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def main() -> None:
    write_any_text()
    parser = CommandParser(prog="./tidewheel bench control-plane", description=__doc__)
    parser.add_argument("--write", action="store_true", help="Put the table into the document.")
    arguments = parser.parse_args()
    lines = [HEAD]
    print(HEAD, flush=True)
    with benchmark_folder() as folder:
        for name, unit, value, wanted in _figures(Stack(folder / "stack")):
            line = f"| {name} | {unit} | {value:,.3g} | {wanted} |"
            print(line, flush=True)
            lines.append(line)
    if arguments.write:
        write_document(lines, MARKS)


def _figures(stack: Stack) -> Iterator[tuple[str, str, float, str]]:
    """Name, unit, value and what is wanted of it, as they are measured."""
    try:
        yield "`up` in an empty folder", "s", stack.up(), "≤ 15"
        stack.down()
        yield "`up` again", "s", stack.up(), "≤ 8"
        time.sleep(SETTLE_S)
        yield "idle, all processes (Pss)", "MB", stack.resident_bytes() / 1e6, "≤ 600"
        took = _make_tenants(stack)
        yield "tenant made to first message, median", "s", statistics.median(took), "≤ 5"
        yield "tenant made to first message, worst", "s", max(took), ""
        rest, base = _large_tenant(stack)
        yield f"{TOPICS:,} topics applied", "s", _apply(stack, rest, base), "≤ 30"
        took_ms = _requests(rest, base)
        yield f"REST at {REQUESTS_PER_S}/s, {TOPICS:,} topics: p50", "ms", took_ms[0], ""
        yield f"REST at {REQUESTS_PER_S}/s, {TOPICS:,} topics: p95", "ms", took_ms[1], "≤ 100"
        first_ms, last_ms = _pages(stack, rest, base)
        name = f"a page of {PAGE} of {PAGED_TOPICS:,} topics"
        yield f"{name}: median of the first {ENDS}", "ms", first_ms, ""
        yield f"{name}: median of the last {ENDS}", "ms", last_ms, "as the first"
    finally:
        if stack.folder.read_state() is not None:
            stack.down()


def _make_tenants(stack: Stack) -> list[float]:
    """Seconds that each took."""
    took = []
    for number in range(TENANTS):
        began_s = time.perf_counter()
        tenant = make_tenant(stack.url, stack.operator, f"tenant-{number}", TOPIC, 1, lambda: False)
        _send(tenant)
        took.append(time.perf_counter() - began_s)
    return took


def _send(tenant: DemoTenant) -> None:
    """A message, until it is acknowledged."""
    login, _, servers = tenant.url.removeprefix("tidewheel://").rpartition("@")
    user, _, password = login.partition(":")
    errors: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "security.protocol": SASL,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": unquote(user),
            "sasl.password": unquote(password),
        }
    )
    producer.produce(TOPIC, b"first", on_delivery=lambda error, _: errors.append(error))
    if producer.flush(SECONDS_MAX) or errors != [None]:
        raise SystemExit(f"the first message was not taken: {errors}")


def _large_tenant(stack: Stack) -> tuple[Rest, str]:
    """The owner of a tenant that may have many topics, and where it is in REST."""
    owner = _session(stack.url, SIGN_UP, "large@localhost.example", PASSWORD)
    made = owner.post("/api/v1/organizations", {"name": "Large", "slug": "large"}).body
    base = f"/api/v1/organizations/{made['id']}"
    _session(stack.url, LOG_IN, *stack.operator).patch(f"{base}/quota", {"spec": ROOM})
    return owner, base


def _session(url: str, address: str, email: str, password: str) -> Rest:
    answer = Rest(url).ask("POST", address, {"email": email, "password": password})
    if answer.status != 200:
        raise SystemExit(f"{email} does not get in: {answer.body}")
    return Rest(url, {"X-Session-Token": str(answer.body["meta"]["session_token"])})


@contextmanager
def _standing_still(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _apply(stack: Stack, rest: Rest, base: str) -> float:
    """Seconds from when the worker goes on until all are ready."""

    def declare(number: int) -> None:
        rest.post(f"{base}/topics", {"name": f"topic-{number}"})

    with _standing_still(stack.pid_of(WORKER)), ThreadPoolExecutor(4) as pool:
        list(pool.map(declare, range(TOPICS)))
    began_s = time.perf_counter()
    while any(topic["status"]["state"] != "ready" for topic in rest.items(f"{base}/topics")):
        if time.perf_counter() > began_s + SECONDS_MAX:
            raise SystemExit("the topics do not become ready")
        time.sleep(0.5)
    return time.perf_counter() - began_s


def _requests(rest: Rest, base: str) -> tuple[float, float]:
    """Milliseconds, p50 and p95, from when each request was due."""
    topic = rest.get(f"{base}/topics", limit=1).body["items"][0]["id"]

    def write(number: int) -> object:
        configs = {"retention.ms": 60_000 + number}
        return rest.patch(f"{base}/topics/{topic}", {"spec": {"configs": configs}})

    kinds: list[Callable[[int], object]] = [
        lambda _: rest.get(f"{base}/topics", limit=PAGE),
        lambda _: rest.get(f"{base}/topics/{topic}"),
        lambda _: rest.get(f"{base}/quota"),
        lambda _: rest.get(f"{base}/usage"),
        lambda _: rest.get(f"{base}/audit-events", limit=PAGE),
        lambda _: rest.get(base),
        lambda _: rest.get(f"{base}/grants"),
        lambda _: rest.get("/api/v1/me"),
        lambda _: rest.get(f"{base}/api-keys"),
        write,
    ]
    began_s = time.perf_counter() + 1.0

    def ask(number: int) -> float:
        due_s = began_s + number / REQUESTS_PER_S
        time.sleep(max(0.0, due_s - time.perf_counter()))
        kinds[number % len(kinds)](number)
        return (time.perf_counter() - due_s) * 1000

    with ThreadPoolExecutor(THREADS) as pool:
        took = sorted(pool.map(ask, range(int(REQUESTS_PER_S * REQUESTS_S))))
    return took[len(took) // 2], took[int(len(took) * 0.95)]


def _pages(stack: Stack, rest: Rest, base: str) -> tuple[float, float]:
    """Milliseconds of a page at the beginning, and at the end."""
    topic = rest.get(f"{base}/topics", limit=1).body["items"][0]["id"]
    more = PAGED_TOPICS - sum(1 for _ in rest.items(f"{base}/topics"))
    with stack.database() as database:
        database.execute(MORE_TOPICS, (more, topic))
    took, seen, cursor = [], 0, None
    while True:
        began_s = time.perf_counter()
        page = rest.get(f"{base}/topics", limit=PAGE, cursor=cursor).body
        took.append((time.perf_counter() - began_s) * 1000)
        seen += len(page["items"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    if seen != PAGED_TOPICS:
        raise SystemExit(f"{seen} of {PAGED_TOPICS} topics were shown")
    return statistics.median(took[:ENDS]), statistics.median(took[-ENDS:])


if __name__ == "__main__":
    main()
