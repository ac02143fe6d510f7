"""Quotas and states of tenants, and client quotas, in the metadata image and in what is stored."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from data_plane.cell.change_codec import decode_change, encode_change
from data_plane.cell.changes import (
    AlterConfigs,
    Change,
    InvalidChange,
    RegisterBroker,
    UpdateFeature,
    apply_change,
    apply_changes,
)
from data_plane.cell.client_quotas import (
    ENTITIES_MAX,
    NAME_CHARACTERS_MAX,
    AlterClientQuotas,
    QuotaEntity,
)
from data_plane.cell.features import METADATA_VERSION, OPEN_LEVEL, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage, ResourceType, decode_image, encode_image
from data_plane.cell.tenant_quotas import (
    CONSUME_CAPACITY,
    PRODUCE_CAPACITY,
    QUOTA_MAX,
    PutTenantQuotas,
    TenantQuotas,
    why_beyond_capacity,
)
from data_plane.cell.tenants import (
    DELETING_TENANT,
    READ_ONLY_TENANT,
    STATE_CHARACTERS_MAX,
    DeleteTenant,
    PutTenant,
    PutTenantState,
    TenantImage,
)
from tests.cell.cases import NEW_CELL, NEWEST_BROKER

ACME = TenantImage("acme", "acme-cluster", settings={"a": "1"})
OTHER = TenantImage("other", "other-cluster")
QUOTAS = TenantQuotas(produce_bytes_per_s=1000, partitions=10, message_bytes=QUOTA_MAX)
ALICE = QuotaEntity("alice", None)


def with_capacity(capacities: dict[str, str], brokers: int = 2) -> MetadataImage:
    """Two tenants, and brokers that have that much each."""
    changes: list[Change] = [PutTenant(ACME), PutTenant(OTHER)]
    changes += [RegisterBroker(replace(NEWEST_BROKER, node_id=n)) for n in range(brokers)]
    values = tuple(capacities.items())
    changes.append(AlterConfigs("default", ResourceType.BROKER, "", values))
    return apply_changes(NEW_CELL, changes)


def test_quotas_and_states_of_a_tenant_change_each_by_itself() -> None:
    image = apply_changes(NEW_CELL, [PutTenant(ACME), PutTenantQuotas("acme", QUOTAS)])
    image = apply_change(image, PutTenantState("acme", READ_ONLY_TENANT, "not paid"))
    acme = replace(ACME, quotas=QUOTAS, state=READ_ONLY_TENANT, state_reason="not paid", made_at=1)
    assert image.tenant("acme") == acme
    assert not acme.is_active
    decoded = decode_image(encode_image(image))
    assert decoded == image
    image = apply_change(image, PutTenantQuotas("acme", TenantQuotas()))
    assert image.tenant("acme") == replace(acme, quotas=TenantQuotas())


def test_the_default_tenant_is_stored_once_it_has_quotas() -> None:
    image = apply_change(NEW_CELL, PutTenantQuotas("default", QUOTAS))
    assert image.tenants == {"default": TenantImage("default", "cluster", quotas=QUOTAS)}


@pytest.mark.parametrize(
    "change",
    [
        PutTenantQuotas("acme", QUOTAS),
        PutTenantQuotas("acme", TenantQuotas()),
        PutTenantQuotas("acme", TenantQuotas(groups=1, unknown_fields='{"colors":2}')),
        PutTenantState("acme", "blocked"),
        PutTenantState("acme", "blocked", "why"),
        PutTenant(replace(ACME, quotas=QUOTAS, state_reason="why")),
        AlterClientQuotas("acme", ALICE, (("producer_byte_rate", 5.0), ("x", None))),
        AlterClientQuotas("acme", QuotaEntity(None, ""), ()),
    ],
)
def test_changes_survive_encoding(change: Change) -> None:
    encoded = json.loads(json.dumps(encode_change(change, TENANCY_LEVEL)))
    assert decode_change(encoded) == change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (PutTenantQuotas("nobody", QUOTAS), "no tenant nobody"),
        (PutTenantQuotas("acme", TenantQuotas(groups=0)), "groups is 0, allowed are 1"),
        (PutTenantQuotas("acme", TenantQuotas(groups=QUOTA_MAX + 1)), "groups is"),
        (PutTenantQuotas("acme", TenantQuotas(groups=1.5)), "groups is 1.5"),  # type: ignore[arg-type]
        (PutTenant(replace(ACME, quotas=TenantQuotas(users=-1))), "users is -1"),
        (
            PutTenantQuotas(
                "acme", TenantQuotas(produce_bytes_per_s=1, produce_floor_bytes_per_s=2)
            ),
            "produce_floor_bytes_per_s is 2, above produce_bytes_per_s, which is 1",
        ),
        (PutTenantState("nobody", "blocked"), "no tenant nobody"),
        (PutTenantState("acme", ""), "a state and its reason have"),
        (PutTenantState("acme", "blocked", "x" * STATE_CHARACTERS_MAX), "a state and its reason"),
    ],
)
def test_what_does_not_fit(change: Change, words: str) -> None:
    image = apply_change(NEW_CELL, PutTenant(ACME))
    with pytest.raises(InvalidChange, match=words):
        apply_change(image, change)


def test_a_tenant_that_is_being_deleted_does_not_come_back() -> None:
    image = apply_changes(NEW_CELL, [PutTenant(ACME), PutTenantState("acme", DELETING_TENANT)])
    for change in (PutTenantState("acme", "active"), PutTenant(ACME)):
        with pytest.raises(InvalidChange, match="acme is being deleted"):
            apply_change(image, change)
    apply_change(image, PutTenantQuotas("acme", QUOTAS))
    assert apply_change(image, DeleteTenant("acme")).tenants == {}


def test_other_tenants_are_looked_through_only_for_a_floor_that_is_raised() -> None:
    old = TenantQuotas(produce_floor_bytes_per_s=2)
    others = iter([TenantQuotas(produce_floor_bytes_per_s=7)] * 2)
    for new in (old, TenantQuotas(), replace(old, consume_floor_bytes_per_s=0, partitions=3)):
        assert why_beyond_capacity(old, new, others, lambda name: 10) == ""
    reason = why_beyond_capacity(TenantQuotas(), old, others, lambda name: 10)
    assert "14 is promised to other tenants" in reason


def test_floors_are_promised_up_to_the_capacity_of_all_brokers() -> None:
    image = with_capacity({PRODUCE_CAPACITY: "100", CONSUME_CAPACITY: "50"})
    image = apply_change(
        image, PutTenantQuotas("other", TenantQuotas(produce_floor_bytes_per_s=150))
    )
    most = TenantQuotas(produce_floor_bytes_per_s=50, consume_floor_bytes_per_s=100)
    image = apply_change(image, PutTenantQuotas("acme", most))
    for more, words in (
        (replace(most, produce_floor_bytes_per_s=51), "150 is promised .* brokers is 200"),
        (replace(most, consume_floor_bytes_per_s=101), "0 is promised .* brokers is 100"),
    ):
        with pytest.raises(InvalidChange, match=words):
            apply_change(image, PutTenantQuotas("acme", more))
        with pytest.raises(InvalidChange, match=words):
            apply_change(image, PutTenant(replace(ACME, quotas=more)))
    # What is promised stays when a capacity is lowered, and can be lowered, too.
    less = AlterConfigs("default", ResourceType.BROKER, "1", ((PRODUCE_CAPACITY, "10"),))
    image = apply_change(image, less)
    apply_change(image, PutTenantQuotas("acme", replace(most, groups=5)))
    apply_change(image, PutTenantQuotas("acme", replace(most, produce_floor_bytes_per_s=40)))
    gone = apply_change(image, DeleteTenant("other"))
    apply_change(gone, PutTenantQuotas("acme", replace(most, produce_floor_bytes_per_s=110)))
    with pytest.raises(InvalidChange, match="brokers is 110"):
        apply_change(gone, PutTenantQuotas("acme", replace(most, produce_floor_bytes_per_s=111)))


@pytest.mark.parametrize("broker", ["", "7"])
def test_a_broker_that_is_alone_has_a_capacity(broker: str) -> None:
    image = with_capacity({}, brokers=0)
    declared = AlterConfigs("default", ResourceType.BROKER, broker, ((PRODUCE_CAPACITY, "100"),))
    image = apply_change(image, declared)
    apply_change(image, PutTenantQuotas("acme", TenantQuotas(produce_floor_bytes_per_s=100)))
    with pytest.raises(InvalidChange, match="of all brokers is 100"):
        apply_change(image, PutTenantQuotas("acme", TenantQuotas(produce_floor_bytes_per_s=101)))


def test_nothing_is_promised_where_no_capacity_is_declared() -> None:
    image = with_capacity({})
    with pytest.raises(InvalidChange, match=f"{PRODUCE_CAPACITY} of all brokers is 0"):
        apply_change(image, PutTenantQuotas("acme", TenantQuotas(produce_floor_bytes_per_s=1)))


def test_client_quotas_come_and_go_by_entity() -> None:
    everybody = QuotaEntity("alice", "")
    image = apply_changes(
        NEW_CELL,
        [
            PutTenant(ACME),
            AlterClientQuotas("acme", ALICE, (("producer_byte_rate", 10.0),)),
            AlterClientQuotas(
                "acme", everybody, (("producer_byte_rate", 5.0), ("request_percentage", 0.5))
            ),
            AlterClientQuotas("acme", everybody, (("producer_byte_rate", None),)),
            AlterClientQuotas("default", QuotaEntity(None, ""), (("request_percentage", 1.0),)),
        ],
    )
    acme = {ALICE: {"producer_byte_rate": 10.0}, everybody: {"request_percentage": 0.5}}
    assert image.client_quotas["acme"] == acme
    decoded = decode_image(encode_image(image))
    assert decoded == image
    assert encode_image(decoded) == encode_image(image)
    gone = apply_changes(
        image,
        [
            AlterClientQuotas("acme", ALICE, (("producer_byte_rate", None),)),
            AlterClientQuotas("acme", everybody, (("request_percentage", None),)),
        ],
    )
    assert set(gone.client_quotas) == {"default"}
    assert set(apply_change(image, DeleteTenant("acme")).client_quotas) == {"default"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (AlterClientQuotas("nobody", ALICE, ()), "no tenant nobody"),
        (AlterClientQuotas("default", QuotaEntity(None, None), ()), "empty client quota entity"),
        (AlterClientQuotas("default", ALICE, (("color", 1.0),)), "Invalid configuration key color"),
        (AlterClientQuotas("default", ALICE, (("request_percentage", 0.0),)), "greater than 0"),
        (
            AlterClientQuotas("default", ALICE, (("request_percentage", float("nan")),)),
            "greater than 0",
        ),
        (AlterClientQuotas("default", ALICE, (("consumer_byte_rate", 0.5),)), "whole number"),
        (
            AlterClientQuotas("default", QuotaEntity("x" * (NAME_CHARACTERS_MAX + 1), None), ()),
            "255 characters at most",
        ),
    ],
)
def test_what_no_client_quota_can_be(change: Change, words: str) -> None:
    with pytest.raises(InvalidChange, match=words):
        apply_change(NEW_CELL, change)


def test_a_tenant_has_client_quotas_of_so_many() -> None:
    values = {"request_percentage": 1.0}
    many = {QuotaEntity(f"u{n}", None): values for n in range(ENTITIES_MAX - 1)}
    image = replace(NEW_CELL, client_quotas={"default": many})
    one = (("request_percentage", 1.0),)
    image = apply_change(image, AlterClientQuotas("default", ALICE, one))
    assert len(image.client_quotas["default"]) == ENTITIES_MAX
    apply_change(image, AlterClientQuotas("default", ALICE, (("request_percentage", 2.0),)))
    with pytest.raises(InvalidChange, match="10000 users and client ids at most"):
        apply_change(image, AlterClientQuotas("default", QuotaEntity("bob", None), one))


def test_nothing_of_quotas_is_written_below_their_level() -> None:
    below = apply_change(NEW_CELL, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    altered = AlterClientQuotas("default", ALICE, (("request_percentage", 1.0),))
    change: Change
    for change in (PutTenantQuotas("default", QUOTAS), PutTenantState("default", "x"), altered):
        with pytest.raises(InvalidChange, match=r"metadata.version 2 has no"):
            apply_change(below, change)
    image = apply_change(NEW_CELL, altered)
    with pytest.raises(InvalidChange, match="no room"):
        apply_change(image, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
