"""ACLs by the admin clients of librdkafka and kafka-python, and what clients then may not do."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import KafkaError, NewTopic

with warnings.catch_warnings():
    # The client reads its schemas by a call that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from kafka.admin import ResourceType as PythonResourceType

NameMaker = Callable[[str], str]
WAIT_S = 30

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def _collected_here() -> Iterator[None]:
    """kafka-python's leftovers are collected while these filters hold."""
    yield
    gc.collect()


def binding(name: str, pattern: ResourcePatternType, permission: AclPermissionType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, pattern, "User:ANONYMOUS", "*", AclOperation.READ, permission
    )


# What the client's types leave out: a field of a filter may be open.
OPEN: Any = None


def code_of(error: KafkaError | None) -> int:
    assert error is not None
    return error.code()


def about(name: str, pattern: ResourcePatternType) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.TOPIC, name, pattern, OPEN, OPEN, AclOperation.ANY, AclPermissionType.ANY
    )


def test_librdkafka_makes_lists_and_deletes_acls(bootstrap: str, name: NameMaker) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = name("acl")
    literal = binding(topic, ResourcePatternType.LITERAL, AclPermissionType.ALLOW)
    prefixed = binding(topic[:-3], ResourcePatternType.PREFIXED, AclPermissionType.DENY)
    other = binding(name("other"), ResourcePatternType.LITERAL, AclPermissionType.ALLOW)
    wanted = [literal, prefixed, other]
    for outcome in admin.create_acls(wanted).values():
        assert outcome.result(WAIT_S) is None
    match = about(topic, ResourcePatternType.MATCH)
    found = admin.describe_acls(match).result(WAIT_S)
    assert sorted(found) == sorted([literal, prefixed])
    assert admin.describe_acls(about(topic, ResourcePatternType.LITERAL)).result(WAIT_S) == [
        literal
    ]
    everything = AclBindingFilter(
        ResourceType.ANY,
        OPEN,
        ResourcePatternType.ANY,
        OPEN,
        OPEN,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert set(wanted) <= set(admin.describe_acls(everything).result(WAIT_S))
    (deleted,) = admin.delete_acls([match]).values()
    assert sorted(deleted.result(WAIT_S)) == sorted([literal, prefixed])
    assert admin.describe_acls(match).result(WAIT_S) == []
    (deleted,) = admin.delete_acls([about(other.name, ResourcePatternType.ANY)]).values()
    assert deleted.result(WAIT_S) == [other]
    invalid = AclBinding(
        ResourceType.BROKER,
        "not the cluster",
        ResourcePatternType.LITERAL,
        "User:a",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (refused,) = admin.create_acls([invalid]).values()
    with pytest.raises(KafkaException) as raised:
        refused.result(WAIT_S)
    assert raised.value.args[0].code() == KafkaError.INVALID_REQUEST


def test_who_is_denied_hears_so(bootstrap: str, name: NameMaker) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = name("denied")
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v")
    assert producer.flush(WAIT_S) == 0
    # Nothing else is said of the topic, so nobody may write to it either.
    denied = binding(topic, ResourcePatternType.LITERAL, AclPermissionType.DENY)
    may_describe = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:*",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    for outcome in admin.create_acls([denied, may_describe]).values():
        outcome.result(WAIT_S)
    settings = {"bootstrap.servers": bootstrap, "group.id": name("g")}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        codes: list[int] = []
        while not codes:
            message = consumer.poll(WAIT_S)
            assert message is not None
            codes.append(code_of(message.error()))
        assert codes == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        written: list[int] = []
        producer.produce(topic, b"v", callback=lambda error, _: written.append(code_of(error)))
        producer.flush(WAIT_S)
        assert written == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        for outcome in admin.delete_acls([about(topic, ResourcePatternType.ANY)]).values():
            assert len(outcome.result(WAIT_S)) == 2
        message = consumer.poll(WAIT_S)
        while message is not None and message.error() is not None:
            message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.value() == b"v"
    finally:
        consumer.close()


def test_kafka_python_makes_lists_and_deletes_acls(bootstrap: str, name: NameMaker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        group = name("group")
        acl = ACL(
            principal="User:bob",
            host="10.0.0.1",
            operation=ACLOperation.DELETE,
            permission_type=ACLPermissionType.DENY,
            resource_pattern=ResourcePattern(
                PythonResourceType.GROUP, group, ACLResourcePatternType.PREFIXED
            ),
        )
        made = admin.create_acls([acl])
        assert made["failed"] == []
        wanted = ACLFilter(
            principal=None,
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(
                PythonResourceType.GROUP, f"{group}-1", ACLResourcePatternType.MATCH
            ),
        )
        listed, error = admin.describe_acls(wanted)
        assert (listed, error.errno) == ([acl], 0)
        ((_, deleted, _),) = admin.delete_acls([wanted])
        assert deleted == [acl]
        assert admin.describe_acls(wanted)[0] == []
    finally:
        admin.close()
