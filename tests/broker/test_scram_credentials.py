"""DescribeUserScramCredentials and AlterUserScramCredentials, as Apache Kafka answers them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_plane.broker.admin.scram_credentials import (
    LISTED_HERE_MAX,
    USERS_MAX,
    decide_alterations,
)
from data_plane.broker.authentication.scram import is_password_of, salted_password
from data_plane.broker.request.principal import Principal
from data_plane.cell.changes import (
    Change,
    UpdateFeature,
    apply_change,
)
from data_plane.cell.credentials import Credential, PutCredential, ScramVerifier, login_of
from data_plane.cell.features import METADATA_VERSION, OPEN_LEVEL
from data_plane.cell.metadata_store import InMemoryMetadataStore, StoreUnavailable
from data_plane.cell.tenant_quotas import PutTenantQuotas, TenantQuotas
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from data_plane.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer, Outcome
from tests.cell.cases import NEW_CELL

SHA_256, SHA_512 = 1, 2
NAMES = {SHA_256: "SCRAM-SHA-256", SHA_512: "SCRAM-SHA-512"}
OK: Outcome = (0, None)
EMPTY_NAME = (93, "Username must not be empty")
NO_SUCH = (91, "Attempt to delete a user credential that does not exist")
TWICE = (92, "A user credential cannot be altered twice in the same request")
UNKNOWN = (33, "Unknown SCRAM mechanism")
Item = ScramCredentialDeletion | ScramCredentialUpsertion


def put(
    name: str, mechanism: int = SHA_256, password: str = "secret", iterations: int = 4096
) -> ScramCredentialUpsertion:
    """As a client sends it, which has salted the password."""
    salt = b"salt of " + name.encode()
    salted = salted_password(
        NAMES.get(mechanism, NAMES[SHA_256]), password.encode(), salt, max(1, iterations)
    )
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def drop(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


class ScramPlayer(AdminPlayer):
    """A new broker, whose metadata is of the newest level."""

    def __init__(self) -> None:
        super().__init__()
        image = replace(NEW_CELL, version=1)
        self.services.store = InMemoryMetadataStore(image)
        self.services.apply_image(image, self.now_ms)

    def commit(self, *changes: Change) -> None:
        services = self.services
        version = services.image.version
        image = services.store.apply(changes, version, f"commit {version}")
        services.apply_image(image, self.now_ms)

    def alter_users(self, *items: Item) -> dict[str, Outcome]:
        request = AlterUserScramCredentialsRequest(
            deletions=[item for item in items if isinstance(item, ScramCredentialDeletion)],
            upsertions=[item for item in items if isinstance(item, ScramCredentialUpsertion)],
        )
        response = self.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        return {one.user: (one.error_code, one.error_message) for one in response.results}

    def describe_users(self, *names: str) -> dict[str, Outcome | dict[int, int]]:
        users = [UserName(name=name) for name in names] or None
        response = self.ask(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            0,
            DescribeUserScramCredentialsRequest(users=users),
        )
        assert response.error_code == 0
        return {
            one.user: (one.error_code, one.error_message)
            if one.error_code
            else {info.mechanism: info.iterations for info in one.credential_infos}
            for one in response.results
        }


def test_users_are_made_described_and_deleted() -> None:
    broker = ScramPlayer()
    assert broker.alter_users(put("alice"), put("bob", SHA_512, iterations=16_384)) == {
        "alice": OK,
        "bob": OK,
    }
    assert broker.alter_users(put("alice", SHA_512, iterations=8192)) == {"alice": OK}
    assert broker.describe_users() == {"alice": {1: 4096, 2: 8192}, "bob": {2: 16_384}}
    assert broker.alter_users(drop("alice")) == {"alice": OK}
    assert broker.describe_users("alice") == {"alice": {2: 8192}}
    assert broker.alter_users(drop("alice", SHA_512), put("bob")) == {"alice": OK, "bob": OK}
    assert broker.describe_users() == {"bob": {1: 4096, 2: 16_384}}


def of_others(count: int, tenant: str) -> dict[str, Credential]:
    verifiers = {"SCRAM-SHA-256": ScramVerifier(b"salt", bytes(32), bytes(32), 4096)}
    return {
        login_of(tenant, f"u{number}"): Credential(
            login_of(tenant, f"u{number}"), tenant, f"u{number}", verifiers
        )
        for number in range(count)
    }


def test_users_are_found_among_very_many_of_others_by_a_thread() -> None:
    broker = ScramPlayer()
    assert broker.alter_users(put("alice")) == {"alice": OK}
    image = broker.services.image
    credentials = {**image.credentials, **of_others(LISTED_HERE_MAX, "acme")}
    broker.services.image = replace(image, credentials=credentials)
    request = DescribeUserScramCredentialsRequest(users=None)
    pending = broker.send(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request)
    assert not pending.is_answered
    broker.run_jobs()
    assert [one.user for one in pending.response.results] == ["alice"]


def test_a_tenant_has_so_many_users_whatever_others_have() -> None:
    image = apply_change(NEW_CELL, PutTenant(TenantImage("acme", "acme-cluster")))

    def outcome(theirs: int, ours: int, name: str) -> int:
        credentials = {**of_others(theirs, "acme"), **of_others(ours, "default")}
        full = replace(image, credentials=credentials)
        request = AlterUserScramCredentialsRequest(upsertions=[put(name)])
        refusal = decide_alterations(full, "acme", request)[0][name]
        return 0 if refusal is None else int(refusal.code)

    assert outcome(USERS_MAX - 1, 5, "new") == 0
    assert outcome(USERS_MAX, 0, "new") == ErrorCode.POLICY_VIOLATION
    assert outcome(USERS_MAX, 0, "u7") == 0
    assert outcome(1, USERS_MAX, "new") == 0


class CountedName(str):
    """A tenant's name; all of them together remember how often one was looked at."""

    __slots__ = ()
    looks = 0

    def __eq__(self, other: object) -> bool:
        CountedName.looks += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_the_users_of_a_tenant_are_counted_once_for_a_request() -> None:
    image = apply_change(NEW_CELL, PutTenant(TenantImage("acme", "acme-cluster")))
    image = apply_change(image, PutTenantQuotas("acme", TenantQuotas(users=102)))
    there = {**of_others(100, "acme"), **of_others(400, "default")}
    image = replace(
        image,
        credentials={
            login: replace(one, tenant=CountedName(one.tenant)) for login, one in there.items()
        },
    )
    CountedName.looks = 0
    news = [put(f"new{number}") for number in range(20)]
    request = AlterUserScramCredentialsRequest(deletions=[drop("u7")], upsertions=news)
    outcomes, changes = decide_alterations(image, "acme", request)
    assert CountedName.looks < len(there) + 10
    assert len(changes) == 1 + 3
    words = "The tenant has 102 users, and may have 102."
    refused = [outcomes[f"new{number}"] for number in range(3, 20)]
    assert [one and one.message for one in refused] == [words] * 17


def test_what_is_kept_is_a_verifier_of_the_password() -> None:
    broker = ScramPlayer()
    broker.alter_users(put("alice", password="old"), put("alice", SHA_512, password="old"))
    broker.alter_users(put("alice", password="new"))
    credential = broker.services.image.credentials["alice"]
    assert (credential.tenant, credential.principal) == ("default", "alice")
    for mechanism, password in (("SCRAM-SHA-256", b"new"), ("SCRAM-SHA-512", b"old")):
        assert is_password_of(mechanism, credential.verifiers[mechanism], password)


def test_the_first_user_comes_with_the_key_of_decoys() -> None:
    broker = ScramPlayer()
    broker.alter_users(drop("nobody"))
    assert broker.services.image.decoy_key == b""
    broker.alter_users(put("alice"))
    key = broker.services.image.decoy_key
    assert len(key) == 32
    broker.alter_users(put("bob"))
    assert broker.services.image.decoy_key == key


@pytest.mark.parametrize(
    ("items", "outcomes"),
    [
        ([put("")], {"": EMPTY_NAME}),
        ([drop("")], {"": EMPTY_NAME}),
        ([drop("nobody")], {"nobody": NO_SUCH}),
        ([drop("alice", SHA_512)], {"alice": NO_SUCH}),
        ([drop("alice", 0)], {"alice": UNKNOWN}),
        ([put("alice", 3)], {"alice": UNKNOWN}),
        ([put("alice", iterations=4095)], {"alice": (93, "Too few iterations")}),
        ([put("alice", iterations=16_385)], {"alice": (93, "Too many iterations")}),
        ([put("alice", iterations=-1)], {"alice": (93, "Too few iterations")}),
        ([put("alice"), put("alice")], {"alice": TWICE}),
        ([drop("alice"), put("alice")], {"alice": TWICE}),
        ([drop("alice"), drop("alice"), put("new")], {"alice": TWICE, "new": OK}),
        ([put("new"), put("new", SHA_512, iterations=1)], {"new": (93, "Too few iterations")}),
        ([put("alice@acme")], {"alice@acme": (93, "Username must not contain '@'")}),
    ],
)
def test_a_user_with_a_mistake_is_left_alone(
    items: list[Item], outcomes: dict[str, Outcome]
) -> None:
    broker = ScramPlayer()
    broker.alter_users(put("alice"))
    before = broker.services.image.credentials
    assert broker.alter_users(*items) == outcomes
    after = broker.services.image.credentials
    assert after.keys() - {"new"} == {"alice"}
    assert after["alice"] == before["alice"]
    assert ("new" in after) == (outcomes.get("new") == OK)


def test_a_salted_password_has_the_size_of_its_hash_and_a_salt_has_some() -> None:
    broker = ScramPlayer()
    item = put("alice")
    item.salted_password = b"short"
    assert broker.alter_users(item) == {
        "alice": (93, "A salted password of SCRAM-SHA-256 has 32 bytes")
    }
    item = put("alice")
    item.salt = b""
    assert broker.alter_users(item)["alice"][0] == 93
    assert not broker.services.image.credentials


def test_users_that_are_asked_for() -> None:
    broker = ScramPlayer()
    broker.alter_users(put("alice"))
    assert broker.describe_users("alice", "bob", "alice", "") == {
        "alice": (
            92,
            "Cannot describe SCRAM credentials for the same user twice in a single request: alice",
        ),
        "bob": (91, "Attempt to describe a user credential that does not exist: bob"),
        "": (91, "Attempt to describe a user credential that does not exist: "),
    }


def test_users_of_other_tenants_do_not_exist() -> None:
    broker = ScramPlayer()
    broker.alter_users(put("alice"))
    alice = broker.services.image.credentials["alice"]
    of_acme = replace(alice, login="alice@acme", tenant="acme")
    by_key = replace(alice, login="key-1", tenant="acme")
    broker.commit(
        PutTenant(TenantImage("acme", "acme-cluster")),
        PutCredential(of_acme),
        PutCredential(by_key),
    )
    assert broker.describe_users() == {"alice": {1: 4096}}
    for name in ("alice@acme", "key-1"):
        assert broker.describe_users(name) == {
            name: (91, f"Attempt to describe a user credential that does not exist: {name}")
        }
        assert broker.alter_users(drop(name)) == {name: NO_SUCH}
    # Nor is the other tenant's login to be had by a name that is free here.
    assert broker.alter_users(put("key-1")) == {"key-1": (93, "Username is not available")}
    assert broker.services.image.credentials["key-1"] == by_key


def test_a_cell_of_an_older_level_has_no_users() -> None:
    broker = ScramPlayer()
    broker.commit(UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    code, message = broker.alter_users(put("alice"))["alice"]
    assert code == 35
    assert message is not None
    assert "does not support SCRAM" in message


def test_who_may_not_alter_the_cluster() -> None:
    broker = ScramPlayer()
    broker.alter_users(put("alice"))
    default = TenantImage(
        "default",
        broker.services.image.cluster_id,
        settings={"super.users": "User:root", "allow.everyone.if.no.acl.found": "false"},
    )
    broker.commit(PutTenant(default))
    denied = (31, "Cluster authorization failed.")
    assert broker.alter_users(put("alice"), drop("bob")) == {"bob": denied, "alice": denied}
    response = broker.ask(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(users=None)
    )
    assert (response.error_code, response.error_message, response.results) == (*denied, [])
    broker.connection.principal = Principal("User", "root")
    assert broker.alter_users(put("alice")) == {"alice": OK}


def test_a_store_that_cannot_commit() -> None:
    broker = ScramPlayer()

    def apply(*arguments: object, **options: object) -> None:
        raise StoreUnavailable("no disk")

    broker.services.store.apply = apply  # type: ignore[assignment, method-assign]
    code, message = broker.alter_users(put("alice"))["alice"]
    assert code == 7
    assert message is not None
    assert "no disk" in message
