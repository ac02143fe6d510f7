"""Mail servers as tests have them."""

from __future__ import annotations

import re
import smtplib
from collections.abc import Sequence
from typing import NoReturn

from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from django.test import override_settings
from django.utils import timezone

from control_plane.accounts.invitation_mails import send_due_mails
from control_plane.accounts.models import Invitation

DYING = "tests.control_plane.mails.DyingBackend"
OUTLIVED = "tests.control_plane.mails.OutlivedBackend"
REFUSING = "tests.control_plane.mails.RefusingBackend"


class RefusingBackend(BaseEmailBackend):
    """A server that takes nothing."""

    def send_messages(self, messages: Sequence[EmailMessage]) -> NoReturn:
        raise smtplib.SMTPRecipientsRefused({messages[0].to[0]: (550, b"no such mailbox")})


class DyingBackend(BaseEmailBackend):
    """The process ends while it talks to the server."""

    def send_messages(self, messages: Sequence[EmailMessage]) -> NoReturn:
        raise SystemExit


class OutlivedBackend(BaseEmailBackend):
    """A server that takes the mail when the attempt after this one has been refused already."""

    def send_messages(self, messages: Sequence[EmailMessage]) -> int:
        Invitation.objects.across_tenants().update(mail_not_before=timezone.now())
        with override_settings(EMAIL_BACKEND=REFUSING):
            send_due_mails()
        mail.outbox.extend(messages)
        return len(messages)


def token_in(message: EmailMessage) -> str:
    """The token of an invitation."""
    found = re.search(r"^    (\S+)$", str(message.body), re.MULTILINE)
    assert found is not None, message.body
    return found[1]
