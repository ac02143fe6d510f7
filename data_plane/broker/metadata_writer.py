"""Commits to the metadata store, one after the other, decided on the newest image.

A store may block, so its `apply` runs in the executor; a decision must not be overtaken by another
commit, so the next one is decided only when the one before has become the current image. Handlers
hand in `decide`, a pure function of the image, and get told when its changes are in force.

Invariants
- `decide` sees the image that its changes are applied to. It runs again when another broker's
  commit came first.
- `on_done` runs on the loop, after `Services.apply_image`.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import VersionConflict

if TYPE_CHECKING:
    from data_plane.broker.services import Services

# Returns the changes to commit; none at all means that the image is already as wanted.
Decide = Callable[[MetadataImage], Sequence[Change]]
# Gets the error when the commit failed or its outcome is unknown, else None.
OnDone = Callable[[BaseException | None], None]

CONFLICT_ATTEMPTS_MAX = 16


class MetadataWriter:
    """The one way to the metadata store. One per broker."""

    def __init__(self, services: Services, now_ms: Callable[[], int]) -> None:
        self._services = services
        self._now_ms = now_ms
        self._queue: deque[tuple[Decide, OnDone]] = deque()
        self._is_busy = False

    def write(self, decide: Decide, on_done: OnDone) -> None:
        """Commit what `decide` wants. `on_done` may be called before this returns."""
        self._queue.append((decide, on_done))
        if not self._is_busy:
            self._next()

    def _next(self) -> None:
        while self._queue and not self._is_busy:
            decide, on_done = self._queue.popleft()
            self._attempt(decide, on_done, 1)

    def _attempt(self, decide: Decide, on_done: OnDone, attempt: int) -> None:
        services = self._services
        image = services.image
        try:
            changes = decide(image)
        except Exception as error:
            on_done(error)
            return
        if not changes:
            on_done(None)
            return
        self._is_busy = True
        request_id = uuid.UUID(int=services.random.getrandbits(128)).hex

        def commit() -> MetadataImage:
            return services.store.apply(changes, image.version, request_id)

        def done(new_image: MetadataImage | None, error: BaseException | None) -> None:
            self._is_busy = False
            if isinstance(error, VersionConflict) and attempt < CONFLICT_ATTEMPTS_MAX:
                services.apply_image(services.store.read(), self._now_ms())
                self._attempt(decide, on_done, attempt + 1)
            else:
                if new_image is not None:
                    services.apply_image(new_image, self._now_ms())
                on_done(error)
            self._next()

        services.executor.submit(commit, done)
