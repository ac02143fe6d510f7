"""Operations of a log of dead letters, and what has become of these, as a fold of the log itself.

    stored record     in the fold
    begin             one more operation
    step              how far it is; what its plan has is redriven from now on
    wish              what is asked of it last

It looks at HIDDEN batches. A record that speaks of an operation whose beginning is not there any
more says nothing.

Invariants
- One operation is active at most: a beginning in spite of that is passed over.
- What is planned counts as redriven before it is sent, and until a step says that it never was.
- The log needs the beginning of the active operation, and what comes behind (`needed_from`).
- Compaction leaves a log as it is that has any of this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from data_plane.broker.dead_letter_operations import Counts, Wish
from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, HoldsAll, RecordHold, SnapshotFile, StoredBatch
from data_plane.log.log import Log
from data_plane.wire.kernel import scan_headers
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import Record, unpacked_records
from features.fold_manifest import CRC_BYTES, sealed
from features.redrive.marks import Marks
from features.redrive.operations import (
    OPERATION_HEADER,
    Operation,
    Plan,
    bits_from,
    bits_json,
    order_of,
    plan_json,
    plan_of,
)

# Of those that are over; the others are forgotten, the oldest first.
ENDED_MAX: Final = 20
_MAGIC: Final = "TWREDRV1"


class Redrives:
    """The fold of one log."""

    extension = ".redrives"
    batch_flags = HIDDEN_FLAG

    def __init__(self) -> None:
        # In the order in which they began.
        self.operations: dict[str, Operation] = {}
        self.redriven = Marks()
        self.purged = Marks()

    def __len__(self) -> int:
        return len(self.operations) + len(self.redriven) + len(self.purged)

    @property
    def active(self) -> Operation | None:
        return next((one for one in reversed(self.operations.values()) if one.is_active), None)

    def apply(self, batch: StoredBatch) -> None:
        if not _is_said_in(batch):
            return
        epoch = batch.header.partition_leader_epoch
        for record in batch.records:
            if OPERATION_HEADER in dict(record.headers):
                self._take(record, epoch)

    def _take(self, record: Record, epoch: int) -> None:
        said = json.loads(record.value or b"")
        match said["say"]:
            case "begin":
                self._begin(said["order"], (epoch, record.offset), record.timestamp)
            case "wish":
                known = self.operations.get(said["id"])
                if known is not None and known.is_active:
                    self._replace(known._replace(wish=Wish(said["wish"])))
            case "step":
                known = self.operations.get(said["id"])
                if known is not None:
                    self._step(known, said, record)

    def _begin(self, said: dict[str, Any], number: tuple[int, int], wall_ms: int) -> None:
        order = order_of(said)
        if self.active is not None:
            return
        # One of this id that is over is not known any more to the leader that has written this: it
        # has less of the log.
        self.operations.pop(order.id, None)
        self._replace(
            Operation(order, number, wall_ms, Wish.RUN, order.first_offset, Counts(), None)
        )
        over = [one for one in self.operations if not self.operations[one].is_active]
        for one in over[: max(0, len(over) - ENDED_MAX)]:
            del self.operations[one]

    def _step(self, known: Operation, said: dict[str, Any], record: Record) -> None:
        if said["void"] and known.plan is not None:
            # But for those that an earlier operation has moved.
            assert known.plan.fresh is not None
            self.redriven.remove(known.plan.fresh)
        plan = plan_of(said["plan"], record.offset) if "plan" in said else None
        if plan is not None:
            plan = plan._replace(fresh=self.redriven.missing(plan.letters))
            self.redriven.add(plan.letters)
        if "purged" in said:
            self.purged.add(bits_from(said["purged"]))
        stepped = known._replace(
            cursor=said["cursor"], counts=Counts(*said["counts"]), plan=plan, ended=said["ended"]
        )
        if stepped.ended:
            stepped = stepped._replace(ended_ms=record.timestamp)
        self._replace(stepped)

    def _replace(self, operation: Operation) -> None:
        self.operations[operation.order.id] = operation

    # What it holds on to

    def needed_from(self, start_offset: int) -> int | None:
        active = self.active
        return None if active is None else active.number[1]

    @property
    def due_ms(self) -> int | None:
        """An active operation goes on at any time."""
        active = self.active
        return 0 if active is not None and active.has_work else None

    def held_from(self, start_offset: int) -> int | None:
        # Its records have no key: compaction would leave none of them.
        return start_offset if len(self) else None

    def freeze_held(self) -> RecordHold:
        return HoldsAll()

    def facts_in(self, batch: StoredBatch) -> bytes | bool:
        return _is_said_in(batch)

    # Snapshots

    def snapshot(self) -> bytes:
        return _encode(list(self.operations.values()), self.redriven, self.purged)

    def freeze(self) -> FrozenRedrives:
        return FrozenRedrives(self)

    def restore(self, pieces: Iterable[Buffer]) -> None:
        self.operations, self.redriven, self.purged = {}, Marks(), Marks()
        data = b"".join(pieces)
        if not data:
            return
        if len(data) < CRC_BYTES or sealed([data[:-CRC_BYTES]]) != data:
            raise ValueError("the snapshot is torn: its crc is not that of its bytes")
        said = json.loads(data[:-CRC_BYTES])
        if said["magic"] != _MAGIC:
            raise ValueError("the snapshot is of another version")
        for one in said["operations"]:
            self._replace(_operation_of(one))
        self.redriven, self.purged = _marks_of(said["redriven"]), _marks_of(said["purged"])


class FrozenRedrives:
    """The fold as it was."""

    def __init__(self, fold: Redrives) -> None:
        self._operations = list(fold.operations.values())
        self._redriven, self._purged = fold.redriven.copy(), fold.purged.copy()

    def write(self, file: SnapshotFile) -> None:
        file.write_at(0, _encode(self._operations, self._redriven, self._purged))

    def close(self) -> None:
        self._operations, self._redriven, self._purged = [], Marks(), Marks()


def make_redrives(context: FoldContext) -> Redrives | None:
    """For all topics that may be a subscription's for dead letters: those that read headers."""
    rules = context.config.record_rules
    return None if rules is None or rules.takes_commands else Redrives()


def redrives_of(log: Log) -> Redrives | None:
    """The log's fold; None when it has none, or is not loaded."""
    for fold in log.folds_if_loaded or ():
        if isinstance(fold, Redrives):
            return fold
    return None


def _is_said_in(batch: StoredBatch) -> bool:
    header = batch.header
    if not header.attributes & HIDDEN_FLAG:
        return False
    place = unpacked_records(batch.buf, header)
    found = scan_headers(*place, header.record_count, OPERATION_HEADER)
    return any(key == OPERATION_HEADER for _, key, _ in found)


def _encode(operations: list[Operation], redriven: Marks, purged: Marks) -> bytes:
    said = {
        "magic": _MAGIC,
        "operations": [_operation_json(one) for one in operations],
        "redriven": _marks_json(redriven),
        "purged": _marks_json(purged),
    }
    return sealed([json.dumps(said, separators=(",", ":")).encode()])


def _operation_json(one: Operation) -> dict[str, Any]:
    order = one.order._asdict() | {"selection": one.order.selection._asdict()}
    plan = None
    if one.plan is not None:
        assert one.plan.fresh is not None
        plan = plan_json(one.plan) | {"offset": one.plan.offset, "fresh": bits_json(one.plan.fresh)}
    return one._asdict() | {"order": order, "wish": one.wish.value, "plan": plan}


def _operation_of(said: dict[str, Any]) -> Operation:
    plan = said["plan"]
    epoch, offset = said["number"]
    return Operation(
        **{
            **said,
            "order": order_of(said["order"]),
            "number": (epoch, offset),
            "wish": Wish(said["wish"]),
            "counts": Counts(*said["counts"]),
            "plan": None if plan is None else _plan_of(plan),
        }
    )


def _plan_of(said: dict[str, Any]) -> Plan:
    plan = plan_of(said, said["offset"])
    # A snapshot of before does not say it.
    return plan._replace(fresh=bits_from(said["fresh"]) if "fresh" in said else plan.letters)


def _marks_json(marks: Marks) -> dict[str, str]:
    return {str(block): f"{marks.blocks[block]:x}" for block in sorted(marks.blocks)}


def _marks_of(said: dict[str, str]) -> Marks:
    return Marks({int(block): int(bits, 16) for block, bits in said.items()})
