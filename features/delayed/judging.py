"""Commands that are produced: judged by a thread, by the fold as it was, and stored as facts.

    begin   what is known is frozen, and from now on what happens to messages is noted (a Watch)
    judge   in a thread: read, judge (judgement.py), make the batch that is stored
    stored  if nothing has happened meanwhile to any message that the facts speak of

Who delivers a message and who cancels it both append on the loop, after they have looked whether it
is still pending as it was: whoever is in the log first has won, and the other one looks again.

Invariants
- A batch with facts is appended only in the leader epoch and to the fold for which it was judged.

Deliberately absent: what is judged (judgement.py), and how commands are stored (commands.py).
"""

from __future__ import annotations

from contextlib import closing

from data_plane.broker.produce.judging import Judgement
from data_plane.broker.produce.produce_checks import Checked
from data_plane.broker.services import Services
from data_plane.log.errors import AppendError, LogDeleted, LogDirFailure
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, decode_batch
from features.delayed.commands import (
    JUDGED_AT_HEADER,
    Command,
    command_of,
    encode_fact,
)
from features.delayed.fold import DelayedMessages
from features.delayed.hidden import hidden_batch
from features.delayed.judgement import COMMANDS_MAX, Judged, judge
from features.delayed.metrics import DelayedMetrics
from features.delayed.stored_messages import StoredMessages


class CommandJudges:
    """The `Judges` of a broker."""

    def __init__(self, services: Services, metrics: DelayedMetrics) -> None:
        self._services = services
        self._metrics = metrics

    def begin(self, partition: Partition, checked: Checked, now_ms: int) -> Judgement:
        wall_ms = self._services.wall_clock.wall_ms(now_ms)
        return _Judgement(self._metrics, partition, checked, wall_ms)


class _Judgement:
    """See data_plane's `Judgement`."""

    def __init__(
        self,
        metrics: DelayedMetrics,
        partition: Partition,
        checked: Checked,
        wall_ms: int,
    ) -> None:
        self._metrics = metrics
        self._log = partition.log
        self._epoch = partition.leader_epoch
        self._checked = checked
        self._wall_ms = wall_ms
        self._fold = fold = partition.log.fold(DelayedMessages)
        self._end_offset = partition.log.log_end_offset
        self._state = fold.state()
        self._watch = fold.pending.watch()
        self._found = Judged({})

    def judge(self) -> bytearray:
        checked = self._checked
        header = checked.batches[0]
        records = decode_batch(checked.buf, header.position)
        commands: dict[int, Command] = {}
        for index, record in enumerate(records):
            command = command_of(record.headers)
            if command is not None:
                commands[index] = command
        try:
            self._found = self._judged(commands)
        except OSError as error:
            if self._log.is_deleted_meanwhile(error):
                raise AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from error
            raise AppendError(
                ErrorCode.CORRUPT_MESSAGE, f"what is pending cannot be read now: {error}"
            ) from error
        except (LogDirFailure, LogDeleted) as error:
            raise AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from error
        stored = []
        for index, record in enumerate(records):
            delta = record.offset - header.base_offset
            if index in commands:
                stored.append(self._stored(commands[index], index, delta))
            else:
                stored.append(
                    NewRecord(record.timestamp, record.key, record.value, record.headers, delta)
                )
        return hidden_batch(header, stored)

    def _judged(self, commands: dict[int, Command]) -> Judged:
        """Raises AppendError, LogDirFailure, LogDeleted, OSError."""
        by_offset = sorted({one.offset for one in commands.values() if one.offset is not None})
        has_ids = any(one.offset is None for one in commands.values())
        messages = StoredMessages(
            self._log, self._state, self._end_offset, None if has_ids else by_offset
        )
        with closing(messages):
            if len(commands) <= COMMANDS_MAX:
                messages.look_up(by_offset)
            return judge(commands, messages)

    def _stored(self, command: Command, index: int, delta: int) -> NewRecord:
        """What is stored of it; nobody reads what else it has."""
        facts = (encode_fact(fact) for fact in self._found.facts[index])
        headers = (command.header, *facts, (JUDGED_AT_HEADER, b"%d" % self._wall_ms))
        return NewRecord(self._wall_ms, None, None, headers, delta)

    def judged(self) -> None:
        self._fold.release(self._state)

    def still_holds(self, partition: Partition) -> bool:
        return (
            partition.log is self._log
            and partition.leader_epoch == self._epoch
            and partition.log.fold(DelayedMessages) is self._fold
            and self._watch.touched.isdisjoint(self._found.offsets)
        )

    def stored(self) -> None:
        facts = [fact for some in self._found.facts.values() for fact in some]
        self._metrics.cancelled_count += sum(fact.new_due_ms is None for fact in facts)
