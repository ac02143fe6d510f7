"""Credentials in the metadata image, in what is stored, and at the levels that have them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.change_codec import decode_change, encode_change
from data_plane.cell.changes import (
    Change,
    InvalidChange,
    UpdateFeature,
    apply_change,
    apply_changes,
)
from data_plane.cell.credentials import (
    CREDENTIALS_MAX,
    LOGIN_CHARACTERS_MAX,
    NETWORKS_MAX,
    SALT_BYTES_MAX,
    Credential,
    DeleteCredential,
    PutCredential,
    PutDecoyKey,
    ScramVerifier,
    certificate_login,
    login_of,
)
from data_plane.cell.features import (
    CLOSED_LEVEL,
    METADATA_VERSION,
    OPEN_LEVEL,
    TENANCY_LEVEL,
)
from data_plane.cell.local_store import LocalMetadataStore
from data_plane.cell.metadata import MetadataImage, decode_image, encode_image
from data_plane.cell.metadata_store import (
    FEED_PARTS_KEPT,
    Commit,
    CommitHistory,
    MetadataStore,
)
from data_plane.cell.tenants import DeleteTenant, PutTenant, TenantImage
from data_plane.log.sim_file_system import SimFileSystem
from tests.cell.cases import NEW_CELL
from tests.postgres_server import PostgresDatabase

SHA_256 = "SCRAM-SHA-256"
VERIFIER = ScramVerifier(b"salt", b"s" * 32, b"k" * 32, 4096)
ALICE = Credential("alice", "default", "alice", {SHA_256: VERIFIER})
ACME = TenantImage("acme", "acme-cluster")
CERTIFICATE = Credential(certificate_login("0c" * 32, "DNS:billing.example"), "default", "billing")
ALICE_OF_ACME = replace(ALICE, login="alice@acme", tenant="acme")


def test_a_login_is_made_changed_and_deleted() -> None:
    image = apply_changes(NEW_CELL, [PutTenant(ACME), PutCredential(ALICE)])
    image = apply_change(image, PutCredential(ALICE_OF_ACME))
    assert image.credentials == {"alice": ALICE, "alice@acme": ALICE_OF_ACME}
    changed = replace(ALICE, verifiers={SHA_256: VERIFIER._replace(iterations=16_384)})
    image = apply_change(image, PutCredential(changed))
    assert image.credentials["alice"] == changed
    image = apply_change(image, DeleteCredential("alice"))
    assert image.credentials == {"alice@acme": ALICE_OF_ACME}
    with pytest.raises(InvalidChange, match="no credential alice"):
        apply_change(image, DeleteCredential("alice"))


def test_users_of_two_tenants_have_two_logins() -> None:
    assert login_of("default", "alice") == "alice"
    assert login_of("acme", "alice") == "alice@acme"


def test_a_login_remains_that_of_its_principal() -> None:
    image = apply_changes(NEW_CELL, [PutTenant(ACME), PutCredential(ALICE)])
    for other in (replace(ALICE, tenant="acme"), replace(ALICE, principal="bob")):
        with pytest.raises(InvalidChange, match="alice is that of alice in the tenant default"):
            apply_change(image, PutCredential(other))


def test_a_tenant_goes_after_its_credentials() -> None:
    with pytest.raises(InvalidChange, match="no tenant acme"):
        apply_change(NEW_CELL, PutCredential(ALICE_OF_ACME))
    image = apply_changes(NEW_CELL, [PutTenant(ACME), PutCredential(ALICE_OF_ACME)])
    with pytest.raises(InvalidChange, match="acme has credentials"):
        apply_change(image, DeleteTenant("acme"))
    image = apply_changes(image, [DeleteCredential("alice@acme"), DeleteTenant("acme")])
    assert not image.tenants
    # The default tenant is there whether it is stored or not.
    default = TenantImage("default", "cluster", settings={"a": "1"})
    apply_changes(NEW_CELL, [PutTenant(default), PutCredential(ALICE), DeleteTenant("default")])


@pytest.mark.parametrize(
    ("credential", "words"),
    [
        (replace(ALICE, login=""), "a login has 1 to"),
        (replace(ALICE, login="a" * (LOGIN_CHARACTERS_MAX + 1)), "a login has 1 to"),
        (replace(ALICE, login="a\0"), "none that is zero"),
        (replace(ALICE, principal=""), "a login has"),
        (replace(ALICE, verifiers={}), "nothing that could prove it"),
        (replace(ALICE, verifiers={"PLAIN": VERIFIER}), "no mechanism PLAIN"),
        (replace(ALICE, verifiers={"SCRAM-SHA-512": VERIFIER}), "have 64 bytes"),
        (replace(ALICE, verifiers={SHA_256: VERIFIER._replace(salt=b"")}), "a salt has"),
        (
            replace(ALICE, verifiers={SHA_256: VERIFIER._replace(salt=bytes(SALT_BYTES_MAX + 1))}),
            "a salt has",
        ),
        (
            replace(ALICE, verifiers={SHA_256: VERIFIER._replace(iterations=4095)}),
            "4095 iterations, allowed are 4096 to 16384",
        ),
        (
            replace(ALICE, verifiers={SHA_256: VERIFIER._replace(iterations=16_385)}),
            "16385 iterations",
        ),
        (replace(ALICE, networks=("10.0.0.1/8",)), "has host bits set"),
        (replace(ALICE, login=CERTIFICATE.login), "is that of a certificate"),
        (replace(CERTIFICATE, login="x509:alice"), "not of the form"),
        (replace(CERTIFICATE, login=CERTIFICATE.login.replace("DNS", "CN")), "not of the form"),
        (replace(ALICE, networks=("anywhere",)), "does not appear to be"),
        (replace(ALICE, networks=("::/0",) * (NETWORKS_MAX + 1)), "more than 100 networks"),
    ],
)
def test_what_cannot_be_a_credential(credential: Credential, words: str) -> None:
    with pytest.raises(InvalidChange, match=words):
        apply_change(NEW_CELL, PutCredential(credential))


def test_a_certificate_is_a_credential_without_verifiers() -> None:
    image = apply_change(NEW_CELL, PutCredential(CERTIFICATE))
    image = decode_image(encode_image(image))
    assert image.credentials[CERTIFICATE.login] == CERTIFICATE
    with pytest.raises(InvalidChange, match="is that of"):
        apply_change(image, PutCredential(replace(CERTIFICATE, principal="bob")))


def test_credentials_have_a_maximum() -> None:
    many = {str(n): replace(ALICE, login=str(n)) for n in range(CREDENTIALS_MAX - 1)}
    image = apply_change(replace(NEW_CELL, credentials=many), PutCredential(ALICE))
    apply_change(image, PutCredential(replace(ALICE, networks=("10.0.0.0/8",))))
    with pytest.raises(InvalidChange, match="there are 100000 credentials"):
        apply_change(image, PutCredential(replace(ALICE, login="one more")))


@pytest.mark.parametrize(
    ("host", "is_in"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("11.1.2.3", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("unknown", False),
    ],
)
def test_a_login_comes_from_its_networks(host: str, is_in: bool) -> None:
    credential = replace(ALICE, networks=("10.0.0.0/8", "2001:db8::/32"))
    assert credential.may_come_from(host) == is_in
    assert ALICE.may_come_from(host)


def test_the_decoy_key_remains() -> None:
    image = apply_change(NEW_CELL, PutDecoyKey(b"k" * 32))
    assert apply_change(image, PutDecoyKey(b"k" * 32)).decoy_key == b"k" * 32
    for key in (b"o" * 32, b"k", b""):
        with pytest.raises(InvalidChange, match="and remains"):
            apply_change(image, PutDecoyKey(key))


def test_nothing_of_a_credential_is_written_below_its_level() -> None:
    below = apply_change(NEW_CELL, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    change: Change
    for change in (PutCredential(ALICE), DeleteCredential("alice"), PutDecoyKey(b"k" * 32)):
        with pytest.raises(InvalidChange, match=r"metadata.version 2 has no"):
            apply_change(below, change)
    lowered = UpdateFeature(METADATA_VERSION, OPEN_LEVEL)
    with pytest.raises(InvalidChange, match="no room"):
        apply_changes(NEW_CELL, [PutCredential(ALICE), lowered])


def test_the_decoy_key_is_kept_at_level_2_and_forgotten_at_level_1() -> None:
    image = apply_changes(NEW_CELL, [PutCredential(ALICE), PutDecoyKey(b"k" * 32)])
    image = apply_change(image, DeleteCredential("alice"))
    assert image.metadata_level_needed() == OPEN_LEVEL
    opened = apply_change(image, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    assert opened.decoy_key == b"k" * 32
    assert decode_image(encode_image(opened)) == opened
    closed = apply_change(opened, UpdateFeature(METADATA_VERSION, CLOSED_LEVEL))
    assert closed.decoy_key == b""
    assert decode_image(encode_image(closed)) == closed


@given(st.dictionaries(st.text(min_size=1).map(lambda name: f"new {name}"), st.integers()))
def test_fields_of_a_newer_version_stay_with_their_credential(new: dict[str, int]) -> None:
    document = json.loads(encode_image(apply_change(NEW_CELL, PutCredential(ALICE))))
    document["image"]["credentials"][0].update(new)
    image = decode_image(json.dumps(document).encode())
    assert json.loads(encode_image(image)) == document
    change = PutCredential(replace(image.credentials["alice"], networks=("10.0.0.0/8",)))
    assert decode_change(json.loads(json.dumps(encode_change(change, TENANCY_LEVEL)))) == change
    image = apply_change(image, change)
    assert new.items() <= json.loads(encode_image(image))["image"]["credentials"][0].items()


def put_and_read(store: MetadataStore) -> MetadataImage:
    store.apply([PutDecoyKey(b"k" * 32), PutCredential(ALICE)], 0, "r1")
    store.apply([PutCredential(replace(ALICE, login="b"))], 1, "r2")
    image = store.apply([DeleteCredential("b")], 2, "r3")
    assert image.credentials == {"alice": ALICE}
    assert store.read() == image
    return image


def test_a_broker_that_is_alone_keeps_its_credentials() -> None:
    fs = SimFileSystem()
    fs.make_directory("/data")
    store = LocalMetadataStore(fs, "/data", "cluster")
    image = put_and_read(store)
    store.close()
    again = LocalMetadataStore(fs, "/data", "cluster")
    assert again.read() == image
    assert [len(commit.changes) for commit in again.feed(0)] == [2, 1, 1]


def test_a_cell_keeps_its_credentials(postgres: PostgresDatabase) -> None:
    store, other = postgres.store(), postgres.store()
    try:
        image = put_and_read(store)
        assert other.read() == image
        assert [len(commit.changes) for commit in other.feed(0)] == [2, 1, 1]
    finally:
        store.close()
        other.close()


def test_networks_of_credentials_count_in_the_feed() -> None:
    history = CommitHistory(0)
    change = PutCredential(replace(ALICE, networks=("10.0.0.0/8",) * NETWORKS_MAX))
    kept = FEED_PARTS_KEPT // (1 + 3 + NETWORKS_MAX)
    for version in range(1, kept + 3):
        history.record(Commit(version, f"r{version}", (change,)))
    assert len(history.after(2)) == kept
