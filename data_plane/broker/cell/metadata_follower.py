"""Keeps this broker's image up with the cell's metadata store, and a copy of it on disk.

Somebody else's commit reaches this broker as an entry of the store's feed. A thread that
waits at the store calls `request_update` when there is one, and heartbeats say which version the
store has. The follower asks by itself when it was told nothing for POLL_INTERVAL_MS. At most one
request is in flight.

    image 7, feed(7) → 8, 9     both, in one step: 9 is the next image
    image 7, feed(7) → 9        a hole: nothing is applied, the whole image is read
    image 7, FeedTruncated      likewise
    image 9, feed(7) → 8, 9     this broker's own commit was faster: nothing to do

Invariants
- The image never goes back. The commits of a feed are applied in order, and the broker sees what
  they come to and nothing between.
- A store that cannot be reached is asked again with growing pauses, and logged once.
- The file holds images that are in force, and is behind while a new one is followed. It is written
  off the loop, one write at a time, and takes a bounded share of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from data_plane.cell.changes import apply_changes
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import Commit, FeedTruncated, MetadataStore, StoreTooNew

if TYPE_CHECKING:
    from data_plane.broker.services import Services

# What a store had to tell: commits in order, or the whole image.
MetadataUpdate = Sequence[Commit] | MetadataImage

POLL_INTERVAL_MS = 2_000
RETRY_MS_MIN = 100
RETRY_MS_MAX = 2_000
# The image on disk may be this much behind, or longer when writing it takes long.
FILE_INTERVAL_MS_MIN = 1_000
FILE_TIME_SHARE_MAX = 0.05


def read_update(store: MetadataStore, version: int) -> MetadataUpdate:
    """What came after `version`; blocks. Raises StoreError."""
    try:
        commits = store.feed(version)
    except FeedTruncated:
        return store.read()
    is_whole = all(commit.version == version + 1 + i for i, commit in enumerate(commits))
    return commits if is_whole else store.read()


def apply_update(services: Services, update: MetadataUpdate, now_ms: int) -> None:
    """Bring the image up to date. What this broker has already costs nothing.

    Several commits are one step: nobody acts on a state that is known to be over. A leader that was
    paused would otherwise commit by an ISR which has shrunk to itself, in the pass in which it
    reads that another one leads."""
    if isinstance(update, MetadataImage):
        services.apply_image(update, now_ms)
        services.commits.learnt(update, None)
        return
    image = services.newest_image
    learnt = []
    for commit in update:
        if commit.version == image.version + 1:
            image = apply_changes(image, commit.changes)
            learnt.append((image, commit.changes))
    try:
        services.apply_image(image, now_ms)
    finally:
        for after, changes in learnt:
            services.commits.learnt(after, changes)


class MetadataFollower:
    """A component; see the module. `write_file(image)` keeps the copy on disk, in a thread."""

    def __init__(
        self,
        services: Services,
        now_ms: Callable[[], int],
        write_file: Callable[[MetadataImage], None],
    ) -> None:
        self._services = services
        self._now_ms = now_ms
        self._write_file = write_file
        self._is_asking = False
        self._is_update_wanted = False
        self._is_stopped = False
        self._next_ms = 0
        self._retry_ms = RETRY_MS_MIN
        self._is_store_down = False
        self._file_version = -1
        self._file_next_ms = 0
        self._is_writing_file = False
        self._is_file_failing = False
        self.outages_count = 0

    @property
    def is_store_down(self) -> bool:
        """Whether the last question found no store."""
        return self._is_store_down

    def start(self, now_ms: int) -> None:
        self._next_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        if self._is_asking:
            return self._file_next_ms if self._is_file_due() else None
        return min(self._next_ms, self._file_next_ms) if self._is_file_due() else self._next_ms

    def tick(self, now_ms: int) -> None:
        if self._is_stopped:
            return
        if not self._is_asking and now_ms >= self._next_ms:
            self._ask()
        if self._is_file_due() and now_ms >= self._file_next_ms:
            self._write(now_ms)

    def stop(self, now_ms: int) -> None:
        """What is under way is waited for by whoever closes the executor; `write_now` is his."""
        self._is_stopped = True

    def note_store_version(self, version: int, now_ms: int) -> None:
        """The store has answered somebody else's question, and was at `version`."""
        if version > self._services.newest_image.version:
            self.request_update()
        elif not self._is_store_down:
            self._next_ms = max(self._next_ms, now_ms + POLL_INTERVAL_MS)

    def request_update(self) -> None:
        """Something newer was committed, as far as the caller knows."""
        if self._is_stopped:
            return
        if self._is_asking:
            self._is_update_wanted = True
        else:
            self._ask()

    def write_now(self) -> None:
        """Bring the file up to date; blocks. For the end, when nothing runs any more."""
        services = self._services
        if services.images.is_settled and self._file_version != services.image.version:
            self._write_file(services.image)
            self._file_version = services.image.version

    def _ask(self) -> None:
        services = self._services
        store, version = services.store, services.newest_image.version
        self._is_asking = True
        self._is_update_wanted = False
        services.store_executor.submit(lambda: read_update(store, version), self._answered)

    def _answered(self, update: MetadataUpdate | None, error: BaseException | None) -> None:
        self._is_asking = False
        if update is None:
            self._failed(error)
            return
        if self._is_store_down:
            self._is_store_down = False
            self._services.log.info(
                "metadata_store_back", version=self._services.newest_image.version
            )
        self._retry_ms = RETRY_MS_MIN
        now_ms = self._now_ms()
        self._next_ms = now_ms + POLL_INTERVAL_MS
        try:
            apply_update(self._services, update, now_ms)
        finally:
            if self._is_update_wanted and not self._is_stopped:
                self._ask()

    def _failed(self, error: BaseException | None) -> None:
        if not self._is_store_down:
            self._is_store_down = True
            self.outages_count += 1
            is_too_new = isinstance(error, StoreTooNew)
            event = "metadata_too_new" if is_too_new else "metadata_store_unavailable"
            self._services.log.error(event, error=repr(error))
        # Pokes do not make a store come back sooner.
        self._is_update_wanted = False
        self._next_ms = self._now_ms() + self._retry_ms
        self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)

    def _is_file_due(self) -> bool:
        # What lies between two images is written down nowhere.
        services = self._services
        is_newer = services.images.is_settled and self._file_version != services.image.version
        return is_newer and not self._is_writing_file

    def _write(self, now_ms: int) -> None:
        image = self._services.image
        self._is_writing_file = True

        def done(nothing: None, error: BaseException | None) -> None:
            self._is_writing_file = False
            took_ms = self._now_ms() - now_ms
            pause_ms = max(FILE_INTERVAL_MS_MIN, int(took_ms / FILE_TIME_SHARE_MAX))
            self._file_next_ms = self._now_ms() + pause_ms
            if error is None:
                self._file_version = image.version
                self._is_file_failing = False
            elif not self._is_file_failing:
                # A full disk stays full for a while, and it is tried again each time.
                self._is_file_failing = True
                self._services.log.error("image_file_not_written", error=repr(error))

        self._services.executor.submit(lambda: self._write_file(image), done)
