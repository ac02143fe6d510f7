"""Under which name the image has the configuration of what a request calls so."""

from __future__ import annotations

from data_plane.broker.request.api import RequestContext
from data_plane.cell.metadata import ResourceType


def inside_name(context: RequestContext, resource_type: int, name: str) -> str:
    """Topics and groups are called by their namespace's names, brokers are not."""
    if resource_type == ResourceType.TOPIC:
        return context.topics.inside(name)
    if resource_type == ResourceType.GROUP:
        return context.groups.inside(name)
    return name
