"""The group properties of Apache Kafka 4.3 for consumer groups (KIP-848).

They can be set and read; they take effect with the group protocol that they belong to, which this
broker does not serve yet. Share and streams groups have theirs when they come.
"""

from __future__ import annotations

from types import MappingProxyType

from data_plane.broker.config.definition import at_least, by_name, define

_NEW_GROUPS = "only classic consumer groups are served yet"

_DEFINITIONS = (
    define(
        "consumer.assignment.interval.ms",
        "INT",
        1000,
        "The shortest time between two assignments of a group.",
        at_least(0),
        moot=_NEW_GROUPS,
    ),
    define(
        "consumer.heartbeat.interval.ms",
        "INT",
        5_000,
        "How often members of a group report.",
        at_least(1),
        moot=_NEW_GROUPS,
    ),
    define(
        "consumer.session.timeout.ms",
        "INT",
        45_000,
        "How long a member of a group may be silent.",
        at_least(1),
        moot=_NEW_GROUPS,
    ),
)

GROUP_DEFINITIONS = MappingProxyType(by_name(_DEFINITIONS))

# group property → the broker property that gives its default.
GROUP_SYNONYMS = MappingProxyType(
    {name: f"group.{name}" for name in sorted(GROUP_DEFINITIONS)},
)

# group property → the broker properties that bound it, the lower one first.
GROUP_BOUNDS = MappingProxyType(
    {
        "consumer.heartbeat.interval.ms": (
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
        "consumer.session.timeout.ms": (
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
        ),
    }
)
