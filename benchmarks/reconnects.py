"""Thousands of TLS + SCRAM clients connect at once: what that does to everybody else.

`./tidewheel bench reconnects [--clients N]` starts one broker with a listener that asks nobody who
it is and one with TLS and SASL. A producer sends a message at a time through the first one, alone
for some seconds, and then while N clients connect to the second one and log in. Printed are the
producer's p50 and p99 before and meanwhile, how long it took until all clients were in, and how
often one of them had to try again.

The clients are one process of Python, which has the other core: their handshakes cost more than the
broker's.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import ssl
import struct
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cache
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers import Tidewheel, free_port
from benchmarks.side_by_side import benchmark_folder
from stack.help import CommandParser, positive_number, write_any_text

TOPIC = "others"
USER, PASSWORD, MECHANISM = "alice", b"secret", "SCRAM-SHA-256"
ALONE_S = 5.0
PAUSE_S = 0.005
CLIENT_SECONDS_MAX = 120.0
RETRY_PAUSE_S = 0.5
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


def main() -> None:
    write_any_text()
    parser = CommandParser(prog="./tidewheel bench reconnects", description=__doc__)
    parser.add_argument(
        *("-n", "--clients"),
        type=positive_number,
        default=5_000,
        metavar="N",
        help="How many connect at once.  [default: %(default)s]",
    )
    clients = parser.parse_args().clients
    with benchmark_folder() as folder:
        certificate = make_certificate(folder)
        users = f"127.0.0.1:{free_port()}"
        broker = Tidewheel(
            folder / "broker",
            {"ssl.keystore.location": str(certificate)},
            more_listeners=f"SASL_SSL://{users}",
        )
        try:
            broker.start()
            _prepare(broker.bootstrap)
            _measure(broker.bootstrap, users, certificate, clients)
        finally:
            broker.kill()


def make_certificate(folder: Path) -> Path:
    """One that signs itself, with its key."""
    path = folder / "broker.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=broker"
    extension = "subjectAltName=IP:127.0.0.1"
    files = ["-keyout", f"{path}.key", "-out", f"{path}.crt"]
    subprocess.run(
        [*command.split(), "-addext", extension, *files], check=True, capture_output=True
    )
    path.write_bytes(Path(f"{path}.key").read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


def _prepare(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(USER, info, PASSWORD)
    admin.alter_user_scram_credentials([upsertion])[USER].result(30)


def _measure(bootstrap: str, users: str, certificate: Path, clients: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    _send_until(producer, _after(1.0))
    alone = _send_until(producer, _after(ALONE_S))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.reconnects", users, str(certificate), str(clients)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        meanwhile = _send_until(producer, lambda: process.poll() is not None)
        assert process.stdout is not None
        outcome = json.loads(process.stdout.read())
    finally:
        process.kill()
        process.wait()
    print(f"others alone:     {_percentiles(alone)}")
    print(f"others meanwhile: {_percentiles(meanwhile)}")
    print(
        f"{outcome['logged_in']:,} of {clients:,} clients logged in within {outcome['seconds']:.1f}"
        f" s, after {outcome['retries']:,} retries",
        flush=True,
    )


def _after(seconds: float) -> Callable[[], bool]:
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() >= end_s


def _send_until(producer: Producer, is_over: Callable[[], bool]) -> list[float]:
    """How many seconds each message took."""
    took: list[float] = []
    failures: list[str] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    while not is_over():
        began_s = time.perf_counter()
        producer.produce(TOPIC, b"x" * 100, on_delivery=told)
        if producer.flush(60) or failures:
            raise SystemExit(f"a message was not taken: {failures}")
        took.append(time.perf_counter() - began_s)
        time.sleep(PAUSE_S)
    return took


def _percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p50, p99 = (ordered[int(len(ordered) * share)] * 1000 for share in (0.5, 0.99))
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, worst {ordered[-1] * 1000:.1f} ms ({len(ordered)})"


# The clients, in a process of their own.


async def connect_all(address: str, certificate: str, count: int) -> dict[str, float]:
    """Have all of them connect at once; those that are logged in stay until all are."""
    context = ssl.create_default_context(cafile=certificate)
    began_s = time.monotonic()
    outcomes = await asyncio.gather(
        *(_log_in_at_last(address, context, began_s) for _ in range(count))
    )
    retries = sum(tries for _, tries in outcomes)
    writers = [writer for writer, _ in outcomes if writer is not None]
    result = {
        "logged_in": float(len(writers)),
        "seconds": time.monotonic() - began_s,
        "retries": float(retries),
    }
    for writer in writers:
        writer.transport.abort()
    return result


async def _log_in_at_last(
    address: str, context: ssl.SSLContext, began_s: float
) -> tuple[asyncio.StreamWriter | None, int]:
    retries = 0
    while time.monotonic() - began_s < CLIENT_SECONDS_MAX:
        try:
            return await _log_in(address, context), retries
        except (OSError, EOFError):
            retries += 1
            await asyncio.sleep(RETRY_PAUSE_S)
    return None, retries


async def _log_in(address: str, context: ssl.SSLContext) -> asyncio.StreamWriter:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=context, ssl_handshake_timeout=CLIENT_SECONDS_MAX
    )
    try:
        mechanism = MECHANISM.encode()
        await _ask(reader, writer, SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
        nonce = os.urandom(12).hex()
        bare = f"n={USER},r={nonce}"
        challenge = await _authenticate(reader, writer, f"n,,{bare}".encode())
        await _authenticate(reader, writer, _proof(bare, challenge.decode()))
    except BaseException:
        writer.transport.abort()
        raise
    return writer


def _proof(bare: str, challenge: str) -> bytes:
    nonce, salt, iterations = (part[2:] for part in challenge.split(","))
    unsigned = f"c=biws,r={nonce}"
    client_key, stored_key = _keys(b64decode(salt), int(iterations))
    signed = f"{bare},{challenge},{unsigned}".encode()
    signature = hmac.digest(stored_key, signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{unsigned},p={b64encode(proof).decode()}".encode()


@cache
def _keys(salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """Once for all clients: they are one user's."""
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return client_key, hashlib.sha256(client_key).digest()


async def _authenticate(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes
) -> bytes:
    body = struct.pack(">i", len(token)) + token
    answer = await _ask(reader, writer, SASL_AUTHENTICATE, 0, body)
    (error_code,) = struct.unpack_from(">h", answer)
    (message_size,) = struct.unpack_from(">h", answer, 2)
    if error_code:
        raise ConnectionError(f"refused with {error_code}")
    return answer[4 + max(message_size, 0) + 4 :]


async def _ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    api_key: int,
    version: int,
    body: bytes,
) -> bytes:
    """The answer without its header."""
    request = struct.pack(">hhih", api_key, version, 1, -1) + body
    writer.write(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return (await reader.readexactly(size))[4:]


if __name__ == "__main__":
    given_address, given_certificate, given_count = sys.argv[1:]
    found = asyncio.run(connect_all(given_address, given_certificate, int(given_count)))
    print(json.dumps(found))
