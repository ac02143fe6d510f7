"""Subscriptions: topics over another topic, whose consumers read only what a filter lets through
(docs/subscriptions.md).

A subscription is a row of `Topic`, as it is a topic of the cell: its source and its filter are
configurations. Its partitions follow from its source's, so none are declared.

Invariants
- A source has tags, is no subscription itself, and is not deleted while it is read.
- The source of a subscription never changes; its filter does, and offsets stay.
"""

from __future__ import annotations

from typing import Final

from django.db.models import Q, QuerySet, Sum

from control_plane.messaging.models import Topic
from control_plane.tenancy.errors import Conflict, Invalid
from features.filtering.language import InvalidFilter, parse_filter

SOURCE: Final = "tidewheel.source"
FILTER: Final = "tidewheel.filter"
HEADERS: Final = "tidewheel.headers"
SUBSCRIPTIONS_OF_SOURCE_MAX: Final = 100
"""As in the cell."""
NAMED_MAX: Final = 10

IS_SUBSCRIPTION: Final = Q(configs__has_key=SOURCE)


def is_subscription(topic: Topic) -> bool:
    """Whether it reads from another topic."""
    return SOURCE in topic.configs


def subscriptions_of(organization_id: str, source: str | None = None) -> QuerySet[Topic]:
    """The tenant's subscriptions, or those that read from one topic; deleted ones, too, until they
    are purged."""
    rows = Topic.objects.of(organization_id).filter(IS_SUBSCRIPTION)
    return rows if source is None else rows.filter(configs__contains={SOURCE: source})


def partitions_of(organization_id: str) -> int:
    """How many partitions the tenant has declared. A subscription has one log for each of its
    source's."""
    topics = Topic.objects.of(organization_id)
    plain = topics.exclude(IS_SUBSCRIPTION)
    declared: int = plain.aggregate(total=Sum("partitions"))["total"] or 0
    sources = [topic.configs[SOURCE] for topic in subscriptions_of(organization_id)]
    if not sources:
        return declared
    by_name = dict(plain.filter(name__in=set(sources)).values_list("name", "partitions"))
    return declared + sum(by_name.get(name, 0) for name in sources)


def find_source(organization_id: str, name: str) -> Topic:
    """The topic that a new subscription reads from. Raises Invalid, Conflict."""
    source = Topic.objects.of(organization_id).filter(name=name, purge_after=None).first()
    if source is None:
        raise Invalid(f"There is no topic {name}.", field="/spec/source")
    if is_subscription(source):
        raise Invalid(f"{name} is a subscription itself.", field="/spec/source")
    if source.configs.get(HEADERS) != "true":
        raise Invalid(
            f"{name} has no tags: it was made without {HEADERS}=true.", field="/spec/source"
        )
    if subscriptions_of(organization_id, name).count() >= SUBSCRIPTIONS_OF_SOURCE_MAX:
        raise Conflict(
            f"{name} is read by {SUBSCRIPTIONS_OF_SOURCE_MAX} subscriptions, and by no more.",
            field="/spec/source",
        )
    return source


def checked_filter(text: str) -> str:
    """The filter as it is declared. Raises Invalid, which says the column."""
    try:
        parse_filter(text)
    except InvalidFilter as error:
        raise Invalid(f"The filter is not understood: {error}.", field="/spec/filter") from error
    return text


def refuse_while_read(organization_id: str, topic: Topic) -> None:
    """Raise Conflict when subscriptions read from the topic that are not deleted."""
    readers = subscriptions_of(organization_id, topic.name).filter(purge_after=None)
    names = list(readers.order_by("name").values_list("name", flat=True)[: NAMED_MAX + 1])
    if names:
        named = ", ".join(names[:NAMED_MAX]) + (", …" if len(names) > NAMED_MAX else "")
        raise Conflict(f"{topic.name} is read by the subscriptions {named}; delete these first.")


def refuse_without_source(organization_id: str, topic: Topic) -> None:
    """Raise Conflict when a subscription's source is not there."""
    if not is_subscription(topic):
        return
    name = topic.configs[SOURCE]
    if not Topic.objects.of(organization_id).filter(name=name, purge_after=None).exists():
        raise Conflict(f"Its source {name} is deleted; undelete that first.")
