"""Mails to who is invited. An invitation's row is the queue: what is due is asked of Postgres, so a
mail server that refuses or hangs delays mails, and neither requests nor invitations.

Invariants
- The token is made when the mail is, and only its hash is kept: nobody but the address ever has it.
  A mail that is sent again has another token, and the last one is good.
- Who sends takes the row first, in a transaction of its own, and holds nothing while he sends. So
  two workers do not send the same mail, and one that dies leaves it to the next attempt.
- Attempts go on, ever more slowly, until the invitation ends. The row says how they went.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from datetime import datetime, timedelta

from django.core.mail import send_mail
from django.db import transaction
from django.utils import timezone

from control_plane.accounts.models import (
    MAIL_ERROR_CHARACTERS_MAX,
    Invitation,
    OrganizationState,
)

log = logging.getLogger(__name__)

TOKEN_BYTES = 32
MAILS_MAX = 50
"""Of one round; the rest is the next one's."""
RETRY_FIRST = timedelta(minutes=1)
RETRY_MAX = timedelta(hours=1)


def send_due_mails() -> int:
    """Send what is due; how many were sent."""
    sent = 0
    for _ in range(MAILS_MAX):
        taken = _take(timezone.now())
        if taken is None:
            break
        sent += _send(*taken)
    return sent


def token_hash(token: str) -> str:
    """What an invitation is found by."""
    return hashlib.sha256(token.encode()).hexdigest()


def retry_after(attempts: int) -> timedelta:
    """How long to wait after so many attempts."""
    wait = RETRY_FIRST
    while attempts > 1 and wait < RETRY_MAX:
        wait, attempts = 2 * wait, attempts - 1
    return min(wait, RETRY_MAX)


def _take(now: datetime) -> tuple[Invitation, str] | None:
    """The invitation whose mail is due for longest, with its new token; nobody else takes it until
    this attempt has had its time."""
    due = Invitation.objects.across_tenants().filter(
        mailed_at=None,
        accepted_at=None,
        revoked_at=None,
        expires_at__gt=now,
        mail_not_before__lte=now,
    )
    served = due.exclude(
        organization__state__in=(OrganizationState.SUSPENDED, OrganizationState.DELETED)
    )
    locked = served.select_for_update(skip_locked=True, of=("self",))
    with transaction.atomic():
        invitation = locked.select_related("organization").order_by("mail_not_before").first()
        if invitation is None:
            return None
        token = secrets.token_urlsafe(TOKEN_BYTES)
        invitation.token_hash = token_hash(token)
        invitation.mail_attempts += 1
        invitation.mail_not_before = now + retry_after(invitation.mail_attempts)
        invitation.save(update_fields=["token_hash", "mail_attempts", "mail_not_before"])
    return invitation, token


def _send(invitation: Invitation, token: str) -> bool:
    # An attempt that took so long that another one followed says nothing of the other one's mail.
    row = Invitation.objects.of(invitation.organization_id).filter(
        id=invitation.id, token_hash=invitation.token_hash
    )
    # Header lines end at a line break, whatever names may have had in them.
    name = " ".join(invitation.organization.name.split())
    body = (
        f"{invitation.invited_by_name} invites you to {name} on Tidewheel as {invitation.role}.\n\n"
        f"Sign up or log in with this address, and accept with this token until "
        f"{invitation.expires_at:%d %B %Y}:\n\n    {token}\n"
    )
    try:
        send_mail(f"{name} on Tidewheel", body, None, [invitation.email], fail_silently=False)
    except (OSError, ValueError) as error:
        log.warning("the mail of %s was not sent: %s", invitation.id, error)
        row.update(mail_error=str(error)[:MAIL_ERROR_CHARACTERS_MAX])
        return False
    row.update(mailed_at=timezone.now(), mail_error="")
    return True
