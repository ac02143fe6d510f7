"""The group properties of Apache Kafka 4.3 for consumer groups (KIP-848).

They can be set and read; they take effect with the group protocol that they belong to, which this
broker does not serve yet. Share and streams groups have theirs when they come.
"""

from __future__ import annotations

from types import MappingProxyType

from data_plane.broker.config.definition import at_least, between, by_name, define

_NEW_GROUPS = "only classic consumer groups are served yet"
_HEARTBEAT_MS = (5_000, 15_000)
_SESSION_MS = (45_000, 60_000)

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
        _HEARTBEAT_MS[0],
        "How often members of a group report.",
        between(*_HEARTBEAT_MS),
        moot=_NEW_GROUPS,
    ),
    define(
        "consumer.session.timeout.ms",
        "INT",
        _SESSION_MS[0],
        "How long a member of a group may be silent.",
        between(*_SESSION_MS),
        moot=_NEW_GROUPS,
    ),
)

GROUP_DEFINITIONS = MappingProxyType(by_name(_DEFINITIONS))

# group property → the broker property that gives its default.
GROUP_SYNONYMS = MappingProxyType(
    {name: f"group.{name}" for name in sorted(GROUP_DEFINITIONS)},
)
