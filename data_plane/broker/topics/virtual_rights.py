"""What a virtual topic has to do with other topics takes rights on these.

    tidewheel.source, tidewheel.filter   READ on the source
    tidewheel.dlq.topic                  WRITE on that topic, there or not; where none is named, on
                                         the topic that stands for it, if there is one

They are asked when it is created or altered, of whoever does that. Who has lost them later has set
what is set: it holds until somebody changes it, as any configuration.
"""

from __future__ import annotations

from collections.abc import Callable

from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.namespaces import Topics
from data_plane.broker.request.refusal import Refusal
from data_plane.cell.acls import AclOperation
from data_plane.cell.changes import AlterConfigs
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.cell.virtual_topics import (
    DEAD_LETTERS_PROPERTY,
    DEAD_LETTERS_SUFFIX,
    FILTER_PROPERTY,
    SOURCE_PROPERTY,
)
from data_plane.wire.errors import ErrorCode


def check_edit(context: RequestContext, image: MetadataImage, change: AlterConfigs) -> None:
    """Raises Refusal."""
    if change.resource_type != ResourceType.TOPIC:
        return
    name, changed = change.resource_name, dict(change.values)
    source = image.config_of(change.tenant, ResourceType.TOPIC, name).get(SOURCE_PROPERTY)
    if source is None:
        return
    if FILTER_PROPERTY in changed and not context.may_to_topic(AclOperation.READ, source):
        words = f"Who changes what is read of topic '{source}' needs READ on it."
        raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, words)
    if DEAD_LETTERS_PROPERTY in changed:
        refuse_foreign_dead_letters(
            context.topics.within(image),
            name,
            changed[DEAD_LETTERS_PROPERTY] or "",
            lambda target: context.may_to_topic(AclOperation.WRITE, target),
        )


def refuse_foreign_dead_letters(
    topics: Topics, name: str, target: str, may_write: Callable[[str], bool]
) -> None:
    """That who sends dead letters of the virtual topic `name` to the topic `target` might write
    there himself. Raises Refusal."""
    target = target.strip()
    if not target:
        target = name + DEAD_LETTERS_SUFFIX
        if topics.by_name(target) is None:
            return
    if not may_write(target):
        raise Refusal(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"Dead letters of topic '{name}' go to topic '{target}': who has them sent there needs "
            "WRITE on it.",
        )
