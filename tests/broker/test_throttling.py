"""Throttling: what is counted, what answers say, and for how long connections are muted."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.broker.request.api import CloseConnection
from data_plane.broker.request.frames import encode_frame, new_response
from data_plane.broker.request.throttling import ASK_THEMSELVES, FIRST_FIELD_FROM, THROTTLE_MS_MAX
from data_plane.server.composition import make_handlers
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker.admin_player import AdminPlayer
from tests.broker.broker_player import BrokerPlayer, values_of
from tests.broker.doubles import FixedQuotas
from tests.broker.test_fetch import parts
from tests.broker.test_produce import only

TOLD_MS = 0x01020304


class Throttled(BrokerPlayer):
    """A broker with quotas, and for how long its connection was muted."""

    def __init__(self) -> None:
        super().__init__()
        self.create_topic("orders", 2)
        self.quotas = FixedQuotas()
        self.services.quotas = self.quotas
        self.muted_ms: list[int] = []
        self.connection.mute = self.muted_ms.append


@pytest.fixture
def broker() -> Throttled:
    return Throttled()


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_waits_for_its_bytes(broker: Throttled, version: int, acks: int) -> None:
    broker.quotas.produce_ms = 70
    response = broker.produce("orders", [bytes(1000)], version=version, acks=acks).response
    # It is stored all the same.
    assert (only(response).error_code, only(response).base_offset) == (0, 0)
    assert response.throttle_time_ms == 70
    assert broker.muted_ms == [70]
    request, (counted, request_bytes) = broker.quotas.asked
    assert request == ("request", int(ApiKey.PRODUCE))
    assert counted == "produce"
    assert 1000 < request_bytes < 1200


def test_a_produce_without_an_answer_waits_too(broker: Throttled) -> None:
    broker.quotas.produce_ms = 70
    assert not broker.produce("orders", [b"a"], acks=0).is_answered
    assert broker.muted_ms == [70]
    with pytest.raises(CloseConnection):
        broker.produce("nowhere", [b"a"], acks=0)


def test_a_produce_waits_for_the_longer_of_its_quotas(broker: Throttled) -> None:
    broker.quotas.produce_ms, broker.quotas.request_ms = 70, 90
    assert broker.produce("orders", [b"a"]).response.throttle_time_ms == 90
    broker.quotas.produce_ms = 95
    assert broker.produce("orders", [b"a"]).response.throttle_time_ms == 95
    assert broker.muted_ms == [90, 95]


def test_who_waits_for_replicas_sends_nothing_more_meanwhile_when_he_has_to_wait() -> None:
    """Or all that a client has in its queue would be taken before the first answer."""
    broker = Throttled()
    broker.configure_topic("orders", durability="fsync")
    broker.quotas.produce_ms = 70
    pending = broker.produce("orders", [bytes(1000)])
    assert not pending.is_answered
    assert broker.muted_ms == [70]
    (counted,) = broker.quotas.asked
    assert counted[0] == "produce"
    assert counted[1] > 1000
    # By the answer it still does, and its bytes count once.
    broker.quotas.produce_ms = 60
    broker.run_jobs()
    assert pending.response.throttle_time_ms == 60
    assert broker.muted_ms == [70, 60]
    assert broker.quotas.noted_ms == [60]
    assert broker.quotas.asked[1:] == [("request", int(ApiKey.PRODUCE)), ("produce", 0)]


def test_who_waits_for_replicas_goes_on_sending_when_he_need_not_wait() -> None:
    broker = Throttled()
    broker.configure_topic("orders", durability="fsync")
    pending = broker.produce("orders", [b"a"])
    broker.run_jobs()
    assert pending.response.throttle_time_ms == 0
    assert broker.muted_ms == []


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_that_has_to_wait_gets_no_records(broker: Throttled, version: int) -> None:
    broker.produce("orders", [b"a"])
    broker.quotas.fetch_ms = 40
    response = broker.fetch({("orders", 0): 0}, version=version).response
    assert response.throttle_time_ms == 40
    assert response.responses == []
    if version >= 7:
        assert (response.error_code, response.session_id) == (0, 0)
    assert broker.muted_ms == [40]
    broker.quotas.fetch_ms = 0
    response = broker.fetch({("orders", 0): 0}, version=version).response
    assert response.throttle_time_ms == 0
    assert values_of(only(response).records) == [(0, b"a")]
    assert broker.muted_ms == [40]
    assert broker.quotas.asked[-1] == ("fetch", len(only(response).records))


def test_a_session_is_opened_by_the_first_answer_that_need_not_wait(broker: Throttled) -> None:
    broker.produce("orders", [b"a"])
    wanted = {("orders", 0): 0, ("orders", 1): 0}
    broker.quotas.fetch_ms = 40
    response = broker.fetch(wanted, session_epoch=0).response
    assert (response.session_id, response.responses) == (0, [])
    assert len(broker.sessions.cache) == 0
    broker.quotas.fetch_ms = 0
    opened = broker.fetch(wanted, session_epoch=0).response
    assert opened.session_id != 0
    assert set(parts(opened)) == {0, 1}


def test_what_a_session_was_not_told_it_is_told_with_the_next_answer(broker: Throttled) -> None:
    """Records, and that a high watermark has moved where there are none."""
    wanted = {("orders", 0): 0, ("orders", 1): 1}
    opened = broker.fetch(wanted, session_epoch=0).response
    session = {"session_id": opened.session_id}
    broker.produce("orders", [b"a"], index=0)
    broker.produce("orders", [b"b"], index=1)
    broker.quotas.fetch_ms = 40
    response = broker.fetch({}, session_epoch=1, **session).response
    assert (response.session_id, response.responses) == (opened.session_id, [])
    assert (response.error_code, response.throttle_time_ms) == (0, 40)
    broker.quotas.fetch_ms = 0
    told = parts(broker.fetch({}, session_epoch=2, **session).response)
    assert values_of(told[0].records) == [(0, b"a")]
    assert told[1].high_watermark == 1


def test_a_parked_poll_is_counted_when_it_is_answered(broker: Throttled) -> None:
    pending = broker.fetch({("orders", 0): 0}, max_wait_ms=500)
    assert broker.quotas.asked == []
    broker.quotas.fetch_ms = 40
    other = broker.connect()
    broker.produce("orders", [b"a"], connection=other)
    assert pending.response.throttle_time_ms == 40
    assert pending.response.responses == []
    assert broker.muted_ms == [40]


def test_errors_of_a_whole_fetch_are_requests_as_well(broker: Throttled) -> None:
    broker.quotas.request_ms = 30
    for pending in (
        broker.fetch({("orders", 0): 0}, session_id=5, session_epoch=3),
        broker.fetch({("orders", 0): 0}, replica_id=1),
    ):
        response = pending.response
        assert response.error_code != 0
        assert response.throttle_time_ms == 30
    assert broker.muted_ms == [30, 30]


def test_an_answer_has_no_more_than_its_quota_ever_allows(broker: Throttled) -> None:
    for _ in range(20):
        broker.produce("orders", [bytes(1000)])
    broker.quotas.fetch_bytes = 5_000
    response = broker.fetch({("orders", 0): 0}).response
    assert 4 <= len(values_of(only(response).records)) <= 5
    assert broker.quotas.asked[-1][1] <= 5_000


def test_a_follower_never_waits(broker: Throttled) -> None:
    broker.quotas.request_ms = broker.quotas.fetch_ms = 40
    peer = broker.connect(is_inter_broker=True)
    peer.mute = broker.muted_ms.append
    response = broker.fetch({("orders", 0): 0}, replica_id=1, connection=peer).response
    assert response.throttle_time_ms == 0
    assert broker.quotas.asked == []
    assert broker.muted_ms == []


@pytest.mark.parametrize("wanted_ms", [-5, 0])
def test_who_need_not_wait_is_not_muted(broker: Throttled, wanted_ms: int) -> None:
    broker.quotas.request_ms = wanted_ms
    assert broker.produce("orders", [b"a"]).response.throttle_time_ms == 0
    assert broker.muted_ms == []


def test_nobody_waits_for_longer_than_the_maximum(broker: Throttled) -> None:
    broker.quotas.request_ms = 10 * THROTTLE_MS_MAX
    assert broker.produce("orders", [b"a"]).response.throttle_time_ms == THROTTLE_MS_MAX
    assert broker.muted_ms == [THROTTLE_MS_MAX]


def test_a_manager_that_is_not_active_is_not_asked(broker: Throttled) -> None:
    broker.quotas.is_active = False
    broker.quotas.request_ms = broker.quotas.produce_ms = broker.quotas.fetch_ms = 40
    assert broker.produce("orders", [b"a"]).response.throttle_time_ms == 0
    assert broker.fetch({("orders", 0): 0}).response.throttle_time_ms == 0
    assert broker.ask(ApiKey.API_VERSIONS, 3, software()).throttle_time_ms == 0
    assert (broker.quotas.asked, broker.muted_ms) == ([], [])


def software() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="a", client_software_version="1")


@pytest.mark.parametrize("version", range(5))
def test_any_request_may_have_to_wait(broker: Throttled, version: int) -> None:
    broker.quotas.request_ms = 30
    response = broker.ask(ApiKey.API_VERSIONS, version, software())
    # Version 0 has no place to say so.
    assert response.throttle_time_ms == (30 if version >= 1 else 0)
    assert broker.muted_ms == [30]
    assert broker.quotas.asked == [("request", int(ApiKey.API_VERSIONS))]


# Answers whose bytes are made elsewhere than from one message.


@pytest.mark.parametrize("api_key", sorted(FIRST_FIELD_FROM))
def test_where_the_throttle_time_stands_in_a_frame(api_key: int) -> None:
    spec = API_BY_KEY[api_key]
    for version in range(spec.min_version, spec.max_version + 1):
        response = new_response(spec)
        response.throttle_time_ms = TOLD_MS
        frame = bytes(encode_frame(spec, version, 0, response))
        header_bytes = 8 + (version >= spec.first_flexible_version)
        stands_there = frame[header_bytes : header_bytes + 4] == TOLD_MS.to_bytes(4, "big")
        assert stands_there is (version >= FIRST_FIELD_FROM[api_key])
        assert (TOLD_MS.to_bytes(4, "big") in frame) is stands_there


def test_no_raw_answer_is_forgotten() -> None:
    for entry in make_handlers().entries():
        if entry.raw_handler is not None:
            assert entry.api_key in FIRST_FIELD_FROM or entry.api_key in ASK_THEMSELVES
        if entry.slices is not None:
            assert entry.api_key in FIRST_FIELD_FROM


@pytest.mark.parametrize("topics_count", [1, 4000])
@pytest.mark.parametrize("version", range(14))
def test_metadata_at_once_and_in_slices(version: int, topics_count: int) -> None:
    player = AdminPlayer()
    quotas = FixedQuotas()
    quotas.request_ms = 30
    player.services.quotas = quotas
    muted_ms: list[int] = []
    player.connection.mute = muted_ms.append
    names = [f"nowhere-{number}" for number in range(topics_count)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    response: Any = player.ask(ApiKey.METADATA, version, request)
    assert response.throttle_time_ms == (30 if version >= 3 else 0)
    assert len(response.topics) == topics_count
    assert muted_ms == [30]


@pytest.mark.parametrize("version", [1, 2, 6, 10])
def test_a_request_that_is_handled_in_slices_waits_once(broker: Throttled, version: int) -> None:
    broker.quotas.request_ms = 30
    wanted = [ListOffsetsPartition(partition_index=index) for index in range(3000)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=wanted)])
    response = broker.ask(ApiKey.LIST_OFFSETS, version, request)
    assert response.throttle_time_ms == (30 if version >= 2 else 0)
    assert sum(len(topic.partitions) for topic in response.topics) == 3000
    assert broker.muted_ms == [30]


def test_a_context_says_who_asks(broker: Throttled) -> None:
    seen: list[Any] = []

    class Remembering(FixedQuotas):
        def record_request(self, context: Any) -> int:
            seen.append(context)
            return 0

    broker.services.quotas = Remembering()
    broker.ask(ApiKey.API_VERSIONS, 3, software())
    (context,) = seen
    assert str(context.principal) == "User:ANONYMOUS"
    assert (context.namespace, context.listener) == ("default", "tenants")
    assert (context.client_id, context.client_software) == ("tester", ("a", "1"))
    assert context.client_host == "peer"
