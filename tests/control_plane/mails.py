"""Mail servers as tests have them."""

from __future__ import annotations

import re
import smtplib
from collections.abc import Sequence
from typing import NoReturn

from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

DYING = "tests.control_plane.mails.DyingBackend"
REFUSING = "tests.control_plane.mails.RefusingBackend"


class RefusingBackend(BaseEmailBackend):
    """A server that takes nothing."""

    def send_messages(self, messages: Sequence[EmailMessage]) -> NoReturn:
        raise smtplib.SMTPRecipientsRefused({messages[0].to[0]: (550, b"no such mailbox")})


class DyingBackend(BaseEmailBackend):
    """The process ends while it talks to the server."""

    def send_messages(self, messages: Sequence[EmailMessage]) -> NoReturn:
        raise SystemExit


def token_in(message: EmailMessage) -> str:
    """The token of an invitation."""
    found = re.search(r"^    (\S+)$", str(message.body), re.MULTILINE)
    assert found is not None, message.body
    return found[1]
