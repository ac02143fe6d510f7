"""What only some of the cells do besides, each kind drawn from a stream of its own.

A history without an extra is the same as it was before there was that extra: a new one changes
neither the known seeds nor the planted bugs that were found without it.

- bundles: a producer whose requests carry batches of many partitions, of topics that come and go.
- factors: an administrator gives partitions more replicas or fewer, and changes his mind.
- static members: a group whose members have names that outlive their processes.
- slow disks: disks that everybody waits for, some of them for seconds.
- throttles: replicas move under rates that change; half of these cells have no faults.
- drains: an administrator empties brokers and takes them back, in cells of four at least.
- fetch sessions: consumers that name their partitions once (session_reader.py).
- worn disks: reads fail, and descriptors run out (worn_disks.py).
- brief tables: a topic that is compacted and forgets, too (brief_tables.py).
- leaps: a compacted topic with holes of two billion offsets (leaps.py).
- namesakes: topics are deleted and made anew under the same name (namesakes.py).
- undated: a topic whose records do not say when they were made (undated.py).
- settings: what topics keep and promise changes, while brokers begin with old images (settings.py).
- clock errors: clocks are hours and days off, for a moment or for long (clock_errors.py).
- image steps: some brokers follow an image a few partitions at a time (node.py).
- large states: brokers do little in one go, and their groups and requests need pieces
  (large_states.py).
- projections: consumers that are shown every other record (projected_reader.py).
- subscriptions: consumers that read by tags, through filters that change (subscriptions.py).
- pins: logs have a fold that holds on to records, and retention is at work (pin_fold.py).
- undeletes: topics are deleted and come back, or are purged (undeletes.py).
- tenants: two tenants with the same names, whose access changes, and one that comes and goes
  (tenants.py).
- quotas: a tenant has a rate over all brokers (quotas.py); half of these cells have no faults.
- group limits: a tenant may have so many groups, and makes more (group_limits.py).
- delays: messages that are hidden until they are due (delays.py).
- retries: a subscription whose consumers nack (retries.py).
- stalls: something keeps a broker's loop busy for a while, and its threads go on (stalls.py).
"""

from __future__ import annotations

from tests.simulation.world import World

EXTRA_CHANCES = {
    "bundles": 0.2,
    "factors": 0.2,
    "static members": 0.2,
    "slow disks": 0.2,
    "throttles": 0.2,
    "drains": 0.2,
    "fetch sessions": 0.12,
    "stalls": 0.1,
    "image steps": 0.15,
    "settings": 0.12,
    "clock errors": 0.12,
    "undated": 0.1,
    "namesakes": 0.1,
    "leaps": 0.06,
    "brief tables": 0.1,
    "large states": 0.1,
    "worn disks": 0.1,
    "projections": 0.1,
    "subscriptions": 0.12,
    "pins": 0.1,
    "undeletes": 0.12,
    "tenants": 0.1,
    "quotas": 0.12,
    "delays": 0.1,
    "retries": 0.1,
    "group limits": 0.1,
}


def draw_extras(world: World) -> frozenset[str]:
    """The extras of a cell, by its seed."""
    return frozenset(
        name
        for name, chance in EXTRA_CHANCES.items()
        if world.stream(f"extra {name}").random() < chance
    )
