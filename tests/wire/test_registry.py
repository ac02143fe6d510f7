"""The table of APIs: complete, and cheap to import."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

from data_plane.wire.messages.metadata_request import MetadataRequest
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey

NEWEST_IN_USE = {
    "PRODUCE": 13, "FETCH": 18, "LIST_OFFSETS": 11, "METADATA": 13, "OFFSET_COMMIT": 10,
    "OFFSET_FETCH": 10, "FIND_COORDINATOR": 6, "JOIN_GROUP": 9, "HEARTBEAT": 4, "LEAVE_GROUP": 5,
    "SYNC_GROUP": 5, "DESCRIBE_GROUPS": 6, "LIST_GROUPS": 5, "SASL_HANDSHAKE": 1,
    "API_VERSIONS": 4, "CREATE_TOPICS": 7, "DELETE_TOPICS": 6, "DELETE_RECORDS": 2,
    "INIT_PRODUCER_ID": 5, "OFFSET_FOR_LEADER_EPOCH": 4, "ADD_PARTITIONS_TO_TXN": 5,
    "ADD_OFFSETS_TO_TXN": 4, "END_TXN": 5, "WRITE_TXN_MARKERS": 1, "TXN_OFFSET_COMMIT": 5,
    "DESCRIBE_ACLS": 3, "CREATE_ACLS": 3, "DELETE_ACLS": 3, "DESCRIBE_CONFIGS": 4,
    "ALTER_CONFIGS": 2, "ALTER_REPLICA_LOG_DIRS": 2, "DESCRIBE_LOG_DIRS": 5,
    "SASL_AUTHENTICATE": 2, "CREATE_PARTITIONS": 3, "DELETE_GROUPS": 2, "ELECT_LEADERS": 2,
    "INCREMENTAL_ALTER_CONFIGS": 1, "ALTER_PARTITION_REASSIGNMENTS": 1,
    "LIST_PARTITION_REASSIGNMENTS": 0, "OFFSET_DELETE": 0, "DESCRIBE_CLIENT_QUOTAS": 1,
    "ALTER_CLIENT_QUOTAS": 1, "DESCRIBE_USER_SCRAM_CREDENTIALS": 0,
    "ALTER_USER_SCRAM_CREDENTIALS": 0, "DESCRIBE_QUORUM": 2, "UPDATE_FEATURES": 2,
    "DESCRIBE_CLUSTER": 2, "DESCRIBE_PRODUCERS": 0, "DESCRIBE_TRANSACTIONS": 0,
    "LIST_TRANSACTIONS": 2, "CONSUMER_GROUP_HEARTBEAT": 1, "CONSUMER_GROUP_DESCRIBE": 1,
    "LIST_CONFIG_RESOURCES": 1, "DESCRIBE_TOPIC_PARTITIONS": 0, "SHARE_GROUP_HEARTBEAT": 1,
    "SHARE_GROUP_DESCRIBE": 1, "SHARE_FETCH": 2, "SHARE_ACKNOWLEDGE": 2,
    "DESCRIBE_SHARE_GROUP_OFFSETS": 1, "ALTER_SHARE_GROUP_OFFSETS": 0,
    "DELETE_SHARE_GROUP_OFFSETS": 0, "UNREGISTER_BROKER": 0, "GET_TELEMETRY_SUBSCRIPTIONS": 0,
    "PUSH_TELEMETRY": 0, "DESCRIBE_DELAYED": 0,
}  # fmt: skip
"""The newest version of each API that a current client was seen to use."""

IMPORT_MS_MAX = 60
"""Generous for a busy machine; a quiet one needs a tenth of it."""


@pytest.mark.parametrize("name", NEWEST_IN_USE)
def test_the_newest_version_in_use_is_known(name: str) -> None:
    spec = API_BY_KEY[ApiKey[name]]
    assert spec.min_version <= NEWEST_IN_USE[name] <= spec.max_version


def test_every_api_has_its_key() -> None:
    assert set(API_BY_KEY) == {int(key) for key in ApiKey}
    assert len(API_BY_KEY) == len(NEWEST_IN_USE)
    for key, spec in API_BY_KEY.items():
        assert spec.key == key
        assert spec.request_name == f"{spec.name}Request"
        assert repr(spec).startswith(f"ApiSpec({spec.name}, versions {spec.min_version} to ")


@pytest.mark.parametrize("key", API_BY_KEY)
def test_every_api_has_its_four_codecs(key: int) -> None:
    spec = API_BY_KEY[key]
    for kind, class_name in (("request", spec.request_name), ("response", spec.response_name)):
        stem = f"{spec.key.name.lower()}_{kind}"
        module = importlib.import_module(f"data_plane.wire.messages.{stem}")
        assert inspect.isclass(getattr(module, class_name))
        assert getattr(spec, f"decode_{kind}") is getattr(module, f"decode_{stem}")
        assert getattr(spec, f"encode_{kind}") is getattr(module, f"encode_{stem}")


def test_codecs_by_way_of_the_registry() -> None:
    spec = API_BY_KEY[ApiKey.METADATA]
    writer = Writer()
    spec.encode_request(writer, MetadataRequest(topics=None), 12)
    assert spec.decode_request(Reader(writer.buf), 12) == MetadataRequest(topics=None)


def test_a_spec_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="decode_everything"):
        _ = API_BY_KEY[ApiKey.METADATA].decode_everything


@pytest.mark.serial
def test_messages_are_imported_when_first_used_and_quickly() -> None:
    code = """
import sys, time
import enum, struct, uuid, collections.abc, types, typing  # the standard library is not ours
started = time.process_time()
from data_plane.wire.headers import decode_request_header
from data_plane.wire.registry import API_BY_KEY
loaded = [m for m in sys.modules if m.startswith("data_plane.wire.messages.")]
assert loaded == ["data_plane.wire.messages.api_table"], loaded
for key in (3, 18):
    API_BY_KEY[key].decode_request
    API_BY_KEY[key].encode_response
print((time.process_time() - started) * 1000)
loaded = [m for m in sys.modules if m.startswith("data_plane.wire.messages.")]
assert len(loaded) == 5, loaded
assert "kio" not in sys.modules
"""
    best = min(
        float(
            subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, text=True
            ).stdout
        )
        for _ in range(3)
    )
    assert best < IMPORT_MS_MAX
