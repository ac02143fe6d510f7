"""The states of a classic group."""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """Kafka's states, with Kafka's names as values."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
