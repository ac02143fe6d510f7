"""UpdateFeatures and what ApiVersions says of features; a partition in a state nobody here knows.

Words were taken from Apache Kafka 4.3.1 with the same raw requests; its controllers these brokers
are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from data_plane.cell.changes import ChangeBroker, RegisterBroker
from data_plane.cell.credentials import (
    Credential,
    DeleteCredential,
    PutCredential,
    PutDecoyKey,
    ScramVerifier,
)
from data_plane.cell.features import (
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    FeatureRange,
    SupportedFeatures,
)
from data_plane.cell.metadata import BrokerImage
from data_plane.cell.metadata_store import StoreUnavailable
from data_plane.log.config import INT64_MAX
from data_plane.wire.errors import ErrorCode as E
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from data_plane.wire.messages.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer, new_topic
from tests.broker.broker_player import NODE_ID
from tests.broker.cell_admin_player import CellAdminPlayer

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
FILTERS = "tidewheel.subscriptions"
WITH_FILTERS = (*SUPPORTED_FEATURES, FeatureRange(FILTERS, 0, 3))
ALL_FAILED = "The update failed for all features since the following feature had an error: "
Asked = tuple[str, int, int]


def update(
    broker: AdminPlayer, *asked: Asked, version: int = 2, validate_only: bool = False
) -> tuple[int, str | None]:
    answer = ask(broker, *asked, version=version, validate_only=validate_only)
    assert answer.results == [] or version < 2
    return answer.error_code, answer.error_message


def ask(broker: AdminPlayer, *asked: Asked, version: int = 2, validate_only: bool = False) -> Any:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level, upgrade_type in asked
        ],
        validate_only=validate_only,
    )
    return broker.ask(ApiKey.UPDATE_FEATURES, version, request)


def refused(words: str) -> tuple[int, str | None]:
    return E.INVALID_UPDATE_VERSION, ALL_FAILED + words


def features(broker: AdminPlayer, version: int = 4) -> tuple[dict[str, Any], dict[str, int], int]:
    """(name → supported range, name → finalized level, epoch), as a client is told."""
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    answer = broker.ask(ApiKey.API_VERSIONS, version, request)
    assert all(one.min_version_level == one.max_version_level for one in answer.finalized_features)
    return (
        {one.name: (one.min_version, one.max_version) for one in answer.supported_features},
        {one.name: one.max_version_level for one in answer.finalized_features},
        answer.finalized_features_epoch,
    )


def cell_of(*supported: SupportedFeatures) -> CellAdminPlayer:
    """Brokers 1, 2, …; the player is 7, knows filters, and so do those who are said to."""
    cell = CellAdminPlayer(brokers=())
    cell.services.features = WITH_FILTERS
    for node_id, known in (*enumerate(supported, 1), (NODE_ID, WITH_FILTERS)):
        cell.change(RegisterBroker(BrokerImage(node_id, "h", node_id, features=known)))
    return cell


def test_features_are_told_with_what_is_supported_and_what_is_finalized() -> None:
    cell = cell_of(WITH_FILTERS)
    version = cell.services.image.version
    assert features(cell) == (
        {METADATA_VERSION: (1, 3), FILTERS: (0, 3)},
        {METADATA_VERSION: 1},
        version,
    )
    # Older clients fail on one that may be off.
    assert features(cell, version=3)[0] == {METADATA_VERSION: (1, 3)}
    assert update(cell, (METADATA_VERSION, 3, UPGRADE), (FILTERS, 1, UPGRADE)) == (0, None)
    assert features(cell)[1:] == ({METADATA_VERSION: 3, FILTERS: 1}, version + 1)
    assert update(cell, (FILTERS, 0, SAFE_DOWNGRADE)) == (0, None)
    assert features(cell)[1:] == ({METADATA_VERSION: 3}, version + 2)


def test_a_level_is_finalized_when_all_registered_brokers_support_it() -> None:
    cell = cell_of(SUPPORTED_FEATURES, ())
    raised = (METADATA_VERSION, 3, UPGRADE)
    words = (
        "Invalid update version 3 for feature metadata.version. Broker 2 only supports versions 1"
    )
    assert update(cell, raised) == refused(words)
    # That it is fenced makes no difference: it may come back.
    cell.change(ChangeBroker(replace(cell.services.image.brokers[2], is_fenced=True)))
    assert update(cell, raised) == refused(words)
    cell.change(RegisterBroker(BrokerImage(2, "h", 2, features=SUPPORTED_FEATURES)))
    before = cell.services.image
    assert update(cell, raised, validate_only=True) == (0, None)
    assert cell.services.image is before
    assert update(cell, raised) == (0, None)
    assert update(cell, raised) == (0, None)
    assert cell.services.image.version == before.version + 1
    assert update(cell, (FILTERS, 1, UPGRADE)) == refused(
        f"Invalid update version 1 for feature {FILTERS}. Broker 1 does not support this feature."
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            (METADATA_VERSION, 3, 0),
            "Invalid update version 3 for feature metadata.version. The controller does not "
            "support the given upgrade type.",
        ),
        (
            (METADATA_VERSION, -1, UPGRADE),
            "Invalid update version -1 for feature metadata.version. A feature version cannot be "
            "less than 0.",
        ),
        (
            (METADATA_VERSION, 0, SAFE_DOWNGRADE),
            "Invalid update version 0 for feature metadata.version. Local controller 7 only "
            "supports versions 1-3",
        ),
        (
            (METADATA_VERSION, 27, UPGRADE),
            "Invalid update version 27 for feature metadata.version. Local controller 7 only "
            "supports versions 1-3",
        ),
        (
            ("sarama.unsupported.feature", 1, UPGRADE),
            "Invalid update version 1 for feature sarama.unsupported.feature. Local controller 7 "
            "does not support this feature.",
        ),
        (
            ("nobody's", 0, SAFE_DOWNGRADE),
            "Invalid update version 0 for feature nobody's. Feature nobody's not found.",
        ),
        (
            (METADATA_VERSION, 1, UPGRADE),
            "Invalid update version 1 for feature metadata.version. Can't downgrade the version of "
            "this feature without setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            (FILTERS, 3, UNSAFE_DOWNGRADE),
            f"Invalid update version 3 for feature {FILTERS}. Can't downgrade to a newer version.",
        ),
        (
            (METADATA_VERSION, 1, SAFE_DOWNGRADE),
            "Unsupported metadata.version downgrade from 3 to 1. Refusing to perform the requested "
            "downgrade because it might delete metadata information.",
        ),
        (
            (METADATA_VERSION, 1, UNSAFE_DOWNGRADE),
            "Unsupported metadata.version downgrade from 3 to 1. Unsafe metadata downgrade is not "
            "supported in this version.",
        ),
    ],
)
def test_refusals(asked: Asked, words: str) -> None:
    cell = cell_of(WITH_FILTERS)
    assert update(cell, (METADATA_VERSION, 3, UPGRADE), (FILTERS, 1, UPGRADE)) == (0, None)
    before = cell.services.image
    # With one that is refused nothing is done.
    assert update(cell, (FILTERS, 2, UPGRADE), asked) == refused(words)
    assert cell.services.image is before


def test_a_feature_needs_a_level_that_has_room_for_it() -> None:
    cell = cell_of(WITH_FILTERS)
    assert update(cell, (FILTERS, 1, UPGRADE)) == refused(
        f"Invalid update version 1 for feature {FILTERS}. {FILTERS} could not be set to 1 because "
        "it depends on metadata.version level 2"
    )
    # Whatever their order.
    assert update(cell, (FILTERS, 1, UPGRADE), (METADATA_VERSION, 3, UPGRADE)) == (0, None)
    lower = (METADATA_VERSION, 1, SAFE_DOWNGRADE), (FILTERS, 0, SAFE_DOWNGRADE)
    assert update(cell, *lower) == (0, None)
    assert cell.services.image.features == {}


@pytest.mark.parametrize("version", [0, 1])
def test_earlier_versions_name_each_feature_when_all_went_well(version: int) -> None:
    cell = cell_of(WITH_FILTERS)
    answer = ask(cell, (METADATA_VERSION, 3, UPGRADE), version=version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert [(one.feature, one.error_code, one.error_message) for one in answer.results] == [
        (METADATA_VERSION, 0, "NONE")
    ]
    answer = ask(cell, ("sarama.unsupported.feature", 1, UPGRADE), version=version)
    assert (answer.error_code, answer.results) == (E.INVALID_UPDATE_VERSION, [])


def test_what_is_only_remembered_of_users_goes_with_an_unsafe_downgrade() -> None:
    cell = cell_of(SUPPORTED_FEATURES)
    assert update(cell, (METADATA_VERSION, 3, UPGRADE)) == (0, None)
    verifier = ScramVerifier(b"salt", bytes(32), bytes(32), 4096)
    credential = Credential("alice", "default", "alice", {"SCRAM-SHA-256": verifier})
    cell.change(PutCredential(credential), PutDecoyKey(b"k" * 32))
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        # She exists.
        code, _ = update(cell, (METADATA_VERSION, 2, kind))
        assert code == E.INVALID_UPDATE_VERSION
    cell.change(DeleteCredential("alice"))
    words = (
        "Unsupported metadata.version downgrade from 3 to 1. Refusing to perform the requested "
        "downgrade because it might delete metadata information. An unsafe downgrade forgets which "
        "users and resources were deleted."
    )
    assert update(cell, (METADATA_VERSION, 1, SAFE_DOWNGRADE)) == refused(words)
    assert update(cell, (METADATA_VERSION, 2, SAFE_DOWNGRADE)) == (0, None)
    assert cell.services.image.decoy_key == b"k" * 32
    assert update(cell, (METADATA_VERSION, 1, UNSAFE_DOWNGRADE)) == (0, None)
    assert cell.services.image.metadata_level == 1
    assert cell.services.image.decoy_key == b""


def test_version_0_allows_a_downgrade_in_its_own_way() -> None:
    cell = cell_of(WITH_FILTERS)
    assert update(cell, (METADATA_VERSION, 3, UPGRADE)) == (0, None)
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=1, allow_downgrade=True)
    request = UpdateFeaturesRequest(feature_updates=[key])
    assert cell.ask(ApiKey.UPDATE_FEATURES, 0, request).error_code == 0
    assert cell.services.image.metadata_level == 1


def test_nothing_asked_and_a_store_that_is_away() -> None:
    broker = AdminPlayer()
    assert update(broker) == (0, None)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("cut")

    broker.services.store.apply = fail  # type: ignore[method-assign]
    code, words = update(broker, (METADATA_VERSION, 3, UPGRADE))
    assert code == E.REQUEST_TIMED_OUT
    assert words is not None
    assert "cut" in words


def test_a_broker_that_is_alone_needs_nobody_elses_leave() -> None:
    broker = AdminPlayer()
    assert update(broker, (METADATA_VERSION, 3, UPGRADE)) == (0, None)
    assert broker.services.image.metadata_level == 3


# --- states ---


def test_a_partition_in_an_unknown_state_takes_nothing_in_and_loses_nothing() -> None:
    cell = cell_of(SUPPORTED_FEATURES)
    cell.hold_lease(NODE_ID)
    assert update(cell, (METADATA_VERSION, 3, UPGRADE)) == (0, None)
    configs = {"retention.ms": "1000", "retention.bytes": "1"}
    cell.create(new_topic("t", -1, -1, [(0, [NODE_ID]), (1, [NODE_ID])], configs))
    for index in (0, 1):
        cell.answered(cell.produce("t", [b"1"], index=index))

    def produced(index: int = 0) -> tuple[int, str | None]:
        (topic,) = cell.answered(cell.produce("t", [b"2"], index=index, acks=1)).response.responses
        (answer,) = topic.partition_responses
        return answer.error_code, answer.error_message

    def deleted() -> int:
        wanted = [DeleteRecordsPartition(partition_index=0, offset=1)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=wanted)])
        (topic,) = cell.ask(ApiKey.DELETE_RECORDS, 2, request).topics
        code: int = topic.partitions[0].error_code
        return code

    cell.change_partition("t", state="archived")
    assert produced() == (E.POLICY_VIOLATION, "t-0 takes no records now")
    assert produced(1)[0] == 0
    assert deleted() == E.POLICY_VIOLATION
    config = cell.partition("t").log.config
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    assert config.min_compaction_lag_ms == config.max_compaction_lag_ms == INT64_MAX
    assert cell.partition("t", 1).log.config.retention_ms == 1000
    # Consumers and followers read on, and elections keep the state.
    assert cell.partition("t").high_watermark == 1
    cell.change_partition("t", replicas=(NODE_ID, 1), isr=(NODE_ID,))
    assert cell.state("t").state == "archived"
    assert produced()[0] == E.POLICY_VIOLATION
    cell.change_partition("t", replicas=(NODE_ID,), state="active")
    assert produced() == (0, None)
    assert deleted() == 0
    assert cell.partition("t").log.config.retention_ms == 1000
