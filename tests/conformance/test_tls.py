"""Client libraries over TLS: with nobody asked who it is, and logged in by each mechanism."""

from __future__ import annotations

import asyncio
import gc
import ssl
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from tests.broker_process import BrokerProcess
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.conformance import programs
from tests.kept_port import KeptPort

with warnings.catch_warnings():
    # As in test_kafka_python.py.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

WAYS = ("SSL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC = "orders"
LARGE = "large"
LARGE_BYTES = 40 << 20
SECONDS_MAX = 30

# kafka-python leaves the sockets of its wake-up pipes to the garbage collector.
pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES or "available"),
    pytest.mark.filterwarnings(
        "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]


@pytest.fixture(autouse=True)
def _collected_here() -> Iterator[None]:
    """Its leftovers are collected while its own filters hold, not in somebody else's test."""
    yield
    gc.collect()


class TlsBroker:
    """A broker with a listener of each kind of TLS, and one user, alice."""

    def __init__(self, broker: BrokerProcess, authority: Authority, ports: dict[str, int]) -> None:
        self.authority = authority
        self._ports = ports
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, 1, 1), NewTopic(LARGE, 1, 1)]).values():
            made.result(SECONDS_MAX)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            alteration = UserScramCredentialUpsertion("alice", info, b"secret")
            futures = admin.alter_user_scram_credentials([alteration])
            futures["alice"].result(SECONDS_MAX)

    def address(self, way: str) -> str:
        return f"127.0.0.1:{self._ports['SSL' if way == 'SSL' else 'SASL_SSL']}"

    def settings(self, way: str) -> dict[str, Any]:
        """librdkafka's."""
        settings = {
            "bootstrap.servers": self.address(way),
            "security.protocol": "SSL",
            "ssl.ca.location": self.authority.certificate,
        }
        if way != "SSL":
            settings["security.protocol"] = "SASL_SSL"
            settings |= {"sasl.mechanism": way}
            settings |= {"sasl.username": "alice", "sasl.password": "secret"}
        return settings

    def python_settings(self, way: str) -> dict[str, Any]:
        """Those of kafka-python and aiokafka."""
        context = ssl.create_default_context(cafile=self.authority.certificate)
        settings = {
            "bootstrap_servers": self.address(way),
            "security_protocol": "SSL" if way == "SSL" else "SASL_SSL",
            "ssl_context": context,
        }
        if way != "SSL":
            settings |= {"sasl_mechanism": way}
            settings |= {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}
        return settings


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    folder: Path = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "authority")
    kept = {name: KeptPort() for name in ("SSL", "SASL_SSL")}
    ports = {name: one.port for name, one in kept.items()}
    broker = BrokerProcess(
        folder,
        set={
            "sasl.enabled.mechanisms": ",".join(WAYS[1:]),
            "ssl.keystore.location": str(authority.keystore("broker")),
        },
        more_listeners=",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
    )
    with broker:
        yield TlsBroker(broker, authority, ports)


@pytest.mark.parametrize("way", WAYS)
def test_librdkafka(tls_broker: TlsBroker, way: str) -> None:
    settings = tls_broker.settings(way)
    producer = Producer(settings)
    producer.produce(TOPIC, way.encode(), b"librdkafka")
    assert producer.flush(SECONDS_MAX) == 0
    group = {"group.id": f"rd-{way}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group})
    consumer.subscribe([TOPIC])
    while True:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        if (message.key(), message.value()) == (b"librdkafka", way.encode()):
            break
    consumer.commit(message=message, asynchronous=False)
    consumer.close()


def test_large_answers(tls_broker: TlsBroker) -> None:
    """What is read from mappings and takes many turns to be sealed arrives whole and in order."""
    settings = tls_broker.settings("SCRAM-SHA-256")
    producer = Producer({**settings, "linger.ms": 50, "batch.size": 1 << 20})
    body = bytes(range(256)) * 40
    count = LARGE_BYTES // len(body)
    for number in range(count):
        producer.produce(LARGE, b"%d" % number + body)
        if number % 1_000 == 0:
            producer.poll(0.01)
    assert producer.flush(2 * SECONDS_MAX) == 0
    limits = {"fetch.max.bytes": LARGE_BYTES, "max.partition.fetch.bytes": LARGE_BYTES}
    group = {"group.id": "large", "fetch.min.bytes": LARGE_BYTES // 2, "fetch.wait.max.ms": 200}
    consumer = Consumer({**settings, **limits, **group, "receive.message.max.bytes": 100 << 20})
    consumer.assign([TopicPartition(LARGE, 0, 0)])
    for number in range(count):
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        assert message.value() == b"%d" % number + body
    consumer.close()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(lambda: programs.java_command("Secure"), id="java"),
        pytest.param(lambda: [*programs.go_command(), "secure"], id="franz-go"),
        pytest.param(lambda: programs.sarama_command("secure"), id="sarama"),
        pytest.param(lambda: programs.node_command("secure.js"), id="kafkajs"),
    ],
)
def test_other_languages(tls_broker: TlsBroker, command: Callable[[], list[str]]) -> None:
    addresses = tls_broker.address("SSL"), tls_broker.address("PLAIN")
    authority = tls_broker.authority.certificate
    assert programs.run_cases(command(), *addresses, authority, TOPIC) == list(WAYS)


@pytest.mark.parametrize("way", WAYS)
def test_kafka_python(tls_broker: TlsBroker, way: str) -> None:
    settings = tls_broker.python_settings(way)
    producer = KafkaProducer(**settings)
    producer.send(TOPIC, way.encode(), key=b"kafka-python").get(SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer(
        TOPIC,
        group_id=f"kp-{way}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS_MAX * 1000,
        **settings,
    )
    wanted = (b"kafka-python", way.encode())
    assert any((message.key, message.value) == wanted for message in consumer)
    consumer.close()


@pytest.mark.parametrize("way", WAYS)
def test_aiokafka(tls_broker: TlsBroker, way: str) -> None:
    settings = tls_broker.python_settings(way)

    async def talk() -> None:
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        await producer.send_and_wait(TOPIC, way.encode(), key=b"aiokafka")
        await producer.stop()
        consumer = AIOKafkaConsumer(
            TOPIC, group_id=f"aio-{way}", auto_offset_reset="earliest", **settings
        )
        await consumer.start()
        async for message in consumer:
            if (message.key, message.value) == (b"aiokafka", way.encode()):
                break
        await consumer.stop()

    asyncio.run(asyncio.wait_for(talk(), 2 * SECONDS_MAX))
