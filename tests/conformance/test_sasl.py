"""Client libraries that log in, beside a listener that asks nobody who it is.

They are sent from one request to the next by the addresses that the broker gives them, so that all
of it happens through the listener with SASL.
"""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from tests.broker_process import BrokerProcess
from tests.kept_port import KeptPort

with warnings.catch_warnings():
    # As in test_kafka_python.py.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC = "orders"
SECONDS_MAX = 30


# kafka-python leaves the sockets of its wake-up pipes to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def _collected_here() -> Iterator[None]:
    """Its leftovers are collected while its own filters hold, not in somebody else's test."""
    yield
    gc.collect()


class UsersBroker:
    """A broker with a listener for users, and one user, alice."""

    def __init__(self, broker: BrokerProcess, users: str) -> None:
        self.broker = broker
        self.users = users
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(SECONDS_MAX)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            self.alter(UserScramCredentialUpsertion("alice", info, b"secret"))

    def alter(self, alteration: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
        futures = self.admin.alter_user_scram_credentials([alteration])
        futures["alice"].result(SECONDS_MAX)

    def settings(self, mechanism: str, password: str = "secret") -> dict[str, str]:
        return {
            "bootstrap.servers": self.users,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def users_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UsersBroker]:
    folder: Path = tmp_path_factory.mktemp("sasl")
    kept = KeptPort()
    broker = BrokerProcess(
        folder,
        set={"sasl.enabled.mechanisms": ",".join(MECHANISMS)},
        more_listeners=f"SASL_PLAINTEXT://127.0.0.1:{kept.port}",
    )
    with broker:
        yield UsersBroker(broker, f"127.0.0.1:{kept.port}")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(users_broker: UsersBroker, mechanism: str) -> None:
    settings = users_broker.settings(mechanism)
    producer = Producer(settings)
    producer.produce(TOPIC, mechanism.encode(), b"librdkafka")
    assert producer.flush(SECONDS_MAX) == 0
    group = {"group.id": f"rd-{mechanism}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group})
    consumer.subscribe([TOPIC])
    while True:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        if (message.key(), message.value()) == (b"librdkafka", mechanism.encode()):
            break
    consumer.commit(message=message, asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_with_a_wrong_password(users_broker: UsersBroker, mechanism: str) -> None:
    errors: list[int] = []
    settings: dict[str, Any] = dict(users_broker.settings(mechanism, "wrong"))
    settings["error_cb"] = lambda error: errors.append(error.code())
    # Not alice's: whoever fails from this address waits ever longer.
    settings["sasl.username"] = f"nobody-{mechanism}"
    admin = AdminClient(settings)
    deadline_s = time.monotonic() + SECONDS_MAX
    while KafkaError._AUTHENTICATION not in errors and time.monotonic() < deadline_s:
        admin.poll(0.1)
    assert KafkaError._AUTHENTICATION in errors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(users_broker: UsersBroker, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": users_broker.users,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }
    producer = KafkaProducer(**settings)
    producer.send(TOPIC, mechanism.encode(), key=b"kafka-python").get(SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer(
        TOPIC,
        group_id=f"kp-{mechanism}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS_MAX * 1000,
        **settings,
    )
    wanted = (b"kafka-python", mechanism.encode())
    assert any((message.key, message.value) == wanted for message in consumer)
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(users_broker: UsersBroker, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": users_broker.users,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }

    async def talk() -> None:
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        await producer.send_and_wait(TOPIC, mechanism.encode(), key=b"aiokafka")
        await producer.stop()
        consumer = AIOKafkaConsumer(
            TOPIC, group_id=f"aio-{mechanism}", auto_offset_reset="earliest", **settings
        )
        await consumer.start()
        async for message in consumer:
            if (message.key, message.value) == (b"aiokafka", mechanism.encode()):
                break
        await consumer.stop()

    asyncio.run(asyncio.wait_for(talk(), 2 * SECONDS_MAX))
