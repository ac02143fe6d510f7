"""The port to where a cell's metadata is kept, its errors, and a store in memory.

A store holds one image and the ordered feed of commits that led to it. Writers compare and set:
`apply` names the version that the changes were decided against, and a request id made by the
writer. A writer that lost the answer asks again with the same id and learns that the commit is its
own, instead of making the change twice.

Contract, for every adapter (tests/cell/test_metadata_store.py runs it on each)
- `apply` has either happened completely and durably when it returns, or raises.
- VersionConflict: nothing happened; read the newer image and decide again.
- StoreUnavailable: unknown whether it happened; asking again with the same request id tells.
- The feed has no holes and never changes: commit n+1 follows n.

Deliberately absent until there are several brokers: leases, the controller's epoch as a fence.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from data_plane.cell.changes import Change, apply_changes
from data_plane.cell.metadata import MetadataImage

# A writer asks again within seconds; this many later commits may have gone by until then.
REQUEST_IDS_REMEMBERED = 1024
# A reader that is further behind reads the whole image, which is cheaper by then anyway.
FEED_COMMITS_KEPT = 4096


class StoreError(Exception):
    """Base of the store's faults."""


class VersionConflict(StoreError):
    """Somebody else committed first; the caller decides again on the newer image."""

    def __init__(self, expected_version: int, actual_version: int) -> None:
        super().__init__(
            f"decided against version {expected_version}, the store is at {actual_version}"
        )
        self.expected_version = expected_version
        self.actual_version = actual_version


class StoreUnavailable(StoreError):
    """The store cannot be reached or written; whether the commit happened is unknown."""


class StoreCorrupt(StoreError):
    """What is stored fails its checks. Names file and place; a person has to look at it."""


class FeedTruncated(StoreError):
    """The feed no longer reaches back that far: read the image instead."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the feed: the changes that led from version - 1 to version."""

    version: int
    request_id: str
    changes: tuple[Change, ...]


class MetadataStore(Protocol):
    """See the module's contract. Calls may block: use them off the loop."""

    def read(self) -> MetadataImage: ...

    def apply(
        self, changes: Sequence[Change], expected_version: int, request_id: str
    ) -> MetadataImage:
        """Commit all `changes` and return the image after them.

        A request id that was committed before returns the current image and commits nothing.
        Raises VersionConflict, StoreUnavailable, or InvalidChange (a bug of the caller)."""

    def feed(self, after_version: int) -> Sequence[Commit]:
        """All commits after `after_version`, in order. Raises FeedTruncated."""

    def close(self) -> None: ...


class CommitHistory:
    """The bounded memory of commits that every adapter needs: request ids and the feed."""

    def __init__(self, version: int) -> None:
        self._first_version = version + 1
        self._commits: deque[Commit] = deque()
        self._request_ids: OrderedDict[str, None] = OrderedDict()

    def record(self, commit: Commit) -> None:
        assert commit.version == self._first_version + len(self._commits)
        self._commits.append(commit)
        if len(self._commits) > FEED_COMMITS_KEPT:
            self._commits.popleft()
            self._first_version += 1
        self.remember(commit.request_id)

    def remember(self, request_id: str) -> None:
        self._request_ids[request_id] = None
        if len(self._request_ids) > REQUEST_IDS_REMEMBERED:
            self._request_ids.popitem(last=False)

    def knows(self, request_id: str) -> bool:
        return request_id in self._request_ids

    def request_ids(self) -> list[str]:
        """Oldest first."""
        return list(self._request_ids)

    def after(self, version: int) -> list[Commit]:
        if version + 1 < self._first_version:
            raise FeedTruncated(f"the feed begins after version {self._first_version - 1}")
        skip = version + 1 - self._first_version
        return list(self._commits)[skip:]


class InMemoryMetadataStore:
    """A store without durability, for tests and simulations."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._history = CommitHistory(image.version)

    def read(self) -> MetadataImage:
        return self._image

    def apply(
        self, changes: Sequence[Change], expected_version: int, request_id: str
    ) -> MetadataImage:
        if self._history.knows(request_id):
            return self._image
        if expected_version != self._image.version:
            raise VersionConflict(expected_version, self._image.version)
        self._image = apply_changes(self._image, changes)
        self._history.record(Commit(self._image.version, request_id, tuple(changes)))
        return self._image

    def feed(self, after_version: int) -> Sequence[Commit]:
        return self._history.after(after_version)

    def close(self) -> None:
        pass
