"""Topics: declared, changed, deleted, had back, taken over and released.

Invariants
- What is declared is valid before a cell hears of it, and fits the tenant's limits, which are
  counted under the tenant's lock.
- Partitions only grow, as in Kafka.
- A topic that clients manage is neither changed nor deleted here: it is taken over first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from django.utils import timezone

from control_plane.messaging.models import ManagedBy, Topic
from control_plane.messaging.subscriptions import (
    FILTER,
    SOURCE,
    checked_filter,
    find_source,
    is_subscription,
    partitions_of,
    refuse_while_read,
    refuse_without_source,
    subscriptions_of,
)
from control_plane.messaging.topic_configs import Json, normalized, refuse_other_fixed
from control_plane.operations.facade import (
    Actor,
    OperationKind,
    ResourceKind,
    TenantWrite,
    tenant_write,
)
from control_plane.quotas.facade import refuse_beyond, refuse_more_today
from control_plane.tenancy.errors import Conflict, Invalid, NotFound
from control_plane.tenancy.models import NAME_CHARACTERS_MAX, ResourceStatus

UNDELETE_DAYS = 7
# The cell remembers each of them.
INCARNATIONS_MAX = 100
PARTITIONS_MAX = 10_000
REPLICATION_FACTOR_MAX = 7
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What is declared of a topic; `replication_factor` 0 is the cell's default."""

    partitions: int = 1
    replication_factor: int = 0
    configs: Mapping[str, Json] = field(default_factory=dict)


def refuse_name(name: str) -> None:
    """Raise Invalid for what Kafka takes as no topic's name, or the brokers as their own."""
    if not _NAME.fullmatch(name) or name in (".", "..") or len(name) > NAME_CHARACTERS_MAX:
        raise Invalid(
            "A topic's name has 1 to 249 letters, digits, dots, hyphens and underscores, and is "
            "neither `.` nor `..`.",
            field="/name",
        )
    if name.startswith("__"):
        raise Invalid("Names that begin with two underscores are the broker's.", field="/name")


def do_create_topic(
    actor: Actor,
    organization_id: str,
    name: str,
    spec: TopicSpec,
    *,
    deletion_protection: bool = False,
) -> Topic:
    """Declare a topic. Raises Invalid, Conflict (the name is taken), QuotaExceeded."""
    refuse_name(name)
    configs = _checked(spec)
    with tenant_write(actor, organization_id) as write:
        _refuse_taken(organization_id, name)
        topic = Topic(
            organization=write.organization,
            name=name,
            partitions=spec.partitions,
            replication_factor=spec.replication_factor,
            configs=configs,
            deletion_protection=deletion_protection,
        )
        _refuse_beyond_limits(write, more_topics=1, more_partitions=spec.partitions)
        topic.save(force_insert=True)
        write.audit("topic.create", topic.id, name, topic.declared())
        write.declare(ResourceKind.TOPIC, topic)
    return topic


def do_create_subscription(
    actor: Actor,
    organization_id: str,
    name: str,
    source: str,
    filter_text: str,
    *,
    deletion_protection: bool = False,
) -> Topic:
    """Declare a subscription. Raises Invalid, Conflict (the name is taken), QuotaExceeded."""
    refuse_name(name)
    checked_filter(filter_text)
    with tenant_write(actor, organization_id) as write:
        _refuse_taken(organization_id, name)
        read = find_source(organization_id, source)
        _refuse_beyond_limits(write, more_topics=1, more_partitions=read.partitions)
        topic = Topic(
            organization=write.organization,
            name=name,
            # As many as follow from the source.
            partitions=0,
            configs={SOURCE: source, FILTER: filter_text},
            deletion_protection=deletion_protection,
        )
        topic.save(force_insert=True)
        write.audit("subscription.create", topic.id, name, topic.declared())
        write.declare(ResourceKind.TOPIC, topic)
    return topic


def do_update_subscription(
    actor: Actor,
    organization_id: str,
    subscription_id: str,
    *,
    filter_text: str | None = None,
    deletion_protection: bool | None = None,
    if_match: str | None = None,
) -> Topic:
    """Change what is given. Another filter holds from the next fetch on."""
    with tenant_write(actor, organization_id) as write:
        topic = _live(organization_id, subscription_id, if_match)
        before = topic.declared()
        if filter_text is not None and filter_text != topic.configs.get(FILTER, ""):
            _refuse_clients_own(topic)
            topic.configs = topic.configs | {FILTER: checked_filter(filter_text)}
            topic.declare_again()
            write.declare(ResourceKind.TOPIC, topic)
        if deletion_protection is not None:
            topic.deletion_protection = deletion_protection
        topic.save()
        changes = {"from": before, "to": topic.declared()}
        write.audit("subscription.update", topic.id, topic.name, changes)
    return topic


def do_update_topic(
    actor: Actor,
    organization_id: str,
    topic_id: str,
    *,
    partitions: int | None = None,
    configs: Mapping[str, Json] | None = None,
    deletion_protection: bool | None = None,
    if_match: str | None = None,
) -> Topic:
    """Change what is given. `if_match` is what the caller has seen. A change to the same value
    makes no generation."""
    with tenant_write(actor, organization_id) as write:
        topic = _live(organization_id, topic_id, if_match)
        before = topic.declared()
        if partitions is not None and partitions != topic.partitions:
            if partitions < topic.partitions:
                raise Invalid(
                    f"{topic.name} has {topic.partitions} partitions, and never less.",
                    field="/spec/partitions",
                )
            _checked(TopicSpec(partitions=partitions))
            logs = 1 + subscriptions_of(organization_id, topic.name).count()
            more = logs * (partitions - topic.partitions)
            _refuse_beyond_limits(write, more_partitions=more)
            topic.partitions = partitions
        if configs is not None:
            wanted = normalized(configs)
            refuse_other_fixed(topic.configs, wanted)
            topic.configs = wanted
        is_changed = topic.spec() != before["spec"]
        if is_changed:
            _refuse_clients_own(topic)
        if deletion_protection is not None:
            topic.deletion_protection = deletion_protection
        if is_changed:
            topic.declare_again()
            write.declare(ResourceKind.TOPIC, topic)
        topic.save()
        write.audit("topic.update", topic.id, topic.name, {"from": before, "to": topic.declared()})
    return topic


def do_change_owner(
    actor: Actor,
    organization_id: str,
    topic_id: str,
    managed_by: ManagedBy,
    if_match: str | None = None,
) -> Topic:
    """Take over what the clients made (`api`), or let go of it (`client`): the topic stays."""
    with tenant_write(actor, organization_id) as write:
        topic = _live(organization_id, topic_id, if_match)
        if topic.managed_by != managed_by or _waits_for_take_over(topic, managed_by):
            topic.takes_over = managed_by == ManagedBy.API
            topic.managed_by = managed_by
            if topic.takes_over and is_subscription(topic):
                topic.partitions = 0
            topic.declare_again()
            topic.save()
            write.declare(ResourceKind.TOPIC, topic)
        write.audit("topic.change_owner", topic.id, topic.name, {"managed_by": managed_by.value})
    return topic


def do_delete_topic(
    actor: Actor,
    organization_id: str,
    topic_id: str,
    *,
    if_match: str | None = None,
    purge: bool = False,
) -> Topic:
    """Delete it. Its cell keeps it until `purge_after`, seven days, in which it can be had back;
    with `purge` it does not."""
    with tenant_write(actor, organization_id) as write:
        topic = _found(organization_id, topic_id, if_match)
        if topic.deletion_protection:
            raise Conflict(
                f"{topic.name} is protected; take deletion_protection off first.",
                field="/deletion_protection",
            )
        _refuse_clients_own(topic)
        refuse_while_read(organization_id, topic)
        now = timezone.now()
        is_new = topic.purge_after is None
        if is_new or purge:
            topic.purge_after = now if purge else now + timedelta(days=UNDELETE_DAYS)
        if purge and topic.deleted_at is None:
            _purge(write, topic)
        elif is_new:
            topic.declare_again()
            topic.status = ResourceStatus.DELETING
            write.declare(ResourceKind.TOPIC, topic)
        topic.save()
        write.audit("topic.delete", topic.id, topic.name, {"purge": purge})
    return topic


def do_undelete_topic(actor: Actor, organization_id: str, topic_id: str) -> Topic:
    """Have a deleted topic back, with its messages: in the cell as another resource, which takes
    it over. Raises Conflict when its purge has begun."""
    with tenant_write(actor, organization_id) as write:
        topic = _found(organization_id, topic_id, None)
        if topic.purge_after is None:
            raise Conflict(f"{topic.name} is not deleted.")
        if topic.deleted_at is not None:
            raise Conflict(f"{topic.name} is being purged, and cannot be had back.")
        if topic.incarnation >= INCARNATIONS_MAX:
            raise Conflict(f"{topic.name} was had back {INCARNATIONS_MAX - 1} times, no more.")
        refuse_without_source(organization_id, topic)
        refuse_more_today(write.organization)
        topic.purge_after = None
        topic.incarnation += 1
        topic.takes_over = True
        topic.declare_again()
        topic.save()
        write.declare(ResourceKind.TOPIC, topic)
        write.audit("topic.undelete", topic.id, topic.name)
    return topic


def do_purge_due_topics(actor: Actor, organization_id: str) -> int:
    """Have the cell delete for good what was deleted long enough ago; how many those are."""
    with tenant_write(actor, organization_id, even_if_suspended=True) as write:
        due = Topic.objects.of(organization_id).filter(
            purge_after__lte=timezone.now(), deleted_at=None
        )
        topics = list(due)
        for topic in topics:
            _purge(write, topic)
            topic.save()
            write.audit("topic.purge", topic.id, topic.name)
        # Nothing was done, so nothing is written down.
        write.is_audited = True
    return len(topics)


def _refuse_clients_own(topic: Topic) -> None:
    if topic.managed_by == ManagedBy.CLIENT:
        raise Conflict(
            f"{topic.name} is managed by the tenant's Kafka clients. Set managed_by to `api` to "
            "take it over.",
            field="/managed_by",
        )


def _waits_for_take_over(topic: Topic, managed_by: ManagedBy) -> bool:
    """Whether it was declared under the name of a client's topic, and is to take that over now."""
    is_refused = topic.observed_generation == 0 and topic.kafka_topic_id is not None
    return is_refused and managed_by == ManagedBy.API and not topic.takes_over


def _purge(write: TenantWrite, topic: Topic) -> None:
    topic.deleted_at = timezone.now()
    topic.declare_again()
    write.declare(ResourceKind.TOPIC, topic)
    write.begin(OperationKind.PURGE_TOPIC, topic)


def _checked(spec: TopicSpec) -> dict[str, str]:
    if not 1 <= spec.partitions <= PARTITIONS_MAX:
        raise Invalid(f"A topic has 1 to {PARTITIONS_MAX} partitions.", field="/spec/partitions")
    if not 0 <= spec.replication_factor <= REPLICATION_FACTOR_MAX:
        raise Invalid(
            f"The replication factor is from 1 to {REPLICATION_FACTOR_MAX}, or 0 for the cell's.",
            field="/spec/replication_factor",
        )
    return normalized(spec.configs)


def find_topic(organization_id: str, topic_id: str) -> Topic:
    """The tenant's topic of this id, which may be a subscription. Raises NotFound."""
    return _found(organization_id, topic_id, None)


def find_plain_topic(organization_id: str, topic_id: str) -> Topic:
    """The tenant's topic of this id, if it is no subscription. Raises NotFound."""
    topic = _found(organization_id, topic_id, None)
    if is_subscription(topic):
        raise NotFound("There is no such topic.")
    return topic


def find_subscription(organization_id: str, subscription_id: str) -> Topic:
    """The tenant's subscription of this id. Raises NotFound."""
    topic = subscriptions_of(organization_id).filter(id=subscription_id).first()
    if topic is None:
        raise NotFound("There is no such subscription.")
    return topic


def _found(organization_id: str, topic_id: str, if_match: str | None) -> Topic:
    topic = Topic.objects.of(organization_id).filter(id=topic_id).first()
    if topic is None:
        raise NotFound("There is no such topic.")
    topic.refuse_unless(if_match)
    return topic


def _live(organization_id: str, topic_id: str, if_match: str | None) -> Topic:
    topic = _found(organization_id, topic_id, if_match)
    if topic.purge_after is not None:
        raise Conflict(f"{topic.name} is deleted. Undelete it first.")
    return topic


def _refuse_beyond_limits(
    write: TenantWrite, *, more_topics: int = 0, more_partitions: int = 0
) -> None:
    if more_topics:
        topics = Topic.objects.of(write.organization.id).count()
        refuse_beyond(write.organization, "topics", topics + more_topics)
    declared = partitions_of(write.organization.id)
    refuse_beyond(write.organization, "partitions", declared + more_partitions)


def _refuse_taken(organization_id: str, name: str) -> None:
    present = Topic.objects.of(organization_id).filter(name=name).first()
    if present is not None:
        raise Conflict(_why_taken(present), field="/name")


def _why_taken(present: Topic) -> str:
    if present.deleted_at is not None:
        return f"{present.name} ({present.id}) is being purged; its name is free when that is done."
    if present.purge_after is not None:
        return (
            f"{present.name} ({present.id}) was deleted and can be had back until it is purged. "
            "Undelete it, or delete it with purge."
        )
    if present.managed_by == ManagedBy.CLIENT:
        return (
            f"{present.name} ({present.id}) was made by the tenant's Kafka clients. Set its "
            "managed_by to `api` to take it over."
        )
    return f"There is a topic {present.name} ({present.id})."
