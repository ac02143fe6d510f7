"""What redriving plugs into a broker: a property, a fold of topics of dead letters, who moves them,
and who is asked to."""

from __future__ import annotations

from typing import Final

from data_plane.broker.services import Services
from data_plane.cell.features import REDRIVES, FeatureRange
from data_plane.server.features import Feature
from features.redrive.asked import AskedOperations
from features.redrive.fold import make_redrives
from features.redrive.limits import add_properties
from features.redrive.metrics import RedriveMetrics
from features.redrive.runner import RedriveRunner


def _plug_in(services: Services) -> None:
    metrics = RedriveMetrics()
    services.metrics.register(metrics)
    runner = RedriveRunner(services, metrics)
    services.components.append(runner)
    services.dead_letter_operations = AskedOperations(services, runner)


REDRIVE: Final = Feature(
    add_properties=add_properties,
    fold_factories=(make_redrives,),
    plug_in=_plug_in,
    levels=FeatureRange(REDRIVES, 0, 1),
)
