"""A broker as the metadata image has it: where it is reached, and what state it is in.

The encoded form follows the image's metadata.version, as all of it does (metadata.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from data_plane.cell.features import (
    OPEN_LEVEL,
    FeatureRange,
    SupportedFeatures,
    features_of,
)
from data_plane.cell.named_fields import split_named, unknown_in, unknown_named


class Endpoint(NamedTuple):
    """Where clients of one listener reach a broker; the name is the listener's."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker, where clients and where other brokers reach it.

    - `broker_epoch`: the version of the commit that registered this incarnation; a request that
      names another one comes from a broker that has been started again since.
    - `incarnation_id`: made anew at each start of the process: 32 hexadecimal digits, and for
      registrations of level 1 the features.
    - `host_id`: brokers with equal ones fail together (one machine); "" stands for `host`.
    - `is_fenced`: it neither leads nor joins an ISR, and clients are not told of it.
    - `in_controlled_shutdown`: it is about to stop, its leaders move away.
    - `is_draining`: it gets no new replicas and its old ones move away, for good.
    - `dead_ms`: for how long controllers have seen this incarnation dead, as last noted.
    - `features`: the levels that it supports.
    - `listeners`: all addresses for clients, by name, if there are several. `host` and `port` are
      those of the first one.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    inter_broker_host: str = ""
    inter_broker_port: int = 0
    host_id: str = ""
    incarnation_id: str = ""
    broker_epoch: int = 0
    is_fenced: bool = False
    in_controlled_shutdown: bool = False
    is_draining: bool = False
    dead_ms: int = 0
    features: SupportedFeatures = ()
    unknown_fields: str = ""
    listeners: tuple[Endpoint, ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where clients of this listener reach it; None when it has no such listener."""
        if not self.listeners:
            return Endpoint(listener, self.host, self.port)
        for endpoint in self.listeners:
            if endpoint.name == listener:
                return endpoint
        return None


def encode_broker(broker: BrokerImage, level: int) -> list[Any]:
    """JSON-ready, in the form of that metadata.version."""
    fields = [
        broker.node_id,
        broker.host,
        broker.port,
        broker.rack,
        broker.inter_broker_host,
        broker.inter_broker_port,
        broker.host_id,
        broker.incarnation_id,
        broker.broker_epoch,
        broker.is_fenced,
        broker.in_controlled_shutdown,
        broker.is_draining,
        broker.dead_ms,
    ]
    if level < OPEN_LEVEL:
        return fields
    named = unknown_named(broker.unknown_fields)
    if broker.features:
        named["features"] = {name: [lowest, most] for name, lowest, most in broker.features}
    if broker.listeners:
        named["listeners"] = [list(endpoint) for endpoint in broker.listeners]
    return [*fields, named] if named else fields


def decode_broker(item: Sequence[Any]) -> BrokerImage:
    """The inverse of `encode_broker`, for all levels."""
    fields, named = split_named(item)
    broker = BrokerImage(*fields)
    if "features" in named:
        ranges = named["features"].items()
        features = tuple(sorted(FeatureRange(name, *levels[:2]) for name, levels in ranges))
    else:
        features = features_of(broker.incarnation_id)
    if not features and not named:
        return broker
    return replace(
        broker,
        features=features,
        unknown_fields=unknown_in(named, "features", "listeners"),
        listeners=tuple(Endpoint(*endpoint) for endpoint in named.get("listeners", ())),
    )
