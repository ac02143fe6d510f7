"""Cells of several brokers: whose matter something is, what is asked twice, and what never is. The
brokers are gRPC servers that answer as they are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import grpc
import pytest
from django.core.cache import cache
from django.utils import timezone

from control_plane.api.idempotency import ANSWERED_WITHIN, ASKED, KEPT
from control_plane.cells.models import Cell
from control_plane.messaging.cell_calls import NOT_LEADER, REQUEST_TIMED_OUT, TIMEOUT_S, WAIT_S
from control_plane.messaging.logic import TopicSpec, do_create_topic
from control_plane.operations.models import AuditEvent, IdempotentAnswer
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsServicer
from data_plane.server.inter_broker_tls import TlsFiles
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.control_plane.played_cells import serving
from tests.control_plane.rest import at, client_with, key_of, post
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db,
]

# What is not written down here is not asked.
_Servicer: Any = CellOperationsServicer
NOT_COORDINATOR = 16
ELSEWHERE = messages.Failure(error_code=NOT_LEADER, node_id=2)
NOT_HERE = messages.Failure(error_code=NOT_COORDINATOR, node_id=2)


@dataclass
class Broker(_Servicer):  # type: ignore[misc]
    """One that leads and coordinates everything, or nothing. Once it has `died` it takes what it is
    told, and gives no answer."""

    leads: bool = True
    coordinates: bool = True
    died: bool = False
    groups: list[str] = field(default_factory=list)
    end_offset: int = 9
    ends_known: bool = True
    stored: list[messages.ProduceRequest] = field(default_factory=list)
    resets: list[messages.ResetOffsetsRequest] = field(default_factory=list)
    cancel_failure: messages.Failure | None = None

    def ListDeletedTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        return messages.ListDeletedTopicsResponse()

    def Produce(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.leads:
            return messages.ProduceResponse(failure=ELSEWHERE)
        self.stored.append(request)
        if self.died:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the broker stops")
        return messages.ProduceResponse(partition=request.partition, base_offset=7)

    def CancelDelayed(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.leads:
            return messages.CancelDelayedResponse(failure=ELSEWHERE)
        if self.died:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the broker stops")
        return messages.CancelDelayedResponse(cancelled=[3, 5], failure=self.cancel_failure)

    def Peek(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.leads:
            return messages.PeekResponse(failure=ELSEWHERE)
        return messages.PeekResponse(end_offset=self.end_offset, log_start_offset=2)

    def ListGroups(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = sorted(name for name in self.groups if name > request.page_token)
        page = found[: request.page_size]
        more = page[-1] if len(found) > len(page) else ""
        return messages.ListGroupsResponse(
            groups=[messages.GroupSummary(group_id=name) for name in page], next_page_token=more
        )

    def DescribeGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.coordinates:
            return messages.DescribeGroupResponse(failure=NOT_HERE)
        end, lag = (9, 4) if self.ends_known else (-1, -1)
        offset = messages.GroupOffset(
            topic="orders", committed_offset=5, end_offset=end, lag=lag, leader=2
        )
        group = messages.GroupSummary(group_id=request.group_id, state="Empty")
        return messages.DescribeGroupResponse(group=group, offsets=[offset])

    def ResetOffsets(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.coordinates:
            return messages.ResetOffsetsResponse(failure=NOT_HERE)
        self.resets.append(request)
        if self.died and not request.validate_only:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the broker stops")
        results = []
        for target in request.targets:
            result = messages.OffsetResult(topic=target.topic, partition=target.partition)
            if target.WhichOneof("to") == "offset":
                result.offset = target.offset
            else:
                result.offset = -1
                result.failure.CopyFrom(ELSEWHERE)
            results.append(result)
        return messages.ResetOffsetsResponse(results=results)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority(tmp_path_factory.mktemp("tls") / "ca").issue("both", "IP:127.0.0.1")


@pytest.fixture
def acme(files: TlsFiles, settings: Any) -> Tenant:
    settings.CELL_ADMIN_TLS_CERTIFICATE = files.certificate
    settings.CELL_ADMIN_TLS_KEY = files.key
    settings.CELL_ADMIN_TLS_CA = files.authority
    cache.clear()
    make_cell()
    return make_tenant("acme")


class Rest:
    """Somebody with a key, whose tenant's cell has these addresses."""

    def __init__(self, acme: Tenant, endpoints: list[str]) -> None:
        Cell.objects.update(admin_endpoints=endpoints)
        self.acme = acme
        self.client = client_with(key_of(acme, "developer", ("kafka", "rest")))
        topic = do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
        self.topic = f"topics/{topic.id}"
        self.address = at(acme, f"{self.topic}/messages")

    def send(self, **headers: str) -> Any:
        body = {"partition": 0, "messages": [{"value": {"text": "x"}}]}
        return post(self.client, self.address, body, **headers)

    def reset(self, **target: Any) -> Any:
        targets = [{"topic": "orders", "partition": 0} | target]
        body = {"group_id": "readers", "targets": targets}
        return post(self.client, at(self.acme, "offset-resets"), body, **{"Idempotency-Key": "r"})

    def get(self, address: str, **query: Any) -> Any:
        return self.client.get(at(self.acme, address), query)


def outcomes(action: str) -> list[Any]:
    return [event.changes.get("outcome") for event in AuditEvent.objects.filter(action=action)]


def test_what_may_have_been_appended_is_not_appended_again(acme: Tenant, files: TlsFiles) -> None:
    brokers = [Broker(died=True), Broker()]
    with serving(files, *brokers) as endpoints:
        rest = Rest(acme, endpoints)
        # A retry is told the same, and appends nothing, whatever the cell would say by now.
        for _ in range(2):
            answer = rest.send(**{"Idempotency-Key": "once"})
            assert (answer.status_code, answer.json()["code"]) == (503, "outcome-unknown")
            brokers[0].died = False
        assert [len(broker.stored) for broker in brokers] == [1, 0]
        assert outcomes("message.produce") == ["unknown"]
        # Who asks anew has it appended anew.
        assert rest.send(**{"Idempotency-Key": "twice"}).status_code == 201
    assert [len(broker.stored) for broker in brokers] == [2, 0]


def test_what_may_have_been_cancelled_is_written_down(acme: Tenant, files: TlsFiles) -> None:
    broker = Broker(died=True)
    with serving(files, broker, Broker(leads=False)) as endpoints:
        rest = Rest(acme, endpoints)
        address = at(acme, f"{rest.topic}/delayed/cancel")
        unknown = post(rest.client, address, {"partition": 0})
        assert (unknown.status_code, unknown.json()["code"]) == (503, "outcome-unknown")
        broker.died, broker.cancel_failure = False, messages.Failure(error_code=REQUEST_TIMED_OUT)
        in_part = post(rest.client, address, {"partition": 0})
        assert (in_part.status_code, in_part.json()["code"]) == (503, "outcome-unknown")
    changes = [event.changes for event in AuditEvent.objects.filter(action="message.cancel")]
    told = sorted((one.get("cancelled", 0), one.get("outcome", "")) for one in changes)
    assert told == [(0, "unknown"), (0, "unknown"), (2, "")]


def test_what_a_former_leader_has_cancelled_counts_too(acme: Tenant, files: TlsFiles) -> None:
    with serving(files, Broker(cancel_failure=ELSEWHERE), Broker()) as endpoints:
        rest = Rest(acme, endpoints)
        answer = post(rest.client, at(acme, f"{rest.topic}/delayed/cancel"), {"partition": 0})
    assert (answer.status_code, answer.json()["cancelled"]) == (200, 4)
    (event,) = AuditEvent.objects.filter(action="message.cancel")
    assert event.changes["cancelled"] == 4


def test_what_was_appended_is_told_again_and_what_was_refused_is_decided_anew(
    acme: Tenant, files: TlsFiles
) -> None:
    broker = Broker(leads=False)
    with serving(files, broker) as endpoints:
        rest = Rest(acme, endpoints)
        assert rest.send(**{"Idempotency-Key": "once"}).status_code == 503
        broker.leads = True
        answers = [rest.send(**{"Idempotency-Key": "once"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert [answer.get("Idempotency-Replayed") for answer in answers] == [None, "true", "true"]
    assert [answer.json()["base_offset"] for answer in answers] == [7, 7, 7]
    assert len(broker.stored) == 1


def test_a_server_that_dies_while_it_asks_leaves_the_outcome_unknown(
    acme: Tenant, files: TlsFiles
) -> None:
    broker = Broker()
    with serving(files, broker) as endpoints:
        rest = Rest(acme, endpoints)
        assert rest.send(**{"Idempotency-Key": "once"}).status_code == 201
        # As it was before the answer came.
        kept = IdempotentAnswer.objects.all()
        assert kept.update(status_code=ASKED, answer=b"") == 1
        again = rest.send(**{"Idempotency-Key": "once"})
        assert (again.status_code, again.json()["code"]) == (409, "in-flight")
        kept.update(expires_at=timezone.now() + KEPT - ANSWERED_WITHIN)
        later = rest.send(**{"Idempotency-Key": "once"})
        assert (later.status_code, later.json()["code"]) == (503, "outcome-unknown")
    assert len(broker.stored) == 1


def test_a_call_may_not_take_longer_than_a_retry_waits_for_it() -> None:
    assert timedelta(seconds=2 * (TIMEOUT_S + WAIT_S)) < ANSWERED_WITHIN


def test_the_leader_is_found(acme: Tenant, files: TlsFiles) -> None:
    brokers = [Broker(leads=False), Broker()]
    with serving(files, *brokers) as endpoints:
        # Nobody is at the first of these.
        answer = Rest(acme, ["127.0.0.1:1", *endpoints]).send()
    assert (answer.status_code, answer.json()["base_offset"]) == (201, 7)
    assert [len(broker.stored) for broker in brokers] == [0, 1]
    assert outcomes("message.produce") == [None]


def test_while_nobody_leads_it_may_be_tried_again(acme: Tenant, files: TlsFiles) -> None:
    with serving(files, Broker(leads=False), Broker(leads=False)) as endpoints:
        answer = Rest(acme, endpoints).send()
    assert (answer.status_code, answer.json()["code"]) == (503, "cell-unavailable")
    assert answer["Retry-After"] == "5"
    assert outcomes("message.produce") == []


def test_groups_of_all_brokers_are_one_list(acme: Tenant, files: TlsFiles) -> None:
    brokers = [Broker(groups=["a", "c", "e", "g"]), Broker(groups=["b", "d", "f"])]
    with serving(files, *brokers) as endpoints:
        rest = Rest(acme, endpoints)
        seen: list[str] = []
        query: dict[str, Any] = {"limit": 3}
        while True:
            page = rest.get("groups", **query).json()
            seen += [group["group_id"] for group in page["items"]]
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
        assert seen == ["a", "b", "c", "d", "e", "f", "g"]
        Cell.objects.update(admin_endpoints=[endpoints[1], "127.0.0.1:1"])
        page = rest.get("groups").json()
    assert [group["group_id"] for group in page["items"]] == ["b", "d", "f"]
    assert page["is_complete"] is False


def test_ends_that_the_coordinator_does_not_know_are_asked_of_the_leaders(
    acme: Tenant, files: TlsFiles
) -> None:
    brokers = [Broker(leads=False, ends_known=False), Broker(coordinates=False, end_offset=11)]
    with serving(files, *brokers) as endpoints:
        rest = Rest(acme, endpoints)
        group = rest.get("groups/readers").json()
        assert (group["lag"], group["offsets"][0]["end_offset"]) == (6, 11)
        moved = rest.reset(position="latest").json()["items"]
    assert [(one["committed_offset"], one["offset"]) for one in moved] == [(5, 11)]
    tried, done = brokers[0].resets
    assert (tried.validate_only, tried.targets[0].WhichOneof("to")) == (True, "latest")
    assert (done.validate_only, done.targets[0].offset) == (False, 11)


def test_a_reset_of_which_nothing_is_heard_is_written_down(acme: Tenant, files: TlsFiles) -> None:
    broker = Broker(died=True)
    with serving(files, broker) as endpoints:
        rest = Rest(acme, endpoints)
        answer = rest.reset(offset=3)
        # Its retry, with the same key, asks nothing.
        assert rest.reset(offset=3).json()["code"] == "outcome-unknown"
    assert (answer.status_code, answer.json()["code"]) == (503, "outcome-unknown")
    assert [request.validate_only for request in broker.resets] == [True, False]
    (event,) = AuditEvent.objects.filter(action="group.reset")
    assert event.changes["targets"][0]["error"]
