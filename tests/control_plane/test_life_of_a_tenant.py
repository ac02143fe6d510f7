"""A tenant's life, by REST and in a real cell: a person is invited, the trial, over its quota,
suspended, deleted, and erased after the grace. In the end nothing of it is in the cell, and in the
database only totals of use and an audit that names nobody, which goes after a year.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from django.core import mail
from django.core.cache import cache
from django.db import connection
from django.utils import timezone

from control_plane.access.models import ApiKey
from control_plane.accounts.invitation_mails import send_due_mails
from control_plane.accounts.models import Organization
from control_plane.cells.connections import cell_admin, cell_operations
from control_plane.cells.models import Cell, Placement
from control_plane.operations.models import AuditEvent, OutboxEntry
from control_plane.quotas.models import Plan
from control_plane.reconciliation.following import follow
from control_plane.reconciliation.listing import items_of
from control_plane.reconciliation.lives import ERASED_AUDIT_KEPT, go_on_with_lives
from control_plane.reconciliation.looking import look_at_cells
from control_plane.reconciliation.rounds import reconcile_due
from control_plane.usage.models import TenantUsageHour, TopicUsageHour
from control_plane.usage.reading import read_cell
from data_plane.contract.cell_operations_pb2 import ReadUsageRequest
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.control_plane.cells import CellProcess, KafkaClient, settle, trusted
from tests.control_plane.mails import token_in
from tests.control_plane.rest import client_of, operator, patch, post
from tests.control_plane.tenants import Tenant, actor_of, make_user

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db,
    pytest.mark.timeout(300),
]

SECONDS_MAX = 30.0
NAME, TOPIC, ACCOUNT = "Confidential Corporation", "confidential-orders", "confidential-app"
VALUE = b"what nobody but the tenant may read"
# What is never given to anybody else, whoever looks: the slug.
SLUG = "confid"
REASON = "the bill is not paid"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[CellProcess]:
    authority = Authority(tmp_path / "ca")
    # Files of what is deleted go at once.
    at_once = {"log.segment.delete.delay.ms": "0"}
    with CellProcess(tmp_path / "cell", authority, module="features", set=at_once) as started:
        started.files = authority.issue("control-plane", "DNS:control-plane")  # type: ignore[attr-defined]
        yield started


@pytest.fixture
def cell(process: CellProcess, settings: Any) -> Cell:
    trusted(settings, process.files)  # type: ignore[attr-defined]
    settings.REQUIRE_VERIFIED_EMAIL = False
    cache.clear()
    Plan.objects.get_or_create(is_default=True, defaults={"name": "trial"})
    return process.row()


class Life:
    """The tenant, as its people and its clients have it."""

    def __init__(self, process: CellProcess, cell: Cell) -> None:
        self.process, self.cell = process, cell
        self.owner = make_user("owner@confidential.example")
        self.rest = client_of(self.owner)
        self.operator = operator()
        made = post(self.rest, "/api/v1/organizations", {"name": NAME, "slug": SLUG})
        assert made.status_code == 201, made.content
        self.id = made.json()["id"]
        self.base = f"/api/v1/organizations/{self.id}"

    def state(self) -> str:
        return cast(str, self.rest.get(self.base).json()["state"])

    def made(self, address: str, body: Any) -> Any:
        answer = post(self.rest, f"{self.base}/{address}", body)
        assert answer.status_code == 201, answer.content
        return answer.json()

    def invited(self) -> None:
        """Somebody is invited, comes with the token from the mail, and sees the topics."""
        guest = client_of(make_user("guest@confidential.example"))
        assert guest.get(self.base).status_code == 404
        self.made("invitations", {"email": "guest@confidential.example", "role": "viewer"})
        send_due_mails()
        token = token_in(mail.outbox[-1])
        assert post(guest, "/api/v1/invitations/accept", {"token": token}).status_code == 201
        assert guest.get(f"{self.base}/topics").status_code == 200
        assert post(guest, f"{self.base}/topics", {"name": "x"}).status_code == 403

    def trial(self) -> None:
        """A topic, a key and what its client does with them."""
        assert self.state() == "trial"
        topic = self.made("topics", {"name": TOPIC, "spec": {"partitions": 1}})
        account = self.made("service-accounts", {"name": ACCOUNT})
        for resource_type in ("topic", "group"):
            spec = {
                "service_account_id": account["id"],
                "role": "manager",
                "resource_type": resource_type,
                "resource_name": "*",
            }
            self.made("grants", {"spec": spec})
        key = self.made("api-keys", {"service_account_id": account["id"]})
        settle()
        shown = self.rest.get(f"{self.base}/topics/{topic['id']}").json()
        assert shown["status"]["state"] == "ready"
        organization = Organization.objects.get(id=self.id)
        tenant = Tenant(organization, self.owner, actor_of(self.owner))
        self.topic_id, self.key_id = topic["id"], key["id"]
        row = ApiKey.objects.of(self.id).get(id=self.key_id)
        self.kafka: KafkaClient = self.process.client(tenant, row, key["secret"])
        assert self.kafka.produce(TOPIC, VALUE) == ""
        assert self.kafka.consume(TOPIC, 1) == [VALUE]

    def over_quota(self) -> None:
        """No more than it may have, by REST and by Kafka; what it has goes on."""
        quota = f"{self.base}/quota"
        limits = {"spec": {"topics": 1, "partitions": 1}}
        assert patch(self.operator, quota, limits).status_code == 200
        settle()
        refused = post(self.rest, f"{self.base}/topics", {"name": "more"})
        assert (refused.status_code, refused.json()["code"]) == (402, "quota-exceeded")
        grown = patch(self.rest, f"{self.base}/topics/{self.topic_id}", {"spec": {"partitions": 2}})
        assert grown.status_code == 402
        admin = self.kafka.admin()
        with pytest.raises(KafkaException) as raised:
            admin.create_topics([NewTopic("more", 1, 1)])["more"].result(SECONDS_MAX)
        assert raised.value.args[0].name() == "POLICY_VIOLATION"
        assert self.kafka.produce(TOPIC, VALUE) == ""
        used = self.rest.get(quota).json()
        assert (used["used"]["topics"], used["limits"]["topics"]) == (1, 1)

    def suspended(self) -> None:
        """Reads go on, writes are refused with the reason, and rights can be taken away."""
        assert post(self.rest, f"{self.base}/suspend", {"reason": REASON}).status_code == 403
        answer = post(self.operator, f"{self.base}/suspend", {"reason": REASON})
        assert answer.status_code == 200, answer.content
        settle()
        assert self.state() == "suspended"
        assert self.kafka.produce(TOPIC, VALUE) == "POLICY_VIOLATION"
        assert self.kafka.consume(TOPIC, 2, "others") == [VALUE, VALUE]
        writes = [
            post(self.rest, f"{self.base}/topics", {"name": "more"}),
            patch(self.rest, f"{self.base}/topics/{self.topic_id}", {"spec": {"partitions": 3}}),
            self.rest.delete(f"{self.base}/topics/{self.topic_id}"),
        ]
        for refused in writes:
            assert refused.status_code == 403
            assert REASON in refused.json()["detail"]
        for what in ("topics", "usage", "quota", "audit-events", "members"):
            assert self.rest.get(f"{self.base}/{what}").status_code == 200
        guest = next(
            member
            for member in self.rest.get(f"{self.base}/members").json()["items"]
            if member["role"] == "viewer"
        )
        assert self.rest.delete(f"{self.base}/members/{guest['id']}").status_code == 204
        assert post(self.operator, f"{self.base}/resume").status_code == 200
        settle()
        assert self.state() == "active"
        assert self.kafka.produce(TOPIC, VALUE) == ""

    def used(self) -> int:
        """How many records it has sent, when its use has been read."""
        with cell_operations(self.cell, self.process.admin_endpoint) as operations:
            stream = operations.ReadUsage(ReadUsageRequest(follow=True), timeout=SECONDS_MAX)
            seen = 0
            for sample in stream:
                seen += sum(row.records_in for row in sample.topics if row.tenant == SLUG)
                if seen >= 3:
                    break
            stream.cancel()
        look_at_cells()
        read_cell(self.cell)
        return self.totals()

    def totals(self) -> int:
        rows = TenantUsageHour.objects.filter(organization_id=self.id)
        return sum(rows.values_list("produce_records", flat=True))

    def deleted(self) -> None:
        """Nobody speaks for it, and its cell keeps all it has until the grace is over."""
        assert self.rest.delete(self.base).status_code in (202, 204)
        settle()
        assert self.rest.get(f"{self.base}/topics").status_code in (403, 404)
        refused = post(self.rest, f"{self.base}/topics", {"name": "more"})
        assert refused.status_code in (403, 404)
        with pytest.raises(KafkaException):
            self.kafka.admin().list_topics(timeout=3)
        go_on_with_lives()
        settle()
        with cell_admin(self.cell) as admin:
            assert len(list(items_of(admin, SLUG))) > 1
        assert VALUE in self.on_disk()

    def erased(self) -> None:
        Organization.objects.filter(id=self.id).update(purge_after=timezone.now())
        go_on_with_lives()
        deadline_s = time.monotonic() + SECONDS_MAX
        while Placement.objects.of(self.id).exists():
            assert time.monotonic() < deadline_s
            OutboxEntry.objects.of(self.id).update(not_before=timezone.now())
            reconcile_due()
        follow(self.cell)

    def on_disk(self) -> bytes:
        """All that the broker's log directory has."""
        found = b""
        for path in sorted(self.process.broker.data_dir.rglob("*")):
            if path.is_file():
                found += path.read_bytes()
        return found


def tables_with(text: str) -> set[str]:
    """Where in the database it stands, in whatever column."""
    found = set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(
                f'SELECT 1 FROM "{table}" AS one WHERE one::text LIKE %s LIMIT 1', [f"%{text}%"]
            )
            if cursor.fetchone():
                found.add(table)
    return found


def test_from_the_invitation_to_the_last_trace(process: CellProcess, cell: Cell) -> None:
    life = Life(process, cell)
    settle()
    life.invited()
    life.trial()
    life.over_quota()
    life.suspended()
    assert life.used() == 3
    assert TopicUsageHour.objects.filter(organization_id=life.id).exists()
    life.deleted()
    life.erased()
    with cell_admin(cell) as admin:
        assert list(items_of(admin, SLUG)) == []
    deadline_s = time.monotonic() + SECONDS_MAX
    while VALUE in life.on_disk():
        assert time.monotonic() < deadline_s, "its messages are in the broker's files"
        time.sleep(0.2)
    # Totals, an audit without names, and the slug, which is never given again.
    assert tables_with(life.id) == {
        *("accounts_organization", "operations_auditevent"),
        *("usage_tenantusage10s", "usage_tenantusageminute", "usage_tenantusagehour"),
    }
    assert life.totals() == 3
    for text in (NAME, TOPIC, ACCOUNT, REASON):
        assert tables_with(text) == set(), text
    events = AuditEvent.objects.filter(organization_id=life.id)
    assert {"topic.create", "organization.suspended", "organization.delete"} <= set(
        events.values_list("action", flat=True)
    )
    named = events.exclude(actor_kind="system").values_list("actor_name", "address")
    assert set(named) == {("", None)}
    taken = post(life.rest, "/api/v1/organizations", {"name": "Another", "slug": SLUG})
    assert taken.status_code == 409
    # Its people go on, and can be found by themselves alone.
    assert tables_with("owner@confidential.example") == {"accounts_user"}
    go_on_with_lives()
    assert events.exists()
    events.update(at=timezone.now() - ERASED_AUDIT_KEPT + timedelta(days=1))
    go_on_with_lives()
    assert events.exists()
    events.update(at=timezone.now() - ERASED_AUDIT_KEPT)
    go_on_with_lives()
    assert not events.exists()
