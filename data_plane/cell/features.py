"""Feature levels: what every broker of a cell is known to understand (KIP-584).

A broker supports a range of levels for each feature by name, and says so when it registers. The
cell has one finalized level for each, in the image. Whoever writes something that not all versions
know asks for the finalized level first; so a broker never meets what it does not understand:

    broker 1   metadata.version 1-3 ┐
    broker 2   metadata.version 1-2 ┼─► at most 2 can be finalized; nothing of level 3 is written
    broker 3   metadata.version 1-2 ┘

Levels of `metadata.version`
- 1: what was written before there were levels. Fields have positions, none can be added. A
  registration has no place for features, so a broker names them at the end of its incarnation id,
  which brokers of that time carry as it is.
- 2: fields by name may follow (metadata.py); partitions have states; registrations name features.
- 3: tenants, and what belongs to them: topics, logins, grants, declarations. In the making until
  the first release; from then on what is new is of a level of its own.

Invariants
- A level is finalized only when every registered broker supports it, in the same commit.
- A broker registers only when it supports all finalized levels.

Deliberately absent: what a feature does. Whoever plugs one in adds its range to what the broker
supports (data_plane/server/features.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

METADATA_VERSION = "metadata.version"
# Topics over other topics (virtual_topics.py), of which a broker at level 0 knows nothing.
VIRTUAL_TOPICS = "tidewheel.virtual.topics"
# Records that are hidden until they are due; a broker at level 0 would show them. Never lowered:
# whether there are any only the logs know.
DELAYED_MESSAGES = "tidewheel.delayed.messages"
# Batches whose message ids count, and records that only keep a sequence; a broker at level 0 would
# show these. Never lowered: whether there are any only the logs know.
DEDUPLICATION = "tidewheel.deduplication"
# Nacks in subscriptions' own partitions, hidden as well; never lowered, either.
RETRIES = "tidewheel.retries"
# What becomes of dead letters, in hidden records of their topics; never lowered, either.
REDRIVES = "tidewheel.redrives"
# Those whose records are in logs for ever.
NEVER_LOWERED = (DELAYED_MESSAGES, DEDUPLICATION, RETRIES, REDRIVES)
# The level of a store that names none, and the one from which on fields by name may follow.
CLOSED_LEVEL = 1
OPEN_LEVEL = 2
# Tenants other than `default`, and who may do what for whom.
TENANCY_LEVEL = 3
NEWEST_LEVEL = TENANCY_LEVEL

_SEPARATOR = ";"


class TooNew(ValueError):
    """Something that was written has a form of which this version knows nothing."""


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports. From 0 to 0: it does not know it."""

    name: str
    min_level: int
    max_level: int

    def __str__(self) -> str:
        if self.min_level == self.max_level:
            return str(self.min_level)
        return f"{self.min_level}-{self.max_level}"

    def has(self, level: int) -> bool:
        return self.min_level <= level <= self.max_level


# By name, each once.
SupportedFeatures = tuple[FeatureRange, ...]

SUPPORTED_FEATURES: SupportedFeatures = (
    FeatureRange(METADATA_VERSION, CLOSED_LEVEL, NEWEST_LEVEL),
)


def range_of(supported: SupportedFeatures, name: str) -> FeatureRange:
    """What a broker supports of a feature. One that names no metadata.version is of the first."""
    for item in supported:
        if item.name == name:
            return item
    level = CLOSED_LEVEL if name == METADATA_VERSION else 0
    return FeatureRange(name, level, level)


def level_of(features: Mapping[str, int], name: str) -> int:
    """The finalized level of a feature; 0 when it is not in use."""
    return features.get(name, CLOSED_LEVEL if name == METADATA_VERSION else 0)


def newest_levels(supported: SupportedFeatures) -> dict[str, int]:
    """What a new cell begins with."""
    return {item.name: item.max_level for item in supported if item.max_level}


def why_unsupported(supported: SupportedFeatures, features: Mapping[str, int]) -> str:
    """Why a broker cannot be one of a cell with these finalized levels; "" when it can."""
    reasons = []
    for name in sorted({METADATA_VERSION, *features}):
        level, known = level_of(features, name), range_of(supported, name)
        if known.has(level):
            continue
        if level < known.min_level:
            advice = "finalize a newer level with the version before this one first"
        else:
            advice = "upgrade this broker"
        range_known = f"supports {known}" if known.max_level else "does not know it"
        reasons.append(f"the cell is at {name} {level}, this broker {range_known}: {advice}")
    return "; ".join(reasons)


def incarnation_with(incarnation_id: str, supported: SupportedFeatures) -> str:
    """An incarnation id that names features, for registrations of level 1.

    >>> incarnation_with("5f", (FeatureRange("metadata.version", 1, 2),))
    '5f;metadata.version=1-2'
    """
    named = [f"{item.name}={item.min_level}-{item.max_level}" for item in supported]
    return _SEPARATOR.join((incarnation_id, *named))


def features_of(incarnation_id: str) -> SupportedFeatures:
    """What `incarnation_with` has put there; nothing of what does not look like that."""
    _, *named = incarnation_id.split(_SEPARATOR)
    found = []
    for item in named:
        name, _, levels = item.partition("=")
        lowest, _, highest = levels.partition("-")
        if name and lowest.isdecimal() and highest.isdecimal():
            found.append(FeatureRange(name, int(lowest), int(highest)))
    return tuple(sorted(found))
