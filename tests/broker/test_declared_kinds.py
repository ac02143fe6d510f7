"""Tenants, credentials, grants and quotas that a control plane declares, beside Kafka's clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from data_plane.broker.admin.declarations import decide_declarations
from data_plane.broker.admin.declared import Outcome, Removal, Resource, Result
from data_plane.broker.admin.declared_credentials import CredentialSpecification
from data_plane.broker.admin.declared_grants import GrantsSpecification
from data_plane.broker.admin.declared_quotas import QuotaSpecification, quota_name
from data_plane.broker.admin.declared_tenants import TenantSpecification
from data_plane.broker.cell.tenant_deletions import TenantDeletions
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.cell import acls as acls_module
from data_plane.cell import tenant_deletion
from data_plane.cell.acls import Acl, AclEntry, AddAcls, RemoveAcls, ResourcePattern
from data_plane.cell.changes import AlterConfigs, Change
from data_plane.cell.client_quotas import AlterClientQuotas, QuotaEntity
from data_plane.cell.credentials import PutCredential, ScramVerifier
from data_plane.cell.declarations import CLIENT_OWNER, Declared
from data_plane.cell.tenant_deletion import next_removals
from data_plane.cell.tenant_quotas import TenantQuotas
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from data_plane.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from data_plane.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from data_plane.wire.registry import ApiKey
from tests.broker.declaring_player import DeclaringPlayer
from tests.broker.sasl_player import credential
from tests.broker.test_scram_credentials import SHA_256, SHA_512, drop, put

E = ErrorCode
ALICE = credential("alice", "secret")
VERIFIERS = {name: one for name, one in ALICE.verifiers.items() if name == "SCRAM-SHA-256"}
OTHER_VERIFIERS = credential("alice", "other").verifiers


def acl(name: str, principal: str = "User:alice", operation: int = 3) -> Acl:
    return Acl(ResourcePattern(2, 3, name), AclEntry(principal, "*", operation, 3))


ORDERS, PAY, LOGS = acl("orders"), acl("pay"), acl("logs")


def tenant(generation: int = 1, **fields: Any) -> Resource:
    specification = TenantSpecification("acme-cluster", **fields)
    return Resource("ten", generation, "acme", "", specification)


def user(generation: int = 1, tenant: str = "default", **fields: Any) -> Resource:
    login = "alice" if tenant == "default" else f"alice@{tenant}"
    specification = CredentialSpecification("alice", **{"verifiers": VERIFIERS, **fields})
    return Resource("key", generation, tenant, login, specification)


def grants(*acls: Acl, generation: int = 1, name: str = "g") -> Resource:
    return Resource(name, generation, "default", name, GrantsSpecification(frozenset(acls)))


def quota(generation: int = 1, entity: QuotaEntity | None = None, **limits: float) -> Resource:
    return Resource(
        "quo", generation, "default", quota_name(entity), QuotaSpecification(entity, limits)
    )


class KindsPlayer(DeclaringPlayer):
    """Adds what Kafka's clients do, of the tenant `default`."""

    def __init__(self) -> None:
        super().__init__()
        self.deletions = TenantDeletions(self.services)

    def make(self, *changes: Change) -> None:
        self.commit(lambda image: changes)

    def acls(self, tenant: str = "default") -> set[Acl]:
        return set(self.services.image.acls.get(tenant, ()))

    def delete_acls_as_client(self, name: str) -> Sequence[tuple[int, str | None]]:
        wanted = DeleteAclsFilter(
            resource_type_filter=2,
            resource_name_filter=name,
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        response = self.ask(ApiKey.DELETE_ACLS, 3, DeleteAclsRequest(filters=[wanted]))
        (result,) = response.filter_results
        assert result.error_code == 0
        return [(match.error_code, match.error_message) for match in result.matching_acls]

    def alter_user(
        self, item: ScramCredentialUpsertion | ScramCredentialDeletion
    ) -> tuple[int, str | None]:
        request = AlterUserScramCredentialsRequest(
            deletions=[item] if isinstance(item, ScramCredentialDeletion) else [],
            upsertions=[item] if isinstance(item, ScramCredentialUpsertion) else [],
        )
        (result,) = self.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request).results
        return result.error_code, result.error_message

    def alter_quota(self, user_name: str, key: str, value: float | None) -> tuple[int, str | None]:
        op = OpData(key=key, value=value or 0.0, remove=value is None)
        entity = [EntityData(entity_type="user", entity_name=user_name)]
        request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])])
        (entry,) = self.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries
        return entry.error_code, entry.error_message

    def client_quota(self, entity: QuotaEntity) -> dict[str, float]:
        return dict(self.services.image.client_quotas.get("default", {}).get(entity, {}))

    def delete_tenants(self) -> None:
        """Have the deletion go on until nothing is left to do."""
        while self.services.timers.next_deadline_ms() is not None:
            self.now_ms += 1
            self.services.timers.run_due(self.now_ms)
            self.run_jobs()


@pytest.fixture
def player() -> KindsPlayer:
    return KindsPlayer()


# Tenants


def test_a_tenant_is_made_with_what_it_has_in_one_call(player: KindsPlayer) -> None:
    topic = Resource("top", 1, "acme", "orders", TopicSpecification(2))
    acls = Resource("g", 1, "acme", "g", GrantsSpecification(frozenset([ORDERS])))
    limits = Resource("quo", 1, "acme", "", QuotaSpecification(None, {"partitions": 5}))
    results = player.declare(acls, topic, limits, user(tenant="acme"), tenant())
    assert [result.outcome for result in results] == [Outcome.DONE] * 5
    assert [result.resource_id for result in results] == ["g", "top", "quo", "key", "ten"]
    image = player.services.image
    assert image.tenants["acme"].cluster_id == "acme-cluster"
    assert image.tenants["acme"].quotas == TenantQuotas(partitions=5)
    assert image.topic("acme", "orders") is not None
    assert image.credentials["alice@acme"].principal == "alice"
    assert player.acls("acme") == {ORDERS}
    assert len(image.decoy_key) == 32
    version = image.version
    assert [one.outcome for one in player.declare(tenant(), topic)] == [Outcome.UNCHANGED] * 2
    assert player.services.image.version == version


def test_what_is_declared_of_a_tenant_is_set_and_the_rest_stays(player: KindsPlayer) -> None:
    boss = tenant(allows_if_no_acl=True, super_users=("User:a", "User:b"), state="read-only")
    player.declare(boss)
    made = player.services.image.tenants["acme"]
    assert made.state == "read-only"
    assert made.settings == {
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:a;User:b",
    }
    player.make(PutTenant(replace(made, settings={**made.settings, "more": "1"})))
    player.declare(tenant(2, allows_if_no_acl=False, state_reason="paid"))
    made = player.services.image.tenants["acme"]
    assert (made.state, made.state_reason) == ("active", "paid")
    assert made.settings == {"allow.everyone.if.no.acl.found": "false", "more": "1"}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (tenant(super_users=("alice",)), "'alice' is no principal"),
        (tenant(super_users=("User:a;User:b",)), "is no principal"),
        (replace(tenant(), tenant="Acme"), "Tenant 'Acme': a name has up to 63"),
        (
            Resource("d", 1, "default", "", TenantSpecification("", state="blocked")),
            "The tenant default is active or read-only.",
        ),
        (replace(tenant(), specification=TenantSpecification("")), "'' is no cluster id"),
    ],
)
def test_a_tenant_that_cannot_be_is_refused(
    player: KindsPlayer, wanted: Resource, words: str
) -> None:
    (result,) = player.declare(wanted)
    assert (result.outcome, result.code) == (Outcome.REFUSED, E.INVALID_REQUEST)
    assert words in result.message
    assert "acme" not in player.services.image.tenants


def test_a_tenant_that_nobody_declared_is_taken_over(player: KindsPlayer) -> None:
    player.make(PutTenant(TenantImage("acme", "acme-cluster", settings={"more": "1"})))
    assert player.declare_one(tenant()) is Outcome.CONFLICT
    assert player.declare_one(replace(tenant(), take_over=True)) is Outcome.DONE
    assert player.services.image.tenants["acme"].settings == {"more": "1"}
    (result,) = player.declare(replace(tenant(2), specification=TenantSpecification("other")))
    assert "has the cluster id acme-cluster" in result.message


def test_the_default_tenant_can_be_declared_and_stays(player: KindsPlayer) -> None:
    cluster_id = player.services.image.cluster_id
    specification = TenantSpecification(cluster_id, allows_if_no_acl=False)
    wanted = Resource("def", 1, "default", "", specification)
    assert player.declare_one(wanted) is Outcome.DONE
    settings = player.services.image.tenants["default"].settings
    assert settings == {"allow.everyone.if.no.acl.found": "false"}
    assert player.delete("def", 2)[0].outcome is Outcome.DONE
    assert player.services.image.tenants["default"].settings == {}
    assert player.services.image.tenants["default"].state == "active"


def test_a_deleted_tenant_loses_what_it_has_bit_by_bit(
    player: KindsPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_deletion, "TOPICS_PER_COMMIT_MAX", 2)
    monkeypatch.setattr(tenant_deletion, "CREDENTIALS_PER_COMMIT_MAX", 1)
    monkeypatch.setattr(tenant_deletion, "DECLARATIONS_AT_THE_END_MAX", 2)
    player.declare(tenant(), user(tenant="acme"))
    topics = [Resource(f"top{n}", 1, "acme", f"t{n:03}", TopicSpecification(1)) for n in range(3)]
    player.declare(*topics)
    player.declare(Resource("g", 1, "acme", "g", GrantsSpecification(frozenset([ORDERS]))))
    player.make(
        AddAcls("acme", (PAY,)),
        PutCredential(credential("bob", "secret", tenant="acme")),
        AlterConfigs("acme", 32, "group", (("k", "v"),)),
        AlterClientQuotas("acme", QuotaEntity("bob", None), (("producer_byte_rate", 5),)),
    )
    assert player.delete("ten", 2) == [Result("ten", Outcome.DONE, 2)]
    image = player.services.image
    assert image.tenants["acme"].state == "deleting"
    (result,) = player.declare(Resource("top9", 1, "acme", "t9", TopicSpecification(1)))
    assert result.message == "The tenant 'acme' is being deleted."
    player.delete_tenants()
    image = player.services.image
    assert "acme" not in image.tenants
    assert image.topics_of("acme") == {}
    assert not any(one.tenant == "acme" for one in image.credentials.values())
    assert "acme" not in image.acls
    assert "acme" not in image.client_quotas
    assert not any(resource.tenant == "acme" for resource in image.configs)
    assert all(one.is_deleted for one in image.declarations.by_id.values())
    assert len(image.declarations) == len(topics) + 3
    assert image.declarations.digest().resources == 0
    # What comes late revives nothing, and the name is free.
    assert player.declare_one(tenant(3)) is Outcome.GONE
    assert player.declare_one(replace(tenant(), resource_id="ten2")) is Outcome.DONE
    assert player.declare_one(topics[0]) is Outcome.GONE


def test_each_commit_of_a_deletion_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenant_deletion, "PARTITIONS_PER_COMMIT_MAX", 5)
    player = DeclaringPlayer()
    player.declare(tenant())
    player.declare(
        *(Resource(f"top{n}", 1, "acme", f"t{n}", TopicSpecification(2)) for n in range(6))
    )
    player.delete("ten", 2)
    counts = []
    while changes := next_removals(player.services.image):
        counts.append(len(changes))
        player.commit(next_removals)
    assert counts == [2, 2, 2, 1]


def test_a_tenant_that_is_kept_goes_on(player: KindsPlayer) -> None:
    player.declare(tenant())
    player.delete("ten", 2, keeps_topic=True)
    player.delete_tenants()
    assert player.services.image.tenants["acme"].state == "active"


# Credentials


def test_a_declared_credential_is_not_altered_by_clients(player: KindsPlayer) -> None:
    assert player.declare_one(user()) is Outcome.DONE
    managed = "by a Kafka client: the control plane manages it (resource key)."
    refused = (E.POLICY_VIOLATION, f"User 'alice' cannot be altered {managed}")
    assert player.alter_user(put("alice")) == refused
    assert player.alter_user(drop("alice")) == refused
    assert player.alter_user(put("bob")) == (0, None)
    assert player.services.image.credentials["alice"].verifiers == VERIFIERS
    changed = user(2, verifiers=OTHER_VERIFIERS, networks=("10.0.0.0/8",), is_disabled=True)
    assert player.declare_one(changed) is Outcome.DONE
    now = player.services.image.credentials["alice"]
    assert (now.verifiers, now.networks, now.is_disabled) == (
        OTHER_VERIFIERS,
        ("10.0.0.0/8",),
        True,
    )
    assert player.delete("key", 3)[0].outcome is Outcome.DONE
    assert "alice" not in player.services.image.credentials


def test_where_no_verifiers_are_declared_users_change_theirs(player: KindsPlayer) -> None:
    assert player.alter_user(put("alice")) == (0, None)
    made = player.services.image.credentials["alice"]
    keeping = user(verifiers={}, networks=("10.0.0.0/8",))
    assert player.declare_one(keeping) is Outcome.CONFLICT
    assert player.declare_one(replace(keeping, take_over=True)) is Outcome.DONE
    taken = player.services.image.credentials["alice"]
    assert (taken.verifiers, taken.networks) == (made.verifiers, ("10.0.0.0/8",))
    assert player.alter_user(put("alice", SHA_512)) == (0, None)
    assert player.alter_user(drop("alice", SHA_256)) == (0, None)
    code, message = player.alter_user(drop("alice", SHA_512))
    assert code == E.POLICY_VIOLATION
    assert message is not None
    assert message.startswith("User 'alice' cannot be deleted")
    released = replace(keeping, generation=2, owner=CLIENT_OWNER)
    assert player.declare_one(released) is Outcome.DONE
    assert player.alter_user(drop("alice", SHA_512)) == (0, None)


def test_no_secret_and_no_key_is_in_what_a_resource_remembers() -> None:
    text = user().specification.to_text()
    for verifier in VERIFIERS.values():
        assert verifier.stored_key.hex() not in text
    assert text == user().specification.to_text()
    assert text != user(verifiers=OTHER_VERIFIERS).specification.to_text()


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (user(verifiers={}), "nothing that could prove it"),
        (
            user(verifiers={"SCRAM-SHA-256": ScramVerifier(b"s", bytes(32), bytes(32), 4095)}),
            "4095 iterations, allowed are 4096 to 16384",
        ),
        (user(networks=("10.0.0.1/8",)), "10.0.0.1/8 has host bits set"),
        (user(expires_at_ms=-1), "expires at -1"),
        (replace(user(), name="alice@acme"), "'alice@acme' is no login of the tenant default"),
        (
            replace(user(), name="bob", take_over=True),
            "the login bob is that of bob in the tenant acme",
        ),
    ],
)
def test_a_credential_that_cannot_be_is_refused(
    player: KindsPlayer, wanted: Resource, words: str
) -> None:
    player.declare(tenant())
    player.make(PutCredential(replace(credential("bob", "x", tenant="acme"), login="bob")))
    (result,) = player.declare(wanted)
    assert (result.outcome, result.code) == (Outcome.REFUSED, E.UNACCEPTABLE_CREDENTIAL)
    assert words in result.message


def test_two_credentials_of_one_call_cannot_have_one_login(player: KindsPlayer) -> None:
    player.declare(tenant())
    one = replace(user(), name="key-1")
    other = replace(user(tenant="acme"), resource_id="key2", name="key-1")
    results = player.declare(one, other)
    assert [result.outcome for result in results] == [Outcome.DONE, Outcome.REFUSED]
    assert player.services.image.credentials["key-1"].tenant == "default"


# Grants


def test_declared_acls_stay_while_a_grant_has_them(player: KindsPlayer) -> None:
    assert player.declare_one(grants(ORDERS, PAY)) is Outcome.DONE
    assert player.declare_one(grants(PAY, LOGS, name="h")) is Outcome.DONE
    assert player.acls() == {ORDERS, PAY, LOGS}
    managed = "The ACL cannot be deleted by a Kafka client: the control plane manages it "
    assert player.delete_acls_as_client("pay") == [(E.POLICY_VIOLATION, f"{managed}(resource g).")]
    assert player.declare_one(grants(ORDERS, generation=2)) is Outcome.DONE
    assert player.acls() == {ORDERS, PAY, LOGS}
    player.delete("h", 2)
    assert player.acls() == {ORDERS}
    player.delete("g", 3)
    assert player.acls() == set()


def test_grants_of_one_call_count_for_each_other(player: KindsPlayer) -> None:
    player.declare(grants(ORDERS, PAY), grants(PAY, name="h"))
    player.declare(grants(LOGS, generation=2), grants(ORDERS, generation=2, name="h"))
    assert player.acls() == {LOGS, ORDERS}
    removals = [Removal("g", 3), Removal("h", 3)]
    assert {one.outcome for one in player.delete_all(removals)} == {Outcome.DONE}
    assert player.acls() == set()


def test_a_clients_acl_is_taken_over_or_left_alone(player: KindsPlayer) -> None:
    player.make(AddAcls("default", (ORDERS,)))
    (result,) = player.declare(grants(ORDERS, PAY))
    assert result.outcome is Outcome.CONFLICT
    assert result.message.startswith("a Kafka client has made ACL of User:alice from *")
    assert player.acls() == {ORDERS}
    assert player.declare_one(replace(grants(ORDERS, PAY), take_over=True)) is Outcome.DONE
    assert player.delete_acls_as_client("orders")[0][0] == E.POLICY_VIOLATION
    released = replace(grants(ORDERS, PAY, generation=2), owner=CLIENT_OWNER)
    assert player.declare_one(released) is Outcome.DONE
    assert player.delete_acls_as_client("orders") == [(0, None)]
    player.delete("g", 3)
    assert player.acls() == {PAY}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (acl("orders", principal="alice"), "Could not parse principal"),
        (
            acl(
                "",
            ),
            "Invalid empty resource name",
        ),
        (acl("orders", operation=99), "Invalid operation UNKNOWN"),
        (
            Acl(ResourcePattern(4, 3, "cluster"), AclEntry("User:a", "*", 3, 3)),
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
    ],
)
def test_an_acl_that_cannot_be_is_refused(player: KindsPlayer, bad: Acl, words: str) -> None:
    (result,) = player.declare(grants(ORDERS, bad))
    assert (result.outcome, result.code) == (Outcome.REFUSED, E.INVALID_REQUEST)
    assert words in result.message
    assert player.acls() == set()


def test_the_acls_of_a_tenant_are_bounded(
    player: KindsPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_plane.broker.admin.declared_grants.ACLS_MAX", 2)
    monkeypatch.setattr(acls_module, "ACLS_MAX", 2)
    results = player.declare(grants(ORDERS, PAY), grants(LOGS, name="h"), grants(PAY, name="i"))
    outcomes = [result.outcome for result in results]
    assert outcomes == [Outcome.DONE, Outcome.REFUSED, Outcome.DONE]
    assert player.declare_one(grants(ORDERS, LOGS, generation=2)) is Outcome.REFUSED
    assert player.declare_one(grants(PAY, generation=3)) is Outcome.DONE
    assert player.acls() == {PAY}


# Quotas


def test_the_quotas_of_a_tenant_are_declared_as_a_whole(player: KindsPlayer) -> None:
    assert player.declare_one(quota(produce_bytes_per_s=5e6, partitions=10)) is Outcome.DONE
    quotas = player.services.image.tenants["default"].quotas
    assert quotas == TenantQuotas(produce_bytes_per_s=5_000_000, partitions=10)
    assert player.declare_one(quota(2, partitions=20)) is Outcome.DONE
    assert player.services.image.tenants["default"].quotas == TenantQuotas(partitions=20)
    for generation, limits, words in (
        (3, {"bytes": 5.0}, "A tenant has no quota bytes"),
        (3, {"partitions": 0.5}, "partitions is 0.5"),
        (3, {"partitions": float("inf")}, "partitions is inf"),
        (3, {"produce_floor_bytes_per_s": 5.0}, "quota.produce.capacity.bytes.per.second"),
    ):
        specification = QuotaSpecification(None, limits)
        wanted = replace(quota(generation), specification=specification)
        (result,) = player.declare(wanted)
        assert result.outcome is Outcome.REFUSED
        assert words in result.message
    player.delete("quo", 3)
    assert player.services.image.tenants["default"].quotas == TenantQuotas()


def test_of_users_and_clients_only_what_is_declared_is_owned(player: KindsPlayer) -> None:
    alice = QuotaEntity("alice", None)
    player.make(AlterClientQuotas("default", alice, (("request_percentage", 50),)))
    wanted = quota(1, alice, producer_byte_rate=5)
    assert player.declare_one(wanted) is Outcome.CONFLICT
    assert player.declare_one(replace(wanted, take_over=True)) is Outcome.DONE
    assert player.client_quota(alice) == {"producer_byte_rate": 5, "request_percentage": 50}
    managed = "by a Kafka client: the control plane manages it (resource quo)."
    refused = (E.POLICY_VIOLATION, f"producer_byte_rate of user alice cannot be changed {managed}")
    assert player.alter_quota("alice", "producer_byte_rate", 9) == refused
    assert player.alter_quota("alice", "producer_byte_rate", None) == refused
    assert player.alter_quota("alice", "producer_byte_rate", 5) == (0, None)
    assert player.alter_quota("alice", "request_percentage", 60) == (0, None)
    assert player.alter_quota("alice", "request_percentage", 50) == (0, None)
    assert player.declare_one(quota(2, alice, consumer_byte_rate=7)) is Outcome.DONE
    assert player.client_quota(alice) == {"consumer_byte_rate": 7, "request_percentage": 50}
    (result,) = player.declare(quota(3, alice, speed=7))
    assert (result.outcome, result.message) == (
        Outcome.REFUSED,
        "Invalid configuration key speed",
    )
    player.delete("quo", 3)
    assert player.client_quota(alice) == {"request_percentage": 50}


def test_what_is_only_looked_at_changes_nothing(player: KindsPlayer) -> None:
    player.declare(grants(ORDERS))
    results: list[Result] = []
    image = player.services.image
    changes = decide_declarations(
        player.services, image, [grants(PAY, generation=2), user()], results
    )
    assert RemoveAcls("default", (ORDERS,)) in changes
    assert player.services.image is image
    assert image.declarations.of_thing(Declared("grants", "default", "g")) is not None
