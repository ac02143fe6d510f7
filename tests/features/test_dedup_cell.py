"""Histories of a cell with message ids, and planted bugs that they find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from data_plane.log import log_appends
from data_plane.log.fold import StoredBatch
from data_plane.log.log_state import LogState
from features.dedup import forgetting, judgement
from features.dedup.fold import MessageIds, fold_of
from features.dedup.judgement import DuplicatesOfBatch
from features.dedup.remembered_ids import IdView, RememberedIds, UpkeepJob
from tests.features.dedup_cell import play
from tests.features.dedup_player import use_small_sets

SEEDS = range(40)
# Within which a planted bug is found.
MUTANT_SEEDS_MAX = 60


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short histories have runs, and forget."""
    use_small_sets(monkeypatch)
    monkeypatch.setattr(forgetting, "SLACK_MS", 50)
    monkeypatch.setattr(forgetting, "SWEEP_INTERVAL_MS", 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_id_is_stored_twice_and_nothing_is_lost(seed: int) -> None:
    play(seed)


def test_what_histories_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without these they would show little."""
    merges: list[UpkeepJob] = []
    real = RememberedIds.finish

    def finish(self: RememberedIds, job: UpkeepJob) -> None:
        merges.append(job)
        real(self, job)

    monkeypatch.setattr(RememberedIds, "finish", finish)
    cells = [play(seed) for seed in range(20)]
    sent = [one for cell in cells for one in cell.sent]
    taken = [one for one in sent if one.answered_ms >= 0 and not one.error_code]
    assert len(taken) > 300
    assert len(sent) - len(taken) > 100
    assert sum(one.is_repeated for one in sent) > 20
    dropped = sum(
        broker.services.duplicates.dropped_count  # type: ignore[union-attr]
        for cell in cells
        for broker in cell.cell.brokers.values()
    )
    assert dropped > 200
    assert len(merges) > 50
    assert any(cell.cell.replica(1).leader_epoch > 3 for cell in cells)


# Planted bugs. Each patches real code.

Plant = Callable[[pytest.MonkeyPatch], None]


def a_cut_does_not_make_it_forget(patch: pytest.MonkeyPatch) -> None:
    real = LogState.set_folds

    def set_folds(self: LogState, folds: list[Any]) -> None:
        kept = [one for one in self.folds_if_loaded or () if isinstance(one, MessageIds)]
        others = [one for one in folds if not (kept and isinstance(one, MessageIds))]
        real(self, [*others, *kept])

    patch.setattr(LogState, "set_folds", set_folds)


def a_cut_makes_it_forget_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageIds, "restore", lambda self, pieces: self._begin_anew())
    patch.setattr("data_plane.log.loading.apply_to_folds", lambda *_: None)


def followers_know_no_ids(patch: pytest.MonkeyPatch) -> None:
    real = log_appends.append_as_follower

    def append(log: Any, *args: Any, **options: Any) -> Any:
        flags, log.fold_flags = log.fold_flags, 0
        try:
            return real(log, *args, **options)
        finally:
            log.fold_flags = flags

    patch.setattr("data_plane.log.log.Log.append_as_follower", append)


def what_came_meanwhile_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DuplicatesOfBatch, "holds", lambda self, partition: True)


def the_fold_of_before_the_cut_is_believed(patch: pytest.MonkeyPatch) -> None:
    real = fold_of

    def holds(self: DuplicatesOfBatch, partition: Any) -> bool:
        fold = real(partition.log)
        if fold is not self.fold:
            return True
        return bool(real_holds(self, partition))

    real_holds = DuplicatesOfBatch.holds
    patch.setattr(DuplicatesOfBatch, "holds", holds)


def runs_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    real = IdView.find

    def find(self: IdView, *args: Any) -> Any:
        return real(self._replace(runs=()), *args)

    patch.setattr(IdView, "find", find)


def groups_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IdView, "find_in_memory", lambda self, message_id: self.recent.get(message_id))


def a_merge_keeps_the_oldest(patch: pytest.MonkeyPatch) -> None:
    def newest(self: UpkeepJob, entries: Any) -> Any:
        last = b""
        for entry in entries:
            if entry[0] != last:
                yield entry
            last = entry[0]

    patch.setattr(UpkeepJob, "_newest", newest)


def gaps_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = MessageIds.apply

    def apply(self: MessageIds, batch: StoredBatch) -> None:
        header = batch.header
        closed = header._replace(last_offset_delta=header.record_count - 1)
        real(self, StoredBatch(closed, batch.buf))

    patch.setattr(MessageIds, "apply", apply)


def the_window_is_half_as_long(patch: pytest.MonkeyPatch) -> None:
    real = judgement.Duplicates.prepare

    def prepare(self: Any, look: DuplicatesOfBatch, partition: Any, now_ms: int) -> None:
        real(self, look, partition, now_ms)
        look.since_ms += look.window_ms // 2

    patch.setattr(judgement.Duplicates, "prepare", prepare)


def ids_are_forgotten_before_their_window_is_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(forgetting, "SLACK_MS", -100)


def a_batch_of_duplicates_leaves_no_sequence(patch: pytest.MonkeyPatch) -> None:
    real = DuplicatesOfBatch.judge

    def judge(self: DuplicatesOfBatch, buf: Any, batch: Any) -> Any:
        stored = real(self, buf, batch)
        self.stores_nothing = self.original is not None
        return stored

    patch.setattr(DuplicatesOfBatch, "judge", judge)


def a_filler_has_one_sequence_only(patch: pytest.MonkeyPatch) -> None:
    real = judgement._filler

    def filler(batch: Any) -> bytearray:
        return real(batch._replace(last_offset_delta=0))

    patch.setattr(judgement, "_filler", filler)


def a_batch_is_not_flagged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judgement, "set_flags", lambda *_: None)


def records_without_an_id_are_dropped_too(patch: pytest.MonkeyPatch) -> None:
    real = DuplicatesOfBatch._kept

    def kept(self: DuplicatesOfBatch, record_count: int) -> bytearray:
        found = real(self, record_count)
        with_id = {index for index, _ in self._ids}
        others = bytearray(found[index] and index in with_id for index in range(record_count))
        return others if found.count(0) and any(others) else found

    patch.setattr(DuplicatesOfBatch, "_kept", kept)


def the_base_of_no_run_is_answered(patch: pytest.MonkeyPatch) -> None:
    real = DuplicatesOfBatch._original

    def original(self: DuplicatesOfBatch) -> Any:
        return real(self)._replace(base_offset=self._found[self._ids[0][1]][0])

    patch.setattr(DuplicatesOfBatch, "_original", original)


def a_duplicate_is_acknowledged_before_its_original(patch: pytest.MonkeyPatch) -> None:
    real = DuplicatesOfBatch._original

    def original(self: DuplicatesOfBatch) -> Any:
        return real(self)._replace(last_offset=-1)

    patch.setattr(DuplicatesOfBatch, "_original", original)


@pytest.mark.parametrize(
    "plant",
    [
        a_cut_does_not_make_it_forget,
        a_cut_makes_it_forget_all,
        followers_know_no_ids,
        what_came_meanwhile_is_not_asked_for,
        the_fold_of_before_the_cut_is_believed,
        runs_are_not_asked,
        groups_are_not_asked,
        a_merge_keeps_the_oldest,
        gaps_are_not_counted,
        the_window_is_half_as_long,
        ids_are_forgotten_before_their_window_is_over,
        a_batch_of_duplicates_leaves_no_sequence,
        a_filler_has_one_sequence_only,
        a_batch_is_not_flagged,
        records_without_an_id_are_dropped_too,
        the_base_of_no_run_is_answered,
        a_duplicate_is_acknowledged_before_its_original,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(MUTANT_SEEDS_MAX):
        try:
            play(seed)
        except (AssertionError, ValueError):
            return
    pytest.fail(f"{plant.__name__} is not found")
