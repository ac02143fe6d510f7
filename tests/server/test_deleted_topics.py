"""Deleted topics as a control plane meets them: a real broker, gRPC over mutual TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import grpc
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub
from tests.broker_process import BrokerProcess
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.server.control_plane import channel

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def properties() -> Mapping[str, str]:
    return {"tidewheel.undelete.ms": "3600000", "auto.create.topics.enable": "false"}


@pytest.fixture
def cell(broker: BrokerProcess, authority: Authority) -> Iterator[CellOperationsStub]:
    files = authority.issue("control-plane", "DNS:control-plane")
    with channel(broker.cell_admin_port, files) as opened:
        yield CellOperationsStub(opened)


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def deleted(admin: AdminClient, *names: str) -> None:
    made = admin.create_topics([NewTopic(name, 2) for name in names])
    for future in made.values():
        future.result(DEADLINE_S)
    for future in admin.delete_topics(list(names)).values():
        future.result(DEADLINE_S)


def named(name: str, topic_id: bytes = b"") -> messages.DeletedTopicRequest:
    return messages.DeletedTopicRequest(tenant="default", name=name, topic_id=topic_id)


def listed(cell: CellOperationsStub, **fields: str | int) -> messages.ListDeletedTopicsResponse:
    request = messages.ListDeletedTopicsRequest(**fields)  # type: ignore[arg-type]
    return cell.ListDeletedTopics(request, timeout=DEADLINE_S)


def status_of(call: grpc.RpcError) -> grpc.StatusCode:
    code: grpc.StatusCode = call.code()
    return code


def test_one_comes_back_and_the_order_may_be_repeated(
    cell: CellOperationsStub, admin: AdminClient
) -> None:
    deleted(admin, "back")
    (found,) = listed(cell).topics
    assert (found.tenant, found.name, found.partitions) == ("default", "back", 2)
    with pytest.raises(KafkaException, match="can be brought back; its name is reserved"):
        admin.create_topics([NewTopic("back", 1)])["back"].result(DEADLINE_S)
    for _ in range(2):
        answer = cell.UndeleteTopic(named("back", found.topic_id), timeout=DEADLINE_S)
        assert answer.version
    assert "back" in admin.list_topics(timeout=DEADLINE_S).topics
    assert not listed(cell).topics


def test_one_that_is_purged_is_gone_and_its_name_is_free(
    cell: CellOperationsStub, admin: AdminClient
) -> None:
    deleted(admin, "purged")
    cell.PurgeTopic(named("purged"), timeout=DEADLINE_S)
    for call in (cell.PurgeTopic, cell.UndeleteTopic):
        with pytest.raises(grpc.RpcError) as refused:
            call(named("purged"), timeout=DEADLINE_S)
        assert status_of(refused.value) is grpc.StatusCode.NOT_FOUND
    deleted(admin, "purged")
    cell.PurgeTopic(named("purged"), timeout=DEADLINE_S)


def test_who_names_an_id_means_no_other(cell: CellOperationsStub, admin: AdminClient) -> None:
    deleted(admin, "mine")
    with pytest.raises(grpc.RpcError) as refused:
        cell.PurgeTopic(named("mine", bytes(16)), timeout=DEADLINE_S)
    assert status_of(refused.value) is grpc.StatusCode.NOT_FOUND
    assert [topic.name for topic in listed(cell).topics] == ["mine"]
    cell.PurgeTopic(named("mine"), timeout=DEADLINE_S)


def test_they_are_listed_page_by_page(cell: CellOperationsStub, admin: AdminClient) -> None:
    names = ["a", "b", "c"]
    deleted(admin, *names)
    found, after = [], ""
    while True:
        page = listed(cell, page_size=2, after_tenant="default" if after else "", after_name=after)
        found += [topic.name for topic in page.topics]
        if not page.has_more:
            break
        after = found[-1]
    assert found == names
    assert not listed(cell, tenant="another").topics
    for name in names:
        cell.PurgeTopic(named(name), timeout=DEADLINE_S)


@pytest.mark.parametrize(
    "request_", [messages.DeletedTopicRequest(name="x"), named(""), named("x", b"short")]
)
def test_what_makes_no_sense_is_refused(
    cell: CellOperationsStub, request_: messages.DeletedTopicRequest
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        cell.UndeleteTopic(request_, timeout=DEADLINE_S)
    assert status_of(refused.value) is grpc.StatusCode.INVALID_ARGUMENT
