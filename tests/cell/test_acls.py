"""ACLs in the metadata image, in what is stored, and at the levels that have them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.acls import (
    ACLS_MAX,
    NAME_CHARACTERS_MAX,
    NO_ACLS,
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    AddAcls,
    PatternType,
    Permission,
    RemoveAcls,
    ResourcePattern,
    TenantAcls,
    acls_added,
    acls_removed,
)
from data_plane.cell.change_codec import decode_change, encode_change
from data_plane.cell.changes import (
    Change,
    InvalidChange,
    UpdateFeature,
    apply_change,
    apply_changes,
)
from data_plane.cell.features import METADATA_VERSION, OPEN_LEVEL, TENANCY_LEVEL
from data_plane.cell.local_store import LocalMetadataStore
from data_plane.cell.metadata import MetadataImage, decode_image, encode_image
from data_plane.cell.metadata_store import FEED_PARTS_KEPT, Commit, CommitHistory, MetadataStore
from data_plane.cell.tenants import DeleteTenant, PutTenant, TenantImage
from data_plane.log.sim_file_system import SimFileSystem
from tests.cell.cases import NEW_CELL, acls
from tests.postgres_server import PostgresDatabase

TOPIC, LITERAL, PREFIXED = AclResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
ACME = TenantImage("acme", "acme-cluster")


def acl(name: str = "orders", pattern_type: int = LITERAL, principal: str = "User:alice") -> Acl:
    entry = AclEntry(principal, "*", AclOperation.READ, Permission.ALLOW)
    return Acl(ResourcePattern(TOPIC, pattern_type, name), entry)


ORDERS, PAY = acl(), acl("pay-", PREFIXED)


def test_acls_come_and_go_each_tenant_by_itself() -> None:
    image = apply_changes(
        NEW_CELL, [PutTenant(ACME), AddAcls("default", (ORDERS, PAY)), AddAcls("acme", (PAY,))]
    )
    assert {tenant: set(acls) for tenant, acls in image.acls.items()} == {
        "default": {ORDERS, PAY},
        "acme": {PAY},
    }
    image = apply_change(image, RemoveAcls("default", (PAY,)))
    assert set(image.acls["default"]) == {ORDERS}
    assert set(image.acls["acme"]) == {PAY}
    assert set(apply_change(image, RemoveAcls("default", (ORDERS,))).acls) == {"acme"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (AddAcls("default", (ORDERS,)), "already"),
        (AddAcls("default", (PAY, PAY)), "already"),
        (AddAcls("nobody", (ORDERS,)), "no tenant nobody"),
        (RemoveAcls("default", (PAY,)), "there is no"),
        (RemoveAcls("acme", (ORDERS,)), "there is no"),
        (AddAcls("default", (acl(""),)), "Resource name should not be empty"),
        (AddAcls("default", (acl(principal="alice"),)), "Could not parse principal"),
        (AddAcls("default", (acl("x" * (NAME_CHARACTERS_MAX + 1)),)), "1024 characters at most"),
        (AddAcls("default", (acl(pattern_type=2),)), "Invalid patternType MATCH"),
        (AddAcls("default", (acl(pattern_type=99),)), "Invalid patternType UNKNOWN"),
    ],
)
def test_what_does_not_fit(change: Change, words: str) -> None:
    image = apply_changes(NEW_CELL, [PutTenant(ACME), AddAcls("default", (ORDERS,))])
    with pytest.raises(InvalidChange, match=words):
        apply_change(image, change)


def test_a_tenant_that_is_gone_leaves_no_acls_to_one_of_its_name() -> None:
    image = apply_changes(NEW_CELL, [PutTenant(ACME), AddAcls("acme", (ORDERS,))])
    assert apply_changes(image, [DeleteTenant("acme"), PutTenant(ACME)]).acls == {}
    # `default` does not end when its settings do.
    default = replace(TenantImage("default", "cluster"), settings={"a": "b"})
    image = apply_changes(NEW_CELL, [PutTenant(default), AddAcls("default", (ORDERS,))])
    assert set(apply_change(image, DeleteTenant("default")).acls["default"]) == {ORDERS}


def test_a_tenant_has_so_many() -> None:
    many = tuple(acl(f"t{n}", PREFIXED) for n in range(ACLS_MAX - 1))
    image = apply_change(NEW_CELL, AddAcls("default", (*many, ORDERS)))
    assert image.acls["default"].count == ACLS_MAX
    assert len(set(image.acls["default"])) == ACLS_MAX
    with pytest.raises(InvalidChange, match="10000 ACLs at most"):
        apply_change(image, AddAcls("default", (PAY,)))
    longest = acl("x" * NAME_CHARACTERS_MAX)
    apply_changes(image, [RemoveAcls("default", (ORDERS,)), AddAcls("default", (longest,))])


@given(st.lists(st.tuples(st.booleans(), st.lists(acls(), max_size=5)), max_size=10))
def test_what_is_kept_for_look_ups_is_what_there_is(steps: list[tuple[bool, list[Acl]]]) -> None:
    there: TenantAcls = NO_ACLS
    expected: set[Acl] = set()
    for is_added, drawn in steps:
        if is_added:
            fresh = {*drawn} - expected
            changed = acls_added(there, fresh)
            expected |= fresh
        else:
            known = {*drawn} & expected
            changed = acls_removed(there, known)
            expected -= known
        assert isinstance(changed, TenantAcls)
        there = changed
        assert set(there) == expected
        assert there.count == len(expected)
        prefixes: dict[int, Counter[int]] = {}
        for kind, pattern_type, name in there.by_pattern:
            if pattern_type == PREFIXED:
                prefixes.setdefault(kind, Counter())[len(name)] += 1
        assert there.prefix_lengths == prefixes
        for name in ("orders", "or", "x", "*"):
            about = sorted(
                entry
                for (kind, pattern_type, of), entry in expected
                if kind == TOPIC
                and (name.startswith(of) if pattern_type == PREFIXED else of in ("*", name))
            )
            assert sorted(there.about(TOPIC, name)) == about


def test_nothing_of_acls_is_written_below_their_level() -> None:
    below = apply_change(NEW_CELL, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    change: Change
    for change in (AddAcls("default", (ORDERS,)), RemoveAcls("default", ())):
        with pytest.raises(InvalidChange, match=r"metadata.version 2 has no .*Acls"):
            apply_change(below, change)
    image = apply_change(NEW_CELL, AddAcls("default", (ORDERS,)))
    lowered = UpdateFeature(METADATA_VERSION, OPEN_LEVEL)
    with pytest.raises(InvalidChange, match="no room"):
        apply_change(image, lowered)
    image = apply_changes(image, [RemoveAcls("default", (ORDERS,)), lowered])
    assert image.metadata_level == OPEN_LEVEL
    assert b"acls" not in encode_image(image)


def test_equal_acls_are_stored_alike() -> None:
    one = apply_changes(NEW_CELL, [AddAcls("default", (ORDERS,)), AddAcls("default", (PAY,))])
    other = apply_changes(NEW_CELL, [AddAcls("default", (PAY,)), AddAcls("default", (ORDERS,))])
    assert one == other
    assert encode_image(one) == encode_image(other)
    assert decode_image(encode_image(one)) == one
    change = AddAcls("default", (PAY, ORDERS))
    assert decode_change(json.loads(json.dumps(encode_change(change, TENANCY_LEVEL)))) == change


def add_and_read(store: MetadataStore) -> MetadataImage:
    store.apply([PutTenant(ACME), AddAcls("acme", (ORDERS, PAY))], 0, "r1")
    image = store.apply([RemoveAcls("acme", (PAY,))], 1, "r2")
    assert set(image.acls["acme"]) == {ORDERS}
    assert store.read() == image
    return image


def test_a_broker_that_is_alone_keeps_its_acls() -> None:
    fs = SimFileSystem()
    fs.make_directory("/data")
    store = LocalMetadataStore(fs, "/data", "cluster")
    image = add_and_read(store)
    store.close()
    again = LocalMetadataStore(fs, "/data", "cluster")
    assert again.read() == image
    assert [len(commit.changes) for commit in again.feed(0)] == [2, 1]


def test_a_cell_keeps_its_acls(postgres: PostgresDatabase) -> None:
    store, other = postgres.store(), postgres.store()
    try:
        image = add_and_read(store)
        assert other.read() == image
        assert [len(commit.changes) for commit in other.feed(0)] == [2, 1]
    finally:
        store.close()
        other.close()


def test_acls_count_in_the_feed() -> None:
    history = CommitHistory(0)
    change = AddAcls("default", tuple(acl(f"t{n}") for n in range(1000)))
    texts = sum(len(f"t{n}") + len("User:alice") + 1 for n in range(1000)) // 64
    kept = FEED_PARTS_KEPT // (1 + 3000 + texts)
    for version in range(1, kept + 3):
        history.record(Commit(version, f"r{version}", (change,)))
    assert len(history.after(2)) == kept
