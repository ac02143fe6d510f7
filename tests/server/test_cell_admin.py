"""CellAdmin as a control plane meets it: a real broker, gRPC over mutual TLS."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.server.cell_admin_messages import BATCH_MAX
from data_plane.server.cell_admin_server import MESSAGE_BYTES_MAX
from data_plane.server.inter_broker_tls import TlsFiles
from tests.broker_process import BrokerProcess
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.server.control_plane import channel as channel_to
from tests.server.control_plane import settings

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

DEADLINE_S = 20.0
Outcome = messages.Result


@pytest.fixture
def cell(broker: BrokerProcess, authority: Authority) -> Iterator[CellAdminStub]:
    with channel(broker, authority.issue("control-plane", "DNS:control-plane")) as opened:
        yield CellAdminStub(opened)


def channel(broker: BrokerProcess, files: TlsFiles | None, ca: str = "") -> grpc.Channel:
    return channel_to(broker.cell_admin_port, files, ca)


def topic(name: str, generation: int = 1, partitions: int = 1, **configs: str) -> messages.Resource:
    return messages.Resource(
        resource_id=f"top_{name}",
        generation=generation,
        tenant="default",
        name=name,
        topic=messages.Topic(
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        ),
    )


def taken_over(topic_id: bytes) -> messages.Resource:
    resource = topic("a")
    resource.take_over_topic_id = topic_id
    return resource


def apply(cell: CellAdminStub, *resources: messages.Resource) -> list[messages.Result]:
    response = cell.Apply(messages.ApplyRequest(resources=resources), timeout=DEADLINE_S)
    return list(response.results)


def items(cell: CellAdminStub, page_size: int = 0) -> dict[str, messages.Item]:
    found: dict[str, messages.Item] = {}
    token = ""
    while True:
        request = messages.ListRequest(
            page_size=page_size, page_token=token, kind=messages.KIND_TOPIC
        )
        page = cell.List(request, timeout=DEADLINE_S)
        for item in page.items:
            assert item.resource.name not in found
            found[item.resource.name] = item
        token = page.next_page_token
        if not token:
            return found


def test_a_declared_topic_is_there_for_kafka_clients_who_cannot_delete_it(
    broker: BrokerProcess, cell: CellAdminStub
) -> None:
    (result,) = apply(cell, topic("orders", 1, 3, retention_ms="60000"))
    assert (result.resource_id, result.outcome, result.generation) == (
        "top_orders",
        Outcome.DONE,
        1,
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.list_topics("orders", timeout=DEADLINE_S).topics["orders"].partitions) == 3
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.delete_topics(["orders"])["orders"].result(DEADLINE_S)
    (result,) = apply(cell, topic("orders", 1, 3, retention_ms="60000"))
    assert result.outcome == Outcome.UNCHANGED
    deletion = messages.Deletion(resource_id="top_orders", generation=2)
    response = cell.Delete(messages.DeleteRequest(deletions=[deletion]), timeout=DEADLINE_S)
    assert [result.outcome for result in response.results] == [Outcome.DONE]
    assert "orders" not in admin.list_topics(timeout=DEADLINE_S).topics
    (result,) = apply(cell, topic("orders", 3, 3))
    assert (result.outcome, result.generation) == (Outcome.GONE, 2)


def test_all_topics_are_listed_in_pages_declared_or_not(
    broker: BrokerProcess, cell: CellAdminStub
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = NewTopic("listed-4", 2, config={"retention.ms": "5"})
    admin.create_topics([made])["listed-4"].result(DEADLINE_S)
    apply(cell, *(topic(f"listed-{n}", segment_bytes="2000000") for n in range(4)))
    found = items(cell)
    for page_size in (1, 2, 3, len(found) - 1, len(found)):
        assert items(cell, page_size) == found
    found = {name: item for name, item in found.items() if name.startswith("listed")}
    assert sorted(found) == [f"listed-{n}" for n in range(5)]
    client, declared = found["listed-4"], found["listed-0"]
    assert (client.resource.owner, client.resource.resource_id) == (messages.CLIENT, "")
    assert (client.partitions, dict(client.configs)) == (2, {"retention.ms": "5"})
    assert len(client.topic_id) == 16
    assert (declared.resource.owner, declared.resource.generation) == (messages.API, 1)
    assert dict(declared.resource.topic.configs) == {"segment.bytes": "2000000"}


def test_a_topic_is_taken_over_and_given_back(broker: BrokerProcess, cell: CellAdminStub) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("taken", 2)])["taken"].result(DEADLINE_S)
    wanted = topic("taken", 1, 2)
    (result,) = apply(cell, wanted)
    assert (result.outcome, result.message) == (
        Outcome.CONFLICT,
        "a Kafka client has made the topic; take it over to manage it",
    )
    wanted.take_over_topic_id = items(cell)["taken"].topic_id
    (result,) = apply(cell, wanted)
    assert result.outcome == Outcome.DONE
    deletion = messages.Deletion(resource_id="top_taken", generation=2, keep=True)
    response = cell.Delete(messages.DeleteRequest(deletions=[deletion]), timeout=DEADLINE_S)
    assert [result.outcome for result in response.results] == [Outcome.DONE]
    assert items(cell)["taken"].resource.owner == messages.CLIENT


def test_a_digest_follows_what_is_declared(cell: CellAdminStub) -> None:
    def digest() -> bytes:
        return cell.Digest(messages.DigestRequest(), timeout=DEADLINE_S).digest

    apply(cell, topic("digested"))
    before = digest()
    assert digest() == before
    apply(cell, topic("digested", 2, 2))
    assert digest() != before


def test_nothing_is_changed_by_a_call_that_only_asks(cell: CellAdminStub) -> None:
    request = messages.ApplyRequest(resources=[topic("asked")], validate_only=True)
    (result,) = cell.Apply(request, timeout=DEADLINE_S).results
    assert result.outcome == Outcome.DONE
    assert "asked" not in items(cell)


def test_the_cell_is_described(cell: CellAdminStub, broker: BrokerProcess) -> None:
    described = cell.DescribeCell(messages.DescribeCellRequest(), timeout=DEADLINE_S)
    (known,) = described.brokers
    assert (known.host, known.port) == ("127.0.0.1", broker.port)
    assert described.features["metadata.version"] >= 3
    assert described.cluster_id


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ([], "resources: 0 of them; give 1 to 1000"),
        ([topic(f"n{n}") for n in range(BATCH_MAX + 1)], "resources: 1001 of them"),
        ([topic("a"), topic("a")], r"resources\[1\]: has the resource_id of resources\[0\]"),
        ([messages.Resource()], r"resources\[0\].resource_id: '' is not"),
        ([messages.Resource(resource_id="a b", generation=1)], r"'a b' is not 1 to 64 letters"),
        ([topic("a", 0)], r"resources\[0\].generation: 0 is less than 1"),
        ([topic("a", 1, 0)], r"resources\[0\].topic.partitions: 0 is less than 1"),
        (
            [messages.Resource(resource_id="a", generation=1, tenant="default", name="a")],
            r"resources\[0\]: has no specification: one of tenant_spec, topic",
        ),
        ([messages.Resource(resource_id="a", generation=1, name="a")], "tenant: is missing"),
        ([taken_over(b"x")], r"resources\[0\].take_over_topic_id: has 1 bytes"),
    ],
)
def test_bad_input_is_named(
    cell: CellAdminStub, resources: list[messages.Resource], words: str
) -> None:
    with pytest.raises(grpc.RpcError, match=words) as raised:
        cell.Apply(messages.ApplyRequest(resources=resources), timeout=DEADLINE_S)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_page_token_that_nobody_gave_is_refused(cell: CellAdminStub) -> None:
    for token in ("x", "bnVsbA==", "WzEsMl0="):
        with pytest.raises(grpc.RpcError, match="page_token") as raised:
            cell.List(messages.ListRequest(page_token=token), timeout=DEADLINE_S)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_message_that_is_too_large_is_refused(cell: CellAdminStub) -> None:
    huge = topic("huge", retention_ms="x" * MESSAGE_BYTES_MAX)
    with pytest.raises(grpc.RpcError) as raised:
        cell.Apply(messages.ApplyRequest(resources=[huge]), timeout=DEADLINE_S)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_only_certificates_of_the_authority_may_call(
    broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "other").issue("stranger", "DNS:stranger")
    trusted = str(authority.folder / "ca.pem")
    forged = TlsFiles(stranger[0], stranger[1], trusted)
    for files in (None, forged):
        with channel(broker, files, trusted) as opened:
            with pytest.raises(grpc.RpcError) as raised:
                CellAdminStub(opened).Digest(messages.DigestRequest(), timeout=DEADLINE_S)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    with grpc.insecure_channel(f"127.0.0.1:{broker.cell_admin_port}") as opened:
        with pytest.raises(grpc.RpcError) as raised:
            CellAdminStub(opened).Digest(messages.DigestRequest(), timeout=DEADLINE_S)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_certificates_are_read_again(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    names = [tmp_path / name for name in ("shown.pem", "shown.key", "shown-ca.pem")]
    files = TlsFiles(*map(str, names))

    def show(authority: Authority) -> None:
        for source, target in zip(authority.issue("b", "IP:127.0.0.1"), names, strict=True):
            beside = target.with_suffix(".new")
            shutil.copyfile(source, beside)
            beside.rename(target)

    show(first)
    with BrokerProcess(tmp_path / "broker", set=settings(files)) as broker:
        for authority in (first, second):
            show(authority)
            with channel(broker, authority.issue("c", "DNS:c")) as opened:
                CellAdminStub(opened).Digest(messages.DigestRequest(), timeout=DEADLINE_S)
        with channel(broker, first.issue("d", "DNS:d")) as opened:
            with pytest.raises(grpc.RpcError) as raised:
                CellAdminStub(opened).Digest(messages.DigestRequest(), timeout=DEADLINE_S)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
