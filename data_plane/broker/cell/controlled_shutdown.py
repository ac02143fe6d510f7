"""Leaving the cell in good order, before a broker stops serving.

    announce    ChangeBroker(in_controlled_shutdown): the controller moves this broker's leaders to
                other members of their ISRs and takes it out of the ISRs
    wait        until it is in no ISR that has somebody else who could lead
    fence       ChangeBroker(is_fenced): clients are told of it no more, nobody elects it
    release     the controller's lease, if it has it

It goes on serving all the while. The whole takes `controlled.shutdown.timeout.ms` at most, and is
left out when the store cannot be reached: a stop without it is as safe, only less smooth.

Deliberately absent: closing logs and the clean-shutdown mark, which come after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from data_plane.cell.changes import Change, ChangeBroker
from data_plane.cell.metadata import BrokerImage, MetadataImage

if TYPE_CHECKING:
    from data_plane.broker.cell.broker_lifecycle import Membership
    from data_plane.broker.services import Services


def is_needed_elsewhere(image: MetadataImage, node_id: int) -> bool:
    """Whether the broker is still in an ISR in which another one could take over from it."""
    able = {
        broker.node_id
        for broker in image.brokers.values()
        if not broker.is_fenced and not broker.in_controlled_shutdown and broker.node_id != node_id
    }
    return any(
        node_id in partition.isr and not able.isdisjoint(partition.isr)
        for topic in image.topics_by_id.values()
        for partition in topic.partitions
    )


class ControlledShutdown:
    """One departure. `on_done` is called once, with what was not reached, or None."""

    def __init__(
        self,
        services: Services,
        membership: Membership,
        on_done: Callable[[str | None], None],
    ) -> None:
        self._services = services
        self._membership = membership
        self._on_done = on_done
        self._is_done = False
        self._is_waiting = False

    def begin(self, now_ms: int) -> None:
        config, membership = self._services.config, self._membership
        if not config.get_bool("controlled.shutdown.enable"):
            self._finish("controlled.shutdown.enable is false")
        elif not membership.is_registered or membership.is_superseded:
            self._finish("this broker is not registered")
        elif membership.is_store_lost:
            self._finish("the metadata store cannot be reached")
        else:
            deadline_ms = now_ms + config.get_int("controlled.shutdown.timeout.ms")
            self._services.timers.schedule(
                deadline_ms, lambda _: self._finish("not done in controlled.shutdown.timeout.ms")
            )
            self._change(lambda broker: replace(broker, in_controlled_shutdown=True), self._wait)

    def _change(
        self, change: Callable[[BrokerImage], BrokerImage], then: Callable[[], None]
    ) -> None:
        node_id = self._services.node_id
        registered = self._membership.registered

        def decide(image: MetadataImage) -> Sequence[Change]:
            known = image.brokers.get(node_id)
            if known is None or registered is None:
                return ()
            if known.broker_epoch != registered.broker_epoch or change(known) == known:
                return ()
            return (ChangeBroker(change(known)),)

        def done(error: BaseException | None) -> None:
            if error is not None:
                self._finish(repr(error))
            elif not self._is_done:
                then()

        self._services.metadata.write(decide, done)

    def _wait(self) -> None:
        self._is_waiting = True
        self._services.image_listeners.append(lambda old, new, now_ms: self._look())
        self._look()

    def _look(self) -> None:
        if not self._is_waiting or self._is_done:
            return
        if is_needed_elsewhere(self._services.image, self._services.node_id):
            return
        self._is_waiting = False
        self._change(lambda broker: replace(broker, is_fenced=True), self._release)

    def _release(self) -> None:
        self._membership.release_control(lambda: self._finish(None))

    def _finish(self, failure: str | None) -> None:
        if self._is_done:
            return
        self._is_done = True
        self._on_done(failure)
