"""What a control plane has declared: what may follow on what, and what is remembered."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell import declarations as module
from data_plane.cell.acls import Acl, AclEntry, ResourcePattern
from data_plane.cell.change_codec import decode_change, encode_change
from data_plane.cell.changes import InvalidChange, UpdateFeature, apply_change, apply_changes
from data_plane.cell.declarations import (
    API_OWNER,
    CLIENT_OWNER,
    OWNERS,
    SPECIFICATION_CHARACTERS_MAX,
    TOPIC_KIND,
    Declaration,
    Declarations,
    DeclarationsDraft,
    Declared,
    PutDeclaration,
)
from data_plane.cell.features import (
    CLOSED_LEVEL,
    METADATA_VERSION,
    OPEN_LEVEL,
    TENANCY_LEVEL,
)
from data_plane.cell.grants import acls_of_grants, grants_text
from data_plane.cell.metadata import MetadataImage, decode_image, encode_image
from tests.cell.cases import NEW_CELL

ORDERS = Declared(TOPIC_KIND, "acme", "orders")
FIRST = Declaration("r1", 1, ORDERS, API_OWNER, '{"partitions":3}')
DELETED = replace(FIRST, generation=5, specification="", is_deleted=True)


def image_with(*declarations: Declaration) -> MetadataImage:
    return apply_changes(NEW_CELL, map(PutDeclaration, declarations))


def test_a_resource_goes_through_its_life() -> None:
    image = image_with(FIRST)
    assert image.declarations.owner_of(*ORDERS) == FIRST
    assert image.declarations.owner_of(TOPIC_KIND, "default", "orders") is None
    released = replace(FIRST, generation=2, owner=CLIENT_OWNER)
    image = apply_change(image, PutDeclaration(released))
    assert image.declarations.owner_of(*ORDERS) is None
    assert image.declarations.of_thing(ORDERS) == released
    again = replace(FIRST, generation=3)
    image = apply_change(image, PutDeclaration(again))
    assert image.declarations.owner_of(*ORDERS) == again
    image = apply_change(image, PutDeclaration(DELETED))
    assert image.declarations.owner_of(*ORDERS) is None
    assert image.declarations.by_id == {"r1": DELETED}
    assert image.declarations.by_tenant == {}
    successor = replace(FIRST, resource_id="r2")
    image = apply_change(image, PutDeclaration(successor))
    assert image.declarations.owner_of(*ORDERS) == successor


@pytest.mark.parametrize(
    ("before", "new", "words"),
    [
        ((), replace(FIRST, generation=0), "generation 0 is none"),
        ((), replace(FIRST, resource_id=""), "an id has 1 to 64 characters"),
        ((), replace(FIRST, resource_id="r" * 65), "an id has 1 to 64 characters"),
        ((), replace(FIRST, owner="somebody"), "'somebody' is no owner"),
        ((), replace(FIRST, specification="x" * (SPECIFICATION_CHARACTERS_MAX + 1)), "more than"),
        ((replace(FIRST, generation=4),), replace(FIRST, generation=3), "generation 3 after 4"),
        ((DELETED,), replace(FIRST, generation=6), "it was deleted"),
        ((FIRST,), replace(FIRST, declared=ORDERS._replace(name="pay")), "topic/acme/orders"),
        ((FIRST,), replace(FIRST, resource_id="r2"), "belongs to resource r1"),
    ],
)
def test_what_cannot_follow(before: tuple[Declaration, ...], new: Declaration, words: str) -> None:
    image = image_with(*before)
    with pytest.raises(InvalidChange, match=words):
        apply_change(image, PutDeclaration(new))


def test_an_id_that_never_was_can_be_remembered_as_deleted() -> None:
    nothing = Declared(TOPIC_KIND, "", "")
    gone = Declaration("r9", 7, nothing, API_OWNER, "", is_deleted=True)
    image = image_with(gone)
    with pytest.raises(InvalidChange, match="it was deleted"):
        apply_change(image, PutDeclaration(replace(FIRST, resource_id="r9", generation=8)))


def test_there_are_so_many_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESOURCES_MAX", 2)
    second = replace(FIRST, resource_id="r2", declared=ORDERS._replace(name="pay"))
    image = image_with(FIRST, second)
    apply_change(image, PutDeclaration(replace(FIRST, generation=2)))
    third = replace(FIRST, resource_id="r3", declared=ORDERS._replace(name="refunds"))
    with pytest.raises(InvalidChange, match="there are 2 resources"):
        apply_change(image, PutDeclaration(third))


def test_a_digest_tells_what_is_declared_and_nothing_else() -> None:
    second = replace(FIRST, resource_id="r2", declared=ORDERS._replace(name="pay"))
    digest = image_with(FIRST, second).declarations.digest()
    assert image_with(second, FIRST).declarations.digest() == digest
    assert image_with(replace(FIRST, generation=2), second).declarations.digest() != digest
    other = replace(FIRST, specification='{"partitions":4}')
    assert image_with(other, second).declarations.digest() != digest
    with_tombstone = image_with(FIRST, second, replace(DELETED, resource_id="r3"))
    assert with_tombstone.declarations.digest() == digest


def test_nothing_is_declared_below_the_level_of_tenants() -> None:
    below = apply_change(NEW_CELL, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    with pytest.raises(InvalidChange, match=r"metadata.version 2 has no PutDeclaration"):
        apply_change(below, PutDeclaration(FIRST))
    assert b"declarations" not in encode_image(below)
    with pytest.raises(InvalidChange, match="no room"):
        apply_change(image_with(FIRST), UpdateFeature(METADATA_VERSION, OPEN_LEVEL))


def test_deleted_resources_are_remembered_at_level_2_and_forgotten_at_level_1() -> None:
    image = image_with(FIRST, replace(DELETED, resource_id=FIRST.resource_id))
    assert image.metadata_level_needed() == OPEN_LEVEL
    assert image.metadata_level_needed(with_memory=False) == CLOSED_LEVEL
    opened = apply_change(image, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    assert decode_image(encode_image(opened)) == opened
    raised = apply_change(opened, UpdateFeature(METADATA_VERSION, TENANCY_LEVEL))
    assert raised.declarations == image.declarations
    with pytest.raises(InvalidChange, match="it was deleted"):
        apply_change(raised, PutDeclaration(replace(FIRST, generation=9)))
    closed = apply_change(raised, UpdateFeature(METADATA_VERSION, CLOSED_LEVEL))
    assert not closed.declarations
    assert decode_image(encode_image(closed)) == closed


def test_fields_of_a_newer_version_stay_with_their_resource() -> None:
    document = json.loads(encode_image(image_with(FIRST, replace(DELETED, resource_id="r2"))))
    for item in document["image"]["declarations"]:
        item["color"] = "red"
    image = decode_image(json.dumps(document).encode())
    assert json.loads(encode_image(image)) == document
    change = PutDeclaration(replace(image.declarations.by_id["r1"], generation=2))
    encoded = json.loads(json.dumps(encode_change(change, TENANCY_LEVEL)))
    assert decode_change(encoded) == change
    assert apply_change(image, change).declarations.by_id["r1"].unknown_fields == '{"color":"red"}'


GRANTED = [
    Acl(ResourcePattern(2, 3, name), AclEntry("User:alice", "*", 3, 3)) for name in ("a", "b", "c")
]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["tenant", "grants", "quota"]),
            st.sampled_from(["acme", "default"]),
            st.sampled_from(OWNERS),
            st.sets(st.sampled_from(GRANTED)),
            st.booleans(),
        ),
        max_size=20,
    )
)
def test_what_is_kept_with_each_change_is_what_follows_from_all(
    steps: list[tuple[int, str, str, str, set[Acl], bool]],
) -> None:
    """Digests, who grants what, and what each tenant has: also in a commit of several changes."""
    declarations = Declarations()
    draft = DeclarationsDraft(declarations)
    for generation, (number, kind, tenant, owner, acls, is_deleted) in enumerate(steps, 1):
        text = grants_text(acls) if kind == "grants" else f"{sorted(acls)}"
        thing = Declared(kind, tenant, f"{number}")
        new = Declaration(f"{kind}-{tenant}-{number}", generation, thing, owner, text, is_deleted)
        with suppress(ValueError):
            draft.put(new)
        if generation % 3 == 0:
            declarations = draft.finish()
            draft = DeclarationsDraft(declarations)
    declarations = draft.finish()
    anew = Declarations(reversed(list(declarations.by_id.values())))
    assert anew == declarations
    assert anew.by_tenant == declarations.by_tenant
    assert anew.granted == declarations.granted
    assert anew.digest() == declarations.digest()
    kept = [one for one in declarations.by_id.values() if not one.is_deleted]
    assert declarations.digest().resources == len(kept)
    for acl in GRANTED:
        for tenant in ("acme", "default"):
            assert declarations.granters(tenant, acl) == {
                one.resource_id
                for one in kept
                if one.declared[:2] == ("grants", tenant)
                and one.owner == API_OWNER
                and acl in acls_of_grants(one.specification)
            }


def test_grants_that_are_none_cannot_be_kept() -> None:
    for text in ("", "{}", "[]", '{"acls":[["x"]]}'):
        bad = Declaration("r1", 1, Declared("grants", "acme", "g"), API_OWNER, text)
        with pytest.raises(InvalidChange, match="resource 'r1'"):
            image_with(bad)
