"""Keys: secrets are shown once, verifiers are what a broker accepts; nobody gives what he lacks."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import timedelta
from typing import Any

import pytest
from django.core import serializers
from django.utils import timezone

from control_plane.access.logic import (
    do_create_grant,
    do_create_key,
    do_create_service_account,
    do_delete_service_account,
    do_revoke_key,
    do_rotate_key,
    do_update_service_account,
    is_valid,
)
from control_plane.access.models import ApiKey, Grant, ServiceAccount
from control_plane.access.secrets_of_keys import secret_hash
from control_plane.operations.facade import Actor, ActorKind
from control_plane.operations.models import AuditEvent, OutboxEntry
from control_plane.quotas.logic import do_set_quota
from control_plane.quotas.use import counted_use
from control_plane.tenancy.errors import Conflict, Forbidden, Invalid, NotFound, QuotaExceeded
from data_plane.broker.authentication.scram import is_password_of
from data_plane.cell.credentials import ScramVerifier
from tests.control_plane.tenants import Tenant, make_cell, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Tenant:
    make_cell()
    return make_tenant("acme")


def make_account(tenant: Tenant, name: str = "app", role: str = "developer") -> ServiceAccount:
    return do_create_service_account(tenant.actor, tenant.id, name, "", role, "owner")


def test_of_a_secret_only_what_recognises_it_is_kept(acme: Tenant) -> None:
    account = make_account(acme)
    key, secret = do_create_key(
        acme.actor, acme.id, account.id, "owner", scopes=["kafka", "rest"], name="ci"
    )
    assert key.secret_hash == secret_hash(secret)
    kept = serializers.serialize(
        "json",
        [
            *ApiKey.objects.of(acme.id),
            *OutboxEntry.objects.of(acme.id),
            *AuditEvent.objects.filter(organization_id=acme.id),
        ],
    )
    assert secret not in kept
    audited = json.dumps(list(AuditEvent.objects.values_list("changes", flat=True)))
    assert "stored_key" not in audited
    assert key.secret_hash not in audited


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_broker_accepts_the_secret_by_its_verifiers(acme: Tenant, mechanism: str) -> None:
    account = make_account(acme)
    key, secret = do_create_key(acme.actor, acme.id, account.id, "owner")
    kept = key.verifiers[mechanism]
    verifier = ScramVerifier(
        b64decode(kept["salt"]),
        b64decode(kept["stored_key"]),
        b64decode(kept["server_key"]),
        kept["iterations"],
    )
    assert is_password_of(mechanism, verifier, secret.encode())
    assert not is_password_of(mechanism, verifier, secret.encode() + b"x")


def test_a_key_for_rest_alone_is_no_login(acme: Tenant) -> None:
    account = make_account(acme)
    key, _ = do_create_key(acme.actor, acme.id, account.id, "owner", scopes=["rest"])
    assert key.verifiers == {}
    assert not OutboxEntry.objects.of(acme.id).filter(resource_id=key.id).exists()


def test_a_rotated_key_goes_on_until_the_overlap_is_over(acme: Tenant) -> None:
    account = make_account(acme)
    old, _ = do_create_key(acme.actor, acme.id, account.id, "owner")
    new, _ = do_rotate_key(acme.actor, acme.id, old.id, "owner", timedelta(hours=1))
    old.refresh_from_db()
    now = timezone.now()
    assert is_valid(old, now)
    assert is_valid(new, now)
    assert not is_valid(old, now + timedelta(hours=1))
    assert (old.generation, new.generation, new.rotated_from_id) == (2, 1, old.id)


def test_a_rotation_never_prolongs_a_key(acme: Tenant) -> None:
    account = make_account(acme)
    end = timezone.now() + timedelta(minutes=5)
    old, _ = do_create_key(acme.actor, acme.id, account.id, "owner", expires_at=end)
    do_rotate_key(acme.actor, acme.id, old.id, "owner", timedelta(days=1))
    old.refresh_from_db()
    assert old.expires_at == end


def entries_of(tenant: Tenant, key: ApiKey) -> list[int]:
    entries = OutboxEntry.objects.of(tenant.id).filter(resource_id=key.id)
    return list(entries.values_list("generation", flat=True))


def test_a_key_for_rest_alone_waits_for_no_cell(acme: Tenant) -> None:
    account = make_account(acme)
    old, _ = do_create_key(acme.actor, acme.id, account.id, "owner", scopes=["rest"])
    new, _ = do_rotate_key(acme.actor, acme.id, old.id, "owner", timedelta(hours=1))
    do_revoke_key(acme.actor, acme.id, new.id, "owner")
    for key, generation in ((old, 2), (new, 2)):
        key.refresh_from_db()
        assert key.status == "ready"
        assert (key.generation, key.observed_generation) == (generation, generation)
        assert entries_of(acme, key) == []


def test_keys_that_have_ended_do_not_count(acme: Tenant) -> None:
    do_set_quota(acme.actor, acme.id, {"api_keys": 2})
    account = make_account(acme)
    key, _ = do_create_key(acme.actor, acme.id, account.id, "owner")
    for _ in range(3):
        key, _ = do_rotate_key(acme.actor, acme.id, key.id, "owner", timedelta(0))
    assert counted_use(acme.id)["api_keys"] == 1
    do_create_key(acme.actor, acme.id, account.id, "owner")
    with pytest.raises(QuotaExceeded):
        do_create_key(acme.actor, acme.id, account.id, "owner")


def test_a_rotated_key_ends_when_the_old_one_would_have(acme: Tenant) -> None:
    account = make_account(acme)
    end = timezone.now() + timedelta(minutes=5)
    old, _ = do_create_key(acme.actor, acme.id, account.id, "owner", expires_at=end)
    new, _ = do_rotate_key(acme.actor, acme.id, old.id, "owner", timedelta(0))
    assert new.expires_at == end


def test_a_key_is_replaced_once(acme: Tenant) -> None:
    account = make_account(acme)
    old, _ = do_create_key(acme.actor, acme.id, account.id, "owner")
    new, _ = do_rotate_key(acme.actor, acme.id, old.id, "owner", timedelta(hours=1))
    with pytest.raises(Conflict, match=new.id):
        do_rotate_key(acme.actor, acme.id, old.id, "owner", timedelta(hours=1))
    assert do_rotate_key(acme.actor, acme.id, new.id, "owner", timedelta(0))[0].expires_at is None


LESS_THAN_THE_MAKER = {"scopes": ["rest"], "networks": ["10.1.0.0/16"], "expires_at": 4}
MORE_THAN_THE_MAKER = [
    ("/scopes", {"scopes": ["kafka", "rest"]}),
    ("/networks", {"networks": []}),
    ("/networks", {"networks": ["10.1.0.0/16", "11.0.0.0/8"]}),
    ("/networks", {"networks": ["::/0"]}),
    ("/expires_at", {"expires_at": None}),
    ("/expires_at", {"expires_at": 6}),
]


def minutes_from_now(fields: dict[str, Any]) -> dict[str, Any]:
    minutes = fields["expires_at"]
    end = None if minutes is None else timezone.now() + timedelta(minutes=minutes)
    return fields | {"expires_at": end}


@pytest.mark.parametrize(("field", "more"), MORE_THAN_THE_MAKER)
def test_a_key_makes_no_key_that_is_worth_more(
    acme: Tenant, field: str, more: dict[str, Any]
) -> None:
    account = make_account(acme)
    bounds = {"scopes": ["rest"], "networks": ["10.0.0.0/8"], "expires_at": 5}
    maker, _ = do_create_key(acme.actor, acme.id, account.id, "owner", **minutes_from_now(bounds))
    program = Actor(ActorKind.API_KEY, maker.id)
    wanted = minutes_from_now(LESS_THAN_THE_MAKER)
    do_create_key(program, acme.id, account.id, "developer", **wanted)
    wanted = minutes_from_now(LESS_THAN_THE_MAKER | more)
    with pytest.raises(Forbidden) as refusal:
        do_create_key(program, acme.id, account.id, "developer", **wanted)
    assert refusal.value.field == field
    # The secret of a rotated key is as good as that of a new one.
    other, _ = do_create_key(acme.actor, acme.id, account.id, "owner", **wanted)
    with pytest.raises(Forbidden) as refusal:
        do_rotate_key(program, acme.id, other.id, "developer", timedelta(0))
    assert refusal.value.field == field


def test_a_revoked_key_is_told_to_the_cell_once(acme: Tenant) -> None:
    account = make_account(acme)
    key, _ = do_create_key(acme.actor, acme.id, account.id, "owner")
    for _ in range(2):
        do_revoke_key(acme.actor, acme.id, key.id, "owner")
    assert entries_of(acme, key) == [1, 2]
    with pytest.raises(Conflict):
        do_rotate_key(acme.actor, acme.id, key.id, "owner", timedelta(0))


def test_nobody_gives_rights_that_he_lacks(acme: Tenant) -> None:
    with pytest.raises(Forbidden):
        do_create_service_account(acme.actor, acme.id, "app", "", "admin", "developer")
    admins = make_account(acme, role="admin")
    with pytest.raises(Forbidden):
        do_create_key(acme.actor, acme.id, admins.id, "developer")
    with pytest.raises(Forbidden):
        do_update_service_account(acme.actor, acme.id, admins.id, {"role": "viewer"}, "developer")


def test_a_service_account_goes_with_its_keys_and_grants(acme: Tenant) -> None:
    account = make_account(acme)
    key, _ = do_create_key(acme.actor, acme.id, account.id, "owner")
    grant = do_create_grant(
        acme.actor,
        acme.id,
        account.id,
        role="consumer",
        resource_type="topic",
        pattern_type="prefixed",
        resource_name="orders",
    )
    do_delete_service_account(acme.actor, acme.id, account.id, "owner")
    assert ApiKey.objects.of(acme.id).get(id=key.id).status == "deleting"
    assert Grant.objects.of(acme.id).get(id=grant.id).status == "deleting"
    make_account(acme)
    with pytest.raises(NotFound):
        do_create_key(acme.actor, acme.id, account.id, "owner")


def test_a_grant_that_means_nothing_is_refused(acme: Tenant) -> None:
    account = make_account(acme)
    with pytest.raises(Invalid):
        do_create_grant(
            acme.actor,
            acme.id,
            account.id,
            role="consumer",
            resource_type="transactional_id",
            pattern_type="literal",
            resource_name="t",
        )


def test_networks_are_checked(acme: Tenant) -> None:
    account = make_account(acme)
    with pytest.raises(Invalid) as refusal:
        do_create_key(acme.actor, acme.id, account.id, "owner", networks=["10.0.0.0/99"])
    assert refusal.value.field == "/networks"
