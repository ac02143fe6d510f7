"""REST as a whole: problems, pages, ETags, idempotency, keys, rate limits, constant queries."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from control_plane.access.logic import (
    do_create_grant,
    do_create_key,
    do_create_service_account,
)
from control_plane.access.models import ApiKey, ServiceAccount
from control_plane.accounts.invitation_mails import send_due_mails
from control_plane.accounts.logic import do_delete_organization, do_invite, do_suspend
from control_plane.accounts.models import Membership, Organization, User
from control_plane.api.documents import SCHEMA_PATH
from control_plane.api.rate_limits import AWAY_S, WINDOW_S, RateLimitedView, away
from control_plane.api.urls import urlpatterns
from control_plane.cells.models import Cell
from control_plane.messaging.logic import TopicSpec, do_create_topic
from control_plane.messaging.models import Topic
from control_plane.operations.models import AuditEvent, IdempotentAnswer
from control_plane.quotas.logic import do_set_quota
from control_plane.settings.base import CACHES
from tests.control_plane.mails import token_in
from tests.control_plane.rest import (
    at,
    client_of,
    client_with,
    just_before_the_lock,
    key_of,
    member_of,
    operator,
    patch,
    post,
)
from tests.control_plane.tenants import Tenant, make_cell, make_tenant, make_user
from tests.control_plane.test_isolation import fill

pytestmark = pytest.mark.django_db
OWNER = "owner"


@pytest.fixture
def acme() -> Tenant:
    cache.clear()
    make_cell()
    return make_tenant("acme")


@pytest.fixture
def client(acme: Tenant) -> APIClient:
    return client_of(acme.owner)


def test_a_stranger_gets_401_and_a_problem() -> None:
    answer = APIClient().get("/api/v1/me")
    assert (answer.status_code, answer["Content-Type"]) == (401, "application/problem+json")
    assert answer["WWW-Authenticate"] == "Bearer"
    assert answer.json()["code"] == "not-authenticated"


def test_from_sign_up_to_topic(acme: Tenant, client: APIClient) -> None:
    unverified = post(client, "/api/v1/organizations", {"name": "New", "slug": "new-one"})
    assert unverified.status_code == 403
    assert "Verify your address" in unverified.json()["detail"]
    EmailAddress.objects.create(user=acme.owner, email=acme.owner.email, verified=True)
    made = post(client, "/api/v1/organizations", {"name": "New", "slug": "new-one"})
    assert made.status_code == 201
    organization = made.json()
    assert organization["cell"]["bootstrap_servers"] == "127.0.0.1:2"
    address = f"/api/v1/organizations/{organization['id']}/topics"
    topic = post(client, address, {"name": "orders", "spec": {"configs": {"retention.ms": 1000}}})
    assert topic.status_code == 201
    body = topic.json()
    assert body["spec"] == {
        "partitions": 1,
        "replication_factor": 0,
        "configs": {"retention.ms": "1000"},
    }
    assert body["status"] == {
        "state": "provisioning",
        "reason": "",
        "generation": 1,
        "observed_generation": 0,
    }
    assert topic["ETag"] == body["etag"]
    listed = client.get(address, {"name": "orders"}).json()
    assert [row["id"] for row in listed["items"]] == [body["id"]]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/name"),
        ({"name": "a/b"}, "/name"),
        ({"name": "a", "nmae": "b"}, "/nmae"),
        ({"name": "a", "spec": {"partitions": 0}}, "/spec/partitions"),
        ({"name": "a", "spec": {"partitons": 1}}, "/spec/partitons"),
        ({"name": "a", "spec": {"configs": {"retention.ms": "x"}}}, "/spec/configs/retention.ms"),
        ({"name": "a", "spec": {"configs": {"no.such": "x"}}}, "/spec/configs/no.such"),
        ({"name": "a", "spec": {"configs": {"retention.ms": [1]}}}, "/spec/configs/retention.ms"),
        ({"name": "a\x00"}, "/name"),
        ({"name": "a", "organization_id": "org_x"}, "/organization_id"),
        ({"name": "a", "id": "top_x"}, "/id"),
        ({"name": "a", "generation": 7}, "/generation"),
    ],
)
def test_a_problem_names_the_field(
    acme: Tenant, client: APIClient, body: object, pointer: str
) -> None:
    answer = post(client, at(acme, "topics"), body)
    assert answer.status_code == 422
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert not Topic.objects.of(acme.id).exists()


@pytest.mark.parametrize(
    "body", ['{"\\ud800": 1}', '{"name": "a", "spec": {"configs": {"\\udfff": "x"}}}']
)
def test_a_name_that_is_no_text_is_a_problem(acme: Tenant, client: APIClient, body: str) -> None:
    answer = client.post(at(acme, "topics"), body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert "\\ud" in answer.json()["errors"][0]["pointer"]


def test_tenants_see_that_an_operator_acted_and_not_who(acme: Tenant, client: APIClient) -> None:
    support = operator()
    assert post(support, at(acme, "suspend"), {"reason": "a test"}).status_code == 200
    query = at(acme, "audit-events?action=organization.suspended")
    (shown,) = client.get(query).json()["items"]
    assert (shown["actor_kind"], shown["actor_name"], shown["address"]) == ("operator", "", None)
    (whole,) = support.get(query).json()["items"]
    assert (whole["actor_name"], whole["address"]) == ("operator@tidewheel.example", "127.0.0.1")
    assert whole["actor_id"] == shown["actor_id"]


def test_who_is_suspended_takes_rights_away(acme: Tenant, client: APIClient) -> None:
    ids = fill(acme)
    do_suspend(acme.actor, acme.id, "the bill is not paid")
    for address, status in (
        (f"invitations/{ids['invitation_id']}", 204),
        (f"members/{ids['member_id']}", 204),
        (f"grants/{ids['grant_id']}", 202),
        (f"api-keys/{ids['api_key_id']}", 204),
        (f"service-accounts/{ids['service_account_id']}", 204),
    ):
        assert client.delete(at(acme, address)).status_code == status, address
    refused = post(client, at(acme, "service-accounts"), {"name": "another"})
    assert (refused.status_code, refused.json()["code"]) == (403, "tenant-suspended")


def test_operators_drain_a_cell(acme: Tenant) -> None:
    cell = Cell.objects.get()
    drained = patch(operator(), f"/api/v1/cells/{cell.id}", {"is_accepting": False})
    assert (drained.status_code, drained.json()["is_accepting"]) == (200, False)
    event = AuditEvent.objects.get(action="cell.update")
    assert (event.actor_kind, event.changes) == ("operator", {"is_accepting": [True, False]})
    for role in ("owner", "viewer"):
        refused = patch(
            member_of(acme, role, f"{role}@x.example"),
            f"/api/v1/cells/{cell.id}",
            {"is_accepting": True},
        )
        assert refused.status_code == 403


def test_operators_add_cells_and_say_where_they_are(acme: Tenant) -> None:
    support = operator()
    body = {
        "name": "two",
        "region": "eu",
        "admin_endpoints": ["10.0.0.7:9443", "[2001:db8::1]:9443"],
        "bootstrap_servers": "kafka.example:9092",
    }
    made = post(support, "/api/v1/cells", body, **{"Idempotency-Key": "once"})
    assert made.status_code == 201
    assert (made.json()["is_accepting"], made.json()["brokers"]) == (True, [])
    again = post(support, "/api/v1/cells", body, **{"Idempotency-Key": "once"})
    assert again.json() == made.json()
    taken = post(support, "/api/v1/cells", body)
    assert (taken.status_code, taken.json()["errors"][0]["pointer"]) == (409, "/name")
    address = f"/api/v1/cells/{made.json()['id']}"
    moved = patch(support, address, {"admin_endpoints": ["broker-1:9443"]})
    assert moved.json()["admin_endpoints"] == ["broker-1:9443"]
    for wrong in (["nowhere"], ["http://x:1"], ["x:1/y"], []):
        answer = patch(support, address, {"admin_endpoints": wrong})
        assert answer.status_code == 422, wrong
    assert AuditEvent.objects.get(action="cell.create").resource_name == "two"
    refused = post(member_of(acme, "owner", "o@x.example"), "/api/v1/cells", body | {"name": "x"})
    assert refused.status_code == 403


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("member", lambda org: Membership.objects.of(org).update(role="viewer")),
        ("member", lambda org: Membership.objects.of(org).delete()),
        ("member", lambda _: User.objects.update(is_active=False)),
        ("key", lambda org: ApiKey.objects.of(org).update(revoked_at=timezone.now())),
        ("key", lambda org: ServiceAccount.objects.of(org).update(role="viewer")),
        ("key", lambda org: ServiceAccount.objects.of(org).update(deleted_at=timezone.now())),
        ("operator", lambda _: User.objects.update(is_staff=False)),
    ],
)
def test_a_role_that_is_taken_away_is_gone_for_writes_that_wait(
    acme: Tenant, kind: str, change: Callable[[str], object]
) -> None:
    if kind == "operator":
        caller, address, body = operator(), at(acme, "suspend"), {"reason": "a test"}
    else:
        caller = client_with(key_of(acme)) if kind == "key" else member_of(acme, "developer")
        address, body = at(acme, "topics"), {"name": "orders"}
    with connection.execute_wrapper(just_before_the_lock(lambda: change(acme.id))):
        answer = post(caller, address, body)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert not Topic.objects.of(acme.id).exists()
    assert Organization.objects.get(id=acme.id).state == "trial"


def test_who_gives_no_name_leaves_the_one_that_somebody_else_gives(
    acme: Tenant, client: APIClient
) -> None:
    def rename() -> None:
        Organization.objects.filter(id=acme.id).update(name="Renamed")

    with connection.execute_wrapper(just_before_the_lock(rename)):
        assert patch(client, at(acme), {}).json()["name"] == "Renamed"
    assert Organization.objects.get(id=acme.id).name == "Renamed"


def test_a_body_that_is_no_json_is_a_problem(acme: Tenant, client: APIClient) -> None:
    broken = client.post(at(acme, "topics"), "{", content_type="application/json")
    assert (broken.status_code, broken.json()["code"]) == (400, "parse-error")
    form = client.post(at(acme, "topics"), "a=b", content_type="text/plain")
    assert form.status_code == 415


def test_an_etag_is_of_what_is_declared(acme: Tenant, client: APIClient) -> None:
    made = post(client, at(acme, "topics"), {"name": "orders"})
    address = at(acme, f"topics/{made.json()['id']}")
    Topic.objects.of(acme.id).update(status="ready", observed_generation=1, observed={"x": 1})
    assert client.get(address)["ETag"] == made["ETag"]
    changed = patch(client, address, {"spec": {"partitions": 2}}, **{"If-Match": made["ETag"]})
    assert changed.status_code == 200
    assert changed["ETag"] != made["ETag"]
    stale = patch(client, address, {"spec": {"partitions": 3}}, **{"If-Match": made["ETag"]})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")


def test_the_schema_promises_if_match_where_it_is_honoured() -> None:
    promised = {
        (method, path.removeprefix("/api/v1/organizations/{organization_id}"))
        for path, methods in json.loads(SCHEMA_PATH.read_text())["paths"].items()
        for method, operation in methods.items()
        if "If-Match" in [parameter["name"] for parameter in operation.get("parameters", [])]
    }
    assert promised == {
        ("patch", ""),
        ("patch", "/quota"),
        ("patch", "/topics/{topic_id}"),
        ("delete", "/topics/{topic_id}"),
        ("patch", "/subscriptions/{subscription_id}"),
        ("delete", "/subscriptions/{subscription_id}"),
    }


def test_if_match_is_honoured_where_it_is_promised(acme: Tenant, client: APIClient) -> None:
    topic = do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
    before = {"If-Match": '"another"'}
    for refused in (
        patch(client, at(acme), {"name": "Other"}, **before),
        patch(operator(), at(acme, "quota"), {"spec": {"topics": 1}}, **before),
        patch(client, at(acme, f"topics/{topic.id}"), {"spec": {"partitions": 2}}, **before),
        client.delete(at(acme, f"topics/{topic.id}"), headers=before),
    ):
        assert (refused.status_code, refused.json()["code"]) == (412, "stale")
    topic.refresh_from_db()
    assert (topic.partitions, topic.purge_after) == (1, None)


def test_pages_are_even_and_complete(acme: Tenant, client: APIClient) -> None:
    do_set_quota(acme.actor, acme.id, {"topics": 100, "partitions": 100})
    for number in range(7):
        do_create_topic(acme.actor, acme.id, f"t{number}", TopicSpec())
    seen: list[str] = []
    cursor = ""
    for _ in range(4):
        page = client.get(at(acme, f"topics?limit=2&cursor={cursor}")).json()
        seen += [row["name"] for row in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = page["next_cursor"]
    assert sorted(seen) == [f"t{number}" for number in range(7)]
    assert page["next_cursor"] is None
    for bad in ("limit=0", "limit=501", "limit=x", "cursor=%25", "cursor=AAAA", "status=x"):
        assert client.get(at(acme, f"topics?{bad}")).status_code == 422


@pytest.mark.parametrize(
    "address", ["topics", "grants", "api-keys", "service-accounts", "members", "audit-events"]
)
def test_a_longer_list_takes_no_more_queries(acme: Tenant, client: APIClient, address: str) -> None:
    def rows_and_queries() -> tuple[int, int]:
        with CaptureQueriesContext(connection) as captured:
            answer = client.get(at(acme, address))
        return len(answer.json()["items"]), len(captured)

    def add(number: int) -> None:
        account = do_create_service_account(acme.actor, acme.id, f"a{number}", "", "viewer", OWNER)
        do_create_key(acme.actor, acme.id, account.id, OWNER)
        do_create_grant(
            *(acme.actor, acme.id, account.id),
            role="consumer",
            resource_type="topic",
            pattern_type="literal",
            resource_name="orders",
        )
        do_create_topic(acme.actor, acme.id, f"t{number}", TopicSpec())
        member_of(acme, "viewer", f"v{number}@x.example")

    add(0)
    rows, queries = rows_and_queries()
    for number in range(1, 4):
        add(number)
    assert rows_and_queries() == (rows + (12 if address == "audit-events" else 3), queries)


def test_a_retry_gets_the_first_answer(acme: Tenant, client: APIClient) -> None:
    account = post(client, at(acme, "service-accounts"), {"name": "app"}).json()["id"]
    body = {"service_account_id": account}
    header = {"Idempotency-Key": "a-key-of-mine"}
    first = post(client, at(acme, "api-keys"), body, **header)
    again = post(client, at(acme, "api-keys"), body, **header)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert again["Idempotency-Replayed"] == "true"
    assert again["Cache-Control"] == first["Cache-Control"] == "no-store"
    assert len(client.get(at(acme, "api-keys")).json()["items"]) == 1
    other = post(client, at(acme, "api-keys"), body | {"name": "x"}, **header)
    assert other.status_code == 422
    kept = IdempotentAnswer.objects.get()
    assert first.json()["secret"].encode() not in bytes(kept.answer)
    assert "a-key-of-mine" not in kept.key_hash
    # Another caller's key of the same name is another key.
    admin = member_of(acme, "admin")
    theirs = post(admin, at(acme, "api-keys"), body, **header)
    assert theirs.json()["id"] != first.json()["id"]


def test_an_invitation_that_is_accepted_again_gets_the_first_answer(acme: Tenant) -> None:
    do_invite(acme.actor, acme.id, "ann@x.example", "viewer", OWNER, acme.owner)
    send_due_mails()
    ann = make_user("ann@x.example")
    EmailAddress.objects.create(user=ann, email=ann.email, verified=True)
    body = {"token": token_in(mail.outbox[-1])}
    header = {"Idempotency-Key": "k"}
    first = post(client_of(ann), "/api/v1/invitations/accept", body, **header)
    again = post(client_of(ann), "/api/v1/invitations/accept", body, **header)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert "Cache-Control" not in again


def test_a_pointer_names_a_field_of_the_request(acme: Tenant) -> None:
    ids = fill(acme)
    developer = member_of(acme, "developer")
    owner = client_of(acme.owner)
    account = {"service_account_id": "sa_nobody"}
    grant = {"role": "producer", "resource_type": "topic", "resource_name": "orders"}
    raised = patch(
        owner, at(acme, f"service-accounts/{ids['service_account_id']}"), {"role": "admin"}
    )
    assert raised.status_code == 200
    of_admin = {"service_account_id": ids["service_account_id"]}
    answers = [
        (post(owner, at(acme, "api-keys"), account), "/service_account_id"),
        (post(owner, at(acme, "grants"), {"spec": grant | account}), "/spec/service_account_id"),
        (owner.get(at(acme, "service-accounts/sa_nobody")), None),
        (owner.delete(at(acme, "service-accounts/sa_nobody")), None),
        (post(developer, at(acme, "api-keys"), of_admin), "/service_account_id"),
        (post(developer, at(acme, f"api-keys/{ids['api_key_id']}/rotate")), None),
        (developer.delete(at(acme, f"api-keys/{ids['api_key_id']}")), None),
        (
            post(developer, at(acme, "service-accounts"), {"name": "x", "role": "admin"}),
            "/role",
        ),
    ]
    for answer, pointer in answers:
        assert answer.status_code in (403, 404)
        pointers = [error["pointer"] for error in answer.json().get("errors", [])]
        assert pointers == ([] if pointer is None else [pointer])


def test_answers_are_forgotten_after_an_hour(acme: Tenant, client: APIClient) -> None:
    for number in range(3):
        header = {"Idempotency-Key": f"k{number}"}
        assert post(client, at(acme, "topics"), {"name": f"t{number}"}, **header).status_code == 201
    IdempotentAnswer.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    late = post(client, at(acme, "topics"), {"name": "t0"}, **{"Idempotency-Key": "k0"})
    assert late.status_code == 409
    fresh = post(client, at(acme, "topics"), {"name": "t9"}, **{"Idempotency-Key": "k9"})
    assert fresh.status_code == 201
    assert IdempotentAnswer.objects.count() == 1


def test_a_refusal_is_decided_anew(acme: Tenant, client: APIClient) -> None:
    do_set_quota(acme.actor, acme.id, {"topics": 0})
    header = {"Idempotency-Key": "k"}
    refused = post(client, at(acme, "topics"), {"name": "orders"}, **header)
    assert (refused.status_code, refused.json()["code"]) == (402, "quota-exceeded")
    do_set_quota(acme.actor, acme.id, {"topics": 1})
    assert post(client, at(acme, "topics"), {"name": "orders"}, **header).status_code == 201


def test_a_secret_is_shown_once(acme: Tenant, client: APIClient) -> None:
    account = post(client, at(acme, "service-accounts"), {"name": "app"}).json()["id"]
    made = post(client, at(acme, "api-keys"), {"service_account_id": account})
    assert made["Cache-Control"] == "no-store"
    shown = client.get(at(acme, f"api-keys/{made.json()['id']}"))
    assert "secret" not in shown.json()
    assert made.json()["secret"] not in client.get(at(acme, "audit-events")).content.decode()


def test_a_key_acts_for_its_own_organization_alone(acme: Tenant) -> None:
    other = make_tenant("other")
    program = client_with(key_of(acme))
    assert program.get("/api/v1/me").json()["organization_id"] == acme.id
    assert post(program, at(acme, "topics"), {"name": "orders"}).status_code == 201
    assert program.get(at(other, "topics")).status_code == 404
    listed = program.get("/api/v1/organizations").json()["items"]
    assert [row["id"] for row in listed] == [acme.id]
    assert post(program, "/api/v1/organizations", {"name": "x", "slug": "xxx"}).status_code == 403


def test_a_key_for_kafka_is_none_for_rest(acme: Tenant) -> None:
    for secret in (key_of(acme, scopes=("kafka",)), "tws_wrong", "nonsense", "tws_" + "x" * 300):
        assert client_with(secret).get("/api/v1/me").status_code == 401


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("10.1.2.3", 200),
        ("::ffff:10.1.2.3", 200),
        ("2001:db8::1", 200),
        ("11.1.2.3", 401),
        ("2001:db9::1", 401),
        ("", 401),
    ],
)
def test_a_key_is_accepted_from_its_networks_alone(acme: Tenant, address: str, status: int) -> None:
    account = do_create_service_account(acme.actor, acme.id, "app", "", "viewer", "owner")
    networks = ["10.0.0.0/8", "2001:db8::/32"]
    _, secret = do_create_key(
        acme.actor, acme.id, account.id, "owner", scopes=["rest"], networks=networks
    )
    assert client_with(secret, address).get("/api/v1/me").status_code == status


def test_a_revoked_key_is_none(acme: Tenant, client: APIClient) -> None:
    program = client_with(key_of(acme))
    key_id = program.get("/api/v1/me").json()["id"]
    assert client.delete(at(acme, f"api-keys/{key_id}")).status_code == 204
    assert program.get("/api/v1/me").status_code == 401


def test_who_is_suspended_reads_on(acme: Tenant, client: APIClient) -> None:
    do_suspend(acme.actor, acme.id, "the bill is not paid")
    assert client.get(at(acme, "topics")).status_code == 200
    refused = post(client, at(acme, "topics"), {"name": "orders"})
    assert (refused.status_code, refused.json()["code"]) == (403, "tenant-suspended")
    assert "the bill is not paid" in refused.json()["detail"]


def test_who_is_deleted_is_not_found(acme: Tenant, client: APIClient) -> None:
    program = client_with(key_of(acme))
    do_delete_organization(acme.actor, acme.id)
    assert client.get(at(acme, "topics")).status_code == 404
    assert program.get("/api/v1/me").status_code == 401


def in_one_minute(ask: Callable[[], list[Any]]) -> list[Any]:
    """What `ask` gets when no new minute begins meanwhile."""
    while True:
        cache.clear()
        minute = time.time() // WINDOW_S
        answers = ask()
        if time.time() // WINDOW_S == minute:
            return answers


def test_a_cache_that_hangs_keeps_no_request_waiting(
    acme: Tenant, client: APIClient, settings: Settings
) -> None:
    # It takes connections, and answers nothing.
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        location = f"redis://127.0.0.1:{hangs.getsockname()[1]}/0"
        settings.CACHES = {"default": CACHES["default"] | {"LOCATION": location}}
        away.forget()
        began_s = time.monotonic()
        try:
            answers = [client.get("/api/v1/me").status_code for _ in range(20)]
            assert away.is_away
        finally:
            away.forget()
    assert answers == [200] * 20
    assert time.monotonic() - began_s < AWAY_S


def test_too_many_requests_are_told_when_to_come_again(
    acme: Tenant, client: APIClient, settings: Settings
) -> None:
    settings.REQUESTS_PER_MINUTE = 2
    answers = in_one_minute(lambda: [client.get("/api/v1/me") for _ in range(3)])
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer["RateLimit-Remaining"] for answer in answers] == ["1", "0", "0"]
    assert 1 <= int(answers[2]["Retry-After"]) <= WINDOW_S
    assert answers[2].json()["code"] == "throttled"


@pytest.mark.parametrize("secret", ["", "nonsense", "tws_wrong"])
def test_strangers_of_an_address_are_limited_before_anybody_looks_who_they_are(
    acme: Tenant, settings: Settings, secret: str
) -> None:
    settings.STRANGERS_PER_MINUTE = 3
    known = key_of(acme)
    queries: list[int] = []

    def stranger(address: str) -> APIClient:
        return client_with(secret, address) if secret else APIClient(REMOTE_ADDR=address)

    def ask() -> list[Any]:
        # Who is known takes nothing of what strangers have.
        good = [client_with(known, "192.0.2.1").get("/api/v1/me") for _ in range(4)]
        bad = [stranger("192.0.2.1").get("/api/v1/me") for _ in range(3)]
        with CaptureQueriesContext(connection) as captured:
            callers = [stranger("192.0.2.1"), client_with(known, "192.0.2.1")]
            refused = [caller.get("/api/v1/me") for caller in callers]
        queries.append(len(captured))
        elsewhere = [client_with(known, "192.0.2.2"), stranger("192.0.2.2")]
        return [*good, *bad, *refused, *(caller.get("/api/v1/me") for caller in elsewhere)]

    answers = in_one_minute(ask)
    assert [answer.status_code for answer in answers] == [
        *([200] * 4),
        *([401] * 3),
        *([429] * 2),
        *(200, 401),
    ]
    assert queries[-1] == 0
    assert [answer["RateLimit-Remaining"] for answer in answers[4:7]] == ["2", "1", "0"]
    assert 1 <= int(answers[7]["Retry-After"]) <= WINDOW_S


def test_addresses_of_one_network_are_one_stranger(settings: Settings) -> None:
    settings.STRANGERS_PER_MINUTE = 1
    addresses = ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"]
    answers = in_one_minute(
        lambda: [APIClient(REMOTE_ADDR=address).get("/api/v1/me") for address in addresses]
    )
    assert [answer.status_code for answer in answers] == [401, 429, 401]


def test_all_of_rest_is_limited() -> None:
    for pattern in urlpatterns:
        view: Any = getattr(pattern.callback, "cls", None)
        assert issubclass(view, RateLimitedView), pattern


def test_a_browser_needs_a_csrf_token(acme: Tenant) -> None:
    browser = APIClient(enforce_csrf_checks=True)
    browser.force_login(acme.owner, "django.contrib.auth.backends.ModelBackend")
    refused = post(browser, at(acme, "topics"), {"name": "orders"})
    assert refused.status_code == 403
    assert not Topic.objects.of(acme.id).exists()


def test_many_topics_are_read_at_once(acme: Tenant, client: APIClient) -> None:
    ids = [do_create_topic(acme.actor, acme.id, name, TopicSpec()).id for name in ("a", "b", "c")]
    body = {"ids": [ids[0], "top_nobody"], "names": ["a", "c"]}
    found = post(client, at(acme, "topics/read"), body).json()["items"]
    assert [topic["name"] for topic in found] == ["a", "c"]


def test_the_schema_and_its_page_are_served() -> None:
    schema = APIClient().get("/api/v1/openapi.json")
    assert schema.status_code == 200
    assert b"3.1.0" in schema.content
    assert schema.content == SCHEMA_PATH.read_bytes()
    assert "RateLimit-Limit" in schema
    assert APIClient().get("/api/v1/docs").status_code == 200


def test_an_address_that_nobody_serves_is_a_problem(client: APIClient) -> None:
    for address in ("/api/v1/nothing", "/api/v1/organizations/x/topics", "/api/v2/me"):
        answer = client.get(address)
        assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert client.get("/nothing")["Content-Type"].startswith("text/html")


def test_health_is_that_of_the_database() -> None:
    assert APIClient().get("/healthz").json() == {"status": "ok"}
