"""Whose a topic is: what a control plane has declared of it, and what that keeps clients from.

What is declared (the partitions, and the configurations that are named) changes there only; all
else of such a topic is its clients', and a topic that nobody has declared is theirs altogether.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from data_plane.broker.request.refusal import Refusal
from data_plane.cell.declarations import TOPIC_KIND
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class TopicSpecification:
    """What is declared of a topic. `replication_factor` 0: the cell's default, when it is made.
    `partitions` 0: as many as follow from its source."""

    KIND: ClassVar[str] = TOPIC_KIND

    partitions: int
    replication_factor: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """Equal specifications give equal texts."""
        document = {
            "partitions": self.partitions,
            "replication_factor": self.replication_factor,
            "configs": dict(self.configs),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> TopicSpecification:
        document: dict[str, Any] = json.loads(text)
        names = ("partitions", "replication_factor", "configs")
        return cls(*(document[name] for name in names))


def refuse_if_declared(image: MetadataImage, tenant: str, name: str, verb: str) -> None:
    """That a client of `tenant` may do this (a participle) to its topic. Raises Refusal."""
    _refuse(image, tenant, name, f"Topic '{name}'", verb)


def refuse_declared_configs(
    image: MetadataImage, tenant: str, name: str, configs: Iterable[str]
) -> None:
    """That a client of `tenant` may change these configurations of its topic. Raises Refusal."""
    declaration = image.declarations.owner_of(TOPIC_KIND, tenant, name)
    if declaration is None:
        return
    declared = TopicSpecification.from_text(declaration.specification).configs
    owned = sorted(declared.keys() & set(configs))
    if owned:
        _refuse(image, tenant, name, f"{', '.join(owned)} of topic '{name}'", "changed")


def _refuse(image: MetadataImage, tenant: str, name: str, thing: str, verb: str) -> None:
    declaration = image.declarations.owner_of(TOPIC_KIND, tenant, name)
    if declaration is not None:
        raise managed(declaration.resource_id, thing, verb)


def managed(resource_id: str, thing: str, verb: str) -> Refusal:
    """What a Kafka client is told that contradicts a resource."""
    return Refusal(
        ErrorCode.POLICY_VIOLATION,
        f"{thing} cannot be {verb} by a Kafka client: the control plane manages it (resource "
        f"{resource_id}).",
    )
