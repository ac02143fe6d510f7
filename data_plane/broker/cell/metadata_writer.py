"""Commits to the metadata store, decided on the newest image, several in one.

A store may block, so its `apply` runs in an executor, one call at a time. Handlers hand in
`decide`, a pure function of the image, and get told when its changes are in force. What is asked
for while a commit is under way is decided together with the next one:

    queue      create a     create b     create a again     (controller epoch 7) move p
    commit 1   [CreateTopic a, CreateTopic b]    the third decided on a draft that has a: it fails
    commit 2   [ChangePartition p]               alone, for it names a controller epoch

Invariants
- `decide` sees the image that its changes are applied to, as the decisions before it in the same
  commit leave it. All of a commit are decided anew when another broker's commit came first.
- A decision that raises fails alone. It is told so only when the image it was decided on is known
  to be the store's: a cell's other brokers may have committed what this one has not seen yet.
- A commit whose answer was lost is asked for again with the same request id, until its outcome is
  known or its callers have been given StoreUnavailable: then, and only then, it is unknown.
- `on_done` runs on the loop when the changes are in force (`services.image` has them).
- Whoever is told an error has been decided once before, if only to throw the changes away: answers
  are made of what decisions have noted, one result for each thing that was asked for.
- Decisions of different controller epochs are never in one commit. The cell's own keep their order,
  and so do those of each tenant (waiting_writes.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from data_plane.broker.cell.metadata_follower import MetadataUpdate, apply_update, read_update
from data_plane.broker.cell.waiting_writes import (
    COST_MAX,
    Decide,
    OnDone,
    TooManyWaiting,
    WaitingWrites,
    Wanted,
)
from data_plane.cell.authors import Author, NameAuthor
from data_plane.cell.changes import Change, apply_changes
from data_plane.cell.features import TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import StoreUnavailable, VersionConflict

if TYPE_CHECKING:
    from data_plane.broker.services import Services

# More would make one commit, and the pass that decides it, long.
DECISIONS_PER_COMMIT_MAX = 256
# How long a caller waits for a store that cannot be reached; clients wait for 30 s by default.
OUTCOME_TIMEOUT_MS = 15_000
RETRY_MS_MIN = 50
RETRY_MS_MAX = 1_000


@dataclass(slots=True)
class _Commit:
    """Decisions that go together, and what they came to: `changes` lead from `base` to `image`."""

    wanted: list[Wanted]
    base: MetadataImage
    image: MetadataImage
    request_id: str
    changes: list[Change] = field(default_factory=list)
    # Whose changes the next ones would be taken for.
    author: Author | None = None
    retry_ms: int = RETRY_MS_MIN


class MetadataWriter:
    """The one way to change the metadata. One per broker."""

    def __init__(self, services: Services, now_ms: Callable[[], int]) -> None:
        self._services = services
        self._now_ms = now_ms
        self._waiting = WaitingWrites()
        # A commit, or the question whether one is needed, is under way.
        self._is_busy = False
        self._is_looping = False
        # It goes on in another turn.
        self._is_due = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or waiting."""
        return not self._is_busy and not self._waiting

    def now_ms(self) -> int:
        """The steady time, for what is decided when its turn has come."""
        return self._now_ms()

    def write(
        self,
        decide: Decide,
        on_done: OnDone,
        controller_epoch: int | None = None,
        deadline_ms: int | None = None,
        *,
        author: Author | None = None,
        cost: int = 1,
    ) -> None:
        """Commit what `decide` wants. `on_done` may be called before this returns.

        `author` is who asked for it, for those who follow the feed; None: the cell itself. `cost`
        is about how many things `decide` goes through: many long ones do not go together. With a
        `controller_epoch` the store refuses the commit (StaleControllerEpoch) when that is not the
        current one. A store that cannot be reached is asked until `deadline_ms`, or for
        OUTCOME_TIMEOUT_MS. Other errors: what `decide` raised; StoreUnavailable, when the outcome
        is unknown; VersionConflict, when others were faster all the time; TooManyWaiting, when the
        author's tenant asks for too much; and what a store raises that is damaged."""
        latest_ms = self._now_ms() + OUTCOME_TIMEOUT_MS
        deadline_ms = latest_ms if deadline_ms is None else min(deadline_ms, latest_ms)
        wanted = Wanted(decide, on_done, controller_epoch, deadline_ms, author, cost)
        try:
            self._waiting.add(wanted)
        except TooManyWaiting as error:
            self._answer([wanted], error)
            return
        self._next()

    def _next(self) -> None:
        if self._is_looping:
            # Called by what this loop has called: it goes on there.
            return
        self._is_looping = True
        cost = 0
        try:
            while self._waiting and not self._is_busy and cost < COST_MAX:
                self._is_busy = True
                wanted = self._waiting.take(DECISIONS_PER_COMMIT_MAX)
                cost += sum(item.cost for item in wanted)
                self._attempt(wanted)
        finally:
            self._is_looping = False
        if self._waiting and not self._is_busy and not self._is_due:
            # Nothing had to be committed. The rest is decided in another turn of the loop.
            self._is_due = True
            self._services.timers.schedule(self._now_ms(), self._go_on)

    def _go_on(self, now_ms: int) -> None:
        self._is_due = False
        self._next()

    def _attempt(self, wanted: list[Wanted]) -> None:
        """Decide all on the image of now, and commit or, without changes, conclude."""
        services = self._services
        base = services.newest_image
        request_id = uuid.UUID(int=services.random.getrandbits(128)).hex
        commit = _Commit(wanted, base, base, request_id)
        for item in wanted:
            item.is_decided = True
            try:
                changes = item.decide(commit.image)
                if changes:
                    changes = _named(commit, item.author, changes)
                    # A commit is one version, however many decisions are in it.
                    draft = replace(commit.image, version=base.version)
                    commit.image = apply_changes(draft, changes)
                    commit.changes += changes
                    commit.author = item.author
                item.failure = None
            except Exception as error:
                item.failure = error
        if commit.changes:
            self._submit(commit)
        elif services.store.is_shared:
            self._confirm(commit)
        else:
            self._conclude_in_force(wanted, base.version)

    def _submit(self, commit: _Commit) -> None:
        services = self._services

        def apply() -> MetadataImage:
            return services.store.apply(
                commit.changes,
                commit.base.version,
                commit.request_id,
                controller_epoch=commit.wanted[0].controller_epoch,
            )

        def done(image: MetadataImage | None, error: BaseException | None) -> None:
            if error is None:
                self._committed(commit)
            elif isinstance(error, VersionConflict):
                self._catch_up(commit)
            elif isinstance(error, StoreUnavailable) and services.store.is_shared:
                self._retry(commit, error, self._submit)
            else:
                self._conclude(commit.wanted, error)

        services.store_executor.submit(apply, done)

    def _committed(self, commit: _Commit) -> None:
        """The commit is the version after its base, whatever came after it. The follower may have
        brought it already; if not, the draft is it, and shares what it leaves as it was."""
        try:
            self._services.apply_image(commit.image, self._now_ms())
        finally:
            self._services.commits.learnt(commit.image, commit.changes)
            self._conclude_in_force(commit.wanted, commit.image.version)

    def _catch_up(self, commit: _Commit) -> None:
        """Another commit came first: learn it and decide again."""

        def learnt() -> None:
            conflict = VersionConflict(commit.base.version, self._services.newest_image.version)
            waiting = self._answer_overdue(commit.wanted, conflict)
            if waiting:
                self._attempt(waiting)
            else:
                self._finish()

        self._read_news(learnt, lambda error: self._retry(commit, error, self._catch_up))

    def _confirm(self, commit: _Commit) -> None:
        """Nothing to commit: make sure that this was decided on what the store has."""

        def learnt() -> None:
            if self._services.newest_image is commit.base:
                self._conclude_in_force(commit.wanted, commit.base.version)
            else:
                self._attempt(commit.wanted)

        # While the store cannot be reached nothing changes: what this broker knows is in force.
        self._read_news(
            learnt, lambda error: self._conclude_in_force(commit.wanted, commit.base.version)
        )

    def _read_news(
        self, on_learnt: Callable[[], None], on_error: Callable[[BaseException], None]
    ) -> None:
        services = self._services
        store, version = services.store, services.newest_image.version

        def done(update: MetadataUpdate | None, error: BaseException | None) -> None:
            if update is None:
                assert error is not None
                on_error(error)
                return
            try:
                apply_update(services, update, self._now_ms())
            finally:
                on_learnt()

        services.store_executor.submit(lambda: read_update(store, version), done)

    def _retry(
        self, commit: _Commit, error: BaseException, again: Callable[[_Commit], None]
    ) -> None:
        """Do a step again a little later, for those whose time is not over."""
        if not isinstance(error, StoreUnavailable):
            self._conclude(commit.wanted, error)
            return
        self._answer(self._waiting.take_overdue(self._now_ms()), error)
        if not self._answer_overdue(commit.wanted, error):
            self._finish()
            return
        due_ms = self._now_ms() + commit.retry_ms
        commit.retry_ms = min(2 * commit.retry_ms, RETRY_MS_MAX)
        self._services.timers.schedule(due_ms, lambda now_ms: again(commit))

    def _answer_overdue(self, wanted: list[Wanted], error: BaseException) -> list[Wanted]:
        """Give `error` to those that have waited too long; returns the others."""
        now_ms = self._now_ms()
        self._answer([item for item in wanted if item.deadline_ms <= now_ms], error)
        return [item for item in wanted if item.deadline_ms > now_ms]

    def _conclude_in_force(self, wanted: list[Wanted], version: int) -> None:
        """They are done when this broker follows that version. Until then nothing else is decided:
        an image that takes long is followed before the next one is made."""
        self._services.images.when_in_force(version, lambda: self._conclude(wanted, None))

    def _conclude(self, wanted: list[Wanted], error: BaseException | None) -> None:
        self._answer(wanted, error)
        self._finish()

    def _answer(self, wanted: list[Wanted], error: BaseException | None) -> None:
        for item in wanted:
            if item.is_answered:
                continue
            item.is_answered = True
            if not item.is_decided:
                self._decide_in_vain(item)
            try:
                item.on_done(error or item.failure)
            except Exception as failure:
                # The others have a right to their answers, and the queue to its next commit.
                self._services.log.error("metadata_callback_failed", error=repr(failure))

    def _decide_in_vain(self, item: Wanted) -> None:
        """Have it note what it would have done, which nobody commits any more."""
        item.is_decided = True
        try:
            item.decide(self._services.newest_image)
        except Exception as error:
            item.failure = error

    def _finish(self) -> None:
        self._is_busy = False
        self._next()


def _named(commit: _Commit, author: Author | None, changes: Sequence[Change]) -> Sequence[Change]:
    """A decision's changes, behind their author's name where they would be taken for another's."""
    if author == commit.author or commit.image.metadata_level < TENANCY_LEVEL:
        return changes
    return [NameAuthor(author), *changes]
