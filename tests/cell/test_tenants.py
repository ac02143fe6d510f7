"""Tenants in the metadata image, in what is stored, and at the levels that have them."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.change_codec import decode_change, encode_change
from data_plane.cell.changes import (
    AlterConfigs,
    Change,
    CreateTopic,
    DeleteTopic,
    InvalidChange,
    UpdateFeature,
    apply_change,
    apply_changes,
)
from data_plane.cell.declarations import (
    CLIENT_OWNER,
    TOPIC_KIND,
    Declaration,
    Declared,
    PutDeclaration,
)
from data_plane.cell.features import METADATA_VERSION, OPEN_LEVEL, TENANCY_LEVEL
from data_plane.cell.local_store import LocalMetadataStore
from data_plane.cell.metadata import MetadataImage, ResourceType, decode_image, encode_image
from data_plane.cell.metadata_store import (
    FEED_PARTS_KEPT,
    Commit,
    CommitHistory,
    MetadataStore,
)
from data_plane.cell.tenants import (
    NAME_CHARACTERS_MAX,
    SETTING_CHARACTERS_MAX,
    SETTINGS_MAX,
    TENANTS_MAX,
    DeleteTenant,
    PutTenant,
    TenantImage,
    with_id,
)
from data_plane.cell.topics_draft import changed_topics
from data_plane.log.sim_file_system import SimFileSystem
from tests.cell.cases import NEW_CELL, histories
from tests.postgres_server import PostgresDatabase

ACME = TenantImage("acme", "acme-cluster", settings={"partitions.max": "10"})


@given(histories(image=NEW_CELL))
def test_an_image_with_tenants_and_its_changes_survive_encoding(changes: list[Change]) -> None:
    image = again = NEW_CELL
    for change in changes:
        encoded = json.loads(json.dumps(encode_change(change, image.metadata_level)))
        image = apply_change(image, change)
        again = apply_change(again, decode_change(encoded))
    assert again == image
    assert again.digest() == image.digest()
    decoded = decode_image(encode_image(image))
    assert decoded == image
    assert encode_image(decoded) == encode_image(image)


def test_a_tenant_is_made_changed_and_deleted() -> None:
    made = apply_change(NEW_CELL, PutTenant(ACME))
    assert made.tenant("acme") == replace(ACME, made_at=made.version)
    assert made.tenant("other") is None
    blocked = replace(ACME, state="blocked", settings={})
    changed = apply_change(made, PutTenant(blocked))
    assert changed.tenant("acme") == replace(blocked, made_at=made.version)
    gone = apply_change(made, DeleteTenant("acme"))
    assert gone.tenants == {}
    with pytest.raises(InvalidChange, match="no tenant acme"):
        apply_change(gone, DeleteTenant("acme"))


def test_a_tenant_that_is_made_anew_has_an_id_that_none_has_had() -> None:
    image = apply_change(NEW_CELL, PutTenant(ACME))
    first = image.tenants["acme"]
    # Whatever who applies it says: it is the commit that knows.
    image = apply_change(image, PutTenant(replace(ACME, state="blocked", made_at=7)))
    assert image.tenants["acme"].tenant_id == first.tenant_id
    assert with_id(image.tenants, first.tenant_id) == image.tenants["acme"]
    image = apply_change(image, DeleteTenant("acme"))
    assert with_id(image.tenants, first.tenant_id) is None
    image = decode_image(encode_image(apply_change(image, PutTenant(ACME))))
    second = image.tenants["acme"]
    assert second.tenant_id != first.tenant_id
    assert with_id(image.tenants, first.tenant_id) is None
    assert with_id(image.tenants, second.tenant_id) == second
    default = TenantImage("default", NEW_CELL.cluster_id, made_at=7)
    assert apply_change(image, PutTenant(default)).tenants["default"].tenant_id == "default"


def test_what_was_declared_of_a_tenant_s_topics_goes_with_it() -> None:
    def released(resource_id: str, tenant: str, generation: int) -> PutDeclaration:
        thing = Declared(TOPIC_KIND, tenant, "orders")
        return PutDeclaration(Declaration(resource_id, generation, thing, CLIENT_OWNER, "{}"))

    other = PutTenant(TenantImage("other", "other-cluster"))
    puts: list[Change] = [
        PutTenant(ACME),
        other,
        released("r1", "acme", 2),
        released("r2", "other", 1),
    ]
    image = apply_changes(NEW_CELL, [*puts, DeleteTenant("acme"), PutTenant(ACME)])
    assert image.declarations.by_id["r1"].is_deleted
    assert not image.declarations.by_id["r2"].is_deleted
    with pytest.raises(InvalidChange, match="it was deleted"):
        apply_change(image, released("r1", "acme", 3))
    assert apply_change(image, released("r3", "acme", 1)).declarations.by_id["r3"].generation == 1


def test_the_default_tenant_exists_whether_it_is_stored_or_not() -> None:
    default = NEW_CELL.tenant("default")
    assert default == TenantImage("default", NEW_CELL.cluster_id)
    assert NEW_CELL.tenants == {}
    stored = apply_change(NEW_CELL, PutTenant(replace(default, settings={"a": "1"})))
    assert stored.tenant("default") == replace(default, settings={"a": "1"})
    assert apply_change(stored, DeleteTenant("default")).tenant("default") == default
    with pytest.raises(InvalidChange, match="has the cluster id cluster"):
        apply_change(NEW_CELL, PutTenant(TenantImage("default", "another")))


@pytest.mark.parametrize(
    ("tenant", "words"),
    [
        (replace(ACME, name=""), "a name has"),
        (replace(ACME, name="Acme"), "a name has"),
        (replace(ACME, name="-acme"), "a name has"),
        (replace(ACME, name="acme-"), "a name has"),
        (replace(ACME, name="a.b"), "a name has"),
        (replace(ACME, name="a" * (NAME_CHARACTERS_MAX + 1)), "a name has"),
        (replace(ACME, cluster_id="another"), "has the cluster id acme-cluster"),
        (replace(ACME, name="other"), "another one has the cluster id acme-cluster"),
        (replace(ACME, name="other", cluster_id="cluster"), "another one has the cluster id"),
        (replace(ACME, name="other", cluster_id=""), "no cluster id"),
        (replace(ACME, settings={"k": "v" * SETTING_CHARACTERS_MAX}), "a setting of more than"),
        (
            replace(ACME, settings={f"{n}": "" for n in range(SETTINGS_MAX + 1)}),
            "more than 100 set",
        ),
    ],
)
def test_what_a_tenant_cannot_be(tenant: TenantImage, words: str) -> None:
    image = apply_change(NEW_CELL, PutTenant(ACME))
    with pytest.raises(InvalidChange, match=words):
        apply_change(image, PutTenant(tenant))


def test_names_and_settings_at_their_maximum() -> None:
    settings = {f"{n:02}": "v" * (SETTING_CHARACTERS_MAX - 2) for n in range(SETTINGS_MAX)}
    tenant = TenantImage("a" * NAME_CHARACTERS_MAX, "c" * 64, settings=settings)
    image = apply_change(NEW_CELL, PutTenant(tenant))
    stored = {tenant.name: replace(tenant, made_at=image.version)}
    assert decode_image(encode_image(image)).tenants == stored


def test_there_are_so_many_tenants() -> None:
    tenants = {f"t{n}": TenantImage(f"t{n}", f"c{n}") for n in range(TENANTS_MAX - 1)}
    image = apply_change(replace(NEW_CELL, tenants=tenants), PutTenant(ACME))
    assert len(image.tenants) == TENANTS_MAX
    image = apply_change(image, PutTenant(replace(ACME, state="blocked")))
    with pytest.raises(InvalidChange, match="there are 10000 tenants"):
        apply_change(image, PutTenant(TenantImage("more", "more")))


def test_nothing_of_a_tenant_is_written_below_its_level() -> None:
    below = apply_change(NEW_CELL, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    change: Change
    for change in (PutTenant(ACME), DeleteTenant("acme")):
        with pytest.raises(InvalidChange, match=r"metadata.version 2 has no .*Tenant"):
            apply_change(below, change)
    raised = UpdateFeature(METADATA_VERSION, TENANCY_LEVEL)
    image = apply_changes(below, [raised, PutTenant(ACME)])
    lowered = UpdateFeature(METADATA_VERSION, OPEN_LEVEL)
    with pytest.raises(InvalidChange, match="no room"):
        apply_change(image, lowered)
    image = apply_changes(image, [DeleteTenant("acme"), lowered])
    assert image.metadata_level == OPEN_LEVEL
    assert b"tenants" not in encode_image(image)


@given(st.dictionaries(st.text(min_size=1).map(lambda name: f"new {name}"), st.integers()))
def test_fields_of_a_newer_version_stay_with_their_tenant(new: dict[str, int]) -> None:
    image = apply_change(NEW_CELL, PutTenant(ACME))
    document = json.loads(encode_image(image))
    document["image"]["tenants"][0].update(new)
    image = decode_image(json.dumps(document).encode())
    assert json.loads(encode_image(image)) == document
    known = image.tenant("acme")
    assert known is not None
    change = PutTenant(replace(known, state="blocked"))
    assert decode_change(json.loads(json.dumps(encode_change(change, TENANCY_LEVEL)))) == change
    image = apply_change(image, change)
    assert new.items() <= json.loads(encode_image(image))["image"]["tenants"][0].items()


def put_and_read(store: MetadataStore) -> MetadataImage:
    store.apply([PutTenant(ACME), PutTenant(TenantImage("b", "b-cluster"))], 0, "r1")
    image = store.apply([DeleteTenant("b")], 1, "r2")
    assert image.tenants == {"acme": replace(ACME, made_at=1)}
    assert store.read() == image
    return image


def test_a_broker_that_is_alone_keeps_its_tenants() -> None:
    fs = SimFileSystem()
    fs.make_directory("/data")
    store = LocalMetadataStore(fs, "/data", "cluster")
    image = put_and_read(store)
    store.close()
    again = LocalMetadataStore(fs, "/data", "cluster")
    assert again.read() == image
    assert [len(commit.changes) for commit in again.feed(0)] == [2, 1]


def test_a_cell_keeps_its_tenants(postgres: PostgresDatabase) -> None:
    store, other = postgres.store(), postgres.store()
    try:
        image = put_and_read(store)
        assert other.read() == image
        assert [len(commit.changes) for commit in other.feed(0)] == [2, 1]
    finally:
        store.close()
        other.close()


def test_settings_of_tenants_count_in_the_feed() -> None:
    history = CommitHistory(0)
    settings = {f"{n:02}": "v" * 4000 for n in range(SETTINGS_MAX)}
    change = PutTenant(replace(ACME, settings=settings))
    parts = 1 + SETTINGS_MAX * (1 + 4000 // 64)
    kept = FEED_PARTS_KEPT // parts
    for version in range(1, kept + 3):
        history.record(Commit(version, f"r{version}", (change,)))
    assert len(history.after(2)) == kept


def test_two_tenants_have_topics_and_configurations_of_the_same_names() -> None:
    ids = [UUID(int=number) for number in range(1, 4)]
    image = apply_changes(
        NEW_CELL,
        [
            PutTenant(ACME),
            CreateTopic("default", "orders", ids[0], ((1,),)),
            CreateTopic("acme", "orders", ids[1], ((1,), (1,))),
            CreateTopic("acme", "pay", ids[2], ((1,),)),
            AlterConfigs("acme", ResourceType.TOPIC, "orders", (("a", "1"),)),
            AlterConfigs("acme", ResourceType.GROUP, "g", (("b", "2"),)),
        ],
    )
    assert {name: topic.topic_id for name, topic in image.topics_of("acme").items()} == {
        "orders": ids[1],
        "pay": ids[2],
    }
    assert [topic.topic_id for topic in image.topics_of("default").values()] == [ids[0]]
    assert image.topics_of("nobody") == {}
    assert [str(topic) for topic in image.topics_in_order()] == [
        "acme/orders",
        "acme/pay",
        "orders",
    ]
    assert image.config_of("acme", ResourceType.TOPIC, "orders") == {"a": "1"}
    assert image.config_of("default", ResourceType.TOPIC, "orders") == {}
    assert image.config_of("acme", ResourceType.GROUP, "g") == {"b": "2"}
    assert image.config_of("default", ResourceType.GROUP, "g") == {}
    assert decode_image(encode_image(image)) == image
    with pytest.raises(InvalidChange, match="topic orders exists"):
        apply_change(image, CreateTopic("acme", "orders", UUID(int=9), ((1,),)))
    with pytest.raises(InvalidChange, match="tenant acme has topics"):
        apply_change(image, DeleteTenant("acme"))
    gone = apply_changes(image, [DeleteTopic(ids[1]), DeleteTopic(ids[2]), DeleteTenant("acme")])
    assert list(gone.topics_by_tenant) == ["default"]
    assert gone.configs == {}


def test_what_belongs_to_a_tenant_needs_the_tenant_and_its_level() -> None:
    changes: list[Change] = [
        CreateTopic("acme", "orders", UUID(int=1), ((1,),)),
        AlterConfigs("acme", ResourceType.GROUP, "g", (("b", "2"),)),
    ]
    below = apply_change(NEW_CELL, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    for change in changes:
        with pytest.raises(InvalidChange, match="there is no tenant acme"):
            apply_change(NEW_CELL, change)
        with pytest.raises(InvalidChange, match=r"metadata.version 2 has no"):
            apply_change(below, change)


def test_a_commit_about_one_tenant_leaves_the_topics_of_others_as_they_are() -> None:
    before = apply_changes(
        NEW_CELL,
        [
            PutTenant(ACME),
            CreateTopic("default", "orders", UUID(int=1), ((1,),)),
            CreateTopic("acme", "orders", UUID(int=2), ((1,),)),
        ],
    )
    after = apply_change(before, CreateTopic("acme", "pay", UUID(int=3), ((1,),)))
    assert after.topics_of("default") is before.topics_of("default")
    assert list(changed_topics(after, before)) == [(after.topics_by_id[UUID(int=3)], None)]
    assert set(before.topics_of("acme")) == {"orders"}
