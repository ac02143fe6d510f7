"""Noisy neighbours: what a tenant far beyond its quota does to one that is within its own.

`./tidewheel bench neighbours` starts a stack whose brokers all run on one core, and has its load
on another one. Two tenants log in through the same port. B sends a message at a time, at half of
its quota, and notes how long each takes (acks=all). A sends at 20 times its quota, through as many
clients, and in the run beside it at half of its quota: five such pairs, in turns. Printed are B's
p50 and p99 of each run, the medians and their ratio, and what A got of its cap.

Then B, with a floor, sends as much as it can beside an A without a cap, on brokers whose capacity
is declared: printed is what B got of its floor.

Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.side_by_side import ROOT, benchmark_folder
from data_plane.contract import cell_admin_pb2 as messages
from stack.cell_admin import CellAdmin, access_of_stack
from stack.folder import BrokerState, StackFolder
from stack.folder import bootstrap as bootstrap_of
from stack.help import CommandParser, positive_number, write_any_text
from stack.listeners import SASL
from stack.operators import OPERATIONS, RESOURCES, login_of, verifiers_of

NOISY, QUIET = "noisy", "quiet"
USER, PASSWORD = "user", "only-for-a-benchmark"
TOPIC = "orders"
PARTITIONS = 6
VALUE_BYTES = 1000
BATCH_BYTES = 16_384

CAP_BYTES_PER_S = 1_000_000
QUIET_CAP_BYTES_PER_S = 200_000
FLOOR_BYTES_PER_S = 2_000_000
CAPACITY = "quota.produce.capacity.bytes.per.second"
# Of all brokers together.
CAPACITY_BYTES_PER_S = 6_000_000
FACTOR = 20
SETTLE_S: Final = 3.0
RUN_S: Final = 10.0
SEND_SECONDS_MAX = 60.0


def main() -> None:
    write_any_text()
    parser = CommandParser(prog="./tidewheel bench neighbours", description=__doc__)
    parser.add_argument("--pairs", type=positive_number, default=5, help="[default: %(default)s]")
    parser.add_argument("--brokers", type=positive_number, default=3, help="[default: %(default)s]")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("This needs two cores: one for the brokers, one for the load.")
    with benchmark_folder() as folder, _stack(folder / "stack", options.brokers) as stack:
        bootstrap = _prepare(stack)
        _compare(bootstrap, options.pairs)
        _fill_floor(stack, bootstrap)


@contextmanager
def _stack(path: Path, brokers: int) -> Iterator[StackFolder]:
    """Its brokers run on the first core."""
    command = [sys.executable, "-m", "stack"]
    where = ["--data", str(path)]
    options = ["--brokers", str(brokers), "--port", "0", "--detach", "--no-control-plane"]
    subprocess.run([*command, "up", *where, *options], cwd=ROOT, check=True, capture_output=True)
    folder = StackFolder(path)
    try:
        core = min(os.sched_getaffinity(0))
        for broker in _brokers(folder):
            for task in Path(f"/proc/{broker.process.pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core})
        yield folder
    finally:
        subprocess.run([*command, "down", *where], cwd=ROOT, check=False, capture_output=True)


def _brokers(folder: StackFolder) -> list[BrokerState]:
    state = folder.read_state()
    assert state is not None, "it has been started"
    return state.living()


def _prepare(folder: StackFolder) -> str:
    """Two tenants, each with a user, a topic's worth of rights and a quota. Where they connect."""
    with CellAdmin(access_of_stack(folder)) as admin:
        for tenant in (NOISY, QUIET):
            spec = messages.Tenant(cluster_id=f"{tenant}-cluster-0000000000")
            admin.apply(messages.Resource(tenant=tenant, tenant_spec=spec), None, tenant)
            credential = messages.Credential(principal=USER, verifiers=verifiers_of(PASSWORD))
            login = login_of(USER, tenant)
            user = messages.Resource(tenant=tenant, name=login, credential=credential)
            admin.apply(user, None, login)
            acl = messages.Acl(
                resource_type=RESOURCES["topic"],
                pattern_type=3,
                name=TOPIC,
                principal=f"User:{USER}",
                host="*",
                operation=OPERATIONS["all"],
                permission=3,
            )
            grants = messages.Resource(
                tenant=tenant, name="all", grants=messages.Grants(acls=[acl])
            )
            admin.apply(grants, None, "grant")
            topic = messages.Topic(partitions=PARTITIONS, replication_factor=0)
            admin.apply(messages.Resource(tenant=tenant, name=TOPIC, topic=topic), None, TOPIC)
    _set_quota(folder, NOISY, {"produce_bytes_per_s": CAP_BYTES_PER_S})
    _set_quota(folder, QUIET, {"produce_bytes_per_s": QUIET_CAP_BYTES_PER_S})
    return ",".join(f"127.0.0.1:{broker.listeners[SASL]}" for broker in _brokers(folder))


def _set_quota(folder: StackFolder, tenant: str, limits: Mapping[str, float]) -> None:
    with CellAdmin(access_of_stack(folder)) as admin:
        known = next(admin.items(messages.KIND_QUOTA, tenant), None)
        quota = messages.Resource(tenant=tenant, quota=messages.Quota(limits=limits))
        admin.apply(quota, known, f"the quota of {tenant}")


def _declare_capacity(brokers: list[BrokerState]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_of(brokers)})
    value = str(CAPACITY_BYTES_PER_S // len(brokers))
    for broker in brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker.broker_id))
        entry = ConfigEntry(CAPACITY, value, incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
        admin.incremental_alter_configs([resource])[resource].result(30)


def _compare(bootstrap: str, pairs: int) -> None:
    noisy: list[float] = []
    quiet: list[float] = []
    shares: list[float] = []
    for _ in range(pairs):
        for offered, found in ((FACTOR, noisy), (0.5, quiet)):
            with _load(bootstrap, NOISY, CAP_BYTES_PER_S * offered) as neighbour:
                time.sleep(SETTLE_S)
                took = _send_singly(bootstrap, QUIET_CAP_BYTES_PER_S / 2)
                got = _end(neighbour)
            p50, p99 = _percentiles(took)
            found.append(p99)
            if offered == FACTOR:
                shares.append(got / CAP_BYTES_PER_S)
            print(
                f"A offers {offered:g} x its cap and gets {got / CAP_BYTES_PER_S:.2f}; "
                f"B: p50 {p50:.2f} ms, p99 {p99:.2f} ms of {len(took)}",
                flush=True,
            )
    beside, control = statistics.median(noisy), statistics.median(quiet)
    print(f"B's p99, medians: {beside:.2f} ms beside A's flood, {control:.2f} ms as the control:")
    print(f"ratio {beside / control:.2f}; A got {statistics.median(shares):.2f} of its cap")


def _fill_floor(folder: StackFolder, bootstrap: str) -> None:
    """A without a cap and B with a floor, both as fast as they can."""
    capacity = CAPACITY_BYTES_PER_S
    _declare_capacity(_brokers(folder))
    _set_quota(folder, NOISY, {"produce_bytes_per_s": 100 * capacity})
    floor = {"produce_bytes_per_s": 100 * capacity, "produce_floor_bytes_per_s": FLOOR_BYTES_PER_S}
    _set_quota(folder, QUIET, floor)
    with (
        _load(bootstrap, NOISY, 3 * capacity) as noisy,
        _load(bootstrap, QUIET, 2 * FLOOR_BYTES_PER_S) as quiet,
    ):
        time.sleep(SETTLE_S + RUN_S)
        of_noisy, of_quiet = _end(noisy), _end(quiet)
    print(
        f"with a floor of {FLOOR_BYTES_PER_S / 1e6:g} MB/s B gets {of_quiet / 1e6:.2f} MB/s beside "
        f"A's {of_noisy / 1e6:.2f} MB/s, of a capacity of {capacity / 1e6:g} MB/s"
    )


@contextmanager
def _load(bootstrap: str, tenant: str, bytes_per_s: float) -> Iterator[subprocess.Popen[str]]:
    """A process that sends for a tenant until `_end`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.neighbours", bootstrap, tenant, str(bytes_per_s)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _end(load: subprocess.Popen[str]) -> float:
    """How many bytes a second were acknowledged after it had settled."""
    out, _ = load.communicate("\n", timeout=SEND_SECONDS_MAX)
    return float(json.loads(out)["bytes_per_s"])


def _settings(bootstrap: str, tenant: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": SASL,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": login_of(USER, tenant),
        "sasl.password": PASSWORD,
        "acks": "all",
        "log_level": 0,
    }


def _send_singly(bootstrap: str, bytes_per_s: float) -> list[float]:
    """Milliseconds that each message took."""
    producer = Producer({**_settings(bootstrap, QUIET), "linger.ms": 0})
    failures: list[str] = []
    took: list[float] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    began_s, sent = time.monotonic(), 0
    while time.monotonic() < began_s + RUN_S:
        before_s = time.perf_counter()
        producer.produce(TOPIC, bytes(VALUE_BYTES), partition=sent % PARTITIONS, on_delivery=told)
        if producer.flush(SEND_SECONDS_MAX) or failures:
            raise SystemExit(f"a message was not taken: {failures}")
        took.append((time.perf_counter() - before_s) * 1000)
        sent += 1
        time.sleep(max(0.0, began_s + sent * VALUE_BYTES / bytes_per_s - time.monotonic()))
    # The first ones find out who leads.
    return took[PARTITIONS:]


def _percentiles(took_ms: list[float]) -> tuple[float, float]:
    ordered = sorted(took_ms)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]


# The load of a tenant, in a process of its own.


def send(bootstrap: str, tenant: str, bytes_per_s: float) -> float:
    """Send until a line is read; bytes a second that were acknowledged since SETTLE_S."""
    settings = _settings(bootstrap, tenant)
    # Muted one by one: what a client offers while it waits stays with it.
    clients = max(1, round(bytes_per_s / CAP_BYTES_PER_S))
    # One request of each connection is taken before it waits, and paid for afterwards: with batches
    # of a megabyte, and as many connections, that would be half a minute's worth.
    more = {"linger.ms": 5, "queue.buffering.max.messages": 2_000, "batch.size": BATCH_BYTES}
    producers = [Producer({**settings, **more}) for _ in range(clients)]
    acknowledged = 0

    def told(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += VALUE_BYTES

    began_s = time.monotonic()
    since_s, sent, before = 0.0, 0, 0
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        now_s = time.monotonic()
        if not since_s and now_s >= began_s + SETTLE_S:
            since_s, before = now_s, acknowledged
        # What could not be sent is not made up for.
        wanted = int((now_s - began_s) * bytes_per_s / VALUE_BYTES)
        sent = max(sent, wanted - clients * 100)
        while sent < wanted:
            producer = producers[sent % clients]
            with suppress(BufferError):
                producer.produce(
                    TOPIC, bytes(VALUE_BYTES), partition=sent % PARTITIONS, on_delivery=told
                )
            sent += 1
        for producer in producers:
            producer.poll(0)
    rate = (acknowledged - before) / (time.monotonic() - since_s)
    for producer in producers:
        producer.purge()
    return rate


if __name__ == "__main__":
    load_parser = argparse.ArgumentParser()
    for name, kind in (("bootstrap", str), ("tenant", str), ("bytes_per_s", float)):
        load_parser.add_argument(name, type=kind)
    given = load_parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rate_found = send(given.bootstrap, given.tenant, given.bytes_per_s)
    print(json.dumps({"bytes_per_s": rate_found}), flush=True)
    os._exit(0)
