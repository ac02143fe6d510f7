"""Two hundred tenants on one cell, each with a user, a topic and a group of the same names.

What they may have in one broker's memory is in tests/broker/test_many_tenants.py; here they come to
the brokers of a cell through one port each, log in, and go where they are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from data_plane.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import values_of
from tests.broker.test_namespaces import coordinators, fetched, named, produced
from tests.certificates import WHY_NO_CERTIFICATES
from tests.conformance.raw_client import RawClient
from tests.declared import login_of, tenant_with_user, topic_of
from tests.faults.secure_cell import SecureCell, secure_cell
from tests.groups.requests import commit, fetch

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

TENANTS = [f"tenant-{number}" for number in range(200)]
TOPIC, GROUP = "orders", "billing"
NO_ID = UUID(int=0)
MESSAGES = 50
AT_ONCE = 16
SECONDS_MAX = 60.0
# A coordinator that has just become one, or does not know it yet, asks for patience.
NOT_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCell]:
    with secure_cell(tmp_path_factory.mktemp("tenants"), "PLAIN,SCRAM-SHA-256") as made:
        resources = [
            resource
            for tenant in TENANTS
            for resource in (*tenant_with_user(tenant), topic_of(tenant, TOPIC))
        ]
        # All of it in one commit.
        made.apply(made.cell.ids[0], *resources)
        yield made


def error_of_login(client: RawClient, login: str, password: str) -> int:
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    assert client.ask(ApiKey.SASL_HANDSHAKE, 1, handshake).error_code == 0
    token = SaslAuthenticateRequest(auth_bytes=f"\0{login}\0{password}".encode())
    return int(client.ask(ApiKey.SASL_AUTHENTICATE, 2, token).error_code)


class TenantClient:
    """The user of a tenant, with a connection to each broker that it is sent to."""

    def __init__(self, cell: SecureCell, number: int) -> None:
        self._cell = cell.cell
        self.number = number
        self.tenant = TENANTS[number]
        self.addresses = cell.sasl_addresses
        self._clients: dict[str, RawClient] = {}

    def __enter__(self) -> TenantClient:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def at(self, address: str) -> RawClient:
        if address not in self._clients:
            client = self._clients[address] = RawClient(address)
            login = login_of(self.tenant)
            assert error_of_login(client, login, login) == 0
        return self._clients[address]

    def leader(self) -> RawClient:
        """Who tells of the topic may not know it yet, and who leads it may not do so yet."""
        found: list[str] = []

        def look() -> bool:
            answer = self.at(self.addresses[self.number % 3]).ask(
                ApiKey.METADATA, 9, named([TOPIC])
            )
            (topic,) = answer.topics
            if topic.error_code or topic.partitions[0].leader_id < 0:
                return False
            by_id = {broker.node_id: broker for broker in answer.brokers}
            broker = by_id[topic.partitions[0].leader_id]
            found[:] = [f"{broker.host}:{broker.port}"]
            return True

        self._cell.wait_for(look, f"{self.tenant} knows its topic")
        assert found[0] in self.addresses, "it is sent to the listener that it came through"
        return self.at(found[0])

    def of_group(self, api_key: ApiKey, version: int, request: Any, code_of: Any) -> Any:
        """The answer of the group's coordinator, once it is one."""
        answers: list[Any] = []

        def ask() -> bool:
            entrance = self.at(self.addresses[self.number % 3])
            answer = entrance.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, GROUP))
            (found,) = answer.coordinators
            if found.error_code in NOT_YET:
                return False
            assert found.error_code == 0
            client = self.at(f"{found.host}:{found.port}")
            answers[:] = [client.ask(api_key, version, request)]
            return code_of(answers[0]) not in NOT_YET

        self._cell.wait_for(ask, f"a coordinator for {self.tenant}")
        return answers[0]

    def make(self) -> None:
        value = self.tenant.encode()
        leader = self.leader()

        def produce() -> bool:
            answer = leader.ask(ApiKey.PRODUCE, 9, produced(9, TOPIC, NO_ID, value))
            (partition,) = answer.responses[0].partition_responses
            return bool(partition.error_code == 0)

        self._cell.wait_for(produce, f"{self.tenant} produces")
        answer = self.of_group(
            ApiKey.OFFSET_COMMIT,
            9,
            commit(GROUP, {(TOPIC, 0): self.number}),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        assert answer.topics[0].partitions[0].error_code == 0

    def check(self) -> None:
        everything = self.at(self.addresses[0]).ask(ApiKey.METADATA, 9, named(None))
        assert [topic.name for topic in everything.topics] == [TOPIC]
        (topic,) = self.leader().ask(ApiKey.FETCH, 12, fetched(12, TOPIC, NO_ID)).responses
        values = {value for _, value in values_of(topic.partitions[0].records)}
        assert values == {self.tenant.encode()}
        groups = [
            group.group_id
            for address in self.addresses
            for group in self.at(address).ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest()).groups
        ]
        assert groups == [GROUP]
        answer = self.of_group(
            ApiKey.OFFSET_FETCH, 8, fetch(GROUP), lambda answer: answer.groups[0].error_code
        )
        (topic,) = answer.groups[0].topics
        assert [one.committed_offset for one in topic.partitions] == [self.number]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_of_200_tenants_has_its_own(secure: SecureCell) -> None:
    with ExitStack() as opened:
        clients = [
            opened.enter_context(TenantClient(secure, number)) for number in range(len(TENANTS))
        ]
        for client in clients:
            client.make()
        for client in clients:
            client.check()


@pytest.mark.slow
def test_a_user_of_one_tenant_is_none_of_another(secure: SecureCell) -> None:
    """Their names are the same, their passwords are not."""
    with RawClient(secure.sasl_addresses[0]) as client:
        code = error_of_login(client, login_of(TENANTS[0]), login_of(TENANTS[1]))
        assert code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_two_hundred_tenants_with_a_client_library(secure: SecureCell) -> None:
    """Producers and groups of librdkafka, many at once."""

    def talk(tenant: str) -> None:
        settings = {
            "bootstrap.servers": ",".join(secure.sasl_addresses),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": login_of(tenant),
            "sasl.password": login_of(tenant),
        }
        producer = Producer(settings)
        sent = [f"{tenant} says {number}".encode() for number in range(MESSAGES)]
        for value in sent:
            producer.produce(TOPIC, value, key=b"library")
        assert producer.flush(SECONDS_MAX) == 0
        group = {"group.id": "library", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, **group})
        consumer.subscribe([TOPIC])
        found: list[bytes | None] = []
        while len(found) < MESSAGES:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            if message.key() == b"library":
                found.append(message.value())
        assert found == sent
        consumer.commit(asynchronous=False)
        assert set(consumer.list_topics(timeout=SECONDS_MAX).topics) == {TOPIC}
        consumer.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(talk, tenant) for tenant in TENANTS]:
            done.result()
