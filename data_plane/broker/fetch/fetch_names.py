"""The names in a Fetch, by hand: its bytes are not worth message objects.

Within Fetch, sessions included, topics have the names that they have inside; where those are the
client's anyway nothing is done. Ids of topics stay as they are: whether one is of the client's
namespace is asked when its partition is looked up (fetch_rights.py).
"""

from __future__ import annotations

from data_plane.broker.request.api import RequestContext
from data_plane.wire.kernel_types import FetchRequestView

# From here on topics are named by their ids alone.
TOPIC_IDS_VERSION = 13


def inside_view(context: RequestContext, view: FetchRequestView) -> FetchRequestView:
    """The request, with the names that are inside."""
    if context.names.is_identity or context.api_version >= TOPIC_IDS_VERSION:
        return view
    inside = context.topics.inside
    return view._replace(
        topics=[topic._replace(name=inside(topic.name)) for topic in view.topics],
        forgotten_topics=[gone._replace(name=inside(gone.name)) for gone in view.forgotten_topics],
    )


def outside_name(context: RequestContext, name: str) -> str:
    """What an answer calls a topic."""
    if context.names.is_identity or context.api_version >= TOPIC_IDS_VERSION:
        return name
    return context.topics.outside(name)
