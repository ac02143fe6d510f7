"""What goes to brokers past librdkafka: as the same user, over the same TLS, in the same rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidewheel import Client, ClientSettings, Receipt
from tidewheel.errors import (
    BrokerError,
    BrokerUnreachable,
    NotAuthenticated,
    NotAuthorized,
    TlsFailed,
    TooLate,
    UnknownMessage,
    Unsupported,
)
from tidewheel.transport.direct import codec
from tidewheel.transport.direct.connection import connect

from data_plane.contract import cell_admin_pb2 as messages
from data_plane.wire.messages.produce_request import decode_produce_request
from data_plane.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
    encode_produce_response,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.records import decode_batch
from stack.broker_process import WITH_FEATURES
from tests.certificates import WHY_NO_CERTIFICATES
from tests.declared import ALLOW, LITERAL, TOPIC_TYPE, login_of, tenant_with_user
from tests.tenant_broker import TenantBroker, tenant_broker

TAGGED = {"tidewheel.headers": True}
WRITE_OPERATION, DESCRIBE_CONFIGS_OPERATION, DESCRIBE_OPERATION = 4, 10, 8


def test_a_batch_is_what_brokers_read() -> None:
    records = [[("tw-cancel-offset", b"%d" % n), ("none", None)] for n in (7, 1 << 40)]
    body = codec.produce_request("orders", 3, codec.record_batch(records, 1_800_000_000_000), 900)
    request = decode_produce_request(Reader(bytearray(body)), codec.VERSIONS[codec.PRODUCE])
    ((topic,),) = (request.topic_data,)
    (data,) = topic.partition_data
    assert (topic.name, data.index, request.acks, request.timeout_ms) == ("orders", 3, -1, 900)
    assert data.records is not None
    found = decode_batch(bytearray(data.records), 0)
    assert [record.headers for record in found] == [
        ((b"tw-cancel-offset", b"%d" % n), (b"none", None)) for n in (7, 1 << 40)
    ]
    assert {(one.key, one.value, one.timestamp) for one in found} == {
        (None, None, 1_800_000_000_000)
    }


def produced(*errors: tuple[int, str]) -> bytes:
    named = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=words)
        for index, words in errors
    ]
    partition = PartitionProduceResponse(
        index=0, error_code=87 if errors else 0, record_errors=named, error_message="one is bad"
    )
    writer = Writer()
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[partition])]
    )
    encode_produce_response(writer, response, codec.VERSIONS[codec.PRODUCE])
    return bytes(writer.buf)


def test_an_answer_says_which_records_were_refused() -> None:
    answer = produced((3, "too late"), (900, "unknown"))
    found = codec.read_produced(codec.Reader(answer))
    assert found == codec.Produced(87, "one is bad", {3: "too late", 900: "unknown"})
    for size in range(len(answer) - 10):
        with pytest.raises(BrokerError):
            codec.read_produced(codec.Reader(answer[:size]))


@pytest.mark.parametrize(
    ("property_name", "value"), [("sasl.oauthbearer.config", "x"), ("sasl.mechanism", "GSSAPI")]
)
async def test_what_it_does_not_know_it_does_not_ignore(property_name: str, value: str) -> None:
    properties: dict[str, Any] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
        property_name: value,
    }
    with pytest.raises(Unsupported, match=f"{value}|{property_name}"):
        await connect("127.0.0.1", 1, properties)


async def test_a_broker_that_goes_away_is_said_to_all_who_wait() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(BrokerUnreachable, match="has ended"):
            await connect("127.0.0.1", port, {})
    with pytest.raises(BrokerUnreachable, match="Connecting to"):
        await connect("127.0.0.1", port, {})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantBroker]:
    if WHY_NO_CERTIFICATES:
        pytest.skip(WHY_NO_CERTIFICATES)
    folder: Path = tmp_path_factory.mktemp("tenants")
    with tenant_broker(folder, "acme", "umbra", module=WITH_FEATURES, tls=True) as running:
        running.apply(*_describer("acme"))
        yield running


def _describer(tenant: str) -> list[messages.Resource]:
    """A user `other` of a tenant, whose password is that of `app`, and who may describe topics."""
    _, credential, grants = tenant_with_user(tenant)
    # His own login, of the same verifiers.
    credential.name, credential.resource_id = f"other@{tenant}", "other-login"
    credential.credential.principal = "other"
    grants.name, grants.resource_id = "others", "other-grants"
    del grants.grants.acls[:]
    for operation in (DESCRIBE_OPERATION, DESCRIBE_CONFIGS_OPERATION):
        grants.grants.acls.add(
            resource_type=TOPIC_TYPE,
            pattern_type=LITERAL,
            name="*",
            principal="User:other",
            host="*",
            operation=operation,
            permission=ALLOW,
        )
    return [credential, grants]


def client_of(broker: TenantBroker, tenant: str, user: str = "", query: str = "") -> Client:
    address = broker.users_over_tls if query else broker.users
    login = (user or login_of(tenant)).replace("@", "%40")
    password = login_of(tenant).replace("@", "%40")
    settings = ClientSettings(request_timeout_ms=10_000)
    return Client(f"tidewheel://{login}:{password}@{address}{query}", settings=settings)


def at(receipt: Receipt, cancel_of: Receipt) -> Receipt:
    """The same place, cancelled by another client."""
    return replace(receipt, _cancel=cancel_of._cancel)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize("tls", [False, True])
async def test_each_user_is_who_he_is(
    broker: TenantBroker, name: str, mechanism: str, tls: bool
) -> None:
    query = f"?ca={broker.authority}&mechanism={mechanism}" if tls else f"?mechanism={mechanism}"
    address = broker.users_over_tls if tls else broker.users
    login = login_of("acme").replace("@", "%40")
    async with Client(f"tidewheel://{login}:{login}@{address}{query}") as client:
        await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        receipt = await client.topic(name).send("x", delay="1h")
        await receipt.cancel()
        past = await client.topic(name).send("x", deliver_at=5)
        async for _ in client.subscribe(name):
            break
        with pytest.raises(TooLate):
            await past.cancel()


async def test_tenants_and_users_have_their_own(broker: TenantBroker, name: str) -> None:
    async with client_of(broker, "acme") as acme, client_of(broker, "umbra") as umbra:
        for client in (acme, umbra):
            await client.admin.create_topic(name, partitions=1, configs=TAGGED)
        receipt = await acme.topic(name).send("x", delay="1h")
        assert receipt.offset == 0
        past = await umbra.topic(name).send("at once")
        own = await umbra.topic(name).send("y", delay="1h")
        with pytest.raises(UnknownMessage):
            await at(receipt, own).cancel()
        await own.cancel()
        assert past.offset == 0
        # Who may look, and not write.
        async with client_of(broker, "acme", "other@acme") as other:
            with pytest.raises(NotAuthorized):
                await other._commands.cancel(receipt)  # type: ignore[union-attr]
        # It is still there, whoever else has asked.
        await receipt.cancel()


async def test_strangers_get_no_further(broker: TenantBroker) -> None:
    host, port = broker.users.split(":")
    properties: dict[str, Any] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": login_of("acme"),
        "sasl.password": "guess",
    }
    with pytest.raises(NotAuthenticated):
        await connect(host, int(port), properties)
    with pytest.raises(NotAuthenticated, match="does not take"):
        await connect(host, int(port), {**properties, "sasl.mechanism": "PLAIN"})
    host, port = broker.users_over_tls.split(":")
    with pytest.raises(TlsFailed):
        await connect(host, int(port), {**properties, "security.protocol": "SASL_SSL"})
