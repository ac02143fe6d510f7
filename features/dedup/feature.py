"""What deduplication plugs into a broker: a property of topics, a fold, the look at what clients
append, and upkeep."""

from __future__ import annotations

from typing import Final

from data_plane.broker.config.topic_properties import TopicProperties
from data_plane.broker.services import Services
from data_plane.cell.features import DEDUPLICATION, FeatureRange
from data_plane.server.features import Feature
from features.dedup.fold import fold_of, make_fold
from features.dedup.forgetting import Forgetting
from features.dedup.judgement import Duplicates
from features.dedup.metrics import DedupMetrics
from features.dedup.window import WINDOW_DEFINITION, go_together


def _add_properties(properties: TopicProperties) -> TopicProperties:
    return properties.with_feature([WINDOW_DEFINITION], checks=[go_together])


def _plug_in(services: Services) -> None:
    forgetting = Forgetting(services)
    services.components.append(forgetting)
    duplicates = Duplicates(services, forgetting.upkeep)
    services.duplicates = duplicates

    def remembered() -> int:
        return sum(len(fold) for log in services.logs.logs() if (fold := fold_of(log)) is not None)

    services.metrics.register(DedupMetrics(remembered, lambda: duplicates.dropped_count))


DEDUP: Final = Feature(
    levels=FeatureRange(DEDUPLICATION, 0, 1),
    add_properties=_add_properties,
    fold_factories=(make_fold,),
    plug_in=_plug_in,
)
