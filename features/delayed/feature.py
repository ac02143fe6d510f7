"""What delayed messages plug into a broker: a fold, what readers see, and firing."""

from __future__ import annotations

from typing import Final

from data_plane.broker.services import Services
from data_plane.cell.features import DELAYED_MESSAGES, FeatureRange
from data_plane.server.features import Feature
from features.delayed.firing import Firing
from features.delayed.fold import make_fold
from features.delayed.judging import CommandJudges
from features.delayed.listing import Listing
from features.delayed.visibility import HidingTopics


def _plug_in(services: Services) -> None:
    hiding = HidingTopics(services)
    services.projections.register(hiding)
    services.image_listeners.append(hiding.image_changed)
    firing = Firing(services)
    services.components.append(firing)
    services.pending_messages = Listing()
    services.judges = CommandJudges(services, firing.metrics)


DELAYED: Final = Feature(
    levels=FeatureRange(DELAYED_MESSAGES, 0, 1),
    fold_factories=(make_fold,),
    plug_in=_plug_in,
)
