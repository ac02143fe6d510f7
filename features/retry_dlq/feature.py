"""What retries plug into a broker: properties of subscriptions, two folds of their own logs and one
of the topics of dead letters, who takes what their readers send, who sends dead letters on, and
whether retries pause.
"""

from __future__ import annotations

from typing import Final

from data_plane.broker.services import Services
from data_plane.cell.features import RETRIES, FeatureRange
from data_plane.server.features import Feature
from features.retry_dlq.arrivals import make_arrivals
from features.retry_dlq.breakers import Breakers
from features.retry_dlq.delays import make_delays, make_nacks
from features.retry_dlq.metrics import RetryMetrics
from features.retry_dlq.sender import DeadLetterSender
from features.retry_dlq.settings import add_properties
from features.retry_dlq.taker import RetryTaker
from features.retry_dlq.upkeep import RetryUpkeep


def _plug_in(services: Services) -> None:
    breakers = Breakers(services)
    metrics = RetryMetrics(breakers)
    services.metrics.register(metrics)
    services.taker = RetryTaker(services, metrics, breakers)
    services.firing_gate = breakers
    services.on_sent = breakers.sent
    services.components.append(breakers)
    services.components.append(DeadLetterSender(services, metrics))
    services.components.append(RetryUpkeep(services))


RETRY: Final = Feature(
    add_properties=add_properties,
    fold_factories=(make_delays, make_nacks, make_arrivals),
    plug_in=_plug_in,
    levels=FeatureRange(RETRIES, 0, 1),
)
