"""What is written at the newest metadata.version: each kind of change, each of its fields.

`written_at_level_3.json` holds what every kind looks like, with the lowest level that has it. Until
level 3 is in a release it may change, with that file. From then on it never does: another kind, or
a field that must be understood, is of a level of its own (docs/cell.md, Feature levels).
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest

from data_plane.cell.acls import Acl, AclEntry, AddAcls, RemoveAcls, ResourcePattern
from data_plane.cell.authors import Author, NameAuthor
from data_plane.cell.change_codec import decode_change, encode_change
from data_plane.cell.changes import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Change,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    DeleteTopic,
    InvalidChange,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeature,
    apply_change,
)
from data_plane.cell.client_quotas import AlterClientQuotas, QuotaEntity
from data_plane.cell.credentials import (
    Credential,
    DeleteCredential,
    PutCredential,
    PutDecoyKey,
    ScramVerifier,
)
from data_plane.cell.declarations import Declaration, Declared, PutDeclaration
from data_plane.cell.features import METADATA_VERSION, NEWEST_LEVEL, FeatureRange
from data_plane.cell.metadata import BrokerImage, LogEnd, MetadataImage, PartitionImage
from data_plane.cell.tenant_quotas import QUOTA_NAMES, PutTenantQuotas, TenantQuotas
from data_plane.cell.tenants import DeleteTenant, PutTenant, PutTenantState, TenantImage
from data_plane.cell.topic_deletions import ChangeDeletion, Deletion, Pause

WRITTEN: dict[str, list[Any]] = json.loads(
    (Path(__file__).parent / "written_at_level_3.json").read_text()
)
ORDERS, SOURCE = UUID(int=1), UUID(int=2)
ACL = Acl(ResourcePattern(2, 3, "orders"), AclEntry("User:alice", "*", 3, 3))
QUOTAS = TenantQuotas(*range(1, len(QUOTA_NAMES) + 1))
BROKER = BrokerImage(
    1, "h", 9092, "a", "i", 9093, "m", "5f", 7, True, True, True, 9,
    (FeatureRange(METADATA_VERSION, 1, 3),),
)  # fmt: skip
PARTITION = PartitionImage(
    (1, 2, 3), (2,), 2, 4, 5, (3,), -1, (1,), (3,), (1,), (LogEnd(1, 7, 9),), "sealed"
)
VERIFIER = ScramVerifier(b"salt", b"s" * 32, b"k" * 32, 4096)
TENANT = TenantImage(
    "acme", "id", "blocked", {"a": "b"}, made_at=3, quotas=QUOTAS, state_reason="r"
)
CREDENTIAL = Credential(
    "acme/alice",
    "acme",
    "User:alice",
    {"SCRAM-SHA-256": VERIFIER},
    ("10.0.0.0/8",),
    is_disabled=True,
    expires_at_ms=9,
)
DECLARATION = Declaration("id", 2, Declared("topic", "acme", "orders"), "api", "{}", True)
SAMPLES: tuple[Change, ...] = (
    CreateTopic("default", "orders", ORDERS, ((1, 2), (1, 2)), (("retention.ms", "1"),)),
    CreateTopic("default", "pay", ORDERS, ((1,),), (), "", SOURCE),
    CreateTopic("acme", "orders", ORDERS, ((1,),)),
    DeleteTopic(ORDERS, "acme", "orders"),
    ChangeDeletion(ORDERS, Deletion(5, 6, 7), Pause(1, 2, 3)),
    AddPartitions(ORDERS, ((1,), (2,))),
    AlterConfigs("default", 2, "orders", (("retention.ms", None),)),
    AlterConfigs("acme", 2, "orders", (("retention.ms", "1"),)),
    RegisterBroker(BROKER),
    ChangeBroker(BROKER),
    UnregisterBroker(1, 7),
    ChangePartition(ORDERS, 0, PARTITION),
    AllocateProducerIds(1000, 500),
    UpdateFeature("a.feature", 2),
    PutTenant(TENANT),
    DeleteTenant("acme"),
    PutTenantState("acme", "blocked", "r"),
    PutTenantQuotas("acme", QUOTAS),
    PutCredential(CREDENTIAL),
    DeleteCredential("acme/alice"),
    PutDecoyKey(b"k" * 32),
    PutDeclaration(DECLARATION),
    AddAcls("acme", (ACL,)),
    RemoveAcls("acme", (ACL,)),
    AlterClientQuotas("acme", QuotaEntity("alice", None), (("producer_byte_rate", 1.0),)),
    NameAuthor(Author("kafka", "acme", "User:alice")),
)


def name_of(change: Change, number: int) -> str:
    return f"{number:02} {type(change).__name__}"


NAMED = {name_of(change, number): change for number, change in enumerate(SAMPLES)}


def level_needed(change: Change) -> int:
    """The lowest metadata.version that does not refuse such a change for its level."""
    for level in range(1, NEWEST_LEVEL):
        image = MetadataImage("cluster", features={METADATA_VERSION: level} if level > 1 else {})
        try:
            apply_change(image, change)
        except InvalidChange as error:
            if METADATA_VERSION in str(error) and " has no " in str(error):
                continue
        return level
    return NEWEST_LEVEL


def test_every_kind_of_change_is_among_what_is_pinned() -> None:
    assert {type(change) for change in SAMPLES} == set(get_args(Change))
    assert NAMED.keys() == WRITTEN.keys()
    assert NEWEST_LEVEL == 3, "pin what the new level has in a file of its own"


@pytest.mark.parametrize("name", NAMED)
def test_a_kind_of_change_is_written_as_pinned_and_from_its_level_on(name: str) -> None:
    change = NAMED[name]
    level, encoded, field_names = WRITTEN[name]
    assert json.loads(json.dumps(encode_change(change, NEWEST_LEVEL))) == encoded
    assert decode_change(encoded) == change
    assert level_needed(change) == level
    assert [field.name for field in fields(change)] == field_names


def test_what_changes_are_about_is_pinned_with_all_of_its_fields() -> None:
    """A field that is new has its default here, and is in no form that is pinned."""
    about: list[Any] = [QUOTAS, PARTITION, TENANT, CREDENTIAL, DECLARATION, BROKER]
    for one in about:
        at_default = {item.name for item in fields(one) if getattr(one, item.name) == item.default}
        assert at_default <= {"unknown_fields", "listeners", "last_known_leader"}
