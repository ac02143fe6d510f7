"""Feature levels: nothing is written that a registered broker does not know, and what a newer one
has written by name outlives the older ones."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.change_codec import decode_change, encode_change, encode_changes
from data_plane.cell.changes import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Change,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    InvalidChange,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeature,
    apply_change,
    apply_changes,
)
from data_plane.cell.features import (
    METADATA_VERSION,
    NEWEST_LEVEL,
    SUPPORTED_FEATURES,
    VIRTUAL_TOPICS,
    FeatureRange,
    SupportedFeatures,
    TooNew,
    features_of,
    incarnation_with,
    newest_levels,
    range_of,
    why_unsupported,
)
from data_plane.cell.image_file import ImageFile, decode_image_file, encode_image_file
from data_plane.cell.local_store import LocalMetadataStore
from data_plane.cell.metadata import (
    ACTIVE,
    BrokerImage,
    MetadataImage,
    ResourceType,
    decode_image,
    encode_image,
)
from data_plane.cell.metadata_store import StoreTooNew
from data_plane.cell.partition_state import next_epochs
from data_plane.cell.registration import RegistrationRefused, decide_registration
from data_plane.cell.settings import ControllerSettings
from data_plane.log.sim_file_system import SimFileSystem
from tests.cell import first_reader
from tests.cell.cases import histories

ORDERS = UUID(int=1)
FIRST: SupportedFeatures = ()
BOTH = SUPPORTED_FEATURES
FILTERS = "tidewheel.subscriptions"
WITH_FILTERS = (*SUPPORTED_FEATURES, FeatureRange(FILTERS, 0, 3))
OPEN = MetadataImage("cluster", features=newest_levels(BOTH))
RAISED = UpdateFeature(METADATA_VERSION, NEWEST_LEVEL)
LOWERED = UpdateFeature(METADATA_VERSION, 1)


def broker(node_id: int, supported: SupportedFeatures = BOTH, life: str = "a") -> BrokerImage:
    incarnation_id = incarnation_with(life * 32, supported)
    return BrokerImage(node_id, "h", 9092, incarnation_id=incarnation_id, features=supported)


def decoded(change: Change, level: int) -> Change:
    return decode_change(json.loads(json.dumps(encode_change(change, level))))


def in_state(image: MetadataImage, state: str, unknown_fields: str = "") -> ChangePartition:
    old = image.topics_by_id[ORDERS].partitions[0]
    return ChangePartition(
        ORDERS, 0, next_epochs(old, replace(old, state=state, unknown_fields=unknown_fields))
    )


# --- ranges ---


@given(
    st.lists(
        st.builds(
            lambda name, lowest, more: FeatureRange(name, lowest, lowest + more),
            st.sampled_from([METADATA_VERSION, FILTERS, "a.b-c"]),
            st.integers(0, 9),
            st.integers(0, 9),
        ),
        unique_by=lambda item: item.name,
    ).map(lambda found: tuple(sorted(found)))
)
def test_an_incarnation_id_carries_features_and_is_unique_all_the_same(
    supported: SupportedFeatures,
) -> None:
    named = incarnation_with("0123", supported)
    assert features_of(named) == supported
    assert named != incarnation_with("4567", supported)
    assert features_of("0123") == features_of("0123;what=ever;=1-2;x=1") == ()


def test_a_broker_says_why_it_cannot_be_one_of_a_cell() -> None:
    newest = newest_levels(BOTH)
    assert why_unsupported(BOTH, {}) == why_unsupported(BOTH, newest) == ""
    assert why_unsupported(FIRST, {}) == ""
    words = "the cell is at metadata.version 3, this broker supports 1: upgrade this broker"
    assert why_unsupported(FIRST, newest) == words
    words = "the cell is at tidewheel.subscriptions 1, this broker does not know it"
    assert words in why_unsupported(BOTH, {**newest, FILTERS: 1})
    assert why_unsupported(WITH_FILTERS, newest) == ""
    later = (FeatureRange(METADATA_VERSION, 4, 5),)
    assert "finalize a newer level with the version before" in why_unsupported(later, {})


# --- a cell in which versions mix ---


@dataclass
class MixedCell:
    """The commits of a cell, each of which every registered broker must be able to read."""

    image: MetadataImage
    refused: int = 0
    levels: set[int] = field(default_factory=set)

    def commit(self, *changes: Change) -> None:
        before = self.image
        try:
            image = apply_changes(before, changes)
        except InvalidChange:
            self.refused += 1
            return
        encoded = json.loads(json.dumps(encode_changes(changes, before.metadata_level)))
        # Whoever was registered before reads the commit, whoever is after reads snapshots.
        for known in before.brokers.values():
            if range_of(known.features, METADATA_VERSION).max_level == 1:
                for item in encoded:
                    first_reader.read_change(item)
        for known in image.brokers.values():
            assert why_unsupported(known.features, image.features) == ""
            if range_of(known.features, METADATA_VERSION).max_level == 1:
                first_reader.read_image(encode_image(image))
        assert tuple(decode_change(item) for item in encoded) == changes
        assert decode_image(encode_image(image)) == image
        self.image = image
        self.levels.add(image.metadata_level)


NODES = st.integers(1, 3)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), NODES, st.sampled_from([FIRST, BOTH, WITH_FILTERS])),
        st.tuples(st.just("unregister"), NODES),
        st.tuples(st.just("fence"), NODES),
        st.tuples(
            st.just("level"), st.integers(0, 4), st.sampled_from([METADATA_VERSION, FILTERS])
        ),
        st.tuples(st.just("state"), st.sampled_from([ACTIVE, "read-only"])),
        st.tuples(st.just("field"), st.sampled_from(["", '{"new":1}'])),
        st.tuples(st.just("level and state"), st.sampled_from([1, 2, 3])),
    ),
    max_size=20,
)


@given(ACTIONS)
def test_nothing_is_written_that_a_registered_broker_cannot_read(
    actions: list[tuple[Any, ...]],
) -> None:
    cell = MixedCell(MetadataImage("cluster"))
    cell.commit(CreateTopic("default", "orders", ORDERS, ((1,),)))
    for number, (action, *given_) in enumerate(actions):
        image = cell.image
        match action:
            case "register":
                cell.commit(RegisterBroker(broker(given_[0], given_[1], f"{number % 10}")))
            case "unregister" if given_[0] in image.brokers:
                cell.commit(UnregisterBroker(given_[0], image.brokers[given_[0]].broker_epoch))
            case "fence" if given_[0] in image.brokers:
                cell.commit(ChangeBroker(replace(image.brokers[given_[0]], is_fenced=True)))
            case "level":
                cell.commit(UpdateFeature(given_[1], given_[0]))
            case "state":
                cell.commit(in_state(image, given_[0]))
            case "field":
                cell.commit(in_state(image, ACTIVE, unknown_fields=given_[0]))
            case "level and state":
                cell.commit(UpdateFeature(METADATA_VERSION, given_[0]), in_state(image, "x"))


def test_the_mixed_cell_goes_through_what_it_is_about() -> None:
    cell = MixedCell(MetadataImage("cluster"))
    cell.commit(CreateTopic("default", "orders", ORDERS, ((1,),)))
    cell.commit(RegisterBroker(broker(1)))
    cell.commit(RegisterBroker(broker(2, FIRST)))
    cell.commit(RAISED)
    cell.commit(in_state(cell.image, "read-only"))
    # Nothing would change, but broker 2 would have to read it.
    cell.commit(LOWERED)
    assert (cell.refused, cell.image.metadata_level) == (3, 1)
    cell.commit(RegisterBroker(broker(2, life="b")))
    cell.commit(RAISED, in_state(cell.image, "read-only"))
    assert (cell.refused, cell.image.metadata_level) == (3, 3)
    # An older version again, a downgrade that would lose the state, a feature nobody has.
    cell.commit(RegisterBroker(broker(2, FIRST, life="c")))
    cell.commit(LOWERED)
    cell.commit(UpdateFeature(FILTERS, 1))
    assert (cell.refused, cell.image.metadata_level) == (6, 3)
    cell.commit(in_state(cell.image, ACTIVE))
    cell.commit(LOWERED)
    cell.commit(RegisterBroker(broker(2, FIRST, life="d")))
    assert (cell.refused, cell.image.features) == (6, {})
    assert cell.levels == {1, 3}


def test_a_feature_goes_in_and_out_of_use() -> None:
    image = apply_change(OPEN, RegisterBroker(broker(1, WITH_FILTERS)))
    image = apply_change(image, UpdateFeature(FILTERS, 3))
    assert image.features == {METADATA_VERSION: 3, FILTERS: 3}
    with pytest.raises(InvalidChange, match=r"does not support tidewheel.subscriptions 4"):
        apply_change(image, UpdateFeature(FILTERS, 4))
    with pytest.raises(InvalidChange, match="no room"):
        apply_change(image, LOWERED)
    with pytest.raises(InvalidChange, match="does not know it"):
        apply_change(image, RegisterBroker(broker(2, BOTH)))
    image = apply_change(image, UpdateFeature(FILTERS, 0))
    assert image.features == {METADATA_VERSION: 3}


@given(histories())
def test_at_the_first_level_all_is_as_it_was_before_there_were_levels(
    changes: list[Change],
) -> None:
    image = apply_change(MetadataImage("cluster"), RegisterBroker(broker(4)))
    for change in changes:
        image = apply_change(image, change)
        encoded = json.loads(json.dumps(encode_change(change, 1)))
        assert first_reader.read_change(encoded)[0] == encoded[0]
    found = first_reader.read_image(encode_image(image))
    assert found["topics"].keys() == image.topics_of("default").keys()
    assert found["brokers"][4][7] == broker(4).incarnation_id
    assert set(json.loads(encode_image(image))) == {
        *("cluster_id", "version", "next_producer_id", "brokers", "topics", "configs")
    }


def test_a_version_without_levels_never_takes_an_open_image_for_its_own() -> None:
    for image in (OPEN, apply_change(OPEN, RegisterBroker(broker(1)))):
        with pytest.raises(KeyError):
            first_reader.read_image(encode_image(image))


# --- what a newer version has written by name ---


NEW_FIELDS = st.dictionaries(
    st.text(min_size=1, max_size=8).map(lambda name: f"new {name}"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=5,
    ),
    min_size=1,
    max_size=3,
)


@given(st.lists(NEW_FIELDS, min_size=4, max_size=4))
def test_fields_of_a_newer_version_outlive_the_changes_of_this_one(
    new: list[dict[str, Any]],
) -> None:
    of_image, of_broker, of_topic, of_partition = new
    image = apply_changes(
        OPEN, [RegisterBroker(broker(1)), CreateTopic("default", "orders", ORDERS, ((1,), (1,)))]
    )
    document = json.loads(encode_image(image))
    document["image"].update(of_image)
    document["image"]["brokers"][0][-1].update(of_broker)
    topic = document["image"]["topics"][0]
    topic.update(of_topic)
    topic["partitions"][0].append(of_partition)
    image = decode_image(json.dumps(document).encode())
    partition = image.topics_by_id[ORDERS].partitions[0]
    changes: list[Change] = [
        ChangeBroker(replace(image.brokers[1], is_fenced=True)),
        ChangePartition(ORDERS, 0, next_epochs(partition, replace(partition, isr=(), leader=-1))),
        AddPartitions(ORDERS, ((1,),)),
        AlterConfigs("default", ResourceType.TOPIC, "orders", (("retention.ms", "1"),)),
        AllocateProducerIds(0, 10),
    ]
    for change in changes:
        image = apply_change(image, decoded(change, 2))
    found = json.loads(encode_image(image))["image"]
    assert of_image.items() <= found.items()
    assert found["brokers"][0][9]
    assert of_broker.items() <= found["brokers"][0][-1].items()
    assert of_topic.items() <= found["topics"][0].items()
    assert found["topics"][0]["partitions"][0][:3] == [[1], [], -1]
    assert of_partition.items() <= found["topics"][0]["partitions"][0][-1].items()
    assert decode_image(encode_image(image)) == image
    with pytest.raises(InvalidChange, match="no room"):
        apply_change(image, LOWERED)


def test_fields_that_end_a_change_are_kept_with_what_it_makes() -> None:
    change = decode_change(["create_topic", "orders", ORDERS.hex, [[1, [1]]], [], {"color": "a"}])
    image = apply_change(OPEN, change)
    assert json.loads(encode_image(image))["image"]["topics"][0]["color"] == "a"
    assert decoded(change, 2) == change
    # These leave nothing behind that could keep them.
    ignored = {"why": "x"}
    assert decode_change(["allocate_producer_ids", 0, 1, ignored]) == AllocateProducerIds(0, 1)
    assert decode_change(["update_feature", "f", 1, ignored]) == UpdateFeature("f", 1)


def test_a_virtual_topic_has_its_source_s_id_from_the_level_of_the_feature_on() -> None:
    pay = CreateTopic("default", "pay", UUID(int=2), ((1,),), source_id=ORDERS)
    with pytest.raises(InvalidChange, match=r"tidewheel\.virtual\.topics is at 0"):
        apply_change(OPEN, pay)
    with pytest.raises(InvalidChange, match=r"metadata\.version 1 has no CreateTopic like this"):
        apply_change(MetadataImage("cluster"), pay)
    assert decoded(pay, 2) == pay
    image = apply_changes(OPEN, [UpdateFeature(VIRTUAL_TOPICS, 1), decoded(pay, 2)])
    image = apply_change(image, AddPartitions(UUID(int=2), ((1,),)))
    found = decode_image(encode_image(image))
    assert found == image
    assert found.topics_by_id[UUID(int=2)].source_id == ORDERS
    assert found.topics_by_id[UUID(int=2)].unknown_fields == ""
    with pytest.raises(InvalidChange, match="no room"):
        apply_change(image, UpdateFeature(VIRTUAL_TOPICS, 0))


def test_a_partition_has_a_state() -> None:
    image = apply_change(OPEN, CreateTopic("default", "orders", ORDERS, ((1,),)))
    image = apply_change(image, decoded(in_state(image, "archived"), 2))
    partition = decode_image(encode_image(image)).topics_by_id[ORDERS].partitions[0]
    assert (partition.state, partition.is_active) == ("archived", False)


# --- what is too new ---


def test_a_kind_of_change_and_a_level_that_nobody_knows() -> None:
    with pytest.raises(TooNew, match="unknown kind 'merge_topics'"):
        decode_change(["merge_topics", 1])
    with pytest.raises(TooNew, match=r"metadata.version 4"):
        decode_change(["update_feature", METADATA_VERSION, 4])
    document = json.dumps({"features": {METADATA_VERSION: 4}, "what": "ever"}).encode()
    with pytest.raises(TooNew, match=r"metadata.version 4"):
        decode_image(document)


def sealed(body: bytes) -> bytes:
    return b"%08x %s" % (zlib.crc32(body), body)


LATER = json.dumps({"features": {METADATA_VERSION: 4}}).encode()


def new_disk() -> SimFileSystem:
    fs = SimFileSystem()
    fs.make_directory("/data")
    fs.root.sync()
    return fs


def test_stores_of_a_newer_version_say_what_to_do() -> None:
    fs = new_disk()
    ImageFile(fs, "/data").write(OPEN, "id")
    fs.open("/data/metadata-image.json").truncate(0)
    fs.open("/data/metadata-image.json").write_at(0, sealed(b'"id"\n' + LATER))
    with pytest.raises(StoreTooNew, match=r"metadata-image.json: .* upgrade this broker"):
        ImageFile(fs, "/data").read()

    store = LocalMetadataStore(fs, "/data", "cluster")
    store.close()
    journal = "/data/metadata/journal-00000000000000000000.log"
    line = sealed(b'[1,"r",[["merge_topics",1]]]') + b"\n"
    fs.open(journal).write_at(0, line)
    with pytest.raises(StoreTooNew, match=r"byte 0: .*'merge_topics'.* upgrade this broker"):
        LocalMetadataStore(fs, "/data", "cluster")
    assert fs.read_file(journal) == line


# --- stores ---


def files(fs: SimFileSystem) -> dict[str, bytes]:
    folder = "/data/metadata"
    names = fs.list_directory(folder)
    return {name: fs.read_file(f"{folder}/{name}") for name in names if name != "lock"}


def test_a_new_store_begins_at_the_newest_levels_and_an_old_one_stays_where_it_is() -> None:
    fs = new_disk()
    store = LocalMetadataStore(fs, "/data", "cluster", WITH_FILTERS)
    assert store.read().features == {METADATA_VERSION: 3, FILTERS: 3}
    store.close()
    with pytest.raises(StoreTooNew, match=r"tidewheel.subscriptions 3.*does not know it"):
        LocalMetadataStore(fs, "/data", "cluster")
    LocalMetadataStore(fs, "/data", "cluster", WITH_FILTERS).close()

    fs = new_disk()
    LocalMetadataStore(fs, "/data", "cluster", FIRST).close()
    store = LocalMetadataStore(fs, "/data", "cluster")
    assert store.read().features == {}
    store.apply([CreateTopic("default", "orders", ORDERS, ((1,),))], 0, "r1")
    assert store.read().metadata_level == 1


def test_a_downgrade_leaves_nothing_that_an_older_version_cannot_read() -> None:
    fs = new_disk()
    store = LocalMetadataStore(fs, "/data", "cluster")
    store.apply([CreateTopic("default", "orders", ORDERS, ((1,),))], 0, "r1")
    store.apply([LOWERED], 1, "r2")
    store.apply([AddPartitions(ORDERS, ((1,),))], 2, "r3")
    image = store.read()
    store.close()
    found = files(fs)
    assert sorted(found) == [
        "journal-00000000000000000002.log",
        "snapshot-00000000000000000002.json",
    ]
    snapshot = found["snapshot-00000000000000000002.json"].split(b"\n", 1)[1]
    assert first_reader.read_image(snapshot)["topics"].keys() == {"orders"}
    for line in found["journal-00000000000000000002.log"].splitlines():
        for change in json.loads(line[9:])[2]:
            first_reader.read_change(change)
    again = LocalMetadataStore(fs, "/data", "cluster")
    assert (again.read(), again.read().metadata_level) == (image, 1)
    again.apply([RAISED, in_state(image, "x")], 3, "r4")
    again.close()
    assert LocalMetadataStore(fs, "/data", "cluster").read().metadata_level == 3


WRITTEN: dict[str, Any] = json.loads(
    Path(__file__).with_name("written_at_level_1.json").read_text(encoding="utf-8")
)
"""What the last version without levels wrote: a cell with all kinds of changes, as a broker that is
alone keeps it, as image file and as rows of Postgres."""


def old_disk() -> SimFileSystem:
    fs = new_disk()
    fs.make_directory("/data/metadata")
    for name, text in WRITTEN["local_store"].items():
        fs.open(f"/data/metadata/{name}", create=True).write_at(0, text.encode())
    return fs


def test_what_was_written_before_there_were_levels_is_read_and_written_again() -> None:
    image = decode_image(WRITTEN["image"].encode())
    assert encode_image(image).decode() == WRITTEN["image"]
    assert (image.metadata_level, image.features) == (1, {})
    assert decode_image_file(WRITTEN["image_file"].encode(), "p") == (image, "an identity")
    assert encode_image_file(image, "an identity").decode() == WRITTEN["image_file"]
    fs = old_disk()
    store = LocalMetadataStore(fs, "/data", WRITTEN["cluster_id"])
    assert store.read() == image
    again = decode_image(WRITTEN["snapshot"][1].encode())
    for version, _, _, encoded in WRITTEN["commits"]:
        changes = [decode_change(item) for item in encoded]
        assert encode_changes(changes, 1) == encoded
        again = apply_changes(again, changes)
        assert again.version == version
    assert again == image


def test_a_store_of_before_goes_on_as_it_was_until_it_is_upgraded() -> None:
    fs = old_disk()
    cluster_id = WRITTEN["cluster_id"]
    store = LocalMetadataStore(fs, "/data", cluster_id)
    version = store.read().version
    store.apply([CreateTopic("default", "new", UUID(int=9), ((1,),))], version, "new")
    store.close()
    (journal,) = (text for name, text in files(fs).items() if name.startswith("journal-"))
    for line in journal.splitlines():
        for change in json.loads(line[9:])[2]:
            first_reader.read_change(change)
    store = LocalMetadataStore(fs, "/data", cluster_id)
    # Brokers of before are registered in it.
    with pytest.raises(InvalidChange, match=r"broker 1 does not support metadata.version 3"):
        store.apply([RAISED], version + 1, "raise")
    again = [RegisterBroker(broker(node_id)) for node_id in store.read().brokers]
    store.apply([*again, RAISED], version + 1, "raise")
    image = store.read()
    store.close()
    assert LocalMetadataStore(fs, "/data", cluster_id).read() == image


# --- registration ---


def test_a_broker_registers_only_where_it_knows_all_that_is_finalized() -> None:
    settings = ControllerSettings()
    with pytest.raises(RegistrationRefused, match=r"broker 1 .*metadata.version 3.*upgrade this"):
        decide_registration(OPEN, broker(1, FIRST), None, settings)
    changes = decide_registration(OPEN, broker(1), None, settings)
    image = apply_changes(OPEN, changes)
    assert image.brokers[1].features == BOTH
    again = decoded(RegisterBroker(image.brokers[1]), 2)
    assert again == RegisterBroker(image.brokers[1])
