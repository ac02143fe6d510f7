"""Mails to who is invited: a mail server delays them, and neither requests nor invitations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as deployed
from django.core import mail
from django.core.cache import cache
from django.utils import timezone
from pytest_django import Settings

from control_plane.accounts.invitation_mails import (
    MAILS_MAX,
    RETRY_FIRST,
    RETRY_MAX,
    retry_after,
    send_due_mails,
)
from control_plane.accounts.logic import (
    INVITATIONS_OF_ADDRESS_PER_DAY,
    INVITATIONS_PER_DAY,
    do_accept_invitation,
    do_delete_organization,
    do_invite,
    do_revoke_invitation,
    do_suspend,
)
from control_plane.accounts.models import Invitation, Organization
from control_plane.accounts.tasks import send_invitations
from control_plane.quotas.logic import do_set_quota
from control_plane.tenancy.errors import TooMany
from tests.control_plane.mails import DYING, OUTLIVED, REFUSING, token_in
from tests.control_plane.rest import at, client_of, patch, post
from tests.control_plane.tenants import Tenant, actor_of, make_cell, make_tenant, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Tenant:
    cache.clear()
    make_cell()
    return make_tenant("acme")


def invite(tenant: Tenant, email: str = "ann@x.example") -> Invitation:
    return do_invite(tenant.actor, tenant.id, email, "viewer", "owner", tenant.owner)


def make_due(tenant: Tenant) -> None:
    Invitation.objects.of(tenant.id).update(mail_not_before=timezone.now())


def test_a_refusing_server_neither_fails_the_request_nor_loses_the_mail(
    acme: Tenant, settings: Settings, django_capture_on_commit_callbacks: Any
) -> None:
    working = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = REFUSING
    with django_capture_on_commit_callbacks(execute=True):
        body = {"email": "ann@x.example", "role": "viewer"}
        made = post(client_of(acme.owner), at(acme, "invitations"), body)
    assert (made.status_code, made.json()["mailed_at"]) == (201, None)
    assert send_due_mails() == 0
    tried = Invitation.objects.of(acme.id).get()
    assert (tried.mail_attempts, tried.mailed_at) == (1, None)
    assert "no such mailbox" in tried.mail_error
    settings.EMAIL_BACKEND = working
    # Its time has not come.
    assert send_due_mails() == 0
    make_due(acme)
    assert send_due_mails() == 1
    sent = Invitation.objects.of(acme.id).get()
    assert (sent.mail_attempts, sent.mail_error) == (2, "")
    assert sent.mailed_at is not None
    make_due(acme)
    assert send_due_mails() == 0
    ann = make_user("ann@x.example")
    assert do_accept_invitation(actor_of(ann), ann, token_in(mail.outbox[-1])).role == "viewer"


def test_a_worker_that_dies_leaves_the_mail_to_the_next_attempt(
    acme: Tenant, settings: Settings
) -> None:
    invite(acme)
    working = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = DYING
    with pytest.raises(SystemExit):
        send_due_mails()
    settings.EMAIL_BACKEND = working
    assert send_due_mails() == 0
    make_due(acme)
    assert send_due_mails() == 1


def test_a_mail_whose_token_has_been_replaced_is_not_the_last(
    acme: Tenant, settings: Settings
) -> None:
    invite(acme)
    working = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = OUTLIVED
    send_due_mails()
    settings.EMAIL_BACKEND = working
    tried = Invitation.objects.of(acme.id).get()
    assert (tried.mail_attempts, tried.mailed_at) == (2, None)
    assert "no such mailbox" in tried.mail_error
    make_due(acme)
    assert send_due_mails() == 1
    ann = make_user("ann@x.example")
    assert do_accept_invitation(actor_of(ann), ann, token_in(mail.outbox[-1])).role == "viewer"


def test_the_task_sends_what_is_due_in_rounds(acme: Tenant) -> None:
    do_set_quota(acme.actor, acme.id, {"members": MAILS_MAX + 10})
    for number in range(MAILS_MAX):
        invite(acme, f"u{number}@x.example")
    other = make_tenant("other")
    invite(other)
    send_invitations()
    assert len(mail.outbox) == MAILS_MAX
    send_invitations()
    assert len({message.to[0] for message in mail.outbox}) == MAILS_MAX + 1
    task: dict[str, Any] = deployed.CELERY_BEAT_SCHEDULE["invitations"]
    assert task["task"] == send_invitations.name
    assert 0 < deployed.EMAIL_TIMEOUT <= RETRY_FIRST.total_seconds()


def test_retries_become_slower_up_to_a_bound() -> None:
    waits = [retry_after(attempts) for attempts in range(1, 1000)]
    assert waits[0] == RETRY_FIRST
    assert waits == sorted(waits)
    assert waits[-1] == RETRY_MAX


def test_who_is_not_invited_any_more_gets_no_mail(acme: Tenant) -> None:
    revoked = invite(acme)
    do_revoke_invitation(acme.actor, acme.id, revoked.id)
    over = invite(acme, "bob@x.example")
    Invitation.objects.of(acme.id).filter(id=over.id).update(expires_at=timezone.now())
    gone, suspended = make_tenant("gone"), make_tenant("suspended")
    invite(gone)
    do_delete_organization(gone.actor, gone.id)
    invite(suspended)
    do_suspend(suspended.actor, suspended.id, "the bill is not paid")
    assert send_due_mails() == 0
    assert mail.outbox == []


def test_a_name_is_one_line(acme: Tenant) -> None:
    owner = client_of(acme.owner)
    for name in ("Acme\nBcc: eve@x.example", "Acme\u2028Bcc", "A\x00"):
        assert patch(owner, at(acme), {"name": name}).status_code == 422
    # One that was made before that was refused.
    Organization.objects.filter(id=acme.id).update(name="Acme\r\nBcc: eve@x.example")
    invite(acme)
    assert send_due_mails() == 1
    assert mail.outbox[0].subject == "Acme Bcc: eve@x.example on Tidewheel"
    assert mail.outbox[0].recipients() == ["ann@x.example"]


def test_an_address_is_invited_so_many_times_a_day_by_whomever(acme: Tenant) -> None:
    other = make_tenant("other")
    for number in range(INVITATIONS_OF_ADDRESS_PER_DAY):
        invite((acme, other)[number % 2])
    body = {"email": "Ann@x.example", "role": "viewer"}
    refused = post(client_of(acme.owner), at(acme, "invitations"), body)
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many")
    assert 0 < int(refused["Retry-After"]) <= 24 * 3600
    invite(acme, "bob@x.example")
    for row in Invitation.objects.across_tenants().all():
        earlier = row.created_at - timedelta(days=1)
        Invitation.objects.across_tenants().filter(id=row.id).update(created_at=earlier)
    invite(acme)


def test_a_tenant_invites_so_many_times_a_day(acme: Tenant) -> None:
    for number in range(INVITATIONS_PER_DAY):
        do_revoke_invitation(acme.actor, acme.id, invite(acme, f"u{number}@x.example").id)
    with pytest.raises(TooMany):
        invite(acme)
