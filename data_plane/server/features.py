"""What features bring with them, added up: a part of the composition root that the configuration
needs before anything is made.

A feature is plugged in by the program that runs the broker (`main(arguments, features)`); the data
plane has none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES, TopicProperties
from data_plane.cell.features import SUPPORTED_FEATURES, FeatureRange, SupportedFeatures

if TYPE_CHECKING:
    from data_plane.broker.services import Services
    from data_plane.log.fold import FoldFactory


def _same(properties: TopicProperties) -> TopicProperties:
    return properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Something that the data plane knows nothing of.

    - `levels`: those that it supports of its feature level (data_plane/cell/features.py).
    - `add_properties` adds its topic properties.
    - `fold_factories` make what it keeps of each log.
    - `plug_in` is called with all parts of the broker, once they are made.
    """

    levels: FeatureRange | None = None
    add_properties: Callable[[TopicProperties], TopicProperties] = _same
    fold_factories: Sequence[FoldFactory] = ()
    plug_in: Callable[[Services], None] | None = None


def topic_properties(features: Sequence[Feature] = ()) -> TopicProperties:
    """The properties that topics can have."""
    properties = KAFKA_TOPIC_PROPERTIES
    for feature in features:
        properties = feature.add_properties(properties)
    return properties


def supported_features(features: Sequence[Feature] = ()) -> SupportedFeatures:
    """The levels that this broker supports of each (data_plane/cell/features.py)."""
    added = [feature.levels for feature in features if feature.levels is not None]
    return (*SUPPORTED_FEATURES, *added)
