"""What features bring with them, added up: a part of the composition root that the configuration
needs before anything is made.

There are no features yet; each will be a line here and in composition.py."""

from __future__ import annotations

from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES, TopicProperties
from data_plane.cell.features import SUPPORTED_FEATURES, SupportedFeatures


def topic_properties() -> TopicProperties:
    """The properties that topics of this product can have."""
    return KAFKA_TOPIC_PROPERTIES


def supported_features() -> SupportedFeatures:
    """The levels that this version supports of each (data_plane/cell/features.py)."""
    return SUPPORTED_FEATURES
