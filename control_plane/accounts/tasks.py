"""What workers do for accounts. A task is a hint: what is due is in Postgres."""

from __future__ import annotations

from celery import shared_task

from control_plane.accounts.invitation_mails import send_due_mails


@shared_task(name="accounts.send_invitations")
def send_invitations() -> None:
    """Mails to who is invited."""
    send_due_mails()
