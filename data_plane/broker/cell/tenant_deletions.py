"""Has tenants that are being deleted lose what they have, bit by bit.

It is done by the controller, or by a broker that is alone: a commit at a time, each decided on the
newest metadata. One that fails is made again after RETRY_MS, by whoever is the controller then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from data_plane.cell.tenant_deletion import deleting_tenants, next_removals

if TYPE_CHECKING:
    from data_plane.broker.request.timers import Timer
    from data_plane.broker.services import Services
    from data_plane.cell.metadata import MetadataImage

RETRY_MS: Final = 1_000


class TenantDeletions:
    """A component of every broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._is_busy = False
        self._look_again: Timer | None = None
        services.image_listeners.append(self._image_changed)

    def start(self, now_ms: int) -> None:
        """What was not finished before the start goes on."""
        self._look(now_ms)

    def tick(self, now_ms: int) -> None:
        """What is due is in the broker's timers."""

    def next_deadline_ms(self) -> int | None:
        return None

    def stop(self, now_ms: int) -> None:
        """The next start goes on."""
        self._cancel()

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if new.tenants is not old.tenants or self._look_again is not None:
            self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        services = self._services
        self._cancel()
        if not deleting_tenants(services.newest_image):
            return
        # Also when a commit is under way: it may fail, or another broker become the controller.
        self._look_again = services.timers.schedule(now_ms + RETRY_MS, self._look_due)
        membership = services.membership
        epoch = None if membership is None else membership.controller.epoch
        if self._is_busy or (membership is not None and epoch is None):
            return
        self._is_busy = True
        services.metadata.write(next_removals, self._done, controller_epoch=epoch)

    def _look_due(self, now_ms: int) -> None:
        self._look_again = None
        self._look(now_ms)

    def _done(self, error: BaseException | None) -> None:
        self._is_busy = False
        if error is None and self._look_again is not None:
            # The next bit, in the loop's next pass.
            self._cancel()
            services = self._services
            now_ms = services.metadata.now_ms()
            self._look_again = services.timers.schedule(now_ms, self._look_due)

    def _cancel(self) -> None:
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None
