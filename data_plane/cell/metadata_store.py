"""The port to where a cell's metadata is kept, its errors, and a store in memory.

A store holds one image and the ordered feed of commits that led to it. Writers compare and set:
`apply` names the version that the changes were decided against, and a request id made by the
writer. A writer that lost the answer asks again with the same id and learns that the commit is its
own, instead of making the change twice.

Beside the image, and not part of its versions, stand the leases: a session for each broker, and
one for the controller. Who takes the controller lease from somebody else gets a higher epoch, and
a commit that names an epoch is refused once that epoch is no longer the newest: a controller that
was paused past its lease cannot decide anything any more, whatever it believes.

Contract, for every adapter (tests/cell/test_metadata_store.py runs it on each)
- `apply` has either happened completely and durably when it returns, or raises.
- VersionConflict: nothing happened; read the newer image and decide again.
- StaleControllerEpoch: nothing happened; another broker is the controller, or nobody.
- StoreUnavailable: unknown whether it happened; asking again with the same request id tells.
- StoreWentBack: this is not the store that was seen before, or an older state of it; nothing
  happened, and nothing will until an operator has looked at it.
- The feed has no holes and never changes: commit n+1 follows n. Controller epochs never fall in it.
- Leases run by the store's clock. A broker counts its own ones from before it sent the heartbeat,
  so it believes in them for less long than the store does. Where that clock has been set back, the
  next heartbeat cuts the lease to a whole one from then: nobody is kept from it for longer.

Calls may block and may run in several threads at a time: `heartbeat` and `wait` do not queue
behind an `apply`.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from data_plane.cell.acls import AddAcls, RemoveAcls, characters_of
from data_plane.cell.changes import (
    AddPartitions,
    AlterConfigs,
    Change,
    CreateTopic,
    apply_changes,
)
from data_plane.cell.client_quotas import AlterClientQuotas
from data_plane.cell.credentials import PutCredential
from data_plane.cell.declarations import PutDeclaration
from data_plane.cell.features import TooNew
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import PutTenant

# A writer asks again within seconds; this many later commits may have gone by until then.
REQUEST_IDS_REMEMBERED = 1024
# A reader that is further behind reads the whole image, which is cheaper by then anyway.
FEED_COMMITS_KEPT = 4096
# And what they may hold in memory, the latest one excepted: partitions, and 64 characters of a
# setting's value each.
FEED_PARTS_KEPT = 200_000
# The epoch of the controller lease where only one broker can ever hold it.
ONLY_CONTROLLER_EPOCH = 1


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


class StaleControllerEpoch(StoreError):
    """The commit names a controller epoch that is over. Nothing happened."""

    def __init__(self, epoch: int, current_epoch: int) -> None:
        super().__init__(f"controller epoch {epoch} is over, the store is at {current_epoch}")
        self.epoch = epoch
        self.current_epoch = current_epoch


class StoreWentBack(StoreError):
    """The store's identity is another one, or its version lower than one seen before: a restored
    backup, an emptied database, or the wrong one. Going on would undo what was acknowledged."""


class StoreCorrupt(StoreError):
    """What is stored fails its checks. Names file and place; a person has to look at it."""


class StoreTooNew(StoreError):
    """What is stored was written by a version of Tidewheel that knows more than this one."""


class FeedTruncated(StoreError):
    """The feed no longer reaches back that far: read the image instead."""


@contextlib.contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turns what a codec raises on `what` into the store's own errors."""
    try:
        yield
    except TooNew as error:
        raise StoreTooNew(
            f"{what}: {error}, written by a newer Tidewheel: upgrade this broker"
        ) from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise StoreCorrupt(f"{what}: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the feed: the changes that led from version - 1 to version."""

    version: int
    request_id: str
    changes: tuple[Change, ...]
    controller_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerSession:
    """One broker's newest session. `renewals` grows with each heartbeat, over restarts too."""

    node_id: int
    incarnation_id: str
    renewals: int


@dataclass(frozen=True, slots=True)
class ControllerLease:
    """Who is the controller now. `is_ours`: the broker that sent this heartbeat is."""

    node_id: int
    incarnation_id: str
    epoch: int
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the store answers to a heartbeat.

    - `version`: of the store's image.
    - `controller`: None while nobody holds an unexpired lease.
    - `sessions`: by node id, expired ones too: whoever judges them does so by seeing `renewals`
      stand still, because after an outage of the store all are expired and nobody is dead.
    - `store_ms`: the date by the store's clock, read while it answered; 0 where the store has no
      clock but its broker's.
    """

    version: int
    controller: ControllerLease | None
    sessions: Mapping[int, BrokerSession]
    store_ms: int = field(default=0, compare=False)


class MetadataStore(Protocol):
    """See the module's contract. Calls may block: use them off the loop. Every call raises
    StoreUnavailable when the store cannot be reached, and StoreWentBack."""

    @property
    def is_shared(self) -> bool:
        """Whether other brokers use this store too. If not, there is nobody to be told apart
        from: no leases are needed, and every commit in the feed is one's own."""

    @property
    def identity(self) -> str:
        """Which store this is, for as long as its history is one; goes into the image file. Empty
        until a shared store has been reached for the first time."""

    def read(self) -> MetadataImage:
        """The newest image."""

    def apply(
        self,
        changes: Sequence[Change],
        expected_version: int,
        request_id: str,
        *,
        controller_epoch: int | None = None,
    ) -> MetadataImage:
        """Commit all `changes` and return the image after them.

        A request id that was committed before returns the current image and commits nothing.
        With `controller_epoch` the commit is refused unless that lease is the newest one.
        Raises VersionConflict, StaleControllerEpoch, or InvalidChange (a bug of the caller)."""

    def feed(self, after_version: int) -> Sequence[Commit]:
        """All commits after `after_version`, in order. Raises FeedTruncated."""

    def heartbeat(
        self, node_id: int, incarnation_id: str, lease_ms: int, *, wants_controller: bool
    ) -> Heartbeat:
        """Renew the broker's session, and say who lives.

        With `wants_controller` the controller lease is renewed when it is this incarnation's, with
        the same epoch even when it had expired and nobody came; and taken with the next epoch when
        it is free or expired. Without it, a lease of this incarnation is given up at once, and so
        is its epoch."""

    def wait(self, after_version: int, timeout_ms: int) -> bool:
        """Block until there is something newer than `after_version`; False when there is not after
        `timeout_ms`. For a thread of its own. Where a store has no thread to block (in memory, or
        for one broker) the answer comes at once."""

    def close(self) -> None:
        """Let go of everything; a `wait` in another thread returns or raises soon after."""


class CommitHistory:
    """The bounded memory of commits that every adapter needs: request ids and the feed."""

    def __init__(self, version: int) -> None:
        self._first_version = version + 1
        self._commits: deque[Commit] = deque()
        self._parts_count = 0
        self._request_ids: OrderedDict[str, None] = OrderedDict()

    def record(self, commit: Commit) -> None:
        assert commit.version == self._first_version + len(self._commits)
        commits = self._commits
        commits.append(commit)
        self._parts_count += _parts_count(commit)
        while len(commits) > FEED_COMMITS_KEPT or (
            self._parts_count > FEED_PARTS_KEPT and len(commits) > 1
        ):
            self._parts_count -= _parts_count(commits.popleft())
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


def _parts_count(commit: Commit) -> int:
    """How much memory a commit takes, in parts of some hundred bytes."""
    count = 0
    for change in commit.changes:
        count += 1
        if isinstance(change, CreateTopic | AddPartitions):
            count += len(change.assignments)
        if isinstance(change, CreateTopic):
            count += _settings_parts_count(change.configs)
        elif isinstance(change, AlterConfigs):
            count += _settings_parts_count(change.values)
        elif isinstance(change, PutTenant):
            count += _settings_parts_count(tuple(change.tenant.settings.items()))
        elif isinstance(change, AlterClientQuotas):
            count += 1 + len(change.values)
        elif isinstance(change, PutCredential):
            # A verifier has three keys.
            credential = change.credential
            count += 3 * len(credential.verifiers) + len(credential.networks)
        elif isinstance(change, PutDeclaration):
            count += 1 + len(change.declaration.specification) // 64
        elif isinstance(change, AddAcls | RemoveAcls):
            # Three objects each, with texts of 64 characters and more at times.
            count += 3 * len(change.acls)
            count += sum(map(characters_of, change.acls)) // 64
    return count


def _settings_parts_count(values: Sequence[tuple[str, str | None]]) -> int:
    return sum(1 + len(value or "") // 64 for _, value in values)


@dataclass(slots=True)
class _Lease:
    node_id: int
    incarnation_id: str
    epoch: int
    expires_at_ms: int
    lease_ms: int


class InMemoryMetadataStore:
    """A store without durability, for tests and simulations. One thread.

    `now_ms` is the clock that leases run by. Given one, the store is shared by several brokers;
    without, it is one broker's own. Controllers' epochs follow `controller_epoch`."""

    def __init__(
        self,
        image: MetadataImage,
        now_ms: Callable[[], int] | None = None,
        identity: str = "in memory",
        controller_epoch: int = 0,
    ) -> None:
        self._image = image
        self._history = CommitHistory(image.version)
        self._now_ms = now_ms
        self._identity = identity
        self._sessions: dict[int, BrokerSession] = {}
        self._controller_epoch = controller_epoch
        self._controller: _Lease | None = None

    @property
    def is_shared(self) -> bool:
        return self._now_ms is not None

    @property
    def identity(self) -> str:
        return self._identity

    def read(self) -> MetadataImage:
        return self._image

    def apply(
        self,
        changes: Sequence[Change],
        expected_version: int,
        request_id: str,
        *,
        controller_epoch: int | None = None,
    ) -> MetadataImage:
        if self._history.knows(request_id):
            return self._image
        if controller_epoch is not None and (
            self._controller is None or controller_epoch != self._controller.epoch
        ):
            raise StaleControllerEpoch(controller_epoch, self._controller_epoch)
        if expected_version != self._image.version:
            raise VersionConflict(expected_version, self._image.version)
        self._image = apply_changes(self._image, changes)
        commit = Commit(self._image.version, request_id, tuple(changes), controller_epoch)
        self._history.record(commit)
        return self._image

    def feed(self, after_version: int) -> Sequence[Commit]:
        return self._history.after(after_version)

    def heartbeat(
        self, node_id: int, incarnation_id: str, lease_ms: int, *, wants_controller: bool
    ) -> Heartbeat:
        known = self._sessions.get(node_id)
        renewals = 1 if known is None else known.renewals + 1
        self._sessions[node_id] = BrokerSession(node_id, incarnation_id, renewals)
        now_ms = 0 if self._now_ms is None else self._now_ms()
        holder = self._controller
        if holder is not None:
            # Nobody was given more: the clock has been set back since.
            holder.expires_at_ms = min(holder.expires_at_ms, now_ms + holder.lease_ms)
        is_ours = holder is not None and (
            (holder.node_id, holder.incarnation_id) == (node_id, incarnation_id)
        )
        if holder is not None and is_ours:
            if wants_controller:
                holder.expires_at_ms = now_ms + lease_ms
                holder.lease_ms = lease_ms
            else:
                self._controller = None
        elif wants_controller and (holder is None or holder.expires_at_ms <= now_ms):
            self._controller_epoch += 1
            self._controller = _Lease(
                node_id, incarnation_id, self._controller_epoch, now_ms + lease_ms, lease_ms
            )
        return Heartbeat(
            self._image.version,
            self._controller_seen_by(node_id, incarnation_id, now_ms),
            dict(self._sessions),
            now_ms,
        )

    def _controller_seen_by(
        self, node_id: int, incarnation_id: str, now_ms: int
    ) -> ControllerLease | None:
        lease = self._controller
        if lease is None or lease.expires_at_ms <= now_ms:
            return None
        is_ours = (lease.node_id, lease.incarnation_id) == (node_id, incarnation_id)
        return ControllerLease(lease.node_id, lease.incarnation_id, lease.epoch, is_ours)

    def wait(self, after_version: int, timeout_ms: int) -> bool:
        return self._image.version > after_version

    def close(self) -> None:
        pass
