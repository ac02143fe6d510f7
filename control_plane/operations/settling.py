"""Which operations are done: those whose resource has been confirmed by its cell, or is no more.

Who confirms resources need not know of operations: open ones are looked at now and then, all of
them in one statement.
"""

from __future__ import annotations

from django.db.models import BigIntegerField, Exists, OuterRef
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.utils import timezone

from control_plane.messaging.models import Topic
from control_plane.operations.models import OPEN, Operation, OperationKind, OperationStatus


def do_give_up_purges(organization_id: str, topic_id: str, why: str) -> int:
    """The topic is not purged, and stays; how many operations said that it would be."""
    purges = Operation.objects.of(organization_id).filter(
        kind=OperationKind.PURGE_TOPIC, resource_id=topic_id, status__in=OPEN
    )
    now = timezone.now()
    return purges.update(status=OperationStatus.FAILED, error=why, finished_at=now)


def do_settle_operations() -> int:
    """Close what is done; how many those are."""
    purges = Operation.objects.across_tenants().filter(
        kind=OperationKind.PURGE_TOPIC, status__in=OPEN
    )
    generation = Cast(KT("arguments__generation"), BigIntegerField())
    unconfirmed = Topic.objects.across_tenants().filter(
        id=OuterRef("resource_id"), observed_generation__lt=OuterRef("generation")
    )
    done = purges.annotate(generation=generation).exclude(Exists(unconfirmed))
    return done.update(status=OperationStatus.SUCCEEDED, finished_at=timezone.now())
