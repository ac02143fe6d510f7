"""What a starting broker commits, as a pure function of the image."""

from __future__ import annotations

from dataclasses import replace

from data_plane.cell.changes import Change, RegisterBroker
from data_plane.cell.metadata import BrokerImage, MetadataImage


def decide_registration(image: MetadataImage, broker: BrokerImage) -> tuple[Change, ...]:
    """What a starting broker commits: nothing when it is registered as it is."""
    known = image.brokers.get(broker.node_id)
    if known is not None and replace(known, broker_epoch=broker.broker_epoch) == broker:
        return ()
    return (RegisterBroker(broker),)
