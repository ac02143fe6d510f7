"""What CellAdmin is asked: its messages as the broker's values; bad input is refused here.

Pure: no sockets, no threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.broker.admin.declared import Removal, Resource, Result, Specification
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.cell.declarations import (
    API_OWNER,
    CLIENT_OWNER,
    RESOURCE_ID_CHARACTERS_MAX,
)
from data_plane.contract import cell_admin_pb2 as messages

BATCH_MAX: Final = 1000
TOPIC_ID_BYTES: Final = 16

_RESOURCE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_OWNERS = {
    messages.OWNER_UNSPECIFIED: API_OWNER,
    messages.API: API_OWNER,
    messages.CLIENT: CLIENT_OWNER,
}


class BadRequest(ValueError):
    """A field of a request, by its path, and what is wrong with it."""


def read_apply(request: messages.ApplyRequest) -> list[Resource]:
    """Raises BadRequest."""
    _check_batch("resources", request.resources)
    resources = [
        _read_resource(f"resources[{index}]", resource)
        for index, resource in enumerate(request.resources)
    ]
    _check_distinct("resources", [one.resource_id for one in resources], "resource_id")
    _check_distinct("resources", [one.thing for one in resources], "tenant and name")
    return resources


def read_delete(request: messages.DeleteRequest) -> list[Removal]:
    """Raises BadRequest."""
    _check_batch("deletions", request.deletions)
    for index, deletion in enumerate(request.deletions):
        path = f"deletions[{index}]"
        _check_resource_id(path, deletion.resource_id)
        _check_generation(path, deletion.generation)
    removals = [Removal(item.resource_id, item.generation, item.keep) for item in request.deletions]
    _check_distinct("deletions", [removal.resource_id for removal in removals], "resource_id")
    return removals


def write_result(result: Result) -> messages.Result:
    return messages.Result(
        resource_id=result.resource_id,
        outcome=messages.Result.Outcome.ValueType(int(result.outcome)),
        generation=result.generation,
        error_code=int(result.code),
        message=result.message,
    )


def _read_resource(path: str, resource: messages.Resource) -> Resource:
    _check_resource_id(path, resource.resource_id)
    _check_generation(path, resource.generation)
    owner = _OWNERS.get(resource.owner)
    if owner is None:
        raise BadRequest(f"{path}.owner: {resource.owner} is none")
    if not resource.tenant:
        raise BadRequest(f"{path}.tenant: is missing")
    kind = resource.WhichOneof("spec")
    if kind is None or kind not in _READERS:
        raise BadRequest(f"{path}: has no specification: one of {', '.join(_READERS)}")
    read, has_name = _READERS[kind]
    if has_name and not resource.name:
        raise BadRequest(f"{path}.name: is missing")
    if not has_name and resource.name:
        raise BadRequest(f"{path}.name: a {kind} has none")
    specification, take_over = read(f"{path}.{kind}", resource)
    return Resource(
        resource.resource_id,
        resource.generation,
        resource.tenant,
        resource.name,
        specification,
        owner,
        take_over,
    )


# What is declared, and whether it is to be taken over.
Read = tuple[Specification, UUID | bool]


def _read_topic(path: str, resource: messages.Resource) -> Read:
    topic = resource.topic
    if topic.partitions < 1:
        raise BadRequest(f"{path}.partitions: {topic.partitions} is less than 1")
    if not 0 <= topic.replication_factor <= 32767:
        raise BadRequest(
            f"{path}.replication_factor: {topic.replication_factor} is neither 0, for the "
            "cell's default, nor 1 to 32767"
        )
    topic_id = resource.take_over_topic_id
    if len(topic_id) not in (0, TOPIC_ID_BYTES):
        raise BadRequest(
            f"{path}: take_over_topic_id has {len(topic_id)} bytes; a topic id has {TOPIC_ID_BYTES}"
        )
    if resource.take_over:
        raise BadRequest(f"{path}: a topic is taken over by take_over_topic_id")
    specification = TopicSpecification(
        topic.partitions, topic.replication_factor, dict(topic.configs)
    )
    return specification, UUID(bytes=topic_id) if topic_id else False


class _Reader(NamedTuple):
    read: Callable[[str, messages.Resource], Read]
    has_name: bool


# By the field of the specification.
_READERS: Final[Mapping[str, _Reader]] = {
    "topic": _Reader(_read_topic, has_name=True),
}


def _check_batch(path: str, items: Sequence[object]) -> None:
    if not 1 <= len(items) <= BATCH_MAX:
        raise BadRequest(f"{path}: {len(items)} of them; give 1 to {BATCH_MAX}")


def _check_resource_id(path: str, resource_id: str) -> None:
    if not _RESOURCE_ID.fullmatch(resource_id) or len(resource_id) > RESOURCE_ID_CHARACTERS_MAX:
        raise BadRequest(
            f"{path}.resource_id: {resource_id[:RESOURCE_ID_CHARACTERS_MAX]!r} is not 1 to "
            f"{RESOURCE_ID_CHARACTERS_MAX} letters, digits, hyphens and underscores"
        )


def _check_generation(path: str, generation: int) -> None:
    if generation < 1:
        raise BadRequest(f"{path}.generation: {generation} is less than 1")


def _check_distinct(path: str, keys: Sequence[object], what: str) -> None:
    first_of: dict[object, int] = {}
    for index, key in enumerate(keys):
        first = first_of.setdefault(key, index)
        if first != index:
            raise BadRequest(f"{path}[{index}]: has the {what} of {path}[{first}]")
