"""Whether records that are to be hidden are taken now, and by what date.

A record that is hidden until it is due needs brokers that all hide it and, where its time counts
from now, a clock that agrees with those of the others.

Deliberately absent: which records these are (rules of a feature), and what is done with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_plane.cell.features import DELAYED_MESSAGES, level_of
from data_plane.log.record_rules import HidingTerms

if TYPE_CHECKING:
    from data_plane.broker.services import Services


def hiding_terms(services: Services, now_ms: int) -> HidingTerms:
    """For a batch that is looked at now."""
    refusal = ""
    if level_of(services.image.features, DELAYED_MESSAGES) < 1:
        refusal = f"delayed messages need the feature {DELAYED_MESSAGES} at level 1"
    return HidingTerms(refusal, trusted_wall_ms(services, now_ms))


def trusted_wall_ms(services: Services, now_ms: int) -> int | None:
    """The date, for what is due by it; None while this clock is too far from the store's, or nobody
    knows how far."""
    skew_ms = services.wall_clock.skew_ms
    if skew_ms is None or skew_ms > services.config.get_int("clock.skew.max.ms"):
        return None
    return services.wall_clock.wall_ms(now_ms)
