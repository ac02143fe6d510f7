"""What this broker knows of the metadata, and how far it follows it.

    learn(image 8) ─► newest = 8 ─► step, step, step … a millisecond apart ─► services.image = 8
                                                                           ─► who waits for 8

Most images are little work and are followed at once. The others are followed in steps
(image_steps.py), with requests, ticks and other files' work in between. In each step, as with a
whole image, `services.image`, the partitions and the listeners agree when it is over; so a request
sees what it would see at a broker that has heard of part of the changes a little later.

Invariants
- A version is in force when everything that it asks for is done: leaders given up, logs of deleted
  topics taken away, settings taken over. Only then does `services.image` have it.
- What is learnt meanwhile is gone to at once: nobody acts on a state that is known to be over.
- Whoever decides on changes, asks for news, or keeps a copy takes `newest`; nobody writes down
  what lies between two images.
- After `stop` no further step is done. What is left is the next start's.

The first image after one from this broker's own disk is followed in one go: until then nobody can
say which partitions are new, and whose ISR is up to date (topic_partitions.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from data_plane.broker.cell.image_steps import ImageSteps

if TYPE_CHECKING:
    from data_plane.broker.request.timers import Timer
    from data_plane.broker.services import Services
    from data_plane.cell.metadata import MetadataImage

# Requests and heartbeats come first.
STEP_INTERVAL_MS: Final = 1


class ImageApplication:
    """One per broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.newest = services.image
        self._changes_max = services.loop_bounds.image_changes_max
        self._steps: ImageSteps | None = None
        self._timer: Timer | None = None
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._is_stopped = False

    @property
    def is_settled(self) -> bool:
        """Whether `services.image` is `newest`, and all is done that it asks for."""
        return self._steps is None

    def learn(self, image: MetadataImage, now_ms: int) -> None:
        """Go to `image`, if it is newer than what is known."""
        if image.version <= self.newest.version:
            return
        services = self._services
        self.newest = image
        was_settled = self.is_settled
        steps = ImageSteps(services.image, image, services.node_id, self._changes_max)
        if services.partitions.is_image_old or (was_settled and steps.fits_in_one):
            self._follow_whole(image, now_ms)
            return
        self._steps = steps
        if was_settled and not self._is_stopped:
            self._step(now_ms)

    def when_in_force(self, version: int, callback: Callable[[], None]) -> None:
        """Call once `services.image` has that version, perhaps before this returns."""
        if self._services.image.version >= version:
            callback()
        else:
            self._waiting.append((version, callback))

    def stop(self) -> None:
        """Do no more."""
        self._is_stopped = True
        self._cancel_timer()

    def _follow_whole(self, image: MetadataImage, now_ms: int) -> None:
        try:
            self._show(image, now_ms, is_whole=True)
        finally:
            if self._steps is None:
                # Otherwise somebody who was told of it has brought a newer one.
                self._settle()

    def _step(self, now_ms: int) -> None:
        self._timer = None
        steps, services = self._steps, self._services
        if steps is None:
            return
        # Whatever fails in this step, the next one comes.
        due_ms = now_ms + STEP_INTERVAL_MS
        self._timer = services.timers.schedule(due_ms, self._step)
        partitions = services.partitions
        if partitions.has_work_left and not steps.is_urgent:
            services.turns.step(partitions.do_work_left)
            partitions.do_work_left(self._changes_max, now_ms)
            return
        is_last = steps.is_last
        try:
            self._show(steps.next_step(services.image), now_ms, is_whole=False)
        finally:
            if is_last and self._steps is steps:
                self._settle()

    def _show(self, image: MetadataImage, now_ms: int, *, is_whole: bool) -> None:
        services = self._services
        turn_step = services.turns.step
        turn_step(services.apply_image)
        old = services.image
        services.image = image
        services.config.update(image)
        partitions = services.partitions
        turn_step(partitions.apply_image)
        if is_whole:
            partitions.apply_image(image, now_ms)
        else:
            partitions.apply_step(image, now_ms)
        for listener in services.image_listeners:
            turn_step(listener)
            listener(old, image, now_ms)
        turn_step("after an image")

    def _settle(self) -> None:
        self._cancel_timer()
        self._steps = None
        # Equal to what was learnt, and shares what it leaves as it was.
        image = self.newest = self._services.image
        waiting, self._waiting = self._waiting, []
        for version, callback in waiting:
            self.when_in_force(version, callback) if version > image.version else callback()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
