"""The dispatcher, ApiVersions and InitProducerId."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from data_plane.broker.produce.init_producer_id import BLOCK_IDS, WAITING_MAX, ProducerIds
from data_plane.broker.request.api import CloseConnection, Deferred, HandlerTable, RequestContext
from data_plane.broker.request.api_versions import FIRST_OWN_KEY, OWN_SOFTWARE_NAME
from data_plane.broker.request.dispatch import CLIENT_IDS_MAX, Dispatcher
from data_plane.wire.errors import ErrorCode, WireError
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.init_producer_id_request import InitProducerIdRequest
from data_plane.wire.messages.init_producer_id_response import InitProducerIdResponse
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker.broker_player import BrokerPlayer


@pytest.fixture
def broker() -> BrokerPlayer:
    return BrokerPlayer()


def ask_versions(broker: BrokerPlayer, version: int, name: str = "c", release: str = "1") -> Any:
    request = ApiVersionsRequest()
    if version >= 3:
        request.client_software_name, request.client_software_version = name, release
    return broker.ask(ApiKey.API_VERSIONS, version, request)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_says_what_the_handler_table_holds(broker: BrokerPlayer, version: int) -> None:
    response = ask_versions(broker, version)
    assert response.error_code == 0
    assert {(one.api_key, one.min_version, one.max_version) for one in response.api_keys} == {
        (int(entry.api_key), entry.advertised_min_version, entry.max_version)
        for entry in broker.services.handlers.entries()
        if entry.api_key < FIRST_OWN_KEY
    }
    # librdkafka before 2.12 takes a higher one for a broker that cannot decompress.
    assert {one.min_version for one in response.api_keys if one.api_key == ApiKey.PRODUCE} == {0}
    if version >= 3:
        # test_features.py has more of these.
        assert response.finalized_features_epoch == broker.services.image.version
        assert broker.connection.client_software_name == "c"


def test_our_own_client_hears_of_our_own_apis(broker: BrokerPlayer) -> None:
    own = {entry.api_key for entry in broker.services.handlers.entries()} - {
        one.api_key for one in ask_versions(broker, 4, "apache-kafka-java").api_keys
    }
    assert own == {ApiKey.DESCRIBE_DELAYED}
    told = {one.api_key for one in ask_versions(broker, 3, OWN_SOFTWARE_NAME).api_keys}
    assert own < told
    assert {entry.api_key for entry in broker.services.handlers.entries()} == told


def test_advertised_versions_are_ones_the_codecs_know(broker: BrokerPlayer) -> None:
    for entry in broker.services.handlers.entries():
        spec = API_BY_KEY[int(entry.api_key)]
        assert spec.min_version <= entry.min_version <= entry.max_version <= spec.max_version
        if entry.api_key is not ApiKey.PRODUCE:
            assert entry.advertised_min_version == entry.min_version


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_of_produce_that_are_only_advertised_close_the_connection(
    broker: BrokerPlayer, version: int
) -> None:
    data = bytearray(struct.pack(">hhih", 0, version, 4711, -1) + bytes(10))
    with pytest.raises(CloseConnection, match=f"version {version} is not supported"):
        broker.send_bytes(ApiKey.PRODUCE, 3, data)


@pytest.mark.parametrize("name", ["", "-lib", "lib-", "with space", "ü"])
def test_names_of_client_software_are_checked(broker: BrokerPlayer, name: str) -> None:
    assert ask_versions(broker, 3, name=name).error_code == ErrorCode.INVALID_REQUEST
    assert ask_versions(broker, 3, release=name).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    broker: BrokerPlayer, version: int
) -> None:
    data = bytearray(struct.pack(">hhih", 18, version, 4711, -1) + b"whatever follows")
    response = broker.send_bytes(ApiKey.API_VERSIONS, 0, data).response
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.min_version, one.max_version) for one in response.api_keys] == [
        (18, 0, 4)
    ]


@pytest.mark.parametrize(
    "header",
    [
        (99, 0, 1, -1),  # an API that nobody knows
        (27, 0, 1, -1),  # WriteTxnMarkers, known and not served
        (0, 2, 1, -1),  # Produce before version 3
        (0, 14, 1, -1),
        (-1, 0, 1, -1),
    ],
)
def test_what_is_not_served_closes_the_connection(
    broker: BrokerPlayer, header: tuple[int, int, int, int]
) -> None:
    data = bytearray(struct.pack(">hhih", *header) + bytes(20))
    with pytest.raises(CloseConnection):
        broker.send_bytes(ApiKey.PRODUCE, 3, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x12\x00\x00\x00",
        struct.pack(">hhih", 18, 3, 1, 100),
        struct.pack(">hhih", 18, 0, 1, 2) + b"\xff\xff",
        struct.pack(">hhih", 18, 3, 1, -1),
        struct.pack(">hhih", 0, 9, 1, -1) + b"\x00",
        struct.pack(">hhih", 1, 12, 1, -1) + b"\x00" + bytes(5),
        struct.pack(">hhih", 2, 6, 1, -1) + b"\x00" + b"\xff" * 9,
    ],
)
def test_malformed_frames_raise_one_kind_of_error(broker: BrokerPlayer, data: bytes) -> None:
    with pytest.raises(WireError):
        broker.send_bytes(ApiKey.API_VERSIONS, 0, bytearray(data))


def test_bytes_behind_a_request_are_passed_over(broker: BrokerPlayer) -> None:
    data = bytearray(struct.pack(">hhih", 18, 0, 4711, -1) + b"trailing")
    assert broker.send_bytes(ApiKey.API_VERSIONS, 0, data).response.error_code == 0


def test_header_tags_are_skipped(broker: BrokerPlayer) -> None:
    data = struct.pack(">hhih", 18, 3, 4711, -1) + b"\x01\x05\x02xx" + b"\x02c\x021\x00"
    assert broker.send_bytes(ApiKey.API_VERSIONS, 3, bytearray(data)).response.error_code == 0


def test_client_ids_are_remembered_up_to_a_maximum(broker: BrokerPlayer) -> None:
    for number in range(CLIENT_IDS_MAX + 10):
        broker.send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), client_id=f"client-{number}")
    assert len(broker.dispatcher._client_ids) <= CLIENT_IDS_MAX
    broker.send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), client_id=None)


def failing_table(handler: Any) -> HandlerTable:
    table = HandlerTable()
    table.register(ApiKey.INIT_PRODUCER_ID, 0, 5, handler)
    table.register(ApiKey.API_VERSIONS, 0, 4, handler)
    return table


def play(broker: BrokerPlayer, handler: Any) -> None:
    broker.services.handlers = failing_table(handler)
    broker.dispatcher = Dispatcher(broker.services)


def test_a_failing_handler_is_answered_and_logged(broker: BrokerPlayer) -> None:
    def handler(services: Any, context: RequestContext, request: Any, now_ms: int) -> Any:
        raise ValueError("a bug")

    play(broker, handler)
    request = InitProducerIdRequest(transactional_id=None)
    response = broker.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    level, event, fields = broker.log.events[-1]
    assert (level, event) == ("error", "request_failed")
    assert "a bug" in fields["traceback"]
    assert broker.services.counters.request_errors == 1


def test_a_handler_that_wants_the_connection_closed_gets_it(broker: BrokerPlayer) -> None:
    def handler(services: Any, context: RequestContext, request: Any, now_ms: int) -> Any:
        raise CloseConnection("because")

    play(broker, handler)
    with pytest.raises(CloseConnection, match="because"):
        broker.send(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))


def test_a_late_answer_that_cannot_be_encoded_closes_the_connection(
    broker: BrokerPlayer,
) -> None:
    deferred: Deferred[Any] = Deferred()
    play(broker, lambda services, context, request, now_ms: deferred)
    pending = broker.send(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
    deferred.complete(InitProducerIdResponse(producer_id=2**70))
    assert not pending.is_answered
    assert broker.close_reasons


# Producer ids


def init_producer_id(broker: BrokerPlayer, version: int = 5, **fields: Any) -> Any:
    fields.setdefault("transactional_id", None)
    return broker.ask(ApiKey.INIT_PRODUCER_ID, version, InitProducerIdRequest(**fields))


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(broker: BrokerPlayer, version: int) -> None:
    answers = [init_producer_id(broker, version) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [0, 0, 0]
    assert [answer.producer_epoch for answer in answers] == [0, 0, 0]
    assert len({answer.producer_id for answer in answers}) == 3


@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_old_id_is_named_with_its_epoch_or_not_at_all(
    broker: BrokerPlayer, version: int
) -> None:
    for producer_id, epoch in ((5, -1), (-1, 3)):
        answer = init_producer_id(broker, version, producer_id=producer_id, producer_epoch=epoch)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
            ErrorCode.INVALID_REQUEST,
            -1,
            -1,
        )
    answer = init_producer_id(broker, version, producer_id=5, producer_epoch=3)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)


def test_ids_are_never_given_out_twice_not_even_after_a_crash(broker: BrokerPlayer) -> None:
    seen = {init_producer_id(broker).producer_id for _ in range(2 * BLOCK_IDS + 10)}
    assert len(seen) == 2 * BLOCK_IDS + 10
    # What a restart sees is the store alone.
    broker.services.producer_ids = ProducerIds(broker.services)
    seen |= {init_producer_id(broker).producer_id for _ in range(10)}
    assert len(seen) == 2 * BLOCK_IDS + 20


def test_requests_wait_for_the_first_block(broker: BrokerPlayer) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    waiting = [broker.send(ApiKey.INIT_PRODUCER_ID, 4, request) for _ in range(3)]
    assert not any(pending.is_answered for pending in waiting)
    broker.run_jobs()
    assert len({pending.response.producer_id for pending in waiting}) == 3


def test_too_many_waiting_producers_are_told_to_come_back(broker: BrokerPlayer) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    for _ in range(WAITING_MAX):
        assert not broker.send(ApiKey.INIT_PRODUCER_ID, 4, request).is_answered
    response = broker.send(ApiKey.INIT_PRODUCER_ID, 4, request).response
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_transactions_are_refused_for_good(broker: BrokerPlayer) -> None:
    answer = init_producer_id(broker, transactional_id="t")
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert answer.producer_id == -1
    assert init_producer_id(broker, transactional_id="").error_code == ErrorCode.INVALID_REQUEST
