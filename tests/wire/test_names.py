"""Names in messages: every string is known for what it is."""

from __future__ import annotations

import pytest

from data_plane.wire.messages.entity_types import ENTITY_TYPES
from scripts.wire_generator.entity_types import BY_TYPE, PATTERNS, PRINCIPALS, TEXT_FIELDS, TEXTS
from tests.wire.message_cases import all_messages

MESSAGES = {name: each for name, each in all_messages().items() if each.api_key is not None}
each_message = pytest.mark.parametrize("name", MESSAGES)


@each_message
def test_every_string_is_known_for_what_it_is(name: str) -> None:
    """A new message, or a new field of one, cannot bring a name that no test looks at."""
    for struct in MESSAGES[name].structs:
        for f in struct.fields:
            if f.kind == "string":
                assert f.entity is not None, f"entity_types.py does not know {struct.name}.{f.name}"
            elif f.kind in ("bytes", "records"):
                assert f.entity is None


def test_the_tables_speak_of_fields_that_exist() -> None:
    strings = {
        (message.module, struct.name, f.name)
        for message in MESSAGES.values()
        for struct in message.structs
        for f in struct.fields
        if f.kind == "string"
    }
    for table in (BY_TYPE, PATTERNS, PRINCIPALS, TEXTS):
        assert set(table) <= strings
    assert {field for _, _, field in strings} >= TEXT_FIELDS


def test_names_are_what_kafkas_schemas_say_and_what_they_fail_to_say() -> None:
    assert ENTITY_TYPES["offset_commit_request"] == {
        "OffsetCommitRequestTopic.name": "topicName",
        "OffsetCommitRequest.group_id": "groupId",
    }
    assert ENTITY_TYPES["produce_request"]["ProduceRequest.transactional_id"] == "transactionalId"
    assert ENTITY_TYPES["metadata_response"]["MetadataResponseBroker.node_id"] == "brokerId"
    assert ENTITY_TYPES["describe_configs_request"] == {
        "DescribeConfigsResource.resource_name": "by resource_type: 2 topicName, 32 groupId"
    }
    assert ENTITY_TYPES["create_acls_request"]["AclCreation.principal"] == "principal"
