"""All features of this version, as the broker's program plugs them in."""

from __future__ import annotations

from typing import Final

from data_plane.broker.config.topic_properties import TopicProperties
from data_plane.cell.virtual_topics import HEADERS_PROPERTY
from data_plane.server.features import Feature
from features.dedup.feature import DEDUP
from features.delayed.feature import DELAYED
from features.filtering.feature import FILTERING
from features.headers import HEADERS_DEFINITION, make_rules
from features.redrive.feature import REDRIVE
from features.retry_dlq.feature import RETRY


def _add_headers(properties: TopicProperties) -> TopicProperties:
    return properties.with_feature(
        [HEADERS_DEFINITION], record_rules=make_rules, fixed=[HEADERS_PROPERTY]
    )


HEADERS: Final = Feature(add_properties=_add_headers)

FEATURES: Final = (HEADERS, FILTERING, DELAYED, DEDUP, RETRY, REDRIVE)
