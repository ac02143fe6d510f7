"""Administrative requests through librdkafka's admin client, which polls in its own thread."""

from __future__ import annotations

from tidewheel.transport.librdkafka.admin_groups import GroupRequests
from tidewheel.transport.librdkafka.admin_offsets import OffsetRequests
from tidewheel.transport.librdkafka.admin_topics import TopicRequests


class LibrdkafkaAdmin(TopicRequests, GroupRequests, OffsetRequests):
    """An `AdminTransport` over one librdkafka admin client."""
